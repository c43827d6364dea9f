"""Loads and stores of a warp: bounds and alignment of all lanes are checked at once, then the lanes' values are moved.

A site is a memory instruction of a kernel; each worker remembers per site the allocation it touched last, so that the
table of allocations is searched only when a site moves on to another one."""

from llvmlite import ir

from ..irkit import I1, I32, I64, PTR, Function, V, at, c32, c64, call, field, get
from ..layout import BANKS, CTX, FAULT_KINDS, LANES, LAUNCH, LOCAL_WINDOW, SHARED_WINDOW, SPACES

KINDS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}
SPACE_ADDRESS = {"global": 64, "generic": 64, "shared": 32, "local": 32}
VI32, VI64, VI1 = (ir.VectorType(t, LANES) for t in (I32, I64, I1))


def splat(b: ir.IRBuilder, scalar: V) -> V:
    vector = ir.VectorType(scalar.type, LANES)
    if isinstance(scalar, ir.Constant):
        return ir.Constant(vector, [scalar.constant] * LANES)
    one = b.insert_element(ir.Constant(vector, ir.Undefined), scalar, c32(0))
    return b.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(VI32, None))


def _lane_numbers(type_: ir.Type, step: int = 1) -> ir.Constant:
    return ir.Constant(ir.VectorType(type_, LANES), [step * i for i in range(LANES)])


def access_function(module: ir.Module, what: str, space: str, kind: str) -> Function:
    """A load or a store of (ctx, site, addresses, lane mask, first register's address)."""
    addresses = VI64 if SPACE_ADDRESS[space] == 64 else VI32
    return Function(module, f"rt_{what}_{space}_{kind}", I32, PTR, PTR, addresses, I32, PTR)


# -- the checks ---------------------------------------------------------------------------------------------------


def build_fault(module: ir.Module) -> None:
    """rt_fault(ctx, kind, lane, address, space, size): note a fault; returns 1."""
    f = Function(module, "rt_fault", I32, PTR, I32, I32, I64, I32, I32)
    ctx, kind, lane, address, space, size = f.args
    for name, value in (("fault_kind", kind), ("fault_lane", lane), ("fault_address", address),
                        ("fault_space", space), ("fault_size", size)):
        f.b.store(value, field(f.b, ctx, CTX, name))
    f.ret(1)


def fault(b: ir.IRBuilder, ctx: V, kind: str | V, lane: V | None = None, address: V | None = None,
          space: str = "global", size: int | V = 0) -> V:
    """Note a fault, whose number may be computed; gives 1."""
    number = c32(FAULT_KINDS.index(kind)) if isinstance(kind, str) else kind
    return call(b, "rt_fault", I32, ctx, number, c32(0) if lane is None else lane,
                c64(0) if address is None else address, c32(SPACES.index(space)),
                c32(size) if isinstance(size, int) else size)


def build_resolve(module: ir.Module) -> None:
    """rt_resolve(ctx, site, addresses*, mask, size, hosts*): host address of every lane in mask; 1 after a fault."""
    for space in ("global", "generic"):
        f = Function(module, f"rt_resolve_{space}", I32, PTR, PTR, PTR, I32, I32, PTR)
        b, (ctx, site, addresses, mask, size, hosts) = f.b, f.args
        size64 = b.zext(size, I64)
        with f.lanes(mask) as lane:
            slot = b.shl(b.zext(lane, I64), c64(3))
            address = b.load(at(b, addresses, slot), typ=I64)
            out = at(b, hosts, slot)
            wrong = b.icmp_unsigned("!=", b.and_(address, b.sub(size64, c64(1))), c64(0))
            with f.if_(wrong):
                f.ret(fault(b, ctx, "misaligned", lane, address, space, size))
            if space == "generic":
                _windows(f, ctx, lane, address, size64, out)
            if not b.block.is_terminated:
                outer = f.fn.append_basic_block("table")
                done = f.fn.append_basic_block("found")
                if space == "generic":
                    handled = b.icmp_unsigned("!=", b.load(out, typ=I64), c64(0))
                    b.cbranch(handled, done, outer)
                else:
                    b.branch(outer)
                b.position_at_end(outer)
                entry = call(b, "rt_find", PTR, ctx, address, size64)
                with f.if_(b.icmp_unsigned("==", b.ptrtoint(entry, I64), c64(0))):
                    f.ret(fault(b, ctx, "bounds", lane, address, space, size))
                low = b.load(entry, typ=I64)
                nbytes = b.load(at(b, entry, 8), typ=I64)
                delta = b.sub(b.load(at(b, entry, 16), typ=I64), low)
                b.store(low, site)
                b.store(b.add(b.sub(nbytes, size64), c64(1)), at(b, site, 8))
                b.store(delta, at(b, site, 16))
                b.store(b.add(address, delta), out)
                b.branch(done)
                b.position_at_end(done)
        f.ret(0)


def _windows(f: Function, ctx: V, lane: V, address: V, size: V, out: V) -> None:
    """Generic addresses inside the shared or local window; stores 0 where the address is in neither."""
    b = f.b
    b.store(c64(0), out)
    top = b.lshr(address, c64(24))
    offset = b.and_(address, c64(0xFFFFFF))
    for code, base, room in ((SHARED_WINDOW, "shared", "shared_bytes"), (LOCAL_WINDOW, "local", "local_bytes")):
        with f.if_(b.icmp_unsigned("==", top, c64(code))):
            bad = b.icmp_unsigned(">", b.add(offset, size), get(b, ctx, CTX, room))
            with f.if_(bad):
                f.ret(fault(b, ctx, "bounds", lane, offset, base, b.trunc(size, I32)))
            host = b.add(b.ptrtoint(get(b, ctx, CTX, base), I64), offset)
            if base == "local":
                host = b.add(host, b.mul(b.zext(lane, I64), get(b, ctx, CTX, "local_stride")))
            b.store(host, out)


def build_find(module: ir.Module) -> None:
    """rt_find(ctx, address, size): the allocation entry {low, bytes, host, _} that holds the range, or null."""
    f = Function(module, "rt_find", PTR, PTR, I64, I64)
    b, (ctx, address, size) = f.b, f.args
    launch = get(b, ctx, CTX, "launch")
    table = get(b, launch, LAUNCH, "allocations")
    low = f.variable(I64, c64(0))
    high = f.variable(I64, get(b, launch, LAUNCH, "allocation_count"))
    with f.while_(lambda: b.icmp_unsigned("<", b.load(low, typ=I64), b.load(high, typ=I64))):
        middle = b.lshr(b.add(b.load(low, typ=I64), b.load(high, typ=I64)), c64(1))
        start = b.load(at(b, table, b.shl(middle, c64(5))), typ=I64)
        with b.if_else(b.icmp_unsigned("<=", start, address)) as (then, other):
            with then:
                b.store(b.add(middle, c64(1)), low)
            with other:
                b.store(middle, high)
    count = b.load(low, typ=I64)
    null = ir.Constant(PTR, None)
    with f.if_(b.icmp_unsigned("==", count, c64(0))):
        b.ret(null)
    entry = at(b, table, b.shl(b.sub(count, c64(1)), c64(5)))
    nbytes, offset = b.load(at(b, entry, 8), typ=I64), b.sub(address, b.load(entry, typ=I64))
    fits = b.and_(b.icmp_unsigned(">=", nbytes, size), b.icmp_unsigned("<=", offset, b.sub(nbytes, size)))
    b.ret(b.select(fits, entry, null))


def _near_hosts(f: Function, ctx: V, space: str, addresses: V, mask: V, size: int) -> V:
    """Checked host addresses in shared or local memory."""
    b = f.b
    room = get(b, ctx, CTX, f"{space}_bytes")
    wide = b.zext(addresses, VI64)
    inside = b.icmp_unsigned("<=", b.add(wide, ir.Constant(VI64, [size] * LANES)), splat(b, room))
    aligned = b.icmp_unsigned("==", b.and_(addresses, ir.Constant(VI32, [size - 1] * LANES)), ir.Constant(VI32, None))
    good = b.bitcast(b.and_(inside, aligned), I32)
    bad = b.and_(mask, b.not_(good))
    with f.b.if_then(b.icmp_unsigned("!=", bad, c32(0)), likely=False):
        lane = b.cttz(bad, ir.Constant(I1, 1))
        is_inside = b.trunc(b.lshr(b.bitcast(inside, I32), lane), I1)
        kind = b.select(is_inside, *(c32(FAULT_KINDS.index(n)) for n in ("misaligned", "bounds")))
        f.ret(fault(b, ctx, kind, lane, b.extract_element(wide, lane), space, size))
    hosts = b.add(wide, splat(b, b.ptrtoint(get(b, ctx, CTX, space), I64)))
    if space == "local":
        stride = splat(b, get(b, ctx, CTX, "local_stride"))
        hosts = b.add(hosts, b.mul(stride, _lane_numbers(I64)))
    return hosts


def _far_hosts(f: Function, ctx: V, space: str, site: V, addresses: V, mask: V, size: int) -> V:
    """Checked host addresses in global memory: the site's allocation if it holds all lanes, else the table."""
    b = f.b
    slow, join = f.fn.append_basic_block("search"), f.fn.append_basic_block("resolved")
    low, room, delta = (b.load(at(b, site, o), typ=I64) for o in (0, 8, 16))
    inside = b.icmp_unsigned("<", b.sub(addresses, splat(b, low)), splat(b, room))
    aligned = b.icmp_unsigned("==", b.and_(addresses, ir.Constant(VI64, [size - 1] * LANES)), ir.Constant(VI64, None))
    good = b.or_(b.bitcast(b.and_(inside, aligned), I32), b.not_(mask))
    quick = b.add(addresses, splat(b, delta))
    fast = b.block
    b.cbranch(b.icmp_unsigned("==", good, c32(-1)), join, slow)
    b.position_at_end(slow)
    given, found = f.array(I64, LANES), f.array(I64, LANES)
    b.store(addresses, given)
    status = call(b, f"rt_resolve_{space}", I32, ctx, site, given, mask, c32(size), found)
    with f.b.if_then(b.icmp_unsigned("!=", status, c32(0)), likely=False):
        f.ret(1)
    searched = b.load(found, typ=VI64)
    slow = b.block
    b.branch(join)
    b.position_at_end(join)
    hosts = b.phi(VI64)
    hosts.add_incoming(quick, fast)
    hosts.add_incoming(searched, slow)
    return hosts


def hosts_of(f: Function, ctx: V, space: str, site: V, addresses: V, mask: V, size: int) -> V:
    """Host addresses of the lanes in mask, as <32 x i64>; lanes outside mask get the worker's scratch area."""
    if space in ("shared", "local"):
        hosts = _near_hosts(f, ctx, space, addresses, mask, size)
    else:
        hosts = _far_hosts(f, ctx, space, site, addresses, mask, size)
    scratch = splat(f.b, f.b.ptrtoint(get(f.b, ctx, CTX, "scratch"), I64))
    return f.b.select(f.b.bitcast(mask, VI1), hosts, scratch)


# -- moving the values --------------------------------------------------------------------------------------------


def pointers(b: ir.IRBuilder, hosts: V) -> list[V]:
    return [b.inttoptr(b.extract_element(hosts, c32(i)), PTR) for i in range(LANES)]


def _consecutive(b: ir.IRBuilder, hosts: V, size: int, mask: V) -> V:
    """Whether all 32 lanes take part and touch one contiguous run."""
    first = b.extract_element(hosts, c32(0))
    ideal = b.add(splat(b, first), _lane_numbers(I64, size))
    same = b.bitcast(b.icmp_unsigned("==", hosts, ideal), I32)
    return b.icmp_unsigned("==", b.and_(same, mask), c32(-1))


def write_register(f: Function, dest: V, index: int, value: V, mask: V) -> None:
    """Store a <32 x i32> into the register `index` after `dest`, for the lanes in mask."""
    b = f.b
    slot = at(b, dest, 4 * LANES * index)
    with b.if_else(b.icmp_unsigned("==", mask, c32(-1)), likely=True) as (full, part):
        with full:
            b.store(value, slot, align=64)
        with part:
            old = b.load(slot, typ=VI32, align=64)
            b.store(b.select(b.bitcast(mask, VI1), value, old), slot, align=64)


def _gather(b: ir.IRBuilder, hosts: V, bits: int) -> V:
    """A number from each address, lane by lane."""
    scalar = ir.IntType(bits)
    vector: V = ir.Constant(ir.VectorType(scalar, LANES), ir.Undefined)
    for i, pointer in enumerate(pointers(b, hosts)):
        vector = b.insert_element(vector, b.load(pointer, typ=scalar, align=bits // 8), c32(i))
    return vector


def _scatter(b: ir.IRBuilder, hosts: V, values: V) -> None:
    for i, pointer in enumerate(pointers(b, hosts)):
        b.store(b.extract_element(values, c32(i)), pointer, align=values.type.element.width // 8)


def _word_load(f: Function, hosts: V, mask: V) -> V:
    """32-bit loads: one vector load for consecutive lanes, else lane by lane."""
    b = f.b
    one, each, join = (f.fn.append_basic_block(n) for n in ("one", "each", "joined"))
    b.cbranch(_consecutive(b, hosts, 4, mask), one, each)
    b.position_at_end(one)
    whole = b.load(b.inttoptr(b.extract_element(hosts, c32(0)), PTR), typ=VI32, align=4)
    b.branch(join)
    b.position_at_end(each)
    vector = _gather(b, hosts, 32)
    b.branch(join)
    b.position_at_end(join)
    value = b.phi(VI32)
    value.add_incoming(whole, one)
    value.add_incoming(vector, each)
    return value


def _shuffle(b: ir.IRBuilder, x: V, y: V, indices: list[int]) -> V:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(indices)), indices))


def _concat(b: ir.IRBuilder, parts: list[V]) -> V:
    while len(parts) > 1:
        n = parts[0].type.count
        parts = [_shuffle(b, parts[i], parts[i + 1], list(range(2 * n))) for i in range(0, len(parts), 2)]
    return parts[0]


def _unpack(b: ir.IRBuilder, x: V, y: V, upper: bool, wide: bool) -> V:
    """Interleave the lower or upper halves of each group of four words of two 16-word vectors, by words or by pairs."""
    out = []
    for group in range(0, 16, 4):
        base = group + (2 if upper else 0)
        out += [base, base + 1, 16 + base, 17 + base] if wide else [base, 16 + base, base + 1, 17 + base]
    return _shuffle(b, x, y, out)


def transpose4(b: ir.IRBuilder, rows: list[V]) -> list[V]:
    """Four 16-word vectors whose group q holds four words of lane 4q + row, to the four words of 16 lanes; its own
    inverse."""
    low = _unpack(b, rows[0], rows[1], False, False), _unpack(b, rows[2], rows[3], False, False)
    high = _unpack(b, rows[0], rows[1], True, False), _unpack(b, rows[2], rows[3], True, False)
    return [_unpack(b, *low, False, True), _unpack(b, *low, True, True),
            _unpack(b, *high, False, True), _unpack(b, *high, True, True)]


def load_quads(b: ir.IRBuilder, pointers: list[V]) -> list[V]:
    """Four consecutive words of each of 32 lanes as four registers."""
    quad = ir.VectorType(I32, 4)
    sides = []
    for side in (0, 16):
        rows = [_concat(b, [b.load(pointers[side + 4 * q + j], typ=quad, align=16) for q in range(4)])
                for j in range(4)]
        sides.append(transpose4(b, rows))
    return [_concat(b, [sides[0][c], sides[1][c]]) for c in range(4)]


def _store_quads(b: ir.IRBuilder, pointers: list[V], registers: list[V]) -> None:
    for side in (0, 16):
        columns = [_shuffle(b, r, r, list(range(side, side + 16))) for r in registers]
        rows = transpose4(b, columns)
        for j in range(4):
            for q in range(4):
                b.store(_shuffle(b, rows[j], rows[j], list(range(4 * q, 4 * q + 4))),
                        pointers[side + 4 * q + j], align=16)


def build_load(module: ir.Module, space: str, kind: str) -> None:
    f = access_function(module, "load", space, kind)
    b, (ctx, site, addresses, mask, dest) = f.b, f.args
    hosts = hosts_of(f, ctx, space, site, addresses, mask, KINDS[kind])
    if kind == "32":
        values = [_word_load(f, hosts, mask)]
    elif kind == "64":
        pairs = _gather(b, hosts, 64)
        values = [b.trunc(pairs, VI32), b.trunc(b.lshr(pairs, ir.Constant(VI64, [32] * LANES)), VI32)]
    elif kind == "128":
        values = load_quads(b, pointers(b, hosts))
    else:
        values = [(b.sext if kind[0] == "S" else b.zext)(_gather(b, hosts, 8 * KINDS[kind]), VI32)]
    for index, value in enumerate(values):
        write_register(f, dest, index, value, mask)
    f.ret(0)


def build_store(module: ir.Module, space: str, kind: str) -> None:
    f = access_function(module, "store", space, kind)
    b, (ctx, site, addresses, mask, source) = f.b, f.args
    size = KINDS[kind]
    hosts = hosts_of(f, ctx, space, site, addresses, mask, size)
    registers = [b.load(at(b, source, 4 * LANES * r), typ=VI32, align=64) for r in range(max(1, size // 4))]
    if kind == "128":
        _store_quads(b, pointers(b, hosts), registers)
    elif kind == "32":
        _word_store(f, hosts, registers[0], mask)
    elif kind == "64":
        low, high = (b.zext(r, VI64) for r in registers)
        _scatter(b, hosts, b.or_(low, b.shl(high, ir.Constant(VI64, [32] * LANES))))
    else:
        _scatter(b, hosts, b.trunc(registers[0], ir.VectorType(ir.IntType(8 * size), LANES)))
    f.ret(0)


def _word_store(f: Function, hosts: V, value: V, mask: V) -> None:
    b = f.b
    with b.if_else(_consecutive(b, hosts, 4, mask)) as (one, each):
        with one:
            b.store(value, b.inttoptr(b.extract_element(hosts, c32(0)), PTR), align=4)
        with each:
            _scatter(b, hosts, value)


def build_constant_load(module: ir.Module, kind: str) -> None:
    """rt_load_const_KIND(ctx, bank, offsets, mask, dest): LDC with an index register."""
    f = Function(module, f"rt_load_const_{kind}", I32, PTR, I32, VI32, I32, PTR)
    b, (ctx, bank, offsets, mask, dest) = f.b, f.args
    size = KINDS[kind]
    known = b.icmp_unsigned("<", bank, c32(BANKS))
    slot = b.shl(b.zext(b.select(known, bank, c32(BANKS - 1)), I64), c64(3))  # the last bank is never filled
    base = b.load(at(b, field(b, ctx, CTX, "banks"), slot), typ=I64)
    room = b.load(at(b, field(b, ctx, CTX, "bank_bytes"), slot), typ=I64)
    with f.lanes(mask) as lane:
        offset = b.zext(b.extract_element(offsets, lane), I64)
        with f.if_(b.icmp_unsigned(">", b.add(offset, c64(size)), room)):
            f.ret(fault(b, ctx, "bounds", lane, offset, "constant", size))
        with f.if_(b.icmp_unsigned("!=", b.and_(offset, c64(size - 1)), c64(0))):
            f.ret(fault(b, ctx, "misaligned", lane, offset, "constant", size))
        host = b.inttoptr(b.add(base, offset), PTR)
        place = b.shl(b.zext(lane, I64), c64(2))
        if size < 4:
            value = b.load(host, typ=ir.IntType(8 * size))
            b.store(b.sext(value, I32) if kind[0] == "S" else b.zext(value, I32), at(b, dest, place))
        else:
            for word in range(size // 4):
                b.store(b.load(at(b, host, 4 * word), typ=I32), at(b, at(b, dest, place), 4 * LANES * word))
    f.ret(0)


def build(module: ir.Module) -> None:
    build_fault(module)
    build_find(module)
    build_resolve(module)
    for kind in KINDS:
        for space in SPACE_ADDRESS:
            build_load(module, space, kind)
            build_store(module, space, kind)
        build_constant_load(module, kind)
