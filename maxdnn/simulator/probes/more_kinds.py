"""Probes of kinds of instructions that compiled programs have beside those of kinds.py: how often they issue, how long
their results take, what they do to arithmetic, and what an instruction costs whose guard is false."""

from collections.abc import Callable, Iterator, Sequence

from .frame import control, line
from .issue import SETUP, Registers, chained, mix_name, of_pattern
from .kinds import KINDS, VARIABLE
from .probe import Probe

WARPS = (1, 4, 8, 16)

FIXED = {
    "FSEL": "FSEL R{d}, R10, R11, PT",
    "FMUL.RZ": "FMUL.RZ R{d}, R10, R11",
    "PLOP3": "PLOP3.LUT P2, PT, PT, PT, PT, 0x80, 0x0",
    "LEA.HI": "LEA.HI R{d}, R10, R11, RZ, 0x18",
    "IADD3.X": "IADD3.X R{d}, R10, R11, RZ, P2, !PT",
    "IMAD.X": "IMAD.X R{d}, R10, 0x1, R11, P2",
    "ISETP.EX": "ISETP.NE.AND.EX P3, PT, R10, R11, PT, P2",
    "SHF.L.W": "SHF.L.W.U32.HI R{d}, R10, 0x7, R10",
    "SHF.R.U64": "SHF.R.U64 R{d}, R10, 0x1, R11",
    "VIADDMNMX": "VIADDMNMX R{d}, R10, R11, R12, PT",
    "VIMNMX3": "VIMNMX3 R{d}, R10, R11, R12, PT",
    "IDP.4A": "IDP.4A.S8.S8 R{d}, R10, R11, R12",
    "R2P": "R2P PR, R10, 0x4",
    "DMUL": "DMUL R{e}, R10, R12",
    "DSETP": "DSETP.GT.AND P2, PT, R10, R12, PT",
    "UISETP": "UISETP.GE.AND UP0, UPT, UR8, UR9, UPT",
    "ULEA": "ULEA UR{u}, UR8, UR9, 0x2",
    "USHF": "USHF.L.U32 UR{u}, UR8, 0x3, URZ",
    "ISETP UR": "ISETP.GE.AND P2, PT, R10, UR8, PT",
    "IMAD of constants": "IMAD.MOV.U32 R{d}, RZ, RZ, 0x3",
    "HFMA2.MMA of constants": "HFMA2.MMA R{d}, -RZ, RZ, 0, 0",
    "IMAD.HI of a constant": "IMAD.HI.U32 R{d}, R10, 0x3, RZ",
    "IMAD.WIDE of a constant": "IMAD.WIDE.U32 R{e}, R10, 0x3, RZ",
    "IMAD.WIDE odd": "IMAD.WIDE.U32 R{e}, R11, 0x3, RZ",
}
LATE = {
    "MUFU.RSQ": "MUFU.RSQ R{d}, R10",
    "MUFU.EX2": "MUFU.EX2 R{d}, R10",
    "MUFU.SIN": "MUFU.SIN R{d}, R10",
    "MUFU.RCP64H": "MUFU.RCP64H R{d}, R11",
    "I2F.RP": "I2F.U32.RP R{d}, R10",
    "F2I.FTZ": "F2I.FTZ.U32.TRUNC.NTZ R{d}, R10",
    "I2F.U64": "I2F.U64.RP R{d}, R10",
    "F2I.U64": "F2I.U64.TRUNC R{e}, R10",
    "F2F": "F2F.F64.F32 R{e}, R10",
    "I2F.F64": "I2F.F64 R{e}, R10",
    "F2I.F64": "F2I.F64.TRUNC R{d}, R10",
    "FRND": "FRND.FLOOR R{d}, R10",
    "BREV": "BREV R{d}, R10",
    "FCHK": "FCHK P2, R10, R11",
    "SHFL.IDX": "SHFL.IDX PT, R{d}, R10, 0x3, 0x1f",
    "LDS.U8": "LDS.U8 R{d}, [R8]",
}
CHAINS = {
    "MUFU.RSQ": "MUFU.RSQ R10, R10",
    "MUFU.RCP64H": "MUFU.RCP64H R10, R10",
    "I2F.U64": "I2F.U64.RP R10, R10",
    "F2I.U64": "F2I.U64.TRUNC R10, R10",
    "I2F.F64": "I2F.F64 R10, R10",
    "F2I.F64": "F2I.F64.TRUNC R10, R10",
    "FRND": "FRND.FLOOR R10, R10",
    "SHFL.IDX": "SHFL.IDX PT, R10, R10, 0x3, 0x1f",
}
MIXES = (
    ("FFMA",) * 3 + ("MUFU",),
    ("FFMA",) * 15 + ("MUFU",),
    ("IADD3",) * 7 + ("MUFU",),
    ("IADD3",) * 3 + ("MUFU",),
    ("FFMA", "IADD3", "FFMA", "IADD3", "FFMA", "IADD3", "FFMA", "MUFU"),
    ("FFMA",) * 7 + ("F2I",),
    ("FFMA",) * 7 + ("SHFL",),
    ("FFMA",) * 7 + ("S2R",),
    ("FFMA",) * 7 + ("LDC",),
    ("FFMA",) * 7 + ("LDS",),
    ("IADD3",) * 7 + ("LDS",),
    ("MUFU", "SHFL"),
    ("MUFU", "LDC"),
    ("FFMA", "FFMA", "FFMA", "HFMA2"),
    ("IADD3", "HFMA2"),
    ("FFMA", "IMAD.HI"),
    ("FFMA", "FFMA", "FFMA", "DFMA"),
    ("IMAD", "DFMA"),
    ("DFMA", "DADD"),
    ("FFMA", "IMAD", "IADD3"),
    ("IMAD", "IADD3", "IADD3"),
    ("IMAD.WIDE", "LOP3", "LOP3", "IMAD.WIDE"),
    ("UIADD3", "FFMA", "ULDC", "FFMA"),
)
_NAMES = KINDS | FIXED | LATE
_OF_LATE = VARIABLE | LATE


def _stream(pattern: Sequence[str], guard: str = "") -> Callable[[int], list[str]]:
    """A body of so many instructions, the pattern again and again; of those whose results come in their own time the
    last ones set a scoreboard, or with a guard none."""

    def body(count: int) -> list[str]:
        registers, found = Registers(), []
        for n in range(count):
            kind = pattern[n % len(pattern)]
            late = kind in _OF_LATE and n + len(pattern) >= count
            board = 2 if late and not guard else 0
            stores = kind.startswith("ST")
            codes = control(stall=2 if late else 1, read=board * stores, write=board * (not stores))
            found.append(f"{codes}  {guard} {registers.fill(_NAMES[kind])};")
        return [*found, line("NOP", stall=6)]

    return body


def mix(pattern: Sequence[str]) -> Probe:
    """Instructions of some kinds in turn."""
    return of_pattern(mix_name(pattern), len(pattern), _stream(pattern), WARPS)


def more_kinds() -> Iterator[Probe]:
    for kind in (*FIXED, *LATE):
        yield of_pattern(f"rate {kind}", 1, _stream((kind,)), WARPS)
    yield from map(mix, MIXES)
    for kind, text in CHAINS.items():
        yield Probe(f"latency {kind}", chained(text), (16, 48), (1, 4), setup=SETUP)


def guarded() -> Iterator[Probe]:
    """Instructions whose guard is false in every lane."""
    setup = (*SETUP, line("ISETP.LT.AND P3, PT, R7, RZ, PT", stall=13))
    for kind in ("FFMA", "IADD3", "IMAD.WIDE", "MUFU", "SHFL", "LDS", "LDG", "STS", "STG"):
        yield of_pattern(f"off {kind}", 1, _stream((kind,), "@P3"), WARPS, setup)
