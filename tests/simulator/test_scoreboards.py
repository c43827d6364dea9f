"""How many operations a scoreboard still counts: what the compiled model says, against sorted ends."""

import numpy as np
import pytest

from maxdnn.simulator import columns as c
from maxdnn.simulator import scoreboards
from maxdnn.simulator.jit import compiled, pointer


@compiled
def left(X, what, ready):
    return scoreboards.few_left(pointer(X), c.HEAD, what, ready)


@pytest.mark.parametrize("spread", [3, 40, 1000])
def test_few_left_is_the_end_that_so_many_later_ones_follow(spread):
    rng = np.random.default_rng(spread)
    X = np.zeros(c.HEAD + c.W_SIZE + 6 * c.COUNT_SIZE, np.int64)
    X[c.T_COUNT] = c.HEAD + c.W_SIZE
    for _ in range(500):
        board, count, unknown = int(rng.integers(6)), int(rng.integers(2 * c.RING)), int(rng.integers(3))
        ring = X[X[c.T_COUNT] + board * c.COUNT_SIZE:][:c.COUNT_SIZE]
        ring[0], ring[1:] = count, rng.integers(1, 1 + spread, c.RING)
        kept = min(count, c.RING)
        ring[1:1 + kept][rng.permutation(kept)[:unknown]] = c.NEVER
        ends = np.sort(ring[1:1 + kept][ring[1:1 + kept] < c.NEVER])[::-1]
        most, ready = int(rng.integers(c.RING)), int(rng.integers(spread + 2))
        there = int(ends[most]) if most < len(ends) else 0
        assert left(X, most * 8 + board, ready) == max(there, ready)
