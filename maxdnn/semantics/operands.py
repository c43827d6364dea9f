"""Operands to values: registers, immediates, constants with their sub-word parts and negate, abs and invert marks."""

from collections.abc import Callable

from ..isa import PT, RZ, Instruction, Operand
from .machine import FLAGS, UNIFORM, UNIFORM_PREDICATE, UNIFORM_ZERO, Machine, V

CONSTANTS = ("cbank", "cbank36")
NAMED_BANK = "a bank of constants that a uniform register names"


def raw(m: Machine, op: Operand) -> V:
    """The 32 bits an operand names, before parts and marks."""
    if op.type in ("gpr", "implied_next_gpr"):
        return m.const("i32", 0) if op.value == RZ else m.reg(op.value)
    if op.type in CONSTANTS:
        return m.constant(op.bank, op.value)
    if op.type == "ugpr":
        return m.reg(UNIFORM + op.value)
    if op.type == "cx":
        m.unsupported(NAMED_BANK)
        return m.const("i32", 0)
    return m.const("i32", op.value)


def select_part(m: Machine, op: Operand, value: V, signed: bool = False) -> V:
    """The half or byte an operand's part names, extended to 32 bits."""
    if not op.part:
        return value
    bits = {"H": 16, "B": 8}[op.part[0]]
    place = int(op.part[1]) * bits
    if place:
        value = m.lshr(value, m.const("i32", place))
    return extend(m, value, bits, signed)


def extend(m: Machine, value: V, bits: int, signed: bool) -> V:
    """The low bits of an i32 zero- or sign-extended."""
    if bits == 32:
        return value
    if not signed:
        return m.and_(value, m.const("i32", (1 << bits) - 1))
    gap = m.const("i32", 32 - bits)
    return m.ashr(m.shl(value, gap), gap)


def i32(m: Machine, op: Operand) -> V:
    """An integer operand with its part, no marks."""
    return select_part(m, op, raw(m, op))


def bits(m: Machine, op: Operand) -> V:
    """An operand of a logical instruction: inverted where marked."""
    value = raw(m, op)
    return m.not_(value) if op.inv else value


def signs(m: Machine, op: Operand, value: V) -> V:
    """abs, then negate, of a float value."""
    if op.abs:
        value = m.fabs(value)
    return m.fneg(value) if op.neg else value


def f32(m: Machine, op: Operand) -> V:
    return signs(m, op, m.bitcast(raw(m, op), "f32"))


def i64(m: Machine, op: Operand) -> V:
    """A register pair, a constant of 8 bytes or a 64-bit immediate."""
    if op.type == "f64_top20_split":
        return m.const("i64", op.value)
    if op.type == "f64_high":
        return m.const("i64", op.value << 32)
    if op.type == "ugpr":
        first = UNIFORM + op.value
        return m.const("i64", 0) if first == UNIFORM_ZERO else pair(m, m.reg(first), m.reg(first + 1))
    if op.type in CONSTANTS:
        return pair(m, m.constant(op.bank, op.value), m.constant(op.bank, op.value + 4))
    if op.type == "cx":
        return m.zext(raw(m, op), "i64")
    if op.type == "gpr":
        return m.const("i64", 0) if op.value == RZ else pair(m, m.reg(op.value), m.reg(op.value + 1))
    return m.sext(m.const("i32", op.value), "i64")


def f64(m: Machine, op: Operand) -> V:
    return signs(m, op, m.bitcast(i64(m, op), "f64"))


def pair(m: Machine, low: V, high: V) -> V:
    return m.or_(m.zext(low, "i64"), m.shl(m.zext(high, "i64"), m.const("i64", 32)))


def halves(m: Machine, value: V) -> tuple[V, V]:
    """Low and high word of an i64."""
    return m.trunc(value, "i32"), m.trunc(m.lshr(value, m.const("i64", 32)), "i32")


def pred(m: Machine, op: Operand) -> V:
    """A predicate operand; !P inverts it."""
    if op.value == PT:
        return m.const("i1", 0 if op.inv else 1)
    value = m.pred(op.value + (UNIFORM_PREDICATE if op.type == "upred" else 0))
    return m.not_(value) if op.inv else value


def set_pred(m: Machine, op: Operand | None, value: V) -> None:
    if op is not None and op.value != PT:
        m.set_pred(op.value + (UNIFORM_PREDICATE if op.type == "upred" else 0), value)


def set32(m: Machine, op: Operand, value: V) -> None:
    if op.type == "ugpr":
        m.set_reg(UNIFORM + op.value, value)
    elif op.value != RZ:
        m.set_reg(op.value, value)


def set64(m: Machine, op: Operand, value: V) -> None:
    first = op.value + (UNIFORM if op.type == "ugpr" else 0)
    if first not in (RZ, UNIFORM_ZERO):
        low, high = halves(m, value)
        m.set_reg(first, low)
        m.set_reg(first + 1, high)


def set_flags(m: Machine, value: V, **others: Callable[[], V]) -> None:
    """All flags after a 32-bit result: Z and S from the value unless given, C, O and K as given, else cleared."""
    clear = lambda: m.const("i1", 0)  # noqa: E731
    zero = m.const("i32", 0)
    ours = {"Z": lambda: m.icmp("eq", value, zero), "S": lambda: m.icmp("slt", value, zero)}
    for name in FLAGS:
        m.set_flag(name, others.get(name) or ours.get(name, clear))


def combine(m: Machine, op: str, a: V, b: V) -> V:
    """AND, OR or XOR of two predicates."""
    return {"AND": m.and_, "OR": m.or_, "XOR": m.xor}[op](a, b)


def set_predicates(m: Machine, i: Instruction, holds: V, how: str = "bool") -> None:
    """pd = holds BOOL ps, pq = (not holds) BOOL ps; `how`: the modifier that says BOOL."""
    ps, join = pred(m, i["ps"]), i.mods[how]
    first, second = combine(m, join, holds, ps), combine(m, join, m.not_(holds), ps)
    set_pred(m, i["pd"], first)
    set_pred(m, i["pq"], second)


def set_result(m: Machine, i: Instruction, holds: V, how: str = "bool") -> None:
    """The result of a comparison: of ISETP and its like predicates, of ISET and its like a number."""
    if i.opcode.endswith("P"):
        set_predicates(m, i, holds, how)
    else:
        set_boolean(m, i, holds, bool(i.mods["bf"]), how)


def set_boolean(m: Machine, i: Instruction, holds: V, one: bool, how: str = "bool") -> None:
    """All ones, or 1.0 (.BF), where holds BOOL ps, else 0."""
    true = m.const("i32", 0x3F800000 if one else 0xFFFFFFFF)
    result32(m, i, m.select(combine(m, i.mods[how], holds, pred(m, i["ps"])), true, m.const("i32", 0)))


def result32(m: Machine, i: Instruction, value: V) -> None:
    """Write an i32 to operand d with Z and S, the other flags cleared, if .CC is set."""
    if i["d"].cc:
        set_flags(m, value)
    set32(m, i["d"], value)


def result64(m: Machine, i: Instruction, value: V) -> None:
    """Write an i64 to the pair of operand d, with Z and S if .CC is set."""
    if i["d"].cc:
        set_flags(m, halves(m, value)[1], Z=lambda: m.icmp("eq", value, m.const("i64", 0)))
    set64(m, i["d"], value)
