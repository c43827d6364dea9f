"""Gradients of filters by Winograd's algorithm, F(r x r, 4 x 4): the r x r taps are what tiles of 4 x 4 gradients, as
filters, make of the tiles of maps they lie on. Maps are transformed as for the layer itself, gradients likewise; the
products of each plane sum over all tiles of all images, and one more transform makes taps of them. Split and cut into
runs of images, whose parts are added in a fixed order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from ...build.interface import KernelSpec
from ...errors import ShapeError
from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape, ProductShape
from ..common import layout
from ..common.epilogue import PARTIAL, epilogue_of
from ..common.fastdiv import divisor
from ..common.limits import TEXEL_FLOATS
from ..common.schedule import SPLITS, split_name
from ..common.workspace import Draft, part
from ..gemm import tensor_cores
from ..gemm.maxwell import GROUP, KERNELS, ProductKernel
from ..gemm.plan import Matrices, multiply
from ..gemm.sm90 import NATIVE
from ..memory_ops.plan import reduce_many
from ..spec import Candidates, Family, strided_reason
from ..wgrad.plan import filling_splits
from ..wgrad.tensor_cores import LONGEST
from . import plan as winograd
from . import sm90
from .maxwell import OF_GRADIENTS
from .reference import reference
from .toomcook import GRADIENTS, TABLE, Points

_WAYS = tuple((points, backward) for backward in GRADIENTS for points in TABLE
              if (points.taps, points.outputs) == (backward.outputs, backward.taps))


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = winograd.not_of_tiles(s, {points.taps for points, _ in _WAYS})
    if refused:
        return refused
    if max(s.pad_h, s.pad_w) >= s.R:
        return f"padding {s.pad_h}x{s.pad_w} of filters {s.R}x{s.S}, which leaves tiles that few taps have terms in"
    if s.pad_h >= s.P or s.pad_w >= s.Q:
        return f"padding {s.pad_h}x{s.pad_w} of maps of {s.H}x{s.W}, which leaves taps without terms"
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    by_ffma = [FloatSums(spec) for spec in (*KERNELS, *NATIVE) if spec.layout == "nt"]
    for points, backward in _WAYS:
        if points.taps == s.R:
            tiles = s.N * -(-s.P // backward.taps) * -(-s.Q // backward.taps)
            ways: list[Sums] = [*by_ffma, TensorSums(chip, backward.inputs**2)]
            if problem.layout == "NCHW" and s.pad_w == 1 and backward is sm90.OF_GRADIENTS.points:
                ways.append(PieceSums(chip, backward.inputs**2))
            for products in ways:
                for splits in products.choices(s, tiles):
                    found[split_name(winograd.name(backward, products.label), splits)] = partial(
                        winograd.fitted, _plan, problem, points, backward, products, splits)
    return found


class Run(NamedTuple):
    """Some images: the first and how many."""

    first: int
    images: int


class Sums(ABC):
    """Kernels that multiply planes of maps by planes of gradients, both transformed to float32 numbers. `label`: in
    names of candidates."""

    label: str
    spec: KernelSpec
    notes: Sequence[str] = ()

    @abstractmethod
    def choices(self, s: ConvShape, tiles: int) -> Iterable[int]:
        """Ways to split sums over so many tiles."""

    @abstractmethod
    def parts(self, tiles: int, splits: int) -> int:
        """Into how many parts, none of them empty, at most `splits` cut such sums."""

    @abstractmethod
    def together(self, tiles: int) -> int:
        """How many of the tiles of a part are summed at once."""

    @abstractmethod
    def multiply(self, draft: Draft, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices, splits: int) -> None:
        """The launches of out = a b, values of k innermost."""

    def sources(self, layer: winograd.Layer) -> tuple[str, str]:
        """Where images and gradients are read."""
        s = layer.s
        return (winograd.readable(layer.draft, "images", s.C, s.H, s.W),
                winograd.readable(layer.draft, "gradients", s.K, s.P, s.Q))

    def most_images(self, layer: winograd.Layer, other: int) -> int:
        """How many images a run may have beside the regions that there are and so many other bytes of workspace. Raises
        ShapeError if none."""
        s, of_image = layer.s, layer.rows * layer.columns
        count = min(winograd.images_at_once(layer.problem, layer, other + sum(layer.draft.regions.values())),
                    (TEXEL_FLOATS * MAX_TEXELS // (layer.planes * s.K) - TEXEL_FLOATS) // of_image)
        if count < 1:
            raise ShapeError(f"planes of the gradients of an image must have at most {TEXEL_FLOATS * MAX_TEXELS} "
                             f"elements, the reach of a texture (got {layer.problem.shape})")
        return count

    def run(self, layer: winograd.Layer, backward: Points, sources: tuple[str, str], some: Run, splits: int,
            out: str | Part) -> None:
        """The launches for some images."""
        shape, a, b = _planes(layer, backward, sources, some)
        self.multiply(layer.draft, shape, a, b, Matrices(out, shape.N, shape.M * shape.N), splits)


class FloatSums(Sums):
    """Products by FFMA."""

    spec: ProductKernel

    def __init__(self, spec: ProductKernel) -> None:
        self.spec, self.label = spec, spec.label

    def choices(self, s: ConvShape, tiles: int) -> Iterable[int]:
        return (n for n in SPLITS if n <= max(1, -(-tiles // GROUP) // 8))

    def parts(self, tiles: int, splits: int) -> int:
        return -(-tiles // (GROUP * self.spec.slices * self.spec.share(tiles, splits)))

    def together(self, tiles: int) -> int:
        return tiles

    def multiply(self, draft: Draft, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices, splits: int) -> None:
        draft.add(multiply(self.spec, shape, a, b, out, vectors=shape.N % TEXEL_FLOATS == 0, splits=splits))


class TensorSums(Sums):
    """Products on the tensor cores of a chip, from planes that are split in FP16 parts."""

    spec = tensor_cores.PRODUCT
    label = "tensor_sm90"
    notes = (tensor_cores.NOTE,)

    def __init__(self, chip: Chip, planes: int) -> None:
        self.chip, self.planes = chip, planes

    def choices(self, s: ConvShape, tiles: int) -> Iterable[int]:
        results = -(-s.C // tensor_cores.TILE) * -(-s.K // tensor_cores.TILE) * self.planes
        return filling_splits(-(-tiles // tensor_cores.CHUNK), tensor_cores.CHUNK, results, self.chip.sms, LONGEST)

    def parts(self, tiles: int, splits: int) -> int:
        chunks = -(-tiles // tensor_cores.CHUNK)
        return -(-chunks // -(-chunks // splits))

    def together(self, tiles: int) -> int:
        return min(tiles, tensor_cores.CHUNK)

    def multiply(self, draft: Draft, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices, splits: int) -> None:
        tensor_cores.multiply_planes(draft, self.chip, shape, a, b, out, vectors=shape.N % TEXEL_FLOATS == 0,
                                     splits=splits)


class PieceSums(TensorSums):
    """The same, where the transforms write the parts themselves and read images and gradients wherever they begin."""

    label = "tensor_pieces_sm90"

    def sources(self, layer: winograd.Layer) -> tuple[str, str]:
        return "images", "gradients"

    def most_images(self, layer: winograd.Layer, other: int) -> int:
        s, most = layer.s, layer.problem.most_workspace
        if most is None:
            return s.N
        rows = sum(sm90.pieces_of(sm90.MAPS.points, 1, channels) for channels in (s.C, s.K))
        other += sum(layer.draft.regions.values()) + 3 * REGION_ALIGNMENT
        chunks = (most - other) // (tensor_cores.PIECE_BYTES * rows)
        count = chunks * tensor_cores.CHUNK // (layer.rows * layer.columns)
        if count < 1:
            chunks = -(-layer.rows * layer.columns // tensor_cores.CHUNK)
            least = other + chunks * tensor_cores.PIECE_BYTES * rows
            raise ShapeError(f"max_workspace_bytes must be at least {least} for a run of one image (got {most} for "
                             f"{s})")
        return count

    def run(self, layer: winograd.Layer, backward: Points, sources: tuple[str, str], some: Run, splits: int,
            out: str | Part) -> None:
        images, gradients = sources
        s, draft, tile = layer.s, layer.draft, layer.tile(some.images)
        of_maps = sm90.split(draft, sm90.MAPS, part(images, some.first * s.C * s.H * s.W), "map_pieces",
                          (s.C, s.H, s.W), (s.pad_h, s.pad_w), some.images, tile)
        of_gradients = sm90.split(draft, sm90.OF_GRADIENTS, part(gradients, some.first * s.K * s.P * s.Q),
                               "gradient_pieces", (s.K, s.P, s.Q), (0, 0), some.images, tile)
        shape = ProductShape(s.K, s.C, tile["tiles"], layer.planes)
        draft.launches.append(tensor_cores.multiply(
            self.chip, shape, of_gradients, of_maps, Matrices(out, s.C, s.K * s.C),
            vectors=s.C % TEXEL_FLOATS == 0, splits=splits))


def _plan(problem: Problem, points: Points, backward: Points, products: Sums, splits: int) -> Plan:
    draft = Draft(problem)
    layer = winograd.Layer(draft, points)
    s, planes, tiles_of_image = layer.s, layer.planes, layer.rows * layer.columns
    every = planes * s.C * s.K
    sources = products.sources(layer)
    count = products.most_images(layer, FLOAT_BYTES * every * (splits + 1))
    runs = [Run(first, min(count, s.N - first)) for first in range(0, s.N, count)]
    shares = [products.parts(run.images * tiles_of_image, splits) for run in runs]
    parts, done = sum(shares), 0
    sums = draft.region("parts" if parts > 1 else "sums", parts * every)
    for run, share in zip(runs, shares, strict=True):
        products.run(layer, backward, sources, run, share, part(sums, done * every))
        done += share
    if parts > 1:
        draft.add(reduce_many("parts", draft.region("sums", every), parts, every, PARTIAL, draft.region))
    draft.launches.append(_taps(layer, backward))
    m, r, tiles = backward.outputs, backward.taps, s.N * tiles_of_image
    draft.notes.append(f"F({m}x{m}, {r}x{r}): {s.N * s.P * s.Q * m * m / (tiles * planes):.2f} times fewer "
                       "multiplications than direct sums of products")
    if parts > 1:
        draft.notes.append(f"the sums of {tiles} tiles come in {parts} parts, which are added in a fixed order")
    edges = s.P / (s.P - s.pad_h) * s.Q / (s.Q - s.pad_w)  # terms of a tap in the middle for each of one at a corner
    # Tiles that are less than half full of gradients round what is large for what few taps have of it.
    room = layer.rows * r / s.P * layer.columns * r / s.Q
    error = backward.expected_error(tiles, 0, r, r, products.together(-(-tiles // parts))) * edges * max(1, room / 2)
    draft.notes += products.notes
    return draft.plan(FAMILY, products.spec, error)


def _planes(layer: winograd.Layer, backward: Points, sources: tuple[str, str],
            some: Run) -> tuple[ProductShape, Matrices, Matrices]:
    """Adds the launches that transform maps and gradients of some images; the product that is left to do, its operands
    with values of k, the tiles, innermost."""
    s, chwn, planes, draft, tile = layer.s, layer.chwn, layer.planes, layer.draft, layer.tile(some.images)
    images, gradients = sources
    tiles, row = tile["tiles"], tile["row"]
    maps = draft.region("map_planes", planes * s.C * row)
    filters = draft.region("gradient_planes", planes * s.K * row)
    layer.transform_maps(images, some.first, some.images, tile)
    r = backward.taps
    layer.transform_textures(
        OF_GRADIENTS[backward, "gradients", layer.problem.layout], gradients, filters, (s.K, s.P, s.Q), (0, 0),
        some.first, some.images, tile, f"tiles of {r} x {r} gradients are transformed to {planes} planes")
    a, b = (Matrices(place, row, size * row, planes * size * row)
            for place, size in ((maps, s.C), (filters, s.K))[::1 if chwn else -1])
    m, n = (s.C, s.K) if chwn else (s.K, s.C)
    return ProductShape(m, n, tiles, planes), a, b


def _taps(layer: winograd.Layer, backward: Points) -> Launch:
    problem, s, m = layer.problem, layer.s, backward.outputs
    outer, inner, tile = (s.C, s.K, "K") if layer.chwn else (s.K, s.C, "C")
    lies, spec = layout.filters(problem), OF_GRADIENTS[backward, "out", ""]
    steps = lies.steps(f"{tile}{'C' if layer.chwn else 'K'}RS")
    values: dict[str, Value] = {
        "out": "out", "planes": "sums", "tiles": inner, "row": inner, "plane": outer * inner, "p": m, "q": m,
        **epilogue_of(problem).values(), **divisor("d0", inner, inner + spec.units),
        **divisor("d1", 1, inner + spec.units),
        **dict(zip(("out_image", "out_k", "out_row", "out_col"), steps, strict=True))}
    nbytes = FLOAT_BYTES * outer * inner * (layer.planes + m * m * (1 + problem.reads_out))
    return winograd.transform(spec, inner, outer, values, nbytes, f"sums are transformed back to {m} x {m} taps", "out")


FAMILY = Family("winograd", (), reference, ("filters",), unsupported_reason, candidates, "winograd")
