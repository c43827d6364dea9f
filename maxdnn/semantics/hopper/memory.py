"""Loads, stores, constants and atomics: addresses with descriptors and uniform registers."""

from ...isa import RZ, URZ, Instruction, Operand
from ..machine import UNIFORM, WINDOWS, Machine, V
from ..memory import DIMENSIONS_1D, access, address32, kind
from ..operands import NAMED_BANK, extend, i64, pair, raw, set32, set64, set_pred
from ..registry import hopper
from .opcode import words


def _near(m: Machine, op: Operand) -> V:
    """A shared or local address: register, scaled if it says so, uniform register, offset."""
    total = m.const("i32", op.value)
    if op.base != RZ:
        base = m.reg(op.base)
        if op.part:
            base = m.shl(base, m.const("i32", {"X4": 2, "X8": 3, "X16": 4}[op.part]))
        total = m.add(base, total)
    if op.ubase != URZ and "desc" not in op.field.spec:
        total = m.add(total, m.reg(UNIFORM + op.ubase))
    return total


def _shared(m: Machine, op: Operand) -> V:
    """An address of shared memory may have the block's rank in its cluster in the upper byte."""
    return m.and_(_near(m, op), m.const("i32", 0xFFFFFF))


def _far(m: Machine, op: Operand) -> V:
    """A global address: a register pair, or one register taken unsigned; a uniform pair, unless it is a descriptor."""
    suffix, described = op.field.spec.get("suffix", ""), op.field.spec.get("desc", False)
    total = m.const("i64", op.value)
    if op.base != RZ:
        narrow = suffix == ".U32"
        base = m.zext(m.reg(op.base), "i64") if narrow else pair(m, m.reg(op.base), m.reg(op.base + 1))
        total = m.add(base, total)
    if op.ubase != URZ and not described:
        total = m.add(total, pair(m, m.reg(UNIFORM + op.ubase), m.reg(UNIFORM + op.ubase + 1)))
    return total


@hopper("LDG", "LD", "STG", "ST")
def access_far(m: Machine, i: Instruction) -> None:
    access(m, i, _far(m, i["addr"]))


@hopper("LDS", "STS")
def access_shared(m: Machine, i: Instruction) -> None:
    access(m, i, _shared(m, i["addr"]))


@hopper("LDL", "STL")
def access_local(m: Machine, i: Instruction) -> None:
    access(m, i, _near(m, i["addr"]))


@hopper("LDC", "ULDC")
def load_constant(m: Machine, i: Instruction) -> None:
    op, size = i["addr"], kind(i)
    if words(i) & {"IL", "IS", "ISL"}:
        m.unsupported("an index that names a bank, too")
        return
    if not {"bank", "bank_lsb"} & op.field.spec.keys():
        m.unsupported(NAMED_BANK)
        return
    if op.ubase != URZ:
        at = m.add(m.reg(UNIFORM + op.ubase), m.const("i32", op.value))
        m.load(f"const{op.bank}", at, size, UNIFORM + i["d"].value)
    elif op.type != "cbank":
        uniform = UNIFORM if i["d"].type == "ugpr" else 0
        m.load(f"const{op.bank}", address32(m, op), size, uniform + i["d"].value)
    elif i["d"].regs == 2:
        set64(m, i["d"], pair(m, m.constant(op.bank, op.value), m.constant(op.bank, op.value + 4)))
    elif size == "32":
        set32(m, i["d"], m.constant(op.bank, op.value))
    else:
        value = m.lshr(m.constant(op.bank, op.value & ~3), m.const("i32", 8 * (op.value & 3)))
        set32(m, i["d"], extend(m, value, int(size[1:]), size[0] == "S"))


def spins(i: Instruction) -> bool:
    """Whether it is a compare-and-swap that may fail where it need not: the code tries again."""
    return i.opcode == "ATOMS" and "CAST" in words(i)


def _compare_and_store(m: Machine, i: Instruction, address: V, kind: str) -> None:
    """ATOMS.CAST: 1 if what lay there was b, and c lies there now."""
    wide, d = kind == "U64", i["d"]
    values = [i64(m, i[n]) if wide else raw(m, i[n]) for n in "bc"]
    m.atomic("shared", address, "SPIN", kind, values, d.value)
    stored = m.icmp("eq", i64(m, d) if wide else raw(m, d), values[0])
    (set64 if wide else set32)(m, d, m.zext(stored, "i64" if wide else "i32"))


@hopper("ATOMG", "ATOM", "ATOMS", "REDG", "RED")
def atomic(m: Machine, i: Instruction) -> None:
    how = words(i)
    space = "shared" if i.opcode == "ATOMS" else "generic"
    if "128" in how or ("CAST" in how and space == "generic"):
        m.unsupported("this atomic operation")
        return
    address = _shared(m, i["addr"]) if space == "shared" else _far(m, i["addr"])
    dest = i.operand("d") if i.opcode not in ("REDG", "RED") else None
    to = None if dest is None or dest.value == RZ else dest.value
    names = {"ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS"} & how
    kind = next((k for k in ("U64", "S64", "S32") if k in how), "U64" if "64" in how else "U32")
    if "POPC" in how:
        m.atomic(space, address, "ADD", "U32", [m.const("i32", 1)], to)
        return
    if "CAST" in how:
        _compare_and_store(m, i, address, "U64" if "64" in how else "U32")
        return
    if "RN" in how or len(names) != 1:
        if "F32" in how and names == {"ADD"}:
            kind = "F32"
        elif "F64" in how and names == {"ADD"}:
            kind = "F64"
        else:
            m.unsupported("this atomic operation")
            return
    values = ["b", "c"] if names == {"CAS"} else ["d" if i.opcode in ("REDG", "RED") else "b"]
    if names == {"CAS"}:
        kind = kind.replace("S", "U")
    wide = kind.endswith("64")
    operands = [i64(m, i[n]) if wide else raw(m, i[n]) for n in values]
    m.atomic(space, address, names.pop(), kind, operands, to)
    if i.operand("pd") is not None:
        set_pred(m, i["pd"], m.const("i1", 1))


@hopper("QSPC")
def qspc(m: Machine, i: Instruction) -> None:
    """Whether a generic address lies in the window of shared memory, of local memory, or in none of them."""
    window = m.lshr(_far(m, i["addr"]), m.const("i64", 24))
    inside = {name: m.icmp("eq", window, m.const("i64", byte)) for name, byte in WINDOWS.items()}
    kind = words(i) & {"S", "L"}
    set_pred(m, i["pd"], inside[kind.pop()] if kind else m.not_(m.or_(inside["S"], inside["L"])))


@hopper("TLD")
def texture_load(m: Machine, i: Instruction) -> None:
    """A texel of a one-dimensional linear texture: the first two components asked for go to d, d+1, the others to d2,
    d2+1."""
    how, op = words(i), i.operand("u")
    if i["dim"].label != DIMENSIONS_1D or "LZ" not in how or how & {"AOFFI", "MS", "CL", "F16"}:
        m.unsupported("only one-dimensional texture fetches by index are emulated")
        return
    if op is not None:
        handle = m.reg(UNIFORM + op.value)
    elif "B" in how:
        handle = raw(m, i["b"])
    else:
        handle = m.constant(i["bank"].value, 4 * i["slot"].value)
    places = [place for name in ("d", "d2") for place in _pair(i[name])]
    dests: list[int | None] = [places.pop(0) if i["mask"].value >> component & 1 else None for component in range(4)]
    m.texture(handle, raw(m, i["a"]), [None if dest == RZ else dest for dest in dests])
    set_pred(m, i["pd"], m.const("i1", 1))


def _pair(op: Operand) -> tuple[int, int]:
    return (RZ, RZ) if op.value == RZ else (op.value, op.value + 1)


@hopper("TEX")
def texture_filtered(m: Machine, i: Instruction) -> None:
    m.unsupported("texture fetches that filter are not emulated")
