"""Schedule blocks: whatever the order, every dependence is kept and every stall covers its latency.

Random straight-line programs, correct as written, go through a schedule block. What comes out is judged here by rules
of its own: the instructions' reads and writes as the Python decoder tells them, and the minimum distances of the
hazard table (register 6 cycles, predicate 13, carry 6; operands of shared-memory instructions are read 2 cycles after
issue, those of other memory, texture and special-function instructions 4).
"""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from maxdnn.isa import Control, Instruction, decode
from tests.maxas import tool

SEED = 20150104
PROGRAMS = 24
LENGTH = 40
SHARED, OTHER_MEMORY = ("LDS", "STS", "ATOMS", "SHFL"), ("LDG", "STG", "MUFU", "S2R")
STORES = ("STS", "STG")


@dataclass(frozen=True)
class Step:
    """An instruction in its program, with everything it touches."""

    inst: Instruction
    reads: frozenset[str]
    writes: frozenset[str]


def _step(word: int, bits: int, index: int) -> Step:
    inst = decode(word, Control.unpack(bits), index // 3 * 32 + 8 + index % 3 * 8)
    reads = {f"R{r}" for r in inst.reads()} | {f"P{p}" for p in inst.pred_reads()}
    writes = {f"R{r}" for r in inst.writes()} | {f"P{p}" for p in inst.pred_writes()}
    return Step(inst, frozenset(reads | ({"CC"} if inst.cc_reads() else set())),
                frozenset(writes | ({"CC"} if inst.cc_writes() else set())))


class Program:
    """Writes a random program whose barriers are right: a register under way is waited for before it is touched."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.under_way: dict[str, int] = {}  # register -> barrier 1..6 that will release it
        self.unique = 0

    def line(self) -> str:
        """One instruction; its constant makes it unlike any other."""
        r, rng = self._register, self.rng
        self.unique += 4
        c = f"c[0x0][0x{0x140 + self.unique:x}]"
        kind = rng.randrange(10)
        guard = rng.choice(["", "", "", "@P0 ", "@!P1 "])
        match kind:
            case 0 | 1:
                return self._alu(guard, f"FFMA {r()}, {r()}, {c}, {r()}")
            case 2:
                return self._alu(guard, f"IADD {r()}.CC, {r()}, {c}")
            case 3:
                return self._alu(guard, f"IADD.X {r()}, {r()}, {c}")
            case 4:
                return self._alu(guard, f"ISETP.GT.AND P{rng.randrange(3)}, PT, {r()}, {c}, P{rng.randrange(3)}")
            case 5:
                return self._alu(guard, f"SHL {r()}, {r()}, {c}")
            case 6:
                return self._memory(guard, f"LDS {r()}, [{r()}+0x{self.unique:x}]", "write")
            case 7:
                return self._memory(guard, f"LDG.E {r()}, [{self._pair()}+0x{self.unique:x}]", "write")
            case 8:
                return self._memory(guard, f"STS [{r()}+0x{self.unique:x}], {r()}", "read")
            case _:
                return self._memory(guard, f"STG.E [{self._pair()}+0x{self.unique:x}], {r()}", "read")

    def _register(self) -> str:
        return f"R{self.rng.randrange(12)}"

    def _pair(self) -> str:
        return f"R{self.rng.randrange(6) * 2}"

    def _touched(self, text: str) -> set[str]:
        names = {w.split(".")[0].strip("[],") for w in text.replace("+", " ").split()}
        names = {n for n in names if n[0] == "R" and n[1:].isdigit()}
        return names | {f"R{int(n[1:]) + 1}" for n in names} if ".E" in text else names

    def _wait(self, text: str) -> str:
        boards = {self.under_way[n] for n in self._touched(text) if n in self.under_way}
        self.under_way = {n: b for n, b in self.under_way.items() if b not in boards}
        return f"{sum(1 << b - 1 for b in boards):02x}" if boards else "--"

    def _alu(self, guard: str, text: str) -> str:
        return f"{self._wait(text)}:-:-:-:1 {guard}{text};\n"

    def _memory(self, guard: str, text: str, kind: str) -> str:
        wait, board = self._wait(text), self.rng.randint(1, 6)
        self.under_way.update(dict.fromkeys(self._touched(text), board))
        if kind == "write":
            return f"{wait}:-:{board}:-:2 {guard}{text};\n"
        return f"{wait}:{board}:-:-:2 {guard}{text};\n"


def _read_delay(inst: Instruction) -> int:
    return 2 if inst.opcode in SHARED else 4 if inst.opcode in OTHER_MEMORY else 0


def _minimum(producer: Step, key: str, consumer: Step) -> int:
    """Cycles between the issue of a fixed-latency producer and of a reader of its result."""
    if producer.inst.cls.latency != "fixed":
        return 0
    return 13 if key[0] == "P" else 6 - _read_delay(consumer.inst)


def _shares(a: Step, b: Step) -> bool:
    """Do they share a register, predicate or the carry that one of them writes?"""
    return bool(a.writes & (b.reads | b.writes) or a.reads & b.writes)


def _conflict(a: Step, b: Step) -> bool:
    """Must `a`, written first, stay before `b`? Also where both use one memory and one of them stores."""
    if _shares(a, b):
        return True
    for space in (("LDS", "STS"), ("LDG", "STG")):
        if a.inst.opcode in space and b.inst.opcode in space and {a.inst.opcode, b.inst.opcode} & set(STORES):
            return True
    return False


def _boards(step: Step) -> set[int]:
    c = step.inst.control
    return {b for b in (c.write_barrier, c.read_barrier) if b is not None}


def _waits(step: Step, board: int) -> bool:
    return bool(step.inst.control.wait_mask >> board & 1)


def check_order(source: list[Step], out: list[Step]) -> None:
    """The same instructions, conflicting ones in their order, waits between what they separate."""
    place = {s.inst.word: i for i, s in enumerate(out)}
    assert sorted(place) == sorted(s.inst.word for s in source) and len(place) == len(out)
    for j, b in enumerate(source):
        for i, a in enumerate(source[:j]):
            pa, pb = place[a.inst.word], place[b.inst.word]
            if _conflict(a, b):
                assert pa < pb, f"{b.inst} overtook {a.inst}"
            for board in _boards(a):
                if _waits(b, board):
                    assert pa < pb, f"{b.inst} waits before {a.inst} sets its barrier"
                if _shares(a, b) and any(_waits(s, board) for s in source[i + 1:j + 1]):
                    assert any(_waits(s, board) for s in out[pa + 1:pb + 1]), f"no wait between {a.inst} and {b.inst}"


def check_stalls(out: list[Step]) -> None:
    """Issue times by the stall codes: every fixed latency has passed when its result is read."""
    clock, issue, last_write = 0, [], {}
    for i, step in enumerate(out):
        issue.append(clock)
        for key in step.reads:
            for producer in last_write.get(key, []):
                needed = _minimum(out[producer], key, step)
                assert clock - issue[producer] >= needed, f"{step.inst} reads {key} too early: {out[producer].inst}"
        for j in range(i):
            for board in _boards(out[j]):
                if _waits(step, board):
                    assert clock - issue[j] >= 2, f"{step.inst} waits too soon after {out[j].inst}"
        for key in step.writes:
            last_write[key] = ([] if str(step.inst.guard) == "" else last_write.get(key, [])) + [i]
        stall = step.inst.control.stall
        assert stall < 12 or step.inst.control.yield_hint, f"{step.inst}: un-yielded {stall} means something else"
        if stall == 0:
            assert i + 1 < len(out) and not _conflict(step, out[i + 1]) and not _conflict(out[i + 1], step)
            assert out[i + 1].inst.opcode in SHARED + OTHER_MEMORY and step.inst.opcode not in SHARED + OTHER_MEMORY
        clock += stall


def _steps(found: list[tuple[int, int]]) -> list[Step]:
    return [_step(word, bits, i) for i, (word, bits) in enumerate(found)]


@pytest.mark.sampled(3, 5)
@pytest.mark.parametrize("number", range(PROGRAMS))
def test_a_scheduled_program_keeps_its_meaning(number: int, tmp_path: Path) -> None:
    rng = random.Random(SEED + number)
    print(f"seed {SEED + number}")
    program = Program(rng)
    lines = [program.line() for _ in range(LENGTH)]
    after = [program.line() for _ in range(3)]
    third = LENGTH // 3
    block = "<SCHEDULE_BLOCK>\n{}</SCHEDULE_BLOCK>\n"
    split = rng.random() < 0.5  # two blocks in a row, or one
    body = block.format("".join(lines[:third])) + block.format("".join(lines[third:])) if split else block.format(
        "".join(lines))
    tail = "".join(after) + "3f:-:-:-:f EXIT;\n"
    source = _steps(tool.words(tmp_path, "".join(lines) + tail, "-n", "-w"))
    out = _steps(tool.words(tmp_path, body + tail, "-n", "-w"))
    assert [s.inst.word for s in out[LENGTH:]] == [s.inst.word for s in source[LENGTH:]]
    parts = [(0, third), (third, LENGTH)] if split else [(0, LENGTH)]
    for start, end in parts:
        check_order(source[start:end], out[start:end])
    check_stalls(out[:LENGTH + 1])


def _block(tmp_path: Path, lines: str, before: str = "", after: str = "") -> list[str]:
    """The instructions of a schedule block as they come out, with what stands around it."""
    body = f"{before}<SCHEDULE_BLOCK>\n{lines}</SCHEDULE_BLOCK>\n{after}--:-:-:-:f EXIT;\n"
    return [str(s.inst) for s in _steps(tool.words(tmp_path, body, "-n", "-w"))]


LOADS = {
    "shared": "LDS R{n}, [R20+0x{at:x}]",
    "global": "LDG.E R{n}, [R20+0x{at:x}]",
    "constant": "LDC R{n}, c[0x3][R20+0x{at:x}]",
    "texture": "TLD.LZ.T R{n}, R20, RZ, 0x{n:x}, 1D, 0x1",
    "function": "MUFU.RCP R{n}, R2{n}",
    "double": "DADD R1{n}, R20, R2{n}",
    "shuffle": "SHFL.IDX PT, R{n}, R20, R2{n}, RZ",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("guard", ["", "@P0 "])
def test_a_load_that_sets_a_barrier_stays_behind_its_group(kind: str, guard: str, tmp_path: Path) -> None:
    """One barrier, set by the last, stands for four results; the user of the first waits for it."""
    evens = [2 * n for n in range(4)] if kind == "double" else list(range(4))
    loads = [LOADS[kind].format(n=n, at=4 * n) for n in evens]
    user = "DADD R40, R10, R20" if kind == "double" else "FADD R40, R0, R0"
    waits, code = ("--:-:1:-:1 ", "01:-:2:-:1 ") if kind == "double" else ("--:-:1:-:1 ", "01:-:-:-:1 ")
    lines = "".join(f"--:-:-:-:1 {guard}{load};\n" for load in loads[:3]) + f"{waits}{guard}{loads[3]};\n"
    out = _block(tmp_path, lines + f"{code}{user};\n--:-:-:-:1 MOV R41, R42;\n")
    opcode = loads[0].split()[0].split(".")[0]
    of_group = [i for i, text in enumerate(out) if text.startswith(guard + opcode) and "R40" not in text]
    last = loads[3].split(",")[0].split()[-1] if kind != "shuffle" else "R3"
    assert len(of_group) == 4 and f" {last}," in out[of_group[-1]]
    assert next(i for i, text in enumerate(out) if "R40" in text) > of_group[-1]


def test_a_store_that_sets_a_read_barrier_stays_behind_its_group(tmp_path: Path) -> None:
    """The barrier of the last store stands for the operands of all; the registers of the first are written behind it,
    by instructions that do not wait themselves."""
    lines = ("".join(f"--:-:-:-:1 STG.E [R20+0x{4 * n:x}], R{n};\n" for n in range(3))
             + "--:2:-:-:1 STG.E [R20+0xc], R3;\n02:-:-:-:1 MOV R3, RZ;\n--:-:-:-:1 MOV R0, RZ;\n"
               "--:-:-:-:1 MOV R2, RZ;\n--:-:-:-:1 MOV R1, RZ;\n")
    out = _block(tmp_path, lines)
    assert out[3] == "STG.E [R20+0xc], R3" and out[4] == "MOV R3, RZ"
    assert sorted(out[5:8]) == ["MOV R0, RZ", "MOV R1, RZ", "MOV R2, RZ"]


def test_results_of_a_group_are_used_behind_the_wait_for_its_last(tmp_path: Path) -> None:
    """The second FADD reads what the first load brings and waits for nothing itself."""
    out = _block(tmp_path, "--:-:-:-:1 LDS R0, [R20];\n--:-:1:-:1 LDS R1, [R20+0x4];\n01:-:-:-:1 FADD R8, R1, R1;\n"
                           "--:-:-:-:1 FADD R9, R0, R0;\n")
    assert out.index("FADD R8, R1, R1") < out.index("FADD R9, R0, R0")


def test_two_groups_on_one_barrier_keep_their_waits(tmp_path: Path) -> None:
    lines = ("--:-:-:-:1 LDS R0, [R20];\n--:-:1:-:1 LDS R1, [R20+0x4];\n01:-:-:-:1 FADD R8, R1, R0;\n"
             "--:-:-:-:1 LDS R2, [R20+0x8];\n--:-:1:-:1 LDS R3, [R20+0xc];\n01:-:-:-:1 FADD R9, R3, R3;\n"
             "--:-:-:-:1 FADD R10, R2, R2;\n")
    out = _block(tmp_path, lines)
    order = ["LDS R1, [R20+0x4]", "FADD R8, R1, R0", "LDS R3, [R20+0xc]", "FADD R9, R3, R3", "FADD R10, R2, R2"]
    assert sorted(order, key=out.index) == order


def test_one_barrier_of_two_units_stands_for_both_groups(tmp_path: Path) -> None:
    lines = ("--:-:-:-:1 MUFU.RCP R0, R20;\n--:-:1:-:1 MUFU.RCP R1, R21;\n--:-:-:-:1 LDS R2, [R22];\n"
             "--:-:1:-:1 LDS R3, [R22+0x4];\n01:-:-:-:1 FADD R8, R3, R3;\n--:-:-:-:1 FADD R9, R0, R0;\n"
             "--:-:-:-:1 FADD R10, R2, R2;\n")
    out = _block(tmp_path, lines)
    wait = out.index("FADD R8, R3, R3")
    assert wait == max(out.index(text) for text in out if text.startswith(("MUFU", "LDS"))) + 1
    assert min(out.index("FADD R9, R0, R0"), out.index("FADD R10, R2, R2")) > wait


def test_a_wait_for_what_was_issued_before_the_block_stays_in_front_of_its_users(tmp_path: Path) -> None:
    """R0 and R1 come from loads in front of the block under one barrier. The block sets that barrier again before the
    wait, which therefore stands for both."""
    before = "--:-:-:-:1 LDG.E R0, [R20];\n--:-:1:-:2 LDG.E R1, [R20+0x4];\n"
    lines = ("--:-:1:-:1 LDG.E R2, [R20+0x8];\n01:-:-:-:1 FADD R8, R2, R2;\n--:-:-:-:1 FADD R9, R0, R0;\n"
             "--:-:-:-:1 MOV R1, RZ;\n")
    out = _block(tmp_path, lines, before)
    assert out.index("FADD R8, R2, R2") < min(out.index("FADD R9, R0, R0"), out.index("MOV R1, RZ"))


def test_a_wait_for_the_round_before_stays_in_front_of_its_users(tmp_path: Path) -> None:
    """A loop: the loads behind the block are waited for in the next round, by the block's first instruction."""
    lines = ("01:-:-:-:1 FADD R8, R1, R1;\n--:-:-:-:1 SHL R9, R0, 0x2;\n--:-:-:-:1 MOV R10, RZ;\n")
    out = _block(tmp_path, "--:-:-:-:1 MOV R30, RZ;\n--:-:-:-:1 MOV R31, RZ;\n" + lines, "LOOP:\n",
                 "--:-:-:-:1 LDS R0, [R20];\n--:-:1:-:2 LDS R1, [R20+0x4];\n--:-:-:-:5 BRA LOOP;\n")
    assert out.index("FADD R8, R1, R1") < out.index("SHL R9, R0, 0x2")


def test_what_needs_no_wait_may_still_pass_it(tmp_path: Path) -> None:
    """Nothing that loads touches R10 or R11: their instructions fill the time of the load."""
    out = _block(tmp_path, "--:-:1:-:1 LDS R0, [R20];\n01:-:-:-:1 FADD R8, R0, R0;\n--:-:-:-:1 SHL R10, R11, 0x2;\n")
    assert out[:3] == ["LDS R0, [R20]", "SHL R10, R11, 0x2", "FADD R8, R0, R0"]


def test_scheduling_fills_the_wait_for_a_slow_result(tmp_path: Path) -> None:
    """FADD R1 needs R0 6 cycles after the FADD that makes it; the three independent MOVs go in between."""
    body = ("<SCHEDULE_BLOCK>\n--:-:-:-:6 FADD R0, R0, R8;\n--:-:-:-:1 FADD R1, R0, R9;\n"
            + "".join(f"--:-:-:-:1 MOV R{r}, R10;\n" for r in (2, 3, 4)) + "</SCHEDULE_BLOCK>\n--:-:-:-:f EXIT;\n")
    out = _steps(tool.words(tmp_path, body, "-n"))
    assert [str(s.inst) for s in out[:5]] == [
        "FADD R0, R0, R8", "MOV R2, R10", "MOV R3, R10", "MOV R4, R10", "FADD R1, R0, R9"]
    assert [s.inst.control.stall for s in out[:4]] == [1, 1, 1, 3]


@pytest.mark.parametrize(("use", "cycles"), [
    ("LDC R4, c[0x3][R0]", 4), ("LDS R4, [R0]", 4), ("DADD R4, R0, R0", 4), ("LDG R4, [R0]", 2), ("MUFU.RCP R4, R0", 2),
    ("TLD.LZ.T R4, R0, RZ, 0x51, 1D, 0xf", 2), ("FADD R4, R0, R0", 6)])
def test_an_operand_may_be_made_as_late_as_it_is_read(tmp_path: Path, use: str, cycles: int) -> None:
    """The least distances the vendor's compiler keeps (maxdnn/checker/latencies.json)."""
    code = "--:-:-:-:1" if use.startswith("FADD") else "--:-:1:-:1"
    body = (f"<SCHEDULE_BLOCK>\n--:-:-:-:1 FADD R0, R8, R9;\n{code} {use};\n</SCHEDULE_BLOCK>\n"
            "01:-:-:-:f EXIT;\n")
    assert _steps(tool.words(tmp_path, body, "-n"))[0].inst.control.stall == cycles


def test_ordered_instructions_keep_their_order(tmp_path: Path) -> None:
    """Free to choose, the scheduler puts the MOVs into the wait between the two FADDs; ORDERED forbids that."""
    lines = ("--:-:-:-:6 FADD R0, R0, R8;\n--:-:-:-:1 FADD R1, R0, R9;\n"
             "--:-:-:-:1 MOV R2, R10;\n--:-:-:-:1 MOV R3, R10;\n")
    written = [" ".join(line.split()[1:]).rstrip(";") for line in lines.splitlines()]
    for before, after, same in (("", "", False), ("<ORDERED>\n", "</ORDERED>\n", True)):
        body = f"<SCHEDULE_BLOCK>\n{before}{lines}{after}</SCHEDULE_BLOCK>\n--:-:-:-:f EXIT;\n"
        texts = [str(s.inst) for s in _steps(tool.words(tmp_path, body, "-n"))[:4]]
        assert (texts == written) is same


def test_force_keeps_a_stall(tmp_path: Path) -> None:
    body = ("<SCHEDULE_BLOCK>\n<ORDERED>\n--:-:-:-:7 MOV R0, R1; # FORCE\n--:-:-:-:7 MOV R2, R3;\n"
            "--:-:-:-:1 MOV R4, R5;\n</ORDERED>\n</SCHEDULE_BLOCK>\n--:-:-:-:f EXIT;\n")
    assert [s.inst.control.stall for s in _steps(tool.words(tmp_path, body, "-n"))[:2]] == [7, 1]


def test_a_pool_register_is_not_mixed_up_with_what_shares_its_pool(tmp_path: Path) -> None:
    """`t` may be given R8 or R9; so may `a`, by name. The write of `a` must not overtake the read of `t`."""
    body = ("<REGISTER_MAPPING>\n0-1 : x, y\n8-9 ~ t, u\n8 : a\n</REGISTER_MAPPING>\n<SCHEDULE_BLOCK>\n"
            "--:-:-:-:1 FADD t, x, y;\n--:-:-:-:1 FMUL u, t, y;\n--:-:-:-:1 FADD u, u, y;\n"
            "--:-:-:-:1 MOV a, 0x7;\n</SCHEDULE_BLOCK>\n--:-:-:-:f EXIT;\n")
    texts = [str(s.inst) for s in _steps(tool.words(tmp_path, body, "-n"))[:4]]
    assert texts[-1] == "MOV R8, 0x7"


def test_debug_prints_the_decisions(tmp_path: Path) -> None:
    path = tmp_path / "k.sass"
    path.write_text("# Kernel: k\n<SCHEDULE_BLOCK>\n--:-:-:-:1 MOV R0, R1;\n</SCHEDULE_BLOCK>\n--:-:-:-:f EXIT;\n")
    ran = tool.maxas("-p", "-d", path)
    assert "schedule: clock   0  stall  0  x32    MOV R0, R1" in ran.err
    assert "schedule" not in ran.out
