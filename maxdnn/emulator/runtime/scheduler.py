"""The loop around compiled kernels: takes blocks from the grid, runs their warps in turn between barriers, and returns
to Python only when the grid is done, something went wrong, or a missing piece must be made."""

from llvmlite import ir

from .. import layout
from ..irkit import I32, I64, PTR, Function, V, at, c32, c64, call, field, get, memset, put
from ..layout import BARRIER_BYTES, BARRIER_IDS, CTX, DONE, LANES, LAUNCH, POISON, READY, REGS_OFFSET, WAITING, WARP
from .memory import fault
from .proxies import known, tell, warp_at


def build_start_block(module: ir.Module) -> None:
    """rt_start_block(ctx, number): block coordinates, barriers and warps as at a block's start."""
    f = Function(module, "rt_start_block", ir.VoidType(), PTR, I64)
    b, (ctx, number) = f.b, f.args
    launch = get(b, ctx, CTX, "launch")
    x, y = (b.zext(get(b, launch, LAUNCH, n), I64) for n in ("grid_x", "grid_y"))
    put(b, ctx, CTX, "ctaid_x", b.trunc(b.urem(number, x), I32))
    rest = b.udiv(number, x)
    put(b, ctx, CTX, "ctaid_y", b.trunc(b.urem(rest, y), I32))
    put(b, ctx, CTX, "ctaid_z", b.trunc(b.udiv(rest, y), I32))
    memset(b, field(b, ctx, CTX, "barriers"), 0, c64(BARRIER_IDS * BARRIER_BYTES))
    memset(b, get(b, ctx, CTX, "shared"), POISON, get(b, ctx, CTX, "shared_bytes"))
    count = get(b, ctx, CTX, "warp_count")
    with f.for_(c32(0), count) as index:
        warp = warp_at(b, ctx, index)
        lanes = get(b, warp, WARP, "initial")
        put(b, warp, WARP, "pc", get(b, ctx, CTX, "first_pc"))
        put(b, warp, WARP, "active", lanes)
        put(b, warp, WARP, "alive", lanes)
        for name in ("blocked", "state", "depth", "bar_result", "trace_runs", "trace_rows"):
            put(b, warp, WARP, name, 0)
        put(b, warp, WARP, "issued", 0)
        put(b, warp, WARP, "synced", 1)
        put(b, warp, WARP, "fuel", get(b, ctx, CTX, "slice"))
        memset(b, field(b, warp, WARP, "written"), 0, c64(1024))
        memset(b, field(b, warp, WARP, "preds"), 0, c64(64))
        memset(b, field(b, warp, WARP, "flags"), 0, c64(32))
        memset(b, at(b, warp, REGS_OFFSET), POISON, get(b, ctx, CTX, "register_bytes"))
    _start_units(f, ctx)
    shadow = get(b, ctx, CTX, "shadow")
    with f.if_(b.icmp_unsigned("!=", b.ptrtoint(shadow, I64), c64(0))):
        memset(b, shadow, 0, b.mul(get(b, ctx, CTX, "shared_bytes"), c64(layout.SHADOW_BYTES)))
    put(b, ctx, CTX, "epoch", 1)
    put(b, ctx, CTX, "live", count)
    put(b, ctx, CTX, "next_warp", 0)
    put(b, ctx, CTX, "block_busy", 1)
    b.ret_void()


def _start_units(f: Function, ctx: V) -> None:
    """Where a kernel works asynchronously: nothing is under way, and every warp has the registers of the launch."""
    b = f.b
    granules = get(b, ctx, CTX, "granules")
    with f.if_(b.icmp_unsigned("!=", b.ptrtoint(granules, I64), c64(0))):
        memset(b, field(b, ctx, CTX, "told"), 0, c64(32 * BARRIER_IDS))
        size = b.add(get(b, ctx, CTX, "shared_bytes"), c64(15))
        memset(b, granules, 0, b.mul(b.lshr(size, c64(4)), c64(layout.GRANULE_BYTES)))
        for name in ("copy_count", "fenced", "moved", "pool"):
            put(b, ctx, CTX, name, 0)
        with f.for_(c32(0), get(b, ctx, CTX, "warp_count")) as index:
            warp = warp_at(b, ctx, index)
            first = WARP["committed"][0]
            memset(b, field(b, warp, WARP, "committed"), 0, c64(REGS_OFFSET - first))
            put(b, warp, WARP, "limit", get(b, ctx, CTX, "registers"))


def _barrier_slot(b: ir.IRBuilder, ctx: V, bar: V, offset: int) -> V:
    return at(b, at(b, field(b, ctx, CTX, "barriers"), offset), b.shl(b.zext(bar, I64), c64(4)))


def _told(b: ir.IRBuilder, ctx: V, bar: V) -> V:
    """What the warps that came to a barrier know of finished products."""
    return at(b, field(b, ctx, CTX, "told"), b.shl(b.zext(bar, I64), c64(5)))


def build_arrive(module: ir.Module) -> None:
    """rt_arrive(ctx, warp): a warp came to its barrier. Slots: threads arrived, predicate count, threads expected."""
    f = Function(module, "rt_arrive", ir.VoidType(), PTR, PTR)
    b, (ctx, warp) = f.b, f.args
    bar = get(b, warp, WARP, "bar_id")
    arrived, bits = _barrier_slot(b, ctx, bar, 0), _barrier_slot(b, ctx, bar, 4)
    b.store(b.add(b.load(arrived, typ=I32), c32(LANES)), arrived)
    b.store(b.add(b.load(bits, typ=I32), get(b, warp, WARP, "bar_bits")), bits)
    b.store(get(b, warp, WARP, "bar_count"), _barrier_slot(b, ctx, bar, 8))
    tell(b, _told(b, ctx, bar), known(b, warp))
    arrives = b.icmp_unsigned("==", get(b, warp, WARP, "bar_kind"), c32(layout.BAR_ARRIVE))
    put(b, warp, WARP, "state", b.select(arrives, c32(READY), c32(WAITING)))
    b.ret_void()


def build_release(module: ir.Module) -> None:
    """rt_release(ctx): open every barrier that is complete; returns how many warps went on. A barrier without a count
    expects all warps of the block that have not finished, as the hardware does."""
    f = Function(module, "rt_release", I32, PTR)
    b, (ctx,) = f.b, f.args
    released = f.variable(I32, c32(0))
    everyone = b.shl(get(b, ctx, CTX, "live"), c32(5))
    with f.for_(c32(0), c32(BARRIER_IDS)) as bar:
        arrived, bits = _barrier_slot(b, ctx, bar, 0), _barrier_slot(b, ctx, bar, 4)
        wanted = b.load(_barrier_slot(b, ctx, bar, 8), typ=I32)
        wanted = b.select(b.icmp_unsigned("==", wanted, c32(0)), everyone, wanted)
        now = b.load(arrived, typ=I32)
        complete = b.and_(b.icmp_unsigned("!=", now, c32(0)), b.icmp_unsigned(">=", now, wanted))
        with f.if_(complete):
            _open(f, ctx, bar, b.load(bits, typ=I32), released)
            b.store(c32(0), arrived)
            b.store(c32(0), bits)
    b.ret(b.load(released, typ=I32))


def _open(f: Function, ctx: V, bar: V, bits: V, released: V) -> None:
    b = f.b
    epoch = b.add(get(b, ctx, CTX, "epoch"), c32(1))
    put(b, ctx, CTX, "epoch", epoch)
    with f.for_(c32(0), get(b, ctx, CTX, "warp_count")) as index:
        warp = warp_at(b, ctx, index)
        waits = b.and_(b.icmp_unsigned("==", get(b, warp, WARP, "state"), c32(WAITING)),
                       b.icmp_unsigned("==", get(b, warp, WARP, "bar_id"), bar))
        with f.if_(waits):
            kind = get(b, warp, WARP, "bar_kind")
            none = b.icmp_unsigned("==", bits, c32(0))
            result = b.select(b.icmp_unsigned("==", kind, c32(layout.BAR_AND)), b.zext(none, I32), bits)
            result = b.select(b.icmp_unsigned("==", kind, c32(layout.BAR_OR)), b.zext(b.not_(none), I32), result)
            put(b, warp, WARP, "bar_result", result)
            put(b, warp, WARP, "state", READY)
            put(b, warp, WARP, "synced", epoch)
            tell(b, known(b, warp), _told(b, ctx, bar))
            b.store(b.add(b.load(released, typ=I32), c32(1)), released)


def build_run_warp(module: ir.Module) -> None:
    """rt_run_warp(ctx, warp): run until the warp stops for a reason other than a change of lanes; WANT_* + 16 when the
    variant that fits the active lanes is not compiled yet."""
    f = Function(module, "rt_run_warp", I32, PTR, PTR)
    b, (ctx, warp) = f.b, f.args
    kernel = ir.FunctionType(I32, [PTR, PTR])
    status = f.variable(I32, c32(layout.SWITCH))
    stack = b.mul(b.mul(b.zext(get(b, warp, WARP, "index"), I64), c64(LANES)), get(b, ctx, CTX, "local_stride"))
    put(b, ctx, CTX, "local", at(b, get(b, ctx, CTX, "local_base"), stack))
    with f.while_(lambda: b.icmp_unsigned("==", b.load(status, typ=I32), c32(layout.SWITCH))):
        full = b.icmp_unsigned("==", get(b, warp, WARP, "active"), c32(-1))
        code = b.select(full, *(b.load(field(b, ctx, CTX, n), typ=kernel.as_pointer())
                                for n in ("run_full", "run_partial")))
        with f.if_(b.icmp_unsigned("==", b.ptrtoint(code, I64), c64(0))):
            b.ret(b.select(full, c32(layout.WANT_FULL + 16), c32(layout.WANT_PARTIAL + 16)))
        b.store(b.call(code, [ctx, warp]), status)
    b.ret(b.load(status, typ=I32))


def build_run(module: ir.Module) -> None:
    """rt_run(ctx): the worker loop."""
    f = Function(module, "rt_run", I32, PTR)
    b, (ctx,) = f.b, f.args
    launch = get(b, ctx, CTX, "launch")
    with f.while_(lambda: b.icmp_unsigned("==", get(b, launch, LAUNCH, "stop"), c32(0))):
        with f.if_(b.icmp_unsigned("==", get(b, ctx, CTX, "block_busy"), c32(0))):
            number = b.atomic_rmw("add", field(b, launch, LAUNCH, "next"), c64(1), "monotonic")
            with f.if_(b.icmp_unsigned(">=", number, get(b, launch, LAUNCH, "total"))):
                f.ret(DONE)
            order = get(b, launch, LAUNCH, "order")
            chosen = f.variable(I64, number)
            with f.if_(b.icmp_unsigned("!=", b.ptrtoint(order, I64), c64(0))):
                b.store(b.load(at(b, order, b.shl(number, c64(3))), typ=I64), chosen)
            call(b, "rt_start_block", ir.VoidType(), ctx, b.load(chosen, typ=I64))
        status = call(b, "rt_run_block", I32, ctx)
        with f.if_(b.icmp_unsigned("!=", status, c32(DONE))):
            b.ret(status)
        put(b, ctx, CTX, "block_busy", 0)
        with f.if_(b.icmp_unsigned("!=", get(b, ctx, CTX, "rows_room"), c32(0))):
            f.ret(layout.WANT_ROOM)
    f.ret(DONE)


def build_run_block(module: ir.Module) -> None:
    """rt_run_block(ctx): run the current block to its end (DONE), or until a warp stops with something to be done."""
    f = Function(module, "rt_run_block", I32, PTR)
    b, (ctx,) = f.b, f.args
    progress = f.variable(I32, c32(1))  # a round that was left in the middle may have made some
    with f.while_(lambda: b.icmp_unsigned("!=", get(b, ctx, CTX, "live"), c32(0))):
        index = get(b, ctx, CTX, "next_warp")
        last = b.icmp_unsigned(">=", index, get(b, ctx, CTX, "warp_count"))
        with b.if_else(last) as (wrap, inside):
            with wrap:
                opened = call(b, "rt_release", I32, ctx)
                moved = b.or_(opened, b.load(progress, typ=I32))
                with f.if_(b.icmp_unsigned("==", moved, c32(0))):
                    b.ret(_stop(f, ctx, "deadlock", c32(0)))
                b.store(c32(0), progress)
                put(b, ctx, CTX, "next_warp", 0)
            with inside:
                warp = warp_at(b, ctx, index)
                with f.if_(b.icmp_unsigned("==", get(b, warp, WARP, "state"), c32(READY))):
                    _step(f, ctx, warp, index, progress)
                put(b, ctx, CTX, "next_warp", b.add(index, c32(1)))
    f.ret(DONE)


def _stop(f: Function, ctx: V, kind: str, index: V) -> V:
    fault(f.b, ctx, kind)
    put(f.b, ctx, CTX, "fault_warp", index)
    return c32(layout.FAULTED)


def _step(f: Function, ctx: V, warp: V, index: V, progress: V) -> None:
    """Run a warp. One that only finds itself still waiting has made no progress."""
    b = f.b
    before = get(b, warp, WARP, "pc")
    put(b, ctx, CTX, "moved", 0)
    status = call(b, "rt_run_warp", I32, ctx, warp)
    join = f.fn.append_basic_block("stepped")
    cases = {code: f.fn.append_basic_block(f"status{code}") for code in
             (layout.EXITED, layout.BARRIER, layout.YIELDED, layout.FAULT, layout.BAD_PC, layout.TRACE_FULL,
              layout.BLOCKED)}
    missing = f.fn.append_basic_block("missing")
    choice = b.switch(status, missing)
    for code, block in cases.items():
        choice.add_case(c32(code), block)
    b.position_at_end(missing)
    b.ret(b.sub(status, c32(16)))
    b.position_at_end(cases[layout.EXITED])
    b.store(c32(1), progress)
    put(b, warp, WARP, "state", layout.FINISHED)
    put(b, ctx, CTX, "live", b.sub(get(b, ctx, CTX, "live"), c32(1)))
    b.branch(join)
    b.position_at_end(cases[layout.BARRIER])
    b.store(c32(1), progress)
    call(b, "rt_arrive", ir.VoidType(), ctx, warp)
    b.branch(join)
    b.position_at_end(cases[layout.YIELDED])
    b.store(c32(1), progress)
    _refuel(f, ctx, warp, index)
    b.branch(join)
    for code, result in ((layout.FAULT, layout.FAULTED), (layout.BAD_PC, layout.WANT_PC),
                         (layout.TRACE_FULL, layout.WANT_ROOM)):
        b.position_at_end(cases[code])
        put(b, ctx, CTX, "fault_warp", index)
        f.ret(result)
    b.position_at_end(cases[layout.BLOCKED])
    moved = b.or_(b.icmp_unsigned("!=", get(b, warp, WARP, "pc"), before),
                  b.icmp_unsigned("!=", get(b, ctx, CTX, "moved"), c32(0)))
    b.store(b.or_(b.load(progress, typ=I32), b.zext(moved, I32)), progress)
    b.branch(join)
    b.position_at_end(join)


def _refuel(f: Function, ctx: V, warp: V, index: V) -> None:
    """A warp used up its slice: give the others a turn; beyond the budget it is taken for an endless loop."""
    b = f.b
    issued = b.add(get(b, warp, WARP, "issued"), get(b, ctx, CTX, "slice"))
    put(b, warp, WARP, "issued", issued)
    put(b, warp, WARP, "fuel", b.add(get(b, warp, WARP, "fuel"), get(b, ctx, CTX, "slice")))
    with f.if_(b.icmp_unsigned("!=", get(b, get(b, ctx, CTX, "launch"), LAUNCH, "stop"), c32(0))):
        f.ret(DONE)  # the launch is given up; rt_run sees it too
    budget = get(b, ctx, CTX, "budget")
    with f.if_(b.icmp_unsigned(">", issued, budget)):
        b.ret(_stop(f, ctx, "budget", index))


def build(module: ir.Module) -> None:
    for part in (build_start_block, build_arrive, build_release, build_run_warp, build_run_block, build_run):
        part(module)
