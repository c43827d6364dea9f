"""Probes of what waits for a barrier: a warp that has arrived goes on until the next of some kinds of instructions."""

from collections.abc import Iterator

from .frame import FIRST_WARP, first_and_others, line
from .issue import SETUP
from .kinds import KINDS, STORES, VARIABLE
from .probe import Probe

_NAMES = ("FFMA", "IADD3", "IMAD.WIDE", "ISETP", "UIADD3", "ULDC", "VOTE", "R2UR", "DFMA", "MUFU", "S2R", "S2UR", "LDC",
          "SHFL", "LDS", "STS", "LDG", "STG")
_TEXTS = {name: [KINDS[name].format(d=20, e=20, u=10)] for name in _NAMES} | {
    "BRA": ["BRA NEXT", "NEXT:"],
    "BAR": ["BAR.SYNC.DEFER_BLOCKING 0x1, 0x20"],
    "BSSY": ["BSSY B0, NEXT", "NEXT:", "BSYNC B0"],
    "MEMBAR": ["MEMBAR.ALL.CTA"],
    "DEPBAR": ["DEPBAR.LE SB0, 0x0"],
    "NOP": ["NOP"],
}


def kinds() -> Iterator[Probe]:
    """The first warp arrives and some cycles later has an instruction; the other arrives so many rests later."""
    arrive, clock = "BAR.SYNC.DEFER_BLOCKING 0x0", line("CS2R.32 R1, SR_CLOCKLO", stall=11)
    cases = [(kind, 60) for kind in _TEXTS] + [("LDS", gap) for gap in (0, 4, 8, 12, 16, 20, 24, 28, 32, 40)]
    for kind, gap in cases:

        def body(count: int, kind: str = kind, gap: int = gap) -> list[str]:
            codes = {"read" if kind in STORES else "write": 2} if kind in VARIABLE else {}
            first = [
                line(arrive),
                *(line("FFMA R20, R10, 1.5, R11") for _ in range(gap)),
                *(text if text.endswith(":") else line(text, stall=5 if kind == "BRA" else 2, **codes)
                  for text in _TEXTS[kind]),
                clock,
            ]
            return first_and_others(first, [*[line("NOP", stall=15)] * count, line(arrive, stall=15), clock])

        yield Probe(f"BAR, {gap} FFMA, then {kind}", body, (40, 80), (2,), setup=(*SETUP, FIRST_WARP), shared=4096,
                    drain=False)
