"""Gradients of images of few channels, such as first layers have: a block of the image's pixels, with all its channels,
is what a correlation of the gradients with as many filters makes of one window. The filters hold a tap for every
gradient of the window, zero where the layer has none; so tiles of 32 filters are filled by 3 channels x 9 pixels, tiles
of 64 by 3 x 16. The results, block by block, then go where they belong."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...errors import ShapeError
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Operand, Problem
from ...problem.shape import ConvShape
from ..common.correlation import Correlation, refuses_classes
from ..implicit_gemm import maxwell as implicit_gemm
from ..implicit_gemm.maxwell import magic
from ..memory_ops.plan import MAX_GRID_YZ
from ..spec import Candidates, Family, Memory, fused, refuses_strided, seen
from . import maxwell as dgrad_strided
from . import sm90 as dgrad_strided_sm90

MOST = 128
"""Pixels of a block times channels."""

_FILTERS = KernelSpec("sblock_filters", "blocks.sass", """Filters for blocks of pixels. Grid: x = filters * taps,
y = tiles of 128 columns.""")
_BLOCKS = KernelSpec("sblocks", "blocks.sass", """Puts the pixels of blocks where they belong. Grid: x = tiles of 128
elements of a row, y = fours of rows, z = maps.""")
_DIVISORS = 32768  # up to here the kernels' divisions by a multiplication are exact
_THREADS = 128


def refuses(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if s.groups > 1:
        return f"{s.groups} groups"
    if s.dilation != (1, 1):
        return f"dilation {s.dil_h}x{s.dil_w}"
    if 2 * s.C > MOST:
        return f"{s.C} channels"
    return refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    """Blocks of as many pixels as the channels leave room for."""
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    for block in ((s.str_h * i, s.str_w * j) for i in (1, 2, 3, 4) for j in (1, 2, 3, 4)):
        if 1 < block[0] * block[1] <= MOST // s.C:
            inner = _inner(problem, block, "data")
            serving = {} if refuses_classes(inner) else dict(dgrad_strided.candidates(inner))
            if not dgrad_strided_sm90.refuses(inner):
                serving |= dgrad_strided_sm90.candidates(inner)
            for name, make_inner in (serving or implicit_gemm.candidates(_inner(problem, block, "forward"))).items():
                if "_split" not in name or (name.startswith("sm90_") and name.endswith("_split2")):
                    found[f"blocks_{block[0]}x{block[1]}_{name}"] = partial(_plan, problem, block, make_inner)
    return found


def _origin(taps: int, stride: int, padding: int, block: int) -> int:
    """Pixels in front of the first one that the first block begins with, so that windows are small."""
    return min(range(stride), key=lambda origin: _window(taps, stride, padding - origin, block)[1])


def _window(taps: int, stride: int, padding: int, block: int) -> tuple[int, int]:
    """Of one axis: the first gradient that reaches a block, from the one the block begins under, and how many do."""
    # Those of the multiples of the stride from padding - (taps - 1) to padding + (block - 1), which has one.
    first, last = -((taps - 1 - padding) // stride), (padding + block - 1) // stride
    return first, last - first + 1


def _origins(s: ConvShape, block: tuple[int, int]) -> tuple[int, int]:
    return (_origin(s.R, s.str_h, s.pad_h, block[0]), _origin(s.S, s.str_w, s.pad_w, block[1]))


def _inner(problem: Problem, block: tuple[int, int], kind: str) -> Problem:
    """The correlation that computes blocks: "forward", whose filters lie as the layout has them, or "data", whose
    filters lie C,R,S,K', rows of a multiple of 32."""
    s: ConvShape = problem.shape
    origin = _origins(s, block)
    (top, high), (left, wide) = (_window(*axis) for axis in ((s.R, s.str_h, s.pad_h - origin[0], block[0]),
                                                            (s.S, s.str_w, s.pad_w - origin[1], block[1])))
    rows, columns = -(-(s.H + origin[0]) // block[0]), -(-(s.W + origin[1]) // block[1])
    k = s.C * block[0] * block[1]
    shape = Correlation(s.N, s.K, s.P, s.Q, k, high, wide, rows, columns, (block[0] // s.str_h, block[1] // s.str_w),
                        (-top, -left), (1, 1), 1, (0, 0), (1, 1), (rows, columns))
    chwn, maps = problem.layout == "CHWN", "images" if kind == "forward" else "gradients"
    row = k if kind == "forward" else -(-k // 32) * 32
    sizes = {maps: (s.K, s.P, s.Q, s.N) if chwn else (s.N, s.K, s.P, s.Q),
             "filters": (s.K, high, wide, row) if chwn or kind == "data" else (k, s.K, high, wide),
             "out": (k, rows, columns, s.N) if chwn else (s.N, k, rows, columns)}
    odd = problem.operand("gradients").alignment < Alignment.TEXTURE
    operands = tuple(Operand(role, size, Alignment.FLOAT if odd and role == maps else Alignment.TEXTURE)
                     for role, size in sizes.items())
    return Problem(kind, shape, operands, problem.layout, ("alpha",))


def _plan(problem: Problem, block: tuple[int, int], make_inner: Callable[[], Plan]) -> Plan:
    s: ConvShape = problem.shape
    inner = make_inner()
    x: Correlation = inner.shape
    _check_limits(s, x, block, problem.layout)
    bank = inner.problem.operand("filters")
    straight = problem.layout == "CHWN" or inner.problem.kind == "data"
    names: dict[str, str | float] = {"images": "gradients", "filters": "block_filters", "out": "blocks", "alpha": 1.0}
    regions = {name: region.nbytes for name, region in inner.workspace.items()}
    regions["block_filters"] = FLOAT_BYTES * bank.extent
    regions["blocks"] = FLOAT_BYTES * s.N * x.K * x.P * x.Q
    launches = (_filters(problem, x, block, bank.shape[3] if straight else 0),
                *(_renamed(launch, names) for launch in inner.launches), _blocks(problem, x, block))
    notes = [f"blocks of {block[0]} x {block[1]} pixels from windows of {x.R} x {x.S} gradients: "
             f"{s.R * s.S / (s.str_h * s.str_w * x.R * x.S):.1%} of their taps are the layer's", *inner.notes]
    return make(problem, "blocks", inner.spec, launches, regions, notes)


def _renamed(launch: Launch, names: Mapping[str, str | float]) -> Launch:
    """The launch with other memory and scalars."""
    def place(was: str | Part) -> str | Part:
        if isinstance(was, Part):
            return Part(str(names.get(was.name, was.name)), was.offset)
        return str(names.get(was, was))
    values: dict[str, Value] = {name: value if isinstance(value, (int, float)) else place(value)
                                for name, value in launch.values.items()}
    values |= {name: names[str(value)] for name, value in launch.values.items() if isinstance(value, str)
               and isinstance(names.get(value), float)}
    return replace(launch, values=values, textures={name: place(was) for name, was in launch.textures.items()},
                   writes=tuple(str(names.get(name, name)) for name in launch.writes))


def _filters(problem: Problem, x: Correlation, block: tuple[int, int], row: int) -> Launch:
    """`row`: floats of a row of filters C,R,S,K', whose columns from K on stay what they are; 0 for K,C,R,S."""
    s: ConvShape = problem.shape
    taps, area, origin = x.R * x.S, block[0] * block[1], _origins(s, block)
    if problem.layout == "CHWN":
        source = {"src_c": s.R * s.S * s.K, "src_r": s.S * s.K, "src_s": s.K, "src_k": 1}
    else:
        source = {"src_c": s.R * s.S, "src_r": s.S, "src_s": 1, "src_k": s.C * s.R * s.S}
    if row:
        target = {"dst_k": taps * row, "dst_tap": row, "dst_column": 1}
    else:
        target = {"dst_k": taps, "dst_tap": 1, "dst_column": s.K * taps}
    values: dict[str, Value] = {
        "dst": "block_filters", "src": "filters", "columns": x.K,
        "start_h": (s.pad_h - origin[0] + x.pad_h * s.str_h) % 2**32,
        "start_w": (s.pad_w - origin[1] + x.pad_w * s.str_w) % 2**32, "stride_h": s.str_h, "stride_w": s.str_w,
        "r": s.R, "s": s.S,
        **source, **target}
    for name, divisor in (("taps", taps), ("taps_w", x.S), ("block", area), ("block_w", block[1])):
        values |= {name: divisor, f"{name}_magic": -(-2**31 // divisor)}
    grid = s.K * taps, -(-x.K // _THREADS), 1
    work = Work(grid[0] * grid[1], 4 * 70, 1500, FLOAT_BYTES * (s.K * taps * x.K + s.K * s.C * s.R * s.S))
    return Launch(_FILTERS, grid, values, work, f"filters for blocks of {block[0]} x {block[1]} pixels are made",
                  ("block_filters",))


def _blocks(problem: Problem, x: Correlation, block: tuple[int, int]) -> Launch:
    s: ConvShape = problem.shape
    images, maps = (s.N, s.C) if problem.layout == "CHWN" else (1, s.N * s.C)
    ending, origin = fused(problem, 0), _origins(s, block)
    factor, shift = magic(images, s.W * images + _THREADS)
    values: dict[str, Value] = {
        "out": "out", "blocks": "blocks", "alpha": ending["alpha"], "beta": ending["beta"], "flags": ending["flags"],
        "h": s.H, "inner": s.W * images, "images": images, "images_magic": factor, "images_shift": shift,
        "block_h": block[0], "block_h_magic": -(-2**31 // block[0]), "block_w": block[1],
        "block_w_magic": -(-2**31 // block[1]), "origin_h": origin[0], "origin_w": origin[1], "rows": x.P,
        "columns": x.Q}
    grid = -(-s.W * images // _THREADS), -(-s.H // 4), maps
    work = Work(grid[0] * grid[1] * maps, 4 * 180, 1500, FLOAT_BYTES * s.N * s.C * s.H * s.W * (2 + problem.reads_out))
    return Launch(_BLOCKS, grid, values, work, "the pixels of blocks go where they belong", ("out",))


def _check_limits(s: ConvShape, x: Correlation, block: tuple[int, int], layout: str) -> None:
    for what, count, limit in (("filters x taps of a window", s.K * x.R * x.S, _DIVISORS),
                               ("rows and columns of images", max(s.H + s.str_h, s.W + s.str_w), _DIVISORS - 1),
                               ("images x channels" if layout == "NCHW" else "channels",
                                s.N * s.C if layout == "NCHW" else s.C, MAX_GRID_YZ),
                               ("images C x H x W x N", s.C * s.H * s.W * s.N, 2**31 - 1)):
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} for blocks of pixels (got {count} for {s})")


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v = launch.numbers
    if launch.spec is _FILTERS:
        lines, columns = np.arange(launch.grid[0])[:, None], np.arange(v["columns"])
        k, tap, c, place = lines // v["taps"], lines % v["taps"], columns // v["block"], columns % v["block"]
        start_h, start_w = (v[name] - (v[name] >> 31 << 32) for name in ("start_h", "start_w"))
        row = place // v["block_w"] + start_h - tap // v["taps_w"] * v["stride_h"]
        column = place % v["block_w"] + start_w - tap % v["taps_w"] * v["stride_w"]
        exists = (row >= 0) & (row < v["r"]) & (column >= 0) & (column < v["s"])
        at = k * v["src_k"] + c * v["src_c"] + row * v["src_r"] + column * v["src_s"]
        to = k * v["dst_k"] + tap * v["dst_tap"] + columns * v["dst_column"]
        seen(memory, launch.values["dst"])[to] = np.where(exists, seen(memory, launch.values["src"])[
            np.where(exists, at, 0)], 0)
        return
    maps, h = launch.grid[2], v["h"]
    blocks = seen(memory, launch.values["blocks"])[:maps * v["block_h"] * v["block_w"] * v["rows"] * v["columns"]
                                                   * v["images"]].astype(float)
    shape = maps, v["block_h"], v["block_w"], v["rows"], v["columns"], v["images"]
    turned = blocks.reshape(shape).transpose(0, 3, 1, 4, 2, 5)
    whole = turned.reshape(maps, v["rows"] * v["block_h"], -1, v["images"])
    top, left = v["origin_h"], v["origin_w"]
    wanted = whole[:, top:top + h, left:left + v["inner"] // v["images"]].ravel()
    out = seen(memory, launch.values["out"])
    result = scalars["alpha"] * wanted
    if v["flags"] & 2:
        result = result + scalars["beta"] * out[:len(wanted)]
    out[:len(wanted)] = result


FAMILY = Family("blocks", (_FILTERS, _BLOCKS), contract, ("data",), refuses, candidates)
