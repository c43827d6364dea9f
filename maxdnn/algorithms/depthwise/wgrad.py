"""Gradients of filters in groups of few channels: every element of the maps and of the gradients meets a few others, so
memory is the limit. A block walks over images and pixels with the sums of all taps of one filter in registers; sums too
long for too few blocks are split, and the parts are added in a fixed order."""

from collections.abc import Callable
from functools import partial

from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common import layout
from ..common.epilogue import PARTIAL, Epilogue, epilogue_of
from ..common.fastdiv import divisor
from ..common.limits import MAX_GRID_YZ, within
from ..common.schedule import long_splits, split_name
from ..common.workspace import Draft
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, strided_reason
from .maxwell import IMAGES_FIRST, ROWS, THREADS, WGRAD_KERNELS, GroupFiltersKernel
from .plan import MAX_ELEMENTS, few_on_a_side, map_values, unsigned
from .reference import reference_wgrad

_LATENCY = 3000  # clocks of a CTA alone that are no issue slot: divisions, sums over the CTA; assumed
_TRANSLATED = 1.05  # of an issue slot in a translation, as timed on an H200 with filters of 3x3, 7x7 and 13x13
_ROUND = 1200  # and in a round: two waits for DRAM, one behind the other; assumed


def unsupported_reason(problem: Problem) -> str | None:
    return few_on_a_side(problem) or strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    rounds = -(-_items(s) // THREADS)
    for spec in WGRAD_KERNELS:
        if spec.serves(s, problem.layout == "CHWN"):
            for splits in long_splits(rounds, ROWS):
                found[split_name(spec.name, splits)] = partial(_plan, problem, spec, splits)
    return found


def _items(s: ConvShape) -> int:
    return s.N * s.Q * -(-s.P // ROWS)


def _plan(problem: Problem, spec: GroupFiltersKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    draft, size, epilogue = Draft(problem), s.patch * s.K, epilogue_of(problem)
    _check_limits(s, splits)
    if splits == 1:
        draft.launches.append(_launch(problem, spec, 1, "out", epilogue))
        return draft.plan(FAMILY, spec)
    draft.launches += (_launch(problem, spec, splits, draft.region("parts", splits * size), PARTIAL),
                       reduce("parts", "out", splits, size, (size, 1, 1), 1, epilogue))
    draft.notes.append(f"the sums of {s.N * s.P * s.Q} products are split {splits} ways; the parts are added in a "
                       "fixed order")
    return draft.plan(FAMILY, spec)


def _launch(problem: Problem, spec: GroupFiltersKernel, splits: int, out: str, epilogue: Epilogue) -> Launch:
    s: ConvShape = problem.shape
    chwn, c, (tile_r, tile_s) = problem.layout == "CHWN", s.C // s.groups, spec.tile
    maps = layout.maps(problem.layout, s.N, s.C, s.H, s.W)
    g_image, g_k, g_row, g_column = layout.maps(problem.layout, s.N, s.K, s.P, s.Q).steps("NCHW")
    of_k, of_c, of_r, of_s = layout.filters(problem).steps("KCRS")
    wide = -(-s.S // tile_s)
    tiles = -(-s.R // tile_r) * wide
    rounds = -(-_items(s) // (THREADS * splits))
    step_h = s.dil_h if tile_r > 1 else s.str_h
    values: dict[str, Value] = {
        **epilogue.without_bias(IMAGES_FIRST * chwn), **map_values(s, maps), "out": out, "images": "images",
        "gradients": "gradients", "items": _items(s), "share": THREADS * rounds, "rounds": rounds, "r": s.R, "s": s.S,
        "p": s.P, "step_h": step_h, "step_row": step_h * maps["H"], "gradient_image": g_image, "gradient_k": g_k,
        "gradient_row": g_row, "gradient_column": g_column, "filter_k": of_k, "filter_channel": of_c,
        "filter_row": of_r, "filter_tap": of_s, "out_split": s.patch * s.K if splits > 1 else 0}
    sizes, items = (s.N, s.Q) if chwn else (s.Q, -(-s.P // ROWS)), THREADS * rounds * splits
    for name, size, limit in (("d0", sizes[0], items), ("d1", sizes[1], items), ("group", s.K // s.groups, s.K),
                              ("tiles", tiles, c * tiles), ("wide", wide, tiles)):
        values |= divisor(name, size, limit)
    del values["group"]
    doing = f"{tile_r} x {tile_s} taps of one filter each, all groups at once" + ", a part of each sum" * (splits > 1)
    grid = s.K, splits, c * tiles
    return Launch(spec, grid, unsigned(values), _work(s, spec, grid, rounds), doing, (out,), flops=s.flops)


def _work(s: ConvShape, spec: GroupFiltersKernel, grid: tuple[int, int, int], rounds: int) -> Work:
    """Four warps a block, each all slots; maps and gradients once for each tile of taps, and the sums."""
    each, rest = spec.slots
    slots = each * rounds + rest
    tiles = grid[2] * s.groups // s.C
    once = tiles * (s.C * s.H * s.W * s.N + s.K * s.P * s.Q * s.N) + s.K * s.patch * grid[1]
    alone = slots + rounds * _ROUND + _LATENCY
    code = Cost(THREADS // 32 * slots, alone)
    return Work(grid[0] * grid[1] * grid[2], FLOAT_BYTES * once, code, code.translated(_TRANSLATED * code.slots))


def _check_limits(s: ConvShape, splits: int) -> None:
    h = s.H + 2 * s.pad_h + s.str_h * ROWS + s.dil_h * s.R
    row = max(s.W * s.N, s.W)
    within(s, (
        ("images C x H x W x N", s.C * s.H * s.W * s.N, MAX_ELEMENTS - THREADS, "elements"),
        ("gradients K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS - THREADS, "elements"),
        (f"parts {splits} x K x C/groups x R x S", splits * s.K * s.patch, MAX_ELEMENTS, "elements"),
        ("padded map", h * row, MAX_ELEMENTS - THREADS, "elements"),
        ("padded columns W + 2 padding", s.W + 2 * s.pad_w + s.dil_w * s.S, MAX_ELEMENTS, "columns"),
        ("channels of a group x filter taps", s.patch, MAX_GRID_YZ, "blocks along z of a grid"),
    ))


FAMILY = Family("depthwise_filters", WGRAD_KERNELS, reference_wgrad, ("filters",), unsupported_reason, candidates)
