"""References of int_arith.cu, in wrapping NumPy integers or exact Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, int_pairs, integers
from tests.corpus.runner import Array

I32, U32, I64, U64 = np.int32, np.uint32, np.int64, np.uint64


def wrap(x: Array, dtype: Any = I32) -> Array:
    """Low bits of an integer array of any kind, as dtype."""
    bits = 8 * np.dtype(dtype).itemsize
    if x.dtype == object:
        x = np.array([int(v) & ((1 << bits) - 1) for v in x.ravel()], f"u{bits // 8}").reshape(x.shape)
    return x.astype(f"u{bits // 8}").view(dtype)


def exact(function: Callable[..., int], *operands: Array, dtype: Any = I32) -> Array:
    """`function` on Python integers, wrapped to dtype."""
    return wrap(np.array([function(*map(int, row)) for row in zip(*operands, strict=True)], object), dtype)


def clamp(x: Array, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max).astype(dtype)


def trunc_div(x: int, y: int) -> int:
    """C's quotient: toward zero."""
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def trunc_mod(x: int, y: int) -> int:
    return x - y * trunc_div(x, y)


def add_sub(a: Array, b: Array) -> Rows:
    x, y = a.view(U32), b.view(U32)
    sx, sy = a.astype(I64), b.astype(I64)
    return [
        x + y,
        x - y,
        y - x,
        U32(0) - x,
        x + y + U32(12345),
        x - y - U32(0x89ABCDEF),
        x + y + (x >> U32(16)),
        (x & U32(0xFFFF)) + (y & U32(0xFFFF)) + x,
        (x << U32(3)) + y,
        (x << U32(2)) - y,
        y - (x << U32(5)),
        x * U32(9) + y * U32(17),
        clamp(sx + sy, I32).view(U32),
        clamp(sx - sy, I32).view(U32),
        ((x + y) >> U32(16)) + U32(7),
        ~x + y,
    ]


def mul(a: Array, b: Array, c: Array) -> Rows:
    x, y, z = a.astype(I64), b.astype(I64), c.astype(I64)
    ux, uy, uz = (v.view(U32).astype(U64) for v in (a, b, c))
    sx, sy = a.astype(np.int16).astype(I64), b.astype(np.int16).astype(I64)
    hi = (x * y) >> 32
    uhi = (ux * uy) >> U64(32)
    x24, y24 = (x << 40) >> 40, (y << 40) >> 40
    u24x, u24y = ux & U64(0xFFFFFF), uy & U64(0xFFFFFF)
    low, mask = U64(0xFFFF), U64(0xFFFFFFFF)
    rows = [
        ux * uy,
        ux * uy + uz,
        hi,
        uhi,
        x24 * y24,
        u24x * u24y,
        sx * sy + z,
        (ux & low) * (uy & low) + uz,
        (ux >> U64(16)) * (uy >> U64(16)),
        sx * (y & 0xFFFF),
        ux * U64(1000003),
        ux * U64(0xFFFFFFF1) + uy,
        (x >> 16) * sy,
        hi + z,
        uhi + uz,
        clamp(hi + z, I32),
        x24 * y24 + z,
        (x24 * y24) >> 16,
        (u24x * u24y) >> U64(16),
        ((ux * ux) & mask) * ux + uy,
    ]
    return [wrap(row) for row in rows]


def mul_wide(a: Array, b: Array, c: Array) -> Rows:
    x, y = a.astype(I64), b.astype(I64)
    ux, uy = a.view(U32).astype(U64), b.view(U32).astype(U64)
    sx, sy = a.astype(np.int16).astype(I64), b.astype(np.int16).astype(I64)
    unsigned = (ux * uy).view(I64)
    return [
        x * y,
        unsigned,
        x * y + c,
        unsigned + c,
        sx * sy,
        x * 86400000,
        wrap(sx * sy + y).astype(I64),
        unsigned,
    ]


def div_s32(a: Array, b: Array) -> Rows:
    x = [int(v) for v in a]
    y = [3 if v == 0 or (v == -1 and u == -(2**31)) else int(v) for u, v in zip(a, b, strict=True)]
    s16 = [int(v) for v in a.astype(np.int16)]
    d16 = [(v & 0x7FFF) | 1 for v in y]
    both = [
        (trunc_div, x, y),
        (trunc_mod, x, y),
        (trunc_div, x, 7),
        (trunc_mod, x, 7),
        (trunc_div, x, 1000000007),
        (trunc_mod, x, -13),
        (trunc_div, x, 8),
        (trunc_mod, x, 64),
        (trunc_div, x, -2147483647),
        (trunc_div, s16, d16),
    ]
    return [
        np.array([f(u, v) for u, v in zip(p, q if isinstance(q, list) else [q] * len(p), strict=True)], I64).astype(I32)
        for f, p, q in both
    ]


def div_u32(x: Array, b: Array) -> Rows:
    y = np.where(b == 0, U32(10), b)
    return [
        x // y,
        x % y,
        x // U32(3),
        x // U32(7),
        x % U32(10),
        x // U32(641),
        x % U32(1000000007),
        x // U32(0xFFFFFFFE),
        (x & U32(0xFF)) // ((y & U32(0xF)) + U32(1)),
        x // U32(60) % U32(60),
    ]


def arith64(a: Array, b: Array) -> Rows:
    x, y = a.view(U64), b.view(U64)
    return [
        v.view(I64)
        for v in (
            x + y,
            x - y,
            U64(0) - x,
            x * y,
            x * y + (x ^ y),
            exact(lambda p, q: (p * q) >> 64, a, b, dtype=I64),
            exact(lambda p, q: (p * q) >> 64, x, y, dtype=I64),
            np.minimum(a, b),
            np.maximum(a, b),
            np.minimum(x, y),
            np.maximum(x, y),
            np.where(a < 0, U64(0) - x, x),
            x * U64(6364136223846793005) + U64(1442695040888963407),
            x + (y & U64(0xFFFFFFFF)),
            x - (y << U64(7)),
            (x & y) + (x | ~y),
        )
    ]


def div64(a: Array, b: Array) -> Rows:
    fix = [(int(u), 5 if v == 0 or (v == -1 and u == -(2**63)) else int(v)) for u, v in zip(a, b, strict=True)]
    x, y = np.array([u for u, _ in fix], I64), np.array([v for _, v in fix], I64)
    ux, uy = x.view(U64), y.view(U64)
    return [
        v.view(I64)
        for v in (
            exact(trunc_div, x, y, dtype=I64),
            exact(trunc_mod, x, y, dtype=I64),
            ux // uy,
            ux % uy,
            exact(lambda p: trunc_div(p, 1000), x, dtype=I64),
            ux % U64(1000000007),
            exact(lambda p: trunc_div(p, 4096), x, dtype=I64),
            ux // ((uy & U64(0xFFFFFFFF)) | U64(1)),
        )
    ]


def bits(*flags: Array) -> Array:
    """Flag k at bit k."""
    total = np.zeros(flags[0].shape, I32)
    for k, flag in enumerate(flags):
        total |= flag.astype(I32) << I32(k)
    return total


def compare64(x: Array, y: Array) -> Rows:
    ux, uy = x.view(U64), y.view(U64)
    return [
        bits(x < y, x <= y, x > y, x >= y, x == y, x != y),
        bits(ux < uy, ux <= uy, ux > uy, ux >= uy),
        bits(x > 0, x < 0, x == -1, x < 1000000000000, ux > U64(0xFFFFFFFF)),
        np.where((x < y) & (ux > uy), 11, np.where((x == y) | (ux < U64(17)), 22, 33)),
    ]


def _limbs(values: Array, order: tuple[int, ...] = (0, 1, 2, 3)) -> list[int]:
    return [sum(int(v[k]) << (32 * p) for p, k in enumerate(order)) for v in values]


def _words(values: list[int]) -> Array:
    return np.array([[(v >> (32 * k)) & 0xFFFFFFFF for k in range(4)] for v in values], U32)


def carries(a: Array, b: Array) -> Rows:
    x, y = _limbs(a), _limbs(b)
    x2, y2 = _limbs(a, (0, 1)), _limbs(b, (0, 1))
    flags = np.stack(
        [
            (a[:, 0].astype(U64) + b[:, 0]) >> U64(32),
            (a[:, 1].astype(U64) + b[:, 1]) >> U64(32),
            U64(0) - (a[:, 2] < b[:, 2]).astype(U64),
            U64(5) - (a[:, 3] < b[:, 3]).astype(U64),
        ],
        1,
    ).astype(U32)
    xs, ys = _limbs(a, (1, 0, 3, 2)), _limbs(b, (1, 0, 3, 2))
    return [
        _words([p + q for p, q in zip(x, y, strict=True)]),
        _words([(p - q) % 2**128 for p, q in zip(x, y, strict=True)]),
        _words([p * q for p, q in zip(x2, y2, strict=True)]),
        flags,
        _words([p + q for p, q in zip(xs, ys, strict=True)]),
    ]


def minmax(x: Array, y: Array, z: Array) -> Rows:
    ux, uy, uz = x.view(U32), y.view(U32), z.view(U32)
    wx, wy, wz = x.astype(I64), y.astype(I64), uz.astype(I64)
    vx, vy = ux.astype(I64), uy.astype(I64)
    rows = [
        np.minimum(x, y),
        np.maximum(x, y),
        np.minimum(ux, uy),
        np.maximum(ux, uy),
        np.maximum(np.minimum(x, y), z),
        np.where(x == -(2**31), x, np.abs(wx)),
        abs(wx - wy) + wz,
        abs(vx - vy) + wz,
        (wx + wy) >> 1,
        (wx + wy + 1) >> 1,
        (vx + vy) >> 1,
        (vx + vy + 1) >> 1,
        np.clip(x, -100, 100),
        np.clip(x, 0, 255),
        bits(x < y, x > z, ux < uy, ux >= uz, x == z, y != z),
        np.where(x < y, z, np.where(x > z, y, x)),
        -(x < y).astype(I32),
        np.where(((x < y) & (y < z)) | ((x > z) & (ux < uy)), 1, 2),
        np.where((x < y) ^ (ux < uz), x, y),
    ]
    return [wrap(np.asarray(row)) for row in rows]


def narrow(a: Array, b: Array) -> Rows:
    x8, y8, x16, y16 = (
        v.astype(I32) for v in (wrap(a, np.int8), wrap(b, np.int8), wrap(a, np.int16), wrap(b, np.int16))
    )
    ua, ub = a.view(U32).astype(I64), b.view(U32).astype(I64)

    def cut(x: Array, dtype: Any) -> Array:
        return wrap(x, dtype).astype(I32)

    return [
        cut(x8 + y8, np.int8),
        cut(x8 - y8, np.uint8),
        cut(x8 * y8, np.int8),
        cut(x16 + y16, np.int16),
        cut(x16 * y16, np.uint16),
        cut(a >> 8, np.int8) + cut(b >> 24, np.int8),
        ((ua >> 16) & 255) * ((ub >> 8) & 255),
        (a >> 16) - (b >> 16),
        np.where(x8 < y8, x16, y16),
        np.where((x16 & 0xFFFF) > (y16 & 0xFFFF), x8 & 255, y8 & 255),
        (x16 * y16) >> 16,
        cut(x16 * y16 + x16, np.int16),
        np.clip(a, -128, 127),
        np.clip(a, 0, 255),
        np.clip(ua, 0, 32767),
        np.clip(a, 0, 65535),
        np.clip(a, 0, None),
        np.clip(ua, 0, 2**31 - 1),
    ]


def _pairs32(rng: np.random.Generator) -> list[Array]:
    return list(int_pairs(rng, I32))


def _triples32(rng: np.random.Generator) -> list[Array]:
    a, b = int_pairs(rng, I32)
    return [a, b, rng.permutation(integers(rng, I32, len(a)))]


def _pairs_and_addend(rng: np.random.Generator) -> list[Array]:
    a, b = int_pairs(rng, I32)
    return [a, b, rng.permutation(integers(rng, I64, len(a)))]


def _pairs64(rng: np.random.Generator) -> list[Array]:
    return list(int_pairs(rng, I64))


def _quads(rng: np.random.Generator) -> list[Array]:
    return [
        rng.permutation(integers(rng, U32, 1024)).reshape(-1, 4),
        rng.permutation(integers(rng, U32, 1024)).reshape(-1, 4),
    ]


CASES = [
    elementwise("int_arith.cu", "int_add_sub", _pairs32, add_sub, U32),
    elementwise("int_arith.cu", "int_mul", _triples32, mul, I32),
    elementwise("int_arith.cu", "int_mul_wide", _pairs_and_addend, mul_wide, I64),
    elementwise("int_arith.cu", "int_div_s32", _pairs32, div_s32, I32),
    elementwise("int_arith.cu", "int_div_u32", lambda rng: list(int_pairs(rng, U32)), div_u32, U32),
    elementwise("int_arith.cu", "int64_arith", _pairs64, arith64, I64),
    elementwise("int_arith.cu", "int64_div", _pairs64, div64, I64),
    elementwise("int_arith.cu", "int64_compare", _pairs64, compare64, I32),
    elementwise("int_arith.cu", "carry_chain", _quads, carries, U32),
    elementwise("int_arith.cu", "int_minmax", _triples32, minmax, I32),
    elementwise("int_arith.cu", "int_narrow", _pairs32, narrow, I32),
]
