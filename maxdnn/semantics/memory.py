"""Loads, stores, atomics and texture fetches: addresses, widths and registers; the machine does the rest."""

from ..isa import RZ, Instruction, Operand
from .machine import Machine, V
from .operands import pair, raw, set_pred
from .registry import semantics

DIMENSIONS_1D = "1D"


def address32(m: Machine, op: Operand) -> V:
    offset = m.const("i32", op.value)
    return offset if op.base == RZ else m.add(m.reg(op.base), offset)


def _address64(m: Machine, op: Operand, wide: bool) -> V:
    """Register pair with .E, else one register zero-extended, plus the signed offset."""
    if op.base == RZ:
        return m.const("i64", op.value & ((1 << op.field.spec["off"]["w"]) - 1))
    base = pair(m, m.reg(op.base), m.reg(op.base + 1)) if wide else m.zext(m.reg(op.base), "i64")
    return m.add(base, m.const("i64", op.value)) if op.value else base


def kind(i: Instruction) -> str:
    return i.mods["size"].removeprefix("U.") or "32"


_SPACES = {"G": "global", "": "generic", "S": "shared", "L": "local"}  # by what follows LD or ST


def access(m: Machine, i: Instruction, address: V) -> None:
    """A load or a store at an address of the space that the opcode names."""
    move = m.load if i.opcode.startswith("LD") else m.store
    move(_SPACES[i.opcode[2:]], address, kind(i), i["d"].value)


@semantics("LDG", "LD", "STG", "ST")
def access_far(m: Machine, i: Instruction) -> None:
    access(m, i, _address64(m, i["addr"], bool(i.mods["e"])))


@semantics("LDS", "LDL", "STS", "STL")
def access_near(m: Machine, i: Instruction) -> None:
    access(m, i, address32(m, i["addr"]))


@semantics("LDC")
def load_constant(m: Machine, i: Instruction) -> None:
    if i.mods["mode"]:
        m.unsupported(f"LDC.{i.mods['mode']} has no published meaning")
        return
    op = i["addr"]
    m.load(f"const{op.bank}", address32(m, op), kind(i), i["d"].value)


_ATOMIC_KINDS = {"": "U32", "S32": "S32", "U64": "U64", "S64": "S64", "64": "U64", "F32.FTZ.RN": "F32"}


def _value(m: Machine, op: Operand, wide: bool) -> V:
    if not wide:
        return raw(m, op)
    return m.const("i64", 0) if op.value == RZ else pair(m, m.reg(op.value), m.reg(op.value + 1))


@semantics("ATOM", "ATOMS", "RED", "ATOM.F64", "RED.F64", "ATOM.CAS", "ATOMS.CAS")
def atomic(m: Machine, i: Instruction) -> None:
    """RED has its value in d and gives no result."""
    red, swaps = i.opcode == "RED", i.mnemonic.endswith(".CAS")
    kind = "F64" if i.mnemonic.endswith(".F64") else _ATOMIC_KINDS.get(i.mods["type"])
    if kind is None:
        m.unsupported(f"atomic type {i.mods['type']} needs a later architecture")
        return
    near = i.opcode == "ATOMS"
    address = address32(m, i["addr"]) if near else _address64(m, i["addr"], bool(i.mods["e"]))
    values = [_value(m, i[n], kind.endswith("64")) for n in ("bc" if swaps else "d" if red else "b")]
    dest = None if red or i["d"].value == RZ else i["d"].value
    m.atomic("shared" if near else "generic", address, "CAS" if swaps else i.mods["op"], kind, values, dest)


@semantics("ATOMS.CAST")
def compare_and_store(m: Machine, i: Instruction) -> None:
    m.unsupported("ATOMS.CAST has no published meaning")


# -- textures: one-dimensional linear fetches ---------------------------------------------------------------------


def _one_dimensional(m: Machine, i: Instruction) -> bool:
    plain = i["dim"].label == DIMENSIONS_1D and not any(i.mods.get(n) for n in ("aoffi", "ms"))
    plain = plain and ("AOFFI" not in i.mods["lod"] and "MS" not in i.mods["lod"])
    if not plain:
        m.unsupported("only one-dimensional texture fetches by index are emulated")
    return plain


def _handle(m: Machine, i: Instruction) -> V:
    """The texture handle: register b for the bindless form, else the word of constant bank 0 that the slot names."""
    return raw(m, i["b"]) if i.mnemonic.endswith(".B") else m.constant(0, 4 * i["slot"].value)


@semantics("TLD")
def texture_load(m: Machine, i: Instruction) -> None:
    if not _one_dimensional(m, i):
        return
    mask, at = i["mask"].value, i["d"].value
    dests: list[int | None] = []
    for component in range(4):
        dests.append(at if mask >> component & 1 else None)
        at += mask >> component & 1
    handle, coord = _handle(m, i), raw(m, i["a"])
    m.texture(handle, coord, dests)
    set_pred(m, i.operand("pd"), m.const("i1", 1))


@semantics("TLDS")
def texture_load_short(m: Machine, i: Instruction) -> None:
    """The first two components asked for go to d, d+1, the others to d2, d2+1."""
    if i.mods["f16"] or not _one_dimensional(m, i):
        m.unsupported("TLDS.F16 is not emulated")
        return
    first, second = i["d"].value, RZ if i.mnemonic == "TLDS.one" else i["d2"].value
    places = [first, first + 1, second, second + 1]
    dests: list[int | None] = [None] * 4
    for place, component in zip(places, i["comp"].label.strip("."), strict=False):
        dests["RGBA".index(component)] = place
    m.texture(m.constant(0, 4 * i["slot"].value), raw(m, i["a"]), dests)
