"""Random schedule blocks, and what they compute: as written, and as scheduled.

A program is straight code with a schedule block in it, right as its author wrote it. What is under way is guarded as
authors do it: one barrier set by the last of a group of loads stands for all of them, one read barrier for a group
of stores, a wait for whoever comes behind it. The same lines without the block and with long stalls say what is meant;
with the block they must leave the same memory on the machine that brings values late and reads operands late.

    python -m tests.maxas.blocks SEED      prints a program
"""

import dataclasses
import random
import sys
from pathlib import Path

import numpy as np

from maxdnn import cubin
from maxdnn.cubin import CubinKernel
from maxdnn.runtime.devices.protocol import Texture
from tests.checker.delayed import launch
from tests.checker.delayedmemory import Memory, Runaway
from tests.maxas import tool

THREADS = 8
GENERAL, POOLED = [f"R{n}" for n in range(8, 32)], [f"p{n}" for n in range(8)]
# Registers that always hold valid addresses; the second of shared memory lies in the window of the neighbouring lane.
SHARED, GLOBAL, INDEX = ("R32", "R33"), ("R36", "R38"), "R60"
_WINDOW = 256  # bytes of shared and of global memory that belong to a thread
_QUEUE = {"LDS": ("lsu", "shared"), "ATOMS": ("lsu", "shared"), "SHFL": ("lsu", "shared"), "LDG": ("lsu", "global"),
          "LDC": ("lsu", "constant"), "STS": ("lsu", ""), "STG": ("lsu", ""), "RED": ("lsu", ""),
          "TLD": ("tex", "global"), "MUFU": ("sfu", "sfu"), "I2F": ("sfu", "sfu"), "POPC": ("sfu", "sfu"),
          "DADD": ("fp64", "fp64"), "S2R": ("", "")}

HEADER = f"""# Kernel: {{name}}
# SharedSize: {THREADS * _WINDOW}
# ReqThreads: {THREADS}
# Param: ptr in
# Param: ptr out
# Texture: tex
# ConstantSize: bank 3 512
<REGISTER_MAPPING>
44-59 ~ {', '.join(POOLED)}
</REGISTER_MAPPING>
"""
PROLOGUE = """S2R R0, SR_TID.X;
SHL R6, R0, 0x8;
IADD R2.CC, R6, param_in[0];
IADD.X R3, RZ, param_in[1];
IADD R4.CC, R6, param_out[0];
IADD.X R5, RZ, param_out[1];
MOV R61, 0x2;
""" + "".join(f"LDG.E.128 R{n}, [R2+0x{4 * n:x}];\n" for n in range(8, 32, 4)) + """
LOP.AND R60, R8, 0x3c;
LOP.AND R35, R9, 0x7c;
IADD R32, R35, R6;
LOP.AND R35, R10, 0x7c;
IADD R33, R35, R6;
LOP.XOR R33, R33, 0x100;
IADD R36.CC, R4, 0x40;
IADD.X R37, R5, RZ;
IADD R38.CC, R4, 0x60;
IADD.X R39, R5, RZ;
""" + "".join(f"STS.128 [R6+0x{16 * n:x}], R{8 + n % 6 * 4};\n" for n in range(16)) + "".join(
    f"XMAD {name}, R{8 + n}, R{9 + n}, R{10 + n};\n" for n, name in enumerate(POOLED)) + """
ISETP.LT.AND P0, PT, R8, R9, PT;
ISETP.LT.AND P1, PT, R10, R11, PT;
ISETP.LT.AND P2, PT, R12, R13, PT;
ISETP.LT.AND P3, PT, R14, R15, PT;
IADD RZ.CC, R16, R17;
"""
EPILOGUE = """IADD.X R62, RZ, RZ;
P2R R63, PR, RZ, 0xf;
STG.E.64 [R4+0x2100], R62;
""" + "".join(f"STG.E.128 [R4+0x{0x2000 + 4 * n:x}], R{n};\n" for n in range(8, 40, 4)) + "".join(
    f"STG.E [R4+0x{0x20c0 + 4 * n:x}], {name};\n" for n, name in enumerate(POOLED)) + "".join(
    f"LDS.128 R8, [R6+0x{16 * n:x}];\nSTG.E.128 [R4+0x{0x4000 + 16 * n:x}], R8;\n" for n in range(16))


@dataclasses.dataclass(eq=False)
class Line:
    """An instruction with the control code of its author, all but the stall; macros with what they stand for."""

    text: str
    wait: int = 0
    read: int = 0
    write: int = 0
    expanded: tuple[str, ...] = ()

    def source(self, scheduled: bool) -> str:
        code = f"{self.wait:02x}:{self.read or '-'}:{self.write or '-'}" if self.wait else \
            f"--:{self.read or '-'}:{self.write or '-'}"
        texts = (self.text,) if scheduled or not self.expanded else self.expanded
        return "".join(f"{code}:{'-:1' if scheduled else 'Y:d'} {text};\n" for text in texts)


@dataclasses.dataclass(eq=False)
class Op:
    """Something under way: registers it will write and has not read for sure, its queue, its order, its barriers."""

    writes: set[str]
    reads: set[str]
    queue: str
    order: str
    read: int
    write: int


class Author:
    """Writes lines that are right one after the other, by what a barrier is known to stand for."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines, self.ops = rng, list[Line](), list[Op]()

    # -- what is under way -------------------------------------------------------------------------------------

    def _proof(self, op: Op, done: bool) -> list[int]:
        """Barriers whose release tells that `op` is done, or that it has read its operands."""
        later = self.ops[self.ops.index(op):]
        if done:
            return [s.write for s in later if s.write and (s is op or s.order == op.order != "")]
        return [b for s in later if s is op or s.queue == op.queue != "" for b in (s.read, s.write) if b]

    def _wait_for(self, board: int) -> None:
        for setter in [s for s in self.ops if s.write == board]:
            for op in self.ops[:self.ops.index(setter) + 1]:
                if op is setter or op.order == setter.order != "":
                    op.writes = set()
        for setter in [s for s in self.ops if board in (s.read, s.write)]:
            for op in self.ops[:self.ops.index(setter) + 1]:
                if op is setter or op.queue == setter.queue != "" or (not op.writes and op.order):
                    op.reads = set()

    def _provable(self, reads: set[str], writes: set[str]) -> bool:
        """Whether there are barriers that would tell when these registers may be touched."""
        return all(self._proof(op, done) for op in self.ops
                   for done, clash in ((True, op.writes & (reads | writes)), (False, op.reads & writes)) if clash)

    def _mask(self, reads: set[str], writes: set[str]) -> int:
        """The barriers to wait for before touching these registers."""
        boards = set()
        for op in self.ops:
            for done, clash in ((True, op.writes & (reads | writes)), (False, op.reads & writes)):
                if clash:
                    boards.add(self.rng.choice(self._proof(op, done)))
        if self.rng.random() < 0.1:  # for the sake of those behind it
            boards.add(self.rng.randint(1, 6))
        for board in boards:
            self._wait_for(board)
        return sum(1 << b - 1 for b in boards)

    def add(self, text: str, writes: set[str], reads: set[str], *, expanded: tuple[str, ...] = (),
            barrier: bool | None = None) -> bool:
        """Write a line if it can be guarded."""
        if not self._provable(reads, writes):
            return False
        mask = self._mask(reads, writes)
        opcode = text.split()[text.startswith("@")].split(".")[0]
        line, kind = Line(text, mask, expanded=expanded), self._kind(opcode, text)
        if kind is not None:
            stores, rng = opcode in ("STS", "STG", "RED", "REDG"), self.rng
            set_one = rng.random() < 0.4 or opcode == "S2R" if barrier is None else barrier
            line.write = rng.randint(1, 6) if set_one and not stores else 0
            line.read = rng.randint(1, 6) if (set_one and stores) or (not stores and rng.random() < 0.1) else 0
            self.ops.append(Op(set(writes), set(reads), *kind, line.read, line.write))
        self.lines.append(line)
        return True

    def _kind(self, opcode: str, text: str) -> tuple[str, str] | None:
        """The queue of an instruction of no fixed time, and the kind whose results come in order ("": none)."""
        return _QUEUE.get(opcode)

    # -- instructions ------------------------------------------------------------------------------------------

    def instruction(self) -> None:
        rng = self.rng
        guard = rng.choice(["", "", "", f"@{rng.choice(['', '!'])}P{rng.randrange(4)} "])
        rng.choice([self._alu, self._alu, self._alu, self._load, self._load, self._store, self._address])(guard)

    def _any(self) -> str:
        return self.rng.choice(GENERAL + POOLED)

    def _aligned(self, count: int) -> tuple[str, set[str]]:
        first = self.rng.randrange(8, 32, count)
        return f"R{first}", {f"R{first + n}" for n in range(count)}

    def _alu(self, guard: str) -> None:
        rng, (d, a, b, c) = self.rng, (self._any() for _ in range(4))
        p, q, s = (f"P{rng.randrange(4)}" for _ in range(3))
        constant = f"c[0x3][0x{rng.randrange(64) * 4:x}]"
        three, two, one, none = {a, b, c}, {a, b}, {a}, set[str]()
        if rng.random() < 0.2:
            self._macro(guard)
            return
        compare = (f"ISETP.LT.AND {p}, {q}, {a}, {b}, {s}" if p != q else f"ISETP.GE.XOR {p}, PT, {a}, {b}, {s}")
        text, reads, writes = rng.choice([
            (f"IADD {d}, {a}, {b}", two, {d}), (f"IADD {d}.CC, {a}, {b}", two, {d}),
            (f"IADD.X {d}, {a}, {b}", two, {d}), (f"LOP.XOR {d}, {a}, {constant}", one, {d}),
            (f"SHL {d}, {a}, 0x3", one, {d}), (f"MOV {d}, {a}", one, {d}),
            (f"XMAD {d}, {a}, {b}, {c}", three, {d}), (f"FFMA {d}, {a}, {b}, {c}", three, {d}),
            (f"MOV {d}, {constant}", none, {d}), (f"SEL {d}, {a}, {b}, {p}", two, {d}),
            (f"IMNMX {d}, {a}, {b}, !{p}", two, {d}), (f"ICMP.NE {d}, {a}, {b}, {c}", three, {d}),
            (compare, two, none), (f"PSETP.AND.OR {p}, PT, {q}, !{s}, {p}", none, none),
            (f"P2R {d}, PR, {a}, 0xf", one, {d}), (f"R2P PR, {a}, 0x{rng.randrange(1, 16):x}", one, none),
            (f"LOP3.LUT {d}, {a}, {b}, {c}, 0x96", three, {d})])
        self.add(guard + text, writes, reads)

    def _macro(self, guard: str) -> None:
        d, a, b, c, x = self.rng.sample(GENERAL, 5)
        kind = self.rng.randrange(3)
        if kind == 0:
            parts = [f"XMAD.MRG {x}, {a}, {b}.H1, RZ", f"XMAD {d}, {a}, {b}, {c}",
                     f"XMAD.PSL.CBCC {d}, {a}.H1, {x}.H1, {d}"]
            text = f"XMAD.LO {d}, {a}, {b}, {c}, {x}"
        elif kind == 1:
            parts = [f"XMAD {d}, {a}, {b}, {c}", f"XMAD.PSL {d}, {a}.H1, {b}, {d}"]
            text = f"XMAD.LO2 {d}, {a}, {b}, {c}"
        else:
            parts = [f"XMAD {d}, {a}, {b}, {c}", f"XMAD.PSL {d}, {a}, {b}.H1, {d}"]
            text = f"XMAD.LO2C {d}, {a}, {b}, {c}"
        written = {d, x} if kind == 0 else {d}
        self.add(guard + text, written, {a, b, c} | written, expanded=tuple(guard + part for part in parts))

    def _place(self) -> tuple[int, str, str, str, int, str, set[str], int]:
        """Where an access may go: an offset, registers with an address in shared memory and in global memory, with its
        upper half; and a vector: its words, its name, its registers, the offset of a row of the thread's own memory."""
        rng = self.rng
        at, base, far, size = 4 * rng.randrange(32), rng.choice(SHARED), rng.choice(GLOBAL), rng.choice([2, 4])
        wide, covered = self._aligned(size)
        return (at, base, far, f"R{int(far[1:]) + 1}", size, wide, covered,
                4 * size * rng.randrange(_WINDOW // 4 // size))

    def _load(self, guard: str, barrier: bool | None = None, only: str = "") -> bool:
        rng, d, a = self.rng, self._any(), self._any()
        at, base, far, high, size, wide, covered, row = self._place()
        pair, halves = self._aligned(2)
        other, others = self._aligned(2)
        forms: dict[str, list[tuple[str, set[str], set[str]]]] = {
            "LDS": [(f"LDS {d}, [{base}+0x{at:x}]", {d}, {base}),
                    (f"LDS.{32 * size} {wide}, [R6+0x{row:x}]", covered, set())],
            "LDG": [(f"LDG.E {d}, [{far}+0x{at:x}]", {d}, {far, high}),
                    (f"LDG.E.{32 * size} {wide}, [R2+0x{row:x}]", covered, set())],
            "LDC": [(f"LDC {d}, c[0x3][{INDEX}+0x{at:x}]", {d}, {INDEX})],
            "TLD": [(f"TLD.LZ.T {d}, {INDEX}, RZ, tex, 1D, 0x1", {d}, {INDEX})],
            "MUFU": [(f"MUFU.RCP {d}, {a}", {d}, {a}), (f"I2F.F32.S32 {d}, {a}", {d}, {a}),
                     (f"POPC {d}, {a}", {d}, {a})],
            "DADD": [(f"DADD {pair}, {pair}, {other}", halves, halves | others)],
            "SHFL": [(f"SHFL.BFLY PT, {d}, {a}, 0x1, 0x1f", {d}, {a}),
                     (f"ATOMS.ADD {d}, [{base}+0x{at:x}], {a}", {d}, {base, a})],
            "S2R": [(f"S2R {d}, SR_LANEID", {d}, set())],
        }
        text, writes, reads = rng.choice(forms[only or rng.choice([*forms, "LDS", "LDG"])])
        return self.add(guard + text, writes, reads, barrier=barrier)

    def _store(self, guard: str, only: str = "") -> None:
        rng, a = self.rng, self._any()
        at, base, far, high, size, wide, covered, row = self._place()
        forms = [
            (f"STS [{base}+0x{at:x}], {a}", {base, a}), (f"STS.{32 * size} [R6+0x{row:x}], {wide}", covered),
            (f"STG.E [{far}+0x{at:x}], {a}", {far, high, a}), (f"STG.E.{32 * size} [R4+0x{row:x}], {wide}", covered),
            (f"RED.E.ADD [{far}+0x{at:x}], {a}", {far, high, a})]
        text, reads = rng.choice([form for form in forms if form[0].startswith(only)])
        self.add(guard + text, set(), reads)

    def _address(self, _: str) -> None:
        """A new valid address, from a register's low bits."""
        a, base, far = self._any(), self.rng.choice(SHARED), self.rng.choice(GLOBAL)
        kind, high = self.rng.randrange(3), f"R{int(far[1:]) + 1}"
        if kind == 0:
            self.add(f"LOP.AND {INDEX}, {a}, 0x3c", {INDEX}, {a})
        elif kind == 1 and self._provable(set(), {base}) and self.add(f"LOP.AND R35, {a}, 0x7c", {"R35"}, {a}):
            self.add(f"IADD {base}, R35, R6", {base}, {"R35"})
            if base == SHARED[1]:
                self.add(f"LOP.XOR {base}, {base}, 0x{_WINDOW:x}", {base}, {base})
        elif kind == 2 and self._provable(set(), {far, high}) and self.add(f"LOP.AND R35, {a}, 0x7c", {"R35"}, {a}):
            self.add(f"IADD {far}.CC, R35, R4", {far}, {"R35"})
            self.add(f"IADD.X {high}, R5, RZ", {high}, set())

    def close(self) -> None:
        """Give everything under way a barrier that tells of it."""
        for kind in ("LDS", "LDG", "LDC", "TLD", "MUFU", "DADD"):
            while not self._load("", barrier=True, only=kind):
                pass


class Exchanging(Author):
    """Writes little but accesses to a few words of shared memory, the lane's own and its neighbour's."""

    def instruction(self) -> None:
        rng, (own, other) = self.rng, SHARED
        if not self.lines:
            self.add(f"MOV {own}, R6", {own}, set())
            self.add(f"LOP.XOR {other}, R6, 0x{_WINDOW:x}", {other}, set())
        guard = rng.choice(["", "", "", f"@{rng.choice(['', '!'])}P{rng.randrange(4)} "])
        kind = rng.randrange(5)
        if kind < 2:
            self._load(guard, only="LDS")
        elif kind < 4:
            self._store(guard, only="STS")
        else:
            self._alu(guard)

    def _place(self) -> tuple[int, str, str, str, int, str, set[str], int]:
        at, *others, row = super()._place()
        return at % 16, *others, row % 16  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class Program:
    """Parts: whether each is a schedule block, and its lines with the number of their ORDERED group (0: none). `loop`:
    run the parts twice; `carried` is then issued in front of the loop and at its end."""

    parts: tuple[tuple[bool, tuple[tuple[int, Line], ...]], ...]
    loop: bool
    carried: tuple[Line, ...]

    def source(self, name: str, scheduled: bool) -> str:
        plain = _safely(PROLOGUE)
        out = HEADER.format(name=name) + plain + "3f:-:-:-:f NOP;\n"
        carried = "".join(line.source(False) for line in self.carried)
        out += carried + ("LOOP:\n" if self.loop else "")
        for block, lines in self.parts:
            body, group = "", 0
            for number, line in lines:
                if block and scheduled and number != group:
                    body += ("</ORDERED>\n" if group else "") + ("<ORDERED>\n" if number else "")
                    group = number
                body += line.source(block and scheduled)
            body += "</ORDERED>\n" if group and block and scheduled else ""
            out += f"<SCHEDULE_BLOCK>\n{body}</SCHEDULE_BLOCK>\n" if block and scheduled else body
        out += "3f:-:-:Y:d NOP;\n" + (carried if self.loop else "")
        if self.loop:
            out += "".join(f"--:-:-:Y:d {text};\n" for text in (
                "IADD R61, R61, -0x1", "ISETP.NE.AND P6, PT, R61, RZ, PT", "@P6 BRA LOOP"))
        out += "3f:-:-:Y:d NOP;\n"
        return out + _safely(EPILOGUE) + "3f:-:-:Y:d EXIT;\n"


def _safely(lines: str) -> str:
    """Each instruction waits for all before it."""
    out = ""
    for text in filter(None, lines.split("\n")):
        queued = _opcode(text) in _QUEUE
        stores = _opcode(text) in ("STS", "STG")
        out += f"3f:{2 if stores else '-'}:{1 if queued and not stores else '-'}:Y:d {text}\n"
    return out


def _opcode(text: str) -> str:
    return text.split()[0].split(".")[0]


def program(seed: int, author_of: type[Author] = Author) -> Program:
    """The random program of a seed."""
    rng = random.Random(seed)
    author, loop = author_of(rng), rng.random() < 0.4
    carried: tuple[Line, ...] = ()
    if loop:
        for last in (False, False, True):
            while not author._load("", barrier=last, only="LDS"):
                pass
        carried, author.lines = tuple(author.lines), []
    length = rng.randrange(12, 45)
    while len(author.lines) < length:
        author.instruction()
    inside = rng.random() < 0.5
    author.close()
    at = len(author.lines) if inside else length
    lines, after = author.lines[:at], author.lines[at:]
    cuts = sorted(rng.sample(range(len(lines) + 1), 2)) if rng.random() < 0.5 else [rng.randrange(4), len(lines)]
    numbered, group = [], 0
    for line in lines:
        if rng.random() < 0.1:
            group = 0 if group else rng.randrange(1, 100)
        numbered.append((group, line))
    pieces = [(False, numbered[:cuts[0]]), (True, numbered[cuts[0]:cuts[1]]), (rng.random() < 0.5, numbered[cuts[1]:]),
              (False, [(0, line) for line in after])]
    return Program(tuple((block, tuple(lines)) for block, lines in pieces if lines), loop, carried)


def kernels(folder: Path, programs: list[Program], scheduled: bool, assembler: Path = tool.MAXAS) -> list[CubinKernel]:
    """The programs as kernels of one source."""
    text = "".join(p.source(f"k{n}", scheduled) for n, p in enumerate(programs))
    data = cubin.read(tool.assemble(folder, text, "-w", assembler=assembler))
    return [data.kernels[f"k{n}"] for n in range(len(programs))]


def outcome(kernel: CubinKernel, mode: str, seed: int) -> bytes:
    """All of global memory after one block of eight threads."""
    memory = Memory(0x10000)
    source, target = memory.alloc(THREADS * _WINDOW), memory.alloc(0x8000)
    values = np.random.default_rng(seed).integers(0, 256, THREADS * _WINDOW, np.uint8)
    memory.data[:values.size] = values
    params = source.to_bytes(8, "little") + target.to_bytes(8, "little") + bytes(16)
    table = np.random.default_rng(seed + 1).integers(0, 256, 512, np.uint8).tobytes()
    try:
        launch(kernel, memory, (1, 1, 1), (THREADS, 1, 1), params, mode=mode, banks={3: table}, limit=5000,
               textures={0: Texture(source, THREADS * _WINDOW, 1)})
    except Runaway:
        return b"astray"
    return memory.data.tobytes()


def different(folder: Path, seeds: list[int], assembler: Path = tool.MAXAS,
              author_of: type[Author] = Author) -> list[int]:
    """The seeds whose programs leave other memory when scheduled. A program that is not right as written is an error of
    this file."""
    programs = [program(seed, author_of) for seed in seeds]
    plain, scheduled = kernels(folder, programs, False), kernels(folder, programs, True, assembler)
    wrong = []
    for seed, written, made in zip(seeds, plain, scheduled, strict=True):
        meant = outcome(written, "none", seed)
        assert meant != b"astray" and meant == outcome(written, "late", seed), f"program {seed} is wrong as written"
        if any(outcome(made, mode, seed) != meant for mode in ("early", "late")):
            wrong.append(seed)
    return wrong


if __name__ == "__main__":
    print(program(int(sys.argv[1])).source("k", True))
