"""Matrix products by tiles: C = alpha * op(A) op(B) + beta * C, batched, each operand as it lies or transposed, of any
size. Where the CTAs do not fill the chip, the reduction is split (split-K) and partial sums are added in a fixed
order."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...planning.cost import SCHEDULERS, Chip, Cost, Work, neighbours
from ...planning.plan import FLOAT_BYTES, MAX_TEXELS, Launch, Part, Plan, Value, begin
from ...problem.problem import Alignment, Operand, Problem
from ...problem.shape import ProductShape
from ..common.epilogue import ADDS, PARTIAL, VECTORS, Epilogue, epilogue_of
from ..common.fastdiv import short_magic
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, TEXEL_FLOATS, round_up, within
from ..common.schedule import Tail, split_name, why_split, why_tail
from ..common.workspace import Draft, part
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, strided_reason
from .maxwell import GROUP, KERNELS, TRANSLATED_CTAS, ProductKernel
from .reference import reference
from .sm90 import NATIVE

# Timed on an H200: clocks of the host's time for a second launch of a call (7.8 us); issue slots of a warp of a
# translation for each further run of a sum, compared with slices; clocks of a split beside its share of the loop.
_SECOND_LAUNCH = 15000
_TRANSLATED_RUN = {128: 1600, 64: 800}
_PART_CLOCKS = 3000
_LATENCY = 9000  # clocks of a CTA alone beside its iterations: first texels from DRAM, last stores; simulated on gm204


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices in memory: elements from one row to the next and from one matrix to the next. Those that are
    multiplied begin where a texture may, in memory of `elements`, and 4 divides their strides."""

    place: str | Part
    row: int
    batch: int
    elements: int = 0


@dataclass(frozen=True)
class RowsTail(Tail):
    """The last rows of tiles. `first` groups of k belong to the first part, `share` to every other."""

    first: int = 0
    share: int = 0


def _tail(spec: ProductKernel, s: ProductShape, chip: Chip) -> RowsTail | None:
    """The split of the last rows of tiles, those behind the last whole wave of CTAs of one matrix. None if all waves
    are whole, if there is only one, or if a row of tiles is longer than a wave."""
    across, rows = -(-s.N // spec.tile), -(-s.M // spec.rows)
    groups, slots = -(-s.K // GROUP), chip.sms * spec.ctas_per_sm
    tail = -(-(across * rows % slots) // across)
    if s.batch > 1 or not tail or across * rows <= slots or across > slots:
        return None
    wave = spec.ctas_per_sm * spec.threads / 32 / SCHEDULERS * spec.slots[0] * groups  # clocks
    tiles, begun = tail * across, (rows - tail) * across % slots

    def ends(one: RowsTail) -> float:
        """In waves."""
        free = [0.0] * (slots - begun) + [1.0] * begun
        for length, count in ((one.first, tiles), (one.share, tiles * (one.parts - 1))):
            for _ in range(count):
                heapq.heapreplace(free, free[0] + length / groups + _PART_CLOCKS / wave)
        return max(free) + FLOAT_BYTES * (2 * one.parts + 1) * tiles * spec.tile**2 / chip.dram_peak / wave

    return min(_tails(tail, groups), key=ends, default=None)


def _tails(rows: int, groups: int) -> Iterator[RowsTail]:
    for parts in range(2, 10):
        for times in (1, 2, 4, 8):  # the first is so many times as long
            share = -(-groups // (parts - 1 + times))
            first = groups - (parts - 1) * share
            if first >= share:
                yield RowsTail(rows, parts, first, share)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    found: dict[str, Callable[[], Plan]] = {}
    for spec in (*KERNELS, *NATIVE):
        if spec.layout == problem.layout:
            for splits in spec.splits(problem.shape.K):
                found[split_name(spec.name, splits)] = partial(_plan, problem, chip, spec, splits)
            if spec.tile == 128 and spec.arch:
                tail = _tail(spec, stacked(problem), chip)
                if tail is not None:
                    found[f"{spec.name}_tail{tail.parts}"] = partial(_plan, problem, chip, spec, 1, tail)
    return found


def stacked(problem: Problem) -> ProductShape:
    """The matrices of A below each other as one, where one matrix B serves all of them."""
    s: ProductShape = problem.shape
    if len(problem.operand("b").shape) == 2 and problem.layout[0] == "n":
        return ProductShape(s.M * s.batch, s.N, s.K, 1)
    return s


def _plan(problem: Problem, chip: Chip, spec: ProductKernel, splits: int, tail: RowsTail | None = None) -> Plan:
    draft, shape = Draft(problem), stacked(problem)
    size = shape.batch * shape.M * shape.N
    a, b = (_readable(draft, problem.operand(role), shape.batch) for role in ("a", "b"))
    _check_limits(problem.shape, spec, shape.M, size, a, b)
    if tail is not None:
        _check_tail(shape, spec, tail)
    out, vectors, epilogue = destination(draft, splits)
    draft.add(multiply(spec, shape, a, b, out, vectors=vectors, epilogue=epilogue, splits=splits, tail=tail))
    if splits > 1:
        add_parts(draft, chip, "out", splits, size)
        tiles = -(-shape.M // spec.rows) * -(-shape.N // spec.tile) * shape.batch
        draft.notes.append(why_split(shape.K, splits, f": {tiles} tiles do not fill the chip"))
    if tail is not None:
        first = _tail_begin(shape, spec, tail)
        draft.region("parts", tail.parts * (size - first))
        add_parts(draft, chip, part("out", first), tail.parts, size - first)
        draft.notes.append(why_tail("rows of tiles", tail))
    return draft.plan(FAMILY, spec)


def destination(draft: Draft, splits: int) -> tuple[Matrices, bool, Epilogue]:
    """Where the sums of a product go, whether every row begins there at a multiple of 16 bytes, and what is done with
    them: the result with its epilogue; split, partial sums in region `parts`."""
    s, out = stacked(draft.problem), draft.problem.operand("out")
    rows = s.N % TEXEL_FLOATS == 0
    if splits == 1:
        return Matrices("out", s.N, s.M * s.N), rows and out.alignment >= Alignment.VECTOR, epilogue_of(draft.problem)
    return Matrices(draft.region("parts", splits * s.batch * s.M * s.N), s.N, s.M * s.N), rows, PARTIAL


def add_parts(draft: Draft, chip: Chip, out: str | Part, parts: int, size: int) -> None:
    """The launch that adds partial sums. Its estimate includes the time until it begins, in which the CTAs that end
    last still write theirs."""
    adding = reduce("parts", out, parts, size, (size, 1, 1), 1, epilogue_of(draft.problem))
    begun = replace(adding.work.code, overhead=_SECOND_LAUNCH + draft.regions["parts"] / chip.dram_peak)
    draft.launches.append(replace(adding, work=replace(adding.work, translation=begun)))


def _tail_begin(shape: ProductShape, spec: ProductKernel, tail: RowsTail) -> int:
    """Elements of the result in front of the tail's rows."""
    return (-(-shape.M // spec.tile) - tail.items) * spec.tile * shape.N


def _check_tail(shape: ProductShape, spec: ProductKernel, tail: RowsTail) -> None:
    size = shape.M * shape.N - _tail_begin(shape, spec, tail)
    within(shape, (("parts of sums", tail.parts * size, MAX_ELEMENTS, "elements"),
                   ("rows of tiles and parts of them", -(-shape.M // spec.tile) + tail.items * (tail.parts - 1),
                    MAX_GRID_YZ, "blocks along y of the grid")))


def multiply(spec: ProductKernel, shape: ProductShape, a: Matrices, b: Matrices, out: Matrices, *, vectors: bool,
             epilogue: Epilogue = PARTIAL, splits: int = 1, tail: RowsTail | None = None, run: int = 0) -> list[Launch]:
    """out = what `epilogue` makes of op(a) op(b) (the product itself by default). With splits, `out` has so many
    batches, one after the other, for the parts of the sums; with a tail, its parts go to region `parts`, row by row.
    `vectors`: every row of `out` begins at a multiple of 16 bytes and has room for ceil(N/4) vectors of four. `run`:
    sums of so many products at a time are added, which makes smaller errors (all at once if 0); for vectors without an
    epilogue."""
    assert not run or (vectors and epilogue is PARTIAL and run % GROUP == 0)
    if run and spec.arch:
        return _runs(spec, shape, a, b, out, run)
    if run:
        epilogue = replace(epilogue, beta=1.0)
    groups, share = -(-shape.K // GROUP), spec.share(shape.K, splits)
    groups_of_run = min(share, run // GROUP or share)
    runs = -(-share // groups_of_run)
    a_row, b_row = a.row // TEXEL_FLOATS, b.row // TEXEL_FLOATS
    values: dict[str, Value] = {
        "out": out.place, "alpha": epilogue.alpha, "beta": epilogue.beta,
        "flags": (epilogue.flags if spec.arch else epilogue.flags & ADDS) | VECTORS * vectors,
        "m": shape.M, "n": shape.N, "k": shape.K, "groups": groups, "share": share, "splits": splits,
        "split_magic": short_magic(splits),
        "a_row": a_row, "a_batch": a.batch // TEXEL_FLOATS, "a_step": GROUP * a_row if spec.layout[0] == "t" else 2,
        "b_row": b_row, "b_batch": b.batch // TEXEL_FLOATS, "b_step": GROUP * b_row if spec.layout[1] == "n" else 2,
        "out_row": out.row, "out_batch": out.batch, "out_split": shape.batch * out.batch if splits > 1 else 0}
    doing = f"{spec.rows} x {spec.tile} results each" + (", a part of each sum" if splits > 1 else "")
    if spec.slices > 1:
        doing += f", in {spec.slices} parts that the block adds"
    rows = whole = -(-shape.M // spec.rows)
    if tail is not None:
        whole -= tail.items
        rows = whole + tail.items * tail.parts
        doing += f", {tail.parts} parts of each of the last sums"
    if not spec.arch:
        values |= {"run": groups_of_run, "lead": share - (runs - 1) * groups_of_run}
    else:
        values |= {"a": a.place, "b": b.place, "bias": epilogue.bias}
        if spec.tile == 128:
            values |= _tail_values(shape, spec, whole, tail)
        if spec.slices > 1:
            values["shorter"] = splits * spec.slices * spec.share(shape.K, splits) - groups
    launches, most = [], MAX_GRID_YZ // splits
    for first in range(0, shape.batch, most):
        count = min(most, shape.batch - first)
        grid = (-(-shape.N // spec.tile), rows, count * splits)
        some = ProductShape(shape.M, shape.N, shape.K, count)
        work = _work(some, spec, splits, bool(epilogue.flags & ADDS), runs, tail)
        launches.append(Launch(spec, grid, values | {"first": first}, work, doing,
                               (begin(out.place)[0], *["parts"] * (tail is not None)),
                               {} if spec.arch else {"tex_A": a.place, "tex_B": b.place}, flops=some.flops))
    return launches


def _tail_values(shape: ProductShape, spec: ProductKernel, whole: int, tail: RowsTail | None) -> dict[str, Value]:
    """Parameters of the parts of sums behind so many rows of tiles; no block reads them if there are none."""
    if tail is None:
        return {"whole": whole, "tail": 1, "tail_magic": 2**31, "tail_first": 0, "tail_share": 0, "parts": 0,
                "part_start": 0, "part_step": 0, "part_flags": 0}
    first = _tail_begin(shape, spec, tail)
    return {"whole": whole, "tail": tail.items, "tail_magic": short_magic(tail.items), "tail_first": tail.first,
            "tail_share": tail.share, "parts": "parts", "part_start": -first % 2**32,
            "part_step": shape.M * shape.N - first, "part_flags": VECTORS * (shape.N % TEXEL_FLOATS == 0)}


def _readable(draft: Draft, operand: Operand, batch: int) -> Matrices:
    """The operand as the kernels read it: a copy if its rows do not all begin with a texel."""
    *_, rows, columns = operand.shape
    every = int(np.prod(operand.shape[:-1]))
    place, row = operand.role, columns
    if columns % TEXEL_FLOATS or operand.alignment < Alignment.TEXTURE:
        row = round_up(columns, TEXEL_FLOATS)
        why = (f"its rows of {columns} do not all begin at multiples of 16 bytes" if columns % TEXEL_FLOATS else
               "it begins where no texture may")
        place = draft.padded(f"{operand.role}_rows", operand.role, (1, 1, every, columns), (1, every, row), (0, 0),
                             f"{operand.role} is copied: {why}")
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
        name, at = begin(x.place)
        return x if not k else replace(x, place=Part(name, at + FLOAT_BYTES * k * (1 if innermost else x.row)))

    launches: list[Launch] = []
    for k in range(0, shape.K, run):
        epilogue = Epilogue(ADDS if k else 0, beta=1.0)
        launches += multiply(spec, replace(shape, K=min(run, shape.K - k)), behind(a, k, spec.layout[0] == "n"),
                             behind(b, k, spec.layout[1] == "t"), out, vectors=True, epilogue=epilogue)
    return launches


def _work(s: ProductShape, spec: ProductKernel, splits: int, adds: bool, runs: int,
          tail: RowsTail | None = None) -> Work:
    """All slots of all warps; operands and results once, what results are added to, and sums between runs, where they
    do not stay in a cache."""
    loop, rest = (slots / spec.pace for slots in spec.slots)
    share = spec.share(s.K, splits)
    between, waits = (x[0] + x[1] * (runs - 2) if runs > 1 else 0 for x in (spec.between, spec.waits))
    warps, tiles = spec.threads // 32, -(-s.M // spec.rows) * -(-s.N // spec.tile) * s.batch
    once = s.batch * (s.M * s.K + s.K * s.N + (splits + adds + 2 * (runs - 1)) * s.M * s.N)
    if tail is not None:
        parts = tail.items * -(-s.N // spec.tile)
        further = parts * (tail.parts - 1)
        lengths, each = neighbours(((share, tiles - parts), (tail.first, parts), (tail.share, further)))
        slots = tuple(warps * (loop * groups + rest) for groups in lengths)
        code = Cost(sum(slots) / len(slots), 0, spec.ctas_per_sm, spec.first_ends or spec.wave_ends)
        return Work(tiles + further, FLOAT_BYTES * once, code, warps=warps, lengths=slots, each=each)
    alone = spec.alone * share + (0 if spec.arch else _LATENCY) + waits
    code = Cost(warps * (loop * share + rest + between), alone, spec.ctas_per_sm)
    if spec.arch:
        code = replace(code, wave_ends=spec.wave_ends, overhead=spec.first_ends - spec.wave_ends,
                       staggered=spec.staggered)
        return Work(tiles * splits, FLOAT_BYTES * once, code, warps=warps)
    translated = warps * (spec.translated * share + rest + between + _TRANSLATED_RUN[spec.tile] * (runs - 1))
    translation = code.translated(translated, ctas_per_sm=TRANSLATED_CTAS[spec.tile], wave_ends=spec.wave_ends)
    return Work(tiles * splits, FLOAT_BYTES * once, code, translation)


FAMILY = Family("product", (*KERNELS, *NATIVE), reference, ("product",), strided_reason, candidates)
