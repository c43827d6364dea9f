"""The scheduling classes of the table against what the vendor's compiler does with each instruction."""

import collections

import pytest

from maxdnn import cubin
from maxdnn.isa import TABLE, Instruction
from tests.corpus import compiler


@pytest.fixture(scope="module")
def by_opcode() -> dict[str, list[Instruction]]:
    found = collections.defaultdict(list)
    for source in compiler.sources():
        for kernel in cubin.read(compiler.compile_source(source)).kernels.values():
            for inst in kernel.instructions:
                found[inst.opcode].append(inst)
    return found


def test_fixed_latency_instructions_never_carry_a_barrier(by_opcode: dict[str, list[Instruction]]) -> None:
    for opcode, instructions in by_opcode.items():
        for inst in instructions:
            if inst.cls.latency == "fixed":
                assert inst.control.write_barrier is None, f"{opcode}: {inst.control} {inst.text()}"
                assert inst.control.read_barrier is None, f"{opcode}: {inst.control} {inst.text()}"


def test_results_of_variable_latency_are_announced_by_a_barrier(by_opcode: dict[str, list[Instruction]]) -> None:
    """One barrier may stand for several results in flight, so not every instruction sets one; its opcode does."""
    for opcode, instructions in by_opcode.items():
        results = [i for i in instructions if i.cls.latency == "variable" and i.writes() | i.pred_writes()]
        if results:
            assert any(inst.control.write_barrier is not None for inst in results), opcode


def test_a_store_never_sets_a_write_barrier(by_opcode: dict[str, list[Instruction]]) -> None:
    for inst in (i for found in by_opcode.values() for i in found):
        if inst.control.write_barrier is not None:
            assert any("w" in field.access for field in inst.row.operands), f"{inst.control} {inst.text()}"


def test_every_second_of_a_vendor_pair_has_another_pipe_than_the_first(by_opcode: dict[str, list[Instruction]]) -> None:
    """Instructions the scheduler may issue second share no pipe with those it may issue first."""
    second = {c.pipe for c in TABLE.classes.values() if c.dual_second}
    first = {c.pipe for c in TABLE.classes.values() if not c.dual_second and c.latency == "fixed"}
    assert second & first <= {"branch"} and "alu" not in second


def test_reuse_slots_belong_to_source_registers_of_instructions_that_are_read_in_order() -> None:
    for row in TABLE.rows:
        slots = [field.slot for field in row.operands if field.slot is not None]
        assert len(slots) == len(set(slots)), f"{row.mnemonic} {row.form}"
        for field in row.operands:
            if field.slot is not None:
                assert field.type == "gpr" and field.access == "r", f"{row.mnemonic} {field.name}"
                assert row.cls.pipe in ("alu", "fp64"), f"{row.mnemonic} {row.form}"
