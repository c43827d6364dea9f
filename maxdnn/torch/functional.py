"""The meaning of torch.nn.functional.conv2d in terms of the operators."""

import operator
from typing import Any

import torch
from torch import Tensor, fx

from ..errors import ShapeError, shown
from ..planning.select import MAX_ERROR, check_wanted
from . import epilogues, ops


def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | tuple[int, int] = 1,
           padding: str | int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1, *,
           algorithm: str = "auto", max_error: float = MAX_ERROR, arithmetic: str = "auto",
           activation: str | None = None) -> Tensor:
    """torch.nn.functional.conv2d in float32 by this library's kernels.

    Parameters
    ----------
    input : torch.Tensor of float32
        (N, C, H, W) or (C, H, W); N may be 0. In memory C,H,W or channels_last; other views are copied first.
    weight : torch.Tensor of float32
        (K, C/groups, R, S).
    bias : torch.Tensor of float32, optional
        (K,).
    stride : int or (int, int)
        Steps of the filter, for both axes or (rows, columns).
    padding : int, (int, int), "valid" or "same"
        Zeros on either side. "valid": none. "same": P x Q is H x W (stride 1 only); where the sides are unequal the
        map is copied, padded by a row or column at its end, and so is its gradient.
    dilation : int or (int, int)
        Map pixels from one filter tap to the next.
    groups : int
        Channels and filters fall into so many runs; filters of a run see its channels only.
    algorithm : {"auto", "direct", "winograd", "fft"}
        "winograd" and "fft" transform tiles: an infinity or NaN in one pixel becomes NaN in all outputs of its tiles,
        and a value beyond float32 on the way may be lost likewise. "direct" has them in the outputs they belong to, as
        PyTorch does, in derivatives too. Tiles are asked of the output alone; derivatives are by the faster. "auto"
        takes the faster.
    max_error : float
        No plan is taken whose documented error is larger, relative to the sum of an output's |terms|, for tensors
        uniform in [-1, 1].
    arithmetic : {"auto", "ffma"}
        "ffma" leaves products on tensor cores out, in derivatives too. "auto" takes the faster; `ran` says which.
    activation : {"relu"}, optional
        Applied by the same kernel. For derivatives the output is kept, not what ReLU was given.

    Returns
    -------
    torch.Tensor of float32
        (N, K, P, Q) or (K, P, Q), channels_last if an operand is, else contiguous; differentiable any number of times.

    Raises
    ------
    ShapeError
        This is no convolution or no activation, a dtype is not float32, an autocast to another dtype is on, or the
        algorithm does not serve the layer within the error.
    OutOfMemoryError
        There is no memory for any workspace; it is a torch.OutOfMemoryError too.

    Notes
    -----
    torch.compile, torch.export and torch.jit.trace take it as one operator, torch.onnx.export as a plain Conv. CUDA
    tensors run on the current stream of their device, without waiting; CPU tensors on the virtual GPU, with a warning
    the first time. Workspace comes from PyTorch's allocator. Where there is none, the best plan that fits runs, for as
    long as memory is that short (docs/pytorch.md).
    """
    if activation is None:
        out = ops.eager(input, weight, bias, stride, padding, dilation, groups, algorithm, max_error, arithmetic)
        if out is not None:
            return out
    elif activation != "relu":
        raise ShapeError(f"activation must be 'relu' or None (got {shown(activation)})")
    made = elsewhere(conv2d, torch.nn.functional.conv2d, (input, weight, bias, stride, padding, dilation, groups),
                     {"algorithm": algorithm, "max_error": max_error, "arithmetic": arithmetic})
    if made is not None:
        return made if activation is None else torch.relu(made)
    check_wanted(algorithm, max_error, None, arithmetic)
    return _made(activation, input, weight, bias, stride, padding, dilation, groups, algorithm, max_error, arithmetic)


def _made(activation: str | None, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
          dilation: Any, *rest: Any) -> Tensor:
    """The same through the dispatcher; the next call with such arguments is one of `ops.eager`."""
    how = stride, padding, dilation, *rest
    stride, dilation = pair("stride", stride), pair("dilation", dilation)
    given = input
    if isinstance(padding, str):
        input, padding = _named_padding(padding, input, weight, stride, dilation)
    else:
        padding = pair("padding", padding)
    conf = stride, padding, dilation, *rest
    makes = ops.made if activation is None else epilogues.with_relu
    if input.dim() == 3:
        return makes(input.unsqueeze(0), weight, bias, *conf).squeeze(0)
    out = makes(input, weight, bias, *conf)
    if activation is None and input is given and not torch.compiler.is_compiling():
        ops.remember(input, weight, bias, how, out, conf)
    return out


def for_onnx() -> bool:
    """Whether torch.onnx.export looks, which shall find PyTorch's operators."""
    looked_at = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return looked_at and torch.onnx.is_in_onnx_export()  # which takes longer than a call may


def stock_alone() -> bool:
    """Whether somebody looks who knows nothing of the operators of optimized networks."""
    return for_onnx() or ops.transformed()


def elsewhere(function: Any, stock: Any, given: tuple[Any, ...], how: dict[str, Any], axes: int = 2) -> Tensor | None:
    """What a call of `function` gives where it does not compute; None where it does.

    That is itself, in the graph that torch.fx traces, or the operator of PyTorch that torch.onnx.export writes. Raises
    ShapeError for what is not served.
    """
    made: Tensor | None = None
    if isinstance(given[0], fx.Proxy):
        made = given[0].tracer.create_proxy("call_function", function, given, how)
    elif for_onnx():
        made = stock(*given)
    elif (refused := why_not(given[0], given[1], given[2], axes)) is not None:
        raise ShapeError(refused)
    return made


def why_not(input: Tensor, weight: Tensor, bias: Tensor | None, axes: int = 2) -> str | None:
    """What of these tensors is not served, in words; None if they are, or if nobody knows them yet (torch.fx)."""
    if isinstance(input, fx.Proxy):
        return None
    if input.dtype is not torch.float32 or weight.dtype is not torch.float32:
        name, dtype = ("weight", weight.dtype) if input.dtype is torch.float32 else ("input", input.dtype)
        return f"{name} must be float32 (got {dtype})"
    if input.dim() not in (axes + 1, axes + 2):
        return (f"input must have {axes + 2} axes, or {axes + 1} without a batch "
                f"(got {input.dim()}: shape {tuple(input.shape)})")
    if weight.dim() != axes + 2:
        return f"weight must have {axes + 2} axes (got {weight.dim()}: shape {tuple(weight.shape)})"
    if bias is not None and (bias.dtype is not torch.float32 or bias.dim() != 1):
        return f"bias must be float32 with 1 axis (got {bias.dtype} of shape {tuple(bias.shape)})"
    kind = input.device.type
    if kind == "meta":
        return None
    if kind not in ("cpu", "cuda"):
        return f"input must be on the CPU or a CUDA GPU (got {kind})"
    if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is not torch.float32:
        return (f"autocast asks for {torch.get_autocast_dtype(kind)}, and there is float32 alone here: leave the "
                f"layer out with torch.autocast({kind!r}, enabled=False)")
    return None


def pair(name: str, value: Any) -> tuple[int, int]:
    """One integer or two, as PyTorch takes them. Raises ShapeError for anything else."""
    if isinstance(value, (tuple, list)):
        if len(value) == 2:
            return value[0], value[1]
        if len(value) == 1:
            return value[0], value[0]
    else:
        try:
            return (operator.index(value),) * 2
        except TypeError:
            pass
    raise ShapeError(f"{name} must be one integer or two (got {shown(value)})")


def _named_padding(padding: str, input: Tensor, weight: Tensor, stride: tuple[int, int],
                   dilation: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """The map and the padding on both of its sides that mean a padding called by name."""
    if padding == "valid":
        return input, (0, 0)
    if padding != "same":
        raise ShapeError(f"padding must be 'same', 'valid', one integer or two (got {shown(padding)})")
    if stride != (1, 1):
        raise ShapeError(f"padding 'same' needs stride 1 (got {stride})")
    rows, columns = (step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True))
    if rows % 2 or columns % 2:  # the odd one goes behind, as in PyTorch
        input = torch.nn.functional.pad(input, (0, columns % 2, 0, rows % 2))
    return input, (rows // 2, columns // 2)
