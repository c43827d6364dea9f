"""Winograd convolution F(2x2, 3x3) in one kernel: tiles are transformed on their way to shared memory, products and
their transform back follow in the same block, so no planes of maps or results are moved. For layers with few channels,
where moving them costs more than F(4x4, 3x3) saves (winograd.py). Filters are transformed beforehand, by the kernel of
that family.

Both layouts, any sizes, padding implicit, the fused last step. What is lost with a NaN, an infinity or sums beyond
float32: as there."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...errors import ShapeError
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value, make
from ...problem.problem import LAYOUTS, Alignment, Problem
from ..common.correlation import correlations, maps_of
from ..implicit_gemm.maxwell import magic
from ..spec import Candidates, Family, Memory, fused, seen
from . import plan as winograd
from .toomcook import FEW_CHANNELS, TABLE, Points, matrices

TILES, FILTERS = 32, 32  # of a block
GROUP = 4
"""Channels that a loop iteration consumes."""

HALVES = 270
"""Issue slots of a warp that two halves of the channels take: between them and in the end."""

MAX_BLOCKS = 2**31 - 1  # along x of a grid
(POINTS,) = (points for points in TABLE if (points.outputs, points.taps) == (2, 3))
_RESIDENT = 2  # blocks of an SM at a time, by their registers
_FILLED = {"NCHW": 0.96, "CHWN": 0.95}  # of the issue slots while two blocks are in their loops; simulated
_ENDS = 1110  # clocks of a warp in front of the loop and behind it that others have nothing to issue in; simulated
_ALONE, _LATENCY = 880, 10200  # clocks of an iteration and of the rest of a block that has an SM for itself; simulated
_TRANSLATED_ALONE, _TRANSLATED_LATENCY = 2300, 4400  # of a translation, timed on an H200


@dataclass(frozen=True)
class FusedKernel(KernelSpec):
    """`layout`: of maps and results. `slots`: issue slots of a warp for an iteration, the mean of those that load maps
    and of those that load filters, and for all the rest. `translated`: of an iteration of the translation, as timed on
    an H200 with 16 to 64 channels."""

    layout: str
    slots: tuple[int, int]
    translated: int

    @property
    def points(self) -> Points:
        return POINTS


def _kernel(layout: str, slots: tuple[int, int], translated: int) -> FusedKernel:
    return FusedKernel(f"swinograd_fused_2x2_3x3_{layout}", "maxwell/winograd_fused.sass",
                       f"""Winograd convolution of {TILES}
tiles of 2 x 2 results and {FILTERS} filters a block; see winograd_fused.inc. Grid:
x = ceil(tiles / {TILES}) * ceil(k / {FILTERS}).""", layout, slots, translated)


KERNELS = _kernel("CHWN", (295, 554), 520), _kernel("NCHW", (295, 530), 520)
_KERNELS: Mapping[str, FusedKernel] = {spec.layout: spec for spec in KERNELS}
assert set(_KERNELS) == set(LAYOUTS)


def refuses(problem: Problem) -> str | None:
    refused = winograd.not_of_tiles(problem.shape, {POINTS.taps}) or winograd.refuses(problem)
    if refused:
        return refused
    (s,) = correlations(problem)
    return f"{s.C} channels, more than the {POINTS.most} summed at once" if POINTS.most < s.C else None


def candidates(problem: Problem) -> Candidates:
    return {"winograd_2x2_3x3_fused": partial(_plan, problem)}


def _plan(problem: Problem) -> Plan:
    layer = winograd.Layer(problem, POINTS, rows_of_channels=True)
    s, spec = layer.s, _KERNELS[problem.layout]
    regions: dict[str, int] = {"filter_planes": FLOAT_BYTES * layer.planes * layer.filter_plane}
    launches: list[Launch] = []
    images = maps_of(problem)
    if problem.operand(images).alignment < Alignment.TEXTURE:
        regions["images_copy"] = FLOAT_BYTES * s.N * s.C * s.H * s.W
        launches.append(winograd.copied(problem, s, "images_copy"))
        images = "images_copy"
    launches.append(layer.transform_filters())
    image = s.C * s.H * s.W
    count = s.N if s.N * image <= MAX_TEXELS else (MAX_TEXELS - REGION_ALIGNMENT) // image
    if layer.chwn and count < s.N:
        raise ShapeError(f"images must have at most {MAX_TEXELS} elements, the reach of a texture, for the fused "
                         f"kernel in C,H,W,N (got {s})")
    runs = -(-s.N // count)
    count = -(-s.N // runs)
    launches += [_run(layer, spec, images, first, min(count, s.N - first)) for first in range(0, s.N, count)]
    tiles = s.N * layer.rows * layer.columns
    notes = [f"F(2x2, 3x3): {s.N * s.P * s.Q * 9 / (tiles * layer.planes):.2f} times fewer multiplications than a "
             "direct convolution, transforms in the kernel"]
    error = POINTS.expected_error(s.C, max(s.pad_h, s.pad_w, 0), min(s.R - s.pad_h, s.H), min(s.S - s.pad_w, s.W))
    return make(problem, "winograd_fused", spec, launches, regions, notes, error)


def _run(layer: winograd.Layer, spec: FusedKernel, images: str, first: int, count: int) -> Launch:
    """The launch for some images."""
    s, problem = layer.s, layer.problem
    tile = layer.tile(count)
    groups, filter_tiles = -(-s.C // GROUP), -(-s.K // FILTERS)
    blocks = -(-tile["tiles"] // TILES) * filter_tiles
    if blocks > MAX_BLOCKS:
        raise ShapeError(f"tiles of 2 x 2 results x filters / 1024 must be at most {MAX_BLOCKS}, blocks along x of a "
                         f"grid (got {blocks} for {s})")
    map_steps = (1, s.H * s.W * s.N, s.W * s.N, s.N) if layer.chwn else (s.C * s.H * s.W, s.H * s.W, s.W, 1)
    out_steps = (1, s.P * s.Q * s.N, s.Q * s.N, s.N) if layer.chwn else (s.K * s.P * s.Q, s.P * s.Q, s.Q, 1)
    start, at = FLOAT_BYTES * first * map_steps[0], FLOAT_BYTES * first * out_steps[0]
    base = start // REGION_ALIGNMENT * REGION_ALIGNMENT
    kt_magic, kt_shift = magic(filter_tiles, blocks)
    values: dict[str, Value] = tile | fused(problem, 0) | {
        "out": Part("out", at) if at else "out", "planes": "filter_planes", "kt": filter_tiles, "kt_magic": kt_magic,
        "kt_shift": kt_shift, "k": s.K, "channels": s.C, "groups": groups,
        "ahead": 0x10000 - groups // 2 if halved(s.C) else 0, "map_start": (start - base) // FLOAT_BYTES,
        "map_back": GROUP * map_steps[1], "pad_h": s.pad_h % 2**32, "pad_w": s.pad_w % 2**32, "h": s.H, "w": s.W,
        "plane": layer.filter_plane, "row": layer.filter_row, "back": -FLOAT_BYTES * GROUP * layer.filter_row % 2**32,
        "below": 2**32 - 1, "p": s.P, "q": s.Q,
        **dict(zip(("map_image", "map_channel", "map_row", "map_col"), map_steps, strict=True)),
        **dict(zip(("out_image", "out_k", "out_row", "out_col"), out_steps, strict=True))}
    nbytes = FLOAT_BYTES * (count * (s.C * s.H * s.W + s.K * s.P * s.Q * (1 + problem.reads_out))
                            + layer.planes * layer.filter_plane)
    return Launch(spec, (blocks, 1, 1), values, _work(spec, blocks, s.C, nbytes),
                  "tiles of 2 x 2 results are computed from maps and transformed filters", ("out",),
                  {"tex_I": Part(images, base) if base else images},
                  flops=2 * count * s.P * s.Q * s.K * (9 * s.C + 1))


def halved(channels: int) -> bool:
    """Whether the sums of so many channels come in two halves."""
    return channels > FEW_CHANNELS


def _work(spec: FusedKernel, blocks: int, channels: int, nbytes: int) -> Work:
    loop, rest = spec.slots
    rest += HALVES * halved(channels)
    groups = -(-channels // GROUP)
    warps = spec.threads // 32
    slots, translated = (warps * (groups * x + rest + _ENDS) for x in (loop, spec.translated))
    return Work(blocks, slots / _FILLED[spec.layout], groups * _ALONE + _LATENCY, nbytes, translated, _RESIDENT, warps,
                translated_alone=groups * _TRANSLATED_ALONE + _TRANSLATED_LATENCY)


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    spec, v = launch.spec, launch.numbers
    assert isinstance(spec, FusedKernel)
    assert launch.grid == (-(-v["tiles"] // TILES) * v["kt"], 1, 1)
    tiles = winograd.tiles_of(launch, memory, spec.layout, POINTS.outputs, POINTS.inputs, v["channels"])
    maps = winograd.twice(matrices(POINTS).B, tiles).reshape(*tiles.shape[:2], -1)
    planes = seen(memory, launch.values["planes"])
    at = np.arange(POINTS.inputs**2)[:, None, None] * v["plane"] + np.arange(v["channels"])[:, None] * v["row"]
    filters = planes[at + np.arange(v["k"])].astype(float)
    winograd.transformed_back(launch, memory, scalars, POINTS, spec.layout,
                              np.einsum("tck,cjt->kjt", filters, maps, optimize=True))


FAMILY = Family("winograd_fused", KERNELS, contract, ("forward", "data"), refuses, candidates)
