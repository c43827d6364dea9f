"""References of integer_programs.cu: the standard library's hashes and checksums, Python integers, NumPy."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, integers, prefilled
from tests.corpus.cases.int_arith import I32, U32, U64
from tests.corpus.cases.memory import launches
from tests.corpus.runner import Array, Case, Launch, Problem


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found):
            found.append(candidate)
        candidate += 1
    return found


def _root_bits(prime: int, root: int) -> int:
    """The first 32 bits of the fraction of a prime's square or cube root (FIPS 180-4)."""
    scaled, low, high = prime << 32 * root, 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= scaled else (low, middle)
    return low & 0xFFFFFFFF


def _sha256(rng: np.random.Generator) -> Problem:
    """Messages of 40 bytes, padded to one block; the oracle is hashlib."""
    n = 160
    messages = [rng.bytes(40) for _ in range(n)]
    blocks = b"".join(m + b"\x80" + bytes(15) + (320).to_bytes(8, "big") for m in messages)
    want = np.frombuffer(b"".join(hashlib.sha256(m).digest() for m in messages), ">u4").astype(U32).reshape(n, 8).T
    initial = np.array([_root_bits(p, 2) for p in _primes(8)], U32)
    constants = {"sha_k": np.array([_root_bits(p, 3) for p in _primes(64)], U32)}
    buffers = {"a": np.frombuffer(blocks, U32).copy(), "initial": initial, "out": prefilled((8, n), U32)}
    return Problem(buffers, launches("hash_sha256", list(buffers), n), lambda: {"out": want}, constants=constants)


def _chacha(rng: np.random.Generator) -> Problem:
    """ChaCha20 block function (RFC 8439, section 2.3)."""
    n = 200
    state = np.concatenate([np.frombuffer(b"expand 32-byte k", U32), integers(rng, U32, 12)])
    y = np.repeat(state[:, None], n, 1)
    y[12] += np.arange(n, dtype=U32)
    x = y.copy()

    def mix(into: int, add: int, turn: int, by: int) -> None:
        x[into] += x[add]
        x[turn] ^= x[into]
        x[turn] = x[turn] << U32(by) | x[turn] >> U32(32 - by)

    for _ in range(10):
        for a, b, c, d in [(k, 4 + k, 8 + k, 12 + k) for k in range(4)] + [
            (k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4) for k in range(4)
        ]:
            mix(a, b, d, 16)
            mix(c, d, b, 12)
            mix(a, b, d, 8)
            mix(c, d, b, 7)
    buffers = {"state": state, "out": prefilled((16, n), U32)}
    return Problem(buffers, launches("cipher_chacha", list(buffers), n), lambda: {"out": x + y})


def random_numbers(s: Array) -> Rows:
    x = s | U64(1)
    for _ in range(4):
        x = x ^ x >> U64(12)
        x = x ^ x << U64(25)
        x = x ^ x >> U64(27)
    star = x * U64(2685821657736338717) >> U64(32)
    p = s * U64(6364136223846793005) + U64(1442695040888963407)
    shifted, rotation = ((p >> U64(18) ^ p) >> U64(27)).astype(U32), (p >> U64(59)).astype(U32)
    pcg = shifted >> rotation | shifted << (-rotation.astype(I32) & 31).astype(U32)
    z = s + U64(0x9E3779B97F4A7C15)
    z = (z ^ z >> U64(30)) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> U64(27)) * U64(0x94D049BB133111EB)
    z = z ^ z >> U64(31)
    low, high = U64(0xFFFFFFFF), U64(32)
    c = [s & low, s >> high, np.arange(len(s)).astype(U64), np.full(len(s), 7, U64)]
    k = [0xDEADBEEF, 0x12345678]
    for _ in range(10):
        first, second = c[0] * U64(0xD2511F53), c[2] * U64(0xCD9E8D57)
        c = [second >> high ^ c[1] ^ U64(k[0]), second & low, first >> high ^ c[3] ^ U64(k[1]), first & low]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return [v.astype(U32) for v in (star, pcg, z, z >> high, *c)]


def _crc32(rng: np.random.Generator) -> Problem:
    n = 200
    rows = [rng.bytes(32) for _ in range(n)]
    table = []
    for value in range(16):
        for _ in range(4):
            value = value >> 1 ^ 0xEDB88320 if value & 1 else value >> 1
        table.append(value)
    crc = [zlib.crc32(row) for row in rows]
    want = np.array([crc, crc, [zlib.adler32(row) for row in rows]], U32)
    buffers = {"a": np.frombuffer(b"".join(rows), np.uint8).copy(), "out": prefilled((3, n), U32)}
    constants = {"crc_table": np.array(table, U32)}
    return Problem(buffers, launches("checksum_crc32", list(buffers), n), lambda: {"out": want}, constants=constants)


def long_multiply(a: Array, b: Array) -> Rows:
    limit = 1 << 256

    def thread(x: int, y: int) -> bytes:
        product = x * y
        folded = (product >> 256) * 38 + product % limit
        again = (folded >> 256) * 38 + folded % limit
        low = (again + (again >> 256) * 38) & 0xFFFFFFFF
        return ((again % limit & ~0xFFFFFFFF) | low).to_bytes(32, "little")

    x, y = ([int.from_bytes(row.tobytes(), "little") for row in v] for v in (a, b))
    return list(np.frombuffer(b"".join(map(thread, x, y)), U32).reshape(-1, 8).T)


def _bitonic(rng: np.random.Generator) -> Problem:
    a = integers(rng, I32, 3072)
    launch = Launch("sort_bitonic", (3, 1, 1), (256, 1, 1), ["a", "out", I32(len(a))], shared_bytes=4096)
    want = np.sort(a.reshape(3, 1024), axis=1).ravel()
    return Problem({"a": a, "out": prefilled(len(a), I32)}, [launch], lambda: {"out": want})


def edit_distance(a: Array, b: Array) -> Rows:
    row = np.repeat(np.arange(25)[:, None], len(a), 1)
    for p in range(1, 25):
        previous = row.copy()
        row[0] = p
        for q in range(1, 25):
            changed = previous[q - 1] + (a[:, p - 1] != b[:, q - 1])
            row[q] = np.minimum(np.minimum(previous[q], row[q - 1]) + 1, changed)
    return [row[24].astype(I32)]


def _table(rng: np.random.Generator) -> Problem:
    n, mask = 600, U32(1023)
    keys = rng.choice(5000, 2 * n, replace=False).astype(U32)
    asked = rng.permutation(keys)[:n]
    place = {int(key): i for i, key in enumerate(keys[:n])}
    want = np.array([place.get(int(key), 0xFFFFFFFF) for key in asked], U32)
    buffers = {"keys": keys[:n], "asked": asked, "table": np.full(1024, 2**64 - 1, U64), "out": prefilled(n, U32)}
    both = launches("table_insert", ["keys", "table", mask], n) + launches(
        "table_lookup", ["asked", "table", "out", mask], n
    )
    return Problem(buffers, both, lambda: {"out": want}, scratch=frozenset({"table"}))


def _life(rng: np.random.Generator) -> Problem:
    words, height = 5, 60
    grid = rng.integers(0, 2**32, (height, words)).astype(U32)
    grid[:20] &= rng.integers(0, 2**32, (20, words)).astype(U32)
    cells = np.unpackbits(grid.view(np.uint8), axis=1, bitorder="little").astype(int)
    near = sum(np.roll(cells, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - cells
    alive = ((near == 3) | ((cells == 1) & (near == 2))).astype(np.uint8)
    want = np.packbits(alive, axis=1, bitorder="little").view(U32)
    args = ["in", "out", I32(words), I32(height)]
    launch = Launch("life_step", (1, 8, 1), (8, 8, 1), args)
    return Problem({"in": grid, "out": prefilled(grid.shape, U32)}, [launch], lambda: {"out": want})


def _compact(rng: np.random.Generator) -> Problem:
    n = 640
    a = (rng.permutation(4 * n)[:n] - 2 * n).astype(I32)
    kept = np.sort(a[a > 0])
    want = np.full(n, -1, I32)
    want[: len(kept)] = kept
    buffers = {"a": a, "kept": np.zeros(n, I32), "out": np.full(n, -1, I32), "count": np.zeros(1, U32)}
    steps = [
        *launches("compact_positive", ["a", "kept", "count"], n),
        Launch("compact_rank", (n // 128, 1, 1), (128, 1, 1), ["kept", "out", "count"]),
    ]
    expected = {"out": want, "count": np.array([len(kept)], U32)}
    return Problem(buffers, steps, lambda: expected, scratch=frozenset({"kept"}))


def _limbs(rng: np.random.Generator) -> list[Array]:
    a, b = (rng.integers(0, 2**32, (128, 8)).astype(U32) for _ in range(2))
    a[:4], b[:2], b[2], a[5] = 0xFFFFFFFF, 0xFFFFFFFF, 0, 1
    return [a, b]


def _words(rng: np.random.Generator) -> list[Array]:
    a = rng.integers(97, 101, (96, 24)).astype(np.int8)
    b = np.where(rng.random(a.shape) < 0.7, np.roll(a, 1, axis=1), rng.integers(97, 101, a.shape)).astype(np.int8)
    return [a, b]


SOURCE = "integer_programs.cu"
CASES = [
    Case("hash_sha256", SOURCE, _sha256),
    Case("cipher_chacha", SOURCE, _chacha),
    elementwise(SOURCE, "random_numbers", lambda rng: [integers(rng, U64, 300)], random_numbers, U32),
    Case("checksum_crc32", SOURCE, _crc32),
    elementwise(SOURCE, "long_multiply", _limbs, long_multiply, U32),
    Case("sort_bitonic", SOURCE, _bitonic),
    elementwise(SOURCE, "distance_edit", _words, edit_distance, I32),
    Case("table_insert_lookup", SOURCE, _table),
    Case("life_step", SOURCE, _life),
    Case("compact_positive", SOURCE, _compact),
]
