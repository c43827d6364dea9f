"""The CPU tracer: the abstract machine as LLVM IR for one warp, 32 lanes per value.

Registers live in the warp's record in memory. Inside a basic block the values last read or written are kept by name, as
many as the host's vector registers hold, so that LLVM finds short live ranges and never spills. The `full` variant of a
kernel knows that all 32 lanes are active; the other one blends every write with the old value."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from llvmlite import ir

from ..isa import PT, RZ, Instruction
from ..semantics.machine import FLAGS, UNIFORM, UNIFORM_PREDICATE, UNIFORM_ZERO
from . import layout
from .beside import Beside, Units
from .irkit import I32, I64, PTR, at, c32, c64, field, get, put
from .lanes import ELEMENTS, V
from .layout import CTX, FAULT_KINDS, LANES, LAUNCH, REGS_OFFSET, VECTOR_BYTES, WARP
from .native import has_wide_vectors
from .runtime.atomics import OPERATIONS
from .runtime.memory import KINDS, VI1, VI32, VI64
from .runtime.races import ATOMIC, READ, WRITE
from .runtime.rounding import function_name

# CgaCtaId: where the block's window of shared memory lies, as generic addresses see it.
_FIXED_REGISTERS = {"CgaCtaId": layout.SHARED_WINDOW, "VIRTUALSMID": 0, "SWINHI": 0, "VIRTCFG": 1 << 20}


class WarpTracer(Beside):
    def __init__(self, function: ir.Function, builder: ir.IRBuilder, full: bool, bank_bytes: Sequence[int],
                 checks: frozenset[str] = frozenset(), units: Units | None = None) -> None:
        super().__init__(builder, LANES)
        self.units = units or self.units
        self.ctx, self.warp = function.args
        self.function = function
        self.full, self.bank_bytes = full, bank_bytes
        self.tracing, self.racing, self.undefined, self.hollow = (
            name in checks for name in ("trace", "race", "undefined", "hollow"))
        self.window = 10 if has_wide_vectors() else 3
        self.failed = function.append_basic_block("failed")
        with builder.goto_block(self.failed):
            self._failed_at = builder.phi(I32)
            builder.store(self._failed_at, field(builder, self.ctx, CTX, "fault_pc"))
            builder.ret(c32(layout.FAULT))
        self.failures = 0
        self.inst: Instruction | None = None

    # -- a block, an instruction -------------------------------------------------------------------------------

    def start_block(self, length: int) -> None:
        """Forget everything known by name; in the partial variant read which lanes are active."""
        self.block_length, self.position = length, 0
        self._regs: OrderedDict[int, V] = OrderedDict()
        self._preds: dict[int, V] = {}
        self._flags: dict[str, Callable[[], V]] = {}
        self._constants: dict[tuple[int, int], V] = {}
        if self.full:
            self.active_bits: V = c32(-1)
            self.active: V = None
        else:
            self.active_bits = get(self.b, self.warp, WARP, "active")
            self.active = self.b.bitcast(self.active_bits, VI1)
        self.mask, self.mask_bits = self.active, self.active_bits

    def start(self, inst: Instruction) -> None:
        """Set the lanes that execute an instruction: active and guarded."""
        self.inst = inst
        self.position += 1
        guard = inst.guard
        self.mask, self.mask_bits = self.active, self.active_bits
        if inst.row.uniform_guard:  # acts once for the warp, whichever lanes are active
            self.mask, self.mask_bits = None, c32(-1)
        if guard.index == PT and not guard.negated:
            return
        if inst.row.uniform_guard:
            self.mask = self.pred(UNIFORM_PREDICATE + guard.index)
            self.mask = self.not_(self.mask) if guard.negated else self.mask
            self.mask_bits = self.b.bitcast(self.mask, I32)
            return
        chosen = self.const("i1", 0) if guard.index == PT else self.pred(guard.index)
        chosen = self.not_(chosen) if guard.negated and guard.index != PT else chosen
        self.mask = chosen if self.active is None else self.b.and_(chosen, self.active)
        self.mask_bits = self.b.bitcast(self.mask, I32)

    def end_block(self) -> None:
        """Bring what was delayed to memory."""
        for name, value in self._flags.items():
            self.b.store(self.b.bitcast(value(), I32), self._cell("flags", FLAGS.index(name)))
        self._flags = {}

    def _merge_bits(self, new: V, old: Callable[[], V]) -> V:
        if self.mask is None:
            return new
        before = old()
        return self.b.xor(before, self.b.and_(self.b.xor(before, new), self.mask))

    # -- registers ---------------------------------------------------------------------------------------------

    def slot(self, index: int) -> V:
        if index >= UNIFORM:
            return at(self.b, field(self.b, self.warp, WARP, "uniform"), VECTOR_BYTES * (index - UNIFORM))
        return at(self.b, self.warp, REGS_OFFSET + VECTOR_BYTES * index)

    def _remember(self, index: int, value: V) -> V:
        self._regs[index] = value
        self._regs.move_to_end(index)
        if len(self._regs) > self.window:
            self._regs.popitem(last=False)
        return value

    def forget(self, first: int, count: int) -> None:
        for index in range(first, first + count):
            self._regs.pop(index, None)

    def reg(self, index: int) -> V:
        self._must_be_written(index, 1)
        return self._reg(index)

    def _reg(self, index: int) -> V:
        if index in (RZ, UNIFORM_ZERO):
            return self.const("i32", 0)
        known = self._regs.get(index)
        if known is None:
            known = self.b.load(self.slot(index), typ=VI32, align=64)
        return self._remember(index, known)

    def set_reg(self, index: int, value: V) -> None:
        if index in (RZ, UNIFORM_ZERO):
            return
        merged = value if self.mask is None else self.b.select(self.mask, value, self._reg(index))
        self._note_written(index, 1)
        self.b.store(merged, self.slot(index), align=64)
        self._remember(index, merged)

    def _cell(self, row: str, index: int) -> V:
        """The address of a mask of lanes in one of the record's rows."""
        return at(self.b, field(self.b, self.warp, WARP, row), 4 * index)

    def _must_be_written(self, first: int, count: int) -> None:
        """Fault if a product still writes one of these registers; with the check on also if an executing lane never
        wrote it, and the value matters."""
        self.watch(first, count, False)
        if not self.undefined or first == RZ or first >= UNIFORM:
            return
        caring = self._caring()
        for index in range(first, min(first + count, RZ)):
            missing = self.b.and_(caring, self.b.not_(self.b.load(self._cell("written", index), typ=I32)))
            self.fault("undefined register", address=index, lanes=missing)

    def _caring(self) -> V:
        """The lanes whose result depends on this instruction's registers: compilers compare undefined values where the
        predicate they combine with decides alone, and save registers of a caller that never used them."""
        inst = self.inst
        if inst is None or inst.opcode == "STL":
            return c32(0)
        how, ps = inst.mods.get("bool"), inst.operand("ps")
        if how not in ("AND", "OR") or ps is None or ps.value == PT:
            return self.mask_bits
        open_ = self.b.bitcast(self.pred(ps.value), I32)
        if ps.inv != (how == "OR"):
            open_ = self.b.not_(open_)
        return self.b.and_(self.mask_bits, open_)

    def _note_written(self, first: int, count: int) -> None:
        self.watch(first, count, True)
        if not self.undefined or first == RZ or first >= UNIFORM:
            return
        for index in range(first, min(first + count, RZ)):
            slot_ = self._cell("written", index)
            self.b.store(self.b.or_(self.b.load(slot_, typ=I32), self.mask_bits), slot_)

    def pred(self, index: int) -> V:
        if index in (PT, UNIFORM_PREDICATE + PT):
            return self.const("i1", 1)
        if index not in self._preds:
            self._preds[index] = self.b.bitcast(self.b.load(self._cell("preds", index), typ=I32), VI1)
        return self._preds[index]

    def set_pred(self, index: int, value: V) -> None:
        if index in (PT, UNIFORM_PREDICATE + PT):
            return
        merged = self._merge_bits(value, lambda: self.pred(index))
        self._preds[index] = merged
        self.b.store(self.b.bitcast(merged, I32), self._cell("preds", index))

    def flag(self, name: str) -> V:
        if name in self._flags:
            value = self._flags[name]()
            self._flags[name] = lambda: value
            return value
        return self.b.bitcast(self.b.load(self._cell("flags", FLAGS.index(name)), typ=I32), VI1)

    def set_flag(self, name: str, value: Callable[[], V]) -> None:
        if self.mask is None:
            self._flags[name] = value
            return
        merged = self._merge_bits(value(), lambda: self.flag(name))
        self._flags[name] = lambda: merged

    # -- constants and special registers -----------------------------------------------------------------------

    def constant(self, bank: int, offset: int) -> V:
        if (bank, offset) not in self._constants:
            if bank >= len(self.bank_bytes) or offset + 4 > self.bank_bytes[bank]:
                self.fault("bounds", space="constant", address=offset, size=4)
                return self.const("i32", 0)
            base = self.b.load(at(self.b, field(self.b, self.ctx, CTX, "banks"), 8 * bank), typ=PTR)
            self._constants[bank, offset] = self.b.load(at(self.b, base, offset), typ=I32)
        return self.broadcast(self._constants[bank, offset])

    def special(self, name: str) -> V:
        name = name.removeprefix("SR_")
        found = self._lane_register(name) or self._uniform_register(name)
        if found is None:
            self.unsupported(f"special register {name} is not emulated")
        return found or self.const("i32", 0)

    def _lane_register(self, name: str) -> V | None:
        tables = {"LANEID": lambda i: i, "EQMASK": lambda i: 1 << i, "LTMASK": lambda i: (1 << i) - 1,
                  "LEMASK": lambda i: (2 << i) - 1, "GTMASK": lambda i: ~((2 << i) - 1), "GEMASK": lambda i: -(1 << i)}
        if name in tables:
            return ir.Constant(VI32, [tables[name](i) & 0xFFFFFFFF for i in range(LANES)])
        if name.startswith("TID."):
            return self._tid("XYZ".index(name[4]))
        if name == "TID":
            packed = self.or_(self._tid(0), self.shl(self._tid(1), self.const("i32", 16)))
            return self.or_(packed, self.shl(self._tid(2), self.const("i32", 26)))
        return None

    def _tid(self, axis: int) -> V:
        return self.b.load(at(self.b, field(self.b, self.warp, WARP, "tid"), VECTOR_BYTES * axis), typ=VI32, align=64)

    def _uniform_register(self, name: str) -> V | None:
        b = self.b
        if name.startswith("CTAID."):
            return self.broadcast(get(b, self.ctx, CTX, f"ctaid_{name[6].lower()}"))
        if name in _FIXED_REGISTERS:
            return self.const("i32", _FIXED_REGISTERS[name])
        if name == "VIRTID":
            return self.broadcast(b.shl(get(b, self.warp, WARP, "index"), c32(8)))
        if name == "SMEMSZ":
            return self.broadcast(b.trunc(get(b, self.ctx, CTX, "shared_bytes"), I32))
        if name in ("CLOCK", "CLOCKLO", "CLOCKHI", "GLOBALTIMERLO", "GLOBALTIMERHI"):
            issued = b.sub(b.add(get(b, self.warp, WARP, "issued"), get(b, self.ctx, CTX, "slice")),
                           get(b, self.warp, WARP, "fuel"))
            issued = b.add(issued, c64(self.position - self.block_length))
            half = b.lshr(issued, c64(32)) if name.endswith("HI") else issued
            return self.broadcast(b.trunc(half, I32))
        if name == "NTID":
            return self.broadcast(self._packed_block())
        return None

    def _packed_block(self) -> V:
        launch = get(self.b, self.ctx, CTX, "launch")
        x, y, z = (get(self.b, launch, LAUNCH, f"block_{n}") for n in "xyz")
        return self.b.or_(x, self.b.or_(self.b.shl(y, c32(16)), self.b.shl(z, c32(26))))

    # -- faults ------------------------------------------------------------------------------------------------

    def check(self, status: V) -> None:
        """Leave the kernel when a runtime function reports a fault."""
        on = self.function.append_basic_block()
        self.fails_at(self.inst.address if self.inst else 0)
        self.b.cbranch(self.b.icmp_unsigned("==", status, c32(0)), on, self.failed)
        self.b.position_at_end(on)

    def fails_at(self, address: int) -> None:
        """The current block is about to branch to `failed`."""
        self._failed_at.add_incoming(c32(address), self.b.block)
        self.failures += 1

    def fail(self, address: int) -> None:
        self.fails_at(address)
        self.b.branch(self.failed)

    def fault(self, kind: str, *, space: str = "global", address: V = 0, size: int = 0, lanes: V = None) -> None:
        """Fault if any lane executes this instruction, or any of `lanes`. address: a number or an i64."""
        bits = self.mask_bits if lanes is None else lanes
        where = c64(address) if isinstance(address, int) else address
        self.check(self.call("rt_fault_mask", I32, self.ctx, c32(FAULT_KINDS.index(kind)), bits, where,
                             c32(layout.SPACES.index(space)), c32(size)))

    def unsupported(self, why: str) -> None:
        self.fault("unsupported")

    # -- memory ------------------------------------------------------------------------------------------------

    def _record(self, addresses: V, lanes: V = None) -> None:
        """In a tracing variant: append the executing lanes' addresses, or those of some lanes, to the warp's rows."""
        if not self.tracing:
            return
        b = self.b
        wide = addresses if addresses.type == VI64 else self.zext(addresses, "i64")
        taken = self.mask if lanes is None else b.bitcast(lanes, VI1)
        wide = wide if taken is None else self.select(taken, wide, self.const("i64", -1))
        rows = get(b, self.warp, WARP, "trace_rows")
        row = b.add(b.mul(get(b, self.warp, WARP, "index"), get(b, self.ctx, CTX, "rows_room")), rows)
        where = at(b, get(b, self.ctx, CTX, "rows"), b.shl(b.zext(row, I64), c64(8)))
        b.store(wide, where, align=8)
        put(b, self.warp, WARP, "trace_rows", b.add(rows, c32(1)))

    def _site(self) -> V:
        """This instruction's memory of the allocation it touched last."""
        index = self.inst.addressing.index_of(self.inst.address) if self.inst else 0
        return at(self.b, get(self.b, self.ctx, CTX, "sites"), layout.SITE_BYTES * index)

    def _scratch(self, offset: int) -> V:
        return at(self.b, get(self.b, self.ctx, CTX, "scratch"), offset)

    def load(self, space: str, address: V, kind: str, dest: int) -> None:
        where = self._scratch(layout.SCRATCH_REGISTERS) if dest == RZ else self.slot(dest)
        if space.startswith("const"):
            self._record(self.or_(address, self.const("i32", int(space[5:]) << 16)))
            status = self.call(f"rt_load_const_{kind}", I32, self.ctx, c32(int(space[5:])), address, self.mask_bits,
                               where)
        else:
            self._record(address)
            status = self.call(f"rt_load_{space}_{kind}", I32, self.ctx, self._site(), address, self.mask_bits, where)
        self._regs.clear()
        self.check(status)
        self._note_written(dest, max(1, KINDS[kind] // 4))
        self._race(space, address, KINDS[kind], READ)

    def _race(self, space: str, address: V, size: int, kind: int) -> None:
        """Note an access to shared memory, after its bounds have been checked."""
        self.proxy_access(space, address, kind != READ)
        if not self.racing or space != "shared":
            return
        pc = self.inst.address if self.inst else 0
        self.check(self.call("rt_race", I32, self.ctx, self.warp, address, self.mask_bits, c32(size), c32(kind),
                             c32(pc)))

    def store(self, space: str, address: V, kind: str, source: int) -> None:
        where = self._scratch(layout.SCRATCH_ZEROS) if source == RZ else self.slot(source)
        self._record(address)
        self._must_be_written(source, max(1, KINDS[kind] // 4))
        status = self.call(f"rt_store_{space}_{kind}", I32, self.ctx, self._site(), address, self.mask_bits, where)
        self._regs.clear()
        self.check(status)
        self._race(space, address, KINDS[kind], WRITE)

    def texture(self, handle: V, coord: V, dests: Sequence[int | None]) -> None:
        texels = self._scratch(layout.SCRATCH_REGISTERS)
        if self.tracing:
            self._record(self.call("rt_texel_addresses", VI64, self.ctx, handle, coord))
        status = self.call("rt_texture", I32, self.ctx, handle, coord, self.mask_bits, texels)
        self._regs.clear()
        self.check(status)
        for component, dest in enumerate(dests):
            if dest is not None and dest != RZ:
                value = self.b.load(at(self.b, texels, VECTOR_BYTES * component), typ=VI32, align=64)
                self.set_reg(dest, value)

    def atomic(self, space: str, address: V, op: str, kind: str, operands: Sequence[V], dest: int | None) -> None:
        if op not in OPERATIONS.get(kind, ()):
            self.unsupported(f"atomic {op} of {kind}")
            return
        size = 8 if kind.endswith("64") else 4
        self._record(address)
        hosts = self._scratch(layout.SCRATCH_HOSTS)
        self.check(self.call(f"rt_atomic_hosts_{space}_{size}", I32, self.ctx, self._site(), address, self.mask_bits,
                             hosts))
        wide = [v if v.type == VI64 else self.zext(v, "i64") for v in operands]
        where = self._scratch(layout.SCRATCH_REGISTERS) if dest is None else self.slot(dest)
        self.call(f"rt_atomic_{op}_{kind}", ir.VoidType(), hosts, self.mask_bits, wide[0], wide[-1], where)
        self._regs.clear()
        if dest is not None:
            self._note_written(dest, size // 4)
        self._race(space, address, size, ATOMIC)

    # -- arithmetic that the runtime holds ---------------------------------------------------------------------

    def directed(self, operation: str, rnd: str, *args: V, result: str | None = None) -> V:
        source = self.name(args[0])
        to = result or source
        return self.call(function_name(operation, source, to, rnd), self.type(to), *args)

    def name(self, value: V) -> str:
        """The element type's name."""
        return next(n for n, t in ELEMENTS.items() if t == self.element(value))

    def fptrunc(self, a: V, type_: str, rnd: str = "") -> V:
        """f64 to f16 goes through f32 rounded to odd, after which the second rounding is right; no processor here
        converts in one step."""
        if type_ == "f16" and self.name(a) == "f64":
            a = self._odd_single(a)
        if type_ == "f16" and rnd:
            return self._stepped_half(a, rnd)
        return super().fptrunc(a, type_, rnd)

    def _stepped_half(self, a: V, rnd: str) -> V:
        """f32 to f16 in a direction: one step from the nearest half where that lies on the wrong side."""
        near = super().fptrunc(a, "f16")
        back, bits = self.fpext(near, "f32"), self.bitcast(near, "i16")
        negative = self.icmp("slt", bits, self.const("i16", 0))
        away, toward = self.add(bits, self.const("i16", 1)), self.sub(bits, self.const("i16", 1))
        if rnd == "RZ":
            wrong, stepped = self.fcmp("ogt", self.fabs(back), self.fabs(a)), toward
        elif rnd == "RM":
            wrong, stepped = self.fcmp("ogt", back, a), self.select(negative, away, toward)
        else:
            wrong, stepped = self.fcmp("olt", back, a), self.select(negative, toward, away)
        return self.bitcast(self.select(wrong, stepped, bits), "f16")

    def _odd_single(self, a: V) -> V:
        cut = super().fptrunc(a, "f32", "RZ")
        inexact = self.fcmp("one", self.fpext(cut, "f64"), a)
        bits = self.bitcast(cut, "i32")
        return self.bitcast(self.select(inexact, self.or_(bits, self.const("i32", 1)), bits), "f32")

    def itof(self, a: V, type_: str, signed: bool, rnd: str = "") -> V:
        """To f16 through f64: integers of up to 53 bits are exact there, longer ones overflow a half anyway."""
        if type_ == "f16":
            return self.fptrunc(super().itof(a, "f64", signed), "f16", rnd)
        return super().itof(a, type_, signed, rnd)

    def mufu(self, function: str, a: V) -> V:
        return self.call(f"rt_mufu_{function}", a.type, a)

    def seed64(self, function: str, a: V) -> V:
        return self.call(f"rt_seed_{function}", a.type, a)

    # -- between lanes -----------------------------------------------------------------------------------------

    def shuffle(self, value: V, lane: V) -> V:
        self._must_execute(lane)
        result = self.call("rt_shuffle", VI32, value, lane)
        self._regs.clear()
        return result

    def _must_execute(self, lanes: V) -> None:
        """With the check for undefined reads on: fault if an executing lane takes its value from one that does not."""
        if not self.undefined or (self.inst is not None and self.inst["d"].value == RZ):
            return
        there = self.and_(self.lshr(self.broadcast(self.mask_bits), lanes), self.const("i32", 1))
        missing = self.b.bitcast(self.icmp("eq", there, self.const("i32", 0)), I32)
        missing = self.b.and_(missing, self.mask_bits)
        first = self.b.cttz(missing, ir.Constant(ir.IntType(1), 0))
        source = self.b.extract_element(lanes, self.b.and_(first, c32(LANES - 1)))
        self.fault("inactive lane", address=self.b.zext(source, I64), lanes=missing)

    def ballot(self, p: V) -> V:
        return self.broadcast(self.b.and_(self.b.bitcast(p, I32), self.mask_bits))

    def executing(self) -> V:
        return self.broadcast(self.mask_bits)

    def barrier_result(self) -> V:
        return self.broadcast(get(self.b, self.warp, WARP, "bar_result"))

