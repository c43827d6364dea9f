"""Direct convolution for many images that leaves out the zeros of the padding: a block computes one output pixel, so it
knows which taps lie inside the map and walks over those alone. No padded copy. For C,H,W,N."""

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial

import numpy as np

from ...errors import ShapeError
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, REGION_ALIGNMENT, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, as_they_lie, correlations, maps_of, turned
from ..memory_ops.plan import MAX_GRID_YZ, pad
from ..paper.maxwell import MAX_ELEMENTS, TEXEL_FLOATS, TILE_ELEMENTS, tile_limits, tiles
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
    within,
)

TABLE_BYTES = 65536
_RECORD = 8  # bytes


TAPS_64X64 = TileKernel("sconv_taps_K64_N64", "conv_taps_64x64.sass", """Forward convolution of one output pixel for 64
images and 64 filters a block. Grid: x = Q, y = P (at most 65535), z = filter tiles * image tiles, image tile fastest
(at most 65535).""", (64, 64), (521, 527), 612)

KERNELS = (TAPS_64X64,)


def refuses(problem: Problem) -> str | None:
    every = correlations(problem)
    s, maps = every[0], maps_of(problem)
    if problem.layout != "CHWN":
        return "layout NCHW"
    if s.N % TEXEL_FLOATS:
        return f"N={s.N}, no multiple of {TEXEL_FLOATS}"
    if problem.operand(maps).alignment < Alignment.TEXTURE:
        return f"{maps} that begin where no texture may"
    if s.groups > 1 and s.C // s.groups % TILE_ELEMENTS:  # the last step would meet the next group's channels
        return f"groups of {s.C // s.groups} channels, no multiple of {TILE_ELEMENTS}"
    if refuses_groups(problem):
        return refuses_groups(problem)
    if any(_RECORD * (s.P + s.Q) > TABLE_BYTES for s in every):
        return f"an output of more than {TABLE_BYTES // _RECORD} rows and columns"
    if not all(taps for s in every for axis in inside(s) for taps in axis):
        return "pixels without any tap inside the map"
    return refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    return {spec.name: partial(_plan, problem, spec) for spec in KERNELS}


@lru_cache(maxsize=64)
def inside(s: Correlation) -> tuple[list[list[int]], list[tuple[int, ...]]]:
    """The filter rows inside the map for each output row, the filter columns for each output column."""
    rows = [[r for r in range(s.R) if 0 <= p * s.str_h - s.pad_h + r * s.dil_h < s.H] for p in range(s.P)]
    columns = [tuple(c for c in range(s.S) if 0 <= q * s.str_w - s.pad_w + c * s.dil_w < s.W) for q in range(s.Q)]
    return rows, columns


def table(s: Correlation, first: int, last: int, row_texels: int) -> np.ndarray:
    """The table of the kernel, int32 pairs, for channels first .. last - 1 of a group; filter rows of row_texels."""
    rows, columns = inside(s)
    texels = s.N // TEXEL_FLOATS
    channel = np.arange(first, last, TILE_ELEMENTS)
    begins: dict[tuple[int, ...], int] = {}
    lists: list[np.ndarray] = []
    at = _RECORD * (s.Q + s.P)
    for taps in dict.fromkeys(columns):
        begins[taps] = at
        r, col, c = (x.ravel() for x in np.meshgrid(np.arange(s.R), np.array(taps), channel, indexing="ij"))
        lists.append(np.stack([((c * s.H + r * s.dil_h) * s.W + col * s.dil_w) * texels,
                               ((c * s.R + r) * s.S + col) * row_texels], 1))
        at += _RECORD * len(r)
    head = [(begins[taps], _RECORD * len(taps) * len(channel)) for taps in columns]
    head += [(r[0], len(r)) for r in rows]
    return np.concatenate([np.array(head), *lists]).astype(np.int32)


def _runs(s: Correlation) -> list[tuple[int, int]]:
    """Runs of channels whose lists constant memory holds."""
    c = s.C // s.groups
    rows_of_lists = s.R * sum(map(len, dict.fromkeys(inside(s)[1])))
    groups = (TABLE_BYTES // _RECORD - s.P - s.Q) // rows_of_lists
    if groups < 1:
        raise ShapeError(f"the table of an output of {s.P} x {s.Q} must need at most {TABLE_BYTES} bytes "
                         f"(got {_RECORD * (rows_of_lists + s.P + s.Q)} for {s})")
    count = -(-c // (groups * TILE_ELEMENTS))
    step = -(-c // (count * TILE_ELEMENTS)) * TILE_ELEMENTS
    return [(first, min(first + step, c)) for first in range(0, c, step)]


def _plan(problem: Problem, spec: TileKernel) -> Plan:
    regions: dict[str, int] = {}
    before: list[Launch] = []
    launches: list[Launch] = []
    used = taps = 0
    for s in correlations(problem):
        _check_limits(s, spec)
        filters, row_texels = bank(problem, s, regions, before)
        for group in range(s.groups):
            launches += _passes(problem, s, spec, group, filters, row_texels)
        rows, columns = inside(s)
        used += sum(map(len, rows)) * sum(map(len, columns))
        taps += s.P * s.Q * s.R * s.S
    notes = [f"{used / taps:.1%} of the taps lie inside the map; the others cost nothing"] if used < taps else []
    return make(problem, "taps", spec, (*before, *launches), regions, notes)


def bank(problem: Problem, s: Correlation, regions: dict[str, int], before: list[Launch]) -> tuple[str, int]:
    """Where the filters are read, and the texels of a row of theirs."""
    k = s.K // s.groups
    if problem.kind == "data" and not as_they_lie(problem):
        def region(name: str, elements: int) -> str:
            regions[name] = FLOAT_BYTES * elements
            return name
        columns = -(-k // 32) * 32
        before.append(turned(problem, s, s.patch, columns, region))
        return before[-1].writes[0], s.groups * columns // TEXEL_FLOATS
    if k % TEXEL_FLOATS == 0 and problem.operand("filters").alignment == Alignment.TEXTURE:
        return "filters", s.K // TEXEL_FLOATS
    ks = -(-k // TEXEL_FLOATS) * TEXEL_FLOATS
    regions["filter_bank"] = FLOAT_BYTES * s.patch * s.groups * ks
    before.append(pad("filter_bank", "filters", (1, 1, s.patch * s.groups, k), (1, s.patch * s.groups, ks), (0, 0),
                      f"filters are copied to {s.patch} rows of {s.groups * ks}"))
    return "filter_bank", s.groups * ks // TEXEL_FLOATS


def _passes(problem: Problem, s: Correlation, spec: TileKernel, group: int, filters: str,
            row_texels: int) -> Iterator[Launch]:
    (tile_n, tile_k), k, c, texels = spec.tile, s.K // s.groups, s.C // s.groups, s.N // TEXEL_FLOATS
    grid, placed = tiles(s, spec)
    skipped = FLOAT_BYTES * group * c * s.H * s.W * s.N
    base = skipped // REGION_ALIGNMENT * REGION_ALIGNMENT
    maps, whole = maps_of(problem), s.whole[0] * s.whole[1]
    images: str | Part = Part(maps, base) if base else maps
    fixed: dict[str, Value] = {
        "rows_at": _RECORD * s.Q,
        "map_row": s.str_h * s.W * texels if s.P > 1 else 0, "map_col": s.str_w * texels if s.Q > 1 else 0,
        "map_start": ((skipped - base) // 16 - (s.pad_h * s.W + s.pad_w) * texels) % 2**32,
        "map_channel": s.H * s.W * texels, "map_texels": texels, "filter_start": group * (row_texels // s.groups),
        "filter_channel": s.R * s.S * row_texels, "filter_texels": -(-k // TEXEL_FLOATS),
        "out_k": whole * s.N, "out_row": s.steps[0] * s.whole[1] * s.N, "out_col": s.steps[1] * s.N,
        **placed}
    doing = f"one output pixel and {tile_n} images x {tile_k} filters each, over the taps inside the map"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    runs = _runs(s)
    if len(runs) > 1:
        doing += "; launches that accumulate: the lists of all channels exceed constant memory"
    out_at = FLOAT_BYTES * (group * k * whole + s.start) * s.N
    rows, columns = inside(s)
    taken = sum(map(len, rows)) * sum(map(len, columns)) / (s.P * s.Q)
    for first, last in runs:
        ending = fused(problem, group * k, first=first == 0, last=last == c)
        # Channels beyond the run are those of the next one: a run is a whole number of steps, but the last.
        values = fixed | ending | {"out": Part("out", out_at) if out_at else "out"}
        steps = taken * -(-(last - first) // TILE_ELEMENTS)
        flops = 2 * s.N * s.P * s.Q * k * ((last - first) * s.R * s.S + (last == c))
        yield Launch(spec, grid, values, _work(s, spec, grid, steps, last - first), doing, ("out",),
                     {"tex_I": images, "tex_F": filters}, {"table": table(s, first, last, row_texels).tobytes()}, flops)


def _work(s: Correlation, spec: TileKernel, grid: tuple[int, int, int], steps: float, channels: int) -> Work:
    loop, rest = spec.slots
    slots, k = loop * steps + rest, s.K // s.groups
    once = channels * (s.H * s.W * s.N + s.R * s.S * k) + k * s.P * s.Q * s.N
    translated = slots + (spec.translated - loop) * steps
    return Work(grid[0] * grid[1] * grid[2], 2 * slots, slots + LATENCY, FLOAT_BYTES * once, 2 * translated)


def _check_limits(s: Correlation, spec: TileKernel) -> None:
    k = s.K // s.groups
    within(s, (
        ("maps C x H x W x N/4", s.C // s.groups * s.H * s.W * s.N // 4, MAX_TEXELS - REGION_ALIGNMENT // 16,
         "texels, the 4 GiB reach of a texture"),
        ("filters C x R x S x K/4", s.patch * s.groups * -(-k // 4), MAX_TEXELS,
         "texels, the 4 GiB reach of a texture"),
        ("output K x P x Q x N", s.K * s.whole[0] * s.whole[1] * s.N, MAX_ELEMENTS, "elements"),
        ("output rows P", s.P, MAX_GRID_YZ, "blocks along y of the grid"),
        *tile_limits(s, spec),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernel of this family promises."""
    v = launch.numbers
    assert isinstance(launch.spec, TileKernel)
    (columns, rows, _), n, k = launch.grid, np.arange(v["n"]), np.arange(v["k"])
    words = np.frombuffer(launch.tables["table"], np.int32).reshape(-1, 2).astype(np.int64)
    maps, bank = (seen(memory, launch.textures[name]).reshape(-1, TEXEL_FLOATS) for name in ("tex_I", "tex_F"))
    start = v["map_start"] - (v["map_start"] >> 31 << 32)

    def fetched(texels: np.ndarray, at: np.ndarray) -> np.ndarray:
        inside = (at >= 0) & (at < len(texels))
        return np.where(inside[..., None], texels[np.where(inside, at, 0)], 0).reshape(len(at), -1).astype(float)
    step = np.arange(TILE_ELEMENTS)[:, None]
    for q in range(columns):
        for p in range(rows):
            begin, size = words[q]
            first, count = words[v["rows_at"] // _RECORD + p]
            sums = np.zeros((v["k"], v["n"]))
            for map_at, filter_at in words[(begin + first * size) // _RECORD:][:count * size // _RECORD].tolist():
                at = start + p * v["map_row"] + q * v["map_col"] + map_at + step * v["map_channel"]
                values = fetched(maps, at + np.arange(v["map_texels"]))[:, :v["n"]]
                weights = fetched(bank, v["filter_start"] + filter_at + step * v["filter_channel"]
                                  + np.arange(v["filter_texels"]))[:, :v["k"]]
                sums += weights.T @ values
            where = k[:, None] * v["out_k"] + p * v["out_row"] + q * v["out_col"] + n
            finish(launch, memory, scalars, where, sums, k[:, None])


FAMILY = Family("taps", KERNELS, contract, ("forward", "data"), refuses, candidates)
