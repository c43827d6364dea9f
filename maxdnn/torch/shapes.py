"""The problems that the layers of a model are."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..problem.problem import PASSES, Problem, channels_last, forward, product
from ..problem.shape import ConvShape
from . import products, running
from .functional import _named_padding, pair, why_not
from .transposed import _size, beyond

_LAYERS = nn.Conv2d, nn.Conv1d, nn.ConvTranspose2d, nn.ConvTranspose1d, nn.Linear, nn.MultiheadAttention


@dataclass(frozen=True)
class Convolution:
    """A convolution, or one whose gradient a transposed one is. `map_last`, `filters_last`: which are channels_last."""

    shape: ConvShape
    bias: bool
    transposed: bool = False
    map_last: bool = False
    filters_last: bool = False

    def problem(self, kind: str, activation: str | None = None, adds: bool = False) -> Problem:
        """Of a pass of the layer: forward, or the gradient of its map ("data") or of its filters. What comes back to
        it lies as its output does."""
        found = self._contiguous(kind, activation, adds)
        either = self.map_last or self.filters_last
        last = {"filters": self.filters_last, "out": either, "images": either, "gradients": either}
        last["gradients" if self.transposed else "images"] = self.map_last
        for o in found.operands:
            if last.get(o.role) and o.shape[1] > 1 and o.shape[2:] != (1, 1):  # else it is contiguous, too
                found = found.with_strides(o.role, channels_last(o.shape))
        return found

    def _contiguous(self, kind: str, activation: str | None, adds: bool) -> Problem:
        if self.transposed:
            kind = {"forward": "data", "data": "forward"}.get(kind, kind)
        if kind != "forward":
            return PASSES[kind](self.shape, layout="NCHW", reads_out=adds)
        of_layer = not self.transposed
        return forward(self.shape, layout="NCHW", bias=self.bias and of_layer,
                       activation=activation if of_layer else None, reads_out=adds)


@dataclass(frozen=True)
class Rows:
    """A linear layer, and how many rows it is given."""

    rows: int
    features: int
    outputs: int
    bias: bool

    def problem(self, kind: str, activation: str | None = None, adds: bool = False) -> Problem:
        """Of a pass of the layer; there is no activation."""
        given, weight, out = (self.rows, self.features), (self.outputs, self.features), (self.rows, self.outputs)
        if kind == "forward":
            return product(given, weight, transpose_b=True, reads_out=adds or self.bias)
        if kind == "data":
            return product(out, weight, reads_out=adds)
        return product(out, given, transpose_a=True, reads_out=adds)


def layers(model: nn.Module, example: Any) -> list[Convolution | Rows]:
    """The layers of a model that this library can serve, as they come in one run on `example` (without gradients)."""
    found: list[Convolution | Rows] = []

    def seen(module: nn.Module, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        if given and isinstance(given[0], Tensor) and given[0].numel():
            found.extend(_linear(module, given) if isinstance(module, (nn.Linear, nn.MultiheadAttention)) else
                         _convolution(module, given[0], *given[1:2], **options))
    hooks = [m.register_forward_pre_hook(seen, with_kwargs=True) for m in model.modules() if isinstance(m, _LAYERS)]
    try:
        with torch.no_grad():
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _convolution(module: Any, images: Tensor, output_size: Any = None) -> list[Convolution | Rows]:
    weight, padding = module.weight, module.padding
    axes = 1 if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d)) else 2
    if why_not(images, weight, module.bias, axes) is not None:
        return []
    if module.transposed:
        more = module.output_padding if output_size is None else module._output_padding(
            images, output_size, module.stride, padding, module.kernel_size, axes, module.dilation)
        if beyond(tuple(more), module.stride) is not None:
            return []
    elif module.padding_mode != "zeros":
        images, padding = nn.functional.pad(images, module._reversed_padding_repeated_twice), (0,) * axes
    if axes == 1:
        images, weight = images.unsqueeze(-2), weight.unsqueeze(-2)
    stride, dilation = ((1, *x) if axes == 1 else x for x in (module.stride, module.dilation))
    if isinstance(padding, str):
        images, padding = _named_padding(padding, images, weight, stride, dilation)
    elif axes == 1:
        padding = (0, *padding)
    n = images.shape[0] if images.dim() == 4 else 1
    k, second, r, s = weight.shape
    c, h, w = images.shape[-3:]
    if module.transposed:
        h, w = _size(images, weight, stride, padding, dilation, (0, *more) if axes == 1 else pair("", tuple(more)))
        c = second * module.groups
    shape = ConvShape(n, c, h, w, k, r, s, stride, padding, dilation, module.groups)
    return [Convolution(shape, module.bias is not None, module.transposed, running.channels_last(images),
                        running.channels_last(weight))]


def _linear(module: Any, given: tuple[Any, ...]) -> list[Convolution | Rows]:
    input = given[0]
    if isinstance(module, nn.Linear):
        weights: list[tuple[Any, Any]] = [(module.weight, module.bias)]
    elif module.in_proj_weight is not None and all(x is input for x in given[:3]):
        weights = [(module.in_proj_weight, module.in_proj_bias), (module.out_proj.weight, module.out_proj.bias)]
    else:
        return []
    rows = math.prod(input.shape[:-1])
    return [Rows(rows, weight.shape[1], weight.shape[0], bias is not None) for weight, bias in weights
            if input.dtype is weight.dtype is torch.float32
            and rows * weight.numel() >= products.LEAST_PRODUCTS]
