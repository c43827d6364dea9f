"""Maps whose channels lie innermost are matrices of pixels x channels, and filters of one tap one of filters x
channels: without padding, stride and groups a convolution, and its gradient with respect to the images, are one product
of them as they lie, by the families of products. A bias, a number for each column, none of their kernels adds."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...planning.cost import Chip
from ...planning.plan import Launch, Plan
from ...problem import problem as problems
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape
from ..common.correlation import maps_of
from ..memory_ops.turned import renamed
from ..spec import Candidates, Family
from . import plan as gemm
from . import tensor_cores
from .reference import reference

NAME = "channels_last"
"""Behind the names of candidates for products."""


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if (s.R, s.S) != (1, 1) or s.stride != (1, 1) or s.padding != (0, 0) or s.groups > 1:
        return "other filters than 1 x 1, or stride, padding or groups"
    if problem.layout != "NCHW" or not all(problem.operand(role).channels_last for role in (maps_of(problem), "out")):
        return "maps whose channels do not lie innermost"
    return "a bias, one number for each column of a product" if "bias" in problem.roles else None


def candidates(problem: Problem, chip: Chip) -> Candidates:
    product = _product(problem)
    return {f"{name}_{NAME}": partial(_plan, make, problem)
            for family in (gemm.FAMILY, tensor_cores.FAMILY)
            for name, make in family.candidates(product, chip).items()}


def _product(problem: Problem) -> Problem:
    """Of maps (pixels x channels) and filters, transposed forward."""
    s: ConvShape = problem.shape
    forward, pixels = problem.kind == "forward", s.N * s.H * s.W
    unaligned = [role for role, own in (("a", maps_of(problem)), ("b", "filters"), ("out", "out"))
                 if problem.operand(own).alignment < Alignment.TEXTURE]
    made = problems.product((pixels, s.C if forward else s.K), (s.K, s.C), transpose_b=forward, unaligned=unaligned,
                            reads_out=problem.reads_out)
    return replace(made, most_workspace=problem.most_workspace)


def _plan(make: Callable[[], Plan], problem: Problem) -> Plan:
    plan, s = make(), problem.shape
    names = {"a": maps_of(problem), "b": "filters"}
    terms = s.C if problem.kind == "forward" else s.K
    # The scaling by alpha counts as one more product, as in every convolution.
    launches = [replace(_without_numbers(renamed(x, names)), flops=x.flops + x.flops // terms) for x in plan.launches]
    return replace(plan, problem=problem, family=FAMILY.name, launches=tuple(launches))


def _without_numbers(launch: Launch) -> Launch:
    """The launch where pieces alone are multiplied, so that prepared filters need not keep what theirs were made of."""
    none = {"spreads": 0, "a_values": 0, "b_values": 0, "most_spread": math.inf}
    unused = {name: value for name, value in none.items() if name in launch.values}
    return replace(launch, values={**launch.values, **unused})


FAMILY = Family("product of channels", (), reference, ("forward", "data"), unsupported_reason, candidates,
                activations=())
