"""Input values with the edges of every type, and the frame of an elementwise case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.corpus.runner import BITS, Argument, Array, Case, Launch, Problem

F32_EDGES = np.array(
    [0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x7FC00000, 0x00000001,
     0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F000000, 0x3FC00000,
     0x40000000, 0x3F7FFFFF, 0x3F800001, 0x4B000000, 0x4B7FFFFF, 0x4F000000, 0xCF000000, 0x5F000000, 0x00400000,
     0x33800000, 0x40490FDB, 0x1FFFFFFF, 0x20000000, 0x5F7FFFFF],
    np.uint32,
).view(np.float32)  # fmt: skip
F64_EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.2250738585072009e-308, 2.2250738585072014e-308,
     1.7976931348623157e308, -1.7976931348623157e308, 0.5, 1.5, 2.5, -2.5, 1 + 2.0**-52, 1 - 2.0**-53, 2.0**52, 2.0**53,
     2.0**31, -(2.0**31), 2.0**63, 2.0**64, 1e-200, 1e200, 3.4028235677973366e38, 1.1754943508222875e-38, 1e-45],
)  # fmt: skip


def int_edges(dtype: type[np.integer[Any]]) -> Array:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, 31, 32, 33, 255, 256, 65535, 65536, info.max, info.max - 1, info.max // 2, info.min,
              info.min + 1, info.max // 3, info.max // 5 * 4]  # fmt: skip
    values += [-1, -2, -7, -31, -255, -65536] if info.min else []
    return np.array([v for v in values if info.min <= v <= info.max], dtype)


def integers(rng: np.random.Generator, dtype: type[np.integer[Any]], n: int) -> Array:
    """Edges first, then random values of every magnitude."""
    info = np.iinfo(dtype)
    wide = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    shifted = wide >> rng.integers(0, info.bits, n).astype(dtype)
    values = np.where(rng.random(n) < 0.5, wide, shifted).astype(dtype)
    edges = int_edges(dtype)
    values[: min(n, len(edges))] = edges[:n]
    return values


def floats(rng: np.random.Generator, n: int, spread: float = 20.0) -> Array:
    """float32: edges first, then values over `spread` powers of two and some raw bit patterns (NaN made canonical)."""
    values = (rng.standard_normal(n) * np.exp2(rng.uniform(-spread, spread, n))).astype(np.float32)
    raw = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    values = np.where(rng.random(n) < 0.25, raw, values)
    values[: min(n, len(F32_EDGES))] = F32_EDGES[:n]
    nan = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
    return np.where(np.isnan(values), nan, values).astype(np.float32)


def doubles(rng: np.random.Generator, n: int, spread: float = 40.0) -> Array:
    values = rng.standard_normal(n) * np.exp2(rng.uniform(-spread, spread, n))
    raw = rng.integers(0, 2**64, n, dtype=np.uint64).view(np.float64)
    values = np.where((rng.random(n) < 0.25) & ~np.isnan(raw), raw, values)
    values[: min(n, len(F64_EDGES))] = F64_EDGES[:n]
    return np.asarray(values, np.float64)


def pairs(edges: Array, extra: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Every ordered pair of edges, then `extra` beside a shuffled copy of itself."""
    a, b = np.meshgrid(edges, edges, indexing="ij")
    return np.concatenate([a.ravel(), extra]), np.concatenate([b.ravel(), rng.permutation(extra)])


def int_pairs(rng: np.random.Generator, dtype: type[np.integer[Any]], n: int = 400) -> tuple[Array, Array]:
    return pairs(int_edges(dtype), integers(rng, dtype, n), rng)


def float_pairs(rng: np.random.Generator, n: int = 512) -> tuple[Array, Array]:
    return pairs(F32_EDGES, floats(rng, n), rng)


def double_pairs(rng: np.random.Generator, n: int = 256) -> tuple[Array, Array]:
    return pairs(F64_EDGES, doubles(rng, n), rng)


def prefilled(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """An output before the launch: bytes 0xa5, so that an element never written shows."""
    array = np.empty(shape, dtype)
    array.view(np.uint8)[...] = 0xA5
    return array


Rows = Sequence[Array]


def elementwise(
    source: str,
    kernel: str,
    inputs: Callable[[np.random.Generator], Sequence[Array]],
    reference: Callable[..., Any],
    dtype: Any,
    rules: Any = BITS,
    block: int = 128,
) -> Case:
    """A kernel (inputs..., out, int n) with one thread per element and rows of results: out[k * n + i].

    `reference(*inputs)` gives the rows; for a Bound rule it may give them wider than `dtype`.  `rules` is one Rule or
    one per row.  For a kernel with several outputs `dtype` and `rules` are tuples, and the reference gives a tuple.
    """

    def build(rng: np.random.Generator) -> Problem:
        arrays = [np.ascontiguousarray(array) for array in inputs(rng)]
        n = len(arrays[0])
        with np.errstate(all="ignore"):
            found = reference(*arrays)
        several = isinstance(dtype, tuple)
        wanted = [np.stack(rows) for rows in (found if several else [found])]
        names = [f"out{k}" for k in range(len(wanted))] if several else ["out"]
        buffers = {f"in{k}": array for k, array in enumerate(arrays)}
        args: list[Argument] = [*buffers, *names, np.int32(n)]
        for name, rows, kind in zip(names, wanted, dtype if several else [dtype], strict=True):
            buffers[name] = prefilled(rows.shape, kind)
        judges = dict(zip(names, rules if several and rules is not BITS else [rules] * len(names), strict=True))
        launch = Launch(kernel, ((n + block - 1) // block, 1, 1), (block, 1, 1), args)
        return Problem(buffers, [launch], lambda: dict(zip(names, wanted, strict=True)), judges)

    return Case(kernel, source, build)
