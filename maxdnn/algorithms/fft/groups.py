"""Convolution in groups of few channels, depthwise above all, by FFT in one kernel: a tile of a map is transformed,
multiplied and transformed back where it lies in registers. Nothing of a map serves several filters, so planes in memory
would cost more than the transforms do; filters alone are transformed by a launch of their own."""

from functools import partial

from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common import layout
from ..common.correlation import Correlation, correlations, maps_of
from ..common.fastdiv import divisor
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, within
from ..common.workspace import Draft
from ..depthwise.plan import MOST_CHANNELS, few
from ..spec import Candidates, Family, strided_reason
from ..winograd.plan import map_values, readable, result_values
from . import plan as fft
from .cut import Cut
from .maxwell import GROUPS, UNITS, GroupsKernel, twiddles
from .reference import reference_groups

_LATENCY = 4000  # clocks of a CTA alone that are no issue slot: fetches of a term, barriers; assumed
_TRANSLATED = 2.1  # slots of a translation to a block's own; assumed as of the transforms (plan.py)
_WAITING = 2.5, 5.0
"""Clocks of the loop over terms and of the rest to issue slots on Maxwell: code of 37 to 43 KB passes an instruction
cache of 32, and three CTAs are at different places of it. Simulated on gm204."""


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = few(problem) or fft.not_of_strides(s) or fft.not_of_taps(s)
    if refused:
        return refused
    if problem.kind == "data" and s.C // s.groups > MOST_CHANNELS:
        return f"groups of more than {MOST_CHANNELS} channels"
    if problem.kind == "forward" and fft.without_terms(s):
        return fft.without_terms(s)
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    return {spec.name.removeprefix("s"): partial(_plan, problem, spec)
            for spec in GROUPS if spec.layout == problem.layout}


def _plan(problem: Problem, spec: GroupsKernel) -> Plan:
    draft, (x,) = Draft(problem), correlations(problem)
    cut, c = Cut.best(spec.side, x), x.C // x.groups
    within(problem.shape, (
        ("images N x C x H x W", x.N * x.C * x.H * x.W, MAX_TEXELS,
         "elements, the reach of a texture of single floats"),
        ("output K x P x Q x N", x.K * x.P * x.Q * x.N, MAX_ELEMENTS, "elements"),
        ("spectra of the filters", x.K * c * len(cut) * spec.side**2, MAX_ELEMENTS, "elements"),
        ("filters K", x.K, MAX_GRID_YZ, "filters, blocks along y of a grid")))
    images = readable(draft, maps_of(problem), x.C, x.H, x.W)
    _transform_filters(draft, x, cut)
    draft.launches.append(_launch(draft, spec, x, cut, images))
    saved = x.P * x.Q * x.R * x.S / (cut.tiles(x)[0] * cut.tiles(x)[1] * 2 * spec.side**2 * len(cut))
    draft.notes.append(f"FFT of {spec.side} x {spec.side} inputs for {cut.step[0] * cut.step[1]} results each, "
                       f"{saved:.2f} times fewer multiplications than a direct convolution but for the transforms")
    draft.notes += cut.said
    terms = c * fft.taps_at_a_corner(x)
    return draft.plan(FAMILY, spec, fft.documented(c * len(cut), cut.part[0] * cut.part[1], terms))


def _transform_filters(draft: Draft, x: Correlation, cut: Cut) -> None:
    """To region `spectra`: of each of x's filters, channel of its group and part."""
    problem, size, c = draft.problem, cut.side**2, x.C // x.groups
    s, lies = problem.shape, layout.filters(problem)
    of_filter = c * len(cut) * size
    draft.region("spectra", x.K * of_filter)
    places = {"row": len(cut) * size, "plane": 2, "to_im": 1, "from_im": 0}
    if problem.kind == "data":  # of group g, what it computes for channel g c + i takes filters g k ..
        of_group = s.C // s.groups
        runs = [((c, lies["K"]), (s.groups, c * lies["K"]), i * lies["C"], i * of_filter, of_group * of_filter)
                for i in range(of_group)]
    else:
        runs = [((c, lies["C"]), (s.K, lies["K"]), 0, 0, of_filter)]
    for outer, inner, start, at, column in runs:
        for number, taps in enumerate(cut):
            draft.launches.append(fft.transform_taps(
                problem, cut.side, taps, outer, inner, start, places | {"column": column},
                ("spectra", at + number * size), "filters are transformed"))


def _launch(draft: Draft, spec: GroupsKernel, x: Correlation, cut: Cut, images: str) -> Launch:
    problem, c, (rows, columns) = draft.problem, x.C // x.groups, cut.tiles(x)
    tile, terms = fft.tiles_of(problem.layout == "CHWN", x.N, rows, columns, cut.step), c * len(cut)
    maps = x.images(problem.layout)
    values: dict[str, Value] = {
        **result_values(problem, x), **tile, "spectra": "spectra", "terms": terms,
        "parts_h": cut.parts[0], "parts_w": cut.parts[1], "part_h": cut.part[0], "part_w": cut.part[1],
        **map_values(maps, (x.pad_h, x.pad_w), 0), "map_group": c * maps["C"], "limit_h": spec.side,
        "limit_w": spec.side, **divisor("group", x.K // x.groups, x.K), **twiddles(spec.side)}
    grid = -(-x.N * rows * columns // UNITS), x.K, 1
    each, rest = spec.slots
    slots = each * terms + rest
    nbytes = FLOAT_BYTES * (x.K * terms * spec.side**2 + x.C * x.H * x.W * x.N
                            + x.K * x.P * x.Q * x.N * (1 + problem.reads_out))
    waiting = _WAITING[0] * each * terms + _WAITING[1] * rest
    alone = slots / SCHEDULERS + _LATENCY * (terms + 1)
    work = Work(grid[0] * grid[1], nbytes, Cost(waiting, alone), Cost(_TRANSLATED * slots, alone))
    return Launch(spec, grid, values, work, "tiles are transformed, multiplied and transformed back",
                  ("out",), {"tex_I": images}, flops=problem.shape.flops)


FAMILY = Family("fft groups", GROUPS, reference_groups, ("forward", "data"), unsupported_reason, candidates, "fft")
