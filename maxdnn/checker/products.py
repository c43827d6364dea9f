"""Registers of a warpgroup's products, on all paths: the unit has them from HGMMA until WARPGROUP.DEPBAR says that the
product's group is done, and it takes them as they were before WARPGROUP.ARRIVE. Registers that USETMAXREG gave back are
not there. And what an instruction that may fail says of itself (a phase that is not complete, registers that are not
free) must be looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..isa import PT, RZ, Instruction
from ..isa.program import Graph, Node
from ..isa.table import SYSTEM_REGISTERS
from .effects import PREDICATE, REGISTERS, Effects, names
from .report import ERROR, WARNING, Finding, Place
from .timing import fixed_point

_OPEN = -1  # the age of a product whose group is not committed
_OLDEST = 8  # no wait leaves so many groups


@dataclass(frozen=True)
class _State:
    """`flying`: products under way and how many groups were committed behind theirs; `written`: registers written
    since the last WARPGROUP.ARRIVE; `limit`: registers of a thread."""

    flying: frozenset[tuple[int, int]]
    written: int
    limit: int


def _join(a: _State, b: _State, _widen: bool) -> _State:
    youngest: dict[int, int] = {}
    for i, age in a.flying | b.flying:
        youngest[i] = min(age, youngest.get(i, age))
    return _State(frozenset(youngest.items()), a.written | b.written, min(a.limit, b.limit))


def _mask(inst: Instruction, name: str) -> int:
    return sum(1 << r for r in inst[name].registers())


def span(mask: int) -> str:
    """Registers of a mask, from the first to the last."""
    first, last = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    return f"R{first}" if first == last else f"R{first}..R{last}"


def multiplies(inst: Instruction) -> bool:
    """Whether it is a product whose registers belong to the tensor cores until a wait."""
    return inst.opcode == "HGMMA"


def arrives(inst: Instruction) -> bool:
    """Whether it shows registers to the unit."""
    return inst.opcode == "WARPGROUP" and "ARRIVE" in inst.row.text


class _Registers:
    """The rules on one kernel."""

    def __init__(self, graph: Graph, effects: Sequence[Effects], registers: int) -> None:
        self.graph, self.code, self.effects = graph, graph.code, effects
        self.sums = {i: _mask(inst, "d") for i, inst in enumerate(self.code) if multiplies(inst)}
        self.factors = {i: _mask(self.code[i], "a") for i in self.sums if self.code[i].operand("b") is not None}
        self.start = _State(frozenset(), REGISTERS, registers)

    def find(self) -> Iterator[Finding]:
        states = fixed_point(self.graph, self.start, self._leave, _join)
        found: dict[tuple[str, int], Finding] = {}
        for node, state in states.items():
            for i in range(node.first, node.last + 1):
                for finding in self._judged(i, state):
                    found.setdefault((finding.kind, i), finding)
                state = self._after(i, state)
        yield from found.values()

    def _leave(self, node: Node, state: _State) -> Iterator[tuple[Node, _State]]:
        for i in range(node.first, node.last + 1):
            state = self._after(i, state)
        for successor in node.successors:
            yield successor, state

    def _after(self, i: int, state: _State) -> _State:
        inst, new = self.code[i], self._changed(i, state)
        always = inst.guard.index == PT and not inst.guard.negated
        return new if always or new is state else _join(state, new, False)

    def _changed(self, i: int, state: _State) -> _State:
        inst = self.code[i]
        if i in self.sums:
            flying = {(k, age) for k, age in state.flying if k != i} | {(i, _OPEN)}
            if inst["gsb"].label:
                flying = {(k, min(age + 1, _OLDEST)) for k, age in flying}
            return replace(state, flying=frozenset(flying))
        if arrives(inst):
            return replace(state, written=0)
        if inst.opcode == "WARPGROUP" and "DEPBAR" in inst.row.text:
            left = inst["n"].value
            return replace(state, flying=frozenset((k, age) for k, age in state.flying if age < left))
        if inst.opcode == "USETMAXREG":
            return replace(state, limit=inst["n"].value if inst["n"].type == "uimm" else RZ)
        written = self.effects[i].writes & REGISTERS
        return replace(state, written=state.written | written) if written & ~state.written else state

    def _judged(self, i: int, state: _State) -> Iterator[Finding]:
        inst = self.code[i]
        if i in self.sums:
            yield from self._product(i, state)
        else:
            yield from self._other(i, state)
        named = max((r for op in inst.operands for r in op.registers() if r < RZ), default=-1)
        if named + SYSTEM_REGISTERS >= state.limit:
            yield Finding("registers", f"R{named}", None, Place.of(inst), None, None,
                          f"a warp may have {state.limit} registers here, of which the system takes {SYSTEM_REGISTERS}",
                          "keep more: USETMAXREG")
        if inst.flow is not None and inst.flow.does == "end" and state.flying:
            k = min(state.flying)[0]
            yield Finding("in-flight", span(self.sums[k]), Place.of(self.code[k]), Place.of(inst), None, None,
                          "nobody waits for this product", "WARPGROUP.DEPBAR", WARNING)

    def _product(self, i: int, state: _State) -> Iterator[Finding]:
        """Sums may be under way as the very same sums, operands as operands."""
        sums, factors = self.sums[i], self.factors.get(i, 0)
        for k, age in sorted(state.flying):
            theirs, read = self.sums[k], self.factors.get(k, 0)
            used = (factors & theirs) | (sums & read) | (sums & theirs if sums != theirs else 0)
            if used:
                yield self._flying(k, i, used, age)
        if (sums | factors) & state.written:
            yield Finding("unordered", span((sums | factors) & state.written), None, Place.of(self.code[i]), None, None,
                          "the unit may not see what was written here since the last WARPGROUP.ARRIVE",
                          "WARPGROUP.ARRIVE before it", ERROR)

    def _other(self, i: int, state: _State) -> Iterator[Finding]:
        eff = self.effects[i]
        for k, age in sorted(state.flying):
            used = (eff.reads | eff.writes) & self.sums[k] | eff.writes & self.factors.get(k, 0)
            if used:
                yield self._flying(k, i, used, age)

    def _flying(self, k: int, i: int, used: int, age: int) -> Finding:
        why = "its group is not committed (gsb0)" if age == _OPEN else f"a wait that leaves {age} groups open is wanted"
        return Finding("in-flight", span(used), Place.of(self.code[k]), Place.of(self.code[i]), None, None,
                       f"is used, and the product may still have it: {why}", "WARPGROUP.DEPBAR before it")


def _unasked(graph: Graph, effects: Sequence[Effects]) -> Iterator[Finding]:
    """Instructions that may fail whose success no branch or data depends on."""
    code = graph.code
    for i in sorted(graph.reachable()):
        inst, told = code[i], effects[i].writes >> PREDICATE << PREDICATE
        if inst.operand("pd") is None or inst.opcode not in ("SYNCS", "USETMAXREG") or _told(graph, effects, i, told):
            continue
        yield Finding("unasked", names(told), None, Place.of(inst), None, None,
                      "may fail, and nothing depends on whether it did", "a branch back that its predicate guards")


def _told(graph: Graph, effects: Sequence[Effects], i: int, told: int) -> bool:
    """Whether control or data depend on predicates that instruction i wrote, through others, too."""
    start = next(node for node in graph.nodes if node.first <= i <= node.last)
    todo, seen = [(start, i + 1, told)], set()
    while todo:
        node, first, carries = todo.pop()
        if (node, first, carries) in seen:
            continue
        seen.add((node, first, carries))
        for j in range(first, node.last + 1):
            eff = effects[j]
            if eff.reads & carries:
                if graph.code[j].leaves() or eff.writes & REGISTERS or not eff.writes:
                    return True
                carries |= eff.writes
            elif j != i:
                carries &= ~eff.writes if eff.guard.index == PT else -1
        if carries:
            todo += [(successor, successor.first, carries) for successor in node.successors]
    return False


def product_findings(graph: Graph, effects: Sequence[Effects], registers: int) -> list[Finding]:
    """Errors and warnings about registers of products; `registers`: of a thread, that a launch gives."""
    opcodes = {inst.opcode for inst in graph.code}
    if not opcodes & {"HGMMA", "USETMAXREG", "SYNCS"}:
        return []
    limit = registers if "USETMAXREG" in opcodes else RZ + SYSTEM_REGISTERS
    return [*_Registers(graph, effects, limit).find(), *_unasked(graph, effects)]
