"""Probes of the order in which what was asked for comes: what L1 has behind what it has not, of a warp and of others;
and local memory that several stores have filled by turns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .frame import control, line
from .misses import KEPT, Place
from .probe import Probe

_STACK = 1024
_OWN = (
    line("LDC R50, c[0x0][0x28]", write=2, stall=2),
    line("NOP", wait=2, stall=6),
    line(f"IADD3 R50, R50, {-_STACK:#x}, RZ", stall=6),
    line("STL [R50], R10", read=2, stall=2),
    line("IMAD.MOV.U32 R60, RZ, RZ, RZ", wait=2, stall=6),
)
_THERE = {
    "LDG": "LDG.E R20, desc[UR4][R54.64]",
    "LDS": "LDS R20, [R60]",
    "LDL": "LDL R20, [R50]",
    "LDC": "LDC R20, c[0x0][0x210]",
    "SHFL": "SHFL.BFLY PT, R20, R10, 0x1, 0x1f",
    "LDG L2": "LDG.E.STRONG.GPU R20, desc[UR4][R54.64]",
}


def _missing(place: Place, n: int, board: int) -> str:
    return line(f"LDG.E R{24 + n % 8}, desc[UR4][R10.64+{n * place.step:#x}]", write=board, stall=2)


def behind() -> Iterator[Probe]:
    """Something that is there, waited for, behind a load of a line that L1 has not, which nothing waits for."""
    for warps in (1, 4, 8):
        place = Place(warps=warps)
        for kind, text in _THERE.items():
            for name, misses in (("nothing", 0), ("a load that misses", 1)):

                def body(count: int, place: Place = place, text: str = text, misses: int = misses) -> list[str]:
                    found = [place.begin(), *_OWN]
                    for n in range(count):
                        found += [_missing(place, n, 3)] * misses
                        found += [line(text, write=2, stall=2), line("NOP", wait=2, stall=2)]
                    return found

                yield replace(place.probe(f"{kind} behind {name}, waited for, {warps} warps", body, (8, 24)),
                              shared=1024, stack=_STACK)


_OTHERS = {"other schedulers": (1, 2, 3), "the same scheduler": (4, 8, 12)}


def _of_warps(warps: Sequence[int]) -> list[str]:
    """P5: of these warps; P6: of neither these nor the first."""
    text = [line("SHF.R.U32.HI R15, RZ, 0x5, R7", stall=6), line("IMAD.MOV.U32 R14, RZ, RZ, 0x1", stall=6),
            line("SHF.L.U32 R14, R14, R15, RZ", stall=6)]
    mask = sum(1 << warp for warp in warps)
    return [*text, line(f"LOP3.LUT P5, RZ, R14, {mask:#x}, RZ, 0xc0, !PT", stall=13),
            line(f"LOP3.LUT P6, RZ, R14, {mask | 1:#x}, RZ, 0xc0, !PT", stall=13)]


def beside() -> Iterator[Probe]:
    """What one warp waits for that is there, while others load what L1 has not, one or several at a time."""
    for name, others in _OTHERS.items():
        for together in (0, 1, 4, 8):
            for kind in ("LDG", "LDS"):
                place = Place(warps=16)

                def body(count: int, place: Place = place, together: int = together, kind: str = kind,
                         others: tuple[int, ...] = others) -> list[str]:
                    found = [place.begin(), *_OWN, *_of_warps(others), "--:-:-:Y:5  @!P6 BRA BEHIND;",
                             "--:-:-:Y:5  @P5 BRA MISSING;"]
                    for _ in range(count):
                        found += [line(_THERE[kind], write=2, stall=2), line("NOP", wait=2, stall=2)]
                    found += ["--:-:-:Y:5      BRA BEHIND;", "MISSING:"]
                    for n in range(24 if together else 0):
                        last = n % together == together - 1
                        found += [_missing(place, n, 3), *([line("NOP", wait=4, stall=2)] if last else [])]
                    return [*found, "BEHIND:"]

                yield replace(place.probe(f"{kind} beside {together} missing loads at a time of {name}", body, (8, 16)),
                              shared=1024, stack=_STACK)


def batches() -> Iterator[Probe]:
    """Batches of loads that are waited for: of each so many the first misses, or the last."""
    for warps in (8, 16, 32):
        place = Place(warps=warps, loads=12)
        for loads in (4, 16):
            for name, at in (("none misses", -1), ("the first misses", 0), ("the last misses", loads - 1)):

                def body(count: int, place: Place = place, loads: int = loads, at: int = at) -> list[str]:
                    found = [place.begin()]
                    for batch in range(count):
                        for n in range(loads):
                            where = f"R10.64+{batch * place.step:#x}" if n == at else \
                                f"R54.64+{n % KEPT * place.step:#x}"
                            found.append(line(f"LDG.E R{16 + n}, desc[UR4][{where}]", write=2, stall=2))
                        found += [line(f"FFMA R{32 + n % 8}, R10, 1.5, R11", wait=0 if n else 2) for n in range(16)]
                    return found

                yield place.probe(f"batches of {loads} LDG, {name}, {warps} warps", body, (4, 12))


def _filled(stores: Sequence[tuple[str, str]], load: str = "") -> Callable[[int], list[str]]:
    """Each time another word that no run has stored to before. R51: this run's words."""

    def body(count: int) -> list[str]:
        text = [
            *_OWN,
            line("IMAD R51, R6, 0x60, R50", stall=6),
            line("LOP3.LUT R12, R7, 0x1, RZ, 0xc0, !PT", stall=6),
            line("ISETP.EQ.U32.AND P4, PT, R12, RZ, PT", stall=13),
            line("LOP3.LUT R12, R7, 0x10, RZ, 0xc0, !PT", stall=6),
            line("ISETP.EQ.U32.AND P5, PT, R12, RZ, PT", stall=13),
        ]
        for n in range(count):
            for guard, what in stores:
                text.append(f"{control(read=1, stall=2)}  {guard} {what.format(at=n * 4)};")
            if load:
                text += [line(load.format(at=n * 4), write=2, stall=2), line("NOP", wait=3, stall=2)]
        return text

    return body


_STL = "STL [R51+{at:#x}], R10"


def filled() -> Iterator[Probe]:
    """A load of a word of local memory that no lane has stored to, some have, or all have in two stores."""
    for name, stores in (
        ("nothing", ()),
        ("STL of all lanes", (("", _STL),)),
        ("STL of half the lanes", (("@P5", _STL),)),
        ("STL of every second lane", (("@P4", _STL),)),
        ("STL of half the lanes, then the others", (("@P5", _STL), ("@!P5", _STL))),
        ("STL of every second lane, then the others", (("@P4", _STL), ("@!P4", _STL))),
        ("STL of all lanes, then every second", (("", _STL), ("@P4", _STL))),
        ("STL of all lanes, then half", (("", _STL), ("@P5", _STL))),
        ("STL of half the lanes, then all", (("@P5", _STL), ("", _STL))),
    ):
        yield Probe(f"LDL of a new word behind {name}", _filled(stores, "LDL R20, [R51+{at:#x}]"), (8, 24), (1, 4, 8),
                    stack=_STACK, quiet=True, shared=1024)
