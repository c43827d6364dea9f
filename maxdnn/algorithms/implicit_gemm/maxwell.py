"""Implicit GEMM on Maxwell. The columns of a tile are output pixels of any images and rows, so any number of images
fills tiles, in either layout, and the maps are read where they lie. The kernel tests which taps lie in the padding.
Where the CTAs do not fill the chip, the reduction is split (split-K) and partial sums are added in a fixed order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value
from ...problem.problem import Alignment, Problem
from ..common import layout
from ..common.correlation import Correlation, correlations, maps_of, phases_reason
from ..common.epilogue import PARTIAL, epilogue_of
from ..common.fastdiv import MOST_REACH, divisor, short_magic, tap_tests
from ..common.layout import operand
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_BYTES, TEXEL_FLOATS, round_up, within
from ..common.packing import Packed, packed
from ..common.schedule import FINE_SPLITS, split_name
from ..common.workspace import Draft, part
from ..memory_ops.plan import fill, reduce
from ..spec import Candidates, Family
from .kernels import (
    BEYOND,
    KERNELS,
    MOST_TAPS,
    OUT_OF_RANGE,
    PIXELS_FIRST,
    TESTS,
    TILE_ELEMENTS,
    Maps,
    PixelKernel,
    iterations,
    nothing,
    row_step,
    table,
    tail,
    work,
)
from .reference import reference

_MOST_WASTE = 1.05  # products with channels that do not exist, before elements are tested one by one
_SECOND_FILTERS = 32  # texture tex_G of filters K,C,R,S begins so many further


def unsupported_reason(problem: Problem) -> str | None:
    """Maps may have any strides; what needs a copy of them may not. Strides of gradients that one launch serves are no
    matter of several."""
    if len(correlations(problem)) > 1 and phases_reason(problem) is None:
        return "strides of a gradient, which classes serves in one launch"
    maps = problem.operand(maps_of(problem))
    for one in problem.operands:
        if one.strides and one is not maps:
            return f"{one.role} that are not C-contiguous"
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
            # The tail must follow something where rows of filters K,C,R,S go on with the next one.
            most = longest - bool(spec.kcrs and steps[0][0].patch % TILE_ELEMENTS)
            for splits in FINE_SPLITS:
                if splits <= most:
                    found[split_name(spec.name, splits)] = partial(_plan, problem, spec, splits)
    return found


def _suits(problem: Problem, steps: list[tuple[Correlation, Maps]], spec: PixelKernel) -> bool:
    """Whether a kernel is one for the problem: filters K,C,R,S are read as they lie if each begins with a texel."""
    s, tests = steps[0][0], any(maps.tests for _, maps in steps)
    if spec.kcrs:
        aligned = problem.operand("filters").alignment == Alignment.TEXTURE
        return (problem.kind == "forward" and problem.layout == "NCHW" and aligned and s.patch % TEXEL_FLOATS == 0
                and spec.tests == ("each" if tests else "none"))
    if spec.tests == "none" and tests:
        return False
    few = round_up(s.C // s.groups, TILE_ELEMENTS) > _MOST_WASTE * (s.C // s.groups)
    return (spec.tests == "each") == (tests and few)


def _steps(problem: Problem) -> list[tuple[Correlation, Maps]]:
    """What a problem consists of. A padded copy of the maps is made where the test of taps does not reach, and for
    arrays that begin where no texture may."""
    steps = correlations(problem)
    s = steps[0]
    chwn, role = problem.layout == "CHWN", maps_of(problem)
    reach = [max(margin) for margin in zip(*(x.margins for x in steps), strict=True)]
    odd = problem.operand(role).alignment < Alignment.TEXTURE
    copied = odd or (any(reach) and _most_taps(problem) > MOST_TAPS)
    above, below, left, right = reach if copied else (0, 0, 0, 0)
    h = s.H + above + below
    # The copy of N,C,H,W has zeroes to the right alone: left of a row lie those of the row above.
    w = s.W + (left + right if chwn else max(left, right))
    lies = layout.maps(problem.layout, s.N, s.C, h, w) if copied else operand(problem, role, s.N, s.C, s.H, s.W)
    found = []
    for x in steps:
        start = (above - x.pad_h) * lies["H"] + ((left if chwn else 0) - x.pad_w) * lies["W"]
        found.append((x, Maps(lies, start, any(x.margins) and not copied, copied, (above, left))))
    return found


def _plan(problem: Problem, spec: PixelKernel, splits: int) -> Plan:
    draft, steps = Draft(problem), _steps(problem)
    for s, maps in steps:
        _check_limits(problem, spec, s, maps)
    s, maps = steps[0]
    images = _padded_map(draft, s, maps) if maps.copied else maps_of(problem)
    filters = _filters_of(draft, spec, steps)
    longest = max(len(one.records) for one in filters)
    # Splits of each run of records that constant memory holds.
    shares = [min(splits, max(min(spec.records, len(one.records) - first) for one in filters))
              for first in range(0, longest, spec.records)]
    for run in _chunks(problem, maps):
        draft.add(_sums(draft, spec, steps, filters, run, images, shares))
    if splits > 1 or longest > spec.records:
        draft.notes.append(_why(s, spec, splits, longest))
    return draft.plan(FAMILY, spec)


def _padded_map(draft: Draft, s: Correlation, maps: Maps) -> str:
    (above, left), source, lies = maps.margin, maps_of(draft.problem), maps.layout
    if draft.problem.layout == "CHWN":
        _, h, w, _ = lies.shape
        size, padded, padding = (s.C, s.H, s.W, s.N), (h, w, s.N), (above, left)
    else:  # rows stand for columns, so that the kernel's lanes run along a row
        *_, h, w = lies.shape
        size, padded, padding = (s.N * s.C, 1, s.H, s.W), (1, h, w), (0, above)
    return draft.padded("map", source, size, padded, padding, f"{source} are copied to a zero-padded map")


@dataclass(frozen=True)
class _Filters:
    """Filters as the kernel reads them for a correlation (rows of 0 floats for K,C,R,S), and its iterations. `pieces`:
    for the launches that share them, (bytes, elements that exist), made when asked for; the plans of all splits of a
    layer hold the same ones."""

    packed: Packed
    records: np.ndarray
    pieces: dict[int, tuple[bytes, int]]

    def piece(self, number: int, most: int) -> tuple[bytes, int]:
        if number not in self.pieces:
            records = self.records[number * most:][:most]
            self.pieces[number] = records.tobytes(), int((records["offsets"] != OUT_OF_RANGE).sum())
        return self.pieces[number]


def _filters_of(draft: Draft, spec: PixelKernel, steps: list[tuple[Correlation, Maps]]) -> list[_Filters]:
    """The filters of each correlation."""
    found: list[_Filters] = []
    for s, maps in steps:
        if s.patch:
            filters = Packed("filters", 0) if spec.kcrs else _packed(draft, spec, s, maps)
            made_of = s, maps, spec, filters.texels
            found.append(_Filters(filters, table(*made_of), _pieces(*made_of)))
            continue
        # Where no tap reaches, zeroes are computed, of elements beyond the end of another one's filters.
        filters = found[0].packed if found else Packed(draft.padded(
            "filter_bank", "filters", (1, 1, 1, 1), (1, 8, 32), (0, 0),
            "a few filters are copied for the texture to begin"), 32)
        found.append(_Filters(filters, nothing(spec, 1), {}))
    return found


@lru_cache(maxsize=16)  # as many as there are tables
def _pieces(s: Correlation, maps: Maps, spec: PixelKernel, row_texels: int) -> dict[int, tuple[bytes, int]]:
    return {}


def _packed(draft: Draft, spec: PixelKernel, s: Correlation, maps: Maps) -> Packed:
    step = row_step(s, maps, spec) if "tex_G" in spec.textures else 0
    # The second texture begins 4 rows further, where a texture may begin and something is left.
    short = bool(4 * step * FLOAT_BYTES * s.K % REGION_ALIGNMENT or s.patch <= 4 * step)
    return packed(draft, s, multiple=32, rows=max(s.patch, 4 * step + 1), copied=short)


def _chunks(problem: Problem, maps: Maps) -> Iterator[tuple[int, int]]:
    """Runs of images that a texture reaches: (first, number)."""
    s = problem.shape
    step = maps.layout["N"]
    most = s.N if maps.layout.extent <= MAX_TEXELS else (MAX_TEXELS - REGION_ALIGNMENT) // step
    for first in range(0, s.N, most):
        yield first, min(most, s.N - first)


def _sums(draft: Draft, spec: PixelKernel, steps: list[tuple[Correlation, Maps]], every: list[_Filters],
          run: tuple[int, int], images: str, shares: list[int]) -> Iterator[Launch]:
    """The launches that compute some images: the parts, then their sum."""
    problem, s = draft.problem, steps[0][0]
    (first, count), whole, chwn, parts = run, s.outputs, problem.layout == "CHWN", sum(shares)
    out_at = 0 if chwn else whole * first * s.K
    epilogue, size = epilogue_of(problem), s.K * count * whole
    if parts > 1:
        # A part looks like the piece of O it belongs to.
        draft.region("parts", parts * size)
    filled = parts == 1 and not problem.reads_out and len({bool(s.patch) for s, _ in steps}) == 2
    if filled:
        yield fill(part("out", out_at), size, "pixels that no tap reaches are zero")
    for (s, maps), filters in zip(steps, every, strict=True):
        if filled and not s.patch:
            continue
        geometry, bound = _geometry(problem, spec, s, maps, filters.packed, run, images)
        start = s.start * (count if chwn else 1)
        tests, done = PIXELS_FIRST * chwn + TESTS * maps.tests, 0
        for number, share in enumerate(shares):
            if parts > 1:
                ended = PARTIAL.values(tests) | {"out": part("parts", done * size + start), "out_split": size}
            else:
                ended = epilogue.values(tests) | {"out": part("out", out_at + start), "out_split": 0}
            yield _launch(spec, s, maps, filters, geometry | ended, bound, number, len(shares), share, parts)
            done += share
    if parts > 1:
        rows = (count * whole, s.K, 1) if chwn else (whole, s.K, count)
        yield reduce("parts", part("out", out_at), parts, size, rows, s.K, epilogue)


def _launch(spec: PixelKernel, s: Correlation, maps: Maps, filters: _Filters, values: Mapping[str, Value],
            bound: Mapping[str, str | Part], number: int, runs: int, share: int, parts: int) -> Launch:
    """Of run `number` of the records, in `share` parts of all."""
    data, elements = filters.piece(number, spec.records)
    length, pixels = len(data) // spec.record_bytes, values["j"]
    assert isinstance(pixels, int)
    if length < share:
        data += nothing(spec, share - length).tobytes()
        length = share
    rounds, last = divmod(length - 1, share)
    few = tail(s, maps, spec) if number == 0 else 0
    loops = length - (1 - few / TILE_ELEMENTS if few else 0)
    values = {**values, "splits": share, "last_round": share * rounds, "last_split": last,
              "step": spec.record_bytes * share, "tail": few}
    grid = -(-pixels // spec.tile[0]), s.groups * -(-s.K // s.groups // spec.tile[1]), share
    doing = f"{spec.tile[0]} pixels x {spec.tile[1]} filters" + " of a group" * (s.groups > 1) + " each"
    doing += ", a part of each sum" * (parts > 1)
    return Launch(spec, grid, values, work(s, spec, maps, grid, loops, pixels), doing,
                  ("out" if parts == 1 else "parts",), bound, {"table": data},
                  2 * pixels * s.K * (elements + (number == runs - 1)))  # the last one scales by alpha


def _geometry(problem: Problem, spec: PixelKernel, s: Correlation, maps: Maps, filters: Packed, run: tuple[int, int],
              images: str) -> tuple[dict[str, Value], dict[str, str | Part]]:
    """The parameters of a launch but those of its part of the sums, and its textures."""
    (first, n), k, chwn, lies = run, s.K // s.groups, problem.layout == "CHWN", maps.layout
    pixels, out = n * s.P * s.Q, layout.maps(problem.layout, n, s.K, *s.whole)
    skipped = FLOAT_BYTES * first * lies["N"]
    base = skipped // REGION_ALIGNMENT * REGION_ALIGNMENT
    group_tiles = -(-k // spec.tile[1])
    geometry: dict[str, Value] = {
        "j": pixels, "k": k, "group_tiles": group_tiles, "group_magic": short_magic(group_tiles),
        "map_start": (maps.start + (skipped - base) // FLOAT_BYTES - BEYOND) % 2**32,
        "map_group": s.C // s.groups * lies["C"],
        "stride_h": s.str_h if s.P > 1 else 0, "stride_w": s.str_w if s.Q > 1 else 0,
        "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32, "h": s.H, "w": s.W, "out_k": out["C"]}
    bound: dict[str, str | Part] = {"tex_I": Part(images, base) if base else images, "tex_F": filters.place}
    if spec.kcrs:
        row = s.patch // TEXEL_FLOATS
        geometry |= {"filter_texels": row, "filter_row": row, "filter_group": k * row,
                     "filter_more": TEXEL_BYTES * row}
        further = _SECOND_FILTERS * row if s.K > _SECOND_FILTERS else 0  # what does not exist may be anything
    else:
        row = row_step(s, maps, spec) * filters.row // TEXEL_FLOATS
        geometry |= {"filter_texels": -(-k // TEXEL_FLOATS), "filter_row": row,
                     "filter_group": filters.row // s.groups // TEXEL_FLOATS, "filter_more": 2 * row}
        further = 4 * row
    if "tex_G" in spec.textures:
        bound["tex_G"] = Part(filters.place, further * TEXEL_BYTES)
    axes = {"N": (n, lies["N"], out["N"]), "H": (s.P, s.str_h * lies["H"] if s.P > 1 else 0, s.steps[0] * out["H"]),
            "W": (s.Q, s.str_w * lies["W"] if s.Q > 1 else 0, s.steps[1] * out["W"])}
    for i, axis in enumerate("NWH" if chwn else "WHN"):
        size, geometry[f"map{i}"], geometry[f"out{i}"] = axes[axis]
        if i < 2:
            geometry |= divisor(f"d{i}", size, pixels + spec.tile[0])
    axes_of_taps = ("h", s.dil_h, s.R), ("w", s.dil_w, s.S)
    geometry |= tap_tests(axes_of_taps, maps.tests)
    return geometry | {f"reach_{name}": dilation * taps for name, dilation, taps in axes_of_taps}, bound


def _why(s: Correlation, spec: PixelKernel, splits: int, iterations: int) -> str:
    tiles = -(-s.N * s.P * s.Q // spec.tile[0]) * s.groups * -(-s.K // s.groups // spec.tile[1])
    why = f"the {iterations} iterations of the reduction are split {splits} ways: {tiles} tiles do not fill the chip"
    if splits == 1:
        why = f"the {iterations} iterations of the reduction exceed the {spec.records} that constant memory holds"
    return why + "; the parts are added in a fixed order"


def _check_limits(problem: Problem, spec: PixelKernel, s: Correlation, maps: Maps) -> None:
    image = maps.layout.extent if problem.layout == "CHWN" else maps.layout["N"]
    reach = max(s.dil_h * s.R, s.dil_w * s.S) if maps.tests else 0
    within(problem.shape, (
        ("maps" if problem.layout == "CHWN" else "an image", image, MAX_TEXELS - REGION_ALIGNMENT,
         "elements, the reach of a texture of single floats"),
        ("filters C x R x S x K", s.patch * s.K, 4 * MAX_TEXELS, "elements, the reach of a texture"),
        ("output K x P x Q x N", s.K * s.outputs * s.N, MAX_ELEMENTS, "elements"),
        ("pixels N x P x Q", s.N * s.P * s.Q, 2**31 - spec.tile[0], "pixels"),
        ("filters K", s.K, MAX_GRID_YZ // 2, "filters, blocks along y of a grid"),
        ("images N", s.N, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", reach, MOST_REACH, "where there is padding"),
    ))


FAMILY = Family("pixels", KERNELS, reference, ("forward", "data"), unsupported_reason, candidates)
