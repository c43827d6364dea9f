"""Operands of products on the tensor cores of sm_90 (tensor_cores.py) made of maps: what the taps of filters meet at
each output pixel, split in two FP16 numbers (sass/sm90/split_patches.sass)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...build.interface import KernelSpec
from ...planning.plan import FLOAT_BYTES, Launch, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common import layout
from ..common.fastdiv import digits, divisor, quotient
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, within
from ..common.workspace import Draft
from ..spec import Memory, seen, signed
from .tensor_cores import CHUNK, PIECE_BYTES, TILE, Pieces, split_work, write_pieces

_MOST = 2**31 - 1
_MOST_SIDE = 2**29
"""Rows or columns of a map with what taps reach: those that are nowhere are 2^30 or 2^31 further."""

# Clocks of a piece: issue slots of a scheduler, 1300 (of windows 1500), counted in the source, and what an SM that is
# not full leaves. On an H200 the gradients of filters of fifteen layers took 0.83 to 1.1 times what this promises;
# windows, with strides of 2 and 4, 2080 clocks.
_PIECE_CLOCKS, _WINDOW_CLOCKS = 1700, 2080

DOC = """Splits patches of maps in FP16 parts, as an operand of a product: see split_patches.sass. Grid:
x = ceil(k / 64), y = ceil(rows / 128), z = matrices."""

PIXEL = np.arange(CHUNK) // 2 + CHUNK // 2 * (np.arange(CHUNK) % 2)
"""Of value k of a piece whose k is pixels: which of its 64."""


@dataclass(frozen=True)
class PatchKernel(KernelSpec):
    """`windows`: whether its rows are output pixels and values of k elements (c, r, s) of filters, not the other way
    round."""

    windows: bool


PATCHES = PatchKernel("sm90_split_patches", "sm90/split_patches.sass", DOC, False)
WINDOWS = PatchKernel("sm90_split_windows", "sm90/split_patches.sass", DOC, True)


def split_patches(draft: Draft, spec: PatchKernel, role: str, s: ConvShape) -> Pieces:
    """Adds the launch that splits the patches of these maps that a layer's filters meet: a matrix for each group; or,
    of windows, which serve one group, in N,C,H,W for each image."""
    lies = layout.operand(draft.problem, role, s.N, s.C, s.H, s.W)
    pixels, matrices, batch = s.N * s.P * s.Q, s.groups, s.C // s.groups * lies["C"]
    if spec.windows:
        assert s.groups == 1
        matrices, batch = (s.N, lies["N"]) if draft.problem.layout == "NCHW" else (1, 0)
        pixels //= matrices
    rows, k = (pixels, s.patch) if spec.windows else (s.patch, pixels)
    chunks, tiles = -(-k // CHUNK), -(-rows // TILE)
    _check_limits(s, lies, tiles, matrices)
    region = draft.region(f"{role}_pieces", PIECE_BYTES // FLOAT_BYTES * chunks * tiles * matrices)
    values: dict[str, Value] = {
        "in": role, "out": region, "rows": rows, "k": k, "batch": batch, **divisor("rs", s.R * s.S, s.patch),
        **divisor("s", s.S, s.R * s.S), **_walk(draft.problem, s, lies, pixels)}
    count = chunks * tiles * matrices
    work = split_work(count, PIECE_BYTES * count + FLOAT_BYTES * s.N * s.C * s.H * s.W,
                      _WINDOW_CLOCKS if spec.windows else _PIECE_CLOCKS)
    doing = f"{role} are split in FP16 parts" + f", one for each of {s.R} x {s.S} taps" * (s.R * s.S > 1)
    draft.launches.append(Launch(spec, (chunks, tiles, matrices), values, work, doing, (region,)))
    return Pieces(region, chunks * tiles if matrices > 1 else 0, PIECE_BYTES * count)


def _walk(problem: Problem, s: ConvShape, lies: layout.Layout, pixels: int) -> dict[str, Value]:
    """Parameters: the elements that pixels and taps meet, pixels in the order of the layout. Steps along an axis of one
    pixel or tap are 0: they may be beyond any map."""
    str_h, str_w = s.str_h if s.P > 1 else 0, s.str_w if s.Q > 1 else 0
    dil_h, dil_w = s.dil_h if s.R > 1 else 0, s.dil_w if s.S > 1 else 0
    of = {"n": (lies["N"], 0, 0), "p": (str_h * lies["H"], str_h, 0), "q": (str_w * lies["W"], 0, str_w)}
    order, sizes = ("qpn", (s.Q, s.P)) if problem.layout == "NCHW" else ("nqp", (s.N, s.Q))
    (i0_step, _, w0), (i1_step, h1, w1), (i2_step, h2, _) = (of[axis] for axis in order)
    return {**divisor("d0", sizes[0], pixels), **divisor("d1", sizes[1], pixels), "h": s.H, "w": s.W,
            "i0_step": i0_step, "i1_step": i1_step, "i2_step": i2_step, "h1": h1, "h2": h2, "w0": w0, "w1": w1,
            "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32, "dil_h": dil_h, "dil_w": dil_w,
            "c_step": lies["C"], "r_step": dil_h * lies["H"], "s_step": dil_w * lies["W"],
            "before": s.pad_h * lies["H"] + s.pad_w * lies["W"]}


def _check_limits(s: ConvShape, lies: layout.Layout, tiles: int, matrices: int) -> None:
    before = s.pad_h * lies["H"] + s.pad_w * lies["W"]
    within(s, (
        ("pixels N x P x Q", s.N * s.P * s.Q, _MOST - TILE, "pixels"),
        ("rows of a padded map", s.H + 2 * s.pad_h, _MOST_SIDE, "rows"),
        ("columns of a padded map", s.W + 2 * s.pad_w, _MOST_SIDE, "columns"),
        ("padding before a map", before, _MOST, "elements"),
        ("maps with padding", lies.extent + 2 * before, MAX_ELEMENTS, "elements"),
        ("tiles of 128 rows", tiles, MAX_GRID_YZ, "blocks along y of a grid"),
        ("groups, or images", matrices, MAX_GRID_YZ, "blocks along z of a grid"),
    ))


# --- What the kernels promise ---

def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v, spec = launch.numbers | signed(launch, "start_h", "start_w"), launch.spec
    assert isinstance(spec, PatchKernel)
    chunks, tiles, matrices = launch.grid
    assert (chunks, tiles) == (-(-v["k"] // CHUNK), -(-v["rows"] // TILE))
    source, into = seen(memory, launch.values["in"]), seen(memory, launch.values["out"]).view(np.uint8)
    elements, pixels = np.arange(v["rows"])[:, None], np.arange(v["k"])
    if spec.windows:
        elements, pixels = pixels, elements
    c, r = quotient(v, "rs", elements), quotient(v, "s", elements % v["rs"])
    s, (i0, i1, i2) = elements % v["s"], digits(v, pixels)
    h = i1 * v["h1"] + i2 * v["h2"] + v["start_h"] + r * v["dil_h"]
    w = i0 * v["w0"] + i1 * v["w1"] + v["start_w"] + s * v["dil_w"]
    inside = (h >= 0) & (h < v["h"]) & (w >= 0) & (w < v["w"])
    at = (i0 * v["i0_step"] + i1 * v["i1_step"] + i2 * v["i2_step"] + c * v["c_step"] + r * v["r_step"]
          + s * v["s_step"] - v["before"])
    for matrix in range(matrices):
        values = np.where(inside, source[np.where(inside, at + matrix * v["batch"], 0)], 0)
        write_pieces(into, (chunks, tiles), matrix, values, slice(None) if spec.windows else PIXEL)
