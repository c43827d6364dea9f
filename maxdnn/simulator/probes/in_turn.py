"""Probes of loads of shared memory that come while arithmetic writes registers: rounds of several as the library's
loops have them, chains of one warp beside arithmetic of others, and whose turn it is among streams of it. x: lanes side
by side, four cycles; y: eight lanes the same, two cycles, in each of which two registers come."""

from collections.abc import Iterator, Sequence

from .amid import WRITES
from .frame import FIRST_WARP, again, first_and_others, line
from .issue import SETUP, spread
from .probe import Probe

_BOTH = (
    *SETUP,
    line("SHF.R.U32.HI R60, RZ, 0x3, R8", stall=6),
    line("LOP3.LUT R60, R60, 0x30, RZ, 0xc0, !PT", stall=6),
)
_LOADS = {"x": "LDS.128 R{d}, [R8]", "y": "LDS.128 R{d}, [R60+0x400]"}


def rounds() -> Iterator[Probe]:
    """Loads with so many FFMA after each, the last of which waits for all."""
    for order in ("x", "y", "xy", "yx", "yxx", "xyxyxx", "yyxxxx", "xxxxyy"):
        for last in (8, 16, 24, 32):
            yield _round(order, 8, last, "both banks", (8, 24))
    for order in ("xyxyxx", "yyxxxx", "xxxx", "yy", "yyyyyy", "xxxxxx"):
        for last in (16, 32, 48):
            for to in ("both banks", "none"):
                yield _round(order, 16, last, to, (4, 12))


def _round(order: str, gap: int, last: int, to: str, lengths: Sequence[int]) -> Probe:
    def body(count: int) -> list[str]:
        found = []
        for _ in range(count):
            for n, kind in enumerate(order):
                found.append(line(_LOADS[kind].format(d=44 + 4 * (n % 3)), write=2))
                found += [line(WRITES[to](m)) for m in range(last if n == len(order) - 1 else gap)]
            found[-1] = line(WRITES[to](last - 1), wait=2)
        return found

    name = f"round of {order}, {gap} FFMA after each and {last} after the last" + (" to none" if to == "none" else "")
    return Probe(name, body, lengths, (1, 4, 8, 16), setup=_BOTH, shared=32768, words=spread(16))


# Addresses that lead to themselves, each thread's own or of eight lanes the same.
_CHAINED = (
    FIRST_WARP,
    line("IADD3 R16, R60, 0x400, RZ", stall=6),
    *(line(f"IMAD.MOV.U32 R{r}, RZ, RZ, R16", stall=6) for r in (17, 18, 19)),
    line("@!P3 STS.128 [R16], R16", stall=15),
    line("IADD3 R12, R8, 0x400, RZ", stall=6),
    *(line(f"IMAD.MOV.U32 R{r}, RZ, RZ, R12", stall=6) for r in (13, 14, 15)),
    line("@!P3 STS.128 [R12], R12", stall=15),
    line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=15),
)
_CHAINS = {"LDS": "LDS R16, [R16]", "LDS.64": "LDS.64 R16, [R16]", "LDS.128": "LDS.128 R16, [R16]",
           "LDS.128 side by side": "LDS.128 R12, [R12]"}
_OTHERS = {"FFMA to both banks": ("both banks", 1, ""), "FFMA to none": ("none", 1, ""),
           "FFMA to both banks in every other cycle": ("both banks", 2, ""),
           "FFMA and x after each 16": ("both banks", 1, "x"), "FFMA and y after each 16": ("both banks", 1, "y"),
           "NOP": ("", 1, "")}


def chains() -> Iterator[Probe]:
    """A chain of loads of the first warp, while the others have arithmetic."""
    for chain, text in _CHAINS.items():
        for name, (to, stall, load) in _OTHERS.items():

            def body(count: int, text: str = text, to: str = to, stall: int = stall, load: str = load) -> list[str]:
                several = [line(WRITES[to](n) if to else "NOP", stall=stall) for n in range(384)]
                for n in range(368, -1, -16):
                    if load:
                        several.insert(n, line(_LOADS[load].format(d=44), write=2))
                around = [
                    line(f"IMAD.MOV.U32 R61, RZ, RZ, {count * 80 // 384 + 2:#x}", stall=6),
                    "AROUND:",
                    *several,
                    *again("AROUND", 61),
                ]
                return first_and_others([line(text, wait=2, write=2, stall=2)] * count, around)

            yield Probe(f"chain of {chain} beside {name} of others", body, (32, 96), (5,),
                        setup=(*_BOTH, *_CHAINED), shared=32 << 10, words=spread(16))


def streams() -> Iterator[Probe]:
    """So many FFMA of all warps: whether one ends after another, or they go on by turns."""
    for to in ("both banks", "none"):

        def body(count: int, to: str = to) -> list[str]:
            return [line(WRITES[to](n)) for n in range(count)]

        yield Probe(f"stream of FFMA to {to}", body, (128, 256, 512, 1024, 1536, 1920), (5, 8, 16), setup=_BOTH,
                    shared=32768, words=spread(16))
