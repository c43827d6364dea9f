"""y = factor x. What a family needs: a kernel, the problems it serves, its plans, its reference."""

from pathlib import Path

import numpy as np

from maxdnn.algorithms.spec import Family, seen
from maxdnn.build.interface import KernelSpec
from maxdnn.planning.cost import Cost, Work
from maxdnn.planning.plan import Launch, make
from maxdnn.problem.problem import Operand, Problem

SOURCE = Path(__file__).resolve().with_name("scale.sass")
SCALE = KernelSpec("sscale", str(SOURCE), "y = factor * x. Grid: x = ceil(count / 128).")


def problem(count):
    return Problem("scale", count, (Operand("x", (count,)), Operand("y", (count,))), scalars=("factor",))


def _plan(asked):
    count = asked.shape
    work = Work(-(-count // 128), 8 * count, Cost(4 * 13, 1000))
    values = {"y": "y", "x": "x", "factor": "factor", "count": count}
    launch = Launch(SCALE, (work.ctas, 1, 1), values, work, "one element a thread", ("y",))
    return make(asked, "scale", SCALE, [launch], {})


def reference(launch, memory, scalars):
    memory["y"][:] = np.float32(scalars["factor"]) * seen(memory, launch.values["x"])


FAMILY = Family("scale", (SCALE,), reference, ("scale",),
                candidates=lambda asked, chip: {SCALE.name: lambda: _plan(asked)})
