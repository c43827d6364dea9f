"""Matrix products by square tiles: C = alpha * op(A) op(B) + beta * C, batched, each operand as it lies or transposed,
edges of any size. A sum too long for a grid too small is split, and its parts are added in a fixed order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..chips import Work
from ..kernels import KernelSpec
from ..plans import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, Value, make
from ..problem import Alignment, Operand, Problem
from ..shape import ProductShape
from .family import ADDS, SPLITS, Candidates, Family, Memory, finish, fused, refuses_strided, seen, split_name, within
from .layout import MAX_GRID_YZ, pad, reduce

TEXEL_FLOATS = 4
GROUP = 8
"""Values of k that one loop iteration consumes."""

MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of C in 32 bits
_VECTORS = 4  # flag of the kernels: rows of C begin at multiples of 16 bytes
_TRANSLATED_RESIDENT = {64: 6, 128: 2}  # blocks: ptxas 12.9 takes 142 registers for sm_90, so a scheduler holds 3 warps
_WARPS = 16  # of an SM at a time: the kernels have 128 registers
_LATENCY = 9000  # clocks of a block alone beside its iterations: instructions and first texels from DRAM, last stores

_DOC = """Matrix products of a batch by tiles, or, split, parts of their sums: see product.inc. Grid:
x = ceil(n / tile), y = ceil(m / tile), z = matrices * splits, splits fastest."""


@dataclass(frozen=True)
class ProductKernel(KernelSpec):
    """`tile`: rows and columns of C of a block. `layout`: "n" or "t" for A and for B, as they lie or transposed.
    `slots`: issue slots of a warp for one loop iteration and for the rest. `alone`: clocks of an iteration of a block
    that has an SM for itself and waits for its texels, simulated on gm204. `translated`: slots of the loop as ptxas
    12.9 makes it of the translation for sm_90; a few more or less by what is transposed. `warps`: of an SM at a
    time."""

    tile: int
    layout: str
    slots: tuple[int, int]
    alone: int
    translated: int
    warps: int = _WARPS


def _kernel(tile: int, layout: str, slots: tuple[int, int], turning: int) -> ProductKernel:
    """`turning`: further slots for each operand that memory holds with k innermost."""
    loop, rest = slots
    rest += turning * ((layout[0] == "n") + (layout[1] == "t"))
    return ProductKernel(f"sproduct_{tile}x{tile}_{layout}", f"product_{tile}x{tile}.sass", _DOC, tile, layout,
                         (loop, rest), *((1049, 576) if tile == 128 else (768, 597)))


LAYOUTS = ("nn", "nt", "tn", "tt")
KERNELS = (*(_kernel(128, layout, (519, 261), 11) for layout in LAYOUTS),
           *(_kernel(64, layout, (521, 275), 20) for layout in LAYOUTS))


def _native(layout: str) -> ProductKernel:
    """Machine code of sm_90, 128 x 128 by 128 threads. `alone` as timed on an H200. An operand with k innermost takes
    six stores more."""
    turning = (layout[0] == "n") + (layout[1] == "t")
    loop = 1096 + 6 * turning
    return ProductKernel(f"sm90_product_128x128_{layout}", "hopper/product_128x128.sass", _DOC, 128, layout,
                         (loop, 422 + 22 * turning), 1400, loop, 8)


NATIVE = tuple(_native(layout) for layout in LAYOUTS)
"""For compute capability 9.0 alone: operands by address instead of textures."""


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices in memory: elements from one row to the next and from one matrix to the next. Those that are
    multiplied begin where a texture may, in memory of `elements`, and 4 divides their strides."""

    place: str | Part
    row: int
    batch: int
    elements: int = 0


def candidates(problem: Problem) -> Candidates:
    found: dict[str, Callable[[], Plan]] = {}
    groups = -(-problem.shape.K // GROUP)
    for spec in (*KERNELS, *NATIVE):
        if spec.layout == problem.layout:
            for splits in SPLITS:
                if -(-groups // -(-groups // splits)) == splits:
                    found[split_name(spec, splits)] = partial(_plan, problem, spec, splits)
    return found


def _plan(problem: Problem, spec: ProductKernel, splits: int) -> Plan:
    s: ProductShape = problem.shape
    a, b, out = (problem.operand(role) for role in ("a", "b", "out"))
    m, batch = s.M, s.batch
    if len(b.shape) == 2 and problem.layout[0] == "n":
        m, batch = m * batch, 1  # one matrix on top of the other
    regions: dict[str, int] = {}
    before: list[Launch] = []
    matrices_a = _readable(a, batch, regions, before)
    matrices_b = _readable(b, batch, regions, before)
    size = batch * m * s.N
    _check_limits(s, spec, m, size, matrices_a, matrices_b)
    vectors = out.alignment >= Alignment.VECTOR and s.N % TEXEL_FLOATS == 0
    result, ending = Matrices("out", s.N, m * s.N), fused(problem, 0)
    shape = ProductShape(m, s.N, s.K, batch)
    if splits == 1:
        launches = multiply(spec, shape, matrices_a, matrices_b, result, vectors=vectors, ending=ending)
        return make(problem, "product", spec, (*before, *launches), regions)
    regions["parts"] = FLOAT_BYTES * splits * size
    launches = multiply(spec, shape, matrices_a, matrices_b, Matrices("parts", s.N, m * s.N), splits=splits,
                        vectors=s.N % TEXEL_FLOATS == 0)
    adding = reduce("parts", "out", splits, size, (size, 1, 1), 1, ending)
    why = (f"the sums of {s.K} products are split {splits} ways: {-(-m // spec.tile) * -(-s.N // spec.tile) * batch} "
           "tiles do not fill the chip; the parts are added in a fixed order")
    return make(problem, "product", spec, (*before, *launches, adding), regions, (why,))


def multiply(spec: ProductKernel, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices, *, vectors: bool,
             ending: Mapping[str, Value] | None = None, splits: int = 1) -> list[Launch]:
    """out = what `ending` makes of op(a) op(b) (`fused`; the product itself if None). With splits, `out` has so many
    batches, one after the other, for the parts of the sums. `vectors`: every row of `out` begins at a multiple of 16
    bytes, and 4 divides N."""
    ending = ending or {"flags": 0, "alpha": 1.0, "beta": 0.0}
    tile, groups = spec.tile, -(-shape.K // GROUP)
    a_row, b_row = a.row // TEXEL_FLOATS, b.row // TEXEL_FLOATS
    flags = ending["flags"]
    assert isinstance(flags, int)
    values: dict[str, Value] = {
        "out": out.place, "alpha": ending["alpha"], "beta": ending["beta"], "flags": flags & ADDS | _VECTORS * vectors,
        "m": shape.M, "n": shape.N, "k": shape.K, "groups": groups, "share": -(-groups // splits), "splits": splits,
        "split_magic": -(-2**31 // splits),
        "a_row": a_row, "a_batch": a.batch // TEXEL_FLOATS, "a_step": GROUP * a_row if spec.layout[0] == "t" else 2,
        "b_row": b_row, "b_batch": b.batch // TEXEL_FLOATS, "b_step": GROUP * b_row if spec.layout[1] == "n" else 2,
        "out_row": out.row, "out_batch": out.batch, "out_split": shape.batch * out.batch if splits > 1 else 0}
    doing = f"{tile} x {tile} results each" + (", a part of each sum" if splits > 1 else "")
    if spec.arch:
        values |= {"a": a.place, "b": b.place}
    place = out.place.name if isinstance(out.place, Part) else out.place
    launches, most = [], MAX_GRID_YZ // splits
    for first in range(0, shape.batch, most):
        count = min(most, shape.batch - first)
        grid = (-(-shape.N // tile), -(-shape.M // tile), count * splits)
        part = ProductShape(shape.M, shape.N, shape.K, count)
        work = _work(part, spec, splits, bool(flags & ADDS))
        launches.append(Launch(spec, grid, values | {"first": first}, work, doing, (place,),
                               {} if spec.arch else {"tex_A": a.place, "tex_B": b.place}, flops=part.flops))
    return launches


def _readable(operand: Operand, batch: int, regions: dict[str, int], before: list[Launch]) -> Matrices:
    """The operand as the kernels read it: a copy if its rows do not all begin with a texel."""
    *_, rows, columns = operand.shape
    every = int(np.prod(operand.shape[:-1]))
    place, row = operand.role, columns
    if columns % TEXEL_FLOATS or operand.alignment < Alignment.TEXTURE:
        row = -(-columns // TEXEL_FLOATS) * TEXEL_FLOATS
        place = f"{operand.role}_rows"
        regions[place] = FLOAT_BYTES * every * row
        why = (f"its rows of {columns} do not all begin at multiples of 16 bytes" if columns % TEXEL_FLOATS else
               "it begins where no texture may")
        before.append(pad(place, operand.role, (1, 1, every, columns), (1, every, row), (0, 0),
                          f"{operand.role} is copied: {why}"))
    stacked = len(operand.shape) > 2 and batch > 1
    return Matrices(place, row, rows * row if stacked else 0, every * row)


def _check_limits(s: ProductShape, spec: ProductKernel, m: int, size: int, a: Matrices, b: Matrices) -> None:
    within(s, (
        ("a", a.elements // TEXEL_FLOATS, MAX_TEXELS, "texels of four, the 4 GiB reach of a texture"),
        ("b", b.elements // TEXEL_FLOATS, MAX_TEXELS, "texels of four, the 4 GiB reach of a texture"),
        ("the result", size, MAX_ELEMENTS, "elements"),
        (f"rows of tiles M/{spec.tile}", -(-m // spec.tile), MAX_GRID_YZ, "blocks along y of the grid"),
    ))


def _work(s: ProductShape, spec: ProductKernel, splits: int, adds: bool) -> Work:
    """All slots of all warps; operands and results once, and what results are added to."""
    loop, rest = spec.slots
    groups = -(-s.K // GROUP)
    share = -(-groups // splits)
    warps, tiles = spec.threads // 32, -(-s.M // spec.tile) * -(-s.N // spec.tile) * s.batch
    once = s.batch * (s.M * s.K + s.K * s.N + (splits + adds) * s.M * s.N)
    return Work(tiles * splits, warps * (loop * share + rest), spec.alone * share + _LATENCY, FLOAT_BYTES * once,
                translated=None if spec.arch else warps * (spec.translated * share + rest),
                resident=spec.warps // warps, translated_resident=0 if spec.arch else _TRANSLATED_RESIDENT[spec.tile])


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, ProductKernel)
    x, y, z = launch.grid
    assert (x, y) == (-(-v["n"] // spec.tile), -(-v["m"] // spec.tile)) and v["groups"] == -(-v["k"] // GROUP)
    m, n, k = (np.arange(v[name]) for name in "mnk")
    share = GROUP * v["share"]
    for block in range(z):
        matrix, split = (block * v["split_magic"] >> 31), block % v["splits"]
        assert matrix == block // v["splits"]
        matrix, some = matrix + v["first"], k[split * share:(split + 1) * share]
        assert len(some)
        a = _values(launch, memory, "a", matrix, m, some, spec.layout[0] == "n")
        b = _values(launch, memory, "b", matrix, n, some, spec.layout[1] == "t")
        where = matrix * v["out_batch"] + split * v["out_split"] + m[:, None] * v["out_row"] + n
        finish(launch, memory, scalars, where, a @ b.T, m)


def _values(launch: Launch, memory: Memory, name: str, matrix: int, lines: np.ndarray, k: np.ndarray,
            turned: bool) -> np.ndarray:
    """Rows of A or columns of B, for some values of k."""
    v, spec = launch.numbers, launch.spec
    row, step = v[f"{name}_row"], v[f"{name}_step"]
    assert step == (2 if turned else GROUP * row)
    start = TEXEL_FLOATS * matrix * v[f"{name}_batch"]
    if turned:
        at = TEXEL_FLOATS * row * lines[:, None] + k
    else:
        at = TEXEL_FLOATS * row * k + lines[:, None]
    place = launch.values[name] if spec.arch else launch.textures[f"tex_{name.upper()}"]
    return seen(memory, place)[start + at].astype(float)


FAMILY = Family("product", (*KERNELS, *NATIVE), contract, ("product",), refuses_strided, candidates)
