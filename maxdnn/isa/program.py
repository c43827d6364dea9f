"""Where control goes: targets, indirect ones too, and the control-flow graph. What an opcode does to control and where
words lie says its table.

Nodes of the graph are straight pieces of code paired with one lane's stack of SSY, PBK, PCNT and CAL targets, so that
SYNC, BRK, CONT and RET have exact successors and two callers of one function are kept apart. What could not be followed
is listed (`unfollowed`), never dropped in silence."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .addressing import Addressing
from .instruction import Instruction
from .table import CC_TRUE, PT

INDIRECT_TARGETS = 0x34  # attribute of .nv.info: (branch, 0, count, targets) as the compiler noted them
JUMP_TABLES = 2  # the constant bank that jump tables lie in
CALLER = "CAL"  # the kind of stack entries that calls push
_REPEATS = 2  # how often one function may be on a stack before its recursion is folded
_MOST_NODES = 20000

Stack = tuple[tuple[str, int], ...]


# -- targets ------------------------------------------------------------------------------------------------------


class Listing(Protocol):
    """What the graph needs of a kernel."""

    @property
    def code(self) -> bytes: ...
    @property
    def attributes(self) -> Iterable[tuple[int, bytes]]: ...
    @property
    def constants(self) -> Mapping[int, bytes]: ...
    @property
    def instructions(self) -> Sequence[Instruction]: ...
    @property
    def addressing(self) -> Addressing: ...


def noted_targets(kernel: Listing) -> dict[int, list[int]]:
    """Index of a branch -> indices of its possible targets, as the compiler noted them: none for a call through a
    pointer."""
    found: dict[int, list[int]] = {}
    index_of = kernel.addressing.index_of
    for code, value in kernel.attributes:
        at = 0
        while code == INDIRECT_TARGETS and at + 12 <= len(value):
            address, _, count = struct.unpack_from("<III", value, at)
            count = min(count, (len(value) - at - 12) // 4)
            found[index_of(address)] = [index_of(t) for t in struct.unpack_from(f"<{count}I", value, at + 12)]
            at += 12 + 4 * count
    return found


def table_targets(kernel: Listing) -> list[int]:
    """Indices of all instructions whose address is a word of the kernel's jump tables."""
    data = kernel.constants.get(JUMP_TABLES, b"")
    words = struct.unpack(f"<{len(data) // 4}I", data[:len(data) // 4 * 4])
    where = kernel.addressing
    return sorted({where.index_of(w) for w in words if w % where.word == 0 and 0 < w < len(kernel.code)})


def indirect_targets(kernel: Listing, branches: Iterable[int]) -> dict[int, list[int]]:
    """Where each of the indirect branches may go, all by index: what the compiler noted; where that is nothing, what
    the jump tables hold beside the targets noted for other branches (tables of function pointers lie there too)."""
    noted = noted_targets(kernel)
    others = sorted({*table_targets(kernel)} - {t for targets in noted.values() for t in targets})
    return {i: noted.get(i) or others for i in branches}


def static_target(inst: Instruction) -> int | None:
    """The address an instruction names itself (`BRA`, `SSY`, `CAL` ...), if it does."""
    op = inst.operand("target")
    return inst.addressing.normal(op.value) if op is not None and op.type in ("rel_target", "uimm") else None


def register_target(inst: Instruction) -> int:
    """What a jump through a register adds to it."""
    relative = inst.flow is not None and inst.flow.relative
    return inst["target"].value + (inst.address + inst.addressing.word if relative else 0)


def conditional(inst: Instruction) -> bool:
    """Whether control may go on behind a jump: it is guarded or tests the flags."""
    return inst.guard.index != PT or inst.guard.negated or tests_flags(inst) or tests_predicate(inst)


def tests_predicate(inst: Instruction) -> bool:
    """Whether a jump has a predicate beside its guard."""
    ps = inst.operand("ps")
    if inst.flow is None or inst.flow.does == "barrier":  # what a block counts is no condition
        return False
    told = ps is not None and (ps.value != PT or ps.inv)
    return told or bool(inst.mods.get("mod_conv") or inst.mods.get("mod_div"))


def tests_flags(inst: Instruction) -> bool:
    cc = inst.operand("cc")
    return cc is not None and cc.type == "cc_test" and cc.value != CC_TRUE


# -- the graph ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    """Instructions first..last (indices, inclusive) reached with one stack. `through` is the successor behind the last
    instruction (None if control never goes on there), `successors` are all, that one included."""

    first: int
    last: int
    successors: list["Node"] = field(default_factory=list)
    through: "Node | None" = None


class Graph:
    """All nodes reachable from the kernel's first instruction; `nodes[0]` is the entry. `unfollowed`: (instruction
    index, why) of every place where paths may go that the graph does not have."""

    def __init__(self, kernel: Listing, code: Sequence[Instruction] | None = None) -> None:
        self.code = kernel.instructions if code is None else code
        self._index_of = kernel.addressing.index_of
        self._noted = noted_targets(kernel)
        self._indirect = indirect_targets(kernel, [i for i, inst in enumerate(self.code) if inst.leaves()])
        self._leaders = self._find_leaders()
        self._made: dict[tuple[int, Stack], Node] = {}
        self._todo: list[tuple[Node, Stack]] = []
        self._unfollowed: dict[int, str] = {}
        self._node(0, ())
        while self._todo:
            self._link(*self._todo.pop())
        self.nodes = list(self._made.values())
        self.unfollowed = sorted(self._unfollowed.items())

    def _find_leaders(self) -> set[int]:
        leaders = {0} | {t for found in (self._noted, self._indirect) for targets in found.values() for t in targets}
        for i, inst in enumerate(self.code):
            target = static_target(inst)
            if target is not None:
                leaders.add(self._index_of(target))
            if inst.leaves() or inst.pushes():
                leaders.add(i + 1)
        return leaders

    def _node(self, first: int, stack: Stack) -> Node:
        if len(self._made) > _MOST_NODES:
            stack = ()
            self._unfollowed.setdefault(first, "calls nest too many ways")
        key = (first, stack)
        if key not in self._made:
            last = first
            while last + 1 < len(self.code) and last + 1 not in self._leaders:
                last += 1
            self._made[key] = Node(first, last)
            self._todo.append((self._made[key], stack))
        return self._made[key]

    def _link(self, node: Node, stack: Stack) -> None:
        i, inst = node.last, self.code[node.last]
        for way, after in self._jumps(i, inst, stack):
            if 0 <= way < len(self.code):
                node.successors.append(self._node(way, self._folded(after)))
            else:
                self._unfollowed[i] = "goes outside the kernel's code"
        target = static_target(inst)
        if inst.flow is not None and inst.pushes() and target is not None:
            stack = (*stack, (inst.flow.stack, self._index_of(target)))
        if not inst.leaves() or conditional(inst):
            if i + 1 < len(self.code):
                node.through = self._node(i + 1, stack)
                node.successors.append(node.through)
            else:
                self._unfollowed[i] = "the code ends here, control does not"

    def _folded(self, stack: Stack) -> Stack:
        """The stack; where the function just called is on it too often (recursion), without what lies between its
        first call and this one. Callers met on the way back are then those of the first call."""
        if not stack or stack[-1][0] != CALLER:
            return stack
        callee = self._callee(stack[-1][1])
        calls = [n for n, (kind, back) in enumerate(stack) if kind == CALLER and self._callee(back) == callee]
        return (*stack[:calls[0] + 1], stack[-1]) if len(calls) > _REPEATS else stack

    def _callee(self, back: int) -> int | None:
        """The function called by the instruction before index `back`; None if that is no call (PRET)."""
        call = self.code[back - 1]
        return static_target(call) if call.flow is not None and call.flow.does == "call" else None

    def _jumps(self, i: int, inst: Instruction, stack: Stack) -> list[tuple[int, Stack]]:
        """Where control may go from an instruction other than behind it, with the stack there."""
        flow = inst.flow
        if flow is None or not inst.leaves():
            return []
        if flow.does == "far":
            self._unfollowed[i] = f"{inst.opcode} is not followed"
        if flow.does in ("end", "far", "trap"):
            return []
        if flow.does == "pop":
            return self._pop(i, flow.stack, stack)
        if flow.does == "call":
            stack = (*stack, (flow.stack, i + 1))
        target = static_target(inst)
        if target is not None:
            return [(self._index_of(target), stack)]
        if not self._noted.get(i, self._indirect[i]):  # a pointer may also hold what is in no table
            self._unfollowed[i] = "an indirect branch whose targets the file does not name"
        return [(t, stack) for t in self._indirect[i]]

    def _pop(self, i: int, kind: str, stack: Stack) -> list[tuple[int, Stack]]:
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth][0] == kind:
                return [(stack[depth][1], stack[:depth])]
        if kind != CALLER:  # RET with no caller ends the thread
            self._unfollowed[i] = f"no {kind} before it on some path"
        return []

    def reachable(self) -> set[int]:
        return {i for node in self.nodes for i in range(node.first, node.last + 1)}
