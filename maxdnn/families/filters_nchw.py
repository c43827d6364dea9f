"""Gradients of filters over N,C,H,W as it lies, in machine code of compute capability 9.0: as in `filters`, but that
the terms of the sums are the pixels of all images one after the other, fetched one by one, so that no array has to
change layout. Padding is copied around the images first."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from ..plans import FLOAT_BYTES, Launch, Plan, Value
from ..problem import Problem
from ..shape import ConvShape
from .family import Candidates, Family, Memory, finish, refuses_strided, seen, split_name, within
from .filters import (
    GROUP,
    MAX_BLOCKS,
    MAX_ELEMENTS,
    VECTORS,
    FiltersKernel,
    native_kernel,
    native_work,
    split,
    splits_of,
)
from .layout import MAX_GRID_YZ, pad
from .pixels import magic

_REACH = 2**32 // FLOAT_BYTES  # elements: maps and gradients are counted in bytes of 32 bits
MAX_TERMS = 2**31 - 1

_DOC = """Gradient of filters over N,C,H,W by tiles of elements e = (c, r, s) and filters, or, split, parts of its sums:
see filters_nchw.inc. Grid as in filters.inc."""

KERNELS = tuple(native_kernel("filters_nchw", *row, 0, _DOC) for row in (
    ((128, 128), "e", (1140, 600)), ((128, 64), "e", (1164, 750)), ((64, 128), "k", (1164, 650))))


def refuses(problem: Problem) -> str | None:
    if problem.layout != "NCHW":
        return f"layout {problem.layout}"
    return refuses_strided(problem)


def candidates(problem: Problem) -> Candidates:
    s: ConvShape = problem.shape
    groups = -(-s.N * s.P * s.Q // GROUP)
    return {split_name(spec, splits): partial(_plan, problem, spec, splits)
            for spec in KERNELS if spec.layout == problem.layout or not problem.reads_out
            for splits in splits_of(spec, s, groups)}


def _plan(problem: Problem, spec: FiltersKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    regions: dict[str, int] = {}
    before: list[Launch] = []
    images, height, width, start = "images", s.H, s.W, 0
    if s.pad_h or s.pad_w:
        # What lies left of a row is the end of the row before it.
        top = s.pad_h + (s.pad_w > 0)
        images, height, width = "images_padded", s.H + top + s.pad_h, s.W + s.pad_w
        start = (top - s.pad_h) * width - s.pad_w
        regions[images] = FLOAT_BYTES * s.N * s.C * height * width
        before.append(pad(images, "images", (s.N * s.C, 1, s.H, s.W), (1, height, width), (0, top),
                          f"padding {s.pad_h}x{s.pad_w} is put around the images"))
    _check_limits(s, height * width, splits)
    passes = partial(_passes, s, spec, images, (height, width, start))
    return split(problem, spec, splits, passes, before, regions)


def _passes(s: ConvShape, spec: FiltersKernel, images: str, lie: tuple[int, int, int], out: str, splits: int,
            ending: Mapping[str, Value]) -> Iterator[Launch]:
    """One launch, or several for many groups of the layer. lie: rows and columns of images, where they begin."""
    (height, width, start), k, c, pixels = lie, s.K // s.groups, s.C // s.groups, s.P * s.Q
    rows, columns = (s.patch, k) if spec.inner == "k" else (k, s.patch)
    out_row, out_batch = (s.K, k) if spec.inner == "k" else (s.patch, k * s.patch)
    vectors = out != "out" and not (out_row % 4 or out_batch % 4)
    flags = ending["flags"]
    assert isinstance(flags, int)
    terms = s.N * pixels
    groups = -(-terms // GROUP)
    image, down, right, of_gradients = s.C * height * width, s.str_h * width, s.str_w, s.K * pixels
    back_n, (back_p, back_q) = GROUP // pixels, divmod(GROUP % pixels, s.Q)
    nbytes = {
        "i_batch": c * height * width, "i_start": start, "i_c": height * width, "i_r": s.dil_h * width, "i_s": s.dil_w,
        "i_n": image, "i_p": down, "i_q": right, "i_step": -(back_n * image + back_p * down + back_q * right),
        "i_wrap_q": s.Q * right - down, "i_wrap_p": s.P * down - image, "g_batch": k * pixels, "g_k": pixels,
        "g_n": of_gradients, "g_step": -(back_n * of_gradients + back_p * s.Q + back_q),
        "g_wrap": pixels - of_gradients}
    values: dict[str, Value] = {
        "maps": images, "gradients": "gradients", "out": out, "alpha": ending["alpha"], "beta": ending["beta"],
        "flags": flags | VECTORS * vectors, "m": rows, "n": columns, "terms": terms, "groups": groups,
        "share": -(-groups // splits), "splits": splits, "split_magic": -(-2**31 // splits), "p": s.P,
        "step_p": -back_p % 2**32, "step_q": -back_q % 2**32, "out_row": out_row, "out_batch": out_batch,
        "out_split": s.patch * s.K if splits > 1 else 0,
        **{name: FLOAT_BYTES * count % 2**32 for name, count in nbytes.items()}}
    for name, divisor, limit in (("pq", pixels, GROUP * groups), ("q", s.Q, pixels), ("rs", s.R * s.S, s.patch),
                                 ("s", s.S, s.R * s.S)):
        values[name] = divisor
        values[f"{name}_magic"], values[f"{name}_shift"] = magic(divisor, limit)
    doing = f"{spec.tile[0]} filter elements x {spec.tile[1]} filters each" + ", a part of each sum" * (splits > 1)
    tile_y, tile_x = spec.tile if spec.inner == "k" else spec.tile[::-1]
    most = MAX_BLOCKS // splits
    for first in range(0, s.groups, most):
        count = min(most, s.groups - first)
        grid = -(-columns // tile_x), -(-rows // tile_y), count * splits
        flops = s.flops * (first + count) // s.groups - s.flops * first // s.groups
        once = (s.C * s.H * s.W + s.K * pixels) * s.N * count / s.groups + splits * s.patch * s.K
        work = native_work(spec, -(-groups // splits), grid[0] * grid[1] * grid[2], 0, FLOAT_BYTES * once)
        yield Launch(spec, grid, values | {"first": first}, work, doing, (out,), flops=flops)


def _check_limits(s: ConvShape, area: int, splits: int) -> None:
    within(s, (
        ("maps N x C x H x W with their padding", s.N * s.C * area, _REACH, "elements"),
        ("gradients N x K x P x Q", s.N * s.K * s.P * s.Q, _REACH, "elements"),
        ("terms N x P x Q", s.N * s.P * s.Q + GROUP, MAX_TERMS, "pixels"),
        (f"parts {splits} x C x R x S x K", splits * s.patch * s.K, MAX_ELEMENTS, "elements"),
        ("tiles of 64 elements or filters", max(-(-s.patch // 64), -(-s.K // s.groups // 64)), MAX_GRID_YZ,
         "blocks along y of a grid"),
    ))


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, FiltersKernel)
    (x, y, z), tile = launch.grid, spec.tile if spec.inner == "k" else spec.tile[::-1]
    assert (y, x) == (-(-v["m"] // tile[0]), -(-v["n"] // tile[1])) and v["groups"] == -(-v["terms"] // GROUP)
    signed = {name: v[name] - (v[name] >> 31 << 32) for name in ("i_start", "step_p", "step_q")}
    back = -signed["step_p"], -signed["step_q"]
    whole = (GROUP - back[0] * v["q"] - back[1]) // v["pq"]
    assert v["pq"] == v["p"] * v["q"] and whole * v["pq"] + back[0] * v["q"] + back[1] == GROUP
    for name, value in (("i_step", -(whole * v["i_n"] + back[0] * v["i_p"] + back[1] * v["i_q"])),
                        ("i_wrap_q", v["q"] * v["i_q"] - v["i_p"]), ("i_wrap_p", v["p"] * v["i_p"] - v["i_n"]),
                        ("g_step", -(whole * v["g_n"] + FLOAT_BYTES * (back[0] * v["q"] + back[1]))),
                        ("g_wrap", FLOAT_BYTES * v["pq"] - v["g_n"])):
        assert v[name] == value % 2**32, name
    elements, filters = (v["m"], v["n"]) if spec.inner == "k" else (v["n"], v["m"])
    e, k = np.arange(elements)[:, None], np.arange(filters)[:, None]
    row_i = e // v["rs"] * v["i_c"] + e % v["rs"] // v["s"] * v["i_r"] + e % v["s"] * v["i_s"]
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
        sums = maps[at // FLOAT_BYTES].astype(float) @ gradients[of // FLOAT_BYTES].astype(float).T
        rows = np.arange(v["m"])[:, None]
        where = batch * v["out_batch"] + part * v["out_split"] + rows * v["out_row"] + np.arange(v["n"])
        finish(launch, memory, scalars, where, sums if spec.inner == "k" else sums.T, rows)


FAMILY = Family("filters_nchw", KERNELS, contract, ("filters",), refuses, candidates)
