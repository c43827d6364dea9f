"""Video instructions: arithmetic on bytes, halves and words, then saturation, then a merge with or addition to c."""

from ..isa import Instruction, Operand
from .integer import compare
from .machine import Machine, V
from .operands import extend, raw, select_part, set32, set_zs
from .registry import semantics

_RESULT_BITS = {"MRG_16H": 16, "MRG_16L": 16, "MRG_8B0": 8, "MRG_8B2": 8}


def _signedness(i: Instruction) -> tuple[bool, bool]:
    if "s1" in i.mods:
        return i.mods["s1"] == "S", i.mods["s2"] == "S"
    types = i.mods["ss"] or "S32.S32"
    return types.startswith("S"), types.endswith("S32") and not types.endswith("U32")


def _operand(m: Machine, op: Operand, bits: int, signed: bool) -> V:
    """A byte, half or word widened to 64 bits, where no operation overflows."""
    value = select_part(m, op, raw(m, op), signed) if op.part else extend(m, raw(m, op), bits, signed)
    return m.sext(value, "i64") if signed else m.zext(value, "i64")


def _inputs(m: Machine, i: Instruction) -> tuple[V, V]:
    """Operands a and b without marks; their widths are part of the row's form, as in R.8.16."""
    a_bits, b_bits = map(int, i.row.form.split(".")[1:])
    signed_a, signed_b = _signedness(i)
    return _operand(m, i["a"], a_bits, signed_a), _operand(m, i["b"], b_bits, signed_b)


def _marked(m: Machine, value: V, negated: bool) -> V:
    return m.sub(m.const("i64", 0), value) if negated else value


def _clamp(m: Machine, value: V, low: int, high: int) -> V:
    bottom, top = m.const("i64", low), m.const("i64", high)
    value = m.select(m.icmp("slt", value, bottom), bottom, value)
    return m.select(m.icmp("sgt", value, top), top, value)


def _finish(m: Machine, i: Instruction, value: V, signed: bool) -> None:
    """Saturate to the destination's type, then combine with c."""
    mode = i.mods["mode"]
    bits = _RESULT_BITS.get(mode, 32)
    if i.mods.get("sat"):
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        value = _clamp(m, value, low, high)
    result = m.trunc(value, "i32")
    if mode:
        result = _second(m, mode, result, raw(m, i["c"]), signed)
    set_zs(m, i["d"], result)
    set32(m, i["d"], result)


def _second(m: Machine, mode: str, value: V, c: V, signed: bool) -> V:
    """The second operation: merge a field into c, or add, or take the smaller or larger."""
    places = {"MRG_16H": (0xFFFF, 16), "MRG_16L": (0xFFFF, 0), "MRG_8B0": (0xFF, 0), "MRG_8B2": (0xFF, 16)}
    if mode in places:
        mask, at = places[mode]
        field = m.shl(m.and_(value, m.const("i32", mask)), m.const("i32", at))
        return m.or_(m.and_(c, m.const("i32", ~(mask << at))), field)
    if mode == "ACC":
        return m.add(value, c)
    less = m.icmp("slt" if signed else "ult", value, c)
    return m.select(less if mode == "MIN" else m.not_(less), value, c)


@semantics("VADD")
def vadd(m: Machine, i: Instruction) -> None:
    """Both negate bits mean a + b + 1, as for IADD."""
    a, b = _inputs(m, i)
    if i["a"].neg and i["b"].neg:
        total = m.add(m.add(a, b), m.const("i64", 1))
    else:
        total = m.add(_marked(m, a, i["a"].neg), _marked(m, b, i["b"].neg))
    _finish(m, i, total, i.mods["ud"] != "UD")


@semantics("VABSDIFF")
def vabsdiff(m: Machine, i: Instruction) -> None:
    a, b = _inputs(m, i)
    gap = m.sub(a, b)
    value = m.select(m.icmp("slt", gap, m.const("i64", 0)), m.sub(m.const("i64", 0), gap), gap)
    _finish(m, i, value, i.mods["ud"] == "SD")


@semantics("VMNMX")
def vmnmx(m: Machine, i: Instruction) -> None:
    a, b = _inputs(m, i)
    less = m.icmp("slt", a, b)
    _finish(m, i, m.select(m.not_(less) if i.mods["mx"] else less, a, b), i.mods["ud"] != "UD")


@semantics("VSET")
def vset(m: Machine, i: Instruction) -> None:
    a, b = _inputs(m, i)
    _finish(m, i, m.zext(compare(m, i.mods["cmp"], a, b, True), "i64"), False)


@semantics("VMAD")
def vmad(m: Machine, i: Instruction) -> None:
    """a * b + c in 64 bits, shifted right by 0, 7 or 15; both negate bits mean a * b + c + 1."""
    a, b = _inputs(m, i)
    signed = any(_signedness(i)) or i["a"].neg or i["c"].neg
    c = raw(m, i["c"])
    c = m.sext(c, "i64") if signed else m.zext(c, "i64")
    product = m.mul(a, b)
    if i["a"].neg and i["c"].neg:
        total = m.add(m.add(product, c), m.const("i64", 1))
    else:
        total = m.add(_marked(m, product, i["a"].neg), _marked(m, c, i["c"].neg))
    shift = {"": 0, "SHR_7": 7, "SHR_15": 15}[i.mods["shr"]]
    if shift:
        total = (m.ashr if signed else m.lshr)(total, m.const("i64", shift))
    if i.mods["sat"]:
        total = _clamp(m, total, -(1 << 31), (1 << 31) - 1) if signed else _below(m, total)
    value = m.trunc(total, "i32")
    set_zs(m, i["d"], value)
    set32(m, i["d"], value)


def _below(m: Machine, value: V) -> V:
    """An unsigned i64 limited to 32 bits."""
    top = m.const("i64", 0xFFFFFFFF)
    return m.select(m.icmp("ugt", value, top), top, value)
