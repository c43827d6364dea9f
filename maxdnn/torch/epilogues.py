"""The operator of fused layers: a convolution whose kernel also adds a bias and another map and applies an activation.
PyTorch sees it as `torch.ops.maxdnn.conv2d_epilogue`, with shapes for tracing and derivatives."""

from typing import Any

import torch
from torch import Tensor

from ..errors import ShapeError
from . import ops, running
from .running import Ending


def _convolved(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None,
               activation: str | None, *conf: Any) -> Tensor:
    shape = running.output_shape(input, weight, conf)
    if residual is not None and (list(residual.shape) != shape or residual.dtype is not torch.float32):
        raise ShapeError(f"residual must be float32 of shape {tuple(shape)}, as the output "
                         f"(got {residual.dtype} of shape {tuple(residual.shape)})")
    out = running.empty(input, shape, running.channels_last(input, weight))
    if residual is not None:
        out.copy_(residual)
    given = {"images": input, "filters": weight} | ({} if bias is None else {"bias": bias})
    running.run("forward", given, out, input.shape, weight.shape, conf, Ending(residual is not None, activation))
    return out


def _empty(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str | None,
           *conf: Any) -> Tensor:
    return ops.empty_output(input, weight, bias, *conf)


def _keep_convolution(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    if inputs[4] not in (None, "relu"):
        raise ShapeError(f"activation must be 'relu' or None where derivatives are wanted (got {inputs[4]!r})")
    ctx.relu, ctx.adds, ctx.conf = inputs[4] == "relu", inputs[3] is not None, inputs[5:]
    ctx.save_for_backward(inputs[0], inputs[1], output if ctx.relu else None)


def _of_convolution(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    images, filters, out = ctx.saved_tensors
    if ctx.relu:
        gradients = torch.ops.aten.threshold_backward(gradients, out, 0)
    wanted = ctx.needs_input_grad
    return (*ops.gradients_of(images, filters, gradients, wanted, ctx.conf),
            gradients if ctx.adds and wanted[3] else None, None, *[None] * len(ctx.conf))


_library = torch.library.Library("maxdnn", "FRAGMENT")
conv2d_epilogue = ops.operator(
    _library, "conv2d_epilogue", "Tensor input, Tensor weight, Tensor? bias, Tensor? residual, str? activation, "
    f"{ops.CONF}", _convolved, _empty, _of_convolution, _keep_convolution)


class _Taped(torch.autograd.Function):
    """A convolution with ReLU and its derivative, for calls that nobody looks at. Where the output is 0 the gradient
    goes no further, so that what ReLU was given need not be kept."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, *conf: Any) -> Tensor:
        out = _convolved(input, weight, bias, None, "relu", *conf)
        ctx.save_for_backward(input, weight, out)
        ctx.conf = conf
        return out

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
        images, filters, out = ctx.saved_tensors
        gradients = torch.ops.aten.threshold_backward(gradients, out, 0)
        return (*ops.gradients_of(images, filters, gradients, ctx.needs_input_grad, ctx.conf), *[None] * len(ctx.conf))


def with_relu(input: Tensor, weight: Tensor, bias: Tensor | None, *conf: Any) -> Tensor:
    """A convolution with ReLU; past the dispatcher where nobody looks, with derivatives if they are wanted."""
    given = (input, weight) if bias is None else (input, weight, bias)
    if ops.transformed():
        return torch.relu(ops.made(input, weight, bias, *conf))
    if torch.compiler.is_compiling() or not ops.unwatched(given):
        looked_at: Tensor = conv2d_epilogue(input, weight, bias, None, "relu", *conf)
        return looked_at
    if torch.is_grad_enabled() and any([tensor.requires_grad for tensor in given]):
        out: Tensor = _Taped.apply(input, weight, bias, *conf)
        return out
    return _convolved(input, weight, bias, None, "relu", *conf)
