"""Conversions, whose types are parts of the printed opcode."""

from ...isa import Instruction, Operand
from ..convert import (
    HALF_NAN,
    INTEGRAL,
    between_floats,
    clamp,
    float_source,
    half_bits,
    marked,
    rounded,
    write_float,
    write_integer,
)
from ..machine import Machine, V
from ..operands import extend, i64, raw, set32, set64
from ..registry import hopper
from ..single import flush
from .opcode import parts, words

SMALLEST_NORMAL = 2.0 ** -1022  # of doubles

_WIDTHS = ("8", "16", "32", "64")


def _types(i: Instruction) -> list[str]:
    """The types that the opcode names, in order: `I2F.F64.S16` F64, S16."""
    return [n for n in parts(i) if n[0] in "FSU" and n[1:] in _WIDTHS]


def _brain(m: Machine, i: Instruction) -> bool:
    """Whether a type is one that has no meaning here."""
    if "BF16" in words(i):
        m.unsupported("numbers of 16 bits with the exponent of 32")
    return "BF16" in words(i)


def _rounding(i: Instruction) -> str:
    return next((w for w in ("RM", "RP", "RZ") if w in words(i)), "")


def _integral(i: Instruction) -> str:
    return next((INTEGRAL[w] for w in words(i) if w in INTEGRAL), "")


@hopper("F2F")
def f2f(m: Machine, i: Instruction) -> None:
    if _brain(m, i):
        return
    to, source = _types(i)
    op, ftz = i["b"], "FTZ" in words(i)
    value = float_source(m, op, source)
    result = between_floats(m, to, source, value, ftz, _rounding(i))
    bits = "i" + to[1:]
    result = m.bitcast(result, bits)
    if ftz and to == "F16":
        tiny = m.icmp("eq", m.and_(result, m.const(bits, 0x7C00)), m.const(bits, 0))
        result = m.select(tiny, m.and_(result, m.const(bits, 0x8000)), result)
    nan = m.const(bits, HALF_NAN) if (source, to) == ("F32", "F16") else _same_nan(m, op, source, to)
    result = m.select(m.fcmp("uno", value, value), nan, result)
    if to == "F64":
        set64(m, i["d"], result)
    else:
        set32(m, i["d"], result if to == "F32" else m.zext(result, "i32"))


_DIGITS = {"F16": 10, "F32": 23, "F64": 52}  # of a mantissa


def _same_nan(m: Machine, op: Operand, source: str, to: str) -> V:
    """A NaN in another width, quiet: it keeps its upper digits and its sign, whatever its marks (seen on an H200)."""
    given = m.zext(raw(m, op), "i64") if source == "F32" else i64(m, op)
    width, digits, gap = int(to[1:]), _DIGITS[to], _DIGITS[source] - _DIGITS[to]
    sign = m.shl(m.lshr(given, m.const("i64", int(source[1:]) - 1)), m.const("i64", width - 1))
    moved = (m.lshr if gap > 0 else m.shl)(given, m.const("i64", abs(gap)))
    kept = m.and_(moved, m.const("i64", (1 << digits) - 1))
    ones = (1 << width - 1) - (1 << digits - 1)  # the exponent and the bit that says it does not signal
    nan = m.or_(m.or_(sign, kept), m.const("i64", ones))
    return nan if to == "F64" else m.trunc(nan, "i" + to[1:])


@hopper("FRND")
def frnd(m: Machine, i: Instruction) -> None:
    if _brain(m, i):
        return
    type_ = (_types(i) or ["F32"])[0]
    value = float_source(m, i["b"], type_)
    if "FTZ" in words(i):
        if type_ != "F32":
            m.unsupported("flushed denormals of doubles and halves")
            return
        value = flush(m, value)
    write_float(m, i, type_, m.integral(value, _integral(i)))


@hopper("F2I")
def f2i(m: Machine, i: Instruction) -> None:
    """Rounds, then saturates. NaN gives the lowest number of the type, whether it has a sign or not, with .NTZ 0."""
    if _brain(m, i):
        return
    names = _types(i)
    source = next((n for n in names if n[0] == "F"), "F32")
    to = next((n for n in names if n[0] in "SU"), "S32")
    bits, signed = int(to[1:]), to[0] == "S"
    value = float_source(m, i["b"], source)
    if source == "F64" and "FTZ" in words(i):  # the sign of a zero does not matter here
        tiny = m.fcmp("olt", m.fabs(value), m.const("f64", SMALLEST_NORMAL))
        value = m.select(tiny, m.const("f64", 0.0), value)
    value = rounded(m, value, source, "FTZ" in words(i), _integral(i))
    result = m.ftoi(value, "i64" if bits == 64 else "i32", signed)
    if bits < 32:
        top = 1 << bits
        result = clamp(m, result, -top // 2 if signed else 0, (top // 2 if signed else top) - 1, signed)
    odd = 0 if "NTZ" in words(i) else 1 << bits - 1
    result = m.select(m.fcmp("uno", value, value), m.const("i64" if bits == 64 else "i32", odd), result)
    (set64 if bits == 64 else set32)(m, i["d"], result)


@hopper("I2F", "I2FP")
def i2f(m: Machine, i: Instruction) -> None:
    if _brain(m, i):
        return
    names = _types(i)
    to = next((n for n in names if n[0] == "F"), "F32")
    source = next((n for n in names if n[0] in "SU"), "S32")
    bits, signed, op = int(source[1:]), source[0] == "S", i["b"]
    if op.type == "uimm":  # zeros above it, if it is taken as 64 bits
        value = m.const("i64" if bits == 64 else "i32", op.value)
    elif bits == 64:
        value = i64(m, op)
    else:
        value = raw(m, op)
        if op.part[:1] in ("B", "H"):
            value = m.lshr(value, m.const("i32", (8 if op.part[0] == "B" else 16) * int(op.part[1])))
        value = extend(m, value, bits, signed)
    write_integer(m, i, to, marked(m, op, value, "i64" if bits == 64 else "i32"), signed, _rounding(i))


@hopper("I2I")
def i2i(m: Machine, i: Instruction) -> None:
    """Limited to the range of the result, whose sign goes on."""
    to = _types(i)[0]
    bits, signed = int(to[1:]), to[0] == "S"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    set32(m, i["d"], clamp(m, raw(m, i["b"]), low, high, True))


@hopper("F2FP")
def f2fp(m: Machine, i: Instruction) -> None:
    """Two singles to two halves: a above b."""
    if "PACK_AB" not in words(i) or words(i) & {"BF16", "TF32", "E5M2", "E4M3", "RELU", "SATFINITE"}:
        m.unsupported("other formats than pairs of halves")
        return
    high, low = (half_bits(m, m.fptrunc(float_source(m, i[n], "F32"), "f16", _rounding(i))) for n in "ab")
    set32(m, i["d"], m.or_(low, m.shl(high, m.const("i32", 16))))


@hopper("F2IP")
def f2ip(m: Machine, i: Instruction) -> None:
    """Two singles to two bytes, below a half of c. NaN as by F2I; .RELU: not less than 0."""
    how, c = words(i), i["c"]
    signed = "S8" in how
    if not signed and "NTZ" not in how:
        m.unsupported("a byte without a sign of NaN")
        return
    result = raw(m, c)
    if c.part == "H1":
        result = m.lshr(result, m.const("i32", 16))
    result = m.shl(result, m.const("i32", 16))
    for place, name in enumerate("ba"):
        value = m.integral(float_source(m, i[name], "F32"), _integral(i))
        whole = clamp(m, m.ftoi(value, "i32", signed), -128 if signed else 0, 127 if signed else 255, signed)
        if "RELU" in how and signed:
            whole = m.select(m.icmp("slt", whole, m.const("i32", 0)), m.const("i32", 0), whole)
        elif "NTZ" not in how:
            whole = m.select(m.fcmp("uno", value, value), m.const("i32", 0x80), whole)
        result = m.or_(result, m.shl(m.and_(whole, m.const("i32", 255)), m.const("i32", 8 * place)))
    set32(m, i["d"], result)
