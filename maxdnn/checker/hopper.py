"""The control codes of sm_80 to sm_90: results of fixed latency are read late enough, all else behind a wait for a
barrier that tells of it. A state of what is under way flows over all paths; where paths meet the worse of two is
kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..isa import PT, Instruction
from ..isa.program import Graph, Node
from .hopper_uses import Key, does, figures, fixed, loads_memory, order, overwriting, queue, reads, required, writes
from .report import Finding, Place

Kept = tuple[int, int]


@dataclass
class State:
    """`ready`: by register of a fixed-latency producer, its place, class and the cycles since its issue. `written`,
    `read`: registers that something of variable latency will write or still reads: by place of that, its queue and the
    barriers that tell of it. `told`: cycles since each barrier was set. `met`: cycles since the last block barrier.
    `apart`: places of such instructions whose guard has been written since, so that another one with that guard may be
    skipped where they were not. `kept`, `stale`: (place of an operand, register) that the reuse cache may hold, and of
    which it may hold an old value."""

    ready: dict[Key, dict[int, int]] = field(default_factory=dict)
    written: dict[Key, dict[int, frozenset[int]]] = field(default_factory=dict)
    read: dict[Key, dict[int, frozenset[int]]] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    met: int = 99
    apart: set[int] = field(default_factory=set)
    kept: set[Kept] = field(default_factory=set)
    stale: set[Kept] = field(default_factory=set)

    def copy(self) -> "State":
        return State({k: dict(v) for k, v in self.ready.items()}, {k: dict(v) for k, v in self.written.items()},
                     {k: dict(v) for k, v in self.read.items()}, dict(self.told), self.met, set(self.apart),
                     set(self.kept), set(self.stale))

    def join(self, other: "State") -> bool:
        """Take in what may also be under way; whether that is new."""
        new = False
        for key, since in other.ready.items():
            mine = self.ready.setdefault(key, {})
            for at, cycles in since.items():
                if mine.get(at, cycles + 1) > cycles:
                    mine[at], new = cycles, True
        for ours, theirs in ((self.written, other.written), (self.read, other.read)):
            for key, pending in theirs.items():
                here = ours.setdefault(key, {})
                for at, boards in pending.items():
                    both = here[at] & boards if at in here else boards
                    if here.get(at) != both:
                        here[at], new = both, True
        for board, cycles in other.told.items():
            if self.told.get(board, cycles + 1) > cycles:
                self.told[board], new = cycles, True
        new = new or other.met < self.met
        new = new or not (other.apart <= self.apart and other.kept <= self.kept and other.stale <= self.stale)
        self.met = min(self.met, other.met)
        self.apart |= other.apart
        self.kept |= other.kept
        self.stale |= other.stale
        return new


class Checker:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.code = graph, graph.code
        self.found: dict[tuple[str, int, Key], Finding] = {}

    def find(self) -> list[Finding]:
        """All hazards, by address."""
        states: dict[Node, State] = {self.graph.nodes[0]: State()}
        work = [self.graph.nodes[0]]
        while work:
            node = work.pop()
            state = states[node].copy()
            for index in range(node.first, node.last + 1):
                self._step(index, self.code[index], state)
            for following in node.successors:
                if following not in states:
                    states[following] = state.copy()
                elif not states[following].join(state):
                    continue
                work.append(following)
        return sorted(self.found.values(), key=lambda f: f.consumer.address)

    # -- one instruction -------------------------------------------------------------------------------------------

    def _step(self, index: int, inst: Instruction, state: State) -> None:
        self._wait(index, inst, state)
        for key, role, late in reads(inst):
            for at, since in state.ready.get(key, {}).items():
                need = required(self.code[at], key, inst, role) - late
                if since < need:
                    self._report("fixed-latency", key, at, index, need, since, "is read before it is there",
                                 "stall longer in between")
            for at in state.written.get(key, ()):
                self._report("not-awaited", key, at, index, None, None,
                             "is read, and no wait tells that it is there", "set a write barrier and wait for it")
        mine = queue(inst)
        for key in writes(inst):
            for at, since in state.ready.get(key, {}).items():
                need = overwriting(self.code[at], inst)
                if since < need:
                    self._report("overtaken", key, at, index, need, since,
                                 "is written, and what was written before lands later", "stall longer in between")
            for at in state.written.get(key, ()):
                if (not mine or queue(self.code[at]) != mine) and not self._excluded(at, inst, state):
                    self._report("overtaken", key, at, index, None, None,
                                 "is written, and something under way will write it later", "wait for that")
            for at in state.read.get(key, ()):
                if at != index and (not mine or queue(self.code[at]) != mine):
                    self._report("still-read", key, at, index, None, None,
                                 "is written, and something under way may not have read it",
                                 "set a read barrier and wait for it")
        if inst.access is not None and not inst.touches("constant") and state.met < figures(inst)["behind_barrier"]:
            self._report("barrier", ("barrier", 0), index, index, figures(inst)["behind_barrier"], state.met,
                         "of the block may not have stopped this access to memory", "stall longer behind BAR")
        self._reuse(index, inst, state)
        self._issue(index, inst, state)

    def _excluded(self, at: int, inst: Instruction, state: State) -> bool:
        """Whether lanes that execute one of the two do not execute the other: one guard, once negated."""
        this, other = inst.guard, self.code[at].guard
        return (this.index == other.index != PT and this.negated != other.negated and not this.uniform
                and at not in state.apart)

    def _reuse(self, index: int, inst: Instruction, state: State) -> None:
        """The cache of operands serves what it holds, whatever its register became: on an H200 a register read with a
        flag, written, and read again in the same place had its old value."""
        reads = [(op.field.slot, r) for op in inst.operands if op.field.slot is not None for r in op.registers()]
        for slot, register in reads:
            if (slot, register) in state.stale:
                self._report("reuse", ("R", register), index, index, None, None,
                             "is read where the reuse cache may hold what it was",
                             "leave out the flag of the read before")
        banks = inst.row.table.banks
        for slot, register in reads:
            replaced = {x for x in state.kept | state.stale if x[0] == slot and x[1] % banks == register % banks}
            state.kept -= replaced
            state.stale -= replaced
        state.kept |= {(slot, register) for slot, register in reads if inst.control.reuse >> slot & 1}
        written = {key[1] for key in writes(inst) if key[0] == "R"}
        gone = {x for x in state.kept if x[1] in written}
        state.kept -= gone
        state.stale |= gone

    def _wait(self, index: int, inst: Instruction, state: State) -> None:
        mask = inst.control.wait_mask
        for board in (n for n in range(6) if mask >> n & 1):
            since = state.told.get(board)
            if since is not None and since < figures(inst)["barrier_visible"]:
                self._report("barrier", ("barrier", board + 1), index, index, figures(inst)["barrier_visible"], since,
                             "is awaited before it is seen to be set", "stall longer behind what sets it")
            for made in state.ready.values():
                for at in [at for at in made if self.code[at].cls.told]:
                    if self.code[at].control.write_barrier == board:
                        del made[at]
            for pending in (state.written, state.read):
                for key in list(pending):
                    pending[key] = {at: boards for at, boards in pending[key].items() if board not in boards}
                    if not pending[key]:
                        del pending[key]

    def _issue(self, index: int, inst: Instruction, state: State) -> None:
        control = inst.control
        boards = {n for n in (control.write_barrier, control.read_barrier) if n is not None}
        written = list(writes(inst))
        for key in written:
            if inst.guard.index == PT and not inst.guard.negated:
                state.ready.pop(key, None)
            if fixed(inst):
                state.ready.setdefault(key, {})[index] = 0
        predicates = {key[1] for key in written if key[0] == "P"}
        state.apart -= {index}
        state.apart |= {at for pending in state.written.values() for at in pending
                        if self.code[at].guard.index in predicates}
        if not fixed(inst) and queue(inst):
            telling = frozenset(n for n in (control.write_barrier,) if n is not None)
            for key in written:
                state.written.setdefault(key, {})[index] = telling
            for key, role, _ in reads(inst):
                if key[0] == "R" and role == "source":
                    state.read.setdefault(key, {})[index] = frozenset(boards)
            for pending, told in ((state.written, telling), (state.read, frozenset(boards))):
                for by in pending.values():
                    for at in by:
                        if told and self._tells(index, at, state, pending is state.read):
                            by[at] = by[at] | told
        for board in boards:
            state.told[board] = 0
        stall = control.stall
        state.met = stall if does(inst) == "barrier" else min(99, state.met + stall)
        for since in state.ready.values():
            for at in list(since):
                since[at] += stall
                if since[at] > 24:
                    del since[at]
        state.ready = {k: v for k, v in state.ready.items() if v}
        state.told = {n: c + stall for n, c in state.told.items() if c + stall < 8}

    def _tells(self, later: int, earlier: int, state: State, read: bool) -> bool:
        """Whether the later of two tells of the earlier one: a queue reads in order, and results of one kind come in
        order, those of the slow unit all. A load that a predicate may skip tells of none, unless the same one skips
        both: on an H200 a load behind which another was skipped had not arrived."""
        this, other = self.code[later], self.code[earlier]
        guard, its = ((x.guard.index, x.guard.negated) for x in (this, other))
        if not read and loads_memory(other) and guard != (PT, False) and (guard != its or earlier in state.apart):
            return False
        same = queue(other) == queue(this)
        return same and (read or queue(this) == "xu" or order(other) == order(this) != "")

    def _report(self, kind: str, key: Key, producer: int, consumer: int, need: int | None, have: int | None, what: str,
                fix: str) -> None:
        name = f"{'UR' if key[0] == 'U' else key[0]}{key[1]}"
        known = self.found.get((kind, consumer, key))
        if known is None or (have is not None and known.guaranteed is not None and have < known.guaranteed):
            self.found[kind, consumer, key] = Finding(kind, name, Place.of(self.code[producer]),
                                                      Place.of(self.code[consumer]), need, have, what, fix)


def _out_of_line(inst: Instruction) -> Iterator[Finding]:
    """Values of two or four registers that do not begin at such a multiple, where an H200 stops (IMAD.WIDE, R225)."""
    for op in inst.operands:
        every = list(op.registers()) if op.type in ("gpr", "addr") else []
        if every and every[0] % len(every):
            yield Finding("out-of-line", f"R{every[0]}", None, Place.of(inst), None, None,
                          f"begins {len(every)} registers in a row, of which it must be a multiple",
                          "take another register")


def findings(graph: Graph) -> list[Finding]:
    """All that was found in a kernel of sm_80 to sm_90, but what could not be followed."""
    return [*Checker(graph).find(), *(each for inst in graph.code for each in _out_of_line(inst))]
