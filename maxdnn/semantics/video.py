"""Video instructions: arithmetic on bytes, halves and words, then saturation, then a merge with or addition to c."""

from ..isa import Instruction, Operand
from .integer import compare
from .machine import Machine, V
from .operands import extend, raw, result32, select_part
from .registry import semantics

_RESULT_BITS = {"MRG_16H": 16, "MRG_16L": 16, "MRG_8B0": 8, "MRG_8B2": 8}


def _signedness(i: Instruction) -> tuple[bool, bool]:
    if "s1" in i.mods:
        return i.mods["s1"] == "S", i.mods["s2"] == "S"
    types = i.mods["ss"]
    return not types.startswith("U"), not types or types.split(".")[1].startswith("S")


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
    result32(m, i, result)


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


@semantics("VADD", "VADD.PO")
def vadd(m: Machine, i: Instruction) -> None:
    """Both negate bits mean a + b + 1, as for IADD."""
    a, b = _inputs(m, i)
    if i.mnemonic.endswith(".PO"):
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


@semantics("VMAD", "VMAD.PO")
def vmad(m: Machine, i: Instruction) -> None:
    """a * b + c in 64 bits, shifted right by 0, 7 or 15; both negate bits mean a * b + c + 1."""
    a, b = _inputs(m, i)
    signed = any(_signedness(i)) or i["a"].neg or i["c"].neg
    c = raw(m, i["c"])
    c = m.sext(c, "i64") if signed else m.zext(c, "i64")
    product = m.mul(a, b)
    if i.mnemonic.endswith(".PO"):
        total = m.add(m.add(product, c), m.const("i64", 1))
    else:
        total = m.add(_marked(m, product, i["a"].neg), _marked(m, c, i["c"].neg))
    shift = {"": 0, "SHR_7": 7, "SHR_15": 15}[i.mods["shr"]]
    if shift:
        total = (m.ashr if signed else m.lshr)(total, m.const("i64", shift))
    if i.mods["sat"]:
        total = _clamp(m, total, -(1 << 31), (1 << 31) - 1) if signed else _below(m, total)
    result32(m, i, m.trunc(total, "i32"))


def _below(m: Machine, value: V) -> V:
    """An unsigned i64 limited to 32 bits."""
    top = m.const("i64", 0xFFFFFFFF)
    return m.select(m.icmp("ugt", value, top), top, value)


@semantics("VSHL", "VSHR")
def vsh(m: Machine, i: Instruction) -> None:
    """Shift by an unsigned amount, limited to 32 or, with .W, taken modulo 32."""
    a_bits, b_bits = map(int, i.row.form.split(".")[1:])
    signed = (i.mods["s1"] == "S") if "s1" in i.mods else not i.mods["ss"].startswith("U")
    a = _operand(m, i["a"], a_bits, signed)
    n = _operand(m, i["b"], b_bits, False)
    limit = m.const("i64", 32)
    n = m.and_(n, m.const("i64", 31)) if i.mods["w"] else m.select(m.icmp("ugt", n, limit), limit, n)
    if i.opcode == "VSHR":
        value = m.ashr(a, n)
    else:  # what leaves 64 bits is beyond every limit of saturation: keep its sign
        value = m.shl(a, n)
        if i.mods["sat"]:
            lost = m.icmp("ne", m.ashr(value, n), a)
            top = m.const("i64", (1 << 63) - 1)
            value = m.select(lost, m.select(m.icmp("slt", a, m.const("i64", 0)), m.not_(top), top), value)
    _finish(m, i, value, i.mods["ud"] != "UD")


@semantics("VABSDIFF4")
def vabsdiff4(m: Machine, i: Instruction) -> None:
    """|a - b| of four bytes; .ACC adds them all to c, else bytes that are not selected come from c."""
    signed_a, signed_b = {"": (True, True), "U8.U8": (False, False), "S8.U8": (True, False),
                          "U8.S8": (False, True)}[i.mods["ss"]]
    chosen = _selected_bytes(i)
    total = raw(m, i["c"])
    for k in range(4):
        if not chosen >> k & 1:
            continue
        a, b = _byte(m, i, "a", k, signed_a), _byte(m, i, "b", k, signed_b)
        gap = m.sub(a, b)
        value = m.select(m.icmp("slt", gap, m.const("i64", 0)), m.sub(m.const("i64", 0), gap), gap)
        if i.mods["sat"]:
            value = _clamp(m, value, *((-128, 127) if i.mods["sd"] else (0, 255)))
        word = m.trunc(value, "i32")
        if i.mods["red"]:
            total = m.add(total, word)
        else:
            place, byte = m.const("i32", 8 * k), m.const("i32", 0xFF)
            kept = m.and_(total, m.const("i32", ~(0xFF << 8 * k)))
            total = m.or_(kept, m.shl(m.and_(word, byte), place))
    result32(m, i, total)


def _selected_bytes(i: Instruction) -> int:
    """Mask of result bytes, X Y Z W from the lowest; all if the form names none."""
    names = i.mods.get("xy", "") + i.mods.get("zw", "")
    return sum(1 << "XYZW".index(n) for n in names) if names else 15


def _byte(m: Machine, i: Instruction, name: str, k: int, signed: bool) -> V:
    """Byte k of an operand as an i64, after the four-digit choice of bytes: digits 0..3 are a, 4..7 are b, the last
    digit chooses byte 0."""
    op = i[name]
    if op.type in ("uimm", "simm"):
        return _operand(m, op, 8, signed)
    at = int(op.part[3 - k]) if op.part else k + (4 if name == "b" else 0)
    word = raw(m, i["a"] if at < 4 else i["b"])
    value = extend(m, m.lshr(word, m.const("i32", 8 * (at & 3))), 8, signed)
    return m.sext(value, "i64") if signed else m.zext(value, "i64")
