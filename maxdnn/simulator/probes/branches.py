"""Probes of branches among other instructions: what a jump, a loop and a place where lanes meet cost a scheduler that
has one warp or many, whether schedulers share what they need for it, and where in a line of code the target lies."""

import math
from collections.abc import Callable, Iterator, Sequence

from .frame import control, line, place
from .probe import Probe

WARPS = (1, 4, 8, 16, 32)
_JUMP = control(turn=True, stall=5)

# P4: of every second lane; P5: of warps that are not the first scheduler's; R13: the lane's number and one.
SETUP = (
    line("LOP3.LUT R12, R7, 0x1, RZ, 0xc0, !PT", stall=6),
    line("ISETP.EQ.U32.AND P4, PT, R12, RZ, PT", stall=13),
    line("LOP3.LUT R12, R7, 0x60, RZ, 0xc0, !PT", stall=6),
    line("ISETP.NE.U32.AND P5, PT, R12, RZ, PT", stall=13),
    line("LOP3.LUT R13, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
    line("IADD3 R13, R13, 0x1, RZ", stall=6),
)


_FFMA = "FFMA R{d}, R10, 1.5, R11"


def _plain(count: int, text: str = _FFMA) -> list[str]:
    return [line(text.format(d=16 + n % 32)) for n in range(count)]


def _jumps(every: int, skipped: int, before: int = 0, text: str = _FFMA) -> Callable[[int], list[str]]:
    """Jumps over so many instructions, each the last of `every` that run."""

    def body(count: int) -> list[str]:
        return _plain(before) + [
            each for n in range(count)
            for each in (*_plain(every - 1, text), f"{_JUMP}      BRA L{n};", *_plain(skipped), f"L{n}:")
        ]

    return body


def jumps() -> Iterator[Probe]:
    """A jump after so many instructions, and to so many places in a line of code."""
    for every in (2, 4, 8, 16, 32):
        yield Probe(f"a jump every {every} FFMA", _jumps(every, 1), (8, 24), WARPS)
    yield Probe("a jump every 8 IADD3", _jumps(8, 1, text="IADD3 R{d}, R10, R11, RZ"), (8, 24), WARPS)
    for far in (7, 63, 255):
        yield Probe(f"a jump every 4 FFMA over {far}", _jumps(4, far), (4, 8), (1, 4, 16))
    for before in range(8):
        yield Probe(f"a jump every 8 FFMA over 8, {before} places on", _jumps(8, 8, before), (8, 24), (1, 4, 16))


def _loop(size: int, before: int = 0) -> Callable[[int], list[str]]:
    """So many rounds of a loop of so many instructions."""

    def body(count: int) -> list[str]:
        return [
            *_plain(before),
            line(f"IMAD.MOV.U32 R12, RZ, RZ, {count:#x}", stall=6),
            "LOOP:",
            line("IADD3 R12, R12, -0x1, RZ", stall=6),
            line("ISETP.NE.AND P2, PT, R12, RZ, PT", stall=max(1, 13 - (size - 3))),
            *_plain(size - 3),
            f"{_JUMP}  @P2 BRA LOOP;",
        ]

    return body


def loops() -> Iterator[Probe]:
    for size in (8, 16, 24, 32, 64, 128):
        yield Probe(f"loop of {size}", _loop(size), (16, 48), WARPS)
    for before in range(1, 8):
        yield Probe(f"loop of 16, {before} places on", _loop(16, before), (16, 48), (4, 16))


def _in_lines(lines: int, step: int, apart: int = 1, offset: int = 0) -> Callable[[int], list[str]]:
    """So many lines of code of eight instructions, each `apart` lines behind the one before it and `offset` places on
    in its own, the next always `step` of them on: seven FFMA and a jump."""

    def body(count: int) -> list[str]:
        del count
        begin = (offset - place(1) // 16) % 8
        text = [f"{_JUMP}      BRA LINE0;", *_plain(begin)]
        for n in range(lines):
            behind = f"LINE{(n + step) % lines}" if (n + step) % lines else "BEHIND"
            text += [f"LINE{n}:", *_plain(7), f"{_JUMP}      BRA {behind};", *_plain(8 * (apart - 1))]
        return [*text, "BEHIND:"]

    return body


def _far(lines: int) -> int:
    """A step that leads through all of so many lines, less than half of them on."""
    return next(n for n in range(2 * lines // 5 + 1, lines) if math.gcd(n, lines) == 1)


def lines_in_turn() -> Iterator[Probe]:
    """Jumps from line to line of code, of so many that a level may have or not."""
    for lines in (4, 8, 16, 24, 32, 40, 42, 44, 46, 48, 64, 96, 128, 192, 256, 384, 512, 1024):
        yield Probe(f"jumps through {lines} lines of code", _in_lines(lines, _far(lines)), (lines,), (1, 4, 16))
    for lines in (16, 32, 64, 128, 256):
        yield Probe(f"jumps over each second of {2 * lines} lines of code", _in_lines(lines, 1, 2), (lines,),
                    (1, 4, 16))
        yield Probe(f"jumps to the next of {lines} lines of code", _in_lines(lines, 1), (lines,), (1, 4, 16))
    for lines in (16, 32, 64):
        yield Probe(f"jumps through {lines} lines of code, half a line on", _in_lines(lines, _far(lines), 1, 4),
                    (lines,), (1, 4, 16))
    for size in (256, 512, 1024, 1536):
        yield Probe(f"loop of {size}", _loop(size), (4, 12), (1, 4, 16))


def _repeated(texts: Sequence[str], alone: bool = False) -> Callable[[int], list[str]]:
    """Lines again and again, {n} the number of the time; `alone`: of the warps of one scheduler."""

    def body(count: int) -> list[str]:
        lines = [
            text.format(n=n) if text.endswith(":") else f"{_JUMP}  {text.format(n=n)};"
            for n in range(count) for text in texts
        ]
        return [f"{_JUMP}  @P5 BRA BEHIND;", *lines, "BEHIND:"] if alone else lines

    return body


_FLOWS = {
    "BSSY": ("BSSY B0, MEET{n}", "MEET{n}:"),
    "BSSY and BSYNC": ("BSSY B0, MEET{n}", "MEET{n}:", "BSYNC B0"),
    "BRA over one": ("BRA PAST{n}", "NOP", "PAST{n}:"),
    "BRA of half the lanes": ("BSSY B0, MEET{n}", "@P4 BRA MEET{n}", "NOP", "MEET{n}:", "BSYNC B0"),
    "VOTE to a predicate": ("VOTE.ANY RZ, P2, PT",),
    "WARPSYNC": ("WARPSYNC.ALL",),
}


def alone() -> Iterator[Probe]:
    """Branches of one scheduler's warps alone, and of more warps on all."""
    for name, texts in _FLOWS.items():
        yield Probe(f"flow {name}, one scheduler", _repeated(texts, True), (16, 48), (4, 16, 32), setup=SETUP)
    for name in ("BSSY", "BSSY and BSYNC", "BRA over one", "BRA of half the lanes", "WARPSYNC"):
        yield Probe(f"flow {name}, more warps", _repeated(_FLOWS[name]), (16, 48), (1, 12, 20, 24, 32), setup=SETUP)


def among() -> Iterator[Probe]:
    """Where lanes meet among arithmetic: whether other warps' slots are lost."""
    for between in (3, 7, 15, 31):

        def begun(count: int, between: int = between) -> list[str]:
            return [each for n in range(count) for each in (line(f"BSSY B0, MEET{n}"), f"MEET{n}:", *_plain(between))]

        def met(count: int, between: int = between) -> list[str]:
            return [
                each for n in range(count)
                for each in (line(f"BSSY B0, MEET{n}"), *_plain(between), f"MEET{n}:",
                             line("BSYNC B0", stall=5))
            ]

        yield Probe(f"BSSY and {between} FFMA", begun, (8, 24), (1, 4, 8, 16))
        yield Probe(f"BSSY, {between} FFMA, BSYNC", met, (8, 24), (1, 4, 8, 16))


def left() -> Iterator[Probe]:
    """Loops of eight instructions that all lanes leave after 32 rounds, or one lane after each."""
    for name, rounds in (
        ("together", "IMAD.MOV.U32 R12, RZ, RZ, 0x20"), ("one by one", "IMAD.MOV.U32 R12, RZ, RZ, R13")
    ):

        def body(count: int, rounds: str = rounds) -> list[str]:
            return [
                each for n in range(count)
                for each in (
                    line(rounds, stall=6),
                    line(f"BSSY B0, MEET{n}"),
                    f"ROUND{n}:",
                    line("IADD3 R12, R12, -0x1, RZ", stall=6),
                    line("ISETP.NE.AND P2, PT, R12, RZ, PT", stall=8),
                    *_plain(5),
                    f"{_JUMP}  @P2 BRA ROUND{n};",
                    f"MEET{n}:",
                    line("BSYNC B0", stall=5),
                )
            ]

        yield Probe(f"loop that lanes leave {name}", body, (1, 3), (1, 4, 8, 16), setup=SETUP)


def calls() -> Iterator[Probe]:
    """Calls of a routine that rests and returns, again and again."""
    for rests in (0, 8):

        def body(count: int, rests: int = rests) -> list[str]:
            text = [
                f"{_JUMP}      BRA OVER;",
                "ROUTINE:",
                *(line("NOP", stall=15, turn=True) for _ in range(rests)),
                f"{_JUMP}      RET.REL.NODEC R12 0x0;",
                "OVER:",
                line("IMAD.MOV.U32 R13, RZ, RZ, RZ", stall=6),
            ]
            for n in range(count):
                behind = place(rests + 3 + 2 * n + 2)
                text += [line(f"MOV R12, {behind:#x}", stall=6), f"{_JUMP}      CALL.REL.NOINC ROUTINE;"]
            return text

        yield Probe(f"call and return{f', {rests} rests' if rests else ''}", body, (16, 48), (1, 4, 8, 16))
