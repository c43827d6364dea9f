"""Winograd convolution: tiles of m x m outputs from a x a inputs, a = m + r - 1, by a x a multiplications instead of
m x m x r x r for each channel and filter. Maps and filters are transformed to a x a planes, the planes multiplied as
matrices (product.py), and the results transformed back, with the fused last step. Matrices: toomcook.py.

Both layouts, any sizes, padding implicit; layers whose planes would take too much memory are cut into runs of images.
A tile that holds a NaN, an infinity or sums beyond float32 may be lost as a whole, for all filters; nothing outside of
it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...errors import ShapeError
from ...planning.cost import SCHEDULERS, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value, make
from ...problem.problem import LAYOUTS, Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..common.correlation import Correlation, correlations, maps_of
from ..gemm import plan as gemm
from ..implicit_gemm.maxwell import magic
from ..memory_ops.plan import MAX_GRID_YZ, pad
from ..spec import Candidates, Family, Memory, finish, fused, refuses_strided, seen, within
from .toomcook import GRADIENTS, TABLE, Points, groups, matrices

_MOST = 64  # units of a block
_MOST_RUNS = 4096  # of images, one after the other
VECTOR = 4  # floats of the texels that products read
MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits
_FEWER = (1, 2, 4)  # times fewer channels may be summed at once: most of the error comes from adding to large sums
_LATENCY = 2500  # clocks of a block alone that are no issue slot: loads, stores


@dataclass(frozen=True)
class TransformKernel(KernelSpec):
    """`step`: "maps", "gradients", "filters" or "out". `layout`: of the maps or results. `slots`: issue slots of a
    block."""

    points: Points
    step: str
    layout: str
    slots: int

    @property
    def units(self) -> int:
        """Of a block: tiles, or filters of a channel."""
        return 64 if self.points.inputs == 4 or self.step == "maps" else 32


def _kernel(points: Points, step: str, layout: str, slots: int) -> TransformKernel:
    m, r = points.outputs, points.taps
    name = f"swinograd_{step}_{m}x{m}_{r}x{r}" + f"_{layout}" * bool(layout)
    source = "maps" if step == "gradients" else step
    doc = f"Transform of a Winograd convolution: see winograd_{source}.inc."
    return TransformKernel(name, f"winograd_{source}.sass", doc, points, step, layout, slots)


_SLOTS = {  # issue slots of a block: maps and results in C,H,W,N and in N,C,H,W, filters
    (2, 3): ((712, 712), (596, 596), 536),
    (4, 3): ((1488, 1838), (828, 828), 507),
    (3, 5): ((2408, 2408), (799, 844), 1148),
    (4, 5): ((2672, 2672), (924, 924), 1196),
}
_OF_GRADIENTS = {(3, 4): (725, 558), (5, 4): (924, 1210)}  # gradients, results
_KERNELS: Mapping[tuple[Points, str, str], TransformKernel] = {
    (points, step, layout): _kernel(points, step, layout, slots)
    for points in TABLE for maps, out, filters in (_SLOTS[points.outputs, points.taps],)
    for step, layout, slots in (*zip(("maps",) * 2, LAYOUTS, maps, strict=True),
                                *zip(("out",) * 2, LAYOUTS, out, strict=True), ("filters", "", filters))}
OF_GRADIENTS: Mapping[tuple[Points, str, str], TransformKernel] = {
    (points, step, layout): _kernel(points, step, layout, slots)
    for points in GRADIENTS for gradients, out in (_OF_GRADIENTS[points.outputs, points.taps],)
    for step, layout, slots in (*(("gradients", layout, gradients) for layout in LAYOUTS), ("out", "", out))}
"""The kernels of winograd_gradients.py."""

KERNELS = (*_KERNELS.values(), *OF_GRADIENTS.values())


def not_of_tiles(s: ConvShape, filters: set[int]) -> str | None:
    """What of a layer keeps it from tiles, where there are points for filters of these heights."""
    if s.stride != (1, 1):
        return f"stride {s.str_h}x{s.str_w}"
    if s.dilation != (1, 1):
        return f"dilation {s.dil_h}x{s.dil_w}"
    if s.groups != 1:
        return f"{s.groups} groups"
    if s.R != s.S or s.R not in filters:
        return f"filters of {s.R}x{s.S}"
    return None


def refuses(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = not_of_tiles(s, {points.taps for points in TABLE})
    if refused:
        return refused
    if problem.kind == "forward" and max(s.pad_h, s.pad_w) >= s.R:
        return f"padding {s.pad_h}x{s.pad_w} of filters {s.R}x{s.S}, which leaves results without terms"
    return refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    (s,) = correlations(problem)
    layout, c = "tn" if problem.layout == "CHWN" else "nn", s.C
    serving = [p for p in TABLE if p.taps == s.R and p.serves(max(s.pad_h, s.pad_w))]
    return {f"winograd_{p.outputs}x{p.outputs}_{p.taps}x{p.taps}_{spec.label}"
            + f"_parts{-(-c // some)}" * (some < most): partial(_plan, problem, p, spec, some)
            for p in serving for spec in (*gemm.KERNELS, *gemm.NATIVE)
            if spec.layout == layout and not (spec.arch and spec.slices < 2 and p.needs_slices(c))
            for most in (p.together(c, spec.slices if spec.arch else 0),)
            for some in sorted({min(most, groups(most // fewer)) for fewer in _FEWER}, reverse=True)}


def _plan(problem: Problem, points: Points, spec: gemm.ProductKernel, channels: int) -> Plan:
    """With sums of at most so many channels at a time."""
    layer = Layer(problem, points)
    s = layer.s
    regions: dict[str, int] = {}
    launches: list[Launch] = []

    def region(name: str, elements: int) -> str:
        regions[name] = max(FLOAT_BYTES * elements, regions.get(name, 0))
        return name
    images = maps_of(problem)
    if problem.operand(images).alignment < Alignment.TEXTURE:
        images = region("images_copy", s.N * s.C * s.H * s.W)
        launches.append(copied(problem, s, images))
    region("filter_planes", layer.planes * layer.filter_plane)
    launches.append(layer.transform_filters())
    count = images_at_once(problem, layer, sum(regions.values()))
    for first in range(0, s.N, count):
        launches += layer.run(spec, channels, images, first, min(count, s.N - first), region)
    m, r = points.outputs, points.taps
    tiles = s.N * layer.rows * layer.columns
    saved = s.N * s.P * s.Q * r * r / (tiles * layer.planes)
    notes = [f"F({m}x{m}, {r}x{r}): {saved:.2f} times fewer multiplications than a direct convolution"]
    if count < s.N:
        notes.append(f"{-(-s.N // count)} runs of at most {count} images, whose planes fit the workspace")
    if channels < s.C:
        notes.append(f"sums of {channels} channels at a time are added, which makes smaller errors")
    error = points.expected_error(s.C, max(s.pad_h, s.pad_w, 0), min(r - s.pad_h, s.H), min(r - s.pad_w, s.W),
                                  min(channels, gemm.GROUP * spec.share(channels, 1)))
    return make(problem, "winograd", spec, launches, regions, notes, error)


def copied(problem: Problem, s: Correlation, name: str) -> Launch:
    sizes = (s.C, s.H, s.W, s.N) if problem.layout == "CHWN" else (s.N * s.C, 1, s.H, s.W)
    maps = maps_of(problem)
    return pad(name, maps, sizes, sizes[1:], (0, 0), f"{maps} are copied: they begin where no texture may")


def images_at_once(problem: Problem, layer: "Layer", other: int) -> int:
    """How many images a run may have: few enough for workspace, textures and counts of elements."""
    s = layer.s
    bytes_left = (2**63 if problem.most_workspace is None else problem.most_workspace) - other - 3 * REGION_ALIGNMENT
    limits = [(bytes_left // FLOAT_BYTES, layer.planes * (s.C + s.K)), (VECTOR * MAX_TEXELS, layer.planes * s.C),
              (MAX_ELEMENTS, layer.planes * s.K), (2**31 - _MOST, 1)]
    if problem.layout == "NCHW":
        limits.append((MAX_TEXELS - REGION_ALIGNMENT, -(-s.C * s.H * s.W // (layer.rows * layer.columns))))
    most = min((limit // elements - VECTOR) // (layer.rows * layer.columns) for limit, elements in limits)
    if most < 1:
        least = FLOAT_BYTES * layer.planes * (s.C + s.K) * (layer.rows * layer.columns + VECTOR)
        raise ShapeError(f"max_workspace_bytes must be at least {other + least + 3 * REGION_ALIGNMENT} for a run of "
                         f"one image (got {problem.most_workspace} for {s})")
    runs = -(-s.N // most)
    if runs > _MOST_RUNS:
        raise ShapeError(f"runs of images must be at most {_MOST_RUNS} (got {runs} of {most} images, what {bytes_left} "
                         f"bytes of workspace have room for, for {s})")
    return -(-s.N // runs)


class Layer:
    """What the launches of a layer have in common. `rows_of_channels`: planes of filters have a row for each channel,
    else for each filter; by the layout if it is None."""

    def __init__(self, problem: Problem, points: Points, rows_of_channels: bool | None = None) -> None:
        (s,) = correlations(problem)
        self.problem, self.points, self.s = problem, points, s
        self.chwn = problem.layout == "CHWN"
        self.rows, self.columns = -(-s.P // points.outputs), -(-s.Q // points.outputs)
        self.planes = points.inputs**2
        self.rows_of_channels = self.chwn if rows_of_channels is None else rows_of_channels
        outer, inner = (s.C, s.K) if self.rows_of_channels else (s.K, s.C)
        self.filter_row = _round_up(inner)
        self.filter_plane = outer * self.filter_row
        _check_limits(self)

    def kernel(self, step: str) -> TransformKernel:
        return _KERNELS[self.points, step, "" if step == "filters" else self.problem.layout]

    def transform_filters(self) -> Launch:
        s, spec = self.s, self.kernel("filters")
        r = s.R * s.S
        start = 0
        if self.problem.kind == "data":  # channels and filters exchanged, the last tap first
            steps = (1, r * s.C, -s.S * s.C, -s.C) if self.chwn else (s.K * r, r, -s.S, -1)
            start = -(s.R - 1) * (steps[2] + steps[3])
        else:
            steps = (r * s.K, 1, s.S * s.K, s.K) if self.chwn else (r, s.C * r, s.S, 1)
        (outer, outer_step), (inner, inner_step) = (s.C, steps[0]), (s.K, steps[1])
        if not self.rows_of_channels:
            (outer, outer_step), (inner, inner_step) = (inner, inner_step), (outer, outer_step)
        wrapped = [step % 2**32 for step in (outer_step, inner_step, *steps[2:])]
        values: dict[str, Value] = {
            "planes": "filter_planes", "filters": "filters", "inner": inner, "row": self.filter_row,
            "plane": self.filter_plane, "start": start,
            **dict(zip(("step_outer", "step_inner", "step_r", "step_s"), wrapped, strict=True))}
        nbytes = FLOAT_BYTES * outer * inner * (r + self.planes)
        return transform(spec, inner, outer, values, nbytes, f"filters are transformed to {self.planes} planes",
                       "filter_planes")

    def run(self, spec: gemm.ProductKernel, channels: int, images: str, first: int, count: int,
            region: Callable[[str, int], str]) -> list[Launch]:
        """The launches for some images."""
        s, points = self.s, self.points
        tile = self.tile(count)
        tiles, row = tile["tiles"], tile["row"]
        map_plane, out_plane = s.C * row, s.K * row
        maps, sums = region("map_planes", self.planes * map_plane), region("out_planes", self.planes * out_plane)
        made = self.transform_maps(images, first, count, tile)
        made += gemm.multiply(
            spec, ProductShape(s.K, row, s.C, self.planes),
            gemm.Matrices("filter_planes", self.filter_row, self.filter_plane),
            gemm.Matrices(maps, row, map_plane), gemm.Matrices(sums, row, out_plane), vectors=True,
            run=channels if channels < s.C else 0)
        steps = (1, s.P * s.Q * s.N, s.Q * s.N, s.N) if self.chwn else (s.K * s.P * s.Q, s.P * s.Q, s.Q, 1)
        at = FLOAT_BYTES * first * steps[0]
        values = tile | fused(self.problem, 0) | {
            "out": Part("out", at) if at else "out", "planes": sums, "plane": out_plane, "p": s.P, "q": s.Q,
            **dict(zip(("out_image", "out_k", "out_row", "out_col"), steps, strict=True))}
        nbytes = FLOAT_BYTES * (self.planes * out_plane + count * s.K * s.P * s.Q * (1 + self.problem.reads_out))
        doing = f"results of tiles of {points.outputs} x {points.outputs} are transformed back"
        return [*made, transform(self.kernel("out"), tiles, s.K, values, nbytes, doing, "out")]

    def transform_maps(self, images: str, first: int, count: int, tile: Mapping[str, int]) -> list[Launch]:
        """Of some images, to region `map_planes`."""
        s, a = self.s, self.points.inputs
        return self.transform_textures(
            self.kernel("maps"), images, "map_planes", (s.C, s.H, s.W), (s.pad_h, s.pad_w), first, count, tile,
            f"tiles of {a} x {a} of the maps are transformed to {self.planes} planes")

    def transform_textures(self, spec: TransformKernel, source: str, planes: str, size: tuple[int, int, int],
                           padding: tuple[int, int], first: int, count: int, tile: Mapping[str, int],
                           doing: str) -> list[Launch]:
        """A launch, or, where a texture does not reach all of C,H,W,N, one for each run of channels."""
        (c, h, w), n = size, self.s.N
        steps = (1, h * w * n, w * n, n) if self.chwn else (c * h * w, h * w, w, 1)
        elements, most = n * c * h * w, c
        if self.chwn and elements > MAX_TEXELS:
            most = (MAX_TEXELS - REGION_ALIGNMENT) // steps[1]
        made = []
        for channel in range(0, c, most):
            channels = min(most, c - channel)
            start = FLOAT_BYTES * (first * steps[0] + channel * steps[1])
            base = start // REGION_ALIGNMENT * REGION_ALIGNMENT if elements > MAX_TEXELS else 0
            place = FLOAT_BYTES * channel * tile["row"]
            values: dict[str, Value] = {
                **tile, "planes": Part(planes, place) if place else planes, "h": h, "w": w,
                "pad_h": padding[0] % 2**32, "pad_w": padding[1] % 2**32, "plane": c * tile["row"],
                "map_start": (start - base) // FLOAT_BYTES,
                **dict(zip(("map_image", "map_channel", "map_row", "map_col"), steps, strict=True))}
            nbytes = FLOAT_BYTES * channels * (count * h * w + self.planes * tile["row"])
            made.append(transform(spec, tile["tiles"], channels, values, nbytes, doing, planes,
                                  {"tex_I": Part(source, base) if base else source}))
        return made

    def tile(self, count: int) -> dict[str, int]:
        """The parameters that say where the tiles of so many images lie in planes."""
        tiles = count * self.rows * self.columns
        found = {"tiles": tiles, "row": _round_up(tiles)}
        for i, size in enumerate((count, self.columns) if self.chwn else (self.columns, self.rows)):
            found[f"d{i}"] = size
            found[f"d{i}_magic"], found[f"d{i}_shift"] = magic(size, tiles + _MOST)
        return found


def transform(spec: TransformKernel, x: int, y: int, values: Mapping[str, Value], nbytes: int, doing: str, writes: str,
              textures: Mapping[str, str | Part] | None = None) -> Launch:
    """A launch of a transform for x inner and y outer indices."""
    grid = -(-x // spec.units), y, 1
    work = Work(grid[0] * y, spec.slots, spec.slots / SCHEDULERS + _LATENCY, nbytes)
    return Launch(spec, grid, values, work, doing, (writes,), textures or {})


def _round_up(n: int) -> int:
    return -(-n // VECTOR) * VECTOR


def _check_limits(layer: Layer) -> None:
    s = layer.s
    image = s.C * s.H * s.W if not layer.chwn else s.H * s.W * s.N
    within(s, (
        ("a map of all images" if layer.chwn else "an image", image, MAX_TEXELS - REGION_ALIGNMENT,
         "elements, the reach of a texture of single floats"),
        ("images N x C x H x W", s.N * s.C * s.H * s.W, MAX_ELEMENTS, "elements"),
        ("output K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS, "elements"),
        ("planes of the filters", layer.planes * layer.filter_plane, VECTOR * MAX_TEXELS, "elements"),
        ("channels C", s.C, MAX_GRID_YZ, "channels, blocks along y of a grid"),
        ("filters K", s.K, MAX_GRID_YZ, "filters, blocks along y of a grid"),
    ))


# -- what the kernels promise -----------------------------------------------------------------------------------------


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    spec, v = launch.spec, launch.numbers
    assert isinstance(spec, TransformKernel)
    {"maps": _maps_contract, "gradients": _maps_contract,
     "filters": _filters_contract, "out": _out_contract}[spec.step](launch, spec, v, memory,
                                                                                          scalars)


def twice(matrix: tuple[tuple[object, ...], ...], values: np.ndarray) -> np.ndarray:
    """The matrix along both last axes."""
    by = np.array([[float(x) for x in row] for row in matrix])  # type: ignore[arg-type]
    return by @ values @ by.T


def _digits(v: Mapping[str, int], layout: str) -> tuple[np.ndarray, ...]:
    """Image, tile row and tile column of each tile."""
    j = np.arange(v["tiles"])
    rest = (j + 1) * v["d0_magic"] >> 32 + v["d0_shift"]
    i2 = (rest + 1) * v["d1_magic"] >> 32 + v["d1_shift"]
    i0, i1 = j - rest * v["d0"], rest - i2 * v["d1"]
    return (i2, i1, i0) if layout == "NCHW" else (i0, i2, i1)


def _planes(v: Mapping[str, int], outer: int, inner: int) -> np.ndarray:
    """Where the values of plane 0 lie: outer x inner."""
    return np.arange(outer)[:, None] * v["row"] + np.arange(inner)


def tiles_of(launch: Launch, memory: Memory, layout: str, step: int, side: int, channels: int) -> np.ndarray:
    """Tiles of side x side of a launch's maps, so many rows and columns apart, zero where no map is: channels x tiles
    x side x side."""
    v = launch.numbers
    image, row, column = _digits(v, layout)
    pad_h, pad_w = (v[name] - (v[name] >> 31 << 32) for name in ("pad_h", "pad_w"))
    y = (row * step - pad_h)[:, None] + np.arange(side)
    x = (column * step - pad_w)[:, None] + np.arange(side)
    inside = ((y >= 0) & (y < v["h"]))[:, :, None] & ((x >= 0) & (x < v["w"]))[:, None, :]
    texels = seen(memory, launch.textures["tex_I"])
    at = v["map_start"] + (image * v["map_image"])[:, None, None] + y[:, :, None] * v["map_row"] + x[:, None, :] * v[
        "map_col"]
    at = np.where(inside, at, 0) + (np.arange(channels) * v["map_channel"])[:, None, None, None]
    return np.where(inside, texels[at], 0).astype(float)


def _maps_contract(launch: Launch, spec: TransformKernel, v: Mapping[str, int], memory: Memory, _: object) -> None:
    a, m, side, by = spec.points.inputs, spec.points.outputs, spec.points.inputs, matrices(spec.points).B
    if spec.step == "gradients":
        m = side = spec.points.taps
        by = matrices(spec.points).G
    assert launch.grid[0] == -(-v["tiles"] // spec.units)
    tiles = tiles_of(launch, memory, spec.layout, m, side, launch.grid[1])
    found, out = twice(by, tiles), seen(memory, launch.values["planes"])
    for t in range(a * a):
        out[t * v["plane"] + _planes(v, launch.grid[1], v["tiles"])] = found[..., t // a, t % a]


def _filters_contract(launch: Launch, spec: TransformKernel, v: Mapping[str, int], memory: Memory, _: object) -> None:
    a, r, outer = spec.points.inputs, spec.points.taps, launch.grid[1]
    assert launch.grid[0] == -(-v["inner"] // spec.units)
    step_r, step_s = (v[name] - (v[name] >> 31 << 32) for name in ("step_r", "step_s"))
    at = (v["start"] + np.arange(outer)[:, None, None, None] * v["step_outer"]
          + np.arange(v["inner"])[:, None, None] * v["step_inner"] + np.arange(r)[:, None] * step_r
          + np.arange(r) * step_s)
    found = twice(matrices(spec.points).G, seen(memory, launch.values["filters"])[at].astype(float))
    out = seen(memory, launch.values["planes"])
    for t in range(a * a):
        out[t * v["plane"] + _planes(v, outer, v["inner"])] = found[..., t // a, t % a]


def _out_contract(launch: Launch, spec: TransformKernel, v: Mapping[str, int], memory: Memory,
                  scalars: Mapping[str, float]) -> None:
    a, filters = spec.points.inputs, launch.grid[1]
    assert launch.grid[0] == -(-v["tiles"] // spec.units)
    planes = seen(memory, launch.values["planes"])
    sums = np.stack([planes[t * v["plane"] + _planes(v, filters, v["tiles"])] for t in range(a * a)], -1).astype(float)
    transformed_back(launch, memory, scalars, spec.points, spec.layout, sums)


def transformed_back(launch: Launch, memory: Memory, scalars: Mapping[str, float], points: Points, layout: str,
                     sums: np.ndarray) -> None:
    """The last step, of filters x tiles x elements of a tile."""
    a, m, v = points.inputs, points.outputs, launch.numbers
    image, row, column = _digits(v, layout)
    found = twice(matrices(points).A, sums.reshape(len(sums), -1, a, a))
    k = np.arange(len(sums))[:, None]
    for i in range(m):
        for j in range(m):
            p, q = row * m + i, column * m + j
            exists = (p < v["p"]) & (q < v["q"])
            where = k * v["out_k"] + image * v["out_image"] + p * v["out_row"] + q * v["out_col"]
            finish(launch, memory, scalars, where[:, exists], found[:, exists, i, j], k)


FAMILY = Family("winograd", KERNELS, contract, ("forward", "data"), refuses, candidates)
