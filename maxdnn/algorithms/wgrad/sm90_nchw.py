"""Gradients of filters over N,C,H,W as it lies, in machine code of compute capability 9.0: as in `filters`, but that
the terms of the sums are the pixels of all images one after the other, fetched one by one, so that no array has to
change layout or be padded."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..implicit_gemm.maxwell import magic
from ..spec import Candidates, Family, Memory, finish, refuses_strided, seen, split_name, within
from .plan import GROUP, MAX_BLOCKS, VECTORS, FiltersKernel, native_kernel, native_work, result_limits, split, splits_of

_REACH = 2**32 // FLOAT_BYTES  # elements: maps and gradients are counted in bytes of 32 bits
MAX_TERMS = 2**31 - 1

_DOC = """Gradient of filters over N,C,H,W by tiles of elements e = (c, r, s) and filters, or, split, parts of its sums:
see filters_nchw.inc. Grid as in filters.inc."""

_MOST_TAPS, _MOST_PIXELS = 16, 1024  # along an axis: bits of a word and words of the table

PLAIN = tuple(native_kernel("filters_nchw", *row, 0, _DOC) for row in (
    ((128, 128), "e", (1139, 600)), ((128, 64), "e", (1163, 750)), ((64, 128), "k", (1163, 650))))
BORDERED = tuple(native_kernel("filters_borders", *row, 0, _DOC) for row in (
    ((128, 128), "e", (1159, 650)), ((128, 64), "e", (1199, 830)), ((64, 128), "k", (1183, 700))))
"""Those whose taps may lie outside the map."""
KERNELS = (*PLAIN, *BORDERED)


def refuses(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if problem.layout != "NCHW":
        return f"layout {problem.layout}"
    if s.padding != (0, 0) and max(s.R, s.S) > _MOST_TAPS:
        return f"padding of filters {s.R}x{s.S} of more than {_MOST_TAPS} rows or columns"
    if s.padding != (0, 0) and max(s.P, s.Q) > _MOST_PIXELS:
        return f"padding of maps of more than {_MOST_PIXELS} rows or columns of pixels ({s.P}x{s.Q})"
    return refuses_strided(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s: ConvShape = problem.shape
    groups = -(-s.N * s.P * s.Q // GROUP)
    return {split_name(spec, splits): partial(_plan, problem, spec, splits)
            for spec in (PLAIN if s.padding == (0, 0) else BORDERED)
            if spec.layout == problem.layout or not problem.reads_out for splits in splits_of(spec, s, groups, chip)}


def _plan(problem: Problem, spec: FiltersKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    _check_limits(s, splits)
    return split(problem, spec, splits, partial(_passes, s, spec), (), {})


def _borders(s: ConvShape) -> bytes:
    """The table: a word a row of pixels, of the filter rows that lie outside there; likewise columns."""
    words = np.zeros((2, _MOST_PIXELS), np.uint32)
    for axis, (pixels, taps, stride, dilation, padding, size) in enumerate((
            (s.P, s.R, s.str_h, s.dil_h, s.pad_h, s.H), (s.Q, s.S, s.str_w, s.dil_w, s.pad_w, s.W))):
        at = np.arange(pixels)[:, None] * stride + np.arange(taps) * dilation - padding
        outside = ((at < 0) | (at >= size)).astype(np.uint32)
        words[axis, :pixels] = (outside << np.arange(taps, dtype=np.uint32) + 16 * axis).sum(1)
    return words.tobytes()


def _passes(s: ConvShape, spec: FiltersKernel, out: str, splits: int,
            ending: Mapping[str, Value]) -> Iterator[Launch]:
    """One launch, or several for many groups of the layer."""
    k, c, pixels = s.K // s.groups, s.C // s.groups, s.P * s.Q
    rows, columns = spec.oriented(s.patch, k)
    out_row, out_batch = (s.K, k) if spec.inner == "k" else (s.patch, k * s.patch)
    vectors = out != "out" and not (out_row % 4 or out_batch % 4)
    flags = ending["flags"]
    assert isinstance(flags, int)
    terms = s.N * pixels
    groups = -(-terms // GROUP)
    image, down, right, of_gradients = s.C * s.H * s.W, s.str_h * s.W, s.str_w, s.K * pixels
    back_n, (back_p, back_q) = GROUP // pixels, divmod(GROUP % pixels, s.Q)
    nbytes = {
        "i_batch": c * s.H * s.W, "i_start": -s.pad_h * s.W - s.pad_w, "i_c": s.H * s.W, "i_r": s.dil_h * s.W,
        "i_s": s.dil_w,
        "i_n": image, "i_p": down, "i_q": right, "i_step": -(back_n * image + back_p * down + back_q * right),
        "i_wrap_q": s.Q * right - down, "i_wrap_p": s.P * down - image, "g_batch": k * pixels, "g_k": pixels,
        "g_n": of_gradients, "g_step": -(back_n * of_gradients + back_p * s.Q + back_q),
        "g_wrap": pixels - of_gradients, "step_p": -back_p, "step_q": -back_q, "wrap_p": s.P, "wrap_q": s.Q}
    values: dict[str, Value] = {
        "maps": "images", "gradients": "gradients", "out": out, "alpha": ending["alpha"], "beta": ending["beta"],
        "flags": flags | VECTORS * vectors, "m": rows, "n": columns, "terms": terms, "groups": groups,
        "share": -(-groups // splits), "splits": splits, "split_magic": -(-2**31 // splits),
        "border": max(s.P, s.Q) if spec in BORDERED else 0, "out_row": out_row, "out_batch": out_batch,
        "out_split": s.patch * s.K if splits > 1 else 0,
        **{name: FLOAT_BYTES * count % 2**32 for name, count in nbytes.items()}}
    for name, divisor, limit in (("pq", pixels, GROUP * groups), ("q", s.Q, pixels), ("rs", s.R * s.S, s.patch),
                                 ("s", s.S, s.R * s.S)):
        values[name] = divisor
        values[f"{name}_magic"], values[f"{name}_shift"] = magic(divisor, limit)
    doing = f"{spec.tile[0]} filter elements x {spec.tile[1]} filters each" + ", a part of each sum" * (splits > 1)
    tile_y, tile_x = spec.oriented(*spec.tile)
    tables = {"borders": _borders(s)} if spec in BORDERED else {}
    most = MAX_BLOCKS // splits
    for first in range(0, s.groups, most):
        count = min(most, s.groups - first)
        grid = -(-columns // tile_x), -(-rows // tile_y), count * splits
        flops = s.flops * (first + count) // s.groups - s.flops * first // s.groups
        once = (s.C * s.H * s.W + s.K * pixels) * s.N * count / s.groups + splits * s.patch * s.K
        work = native_work(spec, -(-groups // splits), grid[0] * grid[1] * grid[2], 0, FLOAT_BYTES * once)
        yield Launch(spec, grid, values | {"first": first}, work, doing, (out,), {}, tables, flops)


def _check_limits(s: ConvShape, splits: int) -> None:
    within(s, (
        ("maps N x C x H x W", s.N * s.C * s.H * s.W, _REACH, "elements"),
        ("gradients N x K x P x Q", s.N * s.K * s.P * s.Q, _REACH, "elements"),
        ("terms N x P x Q", s.N * s.P * s.Q + GROUP, MAX_TERMS, "pixels"),
        *result_limits(s, splits),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, FiltersKernel)
    (x, y, z), tile = launch.grid, spec.oriented(*spec.tile)
    assert (y, x) == (-(-v["m"] // tile[0]), -(-v["n"] // tile[1])) and v["groups"] == -(-v["terms"] // GROUP)
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("i_start", "step_p", "step_q")}
    back = -signed["step_p"] // FLOAT_BYTES, -signed["step_q"] // FLOAT_BYTES
    height = v["wrap_p"] // FLOAT_BYTES
    whole = (GROUP - back[0] * v["q"] - back[1]) // v["pq"]
    assert v["pq"] == height * v["q"] and v["wrap_q"] == FLOAT_BYTES * v["q"]
    assert whole * v["pq"] + back[0] * v["q"] + back[1] == GROUP
    for name, value in (("i_step", -(whole * v["i_n"] + back[0] * v["i_p"] + back[1] * v["i_q"])),
                        ("i_wrap_q", v["q"] * v["i_q"] - v["i_p"]), ("i_wrap_p", height * v["i_p"] - v["i_n"]),
                        ("g_step", -(whole * v["g_n"] + FLOAT_BYTES * (back[0] * v["q"] + back[1]))),
                        ("g_wrap", FLOAT_BYTES * v["pq"] - v["g_n"])):
        assert v[name] == value % 2**32, name
    elements, filters = spec.oriented(v["m"], v["n"])
    e, k = np.arange(elements)[:, None], np.arange(filters)[:, None]
    r, s = e % v["rs"] // v["s"], e % v["s"]
    row_i = e // v["rs"] * v["i_c"] + r * v["i_r"] + s * v["i_s"]
    borders = np.frombuffer(launch.tables.get("borders", bytes(2 * FLOAT_BYTES * _MOST_PIXELS)), np.uint32)
    rows_of, columns_of = borders.reshape(2, -1)
    assert v["border"] == (max(height, v["q"]) if launch.tables else 0)
    maps, gradients = (seen(memory, launch.values[name]) for name in ("maps", "gradients"))
    for block in range(z):
        batch, part = block * v["split_magic"] >> 31, block % v["splits"]
        assert batch == block // v["splits"]
        batch += v["first"]
        term = np.arange(GROUP * part * v["share"], min(GROUP * (part + 1) * v["share"], v["terms"]))
        assert len(term)
        n, pixel = np.divmod(term, v["pq"])
        p, q = np.divmod(pixel, v["q"])
        at = batch * v["i_batch"] + signed["i_start"] + n * v["i_n"] + p * v["i_p"] + q * v["i_q"] + row_i
        of = batch * v["g_batch"] + n * v["g_n"] + FLOAT_BYTES * pixel + k * v["g_k"]
        outside = (rows_of[p] >> r | columns_of[q] >> 16 + s) & 1
        values = np.where(outside, 0, maps[np.where(outside, 0, at // FLOAT_BYTES)]).astype(float)
        sums = values @ gradients[of // FLOAT_BYTES].astype(float).T
        rows = np.arange(v["m"])[:, None]
        where = batch * v["out_batch"] + part * v["out_split"] + rows * v["out_row"] + np.arange(v["n"])
        finish(launch, memory, scalars, where, sums if spec.inner == "k" else sums.T, rows)


FAMILY = Family("filters_nchw", KERNELS, contract, ("filters",), refuses, candidates)
