"""The control flow of a kernel as one thread sees it.

A warp of these chips keeps a stack: SSY, PBK, PCNT, PRET and CAL push a target, SYNC, BRK, CONT and RET go to it. For
one thread that is a jump whose target is known once the pushes on the way are known. So a position is an address and
the stack there. Only code that calls itself needs a stack in memory: there a position is the address alone."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..cubin import CubinKernel
from ..errors import TranslationError
from ..isa import Instruction
from ..isa.program import CALLER, conditional, indirect_targets, static_target

MAX_STATIC_DEPTH = 24  # pushes outstanding on one path before the stack is kept in memory
MAX_POSITIONS = 10_000  # likewise
_ENDING = ("jump", "call", "pop", "end")  # a basic block; what else leaves is refused
Stack = tuple[tuple[str, int], ...] | None  # (kind, target), the last on top; None: in memory
Position = tuple[int, Stack]


class Recursion(Exception):
    """The stack is not known before run time."""


def does(inst: Instruction) -> str:
    """What an instruction does to control, "" for nothing."""
    return inst.flow.does if inst.flow is not None else ""


def stack_kind(inst: Instruction) -> str:
    """The kind of stack entry that an instruction pushes or pops."""
    return inst.flow.stack if inst.flow is not None else ""


def refusal(kernel: CubinKernel, inst: Instruction, why: str) -> TranslationError:
    return TranslationError(f"{kernel.name}: cannot translate 0x{inst.address:04x}: {inst.text()}: {why}")


@dataclass(frozen=True)
class BasicBlock:
    """The straight code from a position: `body`, then `jump`, which is None if the next basic block follows directly.
    `after`: the position behind it, with what the body pushed on the stack."""

    body: tuple[Instruction, ...]
    jump: Instruction | None
    after: Position


class Paths:
    def __init__(self, kernel: CubinKernel, code: Sequence[Instruction]) -> None:
        self.kernel = kernel
        self.at = kernel.addressing
        self.code = {i.address: i for i in code}
        self.next = {a.address: b.address for a, b in itertools.pairwise(code)}
        self._leaders = {target for i in code if (target := static_target(i)) is not None}
        self._leaders |= {self.next.get(i.address, -1) for i in code if does(i) in _ENDING}
        self._leaders |= {t for found in self.indirect_targets.values() for t in found}

    def target(self, inst: Instruction) -> int:
        """The fixed address an instruction names. Raises TranslationError where the kernel has no code there."""
        found = self.at.normal(inst["target"].value)
        if found not in self.code:
            raise refusal(self.kernel, inst, f"there is no code at 0x{found:x}")
        return found

    @cached_property
    def indirect_targets(self) -> dict[int, list[int]]:
        """Where each indirect branch may go, as far as the file says."""
        branches = [self.at.index_of(a) for a, i in self.code.items() if self.is_indirect(i)]
        address_of = self.at.address_of
        return {address_of(i): sorted({address_of(t) for t in found} & self.code.keys())
                for i, found in indirect_targets(self.kernel, branches).items()}

    @staticmethod
    def is_indirect(inst: Instruction) -> bool:
        return does(inst) in _ENDING and inst.operand("target") is not None and static_target(inst) is None

    def places(self, inst: Instruction) -> list[int]:
        """Where an indirect branch may go. Raises TranslationError if that is not known."""
        found = self.indirect_targets[inst.address]
        if not found:
            raise refusal(self.kernel, inst, "the cubin does not say where this may go")
        return found

    def basic_block(self, position: Position) -> BasicBlock:
        """The code from a position to the next jump or the next place that something jumps to."""
        address, stack = position
        body: list[Instruction] = []
        while True:
            inst = self.code[address]
            address = self.next.get(address, -1)
            if does(inst) in _ENDING:
                return BasicBlock(tuple(body), inst, (address, stack))
            body.append(inst)
            if inst.pushes():
                if conditional(inst):
                    raise refusal(self.kernel, inst, "a push that not every lane makes")
                stack = self.push(stack, stack_kind(inst), self.target(inst))
            if address not in self.code:
                raise refusal(self.kernel, inst, "the code ends behind it")
            if address in self._leaders:
                return BasicBlock(tuple(body), None, (address, stack))

    @staticmethod
    def push(stack: Stack, kind: str, target: int) -> Stack:
        """Raises Recursion where the stack grows beyond what paths are told apart by."""
        if stack is None:
            return None
        if len(stack) >= MAX_STATIC_DEPTH:
            raise Recursion
        return (*stack, (kind, target))

    @staticmethod
    def pop(kind: str, stack: tuple[tuple[str, int], ...]) -> Position | None:
        """Drop entries until one of this kind; None if there is none."""
        while stack:
            (found, target), stack = stack[-1], stack[:-1]
            if found == kind:
                return target, stack
        return None

    def pushed(self, kind: str) -> list[int]:
        """Every target that some instruction pushes as `kind`."""
        calls = {self.next[i.address] for i in self.code.values() if does(i) == "call" and i.address in self.next}
        plain = {self.at.normal(i["target"].value) for i in self.code.values()
                 if i.pushes() and stack_kind(i) == kind} & set(self.code)
        return sorted(plain | (calls if kind == CALLER else set()))

    def taken(self, inst: Instruction, after: Position) -> list[Position]:
        """Where a jump goes when it is taken; nowhere for what ends the thread."""
        address, stack = after
        if does(inst) == "end":
            return []
        if does(inst) == "pop":
            kind = stack_kind(inst)
            if stack is None:
                return [(place, None) for place in self.pushed(kind)]
            place = self.pop(kind, stack)
            return [place] if place else []
        if does(inst) == "call":
            if address not in self.code:
                raise refusal(self.kernel, inst, "there is no code to return to")
            stack = self.push(stack, CALLER, address)
        return [(place, stack) for place in (self.places(inst) if self.is_indirect(inst) else [self.target(inst)])]

    def following(self, basic_block: BasicBlock) -> list[Position]:
        """Every position that may come after a basic block."""
        if basic_block.jump is None:
            return [basic_block.after]
        through = [self.through(basic_block.jump, basic_block.after)] if conditional(basic_block.jump) else []
        return self.taken(basic_block.jump, basic_block.after) + through

    def through(self, jump: Instruction, after: Position) -> Position:
        """Where a jump goes when it is not taken."""
        if after[0] not in self.code:
            raise refusal(self.kernel, jump, "the code ends behind it")
        return after

    def every(self, start: Position) -> dict[Position, BasicBlock]:
        """All basic blocks that can be reached. Raises Recursion."""
        found: dict[Position, BasicBlock] = {}
        todo = [start]
        while todo:
            position = todo.pop()
            if len(found) > MAX_POSITIONS and position[1] is not None:
                raise Recursion
            if position not in found:
                found[position] = self.basic_block(position)
                todo += self.following(found[position])
        return found
