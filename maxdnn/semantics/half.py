"""Pairs of half-precision numbers (sm_53 and later). Each half is computed in double precision, where sums and products
of two halves are exact, and rounded to half once. Halves may be mixed with single-precision numbers."""

from collections.abc import Sequence

from ..isa import Instruction, Operand
from .convert import half_bits
from .machine import Machine, V
from .operands import combine, pred, raw, set32, set_pred, set_predicates, signs
from .registry import semantics
from .single import canonical, relation, saturate

SMALLEST_NORMAL_HALF = 2.0 ** -14


def _flush(m: Machine, x: V) -> V:
    """Half-precision denormals (held in f64) to signed zero."""
    tiny = m.fcmp("olt", m.fabs(x), m.const("f64", SMALLEST_NORMAL_HALF))
    bits = m.bitcast(x, "i64")
    return m.bitcast(m.select(tiny, m.and_(bits, m.const("i64", 1 << 63)), bits), "f64")


def halves_of(m: Machine, op: Operand, ftz: bool) -> tuple[V, V]:
    """The low and high number of an operand as f64: both halves, one half twice, or a single-precision number twice."""
    bits = raw(m, op)
    if op.part == "F32":
        value = signs(m, op, m.fpext(m.bitcast(bits, "f32"), "f64"))
        return value, value
    low, high = m.trunc(bits, "i16"), m.trunc(m.lshr(bits, m.const("i32", 16)), "i16")
    low, high = {"": (low, high), "H0_H0": (low, low), "H1_H1": (high, high)}[op.part]
    values = [signs(m, op, in_half(m, x)) for x in (low, high)]
    if ftz:
        values = [_flush(m, v) for v in values]
    return values[0], values[1]


def in_half(m: Machine, word: V) -> V:
    """The number in 16 bits as f64."""
    return m.fpext(m.bitcast(word, "f16"), "f64")


def write_pair(m: Machine, i: Instruction, low: V, high: V, mode: str, ftz: str, sat: bool) -> None:
    """Round, flush, saturate, and merge into d as the mode says."""
    if mode == "F32":
        single = m.fptrunc(low, "f32")
        set32(m, i["d"], canonical(m, saturate(m, single) if sat else single))
        return
    lo, hi = (_round(m, v, ftz, sat) for v in (low, high))
    sixteen, mask = m.const("i32", 16), m.const("i32", 0xFFFF)
    old = raw(m, i["d"]) if mode else None
    value = {
        "": lambda: m.or_(lo, m.shl(hi, sixteen)),
        "MRG_H0": lambda: m.or_(m.and_(old, m.not_(mask)), lo),
        "MRG_H1": lambda: m.or_(m.and_(old, mask), m.shl(hi, sixteen)),
    }[mode]()
    set32(m, i["d"], value)


def _round(m: Machine, value: V, ftz: str, sat: bool) -> V:
    half = m.fptrunc(value, "f16")
    if ftz:
        half = m.fptrunc(_flush(m, m.fpext(half, "f64")), "f16")
    if sat:
        half = m.fptrunc(saturate(m, m.fpext(half, "f32")), "f16")
    return half_bits(m, half)


def _factors(m: Machine, i: Instruction, a: V, b: V) -> tuple[V, V]:
    """.FMZ: a zero takes the other factor with it."""
    if i.mods.get("ftz") != "FMZ":
        return a, b
    zero = m.const("f64", 0.0)
    either = m.or_(m.fcmp("oeq", a, zero), m.fcmp("oeq", b, zero))
    return m.select(either, zero, a), m.select(either, zero, b)


OPERANDS = {"HADD2": "ab", "HMUL2": "ab", "HFMA2": "abc"}


@semantics("HADD2", "HADD2_32I", "HMUL2", "HMUL2_32I", "HFMA2", "HFMA2_32I")
def arithmetic(m: Machine, i: Instruction) -> None:
    name = i.opcode.removesuffix("_32I")
    low, high = computed(m, i, name, [halves_of(m, i[n], bool(i.mods["ftz"])) for n in OPERANDS[name]])
    write_pair(m, i, low, high, i.mods.get("mode", ""), i.mods["ftz"], bool(i.mods.get("sat")))


def computed(m: Machine, i: Instruction, name: str, operands: Sequence[tuple[V, V]]) -> list[V]:
    """The low and the high sum, product or both of halves. A product of two halves, or of a half and a single, is exact
    in double precision."""
    found = []
    for a, b, *c in zip(*operands, strict=True):
        value = m.fadd(a, b) if name == "HADD2" else m.fmul(*_factors(m, i, a, b))
        found.append(_sum_to_odd(m, value, *c) if c else value)
    return found


def _sum_to_odd(m: Machine, a: V, b: V) -> V:
    """a + b in double precision where what is lost sets the last bit, so that one more rounding, to a format at least
    two bits shorter, is the only one (S. Boldo and G. Melquiond, 2008)."""
    total = m.fadd(a, b)
    from_b = m.fadd(total, m.fneg(a))
    lost = m.fadd(m.fadd(a, m.fneg(m.fadd(total, m.fneg(from_b)))), m.fadd(b, m.fneg(from_b)))
    bits, zero, one = m.bitcast(total, "i64"), m.const("i64", 0), m.const("i64", 1)
    outward = m.icmp("sge", m.xor(bits, m.bitcast(lost, "i64")), zero)
    even = m.icmp("eq", m.and_(bits, one), zero)
    moved = m.add(bits, m.select(outward, one, m.const("i64", -1)))
    inexact = m.and_(even, m.fcmp("one", lost, m.const("f64", 0.0)))
    return m.bitcast(m.select(inexact, moved, bits), "f64")


def _relations(m: Machine, i: Instruction) -> tuple[V, V]:
    (a0, a1), (b0, b1) = (halves_of(m, i[n], bool(i.mods["ftz"])) for n in "ab")
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
