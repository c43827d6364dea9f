"""The product kernels as built: their loops' mix, slots and banks, what a block asks of shared memory and textures."""

import re
from collections import Counter
from itertools import pairwise

import pytest

from maxdnn.algorithms.gemm.maxwell import GROUP, KERNELS
from maxdnn.build.cubins import asset
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import product

from .machine_code import accesses, bank_conflicts, built, issue_slots, main_loop, shared_passes, trace_block

GROUPS = 3


@pytest.fixture(scope="module", params=KERNELS, ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def loop(spec):
    return main_loop(built(spec))


def traces(spec, size, groups):
    """Every warp of the only block of a square product."""
    ta, tb = (x == "t" for x in spec.layout)
    problem = product((size, GROUP * groups)[::-1 if ta else 1], (GROUP * groups, size)[::-1 if tb else 1],
                      transpose_a=ta, transpose_b=tb)
    found = trace_block(choose(problem, preset(), spec.name), spec)
    return found.warps, found.places


@pytest.fixture(scope="module")
def block(spec):
    """(instruction, addresses of its lanes) of all warps of a block, three groups long."""
    found, places = traces(spec, spec.tile, GROUPS)
    return [access for trace in found for access in accesses(built(spec), trace)], places


def turned(spec):
    return (spec.layout[0] == "n") + (spec.layout[1] == "t")


def test_an_iteration_is_512_multiplications_and_a_few_others(spec, loop):
    fetches = 2 if spec.tile == 64 else 1
    stores = fetches * (2 + 3 * turned(spec))
    assert Counter(inst.opcode for inst in loop) == {
        "FFMA": 512, "LDS": 32, "TLD": 2 * fetches, "STS": stores, "BAR": 1, "BRA": 1,
        "IADD": 1 + 2 * fetches, "LOP": 4}
    assert issue_slots(loop) == 517 + 2 * fetches == spec.slots[0]


def test_no_register_bank_conflicts_in_the_loop(loop):
    assert bank_conflicts([*loop, *loop]) == []


def test_every_memory_instruction_shares_its_slot_and_stands_apart_from_the_next(loop):
    slot, places = 0, []
    for before, inst in pairwise(loop):
        slot += before.control.stall > 0
        if inst.cls.pipe in ("lsu", "tex"):
            assert before.opcode == "FFMA" and before.control.stall == 0
            places.append(slot)
    assert min(b - a for a, b in pairwise(places)) >= 2


@pytest.mark.sampled(1)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec):
    """For one iteration, and for all the rest of a full tile."""
    found, _ = traces(spec, spec.tile, GROUPS)
    code = built(spec).instructions
    for trace in found:
        path = [code[first + i] for first, count in trace.runs.tolist() for i in range(count)]
        assert issue_slots(path) == GROUPS * spec.slots[0] + spec.slots[1]


def test_the_comment_budgets_as_much(spec):
    """Slots of an iteration in either tile, with their share of FFMA; of the rest; of a turned operand."""
    text = (asset("sass") / "maxwell/product.inc").read_text()
    found = re.search(r"# Budget.*: (\d+) an iteration of 512 FFMA in the large tile \((\S+)%\), (\d+) in the "
                      r"small one \((\S+)%\);\n# .* tile (\d+) and (\d+), .* operand (\d+) and (\d+) more", text)
    *loops, rest_of_large, rest_of_small, turn_of_large, turn_of_small = map(float, found.groups())
    assert loops[1::2] == [round(51200 / slots, 2) for slots in loops[::2]]
    large = spec.tile == 128
    rest, turning = (rest_of_large, turn_of_large) if large else (rest_of_small, turn_of_small)
    assert spec.slots == (loops[0 if large else 2], rest + turning * turned(spec))


@pytest.mark.sampled(1)
def test_no_shared_memory_access_meets_a_bank_twice(block):
    for inst, lanes in block[0]:
        if inst.opcode in ("LDS", "STS") and any(a is not None for a in lanes):
            wide = inst.mods["size"].endswith("128")
            assert shared_passes(lanes, 16 if wide else 4) == (4 if wide else 1), inst.text()


@pytest.mark.sampled(2)
def test_every_texel_is_fetched_once_and_every_vector_stored_once(spec, block):
    found, places = block
    size = spec.tile * GROUP * GROUPS * 4
    fetched = Counter(a for inst, lanes in found if inst.opcode == "TLD" for a in lanes if a is not None)
    for role in ("a", "b"):
        start = places[role][0]
        assert {a: n for a, n in fetched.items() if start <= a < start + size} == dict.fromkeys(
            range(start, start + size, 16), 1)
    stored = Counter(a for inst, lanes in found if inst.opcode == "STG" for a in lanes if a is not None)
    assert stored == dict.fromkeys(range(places["out"][0], places["out"][0] + 4 * spec.tile**2, 16), 1)


def test_as_many_blocks_fit_on_an_sm_as_its_registers_allow(spec):
    """Four warps a scheduler at 128 registers; shared memory of GM200 and GM204."""
    kernel = built(spec)
    assert kernel.registers <= 128
    assert 96 * 1024 // (-(-kernel.shared_bytes // 256) * 256) >= 16 // (spec.threads // 32)
