"""Probes of what waits for a barrier: a warp that has arrived goes on until the next of some kinds of instructions."""

from collections.abc import Iterator

from .frame import line
from .probe import Probe

_SETUP = (
    line("ISETP.GE.U32.AND P3, PT, R7, 0x20, PT", stall=13),
    line("IMAD.MOV.U32 R8, RZ, RZ, 0x400", stall=6),
    line("IMAD.MOV.U32 R60, RZ, RZ, RZ", stall=6),
)
KINDS = {
    "FFMA": ["FFMA R20, R10, 1.5, R11"],
    "IADD3": ["IADD3 R20, R10, R11, RZ"],
    "IMAD.WIDE": ["IMAD.WIDE.U32 R20, R10, 0x4, R12"],
    "ISETP": ["ISETP.GE.AND P2, PT, R10, R11, PT"],
    "UIADD3": ["UIADD3 UR10, UR8, UR9, URZ"],
    "ULDC": ["ULDC UR10, c[0x0][0x210]"],
    "VOTE": ["VOTE.ANY R20, PT, PT"],
    "R2UR": ["R2UR UR10, R10"],
    "DFMA": ["DFMA R20, R10, R12, R14"],
    "MUFU": ["MUFU.RCP R20, R10"],
    "S2R": ["S2R R20, SR_TID.X"],
    "S2UR": ["S2UR UR10, SR_CTAID.X"],
    "LDC": ["LDC R20, c[0x0][0x210]"],
    "SHFL": ["SHFL.BFLY PT, R20, R10, 0x1, 0x1f"],
    "LDS": ["LDS R20, [R8]"],
    "STS": ["STS [R8], R10"],
    "LDG": ["LDG.E R20, desc[UR4][R4.64]"],
    "STG": ["STG.E desc[UR4][R4.64+0x2000], R10"],
    "BRA": ["BRA NEXT", "NEXT:"],
    "BAR": ["BAR.SYNC.DEFER_BLOCKING 0x1, 0x20"],
    "BSSY": ["BSSY B0, NEXT", "NEXT:", "BSYNC B0"],
    "MEMBAR": ["MEMBAR.ALL.CTA"],
    "DEPBAR": ["DEPBAR.LE SB0, 0x0"],
    "NOP": ["NOP"],
}
_COMES = ("MUFU", "S2R", "S2UR", "LDC", "SHFL", "LDS", "LDG")


def kinds() -> Iterator[Probe]:
    """The first warp arrives and some cycles later has an instruction; the other arrives so many rests later."""
    cases = [(kind, 60) for kind in KINDS] + [("LDS", gap) for gap in (0, 4, 8, 12, 16, 20, 24, 28, 32, 40)]
    for kind, gap in cases:

        def body(count: int, kind: str = kind, gap: int = gap) -> list[str]:
            codes = {"write": 2} if kind in _COMES else {"read": 2} if kind in ("STS", "STG") else {}
            return [
                "--:-:-:Y:5  @P3 BRA OTHER;",
                line("BAR.SYNC.DEFER_BLOCKING 0x0"),
                *(line("FFMA R20, R10, 1.5, R11") for _ in range(gap)),
                *(text if text.endswith(":") else line(text, stall=5 if kind == "BRA" else 2, **codes)
                  for text in KINDS[kind]),
                line("CS2R.32 R1, SR_CLOCKLO", stall=11),
                "--:-:-:Y:5      BRA BEHIND;",
                "OTHER:",
                *(line("NOP", stall=15) for _ in range(count)),
                line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=15),
                line("CS2R.32 R1, SR_CLOCKLO", stall=11),
                "BEHIND:",
            ]

        yield Probe(f"BAR, {gap} FFMA, then {kind}", body, (40, 80), (2,), setup=_SETUP, shared=4096, drain=False)
