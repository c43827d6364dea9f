"""Strided dgrad of few channels, as of first layers. All channels of a small window of the image's pixels are taken
for the filters of a correlation of the gradients: 3 channels x 9 pixels fill a tile of 32 filters, 3 x 16 one of 64.
These filters hold a tap for every gradient that the window meets, zero where the layer has none. A last launch moves
the results, window by window, to their places in the image."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Operand, Problem
from ...problem.shape import ConvShape
from ..common import layout
from ..common.correlation import Correlation, phases_reason
from ..common.epilogue import epilogue_of
from ..common.fastdiv import MOST_SHORT, divisor, short_magic
from ..common.limits import MAX_GRID_YZ, within
from ..implicit_gemm import maxwell as implicit_gemm
from ..implicit_gemm import tensor_cores
from ..spec import Candidates, Family, strided_reason
from . import maxwell as dgrad_strided
from . import sm90 as dgrad_strided_sm90
from .reference import BLOCKS, FILTERS, reference_blocks

MOST = 128
"""Pixels of a block times channels."""

_THREADS = 128
_WARPS = _THREADS // 32
_FILTER_SLOTS, _BLOCK_SLOTS = 70, 180  # issue slots of a warp, counted in the source
_LATENCY = 1500  # clocks of a CTA that waits for DRAM once, with divisions in front; assumed


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if s.groups > 1:
        return f"{s.groups} groups"
    if s.dilation != (1, 1):
        return f"dilation {s.dil_h}x{s.dil_w}"
    if 2 * s.C > MOST:
        return f"{s.C} channels"
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    """One candidate for each size of windows whose pixels and channels fit a tile."""
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    for block in ((s.str_h * i, s.str_w * j) for i in (1, 2, 3, 4) for j in (1, 2, 3, 4)):
        if 1 < block[0] * block[1] <= MOST // s.C:
            inner = _inner(problem, block, "data")
            serving = {} if phases_reason(inner) else dict(dgrad_strided.candidates(inner, chip))
            if not dgrad_strided_sm90.unsupported_reason(inner):
                serving |= dgrad_strided_sm90.candidates(inner, chip)
            forward = _inner(problem, block, "forward")
            serving = serving or dict(implicit_gemm.candidates(forward, chip))
            if tensor_cores.unsupported_reason(forward) is None:
                serving |= tensor_cores.candidates(forward, chip)
            for name, make_inner in serving.items():
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
    _check_limits(s, x, problem.layout)
    filters = inner.problem.operand("filters")
    straight = problem.layout == "CHWN" or inner.problem.kind == "data"
    names: dict[str, str | float] = {"images": "gradients", "filters": "block_filters", "out": "blocks", "alpha": 1.0}
    regions = {name: region.nbytes for name, region in inner.workspace.items()}
    regions["block_filters"] = FLOAT_BYTES * filters.extent
    regions["blocks"] = FLOAT_BYTES * s.N * x.K * x.P * x.Q
    launches = (_filters(problem, x, block, filters.shape[3] if straight else 0),
                *(_renamed(launch, names) for launch in inner.launches), _blocks(problem, x, block))
    notes = [f"blocks of {block[0]} x {block[1]} pixels from windows of {x.R} x {x.S} gradients: "
             f"{s.R * s.S / (s.str_h * s.str_w * x.R * x.S):.1%} of their taps are the layer's", *inner.notes]
    return make(problem, "blocks", inner.spec, launches, regions, notes)


def _renamed(launch: Launch, names: Mapping[str, str | float]) -> Launch:
    """The launch with other names of memory and scalars."""
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
    lies = layout.filters(problem)
    if row:
        target = {"dst_k": taps * row, "dst_tap": row, "dst_column": 1}
    else:
        target = {"dst_k": taps, "dst_tap": 1, "dst_column": s.K * taps}
    values: dict[str, Value] = {
        "dst": "block_filters", "src": "filters", "columns": x.K,
        "start_h": (s.pad_h - origin[0] + x.pad_h * s.str_h) % 2**32,
        "start_w": (s.pad_w - origin[1] + x.pad_w * s.str_w) % 2**32, "stride_h": s.str_h, "stride_w": s.str_w,
        "r": s.R, "s": s.S, **{f"src_{axis.lower()}": lies[axis] for axis in "CRSK"}, **target}
    for name, size in (("taps", taps), ("taps_w", x.S), ("block", area), ("block_w", block[1])):
        values |= {name: size, f"{name}_magic": short_magic(size)}
    grid = s.K * taps, -(-x.K // _THREADS), 1
    work = Work(grid[0] * grid[1], FLOAT_BYTES * (s.K * taps * x.K + s.K * s.C * s.R * s.S),
                Cost(_WARPS * _FILTER_SLOTS, _LATENCY))
    return Launch(FILTERS, grid, values, work, f"filters for blocks of {block[0]} x {block[1]} pixels are made",
                  ("block_filters",))


def _blocks(problem: Problem, x: Correlation, block: tuple[int, int]) -> Launch:
    s: ConvShape = problem.shape
    images, maps = (s.N, s.C) if problem.layout == "CHWN" else (1, s.N * s.C)
    origin = _origins(s, block)
    values: dict[str, Value] = {
        **epilogue_of(problem).without_bias(), **divisor("images", images, s.W * images + _THREADS), "out": "out",
        "blocks": "blocks", "h": s.H, "inner": s.W * images, "block_h": block[0],
        "block_h_magic": short_magic(block[0]), "block_w": block[1], "block_w_magic": short_magic(block[1]),
        "origin_h": origin[0], "origin_w": origin[1], "rows": x.P, "columns": x.Q}
    grid = -(-s.W * images // _THREADS), -(-s.H // 4), maps
    work = Work(grid[0] * grid[1] * maps, FLOAT_BYTES * s.N * s.C * s.H * s.W * (2 + problem.reads_out),
                Cost(_WARPS * _BLOCK_SLOTS, _LATENCY))
    return Launch(BLOCKS, grid, values, work, "the pixels of blocks go where they belong", ("out",))


def _check_limits(s: ConvShape, x: Correlation, order: str) -> None:
    images = s.N if order == "NCHW" else 1
    within(s, (
        ("filters x taps of a window", s.K * x.R * x.S, MOST_SHORT, "for blocks of pixels"),
        ("rows and columns of images", max(s.H + s.str_h, s.W + s.str_w), MOST_SHORT - 1, "for blocks of pixels"),
        ("images x channels" if order == "NCHW" else "channels", images * s.C, MAX_GRID_YZ, "for blocks of pixels"),
        ("images C x H x W x N", s.C * s.H * s.W * s.N, 2**31 - 1, "for blocks of pixels"),
    ))


FAMILY = Family("blocks", (FILTERS, BLOCKS), reference_blocks, ("data",), unsupported_reason, candidates)
