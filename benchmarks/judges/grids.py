"""What grids.cu is launched on."""

from typing import Any

import numpy as np

from . import Array, Work, floats, integers, line, program


@program("grids", sizes=((2048, 16), (8192, 8)), small=(3, 5))
def heat_1d(blocks: int, steps: int) -> Work:
    x = floats(blocks * 256 + 32)

    def expected() -> dict[str, Array]:
        a = x.astype(np.float64)
        for _ in range(steps):
            a[1:-1] = a[1:-1] + 0.25 * (a[:-2] - 2 * a[1:-1] + a[2:])
        return {"y": a[16:-16]}

    return Work(*line(blocks, 288), ("x", "y", np.int32(steps)), {"x": x, "y": x[32:] * 0}, expected)


def _cross(a: Array) -> Array:
    return 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])


@program("grids", sizes=((1024,), (2048,)), small=(64,))
def jacobi_2d(n: int) -> Work:
    a = floats((n + 2) ** 2)
    return Work(
        (n // 32, n // 8, 1),
        (32, 8, 1),
        ("a", "b", np.int32(n)),
        {"a": a, "b": 0 * a},
        lambda: {"b": np.pad(_cross(a.reshape(n + 2, n + 2)), 1).ravel()},
    )


@program("grids", sizes=((768,), (1536,)), small=(48,))
def jacobi_tiled(n: int) -> Work:
    a = floats((n + 8) ** 2)

    def expected() -> dict[str, Array]:
        b = a.reshape(n + 8, n + 8)
        for _ in range(4):
            b = _cross(b)
        return {"b": b.ravel()}

    return Work(
        (n // 24, n // 24, 1), (32, 8, 1), ("a", "b", np.int32(n)), {"a": a, "b": np.zeros(n * n, np.float32)}, expected
    )


def _around(a: Array) -> Array:
    return (
        a[1:-1, 1:-1, :-2]
        + a[1:-1, 1:-1, 2:]
        + a[1:-1, :-2, 1:-1]
        + a[1:-1, 2:, 1:-1]
        + a[:-2, 1:-1, 1:-1]
        + a[2:, 1:-1, 1:-1]
    )


def _volume(nx: int, ny: int, nz: int, grid: tuple[int, int, int], rows: int, inside: Any) -> Work:
    a = floats(nx * ny * nz)
    return Work(
        grid,
        (32, rows, 1),
        ("a", "b", np.int32(nx), np.int32(ny), np.int32(nz)),
        {"a": a, "b": 0 * a},
        lambda: {"b": np.pad(inside(a.reshape(nz, ny, nx)), 1).ravel()},
    )


@program("grids", sizes=((128, 128, 64), (256, 256, 64)), small=(32, 12, 5))
def laplace_3d(nx: int, ny: int, nz: int) -> Work:
    return _volume(nx, ny, nz, (nx // 32, ny // 4, nz), 4, lambda a: _around(a) - 6 * a[1:-1, 1:-1, 1:-1])


@program("grids", sizes=((256, 256, 32), (512, 512, 32)), small=(32, 16, 5))
def march_3d(nx: int, ny: int, nz: int) -> Work:
    return _volume(
        nx, ny, nz, (nx // 32, ny // 8, 1), 8, lambda a: 0.5 * a[1:-1, 1:-1, 1:-1] + np.float32(0.0833) * _around(a)
    )


@program("grids", sizes=((1024,), (2000,)), small=(96,))
def life(n: int) -> Work:
    a = (integers(n * n, 0, 3) == 0).astype(np.uint8)

    def expected() -> dict[str, Array]:
        g = a.reshape(n, n)
        s = sum(np.roll(g, (v, u), (0, 1)) for v in (-1, 0, 1) for u in (-1, 0, 1) if u or v)
        return {"b": ((s == 3) | ((s == 2) & (g == 1))).astype(np.uint8).ravel()}

    return Work((n // 16, n // 16, 1), (16, 16, 1), ("a", "b", np.int32(n)), {"a": a, "b": 0 * a}, expected)


def _windows(a: Array, k: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(a, (k, k))


def _filter(n: int, rows: int) -> Work:
    a, f = floats((n + 6) ** 2), floats(49, seed=2)
    return Work(
        (n // 32, n // rows, 1),
        (32, rows, 1),
        ("a", "b", np.int32(n)),
        {"a": a, "b": np.zeros(n * n, np.float32)},
        lambda: {"b": np.einsum("yxvu,vu->yx", _windows(a.reshape(n + 6, n + 6), 7), f.reshape(7, 7)).ravel()},
        {"window": f},
    )


@program("grids", sizes=((512,), (1024,)), small=(64,))
def filter_naive(n: int) -> Work:
    return _filter(n, 8)


@program("grids", sizes=((512,), (1536,)), small=(64,))
def filter_tiled(n: int) -> Work:
    return _filter(n, 16)


@program("grids", sizes=((64, 32), (128, 32)), small=(16, 8))
def channels_3x3(n: int, c: int) -> Work:
    a, f = floats((n + 2) ** 2 * c), floats(9 * c * 32, seed=2)
    maps, filters = a.reshape(n + 2, n + 2, c), f.reshape(3, 3, c, 32)
    return Work(
        (n // 8, n, 1),
        (32, 8, 1),
        ("a", "f", "b", np.int32(n), np.int32(c)),
        {"a": a, "f": f, "b": np.zeros(n * n * 32, np.float32)},
        lambda: {
            "b": np.einsum(
                "yxcvu,vuco->yxo", np.lib.stride_tricks.sliding_window_view(maps, (3, 3), (0, 1)), filters
            ).ravel()
        },
    )


@program("grids", sizes=((64, 64), (128, 128)), small=(32, 2))
def max_pool(n: int, planes: int) -> Work:
    w = 2 * n + 1
    a = floats(planes * w * w)
    return Work(
        (n // 32, n // 8, planes),
        (32, 8, 1),
        ("a", "b", np.int32(n)),
        {"a": a, "b": np.zeros(planes * n * n, np.float32)},
        lambda: {
            "b": np.lib.stride_tricks.sliding_window_view(a.reshape(planes, w, w), (3, 3), (1, 2))[:, ::2, ::2]
            .max((3, 4))
            .ravel()
        },
    )


@program("grids", sizes=((1024,), (2048,)), small=(64,))
def median_3x3(n: int) -> Work:
    a = integers((n + 2) ** 2, 0, 256, dtype=np.uint8)
    return Work(
        (n // 32, n // 8, 1),
        (32, 8, 1),
        ("a", "b", np.int32(n)),
        {"a": a, "b": np.zeros(n * n, np.uint8)},
        lambda: {"b": np.median(_windows(a.reshape(n + 2, n + 2), 3), (2, 3)).astype(np.uint8).ravel()},
    )


@program("grids", sizes=((1024,), (2048,)), small=(64,))
def sobel(n: int) -> Work:
    a = floats((n + 2) ** 2)

    def expected() -> dict[str, Array]:
        k = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        w = _windows(a.reshape(n + 2, n + 2), 3)
        return {"b": np.hypot(np.einsum("yxvu,vu->yx", w, k), np.einsum("yxvu,uv->yx", w, k)).ravel()}

    return Work(
        (n // 32, n // 8, 1), (32, 8, 1), ("a", "b", np.int32(n)), {"a": a, "b": np.zeros(n * n, np.float32)}, expected
    )


@program("grids", sizes=((1024, 0.3), (2048, 1.2)), small=(64, 0.3))
def rotate_image(n: int, angle: float) -> Work:
    a, cosine, sine = floats(n * n), np.float32(np.cos(angle)), np.float32(np.sin(angle))

    def expected() -> dict[str, Array]:
        mid, g = 0.5 * (n - 1), a.reshape(n, n)
        dy, dx = np.mgrid[:n, :n] - mid
        u, v = cosine * dx - sine * dy + mid, sine * dx + cosine * dy + mid
        i, j = np.floor(u).astype(int), np.floor(v).astype(int)
        inside = (i >= 0) & (j >= 0) & (i < n - 1) & (j < n - 1)
        i, j, fu, fv = np.clip(i, 0, n - 2), np.clip(j, 0, n - 2), u - i, v - j
        s = (1 - fv) * ((1 - fu) * g[j, i] + fu * g[j, i + 1]) + fv * ((1 - fu) * g[j + 1, i] + fu * g[j + 1, i + 1])
        return {"b": np.where(inside, s, 0).ravel()}

    return Work(
        (n // 16, n // 16, 1),
        (16, 16, 1),
        ("a", "b", cosine, sine, np.int32(n)),
        {"a": a, "b": 0 * a},
        expected,
        error=1e-4,
    )


@program("grids", sizes=((2048,), (4096,)), small=(64,))
def integral_rows(n: int) -> Work:
    a = floats(n * n, 0)
    return Work(
        (n // 32, 1, 1),
        (32, 4, 1),
        ("a", "b", np.int32(n)),
        {"a": a, "b": 0 * a},
        lambda: {"b": a.reshape(n, n).cumsum(1, np.float64).ravel()},
    )
