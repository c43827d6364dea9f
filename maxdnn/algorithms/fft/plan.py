"""Convolution by the fast Fourier transform of tiles, overlap and save: of a transform of `side` x `side` inputs,
side + 1 - R rows and side + 1 - S columns of results are those of the layer. Real tiles have side * side / 2 complex
numbers ("slots"). For each slot the sums over channels are a real product, so that the kernels of matrix products
compute them (gemm): of [[re, im], [-im, re]] of filters and [re; im] of maps, or of [re, im] of filters and
[[re, im], [im, -re]] of maps, whose columns are then twice as many and its rows half (Form).

Larger filters are cut into parts, each a filter of its own with maps of its own.

Both layouts, any sizes, padding implicit; layers whose planes would take too much memory are cut into runs of images.
A tile that holds a NaN, an infinity or sums beyond float32 is lost as a whole, for all filters; nothing outside of it
is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape, ProductShape
from ..common import layout
from ..common.correlation import Correlation, correlations, maps_of
from ..common.fastdiv import divisor
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, round_up, within
from ..common.workspace import Draft, part
from ..gemm import tensor_cores
from ..gemm.maxwell import KERNELS as PRODUCTS
from ..gemm.maxwell import ProductKernel
from ..gemm.plan import Matrices, multiply
from ..gemm.sm90 import NATIVE
from ..spec import Candidates, Family, strided_reason
from ..winograd.plan import Tiled, fitted, images_at_once, map_values, readable
from . import sm90
from .cut import Cut
from .maxwell import KERNELS, SIDES, UNITS, TransformKernel, kernel, twiddles
from .reference import reference

_FEW_TAPS = 9  # filters with no more taps need as few multiplications in other families
_LATENCY = 6000  # clocks of a CTA, beside its issue slots, in which it waits for loads, stores and barriers; assumed
_TRANSLATED = {"maps": 2.0, "twice": 3.3, "filters": 3.8, "large": 3.8, "out": 2.2, "taps": 3.7}
"""Slots of a translation, with those that waits of phases leave empty, to a block's own: timed on an H200, but those of
"twice" and "large", which follow from "filters"; ten plans with them took 0.94 to 1.13 of what they promised there."""
_HALVES = 2.0  # the same of filters that store half of their numbers; assumed


def not_of_tiles(s: ConvShape) -> str | None:
    """Why a layer cannot be computed by FFT tiles; None if it can."""
    if s.groups != 1:
        return f"{s.groups} groups"
    return not_of_strides(s) or not_of_taps(s)


def not_of_strides(s: ConvShape) -> str | None:
    """Why its stride or dilation rules tiles out; None if they do not."""
    if s.stride != (1, 1):
        return f"stride {s.str_h}x{s.str_w}"
    if s.dilation != (1, 1):
        return f"dilation {s.dil_h}x{s.dil_w}"
    return None


def not_of_taps(s: ConvShape) -> str | None:
    """Why the size of its filters rules tiles out; None if it does not."""
    if max(s.R, s.S) > most_taps(max(SIDES)) or s.R * s.S <= _FEW_TAPS:
        return f"filters of {s.R}x{s.S}"
    return None


def most_taps(side: int) -> int:
    """The most rows or columns of a filter that tiles of this side serve, cut into at most two parts each way."""
    return side if side == max(SIDES) else side // 2


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = not_of_tiles(s)
    if refused:
        return refused
    if problem.kind == "forward" and without_terms(s):
        return without_terms(s)
    return strided_reason(problem)


def without_terms(s: ConvShape) -> str | None:
    """Why its padding rules tiles out; None if it does not."""
    if s.pad_h >= s.R or s.pad_w >= s.S:
        return f"padding {s.pad_h}x{s.pad_w} of filters {s.R}x{s.S}, which leaves results without terms"
    return None


def taps_at_a_corner(s: Correlation) -> int:
    """How many taps contribute to the output pixel at a corner: the fewest of all."""
    rows, columns = (max(1, min(taps, taps - padding, size))
                     for taps, padding, size in ((s.R, s.pad_h, s.H), (s.S, s.pad_w, s.W)))
    return rows * columns


def documented(sums: int, taps: int, terms: int) -> float:
    """The documented error of tiles whose output sums `sums` products of slots over filters of `taps` taps, relative
    to a sum of |terms| of `terms` terms (docs/fft.md)."""
    of_a_tile = 2.0**-24 * 1.5 * math.sqrt(sums * taps * (50 + 0.4 * sums))
    return of_a_tile * 4 / terms * (1 + 3 / math.sqrt(terms))


def candidates(problem: Problem, chip: Chip) -> Candidates:
    (s,) = correlations(problem)
    found: dict[str, Callable[[], Plan]] = {}
    for side in SIDES:
        if max(s.R, s.S) > most_taps(side):
            continue
        cut = Cut.best(side, s)
        tiles = s.N * cut.tiles(s)[0] * cut.tiles(s)[1]
        every: list[tuple[str, int, int, Callable[[bool], Products]]] = [
            (label, tensor_cores.TILE, tensor_cores.TILE, partial(TensorProducts, chip, spec))
            for label, spec in tensor_cores.LABELS.items()]
        every += [(spec.label, spec.rows, spec.tile, partial(FloatProducts, spec)) for spec in (*PRODUCTS, *NATIVE)
                  if spec.layout == ("tn" if problem.layout == "CHWN" else "nn")]
        for products, rows, columns, make in every:
            found[name(side, products)] = partial(fitted, _plan, problem, side, make(False))
            if _twice_pays(s.K, tiles, rows, columns):
                found[name(side, products, True)] = partial(fitted, _plan, problem, side, make(True))
    return found


def name(side: int, products: str, twice: bool = False) -> str:
    """The name of a candidate."""
    return f"fft_{side}x{side}_" + "maps_twice_" * twice + products


def _twice_pays(filters: int, tiles: int, rows: int, columns: int) -> bool:
    """Whether planes that hold the maps twice may be faster than planes that hold the filters twice, for a product
    kernel with tiles of so many rows and columns: the product has fewer CTAs, or as many and fewer numbers to read."""
    blocks = -(-2 * filters // rows) * -(-tiles // columns) - -(-filters // rows) * -(-2 * tiles // columns)
    return blocks > 0 or (blocks == 0 and filters > tiles)


def _plan(problem: Problem, side: int, products: "Products") -> Plan:
    draft = Draft(problem)
    layer = Layer(draft, side, products.form(problem))
    s = layer.s
    images = readable(draft, maps_of(problem), s.C, s.H, s.W)
    layer.transform_filters()
    multiply_slots = products.prepare(layer)
    count = images_at_once(problem, layer, sum(draft.regions.values()), layer.times * len(layer.cut))
    for first in range(0, s.N, count):
        layer.run(multiply_slots, images, first, min(count, s.N - first))
    results = layer.step[0] * layer.step[1]
    saved = s.N * s.P * s.Q * s.R * s.S / (s.N * layer.rows * layer.columns * 2 * side * side * len(layer.cut))
    draft.notes.append(f"FFT of {side} x {side} inputs for {results} results each: {saved:.2f} times fewer "
                       "multiplications than a direct convolution")
    draft.notes += layer.cut.said
    if layer.times > 1:
        draft.notes.append("planes have the numbers of maps twice, those of filters once")
    if count < s.N:
        draft.notes.append(f"{-(-s.N // count)} runs of at most {count} images, whose planes fit the workspace")
    draft.notes += products.notes
    return draft.plan(FAMILY, products.spec, layer.error)


class Form(Enum):
    """What the planes hold. `FILTERS`: the filters twice, 2 K x 2 C for each slot. `HALVES`: one row of two such
    matrices, channels x filters. `MAPS`: the maps twice, and the filters once, K x 2 C."""

    FILTERS = 1
    HALVES = 2
    MAPS = 3


class Layer(Tiled):
    """What the launches of a layer have in common. `planes`: numbers of a tile's transform. `step`: rows and columns
    of its results. `depth`: channels of all parts of the filters, whose maps lie behind one another in planes.
    `times`: columns of a tile in planes."""

    def __init__(self, draft: Draft, side: int, form: Form = Form.FILTERS) -> None:
        super().__init__(draft)
        self.side, s = side, self.s
        self.cut = Cut.best(side, s)
        self.step, self.depth = self.cut.step, s.C * len(self.cut)
        self.rows, self.columns = self.cut.tiles(s)
        self.planes, self.slots = side**2, side**2 // 2
        self.form, self.times = form, 2 if form is Form.MAPS else 1
        self.rows_of_channels = form is Form.HALVES or self.chwn
        of_group = 2 * self.depth // s.groups
        filters = s.K if form is not Form.FILTERS else 2 * s.K
        outer, inner = (of_group, filters) if self.rows_of_channels else (filters, of_group)
        self.filter_row = round_up(inner, TEXEL_FLOATS)
        self.filter_plane = outer * self.filter_row
        _check_limits(self)

    @property
    def error(self) -> float:
        """Documented: of a result at a corner."""
        return documented(self.depth, self.cut.part[0] * self.cut.part[1], self.s.C * taps_at_a_corner(self.s))

    def transform_filters(self) -> None:
        """To region `filter_planes`."""
        s = self.s
        self.draft.region("filter_planes", self.slots * self.filter_plane)
        channels, filters = self.depth * self.filter_row, s.K  # from real parts to imaginary ones
        if not self.rows_of_channels:
            channels, filters = self.depth, s.K * self.filter_row
        places = {"column": 1, "row": self.filter_row, "plane": self.filter_plane, "to_im": channels,
                  "from_im": filters if self.form is Form.FILTERS else 0}
        lies = layout.filters(self.problem)
        outer, inner = [(s.C, lies["C"]), (s.K, lies["K"])][::1 if self.rows_of_channels else -1]
        if self.problem.kind == "data":  # channels and filters exchanged
            outer, inner = [(s.C, lies["K"]), (s.K, lies["C"])][::1 if self.rows_of_channels else -1]
        for number, taps in enumerate(self.cut):
            into = "filter_planes", number * s.C * (self.filter_row if self.rows_of_channels else 1)
            self.draft.launches.append(transform_taps(
                self.problem, self.side, taps, outer, inner, 0, places, into,
                f"filters are transformed to {self.slots} matrices of complex numbers"))

    def run(self, multiply_slots: "MultiplySlots", images: str, first: int, count: int) -> None:
        """The launches for some images."""
        s, region = self.s, self.draft.region
        tile = self.tile(count)
        tiles, row = tile["tiles"], tile["row"]
        out_plane = s.K * row // self.times
        maps = region("map_planes", self.planes * self.depth * row)
        sums = region("out_planes", self.planes * out_plane)
        self.transform_maps(images, first, count, tile)
        multiply_slots(ProductShape(2 * s.K // self.times, self.times * tiles, 2 * self.depth, self.slots),
                       Matrices(maps, row, 2 * self.depth * row), Matrices(sums, row, 2 * out_plane))
        values = tile | self.output(first) | {"planes": sums, "plane": out_plane,
                                              "to_im": tiles if self.times > 1 else out_plane}
        nbytes = FLOAT_BYTES * (self.planes * out_plane + count * s.K * s.P * s.Q * (1 + self.problem.reads_out))
        self.draft.launches.append(transform(
            kernel(self.side, "out", self.problem.layout), tiles, s.K, values, nbytes,
            f"{self.step[0]} x {self.step[1]} results of each tile are transformed back", "out"))

    def transform_maps(self, images: str, first: int, count: int, tile: Mapping[str, int]) -> None:
        """Of some images, to region `map_planes`, once for each part of the filters."""
        s, width = self.s, tile["row"]
        twice = {"second": tile["tiles"]} if self.times > 1 else {}
        for number, (row, column, _, _) in enumerate(self.cut):
            self.transform_tiles(images, ("map_planes", number * s.C * width, self.depth * width), (s.C, s.H, s.W),
                                 (s.pad_h - row, s.pad_w - column), (self.side, self.side), first, count,
                                 {**tile, **twice}, f"tiles of {self.side} x {self.side} of the maps are transformed")

    def transform_tiles(self, source: str, planes: tuple[str, int, int], size: tuple[int, int, int],
                        padding: tuple[int, int], limit: tuple[int, int], first: int, count: int,
                        tile: Mapping[str, int], doing: str) -> None:
        """Of some images, to a region from an element on, in planes of so many; `limit`: rows and columns of a tile
        that are not zeros."""
        (c, h, w), (region, start, plane) = size, planes
        lies = layout.maps(self.problem.layout, self.s.N, c, h, w)
        values: dict[str, Value] = {
            **tile, "planes": part(region, start), "plane": plane, **map_values(lies, padding, first * lies["N"]),
            "limit_h": limit[0], "limit_w": limit[1]}
        nbytes = FLOAT_BYTES * c * (count * h * w + self.planes * tile["tiles"])
        spec = kernel(self.side, "twice" if "second" in tile else "maps", self.problem.layout)
        self.draft.launches.append(transform(spec, tile["tiles"], c, values, nbytes, doing, region, {"tex_I": source}))

    def tile(self, count: int) -> dict[str, Any]:
        """The parameters that say where the tiles of so many images lie in planes, and what transforms multiply by."""
        row = round_up(self.times * count * self.rows * self.columns, TEXEL_FLOATS)
        return {"row": row, **tiles_of(self.chwn, count, self.rows, self.columns, self.step), **twiddles(self.side)}


Tile = Mapping[str, Any]
"""Parameters that say where tiles lie."""

MultiplySlots = Callable[[ProductShape, Matrices, Matrices], None]
"""Adds the launches that multiply matrices of filters by planes of maps: their sizes, the maps, what is made."""


class FloatProducts:
    """By the kernels of matrix products."""

    notes: tuple[str, ...] = ()

    def __init__(self, spec: ProductKernel, twice: bool = False) -> None:
        self.spec, self.twice = spec, twice

    def form(self, problem: Problem) -> Form:
        """Of the planes that it takes."""
        return Form.MAPS if self.twice else Form.FILTERS

    def prepare(self, layer: Layer) -> MultiplySlots:
        return lambda shape, maps, out: layer.draft.add(
            multiply(self.spec, shape, layer.filter_planes, maps, out, vectors=True))


class TensorProducts:
    """On the tensor cores of a chip, from planes split in FP16 parts: those of the filters once, of the maps by run or
    by the kernel that multiplies."""

    notes = (tensor_cores.NOTE,)

    def __init__(self, chip: Chip, spec: tensor_cores.TensorKernel, twice: bool = False) -> None:
        self.chip, self.spec, self.twice = chip, spec, twice

    def form(self, problem: Problem) -> Form:
        if self.twice:
            return Form.MAPS
        return Form.HALVES if correlations(problem)[0].C % sm90.EIGHT == 0 else Form.FILTERS

    def prepare(self, layer: Layer) -> MultiplySlots:
        s, draft = layer.s, layer.draft
        if layer.form is Form.HALVES:
            filters = sm90.split(draft, s.K, layer.depth, layer.filter_row, layer.slots, layer.side // 2)
        else:
            filters = tensor_cores.split(draft, "filter_pieces", layer.filter_planes, 2 * s.K // layer.times,
                                         2 * layer.depth, layer.slots, not layer.rows_of_channels)
        return partial(tensor_cores.multiply_maps, draft, self.chip, self.spec, filters)


Products = FloatProducts | TensorProducts
"""Of slots."""


def tiles_of(chwn: bool, images: int, rows: int, columns: int, step: tuple[int, int]) -> dict[str, Value]:
    """The parameters that say which tiles there are."""
    tiles = images * rows * columns
    d0, d1 = (images, columns) if chwn else (columns, rows)
    return {"tiles": tiles, "step_h": step[0], "step_w": step[1], **divisor("d0", d0, tiles + UNITS),
            **divisor("d1", d1, tiles + UNITS)}


def transform_taps(problem: Problem, side: int, taps: tuple[int, int, int, int], outer: tuple[int, int],
                   inner: tuple[int, int], start: int, places: Mapping[str, int], into: tuple[str, int],
                   doing: str) -> Launch:
    """Of filters' part of `taps` (first row and column, rows and columns), to a region from an element on. `outer`,
    `inner`: how many filters, and elements from one to the next, the first at `start`. `places`: where numbers lie in
    the region."""
    s, (row, column, rows, columns) = problem.shape, taps
    step_r, step_s = layout.filters(problem).steps("RS")
    if problem.kind == "data":  # the last tap first
        start += (s.R - 1) * step_r + (s.S - 1) * step_s
        step_r, step_s = -step_r, -step_s
    values: dict[str, Value] = {
        "planes": part(*into), "filters": "filters", **places, "inner": inner[0],
        "start": start + row * step_r + column * step_s, "step_outer": outer[1], "step_inner": inner[1],
        "r": rows, "s": columns, "step_r": step_r % 2**32, "step_s": step_s % 2**32, **twiddles(side)}
    nbytes = FLOAT_BYTES * outer[0] * inner[0] * (rows * columns + (2 if places["from_im"] else 1) * side**2)
    step = "filters" if max(rows, columns) <= side // 2 else "large"
    return transform(kernel(side, step), inner[0], outer[0], values, nbytes, doing, into[0])


def transform(spec: TransformKernel, x: int, y: int, values: Mapping[str, Value], nbytes: int, doing: str,
               writes: str, textures: Mapping[str, str] | None = None) -> Launch:
    """A launch of a transform for x inner and y outer indices."""
    grid = -(-x // UNITS), y, 1
    code = Cost(spec.slots, spec.slots / SCHEDULERS + _LATENCY)
    times = _HALVES if values.get("from_im") == 0 else _TRANSLATED[spec.step]
    work = Work(grid[0] * y, nbytes, code, replace(code, slots=times * spec.slots))
    return Launch(spec, grid, values, work, doing, (writes,), textures or {})


def _check_limits(layer: Layer) -> None:
    s = layer.s
    within(s, (
        ("images N x C x H x W", s.N * s.C * s.H * s.W, MAX_TEXELS,
         "elements, the reach of a texture of single floats"),
        ("output K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS, "elements"),
        ("matrices of the filters", layer.slots * layer.filter_plane, TEXEL_FLOATS * MAX_TEXELS, "elements"),
        ("channels C", s.C, MAX_GRID_YZ, "channels, blocks along y of a grid"),
        ("filters K", s.K, MAX_GRID_YZ, "filters, blocks along y of a grid"),
    ))


FAMILY = Family("fft", (*KERNELS, sm90.SPLIT), reference, ("forward", "data"), unsupported_reason, candidates, "fft")
