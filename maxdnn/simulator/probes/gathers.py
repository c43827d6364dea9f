"""Probes of accesses whose lanes lie apart: what lines and lanes to a bank of L1 cost loads, stores and atomics, and
how long one takes by itself."""

import random
from collections.abc import Callable, Iterator

from .frame import control, in_lines, line
from .issue import SETUP, Registers
from .memory import _AT, _access
from .probe import Probe

_WORDS = random.Random(1)
_PLACES = {name: [_WORDS.randrange(n) for _ in range(1024)] for name, n in (("1", 256), ("4", 1024), ("32", 8192))}

Place = Callable[[int], int]


def _in_turn(n: int) -> Place:
    return lambda t: t % n * 128 + t % 32 * 4


def _lines(n: int) -> Place:
    return lambda t: t % 32 * n // 32 * 128 + t % 32 * 4


def _to_a_bank(n: int) -> Place:
    return lambda t: t % 32 * 128 + t % 32 // n * 4


def _one_bank(n: int) -> Place:
    return lambda t: t % n * 128


def _words(places: list[int]) -> Place:
    return lambda t: places[t] * 4


def _apart(n: int) -> Place:
    return lambda t: t % 32 // 4 * 128 * n + t % 32 * 4


# Where lane `t` is, in bytes.
PATTERNS: dict[str, Place] = {
    "the same": lambda t: 0,
    "pairs the same": lambda t: t % 32 // 2 * 4,
    "eights the same": lambda t: t % 32 // 8 * 4,
    "side by side": lambda t: t % 32 * 4,
    "a sector each, a bank each": lambda t: t % 32 * 36,
    "a sector each": lambda t: t % 32 * 32,
    **{f"{n} lines in turn, a bank each": _in_turn(n) for n in (2, 4, 8, 16, 32)},
    **{f"{n} lines, a bank each": _lines(n) for n in (2, 4, 8, 16)},
    **{f"32 lines, {n} lanes to a bank": _to_a_bank(n) for n in (2, 4, 8, 16, 32)},
    **{f"{n} lines, all lanes to a bank": _one_bank(n) for n in (8, 16)},
    **{f"words of {kib} KiB": _words(places) for kib, places in _PLACES.items()},
    **{f"8 lines {n} apart, a bank each": _apart(n) for n in (2, 4, 16, 32, 64, 128, 256)},
    "32 lines of its own": lambda t: t // 32 * 4096 + t % 32 * 132,
    "8 lines of its own": lambda t: t // 32 * 1024 + t % 32 // 4 * 128 + t % 4 * 4,
    "8 lines of its own, 2 apart": lambda t: t // 32 * 1024 + t % 32 // 4 * 128 + t % 4 * 8,
    "8 lines of its own, 2 apart, beside sectors": lambda t: t // 32 * 1024 + t % 32 // 4 * 140 + t % 4 * 8 + 20,
}
ACCESSES = {
    "LDG": "LDG.E R{d}, desc[UR4][R56.64]",
    "LDG L2": "LDG.E.STRONG.GPU R{d}, desc[UR4][R56.64]",
    "STG": "STG.E desc[UR4][R56.64], R12",
    "REDG": "REDG.E.ADD.STRONG.GPU desc[UR4][R56.64], R12",
    "REDG F32": "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R56.64], R12",
    "ATOMG": "ATOMG.E.ADD.STRONG.GPU PT, R{d}, desc[UR4][R56.64], R12",
    "ATOMG CAS": "ATOMG.E.CAS.STRONG.GPU PT, R{d}, [R56], R12, R13",
}
SHARED = {
    "ATOMS": "ATOMS.ADD R{d}, [R8], R12",
    "ATOMS INC": "ATOMS.POPC.INC.32 RZ, [R8+UR30]",
    "ATOMS CAS": "ATOMS.CAST.SPIN R{d}, [R8], R12, R13",
}


def _reads(text: str) -> bool:
    return text.startswith(("STG", "REDG")) or "RZ" in text


def _each(text: str) -> Callable[[int], list[str]]:
    """Accesses of which each is waited for."""

    def body(count: int) -> list[str]:
        registers = Registers()
        codes = {"read" if _reads(text) else "write": 2}
        return [
            each for _ in range(count)
            for each in (line(registers.fill(text), stall=2, **codes), line("NOP", wait=2, stall=2))
        ]

    return body


def _many(text: str) -> Callable[[int], list[str]]:
    def body(count: int) -> list[str]:
        registers = Registers()
        codes = {"read" if _reads(text) else "write": 2}
        return [line(registers.fill(text), stall=2, **(codes if n == count - 1 else {})) for n in range(count)]

    return body


def gathers() -> Iterator[Probe]:
    for name, place in PATTERNS.items():
        words = [place(t) // 4 * 4 for t in range(1024)]
        for kind, text in ACCESSES.items():
            yield Probe(f"{kind}, {name}", _many(text), (8, 24), (1, 8), setup=_AT, words=words)
            if "of its own" not in name:
                yield Probe(f"{kind}, {name}, each waited for", _each(text), (8, 24), (1,), setup=_AT, words=words)
        for kind, text in SHARED.items():
            if max(words) < 32768:
                yield Probe(f"{kind}, {name}", _many(text), (8, 24), (1, 8), setup=SETUP, shared=33 << 10, words=words)
                yield Probe(f"{kind}, {name}, each waited for", _each(text), (8, 24), (1,), setup=SETUP,
                            shared=33 << 10, words=words)
    for width, text in (("64", "LDG.E.64 R{e}, desc[UR4][R56.64]"), ("128", "LDG.E.128 R{q}, desc[UR4][R56.64]")):
        places = [n * 4 // (int(width) // 8) * (int(width) // 8) for n in _PLACES["32"]]
        yield Probe(f"LDG.{width}, words of 32 KiB", _access(text), (8, 24), (1, 8), setup=_AT, words=places)


def far_lines() -> Iterator[Probe]:
    """Loads of 16 or 32 lines so many lines apart, a bank for each lane, or for so many lines one behind the other: as
    where lanes go down the rows of a matrix."""
    for lines in (16, 32):
        for far in (2, 4, 8, 16, 32, 64, 128):
            if lines * far <= 2048:
                words = [t % lines * 128 * far + t % 32 * 4 for t in range(1024)]
                yield Probe(f"LDG, {lines} lines {far} apart, a bank each", _many(ACCESSES["LDG"]), (8, 24), (1, 8),
                            setup=_AT, words=words)
    for far in (1, 8, 64):
        for together in (1, 2, 3, 4, 8, 16):
            words = [t % 16 * 128 * far + (t % 16 // together + t % 32 // 16) * 4 for t in range(1024)]
            yield Probe(f"LDG, 16 lines {far} apart, {together} to a bank", _many(ACCESSES["LDG"]), (8, 24), (1, 8),
                        setup=_AT, words=words)
    for together in (2, 4, 8, 16):
        words = [t % 32 * 128 + t % (32 // together) * 4 for t in range(1024)]
        yield Probe(f"LDG, 32 lines, each {32 // together}th to a bank", _many(ACCESSES["LDG"]), (8, 24), (1, 8),
                    setup=_AT, words=words)
    for kib in (64, 128):
        words = [random.Random(kib + t).randrange(kib << 8) * 4 for t in range(1024)]
        yield Probe(f"LDG, words of {kib} KiB", _many(ACCESSES["LDG"]), (8, 24), (1, 8), setup=_AT, words=words)


# Bytes of a thread from its number in the block, R7, or in the grid, R9.
_OF_ALL = {
    "the same": [line("IMAD.MOV.U32 R12, RZ, RZ, RZ", stall=6)],
    "side by side": [line("LOP3.LUT R12, R7, 0x1f, RZ, 0xc0, !PT", stall=6), line("IMAD.SHL.U32 R12, R12, 0x4, RZ")],
    "a sector each": [line("LOP3.LUT R12, R7, 0x1f, RZ, 0xc0, !PT", stall=6), line("IMAD.SHL.U32 R12, R12, 0x20, RZ")],
    "a line each": [line("LOP3.LUT R12, R7, 0x1f, RZ, 0xc0, !PT", stall=6), line("IMAD.SHL.U32 R12, R12, 0x80, RZ")],
    "words of 1 KiB": [
        line("IMAD R12, R9, 0x9e3779b1, RZ", stall=6),
        line("SHF.R.U32.HI R12, RZ, 0x18, R12", stall=6),
        line("IMAD.SHL.U32 R12, R12, 0x4, RZ"),
    ],
    "threads side by side": [line("IMAD.SHL.U32 R12, R7, 0x4, RZ")],
}


def shared_atomics() -> Iterator[Probe]:
    """Atomics of several SMs, on the same lines or each on its own."""
    for kind in ("REDG", "REDG F32", "ATOMG"):
        for blocks in (2, 8, 32, 132):
            for name, place in _OF_ALL.items():
                for own in (False, True):
                    setup = (
                        *place,
                        line("NOP", stall=6),
                        line("SHF.R.U32.HI R13, RZ, 0x8, R9", stall=6),
                        *([line("LEA R12, R13, R12, 0xd", stall=6)] if own else []),
                        line("IADD3 R56, P2, R4, R12, RZ", stall=6),
                        line("IADD3.X R57, R5, RZ, RZ, P2, !PT", stall=6),
                        line("IMAD.MOV.U32 R12, RZ, RZ, RZ", stall=6),
                    )
                    yield Probe(f"{kind} of {blocks} SMs, {name}, {'each its own' if own else 'all'}",
                                _many(ACCESSES[kind]), (8, 24), (8,), setup=setup, blocks=blocks, big=4 << 20)


def places() -> Iterator[Probe]:
    """A line at some distance from the first: how far away it is in L2."""
    for kib in (*range(0, 64, 2), *range(128, 1024, 128), 1, 3, 4096, 5120):

        def body(count: int, kib: int = kib) -> list[str]:
            return [
                line(f"IADD3 R10, P2, R4, {kib << 10:#x}, RZ", stall=6),
                line("IADD3.X R11, R5, RZ, RZ, P2, !PT", stall=6),
                *(
                    text for _ in range(count)
                    for text in (line("LDG.E.STRONG.GPU R20, desc[UR4][R10.64]", write=2, stall=2),
                                 line("NOP", wait=2, stall=2))
                ),
            ]

        yield Probe(f"LDG L2, {kib} KiB on, each waited for", body, (16, 48), (1,), big=8 << 20)


def kept_apart() -> Iterator[Probe]:
    """Loads of some lines a power of two apart, again and again: whether L1 keeps them."""
    for kib in (1, 8, 64):
        for lines in (4, 8, 16, 32, 64):

            def body(count: int, kib: int = kib, lines: int = lines) -> list[str]:
                return [
                    text for n in range(count)
                    for text in (line(f"LDG.E R20, desc[UR4][R4.64+{n % lines * (kib << 10):#x}]", write=2, stall=2),
                                 line("NOP", wait=2, stall=2))
                ]

            yield Probe(f"kept by L1, {lines} lines {kib} KiB apart", body, (lines, 3 * lines), (1,), big=8 << 20)


def filling() -> Iterator[Probe]:
    """Stores that fill sectors by turns, each warp eight lines that it has not stored to: words a word apart, then
    those between them."""
    for name, distance in (("half of each sector", 0), ("the other half next", 4)):

        def body(count: int, distance: int = distance) -> list[str]:
            return [
                *in_lines(4, 3, thread="R7", to=56),
                *(
                    line(f"STG.E desc[UR4][R56.64+{n // 2 * 16384 + n % 2 * (distance or 8192 * 16):#x}], R12", stall=2,
                         **({"read": 2} if n == count - 1 else {}))
                    for n in range(count)
                ),
            ]

        for warps in (1, 8):
            yield Probe(f"STG, {name}, {warps} warps", body, (16, 48), (warps,), big=8 << 20)


def swaps(count: int, rest: int = 0) -> list[str]:
    """Loops of compare-and-swap of shared memory until all lanes have been, each followed by so many times 15
    cycles."""
    return [
        text for n in range(count)
        for text in (
            line("ISETP.EQ.U32.AND P3, PT, RZ, RZ, PT", stall=13),
            f"SWAP{n}:",
            line("LDS R20, [R8]", write=2, stall=2),
            line("IADD3 R21, R20, 0x1, RZ", wait=2, stall=6),
            f"{control(write=2, stall=2)}  @P3 ATOMS.CAST.SPIN R22, [R8], R20, R21;",
            f"{control(wait=2, stall=13)}  @P3 ISETP.NE.U32.AND P3, PT, R22, 0x1, PT;",
            line("VOTE.ANY RZ, P2, P3", stall=13),
            f"--:-:-:Y:5  @P2 BRA SWAP{n};",
            *(line("NOP", stall=15, turn=True) for _ in range(rest)),
        )
    ]


def swapped() -> Iterator[Probe]:
    """How many lanes a compare-and-swap of shared memory lets through that meet at a word or a bank."""
    for name in ("the same", "pairs the same", "eights the same", "side by side", "a sector each",
                 *(f"32 lines, {n} lanes to a bank" for n in (2, 4, 8, 16, 32)), "words of 1 KiB", "words of 4 KiB"):
        yield Probe(f"swaps, {name}", swaps, (4, 12), (1, 8), setup=SETUP, shared=33 << 10,
                    words=[PATTERNS[name](t) // 4 * 4 for t in range(1024)])


def stored() -> Iterator[Probe]:
    """Loads of what the warp has just stored: whether L1 has it. Each of a line that it has not asked for before."""
    for name, offset in (("the same words", 0), ("the line's other half", 64)):
        for kind, text in (("LDG", ""), ("LDG L2", ".STRONG.GPU")):

            def body(count: int, offset: int = offset, text: str = text) -> list[str]:
                return [
                    each for n in range(count)
                    for each in (
                        line(f"STG.E desc[UR4][R56.64+{256 * n:#x}], R12", read=3, stall=2),
                        line(f"LDG.E{text} R20, desc[UR4][R56.64+{256 * n + offset:#x}]", write=2, stall=2),
                        line("NOP", wait=2, stall=2),
                    )
                ]

            yield Probe(f"{kind} behind STG of {name}", body, (16, 48), (1,), setup=_AT,
                        words=[t % 32 // 2 * 4 for t in range(1024)])
