"""Gradients of filters in groups of few channels by FFT: as wgrad.py has them, but that a kernel of its own sums
products of slots, each of which serves a single filter."""

from functools import partial

from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common import layout
from ..common.epilogue import PARTIAL
from ..common.fastdiv import divisor
from ..common.workspace import Draft, part
from ..depthwise.plan import few
from ..memory_ops.plan import reduce_many
from ..spec import Candidates, Family, strided_reason
from ..winograd.plan import fitted, images_at_once, readable
from . import plan as fft
from . import wgrad
from .maxwell import SIDES, SUMS, WARPS
from .reference import reference_sums

ROUND, REST = 55, 124  # issue slots of a warp for 128 tiles, and for all the rest
_LATENCY = 3000  # clocks of a CTA alone that are no issue slot: fetches, sums over a warp; assumed


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    return (few(problem) or fft.not_of_strides(s) or fft.not_of_taps(s) or wgrad.without_terms(s)
            or strided_reason(problem))


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    return {f"fft_group_filters_{side}x{side}": partial(fitted, _plan, problem, side) for side in SIDES
            if max(s.R, s.S) <= fft.most_taps(side)}


def _plan(problem: Problem, side: int) -> Plan:
    draft = Draft(problem)
    layer = fft.Layer(draft, side)
    s, of_image = layer.s, layer.rows * layer.columns
    c = s.C // s.groups
    images, gradients = readable(draft, "images", s.C, s.H, s.W), readable(draft, "gradients", s.K, s.P, s.Q)
    every = 4 * layer.slots * c * len(layer.cut) * s.K
    count = images_at_once(problem, layer, sum(draft.regions.values()) + 2 * FLOAT_BYTES * every, len(layer.cut))
    firsts = range(0, s.N, count)
    sums = draft.region("parts" if len(firsts) > 1 else "sums", len(firsts) * every)
    for run, first in enumerate(firsts):
        tile = layer.tile(min(count, s.N - first))
        wgrad.transform_both(layer, images, gradients, first, min(count, s.N - first), tile)
        draft.launches += (_sums(layer, number, tile, part(sums, run * every + 4 * number * c * s.K))
                           for number in range(len(layer.cut)))
    if len(firsts) > 1:
        draft.add(reduce_many("parts", draft.region("sums", every), len(firsts), every, PARTIAL, draft.region))
        draft.notes.append(f"the sums of {s.N} images come in {len(firsts)} parts, which are added in a fixed order")
    draft.launches += (_taps(layer, number, taps) for number, taps in enumerate(layer.cut))
    draft.notes += layer.cut.said
    return draft.plan(FAMILY, SUMS, wgrad.documented(layer, s.N * of_image))


def _sums(layer: fft.Layer, number: int, tile: fft.Tile, out: str | Part) -> Launch:
    """Of one part of the filters."""
    s, row, tiles = layer.s, tile["row"], tile["tiles"]
    c = s.C // s.groups
    values: dict[str, Value] = {
        "out": out, "maps": part("map_planes", number * s.C * row), "gradients": "gradient_planes", "filters": s.K,
        "tiles": tiles, "row": row, "map_group": c, "map_plane": layer.depth * row, "gradient_plane": s.K * row,
        "out_slot": 4 * c * len(layer.cut) * s.K, **divisor("group", s.K // s.groups, s.K)}
    grid = -(-s.K // WARPS), layer.slots, c
    slots = ROUND * -(-tiles // 128) + REST
    nbytes = FLOAT_BYTES * 2 * layer.slots * (s.C * tiles + s.K * tiles + 2 * c * s.K)
    work = Work(grid[0] * grid[1] * c, nbytes, Cost(WARPS * slots, slots * WARPS / SCHEDULERS + _LATENCY))
    assert isinstance(out, str | Part)
    return Launch(SUMS, grid, values, work, "products of slots are summed over all tiles",
                  (out.name if isinstance(out, Part) else out,))


def _taps(layer: fft.Layer, number: int, taps: tuple[int, int, int, int]) -> Launch:
    """Of one part of the filters."""
    s = layer.s
    c, row = s.C // s.groups, 4 * s.K
    places = {"row": row, "plane": c * len(layer.cut) * row, "to_map": s.K, "to_gradient": 2 * s.K}
    lies = layout.filters(layer.problem)
    return wgrad.transform_back(layer, taps, part("sums", number * c * row), places, (c, lies["C"]), (s.K, lies["K"]))


FAMILY = Family("fft group filters", (SUMS,), reference_sums, ("filters",), unsupported_reason, candidates, "fft")
