"""What asynchronous units do with shared memory, in granules of 16 bytes, so that using it too early or too late is a
fault and not luck. Each granule remembers

- its last ordinary writer (warp, time, that warp's proxy fences so far): units see the bytes behind a proxy fence only;
- for each warpgroup the last group of products that reads it: it may change only by a warp that knows the group to be
  done, because it waited itself or met, at a barrier, somebody who knew;
- the bulk copy under way to it, and after which opening of a barrier its bytes are there;
- the warp that copies to it (LDGSTS) and has not waited yet, and which group of its copies that is. When it has, the
  warp is an ordinary writer.

Time is the number of barriers and phases completed in the block so far, as for races (races.py). Order that runs
through several barriers may be missed, and none is invented."""

from llvmlite import ir

from ..irkit import I32, I64, PTR, Function, V, at, c32, c64, call, field, get, put
from ..layout import CTX, GRANULE, GRANULE_BYTES, WARP
from .memory import VI32, fault

READ, WRITE = range(2)
_WARPGROUPS = 8  # of a block at most


def granule(b: ir.IRBuilder, ctx: V, address: V) -> V:
    index = b.zext(b.lshr(address, c32(4)), I64)
    return at(b, get(b, ctx, CTX, "granules"), b.mul(index, c64(GRANULE_BYTES)))


def warp_at(b: ir.IRBuilder, ctx: V, index: V) -> V:
    return at(b, get(b, ctx, CTX, "warps"), b.mul(b.zext(index, I64), get(b, ctx, CTX, "warp_bytes")))


def _report(f: Function, ctx: V, kind: str, lane: V, address: V, size: int, other: V, pc: V) -> None:
    b = f.b
    put(b, ctx, CTX, "fault_other", other)
    put(b, ctx, CTX, "fault_other_pc", pc)
    f.ret(fault(b, ctx, kind, lane, b.zext(address, I64), "shared", size))


def _refuse_arriving(f: Function, ctx: V, warp: V, entry: V, lane: V, address: V) -> None:
    """A fault where a bulk copy is under way, or has arrived and this warp has not waited for it."""
    b = f.b
    late = b.icmp_unsigned("<", get(b, warp, WARP, "synced"), get(b, entry, GRANULE, "copied"))
    with f.if_(b.or_(late, b.icmp_unsigned("!=", get(b, entry, GRANULE, "copying"), c32(0)))):
        _report(f, ctx, "arriving", lane, address, 16, c32(-1), get(b, entry, GRANULE, "pc"))
    loader = get(b, entry, GRANULE, "loader")
    with f.if_(b.icmp_unsigned("!=", loader, c32(0))):
        _report(f, ctx, "arriving", lane, address, 16, b.sub(loader, c32(1)), get(b, entry, GRANULE, "pc"))


def tell(b: ir.IRBuilder, to: V, source: V) -> None:
    """`to` learns what `source` knows of finished products: a number for each warpgroup."""
    numbers = ir.VectorType(I32, _WARPGROUPS)
    new, old = (b.load(where, typ=numbers, align=4) for where in (source, to))
    b.store(b.select(b.icmp_unsigned(">", new, old), new, old), to, align=4)


def known(b: ir.IRBuilder, warp: V) -> V:
    return field(b, warp, WARP, "known0")


def of_barrier(b: ir.IRBuilder, ctx: V, address: V) -> V:
    """What a warp learns from an mbarrier: all that the arriving warps knew."""
    entry = granule(b, ctx, address)
    second = b.icmp_unsigned("!=", b.and_(address, c32(8)), c32(0))
    return b.select(second, field(b, entry, GRANULE, "second"), field(b, entry, GRANULE, "first"))


def _refuse_busy(f: Function, ctx: V, warp: V, entry: V, lane: V, address: V) -> None:
    """Fault if a product reads the granule and this warp cannot know that the product has finished."""
    b = f.b
    groups = b.lshr(get(b, ctx, CTX, "warp_count"), c32(2))
    with f.for_(c32(0), groups) as group:
        offset = b.shl(b.zext(group, I64), c64(2))
        tag = b.load(at(b, field(b, entry, GRANULE, "reading"), offset), typ=I32)
        with f.if_(b.icmp_unsigned(">", tag, b.load(at(b, known(b, warp), offset), typ=I32))):
            _report(f, ctx, "busy", lane, address, 16, b.shl(group, c32(2)), get(b, entry, GRANULE, "pc"))


def _refuse_unfenced(f: Function, ctx: V, warp: V, entry: V, address: V) -> None:
    """Fault if ordinary stores to the granule may not be visible to the unit, or to this warp."""
    b = f.b
    writer = get(b, entry, GRANULE, "writer")
    with f.if_(b.icmp_unsigned("!=", writer, c32(0))):
        other = b.sub(writer, c32(1))
        written = get(b, entry, GRANULE, "written")
        own = b.icmp_unsigned(">", get(b, warp_at(b, ctx, other), WARP, "fences"), get(b, entry, GRANULE, "fences"))
        others = b.icmp_unsigned(">", get(b, ctx, CTX, "fenced"), written)
        with f.if_(b.not_(b.or_(own, others))):
            _report(f, ctx, "unfenced", c32(0), address, 16, other, get(b, entry, GRANULE, "pc"))
        mine = b.icmp_unsigned("==", other, get(b, warp, WARP, "index"))
        with f.if_(b.and_(b.not_(mine), b.icmp_unsigned(">=", written, get(b, warp, WARP, "synced")))):
            _report(f, ctx, "race", c32(0), address, 16, other, get(b, entry, GRANULE, "pc"))


def build_access(module: ir.Module) -> None:
    """rt_proxy_access(ctx, warp, addresses, mask, kind, pc): an ordinary access, after its bounds are checked.
    It lies within one granule."""
    f = Function(module, "rt_proxy_access", I32, PTR, PTR, VI32, I32, I32, I32)
    b, (ctx, warp, addresses, mask, kind, pc) = f.b, f.args
    with f.lanes(mask) as lane:
        address = b.extract_element(addresses, lane)
        entry = granule(b, ctx, address)
        _refuse_arriving(f, ctx, warp, entry, lane, address)
        with f.if_(b.icmp_unsigned("==", kind, c32(WRITE))):
            _refuse_busy(f, ctx, warp, entry, lane, address)
            put(b, entry, GRANULE, "writer", b.add(get(b, warp, WARP, "index"), c32(1)))
            put(b, entry, GRANULE, "written", get(b, ctx, CTX, "epoch"))
            put(b, entry, GRANULE, "fences", get(b, warp, WARP, "fences"))
            put(b, entry, GRANULE, "pc", pc)
    f.ret(0)


def build_unit_read(module: ir.Module) -> None:
    """rt_unit_read(ctx, warp, address, group, pc): a unit reads a granule for a warp; `group`: of products, or 0."""
    f = Function(module, "rt_unit_read", I32, PTR, PTR, I32, I32, I32)
    b, (ctx, warp, address, group, pc) = f.b, f.args
    entry = granule(b, ctx, address)
    _refuse_arriving(f, ctx, warp, entry, c32(0), address)
    _refuse_unfenced(f, ctx, warp, entry, address)
    with f.if_(b.icmp_unsigned("!=", group, c32(0))):
        number = b.lshr(get(b, warp, WARP, "index"), c32(2))
        b.store(group, at(b, field(b, entry, GRANULE, "reading"), b.shl(b.zext(number, I64), c64(2))))
        put(b, entry, GRANULE, "pc", pc)
    f.ret(0)


def build_unit_write(module: ir.Module) -> None:
    """rt_unit_write(ctx, warp, address, size, barrier, pc): a bulk copy is sent to whole granules."""
    f = Function(module, "rt_unit_write", I32, PTR, PTR, I32, I32, I32, I32)
    b, (ctx, warp, address, size, barrier, pc) = f.b, f.args
    with f.for_(c32(0), b.lshr(size, c32(4))) as i:
        here = b.add(address, b.shl(i, c32(4)))
        entry = granule(b, ctx, here)
        _refuse_busy(f, ctx, warp, entry, c32(0), here)
        with f.if_(b.icmp_unsigned("!=", get(b, entry, GRANULE, "copying"), c32(0))):
            _report(f, ctx, "arriving", c32(0), here, 16, c32(-1), get(b, entry, GRANULE, "pc"))
        _refuse_unfenced(f, ctx, warp, entry, here)
        put(b, entry, GRANULE, "writer", 0)
        put(b, entry, GRANULE, "copying", b.add(barrier, c32(1)))
        put(b, entry, GRANULE, "pc", pc)
    f.ret(0)


def build_copy(module: ir.Module) -> None:
    """rt_copy(ctx, warp, addresses, mask): the ordinary stores just noted are copies of the warp's next group."""
    f = Function(module, "rt_copy", ir.VoidType(), PTR, PTR, VI32, I32)
    b, (ctx, warp, addresses, mask) = f.b, f.args
    with f.lanes(mask) as lane:
        entry = granule(b, ctx, b.extract_element(addresses, lane))
        put(b, entry, GRANULE, "loader", b.add(get(b, warp, WARP, "index"), c32(1)))
        put(b, entry, GRANULE, "group", get(b, warp, WARP, "groups"))
    b.ret_void()


def build_copies_wait(module: ir.Module) -> None:
    """rt_copies_wait(ctx, warp, open): but for the last `open` groups of its copies, the warp has stored them now."""
    f = Function(module, "rt_copies_wait", ir.VoidType(), PTR, PTR, I32)
    b, (ctx, warp, open_) = f.b, f.args
    mine = b.add(get(b, warp, WARP, "index"), c32(1))
    committed = get(b, warp, WARP, "groups")
    with f.for_(c32(0), b.trunc(b.lshr(get(b, ctx, CTX, "shared_bytes"), c64(4)), I32)) as i:
        entry = granule(b, ctx, b.shl(i, c32(4)))
        done = b.icmp_unsigned("<=", b.add(b.add(get(b, entry, GRANULE, "group"), c32(1)), open_), committed)
        with f.if_(b.and_(done, b.icmp_unsigned("==", get(b, entry, GRANULE, "loader"), mine))):
            put(b, entry, GRANULE, "loader", 0)
            put(b, entry, GRANULE, "written", get(b, ctx, CTX, "epoch"))
            put(b, entry, GRANULE, "fences", get(b, warp, WARP, "fences"))
    b.ret_void()


def build_fence(module: ir.Module) -> None:
    """rt_proxy_fence(ctx, warp): what this warp wrote, and what was written before its last barrier, can be seen."""
    f = Function(module, "rt_proxy_fence", ir.VoidType(), PTR, PTR)
    b, (ctx, warp) = f.b, f.args
    put(b, warp, WARP, "fences", b.add(get(b, warp, WARP, "fences"), c32(1)))
    synced, before = get(b, warp, WARP, "synced"), get(b, ctx, CTX, "fenced")
    put(b, ctx, CTX, "fenced", b.select(b.icmp_unsigned(">", synced, before), synced, before))
    b.ret_void()


def unit_read(f: Function, ctx: V, warp: V, address: V, group: V, pc: V) -> None:
    """Inside a function that returns a status."""
    status = call(f.b, "rt_unit_read", I32, ctx, warp, address, group, pc)
    with f.if_(f.b.icmp_unsigned("!=", status, c32(0))):
        f.ret(1)


NAMES = ("rt_proxy_access", "rt_unit_read", "rt_unit_write", "rt_copy", "rt_copies_wait", "rt_proxy_fence")


def build(module: ir.Module) -> None:
    for part in (build_access, build_unit_read, build_unit_write, build_copy, build_copies_wait, build_fence):
        part(module)
