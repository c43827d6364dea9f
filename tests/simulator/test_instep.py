"""SMs in step with the one that is simulated: bringing blocks together that ask for the same lines changes nothing."""

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.simulator import columns as c
from maxdnn.simulator.lower import lower
from maxdnn.simulator.machine import preset
from maxdnn.simulator.probes import run as probes
from maxdnn.simulator.state import Image, Shape, Work

ACCESSES, BLOCKS = 40, 3 * 132


@pytest.fixture(scope="module")
def instructions():
    chosen = [probe for probe in probes.probes() if probe.name == "rate LDG"]
    found = cubin.read(probes.cubin(chosen))
    number = [probe.name for probe in probes.probes()].index("rate LDG")
    return found.kernel(f"probe_{number}_48").instructions


def work(instructions, rng, classes):
    """Blocks of one warp that loads lines, which move with the block in one of three ways: a class has its own."""
    load = next(n for n, i in enumerate(instructions) if i.opcode == "LDG")
    leave = next(n for n, i in enumerate(instructions) if i.opcode == "EXIT")
    runs = np.array([[load, 1]] * ACCESSES + [[leave, 1]])
    count = ACCESSES * classes
    group = rng.integers(0, 3, count) if classes > 1 else np.tile(np.arange(3), count)[:count]
    records = np.stack([np.ones(count), 2 * np.arange(count), np.full(count, 2), group], 1).astype(np.int64)
    lines = np.stack([rng.integers(0, 1 << 12, 2 * count), rng.integers(1, 16, 2 * count)], 1)
    block = np.arange(BLOCKS)
    shift = np.zeros((BLOCKS, 3, 2), np.int64)
    shift[:, 1, 0], shift[:, 2, 0] = block % 8 * 64, block // 8 * 4096
    return Work(runs, np.array([0, len(runs)]), np.zeros(classes, np.int64), block % classes,
                np.arange(classes + 1) * ACCESSES, records, lines, shift)


@pytest.mark.parametrize(("mask", "come"), [(1, 2), (2, 2), (3, 2), (5, 4), (15, 4)])
@pytest.mark.parametrize("mirror", [0, 131])
def test_dram_gives_two_sectors_together(instructions, mask, come, mirror):
    """Each that is asked for and not there is a miss; other SMs find what has been fetched."""
    from maxdnn.simulator.compiled import begin, run
    machine = preset("h200")
    launch = work(instructions, np.random.default_rng(5), 1)
    launch.lines[:, 0], launch.lines[:, 1] = np.arange(len(launch.lines)), mask
    launch.shift[:] = 0
    image = Image(machine, lower(instructions, machine), launch, Shape(1, mirror, 1, 1, 1 + mirror, 1))
    begin(image.X)
    assert run(image.X, 1 << 30)
    lines, asked = len(launch.lines), (1 + mirror) * mask.bit_count() * len(launch.lines)
    assert image.X[c.C_DRAM_READ] == come * lines
    assert image.X[c.C_L2_SECTORS] == asked and image.X[c.C_L2_HITS] == asked - mask.bit_count() * lines


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("l2_kib", [51200, 2048])
@pytest.mark.parametrize("copies", [0, 1])
def test_lists_of_blocks_change_nothing(instructions, classes, l2_kib, copies):
    from maxdnn.simulator.compiled import begin, run
    machine = preset("h200").replace(l2_kib=l2_kib, l2_copies_kib=copies * l2_kib)
    code = lower(instructions, machine)
    seen = []
    for together in (True, False):
        launch = work(instructions, np.random.default_rng(5), classes)
        image = Image(machine, code, launch, Shape(1, 131, 2, 1, BLOCKS, 1))
        if not together:
            image.X[c.T_ALIKE] = 0
        begin(image.X)
        assert run(image.X, 1 << 30)
        seen.append([int(image.X[cell]) for cell in (c.C_NOW, c.C_STORED, c.C_L1_HITS, c.C_L2_SECTORS, c.C_L2_HITS,
                                                     c.C_DRAM_READ, c.C_ISSUED)])
    assert seen[0] == seen[1]
    assert seen[0][-1] == 3 * (ACCESSES + 1) and seen[0][4] > 0
