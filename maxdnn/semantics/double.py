"""Double-precision arithmetic. NaN payloads are not documented; what the target gives is kept."""

from collections.abc import Callable

from ..isa import Instruction
from .machine import Machine, V
from .operands import f64, pred, result64, set_result
from .registry import semantics
from .single import choose_minmax, relation

QUIET_NAN = 0xFFF80000_00000000


OPERANDS = {"DADD": "ab", "DMUL": "ab", "DFMA": "abc"}


def computed(m: Machine, i: Instruction) -> V:
    """The sum, product or both, rounded once."""
    operations: dict[str, Callable[..., V]] = {"DADD": m.fadd, "DMUL": m.fmul, "DFMA": m.ffma}
    return operations[i.opcode](*(f64(m, i[n]) for n in OPERANDS[i.opcode]), i.mods["rnd"])


@semantics(*OPERANDS)
def arithmetic(m: Machine, i: Instruction) -> None:
    """A NaN result is the default one, so that every target agrees."""
    value = computed(m, i)
    result64(m, i, m.select(m.fcmp("uno", value, value), m.const("i64", QUIET_NAN), m.bitcast(value, "i64")))


@semantics("DMNMX")
def dmnmx(m: Machine, i: Instruction) -> None:
    a, b = f64(m, i["a"]), f64(m, i["b"])
    bits = choose_minmax(m, a, b, pred(m, i["ps"]), "i64")
    both = m.and_(m.fcmp("uno", a, a), m.fcmp("uno", b, b))
    result64(m, i, m.select(both, m.const("i64", QUIET_NAN), bits))


@semantics("DSETP", "DSET")
def dset(m: Machine, i: Instruction) -> None:
    set_result(m, i, relation(m, i.mods["cmp"], f64(m, i["a"]), f64(m, i["b"])))
