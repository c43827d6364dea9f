"""The course of a launch: that looking changes nothing, that stretches add up to the whole, and that the issues of a
window are those of a full trace."""

import dataclasses

import numpy as np
import pytest
from handmade import built, ins, lanes, loop, placed

from maxdnn.emulator.trace import WarpTrace
from maxdnn.errors import SimulationError
from maxdnn.simulator import columns as c
from maxdnn.simulator import pipeline, report, simulate, timeline
from maxdnn.simulator.machine import preset
from maxdnn.simulator.simulate import Options

REGISTERS, THREADS = 32, 64


@pytest.fixture(scope="module")
def work():
    return of(600)


def of(times):
    """20 blocks on five SMs; loads that others wait for, plain arithmetic in between."""
    body = [ins("LDG", "--:-:1:-:2", d=8, addr=2), *[ins("FADD", d=n, a=n, b=20) for n in range(2, 8)],
            ins("FADD", "01:-:-:-:6", d=9, a=8, b=20)]
    code, runs = loop(body, times)
    path = np.array(runs, np.uint32)
    traces = [WarpTrace((b, 0, 0), w, path, np.array([lanes([4096 * b + 128 * (n % 64)]) for n in range(times)]))
              for b in range(20) for w in range(2)]
    return built(placed(code), traces, 20, 2)


def run(work, **options):
    return simulate.simulate(work, preset("gm107"), registers=REGISTERS, shared_bytes=0, threads=THREADS,
                             options=Options(**options))


def unpacked(kept):
    """Events of a window as rows: cycle, warp, instruction, second, block, result there, operands read."""
    e = kept["events"]
    cycle = kept["first"] + np.cumsum(e["cycle"])
    return [tuple(map(int, row)) for row in zip(cycle, e["warp"], e["instruction"], e["second"], e["block"],
                                                cycle + e["there"], cycle + e["read"], strict=True)]


def test_looking_changes_no_figure(work):
    plain, seen = run(work), run(work, timeline=500)
    assert plain.cycles == seen.cycles and np.array_equal(plain.stalls, seen.stalls)
    same = [n for n in range(c.HEAD) if n not in (c.P_TRACE_FROM, c.P_TRACE_TO, c.P_EVENTS_MAX, c.C_TRACED)
            and not c.T_CODE <= n <= c.T_BOOK]  # apart from where the tables lie
    assert np.array_equal(plain.counters[same], seen.counters[same])


def test_stretches_add_up_to_the_launch(work):
    seen = run(work, timeline=500)
    data, slots = timeline.as_dict(seen), report.slots(seen)
    lengths = np.diff([0, *data["cycle"]])
    assert timeline.STRETCHES // 2 < len(lengths) <= timeline.STRETCHES and data["cycle"][-1] == seen.cycles
    for name, shares in data["percent"].items():
        assert np.average(shares, weights=lengths) == pytest.approx(slots[name], abs=0.5), name
    assert all(abs(sum(row) - 100) < 0.2 for row in zip(*data["percent"].values(), strict=True))
    assert data["blocks_done"] == sorted(data["blocks_done"]) and data["blocks_done"][-1] == 4


def test_the_windows_hold_every_issue_of_their_cycles(work):
    seen = timeline.as_dict(run(work, timeline=700))
    full = run(work, trace=(0, 100_000))
    begin, middle = seen["windows"]
    assert begin["first"] == 0 and begin["last"] == 700
    assert 0.3 * full.cycles < middle["first"] < 0.7 * full.cycles and middle["last"] == middle["first"] + 700
    for kept in (begin, middle):
        wanted = [(cycle, warp, index, second, block, there, read)
                  for cycle, _, warp, index, second, block, there, read in full.events.tolist()
                  if kept["first"] <= cycle < kept["last"]]
        assert len(wanted) > 100 and unpacked(kept) == sorted(wanted, key=lambda e: e[0])


def test_a_short_launch_is_one_window_and_a_trace_is_its_own(work):
    result = run(of(60), timeline=65_536)
    short = timeline.as_dict(result)
    assert [w["first"] for w in short["windows"]] == [0] and short["windows"][0]["last"] == result.cycles
    assert len(short["windows"][0]["events"]["cycle"]) == result.issued.sum()
    traced = timeline.as_dict(run(work, timeline=500, trace=(1000, 1300)))
    assert [(w["first"], w["last"]) for w in traced["windows"]] == [(1000, 1300)]


def test_all_sms_show_the_first_one(work):
    """And a pipeline trace names the warps of each SM from 0, with fewer blocks than would fit."""
    seen = run(work, timeline=500, all_sms=True)
    assert seen.resident_warps == 8 < seen.occupancy.warps
    assert {row[1] for w in timeline.as_dict(seen)["windows"] for row in unpacked(w)} <= set(range(8))
    trace = pipeline.trace_events(run(work, trace=(0, 3000), all_sms=True))
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert named == {(sm, warp) for sm in range(5) for warp in range(8)}


@pytest.mark.parametrize("cycles", [-1, 65_537, True, 1.5, None])
def test_a_window_has_bounds(work, cycles):
    with pytest.raises(SimulationError, match="timeline must be a number of cycles from 0 to 65536"):
        simulate.simulate(work, preset("gm107"), registers=32, shared_bytes=0, threads=64,
                          options=dataclasses.replace(Options(), timeline=cycles))
