"""Direct convolution for many images in machine code of compute capability 9.0: as in `taps`, a block computes one
output pixel and walks over the taps inside the map alone. For C,H,W,N, any number of channels; N,C,H,W is transposed,
which costs little beside sums of many images."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...errors import ShapeError
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, correlations, maps_of
from ..common.schedule import Blocks, neighbours
from ..memory_ops.plan import MAX_GRID_YZ, reduce, transpose
from ..paper.maxwell import MAX_ELEMENTS, TEXEL_FLOATS
from ..spec import (
    LATENCY,
    Candidates,
    Family,
    Memory,
    TileKernel,
    finish,
    fused,
    refuses_groups,
    refuses_strided,
    seen,
    split_name,
    within,
)
from .maxwell import bank, inside

GROUP = 8
"""Elements (c, r, s) that one loop iteration consumes."""

TABLE_BYTES = 65536
_PIXEL, _RECORD = 16, 8  # bytes
_MOST_ELEMENTS = 1024  # of a pixel: shared memory
_REACH = 2**32  # bytes: maps and filters are counted in 32 bits
_VECTORS = 4  # flag of the kernels
_PART = 0x10000  # of the third word of a pixel
_SMS = 132  # of the chips there are: what tails are cut for
_MOST_PARTS = 16
_MOST_PIXELS, _MOST_LINES = 2**18, 2**13  # of an output: each pixel has a record, each row and column a list of taps

_DOC = """Forward convolution of one output pixel for 128 images a block: see taps.inc. Grid: x = tiles of filters,
y = tiles of images, z = pixels (both at most 65535)."""


@dataclass(frozen=True)
class NativeKernel(TileKernel):
    """`elements`: a record of its table is an element (c, r, s), not eight channels of a tap. `resident`: blocks of an
    SM at a time. `pace`: slots that a scheduler of a filled SM issues in a clock, timed on an H200."""

    elements: bool = False
    resident: int = 2
    pace: float = 0.95


def _kernel(name: str, filters: int, loop: int, elements: bool) -> NativeKernel:
    return NativeKernel(f"sm90_{name}_K{filters}_N128", "hopper/taps.sass", _DOC, (128, filters), (loop, 700), loop,
                        elements, 4 if filters == 64 else 2, 0.93 if filters == 96 else 0.95)


KERNELS = tuple(_kernel(name, filters, loop, name == "elements") for name, filters, loop in (
    ("taps", 128, 1095), ("taps", 96, 847), ("taps", 64, 1101),
    ("elements", 128, 1097), ("elements", 96, 849), ("elements", 64, 1103)))


def refuses(problem: Problem) -> str | None:
    every, maps = correlations(problem), maps_of(problem)
    if problem.layout == "NCHW" and problem.reads_out:
        return "beta in layout NCHW"
    if problem.layout == "NCHW" and every[0].K // every[0].groups % TEXEL_FLOATS:
        return f"{every[0].K // every[0].groups} filters in layout NCHW, no multiple of {TEXEL_FLOATS}"
    if every[0].N % TEXEL_FLOATS:
        return f"N={every[0].N}, no multiple of {TEXEL_FLOATS}"
    if problem.layout == "CHWN" and problem.operand(maps).alignment < Alignment.TEXTURE:
        return f"{maps} that begin where no texture may"
    largest = max(s.patch for s in every)
    if every[0].C // every[0].groups % GROUP and largest > _MOST_ELEMENTS:
        return f"{largest} elements C x R x S of channels that {GROUP} does not divide, more than {_MOST_ELEMENTS}"
    if refuses_groups(problem):
        return refuses_groups(problem)
    if any(s.P * s.Q > _MOST_PIXELS or s.P + s.Q > _MOST_LINES for s in every):
        return f"an output of more than {_MOST_PIXELS} pixels or {_MOST_LINES} rows and columns"
    if not all(taps for s in every for axis in inside(s) for taps in axis):
        return "pixels without any tap inside the map"
    return refuses_strided(problem)


@dataclass(frozen=True)
class Tail:
    """The last `pixels` of an output, row by row, whose sums are computed in `parts`, since there are not enough blocks
    for the last wave."""

    pixels: int = 0
    parts: int = 1


def candidates(problem: Problem) -> Candidates:
    found = {}
    every = correlations(problem)
    s = every[0]
    for spec in KERNELS:
        if spec.elements == bool(s.C // s.groups % GROUP):
            found[spec.name] = partial(_plan, problem, spec, Tail())
            tail = _tail(s, spec)
            if len(every) == 1 and tail.parts > 1:
                found[split_name(spec, tail.parts)] = partial(_plan, problem, spec, tail)
    return found


def _tail(s: Correlation, spec: NativeKernel) -> Tail:
    """The pixels behind the last whole wave of blocks, in as many parts as make them fill waves best."""
    (tile_n, tile_k), slots = spec.tile, _SMS * spec.resident
    blocks = -(-s.N // tile_n) * -(-s.K // s.groups // tile_k)
    pixels = -(-(s.P * s.Q * blocks % slots) // blocks)
    rows, columns = inside(s)
    least = min(map(len, rows)) * min(map(len, columns)) * (s.C // s.groups) // GROUP
    if s.groups > 1 or not pixels or least < 2:
        return Tail()
    parts = min(range(1, min(_MOST_PARTS, least) + 1), key=lambda n: -(-pixels * blocks * n // slots) / n + n / 100)
    return Tail(pixels, parts)


def _plan(problem: Problem, spec: NativeKernel, tail: Tail) -> Plan:
    regions: dict[str, int] = {}
    before: list[Launch] = []
    launches: list[Launch] = []
    used = taps = 0
    every = correlations(problem)
    names = {"maps": maps_of(problem), "out": "out"}
    if problem.layout == "NCHW":
        s = every[0]
        names = {"maps": "maps_chwn", "out": "out_kpqn"}
        regions |= {"maps_chwn": FLOAT_BYTES * s.C * s.H * s.W * s.N,
                    "out_kpqn": FLOAT_BYTES * s.K * s.whole[0] * s.whole[1] * s.N}
        before.append(transpose("maps_chwn", maps_of(problem), s.N, s.C * s.H * s.W,
                                f"{maps_of(problem)} change layout: the kernel reads C,H,W,N"))
    for s in every:
        _check_limits(s, spec)
        filters, row_texels = _bank(problem, s, regions, before)
        if tail.pixels:
            regions["parts"] = FLOAT_BYTES * tail.parts * s.K * tail.pixels * s.N
        for group in range(s.groups):
            launches += _passes(problem, s, spec, group, names | {"filters": filters}, row_texels, tail)
        rows, columns = inside(s)
        used += sum(map(len, rows)) * sum(map(len, columns))
        taps += s.P * s.Q * s.R * s.S
    notes = [f"{used / taps:.1%} of the taps lie inside the map; the others cost nothing"] if used < taps else []
    if tail.pixels:
        notes.append(f"the sums of the last {tail.pixels} pixels, which do not fill the chip, are split {tail.parts} "
                     "ways; the parts are added in a fixed order")
        launches.append(_sum(problem, s, tail, names["out"]))
    if problem.layout == "NCHW":
        launches.append(transpose("out", "out_kpqn", s.K * s.whole[0] * s.whole[1], s.N,
                                  "the output K,P,Q,N changes layout"))
    return make(problem, "taps_sm90", spec, (*before, *launches), regions, notes)


def _bank(problem: Problem, s: Correlation, regions: dict[str, int], before: list[Launch]) -> tuple[str, int]:
    """Where the filters are read, and the texels of a row of theirs."""
    if problem.layout == "CHWN" or problem.kind == "data":
        return bank(problem, s, regions, before)
    regions["filters_crsk"] = FLOAT_BYTES * s.patch * s.K
    before.append(transpose("filters_crsk", "filters", s.K, s.patch,
                            "filters change layout: the kernel reads C,R,S,K"))
    return "filters_crsk", s.K // TEXEL_FLOATS


def _sum(problem: Problem, s: Correlation, tail: Tail, out: str) -> Launch:
    """Of the parts of a tail."""
    length, plane = tail.pixels * s.N, s.P * s.Q * s.N
    at = FLOAT_BYTES * (plane - length)
    return reduce("parts", Part(out, at) if at else out, tail.parts, s.K * length, (length, s.K, 1), s.K,
                  fused(problem, 0), plane)


def tables(s: Correlation, spec: NativeKernel, row_texels: int, tail: Tail) -> Iterator[tuple[np.ndarray, int]]:
    """(table of a launch, uint32; how many pixels and parts of such it has). Those with the most taps come first, so
    that what remains for the last wave of blocks is short. As many launches as constant memory asks for, one if there
    is a tail."""
    rows, columns = inside(s)
    channels = np.arange(0, s.C // s.groups, 1 if spec.elements else GROUP)
    begins: dict[tuple[int, ...], int] = {}
    lists: list[np.ndarray] = []
    _check_room(_RECORD * s.R * sum(map(len, dict.fromkeys(columns))) * len(channels), s)
    at = 0
    for taps in dict.fromkeys(columns):
        begins[taps] = at
        r, col, c = (x.ravel() for x in np.meshgrid(np.arange(s.R), np.array(taps), channels, indexing="ij"))
        lists.append(np.stack([((c * s.H + r * s.dil_h) * s.W + col * s.dil_w) * s.N * FLOAT_BYTES,
                               ((c * s.R + r) * s.S + col) * row_texels * 16], 1))
        at += _RECORD * len(r)
    p, q = (x.ravel() for x in np.meshgrid(np.arange(s.P), np.arange(s.Q), indexing="ij"))
    first_row, count_rows = (np.array(x)[p] for x in ([r[0] for r in rows], [len(r) for r in rows]))
    of_row = np.array([len(taps) * len(channels) for taps in columns])[q]
    begin = np.array([begins[taps] for taps in columns])[q] + _RECORD * first_row * of_row
    pixels = np.stack([((p * s.str_h - s.pad_h) * s.W + q * s.str_w - s.pad_w) * s.N * FLOAT_BYTES,
                       (p * s.steps[0] * s.whole[1] + q * s.steps[1]) * s.N, begin, count_rows * of_row], 1)
    whole = len(pixels) - tail.pixels
    parts = _parts(s, spec, pixels[whole:], tail)
    pixels = np.concatenate([pixels[:whole][np.argsort(-pixels[:whole, 3], kind="stable")], parts])
    most = (TABLE_BYTES - at) // _PIXEL
    if most < min(len(pixels), 256) or (most < len(pixels) and tail.pixels):
        raise ShapeError(f"the lists of taps must leave room for pixels in {TABLE_BYTES} bytes (got {at} for {s})")
    for head in np.array_split(pixels, -(-len(pixels) // most)):
        size = _PIXEL * len(head)
        table = np.zeros((size + at) // 4, np.int64)
        table[:head.size] = (head + np.array([0, 0, size, 0])).ravel()
        table[size // 4:] = np.concatenate(lists).ravel()
        yield (table % 2**32).astype(np.uint32), len(head)


def _check_room(nbytes: int, s: Correlation) -> None:
    """Raises ShapeError where lists of taps of so many bytes leave no room for pixels."""
    if nbytes >= TABLE_BYTES:
        raise ShapeError(f"the lists of taps must leave room for pixels in {TABLE_BYTES} bytes (got {nbytes} for {s})")


def _parts(s: Correlation, spec: NativeKernel, pixels: np.ndarray, tail: Tail) -> np.ndarray:
    """The words of pixels, part by part, each a run of the records in whole iterations."""
    size = GROUP if spec.elements else 1
    words = []
    for part in range(tail.parts if len(pixels) else 0):
        groups = -(-pixels[:, 3] // size)
        first, last = (size * (groups * x // tail.parts) for x in (part, part + 1))
        place = (part * s.K * len(pixels) + np.arange(len(pixels))) * s.N
        words.append(np.stack([pixels[:, 0], place, pixels[:, 2] + _RECORD * first + _PART,
                               np.minimum(last, pixels[:, 3]) - first], 1))
    return np.concatenate(words) if words else pixels


def _passes(problem: Problem, s: Correlation, spec: NativeKernel, group: int, names: Mapping[str, str],
            row_texels: int, tail: Tail) -> Iterator[Launch]:
    (tile_n, tile_k), k, c = spec.tile, s.K // s.groups, s.C // s.groups
    whole = s.whole[0] * s.whole[1]
    vectors = names["out"] != "out" or problem.operand("out").alignment >= Alignment.VECTOR

    def part(name: str, floats: int) -> str | Part:
        return Part(name, FLOAT_BYTES * floats) if floats else name
    ending = fused(problem, group * k)
    flags = ending["flags"]
    assert isinstance(flags, int)
    values: dict[str, Value] = ending | {
        "flags": flags | _VECTORS * vectors, "maps": part(names["maps"], group * c * s.H * s.W * s.N),
        "filters": part(names["filters"], group * (row_texels // s.groups) * TEXEL_FLOATS),
        "out": part(names["out"], (group * k * whole + s.start) * s.N), "parts": "parts" if tail.pixels else 0,
        "k": k, "n": s.N,
        "map_channel": 0 if spec.elements else s.H * s.W * s.N * FLOAT_BYTES, "map_texels": s.N // TEXEL_FLOATS,
        "filter_channel": 0 if spec.elements else s.R * s.S * row_texels * 16,
        "filter_texels": -(-k // TEXEL_FLOATS), "out_row": whole * s.N, "part_row": tail.pixels * s.N}
    doing = f"one output pixel and {tile_n} images x {tile_k} filters each, over the taps inside the map"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    every = list(tables(s, spec, row_texels, tail))
    for table, count in every:
        grid = -(-k // tile_k), -(-s.N // tile_n), count
        steps = -(-table[3:4 * count:4].astype(np.int64) // (GROUP if spec.elements else 1))
        pixels = count - tail.pixels * (tail.parts - 1)
        flops = 2 * s.N * pixels * k * (c * s.R * s.S + 1)
        yield Launch(spec, grid, values, _work(s, spec, grid, steps, c), doing,
                     (names["out"], *["parts"][:tail.pixels]), {}, {"table": table.tobytes()}, flops)


def _work(s: Correlation, spec: NativeKernel, grid: tuple[int, int, int], steps: np.ndarray, channels: int) -> Work:
    loop, rest = spec.slots
    warps, k = spec.threads // 32, s.K // s.groups
    found, each = neighbours([(float(one), grid[0] * grid[1]) for one in steps])
    lengths = warps * (loop * np.array(found) + rest) / spec.pace
    once = channels * (s.H * s.W * s.N + s.R * s.S * k) + k * len(steps) * s.N
    return Blocks(len(steps) * grid[0] * grid[1], float(lengths.mean()), LATENCY, FLOAT_BYTES * once,
                  resident=spec.resident, warps=warps, lengths=tuple(lengths.tolist()), each=each)


def _check_limits(s: Correlation, spec: NativeKernel) -> None:
    k = s.K // s.groups
    within(s, (
        ("maps C x H x W x N", s.C // s.groups * s.H * s.W * s.N, _REACH // FLOAT_BYTES, "elements of a group"),
        ("filters C x R x S x K", s.patch * s.groups * -(-k // 4) * 4, _REACH // FLOAT_BYTES, "elements"),
        ("output K x P x Q x N", s.K * s.whole[0] * s.whole[1] * s.N, MAX_ELEMENTS, "elements"),
        (f"image tiles N/{spec.tile[0]}", -(-s.N // spec.tile[0]), MAX_GRID_YZ, "blocks along y of the grid"),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, NativeKernel)
    words = np.frombuffer(launch.tables["table"], np.uint32).astype(np.int64)
    maps, filters = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    n, k, step = np.arange(v["n"]), np.arange(v["k"]), np.arange(1 if spec.elements else GROUP)
    for pixel in range(launch.grid[2]):
        map_at, out_at, begin, count = words[4 * pixel:4 * pixel + 4]
        part, begin = divmod(int(begin), _PART)
        records = words[begin // 4:begin // 4 + 2 * count].reshape(-1, 2)
        a = (map_at + records[:, :1] + step * v["map_channel"]).ravel() % 2**32 // FLOAT_BYTES
        b = (records[:, 1:] + step * v["filter_channel"]).ravel() // FLOAT_BYTES
        sums = filters[b[:, None] + k].astype(float).T @ maps[a[:, None] + n].astype(float)
        if part:
            seen(memory, launch.values["parts"])[out_at + k[:, None] * v["part_row"] + n] = sums
        else:
            finish(launch, memory, scalars, out_at + k[:, None] * v["out_row"] + n, sums, k[:, None])


FAMILY = Family("taps_sm90", KERNELS, contract, ("forward", "data"), refuses, candidates)
