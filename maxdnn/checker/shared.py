"""Shared memory, along sampled paths through the kernel (every way of a branch taken, loops entered twice): two warps
that use one word with no BAR.SYNC between, one of them storing or, where the other does not, changing it atomically;
and lanes of a warp that read what other lanes of it have yet to store. A load whose result nobody reads is left out,
and values that all threads store alike do not disturb each other. Only accesses whose addresses follow from the thread
index are judged. A branch on anything else is taken both ways, by all threads alike, where what is known of
predicates allows it. What was not judged is a warning.

A load from an address that is not known, a register plus an offset, is taken to come from that offset on; where nothing
is written there before the next barrier, it is safe. An access by generic address may be one of shared memory where the
kernel asks where that lies among such addresses: nothing else can make one. Exchanges and compare-and-swaps are how
threads wait for each other without a barrier: what is read or stored beside them is not held against them."""

import collections
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..cubin import MAX_THREADS, CubinKernel
from ..isa import RZ, Instruction, Table
from ..isa.operands import barrier_kind, waits_for_block, waits_for_whole_block
from ..isa.program import Graph, Node, conditional, tests_flags, tests_predicate
from ..semantics.machine import WINDOWS
from .effects import Effects
from .events import Event, Uniform, event, judged
from .facts import Facts, both
from .known import NOTHING_KNOWN, Knowledge, Known
from .report import ERROR, WARNING, Finding, Place
from .values import UNKNOWN, V, Values, Writes, is_followed
from .words import WORDS, Clash

_PATHS = 12
_STEPS = 12000
_SIZES = {"32": 1, "64": 2, "128": 4}
_MESSAGES = {
    "shared-race": (ERROR, "another warp stored the word, with no block barrier in between",
                    "BAR.SYNC between the two"),
    "shared-reuse": (ERROR, "another warp may not have read the word yet: no block barrier in between",
                     "BAR.SYNC between the two"),
    "shared-order": (WARNING, "two warps store to one word with no block barrier in between: which comes last is open",
                     "BAR.SYNC between the two"),
    "shared-late": (ERROR, "the load read the word before this store of another lane of the same warp filled it",
                    "move the store in front of the load"),
    "shared-unread": (WARNING, "nobody reads what the store puts where another lane of the same warp loaded before it",
                      "move the store in front of the load if that was meant, or leave it out"),
    "shared-early": (ERROR, "another lane of the same warp overwrites what was stored here before any lane has read it",
                     "move the second store behind the loads of what is there"),
}


class Walk(NamedTuple):
    """A kernel's code to follow: `reached`, the nodes that some path comes to."""

    graph: Graph
    effects: Sequence[Effects]
    knowledge: Knowledge
    reached: Iterable[Node]


def shared_findings(kernel: CubinKernel, walk: Walk) -> list[Finding]:
    """Errors and warnings about shared memory."""
    code = walk.graph.code
    accesses = _accesses(code, kernel.table)
    none = [*_no_memory(kernel, code)]
    writing = [code[i] for i in sorted(accesses) if not _does(code[i], "load")]
    if not writing:
        return none
    block = kernel.reqntid or (None if any(map(_second_dimension, code)) else kernel.maxntid)
    if block is None:
        return [*none, _not_judged(writing[0], "the kernel does not say its block size")]
    if not 0 < math.prod(block) <= MAX_THREADS:
        return [*none, _not_judged(writing[0], f"no GPU has blocks of {block} threads")]
    partial = [inst for inst in code if barrier_kind(inst) and not waits_for_whole_block(inst)]
    if partial:
        return [*none, _not_judged(partial[0], "a barrier for part of the block")]
    return [*none, *_Paths(walk, block, kernel.table, accesses).find()]


def _no_memory(kernel: CubinKernel, code: Sequence[Instruction]) -> Iterator[Finding]:
    """A kernel that uses shared memory and has none of its own."""
    users = [inst for inst in code if inst.access is not None and inst.access.spaces == {"shared"}]
    if users and kernel.shared_bytes <= kernel.system_shared_bytes:
        yield Finding("no-shared", "shared memory", None, Place.of(users[0]), None, None,
                      "the kernel has no shared memory but what a launch gives it", "say how much in # SharedSize",
                      WARNING)


def _not_judged(inst: Instruction, why: str) -> Finding:
    return Finding("not-followed", "shared memory", None, Place.of(inst), None, None,
                   f"{why}: shared memory was not judged", "check it by hand", WARNING)


def _special(inst: Instruction) -> str:
    """The special register an instruction reads."""
    return next((inst.row.table.special_registers.get(op.value, "") for op in inst.operands
                 if op.type == "special_reg"), "")


def _second_dimension(inst: Instruction) -> bool:
    """Whether the instruction reads TID.Y or TID.Z: a bound on the block's size then says nothing of its shape."""
    return _special(inst) in ("SR_TID.Y", "SR_TID.Z")


def _accesses(code: Sequence[Instruction], table: Table) -> frozenset[int]:
    """Which instructions may touch shared memory: those that touch nothing else, and those by generic address if
    some instruction reads where in these shared memory lies."""
    window = table.bank0.get("shared_window")
    asks = any(_special(inst) == "SR_SWINHI" or any(op.type == "cbank" and op.bank == 0 and op.value == window
                                                    for op in inst.operands) for inst in code)
    return frozenset(i for i, inst in enumerate(code) if inst.touches("shared")
                     and (asks or (inst.access is not None and len(inst.access.spaces) == 1)))


def _does(inst: Instruction, what: str) -> bool:
    return inst.access is not None and inst.access.does == what


def _relevant(accesses: Collection[int], effects: Sequence[Effects]) -> set[int]:
    """Instructions that may decide a shared address, a guard or a branch: the rest need no values."""
    needed = 0
    for i, eff in enumerate(effects):
        for role, mask in eff.by_role:
            if (i in accesses and role == "addr") or role == "guard":
                needed |= mask
    found: set[int] = set()
    while True:
        more = {i for i, eff in enumerate(effects) if eff.writes & needed} - found
        if not more:
            return found
        found |= more
        for i in more:
            needed |= effects[i].reads


class _Paths:
    """Follows paths and collects what is wrong along them."""

    def __init__(self, walk: Walk, block: tuple[int, int, int], table: Table, accesses: Collection[int]) -> None:
        self.walk, self.block, self.table, self.accesses = walk, block, table, accesses
        self.code, self.knowledge = walk.graph.code, walk.knowledge
        self.relevant = _relevant(accesses, walk.effects)
        self.followed = {i for i in self.relevant if is_followed(self.code[i])}
        self.barriers = {i for i, inst in enumerate(self.code) if waits_for_block(inst)}
        self.writes: Writes = {}
        self.taken: collections.Counter[tuple[object, object]] = collections.Counter()  # ways, and guards held or not
        self.chosen: collections.Counter[tuple[object, object]] = collections.Counter()  # ways where there was a choice
        self.entered: set[Node] = set()
        self.clashes: dict[Clash, None] = {}
        self.uniform = Uniform(self.code, walk.effects)
        self.events: list[Event] = []
        self.trace: list[int] = []
        self.unknown: dict[int, None] = {}
        self.cut: int | None = None  # where a path was given up

    def find(self) -> list[Finding]:
        idle = 0
        for _ in range(_PATHS):
            before = len(self.taken), len(self.clashes)
            self.events, self.trace = [], []
            ends = self._follow()
            clashes, undecided = judged(self.events, self.trace, self.walk.effects, ends)
            self.clashes.update(dict.fromkeys(clashes))
            self.unknown.update(dict.fromkeys(undecided))
            idle = idle + 1 if before == (len(self.taken), len(self.clashes)) else 0
            if idle == 2:
                break
        return [*self._found(), *self._left_out(idle == 2)]

    def _found(self) -> Iterator[Finding]:
        for clash in self.clashes:
            level, message, fix = _MESSAGES[clash.kind]
            yield Finding(clash.kind, "shared memory", Place.of(self.code[clash.earlier]),
                          Place.of(self.code[clash.later]), None, None, message, fix, level)

    def _left_out(self, complete: bool) -> Iterator[Finding]:
        if self.unknown:
            first = self.code[min(self.unknown)]
            yield _not_judged(first, f"{len(self.unknown)} addresses that do not follow from the thread index")
        if self.cut is not None:
            yield _not_judged(self.code[self.cut], f"a path of more than {_STEPS} instructions")
        missed = [node for node in self.walk.reached if node not in self.entered
                  and any(i in self.accesses or barrier_kind(self.code[i]) for i in range(node.first, node.last + 1))]
        if missed:
            yield _not_judged(self.code[min(node.first for node in missed)], "code that no sampled path reached")
        elif not complete:
            yield _not_judged(self.code[0], f"more than {_PATHS} paths")

    def _follow(self) -> bool:
        """Follow one path; whether it ends where the kernel does."""
        node, known = self.walk.graph.nodes[0], NOTHING_KNOWN
        values = Values(self.block, self.table, self.writes)
        self.uniform.start()
        while True:
            self.entered.add(node)
            for i in range(node.first, node.last + 1):
                inst = self.code[i]
                self.trace.append(i)
                if i in self.barriers:
                    self._event("barrier", i)
                elif i in self.accesses:
                    known = self._access(i, values, known)
                elif i in self.relevant:
                    (values.step if i in self.followed else values.forget)(inst)
                self.uniform.step(i)
                before = known
                known, _ = self.knowledge.step(i, known)
            if len(self.trace) >= _STEPS:
                self.cut = node.last
                return False
            way = self._next(node, values, before)
            if way is None:
                flow = self.code[node.last].flow
                return flow is not None and flow.does == "end"
            following, facts = way
            known = Known(both(known.facts, facts) or known.facts, known.implied)
            self.taken[node, following] += 1
            node = following

    def _next(self, node: Node, values: Values, known: Known) -> tuple[Node, Facts] | None:
        """The successor to take, of those that the threads' values or what is known leave open the one less chosen, and
        the facts that hold there; threads that go another way are dropped. What was taken for want of a choice does not
        count: it would keep a path that is always left one way from ever being left so when it is free to."""
        inst = self.code[node.last]
        jumps = node.successors if node.through is None else node.successors[:-1]
        if not conditional(inst) or not node.successors:
            return min(((way, {}) for way in node.successors), key=lambda way: self.taken[node, way[0]], default=None)
        more = tests_flags(inst) or tests_predicate(inst)  # than its guard
        guard = None if more else values.guard(inst)
        run, skip = self.knowledge.guard(node.last, known), self.knowledge.skipped(node.last, known)
        if more:
            run = skip = {}
        stay = None if guard is None else values.active & ~guard
        options = [(way, facts, mask) for ways, facts, mask in ((jumps, run, guard), ([node.through], skip, stay))
                   for way in ways if way is not None and facts is not None and (mask is None or mask.any())]
        if not options:
            return None
        way, facts, mask = min(options, key=lambda option: self.chosen[node, option[0]])
        self.chosen[node, way] += len(options) > 1
        if mask is not None:
            values.active = mask
        return way, facts

    def _event(self, does: str, i: int, *what: V) -> None:
        self.events.append(event(does, i, len(self.trace) - 1, *what))

    def _access(self, i: int, values: Values, known: Known) -> Known:
        """One access; where its guard does not follow from the thread index, by all threads or none: what was chosen
        is known from then on."""
        inst = self.code[i]
        guard = values.guard(inst)
        if guard is None:
            choices = [(happens, facts) for happens, facts in ((True, self.knowledge.guard(i, known)),
                                                               (False, self.knowledge.skipped(i, known)))
                       if facts is not None]
            happens, facts = min(choices, key=lambda choice: self.taken[i, choice[0]], default=(False, {}))
            self.taken[i, happens] += 1
            known = Known(both(known.facts, facts) or known.facts, known.implied)
            guard = values.active & happens
        values.step(inst, guard)
        self._note(i, guard, values)
        return known

    def _note(self, i: int, guard: V, values: Values) -> None:
        touch = values.touched
        count = None if touch is None else _SIZES.get(touch.kind.lstrip("USF"))
        if touch is None or touch.address is UNKNOWN or count is None:
            if touch is None or touch.does != "load" or touch.space != "shared":
                self.unknown[i] = None
                if not _does(self.code[i], "load"):
                    self._event("unknown", i)
            elif guard.any():
                self._event("somewhere", i, np.array([max(self.code[i]["addr"].value, 0) // 4]))
            return
        address = touch.address.astype(np.int64)
        if touch.space == "generic":
            guard = guard & (address >> 24 == WINDOWS["S"])
        if not guard.any():
            return
        first = (address & 0xFFFFFF)[guard] // 4
        where = (first[:, None] + np.arange(count)).ravel()
        inside = where < WORDS
        stored = [self.uniform.value(touch.source + n if touch.source != RZ else RZ) for n in range(count)]
        if touch.does != "swap":
            self._event(touch.does, i, where[inside], np.repeat(values.thread[guard].astype(np.int64), count)[inside],
                        np.tile(np.array(stored, np.int64), len(first))[inside])
