"""The kernels for groups of few channels as built: issue slots, registers."""

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.choose import plan
from maxdnn.cubins import cubin
from maxdnn.emu.gpu import VirtualGpu
from maxdnn.families.depthwise import KERNELS

from .machine_code import built, issue_slots


def path(spec, channels, r, s):
    """The instructions a warp executes for filters of r x s and groups of so many channels."""
    made = plan(ConvShape(1, 2 * channels, r, s, 2, r, s, stride=max(spec.stride, 1), groups=2), kernel=spec.name)
    (launch,), gpu, traces = made.launches, VirtualGpu(), []
    buffers = {role: gpu.alloc(4 * int(np.prod(size))) for role, size in made.array_shapes().items()}
    places = {role: (buffer.address, buffer.nbytes) for role, buffer in buffers.items()}
    module = gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52"))
    module.function(spec.name).trace(launch.grid, launch.block, launch.arguments(places, {"alpha": np.float32(1)}),
                                     blocks=[(0, 0, 0)], on_warp=traces.append)
    code = built(spec).instructions
    return [code[first + i] for first, count in traces[0].runs.tolist() for i in range(count)]


@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec):
    tap, row, channel, rest = spec.slots
    for channels, (r, s) in ((1, spec.filter or (3, 4)), (3, spec.filter or (2, 1))):
        assert issue_slots(path(spec, channels, r, s)) == ((tap * s + row) * r + channel) * channels + rest


@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_registers_leave_room_for_six_blocks_an_sm_and_four_of_the_largest_filters(spec):
    assert built(spec).registers <= (128 if spec.filter == (7, 7) else 85)
