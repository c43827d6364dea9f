"""Convolution over flattened pixels: a tile holds 64 pixels of whatever images and rows, so any number of images fills
tiles, in either layout, where the maps lie. Padding is a test in the kernel. A reduction too long for a grid too small
is split, and its parts are added in a fixed order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ...errors import ShapeError
from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, as_they_lie, correlations, maps_of, refuses_classes, turned
from ..memory_ops.plan import MAX_GRID_YZ, fill, pad, reduce, transpose
from ..spec import Candidates, Family, fused, split_name, within
from .kernels import (
    BEYOND,
    KERNELS,
    MOST_TAPS,
    OUT_OF_RANGE,
    PIXELS_FIRST,
    TESTS,
    TEXEL_FLOATS,
    TILE_ELEMENTS,
    Maps,
    PixelKernel,
    contract,
    iterations,
    nothing,
    row_step,
    table,
    tail,
    work,
)

MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits
_MOST_WASTE = 1.05  # products with channels that do not exist, before elements are tested one by one
SPLITS = (*range(1, 17), *range(18, 32, 2), *range(32, 65, 4))
"""Of which the estimate takes one."""
_SECOND_FILTERS = 32  # texture tex_G of turned filters begins so many further


def refuses(problem: Problem) -> str | None:
    """Maps may have any strides; what needs a copy of them may not. Strides of gradients that one launch serves are no
    matter of several."""
    if len(correlations(problem)) > 1 and refuses_classes(problem) is None:
        return "strides of a gradient, which classes serves in one launch"
    maps = problem.operand(maps_of(problem))
    for operand in problem.operands:
        if operand.strides and operand is not maps:
            return f"{operand.role} that are not C-contiguous"
    if maps.strides and maps.alignment < Alignment.TEXTURE:
        return f"{maps.role} that are not C-contiguous and begin where no texture may"
    if maps.strides and any(map(any, (x.margins for x in correlations(problem)))) and _most_taps(problem) > MOST_TAPS:
        return f"{maps.role} that are not C-contiguous with padding and filters of more than {MOST_TAPS} taps in a line"
    return None


def _most_taps(problem: Problem) -> int:
    return max(max(x.R, x.S) for x in correlations(problem))


def candidates(problem: Problem, chip: Chip) -> Candidates:
    found: dict[str, Callable[[], Plan]] = {}
    steps = _steps(problem)
    for spec in KERNELS:
        if _suits(problem, steps, spec):
            longest = max(1, *(iterations(s, maps, spec) for s, maps in steps))
            # The tail must follow something where rows of turned filters go on with the next one.
            most = longest - bool(spec.turned and steps[0][0].patch % TILE_ELEMENTS)
            for splits in SPLITS:
                if splits <= most:
                    found[split_name(spec, splits)] = partial(_plan, problem, spec, splits)
    return found


def _suits(problem: Problem, steps: list[tuple[Correlation, Maps]], spec: PixelKernel) -> bool:
    """Whether a kernel is one for the problem: filters K,C,R,S are read as they lie if each begins with a texel."""
    s, tests = steps[0][0], any(maps.tests for _, maps in steps)
    if spec.turned:
        aligned = problem.operand("filters").alignment == Alignment.TEXTURE
        return (problem.kind == "forward" and problem.layout == "NCHW" and aligned and s.patch % TEXEL_FLOATS == 0
                and spec.tests == ("each" if tests else "none"))
    if spec.tests == "none" and tests:
        return False
    few = _round_up(s.C // s.groups, TILE_ELEMENTS) > _MOST_WASTE * (s.C // s.groups)
    return (spec.tests == "each") == (tests and few)


def _steps(problem: Problem) -> list[tuple[Correlation, Maps]]:
    """What a problem consists of. A padded copy of the maps is made where the test of taps does not reach, and for
    arrays that begin where no texture may."""
    steps = correlations(problem)
    s = steps[0]
    chwn = problem.layout == "CHWN"
    reach = [max(margin) for margin in zip(*(x.margins for x in steps), strict=True)]
    odd = problem.operand(maps_of(problem)).alignment < Alignment.TEXTURE
    copied = odd or (any(reach) and _most_taps(problem) > MOST_TAPS)
    above, below, left, right = reach if copied else (0, 0, 0, 0)
    h = s.H + above + below
    operand = problem.operand(maps_of(problem))
    # The copy of N,C,H,W has zeroes to the right alone: left of a row lie those of the row above.
    w = s.W + (left + right if chwn else max(left, right))
    strides = (1, h * w * s.N, w * s.N, s.N) if chwn else (s.C * h * w, h * w, w, 1)
    elements = s.N * s.C * h * w
    if operand.strides:
        channel, row, column, image = operand.strides if chwn else (*operand.strides[1:], operand.strides[0])
        strides, elements = (image, channel, row, column), operand.extent
    _, _, row, column = strides
    found = []
    for x in steps:
        start = (above - x.pad_h) * row + ((left if chwn else 0) - x.pad_w) * column
        found.append((x, Maps(*strides, start, any(x.margins) and not copied, copied, elements, (h, w),
                               (above, left))))
    return found


def _plan(problem: Problem, spec: PixelKernel, splits: int) -> Plan:
    regions: dict[str, int] = {}

    def region(name: str, elements: int) -> str:
        regions[name] = max(FLOAT_BYTES * elements, regions.get(name, 0))
        return name
    steps = _steps(problem)
    for s, maps in steps:
        _check_limits(problem, spec, s, maps)
    s, maps = steps[0]
    before: list[Launch] = []
    images = maps_of(problem)
    if maps.copied:
        before.append(_padded_map(problem, s, maps, images, region("map", maps.elements)))
        images = "map"
    banks = _banks(problem, spec, steps, region, before)
    shares = _shares(spec, splits, [len(bank.records) for bank in banks])
    launches: list[Launch] = []
    for run in _chunks(problem, maps):
        launches += _sums(problem, spec, steps, banks, run, images, shares, region)
    longest = max(len(bank.records) for bank in banks)
    notes = [_why(s, spec, splits, longest)] if splits > 1 or longest > spec.records else []
    return make(problem, "pixels", spec, (*before, *launches), regions, notes)


def _padded_map(problem: Problem, s: Correlation, maps: Maps, images: str, name: str) -> Launch:
    (h, w), (above, left) = maps.size, maps.margin
    if problem.layout == "CHWN":
        size, padded, padding = (s.C, s.H, s.W, s.N), (h, w, s.N), (above, left)
    else:  # rows stand for columns, so that the kernel's lanes run along a row
        size, padded, padding = (s.N * s.C, 1, s.H, s.W), (1, h, w), (0, above)
    return pad(name, images, size, padded, padding, f"{images} are copied to a zero-padded map")


@dataclass(frozen=True)
class _Bank:
    """Filters as the kernel reads them for a correlation, C/groups,R,S,K' in texels of four, K' (0 for K,C,R,S), and
    its iterations. `pieces`: for the launches that share them, (bytes, elements that exist), made when asked for; the
    plans of all splits of a layer hold the same ones."""

    place: str
    row: int
    records: np.ndarray
    pieces: dict[int, tuple[bytes, int]]

    def piece(self, number: int, most: int) -> tuple[bytes, int]:
        if number not in self.pieces:
            records = self.records[number * most:][:most]
            self.pieces[number] = records.tobytes(), int((records["offsets"] != OUT_OF_RANGE).sum())
        return self.pieces[number]


def _banks(problem: Problem, spec: PixelKernel, steps: list[tuple[Correlation, Maps]],
           region: Callable[[str, int], str], before: list[Launch]) -> list[_Bank]:
    """The filters of each correlation; what must be done for them goes to `before`."""
    found: list[_Bank] = []
    for s, maps in steps:
        if s.patch:
            place, row = ("filters", 0) if spec.turned else _filters(problem, spec, s, maps, region, before)
            made_of = s, maps, spec, row // TEXEL_FLOATS
            found.append(_Bank(place, row, table(*made_of), _pieces(*made_of)))
            continue
        if not found:  # no tap reaches any pixel
            before.append(pad(region("filter_bank", 8 * 32), "filters", (1, 1, 1, 1), (1, 8, 32), (0, 0),
                              "a few filters are copied for the texture to begin"))
        # Zeroes are computed, of elements beyond the end of another one's filters.
        place, row = (found[0].place, found[0].row) if found else ("filter_bank", 32)
        found.append(_Bank(place, row, nothing(spec, 1), {}))
    return found


@lru_cache(maxsize=16)  # as many as there are tables
def _pieces(s: Correlation, maps: Maps, spec: PixelKernel, row_texels: int) -> dict[int, tuple[bytes, int]]:
    return {}


def _shares(spec: PixelKernel, splits: int, lengths: list[int]) -> list[int]:
    """Splits of each run of records that constant memory holds."""
    return [min(splits, max(min(spec.records, length - first) for length in lengths))
            for first in range(0, max(lengths), spec.records)]


def _filters(problem: Problem, spec: PixelKernel, s: Correlation, maps: Maps, region: Callable[[str, int], str],
             before: list[Launch]) -> tuple[str, int]:
    """Where the filters are read, and the floats of a row."""
    filters, k = "filters", s.K // s.groups
    step = row_step(s, maps, spec) if "tex_G" in spec.textures else 0
    # The second texture begins 4 rows further, where a texture may begin and something is left.
    rows = max(s.patch, 4 * step + 1)
    odd = problem.operand("filters").alignment < Alignment.TEXTURE
    if problem.kind == "data" and not as_they_lie(problem):
        before.append(turned(problem, s, rows, _round_up(k, 32), region))
        return before[-1].writes[0], s.groups * _round_up(k, 32)
    if problem.layout == "NCHW" and problem.kind == "forward":
        filters = region("filters_crsk", s.patch * s.K)
        before.append(transpose(filters, "filters", s.K, s.patch, "filters change layout: the kernel reads C,R,S,K"))
        odd = False
    if k % 4 or odd or 4 * step * FLOAT_BYTES * s.K % REGION_ALIGNMENT or s.patch <= 4 * step:
        ks = _round_up(k, 32)
        bank = region("filter_bank", rows * s.groups * ks)
        before.append(pad(bank, filters, (1, 1, s.patch * s.groups, k), (1, rows * s.groups, ks), (0, 0),
                          f"filters are copied to {rows} rows of {s.groups * ks}"))
        return bank, s.groups * ks
    return filters, s.K


def _chunks(problem: Problem, maps: Maps) -> Iterator[tuple[int, int]]:
    """Runs of images that a texture reaches: (first, number)."""
    s = problem.shape
    most = s.N if maps.elements <= MAX_TEXELS else (MAX_TEXELS - REGION_ALIGNMENT) // maps.image
    for first in range(0, s.N, most):
        yield first, min(most, s.N - first)


def _sums(problem: Problem, spec: PixelKernel, steps: list[tuple[Correlation, Maps]], banks: list[_Bank],
          run: tuple[int, int], images: str, shares: list[int], region: Callable[[str, int], str]) -> Iterator[Launch]:
    """The launches that compute some images: the parts, then their sum."""
    s, maps = steps[0]
    (first, count), whole = run, s.whole[0] * s.whole[1]
    chwn, parts = problem.layout == "CHWN", sum(shares)
    out_at = 0 if chwn else whole * first * s.K
    ending = fused(problem, 0)
    size = s.K * count * whole
    if parts > 1:
        # A part looks like the piece of O it belongs to.
        region("parts", parts * size)
    filled = parts == 1 and not problem.reads_out and len({bool(s.patch) for s, _ in steps}) == 2
    if filled:
        yield fill(_part("out", out_at), size, "pixels that no tap reaches are zero")
    for (s, maps), bank in zip(steps, banks, strict=True):
        if filled and not s.patch:
            continue
        geometry, bound = _geometry(problem, spec, s, maps, bank, run, images)
        pixels, start = count * s.P * s.Q, s.start * (count if chwn else 1)
        grid_xy = -(-pixels // spec.tile[0]), s.groups * -(-s.K // s.groups // spec.tile[1])
        last_one, done = len(shares) - 1, 0
        for number, share in enumerate(shares):
            data, elements = bank.piece(number, spec.records)
            length = len(data) // spec.record_bytes
            if length < share:
                data += nothing(spec, share - length).tobytes()
                length = share
            if parts > 1:
                ended: dict[str, Value] = {"out": _part("parts", done * size + start), "flags": 0, "alpha": 1.0,
                                           "beta": 0.0, "bias": 0}
            else:
                ended = {**ending, "out": _part("out", out_at + start)}
            tests = PIXELS_FIRST * chwn + TESTS * maps.tests
            rounds, last = divmod(length - 1, share)
            few = tail(s, maps, spec) if number == 0 else 0
            loops = length - (1 - few / TILE_ELEMENTS if few else 0)
            values = geometry | ended | {
                "flags": tests + ended["flags"], "splits": share, "last_round": share * rounds,  # type: ignore[operator]
                "last_split": last, "step": spec.record_bytes * share, "tail": few,
                "out_split": size if parts > 1 else 0}
            grid = (*grid_xy, share)
            yield Launch(spec, grid, values, work(s, spec, maps, grid, loops, pixels), _doing(s, spec, parts),
                         ("out" if parts == 1 else "parts",), bound, {"table": data},
                         2 * pixels * s.K * (elements + (number == last_one)))  # the last one scales by alpha
            done += share
    if parts > 1:
        rows = (count * whole, s.K, 1) if chwn else (whole, s.K, count)
        yield reduce("parts", _part("out", out_at), parts, size, rows, s.K, ending)


def _part(name: str, elements: int) -> str | Part:
    return Part(name, FLOAT_BYTES * elements) if elements else name


def _geometry(problem: Problem, spec: PixelKernel, s: Correlation, maps: Maps, bank: _Bank, run: tuple[int, int],
              images: str) -> tuple[dict[str, Value], dict[str, str | Part]]:
    """The parameters of a launch but those of its part of the sums, and its textures."""
    (first, n), k, chwn = run, s.K // s.groups, problem.layout == "CHWN"
    pixels, whole = n * s.P * s.Q, s.whole[0] * s.whole[1]
    skipped = FLOAT_BYTES * first * maps.image
    base = skipped // REGION_ALIGNMENT * REGION_ALIGNMENT
    group_tiles = -(-k // spec.tile[1])
    geometry: dict[str, Value] = {
        "j": pixels, "k": k, "group_tiles": group_tiles, "group_magic": -(-2**31 // group_tiles),
        "map_start": (maps.start + (skipped - base) // FLOAT_BYTES - BEYOND) % 2**32,
        "map_group": s.C // s.groups * maps.channel,
        "stride_h": s.str_h if s.P > 1 else 0, "stride_w": s.str_w if s.Q > 1 else 0,
        "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32, "h": s.H, "w": s.W,
        "out_k": whole * (n if chwn else 1)}
    bound: dict[str, str | Part] = {"tex_I": Part(images, base) if base else images, "tex_F": bank.place}
    if spec.turned:
        row = s.patch // TEXEL_FLOATS
        geometry |= {"filter_texels": row, "filter_row": row, "filter_group": k * row, "filter_more": 16 * row}
        further = _SECOND_FILTERS * row if s.K > _SECOND_FILTERS else 0  # what does not exist may be anything
    else:
        row = row_step(s, maps, spec) * bank.row // TEXEL_FLOATS
        geometry |= {"filter_texels": -(-k // TEXEL_FLOATS), "filter_row": row,
                     "filter_group": bank.row // s.groups // TEXEL_FLOATS, "filter_more": 2 * row}
        further = 4 * row
    if "tex_G" in spec.textures:
        bound["tex_G"] = Part(bank.place, further * TEXEL_FLOATS * FLOAT_BYTES)
    map_steps = {"n": maps.image, "p": s.str_h * maps.row if s.P > 1 else 0,
                 "q": s.str_w * maps.column if s.Q > 1 else 0}
    (every_p, every_q), columns = s.steps, s.whole[1]
    out_steps = ({"n": 1, "q": every_q * n, "p": every_p * columns * n} if chwn else
                 {"q": every_q, "p": every_p * columns, "n": s.K * whole})
    axes = {"n": n, "q": s.Q, "p": s.P} if chwn else {"q": s.Q, "p": s.P, "n": n}
    for i, (axis, size) in enumerate(axes.items()):
        geometry |= {f"map{i}": map_steps[axis], f"out{i}": out_steps[axis]}
        if i < 2:
            geometry[f"d{i}"] = size
            geometry[f"d{i}_magic"], geometry[f"d{i}_shift"] = magic(size, pixels + spec.tile[0])
    for name, dilation, taps in (("h", s.dil_h, s.R), ("w", s.dil_w, s.S)):
        factor, shift = ceil_magic(dilation, dilation * taps) if maps.tests else (0, 0)
        geometry |= {f"reach_{name}": dilation * taps, f"dil_{name}_magic": factor,
                     f"dil_{name}_round": (dilation - 1) * factor, f"dil_{name}_shift": shift}
    return geometry, bound


def _doing(s: Correlation, spec: PixelKernel, parts: int) -> str:
    text = f"{spec.tile[0]} pixels x {spec.tile[1]} filters of a group each"
    if s.groups == 1:
        text = f"{spec.tile[0]} pixels x {spec.tile[1]} filters each"
    return text if parts == 1 else f"{text}, a part of each sum"


def _why(s: Correlation, spec: PixelKernel, splits: int, iterations: int) -> str:
    tiles = -(-s.N * s.P * s.Q // spec.tile[0]) * s.groups * -(-s.K // s.groups // spec.tile[1])
    why = f"the {iterations} iterations of the reduction are split {splits} ways: {tiles} tiles do not fill the chip"
    if splits == 1:
        why = f"the {iterations} iterations of the reduction exceed the {spec.records} that constant memory holds"
    return why + "; the parts are added in a fixed order"


def magic(divisor: int, limit: int) -> tuple[int, int]:
    """(factor, shift): x // divisor = ((x + 1) * factor) >> (32 + shift) for 0 <= x < limit, factor below 2^32.

    With error = 2^(32 + shift) - factor * divisor, which is at least 1, the quotient is exact while
    limit * error <= 2^(32 + shift)."""
    for shift in range(32):
        factor = min(2**32 - 1, (2**(32 + shift) - 1) // divisor)
        if limit * (2**(32 + shift) - factor * divisor) <= 2**(32 + shift):
            return factor, shift
    raise ShapeError(f"pixels must be fewer than 2^31 (got {limit})")


def ceil_magic(divisor: int, limit: int) -> tuple[int, int]:
    """(factor, shift): ceil(x / divisor) = ((x + divisor - 1) * factor) >> shift for 0 <= x <= limit, below 2^16."""
    for shift in range(32):
        factor = -(-2**shift // divisor)
        if factor < 2**16 and (factor * divisor - 2**shift) * (limit + divisor) < 2**shift:
            return factor, shift
    raise ShapeError(f"dilation x filter size must be below 2048 where there is padding (got {limit})")


def _check_limits(problem: Problem, spec: PixelKernel, s: Correlation, maps: Maps) -> None:
    image = maps.elements if problem.layout == "CHWN" else maps.image
    reach = max(s.dil_h * s.R, s.dil_w * s.S) if maps.tests else 0
    within(problem.shape, (
        ("maps" if problem.layout == "CHWN" else "an image", image, MAX_TEXELS - REGION_ALIGNMENT,
         "elements, the reach of a texture of single floats"),
        ("filters C x R x S x K", s.patch * s.K, 4 * MAX_TEXELS, "elements, the reach of a texture"),
        ("output K x P x Q x N", s.K * s.whole[0] * s.whole[1] * s.N, MAX_ELEMENTS, "elements"),
        ("pixels N x P x Q", s.N * s.P * s.Q, 2**31 - spec.tile[0], "pixels"),
        ("filters K", s.K, MAX_GRID_YZ // 2, "filters, blocks along y of a grid"),
        ("images N", s.N, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", reach, 2047, "where there is padding"),
    ))


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


FAMILY = Family("pixels", KERNELS, contract, ("forward", "data"), refuses, candidates)
