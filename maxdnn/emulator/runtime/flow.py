"""The divergence stack of a warp: pushing, leaving, resuming. A model that is consistent with compiled code; how the
hardware stores its entries is not published.

Every entry is (kind, target, lanes). SSY, PBK, PCNT and CAL push their reconvergence point with the active lanes; a
branch that splits the warp pushes the side that waits. Lanes that SYNC, BRK, CONT or RET leave every entry above the
matching one; lanes that exit leave all. When no lane is active the top entry resumes at its target."""

from llvmlite import ir

from ..irkit import I1, I32, I64, PTR, Function, V, at, c32, c64, call, field, get, put
from ..layout import BARRIER_IDS, CTX, DIV, LANES, STACK_DEPTH, WARP
from .memory import VI32, fault, splat

EXIT_KIND = 255  # matches no entry: leave everything


def _entry(b: ir.IRBuilder, warp: V, index: V) -> V:
    return at(b, field(b, warp, WARP, "stack"), b.shl(b.zext(index, I64), c64(4)))


def build_push(module: ir.Module) -> None:
    """rt_push(ctx, warp, kind, target, lanes): 1 after a stack overflow."""
    f = Function(module, "rt_push", I32, PTR, PTR, I32, I32, I32)
    b, (ctx, warp, kind, target, lanes) = f.b, f.args
    depth = get(b, warp, WARP, "depth")
    with f.if_(b.icmp_unsigned(">=", depth, c32(STACK_DEPTH))):
        b.ret(fault(b, ctx, "stack overflow"))
    entry = _entry(b, warp, depth)
    for offset, value in ((0, kind), (4, target), (8, lanes)):
        b.store(value, at(b, entry, offset))
    put(b, warp, WARP, "depth", b.add(depth, c32(1)))
    f.ret(0)


def build_leave(module: ir.Module) -> None:
    """rt_leave(ctx, warp, kind, lanes): 0 = others go on, 1 = resumed elsewhere (warp.pc), 2 = the warp is finished,
    3 = no matching entry."""
    f = Function(module, "rt_leave", I32, PTR, PTR, I32, I32)
    b, (ctx, warp, kind, lanes) = f.b, f.args
    keep = b.not_(lanes)
    at_entry = f.variable(I32, get(b, warp, WARP, "depth"))
    found = f.variable(I32, c32(0))
    with f.while_(lambda: b.and_(b.icmp_unsigned("!=", b.load(at_entry, typ=I32), c32(0)),
                                 b.icmp_unsigned("==", b.load(found, typ=I32), c32(0)))):
        index = b.sub(b.load(at_entry, typ=I32), c32(1))
        b.store(index, at_entry)
        entry = _entry(b, warp, index)
        matches = b.icmp_unsigned("==", b.load(entry, typ=I32), kind)
        with b.if_else(matches) as (yes, no):
            with yes:
                b.store(c32(1), found)
            with no:
                slot = at(b, entry, 8)
                b.store(b.and_(b.load(slot, typ=I32), keep), slot)
    exiting = b.icmp_unsigned("==", kind, c32(EXIT_KIND))
    with f.if_(b.and_(b.icmp_unsigned("==", b.load(found, typ=I32), c32(0)), b.not_(exiting))):
        fault(b, ctx, "unmatched")
        f.ret(3)
    with f.if_(exiting):
        put(b, warp, WARP, "alive", b.and_(get(b, warp, WARP, "alive"), keep))
    active = b.and_(get(b, warp, WARP, "active"), keep)
    put(b, warp, WARP, "active", active)
    with f.if_(b.icmp_unsigned("!=", active, c32(0))):
        f.ret(0)
    with f.while_(lambda: b.icmp_unsigned("!=", get(b, warp, WARP, "depth"), c32(0))):
        depth = b.sub(get(b, warp, WARP, "depth"), c32(1))
        put(b, warp, WARP, "depth", depth)
        entry = _entry(b, warp, depth)
        resumed = b.load(at(b, entry, 8), typ=I32)
        with f.if_(b.icmp_unsigned("!=", resumed, c32(0))):
            put(b, warp, WARP, "active", resumed)
            put(b, warp, WARP, "pc", b.load(at(b, entry, 4), typ=I32))
            f.ret(1)
    f.ret(2)


def build_indirect(module: ir.Module) -> None:
    """rt_indirect(ctx, warp, targets, lanes): go to a target per lane; all but the last distinct one are pushed."""
    f = Function(module, "rt_indirect", I32, PTR, PTR, VI32, I32)
    b, (ctx, warp, targets, lanes) = f.b, f.args
    left = f.variable(I32, lanes)
    with f.while_(lambda: b.icmp_unsigned("!=", b.load(left, typ=I32), c32(0))):
        now = b.load(left, typ=I32)
        target = b.extract_element(targets, b.cttz(now, ir.Constant(I1, 1)))
        alike = b.and_(b.bitcast(b.icmp_unsigned("==", targets, splat(b, target)), I32), now)
        rest = b.and_(now, b.not_(alike))
        b.store(rest, left)
        with f.if_(b.icmp_unsigned("==", rest, c32(0))):
            put(b, warp, WARP, "active", alike)
            put(b, warp, WARP, "pc", target)
            f.ret(0)
        with f.if_(b.icmp_unsigned("!=", call(b, "rt_push", I32, ctx, warp, c32(DIV), target, alike), c32(0))):
            f.ret(1)
    f.ret(0)


def build_fault_mask(module: ir.Module) -> None:
    """rt_fault_mask(ctx, kind, lanes, address, space, size): a fault of the first lane in `lanes`, if there is one."""
    f = Function(module, "rt_fault_mask", I32, PTR, I32, I32, I64, I32, I32)
    b, (ctx, kind, lanes, address, space, size) = f.b, f.args
    with f.if_(b.icmp_unsigned("==", lanes, c32(0))):
        f.ret(0)
    b.ret(call(b, "rt_fault", I32, ctx, kind, b.cttz(lanes, ir.Constant(I1, 1)), address, space, size))


def build_check_barrier(module: ir.Module) -> None:
    """rt_check_barrier(ctx, number, count): numbers are 0..15, counts multiples of 32 up to the block's threads."""
    f = Function(module, "rt_check_barrier", I32, PTR, I32, I32)
    b, (ctx, number, count) = f.b, f.args
    bad = b.or_(b.icmp_unsigned(">=", number, c32(BARRIER_IDS)), b.icmp_unsigned("!=", b.and_(count, c32(31)), c32(0)))
    bad = b.or_(bad, b.icmp_unsigned(">", count, b.shl(get(b, ctx, CTX, "warp_count"), c32(5))))
    with f.if_(bad):
        b.ret(fault(b, ctx, "barrier"))
    f.ret(0)


def build_shuffle(module: ir.Module) -> None:
    """rt_shuffle(values, lanes): lane i gets values[lanes[i]]."""
    f = Function(module, "rt_shuffle", VI32, VI32, VI32)
    b, (values, lanes) = f.b, f.args
    table = f.array(I32, LANES)
    b.store(values, table)
    result: V = ir.Constant(VI32, ir.Undefined)
    for i in range(LANES):
        lane = b.zext(b.extract_element(lanes, c32(i)), I64)
        result = b.insert_element(result, b.load(at(b, table, b.shl(lane, c64(2))), typ=I32), c32(i))
    b.ret(result)


def build(module: ir.Module) -> None:
    for part in (build_fault_mask, build_check_barrier, build_shuffle, build_push, build_leave, build_indirect):
        part(module)
