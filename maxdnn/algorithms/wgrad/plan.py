"""Gradients of filters: products of maps and gradients whose sums run over images and pixels, by tiles of filter
elements e = (c, r, s) and filters. Few tiles and long sums: they are split, and the parts are added in a fixed order.
For N a multiple of 8 in C,H,W,N; other arrays are copied to that first. Compute capability 9.0 has machine code of its
own for it, by larger tiles."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Operand, Problem
from ...problem.shape import ConvShape
from ..implicit_gemm.maxwell import magic
from ..memory_ops.plan import MAX_GRID_YZ, pad, reduce_many, transpose
from ..spec import Candidates, Family, Memory, TileKernel, finish, fused, refuses_strided, seen, split_name, within

GROUP = 8
"""Images of one pixel that an iteration consumes."""

TEXEL_FLOATS = 4
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LONGEST = 32768
"""Terms that are added one after the other, if splits allow."""

MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits
MAX_SIDE = 65535  # of maps and of what taps reach: the kernels multiply 16 bits
MAX_BLOCKS = 32768  # the kernel's division by a multiplication is exact up to here
VECTORS = 4  # flag of the kernels: rows of the result begin at multiples of 16 bytes
_SMS = 132  # of the chips that have machine code
_ALONE = 1400  # clocks of an iteration of a block that has an SM for itself, as of products, timed on an H200
_PACE = 0.95  # slots that a scheduler of a filled SM issues in a clock, as of convolutions, timed on an H200
_LATENCY = 4000  # clocks of a block alone that are no issue slot: divisions, first fetches, last stores

_DOC = """Gradient of filters by tiles of elements e = (c, r, s) and filters, or, split, parts of its sums: see
filters.inc. Grid: x, y = tiles of what lies innermost in the result and of the other, z = groups of the layer * splits,
splits fastest."""


@dataclass(frozen=True)
class FiltersKernel(TileKernel):
    """`tile`: elements and filters. `inner`: which of them lies innermost in the result, "e" or "k". `between`: issue
    slots of a warp between two pixels. Of machine code for one architecture `resident`: blocks of an SM at a time."""

    inner: str
    between: int
    resident: int = 0

    @property
    def layout(self) -> str:
        """Of the problems whose filters lie like its results."""
        return "CHWN" if self.inner == "k" else "NCHW"

    def oriented(self, elements: int, filters: int) -> tuple[int, int]:
        """What belongs to its rows and to its columns; and the other way round."""
        return (elements, filters) if self.inner == "k" else (filters, elements)


def _kernel(inner: str) -> FiltersKernel:
    return FiltersKernel(f"sconv_filters_64x64_{inner}", "maxwell/conv_filters_64x64.sass", _DOC, (64, 64),
                         (521, 535), 600,
                         inner, 28)


def native_kernel(name: str, tile: tuple[int, int], inner: str, slots: tuple[int, int], between: int,
                  doc: str) -> FiltersKernel:
    """In sm90/<name>.sass."""
    return FiltersKernel(f"sm90_{name}_{tile[0]}x{tile[1]}_{inner}", f"sm90/{name}.sass", doc, tile, slots, slots[0],
                         inner, between, 2 if tile == (128, 128) else 4)


FILTERS_K, FILTERS_E = (_kernel(inner) for inner in "ke")
KERNELS = (FILTERS_K, FILTERS_E)
NATIVE = tuple(native_kernel("filters", *row, _DOC) for row in (
    ((128, 128), "k", (1104, 450), 35), ((128, 128), "e", (1104, 450), 35),
    ((64, 128), "k", (1116, 470), 37), ((128, 64), "e", (1116, 516), 57)))
"""For compute capability 9.0 alone: operands by address instead of textures."""


def candidates(problem: Problem) -> Candidates:
    """Of the kernels whose results lie as the filters do, and of those for few channels or filters."""
    groups, s = _terms(problem).groups, problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    for spec in (*KERNELS, *NATIVE):
        turned = spec.layout != problem.layout
        if turned and (spec in KERNELS or spec.tile[0] == spec.tile[1] or problem.reads_out):
            continue
        for splits in splits_of(spec, s, groups):
            found[split_name(spec, splits)] = partial(_plan, problem, spec, splits)
    return found


def splits_of(spec: FiltersKernel, s: ConvShape, groups: int) -> Iterator[int]:
    """Those of which the estimate takes one; with machine code those, too, that make whole waves of blocks."""
    wanted = set(SPLITS)
    if spec.resident:
        tiles = -(-s.patch // spec.tile[0]) * -(-(s.K // s.groups) // spec.tile[1]) * s.groups
        waves = (_SMS * spec.resident * count // tiles for count in range(1, 5))
        wanted.update(splits for splits in waves if 0 < splits <= SPLITS[-1])
    for splits in sorted(wanted):
        share = -(-groups // splits)
        longer = any(x > splits and x <= groups for x in SPLITS)
        if -(-groups // share) == splits and (GROUP * share <= LONGEST or not longer):
            yield splits


@dataclass(frozen=True)
class _Terms:
    """How a sum's terms lie. It walks over `pixels`, `columns` to a row, and `inner` terms of each, a multiple of 8.
    Texels of maps from one channel, row and column to the next, from one pixel to the one below and to its right; of
    gradients from one filter to the next, and from behind a pixel to the next one."""

    pixels: int
    columns: int
    inner: int
    channel: int
    row: int
    column: int
    down: int
    right: int
    filter: int
    jump: int

    @property
    def groups(self) -> int:
        return self.pixels * self.inner // GROUP


def _terms(problem: Problem) -> _Terms:
    s: ConvShape = problem.shape
    if _as_they_lie(problem):  # images stand for pixels, pixels for images
        texels = s.P * s.Q // TEXEL_FLOATS
        return _Terms(s.N, 1, s.P * s.Q, texels, 0, 0, s.C * texels, 0, texels, (s.K - 1) * texels)
    every = -(-s.N // GROUP) * GROUP
    column = every // TEXEL_FLOATS
    row = s.W * column
    down, right = s.str_h * row if s.P > 1 else 0, s.str_w * column if s.Q > 1 else 0
    return _Terms(s.P * s.Q, s.Q, every, s.H * row, row, column, down, right, s.P * s.Q * column, 0)


def _as_they_lie(problem: Problem) -> bool:
    """Whether a sum of N,C,H,W runs over whole maps, which begin with texels."""
    s: ConvShape = problem.shape
    return (problem.layout == "NCHW" and (s.R, s.S, s.stride, s.padding) == (1, 1, (1, 1), (0, 0))
            and s.P * s.Q % GROUP == 0 and all(problem.operand(role).alignment == Alignment.TEXTURE
                                               for role in ("images", "gradients")))


def _plan(problem: Problem, spec: FiltersKernel, splits: int) -> Plan:
    s, terms = problem.shape, _terms(problem)
    _check_limits(s, terms, splits)
    regions: dict[str, int] = {}
    before: list[Launch] = []
    images = _readable(problem, terms, problem.operand("images"), (s.C, s.H, s.W), regions, before)
    gradients = _readable(problem, terms, problem.operand("gradients"), (s.K, s.P, s.Q), regions, before)
    return split(problem, spec, splits, partial(_passes, s, terms, spec, images, gradients), before, regions)


Passes = Callable[[str, int, Mapping[str, Value]], Iterable[Launch]]
"""The launches that compute a result, or parts of sums: where, how many parts, and the last step."""


def split(problem: Problem, spec: FiltersKernel, splits: int, passes: Passes, before: Iterable[Launch],
          regions: dict[str, int]) -> Plan:
    """The plan whose sums come in so many parts; a result that does not lie as the filters do is turned."""
    s: ConvShape = problem.shape
    size, ending = s.patch * s.K, fused(problem, 0)
    out, after, notes = "out", [], []

    def region(name: str, elements: int) -> str:
        regions[name] = FLOAT_BYTES * elements
        return name
    if spec.layout != problem.layout:
        out = region("turned", size)
        rows, columns = spec.oriented(s.patch, s.K)
        after.append(transpose("out", out, rows, columns, "the result changes layout"))
    if splits == 1:
        launches = [*passes(out, 1, ending)]
    else:
        launches = [*passes(region("parts", splits * size), splits, {"flags": 0, "alpha": 1.0, "beta": 0.0}),
                    *reduce_many("parts", out, splits, size, ending, region)]
        notes.append(f"the sums of {s.N * s.P * s.Q} products are split {splits} ways; the parts are added in a fixed "
                     "order")
    return make(problem, "filters", spec, (*before, *launches, *after), regions, notes)


def _readable(problem: Problem, terms: _Terms, operand: Operand, size: tuple[int, int, int], regions: dict[str, int],
              before: list[Launch]) -> str:
    """Where the operand lies as the kernel reads it: channels, rows, columns, images in multiples of 8."""
    s: ConvShape = problem.shape
    (c, h, w), role, n, every = size, operand.role, s.N, terms.inner
    if _as_they_lie(problem):
        return role
    place = role
    if problem.layout == "NCHW":
        place = f"{role}_chwn"
        regions[place] = FLOAT_BYTES * c * h * w * n
        before.append(transpose(place, role, n, c * h * w, f"{role} change layout: the kernel reads C,H,W,N"))
    if n != every or (place == role and operand.alignment < Alignment.TEXTURE):
        padded = f"{role}_padded"
        regions[padded] = FLOAT_BYTES * c * h * w * every
        why = f"N={n} is no multiple of {GROUP}" if n != every else "they begin where no texture may"
        before.append(pad(padded, place, (c, h, w, n), (h, w, every), (0, 0), f"{role} are copied: {why}"))
        place = padded
    return place


def _passes(s: ConvShape, terms: _Terms, spec: FiltersKernel, images: str, gradients: str, out: str, splits: int,
            ending: Mapping[str, Value]) -> Iterator[Launch]:
    """One launch, or several for many groups of the layer."""
    k, c = s.K // s.groups, s.C // s.groups
    rows, columns = spec.oriented(s.patch, k)
    out_row, out_batch = (s.K, k) if spec.inner == "k" else (s.patch, k * s.patch)
    vectors = out != "out" and not (out_row % 4 or out_batch % 4)
    flags = ending["flags"]
    assert isinstance(flags, int)
    str_h, str_w = s.str_h if s.P > 1 else 0, s.str_w if terms.columns > 1 else 0
    if terms.row == 0:  # all terms lie inside
        str_h = 0
    values: dict[str, Value] = {
        "out": out, "alpha": ending["alpha"], "beta": ending["beta"], "flags": flags | VECTORS * vectors,
        "m": rows, "n": columns, "groups": terms.groups, "share": -(-terms.groups // splits), "splits": splits,
        "split_magic": -(-2**31 // splits), "i_batch": c * terms.channel,
        "i_start": -(s.pad_h * terms.row + s.pad_w * terms.column) % 2**32, "i_c": terms.channel,
        "i_r": s.dil_h * terms.row, "i_s": s.dil_w * terms.column, "i_p": terms.down, "i_q": terms.right,
        "i_wrap": (terms.down - terms.columns * terms.right) % 2**32, "str_h": str_h, "str_w": str_w,
        "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32, "end_w": (terms.columns * str_w - s.pad_w) % 2**32,
        "dil_h": s.dil_h if s.R > 1 else 0, "dil_w": s.dil_w if s.S > 1 else 0, "h": s.H, "w": s.W,
        "g_batch": k * terms.filter, "g_k": terms.filter, "g_jump": terms.jump, "out_row": out_row,
        "out_batch": out_batch, "out_split": s.patch * s.K if splits > 1 else 0}
    for name, divisor, limit in (("eights", terms.inner // GROUP, terms.groups), ("q", terms.columns, terms.pixels),
                                 ("rs", s.R * s.S, s.patch + spec.tile[0]), ("s", s.S, s.R * s.S)):
        values[name] = divisor
        values[f"{name}_magic"], values[f"{name}_shift"] = magic(divisor, limit)
    doing = f"{spec.tile[0]} filter elements x {spec.tile[1]} filters each" + ", a part of each sum" * (splits > 1)
    textures: dict[str, str | Part] = {"tex_I": images, "tex_G": gradients}
    if spec.arch:
        values, textures = values | {"maps": images, "gradients": gradients}, {}
    tile_y, tile_x = spec.oriented(*spec.tile)
    most = MAX_BLOCKS // splits
    for first in range(0, s.groups, most):
        count = min(most, s.groups - first)
        grid = -(-columns // tile_x), -(-rows // tile_y), count * splits
        flops = s.flops * (first + count) // s.groups - s.flops * first // s.groups
        yield Launch(spec, grid, values | {"first": first}, _work(s, terms, spec, grid, splits, count), doing, (out,),
                     textures, flops=flops)


def _work(s: ConvShape, terms: _Terms, spec: FiltersKernel, grid: tuple[int, int, int], splits: int,
          count: int) -> Work:
    """All slots of all warps; maps, gradients and results once."""
    share, blocks = -(-terms.groups // splits), grid[0] * grid[1] * grid[2]
    between = spec.between * share * GROUP / terms.inner
    nbytes = FLOAT_BYTES * ((s.C * s.H * s.W + s.K * s.P * s.Q) * s.N * count / s.groups + splits * s.patch * s.K)
    if spec.arch:
        return native_work(spec, share, blocks, between, nbytes)
    loop, rest = spec.slots
    slots, translated = loop * share + between + rest, spec.translated * share + between + rest
    return Work(blocks, 2 * slots, slots + _LATENCY, nbytes, 2 * translated)


def native_work(spec: FiltersKernel, share: int, blocks: int, between: float, nbytes: float) -> Work:
    """Of machine code, whose blocks come in waves; `between`: a warp's slots beside those of so many iterations."""
    loop, rest = spec.slots
    warps, slots = spec.threads // 32, loop * share + between + rest
    return Work(blocks, warps * slots / _PACE, _ALONE * share + between + rest, nbytes, resident=spec.resident,
                warps=warps, ends=_LATENCY)


def result_limits(s: ConvShape, splits: int) -> tuple[tuple[str, int, int, str], ...]:
    """Of what the results of these kernels may be, for `within`."""
    return ((f"parts {splits} x C x R x S x K", splits * s.patch * s.K, MAX_ELEMENTS, "elements"),
            ("tiles of 64 elements or filters", max(-(-s.patch // 64), -(-s.K // s.groups // 64)), MAX_GRID_YZ,
             "blocks along y of a grid"))


def _check_limits(s: ConvShape, terms: _Terms, splits: int) -> None:
    images = terms.groups * GROUP // (s.P * s.Q)
    within(s, (
        ("maps C x H x W x N", s.C * s.H * s.W * images, TEXEL_FLOATS * MAX_TEXELS, "elements, the reach of a texture"),
        ("gradients K x P x Q x N", s.K * s.P * s.Q * images, TEXEL_FLOATS * MAX_TEXELS,
         "elements, the reach of a texture"),
        ("rows and columns H, W + 2 padding", max(s.H + 2 * s.pad_h, s.W + 2 * s.pad_w), MAX_SIDE,
         "where gradients of filters are computed"),
        *result_limits(s, splits),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, FiltersKernel)
    (x, y, z), tile = launch.grid, spec.oriented(*spec.tile)
    assert (y, x) == (-(-v["m"] // tile[0]), -(-v["n"] // tile[1]))
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("i_start", "i_wrap", "start_h", "start_w", "end_w")}
    assert signed["i_wrap"] == v["i_p"] - v["q"] * v["i_q"]
    assert signed["end_w"] == signed["start_w"] + v["q"] * v["str_w"]
    elements, filters = spec.oriented(v["m"], v["n"])
    e, k = np.arange(elements), np.arange(filters)
    c, r, s = e // v["rs"], e % v["rs"] // v["s"], e % v["s"]
    places = ("maps", "gradients") if spec.arch else ("tex_I", "tex_G")
    maps, gradients = (seen(memory, (launch.values if spec.arch else launch.textures)[name]) for name in places)
    eight = np.arange(GROUP)
    for block in range(z):
        batch, split = block * v["split_magic"] >> 31, block % v["splits"]
        assert batch == block // v["splits"]
        batch += v["first"]
        sums = np.zeros((elements, filters))
        groups = range(split * v["share"], min((split + 1) * v["share"], v["groups"]))
        assert len(groups)
        for group in groups:
            pixel, images = divmod(group, v["eights"])
            p, q = divmod(pixel, v["q"])
            row, column = (signed[f"start_{a}"] + i * v[f"str_{a}"] + t * v[f"dil_{a}"]
                           for a, i, t in (("h", p, r), ("w", q, s)))
            inside = (row >= 0) & (row < v["h"]) & (column >= 0) & (column < v["w"])
            base = (batch * v["i_batch"] + signed["i_start"] + p * v["i_p"] + q * v["i_q"] + c * v["i_c"] + r * v["i_r"]
                    + s * v["i_s"])
            at = TEXEL_FLOATS * np.where(inside, base, 0)[:, None] + GROUP * images + eight
            values = np.where(inside[:, None], maps[at], 0).astype(float)
            base = batch * v["g_batch"] + k * v["g_k"] + pixel * v["g_jump"]
            at = TEXEL_FLOATS * base[:, None] + GROUP * group + eight
            sums += values @ gradients[at].astype(float).T
        rows = np.arange(v["m"])[:, None]
        where = batch * v["out_batch"] + split * v["out_split"] + rows * v["out_row"] + np.arange(v["n"])
        finish(launch, memory, scalars, where, sums if spec.inner == "k" else sums.T, rows)


FAMILY = Family("filters", (*KERNELS, *NATIVE), contract, ("filters",), refuses_strided, candidates)
