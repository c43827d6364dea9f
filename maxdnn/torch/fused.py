"""Layers of optimized networks. Whatever their kernels do not serve (other dtypes, autocasts, maps without a batch,
sums that broadcast) they compute by PyTorch's operators, one after the other."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from . import epilogues, kept_filters, transposed
from .functional import stock_alone, why_not
from .modules import Conv2d
from .running import DEFAULTS, Ending, output_shape

LEAST_PRODUCTS = 512 ** 3
"""Multiplications from which on a linear layer is ours: smaller ones take no less time here (docs/tensor-cores.md)."""


class FusedConv2d(Conv2d):
    """A convolution, the sum with another map if it is given one, and ReLU if `relu`, in one kernel. `overwrites`: the
    sum is put where that map lies, which nobody reads any more. Weights need no derivative and are kept as the kernels
    read them."""

    frozen = True
    relu = False
    overwrites = False

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
           padding_mode: str = "zeros", *, relu: bool = False, overwrites: bool = False, **how: Any) -> "FusedConv2d":
        """A layer with these weights. `how`: algorithm, max_error, arithmetic."""
        k, c, *size = weight.shape
        layer = cls(c * groups, k, size, stride, padding, dilation, groups, False, padding_mode, device="meta",
                    **how)
        layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
        layer.relu, layer.overwrites = relu, overwrites
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
                out = kept_filters.call(self, input, weight, bias, (*how, Ending(residual is not None, self.relu)),
                                        residual, self.overwrites)
                if out is not None:
                    return out
            if (not stock_alone() and input.dim() == 4 and why_not(input, weight, bias) is None
                    and _adds(input, weight, residual, how)):
                made: Tensor = epilogues.conv2d_epilogue(input, weight, bias, residual, self.relu, *how)
                return made
        out = self._conv_forward(input, weight, bias)
        if residual is not None:
            out = out + residual
        return torch.relu(out) if self.relu else out

    def extra_repr(self) -> str:
        return super().extra_repr() + ", relu" * self.relu + ", overwrites" * self.overwrites


def _adds(input: Tensor, weight: Tensor, residual: Any, how: Any) -> bool:
    """Whether the kernel may add it: a map as the output is."""
    if residual is None:
        return True
    return (isinstance(residual, Tensor) and residual.dtype is torch.float32 and residual.device == input.device
            and residual.dim() == 4
            and list(residual.shape) == output_shape(input, weight, how))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, arithmetic: str = "auto") -> Tensor:
    """torch.nn.functional.linear, by this library's products where they serve."""
    if not isinstance(input, fx.Proxy) and _multiplies(input, weight, bias):
        out: Tensor = epilogues.linear(input, weight, bias, arithmetic)
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


class Linear(nn.Linear):
    """torch.nn.Linear whose float32 calls of some size run by this library's products."""

    arithmetic = DEFAULTS[2]

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.arithmetic)
