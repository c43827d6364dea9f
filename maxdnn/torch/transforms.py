"""The operators under transformations of functions (torch.func.grad, vmap, jvp) and dual numbers: each with its
derivatives in both directions and its rule for a batch, made of the other two."""

from typing import Any

import torch
from torch import Tensor

Batched = tuple[Tensor, int]


class _Linear(torch.autograd.Function):
    """A function that is linear in each of two tensors; what follows them says how."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.save_for_forward(inputs[0], inputs[1])
        ctx.rest = inputs[2:]
        ctx.set_materialize_grads(False)


def _linear(operator: Any, batched: Any) -> Any:
    """Completes a class of such a function, which `operator` computes; `batched` is its rule for a batch."""
    def completed(function: Any) -> Any:
        def jvp(ctx: Any, a: Any, b: Any, *_: Any) -> Any:
            return _sum(function, ctx, a, b)

        def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Batched:
            found: Batched = batched(function.apply, info.batch_size, in_dims, *args)
            return found
        for name, rule in (("forward", operator), ("jvp", jvp), ("vmap", vmap)):
            setattr(function, name, staticmethod(rule))
        return function
    return completed


def _derivatives(ctx: Any, given: Any, of_first: Any, of_second: Any) -> tuple[Any, ...]:
    """With respect to the two tensors, those that are wanted, where `given` is the derivative of the result."""
    first, second = [given is not None and wanted for wanted in ctx.needs_input_grad[:2]]
    return (of_first(*ctx.saved_tensors) if first else None, of_second(*ctx.saved_tensors) if second else None,
            *[None] * len(ctx.rest))


# Rules for a batch of `b`, whose axes are `in_dims`. `call`: what computes one.


def convolutions(call: Any, b: int, in_dims: Any, images: Tensor, filters: Tensor, *conf: Any) -> Batched:
    """Of a batch of images, of filters, or of both."""
    (images, filters), g = _front(in_dims, images, filters), conf[3]
    if in_dims[1] is None:
        return call(images.flatten(0, 1), filters, *conf).unflatten(0, (b, -1)), 0
    if in_dims[0] is None:  # the filters of a group after one another, whoever's they are
        out = call(images, _in_groups(filters, 1, g), *conf)
        return _out_of_groups(out, 1, b, g), 0
    out = call(_merged(images), filters.flatten(0, 1), *conf[:3], g * b, *conf[4:])
    return out.unflatten(1, (b, -1)), 1


def input_gradients(call: Any, b: int, in_dims: Any, gradients: Tensor, filters: Tensor, size: Any,
                    *conf: Any) -> Batched:
    """Of a batch of gradients, of filters, or of both."""
    (gradients, filters), g = _front(in_dims, gradients, filters), conf[3]
    if in_dims[1] is None:
        return call(gradients.flatten(0, 1), filters, size, *conf).unflatten(0, (b, -1)), 0
    if in_dims[0] is None:  # the channels of a group after one another, whoever's they are
        out = call(gradients, filters.movedim(0, 1).flatten(1, 2), size, *conf)
        return _out_of_groups(out, 1, b, g), 0
    out = call(_merged(gradients), filters.flatten(0, 1), size, *conf[:3], g * b, *conf[4:])
    return out.unflatten(1, (b, -1)), 1


def weight_gradients(call: Any, b: int, in_dims: Any, gradients: Tensor, images: Tensor, size: Any,
                     *conf: Any) -> Batched:
    """Of a batch of gradients, of images, or of both."""
    (gradients, images), g = _front(in_dims, gradients, images), conf[3]
    if in_dims[1] is None:
        out = call(_in_groups(gradients, 2, g), images, size, *conf)
        return _out_of_groups(out, 0, b, g), 0
    if in_dims[0] is None:
        out = call(gradients, _in_groups(images, 2, g), size, *conf)
        return out.unflatten(1, (b, -1)), 1
    out = call(_merged(gradients), _merged(images), size, *conf[:3], g * b, *conf[4:])
    return out.unflatten(0, (b, -1)), 0


def _conv2d(images: Tensor, filters: Tensor, *conf: Any) -> Any:
    return torch.ops.maxdnn.conv2d(images, filters, None, *conf)


def _conv2d_input(gradients: Tensor, filters: Tensor, size: Any, *conf: Any) -> Any:
    return torch.ops.maxdnn.conv2d_input(gradients, filters, size, *conf)


def _conv2d_weight(gradients: Tensor, images: Tensor, size: Any, *conf: Any) -> Any:
    return torch.ops.maxdnn.conv2d_weight(gradients, images, size, *conf)


@_linear(_conv2d, convolutions)
class Convolution(_Linear):
    """maxdnn::conv2d without a bias, of images and filters."""

    @staticmethod
    def backward(ctx: Any, gradients: Any) -> tuple[Any, ...]:
        return _derivatives(
            ctx, gradients,
            lambda images, filters: InputGradient.apply(gradients, filters, tuple(images.shape[2:]), *ctx.rest),
            lambda images, filters: WeightGradient.apply(gradients, images, tuple(filters.shape[2:]), *ctx.rest))


@_linear(_conv2d_input, input_gradients)
class InputGradient(_Linear):
    """maxdnn::conv2d_input, of gradients and filters."""

    @staticmethod
    def backward(ctx: Any, twice: Any) -> tuple[Any, ...]:
        return _derivatives(
            ctx, twice, lambda gradients, filters: Convolution.apply(twice, filters, *ctx.rest[1:]),
            lambda gradients, filters: WeightGradient.apply(gradients, twice, tuple(filters.shape[2:]), *ctx.rest[1:]))


@_linear(_conv2d_weight, weight_gradients)
class WeightGradient(_Linear):
    """maxdnn::conv2d_weight, of gradients and images."""

    @staticmethod
    def backward(ctx: Any, twice: Any) -> tuple[Any, ...]:
        return _derivatives(
            ctx, twice, lambda gradients, images: Convolution.apply(images, twice, *ctx.rest[1:]),
            lambda gradients, images: InputGradient.apply(gradients, twice, tuple(images.shape[2:]), *ctx.rest[1:]))


def _sum(function: Any, ctx: Any, one: Any, other: Any) -> Any:
    """What a function that is linear in both becomes where they change by `one` and `other`, None for not at all."""
    a, b = ctx.saved_tensors
    parts = [function.apply(x, y, *ctx.rest) for x, y in ((one, b), (a, other)) if x is not None and y is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _front(in_dims: Any, *tensors: Tensor) -> list[Tensor]:
    """The tensors with the axis of the batch, where they have one, in front."""
    return [tensor if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims, strict=False)]


def _merged(tensor: Tensor) -> Tensor:
    """(B, N, C, ..) as (N, B * C, ..)."""
    return tensor.movedim(0, 1).flatten(1, 2)


def _in_groups(tensor: Tensor, axis: int, groups: int) -> Tensor:
    """(B, .., G * C, ..) with G * C at an axis as (.., G * B * C, ..)."""
    return tensor.unflatten(axis, (groups, -1)).movedim(0, axis).flatten(axis - 1, axis + 1)


def _out_of_groups(tensor: Tensor, axis: int, batch: int, groups: int) -> Tensor:
    """(.., G * B * C, ..) with G * B * C at an axis as (B, .., G * C, ..)."""
    return tensor.unflatten(axis, (groups, batch, -1)).movedim(axis + 1, 0).flatten(axis + 1, axis + 2)
