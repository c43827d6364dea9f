"""Single precision held to exact arithmetic in every rounding mode, with and without .FTZ, .FMZ and .SAT, one line per
family. MUFU is held to the error bounds that the PTX ISA states for the approx instructions."""

import numpy as np
import pytest

from tests.corpus import exact
from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import singles
from tests.semantics.test_integer import boolean, joined, setp

ONE = np.float32(1)


def finished(s: Sample, x):
    """Saturated, canonical, as bits; .CC sets Z and S, the other flags have no rule for floats."""
    x = exact.canonical(exact.saturate(x) if s.mods.get("sat") else x)
    word = x.view(np.uint32)
    return After(word, flags={"Z": word == 0, "S": word >> 31 == 1})


def fadd(s: Sample):
    return finished(s, exact.add32(s.f("a"), s.f("b"), s.mode, s.ftz))


def inputs(s: Sample, *names):
    return [exact.flush(s.f(n)) if s.ftz else s.f(n) for n in names]


SCALE = {"": 1.0, "D2": 1 / 2, "D4": 1 / 4, "D8": 1 / 8, "M8": 8.0, "M4": 4.0, "M2": 2.0}


def fmul(s: Sample):
    """The scale multiplies before rounding. .FMZ: 0 times anything is +0."""
    a, b = inputs(s, "a", "b")
    product = exact._finish(a.astype(np.float64) * b * SCALE[s.mods.get("scale", "")], s.mode, s.ftz)
    zero = (s.mods["ftz"] == "FMZ") & ((a == 0) | (b == 0))
    return finished(s, np.where(zero, np.float32(0), product))


def ffma(s: Sample):
    a, b, c = inputs(s, "a", "b", "c")
    zero = (s.mods["ftz"] == "FMZ") & ((a == 0) | (b == 0))
    a, b = np.where(zero, np.float32(0), a), np.where(zero, np.float32(0), b)
    return finished(s, exact.fma32(a, b, c, s.mode, s.ftz))


def minmax(a, b, least):
    """A NaN loses to a number; -0 is below +0."""
    below = (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))
    return np.where(np.isnan(b) | (~np.isnan(a) & (below == least)), a, b)


def fmnmx(s: Sample):
    return finished(s, minmax(*inputs(s, "a", "b"), s.p("ps")))


def relation(name, a, b):
    """Ordered relations fail on a NaN, those with U hold; NUM and NAN ask for one."""
    nan = np.isnan(a) | np.isnan(b)
    if name in ("F", "T", "NUM", "NAN"):
        return {"F": nan & ~nan, "T": nan | ~nan, "NUM": ~nan, "NAN": nan}[name]
    plain = {"LT": a < b, "EQ": a == b, "LE": a <= b, "GT": a > b, "NE": a != b, "GE": a >= b}[name.removesuffix("U")]
    return plain | nan if name.endswith("U") else plain & ~nan


def related(s: Sample):
    return relation(s.mods["cmp"], *inputs(s, "a", "b"))


def fcmp(s: Sample):
    (c,) = inputs(s, "c")
    return After(np.where(relation(s.mods["cmp"] or "GT", c, 0), s.u("a"), s.u("b")))


# function: exact value, then the allowed error as (relative, absolute)
MUFU = {
    "RCP": (lambda x: 1 / x, 2.0**-23, 0),  # 1 ulp
    "RSQ": (lambda x: 1 / np.sqrt(x), 2.0**-22.4, 0),
    "SQRT": (np.sqrt, 2.0**-22.4, 0),
    "EX2": (np.exp2, 2.0**-22, 0),  # 2 ulp
    "LG2": (np.log2, 2.0**-22, 2.0**-22),
    "SIN": (np.sin, 0, 2.0**-20.5),
    "COS": (np.cos, 0, 2.0**-20.5),
}


def mufu(s: Sample):
    """Denormals count as zero; whether results below 2^-126 are flushed is left open. SIN and COS are bounded within
    one turn on either side."""
    function, relative, absolute = MUFU[s.mods["func"]]
    x = exact.flush(s.f("a")).astype(np.float64)
    want = function(x)
    if s.mods["sat"]:
        want = np.where(want > 0, np.minimum(want, 1), 0)
    far = (s.mods["func"] in ("SIN", "COS")) & (np.abs(x) > 2 * np.pi) & np.isfinite(x)

    def wrong(bits):
        got = bits.view(np.float32).astype(np.float64)
        ulp = np.where(s.mods["func"] == "RCP", np.spacing(want.astype(np.float32)).astype(np.float64), 0)
        near = np.abs(got - want) <= np.maximum(ulp, relative * np.abs(want)) + absolute + 2.0**-126
        top = np.isinf(got) & (np.abs(want) > (2 - 2.0**-22) * 2.0**127)
        exactly = (got == want) | (bits == 0x7FFFFFFF) & np.isnan(want)
        zero_sign = (want == 0) & (np.signbit(got) != np.signbit(want)) & (not s.mods["sat"])
        return ~(exactly | np.isfinite(want) & near | top | far) | zero_sign & ~far

    return After(want.astype(np.float32).view(np.uint32), wrong=wrong)


def mufu64(s: Sample):
    """The high word of an estimate from the high word of a double: near enough for the Newton steps that follow."""
    word = s.u("a") & np.uint32(0x7FFFFFFF if s["a"].abs else 0xFFFFFFFF)
    x = ((word ^ np.uint32(0x80000000 * s["a"].neg)).astype(np.uint64) << np.uint64(32)).view(np.float64)
    want = 1 / x if s.mods["func"] == "RCP64H" else 1 / np.sqrt(x)
    ordinary = (np.abs(x) >= 2.0**-1022) & (np.abs(x) < 2.0**1021) & ~np.isnan(want)

    def wrong(bits):
        got = (bits.astype(np.uint64) << np.uint64(32)).view(np.float64)
        return ordinary & ~(np.abs(got - want) <= 2.0**-18 * np.abs(want))

    return After((want.view(np.uint64) >> np.uint64(32)).astype(np.uint32), wrong=wrong)


CASES = {
    "FADD FADD32I": (singles, fadd, {"least": 8}),
    "FMUL FMUL32I": (singles, fmul, {"least": 12}),
    "FFMA FFMA32I": (singles, ffma, {"least": 12}),
    "FMNMX": (singles, fmnmx, {}),
    "FSETP": (singles, lambda s: setp(s, related(s)), {}),
    "FSET": (singles, lambda s: boolean(s, joined(s.mods["bool"], related(s), s.p("ps"))), {}),
    "FCMP": (singles, fcmp, {}),
    "MUFU": (singles, lambda s: (mufu64 if s.mods["func"].endswith("64H") else mufu)(s), {"least": 36}),
}


@pytest.mark.sampled(1, 2)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs_, model, options = CASES[names]
    print(check(names, inputs_, model, **options), "operand sets")
