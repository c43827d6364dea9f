"""The kernels for groups of few channels as built: issue slots, registers."""

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.choose import plan
from maxdnn.cubins import cubin
from maxdnn.emu.gpu import VirtualGpu
from maxdnn.families.depthwise import KERNELS, THREADS
from maxdnn.families.depthwise_filters import KERNELS as FILTERS

from .machine_code import built, issue_slots


def path(spec, made):
    """The instructions that a warp of the plan's first launch executes."""
    launch, gpu, traces = made.launches[0], VirtualGpu(), []
    sizes = {role: 4 * int(np.prod(size)) for role, size in made.array_shapes().items()}
    sizes |= {name: region.nbytes for name, region in made.workspace.items()}
    buffers = {name: gpu.alloc(size) for name, size in sizes.items()}
    places = {name: (buffer.address, buffer.nbytes) for name, buffer in buffers.items()}
    module = gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52"))
    module.function(spec.name).trace(launch.grid, launch.block, launch.arguments(places, {"alpha": np.float32(1)}),
                                     blocks=[(0, 0, 0)], on_warp=traces.append)
    code = built(spec).instructions
    return [code[first + i] for first, count in traces[0].runs.tolist() for i in range(count)]


def forward_path(spec, channels, r, s):
    """For filters of r x s and groups of so many channels."""
    shape = ConvShape(spec.tile[2], 2 * channels, r, s, 2, r, s, stride=max(spec.stride, 1), groups=2)
    return path(spec, plan(shape, layout="NCHW", kernel=spec.name))


def filters_path(spec, rounds):
    shape = ConvShape(THREADS * rounds, 2, *spec.tile, 2, *spec.tile, stride=max(spec.stride, 1), groups=2)
    return path(spec, plan(shape, kernel=spec.name, layout="NCHW", kind="filters"))


@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec):
    tap, row, channel, rest = spec.slots
    for channels, (r, s) in ((1, spec.filter or (3, 4)), (3, spec.filter or (2, 1))):
        assert issue_slots(forward_path(spec, channels, r, s)) == ((tap * s + row) * r + channel) * channels + rest


@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_registers_leave_room_for_six_blocks_an_sm_and_four_of_the_largest_filters(spec):
    assert built(spec).registers <= (128 if spec.filter == (7, 7) else 85)


@pytest.mark.parametrize("spec", FILTERS, ids=lambda spec: spec.name)
def test_gradients_of_filters_take_the_issue_slots_that_plans_are_ranked_by(spec):
    each, rest = spec.slots
    for rounds in (1, 3):
        assert issue_slots(filters_path(spec, rounds)) == each * rounds + rest
    assert built(spec).registers <= 96
