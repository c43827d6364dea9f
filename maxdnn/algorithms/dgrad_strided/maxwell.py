"""Strided dgrad by residue phases: the pixels of a phase lie at equal distances, and the same taps of each lie on
gradients. One launch computes all phases, each by its own taps: what strides leave out and what padding adds is no
work, and small phases fill the chip together. For any number of images, in either layout, where the gradients lie."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan
from ...problem.problem import Problem
from ..common.correlation import (
    EIGHT,
    PHASE_WORDS,
    TAP_BYTES,
    Correlation,
    Phase,
    correlations,
    maps_of,
    phase_bytes,
    phases_of,
    phases_reason,
    tap_lists_at,
)
from ..common.fastdiv import magic, short_magic
from ..common.layout import Layout
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_BYTES, TEXEL_FLOATS, within
from ..common.schedule import PHASE_SPLITS, split_name
from ..common.workspace import Draft
from ..spec import LATENCY, Candidates, Family, TileKernel
from .plan import FILTER_ROW, PhaseFilters, PhaseSums, phase_filters
from .reference import reference

_FILLED = {1: 0.93, 2: 1.0, 8: 1.0}  # of the issue slots while as many blocks as fit are at work, by warps; simulated
_FILLED_TRANSLATED = {1: 0.93, 2: 1.0, 8: 1.1}  # likewise, of those that translations fill; measured on an H200


@dataclass(frozen=True)
class PhaseKernel(TileKernel):
    """`alone`: clocks of an iteration of a block that has an SM for itself, simulated on gm204, and of its translation,
    measured on an H200."""

    alone: tuple[int, int]


def _kernel(tile: tuple[int, int], slots: tuple[int, int], translated: int, alone: tuple[int, int]) -> PhaseKernel:
    j, k = tile
    return PhaseKernel(f"sconv_classes_K{k}_J{j}", f"maxwell/classes_{j}x{k}.sass",
                       f"""Convolution of pixels in phases, {j}
pixels of one phase and {k} filters a block, or a part of each sum; see classes.inc. Grid: x = tiles of all phases,
y = groups * ceil(k / {k}), z = splits.""", tile, slots, translated, alone)


KERNELS = (_kernel((64, 64), (537, 618), 645, (800, 1400)),
           _kernel((64, 32), (553, 699), 716, (800, 1400)),
           _kernel((128, 128), (527, 605), 611, (1049, 2400)))


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s = correlations(problem)[0]
    eights = s.C // s.groups // EIGHT
    return {split_name(spec.name, splits): partial(_plan, problem, spec, splits)
            for spec in KERNELS for splits in PHASE_SPLITS if splits <= eights}


def _plan(problem: Problem, spec: PhaseKernel, splits: int) -> Plan:
    draft, phases, s = Draft(problem), phases_of(problem), correlations(problem)[0]
    _check_limits(problem, spec, splits, s, phases)
    filters = phase_filters(draft)
    sums = PhaseSums.of(draft, s, splits)
    reached = sums.reached(phases, [bool(x.taps) for x in phases])
    draft.launches.append(_launch(problem, spec, s, reached, filters, splits, sums))
    sums.add(draft, s)
    every, inside = sum(x.pixels * x.s.R * x.s.S for x in phases), sum(x.pixels * x.taps for x in phases)
    if inside < every:
        draft.notes.append(f"{inside / every:.1%} of the taps lie on gradients; the others cost nothing")
    return draft.plan(FAMILY, spec)


def _launch(problem: Problem, spec: PhaseKernel, s: Correlation, phases: tuple[Phase, ...],
            filters: PhaseFilters, splits: int, sums: PhaseSums) -> Launch:
    (tile_j, tile_k), k, c, chwn = spec.tile, s.K // s.groups, s.C // s.groups, problem.layout == "CHWN"
    eights, group_tiles, filter_row = c // EIGHT, -(-k // tile_k), filters.taps * filters.row
    maps, out = s.images(problem.layout), s.results(problem.layout)
    values = sums.epilogue.values() | {
        "out": sums.place, "maps": maps_of(problem), "filters": filters.place, "k": k, "group_tiles": group_tiles,
        "group_magic": short_magic(group_tiles), "rounds": -(-eights // splits), "last_split": (eights - 1) % splits,
        "map_group": c * maps["C"], "map_split": EIGHT * maps["C"], "map_half": EIGHT // 2 * maps["C"],
        "filter_group": filters.row // s.groups, "filter_texels": -(-k // TEXEL_FLOATS), "filter_row": filter_row,
        "filter_split": EIGHT * filter_row, "filter_more": EIGHT // 2 * filter_row * TEXEL_BYTES,
        "out_k": out["C"], "out_split": sums.size if splits > 1 else 0}
    values |= {f"channel{i}": FLOAT_BYTES * i * maps["C"] for i in range(1, EIGHT)}
    steps = {"N": (1, 1), "H": (s.str_h, s.every[0]), "W": (s.str_w, s.every[1])}
    for i, axis in enumerate("NWH" if chwn else "WHN"):
        of_maps, of_out = steps[axis]
        values |= {f"map{i}": of_maps * maps[axis] % 2**32, f"out{i}": of_out * out[axis] % 2**32}
    doing = f"{tile_j} pixels x {tile_k} filters" + " of a group" * (s.groups > 1) + " each, over the taps of "
    doing += f"{len(phases)} phases of pixels" + ", a part of each sum" * (splits > 1)
    content = _table(spec, s.N, chwn, phases, maps, filters, splits)
    grid = int(content[PHASE_WORDS * len(phases)]), s.groups * group_tiles, splits
    useful = sum(x.pixels * (c * x.s.R * x.s.S + 1) for x in phases)
    return Launch(spec, grid, values, _work(spec, s, phases, grid), doing, (sums.place,), {},
                  {"table": content.tobytes()}, 2 * s.N * s.K * useful)


def _table(spec: PhaseKernel, n: int, chwn: bool, phases: tuple[Phase, ...], maps: Layout, filters: PhaseFilters,
           splits: int) -> np.ndarray:
    words = np.zeros(phase_bytes(phases) // FLOAT_BYTES, np.int64)
    at, tile = tap_lists_at(len(phases)), 0
    for number, x in enumerate(phases):
        s, (d0, d1), pixels = x.s, (n, x.columns.count) if chwn else (x.columns.count, x.rows.count), n * x.pixels
        start = (x.rows.first * s.str_h - s.pad_h) * maps["H"] + (x.columns.first * s.str_w - s.pad_w) * maps["W"]
        taps = [(r, column) for r in range(x.rows.tap, x.rows.tap + x.rows.taps)
                for column in range(x.columns.tap, x.columns.tap + x.columns.taps)]
        map_at = [start + r * s.dil_h * maps["H"] + column * s.dil_w * maps["W"] for r, column in taps]
        filter_at = [filters.tap(s, r, column) * filters.row for r, column in taps]
        limit = pixels + spec.tile[0]
        out = (s.first[0] + x.rows.first * s.every[0]) * s.whole[1] + s.first[1] + x.columns.first * s.every[1]
        words[PHASE_WORDS * number:][:PHASE_WORDS - 1] = (
            tile, pixels, d0, *magic(d0, limit), d1, *magic(d1, limit), map_at[0] if taps else 0,
            out * (n if chwn else 1), filter_at[0] if taps else 0, len(taps), at)
        further = EIGHT * splits * maps["C"], EIGHT * splits * filters.taps * filters.row
        for i in range(len(taps)):
            there = (i + 1) % len(taps)
            for half, (where, step, size) in enumerate(zip((map_at, filter_at), further, (FLOAT_BYTES, TEXEL_BYTES),
                                                           strict=True)):
                moved = size * (where[there] - where[i] + (0 if there else step))
                words[(at + TAP_BYTES * i) // FLOAT_BYTES + 2 * half:][:2] = moved, moved >> 32
            words[(at + TAP_BYTES * i) // FLOAT_BYTES + 4] = at + TAP_BYTES * there
        at += TAP_BYTES * len(taps)
        tile += -(-pixels // spec.tile[0])
    words[PHASE_WORDS * len(phases)] = tile
    return (words % 2**32).astype(np.uint32)


def _work(spec: PhaseKernel, s: Correlation, phases: tuple[Phase, ...], grid: tuple[int, int, int]) -> Work:
    """All slots of all warps of all phases; gradients, filters and results once. The longest CTA begins first."""
    loop, rest = spec.slots
    rounds = -(-(s.C // s.groups // EIGHT) // grid[2])
    tiles = [(-(-s.N * x.pixels // spec.tile[0]), max(1, x.taps * rounds)) for x in phases]
    iterations, longest, last = sum(count * each for count, each in tiles) / grid[0], tiles[0][1], tiles[-1][1]
    once = s.C * s.H * s.W * s.N + s.patch * s.K + grid[2] * s.K * s.N * s.outputs
    slots, translated = (spec.warps * (per * iterations + rest) / filled[spec.warps] for per, filled in
                         ((loop, _FILLED), (spec.translated, _FILLED_TRANSLATED)))
    alone = spec.warps * (loop * last + rest) / (2 * SCHEDULERS) + LATENCY  # half a block ends while others do
    code = Cost(slots, alone, longest=spec.alone[0] * longest)
    return Work(grid[0] * grid[1] * grid[2], FLOAT_BYTES * once, code,
                code.translated(translated, longest=spec.alone[1] * longest))


def _check_limits(problem: Problem, spec: PhaseKernel, splits: int, s: Correlation,
                  phases: tuple[Phase, ...]) -> None:
    whole = s.outputs
    layer, channel = problem.shape, s.H * s.W * (s.N if problem.layout == "CHWN" else 1)
    within(problem.shape, (
        ("gradients", s.C * s.H * s.W * s.N, MAX_ELEMENTS, "elements"),
        ("filters C x R x S x K", s.C * layer.R * layer.S * (s.K + FILTER_ROW * s.groups), MAX_ELEMENTS, "elements"),
        ("a channel", channel, MAX_ELEMENTS // (FLOAT_BYTES * EIGHT), "elements"),
        ("images C x H x W x N", s.K * whole * s.N, MAX_ELEMENTS, "elements"),
        (f"{splits} parts of the images", splits * s.K * whole * s.N, MAX_ELEMENTS, "elements"),
        ("pixels N x H x W", s.N * whole, 2**31 - len(phases) * spec.tile[0], "pixels"),
        ("channels C", s.K, MAX_GRID_YZ // 2, "channels, blocks along y of a grid"),
        ("images N", s.N, MAX_GRID_YZ, "images, blocks along z of a grid"),
    ))


FAMILY = Family("classes", KERNELS, reference, ("data",), phases_reason, candidates)
