"""Matrix products by tiles: C = alpha * op(A) op(B) + beta * C, batched, each operand as it lies or transposed,
edges of any size. A sum too long for a grid too small is split, and its parts are added in a fixed order."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...planning.cost import SCHEDULERS, Work
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, Value, make
from ...problem.problem import Alignment, Operand, Problem
from ...problem.shape import ProductShape
from ..common.schedule import Blocks, neighbours
from ..memory_ops.plan import MAX_GRID_YZ, pad, reduce
from ..spec import ADDS, SPLITS, Candidates, Family, Memory, finish, fused, refuses_strided, seen, split_name, within

TEXEL_FLOATS = 4
GROUP = 8
"""Values of k that one loop iteration consumes."""

MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of C in 32 bits
_VECTORS = 4  # flag of the kernels: rows of C begin at multiples of 16 bytes
_TRANSLATED_RESIDENT = {64: 6, 128: 2}  # blocks: ptxas 12.9 takes 142 registers for sm_90, so a scheduler holds 3 warps
_WARPS = 16  # of an SM at a time: the kernels have 128 registers
_SMS, _DRAM = 132, 2431  # of an H200, whose tails are cut: multiprocessors, bytes of memory a clock
_SECOND_LAUNCH = 15000  # clocks on an H200: a call of two launches takes the host 7.8 us more than one of one
_TRANSLATED_RUN = {128: 1600, 64: 800}
# by tile: slots of a warp of a translation for each further run, timed on an H200 beside the same sums in slices
_PART_CLOCKS = 3000  # beside its share of the loop
_TURN = {64: 6000, 128: 10000}  # clocks of a wave of blocks of an H200 when none issue, by tile
_FLOWING = 1500  # the same where blocks of two warps end one by one
_LATENCY = 9000  # clocks of a block alone beside its iterations: instructions and first texels from DRAM, last stores

_DOC = """Matrix products of a batch by tiles, or, split, parts of their sums: see product.inc. Grid:
x = ceil(n / columns of a tile), y = ceil(m / rows), z = matrices * splits, splits fastest; with a tail, y = rows of
whole tiles + parts * rows of the tail's."""


@dataclass(frozen=True)
class ProductKernel(KernelSpec):
    """`tile`: columns of C of a block, and rows, if `high` is 0. `layout`: "n" or "t" for A and for B, as they lie or
    transposed. `slots`: issue slots of a warp for one loop iteration and for the rest. `alone`: clocks of an iteration
    of a block that has an SM for itself and waits for its texels, simulated on gm204. `translated`: slots of the loop
    as ptxas 12.9 makes it of the translation for sm_90; a few more or less by what is transposed. `warps`: of an SM at
    a time. `slices`: of a block, each of which has the sums of a part of k; they are added through shared memory.
    `pace`: slots that a scheduler of a filled SM issues in a clock, timed on an H200; `turn`: clocks of a wave of
    blocks when none are issued, likewise. `between`: slots of a warp for a second run of a sum, and for each one more;
    `waits`: clocks of a block alone for the same, likewise; on sm_90 runs are launches of their own."""

    tile: int
    layout: str
    slots: tuple[int, int]
    between: tuple[int, int]
    waits: tuple[int, int]
    alone: int
    translated: int
    warps: int = _WARPS
    slices: int = 1
    pace: float = 1
    high: int = 0
    turn: int = 0

    @property
    def rows(self) -> int:
        """Rows of C of a block."""
        return self.high or self.tile

    @property
    def label(self) -> str:
        """In names of the candidates of other families."""
        tile = f"{self.high}x{self.tile}" if self.high else f"{self.tile}"
        return tile + f"x{self.slices}" * (self.slices > 1) + "_sm90" * bool(self.arch)

    def share(self, k: int, splits: int) -> int:
        """Groups of a slice for sums of `k` products."""
        groups = -(-k // GROUP)
        return -(-groups // (splits * self.slices))

    def splits(self, k: int) -> tuple[int, ...]:
        """In how many parts the sums of `k` products can be computed by blocks, none of which is without any."""
        return tuple(n for n in SPLITS if -(-k // (GROUP * self.slices * self.share(k, n))) == n)


def _kernel(tile: int, layout: str, slots: tuple[int, int], between: tuple[int, int], turning: int) -> ProductKernel:
    """`turning`: further slots for each operand that memory holds with k innermost; of them between runs, a store for
    each of 32 values of k."""
    (loop, rest), turned = slots, (layout[0] == "n") + (layout[1] == "t")
    stores = (6 if tile == 64 else 3) * turned
    return ProductKernel(f"sproduct_{tile}x{tile}_{layout}", f"product_{tile}x{tile}.sass", _DOC, tile, layout,
                         (loop, rest + turning * turned), (between[0] + stores, between[1] + stores),
                         *(((7000, 6150), 1049, 576) if tile == 128 else ((4250, 3500), 768, 597)), turn=_TURN[tile])


LAYOUTS = ("nn", "nt", "tn", "tt")
KERNELS = (*(_kernel(128, layout, (519, 273), (301, 231), 11) for layout in LAYOUTS),
           *(_kernel(64, layout, (521, 287), (307, 237), 20) for layout in LAYOUTS))


def _native(high: int, tile: int, slices: int, layout: str) -> ProductKernel:
    """Machine code of sm_90, `alone` and `pace` as timed on an H200. An operand with k innermost takes six stores
    more, twelve of a warp with a tile of 64 columns of its own."""
    a, b = layout[0] == "n", layout[1] == "t"
    source = f"{high}x{tile}"
    warps, pace, turn = 8, 0.89, _TURN[tile]
    if tile == 128:
        slots, alone, pace = (1092 + 6 * (a + b), 440 + 22 * (a + b)), 1400, 0.95
    elif slices == 1:
        slots, alone, warps, pace, turn = (564 + 6 * (a + b), 330 + 22 * (a + b)), 700, 16, 0.84, _FLOWING
    elif high == 64:
        slots, alone = (1100 + 12 * (a + b), 460 + 35 * (a + b) + {2: 110, 4: 170}[slices]), 1370
    else:
        slots, alone, warps, pace = (568 + 6 * a + 12 * b, 560 + 22 * a + 35 * b), 810, 12, 0.8
    return ProductKernel(f"sm90_product_{source}" + f"x{slices}" * (slices > 1) + f"_{layout}",
                         f"hopper/product_{source}.sass", _DOC, tile, layout, slots, (0, 0), (0, 0), alone, slots[0],
                         warps, slices, pace, 0 if high == tile else high, turn)


NATIVE = tuple(_native(*tile, slices, layout)
               for tile, slices in (((128, 128), 1), ((64, 64), 1), ((64, 64), 2), ((64, 64), 4), ((32, 64), 4))
               for layout in LAYOUTS)
"""For compute capability 9.0 alone: operands by address instead of textures."""


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices in memory: elements from one row to the next and from one matrix to the next. Those that are
    multiplied begin where a texture may, in memory of `elements`, and 4 divides their strides."""

    place: str | Part
    row: int
    batch: int
    elements: int = 0


@dataclass(frozen=True)
class Tail:
    """The last `rows` of tiles, whose sums are computed in `parts`, since there are not enough tiles for the last wave
    of blocks: `first` groups the first one, `share` every other."""

    rows: int
    parts: int
    first: int
    share: int


def _tail(spec: ProductKernel, s: ProductShape) -> Tail | None:
    """The parts that end first, for the rows of tiles behind the last whole wave of blocks of one matrix; None if all
    waves are whole, if there is but one, or if a row is longer than one."""
    across, rows = -(-s.N // spec.tile), -(-s.M // spec.rows)
    groups, slots = -(-s.K // GROUP), _SMS * (spec.warps * 32 // spec.threads)
    tail = -(-(across * rows % slots) // across)
    if s.batch > 1 or not tail or across * rows <= slots or across > slots:
        return None
    wave = slots / _SMS * spec.threads / 32 / SCHEDULERS * spec.slots[0] * groups  # clocks
    tiles, begun = tail * across, (rows - tail) * across % slots

    def ends(one: Tail) -> float:
        """In waves."""
        free = [0.0] * (slots - begun) + [1.0] * begun
        for length, count in ((one.first, tiles), (one.share, tiles * (one.parts - 1))):
            for _ in range(count):
                heapq.heapreplace(free, free[0] + length / groups + _PART_CLOCKS / wave)
        return max(free) + FLOAT_BYTES * (2 * one.parts + 1) * tiles * spec.tile**2 / _DRAM / wave

    return min(_tails(tail, groups), key=ends, default=None)


def _tails(rows: int, groups: int) -> Iterator[Tail]:
    for parts in range(2, 10):
        for times in (1, 2, 4, 8):  # the first is so many times as long
            share = -(-groups // (parts - 1 + times))
            first = groups - (parts - 1) * share
            if first >= share:
                yield Tail(rows, parts, first, share)


def candidates(problem: Problem) -> Candidates:
    found: dict[str, Callable[[], Plan]] = {}
    for spec in (*KERNELS, *NATIVE):
        if spec.layout == problem.layout:
            for splits in spec.splits(problem.shape.K):
                found[split_name(spec, splits)] = partial(_plan, problem, spec, splits)
            if spec.tile == 128 and spec.arch:
                tail = _tail(spec, _stacked(problem))
                if tail is not None:
                    found[f"{spec.name}_tail{tail.parts}"] = partial(_plan, problem, spec, 1, tail)
    return found


def _stacked(problem: Problem) -> ProductShape:
    """One matrix on top of the other, where one of B serves all."""
    s: ProductShape = problem.shape
    if len(problem.operand("b").shape) == 2 and problem.layout[0] == "n":
        return ProductShape(s.M * s.batch, s.N, s.K, 1)
    return s


def _plan(problem: Problem, spec: ProductKernel, splits: int, tail: Tail | None = None) -> Plan:
    s: ProductShape = problem.shape
    a, b, out = (problem.operand(role) for role in ("a", "b", "out"))
    shape = _stacked(problem)
    m, batch = shape.M, shape.batch
    regions: dict[str, int] = {}
    before: list[Launch] = []
    matrices_a = _readable(a, batch, regions, before)
    matrices_b = _readable(b, batch, regions, before)
    size = batch * m * s.N
    _check_limits(s, spec, m, size, matrices_a, matrices_b)
    vectors = out.alignment >= Alignment.VECTOR and s.N % TEXEL_FLOATS == 0
    result, ending = Matrices("out", s.N, m * s.N), fused(problem, 0)
    if tail is not None:
        return _plan_with_tail(problem, spec, tail, matrices_a, matrices_b, vectors, regions, before)
    if splits == 1:
        launches = multiply(spec, shape, matrices_a, matrices_b, result, vectors=vectors, ending=ending)
        return make(problem, "product", spec, (*before, *launches), regions)
    regions["parts"] = FLOAT_BYTES * splits * size
    launches = multiply(spec, shape, matrices_a, matrices_b, Matrices("parts", s.N, m * s.N), splits=splits,
                        vectors=s.N % TEXEL_FLOATS == 0)
    adding = _behind(reduce("parts", "out", splits, size, (size, 1, 1), 1, ending), regions["parts"])
    why = (f"the sums of {s.K} products are split {splits} ways: {-(-m // spec.rows) * -(-s.N // spec.tile) * batch} "
           "tiles do not fill the chip; the parts are added in a fixed order")
    return make(problem, "product", spec, (*before, *launches, adding), regions, (why,))


def _behind(adding: Launch, nbytes: int) -> Launch:
    """The sum of parts of so many bytes, with what an H200 takes until it has begun: they are written by many blocks at
    a time, when these end."""
    return replace(adding, work=replace(adding.work, translated_ends=_SECOND_LAUNCH + nbytes / _DRAM))


def _plan_with_tail(problem: Problem, spec: ProductKernel, tail: Tail, a: Matrices, b: Matrices, vectors: bool,
                    regions: dict[str, int], before: list[Launch]) -> Plan:
    shape = _stacked(problem)
    first = (-(-shape.M // spec.tile) - tail.rows) * spec.tile * shape.N
    size = shape.M * shape.N - first
    within(shape, (("parts of sums", tail.parts * size, MAX_ELEMENTS, "elements"),
                   ("rows of tiles and parts of them", -(-shape.M // spec.tile) + tail.rows * (tail.parts - 1),
                    MAX_GRID_YZ, "blocks along y of the grid")))
    regions["parts"] = FLOAT_BYTES * tail.parts * size
    launches = multiply(spec, shape, a, b, Matrices("out", shape.N, shape.M * shape.N), vectors=vectors,
                        ending=fused(problem, 0), tail=tail)
    adding = _behind(reduce("parts", Part("out", FLOAT_BYTES * first), tail.parts, size, (size, 1, 1), 1,
                            fused(problem, 0)), regions["parts"])
    why = (f"the sums of the last {tail.rows} rows of tiles, which do not fill the chip, are split {tail.parts} ways; "
           "the parts are added in a fixed order")
    return make(problem, "product", spec, (*before, *launches, adding), regions, (why,))


def multiply(spec: ProductKernel, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices, *, vectors: bool,
             ending: Mapping[str, Value] | None = None, splits: int = 1, tail: Tail | None = None,
             run: int = 0) -> list[Launch]:
    """out = what `ending` makes of op(a) op(b) (`fused`; the product itself if None). With splits, `out` has so many
    batches, one after the other, for the parts of the sums; with a tail, its parts go to region `parts`, row by row.
    `vectors`: every row of `out` begins at a multiple of 16 bytes, and 4 divides N. `run`: sums of so many products at
    a time are added, which makes smaller errors (all at once if 0); for vectors without an ending."""
    assert not run or (vectors and ending is None and run % GROUP == 0)
    if run and spec.arch:
        return _runs(spec, shape, a, b, out, run)
    ending = ending or {"flags": 0, "alpha": 1.0, "beta": float(run > 0)}
    groups, share = -(-shape.K // GROUP), spec.share(shape.K, splits)
    groups_of_run = min(share, run // GROUP or share)
    runs = -(-share // groups_of_run)
    a_row, b_row = a.row // TEXEL_FLOATS, b.row // TEXEL_FLOATS
    flags = ending["flags"]
    assert isinstance(flags, int)
    values: dict[str, Value] = {
        "out": out.place, "alpha": ending["alpha"], "beta": ending["beta"],
        "flags": (flags if spec.arch else flags & ADDS) | _VECTORS * vectors,
        "m": shape.M, "n": shape.N, "k": shape.K, "groups": groups, "share": share, "splits": splits,
        "split_magic": -(-2**31 // splits),
        "a_row": a_row, "a_batch": a.batch // TEXEL_FLOATS, "a_step": GROUP * a_row if spec.layout[0] == "t" else 2,
        "b_row": b_row, "b_batch": b.batch // TEXEL_FLOATS, "b_step": GROUP * b_row if spec.layout[1] == "n" else 2,
        "out_row": out.row, "out_batch": out.batch, "out_split": shape.batch * out.batch if splits > 1 else 0}
    doing = f"{spec.rows} x {spec.tile} results each" + (", a part of each sum" if splits > 1 else "")
    if spec.slices > 1:
        doing += f", in {spec.slices} parts that the block adds"
    rows = whole = -(-shape.M // spec.rows)
    if tail is not None:
        whole -= tail.rows
        rows = whole + tail.rows * tail.parts
        doing += f", {tail.parts} parts of each of the last sums"
    if not spec.arch:
        values |= {"run": groups_of_run, "lead": share - (runs - 1) * groups_of_run}
    else:
        values |= {"a": a.place, "b": b.place, "bias": ending.get("bias", 0)}
        if spec.tile == 128:
            values |= _tail_values(shape, spec.tile, whole, tail)
        if spec.slices > 1:
            values["shorter"] = splits * spec.slices * spec.share(shape.K, splits) - groups
    place = out.place.name if isinstance(out.place, Part) else out.place
    launches, most = [], MAX_GRID_YZ // splits
    for first in range(0, shape.batch, most):
        count = min(most, shape.batch - first)
        grid = (-(-shape.N // spec.tile), rows, count * splits)
        part = ProductShape(shape.M, shape.N, shape.K, count)
        work = _work(part, spec, splits, bool(flags & ADDS), runs, tail)
        launches.append(Launch(spec, grid, values | {"first": first}, work, doing,
                               (place, *["parts"] * (tail is not None)),
                               {} if spec.arch else {"tex_A": a.place, "tex_B": b.place}, flops=part.flops))
    return launches


def _tail_values(shape: ProductShape, tile: int, whole: int, tail: Tail | None) -> dict[str, Value]:
    """Parameters of the parts of sums behind so many rows of tiles; no block reads them if there are none."""
    if tail is None:
        return {"whole": whole, "tail": 1, "tail_magic": 2**31, "tail_first": 0, "tail_share": 0, "parts": 0,
                "part_start": 0, "part_step": 0, "part_flags": 0}
    first = tile * whole * shape.N
    return {"whole": whole, "tail": tail.rows, "tail_magic": -(-2**31 // tail.rows), "tail_first": tail.first,
            "tail_share": tail.share, "parts": "parts", "part_start": -first % 2**32,
            "part_step": shape.M * shape.N - first, "part_flags": _VECTORS * (shape.N % TEXEL_FLOATS == 0)}


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
        (f"rows of tiles M/{spec.rows}", -(-m // spec.rows), MAX_GRID_YZ, "blocks along y of the grid"),
    ))


def _runs(spec: ProductKernel, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices,
          run: int) -> list[Launch]:
    """A launch for each run, which adds to what is there."""
    def behind(x: Matrices, k: int, innermost: bool) -> Matrices:
        place, at = x.place, FLOAT_BYTES * k * (1 if innermost else x.row)
        return x if not k else replace(x, place=Part(place, at) if isinstance(place, str) else
                                       replace(place, offset=place.offset + at))

    launches: list[Launch] = []
    for k in range(0, shape.K, run):
        ending: dict[str, Value] = {"flags": ADDS if k else 0, "alpha": 1.0, "beta": 1.0}
        launches += multiply(spec, replace(shape, K=min(run, shape.K - k)), behind(a, k, spec.layout[0] == "n"),
                             behind(b, k, spec.layout[1] == "t"), out, vectors=True, ending=ending)
    return launches


def _work(s: ProductShape, spec: ProductKernel, splits: int, adds: bool, runs: int, tail: Tail | None = None) -> Work:
    """All slots of all warps; operands and results once, what results are added to, and sums between runs, where they
    do not stay in a cache."""
    loop, rest = (slots / spec.pace for slots in spec.slots)
    share = spec.share(s.K, splits)
    between, waits = (x[0] + x[1] * (runs - 2) if runs > 1 else 0 for x in (spec.between, spec.waits))
    warps, tiles = spec.threads // 32, -(-s.M // spec.rows) * -(-s.N // spec.tile) * s.batch
    once = s.batch * (s.M * s.K + s.K * s.N + (splits + adds + 2 * (runs - 1)) * s.M * s.N)
    if tail is not None:
        parts = tail.rows * -(-s.N // spec.tile)
        further = parts * (tail.parts - 1)
        lengths, each = neighbours(((share, tiles - parts), (tail.first, parts), (tail.share, further)))
        slots = tuple(warps * (loop * groups + rest) for groups in lengths)
        return Blocks(tiles + further, sum(slots) / len(slots), spec.turn, FLOAT_BYTES * once,
                      resident=spec.warps // warps, warps=warps, lengths=slots, each=each)
    alone = spec.alone * share + (0 if spec.arch else _LATENCY) + waits
    return Work(tiles * splits, warps * (loop * share + rest + between), alone, FLOAT_BYTES * once,
                translated=None if spec.arch else warps * (spec.translated * share + rest + between
                                                           + _TRANSLATED_RUN[spec.tile] * (runs - 1)),
                resident=spec.warps // warps, warps=warps if spec.arch else SCHEDULERS,
                translated_resident=0 if spec.arch else _TRANSLATED_RESIDENT[spec.tile],
                turn=spec.turn,
                ends=max(0, _TURN[64] - spec.turn) if spec.arch else 0)


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, ProductKernel)
    x, y, z = launch.grid
    rows = -(-v["m"] // spec.rows)
    tail_rows = rows - v.get("whole", rows)
    parts = (y - rows) // tail_rows + 1 if tail_rows else 1
    assert (x, y) == (-(-v["n"] // spec.tile), rows + (parts - 1) * tail_rows) and v["groups"] == -(-v["k"] // GROUP)
    m, n, k = (np.arange(v[name]) for name in "mnk")
    share = GROUP * spec.slices * v["share"]
    for block in range(z):
        matrix, split = (block * v["split_magic"] >> 31), block % v["splits"]
        assert matrix == block // v["splits"]
        begin, end = (n * share - GROUP * min(n * spec.slices, v.get("shorter", 0)) for n in (split, split + 1))
        matrix, some = matrix + v["first"], k[begin:end]
        assert len(some)
        a = _values(launch, memory, "a", matrix, m, some, spec.layout[0] == "n")
        b = _values(launch, memory, "b", matrix, n, some, spec.layout[1] == "t")
        where = matrix * v["out_batch"] + split * v["out_split"] + m[:, None] * v["out_row"] + n
        if tail_rows:
            assert z == 1 and v["tail"] == tail_rows
            first = spec.tile * v["whole"]
            finish(launch, memory, scalars, where[:first], a[:first] @ b.T, m[:first, None])
            into = seen(memory, launch.values["parts"])
            for part in range(parts):
                end = GROUP * (v["tail_first"] + part * v["tail_share"])
                terms = slice(end - GROUP * v["tail_share"] if part else 0, end)
                at = part * v["part_step"] + m[first:, None] * v["n"] + n + v["part_start"]
                into[at % 2**32] = a[first:, terms] @ b[:, terms].T
            continue
        finish(launch, memory, scalars, where, a @ b.T, m[:, None])


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
