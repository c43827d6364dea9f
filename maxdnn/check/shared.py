"""Shared memory, along sampled paths through the kernel (every way of a branch taken, loops entered twice): two warps
that use one word with no BAR.SYNC between, one of them storing; and lanes of a warp that read what other lanes of it
have yet to store. Only accesses whose addresses follow from the thread index are judged. A branch on anything else is
taken both ways, by all threads alike, where what is known of predicates allows it. What was not judged is a warning."""

import collections
from collections.abc import Iterator, Sequence

import numpy as np

from ..cubin import CubinKernel
from ..isa import RZ, Instruction
from ..isa.operands import barrier_kind, waits_for_block, waits_for_whole_block
from ..isa.program import Node, conditional, tests_flags
from .effects import Effects
from .facts import Facts, both
from .known import NOTHING_KNOWN, Known
from .report import ERROR, WARNING, Finding, Place
from .timing import Timing
from .values import V, Values
from .words import WORDS, Clash, Words

_PATHS = 12
_STEPS = 6000
_SIZES = {"": 1, "32": 1, "64": 2, "128": 4}
_MESSAGES = {
    "shared-race": (ERROR, "another warp stored the word, with no block barrier in between",
                    "BAR.SYNC between the two"),
    "shared-reuse": (ERROR, "another warp may not have read the word yet: no block barrier in between",
                     "BAR.SYNC between the two"),
    "shared-order": (WARNING, "two warps store to one word with no block barrier in between: which comes last is open",
                     "BAR.SYNC between the two"),
    "shared-late": (ERROR, "the load read the word before this store of another lane of the same warp filled it",
                    "move the store in front of the load"),
}


def shared_findings(kernel: CubinKernel, timing: Timing) -> list[Finding]:
    """Errors and warnings about shared memory."""
    code = timing.code
    block = kernel.reqntid or (None if any(_second_dimension(inst) for inst in code) else kernel.maxntid)
    stores = [inst for inst in code if _accesses(inst) and _does(inst, "store")]
    if not stores:
        return []
    if block is None:
        return [_not_judged(stores[0], "the kernel does not say its block size")]
    partial = [inst for inst in code if barrier_kind(inst) and not waits_for_whole_block(inst)]
    if partial:
        return [_not_judged(partial[0], "a barrier for part of the block")]
    return _Paths(timing, block).find()


def _not_judged(inst: Instruction, why: str) -> Finding:
    return Finding("not-followed", "shared memory", None, Place.of(inst), None, None,
                   f"{why}: shared memory was not judged", "check it by hand", WARNING)


def _second_dimension(inst: Instruction) -> bool:
    """Whether the instruction reads TID.Y or TID.Z: a bound on the block's size then says nothing of its shape."""
    return inst.opcode == "S2R" and inst.operands[1].value in (0x22, 0x23)


def _accesses(inst: Instruction) -> bool:
    """Whether it loads from shared memory or stores there, and nowhere else."""
    return inst.access is not None and inst.access.spaces == {"shared"} and not inst.access.atomic


def _does(inst: Instruction, what: str) -> bool:
    return inst.access is not None and inst.access.does == what


def _relevant(code: Sequence[Instruction], effects: Sequence[Effects]) -> set[int]:
    """Instructions that may decide a shared address, a guard or a branch: the rest need no values."""
    needed = 0
    for inst, eff in zip(code, effects, strict=True):
        shared = _accesses(inst)
        for role, mask in eff.by_role:
            if (shared and role == "addr") or role == "guard":
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

    def __init__(self, timing: Timing, block: tuple[int, int, int]) -> None:
        self.timing, self.block = timing, block
        self.code, self.knowledge = timing.code, timing.knowledge
        self.relevant = _relevant(timing.code, timing.effects)
        self.taken: collections.Counter[tuple[object, object]] = collections.Counter()  # ways, and guards held or not
        self.chosen: collections.Counter[tuple[object, object]] = collections.Counter()  # ways where there was a choice
        self.entered: set[Node] = set()
        self.clashes: dict[Clash, None] = {}
        self.unknown: dict[int, None] = {}
        self.cut: int | None = None  # where a path was given up

    def find(self) -> list[Finding]:
        idle = 0
        for _ in range(_PATHS):
            before = len(self.taken), len(self.clashes)
            self._follow()
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
        missed = [node for node in self.timing.entry_states if node not in self.entered
                  and any(_accesses(inst) or barrier_kind(inst) for inst in self.code[node.first:node.last + 1])]
        if missed:
            yield _not_judged(self.code[min(node.first for node in missed)], "code that no sampled path reached")
        elif not complete:
            yield _not_judged(self.code[0], f"more than {_PATHS} paths")

    def _follow(self) -> None:
        node, steps, values, words, known = self.timing.graph.nodes[0], 0, Values(self.block), Words(), NOTHING_KNOWN
        while True:
            self.entered.add(node)
            for i in range(node.first, node.last + 1):
                inst = self.code[i]
                if waits_for_block(inst):
                    words.barrier()
                elif _accesses(inst):
                    known = self._access(i, values, words, known)
                if i in self.relevant:
                    values.step(inst)
                before = known
                known, _ = self.knowledge.step(i, known)
            steps += node.last + 1 - node.first
            if steps >= _STEPS:
                self.cut = node.last
                return
            way = self._next(node, values, before)
            if way is None:
                return
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
        guard = None if tests_flags(inst) else values.guard(inst)
        run, skip = self.knowledge.guard(node.last, known), self.knowledge.skipped(node.last, known)
        if tests_flags(inst):
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

    def _access(self, i: int, values: Values, words: Words, known: Known) -> Known:
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
        self._judge(i, guard, values, words)
        return known

    def _judge(self, i: int, guard: V, values: Values, words: Words) -> None:
        inst = self.code[i]
        address = inst["addr"]
        base: V = values.const("i32", 0) if address.base == RZ else values.reg(address.base)
        count = _SIZES.get(inst.mods.get("size", "").removeprefix("U."))
        if base is None or count is None:
            self.unknown[i] = None
            words.unknown_store |= _does(inst, "store")
            return
        if not guard.any():
            return
        first = (base.astype(np.int64) + address.value & 0xFFFFFFFF)[guard] // 4
        where = (first[:, None] + np.arange(count)).ravel()
        threads = np.repeat(values.thread[guard].astype(np.int64), count)
        inside = where < WORDS
        where, threads = where[inside], threads[inside]
        if _does(inst, "load"):
            clashes = words.load(where, threads, i)
        else:
            zero = np.zeros(len(where)) if inst["d"].value == RZ else None
            clashes = words.store(where, threads, zero, i)
        self.clashes.update(dict.fromkeys(clashes))
