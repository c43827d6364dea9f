"""Direct convolution as in the paper: a CTA computes one output pixel for a tile of images and filters, and walks over
the patch by a table of offsets in constant memory. Groups are launches of their own, dilation is another table."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape
from ..common.correlation import Correlation
from ..common.fastdiv import MOST_SHORT, short_magic
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, round_up, within
from ..common.packing import crsk, packed
from ..common.workspace import Draft, part
from ..spec import LATENCY, Candidates, Family, TileKernel, groups_reason, strided_reason
from .maxwell import KERNELS, OUT_OF_RANGE, TABLE_ENTRIES, TILE_ELEMENTS, ConvKernel
from .reference import reference


def unsupported_reason(problem: Problem) -> str | None:
    """The kernels multiply by alpha and store; they have no other epilogue."""
    if problem.reads_out:
        return "beta"
    if "bias" in problem.roles:
        return "bias"
    if problem.activation:
        return f"activation {problem.activation!r}"
    return groups_reason(problem) or strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    return {spec.name: partial(_plan, problem, spec) for spec in KERNELS}


def _plan(problem: Problem, spec: ConvKernel) -> Plan:
    s: ConvShape = problem.shape
    draft = Draft(problem)
    odd = {o.role for o in problem.operands if o.alignment < Alignment.TEXTURE}
    if problem.layout == "NCHW":
        odd = set()  # the transposed copies are read
    map_bytes = FLOAT_BYTES * s.C // s.groups * s.H * s.W * s.N  # of a group
    copies = bool(s.padding != (0, 0) or s.N % TEXEL_FLOATS or "images" in odd
                  or (s.groups > 1 and map_bytes % REGION_ALIGNMENT))
    _check_limits(s, spec, copies)
    images, source, out = "images", "", "out"
    if problem.layout == "NCHW":
        images = draft.transposed("images_chwn", images, s.N, s.C * s.H * s.W,
                                  "images change layout: the kernel reads C,H,W,N")
        source, out = crsk(draft), draft.region("out_kpqn", s.K * s.P * s.Q * s.N)
    filters = packed(draft, s, source=source).place
    for group in range(s.groups):
        place: str | Part = Part(images, group * map_bytes) if group else images
        if copies:
            place = _padded_map(draft, s, place)
        draft.add(_passes(s, spec, group, place, filters, out))
    if problem.layout == "NCHW":
        draft.transposed_back(out, s.K * s.P * s.Q, s.N)
    draft.notes += _notes(s, spec)
    return draft.plan(FAMILY, spec)


def _padded_map(draft: Draft, s: ConvShape, source: str | Part) -> str:
    c, hp, wp, ns = s.C // s.groups, s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, round_up(s.N, TEXEL_FLOATS)
    why = f" (N={s.N} is no multiple of {TEXEL_FLOATS})" if s.N % TEXEL_FLOATS else ""
    if s.groups > 1:
        why += ", group by group"
    elif s.padding == (0, 0) and not s.N % TEXEL_FLOATS:
        why = " (they begin where no texture may)"
    return draft.padded("map", source, (c, s.H, s.W, s.N), (hp, wp, ns), (s.pad_h, s.pad_w),
                        f"images are copied to a zero-padded map of {c} x {hp} x {wp} x {ns}{why}")


def _check_limits(s: ConvShape, spec: ConvKernel, copies: bool) -> None:
    hp, wp, k = s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, s.K // s.groups
    groups = "" if s.groups == 1 else "/groups"
    within(s, (
        (f"padded map C{groups} x (H + 2 padding) x (W + 2 padding) x N/4", s.C // s.groups * hp * wp * _texels(s.N),
         MAX_TEXELS, "texels, the 4 GiB reach of a texture"),
        (f"filters C{groups} x R x S x K/4", s.patch * s.groups * _texels(k), MAX_TEXELS,
         "texels, the 4 GiB reach of a texture"),
        ("output K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS, "elements"),
        ("output rows P", s.P, MAX_GRID_YZ, "blocks along y of the grid"),
        ("padded map rows H + 2 padding", hp if copies else 0, MAX_GRID_YZ, "blocks along y of the grid"),
        *tile_limits(s, spec),
    ))


def tiles(s: ConvShape | Correlation, spec: TileKernel) -> tuple[tuple[int, int, int], dict[str, Value]]:
    """Grid and parameters of kernels whose blocks compute one output pixel for a tile of images and filters of a group:
    tiles lie along z, those of images fastest."""
    k = s.K // s.groups
    images, filters = (-(-size // tile) for size, tile in zip((s.N, k), spec.tile, strict=True))
    placed: dict[str, Value] = {"k": k, "n": s.N, "image_tiles": images, "tile_magic": short_magic(images)}
    return (s.Q, s.P, filters * images), placed


def tile_limits(s: ConvShape | Correlation, spec: TileKernel) -> tuple[tuple[str, int, int, str], ...]:
    """(what, how many, how many there may be, of what) for that grid."""
    (tile_n, tile_k), groups = spec.tile, "" if s.groups == 1 else "/groups"
    images, filters = -(-s.N // tile_n), -(-s.K // s.groups // tile_k)
    return ((f"image tiles N/{tile_n}", images, MOST_SHORT, "tiles"),
            (f"tiles N/{tile_n} x K{groups}/{tile_k}", images * filters, MAX_GRID_YZ, "blocks along z of the grid"))


def _passes(s: ConvShape, spec: ConvKernel, group: int, images: str | Part, filters: str, out: str) -> Iterator[Launch]:
    """The convolution of a group, cut into runs of patch elements that constant memory has room for."""
    tile_n, tile_k = spec.tile
    k, filter_texels = s.K // s.groups, s.groups * _texels(s.K // s.groups)
    grid, placed = tiles(s, spec)
    fixed: dict[str, Value] = {
        "out": part(out, group * k * s.P * s.Q * s.N), "alpha": "alpha",
        "map_row": s.str_h * (s.W + 2 * s.pad_w) * _texels(s.N) if s.P > 1 else 0,
        "map_col": s.str_w * _texels(s.N) if s.Q > 1 else 0,
        "map_texels": _texels(s.N), "filter_texels": filter_texels,
        "out_plane": s.P * s.Q * s.N, "out_row": s.Q * s.N, **placed}
    doing = f"one output pixel and {tile_n} images x {tile_k} filters each"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    if s.patch > TABLE_ENTRIES:
        doing += (f"; launches that accumulate: {s.patch} patch elements exceed the {TABLE_ENTRIES} offsets that "
                  "constant memory holds")
    longest = TABLE_ENTRIES - TILE_ELEMENTS * spec.extra_iteration
    for first in range(0, s.patch, longest):
        last = min(first + longest, s.patch)
        table = offset_table(s, first, last, extra=spec.extra_iteration and last == s.patch)
        values = {**fixed, "accumulate": int(first > 0), "tiles": len(table) // TILE_ELEMENTS,
                  "filter_offset": first * filter_texels + group * (filter_texels // s.groups)}
        flops = 2 * s.N * s.P * s.Q * k * (last - first + (last == s.patch))  # the last one scales by alpha
        yield Launch(spec, grid, values, _work(s, spec, grid, len(table)), doing, (out,),
                     {"texI": images, "texF": filters}, {"offsets": table.tobytes()}, flops)


def _work(s: ConvShape, spec: ConvKernel, grid: tuple[int, int, int], elements: int) -> Work:
    """Two warps a block, each all slots; maps, filters and outputs once. Alone, a block waits for its first texels and
    for its last stores."""
    loop, rest = spec.slots
    slots = loop * elements // TILE_ELEMENTS + rest
    once = s.C // s.groups * s.H * s.W * s.N + elements * s.K // s.groups + s.K // s.groups * s.P * s.Q * s.N
    translated = slots + (spec.translated - loop) * elements // TILE_ELEMENTS
    code = Cost(2 * slots, slots + LATENCY)
    return Work(grid[0] * grid[1] * grid[2], FLOAT_BYTES * once, code, code.translated(2 * translated))


def offset_table(s: ConvShape, first: int, last: int, extra: bool = False) -> np.ndarray:
    """int32: for each patch element e = (c R + r) S + s of first..last-1 its distance in texels from the patch's first
    element in the padded map; filled to whole kernel steps, or by at least one entry if `extra`, with an offset that
    reads as zero."""
    c, r, col = np.unravel_index(np.arange(first, last), (s.C // s.groups, s.R, s.S))
    hp, wp = s.H + 2 * s.pad_h, s.W + 2 * s.pad_w
    table = np.full(round_up(last - first + extra, TILE_ELEMENTS), OUT_OF_RANGE, np.int32)
    table[:last - first] = ((c * hp + r * s.dil_h) * wp + col * s.dil_w) * _texels(s.N)
    return table


def tile_use(s: ConvShape, spec: ConvKernel) -> tuple[float, float, float]:
    """Share of the computed products that are wanted, along images, filters and patch elements."""
    (images, filters), k = spec.tile, s.K // s.groups
    elements = round_up(s.patch + spec.extra_iteration, TILE_ELEMENTS)
    return s.N / round_up(s.N, images), k / round_up(k, filters), s.patch / elements


def _notes(s: ConvShape, spec: ConvKernel) -> Iterator[str]:
    use_n, use_k, use_e = tile_use(s, spec)
    yield (f"tiles: {use_n:.1%} of the images, {use_k:.1%} of the filters and {use_e:.1%} of the patch elements "
           f"computed are wanted; ragged tiles cost {1 - use_n * use_k * use_e:.1%} of the efficiency")


def _texels(n: int) -> int:
    return -(-n // TEXEL_FLOATS)


FAMILY = Family("direct", KERNELS, reference, ("forward",), unsupported_reason, candidates)
