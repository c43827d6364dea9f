"""References of int_bits.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, int_pairs, integers
from tests.corpus.cases.int_arith import I32, I64, U32, exact, wrap
from tests.corpus.runner import Array

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def funnel(lo: int, hi: int, shift: int, left: bool) -> int:
    both = (hi & M32) << 32 | lo & M32
    return (both << shift) >> 32 if left else both >> shift


def shift(a: Array, b: Array) -> Rows:
    def row(function):
        return exact(function, a, b)

    return [
        row(lambda x, y: x << (y & 31)),
        row(lambda x, y: (x & M32) >> (y & 31)),
        row(lambda x, y: x >> (y & 31)),
        row(lambda x, y: x << min(y & M32, 32)),
        row(lambda x, y: (x & M32) >> min(y & M32, 32)),
        row(lambda x, y: x >> min(y & M32, 31)),
        row(lambda x, y: x << 13 | (x & M32) >> 19),
        row(lambda x, y: funnel(x, y, y & 31, True)),
        row(lambda x, y: funnel(x, y, x & 31, False)),
        row(lambda x, y: funnel(x, y, min(y & 63, 32), True)),
        row(lambda x, y: funnel(x, y, min(x & 63, 32), False)),
        row(lambda x, y: funnel(x, y, 7, True)),
        row(lambda x, y: funnel(x, y, 25, False)),
        row(lambda x, y: (x >> 7) + ((x & M32) >> 9)),
        row(lambda x, y: (1 << (y & 31)) - 1),
        row(lambda x, y: x >> 31),
    ]


def shift64(a: Array, b: Array) -> Rows:
    def row(function):
        return exact(function, a, b, dtype=I64)

    return [
        row(lambda x, y: x << (y & 63)),
        row(lambda x, y: (x & M64) >> (y & 63)),
        row(lambda x, y: x >> (y & 63)),
        row(lambda x, y: x << min(y & M32, 64)),
        row(lambda x, y: (x & M64) >> min(y & M32, 64)),
        row(lambda x, y: x >> min(y & M32, 63)),
        row(lambda x, y: x << 5),
        row(lambda x, y: (x & M64) >> 44),
        row(lambda x, y: x >> 17),
        row(lambda x, y: x >> 40),
        row(lambda x, y: x << 37),
        row(lambda x, y: x << 23 | (x & M64) >> 41),
        row(lambda x, y: (~x & (x & M64) >> 3) ^ (x << 1)),
        row(lambda x, y: (x & M32) << 32 | x >> 32 & M32),
    ]


def bfe(x: int, position: int, length: int, bits: int, signed: bool) -> int:
    """PTX `bfe`: position and length are taken from their low 8 bits; a field past the end repeats its top bit."""
    x &= (1 << bits) - 1
    if length == 0:
        return 0
    sign = x >> min(position + length - 1, bits - 1) & 1 if signed else 0
    field = x >> position & ((1 << length) - 1)
    for k in range(length, bits):
        field |= sign << k
    for k in range(max(0, bits - position), min(length, bits)):
        field |= sign << k
    return field


def bfi(x: int, y: int, position: int, length: int, bits: int = 32) -> int:
    mask = ((1 << length) - 1) << position & ((1 << bits) - 1)
    return (y & ~mask) | (x << position & mask)


def field(a: Array, b: Array, c: Array) -> Rows:
    position, length = c & 63, c >> 6 & 63
    wide = (a.astype(I64) << 32) | (b.astype(I64) & M32)

    def fold(x: Array) -> Array:
        return wrap(x) ^ wrap(x >> 32)

    s64 = exact(lambda x, p, q: bfe(x, p, q, 64, True), wide, position, length, dtype=I64)
    u64 = exact(lambda x: bfe(x, 13, 37, 64, False), wide, dtype=I64)
    i64 = exact(lambda x: bfi(x, x * 3 & M64, 9, 40, 64), wide, dtype=I64)
    return [
        exact(lambda x, p, q: bfe(x, p, q, 32, False), a, position, length),
        exact(lambda x, p, q: bfe(x, p, q, 32, True), a, position, length),
        exact(lambda x, y, p, q: bfi(x, y, p, q), a, b, position, length),
        exact(lambda x: bfe(x, 5, 11, 32, False), a),
        exact(lambda x: bfe(x, 20, 9, 32, True), a),
        exact(lambda x: bfe(x, 25, 12, 32, True), a),
        exact(lambda x, y: bfi(x, y, 8, 16), a, b),
        (a >> 3) & 0x7F,
        (a & ~0xFF0) | (b << 4 & 0xFF0),
        exact(lambda x, p: bfi(x, 0x12345678, p, 7), a, position),
        wrap(s64),
        wrap(s64 >> 32),
        fold(u64),
        fold(i64),
    ]


def leading_zeros(x: int, bits: int = 32) -> int:
    return bits - (x & ((1 << bits) - 1)).bit_length()


def find_first(x: int) -> int:
    return (x & -x).bit_length()


def reverse(x: int, bits: int = 32) -> int:
    return int(format(x & ((1 << bits) - 1), f"0{bits}b")[::-1], 2)


def high_bit(x: int, signed: bool, bits: int = 32) -> int:
    """PTX `bfind`: the highest bit that differs from the sign (signed) or is set; -1 if there is none."""
    x = ~x if signed and x < 0 else x
    return (x & ((1 << bits) - 1)).bit_length() - 1


def shift_amount(position: int) -> int:
    return position if position < 0 else 31 - position


def count(a: Array, b: Array) -> Rows:
    reversed64 = exact(lambda x: reverse(x, 64), b, dtype=I64)
    return [
        exact(lambda x: (x & M32).bit_count(), a),
        exact(leading_zeros, a),
        exact(reverse, a),
        exact(find_first, a),
        exact(lambda x: (x & M64).bit_count(), b),
        exact(lambda x: leading_zeros(x, 64), b),
        exact(find_first, b),
        wrap(reversed64),
        wrap(reversed64 >> 32),
        exact(lambda x: high_bit(x, False), a),
        exact(lambda x: high_bit(x, True), a),
        exact(lambda x: shift_amount(high_bit(x, False)), a),
        exact(lambda x: shift_amount(high_bit(x, True)), a),
        exact(lambda x: high_bit(x, False, 64), b),
        exact(lambda x: (~x & 0x0FF0FF0F).bit_count(), a),
        exact(lambda x: (x & -x & M32).bit_count(), a),
        exact(lambda x: leading_zeros(~x) if (x & M32).bit_count() & 1 else find_first(~x), a),
    ]


def permute(x: int, y: int, selector: int) -> int:
    """PTX `prmt`, default mode: bit 3 of a selector nibble replicates the byte's sign."""
    both = (y & M32) << 32 | x & M32
    result = 0
    for k in range(4):
        nibble = selector >> (4 * k) & 15
        byte = both >> (8 * (nibble & 7)) & 255
        result |= (255 * (byte >> 7) if nibble & 8 else byte) << (8 * k)
    return result


def _by_mode(selectors: list[list[int]]):
    """A permute mode as four selector digits for each value of the two low selector bits."""

    def apply(x: int, y: int, s: int) -> int:
        return permute(x, y, sum(digit << (4 * k) for k, digit in enumerate(selectors[s & 3])))

    return apply


# PTX ISA, table of `prmt` modes: source bytes for result bytes 0, 1, 2, 3.
F4E = _by_mode([[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]])
B4E = _by_mode([[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]])
RC8 = _by_mode([[0] * 4, [1] * 4, [2] * 4, [3] * 4])
ECL = _by_mode([[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]])
ECR = _by_mode([[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]])
RC16 = _by_mode([[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]])


def permutes(a: Array, b: Array, c: Array) -> Rows:
    return [
        exact(lambda x, y, s: permute(x, y, s & 0x7777), a, b, c),
        *(exact(mode, a, b, c) for mode in (permute, F4E, B4E, RC8, ECL, ECR, RC16)),
        exact(lambda x: permute(x, 0, 0x0123), a),
        exact(lambda x, y: permute(x, y, 0x6420), a, b),
        a.view(U32).byteswap(),
        exact(lambda x, y: permute(x, y, 0xBA98), a, b),
        exact(lambda x, y: (x & 0xFFFF) << 16 | (y >> 16 & 0xFFFF), a, b),
    ]


def table(lut: int, x: Array, y: Array, z: Array) -> Array:
    """Bit (a << 2 | b << 1 | c) of the table, bit by bit (PTX ISA, `lop3`)."""
    result = np.zeros_like(x)
    for k in range(8):
        if lut >> k & 1:
            result |= (x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z)
    return result


def tables(a: Array, b: Array, c: Array) -> Rows:
    x, y, z = (v.view(U32) for v in (a, b, c))
    return [
        table(k, x, y, z) * U32(3)
        + table(k + 1, y, z, x) * U32(5)
        + table(k + 2, z, x, y) * U32(7)
        + table(k + 3, x, z, y) * U32(11)
        for k in range(0, 256, 4)
    ]


def logic(x: Array, y: Array, z: Array) -> Rows:
    def hexed(value: int) -> Any:
        return np.array(value, U32).view(I32)[()]

    return [
        x & y,
        x | y,
        x ^ y,
        ~x,
        x & ~y,
        x | ~y,
        ~(x & y),
        ~(x | y),
        x ^ y ^ z,
        (x & y) | (~x & z),
        (x & y) | (y & z) | (x & z),
        x & hexed(0x12345678),
        x | hexed(0x80000001),
        x ^ hexed(0xDEADBEEF),
        np.where(x & y == 0, 1, 2).astype(I32),
        np.where(x & 0x10 != 0, y, z),
        ((x == 0) + 2 * (y != 0) + 4 * ((x != 0) & (y != 0)) + 8 * ((x != 0) | (z != 0))).astype(I32),
        (x == 0).astype(I32),
        (x & (x - I32(1))) | (y & -y),
        np.where(((x >= 0) & (y & 1 != 0)) ^ (z < 0), x, ~z),
    ]


def _pairs(rng: np.random.Generator) -> list[Array]:
    return list(int_pairs(rng, I32))


def _triples(rng: np.random.Generator) -> list[Array]:
    a, b = int_pairs(rng, I32)
    return [a, b, rng.permutation(integers(rng, I32, len(a)))]


def _wide_and_amount(rng: np.random.Generator) -> list[Array]:
    amounts = np.concatenate([rng.integers(0, 80, 500), integers(rng, I32, 200)]).astype(I32)
    return [rng.permutation(integers(rng, I64, len(amounts))), amounts]


def _mixed(rng: np.random.Generator) -> list[Array]:
    return [integers(rng, I32, 700), integers(rng, I64, 700)]


CASES = [
    elementwise("int_bits.cu", "bits_shift", _pairs, shift, I32),
    elementwise("int_bits.cu", "bits_shift64", _wide_and_amount, shift64, I64),
    elementwise("int_bits.cu", "bits_field", _triples, field, I32),
    elementwise("int_bits.cu", "bits_count", _mixed, count, I32),
    elementwise("int_bits.cu", "bits_permute", _triples, permutes, I32),
    elementwise("int_bits.cu", "bits_lop3", _triples, tables, U32),
    elementwise("int_bits.cu", "bits_logic", _triples, logic, I32),
]
