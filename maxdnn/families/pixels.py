"""Convolution over flattened pixels: a tile holds 64 pixels of whatever images and rows, so any number of images fills
tiles, in either layout, where the maps lie. Padding is a test in the kernel. A reduction too long for a grid too small
is split, and its parts are added in a fixed order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ..chips import Work
from ..errors import ShapeError
from ..plans import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value, make
from ..problem import Alignment, Problem
from ..shape import ConvShape
from .family import SPLITS, Candidates, Family, Memory, TileKernel, finish, fused, refuses_strided, seen, split_name
from .layout import MAX_GRID_YZ, pad, reduce, transpose

TILE_ELEMENTS = 8
"""Patch elements that one loop iteration consumes."""

RECORD = np.dtype([("offsets", "<i4", TILE_ELEMENTS), ("taps", "<u4"), ("row", "<i4")])
"""What the table says of an iteration; see the source of the kernel."""

RECORDS = 65536 // RECORD.itemsize
"""Records that constant memory holds."""

OUT_OF_RANGE = 0x40000000
"""Offset of an element that does not exist, beyond every texture from every pixel."""

MOST_TAPS = 16
"""Rows and columns of a filter that the test of taps reaches."""

MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits
_MOST_WASTE = 1.05  # products with channels that do not exist, before a padded copy is cheaper
_PIXELS_FIRST, _TESTS = 4, 8  # flags of the kernel, beside those of the last step
_LATENCY = 2500  # clocks of a block alone that are no issue slot: divisions, first fetches, last stores


PIXELS_64X64 = TileKernel("sconv_pixels_K64_J64", "conv_pixels_64x64.sass", """Forward convolution of 64 pixels and 64
filters a block, or a part of each sum. Grid: x = ceil(j / 64), y = ceil(k / 64), z = splits.""",
                          (64, 64), (527, 614), 652)

KERNELS = (PIXELS_64X64,)


def candidates(problem: Problem) -> Candidates:
    found: dict[str, Callable[[], Plan]] = {}
    for spec in KERNELS:
        for splits in SPLITS:
            if splits <= _iterations(problem.shape, _maps(problem)):
                found[split_name(spec, splits)] = partial(_plan, problem, spec, splits)
    return found


@dataclass(frozen=True)
class _Maps:
    """How the maps lie where the kernel reads them: elements from one image, channel, row and column to the next, and
    the element of tap (0, 0) of the first pixel. `tests`: whether taps may lie outside. `copied`: into a zero-padded
    map of `elements`."""

    image: int
    channel: int
    row: int
    column: int
    start: int
    tests: bool
    copied: bool
    elements: int


def _maps(problem: Problem) -> _Maps:
    """A padded copy is made where the test of taps does not reach, where too many of 8 channels would not exist, and
    for arrays that begin where no texture may."""
    s: ConvShape = problem.shape
    c = s.C // s.groups
    padded = s.padding != (0, 0)
    odd = problem.operand("images").alignment < Alignment.TEXTURE
    copied = odd or (padded and (max(s.R, s.S) > MOST_TAPS or _round_up(c, TILE_ELEMENTS) > _MOST_WASTE * c))
    pad_h, pad_w = (s.pad_h, s.pad_w) if copied else (0, 0)
    h = s.H + 2 * pad_h
    # The copy of N,C,H,W has zeroes to the right alone: left of a row lie those of the row above.
    w = s.W + (pad_w if problem.layout == "NCHW" else 2 * pad_w)
    strides = (1, h * w * s.N, w * s.N, s.N) if problem.layout == "CHWN" else (s.C * h * w, h * w, w, 1)
    _, _, row, column = strides
    if copied:
        start = -pad_w * column if problem.layout == "NCHW" else 0
    else:
        start = -(s.pad_h * row + s.pad_w * column)
    return _Maps(*strides, start, padded and not copied, copied, s.N * s.C * h * w)


def _iterations(s: ConvShape, maps: _Maps) -> int:
    c = s.C // s.groups
    if maps.tests:
        return -(-c // TILE_ELEMENTS) * s.R * s.S
    return -(-s.patch // TILE_ELEMENTS)


@lru_cache(maxsize=16)  # all splits of a layer have the same
def table(s: ConvShape, maps: _Maps, row_texels: int) -> np.ndarray:
    """RECORD for every iteration. With a test of taps an iteration takes 8 channels of one tap, all taps of 8 channels
    in turn, so that neighbouring fetches meet the same lines; else any 8 elements in a row."""
    c = s.C // s.groups
    if maps.tests:
        groups = -(-c // TILE_ELEMENTS)
        first, r, col = (x[:, None] for x in np.unravel_index(np.arange(groups * s.R * s.S), (groups, s.R, s.S)))
        channel = TILE_ELEMENTS * first + np.arange(TILE_ELEMENTS)
        taps = (1 << r | 1 << MOST_TAPS + col)[:, 0]
    else:
        element = np.arange(_round_up(s.patch, TILE_ELEMENTS)).reshape(-1, TILE_ELEMENTS)
        channel, r, col = element // (s.R * s.S), element // s.S % s.R, element % s.S
        taps = np.zeros(len(element), np.int64)
    records = np.zeros(len(channel), RECORD)
    offsets = channel * maps.channel + r * s.dil_h * maps.row + col * s.dil_w * maps.column
    records["offsets"] = np.where(channel < c, offsets, OUT_OF_RANGE)
    records["taps"] = taps
    records["row"] = ((channel * s.R + r) * s.S + col)[:, 0] * row_texels
    records.flags.writeable = False
    return records


def _plan(problem: Problem, spec: TileKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    maps = _maps(problem)
    _check_limits(problem, spec, maps)
    regions: dict[str, int] = {}

    def region(name: str, elements: int) -> str:
        regions[name] = max(FLOAT_BYTES * elements, regions.get(name, 0))
        return name
    before: list[Launch] = []
    images = "images"
    if maps.copied:
        before.append(_padded_map(problem, maps, region("map", maps.elements)))
        images = "map"
    filters, k_row = _filters(problem, maps, region, before)
    records = table(s, maps, k_row // 4)
    launches: list[Launch] = []
    for first, count in _chunks(problem, maps):
        for group in range(s.groups):
            run = first, count
            launches += _sums(problem, spec, maps, group, run, images, filters, k_row, records, splits, region)
    notes = [_why(problem, spec, splits, len(records))] if splits > 1 or len(records) > RECORDS else []
    return make(problem, "pixels", spec, (*before, *launches), regions, notes)


def _padded_map(problem: Problem, maps: _Maps, name: str) -> Launch:
    s: ConvShape = problem.shape
    if problem.layout == "CHWN":
        size, padded, padding = (s.C, s.H, s.W, s.N), (s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, s.N), (s.pad_h, s.pad_w)
    else:  # rows stand for columns, so that the kernel's lanes run along a row
        size, padded, padding = (s.N * s.C, 1, s.H, s.W), (1, s.H + 2 * s.pad_h, s.W + s.pad_w), (0, s.pad_h)
    return pad(name, "images", size, padded, padding, "images are copied to a zero-padded map")


def _filters(problem: Problem, maps: _Maps, region: Callable[[str, int], str], before: list[Launch]) -> tuple[str, int]:
    """The filters as the kernel reads them, C/groups,R,S,K' in texels of four, and K'; what must be done before goes to
    `before`."""
    s: ConvShape = problem.shape
    filters, k = "filters", s.K // s.groups
    odd = problem.operand("filters").alignment < Alignment.TEXTURE
    if problem.layout == "NCHW":
        filters = region("filters_crsk", s.patch * s.K)
        before.append(transpose(filters, "filters", s.K, s.patch, "filters change layout: the kernel reads C,R,S,K"))
        odd = False
    step = _row_step(s, maps)
    # The second texture begins 4 rows further, where a texture may begin and something is left.
    if k % 4 or odd or 4 * step * FLOAT_BYTES * s.K % REGION_ALIGNMENT or s.patch <= 4 * step:
        ks = _round_up(k, 32)
        rows = max(s.patch, 4 * step + 1)
        bank = region("filter_bank", rows * s.groups * ks)
        before.append(pad(bank, filters, (1, 1, s.patch * s.groups, k), (1, rows * s.groups, ks), (0, 0),
                          f"filters are copied to {rows} rows of {s.groups * ks}"))
        return bank, s.groups * ks
    return filters, s.K


def _row_step(s: ConvShape, maps: _Maps) -> int:
    """Rows of F from one element of an iteration to the next."""
    return s.R * s.S if maps.tests else 1


def _chunks(problem: Problem, maps: _Maps) -> Iterator[tuple[int, int]]:
    """Runs of images that a texture reaches: (first, number)."""
    s: ConvShape = problem.shape
    most = s.N if maps.elements <= MAX_TEXELS else (MAX_TEXELS - REGION_ALIGNMENT) // maps.image
    for first in range(0, s.N, most):
        yield first, min(most, s.N - first)


def _sums(problem: Problem, spec: TileKernel, maps: _Maps, group: int, run: tuple[int, int], images: str, filters: str,
          k_row: int, records: np.ndarray, splits: int, region: Callable[[str, int], str]) -> Iterator[Launch]:
    """The launches that compute one group of some images: the parts, then their sum."""
    s: ConvShape = problem.shape
    (first, count), k = run, s.K // s.groups
    chwn = problem.layout == "CHWN"
    n, pixels = count, count * s.P * s.Q
    skipped = FLOAT_BYTES * first * maps.image
    base = skipped // REGION_ALIGNMENT * REGION_ALIGNMENT
    out_at = FLOAT_BYTES * s.P * s.Q * (group * k * (s.N if chwn else 1) + (0 if chwn else first * s.K))
    out: str | Part = Part("out", out_at) if out_at else "out"
    ending = fused(problem, group * k)
    row_texels, step = k_row // 4, _row_step(s, maps)
    out_k = pixels if chwn else s.P * s.Q
    geometry: dict[str, Value] = {
        "j": pixels, "k": k, "filter_texels": -(-k // 4), "filter_row": step * row_texels,
        "filter_start": group * (row_texels // s.groups),
        "map_start": (maps.start + group * (s.C // s.groups) * maps.channel + (skipped - base) // FLOAT_BYTES) % 2**32,
        "stride_h": s.str_h if s.P > 1 else 0, "stride_w": s.str_w if s.Q > 1 else 0,
        "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32, "h": s.H, "w": s.W, "out_k": out_k}
    map_steps = {"n": maps.image, "p": s.str_h * maps.row if s.P > 1 else 0,
                 "q": s.str_w * maps.column if s.Q > 1 else 0}
    out_steps = ({"n": 1, "q": n, "p": s.Q * n} if chwn else {"q": 1, "p": s.Q, "n": s.K * s.P * s.Q})
    axes = {"n": n, "q": s.Q, "p": s.P} if chwn else {"q": s.Q, "p": s.P, "n": n}
    for i, (axis, size) in enumerate(axes.items()):
        geometry |= {f"map{i}": map_steps[axis], f"out{i}": out_steps[axis]}
        if i < 2:
            geometry[f"d{i}"] = size
            geometry[f"d{i}_magic"], geometry[f"d{i}_shift"] = magic(size, pixels + spec.tile[0])
    for name, dilation, taps in (("h", s.dil_h, s.R), ("w", s.dil_w, s.S)):
        factor, shift = _ceil_magic(dilation, dilation * taps) if maps.tests else (0, 0)
        geometry |= {f"reach_{name}": dilation * taps, f"dil_{name}_magic": factor,
                     f"dil_{name}_round": (dilation - 1) * factor, f"dil_{name}_shift": shift}
    tests = _PIXELS_FIRST * chwn + _TESTS * maps.tests
    bound: dict[str, str | Part] = {
        "tex_I": Part(images, base) if base else images, "tex_F": filters,
        "tex_G": Part(filters, 4 * step * row_texels * 16)}
    grid_xy = -(-pixels // spec.tile[0]), -(-k // spec.tile[1])
    runs = [records[i:i + RECORDS] for i in range(0, len(records), RECORDS)]
    parts = sum(min(splits, len(r)) for r in runs)
    size, done = (s.K if not chwn else k) * pixels, 0
    if parts > 1:
        # A part looks like the piece of O it belongs to.
        region("parts", parts * size)
    for records in runs:
        share = min(splits, len(records))
        elements = int((records["offsets"] != OUT_OF_RANGE).sum())
        ended: dict[str, Value] = {**ending, "out": out, "flags": tests + ending["flags"]}  # type: ignore[operator]
        if parts > 1:
            ended = {"out": Part("parts", FLOAT_BYTES * done * size), "flags": tests, "alpha": 1.0, "beta": 0.0,
                     "bias": 0}
        rounds, last = divmod(len(records) - 1, share)
        values = geometry | ended | {"splits": share, "last_round": share * rounds, "last_split": last,
                                     "step": RECORD.itemsize * share, "out_split": size if parts > 1 else 0}
        grid = (*grid_xy, share)
        yield Launch(spec, grid, values, _work(s, spec, grid, len(records), pixels), _doing(s, spec, parts),
                     ("out" if parts == 1 else "parts",), bound, {"table": records.tobytes()},
                     2 * pixels * k * (elements + (records is runs[-1])))  # the last one scales by alpha
        done += share
    if parts > 1:
        length, images_ = (pixels, 1) if chwn else (s.P * s.Q, n)
        # In N,C,H,W a part has the rows of all K filters of an image; those of the group are added.
        yield reduce("parts", out, parts, size, (length, k, images_), s.K if not chwn else k, ending)


def _doing(s: ConvShape, spec: TileKernel, parts: int) -> str:
    text = f"{spec.tile[0]} pixels x {spec.tile[1]} filters each"
    if s.groups > 1:
        text += f", a launch for each of {s.groups} groups"
    return text if parts == 1 else f"{text}, a part of each sum"


def _why(problem: Problem, spec: TileKernel, splits: int, iterations: int) -> str:
    s: ConvShape = problem.shape
    tiles = -(-s.N * s.P * s.Q // spec.tile[0]) * -(-s.K // s.groups // spec.tile[1])
    why = f"the {iterations} iterations of the reduction are split {splits} ways: {tiles} tiles do not fill the chip"
    if splits == 1:
        why = f"the {iterations} iterations of the reduction exceed the {RECORDS} that constant memory holds"
    return why + "; the parts are added in a fixed order"


def _work(s: ConvShape, spec: TileKernel, grid: tuple[int, int, int], iterations: int, pixels: int) -> Work:
    """Two warps a block, each all slots; maps, filters and outputs once."""
    loop, rest = spec.slots
    slots = loop * iterations / grid[2] + rest
    once = s.C // s.groups * s.H * s.W * s.N + s.patch * s.K // s.groups + grid[2] * pixels * s.K // s.groups
    translated = slots + (spec.translated - loop) * iterations / grid[2]
    return Work(grid[0] * grid[1] * grid[2], 2 * slots, slots + _LATENCY, FLOAT_BYTES * once, 2 * translated)


def magic(divisor: int, limit: int) -> tuple[int, int]:
    """(factor, shift): x // divisor = ((x + 1) * factor) >> (32 + shift) for 0 <= x < limit, factor below 2^32.

    With error = 2^(32 + shift) - factor * divisor, which is at least 1, the quotient is exact while
    limit * error <= 2^(32 + shift)."""
    for shift in range(32):
        factor = min(2**32 - 1, (2**(32 + shift) - 1) // divisor)
        if limit * (2**(32 + shift) - factor * divisor) <= 2**(32 + shift):
            return factor, shift
    raise ShapeError(f"pixels must be fewer than 2^31 (got {limit})")


def _ceil_magic(divisor: int, limit: int) -> tuple[int, int]:
    """(factor, shift): ceil(x / divisor) = ((x + divisor - 1) * factor) >> shift for 0 <= x <= limit, below 2^16."""
    for shift in range(32):
        factor = -(-2**shift // divisor)
        if factor < 2**16 and (factor * divisor - 2**shift) * (limit + divisor) < 2**shift:
            return factor, shift
    raise ShapeError(f"dilation x filter size must be below 2048 where there is padding (got {limit})")


def _check_limits(problem: Problem, spec: TileKernel, maps: _Maps) -> None:
    s: ConvShape = problem.shape
    image = maps.elements if problem.layout == "CHWN" else maps.image
    reach = max(s.dil_h * s.R, s.dil_w * s.S) if maps.tests else 0
    for what, count, limit, reason in (
        ("maps" if problem.layout == "CHWN" else "an image", image, MAX_TEXELS - REGION_ALIGNMENT,
         "elements, the reach of a texture of single floats"),
        ("filters C x R x S x K", s.patch * s.K, 4 * MAX_TEXELS, "elements, the reach of a texture"),
        ("output K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS, "elements"),
        ("pixels N x P x Q", s.N * s.P * s.Q, 2**31 - spec.tile[0], "pixels"),
        ("filters K", s.K, MAX_GRID_YZ, "filters, blocks along y of a grid"),
        ("images N", s.N, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", reach, 2047, "where there is padding"),
    ):
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} {reason} (got {count} for {s})")


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    assert isinstance(launch.spec, TileKernel)
    v, (tile_j, tile_k) = launch.numbers, launch.spec.tile
    assert launch.grid == (-(-v["j"] // tile_j), -(-v["k"] // tile_k), v["splits"])
    records = np.frombuffer(launch.tables["table"], RECORD)
    j = np.arange(v["j"])
    i = j % v["d0"], j // v["d0"] % v["d1"], j // v["d0"] // v["d1"]
    assert (((j + 1) * v["d0_magic"] >> 32 + v["d0_shift"]) == j // v["d0"]).all()
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("map_start", "start_h", "start_w")}
    base = signed["map_start"] + sum(i[a] * v[f"map{a}"] for a in range(3))
    h = (i[2] if v["flags"] & _PIXELS_FIRST else i[1]) * v["stride_h"] + signed["start_h"]
    w = (i[1] if v["flags"] & _PIXELS_FIRST else i[0]) * v["stride_w"] + signed["start_w"]
    maps = seen(memory, launch.textures["tex_I"])
    bank = seen(memory, launch.textures["tex_F"])
    for z in range(v["splits"]):
        sums = np.zeros((v["k"], v["j"]))
        for record in records[z::v["splits"]]:
            inside = np.ones(v["j"], bool)
            taps = int(record["taps"])
            if v["flags"] & _TESTS and taps:
                r, col = (taps & 0xffff).bit_length() - 1, (taps >> MOST_TAPS).bit_length() - 1
                row, column = h + r * _dilation(v, "h"), w + col * _dilation(v, "w")
                inside = (row >= 0) & (row < v["h"]) & (column >= 0) & (column < v["w"])
            for e, offset in enumerate(record["offsets"].tolist()):
                at = base + offset
                ok = inside & (at >= 0) & (at < len(maps))
                values = np.where(ok, maps[np.where(ok, at, 0)], 0).astype(float)
                first = 4 * (int(record["row"]) + v["filter_start"] + e * v["filter_row"])
                row_k = np.zeros(v["k"])
                have = bank[first:first + v["k"]]
                row_k[:len(have)] = have
                if values.any():
                    sums += np.outer(row_k, values)
        where = (np.arange(v["k"])[:, None] * v["out_k"] + sum(i[a] * v[f"out{a}"] for a in range(3))
                 + z * v["out_split"])
        finish(launch, memory, scalars, where, sums, np.arange(v["k"])[:, None])


def _dilation(v: Mapping[str, int], axis: str) -> int:
    return v[f"dil_{axis}_round"] // v[f"dil_{axis}_magic"] + 1


FAMILY = Family("pixels", KERNELS, contract, ("forward",), refuses_strided, candidates)
