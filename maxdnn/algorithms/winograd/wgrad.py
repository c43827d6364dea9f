"""Gradients of filters by Winograd's way, F(r x r, 4 x 4): the r x r taps are what tiles of 4 x 4 gradients, as
filters, make of the tiles of maps they lie on. Maps are transformed as for the layer itself, gradients likewise; the
products of each plane sum over all tiles of all images, and one more transform makes taps of them. Split and cut into
runs of images, whose parts are added in a fixed order."""

from collections.abc import Callable
from functools import partial

from ...errors import ShapeError
from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, make
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..gemm import plan as gemm
from ..implicit_gemm.maxwell import magic
from ..memory_ops.plan import pad, reduce_many
from ..spec import SPLITS, Candidates, Family, fused, refuses_strided
from . import plan as winograd
from .toomcook import GRADIENTS, TABLE, Points

_WAYS = tuple((points, backward) for backward in GRADIENTS for points in TABLE
              if (points.taps, points.outputs) == (backward.outputs, backward.taps))


def refuses(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = winograd.not_of_tiles(s, {points.taps for points, _ in _WAYS})
    if refused:
        return refused
    if max(s.pad_h, s.pad_w) >= s.R:
        return f"padding {s.pad_h}x{s.pad_w} of filters {s.R}x{s.S}, which leaves tiles that few taps have terms in"
    if s.pad_h >= s.P or s.pad_w >= s.Q:
        return f"padding {s.pad_h}x{s.pad_w} of maps of {s.H}x{s.W}, which leaves taps without terms"
    return refuses_strided(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    for points, backward in _WAYS:
        if points.taps == s.R:
            m, r = backward.outputs, backward.taps
            groups = -(-s.N * -(-s.P // r) * -(-s.Q // r) // gemm.GROUP)
            for spec in (*gemm.KERNELS, *gemm.NATIVE):
                for splits in SPLITS if spec.layout == "nt" else ():
                    if splits <= max(1, groups // 8):
                        name = f"winograd_{m}x{m}_{r}x{r}_{spec.label}"
                        name += f"_split{splits}" * (splits > 1)
                        found[name] = partial(_plan, problem, points, backward, spec, splits)
    return found


def _plan(problem: Problem, points: Points, backward: Points, spec: gemm.ProductKernel, splits: int) -> Plan:
    layer = winograd.Layer(problem, points)
    s, chwn, planes = layer.s, layer.chwn, layer.planes
    regions: dict[str, int] = {}
    launches: list[Launch] = []

    def region(name: str, elements: int) -> str:
        regions[name] = max(FLOAT_BYTES * elements, regions.get(name, 0))
        return name
    images, gradients = "images", "gradients"
    if problem.operand(images).alignment < Alignment.TEXTURE:
        images = region("images_copy", s.N * s.C * s.H * s.W)
        launches.append(winograd.copied(problem, s, images))
    if problem.operand(gradients).alignment < Alignment.TEXTURE:
        gradients = region("gradients_copy", s.N * s.K * s.P * s.Q)
        size = (s.K, s.P, s.Q, s.N)
        launches.append(pad(gradients, "gradients", size, size[1:], (0, 0),
                            "gradients are copied: they begin where no texture may"))
    outer, inner = (s.C, s.K) if chwn else (s.K, s.C)
    every = planes * s.C * s.K
    other = sum(regions.values()) + FLOAT_BYTES * every * (splits + 1)
    count = min(winograd.images_at_once(problem, layer, other),
                (winograd.VECTOR * MAX_TEXELS // (planes * s.K) - winograd.VECTOR) // (layer.rows * layer.columns))
    if count < 1:
        raise ShapeError(f"planes of the gradients of an image must have at most {winograd.VECTOR * MAX_TEXELS} "
                         f"elements, the reach of a texture (got {problem.shape})")
    runs = [(first, min(count, s.N - first)) for first in range(0, s.N, count)]
    shares = [_splits(number * layer.rows * layer.columns, splits, spec) for _, number in runs]
    parts, done = sum(shares), 0
    sums = region("parts" if parts > 1 else "sums", parts * every)
    for (first, number), share in zip(runs, shares, strict=True):
        out: str | Part = Part(sums, FLOAT_BYTES * done * every) if done else sums
        launches += _run(layer, backward, spec, images, gradients, (first, number), share, out, region)
        done += share
    if parts > 1:
        launches += reduce_many("parts", region("sums", every), parts, every,
                                {"flags": 0, "alpha": 1.0, "beta": 0.0, "bias": 0}, region)
    launches.append(_taps(problem, layer, backward, outer, inner))
    m, r = backward.outputs, backward.taps
    tiles = s.N * layer.rows * layer.columns
    notes = [f"F({m}x{m}, {r}x{r}): {s.N * s.P * s.Q * m * m / (tiles * planes):.2f} times fewer multiplications than "
             "direct sums of products"]
    if parts > 1:
        notes.append(f"the sums of {tiles} tiles come in {parts} parts, which are added in a fixed order")
    edges = s.P / (s.P - s.pad_h) * s.Q / (s.Q - s.pad_w)  # terms of a tap in the middle for each of one at a corner
    # Tiles that are less than half full of gradients round what is large for what few taps have of it.
    room = layer.rows * r / s.P * layer.columns * r / s.Q
    error = backward.expected_error(tiles, 0, r, r, -(-tiles // parts)) * edges * max(1, room / 2)
    return make(problem, "winograd", spec, launches, regions, notes, error)


def _splits(tiles: int, splits: int, spec: gemm.ProductKernel) -> int:
    """At most so many, none of them empty."""
    return -(-tiles // (gemm.GROUP * spec.slices * spec.share(tiles, splits)))


def _run(layer: winograd.Layer, backward: Points, spec: gemm.ProductKernel, images: str, gradients: str,
         run: tuple[int, int], splits: int, out: str | Part, region: Callable[[str, int], str]) -> list[Launch]:
    """The launches for some images: (first, number)."""
    (first, count), s, chwn, planes = run, layer.s, layer.chwn, layer.planes
    tile = layer.tile(count)
    tiles, row = tile["tiles"], tile["row"]
    maps, turned = region("map_planes", planes * s.C * row), region("gradient_planes", planes * s.K * row)
    made = layer.transform_maps(images, first, count, tile)
    r = backward.taps
    made += layer.transform_textures(
        winograd.OF_GRADIENTS[backward, "gradients", layer.problem.layout], gradients, turned, (s.K, s.P, s.Q), (0, 0),
        first, count, tile, f"tiles of {r} x {r} gradients are transformed to {planes} planes")
    a, b = (gemm.Matrices(place, row, size * row, planes * size * row)
            for place, size in ((maps, s.C), (turned, s.K))[::1 if chwn else -1])
    m, n = (s.C, s.K) if chwn else (s.K, s.C)
    shape = ProductShape(m, n, tiles, planes)
    result = gemm.Matrices(out, n, m * n)
    return made + gemm.multiply(spec, shape, a, b, result, vectors=n % 4 == 0, splits=splits)


def _taps(problem: Problem, layer: winograd.Layer, backward: Points, outer: int, inner: int) -> Launch:
    s, m = layer.s, backward.outputs
    steps = (1, m * m * s.K, m * s.K, s.K) if layer.chwn else (m * m, s.C * m * m, m, 1)
    values = {"out": "out", "planes": "sums", "tiles": inner, "row": inner, "plane": outer * inner, "p": m, "q": m,
              **fused(problem, 0), **dict(zip(("out_image", "out_k", "out_row", "out_col"), steps, strict=True))}
    spec = winograd.OF_GRADIENTS[backward, "out", ""]
    for i, size in enumerate((inner, 1)):
        values[f"d{i}"] = size
        values[f"d{i}_magic"], values[f"d{i}_shift"] = magic(size, inner + spec.units)
    nbytes = FLOAT_BYTES * outer * inner * (layer.planes + m * m * (1 + problem.reads_out))
    return winograd.transform(spec, inner, outer, values, nbytes, f"sums are transformed back to {m} x {m} taps", "out")


FAMILY = Family("winograd", (), winograd.contract, ("filters",), refuses, candidates)
