"""Matrix products on the tensor cores of sm_90, as exact as float32.

Both operands are split in two FP16 numbers, scaled by a power of two for each row (of A; column of B) and each 64
values of k; three of the four products of parts are computed, 64 values of k at a time, and these sums are added by
FFMA. Where numbers of both lie so far below the largest that parts do not hold them, FFMA multiplies these. A is split
beforehand (sass/sm90/split.sass); B too (tensor_product.sass), or, if its columns lie side by side, by the kernel that
multiplies (tensor_float_b.sass)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...planning.cost import SCHEDULERS, Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, begin
from ...problem.problem import Problem
from ...problem.shape import ProductShape
from ..common.epilogue import ADDS, PARTIAL, VECTORS, Epilogue, finish
from ..common.fastdiv import MOST_SHORT, short_magic
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, within
from ..common.schedule import split_name, splits_of, why_split
from ..common.workspace import Draft
from ..spec import Candidates, Family, Memory, seen, strided_reason
from .plan import Matrices, add_parts, destination, stacked

TILE = 128  # rows and columns of a CTA
CHUNK = 64  # values of k that the tensor cores sum before FFMA adds the result
PIECE_BYTES = 34816
"""Of 128 rows and a chunk: high and low parts, factors, their halves, their range."""

_LOW, _FACTORS, _HALVES, _RANGE, _SPREAD = 16384, 32768, 33280, 33792, 33800  # bytes from the begin of a piece
_GROUP_LOG = 3  # most rows of tiles of a group
_MOST_BATCH, _MOST_ROW = 2**30 - 1, 2**28 - 1  # limits of the strides of a B that is split inside the product kernel
_MOST_STEP, _MOST_K_STEP = 2**23 - 1, 2**30 - 1  # of float32 numbers: from row (column of B) to row, from k to k
_FAR, _LEAST_PLACES, _MOST_PLACES = 17, 6, 100  # binary places: see "spread" in split.sass
MOST_SPREAD, FLOAT_B_SPREAD = 2.0**24, 2.0**11
"""Of a product of two spreads, beyond which FFMA multiplies; what those of a B count as that is split on the way: see
tensor_loop.inc, tensor_float_b.sass."""
# Timed on an H200: clocks of a chunk of a tile, and of a tile beside its chunks; of a piece that is split, with others
# on the SM; what of such a launch does not overlap; and the time of its bytes to that in streams of translated kernels.
# Of 212 plans (benchmarks/rankings.py): the share of a tile's clocks that it takes alone, and what is added with all
# SMs: tensor cores draw so much power that SMs slow down.
_CHUNK_CLOCKS, _TILE_CLOCKS = 1850, 4500
_ALONE, _TOGETHER = 0.87, 0.18
_FLOAT_B_CLOCKS = 3500  # of a chunk where B is split on the way: in plans of 16 layers, beside those with pieces
_PIECE_CLOCKS, _PIECE_LATENCY, _PIECE_STREAMS = 1500, 7000, 0.8

SPLIT_DOC = """Splits one operand of a product in FP16 parts: see split.sass. Grid: x = ceil(k / 64),
y = ceil(rows / 128), z = matrices."""
DOC = """Matrix products of operands that were split: see tensor_product.sass. Grid: x = `ctas`, at most one for each
multiprocessor."""
FLOAT_B_DOC = """Matrix products of an operand that was split and one of float32: see tensor_float_b.sass. Grid: x =
`ctas`, at most one for each multiprocessor."""


@dataclass(frozen=True)
class SplitKernel(KernelSpec):
    """`innermost`: whether values of k follow each other in memory, not rows."""

    innermost: bool


class TensorKernel(KernelSpec):
    """A kernel that multiplies parts."""

    arithmetic = "3 FP16 products on tensor cores"


@dataclass(frozen=True)
class Numbers:
    """The float32 numbers of an operand: where, elements from one row (of A; column of B), k and matrix to the next."""

    place: str | Part
    row: int
    k: int
    matrix: int

    def check(self, shape: object, role: str) -> None:
        """Raises ShapeError unless a kernel can address them."""
        within(shape, ((f"elements from one row of {role} to the next", self.row, _MOST_STEP, "elements"),
                       (f"elements from one k of {role} to the next", self.k, _MOST_K_STEP, "elements")))


@dataclass(frozen=True)
class Pieces:
    """An operand that was split: where, pieces from one matrix to the next, bytes. `numbers`: what it was made of, if
    spreads were found."""

    place: str
    batch: int
    nbytes: int
    numbers: Numbers | None = None


NOTE = "an infinity among the operands may give NaN"

ROWS = SplitKernel("sm90_split_rows", "sm90/split.sass", SPLIT_DOC, True)
COLUMNS = SplitKernel("sm90_split_columns", "sm90/split.sass", SPLIT_DOC, False)
PRODUCT = TensorKernel("sm90_tensor_product_128x128", "sm90/tensor_product.sass", DOC)
FLOAT_B = TensorKernel("sm90_tensor_float_b_128x128", "sm90/tensor_float_b.sass", FLOAT_B_DOC)
LABELS = {"tensor_sm90": PRODUCT, "tensor_float_b_sm90": FLOAT_B}  # in names of candidates that multiply planes


def candidates(problem: Problem, chip: Chip) -> Candidates:
    chunks = -(-problem.shape.K // CHUNK)
    specs = (PRODUCT, FLOAT_B) if problem.layout[1] == "n" else (PRODUCT,)
    return {split_name(spec.name, splits): partial(_plan, problem, chip, spec, splits)
            for spec in specs for splits in splits_of(chunks)}


def _plan(problem: Problem, chip: Chip, spec: TensorKernel, splits: int) -> Plan:
    draft, s = Draft(problem), stacked(problem)
    within(problem.shape, (("the result", s.batch * s.M * s.N * splits, MAX_ELEMENTS, "elements"),))
    operands: list[Pieces | Matrices] = []
    for role, rows, innermost in (("a", s.M, problem.layout[0] == "n"), ("b", s.N, problem.layout[1] == "t")):
        row, stacked_too = s.K if innermost else rows, len(problem.operand(role).shape) > 2 and s.batch > 1
        where = Matrices(role, row, rows * s.K if stacked_too else 0)
        operands.append(where if role == "b" and spec is FLOAT_B else split(
            draft, f"{role}_pieces", where, rows, s.K, s.batch if stacked_too else 1, innermost, spreads=True))
    a, b = operands
    assert isinstance(a, Pieces)
    into, vectors, epilogue = destination(draft, splits)
    draft.launches.append(multiply(chip, s, a, b, into, vectors=vectors, epilogue=epilogue, splits=splits))
    if splits > 1:
        add_parts(draft, chip, "out", splits, s.batch * s.M * s.N)
        draft.notes.append(why_split(s.K, splits))
    draft.notes.append(NOTE)
    return draft.plan(FAMILY, spec)


def split(draft: Draft, region: str, source: Matrices, rows: int, k: int, count: int, innermost: bool, *,
          spreads: bool = False) -> Pieces:
    """Adds the launch that splits so many matrices. `innermost`: values of k follow each other, `source.row` is from
    one row (column of B) to the next; else from one k to the next. `spreads` are found, and FFMA multiplies
    what pieces were made of where they are large."""
    x, y = -(-k // CHUNK), -(-rows // TILE)
    draft.region(region, PIECE_BYTES // FLOAT_BYTES * x * y * count)
    within(draft.problem.shape, (("tiles", y, MAX_GRID_YZ, "blocks along y of the grid"),
                                 ("matrices", count, MAX_GRID_YZ, "blocks along z of the grid")))
    values = {"in": source.place, "out": region, "rows": rows, "k": k, "step": source.row, "batch": source.batch,
              "spreads": int(spreads)}
    nbytes = (PIECE_BYTES * x * y + FLOAT_BYTES * rows * k) * count
    work = split_work(x * y * count, nbytes)
    draft.launches.append(Launch(ROWS if innermost else COLUMNS, (x, y, count), values, work,
                                 f"{begin(source.place)[0]} are split in FP16 parts", (region,)))
    numbers = Numbers(source.place, *((source.row, 1) if innermost else (1, source.row)), source.batch)
    return Pieces(region, x * y if count > 1 else 0, PIECE_BYTES * x * y * count, numbers if spreads else None)


def split_work(pieces: int, nbytes: float, clocks: float = _PIECE_CLOCKS) -> Work:
    """The work of a launch that makes so many pieces, at so many clocks each."""
    return Work(pieces, _PIECE_STREAMS * nbytes, Cost(SCHEDULERS * clocks, _PIECE_LATENCY))


def tile_work(tiles: int, clocks: float, nbytes: float, chip: Chip) -> Work:
    """The work of a launch that multiplies so many tiles, at so many clocks each."""
    clocks *= _ALONE + _TOGETHER * min(1, tiles / chip.sms)
    return Work(tiles, nbytes, Cost(SCHEDULERS * clocks, clocks, 1), warps=12)


def multiply(chip: Chip, s: ProductShape, a: Pieces, b: Pieces | Matrices, out: Matrices, *, vectors: bool,
             epilogue: Epilogue = PARTIAL, splits: int = 1) -> Launch:
    """out = what `epilogue` makes of the products (those themselves by default). B as float32 numbers has its columns
    side by side, rows `b.row` apart. With splits, `out` has so many batches one after the other, for parts of the sums,
    of `out.elements` each if matrices do not follow each other. `vectors`: as gemm.plan.multiply has it."""
    order = tiles_of(s, (s.M, s.N, -(-s.K // CHUNK)), s.batch, splits, chip)
    tiles = order["tiles"]
    if isinstance(b, Pieces):
        spec, clocks, b_bytes = PRODUCT, _CHUNK_CLOCKS, b.nbytes
        of_b = {"k": s.K, **_numbers(s, "b", "column", b.numbers)}
    else:
        within(s, (("elements from one B to the next", b.batch, _MOST_BATCH, "elements"),
                   ("elements from one row of B to the next", b.row, _MOST_ROW, "elements")))
        spec, clocks, b_bytes = FLOAT_B, _FLOAT_B_CLOCKS, FLOAT_BYTES * s.batch * s.K * s.N
        of_b = {"k": s.K, "b_row": b.row}
    values = {
        "a": a.place, "b": b.place, "out": out.place, **epilogue.values(VECTORS * vectors), **order, **of_b,
        **_numbers(s, "a", "row", a.numbers), "most_spread": MOST_SPREAD if a.numbers else math.inf,
        "a_batch": a.batch, "b_batch": b.batch, "out_row": out.row, "out_batch": out.batch,
        "out_split": (out.elements or s.batch * out.batch) if splits > 1 else 0}
    nbytes = a.nbytes + b_bytes + FLOAT_BYTES * s.batch * s.M * s.N * (splits + bool(epilogue.flags & ADDS))
    work = tile_work(tiles, clocks * order["share"] + _TILE_CLOCKS, nbytes, chip)
    doing = f"{TILE} x {TILE} results each, three products of FP16 parts" + ", a part of each sum" * (splits > 1)
    return Launch(spec, (order["ctas"], 1, 1), values, work, doing, (begin(out.place)[0],), flops=s.flops)


def _numbers(shape: object, role: str, row: str, numbers: Numbers | None) -> dict[str, Value]:
    """Parameters: the float32 numbers of an operand, or that there are none."""
    if numbers is None:
        return {f"{role}_{name}": 0 for name in ("values", row, "k", "matrix")}
    numbers.check(shape, role)
    return {f"{role}_values": numbers.place, f"{role}_{row}": numbers.row, f"{role}_k": numbers.k,
            f"{role}_matrix": numbers.matrix}


def multiply_maps(draft: Draft, chip: Chip, spec: TensorKernel, filters: Pieces, s: ProductShape, maps: Matrices,
                  out: Matrices) -> None:
    """The launches of out = filters maps by such a kernel, for planes of maps as float32 numbers: one that splits them,
    unless the kernel does, and one that multiplies."""
    b = maps if spec is FLOAT_B else split(draft, "map_pieces", maps, s.N, s.K, s.batch, False)
    draft.launches.append(multiply(chip, s, filters, b, out, vectors=True))


def multiply_planes(draft: Draft, chip: Chip, s: ProductShape, a: Matrices, b: Matrices, out: Matrices, *,
                    vectors: bool, splits: int = 1) -> None:
    """The launches of out = a b for float32 operands that both have values of k innermost: two that split them, one
    that multiplies."""
    first, second = (split(draft, f"{operand}_pieces", source, rows, s.K, s.batch, True)
                     for operand, source, rows in (("a", a, s.M), ("b", b, s.N)))
    draft.launches.append(multiply(chip, s, first, second, out, vectors=vectors, splits=splits))


def tiles_of(shape: object, sizes: tuple[int, int, int], matrices: int, splits: int, chip: Chip) -> dict[str, int]:
    """Parameters: the sizes M, N and chunks of a product, its tiles, and the order in which CTAs take them."""
    m, n, chunks = sizes
    tiles_m, tiles_n = -(-m // TILE), -(-n // TILE)
    tiles = tiles_m * tiles_n * splits * matrices
    within(shape, (("tiles", tiles, MOST_SHORT, "that are counted by multiplication"),))
    group_log = max(log for log in range(_GROUP_LOG + 1) if tiles_m % (1 << log) == 0)
    groups = tiles_m >> group_log
    ctas = min(tiles, chip.sms)
    if ctas % 2 == 0 and ctas < tiles and group_log and 0 < m % TILE <= TILE // 2:
        ctas -= 1  # or some CTAs would have all the tiles of few rows, which are done sooner
    return {"m": m, "n": n, "chunks": chunks, "share": -(-chunks // splits), "tiles": tiles,
            "ctas": ctas, "tiles_m": tiles_m, "tiles_n": tiles_n,
            "tiles_n_magic": short_magic(tiles_n), "group_log": group_log, "groups": groups,
            "groups_magic": short_magic(groups), "splits": splits, "split_magic": short_magic(splits)}


# --- What the kernels promise ---

def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    (_split_reference if isinstance(launch.spec, SplitKernel) else _product_reference)(launch, memory, scalars)


def _split_reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers
    x, y, z = launch.grid
    source, into = seen(memory, launch.values["in"]), seen(memory, launch.values["out"]).view(np.uint8)
    r, k = np.arange(v["rows"])[:, None], np.arange(v["k"])
    for matrix in range(z):
        at = matrix * v["batch"] + (r * v["step"] + k if launch.spec is ROWS else k * v["step"] + r)
        write_pieces(into, (x, y), matrix, source[at])
        _write_spreads(into, (x, y), matrix, source[at], bool(v["spreads"]))


def write_pieces(into: np.ndarray, grid: tuple[int, int], matrix: int, values: np.ndarray,
                 order: slice | np.ndarray = slice(None)) -> None:
    """The pieces of one of the matrices that lie in bytes `into`, each of grid[0] x grid[1] pieces. `order`: which of a
    piece's 64 values of k come one after the other."""
    for piece, some in _each(into, grid, matrix, values):
        piece[:] = _piece(some[:, order], piece)


def _write_spreads(into: np.ndarray, grid: tuple[int, int], matrix: int, values: np.ndarray, found: bool) -> None:
    for piece, some in _each(into, grid, matrix, values):
        piece[_SPREAD:_SPREAD + 4].view(np.float32)[:] = spread(some) if found else 2.0**_LEAST_PLACES


def _each(into: np.ndarray, grid: tuple[int, int], matrix: int,
          values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each piece of a matrix, and the numbers that it is made of."""
    x, y = grid
    padded = np.zeros((TILE * y, CHUNK * x), np.float32)
    padded[:values.shape[0], :values.shape[1]] = values
    begin = PIECE_BYTES * x * y * matrix
    pieces = into[begin:begin + PIECE_BYTES * x * y].reshape(y, x, PIECE_BYTES)
    for row, chunk in np.ndindex(y, x):
        yield pieces[row, chunk], padded[TILE * row:TILE * (row + 1), CHUNK * chunk:CHUNK * (chunk + 1)]


def spread(values: np.ndarray) -> float:
    """The largest of rows of float32 numbers: see split.sass."""
    exponents, there = (values.view(np.uint32) << 1 >> 24).astype(int), values != 0
    far = np.where(there, exponents.max(axis=1, keepdims=True) - exponents, 0)
    mean = np.where((far > _FAR).any(axis=1), far.sum(axis=1) // np.maximum(there.sum(axis=1), 1), 0)
    return float(2.0**mean.max().clip(_LEAST_PLACES, _MOST_PLACES))


def _piece(values: np.ndarray, before: np.ndarray) -> np.ndarray:
    """128 x 64 float32 numbers, split: the bytes of a piece. Rows beyond its range keep their bytes, `before`."""
    most = np.abs(values).view(np.uint32).max(axis=1)
    exponent = np.where(most == 0, 0, 141 - (most >> 23).astype(int))  # the scale is 2 to the power of it
    first = exponent >> 1
    half = np.ldexp(np.float32(1), -first)
    factor = np.ldexp(half, first - exponent).astype(np.float32)
    scaled = np.ldexp(np.ldexp(values, first[:, None]), (exponent - first)[:, None]).astype(np.float32)
    high = scaled.astype(np.float16)
    with np.errstate(invalid="ignore"):
        low = (scaled - high.astype(np.float32)).astype(np.float16)
    seen_rows = factor[most != 0]
    found = before.copy()
    at = _places()
    found[:_LOW].view(np.float16)[at] = high
    found[_LOW:_FACTORS].view(np.float16)[at] = low
    found[_FACTORS:_HALVES].view(np.float32)[:], found[_HALVES:_RANGE].view(np.float32)[:] = factor, half
    found[_RANGE:_RANGE + 8].view(np.float32)[:] = (seen_rows.min(initial=np.inf), seen_rows.max(initial=0))
    return found


def _places() -> np.ndarray:
    """Where in a part value k of row r lies."""
    r, k = np.arange(TILE)[:, None], np.arange(CHUNK)
    places: np.ndarray = CHUNK * r + 8 * (k // 8 ^ r % 8) + k % 8
    return places


def _product_reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers
    matrices = v["tiles"] // (v["tiles_m"] * v["tiles_n"] * v["splits"])
    assert v["tiles_m"] == v["groups"] << v["group_log"] and launch.grid == (v["ctas"], 1, 1)
    m, n = np.arange(v["m"])[:, None], np.arange(v["n"])
    for matrix in range(matrices):
        a, b = _multiplied(memory, launch, matrix)
        for split in range(v["splits"]):
            k = slice(CHUNK * v["share"] * split, CHUNK * v["share"] * (split + 1))
            where = matrix * v["out_batch"] + split * v["out_split"] + m * v["out_row"] + n
            finish(launch, memory, scalars, where, a[:v["m"], k] @ b[:v["n"], k].T, m)


def _multiplied(memory: Memory, launch: Launch, matrix: int) -> list[np.ndarray]:
    """Rows of A and columns of B as they are multiplied: the float32 numbers if the launch has them, which pieces
    represent as well as float32 does where FFMA does not multiply; else what pieces represent."""
    v, found = launch.numbers, []
    for role, row, size in (("a", "row", "m"), ("b", "column", "n")):
        if role == "b" and launch.spec is FLOAT_B:
            found.append(_numbers_of(memory, launch, matrix, "b", (v["b_batch"], 1, v["b_row"]), size))
        elif launch.values[f"{role}_values"]:
            steps = v[f"{role}_matrix"], v[f"{role}_{row}"], v[f"{role}_k"]
            found.append(_numbers_of(memory, launch, matrix, f"{role}_values", steps, size))
        else:
            found.append(_restored(memory, launch, role, matrix))
    return found


def _numbers_of(memory: Memory, launch: Launch, matrix: int, name: str, steps: tuple[int, int, int],
                size: str) -> np.ndarray:
    """The float32 numbers of a matrix, with zeros to a multiple of a chunk; elements from one matrix, row and k to the
    next."""
    v = launch.numbers
    at = matrix * steps[0] + np.arange(v[size])[:, None] * steps[1] + np.arange(v["k"]) * steps[2]
    found = np.zeros((v[size], CHUNK * v["chunks"]))
    found[:, :v["k"]] = seen(memory, launch.values[name])[at]
    return found


def _restored(memory: Memory, launch: Launch, role: str, matrix: int) -> np.ndarray:
    """The float32 numbers that pieces represent."""
    v = launch.numbers
    tiles, chunks = v["tiles_m" if role == "a" else "tiles_n"], v["chunks"]
    data, first = seen(memory, launch.values[role]).view(np.uint8), matrix * v[f"{role}_batch"]
    found = [np.concatenate([restored(data, first + row * chunks + chunk) for chunk in range(chunks)], 1)
             for row in range(tiles)]
    return np.concatenate(found)


def restored(pieces: np.ndarray, number: int) -> np.ndarray:
    """The 128 x 64 float32 numbers that one of the pieces in these bytes represents."""
    one, at = pieces[PIECE_BYTES * number:][:PIECE_BYTES], _places()
    high, low = (one[part:part + _LOW].view(np.float16)[at].astype(float) for part in (0, _LOW))
    found: np.ndarray = one[_FACTORS:_HALVES].view(np.float32)[:, None] * (high + low)
    return found


FAMILY = Family("tensor product", (ROWS, COLUMNS, PRODUCT, FLOAT_B), reference, ("product",), strided_reason,
                candidates)
