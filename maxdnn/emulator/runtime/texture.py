"""Fetches of one-dimensional linear textures, by index."""

from llvmlite import ir

from ..irkit import I1, I32, I64, PTR, Function, V, at, c32, c64, get
from ..layout import CTX, LANES, LAUNCH, SCRATCH_TEXEL
from .memory import VI1, VI32, VI64, fault, load_quads, pointers, splat, write_register


def build_texture(module: ir.Module) -> None:
    """rt_texture(ctx, handles, coords, mask, texels*): component c of the lanes in mask goes to register c of `texels`,
    four whole registers. Out-of-range coordinates give zero. An unbound handle is a fault."""
    f = Function(module, "rt_texture", I32, PTR, VI32, VI32, I32, PTR)
    b, (ctx, handles, coords, mask, texels) = f.b, f.args
    launch = get(b, ctx, CTX, "launch")
    first = b.cttz(mask, ir.Constant(I1, 0))
    with f.if_(b.icmp_unsigned("==", mask, c32(0))):
        f.ret(0)
    handle = b.extract_element(handles, first)
    alike = b.bitcast(b.icmp_unsigned("==", handles, splat(b, handle)), I32)
    index = b.zext(b.and_(handle, c32(0xFFFFF)), I64)
    with f.if_(b.icmp_unsigned(">=", index, b.zext(get(b, launch, LAUNCH, "texture_count"), I64))):
        f.ret(fault(b, ctx, "bounds", first, b.zext(handle, I64), "texture", 4))
    entry = at(b, get(b, launch, LAUNCH, "textures"), b.shl(index, c64(5)))
    base = b.load(entry, typ=I64)
    count = b.load(at(b, entry, 8), typ=I32)
    channels = b.load(at(b, entry, 12), typ=I32)
    with f.if_(b.icmp_unsigned("==", channels, c32(0))):
        f.ret(fault(b, ctx, "bounds", first, b.zext(handle, I64), "texture", 4))
    mine = b.and_(mask, alike)
    zeros = splat(b, b.add(b.ptrtoint(get(b, ctx, CTX, "scratch"), I64), c64(SCRATCH_TEXEL)))
    inside = b.icmp_unsigned("<", coords, splat(b, count))
    wanted = b.bitcast(mine, VI1)
    with b.if_else(b.icmp_unsigned("==", channels, c32(4)), likely=True) as (four, fewer):
        with four:
            hosts = b.add(splat(b, base), b.shl(b.zext(coords, VI64), ir.Constant(VI64, [4] * LANES)))
            hosts = b.select(b.and_(inside, wanted), hosts, zeros)
            for c, value in enumerate(load_quads(b, pointers(b, hosts))):
                write_register(f, texels, c, value, mine)
        with fewer:
            _few_channels(f, base, channels, coords, b.bitcast(inside, I32), mine, texels)
    rest = b.and_(mask, b.not_(alike))
    with f.if_(b.icmp_unsigned("!=", rest, c32(0))):
        b.ret(b.call(f.fn, [ctx, handles, coords, rest, texels]))
    f.ret(0)


def build_texel_addresses(module: ir.Module) -> None:
    """rt_texel_addresses(ctx, handles, coords): device address of each lane's texel, all ones out of range."""
    f = Function(module, "rt_texel_addresses", VI64, PTR, VI32, VI32)
    b, (ctx, handles, coords) = f.b, f.args
    launch = get(b, ctx, CTX, "launch")
    table, count = get(b, launch, LAUNCH, "textures"), b.zext(get(b, launch, LAUNCH, "texture_count"), I64)
    out = f.array(I64, LANES)
    with f.for_(c32(0), c32(LANES)) as lane:
        index = b.zext(b.and_(b.extract_element(handles, lane), c32(0xFFFFF)), I64)
        slot = at(b, out, b.shl(b.zext(lane, I64), c64(3)))
        b.store(c64(-1), slot)
        with f.if_(b.icmp_unsigned("<", index, count)):
            entry = at(b, table, b.shl(index, c64(5)))
            coord = b.extract_element(coords, lane)
            with f.if_(b.icmp_unsigned("<", coord, b.load(at(b, entry, 8), typ=I32))):
                texel = b.mul(b.zext(coord, I64), b.shl(b.zext(b.load(at(b, entry, 12), typ=I32), I64), c64(2)))
                b.store(b.add(b.load(at(b, entry, 16), typ=I64), texel), slot)
    b.ret(b.load(out, typ=VI64))


def _few_channels(f: Function, base: V, channels: V, coords: V, inside: V, mask: V, texels: V) -> None:
    """One- and two-channel texels; missing colours read 0, missing alpha 1.0."""
    b = f.b
    with f.lanes(mask) as lane:
        valid = b.trunc(b.lshr(inside, lane), I1)
        texel = b.mul(b.zext(b.extract_element(coords, lane), I64), b.shl(b.zext(channels, I64), c64(2)))
        for c in range(4):
            has = b.and_(valid, b.icmp_unsigned("<", c32(c), channels))
            absent = b.select(valid, c32(0x3F800000 if c == 3 else 0), c32(0))
            slot = at(b, texels, b.add(b.shl(b.zext(lane, I64), c64(2)), c64(4 * LANES * c)))
            b.store(absent, slot)
            with f.if_(has):
                b.store(b.load(b.inttoptr(b.add(base, b.add(texel, c64(4 * c))), PTR), typ=I32), slot)


def build(module: ir.Module) -> None:
    build_texture(module)
    build_texel_addresses(module)
