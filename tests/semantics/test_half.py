"""Pairs of half-precision numbers (sm_53 and later). Sums and products of halves are exact in double precision or are
rounded to odd there, so that rounding to half or single precision once more gives the exact result rounded once."""

import numpy as np
import pytest

from tests.corpus import exact
from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import halves
from tests.semantics.test_integer import joined
from tests.semantics.test_single import relation

TINY = 2.0**-14


def flush(x):
    return np.where(np.abs(x) < TINY, np.copysign(0.0, x), x)


def pair(s: Sample, name):
    """The two numbers an operand gives, low first, in double precision: its halves, one of them twice, or a
    single-precision number twice (which .FTZ leaves alone)."""
    word, op = s.u(name), s[name]
    if op.part == "F32":
        both = [word.view(np.float32).astype(np.float64)] * 2
    else:
        both = [(word >> at & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
                for at in {"": (0, 16), "H0_H0": (0, 0), "H1_H1": (16, 16)}[op.part]]
        both = [flush(x) for x in both] if s.ftz else both
    both = [np.abs(x) for x in both] if op.abs else both
    return [-x for x in both] if op.neg else both


def word_of(s: Sample, low, high):
    """.FTZ flushes results below the smallest normal half, .SAT limits; then the halves of d that the mode names."""
    sat = (lambda x: np.where(x > 0, np.minimum(x, 1), 0)) if s.mods.get("sat") else lambda x: x
    if s.mods.get("mode") == "F32":
        return After(exact.canonical(sat(low).astype(np.float32)).view(np.uint32))
    half = []
    for x in (low, high):
        y = sat(x).astype(np.float16)
        y = np.where(np.abs(y) < TINY, np.copysign(np.float16(0), y), y) if s.ftz else y
        half.append(np.where(np.isnan(y), 0x7FFF, y.view(np.uint16)).astype(np.uint32))
    old = s.registers[12]
    return After({"": half[0] | half[1] << 16, "MRG_H0": old & 0xFFFF0000 | half[0],
                  "MRG_H1": old & 0xFFFF | half[1] << 16}[s.mods.get("mode", "")])


def total(a, b):
    return exact._zero_sign(exact._sum_to_odd(a, b), a, b, "rn")


def product(s: Sample, a, b):
    """.FMZ: 0 times anything is +0."""
    return np.where((s.mods["ftz"] == "FMZ") & ((a == 0) | (b == 0)), 0.0, a * b)


def hadd2(s: Sample):
    return word_of(s, *(total(a, b) for a, b in zip(pair(s, "a"), pair(s, "b"), strict=True)))


def hmul2(s: Sample):
    return word_of(s, *(product(s, a, b) for a, b in zip(pair(s, "a"), pair(s, "b"), strict=True)))


def hfma2(s: Sample):
    return word_of(s, *(total(product(s, a, b), c) for a, b, c in zip(*(pair(s, n) for n in "abc"), strict=True)))


def related(s: Sample):
    return [relation(s.mods["cmp"], a, b) for a, b in zip(pair(s, "a"), pair(s, "b"), strict=True)]


def hsetp2(s: Sample):
    """pd for the low halves, pq for the high ones; .H_AND: both must hold, pq takes the complement."""
    low, high = related(s)
    first, second = (low & high, ~(low & high)) if s.mods["hand"] else (low, high)
    return After(pd=joined(s.mods["bool"], first, s.p("ps")), pq=joined(s.mods["bool"], second, s.p("ps")))


def hset2(s: Sample):
    true = np.uint32(0x3C00 if s.mods["bf"] else 0xFFFF)
    low, high = (np.where(joined(s.mods["bool"], r, s.p("ps")), true, 0).astype(np.uint32) for r in related(s))
    return After(low | high << 16)


CASES = {
    "HADD2 HADD2_32I": (halves, hadd2, {"least": 12}),
    "HMUL2 HMUL2_32I": (halves, hmul2, {"least": 12}),
    "HFMA2 HFMA2_32I": (halves, hfma2, {"least": 12}),
    "HSETP2": (halves, hsetp2, {}),
    "HSET2": (halves, hset2, {}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, arch="gm20b", **options), "operand sets")
