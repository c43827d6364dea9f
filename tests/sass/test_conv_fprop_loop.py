"""The main loops of the convolution kernels as built: instruction mix, issue slots, banks, occupancy."""

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from maxdnn.algorithms.paper.maxwell import CONV_64X64, CONV_128X32, CONV_PAPER, TILE_ELEMENTS
from maxdnn.build.cubins import ARCHS, asset
from maxdnn.checker import check_hazards

from .machine_code import bank_conflicts, built, issue_slots, main_loop
from .on_device import convolve

# Instructions in the second half of a pair, and those besides FFMA with a slot of their own.
PAIRED = {
    CONV_64X64.name: {"LDS": 32, "STS": 4, "TLD": 4, "LDC": 1, "BAR": 1, "BRA": 1},
    CONV_128X32.name: {"LDS": 32, "STS": 5, "TLD": 5, "LDC": 1, "BAR": 1, "BRA": 1},
}
PAIRED[CONV_PAPER.name] = PAIRED[CONV_64X64.name]
ALONE = {CONV_64X64.name: {"IADD": 5, "LOP": 3}, CONV_128X32.name: {"IADD": 9},
         CONV_PAPER.name: {"IADD": 5, "LOP": 3, "ISETP": 1}}


@pytest.fixture(scope="module", params=[CONV_64X64, CONV_128X32, CONV_PAPER], ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def loop(spec):
    return main_loop(built(spec))


def test_an_iteration_is_512_multiplications_and_a_few_others(spec, loop):
    mix = Counter(inst.opcode for inst in loop)
    n, k = spec.tile
    assert mix == {"FFMA": TILE_ELEMENTS * n * k // spec.threads} | PAIRED[spec.name] | ALONE[spec.name]
    assert mix["FFMA"] == 512


@pytest.mark.sampled(1)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec, loop):
    """For one iteration, and for all the rest of a full tile."""
    traces, (n, k) = [], spec.tile
    ones = np.ones((24, 1, 1, max(n, k)), np.float32)
    convolve(spec, ones[..., :n], ones[..., :k], on_warp=traces.append)
    code = built(spec).instructions
    assert issue_slots(loop) == spec.slots[0]
    for trace in traces:
        path = [code[first + i] for first, count in trace.runs.tolist() for i in range(count)]
        assert issue_slots(path) == 3 * spec.slots[0] + spec.slots[1]


@pytest.mark.parametrize(("spec", "share"), [(CONV_64X64, 98.5), (CONV_128X32, 98.3), (CONV_PAPER, 98.3)],
                         indirect=["spec"])
def test_floating_point_takes_98_percent_of_the_issue_slots(spec, loop, share):
    """The paper's loop: 98.3%."""
    assert issue_slots(loop) == 512 + sum(ALONE[spec.name].values())
    assert round(100 * 512 / issue_slots(loop), 1) == share


def test_the_budget_in_the_source_is_the_budget_of_the_cubin(spec, loop):
    """The comment above the loop counts every instruction of an iteration, and the slots."""
    source = spec.source if spec is CONV_128X32 else "maxwell/conv_fprop_64x64.inc"
    text = (asset("sass") / source).read_text()
    budget = text[text.index("#   per iteration"):text.index("LOOP:")]
    if spec is CONV_64X64:
        budget = re.sub("; with the paper's loop also.*", "", budget)
    mix = {name: int(count) for count, name in re.findall(r"(\d+) ([A-Z]{3,5})\b", budget)}
    assert mix == Counter(inst.opcode for inst in loop)
    slots = issue_slots(loop)
    assert f"512/{slots} = {100 * 512 / slots:.2f}%" in budget


def test_every_memory_instruction_shares_its_slot_with_a_multiplication(spec, loop):
    pairs = [(a, b) for a, b in pairwise(loop) if a.control.stall == 0]
    assert {a.opcode for a, _ in pairs} == {"FFMA"}
    assert Counter(b.opcode for _, b in pairs) == PAIRED[spec.name]


def test_memory_instructions_stand_at_least_two_slots_apart(loop):
    slot, places = 0, []
    for inst in loop:
        if inst.cls.pipe in ("lsu", "tex"):
            places.append(slot)
        slot += inst.control.stall > 0
    assert min(b - a for a, b in pairwise(places)) >= 2


def test_no_register_bank_conflicts_anywhere_in_the_loop(loop):
    assert bank_conflicts(loop) == []
    assert bank_conflicts([*loop, *loop]) == []


def test_bank_conflicts_would_be_seen(loop):
    """The same loop with its reuse flags cleared has the 16 conflicts a row that the register map cannot avoid."""
    bare = [replace(inst, control=replace(inst.control, reuse=0)) for inst in loop]
    assert len(bank_conflicts(bare)) == 16 * TILE_ELEMENTS


def test_every_accumulator_is_used_once_per_element_and_kept_in_place(loop):
    used = Counter(inst["d"].value for inst in loop if inst.opcode == "FFMA")
    assert len(used) == 64 and set(used.values()) == {TILE_ELEMENTS}
    assert all(inst["d"].value == inst["c"].value for inst in loop if inst.opcode == "FFMA")


def test_eight_blocks_fit_on_an_sm(spec):
    """Registers: 16384 per quadrant, per warp in units of 256 [CUDA C Programming Guide]; shared memory in units of 256
    bytes: 64 KB on the smallest Maxwell, which holds 8 blocks of the first kernel, 96 KB on GM200 and GM204."""
    kernel = built(spec)
    per_warp = -(-kernel.registers * 32 // 256) * 256
    warps = 4 * (16384 // per_warp)
    assert warps // (spec.threads // 32) == 8
    room = (96 if spec is CONV_128X32 else 64) * 1024
    assert room // (-(-kernel.shared_bytes // 256) * 256) >= 8


@pytest.mark.sampled(2, 6)
@pytest.mark.parametrize("arch", ARCHS)
def test_control_codes_are_safe_on_every_path(spec, arch):
    report = check_hazards(built(spec, arch))
    assert report.ok, report.text()
