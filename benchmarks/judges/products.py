"""What products.cu is launched on."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Work, floats, integers, line, program


def _transpose(n: int, rows: int) -> Work:
    a = floats(n * n)
    return Work(
        (n // 32, n // rows, 1),
        (32, 8, 1),
        ("a", "b", np.int32(n)),
        {"a": a, "b": 0 * a},
        lambda: {"b": a.reshape(n, n).T.ravel()},
    )


@program("products", sizes=((1024,), (2048,)), small=(64,))
def transpose_naive(n: int) -> Work:
    return _transpose(n, 8)


@program("products", sizes=((1024,), (2048,)), small=(64,))
def transpose_tiled(n: int) -> Work:
    return _transpose(n, 32)


@program("products", sizes=((1024,), (2048,)), small=(64,))
def transpose_padded(n: int) -> Work:
    return _transpose(n, 32)


def _product(n: int, grid: tuple[int, int], block: tuple[int, int], dtype: Any = np.float32) -> Work:
    a, b = floats(n * n, dtype=dtype), floats(n * n, seed=2, dtype=dtype)
    return Work(
        (*grid, 1),
        (*block, 1),
        ("a", "b", "c", np.int32(n)),
        {"a": a, "b": b, "c": 0 * a},
        lambda: {"c": (a.reshape(n, n).astype(np.float64) @ b.reshape(n, n)).ravel()},
    )


def _square(
    name: str,
    sizes: tuple[int, ...],
    grid: Callable[[int], tuple[int, int]],
    block: tuple[int, int],
    small: int = 64,
    dtype: Any = np.float32,
) -> None:
    program("products", [(n,) for n in sizes], (small,), name)(lambda n: _product(n, grid(n), block, dtype))


_square("product_naive", (256, 512), lambda n: (n // 32, n // 8), (32, 8))
_square("product_16", (256, 768), lambda n: (n // 16, n // 16), (16, 16))
_square("product_32", (384, 768), lambda n: (n // 32, n // 32), (32, 32))
_square("product_double", (256, 512), lambda n: (n // 16, n // 16), (16, 16), 64, np.float64)
_square("product_blocked", (512, 1024), lambda n: (n // 64, n // 64), (256, 1), 128)
_square("product_pipelined", (512, 1024), lambda n: (n // 64, n // 64), (256, 1), 128)


@program("products", sizes=((1024, 4096), (8192, 1000)), small=(8, 200))
def matrix_vector(rows: int, columns: int) -> Work:
    a, x = floats(rows * columns), floats(columns, seed=2)
    return Work(
        *line(rows // 8, 256),
        ("a", "x", "y", np.int32(columns // 4)),
        {"a": a, "x": x, "y": np.zeros(rows, np.float32)},
        lambda: {"y": a.reshape(rows, columns).astype(np.float64) @ x},
    )


@program("products", sizes=((512,), (1024,)), small=(64,))
def product_bytes(n: int) -> Work:
    a, b = integers(n * n, -9, 9, dtype=np.int8), integers(n * n, -9, 9, 2, np.int8)
    return Work(
        (n // 32, n // 32, 1),
        (16, 16, 1),
        ("a", "b", "c", np.int32(n)),
        {"a": a, "b": b, "c": np.zeros(n * n, np.int32)},
        lambda: {"c": (a.reshape(n, n).astype(np.int32) @ b.reshape(n, n).T).ravel()},
    )


@program("products", sizes=((512,), (1024,)), small=(64,))
def product_mma(n: int) -> Work:
    a, b = floats(n * n, dtype=np.float16), floats(n * n, seed=2, dtype=np.float16)
    return Work(
        (n // 32, n // 64, 1),
        (128, 1, 1),
        ("a", "b", "c", np.int32(n)),
        {"a": a, "b": b, "c": np.zeros(n * n, np.float32)},
        lambda: {"c": (a.reshape(n, n).astype(np.float64) @ b.reshape(n, n).T).ravel()},
    )
