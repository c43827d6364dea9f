"""Single-precision arithmetic. NaN results are 0x7fffffff; .FTZ flushes denormal inputs and results to signed zero."""

from collections.abc import Callable

from ..isa import Instruction, Operand
from .machine import Machine, V
from .operands import f32, i32, pred, result32, set32, set_pred, set_result
from .registry import semantics

NAN = 0x7FFFFFFF
SIGN = 0x80000000
SMALLEST_NORMAL = 2.0 ** -126


def flush(m: Machine, x: V) -> V:
    """Denormals to zero of the same sign."""
    tiny = m.fcmp("olt", m.fabs(x), m.const("f32", SMALLEST_NORMAL))
    bits = m.bitcast(x, "i32")
    return m.bitcast(m.select(tiny, m.and_(bits, m.const("i32", SIGN)), bits), "f32")


def canonical(m: Machine, x: V) -> V:
    """Every NaN to 0x7fffffff; gives bits."""
    return m.canonical(x, NAN)


def saturate(m: Machine, x: V, type_: str = "f32") -> V:
    """Clamp to [0, 1]; NaN and -0 give +0."""
    zero, one = m.const(type_, 0.0), m.const(type_, 1.0)
    x = m.select(m.fcmp("ogt", x, zero), x, zero)
    return m.select(m.fcmp("olt", x, one), x, one)


def _inputs(m: Machine, i: Instruction, *names: str) -> list[V]:
    values = [f32(m, i[n]) for n in names]
    return [flush(m, v) for v in values] if i.mods.get("ftz") else values


def _finish(m: Machine, i: Instruction, operation: Callable[[str], V]) -> None:
    """Round, flush, saturate, canonicalise, write. `operation` gives the result under a rounding mode.

    .FTZ looks at the exact result, not at the rounded one: what rounds up to the smallest normal number is flushed as
    well (seen on an H200). Rounding to zero tells the two cases apart."""
    x = operation(i.mods.get("rnd", ""))
    if i.mods.get("ftz"):
        tiny = m.const("f32", SMALLEST_NORMAL)
        at_limit, rounded = m.fcmp("oeq", m.fabs(x), tiny), x

        def exact() -> V:
            below = m.fcmp("olt", m.fabs(operation("RZ")), tiny)
            bits = m.bitcast(rounded, "i32")
            return m.bitcast(m.select(below, m.and_(bits, m.const("i32", SIGN)), bits), "f32")

        x = flush(m, m.rarely(at_limit, exact, x))
    if i.mods.get("sat"):
        x = saturate(m, x)
    result32(m, i, canonical(m, x))


def _zero_factor(m: Machine, i: Instruction, a: V, b: V) -> V | None:
    """.FMZ: whether a factor is zero; then the product is zero whatever the other one."""
    if i.mods.get("ftz") != "FMZ":
        return None
    zero = m.const("f32", 0.0)
    return m.or_(m.fcmp("oeq", a, zero), m.fcmp("oeq", b, zero))


@semantics("FADD", "FADD32I")
def fadd(m: Machine, i: Instruction) -> None:
    a, b = _inputs(m, i, "a", "b")
    _finish(m, i, lambda rnd: m.fadd(a, b, rnd))


SCALES = {"": 1.0, "D2": 0.5, "D4": 0.25, "D8": 0.125, "M8": 8.0, "M4": 4.0, "M2": 2.0}


@semantics("FMUL", "FMUL32I")
def fmul(m: Machine, i: Instruction) -> None:
    """A scale multiplies before rounding: the product of two floats and a power of two is exact in double precision."""
    a, b = _inputs(m, i, "a", "b")
    scale, zero = SCALES[i.mods.get("scale", "")], _zero_factor(m, i, a, b)

    def product(rnd: str) -> V:
        if scale == 1.0:
            value = m.fmul(a, b, rnd)
        else:
            wide = m.fmul(m.fmul(m.fpext(a, "f64"), m.fpext(b, "f64")), m.const("f64", scale))
            value = m.fptrunc(wide, "f32", rnd)
        return value if zero is None else m.select(zero, m.const("f32", 0.0), value)

    _finish(m, i, product)


@semantics("FFMA", "FFMA32I")
def ffma(m: Machine, i: Instruction) -> None:
    a, b, c = _inputs(m, i, "a", "b", "c")
    zero = _zero_factor(m, i, a, b)

    def fused(rnd: str) -> V:
        value = m.ffma(a, b, c, rnd)
        return value if zero is None else m.select(zero, m.fadd(m.const("f32", 0.0), c, rnd), value)

    _finish(m, i, fused)


@semantics("FMNMX")
def fmnmx(m: Machine, i: Instruction) -> None:
    """Minimum where ps, else maximum. A NaN loses to a number; -0 is less than +0."""
    a, b = _inputs(m, i, "a", "b")
    bits = choose_minmax(m, a, b, pred(m, i["ps"]), "i32")
    both = m.and_(m.fcmp("uno", a, a), m.fcmp("uno", b, b))
    result32(m, i, m.select(both, m.const("i32", NAN), bits))


def choose_minmax(m: Machine, a: V, b: V, least: V, bits_type: str) -> V:
    """The bits of the smaller (larger) operand by value, zeros by sign; the other one if one is NaN."""
    a_bits, b_bits = m.bitcast(a, bits_type), m.bitcast(b, bits_type)
    below = m.fcmp("olt", a, b)
    tie = m.fcmp("oeq", a, b)
    a_below = m.or_(below, m.and_(tie, m.icmp("slt", a_bits, b_bits)))
    take_a = m.xor(a_below, m.not_(least))
    take_a = m.or_(m.and_(take_a, m.fcmp("ord", a, a)), m.fcmp("uno", b, b))
    return m.select(take_a, a_bits, b_bits)


def relation(m: Machine, name: str, a: V, b: V) -> V:
    """A float comparison as the table names it."""
    if name in ("F", "T"):
        return m.const("i1", name == "T")
    if name in ("NUM", "NAN"):
        return m.fcmp("ord" if name == "NUM" else "uno", a, b)
    if name == "NE":
        return m.fcmp("one", a, b)
    return m.fcmp(("u" if name.endswith("U") else "o") + name.removesuffix("U").lower(), a, b)


def related(m: Machine, i: Instruction) -> V:
    a, b = _inputs(m, i, "a", "b")
    return relation(m, i.mods["cmp"], a, b)


@semantics("FSETP", "FSET")
def fset(m: Machine, i: Instruction) -> None:
    set_result(m, i, related(m, i))


@semantics("FCMP")
def fcmp(m: Machine, i: Instruction) -> None:
    (c,) = _inputs(m, i, "c")
    holds = relation(m, i.mods["cmp"] or "GT", c, m.const("f32", 0.0))
    set32(m, i["d"], m.select(holds, i32(m, i["a"]), i32(m, i["b"])))


@semantics("RRO")
def rro(m: Machine, i: Instruction) -> None:
    """Range reduction is left to MUFU, which takes the original argument; abs and negate act here."""
    set32(m, i["d"], m.bitcast(f32(m, i["b"]), "i32"))


@semantics("MUFU")
def mufu(m: Machine, i: Instruction) -> None:
    special_function(m, i, lambda _: flush(m, f32(m, i["a"])))


def special_function(m: Machine, i: Instruction, argument: Callable[[str], V]) -> None:
    """`argument`: the number a function is taken of, by the function's name."""
    function, a = i.mods["func"], i["a"]
    if function.endswith("64H"):
        value = _signed_word(m, a, i32(m, a))
        set32(m, i["d"], m.seed64(function, value))
        return
    x = m.mufu(function, argument(function))
    x = flush(m, x) if function in ("SIN", "COS", "EX2", "LG2", "RSQ", "SQRT") else x
    set32(m, i["d"], canonical(m, saturate(m, x) if i.mods.get("sat") else x))


def _signed_word(m: Machine, op: Operand, word: V) -> V:
    word = m.and_(word, m.const("i32", SIGN - 1)) if op.abs else word
    return m.xor(word, m.const("i32", SIGN)) if op.neg else word


@semantics("FCHK")
def fchk(m: Machine, i: Instruction) -> None:
    """True where a / b leaves the range in which the compiler's short division sequence is exact: divisor, quotient or
    remainder might overflow, be denormal or not be finite. The long sequence it selects is right for every input."""
    check_range(m, i, 26, -123, 124)


def check_range(m: Machine, i: Instruction, least: int, low: int, high: int) -> None:
    """`least` exponent of a, and the limits of how far it lies above that of b."""
    a, b = (m.bitcast(f32(m, i[n]), "i32") for n in "ab")
    ea, eb = (m.and_(m.lshr(x, m.const("i32", 23)), m.const("i32", 0xFF)) for x in (a, b))
    gap = m.sub(ea, eb)
    bad = m.icmp("ult", m.const("i32", 250), m.sub(eb, m.const("i32", 2)))
    bad = m.or_(bad, m.icmp("ult", ea, m.const("i32", least)))
    bad = m.or_(bad, m.icmp("eq", ea, m.const("i32", 255)))
    bad = m.or_(bad, m.icmp("sgt", gap, m.const("i32", high)))
    bad = m.or_(bad, m.icmp("slt", gap, m.const("i32", low)))
    set_pred(m, i["pd"], bad)
