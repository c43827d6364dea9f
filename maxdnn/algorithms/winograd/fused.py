"""Winograd convolution F(2x2, 3x3) in one kernel: tiles are transformed on their way to shared memory, products and
their transform back follow in the same CTA, so no planes of maps or results are moved. For layers with few channels,
where moving them costs more than F(4x4, 3x3) saves (plan.py). Filters are transformed beforehand, by the kernel of
that family.

Both layouts, any sizes, padding implicit, the epilogue. What is lost with a NaN, an infinity or sums beyond
float32: as there."""

from collections.abc import Mapping
from functools import partial

from ...errors import ShapeError
from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value
from ...problem.problem import LAYOUTS, Problem
from ..common.correlation import correlations, maps_of
from ..common.fastdiv import divisor
from ..common.workspace import Draft
from ..spec import Candidates, Family
from . import plan as winograd
from .maxwell import FILTERS, FUSED, POINTS, TILES, FusedKernel
from .maxwell import FUSED_GROUP as GROUP
from .reference import reference_fused
from .toomcook import FEW_CHANNELS

HALVES = 270
"""Issue slots of a warp that two halves of the channels take: between them and in the end."""

MAX_BLOCKS = 2**31 - 1  # along x of a grid
_CTAS_PER_SM = 2  # by their registers
_FILLED = {"NCHW": 0.96, "CHWN": 0.95}  # of the issue slots while two CTAs are in their loops; simulated
_ENDS = 1110  # clocks of a warp in front of the loop and behind it that others have nothing to issue in; simulated
_ALONE, _LATENCY = 880, 10200  # clocks of an iteration and of the rest of a CTA that has an SM for itself; simulated
_TRANSLATED_ALONE, _TRANSLATED_LATENCY = 2300, 4400  # of a translation, timed on an H200
_KERNELS: Mapping[str, FusedKernel] = {spec.layout: spec for spec in FUSED}
assert set(_KERNELS) == set(LAYOUTS)


def unsupported_reason(problem: Problem) -> str | None:
    refused = winograd.not_of_tiles(problem.shape, {POINTS.taps}) or winograd.unsupported_reason(problem)
    if refused:
        return refused
    (s,) = correlations(problem)
    return f"{s.C} channels, more than the {POINTS.most} summed at once" if POINTS.most < s.C else None


def candidates(problem: Problem, chip: Chip) -> Candidates:
    return {winograd.name(POINTS, "fused"): partial(_plan, problem)}


def _plan(problem: Problem) -> Plan:
    draft = Draft(problem)
    layer = winograd.Layer(draft, POINTS, rows_of_channels=True)
    s, spec = layer.s, _KERNELS[problem.layout]
    draft.region("filter_planes", layer.planes * layer.filter_plane)
    images = winograd.readable(draft, maps_of(problem), s.C, s.H, s.W)
    layer.transform_filters()
    image = s.C * s.H * s.W
    count = s.N if s.N * image <= MAX_TEXELS else (MAX_TEXELS - REGION_ALIGNMENT) // image
    if layer.chwn and count < s.N:
        raise ShapeError(f"images must have at most {MAX_TEXELS} elements, the reach of a texture, for the fused "
                         f"kernel in C,H,W,N (got {s})")
    runs = -(-s.N // count)
    count = -(-s.N // runs)
    draft.add(_run(layer, spec, images, first, min(count, s.N - first)) for first in range(0, s.N, count))
    tiles = s.N * layer.rows * layer.columns
    draft.notes.append(f"F(2x2, 3x3): {s.N * s.P * s.Q * 9 / (tiles * layer.planes):.2f} times fewer multiplications "
                       "than a direct convolution, transforms in the kernel")
    return draft.plan(FAMILY, spec, layer.error())


def _run(layer: winograd.Layer, spec: FusedKernel, images: str, first: int, count: int) -> Launch:
    """The launch for some images."""
    s, problem = layer.s, layer.problem
    tile, lies = layer.tile(count), s.images(problem.layout)
    groups, filter_tiles = -(-s.C // GROUP), -(-s.K // FILTERS)
    ctas = -(-tile["tiles"] // TILES) * filter_tiles
    if ctas > MAX_BLOCKS:
        raise ShapeError(f"tiles of 2 x 2 results x filters / 1024 must be at most {MAX_BLOCKS}, blocks along x of a "
                         f"grid (got {ctas} for {s})")
    start = FLOAT_BYTES * first * lies["N"]
    base = start // REGION_ALIGNMENT * REGION_ALIGNMENT
    values: dict[str, Value] = {
        **tile, **layer.output(first), **divisor("kt", filter_tiles, ctas), "planes": "filter_planes",
        "k": s.K, "channels": s.C, "groups": groups, "ahead": 0x10000 - groups // 2 if halved(s.C) else 0,
        "map_back": GROUP * lies["C"], **winograd.map_values(lies, (s.pad_h, s.pad_w), (start - base) // FLOAT_BYTES),
        "plane": layer.filter_plane, "row": layer.filter_row, "back": -FLOAT_BYTES * GROUP * layer.filter_row % 2**32,
        "below": 2**32 - 1}
    nbytes = FLOAT_BYTES * (count * (s.C * s.H * s.W + s.K * s.P * s.Q * (1 + problem.reads_out))
                            + layer.planes * layer.filter_plane)
    return Launch(spec, (ctas, 1, 1), values, _work(spec, ctas, s.C, nbytes),
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
    code = Cost(slots / _FILLED[spec.layout], groups * _ALONE + _LATENCY, _CTAS_PER_SM)
    translation = code.translated(translated, critical_path=groups * _TRANSLATED_ALONE + _TRANSLATED_LATENCY)
    return Work(blocks, nbytes, code, translation, warps)


FAMILY = Family("winograd_fused", FUSED, reference_fused, ("forward", "data"), unsupported_reason, candidates,
                "winograd")
