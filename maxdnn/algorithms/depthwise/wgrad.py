"""Gradients of filters in groups of few channels: every element of the maps and of the gradients meets a few others, so
memory is the limit. A block walks over images and pixels with the sums of all taps of one filter in registers; sums too
long for too few blocks are split, and the parts are added in a fixed order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value, make
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..implicit_gemm.maxwell import magic
from ..memory_ops.plan import MAX_GRID_YZ, reduce
from ..spec import SPLITS, Candidates, Family, Memory, finish, fused, refuses_strided, seen, split_name, within
from .plan import MAX_ELEMENTS, THREADS, TRANSLATED, few, filter_strides, strides

LONGEST = 32768
"""Terms that a thread adds one after the other, if splits allow."""

ROWS = 4
"""Of gradients that a thread takes at a time."""

_IMAGES_FIRST = 4  # flag of the kernels, beside that of the last step
_LATENCY = 3000  # clocks of a block alone that are no issue slot: divisions, sums over the block
_ROUND = 1200  # and in a round: two waits for DRAM, one behind the other


@dataclass(frozen=True)
class GroupFiltersKernel(KernelSpec):
    """`tile`: rows and columns of the taps of a block. `stride`: rows of the map from one row of gradients to the next,
    in rows of the filter; 0 for any. `adjacent`: taps of a row are neighbours in memory. `slots`: issue slots of a warp
    for a round, in which each thread takes ROWS rows of one column, and for all the rest."""

    tile: tuple[int, int]
    stride: int
    adjacent: bool
    slots: tuple[int, int]

    def serves(self, s: ConvShape, chwn: bool) -> bool:
        if self.adjacent and s.dil_w * (s.N if chwn else 1) != 1:
            return False
        return not self.stride or (self.tile == (s.R, s.S) and s.str_h == self.stride * s.dil_h)


_DOC = """Gradient of filters in groups of few channels, or parts of its sums: see depthwise_filters.inc. Grid: x =
filters, y = splits, z = channels of a group * tiles of a filter."""

KERNELS = tuple(GroupFiltersKernel(f"sdepthwise_filters_{name}", f"maxwell/depthwise_filters_{name[:3]}.sass", _DOC,
                                   tile, stride, name.endswith("row"), slots) for name, tile, stride, slots in (
    ("3x3_s1", (3, 3), 1, (215, 246)),
    ("3x3_s1_row", (3, 3), 1, (189, 246)),
    ("3x3_s2", (3, 3), 2, (261, 246)),
    ("3x3_s2_row", (3, 3), 2, (223, 246)),
    ("5x5_s1", (5, 5), 1, (394, 438)),
    ("5x5_s1_row", (5, 5), 1, (324, 438)),
    ("5x5_s2", (5, 5), 2, (467, 438)),
    ("5x5_s2_row", (5, 5), 2, (373, 438)),
    ("any", (1, 4), 0, (190, 186)),
))


def refuses(problem: Problem) -> str | None:
    return few(problem) or refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    rounds = -(-_items(s) // THREADS)
    for spec in KERNELS:
        if spec.serves(s, problem.layout == "CHWN"):
            for splits in SPLITS:
                share = -(-rounds // splits)
                longer = any(x > splits and x <= rounds for x in SPLITS)
                if -(-rounds // share) == splits and (ROWS * share <= LONGEST or not longer):
                    found[split_name(spec, splits)] = partial(_plan, problem, spec, splits)
    return found


def _items(s: ConvShape) -> int:
    return s.N * s.Q * -(-s.P // ROWS)


def _plan(problem: Problem, spec: GroupFiltersKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    size, ending = s.patch * s.K, fused(problem, 0)
    _check_limits(s, splits)
    if splits == 1:
        return make(problem, "depthwise_filters", spec, (_launch(problem, spec, 1, "out", ending),), {})
    launch = _launch(problem, spec, splits, "parts", {"flags": 0, "alpha": 1.0, "beta": 0.0})
    adding = reduce("parts", "out", splits, size, (size, 1, 1), 1, ending)
    why = f"the sums of {s.N * s.P * s.Q} products are split {splits} ways; the parts are added in a fixed order"
    return make(problem, "depthwise_filters", spec, (launch, adding), {"parts": FLOAT_BYTES * splits * size}, (why,))


def _launch(problem: Problem, spec: GroupFiltersKernel, splits: int, out: str, ending: Mapping[str, Value]) -> Launch:
    s: ConvShape = problem.shape
    chwn, c, (tile_r, tile_s) = problem.layout == "CHWN", s.C // s.groups, spec.tile
    image, channel, row, column = strides(chwn, s.N, s.C, s.H, s.W)
    g_image, g_k, g_row, g_column = strides(chwn, s.N, s.K, s.P, s.Q)
    of_k, of_c, of_r, of_s = filter_strides(problem)
    rows, wide = -(-s.P // ROWS), -(-s.S // tile_s)
    tiles = -(-s.R // tile_r) * wide
    rounds = -(-_items(s) // (THREADS * splits))
    flags = ending["flags"]
    assert isinstance(flags, int)
    values: dict[str, Value] = {
        "out": out, "images": "images", "gradients": "gradients", "alpha": ending["alpha"], "beta": ending["beta"],
        "flags": flags | _IMAGES_FIRST * chwn, "items": _items(s), "share": THREADS * rounds, "rounds": rounds,
        "r": s.R, "s": s.S, "h": s.H, "w": s.W, "p": s.P, "start_h": -s.pad_h, "start_w": -s.pad_w,
        "stride_h": s.str_h, "stride_w": s.str_w, "dilation_h": s.dil_h, "dilation_w": s.dil_w,
        "step_h": s.dil_h if tile_r > 1 else s.str_h, "step_row": (s.dil_h if tile_r > 1 else s.str_h) * row,
        "map_start": -(s.pad_h * row + s.pad_w * column), "map_image": image, "map_group": c * channel,
        "map_channel": channel, "map_row": s.str_h * row, "map_column": s.str_w * column, "tap_row": s.dil_h * row,
        "tap_column": s.dil_w * column, "gradient_image": g_image, "gradient_k": g_k, "gradient_row": g_row,
        "gradient_column": g_column, "filter_k": of_k, "filter_channel": of_c, "filter_row": of_r, "filter_tap": of_s,
        "out_split": s.patch * s.K if splits > 1 else 0}
    sizes = (s.N, s.Q) if chwn else (s.Q, rows)
    for name, size, limit in (("d0", sizes[0], THREADS * rounds * splits), ("d1", sizes[1], THREADS * rounds * splits),
                              ("group", s.K // s.groups, s.K), ("tiles", tiles, c * tiles), ("wide", wide, tiles)):
        factor, shift = magic(size, limit)
        values |= {name: size, f"{name}_magic": factor, f"{name}_shift": shift}
    del values["group"]
    values = {name: value % 2**32 if isinstance(value, int) else value for name, value in values.items()}
    doing = f"{tile_r} x {tile_s} taps of one filter each, all groups at once" + ", a part of each sum" * (splits > 1)
    grid = s.K, splits, c * tiles
    return Launch(spec, grid, values, _work(s, spec, grid, rounds), doing, (out,), flops=s.flops)


def _work(s: ConvShape, spec: GroupFiltersKernel, grid: tuple[int, int, int], rounds: int) -> Work:
    """Four warps a block, each all slots; maps and gradients once for each tile of taps, and the sums."""
    each, rest = spec.slots
    slots = each * rounds + rest
    tiles = grid[2] * s.groups // s.C
    once = tiles * (s.C * s.H * s.W * s.N + s.K * s.P * s.Q * s.N) + s.K * s.patch * grid[1]
    alone = slots + rounds * _ROUND + _LATENCY
    warps = THREADS // 32
    return Work(grid[0] * grid[1] * grid[2], warps * slots, alone, FLOAT_BYTES * once, warps * TRANSLATED * slots)


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


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    assert isinstance(launch.spec, GroupFiltersKernel)
    v, (tile_r, tile_s), (filters, splits, planes) = launch.numbers, launch.spec.tile, launch.grid
    assert v["wide"] == -(-v["s"] // tile_s) and v["tiles"] == -(-v["r"] // tile_r) * v["wide"]
    assert v["share"] == THREADS * v["rounds"] and v["share"] * splits >= v["items"]
    j = np.arange(v["items"])
    i = j % v["d0"], j // v["d0"] % v["d1"], j // v["d0"] // v["d1"]
    for name, value, quotient in (("d0", j, j // v["d0"]), ("d1", j // v["d0"], i[2])):
        assert ((value + 1) * v[f"{name}_magic"] >> 32 + v[f"{name}_shift"] == quotient).all()
    n, q, p = i if v["flags"] & _IMAGES_FIRST else (i[2], i[0], i[1])
    n, q, j = (np.repeat(x, ROWS) for x in (n, q, j))
    p = (ROWS * p[:, None] + np.arange(ROWS)).ravel()
    n, q, p, j = (x[p < v["p"]] for x in (n, q, p, j))
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("map_start", "start_h", "start_w")}
    maps, gradients = seen(memory, launch.values["images"]), seen(memory, launch.values["gradients"])
    base = signed["map_start"] + n * v["map_image"] + p * v["map_row"] + q * v["map_column"]
    taken = n * v["gradient_image"] + p * v["gradient_row"] + q * v["gradient_column"]
    for k, c, r, s in np.ndindex(filters, planes // v["tiles"], v["r"], v["s"]):
        h = p * v["stride_h"] + signed["start_h"] + r * v["dilation_h"]
        w = q * v["stride_w"] + signed["start_w"] + s * v["dilation_w"]
        inside = (h >= 0) & (h < v["h"]) & (w >= 0) & (w < v["w"])
        group = (k + 1) * v["group_magic"] >> 32 + v["group_shift"]
        at = (base + group * v["map_group"] + c * v["map_channel"] + r * v["tap_row"] + s * v["tap_column"])[inside]
        terms = maps[at].astype(float) * gradients[(taken + k * v["gradient_k"])[inside]]
        sums = np.bincount(j[inside] // v["share"], terms, splits)
        where = (k * v["filter_k"] + c * v["filter_channel"] + r * v["filter_row"] + s * v["filter_tap"]
                 + np.arange(splits) * v["out_split"])
        finish(launch, memory, scalars, where, sums, np.full(splits, k))


FAMILY = Family("depthwise_filters", KERNELS, contract, ("filters",), refuses, candidates)
