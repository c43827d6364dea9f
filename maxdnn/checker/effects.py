"""What an instruction touches, as bit masks: one bit per 32-bit register, predicate, carry flags, uniform register and
uniform predicate. A mask is a Python int, so that "does this read what that writes" is one AND. Derived from the table
only."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..isa import PT, RZ, URZ, Guard, Instruction, Operand
from ..isa.operands import queue_and_order, slots

PREDICATE = RZ + 1  # bit of P0
CC = PREDICATE + PT + 1
UNIFORM = CC + 1  # bit of UR0
UNIFORM_PREDICATE = UNIFORM + URZ + 1  # of UP0
REGISTERS = (1 << RZ) - 1  # mask of all general registers
UNIFORM_REGISTERS = (1 << URZ) - 1 << UNIFORM
_ADDRESSES = ("addr", "gpr_plus_simm", "cbank_indexed", "rel_register")  # operands that accumulate in registers


@dataclass(frozen=True, slots=True)
class Effects:
    """Masks of what an instruction reads (by role), writes, and reads late: after issue, so that a later write to the
    register must wait. `fixed`: its results are ready a fixed number of cycles after issue. `told`: a scoreboard may
    be set for such a result all the same."""

    reads: int
    by_role: tuple[tuple[str, int], ...]
    writes: int
    late: int
    fixed: bool
    told: bool
    guard: Guard
    constant: bool  # reads a constant bank as an operand
    queue: str  # the in-order queue its operands are read from ("" for none)
    order: str  # operations of one such kind complete in order ("" for none); "bar" for a block barrier
    unit: str  # the unit that seems to execute it in order, which no document promises ("" for none)
    slots: tuple[tuple[int, int], ...]  # (operand slot, register) of reads that go through the operand reuse cache


def names(mask: int) -> str:
    """The resources in a mask as text: `R3`, `P0`, `CC`, comma separated."""
    return ", ".join(resource_name(i) for i in range(mask.bit_length()) if mask >> i & 1)


def resource_name(bit: int) -> str:
    if bit >= UNIFORM_PREDICATE:
        return f"UP{bit - UNIFORM_PREDICATE}"
    if bit >= UNIFORM:
        return f"UR{bit - UNIFORM}"
    if bit == CC:
        return "CC"
    return f"P{bit - PREDICATE}" if bit >= PREDICATE else f"R{bit}"


def registers(op: Operand) -> int:
    """Mask of the general and uniform registers an operand names."""
    found = 0 if op.type == "ugpr" else sum(1 << register for register in op.registers())
    return found | sum(1 << UNIFORM + register for register in op.uniforms())


def kind_of(bit: int) -> str:
    """register, predicate, carry, uniform register or uniform predicate, of a resource bit."""
    if bit >= UNIFORM:
        return "uniform register" if bit < UNIFORM_PREDICATE else "uniform predicate"
    return "carry" if bit == CC else "predicate" if bit >= PREDICATE else "register"


def _predicates(inst: Instruction) -> tuple[int, int, int]:
    """Masks of predicates read as operands, read as guard, and written."""
    first = UNIFORM_PREDICATE if inst.guard.uniform else PREDICATE
    guard = 0 if inst.guard.index == PT else 1 << first + inst.guard.index
    reads = sum(1 << PREDICATE + p for p in inst.pred_reads())
    reads |= sum(1 << UNIFORM_PREDICATE + op.value for op in inst.operands
                 if op.type == "upred" and "r" in op.field.access and op.value != PT)
    operands = sum(1 << PREDICATE + op.value for op in inst.operands
                   if op.type == "pred" and "r" in op.field.access and op.value != PT
                   and op.value != inst.guard.index)
    own = (reads & ~guard) | operands
    if any(op.type == "pred" and "r" in op.field.access and op.value == inst.guard.index for op in inst.operands):
        own |= guard
    writes = sum(1 << PREDICATE + p for p in inst.pred_writes())
    return own, guard, writes | sum(1 << UNIFORM_PREDICATE + p for p in inst.uniform_pred_writes())


def effects(inst: Instruction) -> Effects:
    """The effects of one instruction."""
    roles: dict[str, int] = {}
    writes = 0
    for op in inst.operands:
        mask = registers(op)
        if mask and "r" in op.field.access:
            role = "addr" if op.type in _ADDRESSES else "data" if inst.cls.pipe == "lsu" else "src"
            roles[role] = roles.get(role, 0) | mask
        if "w" in op.field.access:
            writes |= mask
    late = roles.get("addr", 0) | roles.get("data", 0) | roles.get("src", 0)
    if inst.row.spec.get("guard") != "uniform":  # what runs for a warp as a whole reads uniform registers late, too
        late &= REGISTERS
    roles["pred"], roles["guard"], predicates = _predicates(inst)
    roles["x" if inst.extends() else "cc"] = int(inst.cc_reads()) << CC
    fixed = inst.cls.latency == "fixed"
    by_role = tuple((role, mask) for role, mask in roles.items() if mask)
    reads = 0
    for _, mask in by_role:
        reads |= mask
    return Effects(reads, by_role, writes | predicates | int(inst.cc_writes()) << CC,
                   0 if fixed else late, fixed, inst.cls.told, inst.guard,
                   any(op.type == "cbank" for op in inst.operands), *queue_and_order(inst),
                   inst.row.spec.get("unit", ""), slots(inst))


def all_effects(instructions: Sequence[Instruction]) -> tuple[Effects, ...]:
    return tuple(effects(inst) for inst in instructions)
