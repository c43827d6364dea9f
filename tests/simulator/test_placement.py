"""Which blocks the simulated SM of sm_90 gets, and how much of a launch's memory blocks share."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxdnn.simulator import columns as c
from maxdnn.simulator.footprint import kept_kib
from maxdnn.simulator.machine import preset
from maxdnn.simulator.placement import Gpcs, by_sms, gpcs_of, instructions, most_lines_first, placed, shares, turns
from maxdnn.simulator.state import Work, touches

CHOSEN = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "probes.h100.json").read_text())["chosen"]
AHEAD = {"sms": 2, "first": 6, "every": 7, "grid": 12}


def work(lengths, shift=0):
    """A block of one warp for each of `lengths`, so many instructions long, each with one load; `shift`: lines from one
    block's to the next one's."""
    kinds = sorted(set(lengths))
    runs = np.array([[0, n] for n in kinds])
    records = np.stack([np.ones(len(kinds)), np.arange(len(kinds)), np.ones(len(kinds)), np.zeros(len(kinds))], 1)
    lines = np.stack([np.zeros(len(kinds)), np.full(len(kinds), 15)], 1).astype(np.int64)
    moved = np.zeros((len(lengths), 1, 2), np.int64)
    moved[:, 0, 0] = shift * np.arange(len(lengths))
    return Work(runs, np.arange(len(kinds) + 1), np.arange(len(kinds)), np.array([kinds.index(n) for n in lengths]),
                np.arange(len(kinds) + 1), records.astype(np.int64), lines, moved)


def code(count):
    rows = np.zeros((count, c.I_SIZE), np.int64)
    rows[0, c.I_KIND] = c.K_GLOBAL
    rows[1:, c.I_KIND] = c.K_ALU
    return rows


def test_the_instructions_of_each_block():
    assert instructions(work([3, 5, 3])).tolist() == [3, 5, 3]


def test_some_sms_take_blocks_more_often():
    assert turns(14, 5, AHEAD).tolist() == [0, 1, 2, 3, 4, 2, 0, 1, 3, 4, 2, 3, 4, 0]


@pytest.mark.parametrize(("blocks", "of_first"), [(11, [0, 5, 10]), (12, [0, 6])])
def test_in_small_grids_no_sm_takes_blocks_more_often(blocks, of_first):
    assert shares(np.ones(blocks, np.int64), 5, 4, AHEAD, None)[0][:3] == of_first


def test_the_sms_of_a_small_grid_by_gpc():
    """Ten SMs in two GPCs, of which two come first: of a round that leaves SMs without a block the second ones of a
    pair do."""
    gpcs = Gpcs(2, [2, 3])
    assert gpcs.of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert gpcs.filled(10).tolist() == [0, 1, 2, 4, 6, 8, 3, 5, 7, 9]
    assert gpcs.rounds(16).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 4, 6, 8]
    assert gpcs.crowd(10) == 1
    assert gpcs.crowd(3) == pytest.approx(10 / 6)
    unlike = shares(np.array([9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 1, 1]), 10, 2, AHEAD | {"grid": 99}, gpcs)
    assert unlike[4] == [4, 13]  # not 3, which block 13 would be behind if all SMs had a second one


def test_of_a_machine_with_other_sms_the_gpcs_are_not_known():
    machine = preset("h100")
    assert gpcs_of(132, machine["blocks_ahead"], machine["gpc_tpcs"]) is not None
    assert gpcs_of(66, machine["blocks_ahead"], machine["gpc_tpcs"]) is None
    assert gpcs_of(132, machine["blocks_ahead"], {"1": 1, "2": 65}) is None


def test_a_full_sm_takes_its_next_block_when_one_ends():
    every = shares(np.array([9, 1, 1, 1, 1, 1]), 2, 1, {"sms": 0, "first": 0, "every": 9, "grid": 1}, None)
    assert every == [[0], [1, 2, 3, 4, 5]]


def test_the_simulated_sm_has_the_most_to_do():
    lengths = [2, 2, 9, 2, 2, 9, 2, 2]
    order = placed(work(lengths), 3, 4, {"sms": 0, "first": 0, "every": 9, "grid": 1}, None)
    costs = instructions(order).tolist()
    assert sorted(costs) == sorted(lengths)
    assert costs[::3] == [9, 9, 2]


def test_where_all_sms_are_simulated_each_has_the_blocks_of_its_own():
    """SMs take a block each by turns, those with two before the others: 13 shares an SM with 4, as above."""
    gpcs = Gpcs(2, [2, 3])
    lengths = [n + 1 for n in range(16)]  # so that each block tells its number
    blocks, sms = by_sms(work(lengths), 10, 2, AHEAD | {"grid": 99}, gpcs)
    order = (instructions(blocks) - 1).tolist()
    assert sms.tolist() == [0, 1, 2, 4, 6, 8, 3, 5, 7, 9]
    assert sorted(order) == list(range(16))
    assert {(order[sm], order[sm + 10]) for sm in range(6)} == {(0, 10), (1, 11), (2, 12), (4, 13), (6, 14), (8, 15)}


def test_blocks_for_which_there_is_no_room_follow_in_order():
    blocks, sms = by_sms(work([n + 1 for n in range(9)]), 3, 2, AHEAD | {"grid": 99}, None)
    assert (instructions(blocks) - 1).tolist() == list(range(9))
    assert sms.tolist() == [0, 1, 2]


def test_the_cpcs_of_an_h100_are_those_that_were_seen():
    """Of the card whose first SMs are in the first GPC: TPCs that slow each other's stores down."""
    machine = preset("h100")
    gpcs = gpcs_of(132, machine["blocks_ahead"], machine["gpc_tpcs"])
    tpcs = [62, 63, 64, 65, *range(62)]  # in the order of the model's SMs
    mine = sorted(sorted(tpc for n, tpc in enumerate(tpcs) if gpcs.cpc[2 * n] == cpc) for cpc in set(gpcs.cpc.tolist()))
    assert mine == CHOSEN["cpcs"]


def test_how_far_a_tpc_is_from_l2_is_what_its_sms_waited():
    clocks = np.array(CHOSEN["chain"])
    told = list(preset("h100")["tpc_distance"].values())
    assert np.allclose(told, clocks.reshape(-1, 2).mean(1) - clocks.mean(), atol=0.5)


def test_sms_know_their_cpc_their_gpc_and_their_distance():
    gpcs = Gpcs(2, [2, 3])
    places = gpcs.places(np.array([0, 9]), {"0": 5, "1": 6, "2": 7, "3": 8, "4": 9})
    assert places.far.tolist() == [9, 8]  # the TPC that comes first has the last number
    assert places.cpc.tolist() == [2 * gpcs.cpc[0], 2 * gpcs.cpc[9]]
    assert places.gpc.tolist() == [12, 13] and places.resources == 14


def test_the_block_with_the_most_lines_comes_first():
    blocks = work([2, 3, 4, 3])
    blocks.records[:, 2] = 1, 7, 2
    assert most_lines_first(blocks).class_of.tolist() == [1, 0, 2, 1]


def test_blocks_that_are_alike_stay_in_order():
    same = work([4] * 8)
    assert placed(same, 3, 4, AHEAD, None) is same


def kept(store, shift, warm):
    """KiB of L2 for blocks that load or store a line each."""
    rows, blocks = code(4), work([4] * 8, shift)
    rows[0, c.I_STORE] = store
    return kept_kib(touches(rows, blocks), blocks, preset("h100"), warm)


@pytest.mark.parametrize(("store", "shift", "figure"), [
    (0, 0, "l2_kib"), (0, 1, "l2_own_kib"), (1, 0, "l2_written_kib"), (1, 1, "l2_written_kib"),
])
def test_l2_keeps_lines_by_who_touches_them(store, shift, figure):
    assert kept(store, shift, False) == preset("h100")[figure]


@pytest.mark.parametrize(("store", "shift"), [(0, 0), (0, 1), (1, 1)])
def test_of_a_launch_before_l2_keeps_as_much_whoever_touched_it(store, shift):
    machine = preset("h100")
    assert kept(store, shift, True) == machine["l2_next_kib"] < machine["l2_own_kib"]
