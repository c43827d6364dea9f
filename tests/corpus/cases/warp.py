"""References of warp.cu, special.cu and barrier.cu."""

from __future__ import annotations

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, floats, integers, prefilled
from tests.corpus.cases.f32 import maximum
from tests.corpus.cases.int_arith import wrap
from tests.corpus.exact import add32
from tests.corpus.runner import Array, Case, Launch, Problem

I32, U32, I64 = np.int32, np.uint32, np.int64
LANES = np.arange(32)
ONE_BIT = np.left_shift(U32(1), LANES.astype(U32))


def shfl(mode: str, x: Array, b: Array | int, c: int) -> tuple[Array, Array]:
    """PTX `shfl`: (result, predicate) for values of shape (warps * 32,)."""
    values = x.reshape(-1, 32)
    amount = np.broadcast_to(b, x.shape).reshape(-1, 32) & 31
    clamp, segment = c & 31, c >> 8 & 31
    top = (LANES & segment) | (clamp & ~segment)
    lane = {
        "up": LANES - amount,
        "down": LANES + amount,
        "bfly": LANES ^ amount,
        "idx": (LANES & segment) | (amount & ~segment),
    }[mode]
    valid = lane >= top if mode == "up" else lane <= top
    source = np.where(valid, lane, LANES)
    return np.take_along_axis(values, source, 1).ravel(), valid.astype(I32).ravel()


def shuffles(x: Array, y: Array) -> Rows:
    def plain(mode: str, b: Array | int, width: int = 32) -> Array:
        return shfl(mode, x, b, (32 - width) << 8 | (0 if mode == "up" else 31))[0]

    lane = np.resize(LANES, x.shape)
    wide = x.astype(I64) * 1000003 + y
    far = shfl("bfly", wide, 21, 31)[0]
    return [
        plain("idx", y & 31),
        plain("idx", 5),
        plain("up", 3),
        plain("down", 7),
        plain("bfly", 16),
        plain("idx", y, 8),
        plain("up", 2, 16),
        plain("down", 1, 4),
        plain("bfly", 3, 8),
        plain("up", lane),
        plain("down", y & 15),
        *shfl("down", x, y & 31, 0x1F),
        *shfl("up", x, y & 31, 0),
        *shfl("bfly", x, 9, 0x180F),
        *shfl("idx", x, y & 31, 0x1807),
        wrap(far),
        wrap(far >> 32),
        shfl("down", x & I32(0x3FFFFFFF), 9, 31)[0],
    ]


def ballot(flags: Array) -> Array:
    """Per lane, the mask of the warp's lanes where the flag holds."""
    words = (flags.reshape(-1, 32) * ONE_BIT).sum(1, dtype=np.uint64).astype(U32)
    return np.repeat(words, 32)


def popcount(x: Array) -> Array:
    return np.bitwise_count(x).astype(U32)


def votes(x: Array, y: Array) -> Rows:
    full = U32(0xFFFFFFFF)
    side = (y & 2) != 0
    taken, other = ballot(side), ballot(~side)
    odd, below = ballot(x & 1 != 0), np.resize(ONE_BIT - U32(1), x.shape)
    negative = ballot(y < 0)
    fall = popcount(other) * U32(1000) + ((ballot(x == y) & other) != 0) + 2 * ((ballot(x != 0) & other) == other)
    rows = [
        odd,
        ballot(x > 0x70000000) != 0,
        ballot(x > -0x70000000) == full,
        (negative == 0) | (negative == full),
        popcount(ballot(x < y)),
        np.where(side, (ballot(x < 0) & taken) ^ (taken << U32(1)), fall),
        np.where(x & 1, popcount(odd & below), popcount(~odd & below)),
    ]
    return [row.astype(U32) for row in rows]


def reduce(x: Array, f: Array) -> tuple[Rows, Rows]:
    warps, top = x.reshape(-1, 32), f
    bits = x
    for step in (16, 8, 4, 2, 1):
        other = shfl("bfly", f, step, 31)[0]
        f, top = add32(f, other), maximum(top, shfl("bfly", top, step, 31)[0])
        bits = bits ^ shfl("down", bits, step, 31)[0]
    return [
        np.repeat(warps.sum(1, dtype=I32), 32),
        np.repeat(warps.min(1), 32),
        np.repeat(bits.reshape(-1, 32)[:, 0], 32),
        warps.cumsum(1, dtype=I32).ravel(),
    ], [f, top]


def sort(key: Array) -> Rows:
    order = np.argsort(key.reshape(-1, 32), axis=1, kind="stable") + np.arange(0, len(key), 32)[:, None]
    return [key[order.ravel()], order.ravel().astype(U32)]


def transpose_bits(rows: Array) -> Rows:
    matrix = (rows.reshape(-1, 32, 1) >> LANES.astype(U32)) & U32(1)
    return [(matrix * ONE_BIT[:, None]).sum(1, dtype=np.uint64).astype(U32).ravel()]


def _indices(rng: np.random.Generator) -> Problem:
    grid, block, shared = (3, 2, 2), (8, 4, 3), 512
    bz, by, bx, tz, ty, tx = np.indices((*grid[::-1], *block[::-1]))
    lane = ((tz * block[1] + ty) * block[0] + tx) % 32
    bit = np.left_shift(1, lane)
    full = 0xFFFFFFFF

    def packed(x: Array | int, y: Array | int, z: Array | int) -> Array:
        return np.broadcast_to(np.asarray(x | y << 8 | z << 16), lane.shape)

    rows = [
        packed(tx, ty, tz),
        packed(bx, by, bz),
        packed(*block),
        packed(*grid),
        lane,
        bit,
        bit - 1,
        2 * bit - 1,
        full - (2 * bit - 1),
        full - (bit - 1),
        np.full(lane.shape, 32),
        np.full(lane.shape, shared),
    ]
    want = np.stack([row.ravel() for row in rows]).astype(np.uint64).astype(U32).view(I32)
    launch = Launch("special_indices", grid, block, ["out", I32(lane.size)], shared)
    return Problem({"out": prefilled(want.shape, I32)}, [launch], lambda: {"out": want})


def clock(x: Array) -> Rows:
    value = x.copy()
    for _ in range(20):
        value = value * I32(1664525) + I32(1013904223)
    return [value, *[np.ones_like(x)] * 4]


def barrier_reduce(x: Array) -> Rows:
    blocks = x.reshape(-1, 128)
    lanes = np.arange(128) & 3
    totals = [
        (blocks > 0).sum(1),
        (blocks != 7).all(1),
        (blocks < -0x70000000).any(1),
        ((blocks & 3) == lanes).sum(1) * 2 + 1,
        (blocks > 100).sum(1),
    ]
    return [np.repeat(total, 128).astype(I32) for total in totals]


def _producer(rng: np.random.Generator) -> Problem:
    a = integers(rng, I32, 4 * 512)
    steps = a.reshape(4, 8, 64)
    want = (steps * I32(3) + np.arange(8, dtype=I32)[:, None])[:, :, ::-1].reshape(-1)
    launch = Launch("barrier_producer", (4, 1, 1), (128, 1, 1), ["a", "out", I32(len(a))])
    return Problem({"a": a, "out": prefilled(len(a), I32)}, [launch], lambda: {"out": want})


def barrier_pairs(x: Array) -> Rows:
    swapped = x.reshape(-1, 8, 32)[:, np.arange(8) ^ 1].reshape(-1, 256) + I32(1)
    return [swapped[:, ::-1].ravel()]


def _fence(rng: np.random.Generator) -> Problem:
    a = integers(rng, I32, 20 * 128 - 37)
    blocks = np.resize(np.concatenate([a, np.zeros(37, I32)]), (20, 128)).sum(1, dtype=I32)
    want = {"partial": blocks, "out": blocks.sum(dtype=I32)[None]}
    launch = Launch("barrier_fence", (20, 1, 1), (128, 1, 1), ["a", "partial", "out", I32(len(a))])
    return Problem({"a": a, "partial": prefilled(20, I32), "out": prefilled(1, I32)}, [launch], lambda: want)


def _two(rng: np.random.Generator) -> list[Array]:
    return [integers(rng, I32, 512), rng.permutation(integers(rng, I32, 512))]


def _reduce_inputs(rng: np.random.Generator) -> list[Array]:
    return [rng.permutation(integers(rng, I32, 512)), rng.permutation(floats(rng, 512, 3))]


def _keys(rng: np.random.Generator) -> list[Array]:
    return [rng.integers(0, 40, 384).astype(U32)]


CASES = [
    elementwise("warp.cu", "warp_shuffle", _two, shuffles, I32),
    elementwise("warp.cu", "warp_vote", _two, votes, U32),
    elementwise("warp.cu", "warp_reduce", _reduce_inputs, reduce, (I32, np.float32)),
    elementwise("warp.cu", "warp_sort", _keys, sort, U32),
    elementwise("warp.cu", "warp_transpose_bits", lambda rng: [integers(rng, U32, 384)], transpose_bits, U32),
    Case("special_indices", "special.cu", _indices),
    elementwise("special.cu", "special_clock", lambda rng: [integers(rng, I32, 256)], clock, I32),
    elementwise(
        "barrier.cu", "barrier_reduce", lambda rng: [rng.permutation(integers(rng, I32, 1024))], barrier_reduce, I32
    ),
    Case("barrier_producer", "barrier.cu", _producer),
    elementwise("barrier.cu", "barrier_pairs", lambda rng: [integers(rng, I32, 1024)], barrier_pairs, I32, block=256),
    Case("barrier_fence", "barrier.cu", _fence),
]
