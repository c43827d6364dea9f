"""Moves, special registers, predicate and flag logic, and instructions that only matter to timing."""

from ..isa import PT, Instruction
from .machine import Machine, V
from .operands import combine, i32, pair, pred, raw, select_part, set32, set64, set_result
from .registry import semantics

FLAG_ORDER = "ZSCO"  # as P2R and R2P pack them


@semantics("MOV", "MOV32I")
def mov(m: Machine, i: Instruction) -> None:
    """The lane mask m selects lanes within each quad; 15 in all code seen. Uniform registers have none."""
    value, lanes = raw(m, i["b"]), i.operand("m")
    if lanes is not None and lanes.value != 15:
        quad = m.and_(m.special("SR_LANEID"), m.const("i32", 3))
        chosen = m.and_(m.lshr(m.const("i32", lanes.value), quad), m.const("i32", 1))
        value = m.select(m.icmp("ne", chosen, m.const("i32", 0)), value, raw(m, i["d"]))
    set32(m, i["d"], value)


@semantics("SEL")
def sel(m: Machine, i: Instruction) -> None:
    set32(m, i["d"], m.select(pred(m, i["ps"]), i32(m, i["a"]), i32(m, i["b"])))


@semantics("S2R", "CS2R")
def s2r(m: Machine, i: Instruction) -> None:
    name = i.row.table.special_registers.get(i["sr"].value, f"SR{i['sr'].value}")
    value = m.const("i32", 0) if name == "SRZ" else m.special(name)
    if i["d"].regs == 2:
        high = m.const("i32", 0) if name == "SRZ" else m.special(name.removesuffix("LO") + "HI")
        set64(m, i["d"], pair(m, value, high))
    else:
        set32(m, i["d"], value)


@semantics("LEPC")
def lepc(m: Machine, i: Instruction) -> None:
    set32(m, i["d"], m.const("i32", i.address + 8))


@semantics("NOP", "DEPBAR", "DEPBAR.LE", "MEMBAR", "CCTL", "CCTLL")
def nothing(m: Machine, i: Instruction) -> None:
    """Scoreboards, memory order, caches: where one instruction runs after the other there is nothing to wait for."""


@semantics("PSETP", "PSET")
def pset(m: Machine, i: Instruction) -> None:
    set_result(m, i, combine(m, i.mods["op1"], pred(m, i["pa"]), pred(m, i["pb"])), "op2")


def flag_test(m: Machine, test: str) -> V | None:
    """A condition on the flags after a subtraction or addition, as CC tests name them; None if it has no meaning."""
    z, s, c, o = (lambda name=name: m.flag(name) for name in FLAG_ORDER)
    less = lambda: m.xor(s(), o())  # noqa: E731
    tests = {
        "F": lambda: m.const("i1", 0), "T": lambda: m.const("i1", 1),
        "LT": less, "GE": lambda: m.not_(less()),
        "LE": lambda: m.or_(less(), z()), "GT": lambda: m.not_(m.or_(less(), z())),
        "EQ": z, "NE": lambda: m.not_(z()), "EQU": z, "NEU": lambda: m.not_(z()),
        "HS": c, "LO": lambda: m.not_(c()),
        "HI": lambda: m.and_(c(), m.not_(z())), "LS": lambda: m.or_(m.not_(c()), z()),
        "SFT": s, "SFF": lambda: m.not_(s()), "OFT": o, "OFF": lambda: m.not_(o()),
    }
    return tests[test]() if test in tests else None


@semantics("CSETP", "CSET")
def cset(m: Machine, i: Instruction) -> None:
    holds = flag_test(m, i.mods["cc"])
    if holds is None:
        m.unsupported(f"condition test {i.mods['cc']} has no published meaning")
    else:
        set_result(m, i, holds, "op2")


def _packed(m: Machine, flags: bool) -> V:
    """Predicates P0.. or flags Z S C O as bits from bit 0."""
    bits = [m.flag(n) for n in FLAG_ORDER] if flags else [m.pred(p) for p in range(PT)]
    value = m.const("i32", 0)
    for at, bit in enumerate(bits):
        value = m.or_(value, m.shl(m.zext(bit, "i32"), m.const("i32", at)))
    return value


def _flags(i: Instruction, name: str) -> bool:
    """Whether flags move, not predicates. Without such an operand there are none."""
    op = i.operand(name)
    return op is not None and op.label == "CC"


@semantics("P2R")
def p2r(m: Machine, i: Instruction) -> None:
    shift = m.const("i32", 8 * int(i.mods["byte"][1]) if i.mods["byte"] else 0)
    mask = m.shl(m.and_(i32(m, i["b"]), m.const("i32", 0xFF)), shift)
    new = m.shl(_packed(m, _flags(i, "src")), shift)
    set32(m, i["d"], m.or_(m.and_(i32(m, i["a"]), m.not_(mask)), m.and_(new, mask)))


@semantics("R2P")
def r2p(m: Machine, i: Instruction) -> None:
    value, mask = select_part(m, i["a"], raw(m, i["a"])), i32(m, i["b"])
    known = None if i["b"].type in ("gpr", "ugpr", "cbank", "cx") else i["b"].value
    flags = _flags(i, "dst")
    old = [m.flag(n) for n in FLAG_ORDER] if flags else [m.pred(p) for p in range(PT)]
    for at, before in enumerate(old):
        if known is not None and not known >> at & 1:
            continue
        bit = m.icmp("ne", m.and_(value, m.const("i32", 1 << at)), m.const("i32", 0))
        if known is None:
            chosen = m.icmp("ne", m.and_(mask, m.const("i32", 1 << at)), m.const("i32", 0))
            bit = m.select(chosen, bit, before)
        if flags:
            m.set_flag(FLAG_ORDER[at], lambda bit=bit: bit)  # type: ignore[misc]
            if FLAG_ORDER[at] == "C":  # a carry from elsewhere is a single one
                twice = m.const("i1", 0) if known is not None else m.and_(m.flag("K"), m.not_(chosen))
                m.set_flag("K", lambda twice=twice: twice)  # type: ignore[misc]
        else:
            m.set_pred(at, bit)
