"""Convolution in groups of few channels, depthwise above all: nothing of a map serves several filters, so memory is the
limit. A thread computes some rows of one column of one filter's output and has every row of the map fetched once; all
groups, images and filters are one launch, in either layout, where the arrays lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..chips import Work
from ..errors import ShapeError
from ..kernels import KernelSpec
from ..plans import FLOAT_BYTES, Launch, Plan, Value, make
from ..problem import Problem
from ..shape import ConvShape
from .family import Candidates, Family, Memory, finish, fused, refuses_strided, seen
from .pixels import magic

MOST_CHANNELS = 8
"""Of a group: with more of them a tile of a product does less."""

THREADS = 128
MAX_ELEMENTS = 2**31 - 1  # the kernels count elements of an array in 31 bits and a sign
_IMAGES_FIRST = 4  # flag of the kernels, beside those of the last step
_LATENCY = 2500  # clocks of a block alone that are no issue slot: divisions, filter, rows, stores


@dataclass(frozen=True)
class GroupKernel(KernelSpec):
    """`filter`: rows and columns of the filters it is for, None for any. `stride`: rows of the map from one row of O to
    the next, in rows of the filter; 0 for any. `outputs`: rows of O that a thread computes. `slots`: issue slots of a
    warp for a tap, a row and a channel of a filter, and for all the rest."""

    filter: tuple[int, int] | None
    stride: int
    outputs: int
    slots: tuple[int, int, int, int]


_DOC = """Convolution in groups of few channels. Grid: x = ceil(count / 128)."""

KERNELS = (
    GroupKernel("sdepthwise_3x3_s1", "depthwise_3x3.sass", _DOC, (3, 3), 1, 7, (0, 0, 250, 170)),
    GroupKernel("sdepthwise_3x3_s2", "depthwise_3x3.sass", _DOC, (3, 3), 2, 7, (0, 0, 350, 170)),
    GroupKernel("sdepthwise_5x5_s1", "depthwise_5x5.sass", _DOC, (5, 5), 1, 7, (0, 0, 552, 176)),
    GroupKernel("sdepthwise_5x5_s2", "depthwise_5x5.sass", _DOC, (5, 5), 2, 4, (0, 0, 480, 155)),
    GroupKernel("sdepthwise_any", "depthwise_any.sass", _DOC, None, 0, 4, (38, 10, 6, 147)),
)


def refuses(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if s.groups == 1:
        return "a single group"
    if s.C // s.groups > MOST_CHANNELS:
        return f"groups of more than {MOST_CHANNELS} channels"
    return refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    s: ConvShape = problem.shape
    return {spec.name: partial(_plan, problem, spec) for spec in KERNELS
            if spec.filter is None or (spec.filter == (s.R, s.S) and s.str_h == spec.stride * s.dil_h)}


def _plan(problem: Problem, spec: GroupKernel) -> Plan:
    s: ConvShape = problem.shape
    chwn, c = problem.layout == "CHWN", s.C // s.groups
    # elements from one image, channel, row, column to the next
    image, channel, row, column = (1, s.H * s.W * s.N, s.W * s.N, s.N) if chwn else (s.C * s.H * s.W, s.H * s.W, s.W, 1)
    o_image, o_k, o_row, o_column = (1, s.P * s.Q * s.N, s.Q * s.N, s.N) if chwn else (
        s.K * s.P * s.Q, s.P * s.Q, s.Q, 1)
    runs = -(-s.P // spec.outputs)
    sizes = (s.N, s.Q, runs, s.K) if chwn else (s.Q, runs, s.K, s.N)
    count = s.N * s.Q * runs * s.K
    for what, size, reason in (("maps C x H x W x N", s.C * s.H * s.W * s.N, "elements"),
                               ("output K x P x Q x N", s.K * s.P * s.Q * s.N, "elements"),
                               ("filters K x C/groups x R x S", s.K * s.patch, "elements"),
                               ("padded rows H + 2 padding", s.H + 2 * s.pad_h + s.str_h * spec.outputs, "rows"),
                               ("padded columns W + 2 padding", s.W + 2 * s.pad_w, "columns"),
                               ("padded map", (s.H + 2 * s.pad_h + s.str_h * spec.outputs) * row, "elements")):
        if size > MAX_ELEMENTS - THREADS:
            raise ShapeError(f"{what} must be at most {MAX_ELEMENTS - THREADS} {reason} (got {size} for {s})")
    blocks = -(-count // THREADS)
    values: dict[str, Value] = {
        **fused(problem, 0), "out": "out", "images": "images", "filters": "filters", "count": count,
        "group": s.K // s.groups, "channels": c, "h": s.H, "w": s.W, "p": s.P, "start_h": -s.pad_h % 2**32,
        "start_w": -s.pad_w % 2**32, "stride_h": s.str_h, "stride_w": s.str_w, "dilation_h": s.dil_h,
        "dilation_w": s.dil_w, "map_start": -(s.pad_h * row + s.pad_w * column) % 2**32, "map_image": image,
        "map_group": c * channel, "map_channel": channel, "map_row": s.str_h * row, "map_column": s.str_w * column,
        "tap_row": s.dil_h * row, "tap_column": s.dil_w * column, "filter_k": 1 if chwn else s.patch,
        "filter_tap": s.K if chwn else 1, "out_image": o_image, "out_k": o_k, "out_row": o_row,
        "out_column": o_column}
    values["flags"] += _IMAGES_FIRST * chwn  # type: ignore[operator]
    if spec.filter is None:
        values |= {"r": s.R, "s": s.S}
    for name, size in (*((f"d{i}", sizes[i]) for i in range(3)), ("group", s.K // s.groups)):
        factor, shift = magic(size, THREADS * blocks)
        values |= {name: size, f"{name}_magic": factor, f"{name}_shift": shift}
    doing = f"{spec.outputs} rows of one column of the output a thread, all groups at once"
    launch = Launch(spec, (blocks, 1, 1), values, _work(problem, spec, blocks), doing, ("out",), flops=s.flops)
    return make(problem, "depthwise", spec, (launch,), {})


def _work(problem: Problem, spec: GroupKernel, blocks: int) -> Work:
    s: ConvShape = problem.shape
    c, (tap, row, channel, rest) = s.C // s.groups, spec.slots
    slots = ((tap * s.S + row) * s.R + channel) * c + rest
    once = s.C * s.H * s.W * s.N + s.K * s.patch + s.K * s.P * s.Q * s.N * (1 + problem.reads_out)
    return Work(blocks, THREADS // 32 * slots, slots + _LATENCY, FLOAT_BYTES * once)


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    assert isinstance(launch.spec, GroupKernel)
    v, outputs = launch.numbers, launch.spec.outputs
    assert launch.grid == (-(-v["count"] // THREADS), 1, 1)
    j = np.arange(v["count"])
    quotients = [j // v["d0"], j // v["d0"] // v["d1"], j // v["d0"] // v["d1"] // v["d2"]]
    i = j % v["d0"], quotients[0] % v["d1"], quotients[1] % v["d2"], quotients[2]
    for at, (name, value) in enumerate((("d0", j), ("d1", quotients[0]), ("d2", quotients[1]))):
        assert ((value + 1) * v[f"{name}_magic"] >> 32 + v[f"{name}_shift"] == quotients[at]).all()
    n, q, p, k = i if v["flags"] & _IMAGES_FIRST else (i[3], i[0], i[1], i[2])
    n, q, k = (np.repeat(x, outputs) for x in (n, q, k))
    p = (outputs * p[:, None] + np.arange(outputs)).ravel()
    n, q, k, p = (x[p < v["p"]] for x in (n, q, k, p))
    group = k // v["group"]
    assert ((k + 1) * v["group_magic"] >> 32 + v["group_shift"] == group).all()
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("map_start", "start_h", "start_w")}
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
        taps = bank[k * v["filter_k"] + ((c * r_size + r) * s_size + s) * v["filter_tap"]].astype(float)
        sums[inside] += maps[at[inside]].astype(float) * taps[inside]
    where = n * v["out_image"] + k * v["out_k"] + p * v["out_row"] + q * v["out_column"]
    finish(launch, memory, scalars, where, sums, k)


FAMILY = Family("depthwise", KERNELS, contract, ("forward",), refuses, candidates)
