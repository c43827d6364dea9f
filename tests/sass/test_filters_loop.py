"""The main loop of the kernels for gradients of filters as built: instruction mix, issue slots, banks, registers."""

import re
from collections import Counter

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.choose import plan
from maxdnn.cubins import asset, cubin
from maxdnn.devices.protocol import Texture
from maxdnn.emu.gpu import VirtualGpu
from maxdnn.families import filters

from .machine_code import bank_conflicts, built, issue_slots, main_loop


@pytest.fixture(scope="module", params=filters.KERNELS, ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def loop(spec):
    return main_loop(built(spec))


def slots(spec, shape):
    """Of the first block's warps for a layer, split or not."""
    layout = "CHWN" if spec is filters.FILTERS_K else "NCHW"
    made = plan(shape, layout=layout, kernel=spec.name, kind="filters")
    gpu = VirtualGpu()
    sizes = {role: 4 * int(np.prod(size)) for role, size in made.array_shapes().items()}
    sizes |= {name: region.nbytes for name, region in made.workspace.items()}
    buffers = {name: gpu.alloc(size) for name, size in sizes.items()}
    places = {name: (buffer.address, buffer.nbytes) for name, buffer in buffers.items()}
    (launch,) = made.passes
    found = []
    gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52")).function(spec.name).trace(
        launch.grid, launch.block, launch.arguments(places, {"alpha": np.float32(1)}), blocks=[(0, 0, 0)],
        on_warp=found.append, textures={n: Texture(*bound) for n, bound in launch.bound(places).items()})
    code = built(spec).instructions
    return {issue_slots([code[first + i] for first, count in trace.runs.tolist() for i in range(count)])
            for trace in found}


def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec, loop):
    each, rest = spec.slots
    assert issue_slots(loop) == each
    assert slots(spec, ConvShape(24, 64, 1, 1, 64, 1, 1)) == {3 * each + rest}
    # a second pixel, of which the first group is the fourth
    assert slots(spec, ConvShape(24, 64, 1, 2, 64, 1, 1, padding=(0, 1), stride=(1, 3))) == {
        6 * each + rest + spec.between}


def test_floating_point_takes_97_percent_of_the_issue_slots(loop):
    assert Counter(inst.opcode for inst in loop)["FFMA"] == 512
    assert 512 / issue_slots(loop) >= 0.97


def test_the_budget_in_the_source_is_the_budget_of_the_cubin(loop):
    text = (asset("sass") / "filters.inc").read_text()
    budget = text[text.index("#   per iteration"):text.index("LOOP:")]
    mix = {name: int(count) for count, name in re.findall(r"(\d+) ([A-Z]{3,5})\b", budget)}
    assert mix == Counter(inst.opcode for inst in loop)
    assert f"512/{issue_slots(loop)} = {100 * 512 / issue_slots(loop):.2f}%" in budget


def test_no_multiplication_meets_a_bank_conflict(loop):
    assert not [inst for inst in bank_conflicts([*loop, *loop]) if inst.opcode == "FFMA"]


def test_at_most_128_registers_and_eight_blocks_an_sm(spec):
    kernel = built(spec)
    assert kernel.registers <= 128 and 8 * kernel.shared_bytes <= 96 * 1024
