"""References of float_programs.cu: the same order of operations in exactly rounded NumPy arithmetic."""

from __future__ import annotations

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, prefilled
from tests.corpus.cases.memory import launches
from tests.corpus.exact import add32, div32, fma32, mul32, sqrt32
from tests.corpus.runner import Array, Case, Launch, Problem

I32, F32, F64 = np.int32, np.float32, np.float64


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(F32)


def _dct(rng: np.random.Generator) -> Problem:
    k, j = np.indices((8, 8))
    matrix = (np.sqrt(2 / 8) * np.cos(np.pi * (2 * j + 1) * k / 16) * np.where(k == 0, np.sqrt(0.5), 1)).astype(F32)
    image = _normal(rng, 24, 128)
    blocks = image.reshape(3, 8, 16, 8).transpose(0, 2, 1, 3)
    rows, columns = np.zeros_like(blocks), np.zeros_like(blocks)
    for d in range(8):
        rows = fma32(matrix[:, d], blocks[..., d : d + 1], rows)
    for d in range(8):
        columns = fma32(matrix[:, d][:, None], rows[..., d : d + 1, :], columns)
    want = columns.transpose(0, 2, 1, 3).reshape(24, 128)
    launch = Launch("transform_dct8", (2, 3, 1), (8, 8, 8), ["image", "out", I32(128)])
    buffers = {"image": image, "out": prefilled(image.shape, F32)}
    return Problem(buffers, [launch], lambda: {"out": want}, constants={"dct_matrix": matrix})


def _fft(rng: np.random.Generator) -> Problem:
    n = 100
    a = _normal(rng, n, 32, 2)
    angle = -2 * np.pi * np.arange(16) / 32
    w = np.stack([np.cos(angle), np.sin(angle)], 1).astype(F32)
    order = [int(format(k, "05b")[::-1], 2) for k in range(32)]
    v = a[:, order].transpose(1, 2, 0).copy()
    half = 1
    while half < 32:
        for k in range(16):
            low = (k & ~(half - 1)) * 2 + (k & (half - 1))
            (wr, wi), (xr, xi), y = w[(k & (half - 1)) * (16 // half)], v[low + half], v[low].copy()
            turned = np.stack([fma32(wr, xr, -mul32(wi, xi)), fma32(wr, xi, mul32(wi, xr))])
            v[low], v[low + half] = add32(y, turned), add32(y, -turned)
        half *= 2
    buffers = {"a": a, "out": prefilled((32, n, 2), F32)}
    want = v.transpose(0, 2, 1)
    return Problem(
        buffers, launches("transform_fft32", ["a", "out"], n), lambda: {"out": want}, constants={"twiddle": w}
    )


def _walsh(rng: np.random.Generator) -> Problem:
    a = _normal(rng, 4, 512)
    v, half = a, 1
    while half < 512:
        x, y = v.reshape(4, -1, 2, half)[:, :, 0], v.reshape(4, -1, 2, half)[:, :, 1]
        v = np.stack([x + y, x - y], 2).reshape(4, 512)
        half *= 2
    launch = Launch("transform_walsh", (4, 1, 1), (256, 1, 1), ["a", "out", I32(a.size)])
    return Problem({"a": a, "out": prefilled(a.shape, F32)}, [launch], lambda: {"out": v})


def _image(kernel: str, image: Array, want: Array, constants: dict[str, Array]) -> Problem:
    height, width = image.shape
    args = ["in", "out", I32(width), I32(height)]
    launch = Launch(kernel, ((width + 31) // 32, (height + 3) // 4, 1), (32, 4, 1), args)
    buffers = {"in": image, "out": prefilled(image.shape, F32)}
    return Problem(buffers, [launch], lambda: {"out": want}, constants=constants)


def _filter(rng: np.random.Generator) -> Problem:
    image, weights = _normal(rng, 37, 71), _normal(rng, 25)
    padded = np.pad(image, 2, mode="edge")
    want = np.zeros_like(image)
    for k, weight in enumerate(weights):
        want = fma32(weight, padded[k // 5 : k // 5 + 37, k % 5 : k % 5 + 71], want)
    return _image("filter_5x5", image, want, {"weights": weights})


def _median(rng: np.random.Generator) -> Problem:
    image = _normal(rng, 30, 67)
    shifted = [np.roll(image, (-dy, -dx), (0, 1)) for dy in range(3) for dx in range(3)]
    return _image("filter_median", image, np.median(np.stack(shifted), axis=0).astype(F32), {})


def _sparse(rng: np.random.Generator) -> Problem:
    rows, columns = 70, 300
    lengths = rng.integers(0, 120, rows)
    lengths[3] = 0
    start = np.concatenate([[0], lengths.cumsum()]).astype(I32)
    column = rng.integers(0, columns, start[-1]).astype(I32)
    value, x = _normal(rng, int(start[-1])), _normal(rng, columns)
    want = np.zeros(rows)
    for row in range(rows):
        sums = np.zeros(32)
        for k in range(start[row], start[row + 1]):
            lane = (k - start[row]) % 32
            product = np.array([float(value[k]) * float(x[column[k]])])  # exact in double precision
            sums[lane] = sums[lane] + product[0]
        for step in (16, 8, 4, 2, 1):
            sums[:step] = sums[:step] + sums[step : 2 * step]
        want[row] = sums[0]
    buffers = {"start": start, "column": column, "value": value, "x": x, "out": prefilled(rows, F64)}
    launch = Launch("sparse_product", (18, 1, 1), (128, 1, 1), [*buffers, I32(rows)])
    return Problem(buffers, [launch], lambda: {"out": want})


def _transpose(rng: np.random.Generator) -> Problem:
    image = _normal(rng, 77, 130)
    launch = Launch("matrix_transpose", (5, 3, 1), (32, 8, 1), ["in", "out", I32(130), I32(77)])
    return Problem({"in": image, "out": prefilled((130, 77), F32)}, [launch], lambda: {"out": image.T.copy()})


def lu8(a: Array, b: Array) -> Rows:
    m, x = a.reshape(-1, 8, 8).transpose(1, 2, 0).copy(), b.T.copy()
    for k in range(8):
        pivot = div32(F32(1), m[k, k])
        for r in range(k + 1, 8):
            f = mul32(m[r, k], pivot)
            x[r] = fma32(-f, x[k], x[r])
            m[r, k + 1 :] = fma32(-f, m[k, k + 1 :], m[r, k + 1 :])
    for k in range(7, -1, -1):
        for c in range(k + 1, 8):
            x[k] = fma32(-m[k, c], x[c], x[k])
        x[k] = div32(x[k], m[k, k])
    return list(x)


def _rays(rng: np.random.Generator) -> Problem:
    n, count = 500, 20
    o, d = _normal(rng, n, 4), _normal(rng, n, 4)
    spheres = _normal(rng, count, 4) * F32(3)
    spheres[:, 3] = rng.uniform(0.3, 1.5, count)
    best, which = np.full(n, 1e30, F32), np.full(n, -1, I32)
    a = fma32(d[:, 0], d[:, 0], fma32(d[:, 1], d[:, 1], mul32(d[:, 2], d[:, 2])))
    for k, s in enumerate(spheres):
        x, y, z = (add32(o[:, j], -s[j]) for j in range(3))
        h = fma32(x, d[:, 0], fma32(y, d[:, 1], mul32(z, d[:, 2])))
        c = fma32(x, x, fma32(y, y, fma32(z, z, -mul32(s[3], s[3]))))
        q = fma32(h, h, -mul32(a, c))
        root = sqrt32(np.maximum(q, 0))
        t = div32(add32(-h, -root), a)
        t = np.where(t < F32(0.001), div32(add32(-h, root), a), t)
        closer = (q >= 0) & (t >= F32(0.001)) & (t < best)
        best, which = np.where(closer, t, best), np.where(closer, I32(k), which)
    buffers = {"origin": o, "direction": d, "spheres": spheres, "out": prefilled(n, F32), "hit": prefilled(n, I32)}
    args = ["origin", "direction", "spheres", I32(count), "out", "hit", I32(n)]
    launch = Launch("geometry_rays", (4, 1, 1), (128, 1, 1), args)
    return Problem(buffers, [launch], lambda: {"out": best, "hit": which})


def double_single(a: Array, b: Array) -> Rows:
    (xh, xl), (yh, yl) = a.T, b.T
    s = xh + yh
    v = s - xh
    e = (yh - v) + (xh - (s - v))
    e = e + (xl + yl)
    total = s + e
    p = xh * yh
    f = fma32(xl, yh, fma32(xh, yh, -p))
    f = fma32(xh, yl, f)
    product = p + f
    return [np.stack([total, e - (total - s)], 1), np.stack([product, f - (product - p)], 1)]


def _pairs(rng: np.random.Generator) -> list[Array]:
    high = _normal(rng, 2, 400) * np.exp2(rng.integers(-10, 10, (2, 400))).astype(F32)
    low = high * _normal(rng, 2, 400) * F32(2.0**-25)
    return [np.stack([high[k], low[k]], 1) for k in range(2)]


def _systems(rng: np.random.Generator) -> list[Array]:
    return [(_normal(rng, 64, 8, 8) + F32(6) * np.eye(8, dtype=F32)).reshape(64, 64), _normal(rng, 64, 8)]


SOURCE = "float_programs.cu"
CASES = [
    Case("transform_dct8", SOURCE, _dct),
    Case("transform_fft32", SOURCE, _fft),
    Case("transform_walsh", SOURCE, _walsh),
    Case("filter_5x5", SOURCE, _filter),
    Case("filter_median", SOURCE, _median),
    Case("sparse_product", SOURCE, _sparse),
    Case("matrix_transpose", SOURCE, _transpose),
    elementwise(SOURCE, "matrix_lu8", _systems, lu8, F32, block=64),
    Case("geometry_rays", SOURCE, _rays),
    elementwise(SOURCE, "double_single", _pairs, double_single, F32),
]
