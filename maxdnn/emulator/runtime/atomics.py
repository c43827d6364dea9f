"""Atomic operations, lane after lane, on host memory: correct across the threads that run blocks in parallel."""

from llvmlite import ir

from ..irkit import I32, I64, PTR, Function, V, at, c32, c64
from ..layout import LANES
from .memory import VI32, VI64, hosts_of

_PLAIN = {"ADD": "add", "AND": "and", "OR": "or", "XOR": "xor", "EXCH": "xchg", "INC": "uinc_wrap", "DEC": "udec_wrap"}
_SIGNED = {"MIN": "min", "MAX": "max"}
_UNSIGNED = {"MIN": "umin", "MAX": "umax"}
OPERATIONS = {kind: ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS", "SPIN")
              for kind in ("U32", "S32", "U64", "S64")} | {"F32": ("ADD",), "F64": ("ADD",)}
SPACES = ("shared", "generic")
SIZES = (4, 8)
_ORDER = "seq_cst"
BANK_BYTES = 128  # of shared memory: a word of each bank


def build_hosts(module: ir.Module, space: str, size: int) -> None:
    """rt_atomic_hosts_SPACE_SIZE(ctx, site, addresses, mask, hosts*): checked host addresses; 1 after a fault."""
    vector = VI32 if space == "shared" else VI64
    f = Function(module, f"rt_atomic_hosts_{space}_{size}", I32, PTR, PTR, vector, I32, PTR)
    ctx, site, addresses, mask, out = f.args
    f.b.store(hosts_of(f, ctx, space, site, addresses, mask, size), out, align=64)
    f.ret(0)


def build_operation(module: ir.Module, op: str, kind: str) -> None:
    """rt_atomic_OP_KIND(hosts*, mask, a, b, dest): b is the new value of CAS, a what it is compared with."""
    f = Function(module, f"rt_atomic_{op}_{kind}", ir.VoidType(), PTR, I32, VI64, VI64, PTR)
    b, (hosts, mask, first, second, dest) = f.b, f.args
    wide = kind.endswith("64")
    values, others = f.array(I64, LANES), f.array(I64, LANES)
    b.store(first, values)
    b.store(second, others)
    with f.lanes(mask) as lane:
        slot = b.shl(b.zext(lane, I64), c64(3))
        host = b.inttoptr(b.load(at(b, hosts, slot), typ=I64), PTR)
        value, other = (b.load(at(b, x, slot), typ=I64) for x in (values, others))
        if not wide:
            value, other = b.trunc(value, I32), b.trunc(other, I32)
        old = _apply(f, op, kind, host, value, other)
        place = at(b, dest, b.shl(b.zext(lane, I64), c64(2)))
        b.store(b.trunc(old, I32) if wide else old, place)
        if wide:
            b.store(b.trunc(b.lshr(old, c64(32)), I32), at(b, place, 4 * LANES))
    b.ret_void()


def build_spin(module: ir.Module, op: str, kind: str) -> None:
    """rt_atomic_OP_KIND(hosts*, mask, a, b, dest): a compare-and-swap of shared memory as an H100 does it. Of lanes
    whose words are what they are compared with, and which meet at one bank, the first gets through; the others are told
    another word (probes "swaps, ...")."""
    f = Function(module, f"rt_atomic_{op}_{kind}", ir.VoidType(), PTR, I32, VI64, VI64, PTR)
    b, (hosts, mask, first, second, dest) = f.b, f.args
    type_, size = (I64, 8) if kind.endswith("64") else (I32, 4)
    values, others, taken = f.array(I64, LANES), f.array(I64, LANES), f.variable(I32, c32(0))
    b.store(first, values)
    b.store(second, others)
    with f.lanes(mask) as lane:
        slot = b.shl(b.zext(lane, I64), c64(3))
        address = b.load(at(b, hosts, slot), typ=I64)
        host, now = b.inttoptr(address, PTR), b.load(taken, typ=I32)
        value, other = (b.load(at(b, x, slot), typ=type_) for x in (values, others))
        bank = b.shl(c32(1), b.trunc(b.and_(b.udiv(address, c64(size)), c64(BANK_BYTES // size - 1)), I32))
        old = b.load(host, typ=type_)
        same, free = b.icmp_unsigned("==", old, value), b.icmp_unsigned("==", b.and_(now, bank), c32(0))
        through = b.and_(same, free)
        b.store(b.select(through, other, old), host)
        b.store(b.select(through, b.or_(now, bank), now), taken)
        told = b.select(b.and_(same, b.not_(free)), b.not_(old), old)
        place = at(b, dest, b.shl(b.zext(lane, I64), c64(2)))
        b.store(b.trunc(told, I32) if size == 8 else told, place)
        if size == 8:
            b.store(b.trunc(b.lshr(told, c64(32)), I32), at(b, place, 4 * LANES))
    b.ret_void()


def _apply(f: Function, op: str, kind: str, host: V, value: V, other: V) -> V:
    b = f.b
    if op == "CAS":
        return b.extract_value(b.cmpxchg(host, value, other, _ORDER), 0)
    if kind[0] == "F":
        return _add_float(f, kind, host, value)
    name = _PLAIN.get(op) or (_SIGNED if kind[0] == "S" else _UNSIGNED)[op]
    return b.atomic_rmw(name, host, value, _ORDER)


def _add_float(f: Function, kind: str, host: V, value: V) -> V:
    """A compare-and-swap loop. Single precision flushes denormal inputs and results (PTX ISA, atom.add.f32)."""
    b = f.b
    integer, real = (I32, ir.FloatType()) if kind == "F32" else (I64, ir.DoubleType())
    seen = f.variable(integer, b.load(host, typ=integer, align=4 if kind == "F32" else 8))
    done = f.variable(I32, c32(0))
    with f.while_(lambda: b.icmp_unsigned("==", b.load(done, typ=I32), c32(0))):
        old = b.load(seen, typ=integer)
        x, y = (b.bitcast(_flush(b, v, kind), real) for v in (old, value))
        total = b.fadd(x, y)
        new = _flush(b, b.bitcast(total, integer), kind)
        nan = ir.Constant(integer, 0x7FFFFFFF if kind == "F32" else 0xFFF8 << 48)
        new = b.select(b.fcmp_unordered("uno", total, total), nan, new)
        swapped = b.cmpxchg(host, old, new, _ORDER)
        b.store(b.zext(b.extract_value(swapped, 1), I32), done)
        b.store(b.extract_value(swapped, 0), seen)
    return b.load(seen, typ=integer)


def _flush(b: ir.IRBuilder, bits: V, kind: str) -> V:
    if kind != "F32":
        return bits
    denormal = b.icmp_unsigned("==", b.and_(bits, c32(0x7F800000)), c32(0))
    return b.select(denormal, b.and_(bits, c32(0x80000000)), bits)


def names() -> list[str]:
    return [f"rt_atomic_hosts_{space}_{size}" for space in SPACES for size in SIZES] + [
        f"rt_atomic_{op}_{kind}" for kind, ops in OPERATIONS.items() for op in ops]


def build(module: ir.Module) -> None:
    for space in SPACES:
        for size in SIZES:
            build_hosts(module, space, size)
    for kind, ops in OPERATIONS.items():
        for op in ops:
            (build_spin if op == "SPIN" else build_operation)(module, op, kind)
