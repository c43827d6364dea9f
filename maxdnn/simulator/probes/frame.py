"""The frame of a probe: a kernel of sm_90 that runs a body some times and keeps the SM's clock before and after each.

Registers R0 to R9, R58 and R59 are the frame's, a body has R10 to R57 and R60, R61, which hold 1.0 at first, P2 to P6
and all uniform registers but UR4 to UR7. R8 is a word of the thread's own from the data, R4:R5 the address of the data,
R7 the thread's number in its block, R9 the one in the grid. The result: for each thread of the grid REPEATS times four
words, the clock before and after, the SM, and the time in nanoseconds."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...build.assemble import assemble

REPEATS = 4


def control(*, wait: int = 0, read: int = 0, write: int = 0, turn: bool = False, stall: int = 1) -> str:
    """A control code in the assembler's spelling. `wait`: mask; `read`, `write`: barriers 1 to 6, 0 for none; `turn`:
    the yield hint."""
    waits = f"{wait:02x}" if wait else "--"
    return f"{waits}:{read or '-'}:{write or '-'}:{'Y' if turn or stall > 11 else '-'}:{stall:x}"


def line(text: str, **codes: int) -> str:
    """An instruction with its control code."""
    return f"{control(**codes)}      {text};"  # type: ignore[arg-type]


def in_lines(together: int, scale: int, *, thread: str = "R9", to: int = 10) -> list[str]:
    """Registers `to` and `to` + 1 become the address of the thread's 2^scale bytes of the data: so many threads have a
    line. R12 and R13 are scratch."""
    return [
        line(f"SHF.R.U32.HI R12, RZ, {together.bit_length() - 1:#x}, {thread}", stall=6),
        line(f"LOP3.LUT R13, {thread}, {together - 1:#x}, RZ, 0xc0, !PT", stall=6),
        line("IMAD.SHL.U32 R12, R12, 0x80, RZ", stall=6),
        line(f"LEA R12, R13, R12, {scale:#x}", stall=6),
        line(f"IADD3 R{to}, P2, R12, R4, RZ", stall=6),
        line(f"IADD3.X R{to + 1}, R5, RZ, RZ, P2, !PT", stall=6),
    ]


def of_block(block: int, region: int, of_warp: int, apart: int) -> list[str]:
    """R10 and R11 become the address of the thread's own data: so many bytes a block, whose number is in a register, a
    warp of it and a lane. R14 is scratch."""
    return [
        line(f"IMAD.WIDE.U32 R10, R{block}, {region:#x}, R4", stall=6),
        line("SHF.R.U32.HI R14, RZ, 0x5, R7", stall=6),
        line(f"IMAD.WIDE.U32 R10, R14, {of_warp:#x}, R10", stall=6),
        line("LOP3.LUT R14, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
        line(f"IMAD.WIDE.U32 R10, R14, {apart:#x}, R10", stall=6),
    ]


def advance(at: int, nbytes: int) -> list[str]:
    """Registers `at` and `at` + 1, an address that barrier 1 says has been read, go on by so many bytes. P2 is
    scratch."""
    return [
        line(f"IADD3 R{at}, P2, R{at}, {nbytes:#x}, RZ", wait=1, stall=6),
        line(f"IADD3.X R{at + 1}, R{at + 1}, RZ, RZ, P2, !PT", stall=6),
    ]


FIRST_WARP = line("ISETP.GE.U32.AND P3, PT, R7, 0x20, PT", stall=13)  # P3: of the warps of a block but the first


def first_and_others(first: Iterable[str], others: Iterable[str]) -> list[str]:
    """What the first warp of a block does, and what the others do meanwhile. P3 is what FIRST_WARP says, or the same of
    more warps."""
    return ["--:-:-:Y:5  @P3 BRA OTHERS;", *first, "--:-:-:Y:5      BRA BEHIND;", "OTHERS:", *others, "BEHIND:"]


def rounds(label: str) -> list[str]:
    """`n` rounds begin, counted in R12. UR8 is scratch."""
    return [line("ULDC UR8, param_n", stall=6), line("MOV R12, UR8", stall=6), f"{label}:"]


def again(label: str, count: int = 12, wait: int = 0) -> list[str]:
    """The next round, while there is one: the register that counts them, what it waits for. P2 is scratch."""
    return [
        line(f"IADD3 R{count}, R{count}, -0x1, RZ", wait=wait, stall=6),
        line(f"ISETP.NE.AND P2, PT, R{count}, RZ, PT", stall=13),
        f"--:-:-:Y:5  @P2 BRA {label};",
    ]


def counted(texts: Sequence[str], count: int = 1, compare: int = 1) -> list[str]:
    """Rounds of these instructions with the count, in R12, among them; stall counts of what counts and what compares.
    P2 is scratch."""
    half = len(texts) // 2
    return [
        "ROUND:",
        line("IADD3 R12, R12, -0x1, RZ", stall=count),
        *texts[:half],
        line("ISETP.NE.AND P2, PT, R12, RZ, PT", stall=compare),
        *texts[half:],
        f"{control(turn=True, stall=5)}  @P2 BRA ROUND;",
    ]


def interleaved(arithmetic: Callable[[int], str], text: str, gap: int, **codes: int) -> Callable[[int], list[str]]:
    """Arithmetic and behind each `gap` of it another instruction, or none."""

    def body(count: int) -> list[str]:
        found = []
        for n in range(count):
            found.append(line(arithmetic(n)))
            if text and n % gap == gap - 1:
                found.append(line(text, **codes))
        return [*found, line("NOP", stall=4)]

    return body


@dataclass(frozen=True)
class Kernel:
    """A kernel by its name, with what a launch of it needs."""

    name: str
    source: str


def _head(name: str, shared: int, stack: int = 0, constants: int = 0) -> list[str]:
    return [
        f"# Kernel: {name}",
        "# Arch: sm_90",
        *([f"# SharedSize: {shared}"] if shared else []),
        *([f"# StackSize: {stack}"] if stack else []),
        *([f"# Constant: bank 3 table {constants}"] if constants else []),
        "# Param: ptr out",
        "# Param: ptr data",
        "# Param: u32 n",
        "# Param: u32 step",
    ]


def kernel(
    name: str, body: Iterable[str], *, setup: Sequence[str] = (), meet: bool = True, shared: int = 0,
    drain: bool = True, stack: int = 0, constants: int = 0, quiet: bool = False,
) -> Kernel:
    """A kernel around a body. `meet`: warps of the block wait for each other before each run. `drain`: the second clock
    is read when everything has come; else the body reads it. `stack`: bytes of local memory; `constants`: of bank 3.
    `quiet`: the first lane alone keeps what it has read, so that the next run does not meet the stores of all."""
    begin = [
        line("S2R R7, SR_TID.X", write=1),
        line("S2R R9, SR_CTAID.X", write=2),
        line("LDC.64 R58, param_out[0]", write=3, stall=8),
        line("LDC.64 R4, param_data[0]", write=4, stall=2),
        line("ULDC.64 UR4, c[0x0][0x208]"),
        line("ULDC UR6, c[0x0][0x0]", stall=9),
        line("IMAD R9, R9, UR6, R7", wait=3, stall=6),
        line(f"IMAD.WIDE.U32 R58, R9, {16 * REPEATS:#x}, R58", wait=4, stall=6),
        line("IMAD.WIDE.U32 R10, R7, 0x4, R4", wait=8, stall=6),
        line("LDG.E R8, desc[UR4][R10.64]", write=1, stall=2),
        line("NOP", wait=1, stall=6),
        *(line(f"IMAD.MOV.U32 R{r}, RZ, RZ, 0x3f800000", stall=2) for r in (*range(10, 58), 60, 61)),
        line("S2R R2, SR_VIRTUALSMID", write=1, stall=2),
        line("NOP", wait=1, stall=6),
        *(line(f"UMOV UR{r}, 0x10", stall=2) for r in range(8, 32)),
        *setup,
        line(f"IMAD.MOV.U32 R6, RZ, RZ, {REPEATS:#x}", stall=6),
    ]
    end = [
        line("CS2R.32 R1, SR_CLOCKLO" if drain else "NOP", wait=63, stall=11),
        line("CS2R.32 R3, SR_GLOBALTIMERLO", stall=11),
        *([line("LOP3.LUT P1, RZ, R7, 0x1f, RZ, 0xc0, !PT", stall=13)] if quiet else []),
        f"{control(read=6, stall=6)}  {'@!P1' if quiet else ''} STG.E.128 desc[UR4][R58.64], R0;",
        line("IADD3 R6, R6, -0x1, RZ", stall=6),
        line("ISETP.NE.AND P0, PT, R6, RZ, PT", stall=13),
        line("IADD3 R58, P1, R58, 0x10, RZ", wait=32, stall=6),
        line("IADD3.X R59, R59, RZ, RZ, P1, !PT", stall=6),
        "--:-:-:Y:5  @P0 BRA AGAIN;",
        line("NOP", stall=6),
        "--:-:-:Y:5      EXIT;",
    ]
    start = [
        *([line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=6)] if meet else []),
        line("NOP", wait=63, stall=11),
        line("CS2R.32 R0, SR_CLOCKLO", stall=11),
    ]
    head = _head(name, shared, stack, constants)
    return Kernel(name, "\n".join([*head, *begin, "AGAIN:", *start, *body, *end]) + "\n")


def own_place(param: str, width: int, *further: str) -> list[str]:
    """R4 becomes the place of the thread's so many bytes behind a parameter, R2 and R3 further ones, which barriers 4
    and 5 tell."""
    return [
        line("S2R R7, SR_TID.X", write=1),
        line("S2R R9, SR_CTAID.X", write=2),
        line(f"LDC.64 R4, param_{param}[0]", write=3, stall=2),
        *(line(f"LDC R{2 + n}, param_{name}", write=4 + n, stall=2) for n, name in enumerate(further)),
        line("ULDC.64 UR4, c[0x0][0x208]"),
        line("ULDC UR6, c[0x0][0x0]", stall=9),
        line("IMAD R9, R9, UR6, R7", wait=3, stall=6),
        line(f"IMAD.WIDE.U32 R4, R9, {width:#x}, R4", wait=4, stall=6),
    ]


def place(index: int) -> int:
    """Where the instruction of a body, without a setup, is in its kernel: bytes from the begin."""
    before = kernel("place", ["BODY:"]).source.split("BODY:")[0].split("\n")
    return 16 * (index + sum(bool(text) and text[0] != "#" and text[-1] != ":" for text in before))


def once(name: str, body: Iterable[str], *, shared: int = 0) -> Kernel:
    """A kernel whose first and last instructions read the clock, with a body in between that runs once, and no more
    beside it than it takes to keep them in the first place of `kernel`."""
    text = [
        line("CS2R.32 R0, SR_CLOCKLO", stall=2),
        line("S2R R7, SR_TID.X", write=1),
        line("S2R R9, SR_CTAID.X", write=2),
        line("S2R R2, SR_VIRTUALSMID", write=4),
        line("LDC.64 R4, param_out[0]", write=3, stall=8),
        line("ULDC.64 UR4, c[0x0][0x208]"),
        line("ULDC UR6, c[0x0][0x0]", stall=9),
        line("IMAD R9, R9, UR6, R7", wait=3, stall=6),
        line(f"IMAD.WIDE.U32 R4, R9, {16 * REPEATS:#x}, R4", wait=4, stall=6),
        *body,
        line("CS2R.32 R1, SR_CLOCKLO", wait=8, stall=11),
        line("STG.E.128 desc[UR4][R4.64], R0", stall=6),
        "--:-:-:Y:5      EXIT;",
    ]
    return Kernel(name, "\n".join([*_head(name, shared), *text]) + "\n")


def assembled(source: str) -> bytes:
    """The cubin of kernels."""
    with tempfile.TemporaryDirectory(prefix="maxdnn-probes-") as folder:
        text, made = Path(folder) / "probes.sass", Path(folder) / "probes.cubin"
        text.write_text(source)
        assemble(text, made, no_reuse=True)
        return made.read_bytes()
