"""Direct convolution as in the paper: a block computes one output pixel for a tile of images and filters, and walks
over the patch by a table of offsets in constant memory. Groups are launches of their own, dilation is another table."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape
from ..common.correlation import Correlation
from ..memory_ops.plan import MAX_GRID_YZ, pad, transpose
from ..spec import LATENCY, Candidates, Family, Memory, TileKernel, refuses_groups, refuses_strided, seen, within

TEXEL_FLOATS = 4
"""float32 values in one texel: maps and filters are read 16 bytes at a time."""

TILE_ELEMENTS = 8
"""Patch elements (c, r, s) that one loop iteration of a convolution kernel consumes."""

TABLE_ENTRIES = 16384
"""Entries (int32) of the offset table: 64 KiB, all of a constant bank."""

OUT_OF_RANGE = 0x40000000
"""Table entry of an element that does not exist. Added to any base coordinate (below 2^29 + 2^28) it stays a positive
int32 beyond the largest texture (2^28 texels), so the fetch gives zero."""

MAX_IMAGE_TILES = 32768  # the kernel's division by a multiplication is exact up to here
MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits


@dataclass(frozen=True)
class ConvKernel(TileKernel):
    """`extra_iteration`: when 8 divides a layer's patch elements, its loop runs once more than needed."""

    extra_iteration: bool = False


_CONV_DOC = """Forward convolution of one output pixel for one tile of images and filters per block.

O[k,p,q,n] = alpha * sum of I[base(p,q,n) + offsets[e]] * F[first + e, k] over the launch's elements e  (+ O if
accumulate)

Maps I: C,Hp,Wp,Ns float32, zero padded in memory, Ns = N rounded up to a multiple of 4, bound to texI from its first
byte, exact length; texel ((c*Hp + h)*Wp + w)*(Ns/4) + n/4, at most 2^28 texels. Filters F: C,R,S,Ks float32, Ks = K
rounded up to a multiple of 4, bound to texF from its first byte, exact length (reads past the end must give zero).
The padding lanes n >= N and k >= K may hold anything. Output K,P,Q,N with the true K and N, fewer than 2^32 elements;
every element of the tile inside K and N is written once, nothing else.

Offset table: int32 offsets[8 * tiles] in the constant symbol `offsets`, at its start. Entry e is the texel offset
((c*Hp + r)*Wp + s)*(Ns/4) of the launch's element e; elements are numbered (c*R + r)*S + s over the whole layer and a
launch takes a run of them. Entries past the last element are OUT_OF_RANGE. Entries beyond
8 * tiles are never read. A layer of more than TABLE_ENTRIES elements is cut into runs; every run but the last must be a
multiple of 8 elements (the fill of a run would otherwise meet real filters). The first launch has accumulate 0, the
others 1; run boundaries need not be channel boundaries.

Grid: x = Q, y = P (at most 65535), z = filter tiles * image tiles, image tile fastest:
blockIdx.z = filter_tile * image_tiles + image_tile (at most 65535). Block: (64, 1, 1)."""


CONV_64X64 = ConvKernel("sconv_fprop_K64_N64", "conv_fprop_64x64.sass", _CONV_DOC, (64, 64), (520, 347), 596)
CONV_128X32 = ConvKernel("sconv_fprop_K32_N128", "conv_fprop_128x32.sass", _CONV_DOC, (128, 32), (521, 356),
                         618)
CONV_PAPER = ConvKernel("sconv_fprop_paper", "conv_fprop_paper.sass", _CONV_DOC, (64, 64), (521, 343), 596,
                        extra_iteration=True)
"""The 64 x 64 kernel with the loop of the paper; what timings are compared with the paper's by. See its source."""

KERNELS = (CONV_64X64, CONV_128X32, CONV_PAPER)


_UNALIGNED = " (they begin where no texture may)"


def refuses(problem: Problem) -> str | None:
    """The kernels multiply by alpha and store; that is all they do at the end."""
    if problem.reads_out:
        return "beta"
    if "bias" in problem.roles:
        return "bias"
    if problem.activation:
        return f"activation {problem.activation!r}"
    return refuses_groups(problem) or refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    return {spec.name: partial(_plan, problem, spec) for spec in KERNELS}


def _plan(problem: Problem, spec: ConvKernel) -> Plan:
    s: ConvShape = problem.shape
    odd = {o.role for o in problem.operands if o.alignment < Alignment.TEXTURE}
    if problem.layout == "NCHW":
        odd = set()  # the transposed copies are read
    map_bytes = FLOAT_BYTES * s.C // s.groups * s.H * s.W * s.N  # of a group
    copies = bool(s.padding != (0, 0) or s.N % TEXEL_FLOATS or "images" in odd
                  or (s.groups > 1 and map_bytes % REGION_ALIGNMENT))
    _check_limits(s, spec, copies)
    regions: dict[str, int] = {}

    def region(name: str, elements: int) -> str:
        regions[name] = FLOAT_BYTES * elements
        return name
    before, after = [], []
    images, filters, out = "images", "filters", "out"
    if problem.layout == "NCHW":
        before = [transpose(region("images_chwn", s.C * s.H * s.W * s.N), images, s.N, s.C * s.H * s.W,
                            "images change layout: the kernel reads C,H,W,N"),
                  transpose(region("filters_crsk", s.patch * s.K), filters, s.K, s.patch,
                            "filters change layout: the kernel reads C,R,S,K")]
        images, filters, out = "images_chwn", "filters_crsk", region("out_kpqn", s.K * s.P * s.Q * s.N)
        after = [transpose("out", out, s.K * s.P * s.Q, s.N, "the output K,P,Q,N changes layout")]
    k, ks = s.K // s.groups, _texels(s.K // s.groups) * TEXEL_FLOATS
    if k % TEXEL_FLOATS or "filters" in odd:
        bank = region("filter_bank", s.patch * s.groups * ks)
        why = _because(k, "K" if s.groups == 1 else "K/groups") or _UNALIGNED
        before.append(pad(bank, filters, (1, 1, s.patch * s.groups, k), (1, s.patch * s.groups, ks), (0, 0),
                          f"filters are copied to {s.C // s.groups} x {s.R} x {s.S} x {s.groups * ks}{why}"))
        filters = bank
    launches = []
    for group in range(s.groups):
        source: str | Part = Part(images, group * map_bytes) if group else images
        if copies:
            launches.append(_padded_map(s, source, region))
            source = "map"
        launches += _passes(s, spec, group, source, filters, out)
    return make(problem, "direct", spec, (*before, *launches, *after), regions, _notes(s, spec))


def _padded_map(s: ConvShape, source: str | Part, region: Callable[[str, int], str]) -> Launch:
    c, hp, wp, ns = s.C // s.groups, s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, _texels(s.N) * TEXEL_FLOATS
    why = _because(s.N, "N")
    if s.groups > 1:
        why += ", group by group"
    elif s.padding == (0, 0) and not s.N % TEXEL_FLOATS:
        why = _UNALIGNED
    return pad(region("map", c * hp * wp * ns), source, (c, s.H, s.W, s.N), (hp, wp, ns), (s.pad_h, s.pad_w),
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
    placed: dict[str, Value] = {"k": k, "n": s.N, "image_tiles": images, "tile_magic": -(-2**31 // images)}
    return (s.Q, s.P, filters * images), placed


def tile_limits(s: ConvShape | Correlation, spec: TileKernel) -> tuple[tuple[str, int, int, str], ...]:
    """(what, how many, how many there may be, of what) for that grid."""
    (tile_n, tile_k), groups = spec.tile, "" if s.groups == 1 else "/groups"
    images, filters = -(-s.N // tile_n), -(-s.K // s.groups // tile_k)
    return ((f"image tiles N/{tile_n}", images, MAX_IMAGE_TILES, "tiles"),
            (f"tiles N/{tile_n} x K{groups}/{tile_k}", images * filters, MAX_GRID_YZ, "blocks along z of the grid"))


def _passes(s: ConvShape, spec: ConvKernel, group: int, images: str | Part, filters: str, out: str) -> Iterator[Launch]:
    """The convolution of a group, cut into runs of patch elements that constant memory has room for."""
    tile_n, tile_k = spec.tile
    k, filter_texels = s.K // s.groups, s.groups * _texels(s.K // s.groups)
    grid, placed = tiles(s, spec)
    fixed: dict[str, Value] = {
        "out": Part(out, FLOAT_BYTES * group * k * s.P * s.Q * s.N) if group else out, "alpha": "alpha",
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
    return Work(grid[0] * grid[1] * grid[2], 2 * slots, slots + LATENCY, FLOAT_BYTES * once, 2 * translated)


def offset_table(s: ConvShape, first: int, last: int, extra: bool = False) -> np.ndarray:
    """int32: for each patch element e = (c R + r) S + s of first..last-1 its distance in texels from the patch's first
    element in the padded map; filled to whole kernel steps, or by at least one entry if `extra`, with an offset that
    reads as zero."""
    c, r, col = np.unravel_index(np.arange(first, last), (s.C // s.groups, s.R, s.S))
    hp, wp = s.H + 2 * s.pad_h, s.W + 2 * s.pad_w
    table = np.full(_round_up(last - first + extra, TILE_ELEMENTS), OUT_OF_RANGE, np.int32)
    table[:last - first] = ((c * hp + r * s.dil_h) * wp + col * s.dil_w) * _texels(s.N)
    return table


def tile_use(s: ConvShape, spec: ConvKernel) -> tuple[float, float, float]:
    """Share of the computed products that are wanted, along images, filters and patch elements."""
    (images, filters), k = spec.tile, s.K // s.groups
    elements = _round_up(s.patch + spec.extra_iteration, TILE_ELEMENTS)
    return s.N / _round_up(s.N, images), k / _round_up(k, filters), s.patch / elements


def _notes(s: ConvShape, spec: ConvKernel) -> Iterator[str]:
    use_n, use_k, use_e = tile_use(s, spec)
    yield (f"tiles: {use_n:.1%} of the images, {use_k:.1%} of the filters and {use_e:.1%} of the patch elements "
           f"computed are wanted; ragged tiles cost {1 - use_n * use_k * use_e:.1%} of the efficiency")


def _texels(n: int) -> int:
    return -(-n // TEXEL_FLOATS)


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _because(size: int, name: str) -> str:
    return f" ({name}={size} is no multiple of {TEXEL_FLOATS})" if size % TEXEL_FLOATS else ""


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v = launch.numbers
    assert isinstance(launch.spec, ConvKernel)
    (q, p, z), (images, filters) = launch.grid, launch.spec.tile
    elements = np.arange(TILE_ELEMENTS * v["tiles"])
    table = np.frombuffer(launch.tables["offsets"], np.int32)[:len(elements)].astype(np.int64)
    out = seen(memory, launch.values["out"])
    rows = np.arange(p)[:, None, None, None] * v["map_row"] + np.arange(q)[:, None, None] * v["map_col"]
    for block_z in range(z):
        tile_k = block_z * v["tile_magic"] >> 31
        tile_n = block_z - tile_k * v["image_tiles"]
        n, k = np.arange(images) + images * tile_n, np.arange(filters) + filters * tile_k
        n4, k4 = n[::4] // 4, k[::4] // 4
        maps = _fetched(memory, launch.textures["texI"], rows + table[:, None] + n4).reshape(p, q, -1, images)
        bank = _fetched(memory, launch.textures["texF"],
                        v["filter_offset"] + elements[:, None] * v["filter_texels"] + k4).reshape(-1, filters)
        maps, bank = maps[..., n < v["n"]].astype(float), bank[:, k < v["k"]].astype(float)
        n, k = n[n < v["n"]], k[k < v["k"]]
        sums = scalars["alpha"] * np.einsum("pqen,ek->kpqn", maps, bank)
        where = (k[:, None, None, None] * v["out_plane"] + np.arange(p)[:, None, None] * v["out_row"]
                 + np.arange(q)[:, None] * v["n"] + n)
        out[where] = sums + (out[where] if v["accumulate"] else 0)


def _fetched(memory: Memory, place: Value, coordinates: np.ndarray) -> np.ndarray:
    """Rows of four floats of a texture; zeros outside of it."""
    texels = seen(memory, place).reshape(-1, TEXEL_FLOATS)
    inside = (coordinates >= 0) & (coordinates < len(texels))
    return np.where(inside[..., None], texels[np.where(inside, coordinates, 0)], np.float32(0))


FAMILY = Family("direct", KERNELS, contract, ("forward",), refuses, candidates)
