"""Convolution over flattened pixels in machine code of compute capability 9.0: the counterpart of `pixels` for N,C,H,W,
and for C,H,W,N of few images. A tile holds 128 pixels of whatever images and rows, where the maps lie; padding is a
test in the kernel. Where tiles do not fill the chip, or its last wave, sums are split, and their parts added in a fixed
order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...planning.cost import SCHEDULERS, Chip, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, correlations, maps_of
from ..common.schedule import Blocks, neighbours
from ..interior.maxwell import bank
from ..interior.sm90 import GROUP, NativeKernel
from ..memory_ops.plan import MAX_GRID_YZ, pad, reduce, transpose
from ..paper.maxwell import MAX_ELEMENTS, TEXEL_FLOATS
from ..spec import SPLITS, Candidates, Family, Memory, finish, fused, refuses_groups, seen, split_name, within
from .maxwell import ceil_magic, magic

TILE = 128
"""Pixels of a block."""

TABLE_BYTES = 65536
MOST_ROWS, MOST_COLUMNS = 16, 15
"""Of filters, where taps are tested."""

FEW = 8
"""Images up to which C,H,W,N is served: neighbouring pixels lie so many floats apart."""

_RECORD = np.dtype([("map", "<u4"), ("filter", "<u4"), ("tap", "<u4"), ("nothing", "<u4")])
_ELEMENTS = np.dtype([("places", "<u4", (GROUP, 2)), ("filter", "<u4"), ("nothing", "<u4")])
_HAD = 0x80000000  # in place of a tap: the record before has this element
_REACH = 2**32  # bytes: maps and filters are counted in 32 bits
_SMS = 132  # of the chips there are: what tails are cut for
_MOST_PARTS = 16
_TURN = 8000  # clocks at the ends of a wave of blocks, which all begin and store at once: timed on an H200
_ALONE = 0.86  # slots that a scheduler with one warp issues in a clock, likewise
_LAUNCH = 2000  # clocks beside all waves

_DOC = """Forward convolution of 128 pixels a block, or a part of each sum: see pixels.inc. Grid: x = tiles of filters,
y = tiles of pixels (at most 65535)."""


def _kernel(filters: int, loop: int, rest: int, kind: str = "") -> NativeKernel:
    return NativeKernel(f"sm90_pixels_K{filters}_J{TILE}{kind}", "hopper/pixels.sass", _DOC, (TILE, filters),
                        (loop, rest), loop, kind == "_elements", 4 if filters == 64 else 2,
                        0.93 if filters == 96 else 0.96)


OF_MATRICES = _kernel(128, 1118, 910, "_kc"), _kernel(64, 1140, 1000, "_kc")
"""For filters of one tap of N,C,H,W, which they read as they lie."""

KERNELS = (_kernel(128, 1111, 900), _kernel(96, 863, 730), _kernel(64, 1133, 990), _kernel(128, 1132, 920, "_elements"),
           _kernel(96, 884, 750, "_elements"), _kernel(64, 1168, 1020, "_elements"), *OF_MATRICES)


@dataclass(frozen=True, slots=True)
class Waves(Blocks):
    """Up to as many blocks as the chip holds are spread over all SMs; further ones begin where blocks end, which two of
    an SM do at once. So a wave that is begun takes as long as a full one, however few its blocks are."""

    @classmethod
    def of(cls, spec: NativeKernel, runs: Sequence[tuple[float, int]], nbytes: int, apart: int = 1) -> "Waves":
        """Blocks of a kernel: runs of (iterations, how many blocks have so many), the longest first. `apart`: floats
        from one that is stored to the next, up to the eight of a sector."""
        (loop, ends), warps, turn = spec.slots, spec.threads // 32, _TURN * min(apart, 8)
        steps, each = neighbours(runs)
        lengths = tuple(warps * (loop * one + ends) / spec.pace + turn * SCHEDULERS / spec.resident for one in steps)
        alone = (loop * steps[0] + ends) / _ALONE + turn
        return cls(sum(count for _, count in runs), sum(lengths) / len(lengths), alone, nbytes, resident=spec.resident,
                   warps=warps, ends=_LAUNCH, lengths=lengths, each=each)

    def clocks(self, chip: Chip) -> float:
        if len(self.lengths) > chip.sms * self.resident:
            return self.ends + Blocks.clocks(replace(self, alone=0.0), chip)
        return Work.clocks(self, chip)


@dataclass(frozen=True)
class Tail:
    """The last `images`, whose sums are computed in `parts`."""

    images: int = 0
    parts: int = 1


def refuses(problem: Problem) -> str | None:
    """Maps may have any strides."""
    every, maps = correlations(problem), problem.operand(maps_of(problem))
    s = every[0]
    if problem.layout == "CHWN" and s.N > FEW:
        return f"layout CHWN of more than {FEW} images"
    if len(every) > 1:
        return "strides of a gradient"
    if refuses_groups(problem):
        return refuses_groups(problem)
    if s.patch < GROUP:
        return f"{s.patch} elements C x R x S, fewer than {GROUP}"
    if any(s.margins) and (s.R > MOST_ROWS or s.S > MOST_COLUMNS):
        return f"padding with filters of more than {MOST_ROWS} x {MOST_COLUMNS} taps"
    return next((f"{o.role} that are not C-contiguous" for o in problem.operands if o.strides and o is not maps), None)


def candidates(problem: Problem) -> Candidates:
    found = {}
    s = correlations(problem)[0]
    for spec in KERNELS:
        if spec.elements != bool(s.C // s.groups % GROUP) or (spec in OF_MATRICES and not _matrices(problem)):
            continue
        found[spec.name] = partial(_plan, problem, spec, Tail())
        for parts in SPLITS[1:] if s.groups == 1 else ():
            if _divides(s, parts):
                found[split_name(spec, parts)] = partial(_plan, problem, spec, Tail(s.N, parts))
        tail = _tail(s, spec)
        if tail.images and problem.layout == "NCHW":
            found[f"{spec.name}_tail"] = partial(_plan, problem, spec, tail)
    return found


def _matrices(problem: Problem) -> bool:
    """Whether the filters are rows of whole texels, one for each filter."""
    s = correlations(problem)[0]
    return (problem.kind == "forward" and problem.layout == "NCHW" and s.R == s.S == 1
            and problem.operand("filters").alignment == Alignment.TEXTURE)


def _iterations(s: Correlation) -> int:
    return -(-s.patch // GROUP)


def _divides(s: Correlation, parts: int) -> bool:
    """Whether each part has iterations."""
    return -(-_iterations(s) // parts) * (parts - 1) < _iterations(s)


def _tail(s: Correlation, spec: NativeKernel) -> Tail:
    """The images behind the last whole wave of blocks, in as many parts as make them fill waves best."""
    slots, pixels = _SMS * spec.resident, s.P * s.Q
    filters = -(-s.K // s.groups // spec.tile[1])
    waves = -(-s.N * pixels // TILE) * filters // slots
    images = s.N - waves * slots // filters * TILE // pixels
    if s.groups > 1 or not waves or not 0 < images < s.N:
        return Tail()
    blocks = -(-images * pixels // TILE) * filters
    parts = min((n for n in range(1, _MOST_PARTS + 1) if _divides(s, n)),
                key=lambda n: -(-blocks * n // slots) / n + n / 100)
    return Tail(images, parts) if parts > 1 else Tail()


@dataclass(frozen=True)
class Strides:
    """Of the maps, in elements."""

    image: int
    channel: int
    row: int
    column: int


def strides(problem: Problem, s: Correlation) -> Strides:
    chwn = problem.layout == "CHWN"
    of = problem.operand(maps_of(problem)).strides
    if chwn:
        channel, row, column, image = of or (s.H * s.W * s.N, s.W * s.N, s.N, 1)
    else:
        image, channel, row, column = of or (s.C * s.H * s.W, s.H * s.W, s.W, 1)
    return Strides(image, channel, row, column)


def table(s: Correlation, maps: Strides, row_bytes: int) -> np.ndarray:
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
    offsets = FLOAT_BYTES * (channel * maps.channel + r * s.dil_h * maps.row + col * s.dil_w * maps.column)
    taps = (1 << r | 1 << 16 + col) * any(s.margins)
    records = np.zeros(len(first), _ELEMENTS if elements else _RECORD)
    records["filter"] = first * row_bytes
    if elements:
        taps[-1] = np.where(row[-1] < GROUP * (len(first) - 1), _HAD, taps[-1])
        records["places"] = np.stack([offsets, taps], 2)
    else:
        records["map"], records["tap"] = offsets, taps
    return records


def _plan(problem: Problem, spec: NativeKernel, tail: Tail) -> Plan:
    regions: dict[str, int] = {}
    before: list[Launch] = []
    s = correlations(problem)[0]
    maps = strides(problem, s)
    _check_limits(problem, s, tail)
    if spec in OF_MATRICES:
        filters, row_texels = "filters", s.C // s.groups // TEXEL_FLOATS
    else:
        filters, row_texels = _bank(problem, s, regions, before)
    if tail.images:
        regions["parts"] = FLOAT_BYTES * tail.parts * tail.images * s.K * s.P * s.Q
    launches = [_launch(problem, s, spec, maps, group, filters, row_texels, tail) for group in range(s.groups)]
    notes = []
    if tail.images:
        notes.append(_why(s, tail))
        length = s.P * s.Q
        at = FLOAT_BYTES * (s.N - tail.images) * s.K * length
        rows = (length, s.K, tail.images) if problem.layout == "NCHW" else (length * s.N, s.K, 1)
        launches.append(reduce("parts", Part("out", at) if at else "out", tail.parts, tail.images * s.K * length, rows,
                               s.K, fused(problem, 0)))
    return make(problem, "pixels_sm90", spec, (*before, *launches), regions, notes)


def _why(s: Correlation, tail: Tail) -> str:
    if tail.images == s.N:
        return (f"the {_iterations(s)} iterations of the reduction are split {tail.parts} ways: its tiles do not fill "
                "the chip; the parts are added in a fixed order")
    return (f"the sums of the last {tail.images} images, which do not fill the chip, are split {tail.parts} ways; the "
            "parts are added in a fixed order")


def _bank(problem: Problem, s: Correlation, regions: dict[str, int], before: list[Launch]) -> tuple[str, int]:
    """Where the filters C,R,S,K are read, and the texels of a row of theirs."""
    if problem.kind == "data" or problem.layout == "CHWN":
        return bank(problem, s, regions, before)
    k = s.K // s.groups
    regions["filters_crsk"] = FLOAT_BYTES * s.patch * s.K
    before.append(transpose("filters_crsk", "filters", s.K, s.patch, "filters change layout: the kernel reads C,R,S,K"))
    if k % TEXEL_FLOATS == 0:
        return "filters_crsk", s.K // TEXEL_FLOATS
    rows, ks = s.patch * s.groups, -(-k // TEXEL_FLOATS) * TEXEL_FLOATS
    regions["filter_bank"] = FLOAT_BYTES * rows * ks
    before.append(pad("filter_bank", "filters_crsk", (1, 1, rows, k), (1, rows, ks), (0, 0),
                      f"filters are copied to {s.patch} rows of {s.groups * ks}"))
    return "filter_bank", s.groups * ks // TEXEL_FLOATS


def _launch(problem: Problem, s: Correlation, spec: NativeKernel, maps: Strides, group: int, filters: str,
            row_texels: int, tail: Tail) -> Launch:
    k, c, pixels = s.K // s.groups, s.C // s.groups, s.P * s.Q
    nchw, tested = problem.layout == "NCHW", any(s.margins)
    out_k, out_q, out_n = (pixels, 1, s.K * pixels) if nchw else (pixels * s.N, s.N, 1)
    kc = spec in OF_MATRICES
    records = table(s, maps, FLOAT_BYTES if kc else 16 * row_texels)

    def part(name: str, floats: int) -> str | Part:
        return Part(name, FLOAT_BYTES * floats) if floats else name
    first = (s.N - tail.images) * pixels
    whole, rest = -(-first // TILE), -(-tail.images * pixels // TILE)
    values: dict[str, Value] = fused(problem, group * k) | {
        "maps": part(maps_of(problem), group * c * maps.channel),
        "filters": part(filters, group * (k * row_texels if kc else row_texels // s.groups) * TEXEL_FLOATS),
        "out": part("out", group * k * out_k), "parts": "parts" if tail.images else 0, "k": k,
        "whole": whole, "j_whole": first, "j": s.N * pixels, "tail": rest, "tail_magic": -(-2**31 // max(rest, 1)),
        "records": len(records), "share": -(-len(records) // tail.parts),
        "part_out": tail.images * s.K * pixels, "part_first": (s.N - tail.images) * s.K * pixels,
        "d0": s.Q, "d1": s.P,
        "map_start": -FLOAT_BYTES * (s.pad_h * maps.row + s.pad_w * maps.column) % 2**32,
        "map0": FLOAT_BYTES * s.str_w * maps.column if s.Q > 1 else 0,
        "map1": FLOAT_BYTES * s.str_h * maps.row if s.P > 1 else 0,
        "map2": FLOAT_BYTES * maps.image if s.N > 1 else 0,
        "map_channel": 0 if spec.elements else FLOAT_BYTES * maps.channel,
        "out0": out_q, "out1": s.Q * out_q, "out2": out_n, "out_k": out_k,
        "stride_h": s.str_h if s.P > 1 else 0, "start_h": -s.pad_h % 2**32, "h": s.H,
        "stride_w": s.str_w if s.Q > 1 else 0, "start_w": -s.pad_w % 2**32, "w": s.W,
        "filter_row": (1 if spec.elements else s.R * s.S) * row_texels * 16,
        "filter_texels": -(-k // TEXEL_FLOATS)}
    for axis in (0, 1):
        size = values[f"d{axis}"]
        assert isinstance(size, int)
        values[f"d{axis}_magic"], values[f"d{axis}_shift"] = magic(size, s.N * pixels + TILE)
    for name, dilation, taps in (("h", s.dil_h, s.R), ("w", s.dil_w, s.S)):
        factor, shift = ceil_magic(dilation, dilation * taps) if tested else (0, 0)
        values |= {f"reach_{name}": dilation * taps if tested else 0, f"dil_{name}_magic": factor,
                   f"dil_{name}_round": (dilation - 1) * factor, f"dil_{name}_shift": shift}
    grid = -(-k // spec.tile[1]), whole + rest * tail.parts, 1
    doing = f"{TILE} pixels x {spec.tile[1]} filters each"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    if tail.images:
        doing += ", a part of each sum" if tail.images == s.N else ", parts of the last sums"
    return Launch(spec, grid, values, _work(s, spec, tail, grid[0], whole, rest, len(records)), doing,
                  ("out", "parts") if 0 < tail.images < s.N else ("parts",) if tail.images else ("out",), {},
                  {"table": records.tobytes()}, 2 * s.N * pixels * k * (s.patch + 1))


def _work(s: Correlation, spec: NativeKernel, tail: Tail, tiles: int, whole: int, rest: int, records: int) -> Work:
    """All slots of all warps; maps, filters and outputs once."""
    k = s.K // s.groups
    once = FLOAT_BYTES * (s.C // s.groups * s.H * s.W * s.N + s.patch * k
                          + k * s.P * s.Q * (s.N + (tail.parts - 1) * tail.images))
    return Waves.of(spec, ((records, whole * tiles), (records / tail.parts, rest * tail.parts * tiles)), once)


def _check_limits(problem: Problem, s: Correlation, tail: Tail) -> None:
    pixels, columns = s.N * s.P * s.Q, s.groups * -(-s.K // s.groups // 32) * 32
    out = max(s.N, tail.parts * tail.images) * s.K * s.P * s.Q
    size = (_ELEMENTS if s.C // s.groups % GROUP else _RECORD).itemsize
    within(s, (
        ("maps N x C x H x W", problem.operand(maps_of(problem)).extent, _REACH // FLOAT_BYTES, "elements"),
        ("filters C x R x S x K", s.patch * columns, _REACH // FLOAT_BYTES, "elements"),
        ("output N x K x P x Q", out, MAX_ELEMENTS, "elements, all parts of sums counted"),
        ("pixels N x P x Q", pixels, 2**31 - TILE, "pixels"),
        ("elements C x R x S", s.patch, TABLE_BYTES // size * GROUP, "of a group: constant memory"),
        ("tiles of pixels", -(-pixels // TILE) * tail.parts + 1, MAX_GRID_YZ, "blocks along y of the grid"),
        ("images N", tail.images, MAX_GRID_YZ, "images, blocks along z of a grid"),
        ("dilation x filter size", max(s.dil_h * s.R, s.dil_w * s.S) if any(s.margins) else 0, 2047,
         "where there is padding"),
    ))


def _blocks(v: Mapping[str, int], items: int) -> Iterator[tuple[np.ndarray, int, int, int]]:
    """What blocks along y have: pixels, part (-1: whole sums), first record and the one behind the last."""
    for item in range(items):
        if item < v["whole"]:
            yield np.arange(TILE * item, min(TILE * (item + 1), v["j_whole"])), -1, 0, v["records"]
            continue
        part, tile = divmod(item - v["whole"], v["tail"])
        first = v["j_whole"] + TILE * tile
        yield (np.arange(first, min(first + TILE, v["j"])), part, part * v["share"],
               min((part + 1) * v["share"], v["records"]))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v = launch.numbers
    assert isinstance(launch.spec, NativeKernel) and launch.grid[0] == -(-v["k"] // launch.spec.tile[1])
    elements = launch.spec.elements
    records = np.frombuffer(launch.tables["table"], _ELEMENTS if elements else _RECORD)
    maps, filters = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("map_start", "start_h", "start_w")}
    k, step = np.arange(v["k"])[:, None], np.arange(GROUP)
    for j, part, begin, end in _blocks(v, launch.grid[1]):
        i = j % v["d0"], j // v["d0"] % v["d1"], j // v["d0"] // v["d1"]
        assert (((j + 1) * v["d0_magic"] >> 32 + v["d0_shift"]) == j // v["d0"]).all()
        base = signed["map_start"] + sum(i[a] * v[f"map{a}"] for a in range(3))
        where = sum(i[a] * v[f"out{a}"] for a in range(3)) + k * v["out_k"]
        h, w = i[1] * v["stride_h"] + signed["start_h"], i[0] * v["stride_w"] + signed["start_w"]
        sums = np.zeros((v["k"], len(j)))
        for record in records[begin:end]:
            if elements:
                offsets, taps = record["places"].T
            else:
                offsets, taps = record["map"] + step * v["map_channel"], np.full(GROUP, record["tap"])
            values = np.zeros((GROUP, len(j)))
            for e, offset in enumerate(offsets.tolist()):
                tap = int(taps[e])
                inside = np.full(len(j), tap != _HAD)
                if tap and tap != _HAD:
                    row = h + ((tap & 0xffff).bit_length() - 1) * dilation_of(v, "h")
                    column = w + ((tap >> 16).bit_length() - 1) * dilation_of(v, "w")
                    inside = (row >= 0) & (row < v["h"]) & (column >= 0) & (column < v["w"])
                values[e] = np.where(inside, maps[np.where(inside, (base + offset) // FLOAT_BYTES, 0)], 0)
            if launch.spec in OF_MATRICES:
                at = (int(record["filter"]) + k * v["filter_row"]) // FLOAT_BYTES + step
            else:
                at = (int(record["filter"]) + step * v["filter_row"]) // FLOAT_BYTES + k
            sums += filters[at].astype(float) @ values
        if part < 0:
            finish(launch, memory, scalars, where, sums, k)
        else:
            seen(memory, launch.values["parts"])[where - v["part_first"] + part * v["part_out"]] = sums


def dilation_of(v: Mapping[str, int], axis: str) -> int:
    return v[f"dil_{axis}_round"] // v[f"dil_{axis}_magic"] + 1


FAMILY = Family("pixels_sm90", KERNELS, contract, ("forward", "data"), refuses, candidates)
