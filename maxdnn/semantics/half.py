"""Pairs of half-precision numbers (sm_53 and later). Each half is computed in double precision, where sums and products
of two halves are exact, and rounded to half once."""

from ..isa import Instruction, Operand
from .convert import half_bits
from .integer import set_predicates
from .machine import Machine, V
from .operands import combine, pred, raw, set32, set_pred, signs
from .registry import semantics
from .single import canonical, relation, saturate

SMALLEST_NORMAL_HALF = 2.0 ** -14


def _flush(m: Machine, x: V) -> V:
    """Half-precision denormals (held in f64) to signed zero."""
    tiny = m.fcmp("olt", m.fabs(x), m.const("f64", SMALLEST_NORMAL_HALF))
    bits = m.bitcast(x, "i64")
    return m.bitcast(m.select(tiny, m.and_(bits, m.const("i64", 1 << 63)), bits), "f64")


def _pair(m: Machine, op: Operand, ftz: bool) -> tuple[V, V]:
    """The low and high number of an operand as f64: both halves, one half twice, or a single-precision number twice."""
    bits = raw(m, op)
    if op.part == "F32":
        value = signs(m, op, m.fpext(m.bitcast(bits, "f32"), "f64"))
        return value, value
    low, high = m.trunc(bits, "i16"), m.trunc(m.lshr(bits, m.const("i32", 16)), "i16")
    low, high = {"": (low, high), "H0_H0": (low, low), "H1_H1": (high, high)}[op.part]
    values = [signs(m, op, m.fpext(m.bitcast(x, "f16"), "f64")) for x in (low, high)]
    if ftz:
        values = [_flush(m, v) for v in values]
    return values[0], values[1]


def _write(m: Machine, i: Instruction, low: V, high: V) -> None:
    """Round, flush, saturate, and merge into d as the mode says."""
    mode = i.mods["mode"]
    if mode == "F32":
        single = m.fptrunc(low, "f32")
        set32(m, i["d"], canonical(m, saturate(m, single) if i.mods["sat"] else single))
        return
    lo, hi = (_round(m, i, v) for v in (low, high))
    sixteen, mask = m.const("i32", 16), m.const("i32", 0xFFFF)
    old = raw(m, i["d"])
    value = {
        "": lambda: m.or_(lo, m.shl(hi, sixteen)),
        "MRG_H0": lambda: m.or_(m.and_(old, m.not_(mask)), lo),
        "MRG_H1": lambda: m.or_(m.and_(old, mask), m.shl(hi, sixteen)),
    }[mode]()
    set32(m, i["d"], value)


def _round(m: Machine, i: Instruction, value: V) -> V:
    half = m.fptrunc(value, "f16")
    if i.mods["ftz"]:
        half = m.fptrunc(_flush(m, m.fpext(half, "f64")), "f16")
    if i.mods["sat"]:
        half = m.fptrunc(saturate(m, m.fpext(half, "f32")), "f16")
    return half_bits(m, half)


def _no_flush_mode(m: Machine, i: Instruction, *factors: V) -> V | None:
    """.FMZ: whether one of two factors is zero."""
    if i.mods["ftz"] != "FMZ":
        return None
    zero = m.const("f64", 0.0)
    a, b = factors
    return m.or_(m.fcmp("oeq", a, zero), m.fcmp("oeq", b, zero))


def _product(m: Machine, i: Instruction, a: V, b: V) -> V:
    zero = _no_flush_mode(m, i, a, b)
    product = m.fmul(a, b)
    return product if zero is None else m.select(zero, m.const("f64", 0.0), product)


@semantics("HADD2")
def hadd2(m: Machine, i: Instruction) -> None:
    (a0, a1), (b0, b1) = (_pair(m, i[n], bool(i.mods["ftz"])) for n in "ab")
    _write(m, i, m.fadd(a0, b0), m.fadd(a1, b1))


@semantics("HMUL2")
def hmul2(m: Machine, i: Instruction) -> None:
    (a0, a1), (b0, b1) = (_pair(m, i[n], bool(i.mods["ftz"])) for n in "ab")
    _write(m, i, _product(m, i, a0, b0), _product(m, i, a1, b1))


@semantics("HFMA2")
def hfma2(m: Machine, i: Instruction) -> None:
    """The product of two halves and its sum with a third are exact in double precision but for halves whose exponents
    differ by more than 30, where the sum rounds to the same half."""
    (a0, a1), (b0, b1), (c0, c1) = (_pair(m, i[n], bool(i.mods["ftz"])) for n in "abc")
    _write(m, i, m.fadd(_product(m, i, a0, b0), c0), m.fadd(_product(m, i, a1, b1), c1))


def _relations(m: Machine, i: Instruction) -> tuple[V, V]:
    (a0, a1), (b0, b1) = (_pair(m, i[n], bool(i.mods["ftz"])) for n in "ab")
    return relation(m, i.mods["cmp"], a0, b0), relation(m, i.mods["cmp"], a1, b1)


@semantics("HSETP2")
def hsetp2(m: Machine, i: Instruction) -> None:
    """pd for the low and pq for the high halves; .H_AND: both must hold, pq gets the complement."""
    low, high = _relations(m, i)
    if i.mods["hand"]:
        set_predicates(m, i, m.and_(low, high))
        return
    ps, how = pred(m, i["ps"]), i.mods["bool"]
    first, second = combine(m, how, low, ps), combine(m, how, high, ps)
    set_pred(m, i["pd"], first)
    set_pred(m, i["pq"], second)


@semantics("HSET2")
def hset2(m: Machine, i: Instruction) -> None:
    """Each half: all ones, or 1.0 with .BF, where the relation holds."""
    ps, how = pred(m, i["ps"]), i.mods["bool"]
    true = m.const("i32", 0x3C00 if i.mods["bf"] else 0xFFFF)
    low, high = (m.select(combine(m, how, r, ps), true, m.const("i32", 0)) for r in _relations(m, i))
    set32(m, i["d"], m.or_(low, m.shl(high, m.const("i32", 16))))
