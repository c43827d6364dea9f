"""Operators of optimized networks: a convolution whose kernel also adds a bias and another map and applies ReLU, and a
linear layer by this library's products. PyTorch sees them as `torch.ops.maxdnn.*`, with shapes for tracing and
derivatives."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import ShapeError
from ..product import matmul
from . import ops, running
from .running import Ending


def _convolved(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, relu: bool,
               *conf: Any) -> Tensor:
    shape = running.output_shape(input, weight, conf)
    if residual is not None and (list(residual.shape) != shape or residual.dtype is not torch.float32):
        raise ShapeError(f"residual must be float32 of shape {tuple(shape)}, as the output "
                         f"(got {residual.dtype} of shape {tuple(residual.shape)})")
    out = running.empty(input, shape)
    if residual is not None:
        out.copy_(residual)
    given = {"images": input, "filters": weight} | ({} if bias is None else {"bias": bias})
    running.run("forward", given, out, input.shape, weight.shape, conf, Ending(residual is not None, relu))
    return out


def _product(input: Tensor, weight: Tensor, bias: Tensor | None, arithmetic: str = "auto") -> Tensor:
    rows = input.reshape(-1, input.shape[-1]).contiguous()
    if not rows.numel() or not weight.numel():
        raise ShapeError(f"input and weight must not be empty (got shapes {tuple(input.shape)}, {tuple(weight.shape)})")
    out = running.empty(input, (rows.shape[0], weight.shape[0]))
    if bias is not None:
        out.copy_(bias)
    beta = 0.0 if bias is None else 1.0
    given = [tensor.detach() for tensor in (rows, weight.contiguous(), out)]
    if input.is_cuda:
        stream = torch._C._cuda_getCurrentRawStream(input.get_device())
        matmul(given[0], given[1], transpose_b=True, beta=beta, out=given[2], stream=stream,
               arithmetic=arithmetic)
    else:
        running.device_of(-1)
        matmul(*[tensor.numpy() for tensor in given[:2]], transpose_b=True, beta=beta, out=given[2].numpy(),
               arithmetic=arithmetic)
    return out.view(*input.shape[:-1], weight.shape[0])


_library = torch.library.Library("maxdnn", "FRAGMENT")
for _name, _arguments, _function in (
        ("conv2d_epilogue", f"Tensor input, Tensor weight, Tensor? bias, Tensor? residual, bool relu, {ops.CONF}",
         _convolved),
        ("linear", "Tensor input, Tensor weight, Tensor? bias, str arithmetic='auto'", _product)):
    _library.define(f"{_name}({_arguments}) -> Tensor")
    for _kind in ("CPU", "CUDA"):
        _library.impl(_name, _function, _kind)

conv2d_epilogue = torch.ops.maxdnn.conv2d_epilogue.default
linear = torch.ops.maxdnn.linear.default


@partial(torch.library.register_fake, "maxdnn::conv2d_epilogue", lib=_library)
def _(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, relu: bool, *conf: Any) -> Tensor:
    torch._check(input.shape[1] == weight.shape[1] * conf[3], lambda: "channels of input and weight do not fit")
    return input.new_empty(running.output_shape(input, weight, conf))


@partial(torch.library.register_fake, "maxdnn::linear", lib=_library)
def _(input: Tensor, weight: Tensor, bias: Tensor | None, arithmetic: str = "auto") -> Tensor:
    torch._check(input.shape[-1] == weight.shape[1], lambda: "features of input and weight do not fit")
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _keep_convolution(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.relu, ctx.adds, ctx.conf = inputs[4], inputs[3] is not None, inputs[5:]
    ctx.save_for_backward(inputs[0], inputs[1], output if ctx.relu else None)


def _of_convolution(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    images, filters, out = ctx.saved_tensors
    if ctx.relu:
        gradients = torch.ops.aten.threshold_backward(gradients, out, 0)
    wanted = ctx.needs_input_grad
    return (ops.conv2d_input(gradients, filters, images.shape[2:], *ctx.conf) if wanted[0] else None,
            ops.conv2d_weight(gradients, images, filters.shape[2:], *ctx.conf) if wanted[1] else None,
            gradients.sum((0, 2, 3)) if wanted[2] else None, gradients if ctx.adds and wanted[3] else None,
            None, *[None] * len(ctx.conf))


def _keep_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


def _of_product(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    rows, weight = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    flat = gradients.flatten(0, -2)
    return (gradients @ weight if wanted[0] else None,
            flat.mT @ rows.reshape(-1, rows.shape[-1]) if wanted[1] else None, flat.sum(0) if wanted[2] else None, None)


torch.library.register_autograd("maxdnn::conv2d_epilogue", _of_convolution, setup_context=_keep_convolution,
                                lib=_library)
torch.library.register_autograd("maxdnn::linear", _of_product, setup_context=_keep_product, lib=_library)
