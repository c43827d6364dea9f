"""Linear layers by this library's products, with derivatives by products, too.

PyTorch sees the operators as `torch.ops.maxdnn.*`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..errors import ShapeError
from ..planning.select import MAX_ERROR, check_wanted
from ..product import matmul
from . import running
from .functional import stock_alone
from .running import DEFAULTS

LEAST_PRODUCTS = 512 ** 3
"""Multiplications from which on a product is ours: smaller ones take no less time here (docs/tensor-cores.md)."""


def _multiplied(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, bias: Tensor | None,
                arithmetic: str) -> Tensor:
    """op(a) op(b) + bias, of matrices that are not empty."""
    out = running.empty(a, (a.shape[-1 if transpose_a else 0], b.shape[0 if transpose_b else -1]))
    if bias is not None:
        out.copy_(bias)
    beta = 0.0 if bias is None else 1.0
    given = [tensor.detach() for tensor in (a.contiguous(), b.contiguous(), out)]
    if a.is_cuda:
        how = {"stream": torch._C._cuda_getCurrentRawStream(a.get_device())}
    else:
        running.device_of(-1)
        given, how = [tensor.numpy() for tensor in given], {}
    matmul(given[0], given[1], transpose_a=transpose_a, transpose_b=transpose_b, beta=beta, out=given[2],
           arithmetic=arithmetic, **how)
    return out


def _product(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, arithmetic: str = "auto") -> Tensor:
    if not a.numel() or not b.numel():
        raise ShapeError(f"a and b must not be empty (got shapes {tuple(a.shape)}, {tuple(b.shape)})")
    return _multiplied(a, b, transpose_a, transpose_b, None, arithmetic)


def _layer(input: Tensor, weight: Tensor, bias: Tensor | None, arithmetic: str = "auto") -> Tensor:
    rows = input.reshape(-1, input.shape[-1])
    if not rows.numel() or not weight.numel():
        raise ShapeError(f"input and weight must not be empty (got shapes {tuple(input.shape)}, {tuple(weight.shape)})")
    return _multiplied(rows, weight, False, True, bias, arithmetic).view(*input.shape[:-1], weight.shape[0])


_library = torch.library.Library("maxdnn", "FRAGMENT")
for _name, _arguments, _function in (
        ("product", "Tensor a, Tensor b, bool transpose_a, bool transpose_b, str arithmetic='auto'", _product),
        ("linear", "Tensor input, Tensor weight, Tensor? bias, str arithmetic='auto'", _layer)):
    _library.define(f"{_name}({_arguments}) -> Tensor")
    for _kind in ("CPU", "CUDA"):
        _library.impl(_name, _function, _kind)

product = torch.ops.maxdnn.product.default
layer = torch.ops.maxdnn.linear.default


@partial(torch.library.register_fake, "maxdnn::product", lib=_library)
def _(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, arithmetic: str = "auto") -> Tensor:
    torch._check(a.shape[0 if transpose_a else 1] == b.shape[1 if transpose_b else 0],
                 lambda: "rows and columns of a and b do not fit")
    return a.new_empty((a.shape[1 if transpose_a else 0], b.shape[0 if transpose_b else 1]))


@partial(torch.library.register_fake, "maxdnn::linear", lib=_library)
def _(input: Tensor, weight: Tensor, bias: Tensor | None, arithmetic: str = "auto") -> Tensor:
    torch._check(input.shape[-1] == weight.shape[1], lambda: "features of input and weight do not fit")
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _keep_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.turned, ctx.more = inputs[2:4], inputs[4:]


def _of_product(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    """Products of as many multiplications as the one that they are derivatives of."""
    (a, b), (turned_a, turned_b) = ctx.saved_tensors, ctx.turned
    of_a = (gradients, b, False, not turned_b) if not turned_a else (b, gradients, turned_b, True)
    of_b = (a, gradients, not turned_a, False) if not turned_b else (gradients, a, True, turned_a)
    wanted = ctx.needs_input_grad
    return (product(*of_a, *ctx.more) if wanted[0] else None, product(*of_b, *ctx.more) if wanted[1] else None,
            None, None, *[None] * len(ctx.more))


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


torch.library.register_autograd("maxdnn::product", _of_product, setup_context=_keep_product, lib=_library)
torch.library.register_autograd("maxdnn::linear", _of_layer, setup_context=_keep_layer, lib=_library)


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
    check_wanted("auto", MAX_ERROR, None, arithmetic)
    if not isinstance(input, fx.Proxy) and _multiplies(input, weight, bias):
        out: Tensor = layer(input, weight, bias, arithmetic)
        return out
    return nn.functional.linear(input, weight, bias)


def _multiplies(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether products of some size are ours."""
    kind = input.device.type
    return (not stock_alone()
            and all(t is None or (t.dtype is torch.float32 and t.device == input.device) for t in (input, weight, bias))
            and kind in ("cpu", "cuda") and input.dim() >= 1 and weight.dim() == 2
            and input.shape[-1] == weight.shape[1] and (bias is None or bias.shape == weight.shape[:1])
            and input.numel() * weight.shape[0] >= LEAST_PRODUCTS
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
