"""The model of an H200 or H100 beside what cards answered to probes that all SMs run: L2, DRAM, atomics, launches."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from launched import launched
from probed import ANSWERS, H100, H200, OF_H100, clocks_of_runs, slope, stand_of

from maxdnn.simulator import timing
from maxdnn.simulator.probes import run

# Probes of what all SMs ask of L2 and DRAM -> how far the model may be from the middle runs on the card, in parts of
# them. Each run is the median of the blocks; the first meets what was there before, in the last some are through. A
# card's probes of lines kept by L2 followed those of the next smaller size; the model begins with empty caches.
SHARED = {
    "bursts of 2 loads, 1 blocks an SM": 0.1,
    "bursts of 2 loads, 2 blocks an SM": 0.1,
    "bursts of 8 loads, 2 blocks an SM": 0.12,
    "bursts of 2 loads and stores, 4 blocks an SM": 0.13,
    "kept by L2, 36 MiB, each its own": 0.05,
    "kept by L2, 44 MiB, each its own": 0.11,
    "kept by L2, 48 MiB, each its own": 0.1,
    "kept by L2, 44 MiB, read and written by halves": 0.1,
    "loads.128 of DRAM, 132 blocks of 256, 2 at a time": 0.1,
}


@pytest.mark.long
@pytest.mark.parametrize("name", SHARED)
def test_the_model_shares_l2_and_dram_as_an_h100_does(name: str) -> None:
    number, stand = stand_of(name)
    probe = run.probes()[number]
    for length in probe.lengths:
        runs = clocks_of_runs(number, stand, length, probe.n)[1:3]
        assert np.mean(runs) == pytest.approx(np.mean(H100["runs"][name][str(length)][1:3]), rel=SHARED[name])


# Atomics of all SMs at few places of L2 -> how far the model may be from the second and third run, in parts of them.
FEW_PLACES = {
    "REDG of 132 SMs, 1 lanes the same": 0.03,
    "REDG F32 of 132 SMs, 1 lanes the same": 0.03,
    "REDG of 132 SMs, 8 lanes the same": 0.02,
    "REDG F32 of 132 SMs, 16 lanes the same": 0.02,
    "REDG of 132 SMs, 8 lanes, a sector each": 0.05,
    "REDG of 132 SMs, 8 lanes, a line each": 0.06,
    "REDG F32 of 132 SMs, 8 lanes, a line each": 0.05,
    "REDG of 132 SMs, words of 4 KiB": 0.06,
    "ATOMG CAS of 132 SMs, words of 4 KiB": 0.03,
}


# The same of words that chance chooses, changed, or loaded and stored. Not stored alone: a run's last stores are on
# their way when its clock is read.
ANYWHERE = {
    "REDG of 132 SMs, any words of 1 MiB": 0.1,
    "LDG and STG of 132 SMs, any words of 1 MiB": 0.2,
    "LDG and STG of 132 SMs, any words, 4 lanes of 1 MiB": 0.2,
}


@pytest.mark.sampled(2, 13)
@pytest.mark.parametrize("name", FEW_PLACES | ANYWHERE)
def test_sms_wait_for_each_other_at_l2_as_on_an_h100(name: str) -> None:
    number, stand = stand_of(name)
    probe, clocks = run.probes()[number], []
    stand.device.upload(stand.words, np.array(probe.words, np.uint32))
    out, data = stand.device.alloc(1 << 24), stand.device.alloc(1 << 20) if probe.big else stand.words
    for length in probe.lengths:
        function = stand.module.function(f"probe_{number}_{length}")
        clocks.append(timing.launch(function, (probe.blocks, 1, 1), (256, 1, 1), [out, data, 1, 0], machine="h100",
                                    full=True).cycles / run.REPEATS)
    model = (clocks[1] - clocks[0]) / (probe.lengths[1] - probe.lengths[0])
    card = np.mean(H100["runs"][name]["24"][1:3]) / 24
    assert model == pytest.approx(card, rel=(FEW_PLACES | ANYWHERE)[name])


# Products read DRAM so: in each round the warps of an SM wait for their data and for each other -> how far a round may
# be from that on the card, in parts of it. Of the first run, which L2 has nothing of.
TILES = {
    "tiles of DRAM, 2 loads.128 at a time, 1 turns between, 1 blocks at the same lines": 0.05,
    "tiles of DRAM, 4 loads.128 at a time, 1 turns between, 1 blocks at the same lines": 0.01,
    "tiles of DRAM, 8 loads.128 at a time, 20 turns between, 1 blocks at the same lines": 0.01,
    "tiles of DRAM, 4 loads.128 at a time, 40 turns between, 1 blocks at the same lines": 0.01,
    "tiles of DRAM, 4 loads.128 at a time, 1 turns between, 2 blocks at the same lines": 0.02,
    "tiles of DRAM, 4 loads.128 at a time, 20 turns between, 8 blocks at the same lines": 0.03,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", TILES)
def test_rounds_of_tiles_of_dram_take_as_long_as_on_an_h100(name: str) -> None:
    number, stand = stand_of(name)
    probe, rounds = run.probes()[number], 36
    card = OF_H100[name][str(probe.warps[0])] / probe.n
    model = clocks_of_runs(number, stand, probe.lengths[0], rounds)[0] / rounds
    assert model == pytest.approx(card, rel=TILES[name])


@pytest.mark.long
def test_atomics_of_all_sms_on_the_same_lines_wait_for_each_other() -> None:
    """Each lane of a warp to one of 32 lines, which are in four places of L2."""
    name = "ATOMG of 132 SMs, a line each, all"
    number, stand = stand_of(name)
    model = slope(name, 8, stand, number, blocks=132, machine="h100")
    assert model == pytest.approx(OF_H100[name]["8"], rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize(("name", "apart"), [
    ("STG.64, rows 2080 apart from 16 on, 32 bytes further each, 132 SMs", 0.02),
    ("STG.64, rows 2056 apart from 0 on, 32 bytes further each, 132 SMs", 0.05),
    ("STG, a word of 1 sectors of 32 lines, 8 warps of 132 SMs", 0.06),
    ("STG, a word of 2 sectors of 16 lines, 8 warps of 132 SMs", 0.03),
    ("STG, a word of 4 sectors of 8 lines, 8 warps of 132 SMs", 0.03),
])
def test_l2_takes_stores_of_parts_of_sectors_as_that_of_an_h100_does(name: str, apart: float) -> None:
    """While all SMs store: in the second and third of four runs."""
    number, stand = stand_of(name)
    few, many = run.probes()[number].lengths
    card = np.mean(H100["runs"][name][str(many)][1:3]) - np.mean(H100["runs"][name][str(few)][1:3])
    model = slope(name, 8, stand, number, blocks=132, machine="h100")
    assert model == pytest.approx(card / (many - few), rel=apart)


@pytest.mark.long
def test_sms_that_read_the_same_lines_share_what_they_cost_of_l2() -> None:
    """Bulk copies of all SMs: what two and four at a place take of the time that each by itself takes."""
    name = "bulk 16384 bytes, 2 at a time, all SMs, {} at the same place"
    model, card = {}, {}
    for together in (1, 2, 4):
        number, stand = stand_of(name.format(together))
        model[together] = slope(name.format(together), 1, stand, number, blocks=132)
        card[together] = ANSWERS[name.format(together)]["1"]
    assert model[2] / model[1] == pytest.approx(card[2] / card[1], abs=0.02)
    assert model[4] / model[1] == pytest.approx(card[4] / card[1], abs=0.07)


# Whole launches -> how far the model may be from the card, in parts of it: with empty caches, and behind one of its
# like. A profiler that empties caches leaves 2 MiB dirty, which large launches write: 1,300 clocks that the model has
# not.
LAUNCHES = {
    "launch of 1 loads and 1 stores of 16 bytes, 24 MiB": (0.05, 0.02),
    "launch of 1 loads and 1 stores of 4 bytes, 24 MiB": (0.06, 0.03),
    "launch of 4 loads and 0 stores of 16 bytes, 32 MiB": (0.04, 0.05),
    "launch of 4 loads and 0 stores of 16 bytes, 48 MiB": (0.06, 0.03),
    "launch of 0 loads and 4 stores of 16 bytes, 24 MiB": (0.03, 0.03),
    "launch of 0 loads and 1 stores of 16 bytes, 96 MiB": (0.03, 0.03),
    "launch of 1 loads and 1 stores of 16 bytes, 96 MiB": (0.05, 0.04),
    "launch of 4 loads and 4 stores of 4 bytes, 48 MiB": (0.03, 0.06),
    "launch of 1 loads and 16 stores of 16 bytes, 96 MiB": (0.03, 0.02),
    "launch of 1 words of every 16 bytes, 16 MiB": (0.13, 0.07),
    "launch of 4 words of every 32 bytes, 8 MiB": (0.05, 0.06),
    "blocks of 2 warps that rest 0 times": (0.05, 0.05),
    "blocks of 4 warps that rest 20 times and store": (0.04, 0.04),
    "blocks of 8 warps that rest 180 times": (0.03, 0.03),
    "blocks of 8 warps that rest 60 times and store": (0.04, 0.04),
}


def check_launches(name: str, machine: str, seen: Mapping[str, Any], bounds: tuple[float, float], times: int) -> None:
    for state, apart in zip(("cold", "warm"), bounds, strict=True):
        cycles = launched(name, state == "warm", machine, times).cycles
        assert cycles == pytest.approx(np.mean(seen[state]), rel=apart)


@pytest.mark.sampled(2, 8)
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_model_launches_blocks_as_an_h100_does(name: str) -> None:
    check_launches(name, "h100", H100["launches"][name], LAUNCHES[name], 1)


# Of an H200, whose L2 and DRAM have other figures, and whose parts of L2 keep copies. On the card all launches had one
# buffer, so that what L2 held before them came from others there; here four of their like come before them.
OF_H200 = {
    "launch of 4 loads and 0 stores of 16 bytes, 96 MiB": (0.05, 0.06),
    "launch of 0 loads and 1 stores of 16 bytes, 24 MiB": (0.05, 0.05),
    "launch of 0 loads and 4 stores of 16 bytes, 64 MiB": (0.02, 0.02),
    "launch of 2 loads and 2 stores of 16 bytes, 64 MiB": (0.03, 0.03),
    "launch of 1 loads and 1 stores of 4 bytes, 32 MiB": (0.06, 0.02),
    "launch of 8 loads and 0 stores of 4 bytes, 36 MiB": (0.06, 0.03),
    "launch of 1 loads and 4 stores of 16 bytes, 40 MiB": (0.02, 0.02),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_H200)
def test_the_model_loads_and_stores_as_an_h200_does(name: str) -> None:
    check_launches(name, "h200", H200["launches"][name], OF_H200[name], 4)
