"""Lane addresses to shared-memory phases, cache lines and requests, against patterns known from measurements."""

import numpy as np
import numpyaccess
import pytest
from handmade import ins, lanes

from maxdnn.simulator.access import NO_LANE
from maxdnn.simulator.workload import Reducer

LANE = np.arange(32)
WIDE = {4: {}, 8: {"size": "64"}, 16: {"size": "128"}}


def reduced(inst, rows, shift=0, pair_merge=True):
    """For each row of addresses of an instruction: service cycles, lines, masks."""
    reducer = Reducer([inst], pair_merge)
    rows = np.asarray(rows).astype(np.uint64).reshape(-1, 32).view(np.int64)
    records = reducer.records(rows, np.zeros(len(rows), np.int64), shift)
    every = reducer.lines()
    return [(int(s), every[f:f + n, 0], every[f:f + n, 1]) for s, f, n in records]


def load(mnemonic, nbytes):
    return ins(mnemonic, mods=WIDE[nbytes], d=4, addr=2)


def shared_phases(addresses, nbytes, pair_merge=True):
    return reduced(load("LDS", nbytes), addresses, pair_merge=pair_merge)[0][0]


def cache_lines(addresses, nbytes):
    return reduced(load("LDG", nbytes), addresses)[0][1:]


def global_requests(addresses, nbytes):
    return reduced(load("LDG", nbytes), addresses)[0][0]


def constant_lines(addresses):
    return reduced(ins("LDC", d=2, addr=2), addresses)[0][1::-1]


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
    assert shared_phases(np.full(32, NO_LANE, np.int64), 16) == 0
    assert shared_phases(lanes([0, 128]), 4) == 2
    assert global_requests(np.full(32, NO_LANE, np.int64), 4) == 0


def test_lines_and_sectors():
    found, masks = cache_lines(4 * LANE + 64, 4)
    assert found.tolist() == [0, 1] and masks.tolist() == [0b1100, 0b0011]
    found, masks = cache_lines(16 * LANE, 16)
    assert found.tolist() == [0, 1, 2, 3] and set(masks.tolist()) == {15}
    assert cache_lines(np.full(32, NO_LANE, np.int64), 4)[0].size == 0


@pytest.mark.parametrize(("nbytes", "requests"), [(4, 4), (8, 8), (16, 16)])
def test_global_accesses_are_split_by_their_width(nbytes, requests):
    assert global_requests(nbytes * LANE, nbytes) == requests


def test_scattered_lanes_take_a_cycle_for_four_lines():
    assert global_requests(4096 * LANE, 4) == 8


def test_constant_loads_are_served_address_by_address():
    found, serial = constant_lines(lanes([0, 4, 64] + [0] * 29))
    assert found.tolist() == [0, 1] and serial == 3


@pytest.mark.parametrize("nbytes", [4, 8, 16])
@pytest.mark.parametrize("mnemonic", ["LDS", "LDG", "LDC"])
def test_random_rows_cost_what_the_reference_says(mnemonic, nbytes):
    """Lanes left out, equal, in order, scattered; all moved by a few bytes."""
    rng = np.random.default_rng(7)
    rows = []
    for _ in range(300):
        row = nbytes * rng.choice([LANE, rng.integers(0, 64, 32), LANE // 2, rng.integers(0, 4000, 32), LANE ^ 1])
        row = (row + nbytes * rng.integers(0, 64)).astype(np.int64)
        row[rng.random(32) < rng.choice([0, 0.3])] = NO_LANE
        rows += [row, row]
    inst = ins("LDC", d=2, addr=2) if mnemonic == "LDC" else load(mnemonic, nbytes)
    for row, (service, lines, masks) in zip(rows, reduced(inst, rows, shift=nbytes), strict=True):
        there = np.where(row == NO_LANE, row, row + nbytes).view(np.uint64)
        if mnemonic == "LDS":
            assert service == numpyaccess.shared_phases(there, nbytes)
        elif mnemonic == "LDC":
            found, serial = numpyaccess.constant_lines(there)
            assert service == serial and np.array_equal(lines, found)
        else:
            found, sectors = numpyaccess.cache_lines(there, nbytes)
            assert service == numpyaccess.global_requests(there, nbytes)
            assert np.array_equal(lines, found) and np.array_equal(masks, sectors)
