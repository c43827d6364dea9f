"""Moves between registers, uniform registers, predicates and special registers, and what only matters to timing."""

from ...isa import Instruction
from .. import warp
from ..machine import Machine, V
from ..move import nothing
from ..operands import halves, i64, raw, set32, set64, set_pred
from ..registry import hopper, same
from .opcode import words

same("MOV", "SEL", "S2R", "CS2R", "P2R", "R2P", "SHFL", "VOTE", UMOV="MOV", USEL="SEL", S2UR="S2R", VOTEU="VOTE")


@hopper("B2R")
def b2r(m: Machine, i: Instruction) -> None:
    if "RESULT" in words(i):
        warp.barrier_result(m, i)
    else:
        m.unsupported("the state of a barrier")


@hopper("R2UR")
def r2ur(m: Machine, i: Instruction) -> None:
    """What the first lane holds that executes this."""
    mask = m.executing()
    first = m.sub(m.const("i32", 31), m.clz(m.and_(mask, m.sub(m.const("i32", 0), mask))))
    set32(m, i["d"], m.shuffle(raw(m, i["a"]), first))


def _every_bit(m: Machine, value: V) -> list[V]:
    """From the lowest bit on: the lanes that execute this and have it."""
    return [m.ballot(m.icmp("ne", m.and_(value, m.const("i32", 1 << n)), m.const("i32", 0))) for n in range(32)]


@hopper("REDUX")
def redux(m: Machine, i: Instruction) -> None:
    """All numbers of the lanes that execute this, joined; AND has no name."""
    how, zero = words(i), m.const("i32", 0)
    extreme = how & {"MIN", "MAX"}
    flipped = m.const("i32", (1 << 31 if "S32" in how else 0) ^ (0xFFFFFFFF if "MIN" in how else 0))
    value = m.xor(raw(m, i["a"]), flipped) if extreme else raw(m, i["a"])  # the largest without a sign is looked for
    total, left = zero, m.executing()
    for n, lanes in reversed(list(enumerate(_every_bit(m, value)))):
        if "SUM" in how:
            total = m.add(total, m.shl(m.popc(lanes), m.const("i32", n)))
            continue
        if "XOR" in how:
            bit = m.icmp("ne", m.and_(m.popc(lanes), m.const("i32", 1)), zero)
        elif "OR" in how:
            bit = m.icmp("ne", lanes, zero)
        elif extreme:
            among = m.and_(lanes, left)
            bit = m.icmp("ne", among, zero)
            left = m.select(bit, among, left)
        else:
            bit = m.icmp("eq", lanes, left)
        total = m.select(bit, m.or_(total, m.const("i32", 1 << n)), total)
    set32(m, i["d"], m.xor(total, flipped) if extreme else total)


@hopper("MATCH")
def match(m: Machine, i: Instruction) -> None:
    """.ANY: which lanes hold what this one holds; .ALL: all of them and a predicate if nobody holds anything else."""
    wide = bool(i.mods["mod_u64"])
    value = i64(m, i["b"]) if wide else raw(m, i["b"])
    words_of = halves(m, value) if wide else (value,)
    executing, one = m.executing(), m.const("i32", 1)
    alike = m.const("i32", 0)
    for lane in range(32):
        number = m.const("i32", lane)
        same_ = m.const("i1", 1)
        for word in words_of:
            same_ = m.and_(same_, m.icmp("eq", word, m.shuffle(word, number)))
        alike = m.or_(alike, m.select(same_, m.shl(one, number), m.const("i32", 0)))
    alike = m.and_(alike, executing)
    if "ANY" in words(i):
        set32(m, i["d"], alike)
        return
    everyone = m.icmp("eq", alike, executing)
    set_pred(m, i["pd"], everyone)
    set32(m, i["d"], m.select(everyone, executing, m.const("i32", 0)))


@hopper("LEPC")
def lepc(m: Machine, i: Instruction) -> None:
    """An address of code: of the instruction itself where it names none."""
    place = i.operand("place")
    set64(m, i["d"], m.const("i64", i.address if place is None else place.value))


hopper("NOP", "CGAERRBAR", "MEMBAR", "ERRBAR", "CCTL", "YIELD", "NANOSLEEP",
       "ENDCOLLECTIVE")(nothing)
