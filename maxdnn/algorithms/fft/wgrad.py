"""Gradients of filters by FFT: taps are what tiles of gradients, as filters, make of the tiles of maps they lie on. For
each slot the products of both parts of maps and both of gradients are summed over all tiles of all images by one matrix
product; a last transform makes taps of them. Cut into runs of images, whose parts are added in a fixed order."""

from collections.abc import Callable, Mapping
from functools import partial

from ...errors import ShapeError
from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape, ProductShape
from ..common import layout
from ..common.epilogue import PARTIAL, epilogue_of
from ..common.fastdiv import divisor
from ..common.limits import TEXEL_FLOATS
from ..common.workspace import Draft, part
from ..gemm import tensor_cores
from ..gemm.maxwell import KERNELS as PRODUCTS
from ..gemm.maxwell import ProductKernel
from ..gemm.plan import Matrices, multiply
from ..gemm.sm90 import NATIVE
from ..memory_ops.plan import reduce_many
from ..spec import Candidates, Family, strided_reason
from ..winograd.plan import fitted, images_at_once, readable
from . import plan as fft
from .maxwell import SIDES, UNITS, kernel, twiddles
from .reference import reference


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    refused = fft.not_of_tiles(s)
    if refused:
        return refused
    return without_terms(s) or strided_reason(problem)


def without_terms(s: ConvShape) -> str | None:
    """Why its padding rules FFT tiles out; None if it does not."""
    if s.pad_h >= min(s.R, s.P) or s.pad_w >= min(s.S, s.Q):
        return f"padding {s.pad_h}x{s.pad_w} of maps of {s.H}x{s.W}, which leaves taps without terms"
    return None


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    for side in SIDES:
        if max(s.R, s.S) <= fft.most_taps(side):
            found[name(side, "tensor_sm90")] = partial(fitted, _plan, problem, side, chip)
            for spec in (*PRODUCTS, *NATIVE):
                if spec.layout == "nt":
                    found[name(side, spec.label)] = partial(fitted, _plan, problem, side, spec)
    return found


def name(side: int, products: str) -> str:
    """The name of a candidate."""
    return f"fft_filters_{side}x{side}_{products}"


def _plan(problem: Problem, side: int, by: ProductKernel | Chip) -> Plan:
    draft = Draft(problem)
    layer = fft.Layer(draft, side)
    s, of_image = layer.s, layer.rows * layer.columns
    images, gradients = readable(draft, "images", s.C, s.H, s.W), readable(draft, "gradients", s.K, s.P, s.Q)
    every = 2 * layer.planes * layer.depth * s.K
    other = sum(draft.regions.values()) + 2 * FLOAT_BYTES * every
    count = min(images_at_once(problem, layer, other, len(layer.cut)),
                (TEXEL_FLOATS * MAX_TEXELS // (layer.planes * s.K) - TEXEL_FLOATS) // of_image)
    if count < 1:
        raise ShapeError(f"planes of the gradients of an image must have at most {TEXEL_FLOATS * MAX_TEXELS} "
                         f"elements, the reach of a texture (got {s})")
    firsts = range(0, s.N, count)
    sums = draft.region("parts" if len(firsts) > 1 else "sums", len(firsts) * every)
    for run, first in enumerate(firsts):
        _run(layer, by, images, gradients, (first, min(count, s.N - first)), part(sums, run * every))
    if len(firsts) > 1:
        draft.add(reduce_many("parts", draft.region("sums", every), len(firsts), every, PARTIAL, draft.region))
        draft.notes.append(f"the sums of {s.N} images come in {len(firsts)} parts, which are added in a fixed order")
    draft.launches += (_taps(layer, number, taps) for number, taps in enumerate(layer.cut))
    saved = s.P * s.Q * s.R * s.S / (of_image * 2 * side**2 * len(layer.cut))
    draft.notes.append(f"FFT of {side} x {side} inputs: {saved:.2f} times fewer multiplications than direct sums")
    draft.notes += layer.cut.said
    if not isinstance(by, ProductKernel):
        draft.notes.append(tensor_cores.NOTE)
    spec = by if isinstance(by, ProductKernel) else tensor_cores.PRODUCT
    return draft.plan(FAMILY, spec, documented(layer, s.N * of_image))


def documented(layer: fft.Layer, tiles: int) -> float:
    """Documented: as of a layer whose channels are tiles, and whose taps are those of a tile's gradients."""
    s = layer.s
    terms = s.N * (s.P - s.pad_h) * (s.Q - s.pad_w)  # of a tap at a corner
    return fft.documented(tiles, min(layer.step[0], s.P) * min(layer.step[1], s.Q), terms)


def _run(layer: fft.Layer, by: ProductKernel | Chip, images: str, gradients: str, run: tuple[int, int],
         out: str | Part) -> None:
    """The launches for some images: (first, number)."""
    (first, count), s, draft, slots = run, layer.s, layer.draft, layer.slots
    tile = layer.tile(count)
    tiles, row = tile["tiles"], tile["row"]
    maps, planes = transform_both(layer, images, gradients, first, count, tile)
    (m, a), (n, b) = [(2 * size, Matrices(place, row, 2 * size * row, layer.planes * size * row))
                      for place, size in ((maps, layer.depth), (planes, s.K))][::1 if layer.chwn else -1]
    into, shape, vectors = Matrices(out, n, m * n), ProductShape(m, n, tiles, slots), n % TEXEL_FLOATS == 0
    if isinstance(by, ProductKernel):
        draft.add(multiply(by, shape, a, b, into, vectors=vectors))
        return
    tensor_cores.multiply_planes(draft, by, shape, a, b, into, vectors=vectors)


def transform_both(layer: fft.Layer, images: str, gradients: str, first: int, count: int,
                   tile: fft.Tile) -> tuple[str, str]:
    """Of some images, maps and gradients; the regions that have them then."""
    s, row = layer.s, tile["row"]
    maps = layer.draft.region("map_planes", layer.planes * layer.depth * row)
    planes = layer.draft.region("gradient_planes", layer.planes * s.K * row)
    layer.transform_maps(images, first, count, tile)
    layer.transform_tiles(gradients, (planes, 0, s.K * row), (s.K, s.P, s.Q), (0, 0), layer.step, first, count, tile,
                          f"tiles of {layer.step[0]} x {layer.step[1]} gradients are transformed")
    return maps, planes


def _taps(layer: fft.Layer, number: int, taps: tuple[int, int, int, int]) -> Launch:
    """Of one part of the filters."""
    s, lies, sizes = layer.s, layout.filters(layer.problem), {"C": layer.depth, "K": layer.s.K}
    outer, inner = "CK" if layer.chwn else "KC"
    row = 2 * sizes[inner]
    halves = {outer: sizes[outer] * row, inner: sizes[inner]}  # from real parts to imaginary ones
    places = {"row": row, "plane": 2 * sizes[outer] * row, "to_map": halves["C"], "to_gradient": halves["K"]}
    counts = {"C": (s.C, lies["C"]), "K": (s.K, lies["K"])}
    sums = part("sums", number * s.C * (row if layer.chwn else 1))
    return transform_back(layer, taps, sums, places, counts[outer], counts[inner])


def transform_back(layer: fft.Layer, taps: tuple[int, int, int, int], sums: str | Part, places: Mapping[str, int],
                   outer: tuple[int, int], inner: tuple[int, int]) -> Launch:
    """Of sums to `taps` of the filters: first row and column, rows and columns. `places`: where sums lie. `outer`,
    `inner`: how many filters, and elements from one to the next."""
    problem, (row, column, rows, columns) = layer.problem, taps
    step_r, step_s = layout.filters(problem).steps("RS")
    limit = inner[0] + UNITS
    values: dict[str, Value] = {
        "out": part("out", row * step_r + column * step_s), "planes": sums, "tiles": inner[0], **places, "p": rows,
        "q": columns, "step_h": rows, "step_w": columns, **twiddles(layer.side), **epilogue_of(problem).without_bias(),
        **divisor("d0", inner[0], limit), **divisor("d1", 1, limit), "out_image": inner[1], "out_k": outer[1],
        "out_row": step_r, "out_col": step_s}
    nbytes = FLOAT_BYTES * outer[0] * inner[0] * (2 * layer.planes + rows * columns * (1 + problem.reads_out))
    return fft.transform(kernel(layer.side, "taps"), inner[0], outer[0], values, nbytes,
                         f"sums are transformed back to {rows} x {columns} taps", "out")


FAMILY = Family("fft filters", (), reference, ("filters",), unsupported_reason, candidates, "fft")
