"""What algebra.cu is launched on."""

from typing import Any

import numpy as np

from . import Array, Work, cover, floats, integers, line, program


@program("algebra", sizes=((1024,), (8192,)), small=(3,))
def fft_256(blocks: int) -> Work:
    x = floats(blocks * 512).view(np.complex64)
    w = np.exp(-2j * np.pi * np.arange(128) / 256).astype(np.complex64)
    return Work(
        *line(blocks, 128),
        ("x", "w", "y"),
        {"x": x, "w": w, "y": 0 * x},
        lambda: {"y": np.fft.fft(x.reshape(-1, 256)).ravel()},
    )


@program("algebra", sizes=((528,), (2112,)), small=(2,))
def hadamard(blocks: int) -> Work:
    x = floats(blocks * 4096)

    def expected() -> dict[str, Array]:
        v = x.astype(np.float64).reshape(-1, *[2] * 10)
        for axis in range(1, 11):
            a, b = np.take(v, 0, axis), np.take(v, 1, axis)
            v = np.stack([a + b, a - b], axis)
        return {"y": v.ravel()}

    return Work(*line(blocks, 128), ("x", "y"), {"x": x, "y": 0 * x}, expected)


@program("algebra", sizes=((528,), (2112,)), small=(3,))
def lu_32(blocks: int) -> Work:
    a = floats(blocks * 1024) + np.tile(8 * np.eye(32, dtype=np.float32).ravel(), blocks)

    def expected() -> dict[str, Array]:
        m = a.reshape(-1, 32, 32).astype(np.float64)
        for k in range(31):
            m[:, k + 1 :, k] /= m[:, k : k + 1, k]
            m[:, k + 1 :, k + 1 :] -= m[:, k + 1 :, k : k + 1] * m[:, k : k + 1, k + 1 :]
        return {"b": m.ravel()}

    return Work(*line(blocks, 1)[:1], (32, 8, 1), ("a", "b"), {"a": a, "b": 0 * a}, expected)


@program("algebra", sizes=((1 << 16,), (1 << 18,)), small=(256,))
def cholesky_16(threads: int) -> Work:
    r = floats(threads * 16, -0.2, 0.2).reshape(-1, 16, 16)
    a = (r + r.transpose(0, 2, 1) + 4 * np.eye(16, dtype=np.float32)).ravel()
    return Work(
        *line(threads // 128, 128),
        ("a", "b"),
        {"a": a, "b": 0 * a},
        lambda: {"b": np.linalg.cholesky(a.reshape(-1, 16, 16).astype(np.float64)).ravel()},
    )


@program("algebra", sizes=((32, 1 << 15), (64, 1 << 16)), small=(9, 128))
def thomas(rows: int, n: int) -> Work:
    r = floats(rows * n)

    def expected() -> dict[str, Array]:
        m = 4 * np.eye(rows) - np.eye(rows, k=1) - np.eye(rows, k=-1)
        c = [-0.25]
        for _ in range(rows - 1):
            c.append(-1 / (4 + c[-1]))
        return {"x": np.linalg.solve(m, r.reshape(rows, n).astype(np.float64)).ravel(), "c": np.repeat(c, n)}

    return Work(
        *line(n // 128, 128), ("r", "c", "x", np.int32(rows), np.int32(n)), {"r": r, "c": 0 * r, "x": 0 * r}, expected
    )


@program("algebra", sizes=((1 << 15,), (1 << 17,)), small=(256,))
def inverse_double(threads: int) -> Work:
    a = (floats(threads * 8, dtype=np.float64).reshape(-1, 8, 8) + 6 * np.eye(8)).ravel()
    return Work(
        *line(threads // 128, 128),
        ("a", "b"),
        {"a": a, "b": 0 * a},
        lambda: {"b": np.linalg.inv(a.reshape(-1, 8, 8)).ravel()},
        error=1e-13,
    )


def _sparse(rows: int, most: int, columns: int, near: int) -> dict[str, Array]:
    """Rows of up to `most` elements, within `near` columns of their own place."""
    counts = integers(rows, 0, most)
    first = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    own = np.repeat(np.arange(rows) * columns // rows, counts)
    column = ((own + integers(len(own), -near, near, 2)) % columns).astype(np.int32)
    return {"first": first, "column": column, "value": floats(len(own)), "x": floats(columns, seed=2)}


def _rows_of(first: Array, each: Array) -> Array:
    return np.add.reduceat(np.append(each, 0), first[:-1]) * (np.diff(first) > 0)


def _csr(rows: int, most: int, near: int, grid: Any) -> Work:
    m = _sparse(rows, most, rows, near)
    return Work(
        *grid,
        ("first", "column", "value", "x", "y", np.int32(rows)),
        m | {"y": np.ones(rows, np.float32)},
        lambda: {"y": _rows_of(m["first"], m["value"].astype(np.float64) * m["x"][m["column"]])},
    )


@program("algebra", sizes=((1 << 15, 32, 100), (1 << 17, 16, 50000)), small=(300, 9, 20))
def csr_thread(rows: int, most: int, near: int) -> Work:
    return _csr(rows, most, near, cover(rows, 128))


@program("algebra", sizes=((1 << 13, 200, 1000), (1 << 14, 300, 8000)), small=(40, 99, 20))
def csr_warp(rows: int, most: int, near: int) -> Work:
    return _csr(rows, most, near, cover(rows, 8)[:1] + ((256, 1, 1),))


@program("algebra", sizes=((1 << 16, 16), (1 << 18, 16)), small=(200, 5))
def ell(rows: int, width: int) -> Work:
    column = ((np.tile(np.arange(rows), width) + integers(rows * width, -500, 500)) % rows).astype(np.int32)
    value, x = floats(rows * width), floats(rows, seed=2)
    return Work(
        *cover(rows, 256),
        ("column", "value", "x", "y", np.int32(rows), np.int32(width)),
        {"column": column, "value": value, "x": x, "y": 0 * x},
        lambda: {"y": (value.astype(np.float64) * x[column]).reshape(width, rows).sum(0)},
    )


@program("algebra", sizes=((1 << 15,), (1 << 17,)), small=(300,))
def page_rank(n: int) -> Work:
    m = _sparse(n, 16, n, n // 2)
    degree, rank = integers(n, 1, 20, 5), floats(n, 0)
    first = {"first": m["first"], "source": m["column"], "rank": rank, "degree": degree, "next": 0 * rank}

    def expected() -> dict[str, Array]:
        share = rank.astype(np.float64) / degree
        return {"next": 0.15 / n + 0.85 * _rows_of(m["first"], share[m["column"]])}

    return Work(*cover(n, 256), ("first", "source", "rank", "degree", "next", np.int32(n)), first, expected)


@program("algebra", sizes=((1 << 17, 4), (1 << 19, 16)), small=(400, 3))
def bfs_step(n: int, share: int) -> Work:
    m = _sparse(n, 16, n, n // 2)
    distance = np.where(integers(n, 0, share, 7) == 0, 5, -1).astype(np.int32)

    def expected() -> dict[str, Array]:
        new = distance.copy()
        touched = m["column"][np.repeat(distance == 5, np.diff(m["first"]))]
        new[touched] = np.where(distance[touched] < 0, 6, distance[touched])
        return {"distance": new}

    return Work(
        *cover(n, 256),
        ("first", "edge", "distance", np.int32(5), np.int32(n)),
        {"first": m["first"], "edge": m["column"], "distance": distance},
        expected,
        once=True,
    )


@program("algebra", sizes=((264,), (1056,)), small=(2,))
def k_means(blocks: int) -> Work:
    n = blocks * 256
    point, centre = floats(8 * n), floats(256, seed=2)

    def expected() -> dict[str, Array]:
        p, c = point.reshape(8, n).T.astype(np.float64), centre.reshape(32, 8).astype(np.float64)
        nearest = ((p[:, None] - c) ** 2).sum(2).argmin(1)
        sums = np.zeros((32, 8))
        np.add.at(sums, nearest, p)
        return {"nearest": nearest.astype(np.int32), "sum": sums.ravel()}

    first = {"point": point, "centre": centre, "nearest": np.zeros(n, np.int32), "sum": 0 * centre}
    return Work(*line(blocks, 256), ("point", "centre", "nearest", "sum", np.int32(n)), first, expected)


@program("algebra", sizes=((1 << 13, 512), (1 << 15, 1024)), small=(128, 100))
def neighbours(queries: int, n: int) -> Work:
    q, p = floats(4 * queries), floats(4 * n, seed=2)
    return Work(
        *line(queries // 64, 64),
        ("q", "p", "nearest", np.int32(n)),
        {"q": q, "p": p, "nearest": np.zeros((queries, 4), np.int32)},
        lambda: {
            "nearest": ((q.reshape(-1, 1, 4) - p.reshape(1, -1, 4))[:, :, :3].astype(np.float64) ** 2)
            .sum(2)
            .argsort(1)[:, :4]
            .astype(np.int32)
        },
    )


@program("algebra", sizes=((1 << 21,), (1 << 23,)), small=(1000,))
def find_text(n: int) -> Work:
    text = np.resize(integers(1 << 20, 0, 4, dtype=np.uint8), n + 16) + ord("a")
    word = np.frombuffer(b"abcab", np.uint8)

    def expected() -> dict[str, Array]:
        return {"found": (np.lib.stride_tricks.sliding_window_view(text, 5)[:n] == word).all(1).astype(np.uint8)}

    return Work(
        *cover(n, 256),
        ("text", "word", np.int32(5), "found", np.int32(n)),
        {"text": text.astype(np.uint8), "word": word, "found": np.zeros(n, np.uint8)},
        expected,
    )


@program("algebra", sizes=((1 << 16,), (1 << 18,)), small=(256,))
def edit_distance(n: int) -> Work:
    a, b = integers(16 * n, 0, 4, dtype=np.uint8), integers(16 * n, 0, 4, 2, np.uint8)

    def expected() -> dict[str, Array]:
        p, q = a.reshape(16, n), b.reshape(16, n)
        row = [np.full(n, k) for k in range(17)]
        for i in range(16):
            new = [np.full(n, i + 1)]
            for k in range(16):
                new.append(np.minimum(np.minimum(new[k], row[k + 1]) + 1, row[k] + (p[i] != q[k])))
            row = new
        return {"distance": row[16].astype(np.int32)}

    return Work(
        *line(n // 256, 256),
        ("a", "b", "distance", np.int32(n)),
        {"a": a, "b": b, "distance": np.zeros(n, np.int32)},
        expected,
    )


@program("algebra", sizes=((1 << 16, 18), (1 << 18, 19)), small=(500, 10))
def hash_insert(n: int, bits: int) -> Work:
    key = integers(n, 1, 1 << 32, dtype=np.uint32)
    return Work(
        *cover(n, 256),
        ("key", "table", "place", np.int32(bits), np.int32(n)),
        {"key": key, "table": np.zeros(1 << bits, np.uint32), "place": 0 * key},
        lambda: {"place": key},
        once=True,
    )


@program("algebra", sizes=((1 << 15,), (1 << 17,)), small=(500,))
def neighbour_list(n: int) -> Work:
    atom = floats(4 * n)
    near = ((np.arange(n) + integers(32 * n, -100, 100).reshape(32, n)) % n).astype(np.int32)

    def expected() -> dict[str, Array]:
        p = atom.reshape(n, 4)[:, :3].astype(np.float64)
        d = p - p[near]
        r = (d**2).sum(2) + 0.1
        s = np.where(r > 1.5, 0, r**-3 * (r**-3 - 0.5) / r)
        return {"force": np.pad((s[:, :, None] * d).sum(0), ((0, 0), (0, 1))).ravel()}

    return Work(
        *cover(n, 128),
        ("atom", "near", "force", np.int32(n)),
        {"atom": atom, "near": near, "force": 0 * atom},
        expected,
    )


@program("algebra", sizes=((1 << 18,), (1 << 20,)), small=(500,))
def horner_double(n: int) -> Work:
    c, x = floats(16, dtype=np.float64), floats(n, seed=2, dtype=np.float64)
    return Work(
        *cover(n, 256),
        ("c", "x", "y", np.int32(n)),
        {"c": c, "x": x, "y": 0 * x},
        lambda: {"y": np.polyval(c[::-1], x) + np.exp(-x * x)},
        error=1e-13,
    )
