"""Probes of what instructions wait for beyond the counts of control codes: the next one behind a product of 64 bits,
and such a product that reads a result."""

from collections.abc import Iterator
from functools import partial

from .frame import line
from .issue import SETUP
from .kinds import FIXED
from .more_kinds import FIXED as MORE
from .more_kinds import mix
from .probe import Probe

_AFTER = 11  # cycles behind the second of two: what it waits for is there
_WIDE = "IMAD.WIDE", "IMAD.HI"
_FIRST = {kind: text.format(d=20, e=20, u=20) for kind, text in (FIXED | MORE).items()}
_SECOND = {"FADD": "FADD R40, R41, R42", "IADD3": "IADD3 R40, R41, R42, RZ", "IMAD": "IMAD R40, R41, R42, RZ",
           "MUFU": "MUFU.RCP R40, R41", "IMAD.HI": "IMAD.HI.U32 R40, R41, R42, RZ",
           "IMAD.WIDE": "IMAD.WIDE.U32 R40, R41, R42, RZ"}
_READS = {
    "IMAD.HI": "IMAD.HI.U32 R40, R20, R42, RZ",
    "IMAD.HI as its second": "IMAD.HI.U32 R40, R42, R20, RZ",
    "IMAD.HI as its third": "IMAD.HI.U32 R40, R42, R43, R20",
    "IMAD.WIDE": "IMAD.WIDE.U32 R40, R20, R42, RZ",
    "IMAD.WIDE as its third": "IMAD.WIDE.U32 R40, R42, R43, R20",
    "IMAD": "IMAD R40, R20, R42, RZ",
    "FFMA": "FFMA R40, R20, R42, RZ",
    "IADD3": "IADD3 R40, R20, R42, RZ",
    "LEA.HI": "LEA.HI R40, R20, R42, RZ, 0x18",
    "MUFU": "MUFU.RCP R40, R20",
    "I2F": "I2F.U32 R40, R20",
    "SHF": "SHF.L.U32 R40, R20, 0x3, RZ",
    "POPC": "POPC R40, R20",
    "DADD": "DADD R40, R20, R42",
    "HFMA2": "HFMA2 R40, R20, R42, R44",
    "ISETP": "ISETP.GE.AND P3, PT, R20, R42, PT",
}


def _two(name: str, first: str, second: str, stall: int) -> Probe:
    def body(count: int) -> list[str]:
        return [text for _ in range(count) for text in (line(first, stall=stall), line(second, stall=_AFTER))]

    return Probe(name, body, (16, 48), (4,), setup=SETUP)


def followed() -> Iterator[Probe]:
    """An instruction of each kind, then another one after so many cycles."""
    for kind, text in _FIRST.items():
        for second in _SECOND if kind in _WIDE else ("FADD",):
            for stall in (1, 2, 4, 6, 8) if kind in _WIDE else (4,):
                yield _two(f"{kind}, then {second} after {stall}", text, _SECOND[second], stall)


def read() -> Iterator[Probe]:
    """A result that is read after so many cycles."""
    for kind in ("IMAD", "IMAD.HI", "IMAD.WIDE", "IADD3", "FFMA", "FADD", "LOP3", "MOV", "IMAD.MOV", "SHF", "LEA",
                 "SEL", "VIADD", "HFMA2.MMA", "HFMA2", "FMNMX", "I2FP", "DADD"):
        for reader, text in _READS.items():
            for stall in (4, 5, 6, 7, 8) if kind in ("IMAD", "IMAD.HI", "IMAD.WIDE", "IADD3", "DADD") else (4, 6):
                yield _two(f"{kind}, after {stall} read by {reader}", _FIRST[kind], text, stall)


# A product of integers and twice the upper half of one, as a compiled division has them.
_DIVIDED = ("IMAD R20, R10, R11, R12", "IMAD.HI.U32 R22, R10, R20, R12", "IMAD.HI.U32 R23, R22, R11, RZ",
            "IADD3 R26, -R23, RZ, RZ")
# Its first part: conversion, reciprocal, conversion back. Scoreboard waited for and set, stall count.
_RECIPROCAL = (("I2F.U32.RP R30, R11", 0, 1, 1), ("MUFU.RCP R30, R30", 1, 1, 2), ("VIADD R31, R30, 0xffffffe", 1, 0, 6),
               ("F2I.FTZ.U32.TRUNC.NTZ R10, R31", 0, 1, 2), ("NOP", 1, 0, 4))


_STALLS = 4, 6, 5, 5  # a compiler's, of the products


def divisions() -> Iterator[Probe]:
    """Parts of compiled divisions of integers one behind the other, by warps."""

    def products(count: int, stalls: tuple[int, ...]) -> list[str]:
        return [line(text, stall=s) for _ in range(count) for text, s in zip(_DIVIDED, stalls, strict=True)]

    for stalls in (_STALLS, (8, 8, 8, 8), (10, 10, 10, 10)):
        yield Probe(f"products of divisions, stalls {' '.join(map(str, stalls))}", partial(products, stalls=stalls),
                    (16, 48), (4, 8, 16, 32), setup=SETUP)

    def whole(count: int) -> list[str]:
        reciprocal = [line(each, wait=wait, write=write, stall=stall) for each, wait, write, stall in _RECIPROCAL]
        return [*reciprocal, *products(1, _STALLS)] * count

    yield Probe("divisions", whole, (8, 24), (4, 8, 16, 32), setup=SETUP)

    def looped(count: int) -> list[str]:
        return [
            line(f"IMAD.MOV.U32 R32, RZ, RZ, {count:#x}", stall=6), "LOOP:",
            line("IADD3 R32, R32, -0x1, RZ", stall=6), line("ISETP.NE.AND P2, PT, R32, RZ, PT"),
            *whole(1), line("@P2 BRA LOOP", stall=5, turn=True),
        ]

    yield Probe("divisions in a loop", looped, (8, 24), (4, 8, 16, 32), setup=SETUP)


def mixes() -> Iterator[Probe]:
    for pattern in (("MUFU", "I2F"), ("MUFU", "F2I"), ("I2F", "F2I"), ("MUFU", "POPC"), ("MUFU", "FLO"),
                    ("I2F.U64", "MUFU", "F2I.U64"), ("MUFU",) + ("IMAD.HI",) * 2, ("MUFU", "IMAD", "IMAD.HI", "IADD3")):
        yield mix(pattern)
