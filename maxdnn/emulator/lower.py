"""A kernel to one LLVM function: semantics are traced block by block, control flow is lowered here.

The function runs one warp from warp.pc until it exits, comes to a barrier, uses up its slice, faults, or its set of
active lanes no longer fits the variant: `full` is for all 32, the other one for fewer, or for any number if it is
`alone`."""

from collections.abc import Sequence

from llvmlite import ir

from ..isa import RZ, Instruction, Undecodable
from ..isa.operands import barrier_kind, number_and_count
from ..isa.program import CALLER, conditional, register_target
from ..isa.table import CC_TRUE
from ..isa.text import CC_TESTS
from ..semantics import meaning
from ..semantics.move import flag_test
from ..semantics.operands import pred
from . import layout
from .irkit import I32, I64, PTR, at, c32, c64, get, put
from .layout import BAR_AND, BAR_ARRIVE, BAR_OR, BAR_POPC, BAR_SYNC, CALL, CTX, DIV, PBK, PCNT, SSY, WARP
from .program import Block, Program, ends_block, static_target
from .runtime.flow import EXIT_KIND
from .warp import WarpTracer

_KINDS = {"SSY": SSY, "PBK": PBK, "PCNT": PCNT, CALLER: CALL}
_REDUCTIONS = {"POPC": BAR_POPC, "AND": BAR_AND, "OR": BAR_OR}


class Lowering:
    """Builds the module of one variant; `sites` is the number of memory instructions afterwards."""

    def __init__(self, program: Program, full: bool, bank_bytes: Sequence[int],
                 checks: frozenset[str] = frozenset(), alone: bool = False) -> None:
        self.program = program
        self.at = program.at
        self.full, self.alone = full, alone
        self.module = ir.Module(name="kernel")
        self.fn = ir.Function(self.module, ir.FunctionType(I32, [PTR, PTR]), "run")
        self.ctx, self.warp = self.fn.args
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self.t = WarpTracer(self.fn, self.b, full, bank_bytes, checks, program.units())
        self.heads = {start: self.fn.append_basic_block(f"at_{start:x}") for start in program.blocks}
        self._dispatch = self.fn.append_basic_block("dispatch")
        self.b.branch(self._dispatch)
        self._build_dispatch()
        for block in program.blocks.values():
            self._block(block)
        self._finish()

    def _build_dispatch(self) -> None:
        """Resume at warp.pc if all is as this variant expects."""
        b = self.b
        b.position_at_end(self._dispatch)
        if not self.alone:
            active = get(b, self.warp, WARP, "active")
            with b.if_then(b.icmp_unsigned("!=" if self.full else "==", active, c32(-1))):
                b.ret(c32(layout.SWITCH))
        with b.if_then(self._tired()):  # loops may close through the stack as well
            b.ret(c32(layout.YIELDED))
        unknown = self.fn.append_basic_block("unknown")
        choice = b.switch(get(b, self.warp, WARP, "pc"), unknown)
        for start, head in self.heads.items():
            for address in self.at.aliases(start):
                choice.add_case(c32(address), head)
        b.position_at_end(unknown)
        b.ret(c32(layout.BAD_PC))

    def _tired(self) -> ir.Value:
        """Whether the warp has used up its slice."""
        return self.b.icmp_signed("<", get(self.b, self.warp, WARP, "fuel"), c64(0))

    def _finish(self) -> None:
        """A kernel in which nothing can fail still has the block that reports failures; LLVM wants it reachable."""
        if not self.t.failures:
            self.b.position_at_end(self.fn.append_basic_block("never"))
            self.t.fail(0)

    # -- blocks ------------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> None:
        b, t = self.b, self.t
        b.position_at_end(self.heads[block.start])
        if self.t.tracing:
            self._record_run(block)
        fuel = get(b, self.warp, WARP, "fuel")
        put(b, self.warp, WARP, "fuel", b.sub(fuel, c64(len(block.items))))
        t.start_block(len(block.items))
        for item in block.items:
            if isinstance(item, Undecodable):
                self._give_up("undecodable", item.address)
                return
            t.start(item)
            t.within_limit(item)
            function = meaning(item)
            if function is not None:
                function(t, item)
            elif ends_block(item):
                t.end_block()
                self._control(item)
                return
            else:
                t.unsupported(f"{item.mnemonic} is not emulated")
        t.end_block()
        self._go(self.at.following(block.last.address), block.last.address)

    def _record_run(self, block: Block) -> None:
        """Note that this block runs, after making sure that its run, its addresses and a note that its lanes part find
        room."""
        b = self.b
        runs, rows = get(b, self.warp, WARP, "trace_runs"), get(b, self.warp, WARP, "trace_rows")
        enough = b.and_(b.icmp_unsigned("<", b.add(runs, c32(1)), get(b, self.ctx, CTX, "runs_room")),
                        b.icmp_unsigned("<=", b.add(rows, c32(len(block.items))), get(b, self.ctx, CTX, "rows_room")))
        with b.if_then(b.not_(enough)):
            self._return(block.start, layout.TRACE_FULL)
        self._add_run(self.at.index_of(block.start), len(block.items))

    def _add_run(self, first: int, count: int) -> None:
        b = self.b
        runs = get(b, self.warp, WARP, "trace_runs")
        row = b.add(b.mul(get(b, self.warp, WARP, "index"), get(b, self.ctx, CTX, "runs_room")), runs)
        where = at(b, get(b, self.ctx, CTX, "runs"), b.shl(b.zext(row, I64), c64(3)))
        b.store(c64(first | count << 32), where)
        put(b, self.warp, WARP, "trace_runs", b.add(runs, c32(1)))

    def _give_up(self, kind: str, address: int) -> None:
        self.t.call("rt_fault_mask", I32, self.ctx, c32(layout.FAULT_KINDS.index(kind)), self.t.active_bits, c64(0),
                    c32(0), c32(0))
        self.t.fail(address)

    def _go(self, target: int, source: int) -> None:
        """Continue at a fixed address; a jump backwards lets the others run when the slice is used up. Where what is
        done is traced, the others run before a compare-and-swap that may fail, so that they come between as on a card:
        the last of them sees the most."""
        b = self.b
        target = self.at.normal(target)
        if target not in self.heads:
            self._give_up("bad target", source)
            return
        if self.t.tracing and target in self.program.spins:
            put(b, self.ctx, CTX, "moved", 1)
            self._return(target, layout.BLOCKED)
            return
        if target > source:
            b.branch(self.heads[target])
            return
        with b.if_then(self._tired()):
            self._return(target, layout.YIELDED)
        b.branch(self.heads[target])

    def _return(self, pc: int, status: int) -> None:
        put(self.b, self.warp, WARP, "pc", pc)
        self.b.ret(c32(status))

    # -- control flow ------------------------------------------------------------------------------------------

    def _control(self, inst: Instruction) -> None:
        """Lower the control-flow instruction that ends a block."""
        flow, target, to = inst.flow, static_target(inst), inst.operand("target")
        assert flow is not None
        if flow.does == "jump" and target is not None:
            self._branch(inst)
        elif flow.does == "jump" and to is not None and to.type == "gpr_plus_simm":
            self._indirect(inst)
        elif flow.does == "push" and target is not None:
            self._push(_KINDS[flow.stack], target)
            self._go(self.at.following(inst.address), inst.address)
        elif flow.does == "call" and target is not None:
            self._push(_KINDS[flow.stack], self.at.following(inst.address))
            self._go(target, inst.address)
        elif flow.does in ("pop", "end"):
            self._leave(inst, EXIT_KIND if flow.does == "end" else _KINDS[flow.stack])
        elif flow.does == "barrier":
            self._barrier(inst)
        else:
            self._unsupported(inst)

    def _unsupported(self, inst: Instruction) -> None:
        self.t.fault("trap" if inst.flow is not None and inst.flow.does == "trap" else "unsupported")
        self._go(self.at.following(inst.address), inst.address)

    def _taken(self, inst: Instruction) -> ir.Value:
        """i32 mask of the lanes that are active, guarded and whose condition test holds."""
        cc = inst.operand("cc")
        if cc is None or cc.value == CC_TRUE:
            return self.t.mask_bits
        holds = flag_test(self.t, CC_TESTS[cc.value])
        if holds is None:
            self.t.unsupported("condition test")
            return self.t.mask_bits
        return self.b.and_(self.b.bitcast(holds, I32), self.t.mask_bits)

    def _branch(self, inst: Instruction) -> None:
        b = self.b
        target, after = static_target(inst) or 0, self.at.following(inst.address)
        if not conditional(inst):
            self._go(target, inst.address)
            return
        taken = self._taken(inst)
        self._agreed(taken, target, after, inst)
        self._push(DIV, after, b.and_(self.t.active_bits, b.not_(taken)))
        put(b, self.warp, WARP, "active", taken)
        if self.full:
            self._return(target, layout.SWITCH)
        else:
            self._go(target, inst.address)

    def _agreed(self, taken: ir.Value, target: int, after: int, inst: Instruction) -> None:
        """Continue or jump as a whole if all lanes agree; the code built next is for a warp that diverges."""
        b = self.b
        for lanes, where in ((c32(0), after), (self.t.active_bits, target)):
            with b.if_then(b.icmp_unsigned("==", taken, lanes)):
                self._go(where, inst.address)

    def _push(self, kind: int, target: int, lanes: ir.Value | None = None) -> None:
        lanes = self.t.active_bits if lanes is None else lanes
        self.t.check(self.t.call("rt_push", I32, self.ctx, self.warp, c32(kind), c32(self.at.normal(target)), lanes))

    def _unless_elsewhere(self, how: ir.Value, inst: Instruction) -> None:
        """Goes on behind a helper that says 0; 1 resumes elsewhere, 2 ends the warp, anything else has failed."""
        over, rest = self.fn.append_basic_block("over"), self.fn.append_basic_block("rest")
        choice = self.b.switch(how, self.t.failed)
        self.t.fails_at(inst.address)
        choice.add_case(c32(0), rest)
        choice.add_case(c32(1), self._dispatch)
        choice.add_case(c32(2), over)
        self.b.position_at_end(over)
        self.b.ret(c32(layout.EXITED))
        self.b.position_at_end(rest)

    def _some(self, lanes: ir.Value, inst: Instruction) -> None:
        """Go on behind the instruction if no lane takes it; else write here what those do that take it."""
        with self.b.if_then(self.b.icmp_unsigned("==", lanes, c32(0))):
            self._go(self.at.following(inst.address), inst.address)

    def _leave(self, inst: Instruction, kind: int) -> None:
        lanes = self._taken(inst)
        self._some(lanes, inst)
        self._unless_elsewhere(self.t.call("rt_leave", I32, self.ctx, self.warp, c32(kind), lanes), inst)
        if self.full:
            self._return(self.at.following(inst.address), layout.SWITCH)
        else:
            self._go(self.at.following(inst.address), inst.address)

    def _indirect(self, inst: Instruction) -> None:
        """A target per lane: register plus offset."""
        b, t = self.b, self.t
        targets = t.add(t.reg(inst["target"].base), t.const("i32", register_target(inst)))
        lanes = self._taken(inst)
        nowhere = b.bitcast(t.icmp("eq", targets, t.const("i32", 0)), I32)  # a null function pointer, not the entry
        t.fault("bad target", lanes=b.and_(nowhere, lanes))
        self._some(lanes, inst)
        others = b.and_(t.active_bits, b.not_(lanes))
        with b.if_then(b.icmp_unsigned("!=", others, c32(0))):
            self._push(DIV, self.at.following(inst.address), others)
        t.check(t.call("rt_indirect", I32, self.ctx, self.warp, targets, lanes))
        b.branch(self._dispatch)

    # -- barriers ----------------------------------------------------------------------------------------------

    def _barrier(self, inst: Instruction) -> None:
        b, t = self.b, self.t
        self._some(t.mask_bits, inst)
        if barrier_kind(inst) == "SCAN":
            self._unsupported(inst)
            return
        number, count = self._uniform(inst, "bar"), self._uniform(inst, "cnt")
        if number_and_count(inst):
            number, count = b.and_(number, c32(0xFFFF)), b.lshr(number, c32(16))
        t.check(t.call("rt_check_barrier", I32, self.ctx, number, count))
        put(b, self.warp, WARP, "bar_id", number)
        put(b, self.warp, WARP, "bar_count", count)
        kind, bits = BAR_SYNC, c32(0)
        if barrier_kind(inst) == "ARV":
            kind = BAR_ARRIVE
        elif barrier_kind(inst) == "RED":
            kind = _REDUCTIONS[inst.mods["op"]]
            holds = b.bitcast(pred(t, inst["ps"]), I32)
            holds = b.not_(holds) if kind == BAR_AND else holds  # AND counts the threads that say no
            bits = b.ctpop(b.and_(holds, t.mask_bits))
        put(b, self.warp, WARP, "bar_kind", kind)
        put(b, self.warp, WARP, "bar_bits", bits)
        self._return(self.at.following(inst.address), layout.BARRIER)

    def _uniform(self, inst: Instruction, name: str) -> ir.Value:
        """A barrier operand: immediate, or the register's value in the first executing lane; 0 if there is none."""
        op = inst.operand(name)
        if op is None:
            return c32(0)
        if op.type != "gpr":
            return c32(op.value)
        if op.value == RZ:
            return c32(0)
        lane = self.b.cttz(self.t.mask_bits, ir.Constant(ir.IntType(1), 1))
        return self.b.extract_element(self.t.reg(op.value), lane)

