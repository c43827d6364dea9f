"""The main loops of the pixel and taps kernels as built: instruction mix, issue slots, banks, registers."""

import re
from collections import Counter

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.choose import plan
from maxdnn.cubins import asset, cubin
from maxdnn.devices.protocol import Texture
from maxdnn.emu.gpu import VirtualGpu
from maxdnn.families.pixels import PIXELS_64X64
from maxdnn.families.taps import TAPS_64X64

from .machine_code import bank_conflicts, built, issue_slots, main_loop

LAYER = ConvShape(64, 24, 1, 1, 64, 1, 1)  # three iterations of one full tile


@pytest.fixture(scope="module", params=[PIXELS_64X64, TAPS_64X64], ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def loop(spec):
    return main_loop(built(spec))


def traces(spec):
    gpu = VirtualGpu()
    (launch,) = plan(LAYER, kernel=spec.name).launches
    module = gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52"))
    for symbol, content in launch.tables.items():
        module.set_constant(symbol, content)
    buffers = {role: gpu.alloc(4 * int(np.prod(size))) for role, size in plan(LAYER).array_shapes().items()}
    places = {role: (buffer.address, buffer.nbytes) for role, buffer in buffers.items()}
    found = []
    module.function(spec.name).trace(launch.grid, launch.block, launch.arguments(places, {"alpha": np.float32(1)}),
                                     blocks=[(0, 0, 0)], on_warp=found.append,
                                     textures={n: Texture(*bound) for n, bound in launch.bound(places).items()})
    return found


def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec, loop):
    code = built(spec).instructions
    assert issue_slots(loop) == spec.slots[0]
    for trace in traces(spec):
        path = [code[first + i] for first, count in trace.runs.tolist() for i in range(count)]
        assert issue_slots(path) == 3 * spec.slots[0] + spec.slots[1]


def test_floating_point_takes_97_percent_of_the_issue_slots(loop):
    assert Counter(inst.opcode for inst in loop)["FFMA"] == 512
    assert 512 / issue_slots(loop) >= 0.97


def test_the_budget_in_the_source_is_the_budget_of_the_cubin(spec, loop):
    text = (asset("sass") / spec.source).read_text()
    budget = text[text.index("#   per iteration"):text.index("LOOP:")]
    mix = {name: int(count) for count, name in re.findall(r"(\d+) ([A-Z]{3,5})\b", budget)}
    assert mix == Counter(inst.opcode for inst in loop)
    slots = issue_slots(loop)
    assert f"512/{slots} = {100 * 512 / slots:.2f}%" in budget


def test_no_multiplication_meets_a_bank_conflict(loop):
    assert not [inst for inst in bank_conflicts([*loop, *loop]) if inst.opcode == "FFMA"]


def test_at_most_128_registers_and_eight_blocks_an_sm(spec):
    kernel = built(spec)
    assert kernel.registers <= 128
    assert 8 * kernel.shared_bytes <= 96 * 1024
