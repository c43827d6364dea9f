"""Registers that warps of a block give back and take (USETMAXREG). What is free is counted in registers a thread, for
each warp one."""

from llvmlite import ir

from ..irkit import I32, I64, PTR, Function, at, c32, c64, get, memset, put
from ..layout import CTX, POISON, REGS_OFFSET, VECTOR_BYTES, WARP
from .memory import fault

NAMES = ("rt_give_registers", "rt_take_registers")


def build_give(module: ir.Module) -> None:
    """rt_give_registers(ctx, warp, count): the warp keeps `count` registers a thread."""
    f = Function(module, "rt_give_registers", I32, PTR, PTR, I32)
    b, (ctx, warp, count) = f.b, f.args
    limit = get(b, warp, WARP, "limit")
    with f.if_(b.icmp_unsigned(">", count, limit)):
        f.ret(fault(b, ctx, "registers", c32(0), b.zext(count, I64)))
    put(b, ctx, CTX, "pool", b.add(get(b, ctx, CTX, "pool"), b.sub(limit, count)))
    put(b, warp, WARP, "limit", count)
    put(b, ctx, CTX, "moved", 1)
    f.ret(0)


def build_take(module: ir.Module) -> None:
    """rt_take_registers(ctx, warp, count): the warp gets `count`, the new ones with undefined content; 2 while there
    are not enough."""
    f = Function(module, "rt_take_registers", I32, PTR, PTR, I32)
    b, (ctx, warp, count) = f.b, f.args
    limit, pool = get(b, warp, WARP, "limit"), get(b, ctx, CTX, "pool")
    with f.if_(b.icmp_unsigned("<", count, limit)):
        f.ret(fault(b, ctx, "registers", c32(0), b.zext(count, I64)))
    more = b.sub(count, limit)
    with f.if_(b.icmp_unsigned("<", pool, more)):
        f.ret(2)
    first = b.add(b.mul(b.zext(limit, I64), c64(VECTOR_BYTES)), c64(REGS_OFFSET))
    memset(b, at(b, warp, first), POISON, b.mul(b.zext(more, I64), c64(VECTOR_BYTES)))
    put(b, ctx, CTX, "pool", b.sub(pool, more))
    put(b, warp, WARP, "limit", count)
    put(b, ctx, CTX, "moved", 1)
    f.ret(0)


def build(module: ir.Module) -> None:
    build_give(module)
    build_take(module)
