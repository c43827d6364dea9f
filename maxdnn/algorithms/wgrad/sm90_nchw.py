"""Gradients of filters over N,C,H,W as it lies, in machine code of compute capability 9.0: as in `filters`, but that
the terms of the sums are the pixels of all images one after the other, fetched one by one, so that no array has to
change layout or be padded."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...planning.cost import Chip, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common.epilogue import Epilogue
from ..common.fastdiv import divisor
from ..common.limits import REACH, within
from ..common.schedule import split_name
from ..common.workspace import Draft
from ..spec import Candidates, Family, strided_reason
from .maxwell import GROUP, FiltersKernel
from .plan import over_groups, result_limits, result_values, split, wgrad_splits
from .reference import MOST_PIXELS, reference_nchw
from .sm90 import native_kernel, native_work

MAX_TERMS = 2**31 - 1

_DOC = """Gradient of filters over N,C,H,W by tiles of elements e = (c, r, s) and filters, or, split, parts of its sums:
see filters_nchw.inc. Grid as in filters.inc."""

_MOST_TAPS = 16  # along an axis: bits of a word of the table

PLAIN = tuple(native_kernel("filters_nchw", *row, 0, _DOC) for row in (
    ((128, 128), "e", (1139, 600)), ((128, 64), "e", (1163, 750)), ((64, 128), "k", (1163, 650))))
BORDERED = tuple(native_kernel("filters_borders", *row, 0, _DOC) for row in (
    ((128, 128), "e", (1159, 650)), ((128, 64), "e", (1199, 830)), ((64, 128), "k", (1183, 700))))
"""Those whose taps may lie outside the map."""
KERNELS = (*PLAIN, *BORDERED)


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if problem.layout != "NCHW":
        return f"layout {problem.layout}"
    if s.padding != (0, 0) and max(s.R, s.S) > _MOST_TAPS:
        return f"padding of filters {s.R}x{s.S} of more than {_MOST_TAPS} rows or columns"
    if s.padding != (0, 0) and max(s.P, s.Q) > MOST_PIXELS:
        return f"padding of maps of more than {MOST_PIXELS} rows or columns of pixels ({s.P}x{s.Q})"
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    groups = -(-s.N * s.P * s.Q // GROUP)
    return {split_name(spec.name, splits): partial(_plan, problem, spec, splits)
            for spec in (PLAIN if s.padding == (0, 0) else BORDERED)
            if spec.layout == problem.layout or not problem.reads_out for splits in wgrad_splits(spec, s, groups, chip)}


def _plan(problem: Problem, spec: FiltersKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    _check_limits(s, splits)
    return split(Draft(problem), spec, splits, partial(_passes, s, spec))


def _borders(s: ConvShape) -> bytes:
    """The table: a word a row of pixels, of the filter rows that lie outside there; likewise columns."""
    words = np.zeros((2, MOST_PIXELS), np.uint32)
    for axis, (pixels, taps, stride, dilation, padding, size) in enumerate((
            (s.P, s.R, s.str_h, s.dil_h, s.pad_h, s.H), (s.Q, s.S, s.str_w, s.dil_w, s.pad_w, s.W))):
        at = np.arange(pixels)[:, None] * stride + np.arange(taps) * dilation - padding
        outside = ((at < 0) | (at >= size)).astype(np.uint32)
        words[axis, :pixels] = (outside << np.arange(taps, dtype=np.uint32) + 16 * axis).sum(1)
    return words.tobytes()


def _passes(s: ConvShape, spec: FiltersKernel, out: str, splits: int, epilogue: Epilogue) -> Iterator[Launch]:
    k, c, pixels = s.K // s.groups, s.C // s.groups, s.P * s.Q
    terms = s.N * pixels
    groups = -(-terms // GROUP)
    image, down, right, of_gradients = s.C * s.H * s.W, s.str_h * s.W, s.str_w, s.K * pixels
    back_n, (back_p, back_q) = GROUP // pixels, divmod(GROUP % pixels, s.Q)
    floats = {
        "i_batch": c * s.H * s.W, "i_start": -s.pad_h * s.W - s.pad_w, "i_c": s.H * s.W, "i_r": s.dil_h * s.W,
        "i_s": s.dil_w,
        "i_n": image, "i_p": down, "i_q": right, "i_step": -(back_n * image + back_p * down + back_q * right),
        "i_wrap_q": s.Q * right - down, "i_wrap_p": s.P * down - image, "g_batch": k * pixels, "g_k": pixels,
        "g_n": of_gradients, "g_step": -(back_n * of_gradients + back_p * s.Q + back_q),
        "g_wrap": pixels - of_gradients, "step_p": -back_p, "step_q": -back_q, "wrap_p": s.P, "wrap_q": s.Q}
    values = result_values(s, spec, groups, out, splits, epilogue) | {
        "maps": "images", "gradients": "gradients", "terms": terms,
        "border": max(s.P, s.Q) if spec in BORDERED else 0,
        **{name: FLOAT_BYTES * count % 2**32 for name, count in floats.items()}}
    for name, size, limit in (("pq", pixels, GROUP * groups), ("q", s.Q, pixels), ("rs", s.R * s.S, s.patch),
                              ("s", s.S, s.R * s.S)):
        values |= divisor(name, size, limit)

    def work(grid: tuple[int, int, int], count: int) -> Work:
        once = (s.C * s.H * s.W + s.K * pixels) * s.N * count / s.groups + splits * s.patch * s.K
        return native_work(spec, -(-groups // splits), grid[0] * grid[1] * grid[2], 0, FLOAT_BYTES * once)
    return over_groups(s, spec, out, splits, values, work, {}, {"borders": _borders(s)} if spec in BORDERED else {})


def _check_limits(s: ConvShape, splits: int) -> None:
    within(s, (
        ("maps N x C x H x W", s.N * s.C * s.H * s.W, REACH // FLOAT_BYTES, "elements"),
        ("gradients N x K x P x Q", s.N * s.K * s.P * s.Q, REACH // FLOAT_BYTES, "elements"),
        ("terms N x P x Q", s.N * s.P * s.Q + GROUP, MAX_TERMS, "pixels"),
        *result_limits(s, splits),
    ))


FAMILY = Family("filters_nchw", KERNELS, reference_nchw, ("filters",), unsupported_reason, candidates)
