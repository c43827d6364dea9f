"""Shared-memory races: two warps touch a byte, one of them writes, and no barrier lies between.

Time is the number of barriers opened in the block so far. Every byte remembers its last write, read and atomic
operation (time, warp, instruction); an access by another warp races with it if it is not older than the barrier that
warp passed last. Atomic operations race with plain writes only: compilers build those the hardware lacks from a load
and a compare-and-swap. Exact for barriers of the whole block; for barriers of some warps a race may be missed, none is
invented. Order made by flags and locks in shared memory is not seen."""

from llvmlite import ir

from ..irkit import I32, I64, PTR, Function, V, at, c32, c64, get, put
from ..layout import CTX, SHADOW_BYTES, WARP
from .memory import VI32, fault

READ, WRITE, ATOMIC = range(3)
_MANY = 0xFFFFFFFF  # more than one warp
_PLACES = {READ: 0, WRITE: 12, ATOMIC: 24}  # offsets in a byte's entry: time, warp, instruction


def build_race(module: ir.Module) -> None:
    """rt_race(ctx, warp, addresses, mask, size, kind, pc): check and note a warp's access; 1 after a race."""
    f = Function(module, "rt_race", I32, PTR, PTR, VI32, I32, I32, I32, I32)
    b, (ctx, warp, addresses, mask, size, kind, pc) = f.b, f.args
    me, since, now = get(b, warp, WARP, "index"), get(b, warp, WARP, "synced"), get(b, ctx, CTX, "epoch")
    shadow = get(b, ctx, CTX, "shadow")
    with f.lanes(mask) as lane:
        first = b.extract_element(addresses, lane)
        with f.for_(first, b.add(first, size)) as byte:
            entry = at(b, shadow, b.mul(b.zext(byte, I64), c64(SHADOW_BYTES)))
            for earlier, offset in _PLACES.items():
                conflict = _recent(b, entry, offset, me, since)
                if earlier != WRITE:  # reads and atomics race with plain writes only
                    conflict = b.and_(conflict, b.icmp_unsigned("==", kind, c32(WRITE)))
                with f.if_(conflict):
                    b.ret(_report(f, ctx, entry, offset, lane, byte, size))
            _note(f, entry, kind, me, now, pc)
    f.ret(0)


def _load(b: ir.IRBuilder, entry: V, offset: int) -> V:
    return b.load(at(b, entry, offset), typ=I32)


def _recent(b: ir.IRBuilder, entry: V, offset: int, me: V, since: V) -> V:
    """Whether another warp made the access at `offset` after this one's last barrier."""
    new = b.icmp_unsigned(">=", _load(b, entry, offset), since)
    return b.and_(new, b.icmp_unsigned("!=", _load(b, entry, offset + 4), me))


def _report(f: Function, ctx: V, entry: V, offset: int, lane: V, byte: V, size: V) -> V:
    b = f.b
    put(b, ctx, CTX, "fault_other", _load(b, entry, offset + 4))
    put(b, ctx, CTX, "fault_other_pc", _load(b, entry, offset + 8))
    return fault(b, ctx, "race", lane, b.zext(byte, I64), "shared", size)


def _note(f: Function, entry: V, kind: V, me: V, now: V, pc: V) -> None:
    """Make this the last access of its kind; when another warp's is as new, both are kept as "several"."""
    b = f.b
    place = at(b, entry, b.mul(b.zext(kind, I64), c64(12)))
    again = b.and_(b.icmp_unsigned("==", _load(b, place, 0), now), b.icmp_unsigned("!=", _load(b, place, 4), me))
    for k, value in enumerate((now, b.select(again, c32(_MANY), me), pc)):
        b.store(value, at(b, place, 4 * k))


def build(module: ir.Module) -> None:
    build_race(module)
