"""What control codes guarantee at every program point: for each instruction still under way, the fewest cycles since it
issued, whether its result or its operand reads may be outstanding, and which scoreboards would tell. Paths join to the
worst case, so a fact holds on all paths; loops run to a fixed point.

One entry per instruction is enough: where several instances are under way the newest is the worst."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..isa import Instruction
from .effects import PREDICATE, Effects
from .flow import Graph, Node

HORIZON = 30  # cycles after which distances no longer matter (longest latency 13 + longest stall 15, and some)
# Cycles that stall 12..15 guarantees without the yield hint: the lower bound of the CuAssembler RegBank measurements
# (23.4, 8.4, 8.9 and 9.6 cycles). The vendor's compiler relies on 8 of an un-yielded 14.
UNYIELDED = {12: 8, 13: 8, 14: 8, 15: 9}

RESULT, OPERANDS, GUARD = 1, 2, 4  # result not known written, operands not known read, guard predicate unchanged


@dataclass(frozen=True, slots=True)
class Entry:
    """An instruction under way. `issued` is relative to the state's clock; `flags` of RESULT, OPERANDS, GUARD;
    `result_bars`, `operand_bars`: masks of scoreboards that prove completion; `later`: for each scoreboard that a
    DEPBAR.LE names, the fewest operations of its kind counted on it since (its own not counted); `live`: written
    resources not overwritten since."""

    issued: int
    flags: int
    result_bars: int
    operand_bars: int
    later: tuple[int, ...]
    live: int


State = dict[int, Entry]


def stall_cycles(inst: Instruction) -> int:
    """Cycles guaranteed between the issue of an instruction and of the next one."""
    control = inst.control
    return control.stall if control.yield_hint else UNYIELDED.get(control.stall, control.stall)


def bars(control_write: int | None, control_read: int | None) -> tuple[int, int]:
    return (0 if control_write is None else 1 << control_write), (0 if control_read is None else 1 << control_read)


class Timing:
    """The states before every node of a graph, and a walk over every instruction with the state it issues in."""

    def __init__(self, graph: Graph, effects: Sequence[Effects]) -> None:
        self.graph = graph
        self.code = graph.code
        self.effects = effects
        named = {inst["sb"].value for inst in self.code if inst.operand("sb") is not None}
        self._partial = tuple(sorted(named))  # scoreboards waited on by count
        self._plans = [self._plan(i) for i in range(len(self.code))]
        self.entry_states: dict[Node, State] = {}
        self._solve()

    def _plan(self, i: int) -> tuple[int, int, int, int, int, int]:
        """(stall, wait mask, partial wait, write bit, read bit, flags) of an instruction."""
        inst, eff = self.code[i], self.effects[i]
        write, read = bars(inst.control.write_barrier, inst.control.read_barrier)
        flags = GUARD
        if not eff.fixed and eff.writes:
            flags |= RESULT
        if eff.late:
            flags |= OPERANDS
        wait = inst.control.wait_mask
        partial = -1
        if inst.opcode == "DEPBAR":
            wait |= inst["mask"].value
            if inst.operand("sb") is not None:
                partial = inst["sb"].value | inst["n"].value << 3
        return stall_cycles(inst), wait, partial, write, read, flags

    def _solve(self) -> None:
        """Propagate to a fixed point, nodes in order of first arrival."""
        start = self.graph.nodes[0]
        self.entry_states[start] = {}
        order = {node: n for n, node in enumerate(sorted(self.graph.nodes, key=lambda n: n.first))}
        todo = {start}
        while todo:
            node = min(todo, key=order.__getitem__)
            todo.remove(node)
            state = self._through(node)
            for successor in node.successors:
                known = self.entry_states.get(successor)
                joined = state if known is None else join(known, state)
                if joined != known:
                    self.entry_states[successor] = joined
                    todo.add(successor)

    def _through(self, node: Node) -> State:
        state, clock = dict(self.entry_states[node]), 0
        for i in range(node.first, node.last + 1):
            self._wait(i, state, clock)
            clock = self._issue(i, state, clock)
        return {k: Entry(max(e.issued - clock, -HORIZON), e.flags, e.result_bars, e.operand_bars, e.later, e.live)
                for k, e in state.items() if e.flags & 3 or e.issued - clock > -HORIZON}

    def stall(self, i: int) -> int:
        """Cycles the stall of instruction i guarantees."""
        return self._plans[i][0]

    def walk(self) -> Iterator[tuple[int, State, State, int]]:
        """(instruction, state before its waits, state after them, clock) for every node and instruction."""
        for _, *step in self.walk_nodes():
            yield tuple(step)  # type: ignore[misc]

    def walk_nodes(self) -> Iterator[tuple[Node, int, State, State, int]]:
        """The same with the node in front."""
        for node in self.graph.nodes:
            if node not in self.entry_states:
                continue
            state, clock = dict(self.entry_states[node]), 0
            for i in range(node.first, node.last + 1):
                before = dict(state)
                self._wait(i, state, clock)
                yield node, i, before, state, clock
                clock = self._issue(i, state, clock)

    def _wait(self, i: int, state: State, clock: int) -> None:
        _, wait, partial, _, _, _ = self._plans[i]
        if wait or partial >= 0:
            release(state, wait, partial, self._partial)

    def _issue(self, i: int, state: State, clock: int) -> int:
        stall, _, _, write, read, flags = self._plans[i]
        eff = self.effects[i]
        if write | read and eff.queue:
            cover(state, self.effects, write | read, write, eff)
        elif eff.order == "bar":
            arrive(state, self.effects)
        counted = tuple(int((write | read) >> bar & 1) for bar in self._partial)
        predicates = eff.writes >> PREDICATE & 0x7F
        for k, e in list(state.items()):
            changes = False
            later, live, kept = e.later, e.live, e.flags
            if e.flags & 3 and any(counted) and counts_for(self.effects[k], e, eff, write):
                later, changes = tuple(min(n + c, 63) for n, c in zip(later, counted, strict=True)), True
            if eff.writes & live and (eff.guard.index == 7 or (kept & GUARD and eff.guard == self.effects[k].guard)):
                live, changes = live & ~eff.writes, True
            if predicates >> self.effects[k].guard.index & 1 and kept & GUARD:
                kept, changes = kept & ~GUARD, True
            if clock - e.issued >= HORIZON and not kept & 3:
                del state[k]
            elif changes:
                state[k] = Entry(e.issued, kept, e.result_bars, e.operand_bars, later, live)
        if predicates >> eff.guard.index & 1:
            flags &= ~GUARD
        own = tuple(0 if n else -1 for n in counted)  # -1: complete only with the next one counted
        state[i] = Entry(clock, flags, write, read | write if flags & RESULT else read, own, eff.writes)
        return clock + stall


def in_order(old: Effects, new: Effects) -> bool:
    """Whether completion of the new operation proves that of the old one."""
    return bool(old.order) and old.order == new.order


def counts_for(old: Effects, entry: Entry, new: Effects, write: int) -> bool:
    """Whether an operation counted on a scoreboard comes after the old one in that scoreboard's order: results of one
    kind do; for operands alone, any later operation of the queue whose result is tracked."""
    return in_order(old, new) or (not entry.flags & RESULT and old.queue == new.queue and bool(write and new.order))


def cover(state: State, effects: Sequence[Effects], any_bar: int, write: int, new: Effects) -> None:
    """An operation of a queue tells about its predecessors there: operands are read in queue order, and results of
    one kind come back in order."""
    for k, e in list(state.items()):
        old = effects[k]
        result = write if in_order(old, new) else 0
        operands = any_bar if old.queue == new.queue else result
        if e.flags & 3 and operands:
            state[k] = Entry(e.issued, e.flags, e.result_bars | result, e.operand_bars | operands, e.later, e.live)


def arrive(state: State, effects: Sequence[Effects]) -> None:
    """A block barrier follows the load/store queue: once it is passed, earlier operations there have been issued to
    memory, so their operands are read."""
    for k, e in list(state.items()):
        if e.flags & OPERANDS and effects[k].queue == "lsu":
            state[k] = Entry(e.issued, e.flags & ~OPERANDS, e.result_bars, e.operand_bars, e.later, e.live)


def release(state: State, wait: int, partial: int, counted: tuple[int, ...]) -> None:
    """Apply a wait: entries whose scoreboard is in the mask are complete; `partial` = scoreboard | count << 3 leaves
    the `count` newest operations of that scoreboard."""
    bar, most = (partial & 7, partial >> 3) if partial >= 0 else (-1, 0)
    for k, e in list(state.items()):
        if not e.flags & 3:
            continue
        mask = wait
        if bar >= 0 and e.later[counted.index(bar)] >= most:
            mask |= 1 << bar
        flags = e.flags
        if e.result_bars & mask:
            flags &= ~(RESULT | OPERANDS)
        if e.operand_bars & mask:
            flags &= ~OPERANDS
        if flags != e.flags:
            state[k] = Entry(e.issued, flags, e.result_bars, e.operand_bars, e.later, e.live)


def join(a: State, b: State) -> State:
    """The worst of two states whose clocks are both zero."""
    out = dict(a)
    for k, y in b.items():
        x = a.get(k)
        if x is None:
            out[k] = y
        elif x != y:
            out[k] = Entry(max(x.issued, y.issued), ((x.flags | y.flags) & 3) | (x.flags & y.flags & GUARD),
                           x.result_bars & y.result_bars, x.operand_bars & y.operand_bars,
                           tuple(map(min, x.later, y.later)), x.live | y.live)
    return out
