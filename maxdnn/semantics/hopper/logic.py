"""Bitwise logic, shifts, fields and counts of bits, of registers, uniform registers and predicates."""

from ...isa import Instruction, Operand
from ..integer import highest_bit
from ..logic import funnel, lookup3
from ..machine import Machine, V
from ..operands import pred, raw, set32, set_pred
from ..registry import hopper, same
from .opcode import words

same("PRMT", "POPC", UPRMT="PRMT", UPOPC="POPC")


@hopper("LOP3", "ULOP3")
def lop3(m: Machine, i: Instruction) -> None:
    values = [m.not_(raw(m, i[n])) if i[n].inv else raw(m, i[n]) for n in "abc"]
    value = lookup3(m, i["lut"].value, *values)
    some = m.icmp("ne", value, m.const("i32", 0))
    set_pred(m, i.operand("pd"), (m.and_ if "PAND" in words(i) else m.or_)(some, pred(m, i["ps"])))
    set32(m, i["d"], value)


def _sign(m: Machine, op: Operand) -> V:
    """A predicate source, or the sign of a register."""
    if op.type in ("pred", "upred"):
        return pred(m, op)
    return m.icmp("slt", raw(m, op), m.const("i32", 0))


@hopper("PLOP3", "UPLOP3")
def plop3(m: Machine, i: Instruction) -> None:
    sources = [op for op in i.operands if op.field.access == "r" and not op.name.startswith("lut")]
    a, b, c = (_sign(m, op) for op in sources)
    first, second = (lookup3(m, i[n].value, a, b, c, "i1") for n in ("lut", "lut2"))
    set_pred(m, i["pd"], first)
    set_pred(m, i["pq"], second)


@hopper("SHF", "USHF")
def shf(m: Machine, i: Instruction) -> None:
    """The pair c, a shifted by b; .HI takes the upper word of what comes out."""
    how = words(i)
    low, high = funnel(m, i, "L" in how, bool(how & {"U64", "S64"}), bool(how & {"S32", "S64"}))
    set32(m, i["d"], high if "HI" in how else low)


@hopper("SGXT", "USGXT")
def sgxt(m: Machine, i: Instruction) -> None:
    """The low b bits, with their sign unless .U32."""
    how, a, n = words(i), raw(m, i["a"]), raw(m, i["b"])
    if "W" in how:
        n = m.and_(n, m.const("i32", 31))
    whole, none = m.icmp("ugt", n, m.const("i32", 31)), m.icmp("eq", n, m.const("i32", 0))
    gap = m.select(m.or_(whole, none), m.const("i32", 0), m.sub(m.const("i32", 32), n))
    up = m.shl(a, gap)
    value = (m.lshr if "U32" in how else m.ashr)(up, gap)
    set32(m, i["d"], m.select(none, m.const("i32", 0), value))


@hopper("BMSK", "UBMSK")
def bmsk(m: Machine, i: Instruction) -> None:
    """b ones from bit a on."""
    a, n = raw(m, i["a"]), raw(m, i["b"])
    last = m.const("i32", 31)
    if "W" in words(i):
        a, n = m.and_(a, last), m.and_(n, last)
    start = m.select(m.icmp("ugt", a, last), m.const("i32", 32), a)
    count = m.select(m.icmp("ugt", n, last), m.const("i32", 32), n)
    ones = m.sub(m.shl(m.const("i64", 1), m.zext(count, "i64")), m.const("i64", 1))
    set32(m, i["d"], m.trunc(m.shl(ones, m.zext(start, "i64")), "i32"))


@hopper("BREV", "UBREV")
def brev(m: Machine, i: Instruction) -> None:
    set32(m, i["d"], m.brev(raw(m, i["b"])))


@hopper("FLO", "UFLO")
def flo(m: Machine, i: Instruction) -> None:
    """Place of the highest bit that is one (that differs from the sign, unless .U32); .SH as a shift count."""
    place = highest_bit(m, i["b"], "U32" not in words(i), "SH" in words(i))
    set_pred(m, i.operand("pd"), m.icmp("ne", place, m.const("i32", -1)))
    set32(m, i["d"], place)
