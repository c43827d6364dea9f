"""The multi-function unit's approximations, computed in double precision and rounded once, which is closer than the
documented bounds (PTX ISA, approximate instructions). The hardware's own tables are not public."""

import math
from collections.abc import Sequence

from llvmlite import ir

from ..lanes import Lanes, V

FUNCTIONS = ("COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "SQRT")
SEEDS = ("RCP64H", "RSQ64H")
_EXP2 = [math.log(2) ** k / math.factorial(k) for k in range(12)]  # 2^f for |f| <= 1/2
_LOG2 = [2 / math.log(2) / k for k in (1, 3, 5, 7, 9, 11, 13)]  # odd powers of (m - 1) / (m + 1), sqrt(1/2) <= m
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]  # odd powers, |r| <= pi / 4
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(8)]
_HALF_PI = math.pi / 2
_HALF_PI_REST = 6.123233995736766e-17  # pi / 2 less its double


def _polynomial(m: Lanes, x: V, coefficients: Sequence[float]) -> V:
    value = m.const("f64", coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = m.ffma(value, x, m.const("f64", c))
    return value


def _sqrt(m: Lanes, x: V) -> V:
    return m.intrinsic("sqrt", x.type, [x])


def _exp2(m: Lanes, x: V) -> V:
    limit = m.const("f64", 1000.0)
    x = m.select(m.fcmp("ogt", x, limit), limit, x)
    x = m.select(m.fcmp("olt", x, m.fneg(limit)), m.fneg(limit), x)
    whole = m.integral(x, "")
    fraction = _polynomial(m, m.b.fsub(x, whole), _EXP2)
    exponent = m.add(m.ftoi(whole, "i64", True), m.const("i64", 1023))
    power = m.bitcast(m.shl(exponent, m.const("i64", 52)), "f64")
    return m.select(m.fcmp("uno", x, x), x, m.fmul(fraction, power))


def _log2(m: Lanes, x: V) -> V:
    bits = m.bitcast(x, "i64")
    exponent = m.sub(m.lshr(bits, m.const("i64", 52)), m.const("i64", 1023))
    one = m.const("f64", 1.0)
    mantissa = m.bitcast(m.or_(m.and_(bits, m.const("i64", (1 << 52) - 1)), m.const("i64", 1023 << 52)), "f64")
    large = m.fcmp("ogt", mantissa, m.const("f64", math.sqrt(2)))
    mantissa = m.select(large, m.fmul(mantissa, m.const("f64", 0.5)), mantissa)
    exponent = m.select(large, m.add(exponent, m.const("i64", 1)), exponent)
    s = m.b.fdiv(m.b.fsub(mantissa, one), m.fadd(mantissa, one))
    value = m.ffma(_polynomial(m, m.fmul(s, s), _LOG2), s, m.itof(exponent, "f64", True))
    zero, infinite = m.const("f64", 0.0), m.const("f64", math.inf)
    value = m.select(m.fcmp("oeq", x, infinite), x, value)
    value = m.select(m.fcmp("oeq", x, zero), m.fneg(infinite), value)
    invalid = m.or_(m.fcmp("olt", x, zero), m.fcmp("uno", x, x))
    return m.select(invalid, m.const("f64", math.nan), value)


def _sine(m: Lanes, x: V, quarter: int) -> V:
    """sin(x + quarter * pi / 2)."""
    turns = m.integral(m.fmul(x, m.const("f64", 2 / math.pi)), "")
    r = m.ffma(m.fneg(turns), m.const("f64", _HALF_PI), x)
    r = m.ffma(m.fneg(turns), m.const("f64", _HALF_PI_REST), r)
    square = m.fmul(r, r)
    sine, cosine = m.fmul(_polynomial(m, square, _SIN), r), _polynomial(m, square, _COS)
    quarters = m.fadd(turns, m.const("f64", float(quarter)))
    rest = m.b.fsub(quarters, m.fmul(m.integral(m.fmul(quarters, m.const("f64", 0.25)), "RM"), m.const("f64", 4.0)))
    number = m.ftoi(rest, "i64", True)
    odd = m.icmp("ne", m.and_(number, m.const("i64", 1)), m.const("i64", 0))
    value = m.select(odd, cosine, sine)
    value = m.select(m.icmp("ugt", number, m.const("i64", 1)), m.fneg(value), value)
    if not quarter:  # sin(-0) = -0 (PTX ISA, sin.approx)
        value = m.select(m.fcmp("oeq", x, m.const("f64", 0.0)), x, value)
    one = m.const("f64", 1.0)
    value = m.select(m.fcmp("ogt", value, one), one, value)
    return m.select(m.fcmp("olt", value, m.fneg(one)), m.fneg(one), value)


def _evaluate(m: Lanes, function: str, x: V) -> V:
    one = m.const("f64", 1.0)
    if function == "RCP":
        return m.b.fdiv(one, x)
    if function == "RSQ":
        return m.b.fdiv(one, _sqrt(m, x))
    if function == "SQRT":
        return _sqrt(m, x)
    if function in ("SIN", "COS"):
        return _sine(m, x, int(function == "COS"))
    return _exp2(m, x) if function == "EX2" else _log2(m, x)


def _function(module: ir.Module, name: str, type_: str) -> Lanes:
    m = Lanes(ir.IRBuilder())
    function = ir.Function(module, ir.FunctionType(m.type(type_), [m.type(type_)]), name)
    m.b.position_at_end(function.append_basic_block())
    return m


def build_mufu(module: ir.Module, function: str) -> None:
    """rt_mufu_F: f32 to f32, 32 lanes."""
    m = _function(module, f"rt_mufu_{function}", "f32")
    value = _evaluate(m, function, m.fpext(m.b.function.args[0], "f64"))
    m.b.ret(m.fptrunc(value, "f32"))


def build_seed(module: ir.Module, function: str) -> None:
    """rt_seed_F: high word of a double (low word zero) to the high word of its reciprocal (square root); denormal
    inputs count as zero, denormal results become zero."""
    m = _function(module, f"rt_seed_{function}", "i32")
    bits = m.shl(m.zext(m.b.function.args[0], "i64"), m.const("i64", 32))
    sign, rest = m.const("i64", 1 << 63), m.const("i64", 0x7FF << 52)

    def flushed(x: V) -> V:
        denormal = m.icmp("eq", m.and_(x, rest), m.const("i64", 0))
        return m.select(denormal, m.and_(x, sign), x)

    value = _evaluate(m, function[:3], m.bitcast(flushed(bits), "f64"))
    nan = m.const("i64", 0x7FFFFFFF << 32)
    result = m.select(m.fcmp("uno", value, value), nan, flushed(m.bitcast(value, "i64")))
    m.b.ret(m.trunc(m.lshr(result, m.const("i64", 32)), "i32"))


def names() -> list[str]:
    return [f"rt_mufu_{f}" for f in FUNCTIONS] + [f"rt_seed_{f}" for f in SEEDS]


def build(module: ir.Module) -> None:
    for function in FUNCTIONS:
        build_mufu(module, function)
    for function in SEEDS:
        build_seed(module, function)
