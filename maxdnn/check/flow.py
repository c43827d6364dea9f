"""The control-flow graph of a kernel as one lane sees it.

Nodes are straight pieces of code paired with the lane's stack of SSY, PBK, PCNT and CAL targets, so that SYNC, BRK,
CONT and RET have exact successors and two callers of one function are kept apart. Another lane's detour through the
other side of a divergent branch only adds time and never removes a wait, so paths of a single lane are the worst case.
Targets of indexed branches come from the .nv.info attribute the compiler writes (0x34), else from the words of the
kernel's constant bank 2 that are instruction addresses."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..cubin import CubinKernel
from ..isa import Instruction
from ..isa.table import CC_TRUE, PT

_PUSH = {"SSY": "SSY", "PBK": "PBK", "PCNT": "PCNT", "PRET": "CAL"}
_POP = {"SYNC": "SSY", "BRK": "PBK", "CONT": "PCNT", "RET": "CAL"}
_ENDS = {"EXIT", "KIL", "LONGJMP", "BPT"}
_JUMPS = {"BRA", "BRX", "JMP", "JMX", "CAL", "JCAL", *_POP, *_ENDS}
_REPEATS = 2  # how often one function may be on a stack before its recursion is folded
_MOST_NODES = 20000

Stack = tuple[tuple[str, int], ...]


@dataclass(eq=False)
class Node:
    """Instructions first..last (indices, inclusive) reached with one stack."""

    first: int
    last: int
    successors: list["Node"] = field(default_factory=list)


def index_of(address: int) -> int:
    """Instruction index of a byte address; the address of a control word means the instruction behind it."""
    return address // 32 * 3 + max(address % 32 // 8 - 1, 0)


def _conditional(inst: Instruction) -> bool:
    cc = inst.operand("cc")
    return inst.guard.index != PT or (cc is not None and cc.type == "cc_test" and cc.value != CC_TRUE)


def indirect_targets(kernel: CubinKernel) -> dict[int, list[int]]:
    """Index of a branch -> indices of its possible targets, as the compiler noted them."""
    found: dict[int, list[int]] = {}
    for code, value in kernel.attributes:
        at = 0
        while code == 0x34 and at + 12 <= len(value):
            address, _, count = struct.unpack_from("<III", value, at)
            targets = struct.unpack_from(f"<{count}I", value, at + 12)
            found[index_of(address)] = [index_of(t) for t in targets]
            at += 12 + 4 * count
    return found


def _table_targets(kernel: CubinKernel) -> list[int]:
    data = kernel.constants.get(2, b"")
    words = struct.unpack(f"<{len(data) // 4}I", data[:len(data) // 4 * 4])
    return sorted({index_of(w) for w in words if w % 8 == 0 and 0 < w < len(kernel.code)})


class Graph:
    """All nodes reachable from the kernel's first instruction; `nodes[0]` is the entry."""

    def __init__(self, kernel: CubinKernel, code: Sequence[Instruction] | None = None) -> None:
        self.code = kernel.instructions if code is None else code
        self._noted = indirect_targets(kernel)
        self._table = _table_targets(kernel)
        self._leaders = self._find_leaders()
        self._made: dict[tuple[int, Stack], Node] = {}
        self._todo: list[tuple[Node, Stack]] = []
        self.complete = True  # False: more nodes than followed
        self.unbalanced: list[int] = []  # SYNC, BRK, CONT with no matching entry
        self._node(0, ())
        while self._todo:
            self._link(*self._todo.pop())
        self.nodes = list(self._made.values())

    def _find_leaders(self) -> set[int]:
        leaders = {0, *self._table} | {t for targets in self._noted.values() for t in targets}
        for i, inst in enumerate(self.code):
            target = inst.operand("target")
            if target is not None and target.type != "gpr_plus_simm":
                leaders.add(index_of(target.value))
            if inst.opcode in _JUMPS or inst.opcode in _PUSH:
                leaders.add(i + 1)
        return leaders

    def _node(self, first: int, stack: Stack) -> Node:
        if len(self._made) > _MOST_NODES:
            stack, self.complete = (), False
        key = (first, stack)
        if key not in self._made:
            last = first
            while last + 1 < len(self.code) and last + 1 not in self._leaders:
                last += 1
            self._made[key] = Node(first, last)
            self._todo.append((self._made[key], stack))
        return self._made[key]

    def _link(self, node: Node, stack: Stack) -> None:
        for target, after in self._successors(node.last, stack):
            if 0 <= target < len(self.code):
                node.successors.append(self._node(target, self._folded(after)))

    def _folded(self, stack: Stack) -> Stack:
        """The stack; where the function just called is on it too often (recursion), without what lies between its
        first call and this one. Callers met on the way back are then those of the first call."""
        if not stack or stack[-1][0] != "CAL":
            return stack
        callee = self._callee(stack[-1][1])
        calls = [n for n, (kind, back) in enumerate(stack) if kind == "CAL" and self._callee(back) == callee]
        return (*stack[:calls[0] + 1], stack[-1]) if len(calls) > _REPEATS else stack

    def _callee(self, back: int) -> int | None:
        """The function called by the instruction before index `back`; None if that is no call (PRET)."""
        call = self.code[back - 1]
        return call["target"].value if call.opcode in ("CAL", "JCAL") else None

    def _successors(self, i: int, stack: Stack) -> list[tuple[int, Stack]]:
        inst = self.code[i]
        op = inst.opcode
        following = [(i + 1, stack)]
        if op in _PUSH:
            return [(i + 1, (*stack, (_PUSH[op], index_of(inst["target"].value))))]
        if op in ("CAL", "JCAL"):
            return [(index_of(inst["target"].value), (*stack, ("CAL", i + 1)))]
        if op not in _JUMPS:
            return following
        return self._jump(i, inst, stack) + (following if _conditional(inst) else [])

    def _jump(self, i: int, inst: Instruction, stack: Stack) -> list[tuple[int, Stack]]:
        if inst.opcode in _POP:
            return self._pop(i, _POP[inst.opcode], stack)
        if inst.opcode in ("BRX", "JMX"):
            return [(t, stack) for t in self._noted.get(i, self._table)]
        target = inst.operand("target")
        if inst.opcode in _ENDS or target is None or target.type not in ("rel_target", "uimm"):
            return []
        return [(index_of(target.value), stack)]

    def _pop(self, i: int, kind: str, stack: Stack) -> list[tuple[int, Stack]]:
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth][0] == kind:
                return [(stack[depth][1], stack[:depth])]
        if kind != "CAL":
            self.unbalanced.append(i)
        return []

    def reachable(self) -> set[int]:
        return {i for node in self.nodes for i in range(node.first, node.last + 1)}
