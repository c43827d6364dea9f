"""Run the engine over a workload and say what happened."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..errors import SimulationError
from ..runtime.forks import compiling
from . import columns as c
from .contents import L2Contents
from .footprint import kept_kib
from .lower import lower
from .lower_sm90 import has_atomics, works_beside
from .machine import LINE, Machine
from .occupancy import Occupancy, l1_kib, occupancy
from .placement import Gpcs, by_sms, gpcs_of, instructions, most_lines_first, placed
from .slots import slots, uneven
from .state import Image, Shape, Work, stores_parts, touches
from .timeline import MOST_CYCLES, WINDOWS, Recorder
from .workload import Outline, Workload

Progress = Callable[[int, int], None]
MAX_TRACED_CYCLES = 1_000_000  # of a pipeline trace; each takes eight rows of memory for every SM
_SECOND_WAVE = 4 / 3
MOST_OF_ALL_SMS = 12_000_000  # warp-instructions of a launch of which every SM is simulated unasked: some six seconds
_CHUNK = 200_000  # cycles between two calls of a progress function
_OF_GPC = "l2_load_bytes", "l2_store_bytes"


@dataclass(frozen=True)
class Options:
    """policy: one of POLICIES, "" for the machine's own: the first, of sm_90 the second. all_sms: simulate every SM
    on a shared block queue; otherwise one SM runs ceil(blocks / SMs) blocks while the others, in step
    with it, touch L2 and DRAM with their own blocks' addresses. None: every SM of sm_90 where one cannot stand for
    the others and that takes seconds (`_all_sms`), unless there is a trace.
    trace: (first cycle, last cycle) of the pipeline trace to keep. timeline: keep the course of the launch, and every
    issue of that many cycles at its begin and in its middle (of `trace` alone if there is one). warm: the launch
    follows one of the same kernel with the same arguments (warm.py); else the caches are empty when it begins."""

    policy: str = ""
    all_sms: bool | None = None
    trace: tuple[int, int] | None = None
    timeline: int = 0
    warm: bool = False


@dataclass(frozen=True)
class Result:
    """What a simulated launch did. Arrays run over the instructions of the kernel; counts are of warps on the simulated
    SMs. `stalls` has one more row for slots with no instruction to blame, and a column for each of REASONS. `windows`:
    the cycles whose issues are in `events`; `samples`: the course of the launch, if asked for (timeline.py)."""

    machine: Machine
    workload: Outline
    occupancy: Occupancy
    options: Options
    cycles: int
    simulated_sms: int
    issued: np.ndarray
    dual: np.ndarray
    stalls: np.ndarray
    counters: np.ndarray
    events: np.ndarray
    windows: tuple[tuple[int, int], ...] = ()
    samples: np.ndarray | None = None

    @property
    def resident_warps(self) -> int:
        """Warps on one SM when the launch begins."""
        return _resident(self.workload, self.machine, self.occupancy) * self.workload.block_warps

    @property
    def seconds(self) -> float:
        return self.cycles / (self.machine["clock_mhz"] * 1e6)

    def efficiency(self, flops: float) -> float:
        """Percent of the chip's peak float32 rate at which `flops` operations were done."""
        return 100 * flops / (self.cycles * self.machine.peak_flops_per_cycle)

    def ratio(self, hits: int, lookups: int) -> float | None:
        """Percentage of two event counters (columns.C_*), None if nothing was looked up."""
        total = int(self.counters[lookups])
        return 100 * int(self.counters[hits]) / total if total else None


    @property
    def l2_hits(self) -> float | None:
        """Percentage of L2's lookups that hit, as a card counts them. An SM of sm_90 asks its own part of L2, and that
        the other one for half of the lines: for what is missing, what the other part alone has, and all stores."""
        if not self.machine.sm90:
            return self.ratio(c.C_L2_HITS, c.C_L2_SECTORS)
        read, hits, stored = (int(self.counters[n]) for n in (c.C_L2_SECTORS, c.C_L2_HITS, c.C_L2_STORED))
        missing = read - hits
        both = 1 - 0.5 ** (hits / missing) if missing else 0  # of what is missing, SMs of both parts ask for
        lookups = read + missing * (1 + both) / 2 + stored * 1.5
        return 100 * (1 - missing * (3 + both) / 2 / lookups) if lookups else None


def simulate(workload: Workload, machine: Machine, *, registers: int, shared_bytes: int, threads: int,
             options: Options | None = None, progress: Progress | None = None,
             contents: L2Contents | None = None) -> Result:
    """Time a launch on a machine.

    registers, shared_bytes, threads: per thread, per block, per block; they set how many blocks share an SM.
    progress(blocks done, blocks to do) is called now and then. contents: of a warm launch, what L2 held before the one
    of its like; None for nothing. Raises SimulationError for an unknown policy, a block that does not fit, and warps
    that wait for ever."""
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise SimulationError(f"options must be Options (got {options!r})")
    if options.policy == "":
        options = replace(options, policy=c.POLICIES[1 if machine.sm90 else 0])
    if not isinstance(options.policy, str) or options.policy not in c.POLICIES:
        raise SimulationError(f"policy must be one of {', '.join(c.POLICIES)} (got {options.policy!r})")
    if options.all_sms is not None and not isinstance(options.all_sms, bool):
        raise SimulationError(f"all_sms must be True, False or None (got {options.all_sms!r})")
    timeline = options.timeline
    if isinstance(timeline, bool) or not isinstance(timeline, int) or not 0 <= timeline <= MOST_CYCLES:
        raise SimulationError(f"timeline must be a number of cycles from 0 to {MOST_CYCLES} (got {timeline!r})")
    trace = (0, 1) if options.trace is None else options.trace
    if (not isinstance(trace, tuple) or len(trace) != 2 or not all(isinstance(t, int) for t in trace)
            or not 0 <= trace[0] < trace[1] <= trace[0] + MAX_TRACED_CYCLES):
        raise SimulationError(f"trace must be a first cycle and a later one, at most {MAX_TRACED_CYCLES} cycles on "
                              f"(got {trace})")
    if not isinstance(options.warm, bool):
        raise SimulationError(f"warm must be True or False (got {options.warm!r})")
    if options.all_sms is None:
        fit = occupancy(machine, registers, shared_bytes, threads)
        options = replace(options, all_sms=options.trace is None and _all_sms(workload, machine, fit))
    image, fit = _prepared(workload, machine, registers, shared_bytes, threads, options)
    if contents is not None:
        contents.put(image)
    recorder = None
    if timeline:
        recorder = Recorder(image, timeline, int(workload.outline.executed.sum()) // (image.shape.mirror + 1),
                            options.trace)
    _run(image, progress, recorder)
    return _result(image, workload.outline, fit, options, recorder)


def l2_after(workload: Workload, machine: Machine, *, registers: int, shared_bytes: int, threads: int,
             before: L2Contents | None = None, code: Machine | None = None) -> L2Contents:
    """What L2 holds behind a launch; `before`: what it held when that began. code: the machine whose instructions its
    kernel has, if that is another one. Warm launches alone go on from there."""
    options = Options(policy=c.POLICIES[0], all_sms=False, warm=True)
    image, _ = _prepared(workload, machine, registers, shared_bytes, threads, options, code)
    if before is not None:
        before.put(image)
    with compiling:
        from .compiled import warm_up  # here, because it compiles
    warm_up(image.X, 0)
    return L2Contents.of(image)


def _all_sms(workload: Workload, machine: Machine, fit: Occupancy) -> bool:
    """Whether a launch of few instructions takes as long as an SM for which no other one can stand: some SMs have no
    block, so that it matters whose neighbours have one, or blocks that are all resident issue unlike numbers of
    instructions, so that some SMs rest. Where parts of L2 keep copies it matters in which part's GPCs the SMs are that
    have a block of the second wave, if these are few (_SECOND_WAVE). What SMs share of sectors (sharing.py) and atomics
    at places that all of them change is known of one alone. Where warps meet at mbarriers blocks on all SMs take
    several tiles in step."""
    outline = workload.outline
    waves = outline.blocks / (machine["sms"] * fit.blocks)
    most = _SECOND_WAVE if machine.of_any["l2_copies_kib"] else 1
    if not machine.sm90 or waves > most or outline.executed.sum() > MOST_OF_ALL_SMS:
        return False
    few = outline.blocks < machine["sms"]
    if works_beside(outline.instructions):
        return few
    if stores_parts(workload.work.lines):
        return False
    if waves > 1:
        return not has_atomics(outline.instructions)
    costs = instructions(workload.work)
    return bool(costs.min() < costs.max()) or (few and not has_atomics(outline.instructions))


def _prepared(workload: Workload, machine: Machine, registers: int, shared_bytes: int, threads: int, options: Options,
              code_machine: Machine | None = None) -> tuple[Image, Occupancy]:
    """The image of a launch, and how many of its blocks share an SM."""
    fit = occupancy(machine, registers, shared_bytes, threads)
    sms = machine["sms"] if options.all_sms else 1
    outline = workload.outline
    resident = _resident(outline, machine, fit)
    code = lower(outline.instructions, code_machine or machine)
    places = None
    work, beside = workload.work, bool((code[:, c.I_KIND] >= c.K_COPY).any())
    kinds = touches(code, work)
    if machine.sm90:
        own: dict[str, float] = {}
        gpcs = gpcs_of(machine["sms"], machine["blocks_ahead"], machine["gpc_tpcs"])
        if options.all_sms:
            work, order = by_sms(work, machine["sms"], fit.blocks, machine["blocks_ahead"], gpcs)
            places = gpcs.places(order, machine["tpc_distance"]) if gpcs else None
        else:
            own = _of_the_slowest(machine, outline.blocks, fit.blocks, gpcs)
            work = placed(work, machine["sms"], fit.blocks, machine["blocks_ahead"], gpcs)
            if beside and outline.blocks <= machine["sms"]:
                work = most_lines_first(work)
        own["l1_kib"] = l1_kib(machine, resident, shared_bytes)
        own |= _l2_sizes(machine, kinds, work, options.warm, beside)
        machine = machine.with_values(own)
    shape = Shape(sms, machine["sms"] - sms, resident, outline.block_warps, outline.blocks,
                  c.POLICIES.index(options.policy), options.trace or (0, options.timeline),
                  1 if options.trace else WINDOWS, options.warm)
    apart = machine.sm90 and shape.mirror and not beside
    image = Image(machine, code, work, shape, slots(kinds, work) if apart else None, kinds, places)
    image.X[c.P_UNEVEN] = apart and uneven(kinds, work)
    return image, fit


def _of_the_slowest(machine: Machine, blocks: int, fit: int, gpcs: Gpcs | None) -> dict[str, float]:
    """Figures of the SM of sm_90 that a launch waits for, where no other one helps it: the furthest from L2 (probe
    "chain" of pairs.py, of 40 blocks and more), in the GPC where most SMs share what it gets of L2."""
    own: dict[str, float] = {}
    if machine["sms"] // 4 < blocks <= machine["sms"] * fit:
        own["l2_latency"] = machine["l2_latency"] + machine["l2_furthest"]
    if gpcs and blocks < machine["sms"]:
        own |= {name: machine[name] / gpcs.crowd(blocks) for name in _OF_GPC}
    return own


def _l2_sizes(machine: Machine, kinds: np.ndarray, work: Work, warm: bool, beside: bool) -> dict[str, float]:
    """Figures of what L2 keeps. Stores of parts of sectors that SMs share (sharing.py) are not known with copies."""
    pairs = 2 * machine["l2_ways"] * LINE // 1024  # of sets, one in each part
    whole = int(machine["l2_copies_kib"]) // pairs * pairs
    copies = whole if whole and (beside or not stores_parts(work.lines)) else 0
    kept = whole if copies or (whole and warm) else kept_kib(kinds, work, machine, warm)
    return {"l2_kib": kept, "l2_copies_kib": copies}


def _resident(workload: Outline, machine: Machine, fit: Occupancy) -> int:
    return min(fit.blocks, -(-workload.blocks // machine["sms"]))


def _run(image: Image, progress: Progress | None, recorder: Recorder | None) -> None:
    with compiling:
        from .compiled import begin, run, warm_up  # here, because it compiles
    X, shape = image.X, image.shape
    if shape.warm:
        warm_up(X, int(image.code[:, c.I_LINE].max()) + 1)
    begin(X)
    todo = -(-shape.blocks // (shape.mirror + 1))
    over = False
    while not over:
        over = run(X, int(X[c.C_NOW]) + (recorder.step if recorder else _CHUNK))
        if X[c.C_NOW] > c.MOST_CYCLES:
            raise SimulationError(f"the launch takes more than {c.MOST_CYCLES} cycles")
        if recorder:
            recorder.look()
        if progress:
            progress(int(X[c.C_DONE]), todo)
    left = int(X[c.C_LAUNCHED] - X[c.C_DONE])
    if left:
        raise SimulationError(f"{left} blocks wait for ever: a barrier that not all their warps reach")


def _result(image: Image, workload: Outline, fit: Occupancy, options: Options, recorder: Recorder | None) -> Result:
    X, n = image.X, image.instructions
    stalls = image.table(c.T_STALL, n + 1, c.REASON_COUNT).copy()
    for s in image.table(c.T_SCHED, image.shape.sms * 4, c.S_SIZE):
        if s[c.S_SINCE] >= 0:
            stalls[-1, c.R_NONE] += X[c.C_NOW] - s[c.S_SINCE]
    return Result(image.machine, workload, fit, options, int(max(X[c.C_NOW], X[c.C_STORED])), image.shape.sms,
                  image.code[:, c.I_ISSUED].copy(), image.code[:, c.I_DUAL].copy(), stalls, X[:c.HEAD].copy(),
                  image.table(c.T_EVENT, int(X[c.C_TRACED]), c.EVENT_SIZE).copy(),
                  tuple(recorder.windows) if recorder else tuple(filter(None, [options.trace])),
                  recorder.finish() if recorder else None)
