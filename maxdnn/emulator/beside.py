"""The part of the CPU tracer for what runs beside a warp: products of a warpgroup, mbarriers, copies. Registers of
products are watched, so that one that is used too early is a fault (runtime/warpgroup.py)."""

from collections.abc import Iterable

from llvmlite import ir

from ..isa import RZ, Instruction
from ..isa.table import SYSTEM_REGISTERS
from ..semantics.machine import UNIFORM
from . import layout
from .irkit import I32, PTR, at, c32, c64, get, put
from .lanes import Lanes, V
from .layout import VECTOR_BYTES, WARP
from .runtime.memory import KINDS, VI1, VI32
from .runtime.proxies import READ, WRITE
from .trace import ARRIVALS, MORE, MORE_BITS

_BLOCKED = 2  # what a runtime function says that has nothing to report yet


class Units:
    """What a kernel does beside its warps. `watched`: registers of products; `scarce`: from which register on a warp
    may have given them back."""

    def __init__(self, items: Iterable[Instruction]) -> None:
        watched: set[int] = set()
        counts = []
        self.any = False
        for item in items:
            self.any |= item.opcode in OPCODES
            if item.opcode == "HGMMA":
                names = ("d", "a") if item.operand("b") is not None else ("d",)
                watched |= {register for name in names for register in item[name].registers()}
            if item.opcode == "USETMAXREG" and item["n"].type != "ugpr":
                counts.append(item["n"].value - SYSTEM_REGISTERS)
        self.watched = frozenset(watched)
        self.scarce = min(counts, default=RZ)


OPCODES = frozenset({"HGMMA", "WARPGROUP", "SYNCS", "UBLKCP", "LDGSTS", "USETMAXREG"})


class Beside(Lanes):
    """Mixed into the tracer of a warp."""

    ctx: V
    warp: V
    function: ir.Function
    inst: Instruction | None
    tracing: bool
    hollow: bool
    block_length: int
    mask_bits: V
    active_bits: V
    units = Units(())

    # -- what the tracer of a warp has -------------------------------------------------------------------------

    def check(self, status: V) -> None:
        raise NotImplementedError

    def slot(self, index: int) -> V:
        raise NotImplementedError

    def fault(self, kind: str, *, space: str = "global", address: V = 0, size: int = 0, lanes: V = None) -> None:
        raise NotImplementedError

    def forget(self, first: int, count: int) -> None:
        raise NotImplementedError

    def _scratch(self, offset: int) -> V:
        raise NotImplementedError

    def _pc(self) -> V:
        return c32(self.inst.address if self.inst else 0)

    def _one(self, value: V) -> V:
        """The value of the first executing lane; uniform registers are the same in all lanes."""
        return self.b.extract_element(value, c32(0))

    # -- registers ---------------------------------------------------------------------------------------------

    def watch(self, first: int, count: int, writes: bool) -> None:
        """An instruction other than a product uses registers: fault if a product still does."""
        for index in range(first, first + count):
            if index in self.units.watched:
                self.check(self.call("rt_touch", I32, self.ctx, self.warp, c32(index), c32(1), c32(int(writes)),
                                     self.mask_bits))

    def within_limit(self, inst: Instruction) -> None:
        """Fault if this instruction names a register that the warp may have given back, and has."""
        named = [register for op in inst.operands for register in op.registers() if register < RZ]
        if max(named, default=0) < self.units.scarce:
            return
        over = self.b.icmp_unsigned("<=", get(self.b, self.warp, WARP, "limit"), c32(max(named) + SYSTEM_REGISTERS))
        self.fault("registers", address=max(named), lanes=self.b.select(over, self.mask_bits, c32(0)))

    def set_registers(self, count: int, waits: bool) -> None:
        name = "rt_take_registers" if waits else "rt_give_registers"
        self._wait(self.call(name, I32, self.ctx, self.warp, c32(count)), waits)
        self.forget(0, UNIFORM)

    # -- waiting -----------------------------------------------------------------------------------------------

    def _blocked(self, condition: V) -> None:
        """Give the warp back to the scheduler if the condition holds; it comes to this instruction again."""
        b = self.b
        assert self.inst is not None
        with b.if_then(condition, likely=False):
            put(b, self.warp, WARP, "pc", self.inst.address)
            put(b, self.warp, WARP, "fuel", b.add(get(b, self.warp, WARP, "fuel"), c64(self.block_length)))
            if self.tracing:
                put(b, self.warp, WARP, "trace_runs", b.sub(get(b, self.warp, WARP, "trace_runs"), c32(1)))
            b.ret(c32(layout.BLOCKED))

    def _wait(self, status: V, waits: bool = True) -> None:
        if waits:
            self._blocked(self.b.icmp_unsigned("==", status, c32(_BLOCKED)))
        self.check(status)

    # -- products of a warpgroup -------------------------------------------------------------------------------

    def product(self, type_: str, columns: int, d: int, a: int | None, of_a: V, of_b: V, flags: int, keeps: V,
                commits: bool) -> None:
        b, count = self.b, columns // 2
        self.check(self.call("rt_take", I32, self.ctx, self.warp, c32(d), c32(count), c32(0)))
        if a is not None:
            self.check(self.call("rt_take", I32, self.ctx, self.warp, c32(a), c32(4), c32(1)))
        if not self.hollow:
            registers = ir.Constant(PTR, None) if a is None else self.slot(a)
            kept = b.zext(self._one(keeps), I32)
            self.check(self.call(f"rt_product_{type_}", I32, self.ctx, self.warp, self.mask_bits, registers,
                                 self._one(of_a), self._one(of_b), self.slot(d), c32(columns), c32(flags), kept,
                                 self._pc()))
            self.forget(d, count)
        if commits:
            put(b, self.warp, WARP, "committed", b.add(get(b, self.warp, WARP, "committed"), c32(1)))

    def warpgroup_arrive(self) -> None:
        put(self.b, self.warp, WARP, "arrivals", self.b.add(get(self.b, self.warp, WARP, "arrivals"), c32(1)))

    def warpgroup_wait(self, open_: int) -> None:
        self._wait(self.call("rt_wait_groups", I32, self.ctx, self.warp, c32(open_)))

    # -- mbarriers and bulk copies -----------------------------------------------------------------------------

    def _executes(self) -> V:
        return self.b.icmp_unsigned("!=", self.mask_bits, c32(0))

    def _note(self, address: V, arrivals: V, more: V) -> None:
        """In a tracing variant: what an operation does to mbarriers (trace.py). All are i32."""
        if self.tracing:
            bytes_ = self.add(more, self.const("i32", 1 << MORE_BITS - 1))
            word = self.zext(address, "i64")
            for part, at_bit in ((arrivals, ARRIVALS), (bytes_, MORE)):
                word = self.or_(word, self.shl(self.zext(part, "i64"), self.const("i64", at_bit)))
            self._record(word)

    def mbarrier_init(self, address: V, word: V) -> None:
        whole = self._one(word)
        expected = self.sub(self.const("i32", 0), self.trunc(self.lshr(word, self.const("i64", 1)), "i32"))
        self._note(address, self.and_(expected, self.const("i32", (1 << MORE - ARRIVALS) - 1)), self.const("i32", 0))
        low, high = self.b.trunc(whole, I32), self.b.trunc(self.b.lshr(whole, c64(32)), I32)
        self._once("rt_mbarrier_init", self.ctx, self._one(address), low, high)

    def _once(self, name: str, *args: V) -> None:
        """Call a runtime function if any lane executes this instruction."""
        before = self.b.block
        with self.b.if_then(self._executes()):
            status = self.call(name, I32, *args)
            inside = self.b.block
        result = self.b.phi(I32)
        result.add_incoming(c32(0), before)
        result.add_incoming(status, inside)
        self.check(result)

    def mbarrier_drop(self, address: V) -> None:
        self.check(self.call("rt_mbarrier_drop", I32, self.ctx, address, self.mask_bits))

    def mbarrier_arrive(self, address: V, arrivals: V, more: V, drops: bool, dest: int) -> None:
        first = self._scratch(layout.SCRATCH_REGISTERS) if dest == RZ else self.slot(dest)
        second = self._scratch(layout.SCRATCH_REGISTERS + VECTOR_BYTES) if dest == RZ else self.slot(dest + 1)
        status = self.call("rt_mbarrier_arrive", I32, self.ctx, self.warp, address, arrivals, more, self.mask_bits,
                           c32(int(drops)), first, second)
        if dest != RZ:
            self.forget(dest, 2)
            self._note_written(dest, 2)
        self.check(status)
        self._note(address, arrivals, more)

    def _note_written(self, first: int, count: int) -> None:
        raise NotImplementedError

    def mbarrier_phase(self, address: V, parity: V, waits: bool) -> V:
        out = self._scratch(layout.SCRATCH_REGISTERS)
        self.check(self.call("rt_mbarrier_check", I32, self.ctx, self.warp, address, parity, self.mask_bits, out))
        complete = self.b.load(out, typ=I32)
        if waits:
            missing = self.b.and_(self.mask_bits, self.b.not_(complete))
            self._blocked(self.b.icmp_unsigned("!=", missing, c32(0)))
        self._note(address, self.lshr(parity, self.const("i32", 31)), self.const("i32", 0))
        return self.b.bitcast(complete, VI1)

    def bulk_copy(self, to: V, barrier: V, source: V, size: V) -> None:
        self._once("rt_bulk_copy", self.ctx, self.warp, self._one(to), self._one(barrier), self._one(source),
                   self._one(size), self._pc())
        if self.tracing:
            row = source
            for lane, more in enumerate((size, barrier), 1):
                row = self.b.insert_element(row, self._one(self.add(source, self.zext(more, "i64"))), c32(lane))
            self._record(row, self.b.and_(self.mask_bits, c32(7)))

    # -- copies of threads -------------------------------------------------------------------------------------

    def copy(self, to: V, source: V, kind: str, keeps: V) -> None:
        """The bytes are copied at once. Using them before the warp has waited is a fault."""
        b, size = self.b, KINDS[kind]
        self._record(source, b.and_(self.mask_bits, b.bitcast(keeps, I32)))
        place = self._scratch(layout.SCRATCH_REGISTERS)
        for word in range(size // 4):
            b.store(ir.Constant(VI32, [0] * layout.LANES), at(b, place, VECTOR_BYTES * word), align=64)
        kept = b.and_(self.mask_bits, b.bitcast(keeps, I32))
        self.check(self.call(f"rt_load_global_{kind}", I32, self.ctx, self._site(), source, kept, place))
        self.check(self.call(f"rt_store_shared_{kind}", I32, self.ctx, self._site(), to, self.mask_bits, place))
        self._race("shared", to, size, WRITE)
        self.call("rt_copy", ir.VoidType(), self.ctx, self.warp, to, self.mask_bits)

    def copies_commit(self) -> None:
        put(self.b, self.warp, WARP, "groups", self.b.add(get(self.b, self.warp, WARP, "groups"), c32(1)))

    def copies_wait(self, open_: int) -> None:
        if self.units.any:
            self.call("rt_copies_wait", ir.VoidType(), self.ctx, self.warp, c32(open_))

    def _record(self, addresses: V, lanes: V = None) -> None:
        raise NotImplementedError

    def _site(self) -> V:
        raise NotImplementedError

    def _race(self, space: str, address: V, size: int, kind: int) -> None:
        raise NotImplementedError

    def proxy_fence(self) -> None:
        if self.units.any:
            self.call("rt_proxy_fence", ir.VoidType(), self.ctx, self.warp)

    def proxy_access(self, space: str, address: V, writes: bool) -> None:
        """Note an ordinary access to shared memory, after its bounds have been checked."""
        if not self.units.any:
            return
        if space == "generic":
            shared = self.icmp("eq", self.lshr(address, self.const("i64", 24)),
                               self.const("i64", layout.SHARED_WINDOW))
            lanes = self.b.and_(self.b.bitcast(shared, I32), self.mask_bits)
            address = self.and_(self.trunc(address, "i32"), self.const("i32", 0xFFFFFF))
        elif space == "shared":
            lanes = self.mask_bits
        else:
            return
        self.check(self.call("rt_proxy_access", I32, self.ctx, self.warp, address, lanes,
                             c32(WRITE if writes else READ), self._pc()))

