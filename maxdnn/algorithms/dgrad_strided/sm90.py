"""Gradients of images with strides in machine code of compute capability 9.0: the counterpart of `classes`. The pixels
of a class are those that the same residues of the strides leave; a launch computes all classes, each by its own taps,
the longest first. Taps beyond the border are a test in the kernel, as in `pixels_sm90`, whose loop this is. For
N,C,H,W, and C,H,W,N of few images."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, make
from ...problem.problem import Problem
from ..common.correlation import EIGHT, Correlation, correlations, maps_of
from ..implicit_gemm.maxwell import ceil_magic, magic
from ..implicit_gemm.sm90 import FEW, MOST_COLUMNS, MOST_ROWS, TABLE_BYTES, TILE, Strides, Waves, dilation_of, strides
from ..interior.sm90 import NativeKernel
from ..memory_ops.plan import MAX_GRID_YZ, fill, reduce
from ..paper.maxwell import MAX_ELEMENTS, TEXEL_FLOATS
from ..spec import (
    SPLITS,
    Candidates,
    Family,
    Memory,
    finish,
    fused,
    refuses_groups,
    refuses_strided,
    seen,
    split_name,
    within,
)
from . import maxwell as dgrad_strided
from .maxwell import Bank

_WORDS, _RECORD_WORDS = 16, 4
_OUTSIDE = 0x80000000  # in place of a tap: it lies outside of the maps from every pixel
_REACH = 2**32  # bytes: maps and filters are counted in 32 bits

_DOC = """Convolution of 128 pixels of a class a block, or a part of each sum: see pixels.inc. Grid: x = tiles of
filters, y = tiles of all classes, part by part if sums are split (at most 65535)."""

KERNELS = tuple(NativeKernel(f"sm90_classes_K{filters}_J{TILE}", "hopper/classes.sass", _DOC, (TILE, filters),
                             (loop, rest), loop, False, 4 if filters == 64 else 2, 0.93 if filters == 96 else 0.96)
                for filters, loop, rest in ((128, 1111, 1000), (96, 863, 830), (64, 1133, 1090)))


def refuses(problem: Problem) -> str | None:
    every = correlations(problem)
    s = every[0]
    if len(every) == 1 and not isinstance(problem.shape, Correlation):
        return "a gradient without strides, which pixels_sm90 serves"
    if problem.layout == "CHWN" and s.N > FEW:
        return f"layout CHWN of more than {FEW} images"
    if s.C // s.groups % EIGHT:
        return f"groups of {s.C // s.groups} filters, no multiple of {EIGHT}"
    if any(any(x.margins) and (x.R > MOST_ROWS or x.S > MOST_COLUMNS) for x in every):
        return f"borders with more than {MOST_ROWS} x {MOST_COLUMNS} taps of a pixel"
    if not any(x.patch for x in every):
        return "images that no tap reaches"
    return refuses_groups(problem) or refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    s = correlations(problem)[0]
    eights = s.C // s.groups // EIGHT
    found: dict[str, Callable[[], Plan]] = {}
    for spec in KERNELS:
        for parts in SPLITS:
            if -(-eights // parts) * (parts - 1) < eights:  # none without channels
                found[split_name(spec, parts)] = partial(_plan, problem, spec, parts)
    return found


def _plan(problem: Problem, spec: NativeKernel, parts: int) -> Plan:
    every, chwn = correlations(problem), problem.layout == "CHWN"
    s, maps = every[0], strides(problem, every[0])
    regions: dict[str, int] = {}
    before: list[Launch] = []

    def region(name: str, elements: int) -> str:
        regions[name] = FLOAT_BYTES * elements
        return name
    _check_limits(problem, spec, parts)
    bank = dgrad_strided.bank_of(problem, region, before)
    whole = s.whole[0] * s.whole[1]
    size = s.N * s.K * whole
    out = region("parts", parts * size) if parts > 1 else "out"
    reached = tuple(x for x in every if x.patch)
    if len(reached) < len(every) and (parts > 1 or not problem.reads_out):
        before.append(fill(out, parts * size, "pixels that no tap reaches are zero"))
    else:
        reached = every
    launches = [_launch(problem, spec, reached, maps, group, bank, parts) for group in range(s.groups)]
    notes = []
    if parts > 1:
        notes.append(f"the sums over {s.C // s.groups} filters are split {parts} ways; the parts are added in a fixed "
                     "order")
        rows = (s.N * whole, s.K, 1) if chwn else (whole, s.K, s.N)
        launches.append(reduce("parts", "out", parts, size, rows, s.K, fused(problem, 0)))
    return make(problem, "classes_sm90", spec, (*before, *launches), regions, notes)


def _launch(problem: Problem, spec: NativeKernel, every: tuple[Correlation, ...], maps: Strides, group: int, bank: Bank,
            parts: int) -> Launch:
    s, chwn = every[0], problem.layout == "CHWN"
    k, c, whole, row_bytes = s.K // s.groups, s.C // s.groups, s.whole[0] * s.whole[1], 16 * bank.row
    out_k, out_q, out_n = (whole * s.N, s.N, 1) if chwn else (whole, 1, s.K * whole)
    content = _table(every, maps, bank, parts, s.N if chwn else 1)
    tiles = int(content[_WORDS * len(every)])

    def part(name: str, floats: int) -> str | Part:
        return Part(name, FLOAT_BYTES * floats) if floats else name
    wide, high = (any(size > 1 for size in sizes) for sizes in ([x.Q for x in every], [x.P for x in every]))
    values: dict[str, Value] = fused(problem, group * k) | {
        "maps": part(maps_of(problem), group * c * maps.channel),
        "filters": part(bank.place, group * (bank.row // s.groups) * TEXEL_FLOATS),
        "out": 0 if parts > 1 else part("out", group * k * out_k),
        "parts": part("parts", group * k * out_k) if parts > 1 else 0, "k": k,
        "whole": 0 if parts > 1 else tiles, "tail": tiles, "tail_magic": -(-2**31 // tiles),
        "part_out": s.N * s.K * whole if parts > 1 else 0, "part_first": 0,
        "map0": FLOAT_BYTES * s.str_w * maps.column if wide else 0,
        "map1": FLOAT_BYTES * s.str_h * maps.row if high else 0,
        "map2": FLOAT_BYTES * maps.image if s.N > 1 else 0, "map_channel": FLOAT_BYTES * maps.channel,
        "out0": s.every[1] * out_q if wide else 0, "out1": s.every[0] * s.whole[1] * out_q if high else 0,
        "out2": out_n, "out_k": out_k, "stride_h": s.str_h if high else 0, "h": s.H,
        "stride_w": s.str_w if wide else 0, "w": s.W,
        "filter_row": bank.taps * row_bytes, "filter_texels": -(-k // TEXEL_FLOATS)}
    for name, apart, taps in (("h", max(x.dil_h for x in every), max(x.R for x in every)),
                              ("w", max(x.dil_w for x in every), max(x.S for x in every))):
        # of a single tap only whether it lies inside matters, which no distance changes
        factor, shift = ceil_magic(apart, apart * taps) if _tested(every) else (0, 0)
        values |= {f"reach_{name}": apart * taps if _tested(every) else 0, f"dil_{name}_magic": factor,
                   f"dil_{name}_round": (apart - 1) * factor, f"dil_{name}_shift": shift}
    doing = f"{TILE} pixels x {spec.tile[1]} filters each, over the taps of {len(every)} classes of pixels"
    doing += f", a launch for each of {s.groups} groups" * (s.groups > 1) + ", a part of each sum" * (parts > 1)
    useful = sum(x.P * x.Q * (x.patch + 1) for x in every)
    work = _work(spec, every, parts, s.every[1] * out_q)
    return Launch(spec, (-(-k // spec.tile[1]), tiles * parts, 1), values, work, doing,
                  ("parts" if parts > 1 else "out",), {}, {"table": content.tobytes()}, 2 * s.N * k * useful)


def _tested(every: tuple[Correlation, ...]) -> bool:
    return any(any(x.margins) for x in every)


def _table(every: tuple[Correlation, ...], maps: Strides, bank: Bank, parts: int, images: int) -> np.ndarray:
    """Words (uint32) of all classes and of their records; `images`: floats of the output from a pixel to the next."""
    words = np.zeros(_WORDS * (len(every) + 1), np.int64)
    lists, tile, at = [words], 0, FLOAT_BYTES * len(words)
    for number, x in enumerate(every):
        eights, taps = x.C // x.groups // EIGHT, max(1, x.R * x.S)
        limit = x.N * x.P * x.Q + TILE
        lists.append(_records(x, maps, bank))
        start = x.pad_h * maps.row + x.pad_w * maps.column
        words[_WORDS * number:][:_WORDS - 1] = (
            tile, x.N * x.P * x.Q, x.Q, *magic(x.Q, limit), x.P, *magic(x.P, limit),
            -FLOAT_BYTES * start if x.patch else 0, x.start * images, -x.pad_h, -x.pad_w,
            len(lists[-1]), -(-eights // parts) * taps, at)
        at += FLOAT_BYTES * lists[-1].size
        tile += -(-x.N * x.P * x.Q // TILE)
    words[_WORDS * len(every)] = tile
    return (np.concatenate([x.ravel() for x in lists]) % 2**32).astype(np.uint32)


def _records(x: Correlation, maps: Strides, bank: Bank) -> np.ndarray:
    """Of a class: all taps of eight channels in turn; a single one, which lies outside, without taps."""
    if not x.patch:
        return np.array([[0, 0, _OUTSIDE, 0]])
    channel, r, col = np.unravel_index(np.arange(x.patch // EIGHT), (x.C // x.groups // EIGHT, x.R, x.S))
    channel = EIGHT * channel
    tap = np.array([bank.tap(x, row, column) for row, column in np.ndindex(x.R, x.S)])[r * x.S + col]
    return np.stack([
        FLOAT_BYTES * (channel * maps.channel + r * x.dil_h * maps.row + col * x.dil_w * maps.column),
        (channel * bank.taps + tap) * bank.row * 16, (1 << r | 1 << 16 + col) * any(x.margins), 0 * r], 1)


def _work(spec: NativeKernel, every: tuple[Correlation, ...], parts: int, apart: int) -> Waves:
    """All slots of all warps; gradients, filters and results once. `apart`: see `Waves.of`."""
    s = every[0]
    k, c = s.K // s.groups, s.C // s.groups
    columns, rounds = -(-k // spec.tile[1]), -(-(c // EIGHT) // parts)
    runs = [(max(1, rounds * x.R * x.S), -(-x.N * x.P * x.Q // TILE) * columns * parts) for x in every]
    once = FLOAT_BYTES * (c * s.H * s.W * s.N + sum(x.patch for x in every) * k
                          + parts * s.N * k * s.whole[0] * s.whole[1])
    return Waves.of(spec, runs, once, apart)


def _check_limits(problem: Problem, spec: NativeKernel, parts: int) -> None:
    every = correlations(problem)
    s, whole = every[0], every[0].whole[0] * every[0].whole[1]
    tiles = sum(-(-x.N * x.P * x.Q // TILE) for x in every)
    records = sum(max(1, x.patch // EIGHT) for x in every)
    table = FLOAT_BYTES * (_WORDS * (len(every) + 1) + _RECORD_WORDS * records)
    columns = s.groups * -(-s.K // s.groups // 32) * 32
    within(problem.shape, (
        ("gradients N x K x P x Q", problem.operand(maps_of(problem)).extent, _REACH // FLOAT_BYTES, "elements"),
        ("filters", sum(x.patch for x in every) * columns, _REACH // FLOAT_BYTES, "elements"),
        ("images N x C x H x W", parts * s.N * s.K * whole, MAX_ELEMENTS, "elements, all parts of sums counted"),
        ("pixels N x H x W", s.N * whole, 2**31 - TILE, "pixels"),
        ("classes and elements", table, TABLE_BYTES, "bytes of constant memory"),
        ("tiles of pixels", tiles * parts, MAX_GRID_YZ, "blocks along y of the grid"),
        ("images N", s.N if parts > 1 else 1, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", max(max(x.dil_h for x in every) * max(x.R for x in every),
                                       max(x.dil_w for x in every) * max(x.S for x in every)) if _tested(every) else 0,
         2047, "where there is padding"),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, NativeKernel) and launch.grid[0] == -(-v["k"] // spec.tile[1])
    words = np.frombuffer(launch.tables["table"], np.uint32).astype(np.int64)
    maps, filters = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    k, step, at, first = np.arange(v["k"])[:, None], np.arange(EIGHT), 0, 0
    parts = 1 if v["whole"] else launch.grid[1] // v["tail"]
    assert launch.grid[1] == parts * v["tail"]
    while first < v["tail"]:
        (_, count, d0, d0_magic, d0_shift, d1, d1_magic, d1_shift, map_start, out_start, start_h, start_w, length,
         share, begin) = words[at:at + _WORDS - 1].tolist()
        assert words[at] == first
        map_start, start_h, start_w = (x - (x >> 31 << 32) for x in (map_start, start_h, start_w))
        j = np.arange(count)
        rest = j // d0
        assert (((j + 1) * d0_magic >> 32 + d0_shift) == rest).all()
        assert (((rest + 1) * d1_magic >> 32 + d1_shift) == rest // d1).all()
        i = j % d0, rest % d1, rest // d1
        base = map_start + sum(i[a] * v[f"map{a}"] for a in range(3))
        where = out_start + sum(i[a] * v[f"out{a}"] for a in range(3)) + k * v["out_k"]
        h, w = i[1] * v["stride_h"] + start_h, i[0] * v["stride_w"] + start_w
        records = words[begin // FLOAT_BYTES:][:_RECORD_WORDS * length].reshape(-1, _RECORD_WORDS)
        for part in range(parts):
            sums = np.zeros((v["k"], count))
            for offset, filter_at, tap, _ in records[part * share:(part + 1) * share].tolist():
                inside = np.full(count, tap != _OUTSIDE)
                if tap and tap != _OUTSIDE:
                    row = h + ((tap & 0xffff).bit_length() - 1) * dilation_of(v, "h")
                    column = w + ((tap >> 16).bit_length() - 1) * dilation_of(v, "w")
                    inside = (row >= 0) & (row < v["h"]) & (column >= 0) & (column < v["w"])
                places = np.where(inside, base + offset + step[:, None] * v["map_channel"], 0) // FLOAT_BYTES
                rows = (filter_at + step * v["filter_row"]) // FLOAT_BYTES
                sums += filters[rows + k].astype(float) @ np.where(inside, maps[places], 0)
            if v["whole"]:
                finish(launch, memory, scalars, where, sums, k)
            elif part * share < length:
                seen(memory, launch.values["parts"])[where + part * v["part_out"]] = sums
        at, first = at + _WORDS, first + -(-count // TILE)
    assert words[at] == first == v["tail"]


FAMILY = Family("classes_sm90", KERNELS, contract, ("data",), refuses, candidates)
