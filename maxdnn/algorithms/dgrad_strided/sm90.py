"""Strided dgrad in machine code of compute capability 9.0. Pixels of a residue phase have the same residues by the
strides, so the same taps reach them. One launch computes all phases, each by its own taps, the longest first. The main
loop is that of implicit GEMM (implicit_gemm/sm90.py), and so is the test for taps in the padding. For N,C,H,W, and for
C,H,W,N with few images."""

from functools import partial

import numpy as np

from ...planning.cost import Chip, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan
from ...problem.problem import Problem
from ..common import sm90
from ..common.correlation import EIGHT, Correlation, correlations, maps_of
from ..common.epilogue import epilogue_of
from ..common.fastdiv import MOST_REACH, magic, short_magic, tap_tests
from ..common.layout import Layout, operand
from ..common.limits import CONSTANT_BYTES, MAX_ELEMENTS, MAX_GRID_YZ, REACH, TEXEL_BYTES, TEXEL_FLOATS, within
from ..common.schedule import split_name, splits_of
from ..common.workspace import Draft, part
from ..spec import Candidates, Family, groups_reason, strided_reason
from .plan import PhaseFilters, PhaseSums, phase_filters
from .reference import OUTSIDE, RECORD_WORDS, WORDS, reference_sm90

_DOC = """Convolution of 128 pixels of a phase a block, or a part of each sum: see pixels.inc. Grid: x = tiles of
filters, y = tiles of all phases, part by part if sums are split (at most 65535)."""

KERNELS = tuple(sm90.implicit_gemm_kernel(f"sm90_classes_K{filters}_J{sm90.TILE}", "sm90/classes.sass", _DOC, filters,
                                     (loop, rest))
                for filters, loop, rest in ((128, 1111, 1000), (96, 863, 830), (64, 1133, 1090)))


def unsupported_reason(problem: Problem) -> str | None:
    every = correlations(problem)
    s = every[0]
    if len(every) == 1 and not isinstance(problem.shape, Correlation):
        return "a gradient without strides, which pixels_sm90 serves"
    if refused := sm90.layout_reason(problem, s):
        return refused
    if s.C // s.groups % EIGHT:
        return f"groups of {s.C // s.groups} filters, no multiple of {EIGHT}"
    if any(any(x.margins) and (x.R > sm90.MOST_ROWS or x.S > sm90.MOST_COLUMNS) for x in every):
        return f"borders with more than {sm90.MOST_ROWS} x {sm90.MOST_COLUMNS} taps of a pixel"
    if not any(x.patch for x in every):
        return "images that no tap reaches"
    return groups_reason(problem) or strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s = correlations(problem)[0]
    eights = s.C // s.groups // EIGHT
    return {split_name(spec.name, parts): partial(_plan, problem, spec, parts)
            for spec in KERNELS for parts in splits_of(eights)}


def _plan(problem: Problem, spec: sm90.NativeKernel, parts: int) -> Plan:
    draft, every = Draft(problem), correlations(problem)
    s = every[0]
    _check_limits(problem, parts)
    filters = phase_filters(draft)
    sums = PhaseSums.of(draft, s, parts)
    reached = sums.reached(every, [bool(x.patch) for x in every])
    draft.add(_launch(problem, spec, reached, group, filters, parts) for group in range(s.groups))
    sums.add(draft, s)
    return draft.plan(FAMILY, spec)


def _launch(problem: Problem, spec: sm90.NativeKernel, every: tuple[Correlation, ...], group: int,
            filters: PhaseFilters, parts: int) -> Launch:
    s = every[0]
    k, c, size = s.K // s.groups, s.C // s.groups, s.N * s.K * s.outputs
    maps, out = operand(problem, maps_of(problem), s.N, s.C, s.H, s.W), s.results(problem.layout)
    content = _table(every, maps, filters, parts, out["W"])
    tiles = int(content[WORDS * len(every)])
    columns, rows = any(x.Q > 1 for x in every), any(x.P > 1 for x in every)
    values = epilogue_of(problem, group * k).values() | {
        "maps": part(maps_of(problem), group * c * maps["C"]),
        "filters": part(filters.place, group * (filters.row // s.groups) * TEXEL_FLOATS),
        "out": 0 if parts > 1 else part("out", group * k * out["C"]),
        "parts": part("parts", group * k * out["C"]) if parts > 1 else 0, "k": k,
        "whole": 0 if parts > 1 else tiles, "tail": tiles, "tail_magic": short_magic(tiles),
        "part_out": size if parts > 1 else 0, "part_first": 0, "map_channel": FLOAT_BYTES * maps["C"],
        "out0": s.every[1] * out["W"] if columns else 0, "out1": s.every[0] * out["H"] if rows else 0,
        "out2": out["N"], "out_k": out["C"],
        "filter_row": filters.taps * filters.row * TEXEL_BYTES, "filter_texels": -(-k // TEXEL_FLOATS)}
    values |= sm90.map_steps(s, maps, columns, rows)
    # of a single tap only whether it lies inside matters, which no distance changes
    values |= tap_tests(_reaches(every), _tested(every))
    doing = f"{sm90.TILE} pixels x {spec.tile[1]} filters each, over the taps of {len(every)} phases of pixels"
    doing += f", a launch for each of {s.groups} groups" * (s.groups > 1) + ", a part of each sum" * (parts > 1)
    useful = sum(x.P * x.Q * (x.patch + 1) for x in every)
    work = _work(spec, every, parts, s.every[1] * out["W"])
    return Launch(spec, (-(-k // spec.tile[1]), tiles * parts, 1), values, work, doing,
                  ("parts" if parts > 1 else "out",), {}, {"table": content.tobytes()}, 2 * s.N * k * useful)


def _reaches(every: tuple[Correlation, ...]) -> tuple[tuple[str, int, int], ...]:
    """(axis, dilation, taps) of the widest phases."""
    return (("h", max(x.dil_h for x in every), max(x.R for x in every)),
            ("w", max(x.dil_w for x in every), max(x.S for x in every)))


def _tested(every: tuple[Correlation, ...]) -> bool:
    return any(any(x.margins) for x in every)


def _table(every: tuple[Correlation, ...], maps: Layout, filters: PhaseFilters, parts: int,
           images: int) -> np.ndarray:
    """Words (uint32) of all phases and of their records; `images`: floats of the output from a pixel to the next."""
    words = np.zeros(WORDS * (len(every) + 1), np.int64)
    lists, tile, at = [words], 0, FLOAT_BYTES * len(words)
    for number, x in enumerate(every):
        eights, taps = x.C // x.groups // EIGHT, max(1, x.R * x.S)
        limit = x.N * x.P * x.Q + sm90.TILE
        lists.append(_records(x, maps, filters))
        start = x.pad_h * maps["H"] + x.pad_w * maps["W"]
        words[WORDS * number:][:WORDS - 1] = (
            tile, x.N * x.P * x.Q, x.Q, *magic(x.Q, limit), x.P, *magic(x.P, limit),
            -FLOAT_BYTES * start if x.patch else 0, x.start * images, -x.pad_h, -x.pad_w,
            len(lists[-1]), -(-eights // parts) * taps, at)
        at += FLOAT_BYTES * lists[-1].size
        tile += -(-x.N * x.P * x.Q // sm90.TILE)
    words[WORDS * len(every)] = tile
    return (np.concatenate([x.ravel() for x in lists]) % 2**32).astype(np.uint32)


def _records(x: Correlation, maps: Layout, filters: PhaseFilters) -> np.ndarray:
    """Of a phase: all taps of eight channels in turn; a single one, which lies outside, without taps."""
    if not x.patch:
        return np.array([[0, 0, OUTSIDE, 0]])
    channel, r, col = np.unravel_index(np.arange(x.patch // EIGHT), (x.C // x.groups // EIGHT, x.R, x.S))
    channel = EIGHT * channel
    tap = np.array([filters.tap(x, row, column) for row, column in np.ndindex(x.R, x.S)])[r * x.S + col]
    return np.stack([
        FLOAT_BYTES * (channel * maps["C"] + r * x.dil_h * maps["H"] + col * x.dil_w * maps["W"]),
        (channel * filters.taps + tap) * filters.row * TEXEL_BYTES, (1 << r | 1 << 16 + col) * any(x.margins),
        0 * r], 1)


def _work(spec: sm90.NativeKernel, every: tuple[Correlation, ...], parts: int, apart: int) -> Work:
    """All slots of all warps; gradients, filters and results once. `apart`: see `sm90.waves`."""
    s = every[0]
    k, c = s.K // s.groups, s.C // s.groups
    columns, rounds = -(-k // spec.tile[1]), -(-(c // EIGHT) // parts)
    runs = [(max(1, rounds * x.R * x.S), -(-x.N * x.P * x.Q // sm90.TILE) * columns * parts) for x in every]
    once = FLOAT_BYTES * (c * s.H * s.W * s.N + sum(x.patch for x in every) * k
                          + parts * s.N * k * s.outputs)
    return sm90.waves(spec, runs, once, apart)


def _check_limits(problem: Problem, parts: int) -> None:
    every = correlations(problem)
    s, whole = every[0], every[0].outputs
    tiles = sum(-(-x.N * x.P * x.Q // sm90.TILE) for x in every)
    records = sum(max(1, x.patch // EIGHT) for x in every)
    table = FLOAT_BYTES * (WORDS * (len(every) + 1) + RECORD_WORDS * records)
    columns = s.groups * -(-s.K // s.groups // 32) * 32
    within(problem.shape, (
        ("gradients N x K x P x Q", problem.operand(maps_of(problem)).extent, REACH // FLOAT_BYTES, "elements"),
        ("filters", sum(x.patch for x in every) * columns, REACH // FLOAT_BYTES, "elements"),
        ("images N x C x H x W", parts * s.N * s.K * whole, MAX_ELEMENTS, "elements, all parts of sums counted"),
        ("pixels N x H x W", s.N * whole, 2**31 - sm90.TILE, "pixels"),
        ("phases and elements", table, CONSTANT_BYTES, "bytes of constant memory"),
        ("tiles of pixels", tiles * parts, MAX_GRID_YZ, "blocks along y of the grid"),
        ("images N", s.N if parts > 1 else 1, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", max(dilation * taps for _, dilation, taps in _reaches(every)) * _tested(every),
         MOST_REACH, "where there is padding"),
    ))


FAMILY = Family("classes_sm90", KERNELS, reference_sm90, ("data",), unsupported_reason, candidates)
