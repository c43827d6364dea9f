"""What the table says of memory, queues and words, asked in one place: against classes, the corpus and each other."""

import ast
import collections
from pathlib import Path

import pytest

from maxdnn import cubin, isa
from maxdnn.isa import RZ, TABLE, Control, Instruction, decode, hopper, table_of
from maxdnn.isa.operands import queue_and_order, slots, waits_for_block, waits_for_whole_block
from tests.corpus import compiler


@pytest.fixture(scope="module")
def corpus() -> list[Instruction]:
    return [inst for source in compiler.sources()
            for kernel in cubin.read(compiler.compile_source(source)).kernels.values() for inst in kernel.instructions]


def test_every_row_that_takes_an_address_says_which_memory_it_is() -> None:
    """Surfaces and cache control aside, which nothing here models."""
    spaces = collections.defaultdict(set)
    for row in TABLE.rows:
        if row.cls.pipe == "lsu" and any(o.type in ("addr", "cbank_indexed") for o in row.operands):
            known = TABLE.memory.get(row.opcode)
            if not row.opcode.startswith(("SU", "CCTL")):
                assert known is not None, row.mnemonic
                for space in known.spaces:
                    spaces[space].add(row.opcode)
    assert spaces == {"shared": {"LDS", "STS", "ATOMS", "LD", "ST", "ATOM", "RED"}, "constant": {"LDC"},
                      "global": {"LDG", "STG", "LD", "ST", "ATOM", "RED"}, "local": {"LDL", "STL", "LD", "ST"}}


def test_what_is_done_to_memory_is_what_the_operands_say(corpus: list[Instruction]) -> None:
    """Loads and atomics write a register, stores and sums none; only what comes back is in an order."""
    seen = set()
    for inst in corpus:
        access = inst.access
        if access is None:
            continue
        seen.add(inst.opcode)
        writes = any("w" in op.field.access for op in inst.operands if op.type == "gpr")
        assert writes == (not access.only_writes), inst.text()
        assert not (access.order and access.only_writes)
        assert access.atomic == inst.opcode.startswith(("ATOM", "RED"))
    assert seen == set(TABLE.memory)


def test_queues_follow_from_classes(corpus: list[Instruction]) -> None:
    for inst in corpus:
        queue, order = queue_and_order(inst)
        assert not (queue and inst.cls.latency == "fixed")
        assert (order == "bar") == waits_for_block(inst) == (inst.mnemonic in ("BAR.SYNC", "BAR.RED"))
        assert not waits_for_whole_block(inst) or waits_for_block(inst)
        assert all(register != RZ for _, register in slots(inst))


@pytest.mark.parametrize("where", [TABLE.addressing, hopper().addressing])
def test_addresses_of_words_fit_together(where) -> None:  # type: ignore[no-untyped-def]
    """Index and address are inverse; every alias means its instruction; so many bytes hold so many."""
    for index in range(100):
        address = where.address_of(index)
        assert where.index_of(address) == index and where.following(address) == where.address_of(index + 1)
        assert address in where.aliases(address)
        assert {where.normal(alias) for alias in where.aliases(address)} == {address}
        assert {where.index_of(alias) for alias in where.aliases(address)} == {index}
    assert TABLE.addressing.count(320) == 30 and hopper().addressing.count(320) == 20


def test_a_second_table_answers_for_itself() -> None:
    """Instructions are asked through their own table: nothing of Maxwell's is taken for Hopper's."""
    for table in (TABLE, hopper()):
        for opcode in ("NOP", "LDG"):
            row = next(row for row in table.rows if row.opcode == opcode)
            assert decode(row.value, Control(), 0, table).access is table.memory.get(opcode)
    assert hopper().memory.get("LDG") is not TABLE.memory["LDG"]


@pytest.mark.parametrize("table", [TABLE, table_of("sm_80"), hopper()], ids=lambda table: table.name)
def test_every_row_that_names_a_target_says_what_it_does_to_control(table) -> None:  # type: ignore[no-untyped-def]
    """And every opcode that says so has a row; what is pushed is what something pops."""
    named = {row.opcode for row in table.rows if any(op.name == "target" for op in row.operands)}
    assert named <= set(table.flow) <= {row.opcode for row in table.rows}
    pushed = {flow.stack for flow in table.flow.values() if flow.does in ("push", "call")}
    assert pushed == {flow.stack for flow in table.flow.values() if flow.does == "pop"}
    assert all(bool(flow.stack) == (flow.does in ("push", "call", "pop")) for flow in table.flow.values())
    assert {flow.does for flow in table.flow.values() if flow.leaves} >= {"jump", "call", "pop", "end"}
    assert not any(flow.leaves for flow in table.flow.values() if flow.does in ("push", "place", "meet", "barrier"))


@pytest.mark.parametrize("table", [TABLE, table_of("sm_80"), hopper()], ids=lambda table: table.name)
def test_what_a_launch_finds_in_bank_0_does_not_overlap(table) -> None:  # type: ignore[no-untyped-def]
    """And all of it lies in front of the parameters."""
    sizes = {"block": 12, "grid": 12, "global_first": 8}
    taken = [at + i for name, at in table.bank0.items() if name != "params" for i in range(sizes.get(name, 4))]
    assert len(taken) == len(set(taken)) and max(taken) < table.bank0["params"]


def test_long_stalls_count_cycles_with_the_hint_only() -> None:
    assert [s for s in range(16) if Control(stall=s).counts_cycles] == list(range(12))
    assert all(Control(stall=s, yield_hint=True).counts_cycles for s in range(16))


@pytest.mark.parametrize("module", [f"checker/{name}.py" for name in
                                    ("effects", "events", "hazards", "known", "timing", "values")]
                         + ["simulator/lower.py", "ptx/control_flow.py"])
def test_those_who_ask_the_table_name_no_instruction(module: str) -> None:
    """But for kinds of entries of a stack and of barriers, which are the table's own words."""
    opcodes = {row.opcode for table in (TABLE, hopper()) for row in table.rows} - {"SSY", "PBK", "PCNT", "RED"}
    tree = ast.parse((Path(isa.__file__).parents[1] / module).read_text())
    words = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    assert not {word for word in words if word.split(".")[0] in opcodes}


def test_what_the_tables_say_of_opcodes_is_said_of_some() -> None:
    for table in TABLE, hopper():
        assert {*table.waits, *table.tells, *table.flow, *table.memory} <= {row.opcode for row in table.rows}
