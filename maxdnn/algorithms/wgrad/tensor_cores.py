"""Gradients of filters on the tensor cores of sm_90, as exact as float32: the product of gradients and patches of maps,
both split in two FP16 numbers beforehand, by the kernel of products (gemm/tensor_cores.py). Rows of patches are
elements (c, r, s) in the order of the filters, so that the product is the result as it lies."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...planning.cost import Chip
from ...planning.plan import Plan
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape, ProductShape
from ..common.epilogue import PARTIAL, epilogue_of
from ..common.limits import MAX_ELEMENTS, TEXEL_FLOATS, within
from ..common.schedule import split_name, why_split
from ..common.workspace import Draft
from ..gemm.patches import PATCHES, reference, split_patches
from ..gemm.plan import Matrices
from ..gemm.tensor_cores import CHUNK, NOTE, PRODUCT, TILE, multiply
from ..memory_ops.plan import reduce_many
from ..spec import Candidates, Family
from .plan import filling_splits

FEWEST = 32
"""Filters of a group, and elements (c, r, s) of one, of which 128 make a tile."""

NAME = "sm90_tensor_filters_128x128"
"""Of the candidate with whole sums."""

LONGEST = 8192
"""Pixels of a sum, if splits allow: FFMA adds 128 sums of 64. Four times as many come 1.3e-6 of the sum of |terms| off
where all terms are positive; these come 4.6e-7 off."""


def unsupported_reason(problem: Problem) -> str | None:
    """Images and gradients may have any strides."""
    s: ConvShape = problem.shape
    for count, what in ((s.K // s.groups, "filters"), (s.patch, "elements C x R x S")):
        if count < FEWEST:
            return f"{count} {what} of a group, fewer than {FEWEST}"
    return "a result that is not C-contiguous" if problem.operand("out").strides else None


def candidates(problem: Problem, chip: Chip) -> Candidates:
    s, found = _product(problem), dict[str, Callable[[], Plan]]()
    tiles = -(-s.M // TILE) * -(-s.N // TILE) * s.batch
    for splits in filling_splits(-(-s.K // CHUNK), CHUNK, tiles, chip.sms, LONGEST):
        found[split_name(NAME, splits)] = partial(_plan, problem, chip, splits)
    return found


def _product(problem: Problem) -> ProductShape:
    """Of a group: rows and columns as they lie in the result, sums over pixels."""
    s: ConvShape = problem.shape
    rows, columns = s.K // s.groups, s.patch
    if problem.layout == "CHWN":
        rows, columns = columns, rows
    return ProductShape(rows, columns, s.N * s.P * s.Q, s.groups)


def _plan(problem: Problem, chip: Chip, splits: int) -> Plan:
    s: ConvShape = problem.shape
    draft, product, size = Draft(problem), _product(problem), s.patch * s.K
    within(s, ((f"parts {splits} x C x R x S x K", splits * size, MAX_ELEMENTS, "elements"),))
    a = split_patches(draft, PATCHES, "gradients", ConvShape(s.N, s.K, s.P, s.Q, s.groups, 1, 1, groups=s.groups))
    b = split_patches(draft, PATCHES, "images", s)
    into = "out" if splits == 1 else draft.region("parts", splits * size)
    out = Matrices(into, s.patch, s.K // s.groups * s.patch, size)
    if problem.layout == "CHWN":
        a, b = b, a
        out = Matrices(into, s.K, s.K // s.groups, size)
    vectors = (not any(x % TEXEL_FLOATS for x in (out.row, out.batch, product.N))
               and (splits > 1 or problem.operand("out").alignment >= Alignment.VECTOR))
    launch = multiply(chip, product, a, b, out, vectors=vectors, splits=splits,
                      epilogue=epilogue_of(problem) if splits == 1 else PARTIAL)
    # The scaling by alpha counts as one more product, as in every convolution.
    draft.launches.append(replace(launch, flops=s.flops))
    if splits > 1:
        draft.add(reduce_many("parts", "out", splits, size, epilogue_of(problem), draft.region))
        draft.notes.append(why_split(product.K, splits))
    draft.notes.append(NOTE)
    return draft.plan(FAMILY, PRODUCT)


FAMILY = Family("tensor filters", (PATCHES,), reference, ("filters",), unsupported_reason, candidates)
