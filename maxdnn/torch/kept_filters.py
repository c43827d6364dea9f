"""What a frozen layer keeps: filters made ready (maxdnn.prepare_filters) for each shape of its input. Where memory is
short they are let go, and the layer computes as one that is not frozen until there is more."""

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import shortage
from ..conv import conv_fprop
from ..errors import OutOfMemoryError
from ..planning.select import chip_of, choose
from ..runtime.prepared import PreparedFilters, prepare_filters
from . import ops
from .functional import pair

SHAPES = 8  # of the input that a layer keeps filters for, besides those in graphs
WHERE = "_maxdnn_kept"  # the layer's attribute
_ROLES = "images", "bias"
_layers: weakref.WeakSet[Any] = weakref.WeakSet()  # that have kept filters


class Kept(NamedTuple):
    """Filters made ready, and what is left to do with them, `ready` on a GPU with their arrays at `places`. `seen`: the
    weights they were made of."""

    seen: tuple[Any, ...]
    filters: PreparedFilters
    ready: ops.Ready | None
    places: dict[str, int]


class LetGo(NamedTuple):
    """In the place of filters that there was no memory for, or of what runs with them."""

    seen: tuple[Any, ...]
    mark: shortage.Mark


def call(layer: Any, input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any]) -> Tensor | None:
    """The layer's output by filters that are kept, made now if need be; None where that is not possible: the call
    wants a derivative, is traced, is the first with these weights (they may be changing), is no plain one."""
    given = (input, weight) if bias is None else (input, weight, bias)
    if not ops.plain(given) or weight.is_inference():
        return None
    where = input.get_device()
    every = layer.__dict__.get(WHERE)
    kept = None if every is None else every.get(input.shape)
    seen = weight._version, weight.data_ptr(), how, where
    if type(kept) is not Kept or kept.seen != seen:
        kept = _look(layer, input, weight, bias, how, seen)
        if kept is None:
            return None
    if weight.get_device() != where:
        return None
    try:
        if kept.ready is not None:
            return kept.ready.run(_ROLES, (input, *given[2:]), kept.places.copy())
        return torch.from_numpy(conv_fprop(input.detach().numpy(), kept.filters,
                                           bias=None if bias is None else bias.detach().numpy()))
    except OutOfMemoryError as e:
        if _capturing(input):
            raise
        missing = e.wanted - (e.free or 0)
    del kept
    _short(layer, input, seen, missing)
    return None


def _look(layer: Any, input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any],
          seen: tuple[Any, ...]) -> Kept | None:
    """Filters for a call that has none: made if these weights were seen before."""
    if (input.dim() != 4 or not input.numel() or isinstance(how[1], str)
            or any(t is not None and t.get_device() != seen[-1] for t in (weight, bias))):
        return None
    every = layer.__dict__.setdefault(WHERE, {})
    before = every.get(input.shape)
    if (before.seen if isinstance(before, (Kept, LetGo)) else before) != seen:
        if len(every) >= SHAPES:
            loose = [shape for shape, kept in every.items() if not _captured(kept)]
            for shape in loose if len(loose) >= SHAPES else ():
                del every[shape]
        every[input.shape] = seen
        return None
    if _capturing(input) or (isinstance(before, LetGo) and not before.mark.eased()):
        return None
    try:
        kept = every[input.shape] = _prepare(seen, input, weight, bias, how)
    except OutOfMemoryError as e:
        missing = e.wanted - (e.free or 0)
    else:
        _layers.add(layer)
        return kept
    _short(layer, input, seen, missing)
    return None


def _capturing(input: Tensor) -> bool:
    return input.is_cuda and torch.cuda.is_current_stream_capturing()


def _memory(where: int) -> shortage.Memory:
    return ops.shortage_of(where).memory if where >= 0 else shortage.of(ops.device_of(where)[0]).memory


def _short(layer: Any, input: Tensor, seen: tuple[Any, ...], missing: int) -> None:
    """Let go of what is idle, and of the filters that such a call of the layer would take."""
    memory = _memory(seen[-1])
    memory.release()
    layer.__dict__[WHERE][input.shape] = LetGo(seen, shortage.Mark(memory, missing))


def let_go(device: Any) -> None:
    """Let go of the filters kept on a device that no graph may read."""
    for layer in list(_layers):
        every = layer.__dict__.get(WHERE, {})
        for shape, kept in list(every.items()):
            if not isinstance(kept, Kept) or ops.device_of(kept.seen[-1])[0] is not device or _captured(kept):
                continue
            if kept.ready is not None:
                torch.cuda.synchronize(kept.seen[-1])  # no stream is using them
            every[shape] = LetGo(kept.seen, shortage.Mark(_memory(kept.seen[-1]), kept.filters.nbytes))


shortage.holders.append(let_go)


def _captured(kept: Any) -> bool:
    """Whether a graph may read these filters, which then stay."""
    return isinstance(kept, Kept) and kept.ready is not None and kept.ready.captured


def _prepare(seen: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any]) -> Kept:
    stride, padding, dilation = (pair(name, value) for name, value in zip(("stride", "padding", "dilation"), how[:3],
                                                                           strict=True))
    device, _ = ops.device_of(input.get_device())
    given = {"images": input, "filters": weight} | ({} if bias is None else {"bias": bias})
    groups, algorithm, max_error = how[3:]
    conf = stride, padding, dilation, groups, algorithm, max_error
    problem = ops.problem_of("forward", given, input.shape, weight.shape, conf, device)
    plan = choose(problem, chip_of(device), algorithm=algorithm, max_error=max_error, prepared=True)
    detached = weight.detach()
    if input.is_cuda:
        filters = prepare_filters(detached, plan, stream=torch.cuda.current_stream(input.device))
        torch.cuda.synchronize(input.device)  # they are there for every stream, and what was kept before is not in use
        places = {name: array.data_ptr() for name, array in filters.arrays.items()}
        return Kept(seen, filters, ops.Ready(plan.apart[1], input.get_device()), places)
    return Kept(seen, prepare_filters(detached.numpy(), plan), None, {})
