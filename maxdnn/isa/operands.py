"""How instructions come by their operands: from which queue, in which order they complete, through which slots of the
reuse cache. Derived from the table's classes and fields; a table with other classes answers for itself."""

from .instruction import Instruction
from .operand import Operand
from .table import RZ

BARRIER = "bar"  # the order of instructions that wait for a block
_SLOT_OF_BIT = {8: 0, 20: 1, 39: 2}  # slot of a register field where the form has no reuse flag for it


def queue_and_order(inst: Instruction) -> tuple[str, str]:
    """The in-order queue that an instruction's operands are read from ("" for none), and the kind of operations that
    complete in the order of their issue with it ("" for none)."""
    if waits_for_block(inst):
        return "", BARRIER
    own, access = inst.row.spec, inst.access
    order = own.get("order", inst.cls.order) or (access.order if access is not None else "")
    return own.get("queue", inst.cls.queue), order


def barrier_kind(inst: Instruction) -> str:
    """What a barrier of the block does: SYNC waits, RED waits and counts, SCAN waits
    and numbers, ARV only arrives; "" for no barrier."""
    flow = inst.flow
    return inst.row.text.partition("{")[0].split(".")[1] if flow is not None and flow.does == "barrier" else ""


def number_and_count(inst: Instruction) -> bool:
    """Whether one register holds both, the count of threads in its upper half: as the one field prints twice."""
    count = inst.operand("cnt")
    bar = inst["bar"]
    return count is not None and count.type == bar.type == "gpr" and count.field.spec["lsb"] == bar.field.spec["lsb"]


def waits_for_block(inst: Instruction) -> bool:
    """Whether it lets no thread past until others of the block have arrived."""
    return barrier_kind(inst) in ("SYNC", "RED", "SCAN")


def waits_for_whole_block(inst: Instruction) -> bool:
    """Whether it says itself that it waits for all threads of the block: number and count not in registers."""
    count = inst.operand("cnt")
    return waits_for_block(inst) and inst["bar"].type == "uimm" and (
        count is None or (count.type == "uimm" and count.value == 0) or (count.type == "gpr" and count.value == RZ))


def slots(inst: Instruction) -> tuple[tuple[int, int], ...]:
    """(operand slot, register) of reads that go through the reuse cache: the slot is the table's where it names one,
    else (forms without reuse flags, such as LOP32I, which still read through the cache) that of the register field."""
    if inst.cls.pipe not in ("alu", "fp64"):
        return ()
    found = []
    for op in inst.operands:
        if op.type == "gpr" and "r" in op.field.access and op.registers():
            slot = _slot(op)
            if slot is not None:
                found.append((slot, op.value))
    return tuple(found)


def _slot(op: Operand) -> int | None:
    return op.field.slot if op.field.slot is not None else _SLOT_OF_BIT.get(op.field.spec["lsb"])


def access_bytes(inst: Instruction) -> int:
    """Bytes each lane moves, from the registers its data covers (sub-word accesses count as a register)."""
    for name in ("d", "b", "a"):
        op = inst.operand(name)
        if op is not None and op.type == "gpr":
            return 4 * op.regs
    return 4
