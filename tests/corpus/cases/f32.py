"""References of f32.cu: exact single-precision arithmetic.

A NaN that arithmetic produces is 0x7fffffff.  Saturation gives +0 for -0 and NaN.  -0 is less than +0 in min and max.
"""

from __future__ import annotations

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, float_pairs, floats
from tests.corpus.cases.int_arith import bits
from tests.corpus.exact import NAN32, add32, canonical, div32, flush, fma32, mul32, rsqrt32, saturate, sqrt32
from tests.corpus.runner import ANY_NAN, BITS, Array

F32 = np.float32


def add_mul(x: Array, y: Array) -> Rows:
    return [
        *(add32(x, y, mode) for mode in ("rn", "rz", "ru", "rd")),
        add32(x, -y),
        add32(x, -y, "rd"),
        *(mul32(x, y, mode) for mode in ("rn", "rz", "ru", "rd")),
        *(add32(x, y, mode, ftz=True) for mode in ("rn", "rz", "ru", "rd")),
        add32(x, -y, ftz=True),
        *(mul32(x, y, mode, ftz=True) for mode in ("rn", "rz", "ru", "rd")),
        saturate(add32(x, y)),
        saturate(mul32(x, y)),
        saturate(mul32(x, y, ftz=True)),
        saturate(add32(x, y, ftz=True)),
        add32(mul32(x, F32(3.25)), F32(1e-3)),
        mul32(-x, np.abs(y)),
        add32(np.abs(x), -np.abs(y)),
        mul32(x, F32(2)),
        mul32(x, F32(0.125)),
        add32(x, x),
    ]


def fma(x: Array, y: Array, z: Array) -> Rows:
    return [
        *(fma32(x, y, z, mode) for mode in ("rn", "rz", "ru", "rd")),
        *(fma32(x, y, z, mode, ftz=True) for mode in ("rn", "rz", "ru", "rd")),
        saturate(fma32(x, y, z)),
        saturate(fma32(x, y, z, ftz=True)),
        fma32(-x, y, z),
        fma32(x, y, -z),
        fma32(-x, y, -z),
        fma32(x, F32(1.5), z),
        fma32(x, y, F32(0.1)),
        fma32(x, x, y),
        fma32(fma32(fma32(x, y, F32(0.5)), y, F32(0.25)), y, F32(0.125)),
    ]


def div_sqrt(x: Array, y: Array) -> Rows:
    one = F32(1)
    return [
        *(div32(x, y, mode) for mode in ("rn", "rz", "ru", "rd")),
        *(sqrt32(x, mode) for mode in ("rn", "rz", "ru", "rd")),
        *(div32(one, x, mode) for mode in ("rn", "rz", "ru", "rd")),
        rsqrt32(x),
        div32(x, y, ftz=True),
        sqrt32(x, ftz=True),
        div32(one, x, ftz=True),
    ]


def minimum(x: Array, y: Array) -> Array:
    """The smaller; a NaN loses against a number; -0 is below +0."""
    below = (x < y) | ((x == y) & np.signbit(x))
    return canonical(np.where(np.isnan(x), y, np.where(np.isnan(y) | below, x, y)))


def maximum(x: Array, y: Array) -> Array:
    return canonical(np.where(np.isnan(x) | np.isnan(y), minimum(x, y), -minimum(-x, -y)))


def minmax(x: Array, y: Array) -> Rows:
    fx, fy = flush(x), flush(y)
    one = np.full_like(x, 1)
    return [
        minimum(x, y),
        maximum(x, y),
        minimum(fx, fy),
        maximum(fx, fy),
        minimum(np.abs(x), y),
        maximum(-x, y),
        minimum(maximum(x, -one), one),
        np.abs(fx),
        -fx,
        saturate(x),
        np.copysign(y, x),
        np.where(x < y, x, y),
        np.where(x > 0, add32(x, y), mul32(x, y)),
        add32(maximum(x, y), -minimum(x, y)),
    ]


def comparisons(x: Array, y: Array) -> Array:
    ordered = ~(np.isnan(x) | np.isnan(y))
    tests = [x == y, (x != y) & ordered, x < y, x <= y, x > y, x >= y]
    return bits(*tests, *(test | ~ordered for test in tests), ordered, ~ordered)


def compare(x: Array, y: Array, z: Array) -> Rows:
    positive, less, at_least = z > 0, x < y, x >= y
    unequal = (x != y) | np.isnan(x) | np.isnan(y)
    exponent = x.view(np.uint32) >> np.uint32(23) & np.uint32(255)
    subnormal = (exponent == 0) & (x != 0)
    flags = [np.isfinite(x), np.isinf(x), ~np.isnan(x), np.isnan(x), np.isfinite(x) & ~subnormal, subnormal]
    words = [
        comparisons(x, y),
        comparisons(flush(x), flush(y)),
        -less.astype(np.int32),
        np.where(~less, F32(1), F32(0)).view(np.int32),
        bits(less & positive, ~less & positive),
        bits(at_least | positive, ~at_least | positive),
        bits(unequal ^ ~positive, ~unequal ^ ~positive),
        np.where(z >= 0, x, y).astype(F32).view(np.int32),
        np.where(z.view(np.int32) >= 0, x, y).astype(F32).view(np.int32),
        bits(np.isnan(x), np.isinf(y), np.isfinite(z), np.signbit(x)),
        bits(*flags[::-1]),
        np.where((x == y) & (y < z), 1, np.where((x <= z) | ~(y > z), 2, 3)),
    ]
    return [word.astype(np.int32).view(np.uint32) for word in words]


def _pairs(rng: np.random.Generator) -> list[Array]:
    return list(float_pairs(rng))


def _triples(rng: np.random.Generator) -> list[Array]:
    x, y = float_pairs(rng)
    z = rng.permutation(floats(rng, len(x)))
    # A third of the sums cancel almost fully, where the single rounding of a fused operation shows.
    with np.errstate(all="ignore"):
        close = (-(x.astype(np.float64) * y)).astype(F32)
    z = np.where((rng.random(len(x)) < 0.33) & ~np.isnan(close), close, z)
    return [x, y, np.where(np.isnan(z), NAN32, z).astype(F32)]


# A NaN that abs, neg and copysign pass on or make keeps an undocumented sign and payload.
MINMAX_RULES = [ANY_NAN if row in (7, 8, 10) else BITS for row in range(14)]

CASES = [
    elementwise("f32.cu", "f32_add_mul", _pairs, add_mul, F32),
    elementwise("f32.cu", "f32_fma", _triples, fma, F32),
    elementwise("f32.cu", "f32_div_sqrt", _pairs, div_sqrt, F32),
    elementwise("f32.cu", "f32_minmax", _pairs, minmax, F32, MINMAX_RULES),
    elementwise("f32.cu", "f32_compare", _triples, compare, np.uint32),
]
