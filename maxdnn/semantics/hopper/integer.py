"""Sums with carries in predicates, products, comparisons, smaller and larger numbers."""

from ...isa import PT, Instruction, Operand
from ..integer import compare, dot
from ..machine import Machine, V
from ..operands import i64, pair, pred, raw, set32, set64, set_pred, set_predicates
from ..registry import hopper
from .opcode import words


def _entering(m: Machine, op: Operand) -> V:
    """A 32-bit addend in 64 bits: a negated one as complement plus one, which carries when it is 0; ~ as complement."""
    value = raw(m, op)
    if op.neg:
        return m.add(m.zext(m.not_(value), "i64"), m.const("i64", 1))
    return m.zext(m.not_(value) if op.inv else value, "i64")


def _carry(m: Machine, op: Operand | None) -> V:
    return m.const("i64", 0) if op is None else m.zext(pred(m, op), "i64")


@hopper("IADD3", "UIADD3")
def iadd3(m: Machine, i: Instruction) -> None:
    """Three addends; what they carry, up to two, comes out in two predicates."""
    if "64" in words(i):
        _add_pairs(m, i)
        return
    total = m.add(m.add(_entering(m, i["a"]), _entering(m, i["b"])), _entering(m, i["c"]))
    if "X" in words(i):
        total = m.add(m.add(total, _carry(m, i.operand("ps"))), _carry(m, i.operand("pr")))
    carry = m.lshr(total, m.const("i64", 32))
    set_pred(m, i.operand("pd"), m.icmp("ne", carry, m.const("i64", 0)))
    set_pred(m, i.operand("pq"), m.icmp("ugt", carry, m.const("i64", 1)))
    set32(m, i["d"], m.trunc(total, "i32"))


def _add_pairs(m: Machine, i: Instruction) -> None:
    """UIADD3.64, of which carries are not known to be used."""
    if "X" in words(i) or any(i[n].value != PT for n in ("pd", "pq")):
        m.unsupported("carries of sums of pairs")
        return
    total = m.const("i64", 0)
    for op in (i["a"], i["b"], i["c"]):
        total = (m.sub if op.neg else m.add)(total, i64(m, op))
    set64(m, i["d"], total)


@hopper("IMAD", "UIMAD")
def imad(m: Machine, i: Instruction) -> None:
    """32 x 32 multiply and add: the low word, the whole (.WIDE) or its upper word (.HI, of a sum with a pair)."""
    unsigned, how = i.mods.get("u") == "U32", words(i)
    extend = m.zext if unsigned else m.sext
    product = m.mul(extend(raw(m, i["a"]), "i64"), extend(raw(m, i["b"]), "i64"))
    c = i["c"]
    if not how & {"WIDE", "HI"}:
        total = m.add(m.trunc(product, "i32"), m.trunc(_entering(m, c), "i32"))
        if "X" in how:
            total = m.add(total, m.trunc(_carry(m, i.operand("ps")), "i32"))
        set32(m, i["d"], total)
        return
    addend = i64(m, c)
    if c.neg or c.inv:
        addend = m.not_(addend)
    if c.neg:
        addend = m.add(addend, m.const("i64", 1))
    part = m.add(product, addend)
    total = m.add(part, _carry(m, i.operand("ps"))) if "X" in how else part
    out = m.or_(m.icmp("ult", part, addend), m.icmp("ult", total, part))
    if c.neg:  # complement plus one, which carries when it is 0, as for a word
        out = m.or_(out, m.icmp("eq", addend, m.const("i64", 0)))
    set_pred(m, i.operand("pd"), out)
    if "HI" in how:
        set32(m, i["d"], m.trunc(m.lshr(total, m.const("i64", 32)), "i32"))
    else:
        set64(m, i["d"], total)


@hopper("LEA", "ULEA")
def lea(m: Machine, i: Instruction) -> None:
    """a shifted left by s, plus b; .HI the upper word of the pair c, a (or of a sign-extended: .SX32) instead. The word
    that comes out is negated, not the pair."""
    how, s = words(i), m.const("i64", i["s"].value)
    a = i["a"]
    low = raw(m, a)
    if "HI" in how:
        high = m.ashr(low, m.const("i32", 31)) if "SX32" in how else raw(m, i["c"])
        word = m.trunc(m.lshr(m.shl(pair(m, low, high), s), m.const("i64", 32)), "i32")
    else:
        word = m.shl(low, m.const("i32", i["s"].value))
    shifted = m.zext(m.not_(word) if a.neg or a.inv else word, "i64")
    if a.neg:
        shifted = m.add(shifted, m.const("i64", 1))
    total = m.add(shifted, _entering(m, i["b"]))
    if "X" in how:
        total = m.add(total, _carry(m, i.operand("ps")))
    set_pred(m, i.operand("pd"), m.icmp("ne", m.lshr(total, m.const("i64", 32)), m.const("i64", 0)))
    set32(m, i["d"], m.trunc(total, "i32"))


_STRICT = {"LT": "LT", "LE": "LT", "GT": "GT", "GE": "GT"}


@hopper("ISETP", "UISETP")
def isetp(m: Machine, i: Instruction) -> None:
    """.EX: the upper words of a 64-bit comparison; what the lower ones gave is a predicate."""
    how, signed = i.mods["cmp"], not i.mods["u"]
    a, b = raw(m, i["a"]), raw(m, i["b"])
    below = i.operand("pr")
    if below is None or how in ("F", "T"):
        set_predicates(m, i, compare(m, how, a, b, signed))
        return
    same_, under = m.icmp("eq", a, b), pred(m, below)
    if how == "NE":
        holds = m.or_(m.not_(same_), under)
    else:
        holds = m.and_(same_, under)
        if how != "EQ":
            holds = m.or_(holds, compare(m, _STRICT[how], a, b, signed))
    set_predicates(m, i, holds)


def _signed_value(m: Machine, op: Operand) -> V:
    value = raw(m, op)
    return m.sub(m.const("i32", 0), value) if op.neg else value


@hopper("VIADD")
def viadd(m: Machine, i: Instruction) -> None:
    if "16x2" in words(i):
        a, low = raw(m, i["a"]), m.const("i32", 0xFFFF)
        join, b = m.sub if i["b"].neg else m.add, raw(m, i["b"])
        upper = m.not_(low)
        set32(m, i["d"], m.or_(m.and_(join(a, b), low), m.and_(join(m.and_(a, upper), m.and_(b, upper)), upper)))
        return
    set32(m, i["d"], m.add(_signed_value(m, i["a"]), _signed_value(m, i["b"])))


def _least(m: Machine, i: Instruction, a: V, b: V, least: V) -> V:
    below = m.icmp("ult" if "U32" in words(i) else "slt", a, b)
    return m.select(m.xor(below, m.not_(least)), a, b)


def _plain_minmax(m: Machine, i: Instruction) -> bool:
    plain = not words(i) & {"U16x2", "S16x2", "RELU"}
    if not plain:
        m.unsupported("pairs of 16 bits")
    return plain


@hopper("VIMNMX", "IMNMX")
def vimnmx(m: Machine, i: Instruction) -> None:
    """.RELU: not less than 0."""
    if i.operand("pd") is not None:
        m.unsupported("predicates that say which was taken")
        return
    how, least, sixteen = words(i), pred(m, i["ps"]), m.const("i32", 16)
    a, b = _signed_value(m, i["a"]), _signed_value(m, i["b"])
    halves = [(a, b)]
    if how & {"U16x2", "S16x2"}:
        shift = m.ashr if "S16x2" in how else m.lshr
        halves = [tuple(shift(m.shl(x, sixteen), sixteen) for x in (a, b)), tuple(shift(x, sixteen) for x in (a, b))]
    found = [_least(m, i, x, y, least) for x, y in halves]
    if "RELU" in how:
        found = [m.select(m.icmp("slt", x, m.const("i32", 0)), m.const("i32", 0), x) for x in found]
    if len(found) == 2:
        found = [m.or_(m.and_(found[0], m.const("i32", 0xFFFF)), m.shl(found[1], sixteen))]
    set32(m, i["d"], found[0])


@hopper("VIADDMNMX")
def viaddmnmx(m: Machine, i: Instruction) -> None:
    if _plain_minmax(m, i):
        total = m.add(_signed_value(m, i["a"]), _signed_value(m, i["b"]))
        set32(m, i["d"], _least(m, i, total, _signed_value(m, i["c"]), pred(m, i["ps"])))


@hopper("VIMNMX3")
def vimnmx3(m: Machine, i: Instruction) -> None:
    if _plain_minmax(m, i):
        least = pred(m, i["ps"])
        set32(m, i["d"], _least(m, i, _least(m, i, raw(m, i["a"]), raw(m, i["b"]), least), raw(m, i["c"]), least))


@hopper("IABS")
def iabs(m: Machine, i: Instruction) -> None:
    value = raw(m, i["b"])
    negative = m.icmp("slt", value, m.const("i32", 0))
    set32(m, i["d"], m.select(negative, m.sub(m.const("i32", 0), value), value))


def _accumulate(m: Machine, i: Instruction, value: V) -> None:
    """value + c, and what that carries."""
    total = m.add(m.zext(value, "i64"), m.zext(raw(m, i["c"]), "i64"))
    set_pred(m, i.operand("pd"), m.icmp("ne", m.lshr(total, m.const("i64", 32)), m.const("i64", 0)))
    set32(m, i["d"], m.trunc(total, "i32"))


@hopper("VABSDIFF")
def vabsdiff(m: Machine, i: Instruction) -> None:
    a, b = raw(m, i["a"]), raw(m, i["b"])
    less = m.icmp("ult" if "U32" in words(i) else "slt", a, b)
    _accumulate(m, i, m.select(less, m.sub(b, a), m.sub(a, b)))


@hopper("VABSDIFF4")
def vabsdiff4(m: Machine, i: Instruction) -> None:
    total, signed = m.const("i32", 0), "U8" not in words(i)
    for place in range(4):
        a, b = (m.shl(raw(m, i[n]), m.const("i32", 24 - 8 * place)) for n in "ab")
        a, b = ((m.ashr if signed else m.lshr)(x, m.const("i32", 24)) for x in (a, b))
        less, gap = m.icmp("slt", a, b), m.sub(a, b)
        one = m.select(less, m.sub(m.const("i32", 0), gap), gap)
        total = m.add(total, one) if "ACC" in words(i) else m.or_(total, m.shl(one, m.const("i32", 8 * place)))
    if "ACC" in words(i):
        _accumulate(m, i, total)
    else:
        set_pred(m, i.operand("pd"), m.const("i1", 0))
        set32(m, i["d"], total)


@hopper("IDP")
def idp(m: Machine, i: Instruction) -> None:
    types = ("mod_s16", "mod_s8") if "2A" in words(i) else ("mod_s8", "mod_s82")
    dot(m, i, (i.mods[types[0]], i.mods[types[1]]), "HI" in words(i))
