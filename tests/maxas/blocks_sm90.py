"""Random schedule blocks of sm_90: on the virtual GPU they leave the memory that their lines describe, and the checker
finds no hazard in what the assembler made of them.

    python -m tests.maxas.blocks_sm90 SEED      prints a program
"""

import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maxdnn import cubin
from maxdnn.checker import Finding, check_hazards
from maxdnn.emulator import VirtualGpu
from tests.maxas import blocks, tool
from tests.maxas.blocks import INDEX, POOLED, SHARED, Line

THREADS, _WINDOW = 32, 256
UNIFORM = [f"UR{n}" for n in range(8, 14)]
_QUEUE = {"LDS": ("mio", "shared"), "LDG": ("mio", ""), "LDC": ("constant", ""), "STS": ("mio", ""), "STG": ("mio", ""),
          "REDG": ("mio", ""), "ATOMS": ("mio", ""), "SHFL": ("mio", "exchange"), "S2R": ("sreg", ""),
          "MUFU": ("xu", "xu"), "I2F": ("xu", "xu"), "POPC": ("xu", "xu")}

HEADER = f"""# Kernel: {{name}}
# Arch: sm_90
# SharedSize: {THREADS * _WINDOW}
# ReqThreads: {THREADS}
# Param: ptr in
# Param: ptr out
""" + "".join(f"# ConstantData: bank 3 {' '.join(f'{(9 * n + k) * 0x9E3779B1 & 0xFFFFFFFF:08x}' for k in range(8))}\n"
             for n in range(16)) + f"""<REGISTER_MAPPING>
44-59 ~ {', '.join(POOLED)}
</REGISTER_MAPPING>
"""
PROLOGUE = """S2R R0, SR_TID.X;
IMAD.SHL.U32 R6, R0, 0x100, RZ;
LDC.64 R2, param_in[0];
LDC.64 R4, param_out[0];
ULDC.64 UR4, c[0x0][0x208];
IMAD.WIDE.U32 R2, R0, 0x100, R2;
IMAD.WIDE.U32 R4, R0, 0x400, R4;
IADD3 R6, R6, 0x400, RZ;
""" + "".join(f"LDG.E.128 R{n}, desc[UR4][R2.64+0x{4 * n:x}];\n" for n in range(8, 32, 4)) + """
LOP3.LUT R60, R8, 0x3c, RZ, 0xc0, !PT;
LOP3.LUT R35, R9, 0x7c, RZ, 0xc0, !PT;
IADD3 R32, R35, R6, RZ;
IADD3 R33, R35, R6, RZ;
LOP3.LUT R33, R33, 0x100, RZ, 0x3c, !PT;
IADD3 R36, P4, R4, 0x40, RZ;
IADD3.X R37, R5, RZ, RZ, P4, !PT;
IADD3 R38, P4, R4, 0x60, RZ;
IADD3.X R39, R5, RZ, RZ, P4, !PT;
""" + "".join(f"STS.128 [R6+0x{16 * n:x}], R{8 + n % 6 * 4};\n" for n in range(16)) + "".join(
    f"IMAD {name}, R{8 + n}, R{9 + n}, R{10 + n};\n" for n, name in enumerate(POOLED)) + "".join(
    f"ISETP.LT.AND P{n}, PT, R{8 + 2 * n}, R{9 + 2 * n}, PT;\n" for n in range(4)) + "".join(
    f"R2UR {name}, R{8 + n};\n" for n, name in enumerate(UNIFORM)) + "".join(
    f"UISETP.LT.U32.AND UP{n}, UPT, {name}, {UNIFORM[n + 1]}, UPT;\n" for n, name in enumerate(UNIFORM[:3]))
EPILOGUE = "P2R R62, PR, RZ, 0xf;\nSTG.E desc[UR4][R4.64+0x300], R62;\n" + "".join(
    f"STG.E.128 desc[UR4][R4.64+0x{0x200 + 4 * n:x}], R{n};\n" for n in range(8, 32, 4)) + "".join(
    f"STG.E desc[UR4][R4.64+0x{0x2A0 + 4 * n:x}], {name};\n" for n, name in enumerate(POOLED)) + "".join(
    f"IMAD.U32 R62, RZ, RZ, {name};\nSTG.E desc[UR4][R4.64+0x{0x2D0 + 4 * n:x}], R62;\n"
    for n, name in enumerate(UNIFORM)) + "".join(
    f"LDS.128 R8, [R6+0x{16 * n:x}];\nSTG.E.128 desc[UR4][R4.64+0x{0x100 + 16 * n:x}], R8;\n" for n in range(16))


class Author(blocks.Author):
    """Of sm_90: one queue reads operands in order; only loads from shared memory, exchanges and the slow unit bring
    results in order."""

    def _kind(self, opcode: str, text: str) -> tuple[str, str] | None:
        queue, order = _QUEUE.get(opcode, ("", ""))
        guard = text.split()[0] if text.startswith("@") else ""
        # A guard may be written between two loads: only those without one are told of by each other.
        return None if not queue else (queue, "" if order == "shared" and guard else order)

    def _alu(self, guard: str) -> None:
        rng, (d, a, b, c) = self.rng, (self._any() for _ in range(4))
        p, q, s = (f"P{rng.randrange(4)}" for _ in range(3))
        u, v, w = (rng.choice(UNIFORM) for _ in range(3))
        up, upq = (f"UP{rng.randrange(3)}" for _ in range(2))
        three, two, one, none = {a, b, c}, {a, b}, {a}, set[str]()
        pair, halves = self._aligned(2)
        other, others = self._aligned(2)
        compare = f"ISETP.LT.AND {p}, {q}, {a}, {b}, {s}" if p != q else f"ISETP.GE.XOR {p}, PT, {a}, {b}, {s}"
        text, reads, writes = rng.choice([
            (f"IADD3 {d}, {a}, {b}, -{c}", three, {d}), (f"IADD3 {d}, {p}, {a}, {b}, {c}", three, {d}),
            (f"IADD3.X {d}, {a}, {b}, RZ, {p}, !PT", two, {d}), (f"LOP3.LUT {d}, {a}, {b}, {c}, 0x96, !PT", three, {d}),
            (f"IMAD {d}, {a}, {b}, {c}", three, {d}),
            (f"IMAD.WIDE.U32 {pair}, {a}, {b}, {other}", two | others, halves),
            (f"FFMA {d}, {a}, {b}, {c}", three, {d}), (f"FADD {d}, {a}, -{b}", two, {d}),
            (f"FMUL {d}, {a}, {b}", two, {d}), (f"MOV {d}, c[0x3][0x{4 * rng.randrange(64):x}]", none, {d}),
            (f"SEL {d}, {a}, {b}, {p}", two, {d}), (f"VIMNMX {d}, {a}, {b}, !{p}", two, {d}), (compare, two, none),
            (f"SHF.L.U32 {d}, {a}, 0x3, RZ", one, {d}), (f"MOV {d}, {a}", one, {d}),
            (f"PLOP3.LUT {p}, PT, {q}, {s}, PT, 0x80, 0x0", none, none), (f"P2R {d}, PR, {a}, 0xf", one, {d}),
            (f"R2P PR, {a}, 0x{rng.randrange(1, 16):x}", one, none),
            (f"DADD {pair}, {pair}, {other}", halves | others, halves),
            (f"IADD3 {d}, {a}, {u}, RZ", one, {d}), (f"IMAD {d}, {a}, {u}, {b}", two, {d}),
            (f"R2UR {u}, {a}", one, none), (f"USHF.L.U32 {u}, {v}, 0x3, URZ", none, none),
            (f"UIADD3 {u}, {v}, {w}, URZ", none, none), (f"UMOV {u}, 0x{rng.randrange(1 << 20):x}", none, none),
            (f"ULDC {u}, c[0x3][0x{4 * rng.randrange(64):x}]", none, none),
            (f"ULOP3.LUT {u}, {v}, {w}, URZ, 0x3c, !UPT", none, none),
            (f"UISETP.GE.AND {up}, UPT, {v}, {w}, {upq}", none, none), (f"USEL {u}, {v}, {w}, {up}", none, none)])
        if text.startswith("U"):
            guard = rng.choice(["", "", f"@{rng.choice(['', '!'])}{upq} "])
        self.add(("" if text.startswith("R2UR") else guard) + text, writes, reads)

    def _load(self, guard: str, barrier: bool | None = None, only: str = "") -> bool:
        rng, d, a = self.rng, self._any(), self._any()
        at, base, far, high, size, wide, covered, row = self._place()
        forms: dict[str, list[tuple[str, set[str], set[str]]]] = {
            "LDS": [(f"LDS {d}, [{base}+0x{at:x}]", {d}, {base}),
                    (f"LDS.{32 * size} {wide}, [R6+0x{row:x}]", covered, set())],
            "LDG": [(f"LDG.E {d}, desc[UR4][{far}.64+0x{at:x}]", {d}, {far, high}),
                    (f"LDG.E.{32 * size} {wide}, desc[UR4][R2.64+0x{row:x}]", covered, set())],
            "LDC": [(f"LDC {d}, c[0x3][{INDEX}+0x{at:x}]", {d}, {INDEX})],
            "MUFU": [(f"MUFU.RCP {d}, {a}", {d}, {a}), (f"I2F.U16 {d}, {a}", {d}, {a}), (f"POPC {d}, {a}", {d}, {a})],
            "SHFL": [(f"SHFL.BFLY PT, {d}, {a}, 0x1, 0x1f", {d}, {a})],
            "ATOMS": [(f"ATOMS.ADD {d}, [{base}+0x{at:x}], {a}", {d}, {base, a})],
            "S2R": [(f"S2R {d}, SR_LANEID", {d}, set())],
        }
        text, writes, reads = rng.choice(forms[only or rng.choice([*forms, "LDS", "LDG"])])
        own = barrier
        if barrier is None and text.split()[0].split(".")[0] in ("LDG", "LDC", "ATOMS", "S2R"):
            own = True  # nothing else tells of them
        return self.add(("" if "SHFL" in text else guard) + text, writes, reads, barrier=own)

    def _store(self, guard: str) -> None:
        rng, a = self.rng, self._any()
        at, base, far, high, size, wide, covered, row = self._place()
        text, reads = rng.choice([
            (f"STS [{base}+0x{at:x}], {a}", {base, a}), (f"STS.{32 * size} [R6+0x{row:x}], {wide}", covered),
            (f"STG.E desc[UR4][{far}.64+0x{at:x}], {a}", {far, high, a}),
            (f"STG.E.{32 * size} desc[UR4][R4.64+0x{row:x}], {wide}", covered),
            (f"REDG.E.ADD.STRONG.GPU desc[UR4][{far}.64+0x{at:x}], {a}", {far, high, a})])
        self.add(guard + text, set(), reads)

    def _address(self, _: str) -> None:
        a, base = self._any(), self.rng.choice(SHARED)
        if self.rng.random() < 0.5:
            self.add(f"LOP3.LUT {INDEX}, {a}, 0x3c, RZ, 0xc0, !PT", {INDEX}, {a})
        elif self._provable(set(), {base}) and self.add(f"LOP3.LUT R35, {a}, 0x7c, RZ, 0xc0, !PT", {"R35"}, {a}):
            self.add(f"IADD3 {base}, R35, R6, RZ", {base}, {"R35"})
            if base == SHARED[1]:
                self.add(f"LOP3.LUT {base}, {base}, 0x100, RZ, 0x3c, !PT", {base}, {base})

    def close(self) -> None:
        for kind in ("LDS", "MUFU", "SHFL"):
            while not self._load("", barrier=True, only=kind):
                pass


def source(seed: int, name: str, scheduled: bool) -> str:
    """Plain lines around a schedule block; or the same lines without the block, each with long stalls."""
    rng = random.Random(seed)
    author, length = Author(rng), rng.randrange(12, 45)
    while len(author.lines) < length:
        author.instruction()
    author.close()
    cuts = sorted(rng.sample(range(length + 1), 2))
    parts = author.lines[:cuts[0]], author.lines[cuts[0]:cuts[1]], author.lines[cuts[1]:]
    out = HEADER.format(name=name) + _safely(PROLOGUE) + "3f:-:-:Y:f NOP;\n"
    for lines, block in zip(parts, (False, True, False), strict=True):
        body = _body(lines, block and scheduled, rng)
        out += f"<SCHEDULE_BLOCK>\n{body}</SCHEDULE_BLOCK>\n" if block and scheduled else body
    return out + "3f:-:-:Y:d NOP;\n" + _safely(EPILOGUE) + "3f:-:-:Y:d EXIT;\n"


def _body(lines: Sequence[Line], scheduled: bool, rng: random.Random) -> str:
    texts = [line.source(scheduled) for line in lines]
    if scheduled:
        return "".join(re.sub(r"(FFMA|LOP3\.LUT) (\w+), (R\d+)", r"\1 \2, \3.reuse", text) if rng.random() < 0.2
                       else text for text in texts)
    return "".join(t.replace("Y:d", "Y:f") + ("--:-:-:Y:f NOP;\n" if "R2UR" in t or " U" in t else "") for t in texts)


def _safely(lines: str) -> str:
    """Each instruction waits for all before it."""
    out = ""
    for text in filter(None, lines.split("\n")):
        opcode = text.split()[0].split(".")[0]
        stores, queued = opcode in ("STS", "STG"), opcode in _QUEUE
        out += f"3f:{2 if stores else '-'}:{1 if queued and not stores else '-'}:Y:f {text}\n"
        out += "--:-:-:Y:f NOP;\n" if opcode == "R2UR" else ""
    return out


def images(folder: Path, seeds: Sequence[int], scheduled: bool) -> bytes:
    text = "".join(source(seed, f"k{seed}", scheduled) for seed in seeds)
    return tool.assemble(folder, text, "-w", name=f"blocks{int(scheduled)}")


def outcome(image: bytes, seed: int) -> bytes:
    gpu, rng = VirtualGpu(), np.random.default_rng(seed)
    given = rng.integers(0, 1 << 32, THREADS * _WINDOW // 4, np.uint64).astype(np.uint32)
    source_, out = gpu.alloc(given.nbytes), gpu.alloc(THREADS * 0x400)
    gpu.upload(source_, given)
    memory = np.zeros(THREADS * 0x100, np.uint32)
    gpu.upload(out, memory)
    gpu.load(image).function(f"k{seed}").launch((1, 1, 1), (THREADS, 1, 1), [source_, out])
    gpu.synchronize()
    gpu.download(out, memory)
    return memory.tobytes()


def hazards(image: bytes) -> dict[str, list[Finding]]:
    found = {name: check_hazards(kernel) for name, kernel in cubin.read(image).kernels.items()}
    return {name: list(report.findings) for name, report in found.items() if report.findings}


def different(folder: Path, seeds: Sequence[int]) -> list[int]:
    """The seeds whose programs leave other memory when scheduled."""
    plain, scheduled = images(folder, seeds, False), images(folder, seeds, True)
    assert not hazards(plain), "a program is wrong as written"
    return [seed for seed in seeds if outcome(plain, seed) != outcome(scheduled, seed)]


if __name__ == "__main__":
    print(source(int(sys.argv[1]), "k", True))
