"""Floating point where it is not Maxwell's."""

import math

from ...isa import Instruction
from ..machine import Machine, V
from ..operands import f32, pred, set32, set_boolean
from ..registry import hopper, same
from ..single import check_range, flush, related, special_function
from ..single import fmnmx as plain_fmnmx
from .opcode import words

same("FFMA", "FADD", "FMUL", "FSETP")


@hopper("FCHK")
def fchk(m: Machine, i: Instruction) -> None:
    """The limits of an H200, which sends fewer quotients to the long sequence than Maxwell is taken to."""
    check_range(m, i, 25, -124, 126)


@hopper("FMNMX")
def fmnmx(m: Machine, i: Instruction) -> None:
    if words(i) & {"NAN", "XORSIGN", "IS_A"}:
        m.unsupported("FMNMX that keeps NaN or joins signs")
    else:
        plain_fmnmx(m, i)


@hopper("FSET")
def fset(m: Machine, i: Instruction) -> None:
    set_boolean(m, i, related(m, i), "BF" in words(i))


@hopper("FSEL")
def fsel(m: Machine, i: Instruction) -> None:
    a, b = (f32(m, i[n]) for n in "ab")
    if i.mods.get("ftz"):
        a, b = flush(m, a), flush(m, b)
    set32(m, i["d"], m.select(pred(m, i["ps"]), m.bitcast(a, "i32"), m.bitcast(b, "i32")))


@hopper("MUFU")
def mufu(m: Machine, i: Instruction) -> None:
    """The argument of SIN and COS is in turns."""
    if words(i) & {"F16", "BF16"}:
        m.unsupported("functions of halves")
        return

    def argument(function: str) -> V:
        x = flush(m, f32(m, i["a"]))
        if function in ("SIN", "COS"):
            x = m.fptrunc(m.fmul(m.fpext(x, "f64"), m.const("f64", 2 * math.pi)), "f32")
        return x

    special_function(m, i, argument)
