"""Conversions, whose types are parts of the printed opcode."""

from ...isa import Instruction
from ..convert import (
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

_WIDTHS = ("8", "16", "32", "64")
_NO_BF16 = "numbers of 16 bits with the exponent of 32"


def _types(i: Instruction) -> list[str]:
    """The types that the opcode names, in order: `I2F.F64.S16` F64, S16."""
    return [n for n in parts(i) if n[0] in "FSU" and n[1:] in _WIDTHS]


def _rounding(i: Instruction) -> str:
    return next((w for w in ("RM", "RP", "RZ") if w in words(i)), "")


def _integral(i: Instruction) -> str:
    return next((INTEGRAL[w] for w in words(i) if w in INTEGRAL), "")


@hopper("F2F")
def f2f(m: Machine, i: Instruction) -> None:
    if "BF16" in words(i):
        m.unsupported(_NO_BF16)
        return
    to, source = _types(i)
    value, ftz = float_source(m, i["b"], source), "FTZ" in words(i)
    if (source, to) == ("F32", "F64"):
        set64(m, i["d"], _widened(m, flush(m, value) if ftz else value))
    else:
        write_float(m, i, to, between_floats(m, to, source, value, ftz, _rounding(i)))


def _widened(m: Machine, value: V) -> V:
    """The bits of a single as a double. A NaN keeps its sign and its digits (seen on an H200)."""
    word = m.zext(m.bitcast(value, "i32"), "i64")
    digits = m.shl(m.and_(word, m.const("i64", 0x7FFFFF)), m.const("i64", 29))
    sign = m.shl(m.lshr(word, m.const("i64", 31)), m.const("i64", 63))
    nan = m.or_(m.or_(sign, digits), m.const("i64", 0x7FF80000_00000000))
    return m.select(m.fcmp("uno", value, value), nan, m.bitcast(m.fpext(value, "f64"), "i64"))


@hopper("FRND")
def frnd(m: Machine, i: Instruction) -> None:
    type_ = (_types(i) or ["F32"])[0]
    value = float_source(m, i["b"], type_)
    if "FTZ" in words(i):
        value = flush(m, value)
    write_float(m, i, type_, m.integral(value, _integral(i)))


@hopper("F2I")
def f2i(m: Machine, i: Instruction) -> None:
    """Rounds, then saturates. NaN gives the lowest number of the type, whether it has a sign or not, with .NTZ 0."""
    names = _types(i)
    source = next((n for n in names if n[0] == "F"), "F32")
    to = next((n for n in names if n[0] in "SU"), "S32")
    bits, signed = int(to[1:]), to[0] == "S"
    value = rounded(m, float_source(m, i["b"], source), source, "FTZ" in words(i), _integral(i))
    result = m.ftoi(value, "i64" if bits == 64 else "i32", signed)
    if bits < 32:
        top = 1 << bits
        result = clamp(m, result, -top // 2 if signed else 0, (top // 2 if signed else top) - 1, signed)
    odd = 0 if "NTZ" in words(i) else 1 << bits - 1
    result = m.select(m.fcmp("uno", value, value), m.const("i64" if bits == 64 else "i32", odd), result)
    (set64 if bits == 64 else set32)(m, i["d"], result)


@hopper("I2F", "I2FP")
def i2f(m: Machine, i: Instruction) -> None:
    if "BF16" in words(i):
        m.unsupported(_NO_BF16)
        return
    names = _types(i)
    to = next((n for n in names if n[0] == "F"), "F32")
    source = next((n for n in names if n[0] in "SU"), "S32")
    bits, signed, op = int(source[1:]), source[0] == "S", i["b"]
    if bits == 64:
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
    if words(i) & {"BF16", "TF32", "E5M2", "E4M3", "RELU", "SATFINITE"}:
        m.unsupported("other formats than halves")
        return
    high, low = (half_bits(m, m.fptrunc(float_source(m, i[n], "F32"), "f16", _rounding(i))) for n in "ab")
    set32(m, i["d"], m.or_(low, m.shl(high, m.const("i32", 16))))


@hopper("F2IP")
def f2ip(m: Machine, i: Instruction) -> None:
    """Two singles to two bytes above the lower half of c."""
    result = m.shl(raw(m, i["c"]), m.const("i32", 16))
    for place, name in enumerate("ba"):
        value = m.integral(float_source(m, i[name], "F32"), _integral(i))
        signed = "S8" in words(i)
        whole = clamp(m, m.ftoi(value, "i32", signed), -128 if signed else 0, 127 if signed else 255, signed)
        result = m.or_(result, m.shl(m.and_(whole, m.const("i32", 255)), m.const("i32", 8 * place)))
    set32(m, i["d"], result)
