"""Code of one thread for the PTX target. Every position of `paths` becomes a basic block. Of the stack of targets only
masks of lanes that wait for each other are left at run time (`reconvergence`). Only if code calls itself are targets
pushed to and popped from an array."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ..cubin import CubinKernel
from ..isa import PT, RZ, Instruction
from ..isa.operands import barrier_kind
from ..isa.program import CALLER, register_target, tests_flags
from ..isa.text import CC_TESTS
from ..semantics import meaning
from ..semantics.move import flag_test
from ..semantics.operands import i32, pred
from .paths import BasicBlock, Paths, Position, Recursion, Stack, does, refusal, stack_kind
from .reconvergence import Entry, Reconvergence
from .scalars import I32
from .thread import Thread
from .warp_sync import Exchange

DYNAMIC_DEPTH = 512
_KINDS = ("SSY", "PBK", "PCNT", CALLER)
_FENCES = {"CTA": "membar.cta", "GL": "membar.gl", "SYS": "membar.sys"}
V = Any


def write_body(thread: Thread, fn: ir.Function, kernel: CubinKernel, instructions: Sequence[Instruction]) -> None:
    """Fill `fn`, whose entry block `thread.b` stands in, with the kernel's code. Raises TranslationError."""
    paths = Paths(kernel, instructions)
    first = min(paths.code)
    try:
        start: Position = (first, ())
        basic_blocks = paths.every(start)
    except Recursion:
        start = (first, None)
        basic_blocks = paths.every(start)
    _Body(thread, fn, kernel, paths, basic_blocks).write(start)


class _Body:
    def __init__(self, thread: Thread, fn: ir.Function, kernel: CubinKernel, paths: Paths,
                 basic_blocks: dict[Position, BasicBlock]) -> None:
        self.t, self.b, self.fn, self.kernel, self.paths = thread, thread.b, fn, kernel, paths
        self.basic_blocks = basic_blocks
        self.memory: tuple[V, V] | None = None
        self.masks: V = None  # of the entries in memory
        self.pops: dict[str, V] = {}  # from it

    def write(self, start: Position) -> None:
        if start[1] is None:
            self.memory = (self.t.slot(ir.ArrayType(I32, DYNAMIC_DEPTH), "stack"), self.t.variable("depth", I32))
        entry = self.b.block
        self.blocks = {p: self.fn.append_basic_block(f"L{p[0]:x}") for p in self.basic_blocks}
        exchange = Exchange(self.kernel, self.paths, self.basic_blocks, start)
        self.reconvergence = Reconvergence(self.paths, self.basic_blocks, exchange)
        self.waiting: dict[Entry, tuple[V, V]] = {}
        if start[1] is None and self.reconvergence.anywhere:
            self.masks = self.t.slot(ir.ArrayType(I32, DYNAMIC_DEPTH), "lanes")
        for position, basic_block in self.basic_blocks.items():
            self.b.position_at_end(self.blocks[position])
            self._basic_block(basic_block, exchange.syncs(position), position[1])
        self.b.position_at_end(entry)
        self.b.branch(self.blocks[start])

    def _basic_block(self, basic_block: BasicBlock, syncs: frozenset[int], stack: Stack) -> None:
        for inst in basic_block.body:
            self.t.inst = inst
            if inst.address in syncs:
                self.t.meet()
            if inst.pushes():
                stack = self._push(stack, stack_kind(inst), self.paths.target(inst))
            else:
                self._plain(inst)
        if basic_block.jump is None:
            self.b.branch(self.blocks[basic_block.after])
        else:
            self.t.inst = basic_block.jump
            self._jump(basic_block.jump, basic_block.after)

    def _plain(self, inst: Instruction) -> None:
        condition = self._guard(inst)
        if does(inst) == "barrier":
            self._barrier(inst, condition)
        elif condition is None or self.t.is_fetch(inst):
            self.t.executes = condition  # a fetch takes its condition along, which costs no branch
            self._meaning(inst)
            self.t.executes = None
        else:
            with self.b.if_then(condition):
                self._meaning(inst)

    def _meaning(self, inst: Instruction) -> None:
        if inst.waits == "memory":
            if inst.mods["lvl"] not in _FENCES:
                raise refusal(self.kernel, inst, f"no fence of PTX is known to do what level {inst.mods['lvl']} does")
            self.t.fence(_FENCES[inst.mods["lvl"]])
        elif does(inst) == "trap":
            if inst.mods.get("k") != "TRAP":
                raise refusal(self.kernel, inst, "a breakpoint")
            self.t.trap()
        else:
            function = meaning(inst)
            if function is None:
                raise refusal(self.kernel, inst, "this instruction has no meaning here")
            function(self.t, inst)

    def _barrier(self, inst: Instruction, condition: V | None) -> None:
        """A barrier counts warps: one arrives, whole, as soon as any of its lanes does."""
        count = inst.operand("cnt")
        everyone = count is None or count.value == (0 if count.type == "uimm" else RZ)
        threads = None if everyone else i32(self.t, count)  # type: ignore[arg-type]
        if inst["bar"].type == "uimm" and inst["bar"].value > 15:
            raise refusal(self.kernel, inst, "there are barriers 0 to 15")
        kind = barrier_kind(inst)
        p = None
        if kind == "RED":
            kind, p = inst.mods["op"], pred(self.t, inst["ps"])
        if condition is None:
            self.t.barrier(kind, i32(self.t, inst["bar"]), threads, p)
            return
        if p is not None:  # a lane that does not take part must not count
            p = self.t.or_(p, self.t.not_(condition)) if kind == "AND" else self.t.and_(p, condition)
        with self.b.if_then(self.t.icmp("ne", self.t.ballot(condition), self.t.const("i32", 0))):
            self.t.barrier(kind, i32(self.t, inst["bar"]), threads, p)

    # -- jumps -------------------------------------------------------------------------------------------------

    def _guard(self, inst: Instruction) -> V | None:
        """The condition an instruction runs under: its guard and its test of the flags; None where it always does."""
        parts = []
        if inst.guard.index != PT or inst.guard.negated:
            p = self.t.const("i1", 1) if inst.guard.index == PT else self.t.pred(inst.guard.index)
            parts.append(self.t.not_(p) if inst.guard.negated else p)
        test = inst.operand("cc")
        if test is not None and tests_flags(inst):
            holds = flag_test(self.t, CC_TESTS[test.value])
            if holds is None:
                raise refusal(self.kernel, inst, f"condition test {CC_TESTS[test.value]} has no published meaning")
            parts.append(holds)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else self.t.and_(*parts)

    def _jump(self, inst: Instruction, after: Position) -> None:
        condition = self._guard(inst)
        if condition is not None:
            taken = self.fn.append_basic_block(f"T{inst.address:x}")
            self.b.cbranch(condition, taken, self.blocks[self.paths.through(inst, after)])
            self.b.position_at_end(taken)
        address, stack = after
        if does(inst) == "end":
            self._end(stack)
            return
        if does(inst) == "pop":
            if stack is None:
                self._pop_from_memory(stack_kind(inst))
            else:
                self._pop(inst, after)
            return
        places = self.paths.taken(inst, after)
        if self.paths.is_indirect(inst):
            self._switch(self._indirect(inst), places)
            return
        if does(inst) == "call":
            self._push(stack, CALLER, address)
        self.b.branch(self.blocks[places[0]])

    def _indirect(self, inst: Instruction) -> V:
        """The register holds a table word; the branch adds its displacement."""
        op = inst["target"]
        if op.type == "cbank36":
            return self.t.constant(op.bank, op.value)
        base = self.t.const("i32", 0) if op.base == RZ else self.t.reg(op.base)
        return self.t.add(base, self.t.const("i32", register_target(inst)))

    def _switch(self, value: V, places: Sequence[Position]) -> None:
        trap = self.fn.append_basic_block("nowhere")
        switch = self.b.switch(value, trap)
        for place in places:
            for address in self.paths.at.aliases(place[0]):
                switch.add_case(ir.Constant(I32, address), self.blocks[place])
        self.b.position_at_end(trap)
        self._nowhere()

    def _end(self, stack: Stack) -> None:
        """The thread ends. Where others may wait for it, it does so at once: code shared with the end of those could
        make it wait for them first."""
        if self.reconvergence.any_awaited(stack):
            self.t.exit()
            self.b.unreachable()
        else:
            self.b.ret_void()

    def _nowhere(self) -> None:
        """What the virtual GPU faults at: here the launch ends in an error."""
        self.t.trap()
        self.b.unreachable()

    # -- the stack ---------------------------------------------------------------------------------------------

    def _push(self, stack: Stack, kind: str, target: int) -> Stack:
        """The stack with the entry, whose lanes are kept if they wait for each other. Nothing else is to be done unless
        the stack is in memory."""
        stack = self.paths.push(stack, kind, target)
        if self.memory is None:
            if self.reconvergence.awaited(stack):
                self.b.store(self.t.executing(), self._mask(len(stack)))  # type: ignore[arg-type]
            return stack
        array, depth = self.memory
        top = self.b.load(depth, typ=I32)
        with self.b.if_then(self.t.icmp("uge", top, self.t.const("i32", DYNAMIC_DEPTH)), likely=False):
            self.t.trap()
        self.b.store(ir.Constant(I32, target << 2 | _KINDS.index(kind)), self._entry(array, top))
        if self.masks is not None:
            self.b.store(self.t.executing(), self._entry(self.masks, top))
        self.b.store(self.t.add(top, self.t.const("i32", 1)), depth)
        return stack

    def _mask(self, size: int) -> V:
        return self.t.variable(f"lanes{size}", I32)

    def _way(self, size: int) -> V:
        return self.t.variable(f"way{size}", I32)

    def _entry(self, array: V, index: V) -> V:
        return self.b.gep(array, [ir.Constant(I32, 0), index], source_etype=ir.ArrayType(I32, DYNAMIC_DEPTH))

    def _pop(self, inst: Instruction, after: Position) -> None:
        """RET with nothing left to return to ends the thread."""
        places, stack = self.paths.taken(inst, after), after[1] or ()
        if places:
            left = len(places[0][1] or ()) + 1
            for size in range(len(stack), left, -1):
                if self.reconvergence.awaited(stack[:size]):
                    self._drop(stack[:size])
            entry = stack[:left]
            self.b.branch(self._waiting(entry)[0] if self.reconvergence.awaited(entry) else self.blocks[places[0]])
        elif stack_kind(inst) == CALLER:
            self._end(stack)
        else:
            self._nowhere()

    def _waiting(self, entry: Entry) -> tuple[V, V]:
        """The one block in which all lanes of an entry wait, and the switch behind it to where each goes on."""
        if entry not in self.waiting:
            block = self.fn.append_basic_block(f"W{entry[-1][1]:x}")
            place = (entry[-1][1], entry[:-1])
            with self.b.goto_block(block):
                self.t.meet(self.b.load(self._mask(len(entry)), typ=I32))
                nowhere = self.fn.append_basic_block("nowhere") if place not in self.blocks else None
                switch = self.b.switch(self.b.load(self._way(len(entry)), typ=I32), nowhere or self.blocks[place])
            if nowhere is not None:  # all that push it drop it
                with self.b.goto_block(nowhere):
                    self._nowhere()
            self.waiting[entry] = block, switch
        return self.waiting[entry]

    def _drop(self, entry: Entry) -> None:
        """Wait with the lanes of an entry, then go on here."""
        block, switch = self._waiting(entry)
        way, behind = ir.Constant(I32, len(switch.cases) + 1), self.fn.append_basic_block("dropped")
        switch.add_case(way, behind)
        self.b.store(way, self._way(len(entry)))
        self.b.branch(block)
        self.b.position_at_end(behind)
        self.b.store(ir.Constant(I32, 0), self._way(len(entry)))

    def _pop_from_memory(self, kind: str) -> None:
        """Once for each kind: who pops the same waits at the same place."""
        array, depth = self.memory  # type: ignore[misc]
        if kind in self.pops:
            self.b.branch(self.pops[kind])
            return
        head, body, hit, empty = (self.fn.append_basic_block(n) for n in ("pop", "entry", "hit", "empty"))
        self.pops[kind] = head
        self.b.branch(head)
        self.b.position_at_end(head)
        top = self.b.load(depth, typ=I32)
        self.b.cbranch(self.t.icmp("eq", top, self.t.const("i32", 0)), empty, body)
        self.b.position_at_end(body)
        below = self.t.sub(top, self.t.const("i32", 1))
        self.b.store(below, depth)
        if self.masks is not None:
            self.t.meet(self.b.load(self._entry(self.masks, below), typ=I32))
        value = self.b.load(self._entry(array, below), typ=I32)
        same = self.t.icmp("eq", self.t.and_(value, self.t.const("i32", 3)), self.t.const("i32", _KINDS.index(kind)))
        self.b.cbranch(same, hit, head)
        self.b.position_at_end(empty)
        if kind == CALLER:
            self._end(None)
        else:
            self._nowhere()
        self.b.position_at_end(hit)
        self._switch(self.t.lshr(value, self.t.const("i32", 2)), [(place, None) for place in self.paths.pushed(kind)])
