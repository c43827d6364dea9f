"""Winograd convolution: tiles of m x m outputs from a x a inputs, a = m + r - 1, by a x a multiplications instead of
m x m x r x r for each channel and filter. Maps and filters are transformed to a x a planes, the planes multiplied as
matrices (gemm), and the results transformed back, with the epilogue. Matrices: toomcook.py.

Both layouts, any sizes, padding implicit; layers whose planes would take too much memory are cut into runs of images.
A tile that holds a NaN, an infinity or sums beyond float32 may be lost as a whole, for all filters; nothing outside of
it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import ShapeError
from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..common import layout
from ..common.correlation import Correlation, correlations, maps_of
from ..common.epilogue import ACTIVATION_FLAGS, epilogue_of
from ..common.fastdiv import divisor
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, round_up, within
from ..common.workspace import Draft, part
from ..gemm import tensor_cores
from ..gemm.maxwell import GROUP, KERNELS, ProductKernel
from ..gemm.plan import Matrices, multiply
from ..gemm.sm90 import NATIVE
from ..spec import Candidates, Family, strided_reason
from . import maxwell, sm90
from .maxwell import LAYER, TransformKernel
from .reference import reference
from .toomcook import TABLE, Points, groups

_MOST = 64  # units of a CTA
_MOST_RUNS = 4096  # of images, one after the other
_FEWER = (1, 2, 4)  # times fewer channels may be summed at once: most of the error comes from adding to large sums
_LATENCY = 2500  # clocks of a CTA alone that are no issue slot: loads, stores; assumed


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


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = not_of_tiles(s, {points.taps for points in TABLE})
    if refused:
        return refused
    if problem.kind == "forward" and max(s.pad_h, s.pad_w) >= s.R:
        return f"padding {s.pad_h}x{s.pad_w} of filters {s.R}x{s.S}, which leaves results without terms"
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    (s,) = correlations(problem)
    layout, c = "tn" if problem.layout == "CHWN" else "nn", s.C
    serving = [p for p in TABLE if p.taps == s.R and p.serves(max(s.pad_h, s.pad_w))]
    found = {name(p, label): partial(fitted, _plan, problem, p, TensorProducts(chip, spec))
             for p in serving for label, spec in tensor_cores.LABELS.items()}
    return found | {name(p, spec.label + f"_parts{-(-c // some)}" * (some < most)):
            partial(fitted, _plan, problem, p, FloatProducts(spec, some))
            for p in serving for spec in (*KERNELS, *NATIVE)
            if spec.layout == layout and not (spec.arch and spec.slices < 2 and p.needs_slices(c))
            for most in (p.together(c, spec.slices if spec.arch else 0),)
            for some in sorted({min(most, groups(most // fewer)) for fewer in _FEWER}, reverse=True)}


def name(points: Points, kernel: str) -> str:
    """Of a candidate."""
    return f"winograd_{points.outputs}x{points.outputs}_{points.taps}x{points.taps}_{kernel}"


def _plan(problem: Problem, points: Points, products: "FloatProducts | TensorProducts") -> Plan:
    draft = Draft(problem)
    layer = Layer(draft, points)
    s = layer.s
    images = readable(draft, maps_of(problem), s.C, s.H, s.W)
    layer.transform_filters()
    multiply_planes = products.prepare(layer)
    count = images_at_once(problem, layer, sum(draft.regions.values()))
    for first in range(0, s.N, count):
        layer.run(multiply_planes, images, first, min(count, s.N - first))
    m, r = points.outputs, points.taps
    tiles = s.N * layer.rows * layer.columns
    saved = s.N * s.P * s.Q * r * r / (tiles * layer.planes)
    draft.notes.append(f"F({m}x{m}, {r}x{r}): {saved:.2f} times fewer multiplications than a direct convolution")
    if count < s.N:
        draft.notes.append(f"{-(-s.N // count)} runs of at most {count} images, whose planes fit the workspace")
    draft.notes += products.notes(s.C)
    return draft.plan(FAMILY, products.spec, layer.error(products.together(s.C)))


def readable(draft: Draft, role: str, c: int, h: int, w: int) -> str:
    """Where an operand is read as a texture: a copy if it begins where none may."""
    problem, n = draft.problem, draft.problem.shape.N
    if problem.operand(role).alignment == Alignment.TEXTURE:
        return role
    size = (c, h, w, n) if problem.layout == "CHWN" else (n * c, 1, h, w)
    return draft.padded(f"{role}_copy", role, size, size[1:], (0, 0),
                        f"{role} are copied: they begin where no texture may")


class Tiled:
    """A correlation in tiles: planes of them, rows and columns of an image, and of the filters' planes."""

    s: Correlation
    planes: int
    rows: int
    columns: int
    filter_row: int
    filter_plane: int

    def __init__(self, draft: Draft) -> None:
        (self.s,) = correlations(draft.problem)
        self.draft, self.problem = draft, draft.problem
        self.chwn = self.problem.layout == "CHWN"

    @property
    def filter_planes(self) -> Matrices:
        """What transform_filters makes."""
        return Matrices("filter_planes", self.filter_row, self.filter_plane)

    def output(self, first: int) -> dict[str, Value]:
        """The parameters of a launch that writes results from an image on."""
        return result_values(self.problem, self.s, first)


def images_at_once(problem: Problem, layer: Tiled, other: int, parts: int = 1) -> int:
    """How many images a run may have: few enough for workspace, textures and counts of elements. `parts`: of filters,
    each with planes of maps of its own."""
    s = layer.s
    bytes_left = (2**63 if problem.most_workspace is None else problem.most_workspace) - other - 3 * REGION_ALIGNMENT
    limits = [(bytes_left // FLOAT_BYTES, layer.planes * (parts * s.C + s.K)),
              (TEXEL_FLOATS * MAX_TEXELS, layer.planes * parts * s.C),
              (MAX_ELEMENTS, layer.planes * s.K), (2**31 - _MOST, 1)]
    if problem.layout == "NCHW":
        limits.append((MAX_TEXELS - REGION_ALIGNMENT, -(-s.C * s.H * s.W // (layer.rows * layer.columns))))
    most = min((limit // elements - TEXEL_FLOATS) // (layer.rows * layer.columns) for limit, elements in limits)
    if most < 1:
        least = FLOAT_BYTES * layer.planes * (parts * s.C + s.K) * (layer.rows * layer.columns + TEXEL_FLOATS)
        raise ShapeError(f"max_workspace_bytes must be at least {other + least + 3 * REGION_ALIGNMENT} for a run of "
                         f"one image (got {problem.most_workspace} for {s})")
    runs = -(-s.N // most)
    if runs > _MOST_RUNS:
        raise ShapeError(f"runs of images must be at most {_MOST_RUNS} (got {runs} of {most} images, what {bytes_left} "
                         f"bytes of workspace have room for, for {s})")
    return -(-s.N // runs)


def fitted(make: Callable[..., Plan], problem: Problem, *args: Any) -> Plan:
    """A plan of runs of images that the workspace has room for. What `make` does not know when it cuts them, pieces and
    parts of sums, may take more; then it is told of less room. Raises ShapeError where none is left."""
    plan, most = make(problem, *args), problem.most_workspace
    if most is None or plan.workspace_bytes <= most:
        return plan
    whole = make(replace(problem, most_workspace=None), *args)  # runs have parts of sums, which it has not
    room, least = most, min(plan.workspace_bytes, whole.workspace_bytes)
    if whole.workspace_bytes <= most:
        plan = whole
    while plan.workspace_bytes > most:
        least = min(least, plan.workspace_bytes)
        room = room * most // plan.workspace_bytes
        try:
            plan = make(replace(problem, most_workspace=room), *args)
        except ShapeError:
            raise ShapeError(f"max_workspace_bytes must be at least {least} for these runs of images (got {most} for "
                             f"{problem.shape})") from None
    return replace(plan, problem=problem)


class Layer(Tiled):
    """What the launches of a layer have in common. `rows_of_channels`: planes of filters have a row for each channel,
    else for each filter; by the layout if it is None."""

    def __init__(self, draft: Draft, points: Points, rows_of_channels: bool | None = None) -> None:
        super().__init__(draft)
        self.points, s = points, self.s
        self.rows, self.columns = -(-s.P // points.outputs), -(-s.Q // points.outputs)
        self.planes = points.inputs**2
        self.rows_of_channels = self.chwn if rows_of_channels is None else rows_of_channels
        outer, inner = (s.C, s.K) if self.rows_of_channels else (s.K, s.C)
        self.filter_row = round_up(inner, TEXEL_FLOATS)
        self.filter_plane = outer * self.filter_row
        _check_limits(self)

    def kernel(self, step: str) -> TransformKernel:
        return LAYER[self.points, step, "" if step == "filters" else self.problem.layout]

    def error(self, together: int | None = None) -> float:
        """Documented for sums of so many channels at a time."""
        s, r = self.s, self.points.taps
        return self.points.expected_error(s.C, max(s.pad_h, s.pad_w, 0), min(r - s.pad_h, s.H), min(r - s.pad_w, s.W),
                                          together)

    def transform_filters(self) -> None:
        """To region `filter_planes`."""
        s, lies = self.s, layout.filters(self.problem)
        r, start = s.R * s.S, 0
        outer, inner = (s.C, "C"), (s.K, "K")
        step_r, step_s = lies.steps("RS")
        if self.problem.kind == "data":  # channels and filters exchanged, the last tap first
            outer, inner = (s.C, "K"), (s.K, "C")
            start, step_r, step_s = (s.R - 1) * (step_r + step_s), -step_r, -step_s
        if not self.rows_of_channels:
            outer, inner = inner, outer
        values: dict[str, Value] = {
            "planes": self.draft.region("filter_planes", self.planes * self.filter_plane), "filters": "filters",
            "inner": inner[0], "row": self.filter_row, "plane": self.filter_plane, "start": start,
            "step_outer": lies[outer[1]], "step_inner": lies[inner[1]], "step_r": step_r % 2**32,
            "step_s": step_s % 2**32}
        nbytes = FLOAT_BYTES * outer[0] * inner[0] * (r + self.planes)
        self.draft.launches.append(transform(
            self.kernel("filters"), inner[0], outer[0], values, nbytes,
            f"filters are transformed to {self.planes} planes", "filter_planes"))

    def run(self, multiply_planes: "MultiplyPlanes", images: str, first: int, count: int) -> None:
        """The launches for some images."""
        s, points, region = self.s, self.points, self.draft.region
        tile = self.tile(count)
        tiles, row = tile["tiles"], tile["row"]
        map_plane, out_plane = s.C * row, s.K * row
        maps, sums = region("map_planes", self.planes * map_plane), region("out_planes", self.planes * out_plane)
        self.transform_maps(images, first, count, tile)
        multiply_planes(ProductShape(s.K, tiles, s.C, self.planes), Matrices(maps, row, map_plane),
                        Matrices(sums, row, out_plane))
        values = tile | {"planes": sums, "plane": out_plane} | self.output(first)
        nbytes = FLOAT_BYTES * (self.planes * out_plane + count * s.K * s.P * s.Q * (1 + self.problem.reads_out))
        doing = f"results of tiles of {points.outputs} x {points.outputs} are transformed back"
        self.draft.launches.append(transform(self.kernel("out"), tiles, s.K, values, nbytes, doing, "out"))

    def transform_maps(self, images: str, first: int, count: int, tile: Mapping[str, int]) -> None:
        """Of some images, to region `map_planes`."""
        s, a = self.s, self.points.inputs
        self.transform_textures(
            self.kernel("maps"), images, "map_planes", (s.C, s.H, s.W), (s.pad_h, s.pad_w), first, count, tile,
            f"tiles of {a} x {a} of the maps are transformed to {self.planes} planes")

    def transform_textures(self, spec: TransformKernel, source: str, planes: str, size: tuple[int, int, int],
                           padding: tuple[int, int], first: int, count: int, tile: Mapping[str, int],
                           doing: str) -> None:
        """A launch, or, where a texture does not reach all of C,H,W,N, one for each run of channels."""
        c, h, w = size
        lies = layout.maps(self.problem.layout, self.s.N, c, h, w)
        most = c
        if self.chwn and lies.extent > MAX_TEXELS:
            most = (MAX_TEXELS - REGION_ALIGNMENT) // lies["C"]
        for channel in range(0, c, most):
            channels = min(most, c - channel)
            start = FLOAT_BYTES * (first * lies["N"] + channel * lies["C"])
            base = start // REGION_ALIGNMENT * REGION_ALIGNMENT if lies.extent > MAX_TEXELS else 0
            values: dict[str, Value] = {
                **tile, "planes": part(planes, channel * tile["row"]), "plane": c * tile["row"],
                **map_values(lies, padding, (start - base) // FLOAT_BYTES)}
            nbytes = FLOAT_BYTES * channels * (count * h * w + self.planes * tile["row"])
            self.draft.launches.append(transform(spec, tile["tiles"], channels, values, nbytes, doing, planes,
                                                 {"tex_I": Part(source, base) if base else source}))

    def tile(self, count: int) -> dict[str, Any]:
        """The parameters that say where the tiles of so many images lie in planes."""
        tiles = count * self.rows * self.columns
        d0, d1 = (count, self.columns) if self.chwn else (self.columns, self.rows)
        return {"tiles": tiles, "row": round_up(tiles, TEXEL_FLOATS)} | divisor("d0", d0, tiles + _MOST) | divisor(
            "d1", d1, tiles + _MOST)


MultiplyPlanes = Callable[[ProductShape, Matrices, Matrices], None]
"""Adds the launches that multiply the planes of the filters by planes of maps: their sizes, the maps, what is made."""


@dataclass(frozen=True)
class FloatProducts:
    """By the kernels of matrix products, with sums of at most so many channels at a time."""

    spec: ProductKernel
    channels: int

    def prepare(self, layer: Layer) -> MultiplyPlanes:
        run = self.channels if self.channels < layer.s.C else 0
        return lambda shape, maps, out: layer.draft.add(
            multiply(self.spec, shape, layer.filter_planes, maps, out, vectors=True, run=run))

    def together(self, c: int) -> int:
        """How many of the channels are summed at once."""
        return min(self.channels, GROUP * self.spec.share(self.channels, 1))

    def notes(self, c: int) -> list[str]:
        text = f"sums of {self.channels} channels at a time are added, which makes smaller errors"
        return [text] if self.channels < c else []


@dataclass(frozen=True)
class TensorProducts:
    """On the tensor cores of a chip, from planes split in FP16 parts: those of the filters once, of the maps by run or
    by the kernel that multiplies."""

    chip: Chip
    spec: tensor_cores.TensorKernel

    def prepare(self, layer: Layer) -> MultiplyPlanes:
        s, draft, planes = layer.s, layer.draft, layer.planes
        filters = tensor_cores.split(draft, "filter_pieces", layer.filter_planes, s.K, s.C, planes,
                                     not layer.rows_of_channels)
        return partial(tensor_cores.multiply_maps, draft, self.chip, self.spec, filters)

    def together(self, c: int) -> int:
        """How many of the channels are summed at once."""
        return min(c, tensor_cores.CHUNK)

    def notes(self, c: int) -> list[str]:
        return [tensor_cores.NOTE]


def map_values(lies: layout.Layout, padding: tuple[int, int], start: int) -> dict[str, Value]:
    """The parameters of a launch that reads tiles of maps."""
    _, _, h, w = (lies.shape[lies.axes.index(axis)] for axis in "NCHW")
    return {"h": h, "w": w, "pad_h": padding[0] % 2**32, "pad_w": padding[1] % 2**32, "map_start": start,
            **dict(zip(("map_image", "map_channel", "map_row", "map_col"), lies.steps("NCHW"), strict=True))}


def result_values(problem: Problem, s: Correlation, first: int = 0) -> dict[str, Value]:
    """The parameters of a launch that writes results from an image on."""
    out = s.results(problem.layout)
    return epilogue_of(problem).values() | {
        "out": part("out", first * out["N"]), "p": s.P, "q": s.Q,
        **dict(zip(("out_image", "out_k", "out_row", "out_col"), out.steps("NCHW"), strict=True))}


def transform(spec: TransformKernel, x: int, y: int, values: Mapping[str, Value], nbytes: int, doing: str, writes: str,
              textures: Mapping[str, str | Part] | None = None) -> Launch:
    """A launch of a transform for x inner and y outer indices."""
    grid = -(-x // spec.units), y, 1
    work = Work(grid[0] * y, nbytes, Cost(spec.slots, spec.slots / SCHEDULERS + _LATENCY))
    return Launch(spec, grid, values, work, doing, (writes,), textures or {})


def _check_limits(layer: Layer) -> None:
    s = layer.s
    image = s.C * s.H * s.W if not layer.chwn else s.H * s.W * s.N
    within(s, (
        ("a map of all images" if layer.chwn else "an image", image, MAX_TEXELS - REGION_ALIGNMENT,
         "elements, the reach of a texture of single floats"),
        ("images N x C x H x W", s.N * s.C * s.H * s.W, MAX_ELEMENTS, "elements"),
        ("output K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS, "elements"),
        ("planes of the filters", layer.planes * layer.filter_plane, TEXEL_FLOATS * MAX_TEXELS, "elements"),
        ("channels C", s.C, MAX_GRID_YZ, "channels, blocks along y of a grid"),
        ("filters K", s.K, MAX_GRID_YZ, "filters, blocks along y of a grid"),
    ))


FAMILY = Family("winograd", (*maxwell.KERNELS, *sm90.KERNELS), reference, ("forward", "data"), unsupported_reason,
                candidates, "winograd", tuple(ACTIVATION_FLAGS))
