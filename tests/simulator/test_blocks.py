"""Boxes of like blocks, learned from a few blocks of made-up launches, against every block."""

import numpy as np
import pytest

from maxdnn.emulator.trace import WarpTrace
from maxdnn.simulator.access import NO_LANE
from maxdnn.simulator.blocks import Learner

LANE = np.arange(32)


def tracer(grid, act):
    """Traces of blocks whose two warps do what act(x, y, z, warp) says: a path and address rows."""
    def trace(numbers):
        out = []
        for b in numbers:
            x, y, z = b % grid[0], b // grid[0] % grid[1], b // (grid[0] * grid[1])
            for w in range(2):
                path, rows = act(x, y, z, w)
                rows = np.stack([np.broadcast_to(r, 32) for r in rows]).astype(np.int64).view(np.uint64)
                out.append(WarpTrace((x, y, z), w, np.array([(0, path)], np.uint32), rows))
        return out
    return trace


def tiles(x, y, z, w):
    """The paper's kernel: z is image tile and filter tile."""
    return 9, [4096 * x + 65536 * y + 256 * (z % 2) + 8 * LANE, 256 * (z // 2) + 8 * LANE, 4 * LANE + 128 * w]


def ragged(x, y, z, w):
    """The last of three image tiles has half its lanes and another path."""
    last = z % 3 == 2
    row = 512 * x + 128 * (z % 3) + 4 * LANE
    return 9 + last, [np.where(last & (LANE > 15), NO_LANE, row), 4096 * (z // 3) + 4 * LANE]


def stencil(x, y, z, w):
    """Blocks at the border leave out what lies outside."""
    i = 32 * x + LANE
    left, right = np.where(i == 0, NO_LANE, 4 * i - 4), np.where(i == 32 * 40 - 1, NO_LANE, 4 * i + 4)
    up = np.full(32, NO_LANE) if y == 0 else 4 * i - 5120 + 5120 * y
    return 9, [left + 0 * y, right, up, 4 * i + 5120 * y]


def line(x, y, z, w):
    """A grid in one dimension, taken apart by division twice."""
    i, j, k = x % 7, x // 7 % 5, x // 35
    return 9, [128 * i + 4096 * j + 4 * LANE, 4 * i + 100_000 * k + 4 * LANE, 4 * LANE + 8 * x]


def pitched(x, y, z, w):
    """Rows of 100 elements with a pitch of 128, blocks of 64: the lanes move apart, the same every 25 blocks."""
    i = 64 * x + 32 * w + LANE
    return 9, [4 * (i // 100 * 128 + i % 100)]


def fan(x, y, z, w):
    """Each lane has its own step."""
    return 9, [4 * LANE * x + 400 * y * (LANE % 3)]


def guarded(x, y, z, w):
    """Threads beyond n stop early: the last warps of the grid."""
    i = 64 * x + 32 * w + LANE
    n = 64 * 299 + 40
    return (9 if (i < n).any() else 3), [np.where(i < n, 4 * i, NO_LANE)] if (i < n).any() else [np.full(32, NO_LANE)]


def wide(x, y, z, w):
    """Rows of 112 tiles in a grid in one dimension: those at the four borders leave out what lies outside."""
    column, row = x // 2 % 112, x // 224
    outside = (column == 0) & (LANE < 8) | (column == 111) & (LANE > 23), (row == 0) & (LANE < 4) | (row == 99)
    at = 65536 * row + 512 * column + 4 * LANE
    return 9, [*(np.where(out, NO_LANE, at) for out in outside), 128 * (x % 2) + LANE]


def triangle(x, y, z, w):
    """Blocks above the diagonal return at once."""
    return (9, [4 * LANE + 512 * x + 9000 * y]) if x <= y else (2, [np.full(32, NO_LANE)])


def middle(x, y, z, w):
    """One row of blocks inside the grid differs."""
    return 9 + (y == 11), [4 * LANE + 512 * x + 9000 * y]


GRIDS = {tiles: (13, 13, 32), ragged: (20, 1, 24), stencil: (40, 30, 1), line: (700, 1, 1), pitched: (200, 1, 1),
         fan: (30, 20, 1), guarded: (301, 1, 1), middle: (24, 24, 2), wide: (22400, 1, 1)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("act", GRIDS, ids=lambda a: a.__name__)
def test_every_block_does_what_its_box_predicts(act):
    grid = GRIDS[act]
    trace = tracer(grid, act)
    learner = Learner(trace, grid)
    seen = np.zeros(learner.blocks, int)
    for found in learner.learn():
        values = found.box.values()
        numbers = found.box.numbers(values, grid)
        seen[numbers] += 1
        for b, v in zip(numbers.tolist(), values, strict=True):
            real = trace([b])
            assert [t.runs.tolist() for t in real] == [r.tolist() for r in found.first.runs]
            rows = np.concatenate([t.addresses for t in real]).view(np.int64)
            assert np.array_equal(found.motion.moved(found.first.rows, v), rows), (b, v)
    assert (seen == 1).all()


@pytest.mark.parametrize(("act", "most"), [(tiles, 40), (line, 60), (guarded, 60), (fan, 20), (pitched, 120),
                                           (wide, 300)],
                         ids=lambda v: getattr(v, "__name__", v))
def test_few_blocks_are_traced(act, most):
    learner = Learner(tracer(GRIDS[act], act), GRIDS[act])
    learner.learn()
    assert learner.traced <= most


def test_a_million_blocks_take_no_more_traces_than_a_thousand():
    def traced(blocks):
        learner = Learner(tracer((blocks, 1, 1), line), (blocks, 1, 1))
        learner.learn()
        return learner.traced
    assert traced(35 * 30_000) <= traced(35 * 30) + 20


def test_a_border_that_runs_slantwise_is_not_learned():
    assert Learner(tracer((30, 40, 1), triangle), (30, 40, 1)).learn() is None


def test_blocks_with_nothing_in_common_are_not_learned():
    scattered = np.random.default_rng(3).integers(0, 1 << 20, (500, 32)) * 4
    assert Learner(tracer((500, 1, 1), lambda x, y, z, w: (9, [scattered[x]])), (500, 1, 1)).learn() is None
