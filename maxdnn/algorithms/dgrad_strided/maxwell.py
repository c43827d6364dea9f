"""Gradients of images over classes of pixels: those of a class lie at equal distances, and the same taps of each lie on
gradients. One launch computes all classes, each by its own taps: what strides leave out and what padding adds is no
work, and small classes fill the chip together. For any number of images, in either layout, where the gradients lie."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...planning.cost import SCHEDULERS, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value, make
from ...problem.problem import Alignment, Problem
from ..common.correlation import (
    CLASS_WORDS,
    EIGHT,
    TAP_BYTES,
    Correlation,
    PixelClass,
    as_they_lie,
    class_bytes,
    correlations,
    maps_of,
    pixel_classes,
    refuses_classes,
    tap_lists_at,
    turned,
)
from ..implicit_gemm.maxwell import MAX_ELEMENTS, magic
from ..memory_ops.plan import MAX_GRID_YZ, fill, pad, reduce
from ..spec import LATENCY, Candidates, Family, Memory, TileKernel, finish, fused, seen, split_name, within

_TEXEL_FLOATS, _TEXEL_BYTES = 4, 16
_ROW = 32  # of a row of filters: a multiple of so many floats
_FILLED = {1: 0.93, 2: 1.0, 8: 1.0}  # of the issue slots while as many blocks as fit are at work, by warps; simulated
_FILLED_TRANSLATED = {1: 0.93, 2: 1.0, 8: 1.1}  # likewise, of those that translations fill; measured on an H200
_SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)


@dataclass(frozen=True)
class ClassKernel(TileKernel):
    """`alone`: clocks of an iteration of a block that has an SM for itself, simulated on gm204, and of its translation,
    measured on an H200."""

    alone: tuple[int, int]

    @property
    def warps(self) -> int:
        return self.threads // 32


def _kernel(tile: tuple[int, int], slots: tuple[int, int], translated: int, alone: tuple[int, int]) -> ClassKernel:
    j, k = tile
    return ClassKernel(f"sconv_classes_K{k}_J{j}", f"maxwell/classes_{j}x{k}.sass",
                       f"""Convolution of pixels in classes, {j}
pixels of one class and {k} filters a block, or a part of each sum; see classes.inc. Grid: x = tiles of all classes,
y = groups * ceil(k / {k}), z = splits.""", tile, slots, translated, alone)


KERNELS = (_kernel((64, 64), (537, 618), 645, (800, 1400)),
           _kernel((64, 32), (553, 699), 716, (800, 1400)),
           _kernel((128, 128), (527, 605), 611, (1049, 2400)))


def candidates(problem: Problem) -> Candidates:
    s = correlations(problem)[0]
    eights = s.C // s.groups // EIGHT
    return {split_name(spec, splits): partial(_plan, problem, spec, splits)
            for spec in KERNELS for splits in _SPLITS if splits <= eights}


@dataclass(frozen=True)
class _Maps:
    """Elements from one image, channel, row and column to the next."""

    image: int
    channel: int
    row: int
    column: int


@dataclass(frozen=True)
class Bank:
    """Filters C/groups,R,S,K': `row` texels, `taps` in a row and all taps. `turned`: the last tap first."""

    place: str
    row: int
    columns: int
    taps: int
    turned: bool

    def tap(self, s: Correlation, r: int, column: int) -> int:
        """Which of its rows of a channel a tap of a correlation is."""
        (first_r, step_r), (first_s, step_s) = s.taps
        at = (first_r + r * step_r) * self.columns + first_s + column * step_s
        return self.taps - 1 - at if self.turned else at


def _plan(problem: Problem, spec: ClassKernel, splits: int) -> Plan:
    regions: dict[str, int] = {}

    def region(name: str, elements: int) -> str:
        regions[name] = FLOAT_BYTES * elements
        return name
    before: list[Launch] = []
    classes = pixel_classes(problem)
    s = correlations(problem)[0]
    _check_limits(problem, spec, splits, s, classes)
    bank = bank_of(problem, region, before)
    chwn = problem.layout == "CHWN"
    size = s.K * s.N * s.whole[0] * s.whole[1]
    maps = (_Maps(1, s.H * s.W * s.N, s.W * s.N, s.N) if chwn else _Maps(s.C * s.H * s.W, s.H * s.W, s.W, 1))
    ending: dict[str, Value] = fused(problem, 0)
    if splits > 1:
        out, last = region("parts", splits * size), ending
        ending = {"flags": 0, "alpha": 1.0, "beta": 0.0, "bias": 0}
    else:
        out = "out"
    reached = tuple(x for x in classes if x.taps)
    if len(reached) < len(classes) and (splits > 1 or not problem.reads_out):
        before.append(fill(out, splits * size, "pixels that no tap reaches are zero"))
    else:
        reached = classes
    launches = [*before, _launch(problem, spec, s, reached, maps, bank, splits, out, ending, size)]
    every = sum(x.pixels * x.s.R * x.s.S for x in classes)
    notes = []
    if splits > 1:
        whole = s.whole[0] * s.whole[1]
        rows = (s.N * whole, s.K, 1) if chwn else (whole, s.K, s.N)
        launches.append(reduce("parts", "out", splits, size, rows, s.K, last))
        notes.append(f"the sums over {s.C // s.groups} filters are split {splits} ways; the parts are added in a fixed "
                     "order")
    inside = sum(x.pixels * x.taps for x in classes)
    if inside < every:
        notes.append(f"{inside / every:.1%} of the taps lie on gradients; the others cost nothing")
    return make(problem, "classes", spec, launches, regions, notes)


def bank_of(problem: Problem, region: Callable[[str, int], str], before: list[Launch]) -> Bank:
    """Where the filters are read."""
    s = correlations(problem)[0]
    layer, aligned = problem.shape, problem.operand("filters").alignment == Alignment.TEXTURE
    if isinstance(layer, Correlation):  # as the kernel wants them
        return Bank("filters", problem.operand("filters").shape[-1] // _TEXEL_FLOATS, s.S, s.R * s.S, False)
    k = s.K // s.groups
    columns = -(-k // _ROW) * _ROW
    row, taps = s.groups * columns // _TEXEL_FLOATS, layer.R * layer.S
    if not as_they_lie(problem):
        whole = Correlation(s.N, s.C, s.H, s.W, s.K, layer.R, layer.S, layer.H, layer.W, (1, 1), (0, 0), (1, 1),
                            s.groups, (0, 0), (1, 1), s.whole, ((layer.R - 1, -1), (layer.S - 1, -1)))
        before.append(turned(problem, whole, whole.patch, columns, region))
        return Bank(before[-1].writes[0], row, layer.S, taps, True)
    if columns == k and aligned:
        return Bank("filters", row, 1, 1, False)
    bank = region("filter_bank", s.C * columns)
    before.append(pad(bank, "filters", (1, 1, s.C, k), (1, s.C, columns), (0, 0),
                      f"filters are copied to {s.C} rows of {columns}"))
    return Bank(bank, row, 1, 1, False)


def _launch(problem: Problem, spec: ClassKernel, s: Correlation, classes: tuple[PixelClass, ...], maps: _Maps,
            bank: Bank, splits: int, out: str, ending: Mapping[str, Value], size: int) -> Launch:
    (tile_j, tile_k), k, c, chwn = spec.tile, s.K // s.groups, s.C // s.groups, problem.layout == "CHWN"
    eights, group_tiles, filter_row = c // EIGHT, -(-k // tile_k), bank.taps * bank.row
    map_steps = {"n": maps.image, "p": s.str_h * maps.row, "q": s.str_w * maps.column}
    (every_p, every_q), columns, whole = s.every, s.whole[1], s.whole[0] * s.whole[1]
    out_steps = ({"n": 1, "q": every_q * s.N, "p": every_p * columns * s.N} if chwn else
                 {"q": every_q, "p": every_p * columns, "n": s.K * whole})
    values: dict[str, Value] = {
        **ending, "out": out, "maps": maps_of(problem), "filters": bank.place, "k": k, "group_tiles": group_tiles,
        "group_magic": -(-2**31 // group_tiles), "rounds": -(-eights // splits), "last_split": (eights - 1) % splits,
        "map_group": c * maps.channel, "map_split": EIGHT * maps.channel,
        "map_half": EIGHT // 2 * maps.channel, "filter_group": bank.row // s.groups,
        "filter_texels": -(-k // _TEXEL_FLOATS), "filter_row": filter_row, "filter_split": EIGHT * filter_row,
        "filter_more": EIGHT // 2 * filter_row * _TEXEL_BYTES,
        "out_k": whole * (s.N if chwn else 1), "out_split": size if splits > 1 else 0}
    values |= {f"channel{i}": FLOAT_BYTES * i * maps.channel for i in range(1, EIGHT)}
    for i, axis in enumerate("nqp" if chwn else "qpn"):
        values |= {f"map{i}": map_steps[axis] % 2**32, f"out{i}": out_steps[axis] % 2**32}
    doing = f"{tile_j} pixels x {tile_k} filters" + " of a group" * (s.groups > 1) + " each, over the taps of "
    doing += f"{len(classes)} classes of pixels" + ", a part of each sum" * (splits > 1)
    content = _table(spec, s.N, chwn, classes, maps, bank, splits)
    tiles = int(content[CLASS_WORDS * len(classes)])
    grid = tiles, s.groups * group_tiles, splits
    useful = sum(x.pixels * (c * x.s.R * x.s.S + 1) for x in classes)
    return Launch(spec, grid, values, _work(spec, s, classes, grid), doing, (out,), {},
                  {"table": content.tobytes()}, 2 * s.N * s.K * useful)


def _table(spec: ClassKernel, n: int, chwn: bool, classes: tuple[PixelClass, ...], maps: _Maps, bank: Bank,
           splits: int) -> np.ndarray:
    words = np.zeros(class_bytes(classes) // FLOAT_BYTES, np.int64)
    at, tile = tap_lists_at(len(classes)), 0
    for number, x in enumerate(classes):
        s, (d0, d1), pixels = x.s, (n, x.columns.count) if chwn else (x.columns.count, x.rows.count), n * x.pixels
        start = (x.rows.first * s.str_h - s.pad_h) * maps.row + (x.columns.first * s.str_w - s.pad_w) * maps.column
        taps = [(r, column) for r in range(x.rows.tap, x.rows.tap + x.rows.taps)
                for column in range(x.columns.tap, x.columns.tap + x.columns.taps)]
        map_at = [start + r * s.dil_h * maps.row + column * s.dil_w * maps.column for r, column in taps]
        filter_at = [bank.tap(s, r, column) * bank.row for r, column in taps]
        limit = pixels + spec.tile[0]
        out = (s.first[0] + x.rows.first * s.every[0]) * s.whole[1] + s.first[1] + x.columns.first * s.every[1]
        words[CLASS_WORDS * number:][:CLASS_WORDS - 1] = (
            tile, pixels, d0, *magic(d0, limit), d1, *magic(d1, limit), map_at[0] if taps else 0,
            out * (n if chwn else 1), filter_at[0] if taps else 0, len(taps), at)
        further = EIGHT * splits * maps.channel, EIGHT * splits * bank.taps * bank.row
        for i in range(len(taps)):
            there = (i + 1) % len(taps)
            for half, (where, step, size) in enumerate(zip((map_at, filter_at), further, (FLOAT_BYTES, _TEXEL_BYTES),
                                                           strict=True)):
                moved = size * (where[there] - where[i] + (0 if there else step))
                words[(at + TAP_BYTES * i) // FLOAT_BYTES + 2 * half:][:2] = moved, moved >> 32
            words[(at + TAP_BYTES * i) // FLOAT_BYTES + 4] = at + TAP_BYTES * there
        at += TAP_BYTES * len(taps)
        tile += -(-pixels // spec.tile[0])
    words[CLASS_WORDS * len(classes)] = tile
    return (words % 2**32).astype(np.uint32)


def _work(spec: ClassKernel, s: Correlation, classes: tuple[PixelClass, ...], grid: tuple[int, int, int]) -> Work:
    """All slots of all warps of all classes; gradients, filters and results once. The longest block begins first."""
    loop, rest = spec.slots
    rounds = -(-(s.C // s.groups // EIGHT) // grid[2])
    tiles = [(-(-s.N * x.pixels // spec.tile[0]), max(1, x.taps * rounds)) for x in classes]
    iterations, longest, last = sum(count * each for count, each in tiles) / grid[0], tiles[0][1], tiles[-1][1]
    once = s.C * s.H * s.W * s.N + s.patch * s.K + grid[2] * s.K * s.N * s.whole[0] * s.whole[1]
    slots, translated = (spec.warps * (per * iterations + rest) / filled[spec.warps] for per, filled in
                         ((loop, _FILLED), (spec.translated, _FILLED_TRANSLATED)))
    alone = spec.warps * (loop * last + rest) / (2 * SCHEDULERS) + LATENCY  # half a block ends while others do
    return Work(grid[0] * grid[1] * grid[2], slots, alone, FLOAT_BYTES * once, translated,
                least=spec.alone[0] * longest, translated_least=spec.alone[1] * longest)


def _check_limits(problem: Problem, spec: ClassKernel, splits: int, s: Correlation,
                  classes: tuple[PixelClass, ...]) -> None:
    whole = s.whole[0] * s.whole[1]
    layer, channel = problem.shape, s.H * s.W * (s.N if problem.layout == "CHWN" else 1)
    within(problem.shape, (
        ("gradients", s.C * s.H * s.W * s.N, MAX_ELEMENTS, "elements"),
        ("filters C x R x S x K", s.C * layer.R * layer.S * (s.K + _ROW * s.groups), MAX_ELEMENTS, "elements"),
        ("a channel", channel, MAX_ELEMENTS // (FLOAT_BYTES * EIGHT), "elements"),
        ("images C x H x W x N", s.K * whole * s.N, MAX_ELEMENTS, "elements"),
        (f"{splits} parts of the images", splits * s.K * whole * s.N, MAX_ELEMENTS, "elements"),
        ("pixels N x H x W", s.N * whole, 2**31 - len(classes) * spec.tile[0], "pixels"),
        ("channels C", s.K, MAX_GRID_YZ // 2, "channels, blocks along y of a grid"),
        ("images N", s.N, MAX_GRID_YZ, "images, blocks along z of a grid"),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    spec, v = launch.spec, launch.numbers
    assert isinstance(spec, ClassKernel)
    tile_j, tile_k = spec.tile
    tiles, rows, splits = launch.grid
    groups = rows // v["group_tiles"]
    assert v["group_tiles"] == -(-v["k"] // tile_k) and rows == groups * v["group_tiles"]
    words = np.frombuffer(launch.tables["table"], np.uint32).astype(np.int64)
    maps, bank = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    k, eight, at, first = np.arange(v["k"]), np.arange(EIGHT), 0, 0
    steps = np.array([0, *(v[f"channel{i}"] // FLOAT_BYTES for i in range(1, EIGHT))])
    assert v["filter_more"] == _TEXEL_BYTES * v["filter_row"] * EIGHT // 2
    while first < tiles:
        (_, count, d0, d0_magic, d0_shift, d1, d1_magic, d1_shift, map_start, out_start, filter_start, taps,
         entry) = words[at:at + CLASS_WORDS - 1].tolist()
        assert words[at] == first
        j = np.arange(count)
        quotient = j // d0
        assert (((j + 1) * d0_magic >> 32 + d0_shift) == quotient).all()
        assert (((quotient + 1) * d1_magic >> 32 + d1_shift) == quotient // d1).all()
        i = j % d0, quotient % d1, quotient // d1
        place = out_start + sum(i[a] * v[f"out{a}"] for a in range(3))
        for group, z in np.ndindex(groups, splits):
            base = (map_start + group * v["map_group"] + z * v["map_split"]
                    + sum(i[a] * v[f"map{a}"] for a in range(3))) % 2**32
            row = filter_start + group * v["filter_group"] + z * v["filter_split"]
            sums = np.zeros((v["k"], count))
            record = entry
            for _ in range(taps * (v["rounds"] - (z > v["last_split"]))):
                values = maps[base + steps[:, None]].astype(float)
                weights = bank[_TEXEL_FLOATS * (row + eight[:, None] * v["filter_row"]) + k].astype(float)
                sums += weights.T @ values
                steps_by = words[record // FLOAT_BYTES:][:4].astype(np.uint32).view(np.int64)
                base, row = base + steps_by[0] // FLOAT_BYTES, row + steps_by[1] // _TEXEL_BYTES
                record = int(words[record // FLOAT_BYTES + 4])
            filters = group * v["k"] + k[:, None]
            finish(launch, memory, scalars, filters * v["out_k"] + place + z * v["out_split"], sums, filters)
        at, first = at + CLASS_WORDS, first + -(-count // tile_j)
    assert words[at] == first == tiles


FAMILY = Family("classes", KERNELS, contract, ("data",), refuses_classes, candidates)
