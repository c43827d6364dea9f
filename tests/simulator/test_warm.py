"""A launch behind another one of the same kernel with the same arguments finds in L2 what that one touched last."""

import pytest
from handmade import ins, lanes, loop, time

from maxdnn.errors import SimulationError
from maxdnn.simulator import columns as c
from maxdnn.simulator.machine import preset
from maxdnn.simulator.simulate import Options, simulate

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
