"""Implicit GEMM in machine code of compute capability 9.0, for N,C,H,W and for C,H,W,N with few images. The columns of
a tile are 128 output pixels of any images and rows; the maps are read where they lie, and the kernel tests which taps
lie in the padding. Where tiles do not fill the chip, or its tail wave, sums are split and partial sums are added in a
fixed order."""

from functools import partial

import numpy as np

from ...planning.cost import Chip, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, correlations, maps_of
from ..common.epilogue import ACTIVATION_FLAGS, epilogue_of
from ..common.fastdiv import MOST_REACH, divisor, short_magic, tap_tests
from ..common.layout import Layout, operand
from ..common.limits import CONSTANT_BYTES, MAX_ELEMENTS, MAX_GRID_YZ, REACH, TEXEL_BYTES, TEXEL_FLOATS, within
from ..common.packing import Packed, packed
from ..common.schedule import SPLITS, Tail, divides, split_name, splits_of, tail_parts, why_tail
from ..common.sm90 import (
    GROUP,
    MOST_COLUMNS,
    MOST_ROWS,
    TILE,
    NativeKernel,
    implicit_gemm_kernel,
    layout_reason,
    map_steps,
    waves,
)
from ..common.workspace import Draft, part
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, groups_reason
from .reference import ELEMENTS, HAD, RECORD, reference_sm90

_DOC = """Forward convolution of 128 pixels a block, or a part of each sum: see pixels.inc. Grid: x = tiles of filters,
y = tiles of pixels (at most 65535)."""


def _kernel(filters: int, loop: int, rest: int, kind: str = "") -> NativeKernel:
    return implicit_gemm_kernel(f"sm90_pixels_K{filters}_J{TILE}{kind}", "sm90/pixels.sass", _DOC, filters,
                                (loop, rest), kind == "_elements")


OF_MATRICES = _kernel(128, 1118, 910, "_kc"), _kernel(64, 1140, 1000, "_kc")
"""For filters of one tap of N,C,H,W, which they read as they lie."""

KERNELS = (_kernel(128, 1111, 900), _kernel(96, 863, 730), _kernel(64, 1133, 990), _kernel(128, 1132, 920, "_elements"),
           _kernel(96, 884, 750, "_elements"), _kernel(64, 1168, 1020, "_elements"), *OF_MATRICES)


def unsupported_reason(problem: Problem) -> str | None:
    """Maps may have any strides."""
    every, maps = correlations(problem), problem.operand(maps_of(problem))
    s = every[0]
    if layout_reason(problem, s) or len(every) > 1:
        return layout_reason(problem, s) or "strides of a gradient"
    if refused := groups_reason(problem):
        return refused
    if s.patch < GROUP:
        return f"{s.patch} elements C x R x S, fewer than {GROUP}"
    if any(s.margins) and (s.R > MOST_ROWS or s.S > MOST_COLUMNS):
        return f"padding with filters of more than {MOST_ROWS} x {MOST_COLUMNS} taps"
    return next((f"{o.role} that are not C-contiguous" for o in problem.operands if o.strides and o is not maps), None)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    found = {}
    s = correlations(problem)[0]
    for spec in KERNELS:
        if spec.elements != bool(s.C // s.groups % GROUP) or (spec in OF_MATRICES and not _matrices(problem)):
            continue
        found[spec.name] = partial(_plan, problem, spec, Tail())
        for parts in splits_of(_iterations(s), SPLITS[1:]) if s.groups == 1 else ():
            found[split_name(spec.name, parts)] = partial(_plan, problem, spec, Tail(s.N, parts))
        tail = _tail(s, spec, chip)
        if tail.items and problem.layout == "NCHW":
            found[f"{spec.name}_tail"] = partial(_plan, problem, spec, tail)
    return found


def _matrices(problem: Problem) -> bool:
    """Whether the filters are rows of whole texels, one for each filter."""
    s = correlations(problem)[0]
    return (problem.kind == "forward" and problem.layout == "NCHW" and s.R == s.S == 1
            and problem.operand("filters").alignment == Alignment.TEXTURE)


def _iterations(s: Correlation) -> int:
    return -(-s.patch // GROUP)


def _tail(s: Correlation, spec: NativeKernel, chip: Chip) -> Tail:
    """The images behind the last whole wave of blocks, in as many parts as make them fill waves best."""
    slots, pixels = chip.sms * spec.ctas_per_sm, s.P * s.Q
    filters = -(-s.K // s.groups // spec.tile[1])
    waves = -(-s.N * pixels // TILE) * filters // slots
    images = s.N - waves * slots // filters * TILE // pixels
    if s.groups > 1 or not waves or not 0 < images < s.N:
        return Tail()
    ctas = -(-images * pixels // TILE) * filters
    parts = tail_parts(ctas, slots, (n for n in range(1, _iterations(s) + 1) if divides(_iterations(s), n)))
    return Tail(images, parts) if parts > 1 else Tail()


def table(s: Correlation, maps: Layout, row_bytes: int) -> np.ndarray:
    """A record for every tap of every 8 channels, all taps of 8 channels in turn, so that neighbouring fetches meet the
    same lines; where 8 does not divide the channels, for 8 elements (c, r, s) in a row, the last ones at the end.
    `row_bytes`: of a row of filters C,R,S,K."""
    elements = bool(s.C // s.groups % GROUP)
    if elements:
        first = np.minimum(GROUP * np.arange(_iterations(s)), s.patch - GROUP)
        row = first[:, None] + np.arange(GROUP)
        channel, r, col = row // (s.R * s.S), row // s.S % s.R, row % s.S
    else:
        group, r, col = np.unravel_index(np.arange(_iterations(s)), (s.C // s.groups // GROUP, s.R, s.S))
        channel = GROUP * group
        first = (channel * s.R + r) * s.S + col
    offsets = FLOAT_BYTES * (channel * maps["C"] + r * s.dil_h * maps["H"] + col * s.dil_w * maps["W"])
    taps = (1 << r | 1 << 16 + col) * any(s.margins)
    records = np.zeros(len(first), ELEMENTS if elements else RECORD)
    records["filter"] = first * row_bytes
    if elements:
        taps[-1] = np.where(row[-1] < GROUP * (len(first) - 1), HAD, taps[-1])
        records["places"] = np.stack([offsets, taps], 2)
    else:
        records["map"], records["tap"] = offsets, taps
    return records


def _plan(problem: Problem, spec: NativeKernel, tail: Tail) -> Plan:
    draft, s = Draft(problem), correlations(problem)[0]
    _check_limits(problem, s, tail)
    if spec in OF_MATRICES:
        filters = Packed("filters", s.C // s.groups)
    else:
        filters = packed(draft, s)
    if tail.items:
        draft.region("parts", tail.parts * tail.items * s.K * s.P * s.Q)
    draft.add(_launch(problem, s, spec, group, filters, tail) for group in range(s.groups))
    if tail.items:
        draft.notes.append(_why(s, tail))
        length = s.P * s.Q
        rows = (length, s.K, tail.items) if problem.layout == "NCHW" else (length * s.N, s.K, 1)
        draft.launches.append(reduce("parts", part("out", (s.N - tail.items) * s.K * length), tail.parts,
                                     tail.items * s.K * length, rows, s.K, epilogue_of(problem)))
    return draft.plan(FAMILY, spec)


def _why(s: Correlation, tail: Tail) -> str:
    if tail.items < s.N:
        return why_tail("images", tail)
    return (f"the {_iterations(s)} iterations of the reduction are split {tail.parts} ways: its tiles do not fill the "
            "chip; the parts are added in a fixed order")


def _launch(problem: Problem, s: Correlation, spec: NativeKernel, group: int, filters: Packed, tail: Tail) -> Launch:
    k, c, pixels, row_texels = s.K // s.groups, s.C // s.groups, s.P * s.Q, filters.texels
    maps, out = operand(problem, maps_of(problem), s.N, s.C, s.H, s.W), s.results(problem.layout)
    kc = spec in OF_MATRICES
    records = table(s, maps, FLOAT_BYTES if kc else TEXEL_BYTES * row_texels)

    first = (s.N - tail.items) * pixels
    whole, rest = -(-first // TILE), -(-tail.items * pixels // TILE)
    values: dict[str, Value] = epilogue_of(problem, group * k).values() | {
        "maps": part(maps_of(problem), group * c * maps["C"]),
        "filters": part(filters.place, group * (k * row_texels if kc else row_texels // s.groups) * TEXEL_FLOATS),
        "out": part("out", group * k * out["C"]), "parts": "parts" if tail.items else 0, "k": k,
        "whole": whole, "j_whole": first, "j": s.N * pixels, "tail": rest, "tail_magic": short_magic(max(rest, 1)),
        "records": len(records), "share": -(-len(records) // tail.parts),
        "part_out": tail.items * s.K * pixels, "part_first": (s.N - tail.items) * s.K * pixels,
        "map_start": -FLOAT_BYTES * (s.pad_h * maps["H"] + s.pad_w * maps["W"]) % 2**32,
        "map_channel": 0 if spec.elements else FLOAT_BYTES * maps["C"],
        "out0": out["W"], "out1": out["H"], "out2": out["N"], "out_k": out["C"],
        "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32,
        "filter_row": (1 if spec.elements else s.R * s.S) * row_texels * TEXEL_BYTES,
        "filter_texels": -(-k // TEXEL_FLOATS)}
    values |= map_steps(s, maps, s.Q > 1, s.P > 1)
    values |= divisor("d0", s.Q, s.N * pixels + TILE) | divisor("d1", s.P, s.N * pixels + TILE)
    values |= tap_tests((("h", s.dil_h, s.R), ("w", s.dil_w, s.S)), any(s.margins))
    grid = -(-k // spec.tile[1]), whole + rest * tail.parts, 1
    doing = f"{TILE} pixels x {spec.tile[1]} filters each"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    if tail.items:
        doing += ", a part of each sum" if tail.items == s.N else ", parts of the last sums"
    return Launch(spec, grid, values, _work(s, spec, tail, grid[0], whole, rest, len(records)), doing,
                  ("out", "parts") if 0 < tail.items < s.N else ("parts",) if tail.items else ("out",), {},
                  {"table": records.tobytes()}, 2 * s.N * pixels * k * (s.patch + 1))


def _work(s: Correlation, spec: NativeKernel, tail: Tail, tiles: int, whole: int, rest: int, records: int) -> Work:
    """All slots of all warps; maps, filters and outputs once."""
    k = s.K // s.groups
    once = FLOAT_BYTES * (s.C // s.groups * s.H * s.W * s.N + s.patch * k
                          + k * s.P * s.Q * (s.N + (tail.parts - 1) * tail.items))
    return waves(spec, ((records, whole * tiles), (records / tail.parts, rest * tail.parts * tiles)), once)


def _check_limits(problem: Problem, s: Correlation, tail: Tail) -> None:
    pixels, columns = s.N * s.P * s.Q, s.groups * -(-s.K // s.groups // 32) * 32
    out = max(s.N, tail.parts * tail.items) * s.K * s.P * s.Q
    size = (ELEMENTS if s.C // s.groups % GROUP else RECORD).itemsize
    within(s, (
        ("maps N x C x H x W", problem.operand(maps_of(problem)).extent, REACH // FLOAT_BYTES, "elements"),
        ("filters C x R x S x K", s.patch * columns, REACH // FLOAT_BYTES, "elements"),
        ("output N x K x P x Q", out, MAX_ELEMENTS, "elements, all parts of sums counted"),
        ("pixels N x P x Q", pixels, 2**31 - TILE, "pixels"),
        ("elements C x R x S", s.patch, CONSTANT_BYTES // size * GROUP, "of a group: constant memory"),
        ("tiles of pixels", -(-pixels // TILE) * tail.parts + 1, MAX_GRID_YZ, "blocks along y of the grid"),
        ("images N", tail.items, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", max(s.dil_h * s.R, s.dil_w * s.S) if any(s.margins) else 0, MOST_REACH,
         "where there is padding"),
    ))


FAMILY = Family("pixels_sm90", KERNELS, reference_sm90, ("forward", "data"), unsupported_reason, candidates,
                activations=tuple(ACTIVATION_FLAGS))
