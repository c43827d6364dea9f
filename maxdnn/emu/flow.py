"""Control flow of a kernel as one thread sees it, for the PTX target.

A warp of these chips keeps a stack: SSY, PBK, PCNT and CAL push a target, SYNC, BRK, CONT and RET go to it. For one
thread that is a jump whose target is known once the pushes on the way are known. So the walk takes the stack as part of
the position: every (address, stack) becomes a basic block, and nothing of the stack is left at run time. Only code that
calls itself needs a stack in memory: there the address alone is the position, and targets are popped from an array."""

import itertools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ..cubin import CubinKernel
from ..isa import PT, Instruction
from ..isa.table import CC_TRUE
from ..isa.text import CC_TESTS
from ..semantics import meaning
from ..semantics.move import flag_test
from ..semantics.operands import i32, pred
from .thread import I32, Thread

MAX_STATIC_DEPTH = 24  # pushes outstanding on one path before the stack is kept in memory
DYNAMIC_DEPTH = 512
_PUSH = {"SSY": "SSY", "PBK": "PBK", "PCNT": "PCNT", "CAL": "CAL", "JCAL": "CAL", "PRET": "CAL"}
_POP = {"SYNC": "SSY", "BRK": "PBK", "CONT": "PCNT", "RET": "CAL"}
_JUMPS = ("BRA", "JMP", "BRX", "JMX", "CAL", "JCAL", *_POP, "EXIT", "KIL")
_SHARED_ACCESS = {"LDS": "load", "LD": "load", "STS": "store", "ST": "store", "ATOMS": "store", "ATOM": "store"}
_KINDS = ("SSY", "PBK", "PCNT", "CAL")
V = Any
Stack = tuple[tuple[str, int], ...] | None  # None: in memory


class _Recursion(Exception):
    """The stack is not known before run time."""


def write_body(thread: Thread, fn: ir.Function, kernel: CubinKernel, instructions: Sequence[Instruction]) -> None:
    """Fill `fn`, whose entry block `thread.b` stands in, with the kernel's code."""
    entry = thread.b.block
    try:
        _Walk(thread, fn, kernel, instructions).run(())
    except _Recursion:
        del fn.blocks[1:]
        thread.b.position_at_end(entry)
        entry.terminator = None
        entry.instructions = [i for i in entry.instructions if not isinstance(i, ir.instructions.Branch)]
        _Walk(thread, fn, kernel, instructions).run(None)


class _Walk:
    def __init__(self, thread: Thread, fn: ir.Function, kernel: CubinKernel, code: Sequence[Instruction]) -> None:
        self.t, self.b, self.fn, self.kernel = thread, thread.b, fn, kernel
        self.code = {i.address: i for i in code}
        self.next = {a.address: b.address for a, b in itertools.pairwise(code)}
        self.leaders = self._leaders(code)
        self.paced = self._paced_loops(code)
        self.blocks: dict[tuple[int, Stack], ir.Block] = {}
        self.todo: list[tuple[int, Stack]] = []
        self.memory: tuple[V, V] | None = None

    def run(self, stack: Stack) -> None:
        if stack is None:
            self.memory = (self.t.slot(ir.ArrayType(I32, DYNAMIC_DEPTH), "stack"), self.t.variable("depth", I32))
        entry = self.b.block
        first = self._block(min(self.code), stack)
        while self.todo:
            self._write(*self.todo.pop())
        self.b.position_at_end(entry)
        self.b.branch(first)

    # -- positions ---------------------------------------------------------------------------------------------

    def _leaders(self, code: Sequence[Instruction]) -> set[int]:
        found = {self._target(i) for i in code if i.operand("target") is not None and i.opcode not in ("BRX", "JMX")}
        found |= {self.next.get(i.address, -1) for i in code if i.opcode in _JUMPS}
        return found | set(self._indirect_targets())

    def _paced_loops(self, code: Sequence[Instruction]) -> list[range]:
        """Address ranges of loops with a block barrier inside. There lanes are taken to hand values on across the
        barrier only: bringing the warp together between its accesses as well would cost a quarter of the speed of a
        double-buffered loop (measured on an H200, conv_fprop_64x64)."""
        barriers = [i.address for i in code if i.mnemonic == "BAR.SYNC"]
        jumps = [i for i in code if i.opcode == "BRA" and i["target"].type == "rel_target"]
        loops = [range(self._target(i), i.address + 1) for i in jumps if self._target(i) <= i.address]
        return [loop for loop in loops if any(b in loop for b in barriers)]

    @staticmethod
    def _snap(address: int) -> int:
        """A target may name the control word in front of a group's first instruction."""
        return address + 8 if address % 32 == 0 else address

    def _target(self, inst: Instruction) -> int:
        return self._snap(inst["target"].value)

    def _indirect_targets(self) -> list[int]:
        """Where an indirect branch may go: every instruction address named by a word of the jump tables in bank 2."""
        bank = self.kernel.constants.get(2, b"")
        words = {int.from_bytes(bank[at:at + 4], "little") for at in range(0, len(bank) - 3, 4)}
        return sorted({self._snap(w) for w in words} & set(self.code)) if self._has_indirect() else []

    def _has_indirect(self) -> bool:
        return any(i.opcode in ("BRX", "JMX") for i in self.code.values())

    def _block(self, address: int, stack: Stack) -> ir.Block:
        """The block of a position, to be written if it is new; a trap for an address outside the code."""
        key = (address, stack)
        if key not in self.blocks:
            self.blocks[key] = self.fn.append_basic_block(f"L{address:x}")
            self.todo.append(key)
        return self.blocks[key]

    # -- blocks ------------------------------------------------------------------------------------------------

    def _write(self, address: int, stack: Stack) -> None:
        self.b.position_at_end(self.blocks[address, stack])
        self.t.begin_block()
        start = address
        while True:
            inst = self.code.get(address)
            if inst is None or (address != start and address in self.leaders):
                break
            address = self.next.get(address, -1)
            if inst.opcode in _PUSH and inst.opcode not in ("CAL", "JCAL"):
                stack = self._push(stack, _PUSH[inst.opcode], self._target(inst))
            elif inst.opcode in _JUMPS:
                self._jump(inst, address, stack)
                return
            else:
                self._plain(inst)
        if address in self.code:
            self.b.branch(self._block(address, stack))
        else:
            self._trap()

    def _plain(self, inst: Instruction) -> None:
        if inst.opcode in _SHARED_ACCESS and not any(inst.address in loop for loop in self.paced):
            self.t.in_step(_SHARED_ACCESS[inst.opcode])
        condition = self._guard(inst)
        if condition is None:
            self._meaning(inst)
        else:
            with self.b.if_then(condition):
                self._meaning(inst)

    def _meaning(self, inst: Instruction) -> None:
        if inst.opcode == "BAR":
            self._barrier(inst)
        elif inst.opcode == "MEMBAR":
            self.t.fence(inst.mods["lvl"])
        else:
            function = meaning(inst)
            if function is None:
                self.t.unsupported(f"{inst.text()} has no meaning here")
            else:
                function(self.t, inst)

    def _barrier(self, inst: Instruction) -> None:
        count = inst.operand("cnt")
        threads = None if count is None or (count.type == "uimm" and count.value == 0) else i32(self.t, count)
        kind = inst.mnemonic.removeprefix("BAR.")
        p = None
        if kind == "RED":
            kind, p = inst.mods["op"], pred(self.t, inst["ps"])
        self.t.barrier(kind, i32(self.t, inst["bar"]), threads, p)

    # -- jumps -------------------------------------------------------------------------------------------------

    def _guard(self, inst: Instruction) -> V | None:
        """The condition an instruction runs under: its guard and its test of the flags; None where it always does."""
        parts = []
        if inst.guard.index != PT or inst.guard.negated:
            p = self.t.const("i1", 1) if inst.guard.index == PT else self.t.pred(inst.guard.index)
            parts.append(self.t.not_(p) if inst.guard.negated else p)
        test = inst.operand("cc")
        if test is not None and test.type == "cc_test" and test.value != CC_TRUE:
            holds = flag_test(self.t, CC_TESTS[test.value])
            parts.append(self.t.const("i1", 0) if holds is None else holds)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else self.t.and_(*parts)

    def _jump(self, inst: Instruction, after: int, stack: Stack) -> None:
        condition = self._guard(inst)
        if condition is not None:
            taken = self.fn.append_basic_block(f"T{inst.address:x}")
            self.b.cbranch(condition, taken, self._block(after, stack))
            self.b.position_at_end(taken)
        op = inst.opcode
        if op in ("EXIT", "KIL"):
            self.b.ret_void()
        elif op in _POP:
            self._pop(_POP[op], stack)
        elif op in ("BRX", "JMX"):
            self._indirect(inst, stack)
        elif inst["target"].type == "cbank36":
            self._switch(self.t.constant(inst["target"].bank, inst["target"].value), self._indirect_targets(), stack)
        else:
            if op in ("CAL", "JCAL"):
                stack = self._push(stack, "CAL", after)
            self.b.branch(self._block(self._target(inst), stack))

    def _indirect(self, inst: Instruction, stack: Stack) -> None:
        """The register holds a table word; the branch adds its displacement, relative to the next word for BRX."""
        op = inst["target"]
        base = self.t.const("i32", 0) if op.base == 255 else self.t.reg(op.base)
        shift = op.value + (inst.address + 8 if inst.opcode == "BRX" else 0)
        self._switch(self.t.add(base, self.t.const("i32", shift)), self._indirect_targets(), stack)

    def _switch(self, value: V, targets: Sequence[int], stack: Stack) -> None:
        trap = self.fn.append_basic_block("nowhere")
        switch = self.b.switch(value, trap)
        for target in targets:
            switch.add_case(ir.Constant(I32, target), self._block(target, stack))
            if target % 32 == 8:
                switch.add_case(ir.Constant(I32, target - 8), self._block(target, stack))
        self.b.position_at_end(trap)
        self._trap()

    def _trap(self) -> None:
        self.t.unsupported("a jump outside the kernel")
        self.b.unreachable()

    # -- the stack ---------------------------------------------------------------------------------------------

    def _push(self, stack: Stack, kind: str, target: int) -> Stack:
        if stack is not None:
            if len(stack) >= MAX_STATIC_DEPTH:
                raise _Recursion
            return (*stack, (kind, target))
        array, depth = self.memory  # type: ignore[misc]
        top = self.b.load(depth, typ=I32)
        self.b.store(ir.Constant(I32, target << 2 | _KINDS.index(kind)), self._entry(array, top))
        self.b.store(self.t.add(top, self.t.const("i32", 1)), depth)
        return None

    def _entry(self, array: V, index: V) -> V:
        return self.b.gep(array, [ir.Constant(I32, 0), index], source_etype=ir.ArrayType(I32, DYNAMIC_DEPTH))

    def _pop(self, kind: str, stack: Stack) -> None:
        """Drop entries until one of this kind, and go there; RET with none left ends the thread."""
        if stack is None:
            self._pop_from_memory(kind)
            return
        while stack:
            (found, target), stack = stack[-1], stack[:-1]
            if found == kind:
                self.b.branch(self._block(target, stack))
                return
        if kind == "CAL":
            self.b.ret_void()
        else:
            self._trap()

    def _pop_from_memory(self, kind: str) -> None:
        array, depth = self.memory  # type: ignore[misc]
        head, body, hit, empty = (self.fn.append_basic_block(n) for n in ("pop", "entry", "hit", "empty"))
        self.b.branch(head)
        self.b.position_at_end(head)
        top = self.b.load(depth, typ=I32)
        self.b.cbranch(self.t.icmp("eq", top, self.t.const("i32", 0)), empty, body)
        self.b.position_at_end(body)
        below = self.t.sub(top, self.t.const("i32", 1))
        self.b.store(below, depth)
        value = self.b.load(self._entry(array, below), typ=I32)
        same = self.t.icmp("eq", self.t.and_(value, self.t.const("i32", 3)), self.t.const("i32", _KINDS.index(kind)))
        self.b.cbranch(same, hit, head)
        self.b.position_at_end(empty)
        self.b.ret_void()
        self.b.position_at_end(hit)
        self._switch(self.t.lshr(value, self.t.const("i32", 2)), self._pushed(kind), None)

    def _pushed(self, kind: str) -> list[int]:
        """Every target that some instruction pushes as `kind`."""
        calls = {self.next.get(i.address, -1) for i in self.code.values() if i.opcode in ("CAL", "JCAL")}
        plain = {self._target(i) for i in self.code.values()
                 if _PUSH.get(i.opcode) == kind and i.opcode not in ("CAL", "JCAL")}
        return sorted(plain | (calls if kind == "CAL" else set()))
