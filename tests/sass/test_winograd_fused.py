"""The fused Winograd kernel as built: what an iteration takes of a warp that loads maps and of one that loads filters,
what two halves of the channels take, and that shared memory is read and written without bank conflicts."""

import re
from collections import Counter

import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.winograd.fused import FUSED as KERNELS
from maxdnn.algorithms.winograd.fused import GROUP, HALVES
from maxdnn.build.cubins import asset
from maxdnn.planning.cost import preset
from maxdnn.planning.select import plan
from maxdnn.simulator import timing

from .machine_code import accesses, built, issue_slots, loops, path, shared_passes, trace_block

WARPS = 8


@pytest.fixture(scope="module", params=KERNELS, ids=lambda spec: spec.layout)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def traces(spec):
    """Of a full block, by its groups of channels."""
    return {groups: _traces(spec, groups) for groups in (4, 5, 10)}


def _traces(spec, groups):
    n, side = (1, 16) if spec.layout == "NCHW" else (32, 4)
    shape = ConvShape(n, GROUP * groups, side, side, 32, 3, 3, 1, 1)
    made = plan(shape, layout=spec.layout, kernel="winograd_2x2_3x3_fused")
    return trace_block(made, spec, race=True).warps


@pytest.mark.sampled(1)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec, traces):
    """The mean of both kinds, and what the comment budgets."""
    fewer, more = ([issue_slots(path(built(spec), trace)) for trace in traces[groups]] for groups in (4, 5))
    loop = [b - a for a, b in zip(fewer, more, strict=True)]
    text = (asset("sass") / "maxwell/winograd_fused.inc").read_text()
    figures = [int(x) for x in re.search(r"warp: (\d+) an .* (\d+) if it loads filters, in the mean (\d+) of 256 FFMA\n"
                                         r"# .* (\d+) in C,H,W,N, (\d+) in N,C,H,W", text).groups()]
    assert loop == [figures[0]] * 4 + [figures[1]] * 4
    assert sum(loop) / WARPS == figures[2] == spec.slots[0]
    rest = round(sum(fewer) / WARPS - 4 * spec.slots[0])
    assert rest == figures[3 if spec.layout == "CHWN" else 4] == spec.slots[1]


@pytest.mark.sampled(0, 2)
def test_a_simulation_agrees_with_the_budget(spec):
    """Within a tenth, with and without halves."""
    for channels in (32, 64):
        shape = ConvShape(8, channels, 28, 28, 64, 3, 3, 1, 1)
        made = plan(shape, layout=spec.layout, kernel="winograd_2x2_3x3_fused")
        timed = timing.call(made)
        assert timed.launches[-1].kernel == spec.name
        assert timed.launches[-1].clocks == pytest.approx(made.launches[-1].work.clocks(preset()), rel=0.1)


@pytest.mark.sampled(1)
def test_halves_take_the_issue_slots_that_plans_are_ranked_by(spec, traces):
    """And that the comment budgets."""
    text = (asset("sass") / "maxwell/winograd_fused_halves.inc").read_text()
    between, more = (int(x) for x in re.search(r"warp: (\d+) between the halves, (\d+) more", text).groups())
    loop, again = sorted(loops(built(spec)), key=len)
    assert issue_slots(again[len(loop):]) == between
    for four, five, ten in zip(*traces.values(), strict=True):
        slots = [issue_slots(path(built(spec), trace)) for trace in (four, five, ten)]
        assert slots[2] - slots[1] - 5 * (slots[1] - slots[0]) == HALVES == between + more


def test_an_iteration_is_256_multiplications_and_what_a_group_of_channels_needs(spec, traces):
    for warp in (0, 4):
        fewer, more = (Counter(x.opcode for x in path(built(spec), traces[groups][warp])) for groups in (4, 5))
        mix = +Counter({op: more[op] - fewer[op] for op in more})
        assert mix["FFMA"] == 256 and mix["LDS"] == 16 and mix["BAR"] == 1
        assert mix["FADD"] == (0 if warp else 32) and mix["IADD3"] == (0 if warp else 16)
        assert (mix["TLD"], mix["LDG"]) == ((0, 4) if warp else (16, 0))


@pytest.mark.long
def test_shared_memory_is_accessed_without_bank_conflicts(spec, traces):
    """128-bit accesses of quarter warps."""
    for trace in traces[10]:
        for inst, lanes in accesses(built(spec), trace):
            if inst.opcode in ("LDS", "STS") and None not in lanes:
                nbytes = 16 if ".128 " in inst.text() else 4
                assert shared_passes(lanes, nbytes) == nbytes // 4, inst.text()


def test_two_blocks_fit_an_sm(spec):
    assert built(spec).registers <= 128 and 2 * spec.shared_bytes <= 96 * 1024
