"""Double-precision arithmetic. NaN payloads are not documented; what the target gives is kept."""

from ..isa import Instruction
from .integer import set_boolean, set_predicates
from .machine import Machine, V
from .operands import f64, pred, result64
from .registry import semantics
from .single import choose_minmax, relation

QUIET_NAN = 0xFFF80000_00000000


def _finish(m: Machine, i: Instruction, value: V) -> None:
    """A NaN result is the default one, so that every target agrees."""
    bits = m.select(m.fcmp("uno", value, value), m.const("i64", QUIET_NAN), m.bitcast(value, "i64"))
    result64(m, i, bits)


@semantics("DADD")
def dadd(m: Machine, i: Instruction) -> None:
    _finish(m, i, m.fadd(f64(m, i["a"]), f64(m, i["b"]), i.mods["rnd"]))


@semantics("DMUL")
def dmul(m: Machine, i: Instruction) -> None:
    _finish(m, i, m.fmul(f64(m, i["a"]), f64(m, i["b"]), i.mods["rnd"]))


@semantics("DFMA")
def dfma(m: Machine, i: Instruction) -> None:
    _finish(m, i, m.ffma(f64(m, i["a"]), f64(m, i["b"]), f64(m, i["c"]), i.mods["rnd"]))


@semantics("DMNMX")
def dmnmx(m: Machine, i: Instruction) -> None:
    a, b = f64(m, i["a"]), f64(m, i["b"])
    bits = choose_minmax(m, a, b, pred(m, i["ps"]), "i64")
    both = m.and_(m.fcmp("uno", a, a), m.fcmp("uno", b, b))
    result64(m, i, m.select(both, m.const("i64", QUIET_NAN), bits))


def _related(m: Machine, i: Instruction) -> V:
    return relation(m, i.mods["cmp"], f64(m, i["a"]), f64(m, i["b"]))


@semantics("DSETP")
def dsetp(m: Machine, i: Instruction) -> None:
    set_predicates(m, i, _related(m, i))


@semantics("DSET")
def dset(m: Machine, i: Instruction) -> None:
    set_boolean(m, i, _related(m, i), bool(i.mods["bf"]))
