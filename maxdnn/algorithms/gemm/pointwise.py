"""Filters of one tap are matrices: without padding, stride and groups a convolution by them, and its gradient with
respect to the images, are matrix products of arrays as they lie, by the kernels of matrix products. Those of sm_90 add
the bias and apply the activation themselves."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...errors import ShapeError
from ...planning.cost import Chip
from ...planning.plan import MAX_TEXELS, Plan
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..common.correlation import maps_of
from ..common.epilogue import ACTIVATION_FLAGS, PARTIAL, epilogue_of
from ..common.limits import MAX_GRID_YZ, TEXEL_FLOATS
from ..common.schedule import split_name, why_split
from ..common.workspace import Draft
from ..memory_ops.activation import finished
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, strided_reason
from .maxwell import KERNELS, ProductKernel
from .plan import Matrices, multiply
from .reference import reference
from .sm90 import NATIVE


def unsupported_reason(problem: Problem) -> str | None:
    s: ConvShape = problem.shape
    if (s.R, s.S) != (1, 1) or s.stride != (1, 1) or s.padding != (0, 0) or s.groups > 1:
        return "other filters than 1 x 1, or stride, padding or groups"
    if any(problem.operand(role).alignment < Alignment.TEXTURE for role in ("filters", maps_of(problem))):
        return "arrays that begin where no texture may"
    rows = {"CHWN": (s.K, s.H * s.W * s.N), "NCHW": (s.C, s.H * s.W)}[problem.layout]
    if any(row % TEXEL_FLOATS for row in rows):
        return f"rows of {rows[0]} and {rows[1]} floats, no multiples of {TEXEL_FLOATS}"
    if s.N * max(s.C, s.K) * s.H * s.W > TEXEL_FLOATS * MAX_TEXELS:
        return f"maps of more than {TEXEL_FLOATS * MAX_TEXELS} elements, the reach of a texture"
    return strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    found: dict[str, Callable[[], Plan]] = {}
    shape, layout = _product(problem)
    plain = not problem.activation and "bias" not in problem.roles
    for spec in (*KERNELS, *NATIVE):
        if spec.layout == layout:
            for splits in spec.splits(shape.K):
                if splits > 1 or plain or spec.arch:  # else only the sum of parts can do more than alpha and beta
                    found[split_name(spec.name, splits)] = partial(_plan, problem, spec, splits)
                elif problem.activation != "relu" and "bias" not in problem.roles:
                    bare = partial(_plan, replace(problem, activation=None), spec, splits)
                    found[split_name(spec.name, splits)] = partial(finished, bare, problem)
    return found


def _product(problem: Problem) -> tuple[ProductShape, str]:
    """For each image, or in C,H,W,N for all: the filters, transposed or not, by the maps."""
    s: ConvShape = problem.shape
    chwn, forward = problem.layout == "CHWN", problem.kind == "forward"
    m, k = (s.K, s.C) if forward else (s.C, s.K)
    pixels = s.H * s.W * (s.N if chwn else 1)
    return ProductShape(m, pixels, k, 1 if chwn else s.N), "tn" if chwn == forward else "nn"


def _plan(problem: Problem, spec: ProductKernel, splits: int) -> Plan:
    s: ConvShape = problem.shape
    shape, _ = _product(problem)
    if -(-shape.M // spec.rows) > MAX_GRID_YZ:
        raise ShapeError(f"rows of tiles must be at most {MAX_GRID_YZ} (got {shape.M} filters for {s})")
    row, size = shape.N, shape.batch * shape.M * shape.N
    filters = Matrices("filters", s.K if problem.layout == "CHWN" else s.C, 0, s.K * s.C)
    maps = Matrices(maps_of(problem), row, shape.K * row, shape.batch * shape.K * row)
    draft, epilogue, place = Draft(problem), epilogue_of(problem), "out"
    if splits > 1:
        place = draft.region("parts", splits * size)
        draft.notes.append(why_split(shape.K, splits))
    vectors = splits > 1 or problem.operand("out").alignment >= Alignment.VECTOR
    launches = multiply(spec, shape, filters, maps, Matrices(place, row, shape.M * row), splits=splits, vectors=vectors,
                        epilogue=PARTIAL if splits > 1 else epilogue)
    # The scaling by alpha counts as one more product, as in every convolution.
    draft.add(replace(x, flops=x.flops + x.flops // shape.K) for x in launches)
    if splits > 1:
        draft.launches.append(reduce("parts", "out", splits, size, (row, shape.M, shape.batch), shape.M, epilogue))
    return draft.plan(FAMILY, spec)


FAMILY = Family("pointwise", (), reference, ("forward", "data"), unsupported_reason, candidates,
                activations=tuple(ACTIVATION_FLAGS))
