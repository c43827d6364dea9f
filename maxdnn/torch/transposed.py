"""Convolutions with one axis, and transposed ones: each is a convolution, or the gradient of one, with two axes."""

from typing import Any

import torch
from torch import Tensor

from ..errors import ShapeError, shown
from ..planning.select import MAX_ERROR, check_wanted
from . import ops
from .functional import conv2d, elsewhere, pair

Steps = int | tuple[int, ...]


def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: str | Steps = 0,
           dilation: Steps = 1, groups: int = 1, *, algorithm: str = "auto", max_error: float = MAX_ERROR,
           arithmetic: str = "auto") -> Tensor:
    """torch.nn.functional.conv1d in float32 by this library's kernels: a convolution of maps of one row.

    Parameters
    ----------
    input : torch.Tensor of float32
        (N, C, L) or (C, L).
    weight : torch.Tensor of float32
        (K, C/groups, S).
    bias : torch.Tensor of float32, optional
        (K,).
    stride, dilation : int or (int,)
        Steps of the filter; elements from one tap to the next.
    padding : int, (int,), "valid" or "same"
        Zeros on either side, as for `conv2d`.
    groups, algorithm, max_error, arithmetic
        As for `conv2d`.

    Returns
    -------
    torch.Tensor of float32
        (N, K, Q) or (K, Q), contiguous; differentiable any number of times.

    Raises
    ------
    ShapeError, OutOfMemoryError
        As for `conv2d`.
    """
    how = {"algorithm": algorithm, "max_error": max_error, "arithmetic": arithmetic}
    given = input, weight, bias, stride, padding, dilation, groups
    found = elsewhere(conv1d, torch.nn.functional.conv1d, given, how, axes=1)
    if found is not None:
        return found
    return conv2d(input.unsqueeze(-2), weight.unsqueeze(-2), bias, _row("stride", stride, 1),
                  padding if isinstance(padding, str) else _row("padding", padding, 0), _row("dilation", dilation, 1),
                  groups, algorithm=algorithm, max_error=max_error, arithmetic=arithmetic).squeeze(-2)


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: Steps = 0,
                     output_padding: Steps = 0, groups: int = 1, dilation: Steps = 1, *, algorithm: str = "auto",
                     max_error: float = MAX_ERROR, arithmetic: str = "auto") -> Tensor:
    """torch.nn.functional.conv_transpose2d in float32 by this library's kernels.

    It is the gradient of a convolution with respect to its map, and its own gradients are that convolution and its
    gradient with respect to the filters.

    Parameters
    ----------
    input : torch.Tensor of float32
        (N, C, H, W) or (C, H, W); N may be 0.
    weight : torch.Tensor of float32
        (C, K/groups, R, S).
    bias : torch.Tensor of float32, optional
        (K,).
    stride, padding, dilation : int or (int, int)
        Of the convolution whose gradient it is, for both axes or (rows, columns).
    output_padding : int or (int, int)
        Rows and columns more at the end of the output; below the stride.
    groups : int
        Channels and filters fall into so many runs.
    algorithm : {"auto", "direct", "winograd", "fft"}
        As for `conv2d`; "winograd" and "fft", which are asked of outputs of convolutions, mean "auto" here.
    max_error, arithmetic
        As for `conv2d`.

    Returns
    -------
    torch.Tensor of float32
        (N, K, P, Q) or (K, P, Q), with P = (H-1) * stride - 2 * padding + dilation * (R-1) + output_padding + 1, and Q
        likewise; contiguous; differentiable any number of times.

    Raises
    ------
    ShapeError
        As for `conv2d`, or an output_padding is not below its stride.
    OutOfMemoryError
        As for `conv2d`.
    """
    how = {"algorithm": algorithm, "max_error": max_error, "arithmetic": arithmetic}
    given = input, weight, bias, stride, padding, output_padding, groups, dilation
    found = elsewhere(conv_transpose2d, torch.nn.functional.conv_transpose2d, given, how)
    if found is not None:
        return found
    check_wanted(algorithm, max_error, None, arithmetic)
    steps = pair("stride", stride), pair("padding", padding), pair("dilation", dilation)
    size = _size(input, weight, *steps, pair("output_padding", output_padding))
    _check_channels(input, weight, bias, groups)
    whole = input if input.dim() == 4 else input.unsqueeze(0)
    out = ops.made_input_gradient(whole, weight, size, *steps, groups, algorithm, max_error, arithmetic)
    if bias is not None:
        out = out + bias[:, None, None]
    return out if input.dim() == 4 else out.squeeze(0)


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: Steps = 0,
                     output_padding: Steps = 0, groups: int = 1, dilation: Steps = 1, *, algorithm: str = "auto",
                     max_error: float = MAX_ERROR, arithmetic: str = "auto") -> Tensor:
    """torch.nn.functional.conv_transpose1d in float32 by this library's kernels.

    Parameters
    ----------
    input : torch.Tensor of float32
        (N, C, L) or (C, L); N may be 0.
    weight : torch.Tensor of float32
        (C, K/groups, S).
    bias : torch.Tensor of float32, optional
        (K,).
    stride, padding, output_padding, dilation : int or (int,)
        As for `conv_transpose2d`, of the one axis.
    groups, algorithm, max_error, arithmetic
        As for `conv_transpose2d`.

    Returns
    -------
    torch.Tensor of float32
        (N, K, Q) or (K, Q), contiguous; differentiable any number of times.

    Raises
    ------
    ShapeError, OutOfMemoryError
        As for `conv_transpose2d`.
    """
    how = {"algorithm": algorithm, "max_error": max_error, "arithmetic": arithmetic}
    given = input, weight, bias, stride, padding, output_padding, groups, dilation
    found = elsewhere(conv_transpose1d, torch.nn.functional.conv_transpose1d, given, how, axes=1)
    if found is not None:
        return found
    return conv_transpose2d(input.unsqueeze(-2), weight.unsqueeze(-2), bias, _row("stride", stride, 1),
                            _row("padding", padding, 0), _row("output_padding", output_padding, 0), groups,
                            _row("dilation", dilation, 1), algorithm=algorithm, max_error=max_error,
                            arithmetic=arithmetic).squeeze(-2)


def beyond(output_padding: Any, stride: Any) -> str | None:
    """Why a transposed convolution with these is not served, if it is not for them."""
    more, steps = ((value, value) if isinstance(value, int) else tuple(value) for value in (output_padding, stride))
    if any(one >= step for one, step in zip(more * 2, steps * 2, strict=False)):  # one number stands for both axes
        return (f"output_padding must be below the stride {steps} (got {more}): no gradient of a convolution has more "
                "rows and columns than its filters reach")
    return None


def _row(name: str, value: Any, rows: int) -> tuple[int, int]:
    """What one number, or one in a tuple, means for a map of one row."""
    if isinstance(value, (tuple, list)) and len(value) != 1:
        raise ShapeError(f"{name} must be one integer (got {shown(value)})")
    return rows, pair(name, value)[1]


def _size(input: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, more: Any) -> list[Any]:
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0 or min(more) < 0:
        raise ShapeError("stride and dilation must be at least 1, padding and output_padding at least 0 "
                         f"(got {stride}, {dilation}, {padding}, {more})")
    refused = beyond(more, stride)
    if refused is not None:
        raise ShapeError(refused)
    size = [(x - 1) * step - 2 * pad + dil * (k - 1) + extra + 1 for x, k, step, pad, dil, extra in zip(
        input.shape[-2:], weight.shape[2:], stride, padding, dilation, more, strict=True)]
    if torch._C._get_tracing_state() is not None:
        size = [int(x) for x in size]  # torch.jit.trace, where numbers of shapes are tensors: it warns, and keeps these
    if min(size) < 1:
        raise ShapeError(f"input of {tuple(input.shape[-2:])} rows and columns is too small: the output would have "
                         f"{tuple(size)}")
    return size


def _check_channels(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    if input.shape[-3] != weight.shape[0] or groups < 1 or weight.shape[0] % groups:
        raise ShapeError(f"input must have {weight.shape[0]} channels, as weight's first axis, a multiple of groups, "
                         f"{groups} (got input {tuple(input.shape)}, weight {tuple(weight.shape)})")
    if bias is not None and bias.shape != (weight.shape[1] * groups,):
        raise ShapeError(f"bias must have {weight.shape[1] * groups} elements (got shape {tuple(bias.shape)})")
