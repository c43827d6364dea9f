"""The main loop of sconv_fprop_K64_N64 as built: instruction mix, issue slots, banks, occupancy."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from maxdnn.check import check_hazards
from maxdnn.cubins import ARCHS
from maxdnn.kernels import CONV_64X64, TILE_ELEMENTS

from .machine_code import bank_conflicts, built, issue_slots, main_loop

MEMORY = {"LDS": 32, "STS": 4, "TLD": 4, "LDC": 1, "BAR": 1, "BRA": 1}
OTHER = {"LEA": 1, "IADD": 4, "LOP": 3}


@pytest.fixture(scope="module")
def loop():
    return main_loop(built(CONV_64X64))


def test_an_iteration_is_512_multiplications_and_51_others(loop):
    mix = Counter(inst.opcode.split(".")[0] for inst in loop)
    n, k = CONV_64X64.tile
    assert mix == {"FFMA": TILE_ELEMENTS * n * k // CONV_64X64.threads} | MEMORY | OTHER


def test_floating_point_takes_98_percent_of_the_issue_slots(loop):
    assert issue_slots(loop) == 512 + sum(OTHER.values())
    assert sum(inst.opcode == "FFMA" for inst in loop) / issue_slots(loop) >= 0.983


def test_every_memory_instruction_shares_its_slot_with_a_multiplication(loop):
    pairs = [(a, b) for a, b in pairwise(loop) if a.control.stall == 0]
    assert {a.opcode for a, _ in pairs} == {"FFMA"}
    assert Counter(b.opcode.split(".")[0] for _, b in pairs) == MEMORY


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


def test_eight_blocks_fit_on_an_sm():
    """Registers: 16384 per quadrant, per warp in units of 256 [CUDA C Programming Guide]; shared memory: 64 KB on the
    smallest Maxwell, in units of 256 bytes."""
    kernel = built(CONV_64X64)
    per_warp = -(-kernel.registers * 32 // 256) * 256
    warps = 4 * (16384 // per_warp)
    assert warps // (CONV_64X64.threads // 32) == 8
    assert 65536 // (-(-kernel.shared_bytes // 256) * 256) == 8


@pytest.mark.parametrize("arch", ARCHS)
def test_control_codes_are_safe_on_every_path(arch):
    report = check_hazards(built(CONV_64X64, arch))
    assert report.ok, report.text()
