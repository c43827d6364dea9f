"""Pairs of halves, whose immediates are two operands."""

from ...isa import Instruction
from ..half import OPERANDS, computed, halves_of, in_half, write_pair
from ..machine import Machine, V
from ..registry import hopper
from .opcode import words


def _halves(m: Machine, i: Instruction, name: str) -> tuple[V, V]:
    """Low and high number of an operand in double precision; immediates are two operands, the high one first."""
    op = i[name]
    if op.type == "f16":
        pair = (i.operand(name + "2") or op, op)  # one number for a result in single precision
        low, high = (in_half(m, m.const("i16", x.value)) for x in pair)
        return low, high
    return halves_of(m, op, False)


@hopper(*OPERANDS)
def arithmetic(m: Machine, i: Instruction) -> None:
    how = words(i)
    if any(op.part == "H0_NH1" for op in i.operands) or how & {"BF16_V2", "OOB", "RELU", "FTZ", "FMZ"}:
        m.unsupported("other halves than IEEE's, one of them negated, or their denormals flushed")
        return
    low, high = computed(m, i, i.opcode, [_halves(m, i, n) for n in OPERANDS[i.opcode]])
    write_pair(m, i, low, high, "F32" if "F32" in how else "", "", "SAT" in how)
