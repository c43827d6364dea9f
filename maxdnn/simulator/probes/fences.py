"""Probes of fences behind accesses that are under way."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from .frame import line
from .misses import LOADS, Place
from .probe import Probe

_FENCES = {
    "nothing": [],
    "MEMBAR": [line("MEMBAR.ALL.CTA", read=4, stall=6), line("NOP", wait=8, stall=2)],
    "MEMBAR and FENCE": [
        line("MEMBAR.ALL.CTA", read=4, stall=6),
        line("FENCE.VIEW.ASYNC.S", wait=8, write=4, stall=2),
        line("NOP", wait=8, stall=2),
    ],
    "FENCE": [line("FENCE.VIEW.ASYNC.S", write=4, stall=2), line("NOP", wait=8, stall=2)],
}


def _accesses(place: Place) -> dict[str, Callable[[int], str]]:
    """The n-th access of a run, by kind. Those of shared memory are to 16 bytes of the thread's own, from R14 on."""
    return {
        "LDG that miss": lambda n: place.load(n, number=n),
        "LDG that hit": lambda n: place.load(n, False, n),
        "STG": lambda n: line(f"STG.E desc[UR4][R10.64+{n * place.step:#x}], R16", read=2, stall=2),
        "STS.128": lambda n: line(f"STS.128 [R14+{n % 2 * 16384:#x}], R48", read=2, stall=2),
        "LDS": lambda n: line(f"LDS R{16 + 4 * (n % 8)}, [R14]", write=2, stall=2),
    }


def fences() -> Iterator[Probe]:
    """Batches of accesses, a fence behind each batch: which of the warp's accesses it waits for."""
    for warps in (1, 4):
        place = Place(warps=warps)
        for kind, access in _accesses(place).items():
            for batch in (1, 4, 8):
                for fence, text in _FENCES.items():

                    def body(count: int, place: Place = place, access: Callable[[int], str] = access,
                             batch: int = batch, text: list[str] = text) -> list[str]:
                        found = [line("IMAD.SHL.U32 R14, R7, 0x10, RZ", stall=6), place.begin()]
                        for n in range(count):
                            found += [access(n), *(text if n % batch == batch - 1 else ())]
                        return found

                    probe = place.probe(f"{batch} {kind}, then {fence}, {warps} warps", body, (8, LOADS))
                    yield replace(probe, shared=36 << 10) if kind in ("STS.128", "LDS") else probe
