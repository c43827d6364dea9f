"""The main loop of the kernels for gradients of filters as built: instruction mix, issue slots, banks, registers."""

import re
from collections import Counter

import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.wgrad import plan as wgrad
from maxdnn.build.cubins import asset
from maxdnn.planning.select import plan

from .machine_code import bank_conflicts, built, issue_slots, main_loop, path, trace_block


@pytest.fixture(scope="module", params=wgrad.KERNELS, ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def loop(spec):
    return main_loop(built(spec))


def slots(spec, shape):
    """Of the first block's warps for a layer, split or not."""
    layout = "CHWN" if spec is wgrad.KERNELS[0] else "NCHW"
    made = plan(shape, layout=layout, kernel=spec.name, kind="filters")
    return {issue_slots(path(built(spec), trace)) for trace in trace_block(made, spec).warps}


@pytest.mark.long
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
    text = (asset("sass") / "maxwell/filters.inc").read_text()
    budget = text[text.index("#   per iteration"):text.index("LOOP:")]
    mix = {name: int(count) for count, name in re.findall(r"(\d+) ([A-Z]{3,5})\b", budget)}
    assert mix == Counter(inst.opcode for inst in loop)
    assert f"512/{issue_slots(loop)} = {100 * 512 / issue_slots(loop):.2f}%" in budget


def test_no_multiplication_meets_a_bank_conflict(loop):
    assert not [inst for inst in bank_conflicts([*loop, *loop]) if inst.opcode == "FFMA"]


def test_at_most_128_registers_and_eight_blocks_an_sm(spec):
    kernel = built(spec)
    assert kernel.registers <= 128 and 8 * kernel.shared_bytes <= 96 * 1024
