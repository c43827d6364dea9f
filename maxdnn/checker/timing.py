"""What control codes guarantee at every program point: for each instruction still under way, the fewest cycles since it
issued, whether its result or its operand reads may be outstanding, and which scoreboards would tell. Paths join to the
worst case, so a fact holds on all paths; loops run to a fixed point.

One entry per instruction is enough: where several instances are under way the newest is the worst."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ..isa import Guard
from ..isa.program import Graph, Node, tests_flags
from .effects import UNIFORM, Effects
from .facts import NOTHING, Facts, both, conflict, either, lost
from .known import NOTHING_KNOWN, Knowledge, Known, join_known
from .rules import Rules

HORIZON = 30  # cycles after which distances no longer matter (longest latency 13 + longest stall 15, and some)

RESULT, OPERANDS = 1, 2  # result not known written, operands not known read
LIKELY = 4  # result ready if its unit executes in order, which no document promises
TOLD = 8  # result of fixed latency that a scoreboard is set for
LONG = 512  # cycles after which distances no longer matter even to pending instructions
SHORTEST = 13  # cycles after issue before which no tracked result comes [maxas wiki, Jia et al.: MUFU, the fastest]
_JOINS = 4  # how often a node is joined before intervals that still change are given up


class Entry(NamedTuple):
    """An instruction under way. `issued` is relative to the state's clock; `flags` of RESULT, OPERANDS, LIKELY;
    `result_bars`, `operand_bars`, `unit_bars`: masks of scoreboards that tell of completion, and of its unit being past
    it; `later`: for each scoreboard that a
    DEPBAR.LE names, the fewest operations of its kind counted on it since (its own not counted); `live`: written
    resources not overwritten since; `only`: facts without which it is not under way."""

    issued: int
    flags: int
    result_bars: int
    operand_bars: int
    unit_bars: int
    later: tuple[int, ...]
    live: int
    only: Facts = NOTHING


class State(dict[int, Entry]):
    """The instructions under way by index, and what is known."""

    def __init__(self, entries: Mapping[int, Entry] | None = None, known: Known = NOTHING_KNOWN) -> None:
        super().__init__(entries or {})
        self.known = known
        self.waits: list[tuple[int, int]] = []  # (when issued, when waited for) of results in this piece of code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and dict.__eq__(self, other) and self.known == other.known

    __hash__ = None

    def copy(self) -> "State":
        return State(self, self.known)

    def real(self, issued: int, clock: int) -> int:
        """Cycles since something was issued, with what the waits in between take at the least."""
        return max([clock - issued, *(SHORTEST + clock - waited for start, waited in self.waits if issued <= start)])


S = TypeVar("S")


def bars(write: int | None, read: int | None) -> tuple[int, int]:
    return (0 if write is None else 1 << write), (0 if read is None else 1 << read)


def fixed_point(graph: Graph, start: S, leave: Callable[[Node, S], Iterable[tuple[Node, S]]],
                   join: Callable[[S, S, bool], S]) -> dict[Node, S]:
    """The state before every node that is reached: `leave` carries a state through a node to its successors, `join`
    makes one of two (whether to give up what still changes). Nodes in order of their first instruction."""
    states = {graph.nodes[0]: start}
    order = {node: n for n, node in enumerate(sorted(graph.nodes, key=lambda n: n.first))}
    todo = {graph.nodes[0]}
    joins: Counter[Node] = Counter()
    while todo:
        node = min(todo, key=order.__getitem__)
        todo.remove(node)
        for successor, state in leave(node, states[node]):
            known = states.get(successor)
            joins[successor] += 1
            joined = state if known is None else join(known, state, joins[successor] > _JOINS)
            if known is None or joined != known:
                states[successor] = joined
                todo.add(successor)
    return states


class Timing:
    """The states before every node of a graph, and a walk over every instruction with the state it issues in."""

    def __init__(self, graph: Graph, effects: Sequence[Effects], rules: Rules) -> None:
        self.graph = graph
        self.rules = rules
        self.code = graph.code
        self.effects = effects
        self.knowledge = Knowledge(self.code, effects)
        named = {inst["sb"].value for inst in self.code if inst.operand("sb") is not None}
        self._partial = tuple(sorted(named))  # scoreboards waited on by count
        self._plans = [self._plan(i) for i in range(len(self.code))]
        self.entry_states = fixed_point(graph, State(), self._leave, join)

    def _plan(self, i: int) -> tuple[int, int, int, int, int, int]:
        """(stall, wait mask, partial wait, write bit, read bit, flags) of an instruction."""
        inst, eff = self.code[i], self.effects[i]
        write, read = bars(inst.control.write_barrier, inst.control.read_barrier)
        flags = OPERANDS if eff.late else 0
        if eff.writes and not eff.fixed:
            flags |= RESULT
        elif eff.told and write:
            flags |= TOLD
        wait = inst.control.wait_mask
        partial = -1
        if inst.waits == "scoreboards":
            wait |= inst["mask"].value
            if inst.operand("sb") is not None and inst["n"].type == "uimm":
                partial = inst["sb"].value | inst["n"].value << 3
        stall = inst.control.stall
        guaranteed = stall if inst.control.yield_hint else self.rules.unyielded.get(stall, stall)
        return guaranteed, wait, partial, write, read, flags

    def _leave(self, node: Node, state: State) -> Iterator[tuple[Node, State]]:
        """(successor, state there) of every way out of a node that what is known leaves open."""
        state, clock = state.copy(), 0
        for i in range(node.first, node.last + 1):
            self._wait(i, state, clock, node.first)
            if i == node.last:
                known = state.known
            clock = self._issue(i, state, clock)
        for k, e in list(state.items()):
            far = LONG if e.flags else HORIZON
            if e.flags or e.issued - clock > -far:
                state[k] = Entry(max(e.issued - clock, -far), *e[1:])
            else:
                del state[k]
        last = node.last
        guarded = self.code[last].leaves() and self.code[last].guard != ALWAYS
        for successor in dict.fromkeys(node.successors):
            ways = [way for way in (True, False) if (way and successor in self._jumps(node))
                    or (not way and successor is node.through)]
            met = None
            for way in ways:
                there: State | None = state
                if guarded and (way or not tests_flags(self.code[last])):
                    there = assuming(state, (self.knowledge.guard if way else self.knowledge.skipped)(last, known))
                if there is not None:
                    met = there if met is None else join(met, there, False)
            if met is not None:
                yield successor, met

    @staticmethod
    def _jumps(node: Node) -> list[Node]:
        return node.successors if node.through is None else node.successors[:-1]

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
            state, clock = self.entry_states[node].copy(), 0
            for i in range(node.first, node.last + 1):
                before = state.copy()
                self._wait(i, state, clock, node.first)
                yield node, i, before, state, clock
                clock = self._issue(i, state, clock)

    def apart(self, entry: Entry, i: int, state: State) -> bool:
        """Whether instruction i never runs where the one under way did."""
        run = both(self.knowledge.guard(i, state.known), state.known.facts)
        return conflict(run, entry.only)

    def _wait(self, i: int, state: State, clock: int, first: int) -> None:
        """Apply the waits of instruction i, of a piece of code that begins with instruction `first`."""
        _, wait, partial, _, _, _ = self._plans[i]
        for k, e in state.items() if wait and self.rules.lenient else ():
            if (self._plans[k][3] & wait and e.flags & RESULT and first <= k < i and self.code[k].guard == ALWAYS
                    and clock - e.issued >= self.rules.visible):
                state.waits.append((e.issued, clock))
        if wait or partial >= 0:
            release(state, wait, partial, self._partial)

    def _issue(self, i: int, state: State, clock: int) -> int:
        stall, _, _, write, read, flags = self._plans[i]
        eff = self.effects[i]
        run, skip = self.knowledge.guard(i, state.known), self.knowledge.skipped(i, state.known)
        skipped = both(skip, state.known.facts)
        if write | read and (eff.queue or eff.unit):
            self._cover(state, i, skipped)
        elif eff.order == "bar":
            self._arrive(state)
        if run is None:
            return clock + stall
        lenient, writes = self.rules.lenient, eff.writes
        counted = tuple(int((write | read) >> bar & 1) for bar in self._partial)
        counts, old = any(counted), clock - HORIZON
        for k, e in list(state.items()):
            issued, pending, later, live, only = e.issued, e.flags, e.later, e.live, e.only
            if pending and counts and self._counts_for(k, e, i, skipped):
                later = tuple(min(n + c, 63) for n, c in zip(later, counted, strict=True))
            if writes & live and (lenient or not pending & RESULT):
                if conflict(skipped, only):
                    live &= ~writes
                elif not live & ~writes and not pending & OPERANDS:
                    left = both(only, skip)
                    live, only = (0, only) if left is None else (live, left)
            if issued <= old and not pending:
                del state[k]
            elif live != e.live or later is not e.later or only is not e.only:
                state[k] = e._replace(later=later, live=live, only=only)
        state.known, change = self.knowledge.step(i, state.known)
        if change is not None:
            for k, e in state.items():
                if e.only:
                    only = change.after(e.only) or NOTHING
                    if only is not e.only:
                        state[k] = e._replace(only=only)
            run = change.after(run)
        own = tuple(0 if n else -1 for n in counted)  # -1: complete only with the next one counted
        reading = read | write if flags & RESULT or not lenient else read
        only = NOTHING if run is None or eff.writes >> UNIFORM else run
        entry = Entry(clock, flags, write, reading, 0, own, eff.writes, only)
        earlier = state.get(i)
        if earlier is not None and entry.only and (earlier.flags or eff.fixed):
            entry = entry._replace(only=either(earlier.only, entry.only) or NOTHING, flags=flags | earlier.flags)
        state[i] = entry
        return clock + stall

    def _proves(self, k: int, e: Entry, i: int, skipped: Facts | None) -> bool:
        """Whether completion of instruction i proves that of the one under way. So does one that its guard keeps from
        running (scoreboards ignore guards, and the vendor's compiler waits for `@!P0 MUFU` by the barrier of a
        `@P0 MUFU` behind it), but for the orders that are silent then."""
        old = self.effects[k]
        return in_order(old, self.effects[i]) and (old.order not in self.rules.silent or conflict(skipped, e.only))

    def _counts_for(self, k: int, e: Entry, i: int, skipped: Facts | None) -> bool:
        """Whether instruction i, counted on a scoreboard, comes after the one under way in that scoreboard's order:
        results of one kind do; for operands alone, any later operation of the queue whose result is tracked."""
        old, new, write = self.effects[k], self.effects[i], self._plans[i][3]
        return self._proves(k, e, i, skipped) or (
            not e.flags & RESULT and old.queue == new.queue and bool(write and new.order))

    def _cover(self, state: State, i: int, skipped: Facts | None) -> None:
        """An operation of a queue tells about its predecessors there: operands are read in queue order, and results of
        one kind come back in order."""
        write, new = self._plans[i][3], self.effects[i]
        either_bar = write | self._plans[i][4]
        for k, e in list(state.items()):
            old = self.effects[k]
            result = write if self._proves(k, e, i, skipped) else 0
            operands = either_bar if old.queue == new.queue != "" else result
            unit = either_bar if old.unit == new.unit != "" else 0
            if e.flags and operands | unit:
                state[k] = e._replace(result_bars=e.result_bars | result, operand_bars=e.operand_bars | operands,
                                   unit_bars=e.unit_bars | unit)

    def _arrive(self, state: State) -> None:
        """A block barrier follows a queue: once it is passed, earlier operations there have been issued to memory, so
        their operands are read."""
        for k, e in list(state.items()):
            if e.flags & OPERANDS and self.effects[k].queue == self.rules.follows != "":
                state[k] = e._replace(flags=e.flags & ~OPERANDS)


ALWAYS = Guard()


def assuming(state: State, facts: Facts | None) -> "State | None":
    """The state where the facts hold too; None if that cannot be."""
    known = both(state.known.facts, facts)
    if known is None:
        return None
    return State({k: e for k, e in state.items() if not conflict(e.only, known)}, Known(known, state.known.implied))


def in_order(old: Effects, new: Effects) -> bool:
    """Whether completion of the new operation proves that of the old one."""
    return bool(old.order) and old.order == new.order


def release(state: State, wait: int, partial: int, counted: tuple[int, ...]) -> None:
    """Apply a wait: entries whose scoreboard is in the mask are complete; `partial` = scoreboard | count << 3 leaves
    the `count` newest operations of that scoreboard."""
    bar, most = (partial & 7, partial >> 3) if partial >= 0 else (-1, 0)
    for k, e in list(state.items()):
        if not e.flags:
            continue
        mask = wait
        if bar >= 0 and e.later[counted.index(bar)] >= most:
            mask |= 1 << bar
        flags = e.flags
        if e.result_bars & mask:
            flags = 0
        elif e.unit_bars & mask and flags & RESULT:
            flags |= LIKELY
        if e.operand_bars & mask:
            flags &= ~OPERANDS
        if flags != e.flags:
            state[k] = e._replace(flags=flags, live=0 if e.flags & TOLD else e.live)


def join(a: State, b: State, widen: bool) -> State:
    """The worst of two states whose clocks are both zero."""
    known = join_known(a.known, b.known, widen)
    out = State({}, known)
    for side, other in ((a, b), (b, a)):
        given = lost(side.known.facts, known.facts)
        for k, e in side.items():
            if k in out:
                continue
            y = other.get(k)
            only = hangs_on(e, given)
            if y is None:
                if only is not None:
                    out[k] = e if only is e.only else e._replace(only=only)
                continue
            out[k] = _worst(e, y, only, hangs_on(y, lost(other.known.facts, known.facts)), widen)
    return out


def hangs_on(entry: Entry, given: Facts) -> Facts | None:
    """The facts that what is under way hangs on where others are given besides; None if that cannot be. What lanes
    share hangs on nothing: it is written for those that do not run the instruction, too."""
    return NOTHING if entry.live >> UNIFORM else both(entry.only, given) if given else entry.only


def _worst(x: Entry, y: Entry, only: Facts | None, other: Facts | None, widen: bool) -> Entry:
    """Either of two states of one instruction under way; `only`, `other`: the facts each hangs on."""
    if bool(x.flags) != bool(y.flags):  # that it may still be pending is the worst of it
        worst, facts = (x, only) if x.flags else (y, other)
        return worst._replace(issued=max(x.issued, y.issued), live=x.live | y.live, only=facts or NOTHING)
    facts = either(only, other, widen)
    pending = any(e.flags & (RESULT | LIKELY) == RESULT for e in (x, y))
    return Entry(max(x.issued, y.issued), (x.flags | y.flags) & ~(LIKELY if pending else 0),
                 x.result_bars & y.result_bars, x.operand_bars & y.operand_bars, x.unit_bars & y.unit_bars,
                 tuple(map(min, x.later, y.later)), x.live | y.live, facts or NOTHING)
