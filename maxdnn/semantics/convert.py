"""Conversions between integer and floating-point types and within them."""

from ..isa import Instruction, Operand
from .machine import Machine, V
from .operands import extend, i64, raw, result32, result64, select_part, signs
from .registry import semantics
from .single import NAN, canonical, flush, saturate

INTEGRAL = {"ROUND": "", "FLOOR": "RM", "CEIL": "RP", "TRUNC": "RZ"}
HALF_NAN = 0x7FFF


def float_source(m: Machine, op: Operand, type_: str) -> V:
    """A float operand of any width, its marks applied; F16 comes from the low half unless marked .H1 or .H1_H1."""
    if type_ == "F64":
        return signs(m, op, m.bitcast(i64(m, op), "f64"))
    bits = raw(m, op)
    if type_ == "F32":
        return signs(m, op, m.bitcast(bits, "f32"))
    if op.part.startswith("H1"):
        bits = m.lshr(bits, m.const("i32", 16))
    return signs(m, op, m.bitcast(m.trunc(bits, "i16"), "f16"))


def half_bits(m: Machine, value: V) -> V:
    """The 16 bits of an f16 in an i32; every NaN becomes 0x7fff."""
    bits = m.zext(m.bitcast(value, "i16"), "i32")
    return m.select(m.fcmp("uno", value, value), m.const("i32", HALF_NAN), bits)


@semantics("F2F")
def f2f(m: Machine, i: Instruction) -> None:
    to, source = i.mods["types"].split(".")
    value = float_source(m, i["b"], source)
    write_float(m, i, to, between_floats(m, to, source, value, bool(i.mods["ftz"]), i.mods["rnd"]))


def between_floats(m: Machine, to: str, source: str, value: V, ftz: bool, rnd: str) -> V:
    """A float of another width."""
    if ftz and source == "F32":
        value = flush(m, value)
    if ("F16", "F32", "F64").index(to) > ("F16", "F32", "F64").index(source):
        value = m.fpext(value, to.lower())
    else:
        value = m.fptrunc(value, to.lower(), rnd)
    return flush(m, value) if ftz and to == "F32" and source != "F16" else value


@semantics("F2F.round")
def f2f_round(m: Machine, i: Instruction) -> None:
    """Same type; rounds to an integral value if bit 42 says so, else only flushes, saturates and applies marks."""
    type_ = i.mods["types"].split(".")[0]
    value = float_source(m, i["b"], type_)
    if i.mods["ftz"] and type_ == "F32":
        value = flush(m, value)
    if i.mods["rnd"] in INTEGRAL:
        value = m.integral(value, INTEGRAL[i.mods["rnd"]])
    elif type_ == "F32":  # no arithmetic makes its NaN the GPU's
        value = m.select(m.fcmp("uno", value, value), m.bitcast(m.const("i32", NAN), "f32"), value)
    write_float(m, i, type_, value)


def write_float(m: Machine, i: Instruction, type_: str, value: V) -> None:
    """Saturate if the instruction says so, make its NaN the GPU's, write."""
    sat = i.mods.get("sat")
    if type_ == "F64":
        value = saturate(m, value, "f64") if sat else value
        nan = m.const("i64", 0xFFF80000_00000000)
        result64(m, i, m.select(m.fcmp("uno", value, value), nan, m.bitcast(value, "i64")))
        return
    if type_ == "F16":
        if sat:
            value = m.fptrunc(saturate(m, m.fpext(value, "f32")), "f16")
        result32(m, i, half_bits(m, value))
        return
    result32(m, i, canonical(m, saturate(m, value) if sat else value))


# -- float to integer ---------------------------------------------------------------------------------------------


@semantics("F2I")
def f2i(m: Machine, i: Instruction) -> None:
    """Rounds, then saturates. NaN gives 0, but 0x80.. if the source is double or the result 64 bits wide (PTX ISA,
    cvt)."""
    source, bits, signed = i.mods["src"], int(i.mods["dw"]), i.mods["ds"] == "S"
    value = float_source(m, i["b"], source)
    value = rounded(m, value, source, bool(i.mods["ftz"]), INTEGRAL.get(i.mods["rnd"], ""))
    result = m.ftoi(value, "i64" if bits == 64 else "i32", signed)
    if source == "F64" or bits == 64:
        odd = m.const("i64", 1 << 63) if bits == 64 else m.const("i32", 1 << 31)
        result = m.select(m.fcmp("uno", value, value), odd, result)
    if bits == 64:
        result64(m, i, result)
        return
    if bits == 16:
        low, high = (-0x8000, 0x7FFF) if signed else (0, 0xFFFF)
        result = clamp(m, result, low, high, signed)
    result32(m, i, result)


def rounded(m: Machine, value: V, source: str, ftz: bool, mode: str) -> V:
    """The integral value of a float, a half as a single."""
    if ftz and source == "F32":
        value = flush(m, value)
    if source == "F16":
        value = m.fpext(value, "f32")
    return m.integral(value, mode)


def clamp(m: Machine, value: V, low: int, high: int, signed: bool) -> V:
    """An i32 limited to a range; unsigned values have only the upper limit."""
    top = m.const("i32", high)
    value = m.select(m.icmp("sgt" if signed else "ugt", value, top), top, value)
    if not signed:
        return value
    bottom = m.const("i32", low)
    return m.select(m.icmp("slt", value, bottom), bottom, value)


# -- integer to float and integer to integer ----------------------------------------------------------------------


def _integer(m: Machine, op: Operand, bits: int, signed: bool) -> V:
    """An integer source extended to 32 bits (64-bit ones stay), after absolute value and negation in its own width: the
    compiler makes I2I.S32.S16 and I2F.F32.S16 with a sign of neg.s16, whose -(-32768) is -32768, and never of a neg
    behind the conversion."""
    if bits == 64:
        return marked(m, op, i64(m, op), "i64")
    value = extend(m, select_part(m, op, raw(m, op), signed), bits, signed)
    return extend(m, marked(m, op, value, "i32"), bits, signed)


def marked(m: Machine, op: Operand, value: V, type_: str) -> V:
    """abs, then negate, of an integer."""
    zero = m.const(type_, 0)
    if op.abs:
        value = m.select(m.icmp("slt", value, zero), m.sub(zero, value), value)
    return m.sub(zero, value) if op.neg else value


def _source_bits(i: Instruction) -> int:
    return {"I2F.B": 8, "I2I.B": 8, "I2F.H": 16, "I2I.H": 16}.get(i.mnemonic) or int(i.mods["sw"])


@semantics("I2F", "I2F.B", "I2F.H")
def i2f(m: Machine, i: Instruction) -> None:
    signed = i.mods["ss"] == "S"
    write_integer(m, i, i.mods["dst"], _integer(m, i["b"], _source_bits(i), signed), signed, i.mods["rnd"])


def write_integer(m: Machine, i: Instruction, to: str, value: V, signed: bool, rnd: str) -> None:
    """An integer as a float of type `to`."""
    result = m.itof(value, to.lower(), signed, rnd)
    if to == "F64":
        result64(m, i, m.bitcast(result, "i64"))
    else:
        result32(m, i, half_bits(m, result) if to == "F16" else m.bitcast(result, "i32"))


@semantics("I2I", "I2I.B", "I2I.H")
def i2i(m: Machine, i: Instruction) -> None:
    """Cut to the destination's width, zeros above it whatever its sign: the compiler uses I2I.S16.S8 as a number of 16
    bits without a sign, unmasked, and BFE or I2I.S32 where the sign goes on. With .SAT limited to the range first.
    I2I.S32.S32.SAT is the compiler's saturating negation (__vnegss2, for which silicon gives 32767 for -32768): there
    alone a mark does not wrap; it makes I2I.U16.S32.SAT and its like of a neg.s32 that does."""
    signed, to_signed, bits = i.mods["ss"] == "S", i.mods["ds"] == "S", int(i.mods["dw"])
    source, extended = _source_bits(i), m.sext if signed else m.zext
    if i.mods["sat"] and signed and to_signed and source == bits == 32:
        value = marked(m, i["b"], m.sext(raw(m, i["b"]), "i64"), "i64")
    else:
        value = extended(_integer(m, i["b"], source, signed), "i64")
    if i.mods["sat"]:
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to_signed else (0, (1 << bits) - 1)
        bottom, top = m.const("i64", low), m.const("i64", high)
        value = m.select(m.icmp("slt", value, bottom), bottom, value)
        value = m.select(m.icmp("sgt", value, top), top, value)
    result32(m, i, extend(m, m.trunc(value, "i32"), bits, False))
