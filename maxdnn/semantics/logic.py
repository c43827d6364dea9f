"""Bitwise logic, shifts, bit fields and byte permutation."""

from ..isa import Instruction
from .machine import Machine, V
from .operands import bits, halves, i32, pair, raw, result32, set32, set_flags, set_pred
from .registry import semantics


def _logic(m: Machine, op: str, a: V, b: V) -> V:
    return b if op == "PASS_B" else {"AND": m.and_, "OR": m.or_, "XOR": m.xor}[op](a, b)


def _logic_result(m: Machine, i: Instruction, value: V) -> None:
    """The word, the flags and the predicate result: T, Z (zero) or NZ. With .X the word is the upper one of a longer
    number, which is zero if the flags say so of the words below as well: how the compiler tests (a & b) != 0 of 64
    bits."""
    below = m.flag("Z") if i.mods["x"] else None

    def zero() -> V:
        mine = m.icmp("eq", value, m.const("i32", 0))
        return mine if below is None else m.and_(mine, below)

    mode = i.mods.get("pop", "")
    if mode:
        set_pred(m, i["pd"], {"T": lambda: m.const("i1", 1), "Z": zero, "NZ": lambda: m.not_(zero())}[mode]())
    if i["d"].cc:
        set_flags(m, value, Z=zero)
    set32(m, i["d"], value)


@semantics("LOP", "LOP32I")
def lop(m: Machine, i: Instruction) -> None:
    _logic_result(m, i, _logic(m, i.mods["op"], bits(m, i["a"]), bits(m, i["b"])))


@semantics("LOP3.LUT")
def lop3(m: Machine, i: Instruction) -> None:
    """Bit number a << 2 | b << 1 | c of the table, as an or of the minterms that are set."""
    a, b, c = (i32(m, i[n]) for n in "abc")
    _logic_result(m, i, lookup3(m, i["lut"].value, a, b, c))


def lookup3(m: Machine, lut: int, a: V, b: V, c: V, type_: str = "i32") -> V:
    """Choose by a between two functions of b and c, each one of the sixteen."""
    low, high = _lookup2(m, lut & 15, b, c, type_), _lookup2(m, lut >> 4, b, c, type_)
    if low is high or lut & 15 == lut >> 4:
        return low
    return m.or_(m.and_(m.not_(a), low), m.and_(a, high))


def _lookup2(m: Machine, lut: int, b: V, c: V, type_: str) -> V:
    """Bit b << 1 | c of a four-bit table."""
    if lut & 8:
        return m.not_(_lookup2(m, lut ^ 15, b, c, type_))
    table = {0: lambda: m.const(type_, 0), 1: lambda: m.not_(m.or_(b, c)), 2: lambda: m.and_(m.not_(b), c),
             3: lambda: m.not_(b), 4: lambda: m.and_(b, m.not_(c)), 5: lambda: m.not_(c), 6: lambda: m.xor(b, c),
             7: lambda: m.not_(m.and_(b, c))}
    return table[lut]()


def _amount(m: Machine, i: Instruction, n: V) -> tuple[V, V]:
    """A shift amount below 32 and whether the shift goes out of range (never with .W)."""
    limit = m.const("i32", 31)
    return m.and_(n, limit), m.const("i1", 0) if i.mods.get("w") else m.icmp("ugt", n, limit)


@semantics("SHL")
def shl(m: Machine, i: Instruction) -> None:
    if i.mods["x"]:
        m.unsupported("SHL.X has no published meaning")
        return
    n, out = _amount(m, i, i32(m, i["b"]))
    result32(m, i, m.select(out, m.const("i32", 0), m.shl(i32(m, i["a"]), n)))


@semantics("SHR")
def shr(m: Machine, i: Instruction) -> None:
    if i.mods["x"]:
        m.unsupported("SHR.X has no published meaning")
        return
    a = i32(m, i["a"])
    a = m.brev(a) if i.mods["brev"] else a
    n, out = _amount(m, i, i32(m, i["b"]))
    if i.mods["u"]:
        value = m.select(out, m.const("i32", 0), m.lshr(a, n))
    else:
        value = m.ashr(a, m.select(out, m.const("i32", 31), n))
    result32(m, i, value)


@semantics("SHF.L", "SHF.R")
def shf(m: Machine, i: Instruction) -> None:
    if i.mods["hi"] in ("X", "XHI"):
        m.unsupported("SHF.X has no published meaning")
        return
    left = i.mnemonic == "SHF.L"
    low, high = funnel(m, i, left, bool(i.mods["type"]), i.mods["type"] == "S64")
    result32(m, i, high if left or i.mods["hi"] == "HI" else low)


def funnel(m: Machine, i: Instruction, left: bool, wide: bool, signed: bool) -> tuple[V, V]:
    """Both words of c:a shifted by b. Amounts saturate at 32 (64 if `wide`), or wrap with .W."""
    value = pair(m, raw(m, i["a"]), raw(m, i["c"]))
    limit = 64 if wide else 32
    n = i32(m, i["b"])
    if i.mods["w"]:
        n = m.and_(n, m.const("i32", limit - 1))
    else:
        n = m.select(m.icmp("ugt", n, m.const("i32", limit)), m.const("i32", limit), n)
    return halves(m, _shift64(m, value, n, left, signed))


def _shift64(m: Machine, value: V, n: V, left: bool, signed: bool) -> V:
    """A 64-bit shift by 0..64."""
    whole = m.icmp("eq", n, m.const("i32", 64))
    amount = m.zext(m.and_(n, m.const("i32", 63)), "i64")
    if left:
        return m.select(whole, m.const("i64", 0), m.shl(value, amount))
    if signed:
        return m.select(whole, m.ashr(value, m.const("i64", 63)), m.ashr(value, amount))
    return m.select(whole, m.const("i64", 0), m.lshr(value, amount))


def _field(m: Machine, packed: V) -> tuple[V, V]:
    """Position and length from the two low bytes."""
    byte = m.const("i32", 0xFF)
    return m.and_(packed, byte), m.and_(m.lshr(packed, m.const("i32", 8)), byte)


def _below(m: Machine, n: V) -> V:
    """A mask of the n low bits, n of any size."""
    full = m.icmp("ugt", n, m.const("i32", 31))
    one = m.const("i32", 1)
    partial = m.sub(m.shl(one, m.and_(n, m.const("i32", 31))), one)
    return m.select(full, m.const("i32", -1), partial)


@semantics("BFE")
def bfe(m: Machine, i: Instruction) -> None:
    a = i32(m, i["a"])
    a = m.brev(a) if i.mods["brev"] else a
    position, length = _field(m, i32(m, i["b"]))
    top = m.const("i32", 31)
    zero = m.const("i32", 0)
    outside = m.icmp("ugt", position, top)
    mask = _below(m, length)
    if i.mods["u"]:
        moved = m.select(outside, zero, m.lshr(a, m.and_(position, top)))
        result32(m, i, m.and_(moved, mask))
        return
    moved = m.ashr(a, m.select(outside, top, position))
    empty = m.icmp("eq", length, zero)
    last = m.sub(m.add(position, length), m.const("i32", 1))
    last = m.select(m.icmp("ugt", last, top), top, last)
    sign = m.and_(m.lshr(a, m.and_(last, top)), m.const("i32", 1))
    fill = m.and_(m.sub(zero, sign), m.not_(mask))
    result32(m, i, m.select(empty, zero, m.or_(m.and_(moved, mask), fill)))


@semantics("BFI")
def bfi(m: Machine, i: Instruction) -> None:
    a, c = i32(m, i["a"]), i32(m, i["c"])
    position, length = _field(m, i32(m, i["b"]))
    top = m.const("i32", 31)
    place = m.and_(position, top)
    mask = m.shl(_below(m, length), place)
    value = m.or_(m.and_(m.shl(a, place), mask), m.and_(c, m.not_(mask)))
    result32(m, i, m.select(m.icmp("ugt", position, top), c, value))


@semantics("PRMT")
def prmt(m: Machine, i: Instruction) -> None:
    """Bytes of c:a chosen by selector b."""
    mode = i.mods.get("mode", "")
    wide = pair(m, i32(m, i["a"]), i32(m, i["c"]))
    selector = i32(m, i["b"])
    value = m.const("i32", 0)
    for place in range(4):
        byte = _permuted_byte(m, wide, selector, mode, place)
        value = m.or_(value, m.shl(byte, m.const("i32", 8 * place)))
    set32(m, i["d"], value)


def _permuted_byte(m: Machine, wide: V, selector: V, mode: str, place: int) -> V:
    seven, three = m.const("i32", 7), m.const("i32", 3)
    if not mode:
        nibble = m.lshr(selector, m.const("i32", 4 * place))
        byte = _byte(m, wide, m.and_(nibble, seven))
        sign = m.icmp("ne", m.and_(nibble, m.const("i32", 8)), m.const("i32", 0))
        negative = m.icmp("ugt", byte, m.const("i32", 0x7F))
        filled = m.select(negative, m.const("i32", 0xFF), m.const("i32", 0))
        return m.select(sign, filled, byte)
    n, here = m.and_(selector, three), m.const("i32", place)
    index = {
        "F4E": lambda: m.and_(m.add(n, here), seven),
        "B4E": lambda: m.and_(m.sub(n, here), seven),
        "RC8": lambda: n,
        "ECL": lambda: m.select(m.icmp("ugt", here, n), here, n),
        "ECR": lambda: m.select(m.icmp("ult", here, n), here, n),
        "RC16": lambda: m.add(m.shl(m.and_(n, m.const("i32", 1)), m.const("i32", 1)), m.const("i32", place & 1)),
    }[mode]()
    return _byte(m, wide, index)


def _byte(m: Machine, wide: V, index: V) -> V:
    shift = m.zext(m.shl(index, m.const("i32", 3)), "i64")
    return m.and_(m.trunc(m.lshr(wide, shift), "i32"), m.const("i32", 0xFF))
