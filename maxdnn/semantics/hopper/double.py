"""Double precision, whose NaN keep their digits."""

from ...isa import Instruction
from ..double import OPERANDS, QUIET_NAN, computed
from ..machine import Machine
from ..operands import combine, f64, i64, pred, set64, set_pred, set_predicates
from ..registry import hopper
from ..single import relation

QUIET = 1 << 51  # the bit of a double's NaN that says that it does not signal


@hopper(*OPERANDS)
def arithmetic(m: Machine, i: Instruction) -> None:
    """A NaN among the operands is the result, quiet, whatever its marks; without one the NaN is the default. Seen on an
    H200 for one NaN. Which of two different ones it takes is not known; here the first."""
    bits = m.canonical(computed(m, i), QUIET_NAN)
    for name in reversed(OPERANDS[i.opcode]):
        given = i64(m, i[name])
        number = m.bitcast(given, "f64")
        bits = m.select(m.fcmp("uno", number, number), m.or_(given, m.const("i64", QUIET)), bits)
    set64(m, i["d"], bits)


@hopper("DSETP")
def dsetp(m: Machine, i: Instruction) -> None:
    """.MIN and .MAX: whether a is the result, joined with the predicate, and whether neither is a number."""
    how, a, b = i.mods["cmp"], f64(m, i["a"]), f64(m, i["b"])
    if how not in ("MIN", "MAX"):
        set_predicates(m, i, relation(m, how, a, b))
        return
    order, same_sign = ("olt", "sle") if how == "MIN" else ("ogt", "sge")
    wins = m.or_(m.fcmp(order, a, b), m.and_(m.fcmp("oeq", a, b),
                                             m.icmp(same_sign, m.bitcast(a, "i64"), m.bitcast(b, "i64"))))
    number, nan = m.fcmp("ord", a, a), m.fcmp("uno", b, b)
    holds, ps = m.and_(number, m.or_(wins, nan)), pred(m, i["ps"])
    set_pred(m, i["pd"], combine(m, i.mods["bool"], holds, ps))
    set_pred(m, i["pq"], m.and_(nan, m.not_(number)))
