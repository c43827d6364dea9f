"""References of f64.cu: exact double precision.  NaN payloads are not compared (ANY_NAN)."""

from __future__ import annotations

import numpy as np

from tests.corpus.cases._values import Rows, double_pairs, doubles, elementwise
from tests.corpus.cases.f32 import comparisons
from tests.corpus.cases.int_arith import bits
from tests.corpus.exact import add32, add64, div64, fma32, fma64, mul32, mul64, sqrt64
from tests.corpus.runner import ANY_NAN, BITS, Array

F64, U32 = np.float64, np.uint32
MODES = ("rn", "rz", "ru", "rd")


def add_mul(x: Array, y: Array) -> Rows:
    return [
        *(add64(x, y, mode=mode) for mode in MODES),
        x - y,
        *(mul64(x, y, mode) for mode in MODES),
        -x * np.abs(y),
        -np.abs(x) + 0.1,
        x * 1.5,
    ]


def fma(x: Array, y: Array, z: Array) -> Rows:
    return [
        *(fma64(x, y, z, mode=mode) for mode in MODES),
        fma64(-x, y, z),
        fma64(x, y, -z),
        fma64(x, 2.5, z),
        fma64(x, y, 1.0),
    ]


def div_sqrt(x: Array, y: Array) -> Rows:
    return [
        *(div64(x, y, mode=mode) for mode in MODES),
        *(sqrt64(x, mode=mode) for mode in MODES),
        *(div64(1.0, x, mode=mode) for mode in MODES),
    ]


def minimum(x: Array, y: Array) -> Array:
    """A NaN loses against a number; -0 is below +0."""
    below = (x < y) | ((x == y) & np.signbit(x))
    return np.where(np.isnan(x), y, np.where(np.isnan(y) | below, x, y))


def maximum(x: Array, y: Array) -> Array:
    return np.where(np.isnan(x) | np.isnan(y), minimum(x, y), -minimum(-x, -y))


def compare(x: Array, y: Array) -> tuple[Rows, Rows]:
    one = np.ones_like(x)
    values = [
        minimum(x, y),
        maximum(x, y),
        np.where(x < y, x, y),
        np.abs(x),
        -y,
        np.copysign(x, y),
        minimum(maximum(x, -one), one),
        np.where(x > 0, x + 1, y * 2),
    ]
    flags = [
        comparisons(x, y),
        -(x < y).astype(np.int32),
        np.where(x >= y, np.float32(1), np.float32(0)).view(np.int32),
        bits(np.isnan(x), np.isinf(y), np.isfinite(x), np.signbit(y)),
    ]
    return values, [flag.view(U32) for flag in flags]


def compensated(x: Array, y: Array) -> tuple[Rows, Rows]:
    s, p = x + y, x * y
    v = s - x
    fx, fy = x.astype(np.float32), y.astype(np.float32)
    fs, fp = add32(fx, fy), mul32(fx, fy)
    fv = add32(fs, -fx)
    return [s, (x - (s - v)) + (y - v), p, fma64(x, y, -p)], [
        fs,
        add32(add32(fx, -add32(fs, -fv)), add32(fy, -fv)),
        fp,
        fma32(fx, fy, -fp),
    ]


def inverse4(a: Array) -> Rows:
    m = (
        np.concatenate([a.reshape(-1, 4, 4), np.broadcast_to(np.eye(4), (len(a), 4, 4))], axis=2)
        .transpose(1, 2, 0)
        .copy()
    )
    for k in range(4):
        m[k] = m[k] * (1.0 / m[k, k])
        for r in set(range(4)) - {k}:
            m[r] = fma64(-m[r, k].copy(), m[k], m[r])
    return list(m[:, 4:].reshape(16, -1))


def _pairs(rng: np.random.Generator) -> list[Array]:
    return list(double_pairs(rng))


def _triples(rng: np.random.Generator) -> list[Array]:
    x, y = double_pairs(rng)
    with np.errstate(all="ignore"):
        z = np.where(rng.random(len(x)) < 0.33, -(x * y), rng.permutation(doubles(rng, len(x))))
    return [x, y, z]


def _matrices(rng: np.random.Generator) -> list[Array]:
    return [(rng.standard_normal((96, 4, 4)) + 4 * np.eye(4)).reshape(96, 16)]


def _near(rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal(500) * np.exp2(rng.uniform(-20, 20, 500)), rng.standard_normal(500)]


CASES = [
    elementwise("f64.cu", "f64_add_mul", _pairs, add_mul, F64, ANY_NAN),
    elementwise("f64.cu", "f64_fma", _triples, fma, F64, ANY_NAN),
    elementwise("f64.cu", "f64_div_sqrt", _pairs, div_sqrt, F64, ANY_NAN),
    elementwise("f64.cu", "f64_compare", _pairs, compare, (F64, U32), (ANY_NAN, BITS)),
    elementwise("f64.cu", "f64_compensated", _near, compensated, (F64, np.float32)),
    elementwise("f64.cu", "f64_inverse4", _matrices, inverse4, F64),
]
