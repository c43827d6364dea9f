"""Products of a warpgroup (HGMMA): operands are found through descriptors, and results belong to nobody until they are
waited for. A warp computes its 16 rows when it comes to the instruction; registers and shared memory stay taken until
WARPGROUP.DEPBAR, so that no program can tell."""

from llvmlite import ir

from ..irkit import I16, I32, I64, PTR, Function, V, at, c32, c64, call, field, get, put
from ..layout import CTX, VECTOR_BYTES, WARP
from .memory import fault
from .proxies import known, unit_read, warp_at
from .tensor import BROKEN, FORMATS, INFINITE, Format, decoded, put_a, put_b

TRANSPOSE_A, TRANSPOSE_B, NEGATE_A, NEGATE_B = 1, 2, 4, 8
_A_OWNER = 1 << 16
_ADDRESS_BITS = 18


def _offset(b: ir.IRBuilder, desc: V, row: V, k: V, size: int, transposed: V) -> V:
    """Bytes from a descriptor's start to element (row, k), before swizzling. A core matrix has 8 rows of 16 bytes."""
    leading = b.shl(b.and_(b.trunc(b.lshr(desc, c64(16)), I32), c32(0x3FFF)), c32(4))
    stride = b.shl(b.and_(b.trunc(b.lshr(desc, c64(32)), I32), c32(0x3FFF)), c32(4))
    mode = b.trunc(b.lshr(desc, c64(62)), I32)
    plain = b.icmp_unsigned("==", mode, c32(0))
    log = b.select(plain, c32(4), b.sub(c32(8), mode))  # of a row's bytes: 16; 128, 64, 32
    byte = b.mul(k, c32(size))
    rows = b.add(b.mul(b.lshr(row, c32(3)), stride), b.shl(b.and_(row, c32(7)), log))
    along = b.select(plain, b.add(b.mul(b.lshr(byte, c32(4)), leading), b.and_(byte, c32(15))), byte)
    wide = b.sub(log, c32(1))  # of a row's elements, of two bytes
    whole, rest = b.lshr(row, wide), b.and_(row, b.sub(b.shl(c32(1), wide), c32(1)))
    far, near = b.select(plain, stride, leading), b.select(plain, leading, stride)
    turned = b.add(b.mul(whole, far), b.mul(b.lshr(k, c32(3)), near))
    turned = b.add(turned, b.add(b.shl(b.and_(k, c32(7)), log), b.shl(rest, c32(1))))
    return b.select(b.icmp_unsigned("!=", transposed, c32(0)), turned, b.add(rows, along))


def _swizzled(b: ir.IRBuilder, desc: V, address: V) -> V:
    """Bits 4 to 6 of an address take bits 7 to 9 less the descriptor's base, as many as its mode says."""
    mode = b.trunc(b.lshr(desc, c64(62)), I32)
    mask = b.select(b.icmp_unsigned("==", mode, c32(0)), c32(0), b.lshr(c32(15), mode))
    base = b.and_(b.trunc(b.lshr(desc, c64(49)), I32), c32(7))
    return b.xor(address, b.shl(b.and_(b.sub(b.lshr(address, c32(7)), base), mask), c32(4)))


def _note_special(b: ir.IRBuilder, ctx: V, parts: dict[str, V]) -> None:
    kind = b.and_(parts["special"], c32(INFINITE | BROKEN))
    put(b, ctx, CTX, "special", b.or_(get(b, ctx, CTX, "special"), kind))


def build_fetch(module: ir.Module, form: Format, operand: str) -> None:
    """rt_fetch_A_TYPE(ctx, warp, descriptor, first row, rows, transposed, negated, pc): an operand from shared memory,
    decoded; 1 after a fault."""
    f = Function(module, f"rt_fetch_{operand}_{form.name}", I32, PTR, PTR, I64, I32, I32, I32, I32, I32)
    b, (ctx, warp, desc, first, rows, transposed, negated, pc) = f.b, f.args
    tensor, shared, room = get(b, ctx, CTX, "tensor"), get(b, ctx, CTX, "shared"), get(b, ctx, CTX, "shared_bytes")
    start = b.shl(b.and_(b.trunc(desc, I32), c32(0x3FFF)), c32(4))
    group = b.add(get(b, warp, WARP, "committed"), c32(1))
    with f.for_(c32(0), rows) as row, f.for_(c32(0), c32(form.depth)) as k:
        offset = _offset(b, desc, b.add(row, first), k, form.size, transposed)
        address = _swizzled(b, desc, b.and_(b.add(start, offset), c32((1 << _ADDRESS_BITS) - 1)))
        wide = b.zext(address, I64)
        with f.if_(b.icmp_unsigned(">", b.add(wide, c64(form.size)), room)):
            f.ret(fault(b, ctx, "bounds", c32(0), wide, "shared", form.size))
        with f.if_(b.icmp_unsigned("==", b.and_(address, c32(15)), c32(0))):
            unit_read(f, ctx, warp, address, group, pc)
        place = at(b, shared, wide)
        bits = b.load(place, typ=I32) if form.size == 4 else b.zext(b.load(place, typ=I16), I32)
        parts = decoded(b, bits, form, negated)
        _note_special(b, ctx, parts)
        (put_a if operand == "a" else put_b)(b, tensor, row, k, parts)
    f.ret(0)


def build_fragments(module: ir.Module, form: Format) -> None:
    """rt_fragments_TYPE(ctx, registers, negated): A from four registers of the warp."""
    f = Function(module, f"rt_fragments_{form.name}", ir.VoidType(), PTR, PTR, I32)
    b, (ctx, registers, negated) = f.b, f.args
    tensor = get(b, ctx, CTX, "tensor")
    with f.for_(c32(0), c32(16)) as row, f.for_(c32(0), c32(form.depth)) as k:
        word = k if form.size == 4 else b.lshr(k, c32(1))
        number = b.or_(b.lshr(row, c32(3)), b.shl(b.lshr(word, c32(2)), c32(1)))
        lane = b.or_(b.shl(b.and_(row, c32(7)), c32(2)), b.and_(word, c32(3)))
        place = b.add(b.mul(number, c32(VECTOR_BYTES)), b.shl(lane, c32(2)))
        bits = b.load(at(b, registers, b.zext(place, I64)), typ=I32)
        if form.size == 2:
            bits = b.and_(b.lshr(bits, b.shl(b.and_(k, c32(1)), c32(4))), c32(0xFFFF))
        parts = decoded(b, bits, form, negated)
        _note_special(b, ctx, parts)
        put_a(b, tensor, row, k, parts)
    b.ret_void()


def build_product(module: ir.Module, form: Format) -> None:
    """rt_product_TYPE(ctx, warp, active, registers of A, descriptor of A, of B, d, columns, flags, keeps, pc): D, 64 x
    columns, becomes A x B + D (`keeps`). A comes from shared memory where it has no registers."""
    f = Function(module, f"rt_product_{form.name}", I32, PTR, PTR, I32, PTR, I64, I64, PTR, I32, I32, I32, I32)
    b, (ctx, warp, active, registers, desc_a, desc_b, d, columns, flags, keeps, pc) = f.b, f.args
    index = get(b, warp, WARP, "index")
    whole = b.icmp_unsigned("<", b.or_(index, c32(3)), get(b, ctx, CTX, "warp_count"))
    with f.if_(b.not_(b.and_(whole, b.icmp_unsigned("==", active, c32(-1))))):
        f.ret(fault(b, ctx, "together"))
    from_memory = b.icmp_unsigned("==", b.ptrtoint(registers, I64), c64(0))
    put(b, ctx, CTX, "special", 0)

    def flag(value: int) -> V:
        return b.zext(b.icmp_unsigned("!=", b.and_(flags, c32(value)), c32(0)), I32)

    def fetch(operand: str, desc: V, first: V, rows: V, transposed: V, negated: V) -> None:
        status = call(b, f"rt_fetch_{operand}_{form.name}", I32, ctx, warp, desc, first, rows, transposed, negated, pc)
        with f.if_(b.icmp_unsigned("!=", status, c32(0))):
            f.ret(1)

    with b.if_else(from_memory) as (memory, file):
        with memory:
            fetch("a", desc_a, b.shl(b.and_(index, c32(3)), c32(4)), c32(16), flag(TRANSPOSE_A), flag(NEGATE_A))
        with file:
            call(b, f"rt_fragments_{form.name}", ir.VoidType(), ctx, registers, flag(NEGATE_A))
    fetch("b", desc_b, c32(0), columns, flag(TRANSPOSE_B), flag(NEGATE_B))
    call(b, f"rt_sums_{form.name}", ir.VoidType(), ctx, columns, get(b, ctx, CTX, "special"), keeps, d)
    f.ret(0)


def _cell(b: ir.IRBuilder, warp: V, row: str, register: V) -> V:
    return at(b, field(b, warp, WARP, row), b.shl(b.zext(register, I64), c64(2)))


def build_take(module: ir.Module) -> None:
    """rt_take(ctx, warp, first, count, a): registers of a product, as its sums or (`a`) its operand A. They may be in
    flight as the sums of the very same registers, or as the same kind of operand."""
    f = Function(module, "rt_take", I32, PTR, PTR, I32, I32, I32)
    b, (ctx, warp, first, count, a) = f.b, f.args
    done, arrivals = get(b, warp, WARP, "done"), get(b, warp, WARP, "arrivals")
    group = b.add(get(b, warp, WARP, "committed"), c32(1))
    is_a = b.icmp_unsigned("!=", a, c32(0))
    owner = b.select(is_a, c32(_A_OWNER), b.or_(first, b.shl(count, c32(8))))
    with f.for_(first, b.add(first, count)) as register:
        tag, before = (b.load(_cell(b, warp, row, register), typ=I32) for row in ("inflight", "owner"))
        foreign = b.and_(b.icmp_unsigned(">", tag, done), b.icmp_unsigned("!=", before, owner))
        with f.if_(foreign):
            f.ret(fault(b, ctx, "in flight", c32(0), b.zext(register, I64)))
        with f.if_(b.icmp_unsigned(">=", b.load(_cell(b, warp, "touched", register), typ=I32), arrivals)):
            f.ret(fault(b, ctx, "unordered", c32(0), b.zext(register, I64)))
        b.store(group, _cell(b, warp, "inflight", register))
        b.store(owner, _cell(b, warp, "owner", register))
    f.ret(0)


def build_touch(module: ir.Module) -> None:
    """rt_touch(ctx, warp, first, count, writes, lanes): other instructions use registers of products."""
    f = Function(module, "rt_touch", I32, PTR, PTR, I32, I32, I32, I32)
    b, (ctx, warp, first, count, writes, lanes) = f.b, f.args
    with f.if_(b.icmp_unsigned("==", lanes, c32(0))):
        f.ret(0)
    writing = b.icmp_unsigned("!=", writes, c32(0))
    with f.for_(first, b.add(first, count)) as register:
        flying = b.icmp_unsigned(">", b.load(_cell(b, warp, "inflight", register), typ=I32), get(b, warp, WARP, "done"))
        is_sum = b.icmp_unsigned("!=", b.load(_cell(b, warp, "owner", register), typ=I32), c32(_A_OWNER))
        with f.if_(b.and_(flying, b.or_(writing, is_sum))):
            f.ret(fault(b, ctx, "in flight", c32(0), b.zext(register, I64)))
        with f.if_(writing):
            b.store(get(b, warp, WARP, "arrivals"), _cell(b, warp, "touched", register))
    f.ret(0)


def build_wait(module: ir.Module) -> None:
    """rt_wait_groups(ctx, warp, open): WARPGROUP.DEPBAR; 0 once all but `open` groups are done, 2 while other warps of
    the warpgroup have not yet come to products that are waited for."""
    f = Function(module, "rt_wait_groups", I32, PTR, PTR, I32)
    b, (ctx, warp, open_) = f.b, f.args
    committed, done = get(b, warp, WARP, "committed"), get(b, warp, WARP, "done")
    target = b.select(b.icmp_unsigned(">", committed, open_), b.sub(committed, open_), c32(0))
    first = b.and_(get(b, warp, WARP, "index"), c32(~3))
    with f.for_(c32(0), c32(4)) as i:
        number = b.add(first, i)
        with f.if_(b.icmp_unsigned("<", number, get(b, ctx, CTX, "warp_count"))):
            other = get(b, warp_at(b, ctx, number), WARP, "committed")
            with f.if_(b.icmp_unsigned("<", other, target)):
                f.ret(2)
    now = b.select(b.icmp_unsigned(">", target, done), target, done)
    put(b, warp, WARP, "done", now)
    number = b.lshr(first, c32(2))  # done for all warps of the warpgroup at once
    b.store(now, at(b, known(b, warp), b.shl(b.zext(number, I64), c64(2))))
    put(b, ctx, CTX, "moved", 1)
    f.ret(0)


NAMES = ("rt_take", "rt_touch", "rt_wait_groups", *(f"rt_product_{form.name}" for form in FORMATS))


def build(module: ir.Module) -> None:
    for form in FORMATS:
        for operand in "ab":
            build_fetch(module, form, operand)
        build_fragments(module, form)
        build_product(module, form)
    for part in (build_take, build_touch, build_wait):
        part(module)

