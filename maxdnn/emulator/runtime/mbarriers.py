"""mbarriers in shared memory and the bulk copies that complete on them.

A barrier is 64 bits: 1-20 the arrivals of a phase (2^20 minus them), 21-42 bytes announced and not yet copied (signed),
43-62 2^20 minus the arrivals that are missing, 63 the phase's parity. What programs write to begin one has this form.

A copy moves its bytes when somebody looks at its barrier, not before: until then its destination reads as poison, and
looking at it is a fault (proxies.py)."""

from llvmlite import ir

from ..irkit import I1, I32, I64, PTR, Function, V, at, c32, c64, call, get, memset, put
from ..layout import COPIES, COPY, COPY_BYTES, CTX, GRANULE, POISON, WARP
from .memory import VI32, fault
from .proxies import granule, known, of_barrier, tell

_EXPECTED, _BYTES, _MISSING, _PARITY = 1, 21, 43, 63
_COUNT, _BYTES_BITS = 20, 22


def _field(b: ir.IRBuilder, word: V, lsb: int, width: int) -> V:
    return b.and_(b.lshr(word, c64(lsb)), c64((1 << width) - 1))


def _with(b: ir.IRBuilder, word: V, lsb: int, width: int, value: V) -> V:
    mask = ((1 << width) - 1) << lsb
    return b.or_(b.and_(word, c64(~mask)), b.shl(b.and_(value, c64((1 << width) - 1)), c64(lsb)))


def _place(f: Function, ctx: V, lane: V, address: V) -> V:
    """A barrier's bytes, after the checks of its address."""
    b = f.b
    wide = b.zext(address, I64)
    with f.if_(b.icmp_unsigned(">", b.add(wide, c64(8)), get(b, ctx, CTX, "shared_bytes"))):
        f.ret(fault(b, ctx, "bounds", lane, wide, "shared", 8))
    with f.if_(b.icmp_unsigned("!=", b.and_(address, c32(7)), c32(0))):
        f.ret(fault(b, ctx, "misaligned", lane, wide, "shared", 8))
    return at(b, get(b, ctx, CTX, "shared"), wide)


def _half(b: ir.IRBuilder, address: V) -> V:
    """Which of a granule's two barriers this is, as a bit."""
    return b.shl(c32(1), b.and_(b.lshr(address, c32(3)), c32(1)))


def _known(f: Function, ctx: V, lane: V, address: V) -> V:
    place = _place(f, ctx, lane, address)
    b = f.b
    known = b.and_(get(b, granule(b, ctx, address), GRANULE, "barriers"), _half(b, address))
    with f.if_(b.icmp_unsigned("==", known, c32(0))):
        f.ret(fault(b, ctx, "mbarrier", lane, b.zext(address, I64), "shared", 8))
    return place


def build_init(module: ir.Module) -> None:
    """rt_mbarrier_init(ctx, address, low, high): SYNCS.EXCH; all ones in `low` takes the barrier away."""
    f = Function(module, "rt_mbarrier_init", I32, PTR, I32, I32, I32)
    b, (ctx, address, low, high) = f.b, f.args
    place = _place(f, ctx, c32(0), address)
    b.store(b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), c64(32))), place)
    entry = granule(b, ctx, address)
    put(b, entry, GRANULE, "barriers", b.or_(get(b, entry, GRANULE, "barriers"), _half(b, address)))
    put(b, entry, GRANULE, "writer", 0)
    put(b, ctx, CTX, "moved", 1)
    f.ret(0)


def build_drop(module: ir.Module) -> None:
    """rt_mbarrier_drop(ctx, addresses, mask): SYNCS.CCTL.IV; the bytes are free again."""
    f = Function(module, "rt_mbarrier_drop", I32, PTR, VI32, I32)
    b, (ctx, addresses, mask) = f.b, f.args
    with f.lanes(mask) as lane:
        address = b.extract_element(addresses, lane)
        _known(f, ctx, lane, address)
        entry = granule(b, ctx, address)
        rest = b.and_(get(b, entry, GRANULE, "barriers"), b.not_(_half(b, address)))
        put(b, entry, GRANULE, "barriers", rest)
    f.ret(0)


def build_change(module: ir.Module) -> None:
    """rt_mbarrier_change(ctx, place, address, lane, arrivals, bytes, drops): so many arrivals, so many bytes more to
    come; completes the phase when nothing is missing."""
    f = Function(module, "rt_mbarrier_change", I32, PTR, PTR, I32, I32, I64, I64, I64)
    b, (ctx, place, address, lane, arrivals, more, drops) = f.b, f.args
    word = b.load(place, typ=I64)
    full = c64(1 << _COUNT)
    missing = b.and_(b.sub(full, _field(b, word, _MISSING, _COUNT)), c64((1 << _COUNT) - 1))
    with f.if_(b.icmp_unsigned(">", arrivals, missing)):
        f.ret(fault(b, ctx, "arrivals", lane, b.zext(address, I64), "shared", 8))
    missing = b.sub(missing, arrivals)
    bytes_ = b.add(_field(b, word, _BYTES, _BYTES_BITS), more)
    expected = b.add(_field(b, word, _EXPECTED, _COUNT), drops)
    word = _with(b, word, _EXPECTED, _COUNT, expected)
    word = _with(b, word, _MISSING, _COUNT, b.sub(full, missing))
    word = _with(b, word, _BYTES, _BYTES_BITS, bytes_)
    b.store(word, place)
    nothing = b.or_(missing, _field(b, word, _BYTES, _BYTES_BITS))
    with f.if_(b.icmp_unsigned("==", nothing, c64(0))):
        b.store(b.xor(_with(b, word, _MISSING, _COUNT, expected), c64(1 << _PARITY)), place)
        epoch = b.add(get(b, ctx, CTX, "epoch"), c32(1))
        put(b, ctx, CTX, "epoch", epoch)
        put(b, granule(b, ctx, address), GRANULE, "completed", epoch)
    put(b, ctx, CTX, "moved", 1)
    f.ret(0)


def _change(f: Function, ctx: V, place: V, address: V, lane: V, arrivals: V, more: V, drops: V) -> None:
    status = call(f.b, "rt_mbarrier_change", I32, ctx, place, address, lane, arrivals, more, drops)
    with f.if_(f.b.icmp_unsigned("!=", status, c32(0))):
        f.ret(1)


def build_arrive(module: ir.Module) -> None:
    """rt_mbarrier_arrive(ctx, warp, addresses, arrivals, bytes, mask, drops, low, high): SYNCS.ARRIVE by each lane; the
    words as they were before go to low and high."""
    f = Function(module, "rt_mbarrier_arrive", I32, PTR, PTR, VI32, VI32, VI32, I32, I32, PTR, PTR)
    b, (ctx, warp, addresses, arrivals, more, mask, drops, low, high) = f.b, f.args
    with f.lanes(mask) as lane:
        address = b.extract_element(addresses, lane)
        place = _known(f, ctx, lane, address)
        word = b.load(place, typ=I64)
        slot = b.shl(b.zext(lane, I64), c64(2))
        b.store(b.trunc(word, I32), at(b, low, slot))
        b.store(b.trunc(b.lshr(word, c64(32)), I32), at(b, high, slot))
        count, bytes_ = b.zext(b.extract_element(arrivals, lane), I64), b.sext(b.extract_element(more, lane), I64)
        tell(b, of_barrier(b, ctx, address), known(b, warp))
        _change(f, ctx, place, address, lane, count, bytes_, b.zext(drops, I64))
    f.ret(0)


def build_copy(module: ir.Module) -> None:
    """rt_bulk_copy(ctx, warp, to, barrier, source, size, pc): UBLKCP from global to shared memory is sent off."""
    f = Function(module, "rt_bulk_copy", I32, PTR, PTR, I32, I32, I64, I32, I32)
    b, (ctx, warp, to, barrier, source, size, pc) = f.b, f.args
    wide = b.zext(to, I64)
    odd = b.and_(b.or_(b.or_(wide, source), b.zext(size, I64)), c64(15))
    with f.if_(b.icmp_unsigned("!=", odd, c64(0))):
        f.ret(fault(b, ctx, "copies", c32(0), wide, "shared", size))
    with f.if_(b.icmp_unsigned(">", b.add(wide, b.zext(size, I64)), get(b, ctx, CTX, "shared_bytes"))):
        f.ret(fault(b, ctx, "bounds", c32(0), wide, "shared", size))
    entry = call(b, "rt_find", PTR, ctx, source, b.zext(size, I64))
    with f.if_(b.icmp_unsigned("==", b.ptrtoint(entry, I64), c64(0))):
        f.ret(fault(b, ctx, "bounds", c32(0), source, "global", size))
    _known(f, ctx, c32(0), barrier)
    status = call(b, "rt_unit_write", I32, ctx, warp, to, size, barrier, pc)
    with f.if_(b.icmp_unsigned("!=", status, c32(0))):
        f.ret(1)
    memset(b, at(b, get(b, ctx, CTX, "shared"), wide), POISON, b.zext(size, I64))
    count = get(b, ctx, CTX, "copy_count")
    with f.if_(b.icmp_unsigned(">=", count, c32(COPIES))):
        f.ret(fault(b, ctx, "copies", c32(0), wide, "shared", size))
    record = at(b, get(b, ctx, CTX, "copies"), b.mul(b.zext(count, I64), c64(COPY_BYTES)))
    host = b.add(source, b.sub(b.load(at(b, entry, 16), typ=I64), b.load(entry, typ=I64)))
    for name, value in (("to", to), ("barrier", barrier), ("source", host), ("size", size), ("pc", pc)):
        put(b, record, COPY, name, value)
    put(b, ctx, CTX, "copy_count", b.add(count, c32(1)))
    f.ret(0)


def build_land(module: ir.Module) -> None:
    """rt_land(ctx, barrier): the copies under way to a barrier arrive."""
    f = Function(module, "rt_land", I32, PTR, I32)
    b, (ctx, barrier) = f.b, f.args
    shared, copies = get(b, ctx, CTX, "shared"), get(b, ctx, CTX, "copies")
    kept = f.variable(I32, c32(0))
    count = get(b, ctx, CTX, "copy_count")
    with f.for_(c32(0), count) as i:
        record = at(b, copies, b.mul(b.zext(i, I64), c64(COPY_BYTES)))
        with b.if_else(b.icmp_unsigned("==", get(b, record, COPY, "barrier"), barrier)) as (lands, stays):
            with lands:
                to, size = get(b, record, COPY, "to"), get(b, record, COPY, "size")
                host = b.inttoptr(get(b, record, COPY, "source"), PTR)
                call(b, "llvm.memcpy.p0.p0.i64", ir.VoidType(), at(b, shared, b.zext(to, I64)), host,
                     b.zext(size, I64), ir.Constant(I1, 0))
                with f.for_(c32(0), b.lshr(size, c32(4))) as part:
                    entry = granule(b, ctx, b.add(to, b.shl(part, c32(4))))
                    put(b, entry, GRANULE, "copying", 0)
                    put(b, entry, GRANULE, "copied", b.add(get(b, ctx, CTX, "epoch"), c32(1)))
                place = at(b, shared, b.zext(barrier, I64))
                _change(f, ctx, place, barrier, c32(0), c64(0), b.sub(c64(0), b.zext(size, I64)), c64(0))
            with stays:
                slot = b.load(kept, typ=I32)
                other = at(b, copies, b.mul(b.zext(slot, I64), c64(COPY_BYTES)))
                call(b, "llvm.memmove.p0.p0.i64", ir.VoidType(), other, record, c64(COPY_BYTES), ir.Constant(I1, 0))
                b.store(b.add(slot, c32(1)), kept)
    put(b, ctx, CTX, "copy_count", b.load(kept, typ=I32))
    f.ret(0)


def build_check(module: ir.Module) -> None:
    """rt_mbarrier_check(ctx, warp, addresses, parities, mask, out): in which lanes the phase of that parity (bit 31) is
    complete, as a mask at `out`."""
    f = Function(module, "rt_mbarrier_check", I32, PTR, PTR, VI32, VI32, I32, PTR)
    b, (ctx, warp, addresses, parities, mask, out) = f.b, f.args
    b.store(c32(0), out)
    with f.lanes(mask) as lane:
        address = b.extract_element(addresses, lane)
        place = _known(f, ctx, lane, address)
        parity = b.lshr(b.extract_element(parities, lane), c32(31))
        put(b, warp, WARP, "waiting", address)

        def complete(place: V = place, parity: V = parity) -> V:
            return b.icmp_unsigned("!=", b.trunc(b.lshr(b.load(place, typ=I64), c64(_PARITY)), I32), parity)

        with f.if_(b.not_(complete())):
            status = call(b, "rt_land", I32, ctx, address)
            with f.if_(b.icmp_unsigned("!=", status, c32(0))):
                f.ret(1)
        with f.if_(complete()):
            b.store(b.or_(b.load(out, typ=I32), b.shl(c32(1), lane)), out)
            epoch, synced = get(b, granule(b, ctx, address), GRANULE, "completed"), get(b, warp, WARP, "synced")
            put(b, warp, WARP, "synced", b.select(b.icmp_unsigned(">", epoch, synced), epoch, synced))
            tell(b, known(b, warp), of_barrier(b, ctx, address))
            put(b, ctx, CTX, "moved", 1)
    f.ret(0)


NAMES = ("rt_mbarrier_init", "rt_mbarrier_drop", "rt_mbarrier_arrive", "rt_mbarrier_check", "rt_bulk_copy")


def build(module: ir.Module) -> None:
    for part in (build_change, build_init, build_drop, build_arrive, build_copy, build_land, build_check):
        part(module)

