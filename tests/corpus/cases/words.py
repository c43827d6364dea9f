"""References of words.cu: PTX ISA neg, abs and cvt (.sat limits), C's unsigned arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, int_edges, integers
from tests.corpus.cases.int_arith import I32, I64, U32, U64, clamp, wrap
from tests.corpus.exact import integer_to_f32
from tests.corpus.runner import Array

I8, U8, I16, U16 = np.int8, np.uint8, np.int16, np.uint16
U = np.uint64


def narrow_signs(a: Array) -> Rows:
    rows: list[Array] = []
    for sign in (lambda v: -v, abs):
        for dtype in (I16, I32):
            x = sign(wrap(a, dtype))  # of the lowest number: itself
            wide = x.astype(I64)
            if dtype is I16:
                rows += [wide, wide & 0xFFFFFFFF, wide, *(clamp(wide, t).astype(I64) for t in (U16, U8, I8, U32))]
                rows += [wide, wide]
            else:
                rows += [wide, *(clamp(wide, t).astype(I64) for t in (U32, U16, I16, U8, I8))]
                rows += [integer_to_f32(x, "rz").astype(I64), wide]
    h, b, upper = wrap(a, I16), wrap(a >> 8, I8), wrap(a >> 16, I16)
    square = wrap(wrap(a, U32) * wrap(a, U32), I8)
    rows += [-h, -h, (-h).view(U16), -b, abs(b), -h.astype(I32), abs(h), -upper < h, square.astype(U16)]
    return [row.astype(I64) for row in rows]


def wide_sums(x: Array, y: Array, z: Array) -> Rows:
    low = U(0xFFFFFFFF)
    extended = wrap(y, I32).astype(I64).view(U64) + wrap(z, I16).astype(I64).view(U64)
    return [
        x + y + z, x + y - z, x - y - z, -x - y - z, -x + y - z, x + (y & low) + (z & low),
        (x & low) + (y & low) + (z & low), x + y + ((z & low) << U(32)), x - y + (z & low), x + extended,
        U(12345678901) - x - z, U(5) - x - y, x - (y << U(3)) - z, x - (y << U(3)), x + y * U(8) - U(5),
        (x + y + z) >> U(63), ((x & low) - (y & low)) >> U(32), abs(x.view(I64)).view(U64) + y - z,
        np.where(x + y - z < y, x, z),
    ]  # fmt: skip


def wide_tests(x: Array, y: Array, z: Array) -> Rows:
    zero = U(0)
    return [
        (x & y) != zero, (x | y) == zero, (~x & y) != zero, (x ^ y) != z, (x & y & z) != zero, (x | y | z) == zero,
        ((x & y) | z) == zero, (x & U(0x123456789ABC)) != zero, (x << U(5)) != zero, (x >> U(5)) == zero,
        (x & y).view(I64) > 0, x + y + z == zero, (x - y).view(I64) < z.view(I64),
    ]  # fmt: skip


def _sixteen_bits(rng: np.random.Generator) -> list[Array]:
    """Every lower half, the rest random; then the edges of words."""
    halves = np.arange(1 << 16, dtype=I64)[::8] + rng.integers(0, 8, 1 << 13)
    edges = np.concatenate([int_edges(I32).astype(I64), np.array([0x8000, 0x80008000, 0x7FFF, 0x8080], I64)])
    return [np.concatenate([halves | integers(rng, I64, len(halves)) << 16, edges])]


def _words(rng: np.random.Generator) -> list[Array]:
    """Pairs of words of which many are 0, all ones or equal."""
    some = np.array([0, 0, 0, 1, 5, 31, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFB, 0xFFFFFFFF, 0xFFFFFFFF], U64)

    def draw() -> Any:
        return np.where(rng.random(2048) < 0.6, rng.choice(some, 2048), rng.integers(0, 1 << 32, 2048, U64))

    return [draw() << U(32) | draw() for _ in range(3)]


CASES = [
    elementwise("words.cu", "narrow_signs", _sixteen_bits, narrow_signs, I64),
    elementwise("words.cu", "wide_sums", _words, wide_sums, U64),
    elementwise("words.cu", "wide_tests", _words, wide_tests, U32),
]
