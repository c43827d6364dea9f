"""Gradients of filters on the tensor cores of sm_90, as exact as float32: the product of gradients and patches of maps,
both split in two FP16 numbers beforehand, by the kernel of products (gemm/tensor_cores.py). Rows of patches are
elements (c, r, s) in the order of the filters, so that the product is the result as it lies."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..common import layout
from ..common.epilogue import PARTIAL, epilogue
from ..common.fastdiv import digits, divisor, quotient
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, within
from ..common.workspace import Draft
from ..gemm.plan import Matrices
from ..gemm.tensor_cores import CHUNK, NOTE, PIECE_BYTES, PRODUCT, TILE, Pieces, multiply, piece
from ..memory_ops.plan import reduce_many
from ..spec import Candidates, Family, Memory, seen, signed, strided_reason
from .plan import filling_splits

FEWEST = 32
"""Filters of a group, and elements (c, r, s) of one, of which 128 make a tile."""

NAME = "sm90_tensor_filters_128x128"
"""Of the candidate with whole sums."""

LONGEST = 8192
"""Pixels of a sum, if splits allow: FFMA adds 128 sums of 64. Four times as many come 1.3e-6 of the sum of |terms| off
where all terms are positive; these come 4.6e-7 off."""

_MOST = 2**31 - 1
_MOST_SIDE = 2**29
"""Rows or columns of a map with what taps reach: those that are nowhere are 2^30 or 2^31 further."""

# Clocks of a piece: issue slots of a scheduler, 1300, counted in the source, and what an SM that is not full leaves;
# the latency is that of gemm/tensor_cores.py. Fifteen layers on an H200 took 0.83 to 1.1 times what this promises.
_PIECE_CLOCKS, _PIECE_LATENCY = 1700, 7000

DOC = """Splits patches of maps in FP16 parts, as an operand of a product: see split_patches.sass. Grid:
x = ceil(k / 64), y = ceil(rows / 128), z = groups of the layer."""

PATCHES = KernelSpec("sm90_split_patches", "sm90/split_patches.sass", DOC)

_PIXEL = np.arange(CHUNK) // 2 + CHUNK // 2 * (np.arange(CHUNK) % 2)
"""Of a piece's value k: the pixel, of its 64."""


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    for count, what in ((s.K // s.groups, "filters"), (s.patch, "elements C x R x S")):
        if count < FEWEST:
            return f"{count} {what} of a group, fewer than {FEWEST}"
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s, found = _product(problem), dict[str, Callable[[], Plan]]()
    tiles = -(-s.M // TILE) * -(-s.N // TILE) * s.batch
    for splits in filling_splits(-(-s.K // CHUNK), CHUNK, tiles, chip.sms, LONGEST):
        found[NAME if splits == 1 else f"{NAME}_split{splits}"] = partial(_plan, problem, chip, splits)
    return found


def _product(problem: Problem) -> ProductShape:
    """Of a group: rows and columns as they lie in the result, sums over pixels."""
    s: ConvShape = problem.shape
    rows, columns = s.K // s.groups, s.patch
    if problem.layout == "CHWN":
        rows, columns = columns, rows
    return ProductShape(rows, columns, s.N * s.P * s.Q, s.groups)


def _plan(problem: Problem, chip: Chip, splits: int) -> Plan:
    s: ConvShape = problem.shape
    draft, product, size = Draft(problem), _product(problem), s.patch * s.K
    within(s, ((f"parts {splits} x C x R x S x K", splits * size, MAX_ELEMENTS, "elements"),))
    a = patches(draft, "gradients", ConvShape(s.N, s.K, s.P, s.Q, s.groups, 1, 1, groups=s.groups))
    b = patches(draft, "images", s)
    into = "out" if splits == 1 else draft.region("parts", splits * size)
    out = Matrices(into, s.patch, s.K // s.groups * s.patch, size)
    if problem.layout == "CHWN":
        a, b = b, a
        out = Matrices(into, s.K, s.K // s.groups, size)
    vectors = (not any(x % TEXEL_FLOATS for x in (out.row, out.batch, product.N))
               and (splits > 1 or problem.operand("out").alignment >= Alignment.VECTOR))
    launch = multiply(chip, product, a, b, out, vectors=vectors, splits=splits,
                      ending=epilogue(problem) if splits == 1 else PARTIAL)
    # The scaling by alpha counts as one more product, as in every convolution.
    draft.launches.append(replace(launch, flops=s.flops))
    if splits > 1:
        draft.add(reduce_many("parts", "out", splits, size, epilogue(problem), draft.region))
        draft.notes.append(f"the sums of {product.K} products are split {splits} ways; the parts are added in a fixed "
                           "order")
    draft.notes.append(NOTE)
    return draft.plan(FAMILY.name, PRODUCT)


def patches(draft: Draft, role: str, s: ConvShape) -> Pieces:
    """Adds the launch that splits the patches of these maps that a layer's filters meet, a matrix for each group."""
    lies = layout.operand(draft.problem, role, s.N, s.C, s.H, s.W)
    pixels, chunks, tiles = s.N * s.P * s.Q, -(-s.N * s.P * s.Q // CHUNK), -(-s.patch // TILE)
    _check_limits(s, lies, tiles)
    region = draft.region(f"{role}_pieces", PIECE_BYTES // FLOAT_BYTES * chunks * tiles * s.groups)
    values: dict[str, Value] = {
        "in": role, "out": region, "rows": s.patch, "k": pixels, "batch": s.C // s.groups * lies["C"],
        **divisor("rs", s.R * s.S, s.patch), **divisor("s", s.S, s.R * s.S), **_walk(draft.problem, s, lies)}
    count = chunks * tiles * s.groups
    work = Work(count, PIECE_BYTES * count + FLOAT_BYTES * s.N * s.C * s.H * s.W,
                Cost(SCHEDULERS * _PIECE_CLOCKS, _PIECE_LATENCY))
    doing = f"{role} are split in FP16 parts" + f", one for each of {s.R} x {s.S} taps" * (s.R * s.S > 1)
    draft.launches.append(Launch(PATCHES, (chunks, tiles, s.groups), values, work, doing, (region,)))
    return Pieces(region, chunks * tiles if s.groups > 1 else 0, PIECE_BYTES * count)


def _walk(problem: Problem, s: ConvShape, lies: layout.Layout) -> dict[str, Value]:
    """Parameters: the elements that pixels and taps meet, pixels in the order of the layout. Steps along an axis of one
    pixel or tap are 0: they may be beyond any map."""
    str_h, str_w = s.str_h if s.P > 1 else 0, s.str_w if s.Q > 1 else 0
    dil_h, dil_w = s.dil_h if s.R > 1 else 0, s.dil_w if s.S > 1 else 0
    of = {"n": (lies["N"], 0, 0), "p": (str_h * lies["H"], str_h, 0), "q": (str_w * lies["W"], 0, str_w)}
    order, sizes = ("qpn", (s.Q, s.P)) if problem.layout == "NCHW" else ("nqp", (s.N, s.Q))
    (i0_step, _, w0), (i1_step, h1, w1), (i2_step, h2, _) = (of[axis] for axis in order)
    pixels = s.N * s.P * s.Q
    return {**divisor("d0", sizes[0], pixels), **divisor("d1", sizes[1], pixels), "h": s.H, "w": s.W,
            "i0_step": i0_step, "i1_step": i1_step, "i2_step": i2_step, "h1": h1, "h2": h2, "w0": w0, "w1": w1,
            "start_h": -s.pad_h % 2**32, "start_w": -s.pad_w % 2**32, "dil_h": dil_h, "dil_w": dil_w,
            "c_step": lies["C"], "r_step": dil_h * lies["H"], "s_step": dil_w * lies["W"],
            "before": s.pad_h * lies["H"] + s.pad_w * lies["W"]}


def _check_limits(s: ConvShape, lies: layout.Layout, tiles: int) -> None:
    within(s, (
        ("pixels N x P x Q", s.N * s.P * s.Q, _MOST - CHUNK, "pixels"),
        ("rows of a padded map", s.H + 2 * s.pad_h, _MOST_SIDE, "rows"),
        ("columns of a padded map", s.W + 2 * s.pad_w, _MOST_SIDE, "columns"),
        ("padding before a map", s.pad_h * lies["H"] + s.pad_w * lies["W"], _MOST, "elements"),
        ("maps with padding", s.N * s.C * s.H * s.W + 2 * (s.pad_h * lies["H"] + s.pad_w * lies["W"]), MAX_ELEMENTS,
         "elements"),
        ("tiles of 128 elements or filters", tiles, MAX_GRID_YZ, "blocks along y of a grid"),
        ("groups", s.groups, MAX_GRID_YZ, "blocks along z of a grid"),
    ))


# --- What the kernel promises ---

def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers | signed(launch, "start_h", "start_w")
    chunks, tiles, groups = launch.grid
    assert (chunks, tiles) == (-(-v["k"] // CHUNK), -(-v["rows"] // TILE))
    source, into = seen(memory, launch.values["in"]), seen(memory, launch.values["out"]).view(np.uint8)
    row = np.arange(v["rows"])[:, None]
    c = quotient(v, "rs", row)
    r = quotient(v, "s", row % v["rs"])
    s = row % v["s"]
    i0, i1, i2 = digits(v, np.arange(v["k"]))
    h = i1 * v["h1"] + i2 * v["h2"] + v["start_h"] + r * v["dil_h"]
    w = i0 * v["w0"] + i1 * v["w1"] + v["start_w"] + s * v["dil_w"]
    inside = (h >= 0) & (h < v["h"]) & (w >= 0) & (w < v["w"])
    at = (i0 * v["i0_step"] + i1 * v["i1_step"] + i2 * v["i2_step"] + c * v["c_step"] + r * v["r_step"]
          + s * v["s_step"] - v["before"])
    for group in range(groups):
        values = np.zeros((TILE * tiles, CHUNK * chunks), np.float32)
        values[:v["rows"], :v["k"]] = np.where(inside, source[np.where(inside, at + group * v["batch"], 0)], 0)
        begin = PIECE_BYTES * chunks * tiles * group
        pieces = into[begin:begin + PIECE_BYTES * chunks * tiles].reshape(tiles, chunks, PIECE_BYTES)
        for tile, chunk in np.ndindex(tiles, chunks):
            some = values[TILE * tile:TILE * (tile + 1), CHUNK * chunk:CHUNK * (chunk + 1)]
            pieces[tile, chunk] = piece(some[:, _PIXEL], pieces[tile, chunk])


FAMILY = Family("tensor filters", (PATCHES,), reference, ("filters",), unsupported_reason, candidates)
