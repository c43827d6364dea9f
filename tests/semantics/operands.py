"""Operands for the test bench: edges, any bits, and what makes an instruction's cases likely, nine words a lane."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

INTEGERS = np.array([0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
                     0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFF0000, 0xFFFF8000, 0xFFFFFF80, 0xFFFFFFFE, 0xFFFFFFFF],
                    np.uint32)
SINGLES = np.array([0, 1, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000, 0x33800000, 0x34000000, 0x3EFFFFFF,
                    0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40000000, 0x42FE0000, 0x4AFFFFFF,
                    0x4B000000, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000, 0x5F000000, 0x7F000000, 0x7F7FFFFF,
                    0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF], np.uint32)
SINGLES = np.concatenate([SINGLES, SINGLES | 0x80000000])
HALVES = np.array([0, 1, 0x3FF, 0x400, 0x401, 0x800, 0x37FF, 0x3800, 0x3BFF, 0x3C00, 0x3C01, 0x3E00, 0x4000, 0x63FF,
                   0x6400, 0x7800, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF], np.uint32)
HALVES = np.concatenate([HALVES, HALVES | 0x8000])


def _mixed(draw: np.random.Generator, edges: Array, random_: Array) -> Array:
    """Edges in a third of the places."""
    picked = draw.choice(edges, random_.shape)
    return np.where(draw.random(random_.shape) < 0.35, picked, random_).astype(np.uint32)


def integers(draw: np.random.Generator, lanes: int) -> Array:
    """Edges, any bits, and numbers of every magnitude."""
    words = draw.integers(0, 1 << 32, (9, lanes), np.uint64)
    small = words >> draw.integers(0, 32, words.shape).astype(np.uint64)
    out = _mixed(draw, INTEGERS, np.where(draw.random(words.shape) < 0.5, words, small))
    same = draw.random(lanes) < 0.1  # equal operands, for comparisons
    out[2] = np.where(same, out[0], out[2])
    out[8] = words[8]
    return out


def shifts(draw: np.random.Generator, lanes: int) -> Array:
    """As integers; b mostly a shift amount or a packed field of position and length."""
    out = integers(draw, lanes)
    amount = draw.integers(0, 70, lanes) | draw.integers(0, 40, lanes) << 8 * draw.integers(0, 2, lanes)
    out[2] = np.where(draw.random(lanes) < 0.8, amount, out[2])
    return out


def singles(draw: np.random.Generator, lanes: int) -> Array:
    """Edges, any bits, and numbers near each other, whose sums cancel."""
    out = _mixed(draw, SINGLES, draw.integers(0, 1 << 32, (9, lanes), np.uint64))
    near = (draw.integers(110, 145, (9, lanes)) << 23 | draw.integers(0, 1 << 23, (9, lanes))
            | draw.integers(0, 2, (9, lanes)) << 31)
    limit = (draw.integers(60, 70, (9, lanes)) << 23 | draw.integers(0, 1 << 23, (9, lanes))
             | draw.integers(0, 2, (9, lanes)) << 31)  # products around the smallest normal number
    kind = draw.random(lanes)
    out = np.where(kind < 0.35, near, np.where(kind < 0.5, limit, out)).astype(np.uint32)
    out[8] = draw.integers(0, 1 << 32, lanes, np.uint64)
    return out


def doubles(draw: np.random.Generator, lanes: int) -> Array:
    """As singles, in pairs."""
    high, low = draw.integers(0, 1 << 32, (2, 4, lanes), np.uint64)
    near = (draw.integers(1000, 1050, (4, lanes)) << 20 | draw.integers(0, 1 << 20, (4, lanes))
            | draw.integers(0, 2, (4, lanes)) << 31).astype(np.uint64)
    sign = draw.integers(0, 2, (4, lanes)).astype(np.uint64) << np.uint64(31)
    edges = np.array([0, 0x00100000, 0x000FFFFF, 0x3FF00000, 0x3FE00000, 0x40000000, 0x7FEFFFFF, 0x7FF00000, 0x7FF80000,
                      0x3CA00000, 0x43300000, 0x41DFFFFF, 0x41E00000, 0x43E00000, 0x47EFFFFF, 0x380FFFFF], np.uint64)
    kind = draw.random(lanes)
    picked = draw.random((4, lanes)) < 0.4
    high = np.where(kind < 0.6, near, np.where(picked, draw.choice(edges, (4, lanes)) | sign, high))
    tail = draw.choice(np.array([0, 0, 1, 0xFFFFFFFF, 0x80000000, 0xE0000000, 0xFFFFFFFE], np.uint64), (4, lanes))
    low = np.where(draw.random((4, lanes)) < 0.4, tail, low)
    out = np.stack([low, high], 1).reshape(8, lanes)
    return np.concatenate([out, draw.integers(0, 1 << 32, (1, lanes), np.uint64)]).astype(np.uint32)


def halves(draw: np.random.Generator, lanes: int) -> Array:
    """Two halves a word; every fifth lane single-precision numbers of the range of halves."""
    parts = _mixed(draw, HALVES, draw.integers(0, 1 << 16, (2, 9, lanes), np.uint64))
    near = (draw.integers(10, 20, (2, 9, lanes)) << 10 | draw.integers(0, 1 << 10, (2, 9, lanes))
            | draw.integers(0, 2, (2, 9, lanes)) << 15)
    parts = np.where(draw.random((2, 9, lanes)) < 0.4, near, parts).astype(np.uint32)
    wide = draw.standard_normal((9, lanes)).astype(np.float32).view(np.uint32)
    out = np.where(draw.random(lanes) < 0.2, wide, parts[0] | parts[1] << 16)
    out[8] = draw.integers(0, 1 << 32, lanes, np.uint64)
    return out
