"""Layers of optimized networks. Whatever their kernels do not serve (other dtypes, autocasts, maps without a batch,
sums that broadcast) they compute by PyTorch's operators, one after the other."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import epilogues, kept_filters, transposed
from .functional import stock_alone, why_not
from .modules import Conv2d
from .products import linear
from .running import DEFAULTS, Ending, output_shape


class FusedConv2d(Conv2d):
    """A convolution, the sum with another map if it is given one, and the activation `applies`, if any, in one kernel.
    `overwrites`: the sum is put where that map lies, which nobody reads any more. Weights need no derivative and are
    kept as the kernels read them."""

    frozen = True
    applies: str | None = None
    overwrites = False

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
           padding_mode: str = "zeros", *, applies: str | None = None, overwrites: bool = False,
           **how: Any) -> "FusedConv2d":
        """A layer with these weights. `how`: algorithm, max_error, arithmetic."""
        k, c, *size = weight.shape
        layer = cls(c * groups, k, size, stride, padding, dilation, groups, False, padding_mode, device="meta",
                    **how)
        layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
        layer.applies, layer.overwrites = applies, overwrites
        layer._fixed = layer._numbers() if padding_mode == "zeros" else None
        return layer.eval()

    def _numbers(self) -> tuple[Any, ...] | None:
        """Stride, padding, dilation and groups, None for a "same" padding of unequal sides."""
        padding: Any = self.padding
        if padding == "valid":
            padding = (0, 0)
        elif padding == "same":
            both = [step * (size - 1) for step, size in zip(self.dilation, self.kernel_size, strict=True)]
            if any(n % 2 for n in both):
                return None
            padding = tuple(n // 2 for n in both)
        return self.stride, padding, self.dilation, self.groups

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        own = self._parameters
        weight, bias = own["weight"], own["bias"]
        if self._fixed is not None and not isinstance(input, fx.Proxy):
            how = (*self._fixed, self.algorithm, self.max_error, self.arithmetic)
            if residual is None or type(residual) is Tensor:
                out = kept_filters.call(self, input, weight, bias, (*how, Ending(residual is not None, self.applies)),
                                        residual, self.overwrites)
                if out is not None:
                    return out
            if (not stock_alone() and input.dim() == 4 and why_not(input, weight, bias) is None
                    and (self.applies in (None, "relu") or not _wanted(input, residual))
                    and _adds(input, weight, residual, how)):
                made: Tensor = epilogues.conv2d_epilogue(input, weight, bias, residual, self.applies, *how)
                return made
        out = self._conv_forward(input, weight, bias)
        if residual is not None:
            out = out + residual
        return out if self.applies is None else ACTIVATIONS[self.applies](out)

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", {self.applies}" if self.applies else "") + ", overwrites" * self.overwrites


ACTIVATIONS: dict[str, Any] = {
    "relu": torch.relu, "relu6": nn.functional.relu6, "hardswish": nn.functional.hardswish, "silu": nn.functional.silu,
    "gelu": nn.functional.gelu, "gelu_tanh": partial(nn.functional.gelu, approximate="tanh")}
"""PyTorch's, by the names of this library's."""


def _wanted(input: Tensor, residual: Any) -> bool:
    """Whether derivatives are."""
    return torch.is_grad_enabled() and (input.requires_grad or (residual is not None and residual.requires_grad))


def _adds(input: Tensor, weight: Tensor, residual: Any, how: Any) -> bool:
    """Whether the kernel may add it: a map as the output is."""
    if residual is None:
        return True
    return (isinstance(residual, Tensor) and residual.dtype is torch.float32 and residual.device == input.device
            and residual.dim() == 4
            and list(residual.shape) == output_shape(input, weight, how))


def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1, **how: Any) -> Tensor:
    """torch.nn.functional.conv1d, by this library where it serves."""
    given = input, weight, bias, stride, padding, dilation, groups
    if why_not(input, weight, bias, axes=1) is None:
        return transposed.conv1d(*given, **how)
    out: Tensor = nn.functional.conv1d(*given)
    return out


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1, **how: Any) -> Tensor:
    """torch.nn.functional.conv_transpose1d, by this library where it serves."""
    given = input, weight, bias, stride, padding, output_padding, groups, dilation
    if why_not(input, weight, bias, axes=1) is None and transposed.beyond(output_padding, stride) is None:
        return transposed.conv_transpose1d(*given, **how)
    out: Tensor = nn.functional.conv_transpose1d(*given)
    return out


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1, **how: Any) -> Tensor:
    """torch.nn.functional.conv_transpose2d, by this library where it serves."""
    given = input, weight, bias, stride, padding, output_padding, groups, dilation
    if why_not(input, weight, bias) is None and transposed.beyond(output_padding, stride) is None:
        return transposed.conv_transpose2d(*given, **how)
    out: Tensor = nn.functional.conv_transpose2d(*given)
    return out


INSTEAD: dict[Any, Any] = {
    nn.functional.conv1d: conv1d, nn.functional.conv_transpose1d: conv_transpose1d,
    nn.functional.conv_transpose2d: conv_transpose2d}
"""What takes the place of PyTorch's functions in graphs."""


class Attention(nn.MultiheadAttention):
    """torch.nn.MultiheadAttention whose projections are this library's products where every token attends to every
    token of its own sequence, nobody asks for weights and nothing is dropped; other calls are PyTorch's."""

    arithmetic = DEFAULTS[2]

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """As torch.nn.MultiheadAttention."""
        weight: Any = self.in_proj_weight
        plain = (query is key and key is value and not need_weights and key_padding_mask is None and attn_mask is None
                 and weight is not None and self.bias_k is None and not self.add_zero_attn
                 and not (self.training and self.dropout) and query.dim() == 3 and query.numel() > 0
                 and query.dtype is torch.float32 and weight.dtype is torch.float32)
        if not plain:
            return super().forward(query, key, value, key_padding_mask, need_weights, attn_mask,
                                   average_attn_weights, is_causal)
        if not self.batch_first:
            query = query.transpose(0, 1)
        batch, tokens, features = query.shape
        parts = linear(query, weight, self.in_proj_bias, arithmetic=self.arithmetic)
        parts = parts.view(batch, tokens, 3, self.num_heads, features // self.num_heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind())
        out = linear(mixed.transpose(1, 2).reshape(batch, tokens, features), self.out_proj.weight, self.out_proj.bias,
                     arithmetic=self.arithmetic)
        return out if self.batch_first else out.transpose(0, 1), None
