"""What runs beside a warp: products of a warpgroup, mbarriers, bulk copies, proxy fences, registers given back.
Sources: the PTX ISA (wgmma, mbarrier, cp.async.bulk, fence.proxy, setmaxnreg), compiled code, an H200."""

from typing import cast

from ...isa import RZ, URZ, Instruction
from ..machine import UNIFORM, UNIFORM_ZERO, Machine, Units, V
from ..memory import kind
from ..operands import i64, pair, pred, raw, set_pred
from ..registry import hopper
from .memory import _far, _shared
from .move import nothing
from .opcode import words

_COPIES = 0
"""The scoreboard that counts groups of copies: ptxas takes no other one."""

_TYPES = {"": "f16", "BF16": "bf16", "TF32": "tf32"}
_MARKS = {"tnspA": 1, "tnspB": 2, "negA": 4, "negB": 8}


def _units(m: Machine) -> Units:
    """Only the tracer of warps meets these instructions."""
    return cast(Units, m)


def waits(i: Instruction) -> bool:
    """Whether a warp may have to come to this instruction again, because what it waits for has not happened."""
    how = words(i)
    return (i.opcode == "SYNCS" and "TRYWAIT" in how) or (i.opcode == "WARPGROUP" and "DEPBAR" in how) or (
        i.opcode == "USETMAXREG" and "TRY_ALLOC" in how)


@hopper("HGMMA")
def hgmma(m: Machine, i: Instruction) -> None:
    """D = A x B + D. A comes through the first of two descriptors, or from four registers."""
    if i.mods["acc"] != "F32":
        m.unsupported("sums in half precision")
        return
    d, c, a, b = i["d"], i["c"], i["a"], i.operand("b")
    if c.value not in (d.value, RZ):
        m.unsupported("an addend in other registers than the sums")
        return
    columns = d.regs * 2
    marks = (b or a).part.split(".")
    flags = sum(bit for name, bit in _MARKS.items() if name in marks)
    registers = None if b is None else a.value
    flags |= _MARKS["negA"] if a.neg else 0
    first = UNIFORM + (b or a).value
    of_a, of_b = _descriptor(m, first), _descriptor(m, first + 2)  # the first is there, unread, also with registers
    keeps = pred(m, i["scale"]) if c.value != RZ else m.const("i1", 0)
    commits = i["gsb"].label != ""
    _units(m).product(_TYPES[i.mods["kind"]], columns, d.value, registers, of_a, of_b, flags, keeps, commits)


def _descriptor(m: Machine, first: int) -> V:
    return m.const("i64", 0) if first == UNIFORM_ZERO else pair(m, m.reg(first), m.reg(first + 1))


@hopper("WARPGROUP")
def warpgroup(m: Machine, i: Instruction) -> None:
    how = words(i)
    if "ARRIVE" in how:
        _units(m).warpgroup_arrive()
    elif "DEPBAR" in how:
        _units(m).warpgroup_wait(i["n"].value)
    else:
        m.unsupported("this wait of a warpgroup")


@hopper("SYNCS")
def syncs(m: Machine, i: Instruction) -> None:
    how = words(i)
    if "EXCH" in how:
        if i["d"].value != URZ:
            m.unsupported("an exchange with a result")
            return
        _units(m).mbarrier_init(_shared(m, i["addr"]), i64(m, i["b"]))
    elif "ARRIVE" in how and "TMASK" not in how:
        _arrive(m, i, how)
    elif "PHASECHK" in how:
        set_pred(m, i["pd"], _units(m).mbarrier_phase(_shared(m, i["addr"]), raw(m, i["b"]), "TRYWAIT" in how))
    elif "IV" in how:
        _units(m).mbarrier_drop(_shared(m, i["addr"]))
    else:
        m.unsupported("this operation on an mbarrier")


def _arrive(m: Machine, i: Instruction, how: set[str]) -> None:
    """A1: one arrival, AR: as many as the register says; TR: bytes announced, TX: bytes copied, T1: one. Neither named:
    one arrival that announces."""
    zero, one, value = m.const("i32", 0), m.const("i32", 1), raw(m, i["b"])
    kind = next((k for k in ("A1T0", "A0T1", "A0TR", "A0TX", "ART0") if k in how), "A1TR")
    arrivals = {"A0": zero, "A1": one, "AR": value}[kind[:2]]
    more = {"T0": zero, "T1": one, "TR": value, "TX": m.sub(zero, value)}[kind[2:]]
    _units(m).mbarrier_arrive(_shared(m, i["addr"]), arrivals, more, "OPTOUT" in how, i["d"].value)


@hopper("UBLKCP")
def bulk_copy(m: Machine, i: Instruction) -> None:
    how = words(i)
    if i.mods["to"] != "S" or i.mods["from"] != "G" or "MULTICAST" in how:
        m.unsupported("bulk copies other than from global to shared memory of the block")
        return
    d = UNIFORM + i["d"].value
    to, barrier = (m.and_(m.reg(r), m.const("i32", 0xFFFFFF)) for r in (d, d + 1))
    size = m.shl(m.and_(raw(m, i["size"]), m.const("i32", 0xFFFF)), m.const("i32", 4))
    _units(m).bulk_copy(to, barrier, i64(m, i["a"]), size)


@hopper("LDGSTS")
def copy(m: Machine, i: Instruction) -> None:
    """Copies of a thread, of zeros where its last predicate does not hold."""
    if "ZFILL" in words(i):
        m.unsupported("a copy of which a part is filled up with zeros")
        return
    _units(m).copy(_shared(m, i["addr"]), _far(m, i["from"]), kind(i), pred(m, i["ps"]))


@hopper("LDGDEPBAR")
def commit(m: Machine, i: Instruction) -> None:
    """Without its scoreboard nothing waits for the group."""
    if i.control.write_barrier == _COPIES:
        _units(m).copies_commit()


@hopper("DEPBAR")
def wait(m: Machine, i: Instruction) -> None:
    """Results of other instructions are there at once."""
    if i.operand("n") is not None and i["sb"].value == _COPIES:
        if i["n"].type != "uimm":
            m.unsupported("a wait for a number of copies that is computed")
            return
        _units(m).copies_wait(i["n"].value)


@hopper("FENCE")
def fence(m: Machine, i: Instruction) -> None:
    if "S" in words(i):
        _units(m).proxy_fence()


@hopper("USETMAXREG")
def registers(m: Machine, i: Instruction) -> None:
    n = i["n"]
    if n.type == "ugpr":
        m.unsupported("a number of registers that is computed")
        return
    _units(m).set_registers(n.value, "TRY_ALLOC" in words(i))
    if i.operand("pd") is not None:
        set_pred(m, i["pd"], m.const("i1", 1))


@hopper("ELECT")
def elect(m: Machine, i: Instruction) -> None:
    """The lowest of the lanes that execute this."""
    if i["d"].value != URZ or (i.operand("a") is not None and i["a"].value != URZ):
        m.unsupported("an election among given lanes")
        return
    mask = m.executing()
    lowest = m.and_(mask, m.sub(m.const("i32", 0), mask))
    set_pred(m, i["pd"], m.icmp("eq", m.shl(m.const("i32", 1), m.special("SR_LANEID")), lowest))


hopper("UTMACMDFLUSH")(nothing)
