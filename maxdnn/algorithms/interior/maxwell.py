"""Direct convolution of many images that skips the padding, in C,H,W,N. A CTA computes one output pixel, so all its
threads have the same taps inside the map, and it walks over those only. No padded copy is made."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...errors import ShapeError
from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, correlations, maps_of
from ..common.epilogue import epilogue_of
from ..common.limits import CONSTANT_BYTES, MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, within
from ..common.packing import Packed, packed
from ..common.workspace import Draft, part
from ..paper.maxwell import TILE_ELEMENTS
from ..paper.plan import tile_limits, tiles
from ..spec import LATENCY, Candidates, Family, TileKernel
from .plan import RECORD, border_reason, inside, inside_note, tap_lists
from .reference import reference

TAPS_64X64 = TileKernel("sconv_taps_K64_N64", "maxwell/conv_taps_64x64.sass",
                        """Forward convolution of one output pixel for 64
images and 64 filters a block. Grid: x = Q, y = P (at most 65535), z = filter tiles * image tiles, image tile fastest
(at most 65535).""", (64, 64), (521, 527), 612)

KERNELS = (TAPS_64X64,)


def unsupported_reason(problem: Problem) -> str | None:
    every = correlations(problem)
    s, maps = every[0], maps_of(problem)
    if problem.layout != "CHWN":
        return "layout NCHW"
    if s.N % TEXEL_FLOATS:
        return f"N={s.N}, no multiple of {TEXEL_FLOATS}"
    if problem.operand(maps).alignment < Alignment.TEXTURE:
        return f"{maps} that begin where no texture may"
    if s.groups > 1 and s.C // s.groups % TILE_ELEMENTS:  # the last step would meet the next group's channels
        return f"groups of {s.C // s.groups} channels, no multiple of {TILE_ELEMENTS}"
    return border_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    return {spec.name: partial(_plan, problem, spec) for spec in KERNELS}


def table(s: Correlation, first: int, last: int, row_texels: int) -> np.ndarray:
    """The table of the kernel, int32 pairs, for channels first .. last - 1 of a group; filter rows of row_texels."""
    rows, columns = inside(s)
    texels = s.N // TEXEL_FLOATS
    channel = np.arange(first, last, TILE_ELEMENTS)
    begins, lists = tap_lists(s, channel, RECORD * (s.Q + s.P), (s.H * s.W, s.W, 1), texels, row_texels)
    head = [(begins[taps], RECORD * len(taps) * len(channel)) for taps in columns]
    head += [(r[0], len(r)) for r in rows]
    return np.concatenate([np.array(head), lists]).astype(np.int32)


def _runs(s: Correlation) -> list[tuple[int, int]]:
    """Runs of channels whose lists constant memory holds."""
    c = s.C // s.groups
    rows_of_lists = s.R * sum(map(len, dict.fromkeys(inside(s)[1])))
    groups = (CONSTANT_BYTES // RECORD - s.P - s.Q) // rows_of_lists
    if groups < 1:
        raise ShapeError(f"the table of an output of {s.P} x {s.Q} must need at most {CONSTANT_BYTES} bytes "
                         f"(got {RECORD * (rows_of_lists + s.P + s.Q)} for {s})")
    count = -(-c // (groups * TILE_ELEMENTS))
    step = -(-c // (count * TILE_ELEMENTS)) * TILE_ELEMENTS
    return [(first, min(first + step, c)) for first in range(0, c, step)]


def _plan(problem: Problem, spec: TileKernel) -> Plan:
    draft, every = Draft(problem), correlations(problem)
    for s in every:
        _check_limits(s, spec)
    filters = [packed(draft, s) for s in every]
    for s, place in zip(every, filters, strict=True):
        for group in range(s.groups):
            draft.add(_passes(problem, s, spec, group, place))
    draft.notes += inside_note(every)
    return draft.plan(FAMILY, spec)


def _passes(problem: Problem, s: Correlation, spec: TileKernel, group: int,
            filters: Packed) -> Iterator[Launch]:
    (tile_n, tile_k), k, c, texels = spec.tile, s.K // s.groups, s.C // s.groups, s.N // TEXEL_FLOATS
    grid, placed = tiles(s, spec)
    skipped = FLOAT_BYTES * group * c * s.H * s.W * s.N
    base = skipped // REGION_ALIGNMENT * REGION_ALIGNMENT
    maps, whole, row_texels = maps_of(problem), s.outputs, filters.texels
    images: str | Part = Part(maps, base) if base else maps
    fixed: dict[str, Value] = {
        "rows_at": RECORD * s.Q,
        "map_row": s.str_h * s.W * texels if s.P > 1 else 0, "map_col": s.str_w * texels if s.Q > 1 else 0,
        "map_start": ((skipped - base) // 16 - (s.pad_h * s.W + s.pad_w) * texels) % 2**32,
        "map_channel": s.H * s.W * texels, "map_texels": texels, "filter_start": group * (row_texels // s.groups),
        "filter_channel": s.R * s.S * row_texels, "filter_texels": -(-k // TEXEL_FLOATS),
        "out_k": whole * s.N, "out_row": s.steps[0] * s.whole[1] * s.N, "out_col": s.steps[1] * s.N,
        **placed}
    doing = f"one output pixel and {tile_n} images x {tile_k} filters each, over the taps inside the map"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    runs = _runs(s)
    if len(runs) > 1:
        doing += "; launches that accumulate: the lists of all channels exceed constant memory"
    rows, columns = inside(s)
    taken = sum(map(len, rows)) * sum(map(len, columns)) / (s.P * s.Q)
    for first, last in runs:
        epilogue = epilogue_of(problem, group * k, first=first == 0, last=last == c)
        # Channels beyond the run are those of the next one: a run is a whole number of steps, but the last.
        values = fixed | epilogue.values() | {"out": part("out", (group * k * whole + s.start) * s.N)}
        steps = taken * -(-(last - first) // TILE_ELEMENTS)
        flops = 2 * s.N * s.P * s.Q * k * ((last - first) * s.R * s.S + (last == c))
        yield Launch(spec, grid, values, _work(s, spec, grid, steps, last - first), doing, ("out",),
                     {"tex_I": images, "tex_F": filters.place}, {"table": table(s, first, last, row_texels).tobytes()},
                     flops)


def _work(s: Correlation, spec: TileKernel, grid: tuple[int, int, int], steps: float, channels: int) -> Work:
    loop, rest = spec.slots
    slots, k = loop * steps + rest, s.K // s.groups
    once = channels * (s.H * s.W * s.N + s.R * s.S * k) + k * s.P * s.Q * s.N
    translated = slots + (spec.translated - loop) * steps
    code = Cost(2 * slots, slots + LATENCY)
    return Work(grid[0] * grid[1] * grid[2], FLOAT_BYTES * once, code, code.translated(2 * translated))


def _check_limits(s: Correlation, spec: TileKernel) -> None:
    k = s.K // s.groups
    within(s, (
        ("maps C x H x W x N/4", s.C // s.groups * s.H * s.W * s.N // 4, MAX_TEXELS - REGION_ALIGNMENT // 16,
         "texels, the 4 GiB reach of a texture"),
        ("filters C x R x S x K/4", s.patch * s.groups * -(-k // 4), MAX_TEXELS,
         "texels, the 4 GiB reach of a texture"),
        ("output K x P x Q x N", s.K * s.outputs * s.N, MAX_ELEMENTS, "elements"),
        ("output rows P", s.P, MAX_GRID_YZ, "blocks along y of the grid"),
        *tile_limits(s, spec),
    ))


FAMILY = Family("taps", KERNELS, reference, ("forward", "data"), unsupported_reason, candidates)
