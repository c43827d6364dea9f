"""Exchange between the lanes of a warp."""

from ..isa import Instruction
from .machine import Machine, V
from .operands import i32, pred, set32, set_pred
from .registry import semantics


@semantics("SHFL")
def shfl(m: Machine, i: Instruction) -> None:
    """Source lane, segment and clamp as in PTX `shfl`: c holds the clamp in bits 0..4 and the segment mask in 8..12."""
    value, b, c = i32(m, i["a"]), i32(m, i["b"]), i32(m, i["c"])
    lane, low = m.special("SR_LANEID"), m.const("i32", 31)
    b = m.and_(b, low)
    clamp = m.and_(c, low)
    segment = m.and_(m.lshr(c, m.const("i32", 8)), low)
    least = m.and_(lane, segment)
    limit = m.or_(least, m.and_(clamp, m.not_(segment)))
    mode = i.mods["mode"]
    source = {
        "IDX": lambda: m.or_(least, m.and_(b, m.not_(segment))),
        "UP": lambda: m.sub(lane, b),
        "DOWN": lambda: m.add(lane, b),
        "BFLY": lambda: m.xor(lane, b),
    }[mode]()
    inside = m.icmp("sge" if mode == "UP" else "sle", source, limit)
    source = m.and_(m.select(inside, source, lane), low)
    result = m.shuffle(value, source)
    set_pred(m, i["pd"], inside)
    set32(m, i["d"], result)


@semantics("VOTE")
def vote(m: Machine, i: Instruction) -> None:
    mask, active = m.ballot(pred(m, i["ps"])), m.executing()
    zero = m.const("i32", 0)
    everyone, someone = m.icmp("eq", mask, active), m.icmp("ne", mask, zero)
    tests: dict[str, V] = {"ALL": everyone, "ANY": someone, "EQ": m.or_(everyone, m.not_(someone))}
    set32(m, i["d"], mask)
    set_pred(m, i["pd"], tests[i.mods["mode"]])


@semantics("B2R.RESULT")
def barrier_result(m: Machine, i: Instruction) -> None:
    """The count of BAR.RED.POPC; for AND and OR the predicate is the result."""
    value = m.barrier_result()
    set32(m, i["d"], value)
    set_pred(m, i.operand("pd"), m.icmp("ne", value, m.const("i32", 0)))
