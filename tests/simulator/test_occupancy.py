"""Occupancy against the vendor's own calculation (occupancy_vectors.cpp made the file) and well-known figures."""

import json
from pathlib import Path

import pytest

from maxdnn.errors import SimulationError
from maxdnn.simulator.machine import preset
from maxdnn.simulator.occupancy import occupancy

VECTORS = json.loads((Path(__file__).parent / "occupancy.json").read_text())


@pytest.mark.parametrize(("machine", "registers", "shared", "threads", "blocks"), VECTORS)
def test_blocks_per_sm_are_the_vendors(machine, registers, shared, threads, blocks):
    if blocks:
        assert occupancy(preset(machine), registers, shared, threads).blocks == blocks
    else:
        with pytest.raises(SimulationError, match="does not fit"):
            occupancy(preset(machine), registers, shared, threads)


@pytest.mark.parametrize(("registers", "warps_per_scheduler"), [(128, 4), (129, 3), (168, 3), (255, 2)])
def test_registers_limit_warps_as_published(registers, warps_per_scheduler):
    """MaxAs wiki: from 128 to 129 registers a scheduler loses its fourth warp."""
    fit = occupancy(preset("gm204"), registers, 0, 128)
    assert fit.warps == 4 * warps_per_scheduler and fit.limiter == "registers"


@pytest.mark.parametrize(("registers", "shared", "threads", "words"), [
    (256, 0, 64, "registers must be 0..255"), (32, 49153, 64, "shared memory must be 0..49152"),
    (32, 0, 1025, "threads per block must be 1..1024"), (32, 0, 0, "threads per block must be 1..1024")])
def test_what_no_kernel_may_ask_is_refused(registers, shared, threads, words):
    with pytest.raises(SimulationError, match=words):
        occupancy(preset("gm204"), registers, shared, threads)
