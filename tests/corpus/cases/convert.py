"""References of convert.cu.  NaN rules of float to integer: see exact.to_integer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.corpus.cases._values import F32_EDGES, F64_EDGES, Rows, doubles, elementwise, floats, integers
from tests.corpus.cases.int_arith import clamp, wrap
from tests.corpus.exact import (
    add32,
    canonical,
    flush,
    integer_to_f32,
    integer_to_f64,
    saturate,
    to_f16,
    to_f32,
    to_integer,
)
from tests.corpus.runner import ANY_NAN, Array

I8, U8, I16, U16, I32, U32, I64, U64 = (
    np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64
)  # fmt: skip
MODES = ("rz", "rn", "ru", "rd")


def as64(rows: Iterable[Array]) -> Rows:
    """Rows of narrower integers extended to 64 bits by their own signedness."""
    return [row.astype(I64) if row.dtype != U64 else row.view(I64) for row in rows]


def f32_s32(x: Array) -> Rows:
    f = flush(x)
    rows = [
        *(to_integer(x, I32, mode) for mode in MODES),
        *(to_integer(x, U32, mode) for mode in MODES),
        to_integer(f, I32, "rz"),
        to_integer(f, I32, "ru"),
        to_integer(f, I32, "rd"),
        to_integer(f, U32, "ru"),
        to_integer(x, I16, "rz"),
        to_integer(x, I16, "rn"),
        to_integer(x, U16, "rz"),
        to_integer(x, U16, "ru"),
        to_integer(x, I8, "rz"),
        to_integer(x, I8, "rd"),
        to_integer(x, U8, "rz"),
        to_integer(x, U8, "rn"),
        to_integer(np.abs(x), I32, "rz"),
        to_integer(-x, I32, "rn"),
    ]
    return [wrap(row.astype(I64)) for row in rows]


def f32_s64(x: Array) -> Rows:
    f = flush(x)
    return as64(
        [
            *(to_integer(x, I64, mode) for mode in MODES),
            *(to_integer(x, U64, mode) for mode in MODES),
            to_integer(f, I64, "ru"),
            to_integer(f, U64, "rd"),
        ]
    )


def f64_int(x: Array) -> Rows:
    return as64(
        [
            *(to_integer(x, I64, mode) for mode in MODES),
            to_integer(x, U64, "rz"),
            to_integer(x, U64, "rn"),
            *(to_integer(x, I32, mode) for mode in MODES),
            *(to_integer(x, U32, mode) for mode in MODES),
            x.view(I64),
        ]
    )


def int_f32(a: Array) -> Rows:
    modes = ("rn", "rz", "ru", "rd")
    s, u = wrap(a, I32), wrap(a, U32)
    narrow = [
        wrap(a, I16), wrap(a, U16), wrap(a, I8), wrap(a, U8), wrap(a >> 8, U8), wrap(a >> 16, U8), wrap(a >> 24, U8),
        wrap(a >> 8, I8), wrap(a >> 16, I16), wrap(a >> 16, U16), wrap(-a, I32),
    ]  # fmt: skip
    return [
        *(integer_to_f32(v, mode) for v in (s, u, a, a.view(U64)) for mode in modes),
        *(v.astype(np.float32) for v in narrow),
    ]


def int_f64(a: Array) -> Rows:
    modes = ("rn", "rz", "ru", "rd")
    s = wrap(a, I32)
    pieces = ((s & 0x7FFFFF) | 0x3FF00000).astype(I64) << 32 | (a >> 32 & 0xFFFFFFFF)
    narrow = [wrap(a, I16), wrap(a, U8), wrap(a >> 16, I8)]
    return [
        s.astype(np.float64),
        wrap(a, U32).astype(np.float64),
        *(integer_to_f64(v, mode) for v in (a, a.view(U64)) for mode in modes),
        *(v.astype(np.float64) for v in narrow),
        pieces.view(np.float64),
    ]


def f32_f64(x: Array, y: Array) -> tuple[Rows, Rows]:
    narrow = [*(to_f32(x, mode) for mode in ("rn", "rz", "ru", "rd")), flush(to_f32(x)), saturate(to_f32(x))]
    narrow[5] = np.where(np.signbit(x), np.float32(0), narrow[5])
    return narrow, [v.astype(np.float64) for v in (y, flush(y), np.abs(y), -y)]


def half_away(x: Array) -> Array:
    whole = np.trunc(np.abs(x))
    return np.copysign(whole + (np.abs(x) - whole >= 0.5), x).astype(x.dtype)


def rounding(x: Array, y: Array) -> tuple[Rows, Rows]:
    narrow = [
        np.floor(x),
        np.ceil(x),
        np.trunc(x),
        np.rint(x),
        half_away(x),
        np.floor(flush(x)),
        saturate(np.ceil(flush(x))),
        add32(x, -np.trunc(x)),
        np.floor(np.abs(x)),
    ]
    return [canonical(v) for v in narrow], [np.floor(y), np.ceil(y), np.trunc(y), np.rint(y), half_away(y)]


def half(x: Array, h: Array) -> tuple[Rows, Rows]:
    narrow = [*(to_f16(x, mode) for mode in ("rn", "rz", "ru", "rd")), to_f16(flush(x))]
    wide = h.view(np.float16).astype(np.float32)
    pairs = np.repeat(add32(wide[0::2], wide[1::2]), 2)
    return narrow, [wide, wide, pairs]


def width(a: Array) -> Rows:
    w = a.astype(I64) * 65537
    rows: list[Any] = [
        wrap(a, I8),
        wrap(a, U8),
        wrap(a, I16),
        wrap(a, U16),
        a,
        wrap(a, U32),
        wrap(a >> 8, I8).astype(I64) << 40,
        wrap(a >> 16, I16).astype(I64) * wrap(a >> 24, I8),
        wrap(a, I8),
        wrap(a, U16),
        clamp(a, I8),
        clamp(a, U16),
        clamp(w, I32),
        clamp(w, U32),
    ]
    return as64(rows)


def _near_integers(rng: np.random.Generator, n: int) -> Array:
    """float32 values around halves, integer limits and powers of two."""
    base = np.array([0.5, 1.5, 2.5, 127.5, 128, 255.5, 256, 32767.5, 32768, 65535.5, 65536, 2.0**23, 2.0**24, 2.0**31,
                     2.0**32, 2.0**63, 2.0**64], np.float32)  # fmt: skip
    steps = base.view(I32) + rng.integers(-2, 3, (8, len(base))).astype(I32)
    values = steps.astype(I32).view(np.float32).ravel()
    return np.concatenate([floats(rng, n), values, -values]).astype(np.float32)


def _doubles(rng: np.random.Generator, n: int = 300) -> Array:
    singles = _near_integers(rng, 40).astype(np.float64)
    nudged = singles * (1 + rng.choice([-1, 0, 1], len(singles)) * 2.0**-50)
    limits = np.array([2.0**31 - 0.5, 2.0**31 - 1, -(2.0**31) - 0.5, 2.0**32 - 0.5, 2.0**63 - 1024, -(2.0**63)])
    return np.concatenate([doubles(rng, n), nudged, limits])


def _even(values: Array) -> Array:
    return values[: len(values) // 2 * 2]


def _both(rng: np.random.Generator) -> list[Array]:
    wide = _doubles(rng)
    return [wide, rng.permutation(np.resize(np.concatenate([F32_EDGES, floats(rng, 600)]), len(wide)))]


def _round_inputs(rng: np.random.Generator) -> list[Array]:
    single = _near_integers(rng, 500)
    return [single, rng.permutation(np.resize(np.concatenate([F64_EDGES, _doubles(rng, 600)]), len(single)))]


def _half_inputs(rng: np.random.Generator) -> list[Array]:
    near = rng.integers(0, 0x7C02, 1500).astype(U16).view(np.float16).astype(np.float32)
    nudged = near.view(I32) + rng.choice([0, 1, -1, 0x1000, 0x0FFF, 0x1001, 0x800], len(near)).astype(I32)
    x = _even(np.concatenate([floats(rng, 500), np.maximum(nudged, 0).astype(I32).view(np.float32)]))
    return [x, rng.integers(0, 65536, len(x)).astype(U16)]


CASES = [
    elementwise("convert.cu", "convert_f32_s32", lambda rng: [_near_integers(rng, 800)], f32_s32, I32),
    elementwise("convert.cu", "convert_f32_s64", lambda rng: [_near_integers(rng, 800)], f32_s64, I64),
    elementwise("convert.cu", "convert_f64_int", lambda rng: [_doubles(rng)], f64_int, I64),
    elementwise("convert.cu", "convert_int_f32", lambda rng: [integers(rng, I64, 600)], int_f32, np.float32),
    elementwise("convert.cu", "convert_int_f64", lambda rng: [integers(rng, I64, 600)], int_f64, np.float64),
    elementwise("convert.cu", "convert_f32_f64", _both, f32_f64, (np.float32, np.float64), (ANY_NAN, ANY_NAN)),
    elementwise("convert.cu", "convert_round", _round_inputs, rounding, (np.float32, np.float64), (ANY_NAN, ANY_NAN)),
    elementwise("convert.cu", "convert_half", _half_inputs, half, (np.float16, np.float32), (ANY_NAN, ANY_NAN)),
    elementwise("convert.cu", "convert_width", lambda rng: [integers(rng, I32, 700)], width, I64),
]
