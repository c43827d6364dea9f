"""Convolution on the tensor cores of sm_90, as exact as float32: implicit GEMM. Maps and filters are split in two FP16
numbers each (gemm/tensor_cores.py), the maps once, by pixels of theirs; the kernel gathers for each tap the channels of
the pixels that it meets (sass/sm90/tensor_pixels.sass)."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, begin
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, correlations, maps_of
from ..common.epilogue import ACTIVATION_FLAGS, ADDS, PARTIAL, VECTORS, Epilogue, epilogue_of, finish
from ..common.fastdiv import MOST_SHORT, digits, divisor, quotient, short_magic
from ..common.layout import Layout, operand
from ..common.limits import MAX_ELEMENTS, within
from ..common.packing import as_they_lie, crsk, rotated
from ..common.schedule import split_name, splits_of
from ..common.workspace import Draft
from ..gemm.plan import Matrices
from ..gemm.tensor_cores import (
    CHUNK,
    NOTE,
    PIECE_BYTES,
    TILE,
    Pieces,
    TensorKernel,
    restored,
    split,
    tile_work,
    tiles_of,
)
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, Memory, seen, signed

FEWEST = 32
"""Channels of a group, of which 64 are multiplied at a time."""

_MOST = 2**31 - 1
# Timed on an H200 (241 launches, 6.5 % off in the mean): clocks of a chunk of a tile, of one with at most 64 rows, and
# of a tile beside its chunks, by whether it stores pairs.
_CHUNK_CLOCKS, _FEW_CLOCKS, _TILE_CLOCKS = 2290, 1400, {True: 5000, False: 18500}

DOC = """Forward convolution of maps and filters that were split: see tensor_pixels.sass. Grid: x = `ctas`, at most one
for each multiprocessor."""

PIXELS = TensorKernel("sm90_tensor_pixels_128x128", "sm90/tensor_pixels.sass", DOC)


def unsupported_reason(problem: Problem) -> str | None:
    """Maps may have any strides that lead from one pixel to the next in equal steps, channels or pixels innermost."""
    every, maps = correlations(problem), problem.operand(maps_of(problem))
    s = every[0]
    if len(every) > 1:
        return "strides of a gradient"
    if s.C // s.groups < FEWEST:
        return f"{s.C // s.groups} channels of a group, fewer than {FEWEST}"
    if source_of(problem, s) is None:
        return f"{maps.role} whose pixels, or groups of images, do not lie in equal steps, channels or pixels innermost"
    return next((f"{o.role} that are not C-contiguous" for o in problem.operands if o.strides and o is not maps), None)


def source_of(problem: Problem, s: Correlation) -> tuple[bool, int, int] | None:
    """How the maps are split: whether channels are innermost; elements from one pixel (or, if not, channel) to the
    next, and from one matrix, the channels of a group (and of an image, in N,C,H,W), to the next. None if there is no
    such way."""
    lies = operand(problem, maps_of(problem), s.N, s.C, s.H, s.W)
    axes = "HW" if problem.layout == "NCHW" else "HWN"
    pixel = _step(lies, axes)
    group = s.C // s.groups * lies["C"]
    outer = _step(Layout("NG", (s.N, s.groups), (lies["N"], group)), "NG") if problem.layout == "NCHW" else group
    if pixel is None or outer is None:
        return None
    if pixel == 1:
        return False, lies["C"], outer
    return (True, pixel, outer) if lies["C"] == 1 else None


def _step(lies: Layout, axes: str) -> int | None:
    """Elements from one index of all these axes together, the last one fastest, to the next; None if they differ."""
    found, size = None, 1
    for axis in reversed(axes):
        count = lies.shape[lies.axes.index(axis)]
        if count == 1:
            continue
        if found is None:
            found = lies[axis]
        elif lies[axis] != found * size:
            return None
        size *= count
    return 1 if found is None else found


def candidates(problem: Problem, chip: Chip) -> Candidates:
    chunks = chunks_of(correlations(problem)[0])
    return {split_name(PIXELS.name, splits): partial(_plan, problem, chip, splits) for splits in splits_of(chunks)}


def _depth(s: Correlation) -> int:
    return -(-(s.C // s.groups) // CHUNK)


def chunks_of(s: Correlation) -> int:
    """Of the loop: 64 channels of a tap each."""
    return s.R * s.S * _depth(s)


def _plan(problem: Problem, chip: Chip, splits: int) -> Plan:
    draft, (s,) = Draft(problem), correlations(problem)
    check_limits(s, splits)
    filters, maps = split_filters(draft, s), split_maps(draft, s)
    size = s.N * s.K * s.P * s.Q
    into, epilogue = ("out", epilogue_of(problem)) if splits == 1 else (draft.region("parts", splits * size), PARTIAL)
    draft.launches.append(gather(problem, s, chip, filters, maps, into, epilogue, splits))
    if splits > 1:
        images = s.N if problem.layout == "NCHW" else 1
        rows = (size // (images * s.K), s.K, images)
        draft.launches.append(reduce("parts", "out", splits, size, rows, s.K, epilogue_of(problem)))
        draft.notes.append(f"the {chunks_of(s)} chunks of the reduction are split {splits} ways; the parts are added "
                           "in a fixed order")
    draft.notes.append(NOTE)
    return draft.plan(FAMILY, PIXELS)


def split_filters(draft: Draft, s: Correlation, region: str = "filter_pieces") -> Pieces:
    """Adds what splits filters to a region: a matrix for each tap and group, taps outermost."""
    problem, k, c = draft.problem, s.K // s.groups, s.C // s.groups
    if problem.kind == "forward" and problem.layout == "NCHW" and s.R == s.S == 1:
        return split(draft, region, Matrices("filters", c, k * c), k, c, s.groups, True)
    place, row = "filters", s.K
    if problem.kind == "data" and not as_they_lie(problem):
        place, row = rotated(draft, s, s.patch, -(-k // 32) * 32)
    elif problem.layout == "NCHW" and problem.kind == "forward":
        place = crsk(draft)
    taps = s.R * s.S
    return split(draft, region, Matrices(place, taps * row, row // s.groups), k, c, taps * s.groups, False)


def split_maps(draft: Draft, s: Correlation) -> Pieces:
    """Adds what splits maps: a matrix for each group, in N,C,H,W of each image."""
    source = source_of(draft.problem, s)
    assert source is not None
    innermost, step, batch = source
    images, pixels = (s.N, s.H * s.W) if draft.problem.layout == "NCHW" else (1, s.H * s.W * s.N)
    return split(draft, "map_pieces", Matrices(maps_of(draft.problem), step, batch), pixels, s.C // s.groups,
                 images * s.groups, innermost)


def gather(problem: Problem, s: Correlation, chip: Chip, filters: Pieces, maps: Pieces, into: str | Part,
           epilogue: Epilogue, splits: int = 1) -> Launch:
    """The launch that correlates, into the output or a region."""
    k, columns, depth = s.K // s.groups, s.N * s.P * s.Q, _depth(s)
    out, nchw = s.results(problem.layout), problem.layout == "NCHW"
    image = s.P * s.Q if nchw else columns
    vectors = image % 2 == 0 and (into != "out" or problem.operand("out").alignment >= Alignment.VECTOR)
    order = tiles_of(s, (k, columns, chunks_of(s)), s.groups, splits, chip)
    values: dict[str, Value] = {
        "a": filters.place, "maps": maps.place, "out": into, **epilogue.values(VECTORS * vectors), **order,
        "a_batch": order["tiles_m"] * depth, "a_tap": s.groups * order["tiles_m"] * depth,
        "out_row": image, "out_batch": k * out["C"], "out_split": s.N * s.K * s.P * s.Q if splits > 1 else 0,
        **divisor("image", image, columns + TILE), "out_image": out["N"] if nchw else 0,
        "depth": depth, "depth_magic": short_magic(depth), "taps_w": s.S, "taps_w_magic": short_magic(s.S),
        **_pixels(problem, s)}
    few = 0 < k % TILE <= TILE // 2  # rows of the last tiles
    chunk = _CHUNK_CLOCKS - few * (_CHUNK_CLOCKS - _FEW_CLOCKS) // order["tiles_m"]
    clocks = chunk * order["share"] + _TILE_CLOCKS[vectors]
    nbytes = filters.nbytes + maps.nbytes + FLOAT_BYTES * s.K * columns * (splits + bool(epilogue.flags & ADDS))
    work = tile_work(order["tiles"], clocks, nbytes, chip)
    doing = f"{TILE} pixels x {TILE} filters each, three products of FP16 parts" + ", a part of each sum" * (splits > 1)
    return Launch(PIXELS, (order["ctas"], 1, 1), values, work, doing, (begin(into)[0],),
                  flops=2 * columns * s.K * (s.patch + 1))


def _pixels(problem: Problem, s: Correlation) -> dict[str, Value]:
    """Parameters: which lines of the split maps output pixels meet, in the order of the layout. Steps along an axis of
    one pixel or tap are 0: they may be beyond any map."""
    nchw = problem.layout == "NCHW"
    pixels = s.H * s.W * (1 if nchw else s.N)
    lines = -(-pixels // TILE) * TILE  # of a matrix
    width = 1 if nchw else s.N  # lines of a column of the map
    str_h, str_w = s.str_h if s.P > 1 else 0, s.str_w if s.Q > 1 else 0
    dil_h, dil_w = s.dil_h if s.R > 1 else 0, s.dil_w if s.S > 1 else 0
    d0, d1 = (s.Q, s.P) if nchw else (s.N, s.Q)
    row, column = s.W * width * str_h, width * str_w
    places = {"line0": column, "line1": row, "line2": lines * s.groups, "h1": str_h, "h2": 0, "w0": str_w, "w1": 0}
    if not nchw:
        places = {"line0": 1, "line1": column, "line2": row, "h1": 0, "h2": str_h, "w0": 0, "w1": str_w}
    return {**divisor("d0", d0, s.N * s.P * s.Q), **divisor("d1", d1, s.N * s.P * s.Q), "h": s.H, "w": s.W,
            **{name: step % 2**32 for name, step in places.items()},
            "start_h": -s.pad_h % 2**32, "dil_h": dil_h, "start_w": -s.pad_w % 2**32, "dil_w": dil_w,
            "line_start": -width * (s.pad_h * s.W + s.pad_w) % 2**32, "line_h": width * s.W * dil_h % 2**32,
            "line_w": width * dil_w % 2**32, "map_batch": lines}


def check_limits(s: Correlation, splits: int) -> None:
    rows, columns = ((count - 1) * step + (taps - 1) * apart + abs(pad) + size for count, step, taps, apart, pad, size
                     in ((s.P, s.str_h, s.R, s.dil_h, s.pad_h, s.H), (s.Q, s.str_w, s.S, s.dil_w, s.pad_w, s.W)))
    lines = s.N * s.groups * (s.H * s.W + TILE)
    within(s, (
        ("pixels N x P x Q", s.N * s.P * s.Q, _MOST - TILE, "pixels"),
        ("output N x K x P x Q", s.N * s.K * s.P * s.Q * splits, MAX_ELEMENTS, "elements, all parts of sums counted"),
        ("lines N x groups x H x W", lines, _MOST, "of the split maps"),
        ("rows of a padded map", rows, _MOST, "rows"), ("columns of a padded map", columns, _MOST, "columns"),
        ("elements C x R x S / 64", chunks_of(s), MOST_SHORT, "chunks"),
        ("units of the split maps", lines // TILE * _depth(s) * (PIECE_BYTES // 16), 2**32 - 16, "of 16 bytes"),
    ))


# --- What the kernel promises ---

def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers | signed(launch, "start_h", "start_w", "line_start")
    j = np.arange(v["n"])
    i0, i1, i2 = digits(v, j)
    h, w = (i1 * v["h1"] + i2 * v["h2"] + v["start_h"], i0 * v["w0"] + i1 * v["w1"] + v["start_w"])
    line = i0 * v["line0"] + i1 * v["line1"] + i2 * v["line2"] + v["line_start"]
    matrices = v["tiles"] // ((v["groups"] << v["group_log"]) * v["tiles_n"] * v["splits"])
    m, taps = np.arange(v["m"])[:, None], v["chunks"] // v["depth"]
    filters, maps = (seen(memory, launch.values[role]).view(np.uint8) for role in ("a", "maps"))
    for matrix in range(matrices):
        for part in range(v["splits"]):
            sums = np.zeros((v["m"], v["n"]))
            for chunk in range(part * v["share"], min((part + 1) * v["share"], v["chunks"])):
                tap, c = divmod(chunk, v["depth"])
                r, s = divmod(tap, v["taps_w"])
                assert tap < taps
                y, x = h + r * v["dil_h"], w + s * v["dil_w"]
                inside = (y >= 0) & (y < v["h"]) & (x >= 0) & (x < v["w"])
                at = np.where(inside, line + r * v["line_h"] + s * v["line_w"] + matrix * v["map_batch"], 0)
                first = matrix * v["a_batch"] + tap * v["a_tap"] + c
                a = np.concatenate([restored(filters, first + row * v["depth"]) for row in range(v["tiles_m"])])
                values = np.zeros((v["n"], CHUNK))
                for piece in np.unique(at[inside] // TILE):
                    mine = inside & (at // TILE == piece)
                    values[mine] = restored(maps, int(piece) * v["depth"] + c)[at[mine] % TILE]
                sums += a[:v["m"]] @ values.T
            where = (matrix * v["out_batch"] + part * v["out_split"] + m * v["out_row"] + j
                     + quotient(v, "image", j) * (v["out_image"] - v["image"]))
            finish(launch, memory, scalars, where, sums, matrix * v["m"] + m)


FAMILY = Family("tensor pixels", (PIXELS,), reference, ("forward", "data"), unsupported_reason, candidates,
                activations=tuple(ACTIVATION_FLAGS))
