"""References of math32.cu and math64.cu in wider precision, with the vendor's documented error bounds.

GUIDE: CUDA C Programming Guide, "Mathematical Functions".  Its errors are distances in ulp from the correctly rounded
result, so that the distance from the exact value may be half an ulp more.  PTX: PTX ISA, the `.approx` instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.corpus.cases._values import F32_EDGES, Rows, elementwise, floats
from tests.corpus.exact import flush, mul32, to_f32
from tests.corpus.runner import BITS, Array, Bound, Rule

F32, F64, Wide = np.float32, np.float64, np.longdouble
PI = Wide("3.14159265358979323846264338327950288")
TWO = Wide(2)


def guide(ulps: float) -> Bound:
    return Bound("CUDA C Programming Guide, Mathematical Functions", ulps=ulps + 0.5)


def ptx(ulps: float = 0, absolute: float = 0, relative: float = 0, flush: bool = False) -> Bound:
    return Bound("PTX ISA, approximate instruction", ulps=ulps, absolute=absolute, relative=relative, flush=flush)


def split(limit: float, inside: Bound, outside: Bound) -> Rule:
    """`inside` where |reference| <= limit (for a logarithm: arguments in [0.5, 2]), else `outside`."""

    def rule(got: Array, want: Array) -> Array:
        return np.where(np.abs(want) <= limit, inside(got, want), outside(got, want))

    return rule


def exponential(base: float, slope: float) -> Rule:
    """__expf and __exp10f: 2 + floor(|slope * x|) ulp, with x recovered from the reference.

    Both flush results below the smallest normal number.
    """

    def rule(got: Array, want: Array) -> Array:
        with np.errstate(all="ignore"):
            x = np.log(want) / math.log(base)
            allowed = 2.5 + np.floor(np.abs(slope * np.where(np.isfinite(x), x, 0)))
        wrong = [Bound("GUIDE", ulps=float(u), flush=True)(g[None], w[None])[0]
                 for g, w, u in zip(got, want, allowed, strict=True)]  # fmt: skip
        return np.array(wrong)

    return rule


def scalar(function: Callable[..., float]) -> Callable[..., Array]:
    """A function of Python floats over arrays, in double precision."""

    def apply(*operands: Array) -> Array:
        return np.array([function(*map(float, row)) for row in zip(*operands, strict=True)], Wide)

    return apply


def half_turns(y: Array, cosine: bool) -> Array:
    """sin(pi y) or cos(pi y), reduced exactly first."""
    y = y.astype(Wide)
    quarter = np.rint(2 * y)
    angle = (y - quarter / 2) * PI
    k = (quarter.astype(int) + (1 if cosine else 0)) % 4
    return np.choose(k, [np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle)])


# ------------------------------------------------------------------------------------------------------ approximate


def approx(a: Array, b: Array) -> Rows:
    x, f, y = a.astype(Wide), flush(a).astype(Wide), b.astype(Wide)
    rows = []
    for function in (lambda v: 1 / v, np.sqrt, lambda v: 1 / np.sqrt(v), np.log2, np.exp2):
        rows += [function(x), function(f)]
    return [*rows, np.sin(y), np.cos(y), np.sin(y), np.cos(y)]


LG2 = split(1.0, ptx(absolute=2.0**-22), ptx(relative=2.0**-22))
APPROX_RULES: list[Rule] = [
    ptx(ulps=1.5),
    ptx(ulps=1.5, flush=True),
    *[ptx(relative=2.0**-22.9)] * 2,
    *[ptx(relative=2.0**-22.4)] * 2,
    LG2,
    LG2,
    ptx(ulps=2.5),
    ptx(ulps=2.5, flush=True),
    *[ptx(absolute=2.0**-20.5)] * 4,
]


def fast(a: Array, b: Array) -> Rows:
    x, y, angle = a.astype(Wide), b.astype(Wide), mul32(a, F32(0.03125)).astype(Wide)
    sine, cosine = np.sin(angle), np.cos(angle)
    return [np.exp(x), Wide(10) ** x, np.log(y), np.log2(y), np.log10(y), sine, cosine, sine, cosine, *[x / y] * 4]


FAST_RULES: list[Rule] = [
    exponential(math.e, 1.173),
    exponential(10.0, 2.97),
    split(math.log(2), Bound("GUIDE", absolute=2.0**-21.41), guide(3)),
    split(1.0, Bound("GUIDE", absolute=2.0**-22), guide(2)),
    split(math.log10(2), Bound("GUIDE", absolute=2.0**-24), guide(3)),
    *[Bound("GUIDE", absolute=2.0**-21.41), Bound("GUIDE", absolute=2.0**-21.19)] * 2,
    guide(2),
    ptx(ulps=2.5),
    ptx(ulps=2.5),
    ptx(ulps=2.5, flush=True),
]


# ---------------------------------------------------------------------------------------------------- single library


def exp_log32(a: Array, b: Array) -> Rows:
    x, y = a.astype(Wide), b.astype(Wide)
    return [
        np.exp(x),
        np.exp2(x),
        Wide(10) ** x,
        np.expm1(x),
        np.log(y),
        np.log2(y),
        np.log10(y),
        np.log1p(y),
        y**x,
        np.cbrt(x),
        np.hypot(x, y),
        1 / np.sqrt(y),
        np.floor(np.log2(b.astype(F64))).astype(Wide),
        to_f32(np.ldexp(a.astype(F64), np.trunc(a).astype(int))).astype(Wide),
    ]


EXP_LOG32_RULES: list[Rule] = [*map(guide, (2, 2, 2, 1, 1, 1, 2, 1, 9, 1, 3, 2)), BITS, BITS]


def trig32(a: Array, b: Array) -> Rows:
    x, y = a.astype(Wide), b.astype(Wide)
    eight = mul32(b, F32(8)).astype(Wide)
    above = (F32(1) + np.abs(a)).astype(Wide)
    return [
        np.sin(x),
        np.cos(x),
        np.tan(x),
        half_turns(b, False),
        half_turns(b, True),
        np.arcsin(y),
        np.arccos(y),
        np.arctan(x),
        np.arctan2(x, y),
        np.sinh(eight),
        np.cosh(eight),
        np.tanh(x),
        np.arcsinh(x),
        np.arccosh(above),
        np.arctanh(y),
    ]


TRIG32_RULES: list[Rule] = [*map(guide, (2, 2, 4, 2, 2, 4, 3, 2, 3, 3, 2, 2, 3, 4, 3))]


def special32(x: Array) -> Rows:
    w = x.astype(F64)
    shifted = (np.abs(x) + F32(0.1)).astype(F64)
    hundred, ten = mul32(x, F32(100)).astype(F64), mul32(x, F32(10)).astype(F64)
    seven = float(F32(0.7))
    fraction, exponent = np.frexp(w)
    return [
        scalar(math.erf)(w),
        scalar(math.erfc)(w),
        scalar(math.gamma)(w),
        scalar(math.lgamma)(shifted),
        scalar(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(w),
        np.fmod(hundred, seven),
        scalar(lambda v: math.remainder(v, seven))(hundred),
        np.maximum(w - 1.25, 0).astype(F32),
        np.nextafter(x, F32(2)),
        fraction,
        exponent.astype(F64),
        np.copysign(np.fmod(ten, 1.0), ten),
        np.trunc(ten),
        exponent - 1.0,
        np.rint(mul32(x, F32(3))) + F32(0),
        np.copysign(np.floor(np.abs(mul32(x, F32(5)).astype(F64)) + 0.5), x) + 0.0,
        to_f32(np.ldexp(w, -130)),
    ]


SPECIAL32_RULES: list[Rule] = [*map(guide, (2, 4, 11, 6, 5)), *[BITS] * 12]


# ---------------------------------------------------------------------------------------------------- double library


def exp_log64(a: Array, b: Array) -> Rows:
    x, y = a.astype(Wide), b.astype(Wide)
    return [
        np.exp(x),
        np.exp2(x),
        np.expm1(x),
        np.log(y),
        np.log2(y),
        np.log10(y),
        np.log1p(y),
        y**x,
        np.cbrt(x),
        np.hypot(x, y),
        1 / np.sqrt(y),
    ]


EXP_LOG64_RULES: list[Rule] = [*map(guide, (1, 1, 1, 1, 1, 1, 1, 2, 1, 2, 1))]


def trig64(a: Array, b: Array) -> Rows:
    x, y = a.astype(Wide), b.astype(Wide)
    eight = (b * 8).astype(Wide)
    return [
        np.sin(x),
        np.cos(x),
        np.tan(x),
        np.arcsin(y),
        np.arccos(y),
        np.arctan(x),
        np.arctan2(x, y),
        np.sinh(eight),
        np.cosh(eight),
        np.tanh(x),
        scalar(math.erf)(b),
        np.fmod(a * 100, 0.7).astype(Wide),
    ]


# math.erf is itself only within one ulp in double precision: one more is allowed for erf.
TRIG64_RULES: list[Rule] = [*map(guide, (2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 3)), BITS]


def _approx_inputs(rng: np.random.Generator) -> list[Array]:
    edges = F32_EDGES[~np.isnan(F32_EDGES)]
    x = np.concatenate([edges, floats(rng, 600), rng.uniform(-30, 30, 400), rng.uniform(0.25, 4, 400)]).astype(F32)
    return [x, rng.uniform(-2 * np.pi, 2 * np.pi, len(x)).astype(F32)]


def _fast_inputs(rng: np.random.Generator) -> list[Array]:
    x = rng.uniform(-80, 80, 800).astype(F32)
    y = (np.exp2(rng.uniform(-100, 100, 800))).astype(F32)
    y[:300] = rng.uniform(0.5, 2, 300)
    return [x, y]


def _exp_log_inputs(rng: np.random.Generator) -> list[Array]:
    x = np.concatenate([rng.uniform(-90, 90, 600), rng.standard_normal(200), [0.0, -0.0, 1.0, -1.0, 88.7, -103.9]])
    y = np.exp2(rng.uniform(-30, 30, len(x)))
    y[:300] = rng.uniform(0.4, 2.5, 300)
    return [x.astype(F32), y.astype(F32)]


def _trig_inputs(rng: np.random.Generator) -> list[Array]:
    x = np.concatenate(
        [rng.uniform(-10, 10, 500), rng.standard_normal(150) * np.exp2(rng.uniform(-20, 100, 150)), [0.0, 1.0]]
    )
    y = np.concatenate([rng.uniform(-1, 1, len(x) - 3), [0.0, 0.5, -0.5]])
    return [x.astype(F32), y.astype(F32)]


def _special_inputs(rng: np.random.Generator) -> list[Array]:
    x = np.concatenate([rng.uniform(0.05, 8, 500), rng.uniform(-3.9, 0, 200)])
    return [x[np.abs(x - np.rint(x)) > 0.02].astype(F32)]


def _wide_inputs(make: Callable[[np.random.Generator], list[Array]]) -> Callable[[np.random.Generator], list[Array]]:
    """The same ranges in double precision, 300 values."""

    def inputs(rng: np.random.Generator) -> list[Array]:
        return [np.asarray(v[::2], F64) * (1 + 2.0**-40) for v in make(rng)]

    return inputs


CASES = [
    elementwise("math32.cu", "math32_approx", _approx_inputs, approx, F32, APPROX_RULES),
    elementwise("math32.cu", "math32_fast", _fast_inputs, fast, F32, FAST_RULES),
    elementwise("math32.cu", "math32_exp_log", _exp_log_inputs, exp_log32, F32, EXP_LOG32_RULES),
    elementwise("math32.cu", "math32_trig", _trig_inputs, trig32, F32, TRIG32_RULES),
    elementwise("math32.cu", "math32_special", _special_inputs, special32, F32, SPECIAL32_RULES),
    elementwise("math64.cu", "math64_exp_log", _wide_inputs(_exp_log_inputs), exp_log64, F64, EXP_LOG64_RULES),
    elementwise("math64.cu", "math64_trig", _wide_inputs(_trig_inputs), trig64, F64, TRIG64_RULES),
]
