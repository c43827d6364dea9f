"""Lane addresses to shared-memory phases, cache lines and requests, against patterns known from measurements."""

import numpy as np
import pytest
from handmade import lanes

from maxdnn.sim.access import NO_LANE, cache_lines, constant_lines, global_requests, shared_phases

LANE = np.arange(32)


@pytest.mark.parametrize(("name", "addresses", "nbytes", "phases"), [
    ("one word each", 4 * LANE, 4, 1), ("all the same word", 0 * LANE, 4, 1), ("two-way", 8 * LANE, 4, 2),
    ("32-way", 128 * LANE, 4, 32), ("odd stride", 12 * LANE, 4, 1), ("64-bit in order", 8 * LANE, 8, 2),
    ("128-bit in order", 16 * LANE, 16, 4),
    ("pairs of lanes read the same 16 bytes", (LANE >> 1 & 7) * 16, 16, 2),
    ("SGEMM's other operand", ((LANE & 0x30) >> 3 | LANE & 1) * 16, 16, 2),
    ("the plain assignment", (LANE & 7) * 16, 16, 4)])
def test_phases_of_known_patterns(name, addresses, nbytes, phases):
    """128-bit patterns: MaxAs wiki, which names the first two good and the last one bad."""
    assert shared_phases(addresses, nbytes) == phases, name


def test_without_the_pair_rule_every_128_bit_access_takes_four():
    assert shared_phases((LANE >> 1 & 7) * 16, 16, pair_merge=False) == 4


def test_lanes_that_take_no_part_cost_nothing():
    assert shared_phases(np.full(32, NO_LANE), 16) == 0
    assert shared_phases(lanes([0, 128]), 4) == 2
    assert global_requests(np.full(32, NO_LANE), 4) == 0


def test_lines_and_sectors():
    found, masks = cache_lines(4 * LANE + 64, 4)
    assert found.tolist() == [0, 1] and masks.tolist() == [0b1100, 0b0011]
    found, masks = cache_lines(16 * LANE, 16)
    assert found.tolist() == [0, 1, 2, 3] and set(masks.tolist()) == {15}
    assert cache_lines(np.full(32, NO_LANE), 4)[0].size == 0


@pytest.mark.parametrize(("nbytes", "requests"), [(4, 4), (8, 8), (16, 16)])
def test_global_accesses_are_split_by_their_width(nbytes, requests):
    assert global_requests(nbytes * LANE, nbytes) == requests


def test_scattered_lanes_take_a_cycle_for_four_lines():
    assert global_requests(4096 * LANE, 4) == 8


def test_constant_loads_are_served_address_by_address():
    found, serial = constant_lines(lanes([0, 4, 64] + [0] * 29), 64)
    assert found.tolist() == [0, 1] and serial == 3
