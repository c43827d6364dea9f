"""References of memory.cu, texture.cu and texref.ptx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.corpus.cases._values import Rows, doubles, elementwise, floats, integers, prefilled
from tests.corpus.cases.control import per_thread, s32, u32
from tests.corpus.cases.int_arith import wrap
from tests.corpus.exact import add32, fma32, mul32
from tests.corpus.runner import ANY_NAN, Argument, Array, Case, Launch, Object1D, Problem

I8, U8, I16, U16, I32, U32, I64 = np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64
F32, F64 = np.float32, np.float64


def launches(kernel: str, args: Sequence[Argument], n: int, block: int = 128) -> list[Launch]:
    return [Launch(kernel, ((n + block - 1) // block, 1, 1), (block, 1, 1), [*args, I32(n)])]


def _vector(rng: np.random.Generator) -> Problem:
    n = 300
    a, b = integers(rng, I32, 2 * n).reshape(n, 2), integers(rng, I32, 4 * n).reshape(n, 4)
    c = doubles(rng, 2 * n).reshape(n, 2)
    y, z, product = b, c, a.astype(I64) * b[:, :2]
    sums = np.stack([y[:, 0] + a[:, 0], y[:, 1] - a[:, 1], y[:, 2] ^ a[:, 0], y[:, 3] | a[:, 1]], 1)
    pairs = np.concatenate([np.stack([y[:, 0], a[:, 0]], 1), a])
    out = [np.stack([a[:, 1], a[:, 0], y[:, 3], y[:, 2]], 1), sums, pairs.reshape(n, 4), product.view(I32)]
    buffers = {"a": a, "b": b, "c": c, "out": prefilled((4, n, 4), I32), "wide": prefilled((n, 2), F64)}
    want = {"out": np.stack(out), "wide": np.stack([z[:, 1], -z[:, 0]], 1)}
    args = ["a", "b", "c", "out", "wide"]
    return Problem(buffers, launches("memory_vector", args, n), lambda: want, {"wide": ANY_NAN})


def _narrow(rng: np.random.Generator) -> Problem:
    n = 400
    a, b, c, d = (integers(rng, kind, n) for kind in (I8, U8, I16, U16))
    wa, wb, wc, wd = (v.astype(I32) for v in (a, b, c, d))
    quad = np.repeat((wa.reshape(-1, 4) * [1, 2, 3, 4]).sum(1), 4)
    pair = np.repeat(wd[0::2] * 3 + wd[1::2], 2)
    rows = np.stack([wa + wb, wa * wc, wb * wd - wc, quad, pair]).astype(I32)
    tail = np.stack([b >> U8(1), b << U8(1)], 1).ravel()
    bytes_ = np.concatenate([wrap(wa ^ wd, U8), a[::-1].view(U8), tail])
    buffers = {"a": a, "b": b, "c": c, "d": d, "out": prefilled((5, n), I32), "bytes": prefilled(4 * n, U8),
               "halves": prefilled(n, U16)}  # fmt: skip
    want = {"out": rows, "bytes": bytes_, "halves": wrap(wc + wb, U16)}
    return Problem(buffers, launches("memory_narrow", list(buffers), n), lambda: want)


def _hints(rng: np.random.Generator) -> Problem:
    n = 400
    a = integers(rng, I32, n)
    index = np.arange(n)
    quads, pairs = a.reshape(-1, 4), a.reshape(-1, 2)
    narrow = sum(a.view(kind)[:n].astype(I32) for kind in (I8, U8, I16, U16))
    rows: list[Any] = [
        a + np.repeat(quads[:, 0] + quads[:, 3], 4),
        np.repeat(pairs[:, 0] ^ pairs[:, 1], 2),
        a[::-1],
        a[index ^ 1],
        a[index ^ 2],
        a[index ^ 3],
        a * I32(2),
        a * I32(3),
        a * I32(5),
        a * I32(7),
        a + I32(1),
        narrow,
        np.where(a >= 0, a[a.view(U32) % n], -1),
    ]
    buffers = {"a": a, "out": prefilled((13, n), I32), "scratch": prefilled(n, I32)}
    want = {"out": np.stack(rows).astype(I32), "scratch": a + I32(1)}
    return Problem(buffers, launches("memory_hints", ["a", "out", "scratch"], n), lambda: want)


def _generic(rng: np.random.Generator) -> Problem:
    n = 400
    a = rng.permutation(integers(rng, I32, n))
    out = np.zeros((3, n), I32)
    for i in range(n):
        local = np.empty(8, I32)
        for k in range(8):
            local[(k + i) & 7] = s32(int(a[k]) - i)
        p = [a[:8], a[:8] + I32(100), local, a[8:16]][i % 4]
        k = int(a[i])
        out[0, i] = s32(int(p[k & 7]) * 3 + int(p[(k + 1) & 7]))
        out[1, i] = [4, 2, 1, 4][i % 4]
        out[2, i] = 78 if i & 1 else 77
    buffers = {"a": a, "out": prefilled((3, n), I32)}
    return Problem(buffers, launches("memory_generic", ["a", "out"], n), lambda: {"out": out})


PACKED = np.dtype({"names": ["tag", "small", "value", "wide"], "formats": [I8, I16, I32, F64], "offsets": [0, 2, 4, 8],
                   "itemsize": 16})  # fmt: skip


def _struct(rng: np.random.Generator) -> Problem:
    n = 200
    a, extra, want = np.zeros(n, PACKED), np.zeros(1, PACKED), np.zeros(n, PACKED)
    for array, size in ((a, n), (extra, 1)):
        array["tag"], array["small"] = integers(rng, I8, 40 + size)[-size:], integers(rng, I16, 40 + size)[-size:]
        array["value"], array["wide"] = integers(rng, I32, 40 + size)[-size:], rng.standard_normal(size)
    want["tag"] = a["tag"] + extra["tag"]
    want["small"] = a["small"] * extra["small"]
    want["value"] = a["value"] - extra["value"]
    want["wide"] = a["wide"] * extra["wide"]
    buffers = {"a": a.view(U8), "out": np.zeros(16 * n, U8)}
    return Problem(buffers, launches("memory_struct", ["a", "out", extra[0]], n), lambda: {"out": want.view(U8)})


def _globals(rng: np.random.Generator) -> Problem:
    n = 64
    a = integers(rng, I32, n)
    table = np.zeros(16, F32)
    table[:4] = [0.5, 1.5, -2.0, 3.25]
    table[4:] = a[:12] & 1023
    want = np.stack([I32(17) + a[0] + table.view(I32)[a & 15], a + I32(1)])
    both = launches("memory_globals_write", ["a", "out"], n) + launches("memory_globals_read", ["a", "out"], n)
    return Problem({"a": a, "out": prefilled((2, n), I32)}, both, lambda: {"out": want})


def local_dynamic(a: int, i: int) -> tuple[int, ...]:
    table = [u32(k * 0x9E3779B9) ^ a for k in range(32)]
    x = a
    for k in range(64):
        j, t = x & 31, table[x & 31]
        table[j] = u32(t * 5 + k)
        x = u32(x >> 5 | x << 27) ^ t
    data, halves, wide = [0] * 64, [0] * 32, [0.0] * 4
    for k in range(64):
        data[k ^ (x & 63)] = (x >> (k & 7)) + k & 255
    for k in range(32):
        halves[(k + x) & 31] = (x * k + 2**15 & 0xFFFF) - 2**15
    for k in range(4):
        wide[(k ^ x) & 3] = k * 3 + 1
    return (
        x,
        table[x & 31] + table[x >> 5 & 31] * 2 + table[x >> 10 & 31] * 4,
        data[x >> 3 & 63] | data[x >> 9 & 63] << 8 | data[0] << 16,
        halves[x >> 7 & 31],
        int(wide[x >> 4 & 3]),
    )


def local_sort(a: Array) -> Rows:
    n = len(a)

    def thread(x: int, i: int) -> tuple[int, ...]:
        v = sorted(int(a[(i * 24 + k) % n]) for k in range(24))
        checksum = 0
        for value in v:
            checksum = s32(checksum * 31 + value)
        return checksum, 1, v[i % 24]

    return per_thread(thread, a)


def _constant(rng: np.random.Generator) -> Problem:
    n = 300
    a = rng.permutation(integers(rng, I32, n))
    constants = {
        "table32": integers(rng, I32, 64),
        "table8": integers(rng, I8, 64),
        "table16": integers(rng, U16, 32),
        "table64": rng.standard_normal(16),
        "table128": rng.standard_normal((8, 4)).astype(F32),
    }
    t32, t8, t16, t64, t128 = constants.values()
    filled = np.array([1, 0.5, 0.25, -3, 1e10, 7], F32)
    x = a.view(U32)
    index = np.arange(n)
    total = np.zeros(n, I32)
    for k in range(64):
        total = total * I32(3) + t32[k] * a
    v = t128[x >> 2 & 7]
    rows = [
        t32[x & 63] + t32[5],
        t8[x >> 6 & 63].astype(I32),
        t16[x >> 12 & 31].astype(I32) * I32(3),
        t32[index // 128] * t32[index % 128 & 63],
        total,
    ]
    single = [
        add32(add32(v[:, 0], v[:, 1]), add32(v[:, 2], v[:, 3])),
        fma32(filled[x % 6], filled[1], filled[4]),
        mul32(t128[2, 1], a.astype(F32)),
    ]
    want = {"out": np.stack(rows), "single": np.stack(single), "wide": t64[x & 15] + t64[3]}
    buffers = {"a": a, "out": prefilled((5, n), I32), "single": prefilled((3, n), F32), "wide": prefilled(n, F64)}
    return Problem(buffers, launches("constant_read", list(buffers), n), lambda: want, constants=constants)


# --------------------------------------------------------------------------------------------------------- textures


def fetch(texels: Array, index: Array) -> Array:
    """Texel rows; zero outside."""
    inside = (index >= 0) & (index < len(texels))
    rows = texels[np.where(inside, index, 0)]
    return np.where(inside.reshape(-1, *[1] * (texels.ndim - 1)), rows, F32(0)).astype(F32)


def _texels(rng: np.random.Generator, count: int) -> Array:
    values = floats(rng, 4 * count)
    return np.where(np.isnan(values), F32(2.5), values).reshape(count, 4)


def _indices(rng: np.random.Generator, count: int, n: int) -> Array:
    index = rng.integers(0, count, n)
    index[:8] = [0, count - 1, count, count + 1, -1, -100, 2**27, -(2**31)]
    return index.astype(I32)


def _fetch4(rng: np.random.Generator) -> Problem:
    texels, n = _texels(rng, 333), 256
    index = _indices(rng, 333, n)
    v, w = fetch(texels, index), fetch(texels, np.arange(n))
    mixed = np.stack([add32(v[:, 0], w[:, 3]), mul32(v[:, 1], w[:, 2]), v[:, 2], w[:, 0]], 1)
    buffers = {"texels": texels, "index": index, "out": prefilled((2, n, 4), F32)}
    args: list[Argument] = [Object1D("texels"), "index", "out"]
    return Problem(buffers, launches("texture_fetch4", args, n), lambda: {"out": np.stack([v, mixed])})


def _fetch1(rng: np.random.Generator) -> Problem:
    texels, n = rng.standard_normal(500).astype(F32), 256
    index = rng.integers(-10, 510, n).astype(I32)
    total = np.zeros(n, F32)
    for k in range(8):
        total = fma32(fetch(texels, index + k), F32(k + 1), total)
    want = np.stack([total, fetch(texels, np.arange(n))])
    buffers = {"texels": texels, "index": index, "out": prefilled((2, n), F32)}
    args: list[Argument] = [Object1D("texels", 1), "index", "out"]
    return Problem(buffers, launches("texture_fetch1", args, n), lambda: {"out": want})


def _components(rng: np.random.Generator) -> Problem:
    texels, n = _texels(rng, 200), 256
    index = rng.integers(-10, 205, n).astype(I32)
    x, y, v, w, u, t = (fetch(texels, index + k) for k in range(6))
    rows = [
        x[:, 0],
        y[:, 1],
        v[:, 2],
        v[:, 3],
        add32(w[:, 0], w[:, 2]),
        add32(w[:, 1], w[:, 3]),
        add32(add32(u[:, 0], u[:, 1]), u[:, 2]),
        add32(t[:, 0], t[:, 3]),
    ]
    buffers = {"texels": texels, "index": index, "out": prefilled((8, n), F32)}
    args: list[Argument] = [Object1D("texels"), "index", "out"]
    return Problem(buffers, launches("texture_components", args, n), lambda: {"out": np.stack(rows)})


def _references(rng: np.random.Generator) -> Problem:
    maps, filters, n = _texels(rng, 333), _texels(rng, 222), 256
    index = _indices(rng, 222, n)
    i = np.arange(n)
    first = add32(fetch(maps, index), fetch(filters, i))
    second = np.concatenate([fetch(maps, i)[:, :1], fetch(filters, index)[:, 1:]], 1)
    buffers = {"maps": maps, "filters": filters, "index": index, "out": prefilled((2, n, 4), F32)}
    textures = {"maps": "maps", "filters": "filters"}
    return Problem(
        buffers,
        launches("texref_two", ["index", "out"], n),
        lambda: {"out": np.stack([first, second])},
        textures=textures,
    )


def _random32(rng: np.random.Generator) -> list[Array]:
    return [integers(rng, U32, 200)]


CASES = [
    Case("memory_vector", "memory.cu", _vector),
    Case("memory_narrow", "memory.cu", _narrow),
    Case("memory_hints", "memory.cu", _hints),
    Case("memory_generic", "memory.cu", _generic),
    Case("memory_struct", "memory.cu", _struct),
    Case("memory_globals", "memory.cu", _globals),
    elementwise("memory.cu", "local_dynamic", _random32, lambda a: per_thread(local_dynamic, a), U32),
    elementwise("memory.cu", "local_sort", lambda rng: [integers(rng, I32, 150)], local_sort, I32),
    Case("constant_read", "memory.cu", _constant),
    Case("texture_fetch4", "texture.cu", _fetch4),
    Case("texture_fetch1", "texture.cu", _fetch1),
    Case("texture_components", "texture.cu", _components),
    Case("texref_two", "texref.ptx", _references),
]
