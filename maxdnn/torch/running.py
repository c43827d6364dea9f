"""Runs a convolution or one of its gradients on tensors: float32, N,C,H,W, channels_last or not. A call finds its plan
in a table and hands the tensors to the engine where they are."""

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import ShapeError
from ..planning import records
from ..planning.plan import Plan
from ..planning.select import MAX_ERROR, check_wanted
from ..problem.operands import FLOAT_BYTES, ArrayView
from ..problem.problem import PASSES, Problem
from ..problem.problem import channels_last as lying_last
from ..problem.shape import ConvShape
from ..runtime import engine, frontend, shortage
from ..runtime.arguments import check_shapes
from ..runtime.devices import find
from ..runtime.devices.protocol import texture_alignment
from ..runtime.prepared import PreparedFilters
from ..runtime.remember import HOST_BYTES, Table
from .memory import free_bytes, having_room

_ONE = {"alpha": np.float32(1), "beta": np.float32(1)}
Numbers = Sequence[Any]
Conf = tuple[Any, ...]
"""Stride, padding, dilation (two numbers each), groups, algorithm, max_error, arithmetic; the last three have
DEFAULTS."""
DEFAULTS = "auto", MAX_ERROR, "auto"


def whole(conf: Conf) -> Conf:
    """With the defaults of what is missing: PyTorch's dispatcher leaves out what has its default."""
    return conf if len(conf) == 7 else (*conf, *DEFAULTS[len(conf) - 4:])


class Ending(NamedTuple):
    """What follows the sums of a forward convolution in its kernel: what `out` held is added, an activation applied."""

    adds: bool = False
    activation: str | None = None


PLAIN = Ending()
# What is asked at every call, by the shortest names.
_float32 = torch.float32
_new = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)  # on the current GPU, in half the time

_plans: Table[tuple[Any, ...], Plan] = Table(HOST_BYTES)  # by all that decides a call
_devices: dict[int, tuple[Any, int]] = {}  # by number: the device, and where it lets a texture begin
_shortages: dict[int, shortage.Shortage] = {}  # by number


def forward(images: Tensor, filters: Tensor, bias: Tensor | None, *conf: Any) -> Tensor:
    """A convolution."""
    out = empty(images, output_shape(images, filters, conf), channels_last(images, filters))
    given = {"images": images, "filters": filters} | ({} if bias is None else {"bias": bias})
    run("forward", given, out, images.shape, filters.shape, conf)
    return out


def input_gradient(gradients: Tensor, filters: Tensor, size: Numbers, *conf: Any) -> Tensor:
    """Of the map, whose rows and columns are `size`."""
    images = (gradients.shape[0], filters.shape[1] * conf[3], *size)
    out = empty(gradients, images, channels_last(gradients, filters))
    run("data", {"gradients": gradients, "filters": filters}, out, images, filters.shape, conf)
    return out


def weight_gradient(gradients: Tensor, images: Tensor, size: Numbers, *conf: Any) -> Tensor:
    """Of the filters, whose rows and columns are `size`."""
    filters = (gradients.shape[1], images.shape[1] // conf[3], *size)
    out = empty(gradients, filters, channels_last(gradients, images))
    run("filters", {"images": images, "gradients": gradients}, out, images.shape, filters, conf)
    return out


def output_shape(images: Tensor, filters: Tensor, conf: Conf) -> list[Any]:
    """Of a convolution of tensors with 4 axes."""
    return [images.shape[0], filters.shape[0], *map_size(images.shape[2:], filters.shape[2:], *conf[:3])]


def channels_last(*given: Tensor) -> bool:
    """Whether the result of these lies N,H,W,C, as PyTorch's own does: one of them does, and nothing else can be said
    of how it lies."""
    return any([x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
                for x in given])


def empty(like: Tensor, shape: Sequence[Any], last: bool = False) -> Tensor:
    """A new tensor, N,H,W,C in memory if `last`, after all that is idle was let go if need be."""
    make = partial(like.new_empty, shape)
    if last:
        _n, c, h, w = shape
        make = partial(like.new_empty_strided, shape, (h * w * c, 1, w * c, c))
    if not like.is_cuda:
        return make()
    found: Tensor = having_room(make, FLOAT_BYTES * math.prod(shape), like.get_device(),
                                device_of(like.get_device())[0])
    return found


def map_size(size: Numbers, filters: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers) -> list[Any]:
    if min(stride) < 1:
        raise ShapeError(f"stride must be at least 1 (got {tuple(stride)})")
    return [(x + 2 * pad - dil * (k - 1) - 1) // step + 1
            for x, k, step, pad, dil in zip(size, filters, stride, padding, dilation, strict=True)]


def run(kind: str, given: dict[str, Tensor], out: Tensor, images: Numbers, filters: Numbers, conf: Conf,
        ending: Ending = PLAIN) -> None:
    """Fill `out`. `images`, `filters`: the shapes of the maps and filters, whichever of them is given."""
    where = out.get_device()
    device, easy = device_of(where)
    odd, used = 0, {}
    for role, tensor in (*given.items(), ("out", out)):
        if tensor.get_device() != where or tensor.dtype is not torch.float32:
            raise _unfit(role, tensor, out)
        last = channels_last(tensor)
        if not (last or tensor.is_contiguous()):
            tensor = tensor.contiguous()
        odd = 4 * odd + 2 * last + (tensor.data_ptr() % easy != 0)
        used[role] = tensor
    key = key_of(kind, [tensor.shape for tensor in given.values()], out, conf, odd, ending)
    plan = _plans.get(key)
    if plan is None:
        plan = plan_of(kind, used, images, filters, conf, device, ending=ending)
        _plans.remember(key, plan, plan.host_bytes)
    if out.numel() == 0:
        return
    if images[0] == 0:
        out.zero_()
        return
    if where < 0:
        shortage.run(plan, _views(used), _ONE, device, None)
    else:
        launch(plan, engine.of(device), out, {role: tensor.data_ptr() for role, tensor in used.items()})


def key_of(kind: str, given: Sequence[Any], out: Tensor, conf: Conf, odd: int = 0,
           ending: Ending = PLAIN) -> tuple[Any, ...]:
    """All that decides a call. `given`: the shapes of its operands. `odd`: which begin where no texture may."""
    stride, padding, dilation, *rest = whole(conf)
    return (kind, *given, out.shape, *stride, *padding, *dilation, *rest, out.get_device(), odd) + (
        () if ending is PLAIN else ending)


def planned(kind: str, given: Sequence[Tensor], out: Tensor, conf: Conf) -> Plan | None:
    """The plan of a convolution or a gradient that has been made, of operands like these that begin where a texture
    may; None where one is neither contiguous nor channels_last."""
    odd = 0
    for tensor in (*given, out):
        last = channels_last(tensor)
        if not (last or tensor.is_contiguous()):
            return None
        odd = 4 * odd + 2 * last
    return _plans.get(key_of(kind, [tensor.shape for tensor in given], out, conf, odd))


def launch(plan: Plan, on: engine.Engine, out: Tensor, places: dict[str, int],
           scalars: Mapping[str, Any] = _ONE) -> None:
    """Run a plan on the current stream of the CUDA device of `out`, on operands at these addresses. One that `choose`
    chose gives way where there is no memory for its workspace."""
    where = out.get_device()
    stream = torch._C._cuda_getCurrentRawStream(where)
    if plan.workspace_bytes and plan.terms is not None:
        shortage_of(where).run(plan, lambda one: _attempt(one, on, out, places, stream, scalars),
                              lambda: on.recorded(stream))
    else:
        _attempt(plan, on, out, places, stream, scalars)


def _attempt(plan: Plan, on: engine.Engine, out: Tensor, places: dict[str, int], stream: int,
             scalars: Mapping[str, Any]) -> None:
    nbytes = plan.workspace_bytes
    # As PyTorch's own operators take it: in the order of the stream, and out of the pool of a graph under capture.
    if not nbytes:
        on.loaded(plan).run(places, 0, scalars, stream)
        return
    where, raw = out.get_device(), torch._C._cuda_cudaCachingAllocator_raw_alloc
    if torch._C._cuda_getDevice() == where:  # a tensor takes twice as long
        room = having_room(lambda: raw(nbytes, stream), nbytes, where, on.device, workspace=True)
        try:
            on.loaded(plan).run(places, room, scalars, stream)
        finally:
            torch._C._cuda_cudaCachingAllocator_raw_delete(room)
    else:
        tensor = having_room(lambda: out.new_empty(-(-nbytes // FLOAT_BYTES)), nbytes, where, on.device, workspace=True)
        on.loaded(plan).run(places, tensor.data_ptr(), scalars, stream)


def shortage_of(where: int) -> shortage.Shortage:
    """What gave way where PyTorch's allocator has no memory on the device with this number."""
    found = _shortages.get(where)
    if found is None:
        device, _ = device_of(where)
        found = _shortages[where] = shortage.Shortage(device, partial(free_bytes, where, device))
    return found


def _views(given: dict[str, Tensor]) -> dict[str, ArrayView]:
    found = {}
    for role, tensor in given.items():
        on_host = tensor.get_device() < 0
        memory = tensor.detach().numpy() if on_host else tensor
        found[role] = ArrayView(role, memory, tuple(tensor.shape), tensor.data_ptr(), FLOAT_BYTES * tensor.numel(),
                                on_host, True, strides=lying_last(tensor.shape) if channels_last(tensor) else None)
    return found


def _gives_last(plan: Plan) -> bool:
    """Whether the result lies N,H,W,C, also one that is contiguous besides."""
    return any(operand.strides is not None for operand in plan.problem.operands)


def by_kept(filters: PreparedFilters, given: dict[str, Tensor], out: Tensor | None) -> Tensor:
    """The result of filters that were made ready, and these other operands, on the CPU; in `out`, if it is given."""
    rest = filters.plan.apart[1]
    if out is None:
        out = empty(given["images"], rest.array_shapes()["out"], _gives_last(filters.plan))
    views = _views(given | {"out": out}) | filters.views
    check_shapes(views, rest.array_shapes(), "")
    engine.run(rest, views, _ONE, device_of(-1)[0], None)
    return out


class Ready:
    """A call like one that was made: nothing is left to say but where its tensors lie. `known`: of which kinds they
    are known to be (`ops.eager`). `lying`: which of the first two are contiguous; the others are channels_last."""

    __slots__ = "_alone", "_easy", "_engine", "_last", "_plan", "_shape", "_strides", "_where", "conf", "known", "lying"

    def __init__(self, plan: Plan, where: int, conf: Sequence[Any] = (),
                 lying: tuple[bool, bool] = (True, True), prepared: bool = False) -> None:
        self._last = _gives_last(plan)
        if prepared:  # what is left to do with filters that were made ready
            plan = plan.apart[1]
        device, self._easy = device_of(where)
        self._engine, self._plan, self._where, self.conf, self.lying = engine.of(device), plan, where, conf, lying
        self._alone = not plan.workspace_bytes  # no memory that may be short: fewer steps
        self.known: list[tuple[Any, bool, bool | None]] = []
        self._shape = plan.array_shapes()["out"]
        self._strides = lying_last(self._shape) if self._last else tuple(
            math.prod(self._shape[axis + 1:]) for axis in range(len(self._shape)))

    @property
    def captured(self) -> bool:
        """Whether a graph runs the plan."""
        return self._engine.captured(self._plan)

    def run(self, roles: Sequence[str], given: Sequence[Tensor], places: dict[str, int],
            out: Tensor | None = None) -> Tensor | None:
        """The result for tensors of these roles, images first, and other operands at `places`, which is changed; None
        if one of them lies elsewhere, or so that the plan cannot read it. `out`: what is filled, None for a new one."""
        where, easy = self._where, self._easy
        for role, tensor in zip(roles, given):  # noqa: B905 (the bias may be missing)
            address = tensor.data_ptr()
            if address % easy or tensor.get_device() != where:
                return None
            places[role] = address
        if out is None and _new is not None and torch._C._cuda_getDevice() == where:
            try:
                out = _new(self._shape, self._strides, _float32)
            except torch.cuda.OutOfMemoryError:
                out = empty(given[0], self._shape, self._last)
        elif out is None:
            out = empty(given[0], self._shape, self._last)
        places["out"] = out.data_ptr()
        if self._alone:
            self._engine.loaded(self._plan).run(places, 0, _ONE, torch._C._cuda_getCurrentRawStream(where))
        else:
            launch(self._plan, self._engine, out, places)
        return out


def _unfit(role: str, tensor: Tensor, out: Tensor) -> Exception:
    if tensor.dtype is not torch.float32:
        return ShapeError(f"{role} must be float32 (got {tensor.dtype})")
    return ShapeError(f"{role} must be on {out.device}, as the first tensor is (got {tensor.device})")


def plan_of(kind: str, given: dict[str, Tensor], images: Numbers, filters: Numbers, conf: Conf, device: Any,
            prepared: bool = False, ending: Ending = PLAIN) -> Plan:
    """The plan of a call that is new. Raises ShapeError for what is no convolution."""
    algorithm, max_error, arithmetic = whole(conf)[4:]
    check_wanted(algorithm, max_error, None, arithmetic)
    if algorithm in ("winograd", "fft") and kind != "forward":
        algorithm = "auto"  # asked of the layer: whether it serves the gradients too nobody knows who asks
    views = _views(given)
    asked = _problem(kind, views, images, filters, conf, ending)
    return frontend.chosen(asked, views, device, algorithm, max_error, prepared, arithmetic)


def _problem(kind: str, given: dict[str, ArrayView], images: Numbers, filters: Numbers, conf: Conf,
             ending: Ending) -> Problem:
    n, c, h, w = images
    k, inner, r, s = filters
    (stride, padding, dilation), groups = (tuple(axes) for axes in conf[:3]), conf[3]
    if c != inner * groups:
        raise ShapeError(f"input must have {inner * groups} channels, {groups} (groups) times those of weight "
                         f"(got input {tuple(images)}, weight {tuple(filters)})")
    shape = ConvShape(max(n, 1), c, h, w, k, r, s, stride, padding, dilation, groups)
    more = {"bias": "bias" in given, "activation": ending.activation} if kind == "forward" else {}
    asked = PASSES[kind](shape, layout="NCHW", reads_out=ending.adds, **more)
    check_shapes({role: x for role, x in given.items() if n or role in ("filters", "bias")}, asked.shapes, "")
    for role, view in given.items():
        asked = asked.with_strides(role, view.strides)
    return asked


records.changed.append(lambda: _plans.clear())


def device_of(where: int) -> tuple[Any, int]:
    """The device of this library for a CUDA device's number, -1 for the CPU, and where it lets a texture begin. Raises
    DeviceError without a driver."""
    if where in _devices:
        return _devices[where]
    if where < 0:
        warnings.warn("CPU tensors run on maxDNN's virtual GPU, which is made for checking, not for speed",
                      stacklevel=2)
    device = find.gpu(where) if where >= 0 else find.host()
    found = _devices[where] = device, texture_alignment(device)
    return found
