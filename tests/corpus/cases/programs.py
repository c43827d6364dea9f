"""The full-size programs of programs.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.corpus.cases._values import prefilled
from tests.corpus.exact import fma32
from tests.corpus.runner import BITS, Array, Bound, Case, Launch, Problem

I32, U32, F32, F64 = np.int32, np.uint32, np.float32, np.float64
UNIT = 2.0**-24  # unit roundoff of single precision


def _sgemm(size: int, exact: bool) -> Case:
    """Small integers make every sum exact; otherwise |error| <= k u / (1 - k u) |A| |B| for any order of summation
    (N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.5)."""

    def build(rng: np.random.Generator) -> Problem:
        if exact:
            a, b = (rng.integers(-8, 9, (size, size)).astype(F32) for _ in range(2))
        else:
            a, b = (rng.standard_normal((size, size)).astype(F32) for _ in range(2))
        gamma = size * UNIT / (1 - size * UNIT)
        wa, wb = a.astype(F64), b.astype(F64)
        rule = BITS if exact else Bound("Higham 3.5", absolute=gamma * (np.abs(wa) @ np.abs(wb)))
        args = ["a", "b", "c", I32(size), I32(size), I32(size)]
        launch = Launch("program_sgemm", (size // 64, size // 64, 1), (256, 1, 1), args)
        buffers = {"a": a, "b": b, "c": prefilled((size, size), F32)}
        return Problem(buffers, [launch], lambda: {"c": (wa @ wb).astype(F32 if exact else F64)}, {"c": rule})

    return Case(f"program_sgemm_{size}_{'exact' if exact else 'random'}", "programs.cu", build)


def scan_launches(source: str, out: str, sums: str, tops: str, spare: str, n: int) -> list[Launch]:
    """Exclusive scan of n (at most 2^20) elements in two levels; `tops` and `spare` hold the block totals."""
    blocks = (n + 1023) // 1024
    return [
        Launch("program_scan_blocks", (blocks, 1, 1), (256, 1, 1), [source, out, sums, I32(n)]),
        Launch("program_scan_blocks", (1, 1, 1), (256, 1, 1), [sums, tops, spare, I32(blocks)]),
        Launch("program_scan_add", (blocks, 1, 1), (256, 1, 1), [out, tops, I32(n)]),
    ]


def _exclusive(x: Array) -> Array:
    return np.concatenate([[0], x.cumsum(dtype=U32)[:-1]]).astype(U32)


def _scan(rng: np.random.Generator) -> Problem:
    n = 1 << 20
    x = rng.integers(0, 2**32, n).astype(U32)
    totals = x.reshape(-1, 1024).sum(1, dtype=U32)
    buffers = {"in": x, "out": prefilled(n, U32), "sums": prefilled(1024, U32), "tops": prefilled(1024, U32),
               "spare": prefilled(1, U32)}  # fmt: skip
    want = {"out": _exclusive(x), "sums": totals, "tops": _exclusive(totals), "spare": x.sum(dtype=U32)[None]}
    return Problem(buffers, scan_launches("in", "out", "sums", "tops", "spare", n), lambda: want)


def _radix(rng: np.random.Generator) -> Problem:
    n, blocks = 1 << 18, 1 << 10
    keys = rng.integers(0, 2**32, n).astype(U32)
    keys[::3] &= U32(0xFFF)
    values = np.arange(n, dtype=U32)
    launches = []
    for k in range(8):
        source, target = ("ab", "cd") if k % 2 == 0 else ("cd", "ab")
        shift = I32(4 * k)
        launches += [
            Launch("program_radix_count", (blocks, 1, 1), (256, 1, 1), [source[0], "counts", shift, I32(n)]),
            *scan_launches("counts", "offsets", "sums", "tops", "spare", 16 * blocks),
            Launch("program_radix_scatter", (blocks, 1, 1), (256, 1, 1),
                   [source[0], source[1], target[0], target[1], "offsets", shift, I32(n)]),
        ]  # fmt: skip
    buffers = {"a": keys, "b": values, **{name: prefilled(n, U32) for name in "cd"}}
    buffers |= {name: prefilled(16 * blocks, U32) for name in ("counts", "offsets")}
    buffers |= {"sums": prefilled(16, U32), "tops": prefilled(16, U32), "spare": prefilled(1, U32)}

    def expected() -> dict[str, Array]:
        order = np.argsort(keys, kind="stable").astype(U32)
        last = np.argsort(keys & U32(0x0FFFFFFF), kind="stable")
        digits = np.stack([np.bincount(block, minlength=16) for block in (keys[last] >> U32(28)).reshape(blocks, 256)])
        counts = digits.T.astype(U32).ravel()
        sums = counts.reshape(16, 1024).sum(1, dtype=U32)
        return {
            "a": keys[order], "b": order, "c": keys[last], "d": last.astype(U32), "counts": counts,
            "offsets": _exclusive(counts), "sums": sums, "tops": _exclusive(sums), "spare": np.array([n], U32),
        }  # fmt: skip

    return Problem(buffers, launches, expected)


def _histogram(rng: np.random.Generator) -> Problem:
    n = 1 << 19
    data = (rng.standard_normal(4 * n) * 40 + 128).clip(0, 255).astype(np.uint8)
    want = np.bincount(data, minlength=256).astype(U32)
    launch = Launch("program_histogram", (40, 1, 1), (256, 1, 1), ["data", "bins", I32(n)])
    return Problem({"data": data, "bins": np.zeros(256, U32)}, [launch], lambda: {"bins": want})


def mandelbrot(width: int, height: int, left: Any, top: Any, step: Any, limit: int) -> Array:
    py, px = np.divmod(np.arange(width * height), width)
    cx, cy = fma32(px.astype(F32), step, left), fma32(py.astype(F32), step, top)
    counts = np.zeros(width * height, np.uint16)
    x, y, alive = np.zeros_like(cx), np.zeros_like(cy), np.arange(len(cx))
    for _ in range(limit):
        xx, yy = x * x, y * y
        stay = ~(xx + yy > 4)
        alive, x, y, xx, yy = alive[stay], x[stay], y[stay], xx[stay], yy[stay]
        y = fma32(x + x, y, cy[alive])
        x = (xx - yy) + cx[alive]
        counts[alive] += np.uint16(1)
    return counts.reshape(height, width)


def _mandelbrot(rng: np.random.Generator) -> Problem:
    width, height, limit = 300, 200, 160
    left, top, step = F32(-2.1), F32(-1.05), F32(0.0105)
    args = ["counts", I32(width), I32(height), left, top, step, I32(limit)]
    launch = Launch("program_mandelbrot", ((width + 15) // 16, (height + 15) // 16, 1), (16, 16, 1), args)
    buffers = {"counts": prefilled((height, width), np.uint16)}
    return Problem(buffers, [launch], lambda: {"counts": mandelbrot(width, height, left, top, step, limit)})


def _nbody(rng: np.random.Generator) -> Problem:
    """Each term has a relative error below 40 u (rsqrtf within 2 ulp, cubed; a dozen roundings), and adding n terms
    brings n u more of the sum of magnitudes; then two fused updates round once each."""
    n, dt = 2048, F32(0.01)
    position, velocity = rng.standard_normal((n, 4)).astype(F32), rng.standard_normal((n, 4)).astype(F32)
    position[:, 3] = rng.uniform(0.1, 1, n)
    p, v = position.astype(F64), velocity.astype(F64)
    d = p[None, :, :3] - p[:, None, :3]
    inverse3 = ((d**2).sum(2) + F64(F32(0.01))) ** -1.5
    terms = d * (p[None, :, 3] * inverse3)[:, :, None]
    speed, slack = v.copy(), np.zeros((n, 4))
    speed[:, :3] += terms.sum(1) * F64(dt)
    slack[:, :3] = (n + 40) * UNIT * np.abs(terms).sum(1) * F64(dt) + UNIT * np.abs(speed[:, :3])
    place, moved = p.copy(), np.zeros((n, 4))
    place[:, :3] += speed[:, :3] * F64(dt)
    moved[:, :3] = slack[:, :3] * F64(dt) + UNIT * np.abs(place[:, :3])
    buffers = {"position": position, "velocity": velocity, "position_out": prefilled((n, 4), F32),
               "velocity_out": prefilled((n, 4), F32)}  # fmt: skip
    launch = Launch("program_nbody", (n // 128, 1, 1), (128, 1, 1), [*buffers, dt, I32(n)])
    want = {"position_out": place, "velocity_out": speed}
    source = "CUDA C Programming Guide, rsqrtf; error analysis above"
    rules: dict[str, Any] = {
        "position_out": Bound(source, ulps=1, absolute=moved),
        "velocity_out": Bound(source, ulps=1, absolute=slack),
    }
    return Problem(buffers, [launch], lambda: want, rules)


def _stencil(rng: np.random.Generator) -> Problem:
    nx, ny, nz = 90, 61, 40
    c0, c1, c2 = F32(0.5), F32(0.07), F32(-0.011)
    grid = rng.standard_normal((nz, ny, nx)).astype(F32)

    def expected() -> dict[str, Array]:
        padded = np.pad(grid, 2)

        def at(dz: int, dy: int, dx: int) -> Array:
            return padded[2 + dz : 2 + dz + nz, 2 + dy : 2 + dy + ny, 2 + dx : 2 + dx + nx]

        near, far = (
            ((at(0, 0, -k) + at(0, 0, k)) + (at(0, -k, 0) + at(0, k, 0))) + (at(-k, 0, 0) + at(k, 0, 0)) for k in (1, 2)
        )
        return {"out": fma32(c2, far, fma32(c1, near, c0 * grid))}

    launch = Launch("program_stencil", ((nx + 31) // 32, (ny + 7) // 8, 1), (32, 8, 1),
                    ["in", "out", I32(nx), I32(ny), I32(nz), c0, c1, c2])  # fmt: skip
    return Problem({"in": grid, "out": prefilled(grid.shape, F32)}, [launch], expected)


CASES = [
    _sgemm(128, exact=False),
    _sgemm(1024, exact=True),
    _sgemm(1024, exact=False),
    Case("program_scan", "programs.cu", _scan),
    Case("program_radix", "programs.cu", _radix),
    Case("program_histogram", "programs.cu", _histogram),
    Case("program_mandelbrot", "programs.cu", _mandelbrot),
    Case("program_nbody", "programs.cu", _nbody),
    Case("program_stencil", "programs.cu", _stencil),
]
