"""What a frozen layer keeps: filters made ready (maxdnn.prepare_filters) for each shape of its input."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..choose import chip_of, choose
from ..conv import conv_fprop
from ..plans import Plan
from ..prepared import PreparedFilters, prepare_filters
from . import ops
from .functional import pair

SHAPES = 8  # of the input that a layer keeps filters for
WHERE = "_maxdnn_kept"  # the layer's attribute


class Kept(NamedTuple):
    """`seen`: the weights it was made of. `plan`: what is left to do, `places`: the filters' arrays for it."""

    seen: tuple[Any, ...]
    filters: PreparedFilters
    plan: Plan
    places: dict[str, int]
    shape: tuple[int, ...]


def call(layer: Any, input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any]) -> Tensor | None:
    """The layer's output by filters that are kept, made now if need be; None where that is not possible: the call
    wants a derivative, is traced, is the first with these weights (they may be changing), is no plain one."""
    given = (input, weight) if bias is None else (input, weight, bias)
    if input.dim() != 4 or not input.numel() or isinstance(how[1], str) or weight.is_inference():
        return None
    if not ops.plain(given):
        return None
    where = input.get_device()
    seen = weight._version, weight.data_ptr(), how, where
    if any(tensor.get_device() != where for tensor in given):
        return None
    every = layer.__dict__.setdefault(WHERE, {})
    kept = every.get(input.shape)
    if kept is None or not isinstance(kept, Kept) or kept.seen != seen:
        if kept is None or (kept.seen if isinstance(kept, Kept) else kept) != seen:
            if len(every) >= SHAPES:
                every.clear()
            every[input.shape] = seen
            return None
        if where >= 0 and torch.cuda.is_current_stream_capturing():
            return None
        kept = every[input.shape] = _prepare(seen, input, weight, bias, how)
    if where < 0:
        return torch.from_numpy(conv_fprop(input.detach().numpy(), kept.filters,
                                           bias=None if bias is None else bias.detach().numpy()))
    device, easy = ops.device_of(where)
    images = input.data_ptr()
    if images % easy:
        return None
    out = input.new_empty(kept.shape)
    places = kept.places | {"images": images, "out": out.data_ptr()}
    if bias is not None:
        places["bias"] = bias.data_ptr()
    ops.launch(kept.plan, device, where, places)
    return out


def _prepare(seen: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any]) -> Kept:
    stride, padding, dilation = (pair(name, value) for name, value in zip(("stride", "padding", "dilation"), how[:3],
                                                                           strict=True))
    device, _ = ops.device_of(input.get_device())
    given = {"images": input, "filters": weight} | ({} if bias is None else {"bias": bias})
    problem = ops.problem_of("forward", given, input.shape, weight.shape, (stride, padding, dilation, how[3]), device)
    plan = choose(problem, chip_of(device), prepared=True)
    detached = weight.detach()
    if input.is_cuda:
        filters = prepare_filters(detached, plan, stream=torch.cuda.current_stream(input.device))
        torch.cuda.synchronize(input.device)  # they are there for every stream, and what was kept before is not in use
        places = {name: array.data_ptr() for name, array in filters.arrays.items()}
    else:
        filters, places = prepare_filters(detached.numpy(), plan), {}
    return Kept(seen, filters, plan.apart[1], places, plan.array_shapes()["out"])
