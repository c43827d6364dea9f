"""The kernels for groups of few channels as built: issue slots, registers."""

import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.depthwise.maxwell import KERNELS, THREADS
from maxdnn.algorithms.depthwise.maxwell import WGRAD_KERNELS as FILTERS
from maxdnn.planning.select import plan

from .machine_code import built, issue_slots, path, trace_block


def executed(spec, made):
    """The instructions that a warp of the plan executes."""
    return path(built(spec), trace_block(made, spec).warps[0])


def forward_path(spec, channels, r, s):
    """For filters of r x s and groups of so many channels."""
    shape = ConvShape(spec.tile[2], 2 * channels, r, s, 2, r, s, stride=max(spec.stride, 1), groups=2)
    return executed(spec, plan(shape, layout="NCHW", kernel=spec.name))


def filters_path(spec, rounds):
    shape = ConvShape(THREADS * rounds, 2, *spec.tile, 2, *spec.tile, stride=max(spec.stride, 1), groups=2)
    return executed(spec, plan(shape, kernel=spec.name, layout="NCHW", kind="filters"))


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec):
    tap, row, channel, rest = spec.slots
    for channels, (r, s) in ((1, spec.filter or (3, 4)), (3, spec.filter or (2, 1))):
        assert issue_slots(forward_path(spec, channels, r, s)) == ((tap * s + row) * r + channel) * channels + rest


@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_registers_leave_room_for_six_blocks_an_sm_and_four_of_the_largest_filters(spec):
    assert built(spec).registers <= (128 if spec.filter == (7, 7) else 85)


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("spec", FILTERS, ids=lambda spec: spec.name)
def test_gradients_of_filters_take_the_issue_slots_that_plans_are_ranked_by(spec):
    each, rest = spec.slots
    for rounds in (1, 3):
        assert issue_slots(filters_path(spec, rounds)) == each * rounds + rest
    assert built(spec).registers <= 96
