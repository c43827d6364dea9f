"""Moves between registers, uniform registers, predicates and special registers, and what only matters to timing."""

from ...isa import Instruction
from .. import warp  # noqa: F401  (what it registers is shared below)
from ..machine import Machine
from ..move import nothing
from ..operands import raw, set32
from ..registry import hopper, same

same("MOV", "SEL", "S2R", "CS2R", "P2R", "R2P", "SHFL", "VOTE", UMOV="MOV", USEL="SEL", S2UR="S2R", VOTEU="VOTE",
     B2R="B2R.RESULT")


@hopper("R2UR")
def r2ur(m: Machine, i: Instruction) -> None:
    """What the first lane holds that executes this."""
    mask = m.executing()
    first = m.sub(m.const("i32", 31), m.clz(m.and_(mask, m.sub(m.const("i32", 0), mask))))
    set32(m, i["d"], m.shuffle(raw(m, i["a"]), first))


hopper("NOP", "CGAERRBAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "CCTL", "YIELD", "NANOSLEEP",
       "ENDCOLLECTIVE")(nothing)
