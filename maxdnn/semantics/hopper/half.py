"""Pairs of halves, whose immediates are two operands."""

from ...isa import Instruction
from ..half import halves_of, in_half, sum_to_odd, write_pair
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


def _write(m: Machine, i: Instruction, low: V, high: V) -> None:
    write_pair(m, i, low, high, "F32" if "F32" in words(i) else "", "", "SAT" in words(i))


def _plain(m: Machine, i: Instruction) -> bool:
    one_negated = any(op.part == "H0_NH1" for op in i.operands)
    plain = not one_negated and not words(i) & {"BF16_V2", "OOB", "RELU", "FTZ", "FMZ"}
    if not plain:
        m.unsupported("other halves than IEEE's, one of them negated, or their denormals flushed")
    return plain


@hopper("HFMA2")
def hfma2(m: Machine, i: Instruction) -> None:
    if _plain(m, i):
        (a0, a1), (b0, b1), (c0, c1) = (_halves(m, i, n) for n in "abc")
        _write(m, i, sum_to_odd(m, m.fmul(a0, b0), c0), sum_to_odd(m, m.fmul(a1, b1), c1))


@hopper("HADD2")
def hadd2(m: Machine, i: Instruction) -> None:
    if _plain(m, i):
        (a0, a1), (b0, b1) = (_halves(m, i, n) for n in "ab")
        _write(m, i, m.fadd(a0, b0), m.fadd(a1, b1))


@hopper("HMUL2")
def hmul2(m: Machine, i: Instruction) -> None:
    if _plain(m, i):
        (a0, a1), (b0, b1) = (_halves(m, i, n) for n in "ab")
        _write(m, i, m.fmul(a0, b0), m.fmul(a1, b1))
