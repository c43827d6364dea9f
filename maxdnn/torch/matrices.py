"""Products of matrices inside networks (`@`, `matmul`, `mm`, `bmm`, `addmm`, `baddbmm`) by this library's products.
What these do not serve (vectors, other dtypes, autocasts, small products) is PyTorch's."""

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx

from ..errors import ShapeError
from . import ops, products

LEAST_EACH = 128 ** 3
"""Multiplications of each matrix of several from which on they are ours: a tile has 128 rows and columns."""


def matmul(input: Tensor, other: Tensor, *, arithmetic: str = "auto") -> Tensor:
    """torch.matmul."""
    found = None if isinstance(input, fx.Proxy) else _product(None, input, other, arithmetic)
    return torch.matmul(input, other) if found is None else found


def mm(input: Tensor, mat2: Tensor, *, arithmetic: str = "auto") -> Tensor:
    """torch.mm."""
    found = _product(None, input, mat2, arithmetic) if _axes(2, input, mat2) else None
    return torch.mm(input, mat2) if found is None else found


def bmm(input: Tensor, mat2: Tensor, *, arithmetic: str = "auto") -> Tensor:
    """torch.bmm."""
    found = _product(None, input, mat2, arithmetic) if _axes(3, input, mat2) else None
    return torch.bmm(input, mat2) if found is None else found


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1,
          arithmetic: str = "auto") -> Tensor:
    """torch.addmm."""
    found = _product(input, mat1, mat2, arithmetic, beta, alpha) if _axes(2, mat1, mat2) else None
    return torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha) if found is None else found


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1,
            arithmetic: str = "auto") -> Tensor:
    """torch.baddbmm."""
    found = _product(input, batch1, batch2, arithmetic, beta, alpha) if _axes(3, batch1, batch2) else None
    return torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha) if found is None else found


_OPERANDS: dict[Any, tuple[str, ...]] = {
    matmul: ("input", "other"), mm: ("input", "mat2"), bmm: ("input", "mat2"),
    addmm: ("input", "mat1", "mat2"), baddbmm: ("input", "batch1", "batch2")}
_INSTEAD: dict[Any, Any] = {
    torch.matmul: matmul, operator.matmul: matmul, torch.linalg.matmul: matmul, torch.mm: mm, torch.bmm: bmm,
    torch.addmm: addmm, torch.baddbmm: baddbmm}
_METHODS = {"matmul": matmul, "__matmul__": matmul, "mm": mm, "bmm": bmm, "addmm": addmm, "baddbmm": baddbmm}
_LEFT: dict[Any, str] = {torch.nn.functional.scaled_dot_product_attention: "attention in one operator is PyTorch's"} | {
    one: "a product of tensors in this form is PyTorch's"
    for one in (torch.einsum, torch.tensordot, torch.addbmm, torch.mv, torch.addmv, torch.nn.functional.bilinear)}
_LEFT_METHODS = {"addmm_", "baddbmm_", "addbmm", "addbmm_", "mv", "addmv", "addmv_"}
FRESH = {*_INSTEAD, *_OPERANDS}
"""Functions whose result shares memory with none of their operands."""


def instead(node: fx.Node) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | str | None:
    """The function, the arguments and the options of a node that multiplies matrices by this library; why PyTorch goes
    on to do it; None for other nodes."""
    if node.op == "call_method":
        found: Any = _METHODS.get(str(node.target))
        if str(node.target) in _LEFT_METHODS:
            return "a product of tensors in this form is PyTorch's"
    else:
        found = _INSTEAD.get(node.target) if node.op == "call_function" else None
    if found is None:
        return _LEFT.get(node.target) if node.op == "call_function" else None
    names, options = _OPERANDS[found], dict(node.kwargs)
    if node.op == "call_function" and "self" in options:
        options["input"] = options.pop("self")
    if "out" in options:
        return "it writes into a tensor that is given"
    operands = [*node.args, *(options.pop(name) for name in names[len(node.args):] if name in options)]
    if len(operands) != len(names) or not set(options) <= ({"beta", "alpha"} if len(names) == 3 else set()):
        return f"its arguments are not those of {found.__name__}"
    return found, tuple(operands), options


def _axes(count: int, *given: Any) -> bool:
    return not isinstance(given[0], fx.Proxy) and all([tensor.dim() == count for tensor in given])


def _product(added: Tensor | None, a: Tensor, b: Tensor, arithmetic: str, beta: Any = 1, alpha: Any = 1
             ) -> Tensor | None:
    """alpha * a b + beta * added; None where that is PyTorch's."""
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        return None
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        return None
    one = b.dim() == 2 or math.prod(b.shape[:-2]) == 1  # matrix for all rows
    each = math.prod(batch) * rows * inner * columns if one else rows * inner * columns
    whole = (*batch, rows, columns)
    if (each * (1 if one else math.prod(batch)) < products.LEAST_PRODUCTS
            or each < min(LEAST_EACH, products.LEAST_PRODUCTS) or not _fits(added, whole)
            or not products.served((a, b) if added is None else (a, b, added))):
        return None
    added = None if beta == 0 else added
    if one and batch:
        a, b = a.expand(*batch, rows, inner).reshape(-1, inner), b.reshape(inner, columns)
        added = None if added is None else added.expand(whole).reshape(-1, columns)
    elif batch:
        a, b = a.expand(*batch, rows, inner), b.expand(*batch, inner, columns)
    try:
        return _run(added, *_laid(a), *_laid(b), arithmetic, float(beta), float(alpha)).view(whole)
    except ShapeError:  # beyond what a grid or a count reaches
        return None


def _fits(added: Tensor | None, shape: tuple[int, ...]) -> bool:
    """Whether a tensor can be added to one of this shape, which that does not make larger."""
    return added is None or (added.dim() <= len(shape) and all(
        size in (1, wanted) for size, wanted in zip(reversed(added.shape), reversed(shape), strict=False)))


def _laid(matrices: Tensor) -> tuple[Tensor, bool]:
    """Matrices as they lie, and whether that is transposed; a copy where they lie otherwise."""
    if not matrices.is_contiguous() and matrices.mT.is_contiguous():
        return matrices.mT, True
    return matrices.contiguous(), False


def _run(added: Tensor | None, a: Tensor, transpose_a: bool, b: Tensor, transpose_b: bool, arithmetic: str, beta: float,
         alpha: float) -> Tensor:
    how = transpose_a, transpose_b
    if added is None and alpha == 1:
        seen = ops.plain((a, b)) is True  # past PyTorch's dispatcher
        found: Tensor = (products._product if seen else products.product)(a, b, *how, arithmetic)
        return found
    if added is None:
        found = products.product(a, b, *how, arithmetic) * alpha
        return found
    found = products.product_sum(added, a, b, *how, beta, alpha, arithmetic)
    return found
