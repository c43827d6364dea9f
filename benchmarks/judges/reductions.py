"""What reductions.cu is launched on."""

import numpy as np

from . import Work, cover, floats, integers, line, program


@program("reductions", sizes=((1 << 22, 528), (1 << 24, 1056)), small=(5000, 3))
def sum_shared(n: int, blocks: int) -> Work:
    x = floats(n)

    def expected() -> dict[str, np.ndarray]:
        padded = np.resize(
            np.append(x, np.zeros(-n % (256 * blocks), np.float32)), (-(-n // (256 * blocks)), blocks, 256)
        )
        return {"sums": padded.sum((0, 2), np.float64)}

    return Work(
        *line(blocks, 256), ("x", "sums", np.int32(n)), {"x": x, "sums": np.zeros(blocks, np.float32)}, expected
    )


@program("reductions", sizes=((1 << 20, 264), (1 << 22, 1056)), small=(700, 2))
def sum_shuffle(n: int, blocks: int) -> Work:
    x = floats(4 * n, 0)
    return Work(
        *line(blocks, 256),
        ("x", "sum", np.int32(n)),
        {"x": x, "sum": np.zeros(1, np.float32)},
        lambda: {"sum": x.sum(dtype=np.float64)[None]},
    )


@program("reductions", sizes=((8192, 500), (2048, 4096)), small=(16, 77))
def argmax(rows: int, columns: int) -> Work:
    x = floats(rows * columns)
    return Work(
        *line(rows // 8, 256),
        ("x", "place", np.int32(columns)),
        {"x": x, "place": np.zeros(rows, np.int32)},
        lambda: {"place": x.reshape(rows, columns).argmax(1).astype(np.int32)},
    )


@program("reductions", sizes=((2048, 1000), (4096, 2048)), small=(3, 300))
def softmax(rows: int, columns: int) -> Work:
    x = floats(rows * columns, -3, 3)

    def expected() -> dict[str, np.ndarray]:
        e = np.exp(x.reshape(rows, columns).astype(np.float64))
        return {"y": (e / e.sum(1, keepdims=True)).ravel()}

    return Work(*line(rows, 256), ("x", "y", np.int32(columns)), {"x": x, "y": 0 * x}, expected)


@program("reductions", sizes=((2048,), (8192,)), small=(8,))
def layer_norm(rows: int) -> Work:
    x, gain, bias = floats(1024 * rows, -2, 3), floats(1024, seed=2), floats(1024, seed=3)

    def expected() -> dict[str, np.ndarray]:
        v = x.reshape(rows, 1024).astype(np.float64)
        v = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5)
        return {"y": (v * gain + bias).ravel()}

    first = {"x": x, "gain": gain, "bias": bias, "y": 0 * x}
    return Work(*line(rows // 4, 128), ("x", "gain", "bias", "y"), first, expected)


@program("reductions", sizes=((1 << 18, 264), (1 << 20, 264)), small=(2000, 3))
def histogram_global(n: int, blocks: int) -> Work:
    x = integers(n, 0, 256, dtype=np.uint8)
    return Work(
        *line(blocks, 256),
        ("x", "count", np.int32(n)),
        {"x": x, "count": np.zeros(256, np.uint32)},
        lambda: {"count": np.bincount(x, minlength=256).astype(np.uint32)},
    )


@program("reductions", sizes=((1 << 19, 264), (1 << 21, 528)), small=(2000, 3))
def histogram_shared(n: int, blocks: int) -> Work:
    x = integers(4 * n, 0, 256, dtype=np.uint8)
    return Work(
        *line(blocks, 256),
        ("x", "count", np.int32(n)),
        {"x": x, "count": np.zeros(256, np.uint32)},
        lambda: {"count": np.bincount(x, minlength=256).astype(np.uint32)},
    )


def _blocks(x: np.ndarray, size: int) -> np.ndarray:
    return x.reshape(-1, size)


def _scan(blocks: int, threads: int) -> Work:
    x = integers(blocks * 1024, -9, 9)
    return Work(
        *line(blocks, threads),
        ("x", "y"),
        {"x": x, "y": 0 * x},
        lambda: {"y": _blocks(x, 1024).cumsum(1, dtype=np.int32).ravel()},
    )


@program("reductions", sizes=((1056,), (4096,)), small=(2,))
def scan_doubling(blocks: int) -> Work:
    return _scan(blocks, 1024)


@program("reductions", sizes=((2048,), (8192,)), small=(2,))
def scan_shuffle(blocks: int) -> Work:
    return _scan(blocks, 256)


@program("reductions", sizes=((2048,), (8192,)), small=(2,))
def prefix_max(blocks: int) -> Work:
    x = integers(blocks * 512, -1000, 1000)
    return Work(
        *line(blocks, 256),
        ("x", "y"),
        {"x": x, "y": 0 * x},
        lambda: {"y": np.maximum.accumulate(_blocks(x, 512), 1).ravel()},
    )


@program("reductions", sizes=((264,), (1056,)), small=(2,))
def bitonic(blocks: int) -> Work:
    x = integers(blocks * 1024, -(1 << 30), 1 << 30)
    return Work(
        *line(blocks, 512), ("x", "y"), {"x": x, "y": 0 * x}, lambda: {"y": np.sort(_blocks(x, 1024), 1).ravel()}
    )


def _sixteen(threads: int) -> Work:
    x = integers(threads * 16, -(1 << 30), 1 << 30)
    return Work(
        *cover(threads, 128),
        ("x", "y", np.int32(threads)),
        {"x": x, "y": 0 * x},
        lambda: {"y": np.sort(x.reshape(16, threads), 0).ravel()},
    )


@program("reductions", sizes=((1 << 16,), (1 << 18,)), small=(256,))
def sort_registers(threads: int) -> Work:
    return _sixteen(threads)


@program("reductions", sizes=((1 << 15,), (1 << 16,)), small=(256,))
def sort_local(threads: int) -> Work:
    return _sixteen(threads)


@program("reductions", sizes=((1056,), (4096,)), small=(3,))
def rank_sort(blocks: int) -> Work:
    x = integers(blocks * 256, 0, 1000).astype(np.uint32)
    return Work(
        *line(blocks, 256), ("x", "y"), {"x": x, "y": 0 * x}, lambda: {"y": np.sort(_blocks(x, 256), 1).ravel()}
    )
