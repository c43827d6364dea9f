"""How long kernels take: the virtual GPU says where warps go and what they touch, the timing model (sim) says when.

A few blocks of a launch are run on the virtual GPU; which blocks behave alike and how their addresses move is learned
from them (sim/blocks.py). Where nothing is learned, every block is run."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.paper.maxwell import CONV_64X64
from ..build.cubins import cubin
from ..cubin import CubinKernel
from ..emulator.trace import WarpTrace
from ..errors import SimulationError
from ..planning.plan import FLOAT_BYTES, Launch, Plan
from ..planning.select import plan as make_plan
from ..problem.shape import ConvShape
from ..runtime.devices.protocol import Dim3, Texture
from .blocks import Learner, every_block
from .contents import L2Contents
from .launchfile import Description, place
from .lower_sm90 import has_products, works_beside
from .machine import Machine, preset
from .simulate import Options, Progress, Result, l2_after, simulate
from .workload import Builder, Workload

_TRACING = threading.Lock()  # several threads may simulate at once, but they trace one at a time
_AT_ONCE = 16  # blocks traced in one go where all are
_STEPS = 1000  # of progress for each launch of a plan


@dataclass(frozen=True)
class LaunchTiming:
    """One launch of a plan, timed. `useful`: floating-point operations of the layer that it does, by the paper's
    count; 0 for copies and changes of layout."""

    kernel: str
    result: Result
    useful: int

    @property
    def clocks(self) -> int:
        return self.result.cycles

    @property
    def ce(self) -> float:
        """Computational efficiency, percent, from clocks; 0 for a launch that computes nothing."""
        return self.result.efficiency(self.useful)


@dataclass(frozen=True)
class ConvTiming:
    """Launches of a layer, timed one after the other: of the convolution kernel alone, as in the paper, or of a whole
    call with its copies and changes of layout. `timed`: the launches of the plan that these are, all but those that are
    translated on the machine. `clocks`: of the chip, all launches together."""

    shape: ConvShape
    plan: Plan
    launches: tuple[LaunchTiming, ...]
    timed: tuple[Launch, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(x.result for x in self.launches)

    @property
    def convolution(self) -> ConvTiming:
        """The launches of the convolution kernel alone."""
        kept = [(x, y) for x, y in zip(self.launches, self.timed, strict=True) if x.useful]
        return ConvTiming(self.shape, self.plan, tuple(x for x, _ in kept), tuple(y for _, y in kept))

    @property
    def machine(self) -> Machine:
        return self.launches[0].result.machine

    @property
    def clocks(self) -> int:
        return sum(x.clocks for x in self.launches)

    @property
    def seconds(self) -> float:
        return sum(x.result.seconds for x in self.launches)

    @property
    def ce(self) -> float:
        """Computational efficiency, percent, from clocks: the paper's C / (2 x 128 x clocks summed over SMs)."""
        return 100 * self.shape.efficiency_from_clocks(self.clocks * self.machine["sms"])

    @property
    def ce_from_time(self) -> float:
        """Computational efficiency, percent, from time and peak."""
        peak = self.machine.peak_flops_per_cycle * self.machine["clock_mhz"] * 1e6
        return 100 * self.shape.efficiency_from_time(self.seconds, peak)


def conv(shape: ConvShape | Plan, *, kernel: str | None = CONV_64X64.name, machine: str | Machine = "gm204",
         options: Options | None = None, progress: Progress | None = None) -> ConvTiming:
    """Time the convolution kernel's launches of a layer, as the paper does, on a machine (a preset's name or a
    Machine): by the direct kernel of 64 x 64 tiles, by another one, or by the planner's choice (None); a plan brings
    its own. Padding and layout changes are left out: `call` counts them. Raises ShapeError for a layer the kernel
    cannot serve, SimulationError for an unknown machine or policy."""
    return _timed(shape, kernel, "CHWN", False, machine, options, progress)


def call(shape: ConvShape | Plan, *, kernel: str | None = None, layout: str = "CHWN",
         machine: str | Machine = "gm204", options: Options | None = None,
         progress: Progress | None = None) -> ConvTiming:
    """Time a whole call of conv_fprop for a layer: every launch, copies and layout changes included. Arguments and
    errors as for `conv`; `layout` is that of the arrays."""
    return _timed(shape, kernel, layout, True, machine, options, progress)


def runs_on(launch: Launch, machine: Machine) -> bool:
    """Whether its kernel is machine code of the machine; else it is translated there, by a compiler whose code nobody
    here sees."""
    return launch.spec.arch == machine.arch if machine.sm90 else launch.spec.arch is None


def _machine(machine: str | Machine) -> Machine:
    return machine if isinstance(machine, Machine) else preset(machine)


def _timed(shape: ConvShape | Plan, kernel: str | None, layout: str, whole: bool, machine: str | Machine,
           options: Options | None, progress: Progress | None) -> ConvTiming:
    plan = shape if isinstance(shape, Plan) else make_plan(shape, layout=layout, kernel=kernel)
    chip = _machine(machine)
    steps = [(n, launch, useful) for n, (launch, useful) in enumerate(_steps(plan))
             if (whole or useful) and runs_on(launch, chip)]
    if not steps:
        raise SimulationError(f"no kernel of the plan is machine code that {chip.name} runs; what is translated the "
                              f"model cannot time ({', '.join(dict.fromkeys(x.spec.name for x in plan.launches))})")
    tell = _Share(progress, len(steps))
    found = []
    works = workloads(plan, [step for _, step, _ in steps], chip, tell)
    warm = isinstance(options, Options) and options.warm is True
    before = contents_before(plan, chip) if warm else [None] * len(plan.launches)
    with ThreadPoolExecutor(1) as ahead:  # the next launch is traced while one is simulated
        coming = ahead.submit(next, works)
        for number, (place, step, useful) in enumerate(steps, 1):
            work, function = coming.result()
            if number < len(steps):
                coming = ahead.submit(next, works)
            result = simulated(work, function, step.block, chip, options=options, progress=tell,
                               contents=before[place])
            del work  # gigabytes where every block was traced
            found.append(LaunchTiming(step.spec.name, result, useful))
            tell.done += 1
    return ConvTiming(plan.shape, plan, tuple(found), tuple(step for _, step, _ in steps))


def conv_workloads(plan: Plan, machine: Machine) -> list[tuple[Workload, CubinKernel]]:
    """For each launch of the convolution kernel: what its warps do, and the kernel."""
    steps = [launch for launch, useful in _steps(plan) if useful]
    return [(work, function.kernel) for work, function in workloads(plan, steps, machine)]


class _Share:
    """Progress of one of several launches as a share of all."""

    def __init__(self, progress: Progress | None, launches: int) -> None:
        self._progress, self._launches, self.done = progress, launches, 0

    def __call__(self, done: int, of: int) -> None:
        if self._progress:
            self._progress(_STEPS * self.done + _STEPS * done // max(of, 1), _STEPS * self._launches)


# -- what a plan launches ---------------------------------------------------------------------------------------------


def _steps(plan: Plan) -> list[tuple[Launch, int]]:
    """The launches of a plan in order, and the operations of the layer that each does. The passes of the kernel that
    does the arithmetic share the layer's operations as they share its issue slots."""
    slots = [x.work.ctas * x.work.code.slots for x in plan.passes]
    ends = [int(plan.flops * sum(slots[:n + 1]) / sum(slots)) for n in range(len(slots) - 1)] + [plan.flops]
    shares = iter(end - start for start, end in zip([0, *ends], ends, strict=False))
    return [(x, next(shares) if x.spec is plan.spec else 0) for x in plan.launches]


def workloads(plan: Plan, launches: Sequence[Launch], machine: Machine,
               progress: Progress | None = None) -> Iterator[tuple[Workload, Any]]:
    """What the warps of some launches of a plan do, and the kernel of each, a function of the virtual GPU."""
    from ..emulator.gpu import VirtualGpu
    gpu = VirtualGpu()
    sizes = {operand.role: FLOAT_BYTES * operand.extent for operand in plan.problem.operands}
    sizes |= {name: region.nbytes for name, region in plan.workspace.items()}
    buffers = {name: gpu.alloc(size) for name, size in sizes.items()}
    places = {name: (buffer.address, buffer.nbytes) for name, buffer in buffers.items()}
    homes = [_home(x, machine) for x in launches]
    modules = {x.spec.name: gpu.load(cubin(x.spec.source.removesuffix(".sass"), home.arch))
               for x, home in zip(launches, homes, strict=True)}
    if any(has_products(modules[x.spec.name].function(x.spec.name).kernel.instructions) for x in launches):
        for name in plan.workspace:  # factors of operands that are neither zero nor extreme, which other code is for
            gpu.upload(buffers[name], np.ones(buffers[name].nbytes // FLOAT_BYTES, np.float32))
    for launch, home in zip(launches, homes, strict=True):
        module = modules[launch.spec.name]
        for name, data in launch.tables.items():
            module.set_constant(name, data)
        function = module.function(launch.spec.name)
        args = launch.arguments(places, dict.fromkeys(launch.names - places.keys(), np.float32(1)))
        textures = {name: Texture(*bound) for name, bound in launch.bound(places).items()}
        yield workload(function, launch.grid, launch.block, args, textures=textures, machine=home,
                       progress=progress, keep=False, hollow=True), function


def _home(launch: Launch, machine: Machine) -> Machine:
    """The machine whose instructions the kernel of a launch has: what is translated on this one is Maxwell's."""
    return machine if runs_on(launch, machine) else preset("gm204")


def contents_before(plan: Plan, machine: Machine) -> list[L2Contents | None]:
    """What L2 holds before each launch of a plan that is called again and again, translated kernels' lines among it,
    not those of machine code of other GPUs. None where a plan has one launch, which follows its like."""
    if len(plan.launches) == 1:
        return [None]
    known = [x for x in plan.launches if x.spec.arch in (None, machine.arch)]
    works = [(work, function.kernel) for work, function in workloads(plan, known, machine)]
    found: dict[int, L2Contents | None] = {}
    held = None
    for _ in range(2):
        for launch, (work, kernel) in zip(known, works, strict=True):
            found[id(launch)] = held
            held = l2_after(work, machine, registers=kernel.registers, shared_bytes=kernel.shared_bytes,
                            threads=math.prod(launch.block), before=held, code=_home(launch, machine))
    return [found.get(id(launch)) for launch in plan.launches]


# -- what a launch does -----------------------------------------------------------------------------------------------


def workload(function: Any, grid: Dim3, block: Dim3, args: Sequence[Any], *, machine: Machine,
             textures: Mapping[str, Texture] | None = None, shared_bytes: int = 0, progress: Progress | None = None,
             full: bool = False, keep: bool = True, hollow: bool = False) -> Workload:
    """What the warps of a launch of a kernel of the virtual GPU do, learned from as few blocks as will do, or from all
    of them (`full`), run in the order of the grid. With `keep`, memory is afterwards what it was before; a caller for
    whom memory does not matter saves the copy. Raises LaunchError, before anything runs, for a launch the kernel cannot
    take."""
    function.plan(grid, block, args, shared_bytes, textures)
    blocks = grid[0] * grid[1] * grid[2]
    threads = block[0] * block[1] * block[2]
    kept = _Snapshot(function.module.gpu) if keep else None

    def trace(numbers: Sequence[int]) -> list[WarpTrace]:
        with _TRACING:
            return traced(function, grid, block, args, textures or {}, numbers, shared_bytes, hollow)
    builder = Builder(function.kernel.instructions, blocks, -(-threads // 32), bool(machine["shared_pair_merge"]))
    learner = Learner(trace, grid)
    try:
        found = None if full or works_beside(function.kernel.instructions) else learner.learn()
        if found is None:
            learner.traced = blocks
            for number, seen in every_block(trace, blocks, _AT_ONCE, kept.restore if kept else None):
                builder.single(number, seen)
                if progress:
                    progress(0, 1)
        else:
            for alike in found:
                builder.alike(alike, grid)
    finally:
        if kept:
            kept.restore()
    return builder.workload(learner.traced)


class _Snapshot:
    """What the memory of a virtual GPU holds, less what is zero."""

    _PIECE = 1 << 20

    def __init__(self, gpu: Any) -> None:
        _, self._arrays = gpu.memory.table()
        self._pieces = [(piece, piece.copy() if piece.any() else None) for piece in self._all()]

    def _all(self) -> Iterator[np.ndarray]:
        for array in self._arrays:
            for first in range(0, array.nbytes, self._PIECE):
                yield array[first:first + self._PIECE]

    def restore(self) -> None:
        for piece, was in self._pieces:
            if was is not None:
                piece[:] = was
            elif piece.any():
                piece[:] = 0


def traced(function: Any, grid: Dim3, block: Dim3, args: Sequence[Any], textures: Mapping[str, Texture],
           blocks: Sequence[int], shared_bytes: int = 0, hollow: bool = False) -> list[WarpTrace]:
    """Traces of every warp of the given blocks (numbered x fastest), in that order, on the virtual GPU."""
    where = [(int(b) % grid[0], int(b) // grid[0] % grid[1], int(b) // (grid[0] * grid[1])) for b in blocks]
    found: list[WarpTrace] = []
    function.trace(grid, block, args, blocks=where, on_warp=found.append, textures=textures, shared_bytes=shared_bytes,
                   hollow=hollow)
    return found


def launch(function: Any, grid: Dim3, block: Dim3, args: Sequence[Any], *,
           textures: Mapping[str, Texture] | None = None, shared_bytes: int = 0, machine: str | Machine = "gm204",
           options: Options | None = None, progress: Progress | None = None, full: bool = False) -> Result:
    """Time any launch of a kernel of the virtual GPU, of which some blocks are run, all of them with `full` or where
    blocks have nothing in common. Memory is left as it was."""
    chip = _machine(machine)
    work = workload(function, grid, block, args, machine=chip, textures=textures, shared_bytes=shared_bytes,
                    progress=progress, full=full)
    return simulated(work, function, block, chip, shared_bytes, options, progress)


def simulated(work: Workload, function: Any, block: Dim3, machine: Machine, shared_bytes: int = 0,
              options: Options | None = None, progress: Progress | None = None,
              contents: L2Contents | None = None) -> Result:
    """Time a workload of a kernel. contents: as of `simulate`."""
    kernel: CubinKernel = function.kernel
    return simulate(work, machine, registers=kernel.registers, shared_bytes=kernel.shared_bytes + shared_bytes,
                    threads=math.prod(block), options=options, progress=progress, contents=contents)


def described(cubin_bytes: bytes, description: Description, *, machine: str | Machine = "gm204",
              options: Options | None = None, progress: Progress | None = None) -> list[LaunchTiming]:
    """Time the launches of a launch file (launchfile.py) in order; each really runs before the next is timed. Raises
    LaunchError, DeviceError (constants) or CubinError for a description that does not fit the cubin and SimulationError
    for an unknown machine, before anything runs."""
    from ..emulator.gpu import VirtualGpu
    chip = _machine(machine)
    _, placed = place(description, cubin_bytes, VirtualGpu())
    tell = _Share(progress, len(description.launches))
    found: list[LaunchTiming] = []
    for ready in placed:
        step = ready.step
        result = launch(ready.function, step.grid, step.block, ready.args, textures=ready.textures,
                        shared_bytes=step.shared_bytes, machine=chip, options=options, progress=tell)
        found.append(LaunchTiming(ready.function.name, result, 0))
        tell.done += 1
        if tell.done < len(description.launches):
            ready.launch()
    return found


__all__ = ["ConvTiming", "LaunchTiming", "Options", "call", "conv", "conv_workloads", "described", "launch",
           "preset", "simulated", "traced", "workload"]
