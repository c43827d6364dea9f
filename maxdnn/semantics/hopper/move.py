"""Moves between registers, uniform registers, predicates and special registers, and what only matters to timing."""

from ...isa import Instruction
from .. import warp
from ..machine import Machine
from ..move import nothing
from ..operands import raw, set32
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


hopper("NOP", "CGAERRBAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "CCTL", "YIELD", "NANOSLEEP",
       "ENDCOLLECTIVE")(nothing)
