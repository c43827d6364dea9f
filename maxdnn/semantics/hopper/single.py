"""Floating point where it is not Maxwell's."""

import math

from ...isa import Instruction
from .. import double, warp  # noqa: F401  (what they register is shared below)
from ..integer import set_boolean, set_predicates
from ..machine import Machine, V
from ..operands import f32, f64, pred, set32, set_pred
from ..registry import hopper, same
from ..single import flush, related, relation, special_function
from ..single import fmnmx as plain_fmnmx
from .opcode import words

same("FFMA", "FADD", "FMUL", "FSETP", "FCHK", "DADD", "DMUL", "DFMA")


@hopper("FMNMX")
def fmnmx(m: Machine, i: Instruction) -> None:
    if words(i) & {"NAN", "XORSIGN", "IS_A"}:
        m.unsupported("FMNMX that keeps NaN or joins signs")
    else:
        plain_fmnmx(m, i)


@hopper("FSET")
def fset(m: Machine, i: Instruction) -> None:
    set_boolean(m, i, related(m, i), "BF" in words(i))


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


@hopper("FSEL")
def fsel(m: Machine, i: Instruction) -> None:
    a, b = (m.bitcast(f32(m, i[n]), "i32") for n in "ab")
    set32(m, i["d"], m.select(pred(m, i["ps"]), a, b))


@hopper("MUFU")
def mufu(m: Machine, i: Instruction) -> None:
    """The argument of SIN and COS is in turns."""

    def argument(function: str) -> V:
        x = flush(m, f32(m, i["a"]))
        if function in ("SIN", "COS"):
            x = m.fptrunc(m.fmul(m.fpext(x, "f64"), m.const("f64", 2 * math.pi)), "f32")
        return x

    special_function(m, i, argument)
