"""Sums of gradients over images and pixels, one for each filter: the gradient of a bias."""

from collections.abc import Mapping

import numpy as np

from ...build.interface import KernelSpec
from ...errors import ShapeError
from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value, make
from ...problem.problem import Problem
from ..common.epilogue import epilogue_of
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ
from ..spec import Candidates, Family, Memory, seen, strided_reason
from .plan import reduce

RUN = 4096  # terms, where they lie together
_PARTS = 64  # at most
_ENDS, _SLOTS = 80, 40  # issue slots of a warp, and for 512 terms of a CTA; counted in the source
_LATENCY, _ROUND = 1500, 600  # clocks of a CTA alone, and for 512 terms, which it waits for; assumed

SUM = KernelSpec("ssum", "maxwell/sum.sass",
                 """Sums of runs of floats, of some of the runs in each block. Grid: x = sums,
y = parts.""")


def candidates(problem: Problem, chip: Chip) -> Candidates:
    return {SUM.name: lambda: _plan(problem)}


def _plan(problem: Problem) -> Plan:
    shape = problem.operand("gradients").shape
    if problem.layout == "CHWN":
        k, terms = shape[0], int(np.prod(shape[1:]))
        runs, step, length, row = -(-terms // RUN), RUN, min(RUN, terms), terms
        last = terms - RUN * (runs - 1)
    else:
        runs, k, length = shape[0], shape[1], shape[2] * shape[3]
        step, row, last = k * length, length, length
    if k * problem.shape.terms > MAX_ELEMENTS:
        raise ShapeError(f"gradients must have at most {MAX_ELEMENTS} elements (got {k * problem.shape.terms})")
    parts = min(runs, _PARTS)
    values: dict[str, Value] = {"out": "parts", "src": "gradients", "sums": k, "row": row, "runs": runs, "step": step,
                                "length": length, "last": last}
    share = -(-runs // parts) * -(-length // 512)
    work = Work(k * parts, FLOAT_BYTES * k * problem.shape.terms,
                Cost(4 * (_ENDS + _SLOTS * share), _LATENCY + _ROUND * share))
    adding = Launch(SUM, (k, parts, 1), values, work, "a part of each sum", ("parts",), flops=problem.shape.flops)
    launches = adding, reduce("parts", "out", parts, k, (k, 1, 1), 1, epilogue_of(problem))
    return make(problem, "sums", SUM, launches, {"parts": FLOAT_BYTES * parts * k})


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernel of this family promises."""
    v = launch.numbers
    (sums, parts, _), src = launch.grid, seen(memory, launch.values["src"])
    assert sums == v["sums"] and parts <= min(v["runs"], MAX_GRID_YZ)
    out = seen(memory, launch.values["out"])[:parts * sums].reshape(parts, sums)
    out[:] = 0
    for run in range(v["runs"]):
        terms = np.arange(v["last"] if run == v["runs"] - 1 else v["length"])
        out[run % parts] += src[np.arange(sums)[:, None] * v["row"] + run * v["step"] + terms].sum(1, dtype=float)


FAMILY = Family("sums", (SUM,), reference, ("bias",), strided_reason, candidates)
