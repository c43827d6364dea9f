"""Where the lanes of a Hopper warp are: each has a place of its own to go on from. One group of lanes at one place runs
(`active`, `pc`), the others are parked (`where`), some of them until the lanes of a convergence barrier have come
(`blocked`, `waits`; `masks` has for each barrier and lane the lanes it waits for, so that another group may use the
barrier meanwhile). When the running group is gone, the parked lanes with the lowest place go on, so that
structured code comes together again. How the hardware chooses is not published, and programs may not rely on it."""

from llvmlite import ir

from ..irkit import I1, I32, I64, PTR, Function, V, at, c32, c64, field, get, put
from ..layout import CONVERGENCE, VECTOR_BYTES, WARP
from .memory import VI1, VI32, fault, splat


def _vector(b: ir.IRBuilder, warp: V, name: str) -> V:
    return b.load(field(b, warp, WARP, name), typ=VI32, align=64)


def _blend(b: ir.IRBuilder, warp: V, name: str, lanes: V, value: V) -> None:
    """Put a value into the lanes of a row."""
    where = field(b, warp, WARP, name)
    chosen = b.select(b.bitcast(lanes, VI1), value, b.load(where, typ=VI32, align=64))
    b.store(chosen, where, align=64)


def _masks(b: ir.IRBuilder, warp: V, barrier: V) -> V:
    row = at(b, field(b, warp, WARP, "masks"), b.mul(b.zext(barrier, I64), c64(VECTOR_BYTES)))
    return b.load(row, typ=VI32, align=64)


def _drop(b: ir.IRBuilder, warp: V, name: str, lanes: V) -> None:
    """Take lanes out of a mask."""
    put(b, warp, WARP, name, b.and_(get(b, warp, WARP, name), b.not_(lanes)))


def build_park(module: ir.Module) -> None:
    """rt_park(warp, lanes, target): lanes leave the running group and will go on at `target`."""
    f = Function(module, "rt_park", ir.VoidType(), PTR, I32, I32)
    b, (warp, lanes, target) = f.b, f.args
    _blend(b, warp, "where", lanes, splat(b, target))
    _drop(b, warp, "active", lanes)
    b.ret_void()


def build_settle(module: ir.Module) -> None:
    """rt_settle(ctx, warp): open the barriers whose lanes have all come. 0 = the running group goes on, 1 = another one
    does (warp.pc), 2 = the warp is finished, 3 = no lane can go on."""
    f = Function(module, "rt_settle", I32, PTR, PTR)
    b, (ctx, warp) = f.b, f.args
    with f.for_(c32(0), c32(CONVERGENCE)) as barrier:
        alive, blocked = get(b, warp, WARP, "alive"), get(b, warp, WARP, "blocked")
        here = b.icmp_unsigned("==", _vector(b, warp, "waits"), splat(b, barrier))
        come = b.and_(b.bitcast(here, I32), blocked)
        missing = b.and_(_masks(b, warp, barrier), splat(b, b.and_(alive, b.not_(come))))
        complete = b.bitcast(b.icmp_unsigned("==", missing, splat(b, c32(0))), I32)
        put(b, warp, WARP, "blocked", b.and_(blocked, b.not_(b.and_(come, complete))))
    with f.if_(b.icmp_unsigned("!=", get(b, warp, WARP, "active"), c32(0))):
        f.ret(0)
    alive = get(b, warp, WARP, "alive")
    with f.if_(b.icmp_unsigned("==", alive, c32(0))):
        f.ret(2)
    ready = b.and_(alive, b.not_(get(b, warp, WARP, "blocked")))
    with f.if_(b.icmp_unsigned("==", ready, c32(0))):
        fault(b, ctx, "unmatched")
        f.ret(3)
    left, least = f.variable(I32, ready), f.variable(I32, c32(-1))
    where = _vector(b, warp, "where")
    with f.while_(lambda: b.icmp_unsigned("!=", b.load(left, typ=I32), c32(0))):
        now = b.load(left, typ=I32)
        place = b.extract_element(where, b.cttz(now, ir.Constant(I1, 1)))
        before = b.load(least, typ=I32)
        b.store(b.select(b.icmp_unsigned("<", place, before), place, before), least)
        b.store(b.and_(now, b.sub(now, c32(1))), left)
    lowest = b.load(least, typ=I32)
    alike = b.and_(b.bitcast(b.icmp_unsigned("==", where, splat(b, lowest)), I32), ready)
    put(b, warp, WARP, "active", alike)
    put(b, warp, WARP, "pc", lowest)
    f.ret(1)


def build_come(module: ir.Module) -> None:
    """rt_come(warp, barrier, after, lanes): lanes of the running group wait at a barrier and then go on at `after`."""
    f = Function(module, "rt_come", ir.VoidType(), PTR, I32, I32, I32)
    b, (warp, barrier, after, lanes) = f.b, f.args
    _blend(b, warp, "where", lanes, splat(b, after))
    _blend(b, warp, "waits", lanes, splat(b, barrier))
    put(b, warp, WARP, "blocked", b.or_(get(b, warp, WARP, "blocked"), lanes))
    _drop(b, warp, "active", lanes)
    b.ret_void()


def build_scatter(module: ir.Module) -> None:
    """rt_scatter(warp, targets, lanes): lanes of the running group will go on at a place each."""
    f = Function(module, "rt_scatter", ir.VoidType(), PTR, VI32, I32)
    b, (warp, targets, lanes) = f.b, f.args
    _blend(b, warp, "where", lanes, targets)
    _drop(b, warp, "active", lanes)
    b.ret_void()


def build_gone(module: ir.Module) -> None:
    """rt_gone(warp, lanes): lanes of the running group have ended."""
    f = Function(module, "rt_gone", ir.VoidType(), PTR, I32)
    b, (warp, lanes) = f.b, f.args
    for name in ("active", "alive"):
        _drop(b, warp, name, lanes)
    b.ret_void()


NAMES = ("rt_park", "rt_settle", "rt_come", "rt_scatter", "rt_gone")


def build(module: ir.Module) -> None:
    for part in (build_park, build_settle, build_come, build_scatter, build_gone):
        part(module)
