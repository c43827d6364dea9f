"""Direct convolution of many images in machine code of compute capability 9.0, in C,H,W,N. A CTA computes one output
pixel and walks only over the taps inside the map, as on Maxwell (maxwell.py). N,C,H,W is transposed first, which costs
little beside sums over many images."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from ...errors import ShapeError
from ...planning.cost import Chip, Cost, Work, neighbours
from ...planning.plan import FLOAT_BYTES, Launch, Plan
from ...problem.problem import Alignment, Problem
from ..common.correlation import Correlation, correlations, maps_of
from ..common.epilogue import ACTIVATION_FLAGS, VECTORS, epilogue_of
from ..common.limits import (
    CONSTANT_BYTES,
    MAX_ELEMENTS,
    MAX_GRID_YZ,
    REACH,
    TEXEL_BYTES,
    TEXEL_FLOATS,
    within,
)
from ..common.packing import Packed, packed
from ..common.schedule import Tail, split_name, tail_parts, why_tail
from ..common.sm90 import GROUP, NativeKernel
from ..common.workspace import Draft, part
from ..memory_ops.plan import reduce
from ..spec import LATENCY, Candidates, Family
from .plan import RECORD, border_reason, inside, inside_note, tap_lists
from .reference import PART, reference_sm90

_PIXEL = 16  # bytes
_MOST_ELEMENTS = 1024  # of a pixel: shared memory
_MOST_PIXELS = 2**18  # of an output, each of which has a record

_DOC = """Forward convolution of one output pixel for 128 images a block: see taps.inc. Grid: x = tiles of filters,
y = tiles of images, z = pixels (both at most 65535)."""


def _kernel(name: str, filters: int, loop: int, elements: bool) -> NativeKernel:
    return NativeKernel(f"sm90_{name}_K{filters}_N128", "sm90/taps.sass", _DOC, (128, filters), (loop, 700), loop,
                        elements, 4 if filters == 64 else 2, 0.93 if filters == 96 else 0.95)


KERNELS = tuple(_kernel(name, filters, loop, name == "elements") for name, filters, loop in (
    ("taps", 128, 1095), ("taps", 96, 847), ("taps", 64, 1101),
    ("elements", 128, 1097), ("elements", 96, 849), ("elements", 64, 1103)))


def unsupported_reason(problem: Problem) -> str | None:
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
    if any(s.P * s.Q > _MOST_PIXELS for s in every):
        return f"an output of more than {_MOST_PIXELS} pixels"
    return border_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    found = {}
    every = correlations(problem)
    s = every[0]
    for spec in KERNELS:
        if spec.elements == bool(s.C // s.groups % GROUP):
            found[spec.name] = partial(_plan, problem, spec, Tail())
            tail = _tail(s, spec, chip)
            if len(every) == 1 and tail.parts > 1:
                found[split_name(spec.name, tail.parts)] = partial(_plan, problem, spec, tail)
    return found


def _tail(s: Correlation, spec: NativeKernel, chip: Chip) -> Tail:
    """The pixels behind the last whole wave, in as many parts as make them fill waves best."""
    (tile_n, tile_k), slots = spec.tile, chip.sms * spec.ctas_per_sm
    ctas = -(-s.N // tile_n) * -(-s.K // s.groups // tile_k)
    pixels = -(-(s.P * s.Q * ctas % slots) // ctas)
    rows, columns = inside(s)
    least = min(map(len, rows)) * min(map(len, columns)) * (s.C // s.groups) // GROUP
    if s.groups > 1 or not pixels or least < 2:
        return Tail()
    return Tail(pixels, tail_parts(pixels * ctas, slots, range(1, least + 1)))


def _plan(problem: Problem, spec: NativeKernel, tail: Tail) -> Plan:
    draft, every = Draft(problem), correlations(problem)
    s, maps = every[0], maps_of(problem)
    names = {"maps": maps, "out": "out"}
    if problem.layout == "NCHW":
        draft.region("maps_chwn", s.C * s.H * s.W * s.N)
        names = {"maps": "maps_chwn", "out": draft.region("out_kpqn", s.K * s.outputs * s.N)}
        draft.transposed("maps_chwn", maps, s.N, s.C * s.H * s.W,
                         f"{maps} change layout: the kernel reads C,H,W,N")
    for s in every:
        _check_limits(s, spec)
    filters = [packed(draft, s) for s in every]
    if tail.items:
        draft.region("parts", tail.parts * s.K * tail.items * s.N)
    for s, place in zip(every, filters, strict=True):
        for group in range(s.groups):
            draft.add(_passes(problem, s, spec, group, names, place, tail))
    draft.notes += inside_note(every)
    if tail.items:
        draft.notes.append(why_tail("pixels", tail))
        draft.launches.append(_sum(problem, s, tail, names["out"]))
    if problem.layout == "NCHW":
        draft.transposed_back("out_kpqn", s.K * s.outputs, s.N)
    return draft.plan(FAMILY, spec)


def _sum(problem: Problem, s: Correlation, tail: Tail, out: str) -> Launch:
    """Of the parts of a tail wave."""
    length, plane = tail.items * s.N, s.P * s.Q * s.N
    return reduce("parts", part(out, plane - length), tail.parts, s.K * length, (length, s.K, 1), s.K,
                  epilogue_of(problem), plane)


def tables(s: Correlation, spec: NativeKernel, row_texels: int, tail: Tail) -> Iterator[tuple[np.ndarray, int]]:
    """(table of a launch, uint32; how many pixels and parts of such it has). Those with the most taps come first, so
    that what remains for the last wave of blocks is short. As many launches as constant memory asks for, one if there
    is a tail."""
    rows, columns = inside(s)
    channels = range(0, s.C // s.groups, 1 if spec.elements else GROUP)
    at = RECORD * s.R * sum(map(len, dict.fromkeys(columns))) * len(channels)  # bytes of the lists
    most, count = (CONSTANT_BYTES - at) // _PIXEL, s.P * s.Q + tail.items * (tail.parts - 1)
    if most < min(count, 256) or (most < count and tail.items):
        raise ShapeError(f"the lists of taps must leave room for pixels in {CONSTANT_BYTES} bytes (got {at} for {s})")
    begins, lists = tap_lists(s, np.array(channels), 0, (s.H * s.W, s.W, 1), s.N * FLOAT_BYTES,
                              row_texels * TEXEL_BYTES)
    p, q = (x.ravel() for x in np.meshgrid(np.arange(s.P), np.arange(s.Q), indexing="ij"))
    first_row, count_rows = (np.array(x)[p] for x in ([r[0] for r in rows], [len(r) for r in rows]))
    of_row = np.array([len(taps) * len(channels) for taps in columns])[q]
    begin = np.array([begins[taps] for taps in columns])[q] + RECORD * first_row * of_row
    pixels = np.stack([((p * s.str_h - s.pad_h) * s.W + q * s.str_w - s.pad_w) * s.N * FLOAT_BYTES,
                       (p * s.steps[0] * s.whole[1] + q * s.steps[1]) * s.N, begin, count_rows * of_row], 1)
    whole = len(pixels) - tail.items
    parts = _parts(s, spec, pixels[whole:], tail)
    pixels = np.concatenate([pixels[:whole][np.argsort(-pixels[:whole, 3], kind="stable")], parts])
    for head in np.array_split(pixels, -(-len(pixels) // most)):
        size = _PIXEL * len(head)
        table = np.zeros((size + at) // 4, np.int64)
        table[:head.size] = (head + np.array([0, 0, size, 0])).ravel()
        table[size // 4:] = lists.ravel()
        yield (table % 2**32).astype(np.uint32), len(head)


def _parts(s: Correlation, spec: NativeKernel, pixels: np.ndarray, tail: Tail) -> np.ndarray:
    """The words of pixels, part by part, each a run of the records in whole iterations."""
    size = GROUP if spec.elements else 1
    words = []
    for number in range(tail.parts if len(pixels) else 0):
        groups = -(-pixels[:, 3] // size)
        first, last = (size * (groups * x // tail.parts) for x in (number, number + 1))
        place = (number * s.K * len(pixels) + np.arange(len(pixels))) * s.N
        words.append(np.stack([pixels[:, 0], place, pixels[:, 2] + RECORD * first + PART,
                               np.minimum(last, pixels[:, 3]) - first], 1))
    return np.concatenate(words) if words else pixels


def _passes(problem: Problem, s: Correlation, spec: NativeKernel, group: int, names: Mapping[str, str],
            filters: Packed, tail: Tail) -> Iterator[Launch]:
    (tile_n, tile_k), k, c = spec.tile, s.K // s.groups, s.C // s.groups
    whole, row_texels = s.outputs, filters.texels
    vectors = names["out"] != "out" or problem.operand("out").alignment >= Alignment.VECTOR

    values = epilogue_of(problem, group * k).values(VECTORS * vectors) | {
        "maps": part(names["maps"], group * c * s.H * s.W * s.N),
        "filters": part(filters.place, group * (row_texels // s.groups) * TEXEL_FLOATS),
        "out": part(names["out"], (group * k * whole + s.start) * s.N), "parts": "parts" if tail.items else 0,
        "k": k, "n": s.N,
        "map_channel": 0 if spec.elements else s.H * s.W * s.N * FLOAT_BYTES, "map_texels": s.N // TEXEL_FLOATS,
        "filter_channel": 0 if spec.elements else s.R * s.S * row_texels * TEXEL_BYTES,
        "filter_texels": -(-k // TEXEL_FLOATS), "out_row": whole * s.N, "part_row": tail.items * s.N}
    doing = f"one output pixel and {tile_n} images x {tile_k} filters each, over the taps inside the map"
    if s.groups > 1:
        doing += f", a launch for each of {s.groups} groups"
    every = list(tables(s, spec, row_texels, tail))
    for table, count in every:
        grid = -(-k // tile_k), -(-s.N // tile_n), count
        steps = -(-table[3:4 * count:4].astype(np.int64) // (GROUP if spec.elements else 1))
        pixels = count - tail.items * (tail.parts - 1)
        flops = 2 * s.N * pixels * k * (c * s.R * s.S + 1)
        yield Launch(spec, grid, values, _work(s, spec, grid, steps, c), doing,
                     (names["out"], *["parts"][:tail.items]), {}, {"table": table.tobytes()}, flops)


def _work(s: Correlation, spec: NativeKernel, grid: tuple[int, int, int], steps: np.ndarray, channels: int) -> Work:
    loop, rest = spec.slots
    warps, k = spec.threads // 32, s.K // s.groups
    found, each = neighbours([(float(one), grid[0] * grid[1]) for one in steps])
    lengths = warps * (loop * np.array(found) + rest) / spec.pace
    once = channels * (s.H * s.W * s.N + s.R * s.S * k) + k * len(steps) * s.N
    code = Cost(float(lengths.mean()), 0, spec.ctas_per_sm, LATENCY)
    return Work(len(steps) * grid[0] * grid[1], FLOAT_BYTES * once, code, warps=warps, lengths=tuple(lengths.tolist()),
                each=each)


def _check_limits(s: Correlation, spec: NativeKernel) -> None:
    k = s.K // s.groups
    within(s, (
        ("maps C x H x W x N", s.C // s.groups * s.H * s.W * s.N, REACH // FLOAT_BYTES, "elements of a group"),
        ("filters C x R x S x K", s.patch * s.groups * -(-k // 4) * 4, REACH // FLOAT_BYTES, "elements"),
        ("output K x P x Q x N", s.K * s.outputs * s.N, MAX_ELEMENTS, "elements"),
        (f"image tiles N/{spec.tile[0]}", -(-s.N // spec.tile[0]), MAX_GRID_YZ, "blocks along y of the grid"),
    ))


FAMILY = Family("taps_sm90", KERNELS, reference_sm90, ("forward", "data"), unsupported_reason, candidates,
                activations=tuple(ACTIVATION_FLAGS))
