"""Integer addition, multiplication, comparison and their flags."""

from collections.abc import Callable, Sequence

from ..isa import PT, Instruction, Operand
from .machine import Machine, V
from .operands import (
    bits,
    extend,
    i32,
    pair,
    pred,
    raw,
    result32,
    select_part,
    set32,
    set_flags,
    set_pred,
    set_result,
)
from .registry import semantics


def _entering(m: Machine, op: Operand) -> V:
    """An addend: a negated operand enters as its bitwise complement, the +1 comes through the carry."""
    value = i32(m, op)
    return m.not_(value) if op.neg else value


def _carried(m: Machine, type_: str) -> V:
    """What the word below carried into this one: up to 3, as three addends may."""
    return m.or_(m.zext(m.flag("C"), type_), m.shl(m.zext(m.flag("K"), type_), m.const(type_, 1)))


def _carry_in(m: Machine, i: Instruction, count: int) -> V | None:
    if i.mods.get("x"):
        return _carried(m, "i32")
    return m.const("i32", count) if count else None


def add_with_carry(m: Machine, i: Instruction, a: V, b: V, carry: V | None) -> tuple[V, Callable[[], V]]:
    """a + b + carry, and how to get its signed overflow; sets the flags if the instruction says so. None is a carry
    of 0; one from the word below may wrap a sum that has wrapped already."""
    upper = m.upper_sum(a, b) if i.mods.get("x") else None
    part = m.add(a, b)
    total = upper if upper is not None else part if carry is None else m.add(part, carry)
    first, second = lambda: m.icmp("ult", part, a), lambda: m.icmp("ult", total, part)

    def overflow() -> V:
        return m.icmp("slt", m.and_(m.xor(total, a), m.xor(total, b)), m.const("i32", 0))

    if not i["d"].cc:
        pass
    elif carry is None:
        set_flags(m, total, C=first, O=overflow)
        m.lower_sum(a, b, total)
    else:
        set_flags(m, total, C=lambda: m.xor(first(), second()), O=overflow, K=lambda: m.and_(first(), second()))
    return total, overflow


def _add(m: Machine, i: Instruction, a: V, b: V, carry: V | None) -> None:
    total, overflow = add_with_carry(m, i, a, b, carry)
    if i.mods.get("sat"):
        top = m.const("i32", 0x7FFFFFFF)
        limit = m.select(m.icmp("slt", a, m.const("i32", 0)), m.not_(top), top)
        total = m.select(overflow(), limit, total)
    set32(m, i["d"], total)


@semantics("IADD", "IADD32I")
def iadd(m: Machine, i: Instruction) -> None:
    a, b = i["a"], i["b"]
    _add(m, i, _entering(m, a), _entering(m, b), _carry_in(m, i, int(a.neg) + int(b.neg)))


@semantics("IADD.PO", "IADD32I.PO")
def iadd_plus_one(m: Machine, i: Instruction) -> None:
    _add(m, i, i32(m, i["a"]), i32(m, i["b"]), _carry_in(m, i, 1))


@semantics("ISCADD", "ISCADD32I")
def iscadd(m: Machine, i: Instruction) -> None:
    a, b = i["a"], i["b"]
    shifted = m.shl(raw(m, a), m.const("i32", i["s"].value))
    shifted = m.not_(shifted) if a.neg else shifted
    _add(m, i, shifted, _entering(m, b), m.const("i32", int(a.neg) + int(b.neg)) if a.neg or b.neg else None)


@semantics("ISCADD.PO")
def iscadd_plus_one(m: Machine, i: Instruction) -> None:
    shifted = m.shl(raw(m, i["a"]), m.const("i32", i["s"].value))
    _add(m, i, shifted, raw(m, i["b"]), m.const("i32", 1))


@semantics("IADD3")
def iadd3(m: Machine, i: Instruction) -> None:
    """Three addends in 64 bits: the carry of the pair sum survives the .RS shift, and up to two come out. A negated
    word enters as its complement plus one, which carries when the word is 0; with .X as its complement alone, for the
    one is in the carry of the word below."""
    words = [_entering(m, i[n]) for n in "abc"]
    carry = _carried(m, "i64") if i.mods.get("x") else None
    total = _sum3(m, i, [m.zext(word, "i64") for word in words], carry)
    value = m.trunc(total, "i32")

    def bit(at: int) -> V:
        return m.icmp("ne", m.and_(total, m.const("i64", 1 << at)), m.const("i64", 0))

    def overflow() -> V:
        exact = _sum3(m, i, [m.sext(word, "i64") for word in words], carry)
        return m.icmp("ne", exact, m.sext(m.trunc(exact, "i32"), "i64"))

    if i["d"].cc:
        set_flags(m, value, C=lambda: bit(32), K=lambda: bit(33), **({} if i.mods.get("mode") else {"O": overflow}))
    set32(m, i["d"], value)


def _sum3(m: Machine, i: Instruction, words: Sequence[V], carry: V | None) -> V:
    """The sum of i64 addends; `carry` is that of .X."""
    a, b, c = (m.add(word, m.const("i64", 1)) if i[n].neg and carry is None else word
               for n, word in zip("abc", words, strict=True))
    pair = m.add(a, b)
    if i.mods.get("mode") == "RS":
        pair = m.and_(m.lshr(pair, m.const("i64", 16)), m.const("i64", 0x1FFFF))
    elif i.mods.get("mode") == "LS":
        pair = m.and_(m.shl(pair, m.const("i64", 16)), m.const("i64", 0xFFFFFFFF))
    total = m.add(pair, c)
    return total if carry is None else m.add(total, carry)


@semantics("XMAD")
def xmad(m: Machine, i: Instruction) -> None:
    """16 x 16 multiply, add, and merge; the steps follow the order in which the modifiers act."""
    type_, mode = i.mods.get("type", ""), i.mods.get("cmode", "")
    signed_a, signed_b = type_.startswith("S16"), type_.endswith("S16") and type_ != "S16.U16"
    a_reg, b_reg, c_reg = raw(m, i["a"]), raw(m, i["b"]), raw(m, i["c"])
    a = _half(m, i["a"], a_reg, signed_a)
    b = _half(m, i["b"], b_reg, signed_b)
    product = m.mul(a, b)
    if i.mods.get("psl"):
        product = m.shl(product, m.const("i32", 16))
    addend = _xmad_addend(m, i, mode, (a, b), (a_reg, b_reg), c_reg)
    total, _ = add_with_carry(m, i, product, addend, _carry_in(m, i, 0))
    if i.mods.get("mrg"):
        total = m.or_(m.and_(total, m.const("i32", 0xFFFF)), m.shl(b_reg, m.const("i32", 16)))
    set32(m, i["d"], total)


def _half(m: Machine, op: Operand, value: V, signed: bool) -> V:
    return select_part(m, op, value, signed) if op.part else extend(m, value, 16, signed)


def _xmad_addend(m: Machine, i: Instruction, mode: str, halves: tuple[V, V], whole: tuple[V, V], c: V) -> V:
    sixteen = m.const("i32", 16)
    if mode == "CLO":
        return m.and_(c, m.const("i32", 0xFFFF))
    if mode == "CHI":
        return m.lshr(c, sixteen)
    if mode == "CBCC":
        return m.add(c, m.shl(whole[1], sixteen))
    if mode == "CSFU":
        for mine, op, other in ((halves[0], i["b"], whole[1]), (halves[1], i["a"], whole[0])):
            c = m.sub(c, m.select(m.and_(m.icmp("slt", mine, m.const("i32", 0)), _other_half_set(m, op, other)),
                                  m.const("i32", 65536), m.const("i32", 0)))
    return c


def _other_half_set(m: Machine, op: Operand, value: V) -> V:
    """Whether the half that the operand does not select is non-zero."""
    other = m.and_(value, m.const("i32", 0xFFFF if op.part == "H1" else 0xFFFF0000))
    return m.icmp("ne", other, m.const("i32", 0))


@semantics("IMUL", "IMUL32I", "IMAD", "IMAD32I", "IMAD.PO", "IMAD32I.PO")
def imad(m: Machine, i: Instruction) -> None:
    """32 x 32 multiply and add in 64 bits; .HI takes the upper word of the product. .PO: one more."""
    type_ = i.mods.get("t", "")
    signed_a, signed_b = type_ in ("", "S32.U32"), type_ in ("", "U32.S32")
    a, b = _widen(m, i32(m, i["a"]), signed_a), _widen(m, i32(m, i["b"]), signed_b)
    product = m.mul(a, b)
    if i["a"].neg:
        product = m.sub(m.const("i64", 0), product)
    if i.mods.get("hi"):
        product = m.lshr(product, m.const("i64", 32))
    value = m.trunc(product, "i32")
    c = i.operand("c")
    if c is None:
        result32(m, i, value)
        return
    _add(m, i, value, _entering(m, c), _carry_in(m, i, int(c.neg or i.mnemonic.endswith(".PO"))))


def _widen(m: Machine, value: V, signed: bool) -> V:
    return m.sext(value, "i64") if signed else m.zext(value, "i64")


# -- comparisons --------------------------------------------------------------------------------------------------

_ORDER = {"LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}


def compare(m: Machine, relation: str, a: V, b: V, signed: bool) -> V:
    """An integer relation as the table names it."""
    if relation in ("F", "T"):
        return m.const("i1", relation == "T")
    if relation in ("EQ", "NE"):
        return m.icmp(relation.lower(), a, b)
    return m.icmp(("s" if signed else "u") + _ORDER[relation], a, b)


def _compare_extended(m: Machine, relation: str, a: V, b: V, signed: bool) -> V:
    """.X: the upper words of a 64-bit comparison whose lower words went through `IADD RZ.CC, a, -b`."""
    same = m.icmp("eq", a, b)
    less = m.or_(m.icmp("slt" if signed else "ult", a, b), m.and_(same, m.not_(m.flag("C"))))
    equal = m.and_(same, m.and_(m.flag("Z"), m.flag("C")))
    table = {"F": lambda: m.const("i1", 0), "T": lambda: m.const("i1", 1), "LT": lambda: less, "EQ": lambda: equal,
             "LE": lambda: m.or_(less, equal), "GT": lambda: m.not_(m.or_(less, equal)), "NE": lambda: m.not_(equal),
             "GE": lambda: m.not_(less)}
    return table[relation]()


@semantics("ISETP", "ISET")
def iset(m: Machine, i: Instruction) -> None:
    how = _compare_extended if i.mods.get("x") else compare
    set_result(m, i, how(m, i.mods["cmp"], i32(m, i["a"]), i32(m, i["b"]), not i.mods["u"]))


@semantics("ICMP")
def icmp(m: Machine, i: Instruction) -> None:
    a, b, c = (i32(m, i[n]) for n in "abc")
    set32(m, i["d"], m.select(compare(m, i.mods["cmp"], c, m.const("i32", 0), not i.mods["u"]), a, b))


@semantics("IMNMX")
def imnmx(m: Machine, i: Instruction) -> None:
    """Minimum where ps, else maximum. XHI records in C whether a won and in Z a tie; XLO follows."""
    a, b, least, mode = i32(m, i["a"]), i32(m, i["b"]), pred(m, i["ps"]), i.mods["m"]
    less = m.icmp("ult" if i.mods["u"] else "slt", a, b)
    same = m.icmp("eq", a, b)
    if mode in ("XLO", "XMED"):
        tie = m.flag("Z")
        less = m.select(tie, less, m.flag("C"))
        same = m.and_(tie, same)
    value = m.select(m.xor(less, m.not_(least)), a, b)
    if i["d"].cc:
        if mode:
            set_flags(m, value, Z=lambda: same, C=lambda: less)
        else:
            set_flags(m, value)
    set32(m, i["d"], value)


@semantics("LEA")
def lea(m: Machine, i: Instruction) -> None:
    _lea_sum(m, i, m.shl(i32(m, i["a"]), m.const("i32", i["s"].value)))


@semantics("LEA.HI")
def lea_hi(m: Machine, i: Instruction) -> None:
    wide = m.shl(pair(m, i32(m, i["a"]), i32(m, i["c"])), m.const("i64", i["s"].value))
    _lea_sum(m, i, m.trunc(m.lshr(wide, m.const("i64", 32)), "i32"))


def _lea_sum(m: Machine, i: Instruction, shifted: V) -> None:
    """The predicate says that the word is not zero. Of the upper word of a generic address that means: outside the
    windows of shared and local memory, which lie below 4 GiB. Inferred from the compiler's generic atomics, which go to
    global memory where it holds."""
    neg = i["a"].neg
    shifted = m.not_(shifted) if neg else shifted
    total, _ = add_with_carry(m, i, shifted, i32(m, i["b"]), _carry_in(m, i, int(neg)))
    if i["pd"].value != PT:
        set_pred(m, i["pd"], m.icmp("ne", total, m.const("i32", 0)))
    set32(m, i["d"], total)


@semantics("POPC")
def popc(m: Machine, i: Instruction) -> None:
    result32(m, i, m.popc(bits(m, i["b"])))


@semantics("FLO")
def flo(m: Machine, i: Instruction) -> None:
    result32(m, i, highest_bit(m, i["b"], not i.mods["u"], bool(i.mods["sh"])))


def highest_bit(m: Machine, op: Operand, signed: bool, shift: bool) -> V:
    """Index of the highest set bit, of the highest bit unlike the sign for signed input, as a shift count if asked for;
    all ones if none."""
    value = bits(m, op)
    if signed:
        value = m.xor(value, m.ashr(value, m.const("i32", 31)))
    zeros = m.clz(value)
    found = zeros if shift else m.sub(m.const("i32", 31), zeros)
    return m.select(m.icmp("eq", value, m.const("i32", 0)), m.const("i32", -1), found)


@semantics("IDP.4A", "IDP.2A")
def idp(m: Machine, i: Instruction) -> None:
    dot(m, i, (i.mods["s1"], i.mods["s2"]), i.mods.get("h") == "HI")


def dot(m: Machine, i: Instruction, types: tuple[str, str], upper: bool) -> None:
    """c plus the products of four bytes (U8, S8), or of two halves of a (U16, S16) and two bytes of b, the lower or the
    `upper` ones."""
    a, b, total = i32(m, i["a"]), i32(m, i["b"]), i32(m, i["c"])
    if i["c"].neg:
        total = m.sub(m.const("i32", 0), total)
    a_bits, b_bits = (int(type_[1:]) for type_ in types)
    for x in range(32 // a_bits):
        y = x + 2 * upper
        left = extend(m, m.lshr(a, m.const("i32", x * a_bits)), a_bits, types[0][0] == "S")
        right = extend(m, m.lshr(b, m.const("i32", y * b_bits)), b_bits, types[1][0] == "S")
        total = m.add(total, m.mul(left, right))
    set32(m, i["d"], total)
