"""References of video.cu: lanes of a word as separate integers, then PTX video instructions by thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, int_pairs, integers
from tests.corpus.cases.control import per_thread, s32, u32
from tests.corpus.runner import Array

U32, I64 = np.uint32, np.int64


def lanes(x: Array, bits: int, signed: bool) -> Array:
    """The byte or half lanes of each word, widened: shape (n, 32 / bits)."""
    return x.view(np.dtype(f"{'i' if signed else 'u'}{bits // 8}")).reshape(len(x), -1).astype(I64)


def pack(values: Array, bits: int) -> Array:
    return np.ascontiguousarray(values.astype(np.dtype(f"u{bits // 8}"))).view(U32).ravel()


def average(x: Array) -> Array:
    """Rounded signed average of a sum: halves go away from zero only for non-negative sums."""
    return (x + (x >= 0)) >> 1


def simd(x: Array, y: Array, z: Array, bits: int) -> Rows:
    top, half = (1 << bits) - 1, 1 << (bits - 1)
    keep = U32(0xFF00FF00 if bits == 8 else 0xFFFF0000)
    a, b, c = lanes(x, bits, False), lanes(y, bits, False), lanes((z & ~keep) | (x & keep), bits, False)
    s, t = lanes(x, bits, True), lanes(y, bits, True)
    if bits == 8:
        extremes = [np.maximum(a, b), np.minimum(s, t)]
        compared: list[Any] = [(a > b) * top, (s <= t) * top, (a < b) * 1]
        last = [-s, np.minimum(np.abs(s), half - 1)]
    else:
        extremes = [np.maximum(s, t), np.minimum(a, b)]
        compared = [(s > t) * top, (a <= b) * top, (s >= t) * 1]
        last = [np.minimum(-s, half - 1), np.minimum(np.abs(s), half - 1)]
    rows = [
        a + b,
        a - b,
        np.clip(s + t, -half, half - 1),
        np.minimum(a + b, top),
        np.clip(s - t, -half, half - 1),
        np.maximum(a - b, 0),
        (a + b + 1) >> 1,
        (a + b) >> 1,
        average(s + t),
        np.abs(a - b),
        np.abs(s - t),
        *extremes,
        (a == c) * top,
        *compared,
    ]
    sums = [np.abs(a - b).sum(1).astype(U32), np.abs(s - t).sum(1).astype(U32)]
    return [*(pack(row, bits) for row in rows), *sums, *(pack(row, bits) for row in [np.abs(s), *last])]


def part(x: int, select: str, signed: bool) -> int:
    """A byte (b0..b3), half (h0, h1) or whole word, extended."""
    bits = {"b": 8, "h": 16}.get(select[:1], 32)
    value = x >> bits * int(select[1:] or 0) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def scalar(x: int, y: int, z: int, i: int) -> tuple[int, ...]:
    def both(p: str, q: str, kind: str) -> tuple[int, int]:
        return part(x, p, kind[0] == "s"), part(y, q, kind[1] == "s")

    c = s32(z)
    a9, b9 = both("h1", "h0", "ss")
    a10, b10 = both("b3", "b2", "uu")
    a21, b21 = both("h1", "h0", "ss")
    a22, b22 = both("h0", "h0", "ss")
    a18, b18 = both("h0", "h1", "ss")
    limit = 2**31 - 1
    return (
        sum(both("b1", "b3", "ss")),
        sum(both("h0", "h1", "uu")),
        max(min(part(x, "", True) + part(y, "h0", False), limit), -limit - 1),
        sum(both("b0", "b2", "uu")) + z,
        min(sum(both("b2", "h1", "us")), c),
        part(x, "h1", True) - part(y, "b0", True),
        part(x, "b3", False) - part(y, "b1", False),
        max(part(x, "h0", True) - part(y, "h1", True), c),
        abs(part(x, "b0", False) - part(y, "b0", False)),
        abs(a9 - b9) + z,
        abs(a10 - b10) + z,
        min(both("b1", "b2", "ss")),
        max(both("h0", "h0", "uu")),
        max(*both("h1", "b1", "ss"), c),
        min(both("", "b3", "uu")) + z,
        int(part(x, "b0", True) < part(y, "b1", True)),
        int(x >= part(y, "h1", False)),
        int(part(x, "b2", False) != part(y, "b2", False)) + z,
        a18 * b18 + z,
        part(x, "b1", False) * part(y, "h0", False) + z,
        part(x, "b3", False) * part(y, "b0", True) + z,
        (a21 * b21 + c) >> 7,
        max(min(a22 * b22 + c, limit), -limit - 1),
        x << (y & 31),
        u32(x) >> min(part(y, "b1", False), 32),
        part(x, "h1", True) >> (y & 31),
        (z & ~0xFF00) | (part(x, "b0", False) + part(y, "b2", False) & 255) << 8,
        (z & ~0xFFFF) | (part(x, "h0", True) - part(y, "h0", True) & 0xFFFF),
        (z & ~0xFFFF) | max(part(x, "b0", False), part(y, "b3", False)),
        (z & ~(255 << 24)) | (min(both("b0", "b3", "ss")) & 255) << 24,
        (z & ~(255 << 16)) | abs(part(x, "b0", False) - part(y, "b3", False)) << 16,
    )


def _triples(rng: np.random.Generator) -> list[Array]:
    a, b = int_pairs(rng, U32)
    bytes_ = np.array([0, 1, 127, 128, 129, 255], np.uint8)
    edges = rng.choice(bytes_, (2, 400, 4)).view(U32).reshape(2, 400)
    a, b = np.concatenate([a, edges[0]]), np.concatenate([b, edges[1]])
    return [a, b, rng.permutation(integers(rng, U32, len(a)))]


CASES = [
    elementwise("video.cu", "video_bytes", _triples, lambda x, y, z: simd(x, y, z, 8), U32),
    elementwise("video.cu", "video_halves", _triples, lambda x, y, z: simd(x, y, z, 16), U32),
    elementwise("video.cu", "video_scalar", _triples, lambda x, y, z: per_thread(scalar, x, y, z), U32),
]
