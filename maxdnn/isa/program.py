"""Where the words of a program lie and where control goes: addressing, indirect targets and the control-flow graph.

Maxwell packs three instructions behind one control word, 32 bytes in all; Hopper's words of 16 bytes have it inside.
Only `Addressing` knows that; the functions on addresses of this module are Maxwell's.

Nodes of the graph are straight pieces of code paired with one lane's stack of SSY, PBK, PCNT and CAL targets, so that
SYNC, BRK, CONT and RET have exact successors and two callers of one function are kept apart. What could not be followed
is listed (`unfollowed`), never dropped in silence."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .instruction import Instruction
from .table import CC_TRUE, PT

GROUP = 32  # bytes: one control word, then the instructions it belongs to
WORD = 8
INDIRECT_TARGETS = 0x34  # attribute of .nv.info: (branch, 0, count, targets) as the compiler noted them
JUMP_TABLES = 2  # the constant bank that jump tables lie in

PUSHES = {"SSY": "SSY", "PBK": "PBK", "PCNT": "PCNT", "PRET": "CAL"}
POPS = {"SYNC": "SSY", "BRK": "PBK", "CONT": "PCNT", "RET": "CAL"}
CALLS = ("CAL", "JCAL")
ENDS = ("EXIT", "KIL", "LONGJMP", "BPT")
PLACES = ("PLONGJMP", "PEXIT")  # like PUSHES name an address that is for later
JUMPS = frozenset(["BRA", "BRX", "JMP", "JMX", *CALLS, *POPS, *ENDS])
_REPEATS = 2  # how often one function may be on a stack before its recursion is folded
_MOST_NODES = 20000

Stack = tuple[tuple[str, int], ...]


# -- addresses ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Addressing:
    """Words of so many bytes, one behind the other or, if `group` is not 0, in groups of so many bytes that begin
    with a control word."""

    word: int
    group: int = 0

    def normal(self, address: int) -> int:
        """The address of an instruction; that of a control word means the instruction behind it."""
        return address + self.word if self.group and address % self.group == 0 else address

    def following(self, address: int) -> int:
        """The address of the next instruction."""
        return self.normal(address + self.word)

    def index_of(self, address: int) -> int:
        """Instruction index of a byte address, which may be that of a control word."""
        if not self.group:
            return address // self.word
        return address // self.group * self.per_group + max(address % self.group // self.word - 1, 0)

    def address_of(self, index: int) -> int:
        """Byte address of an instruction by index."""
        if not self.group:
            return index * self.word
        return index // self.per_group * self.group + (index % self.per_group + 1) * self.word

    def aliases(self, address: int) -> tuple[int, ...]:
        """All addresses that mean this instruction: its own, and that of the control word in front of it."""
        before = address - self.word
        return (address, before) if self.group and before % self.group == 0 else (address,)

    def count(self, nbytes: int) -> int:
        """Instructions in so many bytes of code."""
        return nbytes // self.group * self.per_group if self.group else nbytes // self.word

    @property
    def per_group(self) -> int:
        return self.group // self.word - 1


MAXWELL, HOPPER = Addressing(WORD, GROUP), Addressing(16)
normal, following, index_of, address_of = MAXWELL.normal, MAXWELL.following, MAXWELL.index_of, MAXWELL.address_of
aliases = MAXWELL.aliases


def addressing_of(inst: Instruction) -> Addressing:
    """That of the instruction's table."""
    return MAXWELL if inst.row.table.word_bits == 64 else HOPPER


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


def noted_targets(kernel: Listing) -> dict[int, list[int]]:
    """Index of a branch -> indices of its possible targets, as the compiler noted them: none for a call through a
    pointer."""
    found: dict[int, list[int]] = {}
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
    return sorted({index_of(w) for w in words if w % WORD == 0 and 0 < w < len(kernel.code)})


def indirect_targets(kernel: Listing, branches: Iterable[int]) -> dict[int, list[int]]:
    """Where each of the indirect branches may go, all by index: what the compiler noted; where that is nothing, what
    the jump tables hold beside the targets noted for other branches (tables of function pointers lie there too)."""
    noted = noted_targets(kernel)
    others = sorted({*table_targets(kernel)} - {t for targets in noted.values() for t in targets})
    return {i: noted.get(i) or others for i in branches}


def static_target(inst: Instruction) -> int | None:
    """The address an instruction names itself (`BRA`, `SSY`, `CAL` ...), if it does."""
    op = inst.operand("target")
    return addressing_of(inst).normal(op.value) if op is not None and op.type in ("rel_target", "uimm") else None


def conditional(inst: Instruction) -> bool:
    """Whether control may go on behind a jump: it is guarded or tests the flags."""
    return inst.guard.index != PT or inst.guard.negated or tests_flags(inst) or tests_predicate(inst)


def tests_predicate(inst: Instruction) -> bool:
    """Whether a jump of Hopper has a predicate beside its guard."""
    ps = inst.operand("ps")
    if inst.row.table.word_bits == 64:
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
        self._noted = noted_targets(kernel)
        self._indirect = indirect_targets(kernel, [i for i, inst in enumerate(self.code) if inst.opcode in JUMPS])
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
                leaders.add(index_of(target))
            if inst.opcode in JUMPS or inst.opcode in PUSHES:
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
        for target, after in self._jumps(i, inst, stack):
            if 0 <= target < len(self.code):
                node.successors.append(self._node(target, self._folded(after)))
            else:
                self._unfollowed[i] = "goes outside the kernel's code"
        if inst.opcode in PUSHES and static_target(inst) is not None:
            stack = (*stack, (PUSHES[inst.opcode], index_of(inst["target"].value)))
        if inst.opcode not in JUMPS or conditional(inst):
            if i + 1 < len(self.code):
                node.through = self._node(i + 1, stack)
                node.successors.append(node.through)
            else:
                self._unfollowed[i] = "the code ends here, control does not"

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
        return static_target(call) if call.opcode in CALLS else None

    def _jumps(self, i: int, inst: Instruction, stack: Stack) -> list[tuple[int, Stack]]:
        """Where control may go from an instruction other than behind it, with the stack there."""
        if inst.opcode == "LONGJMP":
            self._unfollowed[i] = "LONGJMP is not followed"
        if inst.opcode not in JUMPS or inst.opcode in ENDS:
            return []
        if inst.opcode in POPS:
            return self._pop(i, POPS[inst.opcode], stack)
        if inst.opcode in CALLS:
            stack = (*stack, ("CAL", i + 1))
        target = static_target(inst)
        if target is not None:
            return [(index_of(target), stack)]
        if not self._noted.get(i, self._indirect[i]):  # a pointer may also hold what is in no table
            self._unfollowed[i] = "an indirect branch whose targets the file does not name"
        return [(t, stack) for t in self._indirect[i]]

    def _pop(self, i: int, kind: str, stack: Stack) -> list[tuple[int, Stack]]:
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth][0] == kind:
                return [(stack[depth][1], stack[:depth])]
        if kind != "CAL":  # RET with no caller ends the thread
            self._unfollowed[i] = f"no {kind} before it on some path"
        return []

    def reachable(self) -> set[int]:
        return {i for node in self.nodes for i in range(node.first, node.last + 1)}
