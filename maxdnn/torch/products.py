"""Products of matrices and linear layers by this library's products, with derivatives by products, too.

PyTorch sees the operators as `torch.ops.maxdnn.*`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from ..errors import ShapeError
from ..planning import records
from ..planning.plan import Plan
from ..planning.select import ARITHMETICS, MAX_ERROR, check_wanted, chip_of, choose
from ..problem.problem import product as problem
from ..product import matmul
from ..runtime import engine
from ..runtime.arguments import VECTOR_BYTES
from ..runtime.remember import HOST_BYTES, Table
from . import ops, running
from .functional import stock_alone
from .running import DEFAULTS

LEAST_PRODUCTS = 512 ** 3
"""Multiplications from which on a product is ours: smaller ones take no less time here (docs/tensor-cores.md)."""


_plans: Table[tuple[Any, ...], Plan] = Table(HOST_BYTES)  # by all that decides a product on a GPU
records.changed.append(lambda: _plans.clear())


def _multiplied(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, added: Tensor | None,
                arithmetic: str, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """The sum alpha * op(a) op(b) + beta * added, of matrices that are not empty, or of as many of both."""
    shape = (*a.shape[:-2], a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1])
    a, b = a.contiguous(), b.contiguous()
    out = running.empty(a, shape) if added is None else added.expand(shape).contiguous()
    if added is not None and out.data_ptr() == added.data_ptr():  # it lies as the result does
        out = out.clone()
    if a.is_cuda:
        factors = () if alpha == beta == 1 else ({"alpha": np.float32(alpha), "beta": np.float32(beta)},)
        _launch(a, b, transpose_a, transpose_b, out, added is not None, arithmetic, *factors)
        return out
    running.device_of(-1)
    given = [tensor.detach().numpy() for tensor in (a, b, out)]
    matmul(given[0], given[1], transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha,
           beta=0.0 if added is None else beta, out=given[2], arithmetic=arithmetic)
    return out


def _launch(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, out: Tensor, adds: bool,
            arithmetic: str, *factors: Mapping[str, Any]) -> None:
    """Fill `out` on a GPU, or add to it, on the current stream, with workspace of PyTorch's allocator."""
    where = out.get_device()
    device, easy = running.device_of(where)
    places = {"a": a.data_ptr(), "b": b.data_ptr(), "out": out.data_ptr()}
    odd = tuple([role for role, place in places.items() if place % (easy if role != "out" else VECTOR_BYTES)])
    key = a.shape, b.shape, transpose_a, transpose_b, odd, adds, where, arithmetic
    if b.get_device() != where:
        raise ShapeError(f"b must be on {out.device}, as the first matrix is (got {b.device})")
    plan = _plans.get(key)
    if plan is None:
        asked = problem((*a.shape,), (*b.shape,), transpose_a=transpose_a, transpose_b=transpose_b, unaligned=odd,
                        reads_out=adds)
        plan = choose(asked, chip_of(device), arithmetic=arithmetic, tuned=records.enabled())
        _plans.remember(key, plan, plan.host_bytes)
    running.launch(plan, engine.of(device), out, places, *factors)


def _product(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, arithmetic: str = "auto") -> Tensor:
    _check(a, b)
    return _multiplied(a, b, transpose_a, transpose_b, None, arithmetic)


def _sum(added: Tensor, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, beta: float = 1.0,
         alpha: float = 1.0, arithmetic: str = "auto") -> Tensor:
    _check(a, b)
    return _multiplied(a, b, transpose_a, transpose_b, added, arithmetic, beta, alpha)


def _check(a: Tensor, b: Tensor) -> None:
    if not a.numel() or not b.numel() or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError("a and b must be matrices that are not empty, as many of one as of the other "
                         f"(got shapes {tuple(a.shape)}, {tuple(b.shape)})")


def _layer(input: Tensor, weight: Tensor, bias: Tensor | None, arithmetic: str = "auto") -> Tensor:
    rows = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
    if not rows.numel() or not weight.numel():
        raise ShapeError(f"input and weight must not be empty (got shapes {tuple(input.shape)}, {tuple(weight.shape)})")
    out = _multiplied(rows, weight, False, True, bias, arithmetic)
    return out if input.dim() == 2 else out.view(*input.shape[:-1], weight.shape[0])


def _empty_product(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, arithmetic: str = "auto") -> Tensor:
    torch._check(a.shape[-2 if transpose_a else -1] == b.shape[-1 if transpose_b else -2],
                 lambda: "rows and columns of a and b do not fit")
    return a.new_empty((*a.shape[:-2], a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1]))


def _empty_sum(added: Tensor, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, beta: float = 1.0,
               alpha: float = 1.0, arithmetic: str = "auto") -> Tensor:
    return _empty_product(a, b, transpose_a, transpose_b)


def _empty_layer(input: Tensor, weight: Tensor, bias: Tensor | None, arithmetic: str = "auto") -> Tensor:
    torch._check(input.shape[-1] == weight.shape[1], lambda: "features of input and weight do not fit")
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _keep_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.transposes, ctx.more = inputs[2:4], inputs[4:]


def _of_product(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    found = _of_matrices(a, b, ctx.transposes, gradients, ctx.needs_input_grad, ctx.more)
    return (*found, None, None, *[None] * len(ctx.more))


def _of_matrices(a: Tensor, b: Tensor, transposes: Any, gradients: Tensor, wanted: Any,
                 more: tuple[Any, ...]) -> tuple[Tensor | None, Tensor | None]:
    """Products of as many multiplications as the one that they are derivatives of."""
    transpose_a, transpose_b = transposes
    of_a = (gradients, b, False, not transpose_b) if not transpose_a else (b, gradients, transpose_b, True)
    of_b = (a, gradients, not transpose_a, False) if not transpose_b else (gradients, a, True, transpose_a)
    return product(*of_a, *more) if wanted[0] else None, product(*of_b, *more) if wanted[1] else None


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])
    ctx.shape, ctx.transposes, (ctx.beta, ctx.alpha) = inputs[0].shape, inputs[3:5], (*inputs[5:7], 1.0, 1.0)[:2]
    ctx.count, ctx.more = len(inputs), inputs[7:]


def _of_sum(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    (a, b), transposes, wanted = ctx.saved_tensors, ctx.transposes, ctx.needs_input_grad
    of_a, of_b = _of_matrices(a, b, transposes, ctx.alpha * gradients, wanted[1:3], ctx.more)
    return ((ctx.beta * gradients).sum_to_size(ctx.shape) if wanted[0] else None, of_a, of_b,
            *[None] * (ctx.count - 3))


def _keep_layer(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.more = inputs[3:]


def _of_layer(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    input, weight = ctx.saved_tensors
    rows, flat, wanted = input.reshape(-1, input.shape[-1]), gradients.reshape(-1, gradients.shape[-1]), \
        ctx.needs_input_grad
    return (product(flat, weight, False, False, *ctx.more).view(input.shape) if wanted[0] else None,
            product(flat, rows, True, False, *ctx.more) if wanted[1] else None,
            flat.sum(0) if wanted[2] else None, *[None] * len(ctx.more))


_library = torch.library.Library("maxdnn", "FRAGMENT")
product = ops.operator(
    _library, "product", "Tensor a, Tensor b, bool transpose_a, bool transpose_b, str arithmetic='auto'", _product,
    _empty_product, _of_product, _keep_product)
product_sum = ops.operator(
    _library, "product_sum", "Tensor added, Tensor a, Tensor b, bool transpose_a, bool transpose_b, float beta=1, "
    "float alpha=1, str arithmetic='auto'", _sum, _empty_sum, _of_sum, _keep_sum)
layer = ops.operator(_library, "linear", "Tensor input, Tensor weight, Tensor? bias, str arithmetic='auto'", _layer,
                     _empty_layer, _of_layer, _keep_layer)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, arithmetic: str = "auto") -> Tensor:
    """torch.nn.functional.linear, in float32 and from 2^27 multiplications on by this library's products.

    Whatever else is asked (other dtypes, autocasts to them, transformations of functions, smaller products) is
    PyTorch's.

    Parameters
    ----------
    input : torch.Tensor
        (.., features).
    weight : torch.Tensor
        (outputs, features).
    bias : torch.Tensor, optional
        (outputs,).
    arithmetic : {"auto", "ffma"}
        As for `conv2d`; of derivatives, too.

    Returns
    -------
    torch.Tensor
        (.., outputs); differentiable any number of times.

    Raises
    ------
    ShapeError
        `arithmetic` is none.
    """
    if arithmetic not in ARITHMETICS:
        check_wanted("auto", MAX_ERROR, None, arithmetic)  # says what is wrong
    if not isinstance(input, fx.Proxy) and _multiplies(input, weight, bias):
        if ops.plain((input, weight) if bias is None else (input, weight, bias)):  # past PyTorch's dispatcher
            return _layer(input, weight, bias, arithmetic)
        out: Tensor = layer(input, weight, bias, arithmetic)
        return out
    return nn.functional.linear(input, weight, bias)


def _multiplies(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether products of some size are ours."""
    if (input.numel() * weight.shape[0] < LEAST_PRODUCTS or weight.dim() != 2 or not input.dim()
            or input.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1])):
        return False
    return served((input, weight) if bias is None else (input, weight, bias))


def served(given: Sequence[Tensor]) -> bool:
    """Whether products of such tensors are ours: float32 on one device, and nobody asks for anything else."""
    where = given[0].device
    for tensor in given:
        if tensor.dtype is not torch.float32 or tensor.device != where:
            return False
    kind = where.type
    return (kind in ("cpu", "cuda") and not stock_alone()
            and (not torch.is_autocast_enabled(kind) or torch.get_autocast_dtype(kind) is torch.float32))


class Linear(nn.Linear):
    """torch.nn.Linear whose float32 calls of some size run by this library's products, derivatives included.

    Parameters
    ----------
    *args, **options
        As for torch.nn.Linear.
    arithmetic : {"auto", "ffma"}
        As for `linear`; an attribute that may be set at any time.

    Raises
    ------
    ShapeError
        `arithmetic` is none.
    """

    arithmetic = DEFAULTS[2]

    def __init__(self, *args: Any, arithmetic: str = "auto", **options: Any) -> None:
        check_wanted("auto", MAX_ERROR, None, arithmetic)
        super().__init__(*args, **options)
        self.arithmetic = arithmetic

    def forward(self, input: Tensor) -> Tensor:
        """Multiply, as torch.nn.Linear does.

        Parameters
        ----------
        input : torch.Tensor
            (.., features).

        Returns
        -------
        torch.Tensor
            (.., outputs).
        """
        return linear(input, self.weight, self.bias, arithmetic=self.arithmetic)
