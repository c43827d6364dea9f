"""A launch behind another one of the same kernel with the same arguments finds in L2 what that one touched last."""

import numpy as np
import pytest
from handmade import WarpTrace, built, ins, lanes, loop, placed, time

from maxdnn.errors import SimulationError
from maxdnn.planning.select import plans
from maxdnn.problem.problem import filters
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator import columns as c
from maxdnn.simulator import timing
from maxdnn.simulator.machine import preset
from maxdnn.simulator.simulate import Options, l2_after, simulate
from tests.sass.native import H200

LOAD = [ins("LDG", "01:-:1:-:2", mods={"cache": "CI"}, d=2, addr=2)]
STORE = [ins("STG", "--:1:-:-:2", addr=2, b=4)]


def launch(body, lines, warm, step=1, **changes):
    """A warp that takes a sector of each of so many lines, `step` lines apart, one after another."""
    code, runs = loop(body, lines)
    rows = [lanes([128 * step * n]) for n in range(lines)]
    return time(code, runs, addresses=lambda b, w: rows, warm=warm, changes=changes)


def test_what_l2_holds_comes_from_there():
    figures = preset("gm204")
    cold, warm = (launch(LOAD, 100, behind) for behind in (False, True))
    waited_for = 99  # the last one is not
    assert cold.counters[c.C_DRAM_READ] == 100 and warm.counters[c.C_DRAM_READ] == 0
    assert cold.cycles - warm.cycles == waited_for * (figures["dram_latency"] - figures["l2_latency"])
    assert warm.options.warm and not cold.options.warm


def test_of_more_than_l2_holds_the_last_is_there_and_is_gone_before_it_is_asked_for():
    kib = 64  # 512 lines
    assert launch(LOAD, 512, True, l2_kib=kib).counters[c.C_DRAM_READ] == 0
    assert launch(LOAD, 1024, True, l2_kib=kib).counters[c.C_DRAM_READ] == 1024


def test_what_was_stored_is_written_when_its_place_is_taken():
    kib = 64
    assert launch(STORE, 1024, False, l2_kib=kib).counters[c.C_DRAM_WRITE] == 512
    assert launch(STORE, 1024, True, l2_kib=kib).counters[c.C_DRAM_WRITE] == 1024


def test_warps_with_few_accesses_got_on_as_those_with_many():
    """Of 64 lines of one warp beside 1024 of another one L2, which holds 512, has the last ones."""
    many, few = 1024, 64
    code = [*LOAD, ins("EXIT", "--:-:-:-:f")]
    runs = {w: [(0, 1)] * (count - 1) + [(0, 2)] for w, count in enumerate((many, few))}
    rows = [[lanes([128 * n]) for n in range(first, first + count)] for first, count in ((0, many), (many, few))]
    cold, warm = (time(code, runs, addresses=lambda b, w: rows[w], warps=2, warm=behind, changes={"l2_kib": 64})
                  for behind in (False, True))
    assert cold.counters[c.C_DRAM_READ] == many + few
    assert many + few // 3 < warm.counters[c.C_DRAM_READ] < many + few * 2 // 3


def test_warm_is_true_or_false():
    result = launch(LOAD, 2, False)
    with pytest.raises(SimulationError, match="warm must be True or False"):
        simulate(result.workload, preset("gm204"), registers=32, shared_bytes=0, threads=32, options=Options(warm=1))


# -- behind other launches ---------------------------------------------------------------------------------------------

SIZES = {"registers": 32, "shared_bytes": 0, "threads": 32}
SMALL = preset("gm204").replace(l2_kib=64)  # 512 lines


def work(body, first, last):
    """A warp that takes a sector of each line from `first` to before `last`, one after another."""
    code, runs = loop(body, last - first)
    rows = np.stack([lanes([128 * n]) for n in range(first, last)])
    return built(placed(code), [WarpTrace((0, 0, 0), 0, np.array(runs, np.uint32), rows)], 1, 1)


def dirty(contents):
    ways = SMALL["l2_ways"]
    return np.count_nonzero(contents.cells.view(np.int32).reshape(-1, ways * c.SECTORED)[:, 2 * ways:3 * ways])


@pytest.mark.parametrize(("others", "left"), [(288, 96), (416, 96), (480, 32), (608, 0)])
def test_what_was_stored_stays_dirty_until_others_take_its_place(others, left):
    """96 lines are stored; the launch behind that loads as many others, and the next one finds what is left."""
    stored = l2_after(work(STORE, 0, 96), SMALL, **SIZES)
    behind = l2_after(work(LOAD, 1024, 1024 + others), SMALL, before=stored, **SIZES)
    assert (dirty(stored), dirty(behind)) == (96, left) and behind.age > stored.age
    last = simulate(work(LOAD, 2048, 2560), SMALL, contents=behind, **SIZES)
    assert last.counters[c.C_DRAM_WRITE] == left


def test_a_warm_launch_of_a_plan_finds_what_those_before_it_left():
    """sm90_tensor_product of 1024-14-256 stores 8 MiB. An H100 writes 13.6 MiB to DRAM (benchmarks/results/
    judges.h100.json), since its pieces, which the launches before it stored, are in part still dirty."""
    problem = filters(ConvShape(32, 1024, 14, 14, 256, 1, 1), layout="CHWN")
    plan = plans(problem, H200)["sm90_tensor_filters_128x128_split8"]
    machine, kernel = preset("h100"), "sm90_tensor_product_128x128"
    step = next(x for x in plan.launches if x.spec.name == kernel)
    ((traced, function),) = timing.workloads(plan, [step], machine)
    alone = timing.simulated(traced, function, step.block, machine, options=Options(warm=True))
    whole = timing.call(plan, machine=machine, options=Options(warm=True)).launches
    behind = next(x.result for x in whole if x.kernel == kernel)
    mib = [result.counters[c.C_DRAM_WRITE] * 32 / (1 << 20) for result in (alone, behind)]
    assert mib[0] < 8 and abs(mib[1] - 13.6) < 0.5
