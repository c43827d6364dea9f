"""Gradients of filters: products of maps and gradients whose sums run over images and pixels, by tiles of filter
elements e = (c, r, s) and filters. Few tiles and long sums: they are split, and the parts are added in a fixed order.
For N a multiple of 8 in C,H,W,N; other arrays are copied to that first. Compute capability 9.0 has machine code of its
own for it, by larger tiles."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, Value
from ...problem.problem import Alignment, Operand, Problem
from ...problem.shape import ConvShape
from ..common.epilogue import PARTIAL, VECTORS, Epilogue, epilogue_of
from ..common.fastdiv import MOST_SHORT, divisor, short_magic
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, within
from ..common.schedule import LONG_SPLITS, LONGEST, divides, split_name
from ..common.workspace import Draft
from ..memory_ops.plan import reduce_many
from ..spec import Candidates, Family, strided_reason
from .maxwell import GROUP, KERNELS, FiltersKernel
from .reference import reference
from .sm90 import NATIVE, native_work

MAX_SIDE = 65535  # of maps and of what taps reach: the kernels multiply 16 bits
_LATENCY = 4000  # clocks of a CTA alone that are no issue slot: divisions, first fetches, last stores; assumed


def candidates(problem: Problem, chip: Chip) -> Candidates:
    """Of the kernels whose results lie as the filters do, and of those for few channels or filters."""
    groups, s = _terms(problem).groups, problem.shape
    found: dict[str, Callable[[], Plan]] = {}
    for spec in (*KERNELS, *NATIVE):
        transposed = spec.layout != problem.layout
        if transposed and (spec in KERNELS or spec.tile[0] == spec.tile[1] or problem.reads_out):
            continue
        for splits in wgrad_splits(spec, s, groups, chip):
            found[split_name(spec.name, splits)] = partial(_plan, problem, spec, splits)
    return found


def wgrad_splits(spec: FiltersKernel, s: ConvShape, groups: int, chip: Chip) -> Iterator[int]:
    """Those of which the estimate takes one; with machine code those, too, that make whole waves."""
    tiles = -(-s.patch // spec.tile[0]) * -(-(s.K // s.groups) // spec.tile[1]) * s.groups
    return filling_splits(groups, GROUP, tiles, chip.sms * spec.ctas_per_sm)


def filling_splits(iterations: int, terms: int, tiles: int, slots: int, longest: int = LONGEST) -> Iterator[int]:
    """The splits of so many iterations of so many terms, of sums no longer than `longest`, if splits allow; those, too,
    by which tiles make whole waves of so many `slots` (0: of a number that is not known)."""
    wanted = {*LONG_SPLITS, *(slots * count // tiles for count in range(1, 5))}
    for splits in sorted(wanted):
        longer = any(splits < x <= iterations for x in LONG_SPLITS)
        if (0 < splits <= LONG_SPLITS[-1] and divides(iterations, splits)
                and (terms * -(-iterations // splits) <= longest or not longer)):
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
    s, terms, draft = problem.shape, _terms(problem), Draft(problem)
    _check_limits(s, terms, splits)
    images = _readable(draft, terms, problem.operand("images"), (s.C, s.H, s.W))
    gradients = _readable(draft, terms, problem.operand("gradients"), (s.K, s.P, s.Q))
    return split(draft, spec, splits, partial(_passes, s, terms, spec, images, gradients))


Passes = Callable[[str, int, Epilogue], Iterable[Launch]]
"""The launches that compute a result, or parts of sums: where, how many parts, and the epilogue."""


def split(draft: Draft, spec: FiltersKernel, splits: int, passes: Passes) -> Plan:
    """The plan whose sums come in so many parts; a result that does not lie as the filters do is transposed."""
    problem = draft.problem
    s: ConvShape = problem.shape
    size, epilogue, out = s.patch * s.K, epilogue_of(problem), "out"
    if spec.layout != problem.layout:
        out = draft.region("transposed", size)
    if splits == 1:
        draft.add(passes(out, 1, epilogue))
    else:
        draft.add(passes(draft.region("parts", splits * size), splits, PARTIAL))
        draft.add(reduce_many("parts", out, splits, size, epilogue, draft.region))
        draft.notes.append(f"the sums of {s.N * s.P * s.Q} products are split {splits} ways; the parts are added in a "
                           "fixed order")
    if spec.layout != problem.layout:
        draft.transposed_back(out, *spec.oriented(s.patch, s.K), "the result changes layout")
    return draft.plan(FAMILY, spec)


def _readable(draft: Draft, terms: _Terms, operand: Operand, size: tuple[int, int, int]) -> str:
    """Where the operand lies as the kernel reads it: channels, rows, columns, images in multiples of 8."""
    problem = draft.problem
    (c, h, w), role, n, every = size, operand.role, problem.shape.N, terms.inner
    if _as_they_lie(problem):
        return role
    place = role
    if problem.layout == "NCHW":
        place = draft.transposed(f"{role}_chwn", role, n, c * h * w,
                                 f"{role} change layout: the kernel reads C,H,W,N")
    if n == every and (place != role or operand.alignment == Alignment.TEXTURE):
        return place
    why = f"N={n} is no multiple of {GROUP}" if n != every else "they begin where no texture may"
    return draft.padded(f"{role}_padded", place, (c, h, w, n), (h, w, every), (0, 0), f"{role} are copied: {why}")


def rows_of_result(s: ConvShape, spec: FiltersKernel) -> tuple[int, int, int, int]:
    """Rows and columns of a group's result, elements from one row and one group to the next."""
    k = s.K // s.groups
    return (*spec.oriented(s.patch, k), *((s.K, k) if spec.inner == "k" else (s.patch, k * s.patch)))


def result_values(s: ConvShape, spec: FiltersKernel, groups: int, out: str, splits: int,
                  epilogue: Epilogue) -> dict[str, Value]:
    """Parameters of all kernels of wgrad. `groups`: iterations of all parts."""
    rows, columns, out_row, out_batch = rows_of_result(s, spec)
    vectors = out != "out" and not (out_row % TEXEL_FLOATS or out_batch % TEXEL_FLOATS)
    return epilogue.without_bias(VECTORS * vectors) | {
        "out": out, "m": rows, "n": columns, "groups": groups, "share": -(-groups // splits), "splits": splits,
        "split_magic": short_magic(splits), "out_row": out_row, "out_batch": out_batch,
        "out_split": s.patch * s.K if splits > 1 else 0}


def over_groups(s: ConvShape, spec: FiltersKernel, out: str, splits: int, values: Mapping[str, Value],
                work: Callable[[tuple[int, int, int], int], Work], textures: Mapping[str, str | Part],
                tables: Mapping[str, bytes]) -> Iterator[Launch]:
    """One launch, or several for many groups of the layer. `work`: of a grid for so many groups."""
    rows, columns, _, _ = rows_of_result(s, spec)
    doing = f"{spec.tile[0]} filter elements x {spec.tile[1]} filters each" + ", a part of each sum" * (splits > 1)
    tile_y, tile_x = spec.oriented(*spec.tile)
    most = MOST_SHORT // splits
    for first in range(0, s.groups, most):
        count = min(most, s.groups - first)
        grid = -(-columns // tile_x), -(-rows // tile_y), count * splits
        flops = s.flops * (first + count) // s.groups - s.flops * first // s.groups
        yield Launch(spec, grid, {**values, "first": first}, work(grid, count), doing, (out,), textures, tables, flops)


def _passes(s: ConvShape, terms: _Terms, spec: FiltersKernel, images: str, gradients: str, out: str, splits: int,
            epilogue: Epilogue) -> Iterator[Launch]:
    k, c = s.K // s.groups, s.C // s.groups
    str_h, str_w = s.str_h if s.P > 1 else 0, s.str_w if terms.columns > 1 else 0
    if terms.row == 0:  # all terms lie inside
        str_h = 0
    values = result_values(s, spec, terms.groups, out, splits, epilogue) | {
        "i_batch": c * terms.channel, "i_start": -(s.pad_h * terms.row + s.pad_w * terms.column) % 2**32,
        "i_c": terms.channel, "i_r": s.dil_h * terms.row, "i_s": s.dil_w * terms.column, "i_p": terms.down,
        "i_q": terms.right, "i_wrap": (terms.down - terms.columns * terms.right) % 2**32, "str_h": str_h,
        "str_w": str_w, "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32,
        "end_w": (terms.columns * str_w - s.pad_w) % 2**32, "dil_h": s.dil_h if s.R > 1 else 0,
        "dil_w": s.dil_w if s.S > 1 else 0, "h": s.H, "w": s.W, "g_batch": k * terms.filter, "g_k": terms.filter,
        "g_jump": terms.jump}
    for name, size, limit in (("eights", terms.inner // GROUP, terms.groups), ("q", terms.columns, terms.pixels),
                              ("rs", s.R * s.S, s.patch + spec.tile[0]), ("s", s.S, s.R * s.S)):
        values |= divisor(name, size, limit)
    textures = {} if spec.arch else {"tex_I": images, "tex_G": gradients}
    if spec.arch:
        values |= {"maps": images, "gradients": gradients}
    return over_groups(s, spec, out, splits, values,
                       lambda grid, count: _work(s, terms, spec, grid, splits, count), textures, {})


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
    code = Cost(2 * slots, slots + _LATENCY)
    return Work(blocks, nbytes, code, code.translated(2 * translated))


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


FAMILY = Family("filters", (*KERNELS, *NATIVE), reference, ("filters",), strided_reason, candidates)
