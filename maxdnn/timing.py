"""How long kernels take: the virtual GPU says where warps go and what they touch, the timing model (sim) says when.

A convolution's blocks all do the same at shifted addresses, so one block of each kind is run on the virtual GPU, the
shifts of the others follow from the plan, and a few other blocks, run too, must match them address by address."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import launchfile
from .choose import plan as make_plan
from .cubin import CubinKernel
from .cubins import cubin
from .devices.protocol import Dim3, Texture
from .errors import SimulationError
from .families.direct import CONV_64X64
from .isa import Instruction
from .plans import Launch, Plan
from .shape import ConvShape
from .sim.access import NO_LANE
from .sim.lower import memory_kind
from .sim.machine import LINE, Machine, preset
from .sim.simulate import Options, Progress, Result, simulate
from .sim.workload import Workload, build, expand
from .trace import WarpTrace

MAX_TRACED_BLOCKS = 4096  # of a launch whose blocks are all traced
_MAPS, _FILTERS, _OUT, _OTHER = range(4)  # address groups of a convolution
_TRACING = threading.Lock()  # several threads may simulate at once, but they trace one at a time
_CHECKED = 2  # blocks of each kind whose addresses are compared with the shifted ones


@dataclass(frozen=True)
class ConvTiming:
    """The convolution kernel's launches of a layer, timed. Padding and layout changes are not counted, as in the paper.

    `clocks`: of the chip, all launches together. `exact_lines`: False where blocks are not a whole number of cache
    lines apart, so that lines of other blocks are those of a block shifted by the next smaller multiple of 128
    bytes."""

    shape: ConvShape
    plan: Plan
    results: tuple[Result, ...]
    exact_lines: bool

    @property
    def machine(self) -> Machine:
        return self.results[0].machine

    @property
    def clocks(self) -> int:
        return sum(r.cycles for r in self.results)

    @property
    def seconds(self) -> float:
        return sum(r.seconds for r in self.results)

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
    """Time the convolution of a layer on a machine (a preset's name or a Machine), by the paper's 64 x 64 kernel, by
    another one, or by the planner's choice (None); a plan brings its own. Raises ShapeError for a layer the kernel
    cannot serve, SimulationError for an unknown machine or policy."""
    plan = shape if isinstance(shape, Plan) else make_plan(shape, kernel=kernel)
    chip = _machine(machine)
    results, exact = [], True
    for workload, code, whole_lines in conv_workloads(plan, chip):
        exact &= whole_lines
        results.append(simulate(workload, chip, registers=code.registers, shared_bytes=code.shared_bytes,
                                threads=plan.spec.threads, options=options, progress=progress))
    return ConvTiming(plan.shape, plan, tuple(results), exact)


def _machine(machine: str | Machine) -> Machine:
    return machine if isinstance(machine, Machine) else preset(machine)


def conv_workloads(plan: Plan, machine: Machine) -> list[tuple[Workload, CubinKernel, bool]]:
    """For each launch of the convolution kernel: what its warps do, the kernel, and whether all lines are exact."""
    with _TRACING:
        return _conv_workloads(plan, machine)


def _conv_workloads(plan: Plan, machine: Machine) -> list[tuple[Workload, CubinKernel, bool]]:
    from .emu.gpu import VirtualGpu
    gpu = VirtualGpu()
    module = gpu.load(cubin(plan.spec.source.removesuffix(".sass"), "sm_52"))
    function = module.function(plan.spec.name)
    places = _Places(gpu, plan)
    out = []
    for launch in plan.passes:
        if launch.tables:
            module.set_constant("offsets", launch.tables["offsets"])
        out.append(_conv_workload(function, launch, places, machine))
    return out


class _Places:
    """Device memory for everything a plan's launches name."""

    def __init__(self, gpu: Any, plan: Plan) -> None:
        self.sizes = {name: 4 * int(np.prod(shape)) for name, shape in plan.array_shapes().items()}
        self.sizes |= {name: region.nbytes for name, region in plan.workspace.items()}
        self.buffers = {name: gpu.alloc(size) for name, size in self.sizes.items()}
        self.places = {name: (buffer.address, buffer.nbytes) for name, buffer in self.buffers.items()}

    def arguments(self, launch: Launch) -> list[Any]:
        return launch.arguments(self.places, {"alpha": np.float32(1)})

    def textures(self, launch: Launch) -> dict[str, Texture]:
        return {name: Texture(*place) for name, place in launch.bound(self.places).items()}


def _conv_workload(function: Any, launch: Launch, places: _Places,
                   machine: Machine) -> tuple[Workload, CubinKernel, bool]:
    kernel: CubinKernel = function.kernel
    shifts = _shifts(launch)
    kinds = _kinds(launch)
    first = [int(np.flatnonzero(kinds == kind)[0]) for kind in range(int(kinds.max()) + 1)]
    chooser = random.Random(2015)
    members = [np.flatnonzero(kinds == kind).tolist() for kind in range(len(first))]
    others = [b for m in members for b in chooser.sample(m, min(_CHECKED, len(m)))]
    traces = traced(function, launch.grid, launch.block, places.arguments(launch), places.textures(launch),
                    [*first, *others])
    warps = -(-launch.spec.threads // 32)
    groups = _groups(kernel)
    for n, b in enumerate(others):
        reference = int(kinds[b])
        for w in range(warps):
            _compare(kernel, groups, traces[reference * warps + w], traces[(len(first) + n) * warps + w],
                     shifts[b] - shifts[first[reference]])
    relative = shifts - shifts[np.array(first)[kinds]]
    lines = relative // LINE * LINE
    stream_of = (kinds[:, None] * warps + np.arange(warps)).ravel()
    workload = build(kernel.instructions, traces[:len(first) * warps], blocks=len(kinds), block_warps=warps,
                     stream_of=stream_of, shift=lines, groups=groups, pair_merge=bool(machine["shared_pair_merge"]))
    return workload, kernel, bool((lines == relative).all())


def _coordinates(grid: Dim3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    block = np.arange(grid[0] * grid[1] * grid[2])
    return block % grid[0], block // grid[0] % grid[1], block // (grid[0] * grid[1])


def _tiles(launch: Launch) -> tuple[np.ndarray, np.ndarray]:
    """Image tile and filter tile of every block."""
    z = _coordinates(launch.grid)[2]
    tiles = launch.numbers["image_tiles"]
    return z % tiles, z // tiles


def _kinds(launch: Launch) -> np.ndarray:
    """Blocks of one kind do the same: the last tile of images or of filters, if ragged, is a kind of its own."""
    tile_n, tile_k = launch.spec.tile  # type: ignore[attr-defined]
    image, filt = _tiles(launch)
    ragged_n = (image + 1) * tile_n > launch.numbers["n"]
    ragged_k = (filt + 1) * tile_k > launch.numbers["k"]
    return np.unique(ragged_n + 2 * ragged_k, return_inverse=True)[1]


def _shifts(launch: Launch) -> np.ndarray:
    """Bytes by which the addresses of each block's maps, filters, outputs and anything else lie beyond block 0's."""
    q, p, _ = _coordinates(launch.grid)
    image, filt = _tiles(launch)
    v = launch.numbers
    tile_n, tile_k = launch.spec.tile  # type: ignore[attr-defined]
    maps = 16 * (q * v["map_col"] + p * v["map_row"]) + 4 * tile_n * image
    out = 4 * (q * v["n"] + p * v["out_row"] + tile_n * image + tile_k * filt * v["out_plane"])
    return np.stack([maps, 4 * tile_k * filt, out, np.zeros_like(q)], 1).astype(np.int64)


def _groups(kernel: CubinKernel) -> np.ndarray:
    """Which shift applies to each instruction: by texture, or the output for global accesses."""
    slots = {offset // 4: name for name, offset in kernel.textures}
    number = {"texI": _MAPS, "texF": _FILTERS}

    def group(inst: Instruction) -> int:
        if inst.cls.name == "tex":
            return number[slots[inst["slot"].value]]
        return _OUT if inst.mnemonic in ("STG", "LDG") else _OTHER
    return np.array([group(i) for i in kernel.instructions])


def _compare(kernel: CubinKernel, groups: np.ndarray, reference: WarpTrace, other: WarpTrace,
             shift: np.ndarray) -> None:
    """Raises SimulationError unless the other block's warp does what the reference does, at shifted addresses."""
    where = f"block {other.block}, warp {other.warp}"
    if not np.array_equal(reference.runs, other.runs):
        raise SimulationError(f"{where} does not take the path of block {reference.block}")
    kinds = np.array([memory_kind(i) is not None for i in kernel.instructions])
    path = expand(reference.runs)
    group = groups[path[kinds[path]]]
    taking = reference.addresses != NO_LANE
    expected = np.where(taking, reference.addresses + shift[group].astype(np.uint64)[:, None], NO_LANE)
    if not np.array_equal(expected, other.addresses):
        row = int(np.flatnonzero((expected != other.addresses).any(1))[0])
        raise SimulationError(f"{where} does not touch the addresses of block {reference.block}, shifted "
                              f"(first difference at memory access {row})")


def traced(function: Any, grid: Dim3, block: Dim3, args: Sequence[Any], textures: Mapping[str, Texture],
           blocks: Sequence[int], shared_bytes: int = 0) -> list[WarpTrace]:
    """Traces of every warp of the given blocks (numbered x fastest), in that order, on the virtual GPU."""
    where = [(int(b) % grid[0], int(b) // grid[0] % grid[1], int(b) // (grid[0] * grid[1])) for b in blocks]
    found: list[WarpTrace] = []
    function.trace(grid, block, args, blocks=where, on_warp=found.append, textures=textures, shared_bytes=shared_bytes)
    return found


def launch(function: Any, grid: Dim3, block: Dim3, args: Sequence[Any], *,
           textures: Mapping[str, Texture] | None = None, shared_bytes: int = 0, machine: str | Machine = "gm204",
           options: Options | None = None, progress: Progress | None = None) -> Result:
    """Time any launch of a kernel of the virtual GPU; its blocks are all run and traced, so memory holds the results.
    Raises SimulationError for more than MAX_TRACED_BLOCKS blocks."""
    blocks = grid[0] * grid[1] * grid[2]
    if blocks > MAX_TRACED_BLOCKS:
        raise SimulationError(f"grid must have at most {MAX_TRACED_BLOCKS} blocks, all of which are traced "
                              f"(got {blocks})")
    chip = _machine(machine)
    kernel: CubinKernel = function.kernel
    threads = block[0] * block[1] * block[2]
    traces = traced(function, grid, block, args, textures or {}, range(blocks), shared_bytes)
    workload = build(kernel.instructions, traces, blocks=blocks, block_warps=-(-threads // 32),
                     pair_merge=bool(chip["shared_pair_merge"]))
    return simulate(workload, chip, registers=kernel.registers, shared_bytes=kernel.shared_bytes + shared_bytes,
                    threads=threads, options=options, progress=progress)


def described_launch(cubin_bytes: bytes, description: Mapping[str, Any], *, machine: str | Machine = "gm204",
                     options: Options | None = None) -> Result:
    """Time a launch described by plain data, as `maxdnn simulate --help` explains. Raises LaunchError for a
    description that does not fit the kernel."""
    from .emu.gpu import VirtualGpu
    wanted = launchfile.parse(description)
    gpu = VirtualGpu()
    module = gpu.load(cubin_bytes)
    function = module.function(module.cubin.kernel(wanted.kernel).name)
    for name, words in wanted.constants.items():
        module.set_constant(name, words)
    args = [_placed(gpu, a) for a in wanted.args]
    textures = {name: Texture(args[n].address, args[n].nbytes) for name, n in wanted.textures.items()}
    return launch(function, wanted.grid, wanted.block, args, textures=textures, shared_bytes=wanted.shared_bytes,
                  machine=machine, options=options)


def _placed(gpu: Any, value: Any) -> Any:
    """An argument of a description on the device."""
    if not isinstance(value, launchfile.BufferArgument):
        return value
    buffer = gpu.alloc(value.nbytes)
    gpu.upload(buffer, value.words)
    return buffer


__all__ = ["ConvTiming", "Options", "conv", "conv_workloads", "described_launch", "launch", "preset", "traced"]
