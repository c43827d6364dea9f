"""Convolution in groups of few channels, depthwise above all: nothing of a map serves several filters, so memory is the
limit. A thread computes some outputs of one filter and has every row of the map fetched once; all
groups, images and filters are one launch, in either layout, where the arrays lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...errors import ShapeError
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, make
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common.correlation import Correlation, correlations, maps_of
from ..implicit_gemm.maxwell import magic
from ..spec import Candidates, Family, Memory, finish, fused, refuses_strided, seen

MOST_CHANNELS = 8
"""Of a group: with more of them a tile of a product does less."""

THREADS = 128
MAX_ELEMENTS = 2**31 - 1  # the kernels count elements of an array in 31 bits and a sign
_IMAGES_FIRST = 4  # flag of the kernels, beside those of the last step
TRANSLATED = 1.7  # instructions of a translation for sm_90 (ptxas 12.9) for an issue slot: 1.5 to 1.8
_LATENCY = 2500  # clocks of a block alone that are no issue slot: divisions, filter, rows, stores


@dataclass(frozen=True)
class GroupKernel(KernelSpec):
    """`filter`: rows and columns of the filters it is for, None for any. `stride`: map elements from one output to the
    next, in steps of the filter's own taps; 0 for any. `tile`: rows, columns and images of O that a thread computes.
    `adjacent`: taps of a row, and columns of O, are neighbours in memory. `slots`: issue slots of a warp for a tap, a
    row and a channel of a filter, and for all the rest."""

    filter: tuple[int, int] | None
    stride: int
    tile: tuple[int, int, int]
    adjacent: bool
    slots: tuple[int, int, int, int]

    def serves(self, x: Correlation, chwn: bool) -> bool:
        if self.filter is None:
            return True
        if self.tile[2] > x.N:
            return False
        steps = x.dil_w * (x.N if chwn else 1), x.every[1] * (x.N if chwn else 1)
        return (self.filter == (x.R, x.S) and x.stride == (self.stride * x.dil_h, self.stride * x.dil_w)
                and (steps == (1, 1) or not self.adjacent))


_DOC = """Convolution in groups of few channels. Grid: x = ceil(count / 128)."""

_SASS = "maxwell/depthwise_{}.sass"
KERNELS = (
    GroupKernel("sdepthwise_3x3_s1", _SASS.format("3x3"), _DOC, (3, 3), 1, (7, 2, 1), False, (0, 0, 359, 235)),
    GroupKernel("sdepthwise_3x3_s1_row", _SASS.format("3x3"), _DOC, (3, 3), 1, (7, 1, 1), True, (0, 0, 205, 174)),
    GroupKernel("sdepthwise_3x3_s1_row2", _SASS.format("3x3"), _DOC, (3, 3), 1, (7, 1, 2), True, (0, 0, 340, 229)),
    GroupKernel("sdepthwise_3x3_s2", _SASS.format("3x3"), _DOC, (3, 3), 2, (7, 2, 1), False, (0, 0, 542, 238)),
    GroupKernel("sdepthwise_3x3_s2_row", _SASS.format("3x3"), _DOC, (3, 3), 2, (7, 1, 1), True, (0, 0, 281, 174)),
    GroupKernel("sdepthwise_3x3_s2_row2", _SASS.format("3x3"), _DOC, (3, 3), 2, (7, 1, 2), True, (0, 0, 442, 229)),
    GroupKernel("sdepthwise_5x5_s1", _SASS.format("5x5"), _DOC, (5, 5), 1, (7, 2, 1), False, (0, 0, 773, 241)),
    GroupKernel("sdepthwise_5x5_s1_row", _SASS.format("5x5"), _DOC, (5, 5), 1, (7, 1, 1), True, (0, 0, 437, 180)),
    GroupKernel("sdepthwise_5x5_s1_row2", _SASS.format("5x5"), _DOC, (5, 5), 1, (7, 1, 2), True, (0, 0, 718, 235)),
    GroupKernel("sdepthwise_5x5_s2", _SASS.format("5x5"), _DOC, (5, 5), 2, (4, 2, 1), False, (0, 0, 663, 202)),
    GroupKernel("sdepthwise_5x5_s2_row", _SASS.format("5x5"), _DOC, (5, 5), 2, (7, 1, 1), True, (0, 0, 527, 180)),
    GroupKernel("sdepthwise_5x5_s2_row2", _SASS.format("5x5"), _DOC, (5, 5), 2, (4, 1, 2), True, (0, 0, 565, 193)),
    GroupKernel("sdepthwise_7x7_s1", _SASS.format("7x7"), _DOC, (7, 7), 1, (4, 2, 1), False, (0, 0, 934, 205)),
    GroupKernel("sdepthwise_7x7_s1_row", _SASS.format("7x7"), _DOC, (7, 7), 1, (7, 1, 1), True, (0, 0, 765, 186)),
    GroupKernel("sdepthwise_7x7_s1_row2", _SASS.format("7x7"), _DOC, (7, 7), 1, (4, 1, 2), True, (0, 0, 869, 199)),
    GroupKernel("sdepthwise_any", _SASS.format("any"), _DOC, None, 0, (4, 1, 1), False, (38, 12, 8, 150)),
)


def few(problem: Problem) -> str | None:
    """For `refuses`: what families of groups of few channels leave to others."""
    s: ConvShape = problem.shape
    if s.groups == 1:
        return "a single group"
    what, count = ("filters", s.K) if problem.kind == "data" else ("channels", s.C)
    if count // s.groups > MOST_CHANNELS:
        return f"groups of more than {MOST_CHANNELS} {what}"
    return None


def refuses(problem: Problem) -> str | None:
    return few(problem) or refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    """The unrolled kernels that serve all of it, else the one with loops, which is slower everywhere."""
    found = [spec for spec in KERNELS
             if all(spec.serves(x, problem.layout == "CHWN") for x in correlations(problem))]
    return {spec.name: partial(_plan, problem, spec) for spec in found if spec.filter or len(found) == 1}


def _plan(problem: Problem, spec: GroupKernel) -> Plan:
    parts = correlations(problem)
    shares = [x.P * x.Q * (x.patch + 1) for x in parts]
    launches, done = [], 0
    for i, x in enumerate(parts):
        flops = problem.shape.flops * sum(shares[:i + 1]) // sum(shares) - done
        launches.append(_launch(problem, spec, x, flops))
        done += flops
    return make(problem, "depthwise", spec, launches, {})


def _launch(problem: Problem, spec: GroupKernel, x: Correlation, flops: int) -> Launch:
    chwn, c, (h, w) = problem.layout == "CHWN", x.C // x.groups, x.whole
    # elements from one image, channel, row, column to the next
    image, channel, row, column = strides(chwn, x.N, x.C, x.H, x.W)
    o_image, o_k, o_row, o_column = strides(chwn, x.N, x.K, h, w)
    rows, columns, images = (-(-size // tile) for size, tile in zip((x.P, x.Q, x.N), spec.tile, strict=True))
    sizes = (images, columns, rows, x.K) if chwn else (columns, rows, x.K, images)
    count = images * columns * rows * x.K
    below = x.H + abs(x.pad_h) + x.str_h * (x.P + spec.tile[0]) + x.dil_h * x.R
    for what, size, reason in ((f"{maps_of(problem)} C x H x W x N", x.C * x.H * x.W * x.N, "elements"),
                               ("output K x P x Q x N", x.K * h * w * x.N, "elements"),
                               ("filters K x C/groups x R x S", problem.shape.K * problem.shape.patch, "elements"),
                               ("padded map", below * row, "elements"),
                               ("padded columns W + 2 padding", x.W + abs(x.pad_w) + x.str_w * x.Q, "columns")):
        if size > MAX_ELEMENTS - THREADS:
            raise ShapeError(f"{what} must be at most {MAX_ELEMENTS - THREADS} {reason} "
                             f"(got {size} for {problem.shape})")
    blocks = -(-count // THREADS)
    first = FLOAT_BYTES * x.start * o_column
    values: dict[str, Value] = {
        **fused(problem, 0), "out": Part("out", first) if first else "out", "images": maps_of(problem),
        "filters": "filters", "count": count, "group": x.K // x.groups, "channels": c if x.patch else 0,
        "h": x.H, "w": x.W, "p": x.P, "q": x.Q, "start_h": -x.pad_h, "start_w": -x.pad_w, "stride_h": x.str_h,
        "stride_w": x.str_w, "dilation_h": x.dil_h, "dilation_w": x.dil_w,
        "map_start": -(x.pad_h * row + x.pad_w * column), "map_image": image, "n": x.N,
        "second": images, "map_second": images * image, "out_second": images * o_image, "map_group": c * channel,
        "map_channel": channel, "map_row": x.str_h * row, "map_column": x.str_w * column,
        "tap_row": x.dil_h * row, "tap_column": x.dil_w * column, **_filter_steps(problem, x), "out_image": o_image,
        "out_k": o_k, "out_row": x.steps[0] * o_row, "out_column": x.steps[1] * o_column}
    values["flags"] += _IMAGES_FIRST * chwn  # type: ignore[operator]
    if spec.filter is None:
        values |= {"r": x.R, "s": x.S}
    for name, size in (*((f"d{i}", sizes[i]) for i in range(3)), ("group", x.K // x.groups)):
        factor, shift = magic(size, THREADS * blocks)
        values |= {name: size, f"{name}_magic": factor, f"{name}_shift": shift}
    values = {name: value % 2**32 if isinstance(value, int) else value for name, value in values.items()}
    doing = "{} x {} outputs of {} images a thread, all groups at once".format(*spec.tile)
    if x.every != (1, 1):
        doing += ", of every {}th row and {}th column".format(*x.every)
    return Launch(spec, (blocks, 1, 1), values, _work(problem, spec, x, blocks), doing, ("out",), flops=flops)


def strides(chwn: bool, n: int, c: int, h: int, w: int) -> tuple[int, int, int, int]:
    """Elements from one image, channel, row and column of an array to the next."""
    return (1, h * w * n, w * n, n) if chwn else (c * h * w, h * w, w, 1)


def filter_strides(problem: Problem) -> tuple[int, int, int, int]:
    """Elements from one filter, channel, row and column of a layer's filters to the next."""
    s: ConvShape = problem.shape
    if problem.layout == "CHWN":
        return 1, s.R * s.S * s.K, s.S * s.K, s.K
    return s.patch, s.R * s.S, s.S, 1


def _filter_steps(problem: Problem, x: Correlation) -> dict[str, Value]:
    """Where the filters of a correlation lie in those of the layer."""
    s: ConvShape = problem.shape
    c, k = s.C // s.groups, s.K // s.groups
    of_k, of_c, of_r, of_s = filter_strides(problem)
    (tap_h, step_h), (tap_w, step_w) = x.taps
    steps: dict[str, Value] = {"filter_start": tap_h * of_r + tap_w * of_s, "filter_row": step_h * of_r,
                               "filter_tap": step_w * of_s}
    if problem.kind == "data":  # of group g, what it computes for channel g c + i takes filters g k ..
        return steps | {"filter_k": of_c, "filter_group": k * of_k - c * of_c, "filter_channel": of_k}
    return steps | {"filter_k": of_k, "filter_group": 0, "filter_channel": of_c}


def _work(problem: Problem, spec: GroupKernel, x: Correlation, blocks: int) -> Work:
    """Four warps a block, each all slots; maps, filters and outputs once."""
    c, (tap, row, channel, rest) = x.C // x.groups, spec.slots
    slots = ((tap * x.S + row) * x.R + channel) * c + rest
    once = x.C * x.H * x.W * x.N + x.K * x.patch + x.K * x.P * x.Q * x.N * (1 + problem.reads_out)
    warps = THREADS // 32
    return Work(blocks, warps * slots, slots + _LATENCY, FLOAT_BYTES * once, warps * TRANSLATED * slots)


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    assert isinstance(launch.spec, GroupKernel)
    v, (rows, columns, images) = launch.numbers, launch.spec.tile
    assert launch.grid == (-(-v["count"] // THREADS), 1, 1)
    j = np.arange(v["count"])
    quotients = [j // v["d0"], j // v["d0"] // v["d1"], j // v["d0"] // v["d1"] // v["d2"]]
    i = j % v["d0"], quotients[0] % v["d1"], quotients[1] % v["d2"], quotients[2]
    for at, (name, value) in enumerate((("d0", j), ("d1", quotients[0]), ("d2", quotients[1]))):
        assert ((value + 1) * v[f"{name}_magic"] >> 32 + v[f"{name}_shift"] == quotients[at]).all()
    n, q, p, k = i if v["flags"] & _IMAGES_FIRST else (i[3], i[0], i[1], i[2])
    n, k, p, q = (x.ravel() for x in np.broadcast_arrays(
        n[:, None, None, None] + v["second"] * np.arange(images)[:, None, None], k[:, None, None, None],
        rows * p[:, None, None, None] + np.arange(rows)[:, None],
        columns * q[:, None, None, None] + np.arange(columns)))
    n, k, p, q = (x[(n < v["n"]) & (p < v["p"]) & (q < v["q"])] for x in (n, k, p, q))
    group = k // v["group"]
    assert ((k + 1) * v["group_magic"] >> 32 + v["group_shift"] == group).all()
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("map_start", "start_h", "start_w", "filter_group",
                                                                 "filter_row", "filter_tap")}
    maps, bank = seen(memory, launch.values["images"]), seen(memory, launch.values["filters"])
    base = (signed["map_start"] + n * v["map_image"] + group * v["map_group"] + p * v["map_row"]
            + q * v["map_column"])
    sums = np.zeros(len(p))
    r_size, s_size = launch.spec.filter or (v["r"], v["s"])
    for c, r, s in np.ndindex(v["channels"], r_size, s_size):
        h = p * v["stride_h"] + signed["start_h"] + r * v["dilation_h"]
        w = q * v["stride_w"] + signed["start_w"] + s * v["dilation_w"]
        inside = (h >= 0) & (h < v["h"]) & (w >= 0) & (w < v["w"])
        at = base + c * v["map_channel"] + r * v["tap_row"] + s * v["tap_column"]
        taps = bank[v["filter_start"] + k * v["filter_k"] + group * signed["filter_group"] + c * v["filter_channel"]
                    + r * signed["filter_row"] + s * signed["filter_tap"]].astype(float)
        sums[inside] += maps[at[inside]].astype(float) * taps[inside]
    where = n * v["out_image"] + k * v["out_k"] + p * v["out_row"] + q * v["out_column"]
    finish(launch, memory, scalars, where, sums, k)


FAMILY = Family("depthwise", KERNELS, contract, ("forward", "data"), refuses, candidates)
