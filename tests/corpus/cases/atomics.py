"""References of atomics.cu: results that no order of threads can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.corpus.cases._values import integers, prefilled
from tests.corpus.runner import Array, Case, Launch, Problem

I32, U32, I64, U64 = np.int32, np.uint32, np.int64, np.uint64


def by_key(function: Callable[[Array], Any], values: Array, keys: Array, count: int, dtype: Any) -> Array:
    """`function` over the values of each key; every key below `count` must occur."""
    return np.array([function(values[keys == k]) for k in range(count)]).astype(dtype)


def repeated(step: Callable[[int], int], start: int, times: Array, bits: int) -> Array:
    """`step` applied times[k] times, wrapped to an unsigned type."""
    results = []
    for count in times:
        value = start
        for _ in range(int(count)):
            value = step(value) & ((1 << bits) - 1)
        results.append(value)
    return np.array(results, U64).astype(f"u{bits // 8}")


def cycle_up(limit: int) -> Callable[[int], int]:
    return lambda old: 0 if old >= limit else old + 1


def cycle_down(limit: int) -> Callable[[int], int]:
    return lambda old: limit if old == 0 or old > limit else old - 1


def _launch(kernel: str, args: list[str], n: int, block: int = 128) -> list[Launch]:
    return [Launch(kernel, ((n + block - 1) // block, 1, 1), (block, 1, 1), [*args, I32(n)])]


def reductions32(x: Array, k: Array) -> list[Array]:
    """Rows add, sub, min, max, unsigned min, unsigned max, and, or, xor over 16 keys."""
    u = x.view(U32)
    return [
        by_key(lambda v: v.sum(dtype=I32), x, k, 16, I32),
        by_key(lambda v: -v.sum(dtype=I32), x, k, 16, I32),
        by_key(np.min, x, k, 16, I32),
        by_key(np.max, x, k, 16, I32),
        by_key(np.min, u, k, 16, U32).view(I32),
        by_key(np.max, u, k, 16, U32).view(I32),
        by_key(np.bitwise_and.reduce, x | I32(0x0F0F0F0F), k, 16, I32),
        by_key(np.bitwise_or.reduce, x & I32(0x11111111), k, 16, I32),
        by_key(np.bitwise_xor.reduce, x, k, 16, I32),
    ]


# First contents that leave every reduction to the inputs.
START32 = [0, 0, 2**31 - 1, -(2**31), -1, 0, -1, 0, 0]


def _global32(rng: np.random.Generator) -> Problem:
    n = 700
    a, key = rng.permutation(integers(rng, I32, n)), integers(rng, U32, n)
    k = key & 15
    counts = np.bincount(k, minlength=16)
    first = integers(rng, I32, 2 * n)
    start = np.concatenate([np.repeat([*START32, 0, 0, -1, 0, 1, 0], 16), first]).astype(I32)

    def expected() -> dict[str, Array]:
        rows = [
            *reductions32(a, k),
            repeated(cycle_up(37), 0, counts, 32),
            repeated(cycle_down(41), 0, counts, 32),
            np.full(16, 1234),
            np.ones(16),
            repeated(lambda v: v * 3 + 1, 1, counts, 32).view(I32),
            np.zeros(16),
            first[n:],
            a,
        ]
        return {"slots": np.concatenate(rows).astype(I64).astype(I32)}

    return Problem({"a": a, "key": key, "slots": start}, _launch("atomic_global32", ["a", "key", "slots"], n), expected)


def _global64(rng: np.random.Generator) -> Problem:
    n = 600
    a, key = rng.permutation(integers(rng, I64, n)), integers(rng, U32, n)
    k, u = key & 15, a.view(U64)
    first = integers(rng, U64, 2 * n)
    initial = [0, 2**63 - 1, 2**63, 2**64 - 1, 0, 2**64 - 1, 0, 0, 7]
    start = np.concatenate([np.repeat(np.array(initial, U64), 16), first])

    def expected() -> dict[str, Array]:
        rows = [
            by_key(lambda v: v.sum(dtype=U64), u, k, 16, U64),
            by_key(np.min, a, k, 16, I64).view(U64),
            by_key(np.max, a, k, 16, I64).view(U64),
            by_key(np.min, u, k, 16, U64),
            by_key(np.max, u, k, 16, U64),
            by_key(np.bitwise_and.reduce, u | U64(0x00FF00FF00FF00FF), k, 16, U64),
            by_key(np.bitwise_or.reduce, u & U64(0x1111000011110000), k, 16, U64),
            by_key(np.bitwise_xor.reduce, u, k, 16, U64),
            repeated(lambda v: v * 5 + 3, 7, np.bincount(k, minlength=16), 64),
            first[n:],
            u,
        ]
        return {"slots": np.concatenate(rows)}

    return Problem({"a": a, "key": key, "slots": start}, _launch("atomic_global64", ["a", "key", "slots"], n), expected)


def _ticket(rng: np.random.Generator) -> Problem:
    n = 730
    key = rng.integers(0, 6, n).astype(U32)
    pairs = {(int(k), i % 32) for i, k in enumerate(key)}
    marks = np.zeros(n + 152, U32)
    marks[:n] = 1
    marks[n : n + 100] = np.bincount(np.arange(n) % 100, minlength=100)
    marks[n + 100 : n + 150] = np.bincount(-np.arange(n) % 50, minlength=50)
    marks[n + 150] = len(pairs)
    counters = np.zeros(12, U32)
    counters[:3] = [n, n % 100, -n % 50]
    for k, bit in pairs:
        counters[3 + k] |= U32(1 << bit)
    counters[11] = n - 1
    buffers = {"key": key, "counters": np.zeros(12, U32), "marks": np.zeros(n + 152, U32)}
    launches = _launch("atomic_ticket", ["key", "counters", "marks"], n)
    return Problem(buffers, launches, lambda: {"counters": counters, "marks": marks})


def _float(rng: np.random.Generator) -> Problem:
    n = 500
    a, key = rng.integers(-1000, 1000, n).astype(np.float32), rng.integers(0, 64, n).astype(U32)
    slots = np.concatenate([by_key(np.sum, a, key & 7, 8, np.float32), by_key(np.sum, a, key >> 3 & 7, 8, np.float32)])
    wide = by_key(np.sum, a.astype(np.float64), key & 3, 4, np.float64)
    buffers: dict[str, Array] = {"a": a, "key": key, "slots": np.zeros(16, np.float32), "wide": np.zeros(4)}
    launches = _launch("atomic_float", ["a", "key", "slots", "wide"], n)
    return Problem(buffers, launches, lambda: {"slots": slots + np.float32(0), "wide": wide + 0.0})


def _shared32(rng: np.random.Generator) -> Problem:
    n, block = 1000, 500
    a = rng.permutation(integers(rng, I32, n))
    key = np.concatenate([rng.permutation(np.arange(block)), rng.permutation(np.arange(block))]).astype(U32)

    def expected() -> dict[str, Array]:
        rows = []
        for start in (0, block):
            x, k = a[start : start + block], key[start : start + block] & 15
            counts = np.bincount(k, minlength=16)
            rows += reductions32(x, k)
            rows += [
                repeated(step, 0, counts, 32).view(I32) for step in (cycle_up(17), cycle_down(21), lambda v: v * 7 + 1)
            ]
        return {"out": np.stack(rows)}

    launch = Launch("atomic_shared32", (2, 1, 1), (block, 1, 1), ["a", "key", "out", I32(n)])
    return Problem({"a": a, "key": key, "out": prefilled((24, 16), I32)}, [launch], expected)


def _shared64(rng: np.random.Generator) -> Problem:
    n, block = 512, 256
    a = rng.permutation(integers(rng, I64, n))
    key = np.concatenate([rng.permutation(np.arange(block)), rng.permutation(np.arange(block))]).astype(U32)

    def expected() -> dict[str, Array]:
        rows = []
        for start in (0, block):
            x, k = a[start : start + block], key[start : start + block] & 7
            u = x.view(U64)
            rows += [
                by_key(lambda v: v.sum(dtype=U64), u, k, 8, U64),
                by_key(np.min, u, k, 8, U64),
                by_key(np.max, x, k, 8, I64).view(U64),
                by_key(np.bitwise_xor.reduce, u, k, 8, U64),
                by_key(np.bitwise_or.reduce, u & U64(0x0101010101010101), k, 8, U64),
                repeated(lambda v: v * 9 + 1, 0, np.bincount(k, minlength=8), 64),
            ]
        return {"out": np.stack(rows)}

    launch = Launch("atomic_shared64", (2, 1, 1), (block, 1, 1), ["a", "key", "out", I32(n)])
    return Problem({"a": a, "key": key, "out": prefilled((12, 8), U64)}, [launch], expected)


def _ptx(rng: np.random.Generator) -> Problem:
    n = 512
    a, key = rng.permutation(integers(rng, I32, n)), rng.integers(0, 8, n).astype(U32)
    k = key & 3
    start = np.zeros(32, I32)
    start[4:8], start[12:20] = -(2**31), -1

    def expected() -> dict[str, Array]:
        slots = np.zeros(32, I32)
        slots[0:4] = by_key(lambda v: v.sum(dtype=I32), a, k, 4, I32)
        slots[4:8] = by_key(np.max, a, k, 4, I32)
        slots[8:12] = by_key(np.bitwise_xor.reduce, a, k, 4, I32)
        slots[12:20] = by_key(np.min, a.view(U32).astype(U64) << U64(8) | U64(5), k, 4, U64).view(I32)
        slots[20:24] = by_key(np.sum, a & 255, k, 4, I32)
        for j in range(4):
            slots[24 + j] = (a & 7)[(k == j) & (key < 4)].sum()
            slots[28 + j] = (a & 7)[(k == j) & (key >= 4)].sum()
        return {"slots": slots}

    return Problem({"a": a, "key": key, "slots": start}, _launch("atomic_ptx", ["a", "key", "slots"], n), expected)


CASES = [
    Case("atomic_global32", "atomics.cu", _global32),
    Case("atomic_global64", "atomics.cu", _global64),
    Case("atomic_ticket", "atomics.cu", _ticket),
    Case("atomic_float", "atomics.cu", _float),
    Case("atomic_shared32", "atomics.cu", _shared32),
    Case("atomic_shared64", "atomics.cu", _shared64),
    Case("atomic_ptx", "atomics.cu", _ptx),
]
