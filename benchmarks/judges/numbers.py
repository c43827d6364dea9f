"""What numbers.cu is launched on."""

import binascii
from math import gcd, isqrt
from typing import Any

import numpy as np

from . import Array, Work, cover, floats, integers, line, program

_WORD = np.uint64(0xFFFFFFFF)


@program("numbers", sizes=((2048,), (8192,)), small=(256,))
def n_body(n: int) -> Work:
    b = floats(4 * n, 0)

    def expected() -> dict[str, Array]:
        p, m = b.reshape(n, 4)[:, :3].astype(np.float64), b.reshape(n, 4)[:, 3]
        d = p[None] - p[:, None]
        f = (d * (m[None] / ((d**2).sum(2) + 0.01) ** 1.5)[:, :, None]).sum(1)
        return {"force": np.pad(f, ((0, 0), (0, 1))).ravel()}

    return Work(*line(n // 128, 128), ("b", "force", np.int32(n)), {"b": b, "force": 0 * b}, expected)


@program("numbers", sizes=((512,), (1024,)), small=(64,))
def n_body_double(n: int) -> Work:
    b = floats(4 * n, 0, dtype=np.float64)

    def expected() -> dict[str, Array]:
        p, m = b.reshape(n, 4)[:, :3], b.reshape(n, 4)[:, 3]
        return {"f": (m[None] / (((p[None] - p[:, None]) ** 2).sum(2) + 0.01) ** 1.5).sum(1)}

    return Work(*line(n // 32, 32), ("b", "f", np.int32(n)), {"b": b, "f": np.zeros(n)}, expected, error=1e-13)


@program("numbers", sizes=((512, 200), (1024, 256)), small=(48, 50))
def mandelbrot(n: int, most: int) -> Work:
    step = 3 / n
    x0, y0 = np.float32(-2.0), np.float32(-1.5)

    def expected() -> dict[str, Array]:
        f = np.float32
        c = np.arange(n, dtype=f)

        def fma(a: Any, b: Any, d: Any) -> Array:
            return f(np.float64(a) * np.float64(b) + np.float64(d))

        cx, cy = np.meshgrid(fma(c, f(step), x0), fma(c, f(step), y0))
        u, v, k = 0 * cx, 0 * cx, np.zeros((n, n), np.int32)
        for _ in range(most):
            go = fma(u, u, v * v) < 4
            u, v = np.where(go, fma(u, u, -(v * v)) + cx, u), np.where(go, fma(2 * u, v, cy), v)
            k += go
        return {"count": k.ravel()}

    return Work(
        (n // 16, n // 16, 1),
        (16, 16, 1),
        ("count", np.int32(n), x0, y0, np.float32(step), np.int32(most)),
        {"count": np.zeros(n * n, np.int32)},
        expected,
        unlike=0.01,
    )


@program("numbers", sizes=((1 << 19,), (1 << 21,)), small=(500,))
def black_scholes(n: int) -> Work:
    s, x, t = floats(n, 5, 30), floats(n, 1, 100, 2), floats(n, 0.25, 10, 3)
    rate, vol = np.float32(0.02), np.float32(0.3)

    def expected() -> dict[str, Array]:
        p, q, y = s.astype(np.float64), x.astype(np.float64), t.astype(np.float64)
        d = (np.log(p / q) + (rate + 0.5 * vol**2) * y) / (vol * np.sqrt(y))
        c, e = _normal(d), _normal(d - vol * np.sqrt(y))
        later = q * np.exp(-rate * y)
        return {"call": p * c - later * e, "put": later * (1 - e) - p * (1 - c)}

    first = {"s": s, "x": x, "t": t, "call": 0 * s, "put": 0 * s}
    return Work(*cover(n, 128), ("s", "x", "t", "call", "put", rate, vol, np.int32(n)), first, expected, error=1e-4)


def _normal(d: Array) -> Array:
    k = 1 / (1 + 0.2316419 * abs(d))
    p = (
        0.39894228
        * np.exp(-0.5 * d * d)
        * k
        * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    )
    return np.where(d > 0, 1 - p, p)


def _xorshift(s: Array) -> Array:
    for shift in (13, -17, 5):
        s = s ^ (s << np.uint32(shift) if shift > 0 else s >> np.uint32(-shift))
    return s


@program("numbers", sizes=((1 << 16, 100), (1 << 18, 200)), small=(256, 20))
def monte_carlo(threads: int, draws: int) -> Work:
    def expected() -> dict[str, Array]:
        s, hits = np.arange(1, threads + 1, dtype=np.uint32) * np.uint32(0x9E3779B9), np.zeros(threads, np.uint32)
        for _ in range(draws):
            s = _xorshift(s)
            x, s = (s >> np.uint32(8)) * 2.0**-24, _xorshift(s)
            hits += x**2 + ((s >> np.uint32(8)) * 2.0**-24) ** 2 < 1
        return {"hits": hits}

    return Work(*cover(threads, 256), ("hits", np.int32(draws)), {"hits": np.zeros(threads, np.uint32)}, expected)


@program("numbers", sizes=((1 << 19,), (1 << 21,)), small=(300,))
def philox(n: int) -> Work:
    def expected() -> dict[str, Array]:
        x = np.arange(n, dtype=np.uint64)
        y, z, w = 0 * x, 0 * x + np.uint64(7), 0 * x
        k, m = 1234, 0xBB67AE85
        for _ in range(10):
            p, q = x * np.uint64(0xD2511F53), z * np.uint64(0xCD9E8D57)
            x, y, z, w = (
                q >> np.uint64(32) ^ y ^ np.uint64(k),
                q & _WORD,
                p >> np.uint64(32) ^ w ^ np.uint64(m),
                p & _WORD,
            )
            k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
        return {"out": np.stack([x, y, z, w], 1).astype(np.uint32)}

    return Work(*cover(n, 128), ("out", np.uint32(1234), np.int32(n)), {"out": np.zeros((n, 4), np.uint32)}, expected)


@program("numbers", sizes=((1 << 16, 20), (1 << 18, 40)), small=(256, 5))
def gauss_noise(threads: int, rounds: int) -> Work:
    def expected() -> dict[str, Array]:
        s = np.arange(threads, dtype=np.uint32) * np.uint32(747796405) + np.uint32(2891336453)
        total = np.zeros((threads, 2))
        for _ in range(rounds):
            s = _xorshift(s)
            u, s = ((s >> np.uint32(8)) + 1.0) * 2.0**-24, _xorshift(s)
            angle = 2 * np.pi * (s >> np.uint32(8)) * 2.0**-24
            total += (np.sqrt(-2 * np.log(u)) * np.array([np.sin(angle), np.cos(angle)])).T
        return {"out": total}

    return Work(
        *cover(threads, 128),
        ("out", np.int32(rounds)),
        {"out": np.zeros((threads, 2), np.float32)},
        expected,
        error=1e-4,
    )


def _rotate(x: Array, n: int) -> Array:
    return x << np.uint32(n) | x >> np.uint32(32 - n)


@program("numbers", sizes=((1 << 19,), (1 << 21,)), small=(500,))
def murmur(n: int) -> Work:
    key = integers(4 * n, 0, 1 << 32, dtype=np.uint32)

    def expected() -> dict[str, Array]:
        h, u = np.full(n, 42, np.uint32), np.uint32
        for k in range(4):
            mixed = _rotate(key[k::4] * u(0xCC9E2D51), 15) * u(0x1B873593)
            h = _rotate(h ^ mixed, 13) * u(5) + u(0xE6546B64)
        h = h ^ u(16)
        h = (h ^ h >> u(16)) * u(0x85EBCA6B)
        h = (h ^ h >> u(13)) * u(0xC2B2AE35)
        return {"hash": h ^ h >> u(16)}

    return Work(
        *line(min(1056, -(-n // 256)), 256),
        ("key", "hash", np.int32(n)),
        {"key": key, "hash": np.zeros(n, np.uint32)},
        expected,
    )


def _primes() -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < 64:
        if all(n % p for p in found):
            found.append(n)
        n += 1
    return found


def _cube_root(n: int) -> int:
    x = round(n ** (1 / 3))
    while x**3 > n:
        x -= 1
    while (x + 1) ** 3 <= n:
        x += 1
    return x


@program("numbers", sizes=((1 << 16,), (1 << 18,)), small=(256,))
def sha256(n: int) -> Work:
    message = integers(16 * n, 0, 1 << 32, dtype=np.uint32)
    constants = np.array([_cube_root(p << 96) & 0xFFFFFFFF for p in _primes()], np.uint32)

    def expected() -> dict[str, Array]:
        """The digest before padding, which hashlib does not give."""
        w, s = list(message.reshape(16, n)), [np.full(n, isqrt(p << 64) & 0xFFFFFFFF, np.uint32) for p in _primes()[:8]]
        a, b, c, d, e, f, g, h = s
        for r in range(64):
            if r >= 16:
                p, q = w[r - 15], w[r - 2]
                w.append(
                    w[r - 16]
                    + (_rotate(p, 25) ^ _rotate(p, 14) ^ p >> np.uint32(3))
                    + w[r - 7]
                    + (_rotate(q, 15) ^ _rotate(q, 13) ^ q >> np.uint32(10))
                )
            t = h + (_rotate(e, 26) ^ _rotate(e, 21) ^ _rotate(e, 7)) + (e & f ^ ~e & g) + constants[r] + w[r]
            u = (_rotate(a, 30) ^ _rotate(a, 19) ^ _rotate(a, 10)) + (a & b ^ a & c ^ b & c)
            a, b, c, d, e, f, g, h = t + u, a, b, c, d + t, e, f, g
        return {"digest": np.concatenate([x + y for x, y in zip(s, (a, b, c, d, e, f, g, h), strict=True)])}

    first = {"message": message, "constants": constants, "digest": np.zeros(8 * n, np.uint32)}
    return Work(*line(n // 128, 128), ("message", "constants", "digest", np.int32(n)), first, expected)


@program("numbers", sizes=((1 << 16,), (1 << 18,)), small=(256,))
def crc_table(n: int) -> Work:
    text = integers(16 * n, 0, 1 << 32, dtype=np.uint32)
    return Work(
        *line(n // 256, 256),
        ("text", "crc", np.int32(n)),
        {"text": text, "crc": np.zeros(n, np.uint32)},
        lambda: {"crc": np.array([binascii.crc32(row.tobytes()) for row in text.reshape(16, n).T], np.uint32)},
    )


@program("numbers", sizes=((1 << 15, 300), (1 << 17, 1000)), small=(256, 100))
def collatz(threads: int, most: int) -> Work:
    def expected() -> dict[str, Array]:
        v, steps = np.arange(threads, dtype=np.uint64) + np.uint64(1000), np.zeros(threads, np.uint32)
        for _ in range(most):
            go = v != 1
            v = np.where(go, np.where(v & np.uint64(1), 3 * v + np.uint64(1), v >> np.uint64(1)), v)
            steps += go
        return {"steps": steps}

    return Work(
        *cover(threads, 128),
        ("steps", np.uint32(1000), np.int32(most)),
        {"steps": np.zeros(threads, np.uint32)},
        expected,
    )


@program("numbers", sizes=((1 << 16,), (1 << 18,)), small=(300,))
def greatest_divisor(n: int) -> Work:
    a, b = integers(n, 1, 1 << 31, dtype=np.uint32), integers(n, 1, 1 << 31, 2, np.uint32)
    return Work(
        *cover(n, 128),
        ("a", "b", "c", np.int32(n)),
        {"a": a, "b": b, "c": 0 * a},
        lambda: {"c": np.array([gcd(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.uint32)},
    )


@program("numbers", sizes=((1 << 14, 65537), (1 << 16, 65537)), small=(256, 1001))
def power_modulo(n: int, exponent: int) -> Work:
    b, m = integers(n, 1, 1 << 31, dtype=np.uint32), integers(n, 1 << 20, 1 << 32, 2, np.uint32)
    return Work(
        *cover(n, 128),
        ("b", "m", "r", np.uint32(exponent)),
        {"b": b, "m": m, "r": 0 * b},
        lambda: {"r": np.array([pow(x, exponent, y) for x, y in zip(b.tolist(), m.tolist(), strict=True)], np.uint32)},
    )


@program("numbers", sizes=((1 << 16,), (1 << 18,)), small=(128,))
def long_product(n: int) -> Work:
    a, b = integers(8 * n, 0, 1 << 32, dtype=np.uint32), integers(8 * n, 0, 1 << 32, 2, np.uint32)

    def expected() -> dict[str, Array]:
        x, y = (v.reshape(8, n).astype(object) for v in (a, b))
        product = sum(x[k] << 32 * k for k in range(8)) * sum(y[k] << 32 * k for k in range(8))
        return {"c": np.concatenate([(product >> 32 * k & 0xFFFFFFFF).astype(np.uint32) for k in range(16)])}

    return Work(
        *line(n // 128, 128), ("a", "b", "c", np.int32(n)), {"a": a, "b": b, "c": np.zeros(16 * n, np.uint32)}, expected
    )


@program("numbers", sizes=((264,), (1056,)), small=(2,))
def hamming(blocks: int) -> Work:
    code = integers(blocks * 1024, 0, 1 << 32, dtype=np.uint32)
    book = integers(1024, 0, 1 << 32, 2, np.uint32)
    return Work(
        *line(blocks, 256),
        ("code", "book", "nearest"),
        {"code": code, "book": book, "nearest": np.zeros(blocks * 256, np.int32)},
        lambda: {
            "nearest": np.bitwise_count(code.reshape(-1, 1, 4) ^ book.reshape(1, 256, 4))
            .sum(2)
            .argmin(1)
            .astype(np.int32)
        },
    )


@program("numbers", sizes=((18,), (20,)), small=(9,))
def bit_reverse(bits: int) -> Work:
    x = floats(2 << bits).view(np.complex64)
    places = np.array([int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]) if bits < 12 else None
    return Work(
        *line(1 << bits - 8 if bits > 8 else 1, 256),
        ("x", "y", np.int32(bits)),
        {"x": x, "y": 0 * x},
        lambda: {"y": x[places]},
    )
