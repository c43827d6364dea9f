"""Batch norms in the weights of the layers in front of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..errors import ShapeError
from .modules import LAYERS, OURS, Conv1d, ConvTranspose1d, hooked, why_left
from .patterns import Norm, bound, module_of

_FUNCTIONS = {F.conv1d: nn.BatchNorm1d, F.conv_transpose1d: nn.BatchNorm1d, F.conv_transpose2d: nn.BatchNorm2d}
_NAMES = {F.conv1d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups")} | dict.fromkeys(
    (F.conv_transpose1d, F.conv_transpose2d),
    ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"))


@dataclass(frozen=True)
class Layer:
    """A convolution of constant weights with one axis, or transposed, at a node. `norm`: the class of the batch norms
    that fit it. `module`: what computes it, None for a function."""

    weight: Tensor
    bias: Tensor | None
    groups: int
    transposed: bool
    norm: type[nn.Module]
    module: nn.Module | None = None


class _Batched:
    """Of layers with one axis: without a batch, the norm's channels would be another axis."""

    def forward(self: Any, input: Tensor, *args: Any) -> Tensor:
        if not isinstance(input, fx.Proxy) and input.dim() != 3:
            raise ShapeError("input must have 3 axes, with a batch: a batch norm is folded into this layer "
                             f"(got {input.dim()}: shape {tuple(input.shape)})")
        made: Tensor = super().forward(input, *args)  # type: ignore[misc]
        return made


class FoldedConv1d(_Batched, Conv1d):
    """With a batch norm in it."""


class FoldedConvTranspose1d(_Batched, ConvTranspose1d):
    """With a batch norm in it."""


_FOLDED = {Conv1d: FoldedConv1d, ConvTranspose1d: FoldedConvTranspose1d}


def layer(node: fx.Node, constant: Callable[[Any], Tensor | None]) -> Layer | None:
    """The layer at a node, if there is one whose weights can be changed."""
    module: Any = module_of(node)
    if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d, nn.ConvTranspose2d)):
        ours = type(module) in OURS or why_left(module) is None
        if not ours or hooked(module) or len(node.args) != 1 or node.kwargs:
            return None
        norm = nn.BatchNorm2d if isinstance(module, nn.ConvTranspose2d) else nn.BatchNorm1d
        return Layer(module.weight, module.bias, module.groups, module.transposed, norm, module)
    if node.op != "call_function" or node.target not in _FUNCTIONS:
        return None
    given = bound(node, _NAMES[node.target], {"bias": None, "groups": 1})
    if given is None:
        return None
    weight, bias = constant(given["weight"]), constant(given["bias"])
    if weight is None or (bias is None and given["bias"] is not None) or not isinstance(given["groups"], int):
        return None
    if weight.dtype is not torch.float32 or (bias is not None and bias.dtype is not torch.float32):
        return None
    return Layer(weight, bias, given["groups"], node.target is not F.conv1d, _FUNCTIONS[node.target])


def folded(weight: Tensor, bias: Tensor | None, norm: Norm | None, groups: int = 1,
           transposed: bool = False) -> tuple[Tensor, Tensor | None]:
    """Weights and bias that give what a batch norm makes of a layer's output; computed in float64."""
    if norm is None:
        return weight, bias
    scale = (norm.variance.double() + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = -norm.mean.double() if bias is None else bias.double() - norm.mean.double()
    shift = shift * scale
    if norm.bias is not None:
        shift = shift + norm.bias.double()
    wide = weight.double()
    if transposed:  # C x K/groups: outputs of a group are columns
        scaled = (wide.unflatten(0, (groups, -1)) * scale.view(groups, 1, -1, *[1] * (wide.dim() - 2))).flatten(0, 1)
    else:
        scaled = wide * scale.view(-1, *[1] * (wide.dim() - 1))
    return scaled.to(weight.dtype), shift.to(weight.dtype)


def channels(found: Layer) -> int:
    """Of the output."""
    return found.weight.shape[1] * found.groups if found.transposed else found.weight.shape[0]


def module_with(found: Layer, weight: Tensor, bias: Tensor | None, **how: Any) -> nn.Module:
    """The layer's module with other weights, as one of this library."""
    made: Any = copy.deepcopy(found.module)
    kind = LAYERS.get(type(made), type(made))
    made.__class__ = _FOLDED.get(kind, kind)
    made.weight = nn.Parameter(weight.detach(), requires_grad=False)
    made.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
    for name, value in how.items():
        setattr(made, name, value)
    result: nn.Module = made
    return result
