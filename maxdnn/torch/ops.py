"""The operators behind maxdnn.torch: a convolution and its two gradients, float32, N,C,H,W. Each is the derivative of
the others, so that derivatives of any order are made of the three. PyTorch sees them as `torch.ops.maxdnn.*`, with
shapes for tracing (torch.compile, torch.export) and derivatives; a call finds its plan in a table and hands the
tensors to the engine where they are."""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
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
from ..problem.shape import ConvShape
from ..runtime import engine, frontend, shortage
from ..runtime.arguments import check_shapes
from ..runtime.devices import find
from ..runtime.devices.protocol import texture_alignment
from ..runtime.remember import HOST_BYTES, Table
from .memory import free_bytes, having_room

_ONE = {"alpha": np.float32(1), "beta": np.float32(1)}
Numbers = Sequence[Any]
Conf = tuple[Numbers, Numbers, Numbers, int, str, float]  # stride, padding, dilation, groups, algorithm, max_error


class Ending(NamedTuple):
    """What follows the sums of a forward convolution in its kernel: what `out` held is added, negative becomes 0."""

    adds: bool = False
    relu: bool = False


PLAIN = Ending()
_ROLES = "images", "filters", "bias"
_KINDS = Tensor, torch.nn.Parameter
# What is asked at every call, by the shortest names.
_float32, _wanted, _autocast, _tangents = (torch.float32, torch.is_grad_enabled, torch.is_autocast_enabled,
                                           torch.autograd.forward_ad)
_new = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)  # on the current GPU, in half the time
_modes, _transformed, _profiled = (torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack,
                                   torch._C._autograd._profiler_enabled)

_plans: Table[tuple[Any, ...], Plan] = Table(HOST_BYTES)  # by all that decides a call
_eager: Table[tuple[Any, ...], "Ready"] = Table(HOST_BYTES)  # see `eager`
_devices: dict[int, tuple[Any, int]] = {}  # by number: the device, and where it lets a texture begin
_shortages: dict[int, shortage.Shortage] = {}  # by number


def _forward(images: Tensor, filters: Tensor, bias: Tensor | None, stride: Numbers, padding: Numbers,
             dilation: Numbers, groups: int, algorithm: str = "auto", max_error: float = MAX_ERROR) -> Tensor:
    n, _, h, w = images.shape
    k, _, r, s = filters.shape
    out = _empty(images, (n, k, *_map_size((h, w), (r, s), stride, padding, dilation)))
    given = {"images": images, "filters": filters} | ({} if bias is None else {"bias": bias})
    _run("forward", given, out, images.shape, filters.shape, stride, padding, dilation, groups, algorithm, max_error)
    return out


def _input_gradient(gradients: Tensor, filters: Tensor, size: Numbers, stride: Numbers, padding: Numbers,
                    dilation: Numbers, groups: int, algorithm: str = "auto", max_error: float = MAX_ERROR) -> Tensor:
    images = (gradients.shape[0], filters.shape[1] * groups, *size)
    out = _empty(gradients, images)
    _run("data", {"gradients": gradients, "filters": filters}, out, images, filters.shape, stride, padding, dilation,
         groups, algorithm, max_error)
    return out


def _weight_gradient(gradients: Tensor, images: Tensor, size: Numbers, stride: Numbers, padding: Numbers,
                     dilation: Numbers, groups: int, algorithm: str = "auto", max_error: float = MAX_ERROR) -> Tensor:
    filters = (gradients.shape[1], images.shape[1] // groups, *size)
    out = _empty(gradients, filters)
    _run("filters", {"images": images, "gradients": gradients}, out, images.shape, filters, stride, padding, dilation,
         groups, algorithm, max_error)
    return out


def _empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    """A new tensor, after all that is idle was let go if need be."""
    if not like.is_cuda:
        return like.new_empty(shape)
    found: Tensor = having_room(lambda: like.new_empty(shape), FLOAT_BYTES * math.prod(shape), like.get_device(),
                                device_of(like.get_device())[0])
    return found


def _map_size(size: Numbers, filters: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers) -> list[Any]:
    if min(stride) < 1:
        raise ShapeError(f"stride must be at least 1 (got {tuple(stride)})")
    return [(x + 2 * pad - dil * (k - 1) - 1) // step + 1
            for x, k, step, pad, dil in zip(size, filters, stride, padding, dilation, strict=True)]


def _run(kind: str, given: dict[str, Tensor], out: Tensor, images: Numbers, filters: Numbers, stride: Numbers,
         padding: Numbers, dilation: Numbers, groups: int, algorithm: str, max_error: float,
         ending: Ending = PLAIN) -> None:
    """Fill `out`. `images`, `filters`: the shapes of the maps and filters, whichever of them is given."""
    where = out.get_device()
    device, easy = device_of(where)
    odd, used = 0, {}
    for role, tensor in (*given.items(), ("out", out)):
        if tensor.get_device() != where or tensor.dtype is not torch.float32:
            raise _unfit(role, tensor, out)
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        odd = 2 * odd + (tensor.data_ptr() % easy != 0)
        used[role] = tensor
    key = (kind, *[tensor.shape for tensor in given.values()], out.shape, *stride, *padding, *dilation, groups, where,
           algorithm, max_error, odd) + (() if ending is PLAIN else ending)
    plan = _plans.get(key)
    if plan is None:
        plan = plan_of(kind, used, images, filters, (stride, padding, dilation, groups, algorithm, max_error), device,
                       ending=ending)
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


def launch(plan: Plan, on: engine.Engine, out: Tensor, places: dict[str, int]) -> None:
    """Run a plan on the current stream of the CUDA device of `out`, on operands at these addresses. One that `choose`
    chose gives way where there is no memory for its workspace."""
    where = out.get_device()
    stream = torch._C._cuda_getCurrentRawStream(where)
    if plan.workspace_bytes and plan.terms is not None:
        shortage_of(where).run(plan, lambda one: _attempt(one, on, out, places, stream), lambda: on.recorded(stream))
    else:
        _attempt(plan, on, out, places, stream)


def _attempt(plan: Plan, on: engine.Engine, out: Tensor, places: dict[str, int], stream: int) -> None:
    nbytes = plan.workspace_bytes
    # As PyTorch's own operators take it: in the order of the stream, and out of the pool of a graph under capture.
    if not nbytes:
        on.loaded(plan).run(places, 0, _ONE, stream)
        return
    where, raw = out.get_device(), torch._C._cuda_cudaCachingAllocator_raw_alloc
    if torch._C._cuda_getDevice() == where:  # a tensor takes twice as long
        room = having_room(lambda: raw(nbytes, stream), nbytes, where, on.device, workspace=True)
        try:
            on.loaded(plan).run(places, room, _ONE, stream)
        finally:
            torch._C._cuda_cudaCachingAllocator_raw_delete(room)
    else:
        tensor = having_room(lambda: out.new_empty(-(-nbytes // FLOAT_BYTES)), nbytes, where, on.device, workspace=True)
        on.loaded(plan).run(places, tensor.data_ptr(), _ONE, stream)


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
        found[role] = ArrayView(role, memory, tuple(tensor.shape), tensor.data_ptr(),
                                FLOAT_BYTES * tensor.numel(), on_host, True)
    return found


def eager(input: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor | None:
    """What `conv2d` (functional.py) gives with `how` as its other arguments, past PyTorch's dispatcher, whose detour
    takes as long as all the rest; None where the detour is needed (tracing, other kinds of tensors) or has not been
    made for such a call before."""
    given = (input, weight) if bias is None else (input, weight, bias)
    kind = plain(given)
    if kind is False:
        return None
    try:
        found = _eager.get((input.shape, weight.shape, bias if bias is None else bias.shape, input.get_device(), how))
    except TypeError:  # lists: the long way says what is wrong, if anything is
        return None
    if found is None:
        return None
    if kind:
        return found.run(_ROLES, given, {})
    out: Tensor = _tape(input, weight, bias, found, *found.conf)
    return out


class Ready:
    """A call like one that was made: nothing is left to say but where its tensors lie."""

    __slots__ = "_easy", "_engine", "_plan", "_shape", "_strides", "_where", "conf"

    def __init__(self, plan: Plan, where: int, conf: Sequence[Any] = ()) -> None:
        device, self._easy = device_of(where)
        self._engine, self._plan, self._where, self.conf = engine.of(device), plan, where, conf
        self._shape = plan.array_shapes()["out"]
        self._strides = tuple(math.prod(self._shape[axis + 1:]) for axis in range(len(self._shape)))

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
                out = _empty(given[0], self._shape)
        elif out is None:
            out = _empty(given[0], self._shape)
        places["out"] = out.data_ptr()
        launch(self._plan, self._engine, out, places)
        return out


def made(input: Tensor, weight: Tensor, bias: Tensor | None, *conf: Any) -> Tensor:
    """What the operator gives; past the dispatcher where nobody looks, with derivatives if they are wanted."""
    given = (input, weight) if bias is None else (input, weight, bias)
    if torch.compiler.is_compiling() or not _unwatched(given):
        return conv2d(input, weight, bias, *conf)
    if torch.is_grad_enabled() and any([tensor.requires_grad for tensor in given]):
        out: Tensor = _Taped.apply(input, weight, bias, None, *conf)
        return out
    return _forward(input, weight, bias, *conf)


def _unwatched(given: Sequence[Tensor]) -> bool:
    """Whether a call is nobody's but ours: tensors of a CPU or a GPU that are nothing else besides, and nothing that
    traces or looks."""
    for tensor in given:
        if type(tensor) not in _KINDS or tensor.is_neg() or not (tensor.is_cuda or tensor.is_cpu):
            return False
    return not _interposed()


def plain(given: Sequence[Tensor]) -> bool | None:
    """Whether there is nothing to a call but the numbers in these tensors, as they lie: nobody traces it or looks at
    it, no other dtype is asked for, and no derivative is wanted; None if one is."""
    if torch.compiler.is_compiling() or type(given[0]) is not Tensor or _interposed():
        return False
    kind = "cuda" if given[0].is_cuda else "cpu"
    taped, wanted = False, _wanted()
    for tensor in given:
        if (type(tensor) not in _KINDS or tensor.dtype is not _float32 or not tensor.is_contiguous()
                or tensor.is_neg()):
            return False
        if wanted and tensor.requires_grad:
            taped = True
    if (kind == "cpu" and not given[0].is_cpu) or _autocast(kind):
        return False
    return None if taped else True


def _interposed() -> bool:
    """Whether something looks at every operation: a mode, a transformation of functions, a profiler."""
    return _modes() > 0 or _transformed() is not None or _tangents._current_level >= 0 or _profiled()


def remember(input: Tensor, weight: Tensor, bias: Tensor | None, how: tuple[Any, ...], out: Tensor, stride: Numbers,
             padding: Numbers, dilation: Numbers, groups: int, algorithm: str, max_error: float) -> None:
    """Let `eager` serve calls like this one, which has been made, from now on. `stride`, `padding`, `dilation`: what
    `how` means."""
    given = [input.shape, weight.shape] if bias is None else [input.shape, weight.shape, bias.shape]
    where, conf = input.get_device(), (stride, padding, dilation, groups, algorithm, max_error)
    plan = _plans.get(("forward", *given, out.shape, *stride, *padding, *dilation, groups, where, algorithm, max_error,
                       0))
    if plan is not None and where >= 0 and out.numel():
        key = input.shape, weight.shape, bias if bias is None else bias.shape, where, how
        with suppress(TypeError):  # lists are no keys
            if _eager.get(key) is None:
                _eager.remember(key, Ready(plan, where, conf), plan.host_bytes)


def _unfit(role: str, tensor: Tensor, out: Tensor) -> Exception:
    if tensor.dtype is not torch.float32:
        return ShapeError(f"{role} must be float32 (got {tensor.dtype})")
    return ShapeError(f"{role} must be on {out.device}, as the first tensor is (got {tensor.device})")


def plan_of(kind: str, given: dict[str, Tensor], images: Numbers, filters: Numbers, conf: Conf, device: Any,
            prepared: bool = False, ending: Ending = PLAIN) -> Plan:
    """The plan of a call that is new. Raises ShapeError for what is no convolution."""
    algorithm, max_error = conf[4:]
    check_wanted(algorithm, max_error, None)
    if algorithm == "winograd" and kind != "forward":
        algorithm = "auto"  # asked of the layer: whether it serves the gradients too nobody knows who asks
    views = _views(given)
    asked = _problem(kind, views, images, filters, conf, ending)
    return frontend.chosen(asked, views, device, algorithm, max_error, prepared)


def _problem(kind: str, given: dict[str, ArrayView], images: Numbers, filters: Numbers, conf: Conf,
             ending: Ending) -> Problem:
    n, c, h, w = images
    k, inner, r, s = filters
    (stride, padding, dilation), groups = (tuple(axes) for axes in conf[:3]), conf[3]
    if c != inner * groups:
        raise ShapeError(f"input must have {inner * groups} channels, {groups} (groups) times those of weight "
                         f"(got input {tuple(images)}, weight {tuple(filters)})")
    shape = ConvShape(max(n, 1), c, h, w, k, r, s, stride, padding, dilation, groups)
    more = {"bias": "bias" in given, "activation": "relu" if ending.relu else None} if kind == "forward" else {}
    asked = PASSES[kind](shape, layout="NCHW", reads_out=ending.adds, **more)
    check_shapes({role: x for role, x in given.items() if n or role in ("filters", "bias")}, asked.shapes, "")
    return asked


def _forget() -> None:
    _plans.clear()
    _eager.clear()


records.changed.append(_forget)


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


_CONF = f"int[2] stride, int[2] padding, int[2] dilation, int groups, str algorithm='auto', float max_error={MAX_ERROR}"
_library = torch.library.Library("maxdnn", "DEF")
for _name, _arguments, _function in (
        ("conv2d", "Tensor input, Tensor weight, Tensor? bias", _forward),
        ("conv2d_input", "Tensor gradients, Tensor weight, SymInt[2] size", _input_gradient),
        ("conv2d_weight", "Tensor gradients, Tensor input, SymInt[2] size", _weight_gradient)):
    _library.define(f"{_name}({_arguments}, {_CONF}) -> Tensor")
    for _kind in ("CPU", "CUDA"):
        _library.impl(_name, _function, _kind)

conv2d = torch.ops.maxdnn.conv2d.default
conv2d_input = torch.ops.maxdnn.conv2d_input.default
conv2d_weight = torch.ops.maxdnn.conv2d_weight.default


@partial(torch.library.register_fake, "maxdnn::conv2d", lib=_library)
def _(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers, padding: Numbers, dilation: Numbers,
      groups: int, algorithm: str = "auto", max_error: float = MAX_ERROR) -> Tensor:
    torch._check(input.shape[1] == weight.shape[1] * groups, lambda: "channels of input and weight do not fit")
    size = _map_size(input.shape[2:], weight.shape[2:], stride, padding, dilation)
    return input.new_empty((input.shape[0], weight.shape[0], *size))


@partial(torch.library.register_fake, "maxdnn::conv2d_input", lib=_library)
def _(gradients: Tensor, weight: Tensor, size: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers,
      groups: int, algorithm: str = "auto", max_error: float = MAX_ERROR) -> Tensor:
    return gradients.new_empty((gradients.shape[0], weight.shape[1] * groups, *size))


@partial(torch.library.register_fake, "maxdnn::conv2d_weight", lib=_library)
def _(gradients: Tensor, input: Tensor, size: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers,
      groups: int, algorithm: str = "auto", max_error: float = MAX_ERROR) -> Tensor:
    return gradients.new_empty((gradients.shape[1], input.shape[1] // groups, *size))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """What derivatives need: the two tensors, and what follows them."""
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.conf = inputs[3:]


def _of_conv2d(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    images, filters = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    of_input, of_weight = ((_input_gradient, _weight_gradient) if not torch.is_grad_enabled()
                           and _unwatched((gradients, images, filters)) else (conv2d_input, conv2d_weight))
    return (of_input(gradients, filters, images.shape[2:], *ctx.conf) if wanted[0] else None,
            of_weight(gradients, images, filters.shape[2:], *ctx.conf) if wanted[1] else None,
            gradients.sum((0, 2, 3)) if wanted[2] else None, *[None] * len(ctx.conf))


class _Taped(torch.autograd.Function):
    """The operator and its derivative, for calls that nobody looks at: of several times that PyTorch's way to a
    derivative of an operator takes, one is left."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, ready: Ready | None,
                *conf: Any) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.conf = conf
        out = None
        if ready is not None:
            out = ready.run(_ROLES, (input, weight) if bias is None else (input, weight, bias), {})
        return _forward(input, weight, bias, *conf) if out is None else out

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
        return (*_of_conv2d(ctx, gradients), None)


# Without a look at transformations of functions, of which `plain` has made sure that there is none.
_tape: Any = torch._C._FunctionBase.__dict__["apply"].__get__(None, _Taped)


def _of_input_gradient(ctx: Any, twice: Tensor) -> tuple[Any, ...]:
    gradients, filters = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    return (conv2d(twice, filters, None, *ctx.conf) if wanted[0] else None,
            conv2d_weight(gradients, twice, filters.shape[2:], *ctx.conf) if wanted[1] else None,
            None, *[None] * len(ctx.conf))


def _of_weight_gradient(ctx: Any, twice: Tensor) -> tuple[Any, ...]:
    gradients, images = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    return (conv2d(images, twice, None, *ctx.conf) if wanted[0] else None,
            conv2d_input(gradients, twice, images.shape[2:], *ctx.conf) if wanted[1] else None,
            None, *[None] * len(ctx.conf))


for _name, _derivative in (("conv2d", _of_conv2d), ("conv2d_input", _of_input_gradient),
                           ("conv2d_weight", _of_weight_gradient)):
    torch.library.register_autograd(f"maxdnn::{_name}", _derivative, setup_context=_keep, lib=_library)
