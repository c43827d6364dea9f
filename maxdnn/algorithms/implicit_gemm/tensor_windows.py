"""Forward convolution of few channels on the tensor cores of sm_90, as exact as float32: the product of filters and
patches of maps, both split in two FP16 numbers beforehand, by the kernel of products (gemm/tensor_cores.py). Rows of
patches are output pixels, so that sums run over elements (c, r, s) without gaps."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...planning.cost import Chip
from ...planning.plan import Plan
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..common.epilogue import ACTIVATION_FLAGS, PARTIAL, epilogue_of
from ..common.limits import MAX_ELEMENTS, TEXEL_FLOATS, within
from ..common.schedule import split_name, splits_of, why_split
from ..common.workspace import Draft
from ..gemm.patches import WINDOWS, reference, split_patches
from ..gemm.plan import Matrices
from ..gemm.tensor_cores import CHUNK, NOTE, PRODUCT, multiply, split
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family
from .tensor_cores import FEWEST

NAME = "sm90_tensor_windows_128x128"
"""Of the candidate with whole sums."""


def unsupported_reason(problem: Problem) -> str | None:
    """Images may have any strides."""
    s: ConvShape = problem.shape
    if s.groups > 1:
        return f"{s.groups} groups"
    if s.C >= FEWEST:
        return f"{s.C} channels, {FEWEST} or more, of which taps are gathered"
    if s.patch < FEWEST:
        return f"{s.patch} elements C x R x S, fewer than {FEWEST}"
    return next((f"{o.role} that are not C-contiguous" for o in problem.operands if o.strides and o.role != "images"),
                None)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    found = dict[str, Callable[[], Plan]]()
    for splits in splits_of(-(-problem.shape.patch // CHUNK)):
        found[split_name(NAME, splits)] = partial(_plan, problem, chip, splits)
    return found


def _plan(problem: Problem, chip: Chip, splits: int) -> Plan:
    s: ConvShape = problem.shape
    draft, size, nchw = Draft(problem), s.N * s.K * s.P * s.Q, problem.layout == "NCHW"
    within(s, (("output N x K x P x Q", size * splits, MAX_ELEMENTS, "elements, all parts of sums counted"),))
    images = s.N if nchw else 1
    product = ProductShape(s.K, size // (images * s.K), s.patch, images)
    bank = split(draft, "filter_pieces", Matrices("filters", s.patch if nchw else s.K, 0), s.K, s.patch, 1, nchw)
    maps = split_patches(draft, WINDOWS, "images", s)
    into = "out" if splits == 1 else draft.region("parts", splits * size)
    vectors = (product.N % TEXEL_FLOATS == 0
               and (splits > 1 or problem.operand("out").alignment >= Alignment.VECTOR))
    launch = multiply(chip, product, bank, maps, Matrices(into, product.N, s.K * product.N), vectors=vectors,
                      splits=splits, epilogue=epilogue_of(problem) if splits == 1 else PARTIAL)
    # The scaling by alpha counts as one more product, as in every convolution.
    draft.launches.append(replace(launch, flops=s.flops))
    if splits > 1:
        rows = (product.N, s.K, images)
        draft.launches.append(reduce("parts", "out", splits, size, rows, s.K, epilogue_of(problem)))
        draft.notes.append(why_split(s.patch, splits))
    draft.notes.append(NOTE)
    return draft.plan(FAMILY, PRODUCT)


FAMILY = Family("tensor windows", (WINDOWS,), reference, ("forward",), unsupported_reason, candidates,
                activations=tuple(ACTIVATION_FLAGS))
