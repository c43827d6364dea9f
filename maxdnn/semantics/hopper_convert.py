"""Hopper's conversions, whose types are parts of the printed opcode, and its pairs of halves."""

from ..isa import Instruction
from .convert import INTEGRAL, clamp, float_source, half_bits
from .half import _pair, _sum_to_odd
from .hopper import words
from .machine import Machine, V
from .operands import extend, i64, raw, set32, set64
from .registry import hopper
from .single import canonical, flush, saturate

_NAN64 = 0xFFF80000_00000000
_WIDTHS = {"8": 8, "16": 16, "32": 32, "64": 64}


def _types(i: Instruction) -> list[str]:
    """The types that the opcode names, in order: `I2F.F64.S16` F64, S16."""
    names = [w for w in i.text().split(" ")[1 if i.text().startswith("@") else 0].split(".")[1:]]
    return [n for n in names if n[0] in "FSU" and n[1:] in _WIDTHS]


def _rounding(i: Instruction) -> str:
    return next((w for w in ("RM", "RP", "RZ") if w in words(i)), "")


def _store(m: Machine, i: Instruction, type_: str, value: V) -> None:
    if type_ == "F64":
        set64(m, i["d"], m.select(m.fcmp("uno", value, value), m.const("i64", _NAN64), m.bitcast(value, "i64")))
    elif type_ == "F16":
        set32(m, i["d"], half_bits(m, value))
    else:
        set32(m, i["d"], canonical(m, value))


@hopper("F2F")
def f2f(m: Machine, i: Instruction) -> None:
    to, source = _types(i)
    value = float_source(m, i["b"], source)
    ftz = "FTZ" in words(i)
    if ftz and source == "F32":
        value = flush(m, value)
    if (source, to) == ("F32", "F64"):
        set64(m, i["d"], _widened(m, value))
        return
    if ("F16", "F32", "F64").index(to) > ("F16", "F32", "F64").index(source):
        value = m.fpext(value, to.lower())
    else:
        value = m.fptrunc(value, to.lower(), _rounding(i))
    _store(m, i, to, flush(m, value) if ftz and to == "F32" and source != "F16" else value)


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
    how = next((INTEGRAL[w] for w in words(i) if w in INTEGRAL), "")
    _store(m, i, type_, m.integral(value, how))


@hopper("F2I")
def f2i(m: Machine, i: Instruction) -> None:
    """Rounds, then saturates. NaN gives the lowest number of the type, whether it has a sign or not, with .NTZ 0."""
    names = _types(i)
    source = next((n for n in names if n[0] == "F"), "F32")
    to = next((n for n in names if n[0] in "SU"), "S32")
    bits, signed = int(to[1:]), to[0] == "S"
    value = float_source(m, i["b"], source)
    if "FTZ" in words(i) and source == "F32":
        value = flush(m, value)
    if source == "F16":
        value = m.fpext(value, "f32")
    value = m.integral(value, next((INTEGRAL[w] for w in words(i) if w in INTEGRAL), ""))
    result = m.ftoi(value, "i64" if bits == 64 else "i32", signed)
    if bits < 32:
        top = 1 << bits
        result = clamp(m, result, -top // 2 if signed else 0, (top // 2 if signed else top) - 1, signed)
    odd = 0 if "NTZ" in words(i) else 1 << bits - 1
    result = m.select(m.fcmp("uno", value, value), m.const("i64" if bits == 64 else "i32", odd), result)
    (set64 if bits == 64 else set32)(m, i["d"], result)


@hopper("I2F", "I2FP")
def i2f(m: Machine, i: Instruction) -> None:
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
    zero = m.const("i64" if bits == 64 else "i32", 0)
    if op.abs:
        value = m.select(m.icmp("slt", value, zero), m.sub(zero, value), value)
    if op.neg:
        value = m.sub(zero, value)
    result = m.itof(value, to.lower(), signed, _rounding(i))
    if to == "F64":
        set64(m, i["d"], m.bitcast(result, "i64"))
    else:
        set32(m, i["d"], half_bits(m, result) if to == "F16" else m.bitcast(result, "i32"))


@hopper("I2I")
def i2i(m: Machine, i: Instruction) -> None:
    """Limited to the range of the result, whose sign goes on."""
    to = _types(i)[0]
    bits, signed = int(to[1:]), to[0] == "S"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    value = raw(m, i["b"])
    bottom, top = m.const("i32", low), m.const("i32", high)
    value = m.select(m.icmp("slt", value, bottom), bottom, value)
    value = m.select(m.icmp("sgt", value, top), top, value)
    set32(m, i["d"], value)


@hopper("F2FP")
def f2fp(m: Machine, i: Instruction) -> None:
    """Two singles to two halves: a above b."""
    if words(i) & {"BF16", "TF32", "E5M2", "E4M3", "RELU", "SATFINITE"}:
        m.unsupported("other formats than halves")
        return
    high, low = (half_bits(m, m.fptrunc(float_source(m, i[n], "F32"), "f16", _rounding(i))) for n in "ab")
    set32(m, i["d"], m.or_(low, m.shl(high, m.const("i32", 16))))


# -- pairs of halves ----------------------------------------------------------------------------------------------


def _halves(m: Machine, i: Instruction, name: str, ftz: bool) -> tuple[V, V]:
    """Low and high number of an operand in double precision; immediates are two operands, the high one first."""
    op = i[name]
    if op.type == "f16":
        pair = (i.operand(name + "2"), op)
        low, high = (m.fpext(m.bitcast(m.const("i16", x.value if x else 0), "f16"), "f64") for x in pair)
        return low, high
    return _pair(m, op, ftz)


def _round(m: Machine, i: Instruction, value: V) -> V:
    half = m.fptrunc(value, "f16")
    if "SAT" in words(i):
        half = m.fptrunc(saturate(m, m.fpext(half, "f32")), "f16")
    return half_bits(m, half)


def _write(m: Machine, i: Instruction, low: V, high: V) -> None:
    if "F32" in words(i):
        single = m.fptrunc(low, "f32")
        set32(m, i["d"], canonical(m, saturate(m, single) if "SAT" in words(i) else single))
        return
    set32(m, i["d"], m.or_(_round(m, i, low), m.shl(_round(m, i, high), m.const("i32", 16))))


def _plain(m: Machine, i: Instruction) -> bool:
    plain = not words(i) & {"BF16_V2", "OOB", "RELU", "FTZ", "FMZ"}
    if not plain:
        m.unsupported("other halves than IEEE's, or their denormals flushed")
    return plain


@hopper("HFMA2")
def hfma2(m: Machine, i: Instruction) -> None:
    if _plain(m, i):
        (a0, a1), (b0, b1), (c0, c1) = (_halves(m, i, n, False) for n in "abc")
        _write(m, i, _sum_to_odd(m, m.fmul(a0, b0), c0), _sum_to_odd(m, m.fmul(a1, b1), c1))


@hopper("HADD2")
def hadd2(m: Machine, i: Instruction) -> None:
    if _plain(m, i):
        (a0, a1), (b0, b1) = (_halves(m, i, n, False) for n in "ab")
        _write(m, i, m.fadd(a0, b0), m.fadd(a1, b1))


@hopper("HMUL2")
def hmul2(m: Machine, i: Instruction) -> None:
    if _plain(m, i):
        (a0, a1), (b0, b1) = (_halves(m, i, n, False) for n in "ab")
        _write(m, i, m.fmul(a0, b0), m.fmul(a1, b1))


@hopper("F2IP")
def f2ip(m: Machine, i: Instruction) -> None:
    """Two singles to two bytes above the lower half of c."""
    result = m.shl(raw(m, i["c"]), m.const("i32", 16))
    for place, name in enumerate("ba"):
        value = m.integral(float_source(m, i[name], "F32"), next((INTEGRAL[w] for w in words(i) if w in INTEGRAL), ""))
        signed = "S8" in words(i)
        whole = clamp(m, m.ftoi(value, "i32", signed), -128 if signed else 0, 127 if signed else 255, signed)
        result = m.or_(result, m.shl(m.and_(whole, m.const("i32", 255)), m.const("i32", 8 * place)))
    set32(m, i["d"], result)
