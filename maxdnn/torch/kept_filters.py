"""What a frozen layer keeps: filters made ready (maxdnn.prepare_filters) for each shape of its input. Shapes whose
plans do the same to the filters share the arrays; there are a few such ways for a layer, however many shapes it
sees. Where memory is short they are let go, and the layer computes as one that is not frozen until there is more."""

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import OutOfMemoryError
from ..planning.plan import Plan
from ..runtime import engine, shortage
from ..runtime.prepared import PreparedFilters, prepare_filters
from ..runtime.remember import Table
from . import ops, running
from .functional import pair

SHAPES = 1 << 12  # of the input that a layer keeps something for, besides those in graphs
WHERE = "_maxdnn_kept"  # the layer's attribute
LAST = "channels_last"  # what tells such a map, or such weights, from contiguous ones
_ROLES = "images", "bias"
_layers: weakref.WeakSet[Any] = weakref.WeakSet()  # that have kept filters


class Kept(NamedTuple):
    """Filters made ready, and what is left to do with them, `ready` on a GPU with their arrays at `places`. `seen`: the
    weights they were made of. `way`: what was done to them. `streams`: that they have been used on, by handle."""

    seen: tuple[Any, ...]
    filters: PreparedFilters
    ready: running.Ready | None
    places: dict[str, int]
    way: tuple[Any, ...]
    streams: set[int]


class Shapes(Table[Any, Any]):
    """By the shape of the input, and LAST behind it, what was `Kept`, or `LetGo`, or which weights were seen. `seen`:
    the latest."""

    seen: tuple[Any, ...] = ()


class LetGo(NamedTuple):
    """In the place of filters that there was no memory for, or of what runs with them."""

    seen: tuple[Any, ...]
    mark: shortage.Mark


def call(layer: Any, input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any],
         residual: Tensor | None = None, overwrite: bool = False) -> Tensor | None:
    """The layer's output by filters that are kept, made now if need be; None where that is not possible: the call
    wants a derivative, is traced, is the first with these weights (they may be changing), is no plain one. `how`: the
    layer's numbers, and an `Ending` where its kernels have one. `residual`: what that adds; to `overwrite`, if so."""
    given = (input, weight) if bias is None else (input, weight, bias)
    last: list[Tensor] = []
    if not ops.plain(given if residual is None else (residual, *given), last) or weight.is_inference():
        return None
    where = input.get_device()
    every = layer.__dict__.get(WHERE)
    key: tuple[Any, ...] = input.shape
    seen: tuple[Any, ...] = weight._version, weight.data_ptr(), how, where
    if last:
        if not input.is_contiguous():
            key = *key, LAST
        if not weight.is_contiguous():
            seen = *seen[:2], (how, LAST), where
    kept = None if every is None else every.get(key)
    if type(kept) is not Kept or kept.seen != seen:
        kept = _look(layer, key, input, weight, bias, how, seen)
        if kept is None:
            return None
    if weight.get_device() != where:
        return None
    if residual is not None and (residual.shape != kept.filters.plan.array_shapes()["out"]
                                 or residual.get_device() != where):
        return None
    try:
        out = None if residual is None else _onto(residual, overwrite, last and kept.filters.plan)
        if kept.ready is not None:
            stream = torch._C._cuda_getCurrentRawStream(where)
            if stream not in kept.streams:
                _use_on(kept, stream, where)
            return kept.ready.run(_ROLES, (input, *given[2:]), kept.places.copy(), out)
        return running.by_kept(kept.filters, {"images": input} | ({} if bias is None else {"bias": bias}), out)
    except OutOfMemoryError as e:
        missing = e.wanted - (e.free or 0)
    del kept
    if not _capturing(input):
        _short(layer, key, seen, missing)
    return None


def _onto(residual: Tensor, overwrite: bool, plan: Any) -> Tensor:
    """Where a sum with `residual` is put: there, or in a copy. `plan`: says how the sum lies, nothing if everything is
    contiguous."""
    last = bool(plan) and plan.problem.operand("out").strides is not None
    if overwrite and residual.data_ptr() % running.device_of(residual.get_device())[1] == 0 and (
            not plan or residual.is_contiguous() is not last):
        return residual.detach()
    out = running.empty(residual, residual.shape, last)
    return out.copy_(residual)


def _use_on(kept: Kept, stream: int, where: int) -> None:
    """Have PyTorch give the arrays to nobody else before what the stream does with them is done. (What a graph does
    is no work of the stream, and holds them by itself: see `_loose`.)"""
    if not torch.cuda.is_current_stream_capturing():
        for array in kept.filters.arrays.values():
            array.record_stream(torch.cuda.current_stream(where))
        kept.streams.add(stream)


def _look(layer: Any, key: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any],
          seen: tuple[Any, ...]) -> Kept | None:
    """Filters for a call that has none: made if these weights were seen before. `key`: of the input."""
    if (input.dim() != 4 or not input.numel() or isinstance(how[1], str)
            or any(t is not None and t.get_device() != seen[-1] for t in (weight, bias))):
        return None
    every: Shapes = layer.__dict__.setdefault(WHERE, Shapes(SHAPES))
    if every.seen != seen:  # other weights may come to lie where these did
        every.drop(lambda kept: _loose(kept) and _seen_by(kept) != seen)
        every.seen = seen
    before = every.get(key)
    if _seen_by(before) != seen:
        if before is None:
            every.remember(key, seen, may_go=_loose)
        else:
            every.replace(key, seen)
        return None
    if _capturing(input) or (isinstance(before, LetGo) and not before.mark.eased()):
        return None
    try:
        kept = _prepare(seen, input, weight, bias, how, every)
    except OutOfMemoryError as e:
        missing = e.wanted - (e.free or 0)
    else:
        every.replace(key, kept)
        _layers.add(layer)
        return kept
    _short(layer, key, seen, missing)
    return None


def _seen_by(kept: Any) -> Any:
    return kept.seen if isinstance(kept, (Kept, LetGo)) else kept


def _capturing(input: Tensor) -> bool:
    return input.is_cuda and torch.cuda.is_current_stream_capturing()


def _free(where: int) -> shortage.Free:
    return (running.shortage_of(where) if where >= 0 else shortage.of(running.device_of(where)[0])).free


def _short(layer: Any, key: tuple[Any, ...], seen: tuple[Any, ...], missing: int) -> None:
    """Let go of the filters that such a call of the layer would take."""
    layer.__dict__[WHERE].replace(key, LetGo(seen, shortage.Mark(_free(seen[-1]), missing)))


def let_go(device: Any) -> None:
    """Let go of the filters kept on a device that no graph may read. PyTorch gives their memory to nobody before the
    streams that they were used on are done with them."""
    marks: list[shortage.Mark] = []
    for layer in list(_layers):
        every: Shapes = layer.__dict__.get(WHERE) or Shapes(0)
        ways: dict[Any, shortage.Mark] = {}
        for shape in every:
            kept = every.get(shape)
            if isinstance(kept, Kept) and running.device_of(kept.seen[-1])[0] is device and _loose(kept):
                if kept.way not in ways:
                    ways[kept.way] = shortage.Mark(_free(kept.seen[-1]), kept.filters.nbytes)
                every.replace(shape, LetGo(kept.seen, ways[kept.way]))
            del kept
        marks += ways.values()
    for mark in marks:  # else their own memory would count as what came free since
        mark.measure()


engine.holders.append(let_go)


def _loose(kept: Any) -> bool:
    """Whether there is no graph that may read these filters, which then stay."""
    return not (isinstance(kept, Kept) and kept.ready is not None and kept.ready.captured)


def _way(plan: Plan) -> tuple[Any, ...]:
    """All that decides what the filters of a plan are made into."""
    first, rest = plan.apart
    if first is None:
        return ()
    sizes = {name: region.nbytes for name, region in first.workspace.items()}
    return (*[(operand.role, operand.shape) for operand in first.problem.operands], "filters" in rest.problem.roles,
            *[(x.spec.source, x.spec.name, x.grid, *sorted(x.values.items()), *sorted(x.textures.items()),
               *sorted(x.tables.items()), *sorted((name, sizes[name]) for name in x.names & sizes.keys()))
              for x in first.launches])


def _prepare(seen: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any],
             every: Shapes) -> Kept:
    stride, padding, dilation = (pair(name, value) for name, value in zip(("stride", "padding", "dilation"), how[:3],
                                                                           strict=True))
    device, _ = running.device_of(input.get_device())
    given = {"images": input, "filters": weight} | ({} if bias is None else {"bias": bias})
    ending, conf = how[7] if len(how) > 7 else running.PLAIN, (stride, padding, dilation, *how[3:7])
    if running.channels_last(input, weight):  # else the result is taken for contiguous
        given["out"] = running.empty(input, running.output_shape(input, weight, conf), True)
    plan = running.plan_of("forward", given, input.shape, weight.shape, conf, device, prepared=True, ending=ending)
    given.clear()
    ffma = plan.computes("ffma")
    way, detached = (ffma, *_way(plan)), weight.detach()
    same = next((kept for kept in every.values() if isinstance(kept, Kept) and (kept.seen, kept.way) == (seen, way)),
                None)
    if not input.is_cuda:  # the virtual GPU here has no tensor cores
        made = PreparedFilters(plan, same.filters.arrays) if same else prepare_filters(detached.numpy(), plan)
        return Kept(seen, made, None, {}, way, set())
    ready = running.Ready(plan, input.get_device(), prepared=True)
    if same:
        return Kept(seen, PreparedFilters(plan, same.filters.arrays), ready, same.places, way, same.streams)
    stream = torch.cuda.current_stream(input.device)
    filters = prepare_filters(detached if ffma else balanced(detached), plan, stream=stream)
    done = device.event()
    done.record(stream)
    done.wait()  # the filters are there for every stream
    places = {name: array.data_ptr() for name, array in filters.arrays.items()}
    return Kept(seen, filters, ready, places, way, {stream.cuda_stream})


def balanced(weights: Tensor) -> Tensor:
    """Weights for tensor cores, whose sums come out too small by 0.9e-7: each one unit in the last place larger, in the
    mean 0.86e-7. Numbers of at most 12 bits stay as they are, so that sums of small integers are exact, and so do
    extreme ones, of which a unit may be a large share or lead to infinity (docs/tensor-cores.md)."""
    bits, size = weights.view(torch.int32), weights.abs()
    larger = (bits & 0xFFF != 0) & (size > 2.0 ** -100) & (size < 2.0 ** 100)
    return (bits + larger).view(torch.float32)
