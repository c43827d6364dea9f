"""All warps of a block at once, where units work beside them (products of tensor cores, mbarriers, bulk copies): each
is followed from the kernel's first instruction, with made-up parameters, and what one of them needs of another is
ordered (order.py) or a finding. Branches on what is not known are taken both ways, by all warps alike. Several launches
are tried. What cannot be followed is a warning."""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..cubin import MAX_THREADS, CubinKernel
from ..isa import PT, RZ, Instruction
from ..isa.operands import barrier_kind, number_and_count, waits_for_block
from ..isa.program import Graph, Node, conditional, static_target, tests_predicate
from ..semantics.operands import pred
from .effects import UNIFORM, Effects
from .lanes import LANES, Blocked, Crew, Lanes
from .order import Broken, Order, Undecided
from .report import ERROR, WARNING, Finding, Place
from .values import UNKNOWN, V

UNITS = frozenset({"HGMMA", "SYNCS", "UBLKCP", "LDGSTS"})
_BESIDE = UNITS | {"WARPGROUP", "FENCE", "USETMAXREG", "LDGDEPBAR", "DEPBAR"}
_ROOM = 228 << 10  # bytes of shared memory
_TRIALS, _LEAST, _LEAST_GUESSED = 12, 3, 6  # launches: at most, at the least, and where some branches are open
_OFTEN = 3  # launches that come to each use of a unit, as far as there are so many
_STEPS = 6000  # instructions of a launch
_NUMBERS = (1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11)  # parameters
_FIX_ORDER = "order the two: an mbarrier or a block barrier between them"
_MESSAGES = {
    "arriving": ("shared memory", "a bulk copy to this word may not have arrived", "wait for its mbarrier's phase"),
    "fetching": ("shared memory", "a copy to this word may not be done", "LDGDEPBAR and DEPBAR.LE in between"),
    "busy": ("shared memory", "products may still read the word", "WARPGROUP.DEPBAR, and tell of it, before"),
    "shared-reuse": ("shared memory", "another warp may not have read the word yet", _FIX_ORDER),
    "shared-race": ("shared memory", "another warp stored the word, and nothing orders the two", _FIX_ORDER),
    "unfenced": ("shared memory", "a unit may not see what was stored here", "FENCE.VIEW.ASYNC behind the store"),
    "mbarrier": ("mbarrier", "is used and was not initialised", "initialise it before"),
    "mbarrier-early": ("mbarrier", "is used by a warp that may not see it initialised", "a block barrier in between"),
    "mbarrier-twice": ("mbarrier", "is initialised again while it is in use", "initialise it once"),
    "arrivals": ("mbarrier", "more arrivals than its phase expects", "initialise it with the arrivals there are"),
    "phase-missed": ("mbarrier", "two phases may complete before this wait looks: it then waits for ever",
                     "let the next phase depend on this wait"),
    "registers": ("registers", "the warp has another number of registers than this changes", "give back what is there"),
    "hang": ("waiting", "", "compare arrivals, bytes and parities of all who use it"),
}


class _Bar:
    """A block barrier: threads that came, what they told, and who waits."""

    def __init__(self, order: Order) -> None:
        self.threads = 0
        self.clocks = order.nothing()
        self.waiting: list[_Thread] = []


class _Thread:
    """Lanes of a warp that are at one instruction. `held`: what keeps them there until others come."""

    def __init__(self, lanes: Lanes, at: int) -> None:
        self.lanes, self.at = lanes, at
        self.held: tuple[str, int] | None = None
        self.blocked: Blocked | None = None


class Plan(NamedTuple):
    """Code to follow: instructions of which each is stepped through, where straight code goes on."""

    kernel: CubinKernel
    graph: Graph
    block: tuple[int, int, int]
    next: Sequence[int]


def _needed(graph: Graph, effects: Sequence[Effects]) -> list[int]:
    """For each instruction the next one from it on that matters: uses of memory and units, control, and what decides
    their operands and guards on some path."""
    code = graph.code
    roots = {i: _decisive(inst, effects[i]) for i, inst in enumerate(code) if inst.opcode in _BESIDE
             or inst.flow is not None or (inst.touches("shared") and inst.access is not None)}
    kept = set(roots)
    before: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
    while True:
        changed = False
        for node in reversed(graph.nodes):
            needed = 0
            for successor in node.successors:
                needed |= before[successor]
            for i in range(node.last, node.first - 1, -1):
                eff = effects[i]
                if i in roots or eff.writes & needed:
                    kept.add(i)
                    guarded = eff.guard.index != PT or eff.guard.negated
                    needed = (needed if guarded else needed & ~eff.writes) | roots.get(i, eff.reads)
            changed |= before[node] != needed
            before[node] = needed
        if not changed:
            break
    following, last = [0] * len(code), len(code)
    for i in range(len(code) - 1, -1, -1):
        last = i if i in kept else last
        following[i] = last
    return following


def _decisive(inst: Instruction, eff: Effects) -> int:
    """What an instruction reads but for data that are stored and sums of products."""
    mask = sum(mask for role, mask in eff.by_role if role != "data" or not inst.touches("shared"))
    return mask >> UNIFORM << UNIFORM if inst.opcode == "HGMMA" else mask


class _Launch:
    """One launch of one block."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        kernel = plan.kernel
        warps = -(-math.prod(plan.block) // LANES)
        self.order = Order(warps, _ROOM // 4)
        self.crew = Crew(self.order, self._constant, seed, kernel.registers, _ROOM)
        self._parameters: dict[int, int] = {}
        self._wide = {p.offset for p in kernel.params if p.size >= 8}
        self.threads = [_Thread(Lanes(plan.block, kernel.table, warp, self.crew), 0) for warp in range(warps)]
        self.meet: list[dict[int, V]] = [{} for _ in range(warps)]  # lanes that will meet again, by warp and place
        self.alive = [thread.lanes.active for thread in self.threads]
        self.bars: dict[int, _Bar] = {}
        self.guessed = False
        self.hung: dict[int, str] = {}
        self.steps = self.at = 0
        self.reached: set[int] = set()

    def _constant(self, offset: int) -> int:
        where = self.plan.kernel.table.bank0
        if where["grid"] <= offset < where["grid"] + 12:
            return 2
        if offset not in self._parameters:
            rng = random.Random(self.seed * 65536 + offset)
            at = offset - where["params"]
            if at in self._wide:
                self._parameters[offset] = rng.randrange(1 << 20) << 12
            elif at - 4 in self._wide:
                self._parameters[offset] = 0x7F
            else:
                self._parameters[offset] = rng.choice(_NUMBERS)
        return self._parameters[offset]

    # -- running -----------------------------------------------------------------------------------------------

    def followed(self) -> str:
        """Follow it; why that is not possible, or ""."""
        try:
            self._follow()
        except Undecided as e:
            return str(e)
        return ""

    def _follow(self) -> None:
        """Until all threads are done, wait for what will not come, or have done enough."""
        while self.threads and self.steps <= _STEPS:
            moved = False
            for thread in list(self.threads):
                if thread.held is None and thread in self.threads:
                    moved |= self._run(thread)
            moved |= self._meet()
            if not moved:
                self._hang()
                return

    def _run(self, thread: _Thread) -> bool:
        """Until the threads wait, part or end; whether they did anything."""
        before = self.steps
        while thread.held is None:
            code = self.plan.graph.code
            if thread.at >= len(code) or self.plan.next[thread.at] >= len(code):
                raise Undecided("control leaves the code")
            thread.at = self.plan.next[thread.at]
            if self.steps - before > _STEPS:
                break
            try:
                going = self._step(thread, code[thread.at])
            except Blocked as e:
                thread.blocked = e
                break
            self.steps += 1
            thread.blocked = None
            if not going:
                break
        return self.steps > before

    def _step(self, thread: _Thread, inst: Instruction) -> bool:
        """One instruction; whether the same threads go on."""
        i, lanes, flow = thread.at, thread.lanes, inst.flow
        lanes.at = self.at = i
        self.reached.add(i)
        guard = self._guard(lanes, inst)
        if flow is None:
            if guard.any() or inst.opcode == "HGMMA":
                lanes.step(inst, guard)
        elif flow.does in ("end", "trap"):
            return self._end(thread, guard)
        elif flow.does == "jump":
            return self._jump(thread, inst, guard)
        elif flow.does == "barrier":
            return self._arrive(thread, inst)
        elif flow.does == "meet":
            return self._converge(thread, inst, guard)
        elif inst.leaves():
            raise Undecided(f"{inst.opcode} is not followed")
        thread.at = i + 1
        return True

    def _guard(self, lanes: Lanes, inst: Instruction) -> V:
        guard = lanes.guard(inst)
        if guard is None:
            return lanes.active & self._guess(lanes)
        return guard

    def _guess(self, lanes: Lanes) -> bool:
        """Whether what is not known holds."""
        self.guessed = True
        return self.crew.guess(lanes.warp, lanes.at)

    def _part(self, thread: _Thread, away: V) -> _Thread:
        """Some of the threads for themselves."""
        other = _Thread(thread.lanes.split(away), thread.at)
        thread.lanes.active = thread.lanes.active & ~away
        self.threads.append(other)
        return other

    def _end(self, thread: _Thread, guard: V) -> bool:
        warp = thread.lanes.warp
        self.alive[warp] = self.alive[warp] & ~guard
        thread.lanes.active = thread.lanes.active & ~guard
        thread.at += 1
        if thread.lanes.active.any():
            return True
        self.threads.remove(thread)
        return False

    def _jump(self, thread: _Thread, inst: Instruction, guard: V) -> bool:
        target = static_target(inst)
        if target is None:
            raise Undecided("an indirect branch")
        lanes = thread.lanes
        taken = guard
        if conditional(inst) and tests_predicate(inst):
            if inst.mods.get("mod_conv") or inst.mods.get("mod_div"):
                taken = guard & False
            else:
                also = pred(lanes, inst["ps"])
                taken = guard & (self._guess(lanes) if also is UNKNOWN else also)
        index = self.plan.kernel.addressing.index_of(target)
        if not taken.any():
            thread.at += 1
        elif np.array_equal(taken, lanes.active):
            thread.at = index
        else:
            self._part(thread, taken).at = index
            thread.at += 1
        return True

    # -- reconvergence -----------------------------------------------------------------------------------------

    def _converge(self, thread: _Thread, inst: Instruction, guard: V) -> bool:
        places, i = self.meet[thread.lanes.warp], thread.at
        thread.at += 1
        if inst.opcode == "BSSY":
            places[inst["bar"].value] = thread.lanes.active
        elif inst.opcode == "BREAK" and inst["bar"].value in places:
            places[inst["bar"].value] = places[inst["bar"].value] & ~guard
        elif inst.opcode == "BSYNC" and inst["bar"].value in places:
            thread.held = "B", inst["bar"].value
        elif inst.opcode == "WARPSYNC":
            thread.held = "W", i
        return thread.held is None

    def _meet(self) -> bool:
        """Threads of a warp that wait for each other go on together when all are there."""
        groups: dict[tuple[int, tuple[str, int]], list[_Thread]] = {}
        for thread in self.threads:
            if thread.held is not None and thread.held[0] in "BW":
                groups.setdefault((thread.lanes.warp, thread.held), []).append(thread)
        moved = False
        for (warp, (how, which)), there in groups.items():
            wanted = self.alive[warp] & self.meet[warp][which] if how == "B" else self.alive[warp]
            here = np.logical_or.reduce([thread.lanes.active for thread in there])
            if not (wanted & ~here).any() and len({thread.at for thread in there}) == 1:
                self._together(there)
                moved = True
        return moved | self._pass()

    def _together(self, there: Sequence[_Thread]) -> None:
        first, *others = there
        for other in others:
            first.lanes.join(other.lanes)
            self.threads.remove(other)
        first.held = None

    def _arrive(self, thread: _Thread, inst: Instruction) -> bool:
        lanes, count = thread.lanes, inst.operand("cnt")
        if number_and_count(inst):
            raise Undecided("a barrier whose number is computed")
        number = self._scalar(lanes, inst["bar"])
        wanted = 0 if count is None else self._scalar(lanes, count)
        bar = self.bars.setdefault(number, _Bar(self.order))
        bar.threads += int(lanes.active.sum())
        self.order.tell(lanes.warp, *bar.clocks)
        thread.at += 1
        if waits_for_block(inst):
            thread.held = "bar", wanted
            bar.waiting.append(thread)
        elif barrier_kind(inst) != "ARV":
            raise Undecided("this barrier of the block")
        return thread.held is None

    @staticmethod
    def _scalar(lanes: Lanes, op: object) -> int:
        """What a barrier's operand says."""
        if op.type == "uimm":  # type: ignore[attr-defined]
            return int(op.value)  # type: ignore[attr-defined]
        if op.type != "gpr" or (op.value != RZ and lanes.reg(op.value) is UNKNOWN):  # type: ignore[attr-defined]
            raise Undecided("a barrier whose number is not known")
        return 0 if op.value == RZ else int(lanes.reg(op.value)[np.argmax(lanes.active)])  # type: ignore[attr-defined]

    def _pass(self) -> bool:
        """Block barriers to which all have come let those go who wait."""
        moved = False
        for number, bar in list(self.bars.items()):
            wanted = max((thread.held[1] for thread in bar.waiting if thread.held), default=0)
            all_ = wanted or sum(int(alive.sum()) for alive in self.alive)
            if bar.waiting and bar.threads >= all_:
                del self.bars[number]
                by_warp: dict[tuple[int, int], list[_Thread]] = {}
                for thread in bar.waiting:
                    self.order.hear(thread.lanes.warp, *bar.clocks)
                    by_warp.setdefault((thread.lanes.warp, thread.at), []).append(thread)
                for there in by_warp.values():
                    self._together(there)
                moved = True
        return moved

    def _hang(self) -> None:
        """Whoever is left waits for ever; unless lanes of a warp wait for each other, which was not understood then."""
        free = {thread.lanes.warp for thread in self.threads if thread.held is None or thread.held[0] == "bar"}
        if all(thread.lanes.warp in free for thread in self.threads):
            for thread in self.threads:
                if thread.blocked is not None:
                    self.hung.setdefault(thread.at, self._lacking(thread.blocked))
                    self.order.refuse("hang", None, thread.at)

    def _lacking(self, blocked: Blocked) -> str:
        """What never comes."""
        bar = self.order.mbarriers.get(blocked.address)
        if bar is None:
            return str(blocked)
        lacking = [f"{bar.missing} arrivals"] * (bar.missing > 0)
        if bar.announced > 0:
            lacking.append(f"{bar.announced} bytes that were announced and are not copied")
        elif bar.announced < 0:
            lacking.append(f"the announcement of {-bar.announced} bytes that were copied")
        return f"{' and '.join(lacking)} at mbarrier {blocked.address:#x}"


def together_findings(kernel: CubinKernel, graph: Graph, effects: Sequence[Effects]) -> list[Finding]:
    """Errors and warnings about a block whose warps work with units beside them."""
    code = graph.code
    units = sorted(i for i in graph.reachable() if code[i].opcode in UNITS)
    if not units:
        return []
    block = kernel.reqntid or kernel.maxntid
    if block is None or not 0 < math.prod(block) <= MAX_THREADS:
        return [_not_followed(code[units[0]], "the kernel does not say its block size")]
    plan = Plan(kernel, graph, block, _needed(graph, effects))
    reached, guessed = dict.fromkeys(units, 0), False
    for seed in range(_TRIALS):
        launch = _Launch(plan, seed)
        stuck = launch.followed()
        guessed |= launch.guessed
        for i in launch.reached & reached.keys():
            reached[i] += 1
        if launch.order.found:
            return [_finding(code, broken, launch) for broken in launch.order.found.values()]
        if stuck:
            return [_not_followed(code[launch.at], stuck)]
        if seed + 1 >= (_LEAST_GUESSED if guessed else _LEAST) and min(reached.values()) >= _OFTEN:
            return []
    return [_not_followed(code[i], "no sampled launch came here") for i in units if not reached[i]][:1]


def _not_followed(inst: Instruction, why: str) -> Finding:
    return Finding("not-followed", "units", None, Place.of(inst), None, None,
                   f"{why}: what units do beside warps was not judged", "check it by hand", WARNING)


def _finding(code: Sequence[Instruction], broken: Broken, launch: _Launch) -> Finding:
    resource, message, fix = _MESSAGES[broken.kind]
    level = ERROR
    earlier = None if broken.earlier is None else Place.of(code[broken.earlier])
    if broken.kind == "hang":
        message = f"waits for ever in a launch that was followed: for {launch.hung[broken.later]}"
        level = WARNING if launch.guessed else ERROR
    return Finding(broken.kind, resource, earlier, Place.of(code[broken.later]), None, None, message, fix, level)
