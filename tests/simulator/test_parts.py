"""The two parts of L2 of sm_90: what lines of the other part an SM's own part has copies of."""

from itertools import pairwise

import numpy as np
import pytest
from launched import launched

from maxdnn.simulator import columns as c
from maxdnn.simulator.jit import compiled, pointer
from maxdnn.simulator.l2 import l2_replaced, l2_set
from maxdnn.simulator.parts import l2_near, other_part

SMS, SETS, GPC = 132, 1000, 17


@pytest.fixture
def image():
    """The head of the image of a launch whose SMs have a block at a time."""
    X = np.zeros(c.HEAD, np.int64)
    for cell, value in {c.P_L2_COPY_TICKS: 1, c.P_L2WAYS: 16, c.P_L2SETS: SETS, c.P_L2INVERSE: (1 << 32) // SETS,
                        c.P_SMS: 1, c.P_MIRROR: SMS - 1, c.P_BLOCK_SLOTS: 1, c.T_L2: c.HEAD}.items():
        X[cell] = value
    return X


def own(image, line, blocks):
    """Of blocks which ones' SMs are near to the part that has a line."""
    return [bool(l2_near(image, l2_set(image, line), block) == l2_set(image, line)) for block in blocks]


def test_half_of_the_sms_are_near_to_a_line(image):
    """First blocks are so at every launch, later ones by chance."""
    first, later, seen = range(SMS), range(SMS, 8 * SMS), []
    alike = own(image, 7, first)
    assert abs(sum(alike) - SMS / 2) <= GPC / 2 and own(image, 8, first) == [not near for near in alike]
    for seed in (1, 2):
        image[c.C_SEED] = seed
        assert own(image, 7, first) == alike
        seen.append(own(image, 7, later))
    assert all(0.4 < np.mean(near) < 0.6 for near in (*seen, np.equal(*seen)))


def test_sms_of_a_gpc_are_near_to_the_same_part(image):
    near = own(image, 7, range(SMS))
    changes = [block for block in range(1, SMS) if near[block] != near[block - 1]]
    assert len(changes) == 7 and all(b - a in (GPC - 1, GPC) for a, b in pairwise(changes))


def test_a_set_and_that_of_its_copies_are_side_by_side(image):
    home = l2_set(image, 7)
    other = other_part(image, home)
    assert abs(other - home) == 16 * c.SECTORED and other_part(image, other) == home
    assert {l2_near(image, home, block) for block in range(SMS)} == {home, other}


def test_without_a_block_or_parts_a_line_has_its_own_set_alone(image):
    assert own(image, 7, [-1] * 2) == [True] * 2
    image[c.P_L2_COPY_TICKS] = 0
    assert all(own(image, 7, range(SMS)))


@compiled
def replaced(X, base, oldest):
    return l2_replaced(pointer(X), base, 7, oldest, 50)


@pytest.mark.parametrize(("dirty", "way", "left"), [
    ((), 2, ()), ((0,), 2, (0,)), ((2,), 3, ()), ((2, 3), 0, (3,)), ((0, 1, 2, 3), 2, (0, 1, 2, 3)),
])
def test_of_a_set_the_least_recently_used_clean_line_is_replaced(dirty, way, left):
    """And a dirty one that was used less recently is written. Two words of 32 bits are in one cell."""
    ways, base = 4, 2 * c.HEAD
    X = np.zeros(c.HEAD + 32, np.int64)
    X[c.P_L2WAYS], X[c.C_WARMS] = ways, 1
    cells = X.view(np.int32)
    cells[base + ways:base + 2 * ways] = 30, 40, 10, 20
    cells[base + 2 * ways + np.array(dirty, int)] = 15
    assert replaced(X, base, 2) == way
    assert tuple(np.flatnonzero(cells[base + 2 * ways:base + 3 * ways])) == left


# MiB -> of loads behind five of their like how many MiB an H200 read from DRAM again.
READ_AGAIN = {32: 1.9, 36: 4.1, 40: 9.2, 44: 26.2, 48: 45.0}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mib", READ_AGAIN)
def test_copies_take_ways_of_lines(mib):
    """Of 60 MiB launches that load 40 need 40 for lines and up to 40 for copies."""
    name = f"launch of 1 loads and 0 stores of 16 bytes, {mib} MiB"
    read = launched(name, True, "h200", times=5).counters[c.C_DRAM_READ]
    assert read * 32 / (1 << 20) == pytest.approx(READ_AGAIN[mib], rel=0.3, abs=1)
