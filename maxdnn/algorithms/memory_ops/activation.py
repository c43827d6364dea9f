"""Plans for activations that a family's kernels do not have. If the plan splits sums, the launch that adds them
applies the activation; otherwise one more launch applies it to the output in place."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ...errors import ShapeError
from ...planning.cost import Chip
from ...planning.plan import Plan
from ...problem.problem import Problem
from ..common.epilogue import ACTIVATION_FLAGS
from ..common.limits import MAX_ELEMENTS
from ..spec import Candidates, Family
from .maxwell import REDUCE
from .plan import activate


def candidates(family: Family, problem: Problem, chip: Chip) -> Candidates:
    """Those of a family for a problem with any activation."""
    if problem.activation in (None, *family.activations):
        return family.candidates(problem, chip)
    plain = family.candidates(replace(problem, activation=None), chip)
    return {name: partial(finished, make, problem) for name, make in plain.items()}


def finished(make: Callable[[], Plan], problem: Problem) -> Plan:
    """The plan for the problem without its activation, and the launch that applies it."""
    assert problem.activation is not None
    out, plan = problem.operand("out"), make()
    *others, last = plan.launches
    if last.spec is REDUCE and not any("out" in launch.writes for launch in others):
        values = {**last.values, "flags": last.numbers["flags"] | ACTIVATION_FLAGS[problem.activation]}
        return replace(plan, problem=problem, launches=(*others, replace(last, values=values)))
    count = int(np.prod(out.shape))
    if (out.strides and not out.channels_last) or count > MAX_ELEMENTS:
        raise ShapeError(f"activation {problem.activation!r} is applied behind this kernel, to an out that is "
                         f"C-contiguous and has at most {MAX_ELEMENTS} elements (got {out.shape}, "
                         f"strides {out.strides})")
    return replace(plan, problem=problem, launches=(*plan.launches, activate("out", count, problem.activation)))
