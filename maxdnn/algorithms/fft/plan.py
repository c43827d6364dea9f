"""Convolution by the fast Fourier transform of tiles, overlap and save: of a transform of `side` x `side` inputs,
side + 1 - R rows and side + 1 - S columns of results are those of the layer. Real tiles have side * side / 2 complex
numbers ("slots"). For each slot the sums over channels are a real product of twice as many channels and filters,
[re im] of maps by [[re, im], [-im, re]] of filters, so that the kernels of matrix products compute them (gemm).

Both layouts, any sizes, padding implicit; layers whose planes would take too much memory are cut into runs of images.
A tile that holds a NaN, an infinity or sums beyond float32 is lost as a whole, for all filters; nothing outside of it
is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape, ProductShape
from ..common import layout
from ..common.correlation import correlations, maps_of
from ..common.epilogue import epilogue
from ..common.fastdiv import divisor
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, round_up, within
from ..common.workspace import Draft, part
from ..gemm import tensor_cores
from ..gemm.maxwell import KERNELS as PRODUCTS
from ..gemm.maxwell import ProductKernel
from ..gemm.plan import Matrices, multiply
from ..gemm.sm90 import NATIVE
from ..spec import Candidates, Family, strided_reason
from ..winograd.plan import images_at_once, map_values, readable
from . import sm90
from .maxwell import KERNELS, SIDES, UNITS, TransformKernel, kernel, twiddles
from .reference import reference

_FEW_TAPS = 9  # for which other families need as few multiplications
_LATENCY = 6000  # clocks of a CTA alone that are no issue slot: loads, stores, barriers; assumed
_TRANSLATED = {"maps": 2.0, "filters": 3.8, "out": 2.2, "taps": 2.2}
"""Slots of a translation, with those that waits of phases leave empty, to a block's own: timed on an H200."""
_HALVES = 2.0  # the same of filters that store half of their numbers; assumed


def not_of_tiles(s: ConvShape) -> str | None:
    """What of a layer keeps it from tiles."""
    if s.stride != (1, 1):
        return f"stride {s.str_h}x{s.str_w}"
    if s.dilation != (1, 1):
        return f"dilation {s.dil_h}x{s.dil_w}"
    if s.groups != 1:
        return f"{s.groups} groups"
    if max(s.R, s.S) > max(SIDES) // 2 or s.R * s.S <= _FEW_TAPS:
        return f"filters of {s.R}x{s.S}"
    return None


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = not_of_tiles(s)
    if refused:
        return refused
    if problem.kind == "forward" and (s.pad_h >= s.R or s.pad_w >= s.S):
        return f"padding {s.pad_h}x{s.pad_w} of filters {s.R}x{s.S}, which leaves results without terms"
    return strided_reason(problem)


def documented(sums: int, taps: int, terms: int) -> float:
    """The error of a tile, of so many products of slots and taps, beside the least sum of |terms| of a result; see
    docs/fft.md."""
    of_a_tile = 2.0**-24 * 1.5 * math.sqrt(sums * taps * (50 + 0.4 * sums))
    return of_a_tile * 4 / terms * (1 + 3 / math.sqrt(terms))


def candidates(problem: Problem, chip: Chip) -> Candidates:
    (s,) = correlations(problem)
    found: dict[str, Callable[[], Plan]] = {}
    for side in SIDES:
        if max(s.R, s.S) <= side // 2:
            found[name(side, "tensor_sm90")] = partial(_plan, problem, side, TensorProducts(chip))
            for spec in (*PRODUCTS, *NATIVE):
                if spec.layout == ("tn" if problem.layout == "CHWN" else "nn"):
                    found[name(side, spec.label)] = partial(_plan, problem, side, FloatProducts(spec))
    return found


def name(side: int, products: str) -> str:
    """Of a candidate."""
    return f"fft_{side}x{side}_{products}"


def _plan(problem: Problem, side: int, products: "FloatProducts | TensorProducts") -> Plan:
    draft = Draft(problem)
    layer = Layer(draft, side, products.halves(problem))
    s = layer.s
    images = readable(draft, maps_of(problem), s.C, s.H, s.W)
    layer.transform_filters()
    multiply_slots = products.prepare(layer)
    count = images_at_once(problem, layer, sum(draft.regions.values()))
    for first in range(0, s.N, count):
        layer.run(multiply_slots, images, first, min(count, s.N - first))
    results = layer.step[0] * layer.step[1]
    saved = s.N * s.P * s.Q * s.R * s.S / (s.N * layer.rows * layer.columns * 2 * side * side)
    draft.notes.append(f"FFT of {side} x {side} inputs for {results} results each: {saved:.2f} times fewer "
                       "multiplications than a direct convolution")
    if count < s.N:
        draft.notes.append(f"{-(-s.N // count)} runs of at most {count} images, whose planes fit the workspace")
    draft.notes += products.notes
    return draft.plan("fft", products.spec, layer.error)


class Layer:
    """What the launches of a layer have in common. `planes`: numbers of a tile's transform. `step`: rows and columns
    of its results. `halves`: of matrices of filters only one row of two is kept, channels x filters."""

    def __init__(self, draft: Draft, side: int, halves: bool = False) -> None:
        (s,) = correlations(draft.problem)
        self.draft, self.problem, self.side, self.s = draft, draft.problem, side, s
        self.chwn = self.problem.layout == "CHWN"
        self.step = side + 1 - s.R, side + 1 - s.S
        self.rows, self.columns = -(-s.P // self.step[0]), -(-s.Q // self.step[1])
        self.planes, self.slots = side**2, side**2 // 2
        self.halves, self.rows_of_channels = halves, halves or self.chwn
        outer, inner = (s.C, s.K) if self.rows_of_channels else (s.K, s.C)
        self.filter_row = round_up(inner if halves else 2 * inner, TEXEL_FLOATS)
        self.filter_plane = 2 * outer * self.filter_row
        _check_limits(self)

    @property
    def filter_planes(self) -> Matrices:
        """What transform_filters makes."""
        return Matrices("filter_planes", self.filter_row, self.filter_plane)

    @property
    def error(self) -> float:
        """Documented: of a result at a corner."""
        s = self.s
        rows, columns = (max(1, min(taps, taps - padding, size))
                         for taps, padding, size in ((s.R, s.pad_h, s.H), (s.S, s.pad_w, s.W)))
        return documented(s.C, s.R * s.S, s.C * rows * columns)

    def transform_filters(self) -> None:
        """To region `filter_planes`."""
        s, lies = self.s, layout.filters(self.problem)
        spec, start = kernel(self.side, "filters"), 0
        outer, inner = (s.C, "C"), (s.K, "K")
        step_r, step_s = lies.steps("RS")
        if self.problem.kind == "data":  # channels and filters exchanged, the last tap first
            outer, inner = (s.C, "K"), (s.K, "C")
            start, step_r, step_s = (s.R - 1) * step_r + (s.S - 1) * step_s, -step_r, -step_s
        channels, filters = outer[0] * self.filter_row, inner[0]  # from real parts to imaginary ones
        if not self.rows_of_channels:
            outer, inner = inner, outer
            channels, filters = inner[0], outer[0] * self.filter_row
        values: dict[str, Value] = {
            "planes": self.draft.region("filter_planes", self.slots * self.filter_plane), "filters": "filters",
            "inner": inner[0], "row": self.filter_row, "plane": self.filter_plane, "to_im": channels,
            "from_im": 0 if self.halves else filters, "start": start,
            "step_outer": lies[outer[1]], "step_inner": lies[inner[1]], "r": s.R, "s": s.S,
            "step_r": step_r % 2**32, "step_s": step_s % 2**32, **twiddles(self.side)}
        nbytes = FLOAT_BYTES * outer[0] * inner[0] * (s.R * s.S + (2 if self.halves else 4) * self.slots)
        self.draft.launches.append(transform(
            spec, inner[0], outer[0], values, nbytes,
            f"filters are transformed to {self.slots} matrices of complex numbers", "filter_planes"))

    def run(self, multiply_slots: "MultiplySlots", images: str, first: int, count: int) -> None:
        """The launches for some images."""
        s, region = self.s, self.draft.region
        tile = self.tile(count)
        tiles, row = tile["tiles"], tile["row"]
        map_plane, out_plane = s.C * row, s.K * row
        maps, sums = region("map_planes", self.planes * map_plane), region("out_planes", self.planes * out_plane)
        self.transform_maps(images, first, count, tile)
        multiply_slots(ProductShape(2 * s.K, row, 2 * s.C, self.slots), Matrices(maps, row, 2 * map_plane),
                       Matrices(sums, row, 2 * out_plane))
        out = s.results(self.problem.layout)
        values = tile | {"planes": sums, "plane": out_plane, "out": part("out", first * out["N"]), "p": s.P, "q": s.Q,
                         **dict(zip(("out_image", "out_k", "out_row", "out_col"), out.steps("NCHW"), strict=True)),
                         **epilogue(self.problem).values()}
        nbytes = FLOAT_BYTES * (self.planes * out_plane + count * s.K * s.P * s.Q * (1 + self.problem.reads_out))
        self.draft.launches.append(transform(
            kernel(self.side, "out", self.problem.layout), tiles, s.K, values, nbytes,
            f"{self.step[0]} x {self.step[1]} results of each tile are transformed back", "out"))

    def transform_maps(self, images: str, first: int, count: int, tile: Mapping[str, int]) -> None:
        """Of some images, to region `map_planes`."""
        s = self.s
        self.transform_tiles(images, "map_planes", (s.C, s.H, s.W), (s.pad_h, s.pad_w), (self.side, self.side), first,
                             count, tile, f"tiles of {self.side} x {self.side} of the maps are transformed")

    def transform_tiles(self, source: str, planes: str, size: tuple[int, int, int], padding: tuple[int, int],
                        limit: tuple[int, int], first: int, count: int, tile: Mapping[str, int], doing: str) -> None:
        """Of some images, to a region; `limit`: rows and columns of a tile that are not zeros."""
        c, h, w = size
        lies = layout.maps(self.problem.layout, self.s.N, c, h, w)
        values: dict[str, Value] = {
            **tile, "planes": planes, "plane": c * tile["row"], **map_values(lies, padding, first * lies["N"]),
            "limit_h": limit[0], "limit_w": limit[1]}
        nbytes = FLOAT_BYTES * c * (count * h * w + self.planes * tile["row"])
        self.draft.launches.append(transform(kernel(self.side, "maps", self.problem.layout), tile["tiles"], c, values,
                                             nbytes, doing, planes, {"tex_I": source}))

    def tile(self, count: int) -> dict[str, Any]:
        """The parameters that say where the tiles of so many images lie in planes, and what transforms multiply by."""
        tiles = count * self.rows * self.columns
        d0, d1 = (count, self.columns) if self.chwn else (self.columns, self.rows)
        return {"tiles": tiles, "row": round_up(tiles, TEXEL_FLOATS), "step_h": self.step[0], "step_w": self.step[1],
                **twiddles(self.side), **divisor("d0", d0, tiles + UNITS), **divisor("d1", d1, tiles + UNITS)}


MultiplySlots = Callable[[ProductShape, Matrices, Matrices], None]
"""Adds the launches that multiply matrices of filters by planes of maps: their sizes, the maps, what is made."""


class FloatProducts:
    """By the kernels of matrix products."""

    notes: tuple[str, ...] = ()

    def __init__(self, spec: ProductKernel) -> None:
        self.spec = spec

    def halves(self, problem: Problem) -> bool:
        """Whether it takes matrices of filters of which one row of two is kept."""
        return False

    def prepare(self, layer: Layer) -> MultiplySlots:
        return lambda shape, maps, out: layer.draft.add(
            multiply(self.spec, shape, layer.filter_planes, maps, out, vectors=True))


class TensorProducts:
    """On the tensor cores of a chip, from planes split in FP16 parts: those of the filters once, of the maps by run."""

    spec = tensor_cores.PRODUCT
    notes = (tensor_cores.NOTE,)

    def __init__(self, chip: Chip) -> None:
        self.chip = chip

    def halves(self, problem: Problem) -> bool:
        return correlations(problem)[0].C % sm90.EIGHT == 0

    def prepare(self, layer: Layer) -> MultiplySlots:
        s, draft = layer.s, layer.draft
        filters = (sm90.split(draft, s.K, s.C, layer.filter_row, layer.slots, layer.side // 2) if layer.halves else
                   tensor_cores.split(draft, "filter_pieces", layer.filter_planes, 2 * s.K, 2 * s.C, layer.slots,
                                      not layer.rows_of_channels))

        def multiply_slots(shape: ProductShape, maps: Matrices, out: Matrices) -> None:
            pieces = tensor_cores.split(draft, "map_pieces", maps, shape.N, shape.K, layer.slots, False)
            draft.launches.append(tensor_cores.multiply(self.chip, shape, filters, pieces, out, vectors=True))

        return multiply_slots


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
