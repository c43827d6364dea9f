"""Hopper's instructions where they are not Maxwell's: carries in predicates, 64-bit products, uniform registers,
addresses with descriptors. What means the same has the same function (`same`). Sources: the PTX ISA, compiled code."""

import math

from ..isa import RZ, URZ, Instruction, Operand
from ..isa.text import format_opcode
from . import double, move, warp  # noqa: F401  (what they register is shared below)
from .integer import compare, set_predicates
from .logic import lookup3, permute
from .machine import UNIFORM, WINDOWS, Machine, V
from .operands import combine, extend, f32, f64, i64, pair, pred, raw, set32, set64, set_pred
from .registry import hopper, same
from .single import _signed_word, canonical, flush, relation

same("FFMA", "FADD", "FMUL", "FMNMX", "FSETP", "FCHK", "DADD", "DMUL", "DFMA", "SEL", "PRMT", "SHFL", "VOTE",
     "MOV")


def words(i: Instruction) -> set[str]:
    """The parts of the printed opcode."""
    return set(format_opcode(i).split(".")[1:])


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
    total = m.add(m.add(_entering(m, i["a"]), _entering(m, i["b"])), _entering(m, i["c"]))
    if "X" in words(i):
        total = m.add(m.add(total, _carry(m, i.operand("ps"))), _carry(m, i.operand("pr")))
    carry = m.lshr(total, m.const("i64", 32))
    set_pred(m, i.operand("pd"), m.icmp("ne", carry, m.const("i64", 0)))
    set_pred(m, i.operand("pq"), m.icmp("ugt", carry, m.const("i64", 1)))
    set32(m, i["d"], m.trunc(total, "i32"))


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
    set_pred(m, i.operand("pd"), out)
    if "HI" in how:
        set32(m, i["d"], m.trunc(m.lshr(total, m.const("i64", 32)), "i32"))
    else:
        set64(m, i["d"], total)


@hopper("LEA", "ULEA")
def lea(m: Machine, i: Instruction) -> None:
    """a shifted left by s, plus b; .HI the upper word of the pair c, a (or of a sign-extended: .SX32) instead."""
    how, s = words(i), m.const("i64", i["s"].value)
    a = i["a"]
    low = raw(m, a)
    if "HI" in how:
        high = m.ashr(low, m.const("i32", 31)) if "SX32" in how else raw(m, i["c"])
        wide = pair(m, low, high)
        wide = m.not_(wide) if a.inv else m.sub(m.const("i64", 0), wide) if a.neg else wide
        shifted = m.lshr(m.shl(wide, s), m.const("i64", 32)) if i["s"].value else m.lshr(wide, m.const("i64", 32))
    else:
        word = m.shl(low, m.const("i32", i["s"].value))
        shifted = m.zext(word, "i64")
        if a.neg or a.inv:
            shifted = m.add(m.zext(m.not_(word), "i64"), m.const("i64", 1 if a.neg else 0))
    total = m.add(shifted, _entering(m, i["b"]))
    if "X" in how:
        total = m.add(total, _carry(m, i.operand("ps")))
    set_pred(m, i.operand("pd"), m.icmp("ne", m.lshr(total, m.const("i64", 32)), m.const("i64", 0)))
    set32(m, i["d"], m.trunc(total, "i32"))


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
    signed, wide = bool(how & {"S32", "S64"}), bool(how & {"U64", "S64"})
    limit = 64 if wide else 32
    n = raw(m, i["b"])
    if "W" in how:
        n = m.and_(n, m.const("i32", limit - 1))
    else:
        n = m.select(m.icmp("ult", n, m.const("i32", limit)), n, m.const("i32", limit))
    value = pair(m, raw(m, i["a"]), raw(m, i["c"]))
    amount = m.zext(n, "i64")
    far = m.icmp("ugt", n, m.const("i32", 63))
    near = m.select(far, m.const("i64", 0), amount)
    if "L" in how:
        shifted = m.select(far, m.const("i64", 0), m.shl(value, near))
    elif signed:
        shifted = m.select(far, m.ashr(value, m.const("i64", 63)), m.ashr(value, near))
    else:
        shifted = m.select(far, m.const("i64", 0), m.lshr(value, near))
    set32(m, i["d"], m.trunc(m.lshr(shifted, m.const("i64", 32)) if "HI" in how else shifted, "i32"))


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
        a, b, low = raw(m, i["a"]), raw(m, i["b"]), m.const("i32", 0xFFFF)
        upper = m.not_(low)
        total = m.or_(m.and_(m.add(a, b), low), m.and_(m.add(m.and_(a, upper), m.and_(b, upper)), upper))
        set32(m, i["d"], total)
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


@hopper("FSET")
def fset(m: Machine, i: Instruction) -> None:
    a, b = (flush(m, f32(m, i[n])) if "FTZ" in words(i) else f32(m, i[n]) for n in "ab")
    holds = combine(m, i.mods["bool"], relation(m, i.mods["cmp"], a, b), pred(m, i["ps"]))
    set32(m, i["d"], m.select(holds, m.const("i32", 0x3F800000 if "BF" in words(i) else -1), m.const("i32", 0)))


@hopper("DSETP")
def dsetp(m: Machine, i: Instruction) -> None:
    """.MIN and .MAX: whether a is the result, and whether neither is a number."""
    how, a, b = i.mods["cmp"], f64(m, i["a"]), f64(m, i["b"])
    if how not in ("MIN", "MAX"):
        set_predicates(m, i, relation(m, how, a, b))
        return
    below = m.or_(m.fcmp("olt", a, b), m.and_(m.fcmp("oeq", a, b),
                                              m.icmp("slt", m.bitcast(a, "i64"), m.bitcast(b, "i64"))))
    wins = m.not_(below) if how == "MAX" else below
    number, nan = m.fcmp("ord", a, a), m.fcmp("uno", b, b)
    set_pred(m, i["pd"], m.and_(number, m.or_(wins, nan)))
    set_pred(m, i["pq"], m.and_(nan, m.not_(number)))


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


@hopper("POPC", "UPOPC")
def popc(m: Machine, i: Instruction) -> None:
    value = raw(m, i["b"])
    set32(m, i["d"], m.popc(m.not_(value) if i["b"].inv else value))


@hopper("BREV", "UBREV")
def brev(m: Machine, i: Instruction) -> None:
    set32(m, i["d"], m.brev(raw(m, i["b"])))


@hopper("FLO", "UFLO")
def flo(m: Machine, i: Instruction) -> None:
    """Place of the highest bit that is one (that differs from the sign, unless .U32); .SH as a shift count."""
    how, value = words(i), raw(m, i["b"])
    value = m.not_(value) if i["b"].inv else value
    if "U32" not in how:
        value = m.xor(value, m.ashr(value, m.const("i32", 31)))
    zeros = m.clz(value)
    found = m.icmp("ne", value, m.const("i32", 0))
    place = zeros if "SH" in how else m.sub(m.const("i32", 31), zeros)
    set_pred(m, i.operand("pd"), found)
    set32(m, i["d"], m.select(found, place, m.const("i32", -1)))


@hopper("VABSDIFF")
def vabsdiff(m: Machine, i: Instruction) -> None:
    a, b = raw(m, i["a"]), raw(m, i["b"])
    less = m.icmp("ult" if "U32" in words(i) else "slt", a, b)
    set32(m, i["d"], m.add(m.select(less, m.sub(b, a), m.sub(a, b)), raw(m, i["c"])))


@hopper("VABSDIFF4")
def vabsdiff4(m: Machine, i: Instruction) -> None:
    total, signed = m.const("i32", 0), "S8" in words(i)
    for place in range(4):
        a, b = (m.shl(raw(m, i[n]), m.const("i32", 24 - 8 * place)) for n in "ab")
        a, b = ((m.ashr if signed else m.lshr)(x, m.const("i32", 24)) for x in (a, b))
        less, gap = m.icmp("slt", a, b), m.sub(a, b)
        one = m.select(less, m.sub(m.const("i32", 0), gap), gap)
        total = m.add(total, one) if "ACC" in words(i) else m.or_(total, m.shl(one, m.const("i32", 8 * place)))
    set32(m, i["d"], m.add(total, raw(m, i["c"])) if "ACC" in words(i) else total)


@hopper("FSEL")
def fsel(m: Machine, i: Instruction) -> None:
    a, b = (m.bitcast(f32(m, i[n]), "i32") for n in "ab")
    set32(m, i["d"], m.select(pred(m, i["ps"]), a, b))


@hopper("MUFU")
def mufu(m: Machine, i: Instruction) -> None:
    function, op = i.mods["func"], i["a"]
    if function.endswith("64H"):
        set32(m, i["d"], m.seed64(function, _signed_word(m, op, raw(m, op))))
        return
    argument = flush(m, f32(m, op))
    if function in ("SIN", "COS"):  # of turns
        argument = m.fptrunc(m.fmul(m.fpext(argument, "f64"), m.const("f64", 2 * math.pi)), "f32")
    x = m.mufu(function, argument)
    x = flush(m, x) if function in ("SIN", "COS", "EX2", "LG2", "RSQ", "SQRT") else x
    set32(m, i["d"], canonical(m, x))


# -- moves --------------------------------------------------------------------------------------------------------


@hopper("UPRMT")
def uprmt(m: Machine, i: Instruction) -> None:
    permute(m, i, "")


@hopper("UMOV")
def umov(m: Machine, i: Instruction) -> None:
    set32(m, i["d"], raw(m, i["b"]))


@hopper("USEL")
def usel(m: Machine, i: Instruction) -> None:
    set32(m, i["d"], m.select(pred(m, i["ps"]), raw(m, i["a"]), raw(m, i["b"])))


@hopper("S2R", "S2UR", "CS2R")
def s2r(m: Machine, i: Instruction) -> None:
    name = i.row.table.special_registers.get(i["sr"].value, f"SR{i['sr'].value}")
    value = m.const("i32", 0) if name == "SRZ" else m.special(name)
    if i.opcode == "CS2R" and i["d"].regs == 2:
        high = m.const("i32", 0) if name == "SRZ" else m.special(name.removesuffix("LO") + "HI")
        set64(m, i["d"], pair(m, value, high))
    else:
        set32(m, i["d"], value)


@hopper("R2UR")
def r2ur(m: Machine, i: Instruction) -> None:
    """What the first lane holds that executes this."""
    mask = m.executing()
    first = m.sub(m.const("i32", 31), m.clz(m.and_(mask, m.sub(m.const("i32", 0), mask))))
    set32(m, i["d"], m.shuffle(raw(m, i["a"]), first))


@hopper("R2P")
def r2p(m: Machine, i: Instruction) -> None:
    value, mask = raw(m, i["a"]), i["b"].value
    if i["a"].part:
        value = m.lshr(value, m.const("i32", 8 * int(i["a"].part[1])))
    for at in range(7):
        if mask >> at & 1:
            m.set_pred(at, m.icmp("ne", m.and_(value, m.const("i32", 1 << at)), m.const("i32", 0)))


@hopper("P2R")
def p2r(m: Machine, i: Instruction) -> None:
    shift = m.const("i32", 8 * int(i.mods["byte"][1]) if i.mods["byte"] else 0)
    mask = m.shl(m.and_(raw(m, i["b"]), m.const("i32", 0xFF)), shift)
    value = m.const("i32", 0)
    for at in range(7):
        value = m.or_(value, m.shl(m.zext(m.pred(at), "i32"), m.const("i32", at)))
    new = m.shl(value, shift)
    set32(m, i["d"], m.or_(m.and_(raw(m, i["a"]), m.not_(mask)), m.and_(new, mask)))


hopper("VOTEU")(warp.vote)


@hopper("NOP", "CGAERRBAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "CCTL", "YIELD", "NANOSLEEP",
        "ENDCOLLECTIVE")
def nothing(m: Machine, i: Instruction) -> None:
    """Scoreboards, memory order, caches: where one instruction runs after the other there is nothing to wait for."""


# -- memory -------------------------------------------------------------------------------------------------------


def _near(m: Machine, op: Operand) -> V:
    """A shared or local address: register, scaled if it says so, uniform register, offset."""
    total = m.const("i32", op.value)
    if op.base != RZ:
        base = m.reg(op.base)
        if op.part:
            base = m.shl(base, m.const("i32", {"X4": 2, "X8": 3, "X16": 4}[op.part]))
        total = m.add(base, total)
    if op.ubase != URZ:
        total = m.add(total, m.reg(UNIFORM + op.ubase))
    return total


def _shared(m: Machine, op: Operand) -> V:
    """An address of shared memory may have the block's rank in its cluster in the upper byte."""
    return m.and_(_near(m, op), m.const("i32", 0xFFFFFF))


def _far(m: Machine, op: Operand) -> V:
    """A global address: a register pair, or one register taken unsigned; a uniform pair, unless it is a descriptor."""
    suffix, described = op.field.spec.get("suffix", ""), op.field.spec.get("desc", False)
    total = m.const("i64", op.value)
    if op.base != RZ:
        narrow = suffix == ".U32"
        base = m.zext(m.reg(op.base), "i64") if narrow else pair(m, m.reg(op.base), m.reg(op.base + 1))
        total = m.add(base, total)
    if op.ubase != URZ and not described:
        total = m.add(total, pair(m, m.reg(UNIFORM + op.ubase), m.reg(UNIFORM + op.ubase + 1)))
    return total


def _kind(i: Instruction) -> str:
    return i.mods["size"] or "32"


@hopper("LDG", "LD")
def load_global(m: Machine, i: Instruction) -> None:
    m.load("global" if i.opcode == "LDG" else "generic", _far(m, i["addr"]), _kind(i), i["d"].value)


@hopper("STG", "ST")
def store_global(m: Machine, i: Instruction) -> None:
    m.store("global" if i.opcode == "STG" else "generic", _far(m, i["addr"]), _kind(i), i["d"].value)


@hopper("LDS", "LDL")
def load_near(m: Machine, i: Instruction) -> None:
    shared = i.opcode == "LDS"
    m.load("shared" if shared else "local", (_shared if shared else _near)(m, i["addr"]), _kind(i), i["d"].value)


@hopper("STS", "STL")
def store_near(m: Machine, i: Instruction) -> None:
    shared = i.opcode == "STS"
    m.store("shared" if shared else "local", (_shared if shared else _near)(m, i["addr"]), _kind(i), i["d"].value)


@hopper("LDC", "ULDC")
def load_constant(m: Machine, i: Instruction) -> None:
    op = i["addr"]
    if op.type == "cbank":
        value = m.constant(op.bank, op.value)
        if i["d"].regs == 2:
            set64(m, i["d"], pair(m, value, m.constant(op.bank, op.value + 4)))
        elif _kind(i) == "32":
            set32(m, i["d"], value)
        else:
            kind, word = _kind(i), m.constant(op.bank, op.value & ~3)
            value = m.lshr(word, m.const("i32", 8 * (op.value & 3)))
            set32(m, i["d"], extend(m, value, int(kind[1:]), kind[0] == "S"))
        return
    offset = m.const("i32", op.value)
    m.load(f"const{op.bank}", offset if op.base == RZ else m.add(m.reg(op.base), offset), _kind(i), i["d"].value)


_ATOMIC_KINDS = {"": "U32", "S32": "S32", "64": "U64", "S64": "S64"}


def _compare_and_store(m: Machine, i: Instruction, address: V, kind: str) -> None:
    """ATOMS.CAST: 1 if what lay there was b, and c lies there now."""
    wide, d = kind == "U64", i["d"]
    values = [i64(m, i[n]) if wide else raw(m, i[n]) for n in "bc"]
    m.atomic("shared", address, "CAS", kind, values, d.value)
    stored = m.icmp("eq", i64(m, d) if wide else raw(m, d), values[0])
    (set64 if wide else set32)(m, d, m.zext(stored, "i64" if wide else "i32"))


@hopper("ATOMG", "ATOM", "ATOMS", "REDG")
def atomic(m: Machine, i: Instruction) -> None:
    how = words(i)
    space = "shared" if i.opcode == "ATOMS" else "generic"
    address = _shared(m, i["addr"]) if space == "shared" else _far(m, i["addr"])
    dest = i.operand("d") if i.opcode != "REDG" else None
    to = None if dest is None or dest.value == RZ else dest.value
    names = {"ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS"} & how
    kind = next((k for k in ("U64", "S64", "S32") if k in how), "U64" if "64" in how else "U32")
    if "POPC" in how:
        m.atomic(space, address, "ADD", "U32", [m.const("i32", 1)], to)
        return
    if "CAST" in how:
        _compare_and_store(m, i, address, "U64" if "64" in how else "U32")
        return
    if "RN" in how or len(names) != 1:
        if "F32" in how and names == {"ADD"}:
            kind = "F32"
        elif "F64" in how and names == {"ADD"}:
            kind = "F64"
        else:
            m.unsupported("this atomic operation")
            return
    values = ["b", "c"] if names == {"CAS"} else ["d" if i.opcode == "REDG" else "b"]
    if names == {"CAS"}:
        kind = kind.replace("S", "U")
    wide = kind.endswith("64")
    operands = [i64(m, i[n]) if wide else raw(m, i[n]) for n in values]
    m.atomic(space, address, names.pop(), kind, operands, to)
    if i.operand("pd") is not None:
        set_pred(m, i["pd"], m.const("i1", 1))


@hopper("QSPC")
def qspc(m: Machine, i: Instruction) -> None:
    """Whether a generic address lies in the window of shared memory, of local memory, or in none of them."""
    window = m.lshr(_far(m, i["addr"]), m.const("i64", 24))
    inside = {name: m.icmp("eq", window, m.const("i64", byte)) for name, byte in WINDOWS.items()}
    kind = words(i) & {"S", "L"}
    set_pred(m, i["pd"], inside[kind.pop()] if kind else m.not_(m.or_(inside["S"], inside["L"])))


@hopper("B2R")
def barrier_result(m: Machine, i: Instruction) -> None:
    value = m.barrier_result()
    set32(m, i["d"], value)
    set_pred(m, i.operand("pd"), m.icmp("ne", value, m.const("i32", 0)))

