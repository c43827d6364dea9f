"""What streams.cu is launched on."""

import numpy as np

from . import Work, cover, floats, integers, line, program

_GRID = 132 * 8


@program("streams", sizes=((1 << 20,), (1 << 23,)), small=(1000,))
def saxpy(n: int) -> Work:
    x, y = floats(n), floats(n, seed=2)
    return Work(*cover(n, 256), (np.float32(3), "x", "y", np.int32(n)), {"x": x, "y": y}, lambda: {"y": 3 * x + y})


@program("streams", sizes=((1 << 18,), (1 << 21,)), small=(1001,))
def triad(n: int) -> Work:
    a, b = floats(4 * n), floats(4 * n, seed=2)
    grid, block = line(min(_GRID, -(-n // 256)), 256)
    return Work(
        grid,
        block,
        ("a", "b", np.float32(0.5), "c", np.int32(n)),
        {"a": a, "b": b, "c": 0 * a},
        lambda: {"c": a + np.float32(0.5) * b},
    )


@program("streams", sizes=((2, 1 << 20), (16, 1 << 20)), small=(3, 500))
def strided(stride: int, n: int) -> Work:
    x = floats(stride * n)
    return Work(
        *cover(n, 128),
        ("x", "y", np.int32(stride), np.int32(n)),
        {"x": x, "y": 0 * x[:n]},
        lambda: {"y": 2 * x[::stride]},
    )


@program("streams", sizes=((1 << 20,), (1 << 22,)), small=(777,))
def daxpy(n: int) -> Work:
    x, y = floats(n, dtype=np.float64), floats(n, seed=2, dtype=np.float64)
    return Work(
        *line(min(_GRID, -(-n // 256)), 256),
        (np.float64(0.1), "x", "y", np.int32(n)),
        {"x": x, "y": y},
        lambda: {"y": 0.1 * x + y},
        error=1e-14,
    )


@program("streams", sizes=((1 << 20,), (1 << 22,)), small=(777,))
def gelu(n: int) -> Work:
    x = floats(n, -4, 4)
    return Work(
        *cover(n, 256),
        ("x", "y", np.int32(n)),
        {"x": x, "y": 0 * x},
        lambda: {"y": 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))},
    )


@program("streams", sizes=((8, 1 << 18), (64, 1 << 18)), small=(5, 300))
def half_polynomial(degree: int, n: int) -> Work:
    x = floats(8 * n, -0.5, 0.5, dtype=np.float16)

    def expected() -> dict[str, np.ndarray]:
        s = x
        for _ in range(degree):
            s = (s.astype(np.float64) * x + 0.25).astype(np.float16)
        return {"y": s}

    two = np.array([0.25, 0.25], np.float16).view(np.uint32)[0]
    return Work(
        *cover(n, 128), (two, "x", "y", np.int32(degree), np.int32(n)), {"x": x, "y": 0 * x}, expected, error=2e-3
    )


@program("streams", sizes=((1 << 20,), (1 << 22,)), small=(999,))
def luminance(n: int) -> Work:
    rgba = np.resize(integers(1 << 18, 0, 256, dtype=np.uint8), 4 * n)
    r, g, b = rgba.reshape(-1, 4).astype(np.int32).T[:3]

    def expected() -> dict[str, np.ndarray]:
        u, v = (-43 * r - 84 * g + 127 * b) >> 8, (127 * r - 106 * g - 21 * b) >> 8
        return {"y": ((77 * r + 150 * g + 29 * b) >> 8).astype(np.uint8), "uv": np.stack([u, v], 1).astype(np.int8)}

    first = {"rgba": rgba, "y": np.zeros(n, np.uint8), "uv": np.zeros((n, 2), np.int8)}
    return Work(*cover(n, 256), ("rgba", "y", "uv", np.int32(n)), first, expected)


@program("streams", sizes=((1 << 20, 1 << 16), (1 << 20, 1 << 22)), small=(1000, 300))
def gather(n: int, size: int) -> Work:
    where, x = integers(n, 0, size), floats(size)
    return Work(
        *line(min(_GRID, -(-n // 256)), 256),
        ("where", "x", "y", np.int32(n)),
        {"where": where, "x": x, "y": floats(n)},
        lambda: {"y": x[where]},
    )


@program("streams", sizes=((1 << 18,), (1 << 20,)), small=(1000,))
def scatter(n: int) -> Work:
    where, x = np.random.default_rng(3).permutation(n).astype(np.int32), floats(n)
    return Work(
        *cover(n, 256),
        ("where", "x", "y", np.int32(n)),
        {"where": where, "x": x, "y": 0 * x},
        lambda: {"y": x[np.argsort(where)]},
    )


def _cycle(n: int) -> np.ndarray:
    """A chain through all of `n` places in a random order."""
    order = np.random.default_rng(4).permutation(n)
    chain = np.empty(n, np.int32)
    chain[order] = np.roll(order, -1)
    return chain


def _followed(chain: np.ndarray, at: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        at = chain[at]
    return at.astype(np.int32)


@program("streams", sizes=((1 << 13, 132, 200), (1 << 19, 132, 100), (1 << 24, 132, 50)), small=(500, 2, 20))
def chase(size: int, blocks: int, steps: int) -> Work:
    chain = _cycle(size)
    return Work(
        *line(blocks, 32),
        ("chain", "end", np.int32(steps)),
        {"chain": chain, "end": np.zeros(blocks * 32, np.int32)},
        lambda: {"end": _followed(chain, np.arange(blocks * 32), steps)},
    )


@program("streams", sizes=((132, 300), (528, 500)), small=(2, 20))
def chase_shared(blocks: int, steps: int) -> Work:
    chain = _cycle(4096)
    return Work(
        *line(blocks, 128),
        ("chain", "end", np.int32(steps)),
        {"chain": chain.astype(np.uint16), "end": np.zeros(blocks * 128, np.int32)},
        lambda: {"end": _followed(chain, np.arange(blocks * 128) % 4096, steps)},
    )
