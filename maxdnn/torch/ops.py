"""The operators behind maxdnn.torch: a convolution and its two gradients, float32, N,C,H,W. Each is the derivative of
the others, so that derivatives of any order are made of the three. PyTorch sees them as `torch.ops.maxdnn.*`, with
shapes for tracing (torch.compile, torch.export) and derivatives."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..planning import records
from ..planning.select import MAX_ERROR
from ..runtime.remember import HOST_BYTES, Table
from . import running
from .running import Numbers, Ready, forward, input_gradient, weight_gradient
from .transforms import Convolution, InputGradient, convolutions, input_gradients, weight_gradients

ROLES = "images", "filters", "bias"
_KINDS = Tensor, torch.nn.Parameter
# What is asked at every call, by the shortest names.
_float32, _wanted, _autocast, _tangents = (torch.float32, torch.is_grad_enabled, torch.is_autocast_enabled,
                                           torch.autograd.forward_ad)
_modes, _transformed, _profiled, _recorded = (
    torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack,
    torch._C._autograd._profiler_enabled, torch._C._get_tracing_state)
_FIRST_GPU = 0  # among PyTorch's numbers of devices; calls on the CPU, -1, are not remembered
_eager: Table[tuple[Any, ...], Ready] = Table(HOST_BYTES)  # see `eager`

# What torch.compile asks of inputs, in a tenth of the time of `plain`: exact types, dtypes, devices, sizes, strides,
# dispatch keys (which modes, autocasts, transformations of functions, inference mode and views change), and whether
# tensors are to have derivatives. None where PyTorch has no such class: then `plain` is asked each time.
_Guards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)
_KNOWN = 4  # of a ready call: with or without derivatives, tensors made in inference mode or not


def eager(input: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor | None:
    """What `conv2d` (functional.py) gives with `how` as its other arguments, past PyTorch's dispatcher, whose detour
    takes as long as all the rest; None where the detour is needed (tracing, other kinds of tensors) or has not been
    made for such a call before."""
    if (torch.compiler.is_compiling() or type(input) is not Tensor or type(weight) not in _KINDS
            or (bias is not None and type(bias) not in _KINDS)
            or _tangents._current_level >= 0 or _profiled() or _recorded() is not None):  # which guards do not ask
        return None
    key = input.shape, weight.shape, bias if bias is None else bias.shape, input.get_device(), how
    try:
        found = _eager.get(key)
    except TypeError:  # lists: the long way says what is wrong, if anything is
        return None
    if found is None:
        return None
    given = (input, weight) if bias is None else (input, weight, bias)
    for guards, wanted, kind in found.known:  # noqa: B007
        if wanted is _wanted() and guards.check(*given):
            break
    else:
        found, kind = _closely(found, key, given)
        if found is None or kind is False:
            return None
    if kind:
        return found.run(ROLES, given, {})
    out: Tensor = _tape(input, weight, bias, found, *found.conf)
    return out


def _closely(found: Ready, key: tuple[Any, ...], given: Sequence[Tensor]) -> tuple[Ready | None, bool | None]:
    """The call of tensors that lie as these do, where `found` is what is ready for their shapes and does not know them;
    and what `plain` says."""
    lying = _lying(given)
    if lying == found.lying:
        return found, _looked_at(found, given)
    other = _eager.get((*key, *lying))
    if other is None:
        return None, False
    for guards, wanted, kind in other.known:
        if wanted is _wanted() and guards.check(*given):
            return other, kind
    return other, _looked_at(other, given)


def _lying(given: Sequence[Tensor]) -> tuple[bool, bool]:
    """What tells `plain` calls of the same shapes apart: whether the first two operands are contiguous."""
    return given[0].is_contiguous(), given[1].is_contiguous()


def _looked_at(ready: Ready, given: Sequence[Tensor]) -> bool | None:
    """What `plain` says, which calls with such tensors need not ask from now on."""
    kind = plain(given)
    if kind is not False and _Guards is not None and len(ready.known) < _KNOWN:
        guards = _Guards(*given, dynamic_dims_sizes=[list(tensor.shape) for tensor in given],
                         dynamic_dims_strides=[list(tensor.stride()) for tensor in given])
        ready.known.append((guards, _wanted(), kind))
    return kind


def made(input: Tensor, weight: Tensor, bias: Tensor | None, *conf: Any) -> Tensor:
    """What the operator gives; past the dispatcher where nobody looks, with derivatives if they are wanted."""
    given = (input, weight) if bias is None else (input, weight, bias)
    if transformed():
        found = Convolution.apply(input, weight, *conf)
        summed: Tensor = found if bias is None else found + bias[:, None, None]
        return summed
    if torch.compiler.is_compiling() or not unwatched(given):
        return conv2d(input, weight, bias, *conf)
    if torch.is_grad_enabled() and any([tensor.requires_grad for tensor in given]):
        out: Tensor = _Taped.apply(input, weight, bias, None, *conf)
        return out
    return forward(input, weight, bias, *conf)


def made_input_gradient(gradients: Tensor, weight: Tensor, size: Numbers, *conf: Any) -> Tensor:
    """What the operator gives; past the dispatcher where nobody looks and no derivative is wanted."""
    given = gradients, weight
    if transformed():
        found: Tensor = InputGradient.apply(gradients, weight, tuple(size), *conf)
        return found
    if torch.compiler.is_compiling() or not unwatched(given) or (
            torch.is_grad_enabled() and any([tensor.requires_grad for tensor in given])):
        return conv2d_input(gradients, weight, size, *conf)
    return input_gradient(gradients, weight, size, *conf)


def transformed() -> bool:
    """Whether a transformation of functions or dual numbers look, for which the operators have no rules."""
    return not torch.compiler.is_compiling() and (_transformed() is not None or _tangents._current_level >= 0)


def unwatched(given: Sequence[Tensor]) -> bool:
    """Whether a call is nobody's but ours: tensors of a CPU or a GPU that are nothing else besides, and nothing that
    traces or looks."""
    for tensor in given:
        if type(tensor) not in _KINDS or tensor.is_neg() or not (tensor.is_cuda or tensor.is_cpu):
            return False
    return not watched()


def plain(given: Sequence[Tensor], last: list[Tensor] | None = None) -> bool | None:
    """Whether there is nothing to a call but the numbers in these tensors, as they lie, contiguous or channels_last:
    nobody traces it or looks at it, no other dtype is asked for, and no derivative is wanted; None if one is. `last`
    gets those that are not contiguous."""
    if torch.compiler.is_compiling() or type(given[0]) is not Tensor or watched():
        return False
    kind = "cuda" if given[0].is_cuda else "cpu"
    taped, wanted = False, _wanted()
    for tensor in given:
        if type(tensor) not in _KINDS or tensor.dtype is not _float32 or tensor.is_neg():
            return False
        if not tensor.is_contiguous():
            if not running.channels_last(tensor):
                return False
            if last is not None:
                last.append(tensor)
        if wanted and tensor.requires_grad:
            taped = True
    if (kind == "cpu" and not given[0].is_cpu) or _autocast(kind):
        return False
    return None if taped else True


def watched() -> bool:
    """Whether something looks at every operation: a mode, a transformation of functions, a profiler, a trace."""
    return (_modes() > 0 or _transformed() is not None or _tangents._current_level >= 0 or _profiled()
            or _recorded() is not None)


def remember(input: Tensor, weight: Tensor, bias: Tensor | None, how: tuple[Any, ...], out: Tensor,
             conf: running.Conf) -> None:
    """Let `eager` serve calls like this one, which has been made, from now on. `conf`: what `how` means."""
    given, where = (input, weight) if bias is None else (input, weight, bias), input.get_device()
    if where < _FIRST_GPU or transformed():  # which cannot be asked how they lie
        return
    plan = running.planned("forward", given, out, conf)
    if plan is not None and out.numel():
        key: tuple[Any, ...] = input.shape, weight.shape, bias if bias is None else bias.shape, where, how
        lying = _lying(given)
        with suppress(TypeError):  # lists are no keys
            before = _eager.get(key)
            if before is not None and before.lying != lying:  # the first takes the shorter key, which more may share
                key = *key, *lying
                before = _eager.get(key)
            if before is None:
                ready = Ready(plan, where, conf, lying)
                _looked_at(ready, given)
                _eager.remember(key, ready, plan.host_bytes)


records.changed.append(lambda: _eager.clear())


CONF = ("int[2] stride, int[2] padding, int[2] dilation, int groups, str algorithm='auto', "
        f"float max_error={MAX_ERROR}, str arithmetic='auto'")
def operator(library: torch.library.Library, name: str, arguments: str, function: Any, shape: Any, derivative: Any,
             keep: Any) -> Any:
    """A new operator for the CPU and GPUs. `shape` makes an empty result for tracing; `keep` notes what `derivative`
    needs."""
    library.define(f"{name}({arguments}) -> Tensor")
    for kind in ("CPU", "CUDA"):
        library.impl(name, function, kind)
    torch.library.register_fake(f"maxdnn::{name}", shape, lib=library)
    torch.library.register_autograd(f"maxdnn::{name}", derivative, setup_context=keep, lib=library)
    return getattr(torch.ops.maxdnn, name).default


def empty_output(input: Tensor, weight: Tensor, bias: Tensor | None, *conf: Any) -> Tensor:
    """An empty output of a convolution."""
    torch._check(input.shape[1] == weight.shape[1] * conf[3], lambda: "channels of input and weight do not fit")
    return running.empty(input, running.output_shape(input, weight, conf), running.channels_last(input, weight))


def _empty_input_gradient(gradients: Tensor, weight: Tensor, size: Numbers, *conf: Any) -> Tensor:
    shape = gradients.shape[0], weight.shape[1] * conf[3], *size
    return running.empty(gradients, shape, running.channels_last(gradients, weight))


def _empty_weight_gradient(gradients: Tensor, input: Tensor, size: Numbers, *conf: Any) -> Tensor:
    shape = gradients.shape[1], input.shape[1] // conf[3], *size
    return running.empty(gradients, shape, running.channels_last(gradients, input))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """What derivatives need: the two tensors, and what follows them."""
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.conf = inputs[3:]


def _of_conv2d(ctx: Any, gradients: Tensor) -> tuple[Any, ...]:
    images, filters = ctx.saved_tensors
    return (*gradients_of(images, filters, gradients, ctx.needs_input_grad, ctx.conf), *[None] * len(ctx.conf))


def gradients_of(images: Tensor, filters: Tensor, gradients: Tensor, wanted: Sequence[bool],
                 conf: Sequence[Any]) -> tuple[Tensor | None, ...]:
    """Of a convolution with respect to the map, the filters and the bias, those that are wanted."""
    of_input, of_weight = conv2d_input, conv2d_weight
    if not torch.is_grad_enabled() and unwatched((gradients, images, filters)):
        of_input, of_weight = partial(_again, "data", input_gradient), partial(_again, "filters", weight_gradient)
    return (of_input(gradients, filters, images.shape[2:], *conf) if wanted[0] else None,
            of_weight(gradients, images, filters.shape[2:], *conf) if wanted[1] else None,
            gradients.sum((0, 2, 3)) if wanted[2] else None)


_BACKWARD = {"data": ("gradients", "filters"), "filters": ("images", "gradients")}
_gradients: Table[tuple[Any, ...], Ready] = Table(HOST_BYTES)
records.changed.append(lambda: _gradients.clear())


def _again(kind: str, make: Any, gradients: Tensor, other: Tensor, size: Numbers, *conf: Any) -> Tensor:
    """What `make` gives, one of the two gradients: ready if one like it has been made."""
    where, given = gradients.get_device(), (gradients, other) if kind == "data" else (other, gradients)
    plain = where >= _FIRST_GPU and gradients.dtype is other.dtype is _float32
    key: tuple[Any, ...] = kind, gradients.shape, other.shape, size, where, conf
    if not (gradients.is_contiguous() and other.is_contiguous()):
        key = *key, *_lying(given)
        plain = plain and all([tensor.is_contiguous() or running.channels_last(tensor) for tensor in given])
    try:
        ready = _gradients.get(key)
    except TypeError:  # lists are no keys
        plain, ready = False, None
    found: Tensor | None = ready.run(_BACKWARD[kind], given, {}) if plain and ready else None
    if found is not None:
        return found
    found = make(gradients, other, size, *conf)
    plan = running.planned(kind, given, found, conf) if plain and ready is None else None
    if plan is not None and found.numel() and other.numel():
        _gradients.remember(key, Ready(plan, where), plan.host_bytes)
    return found


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
            out = ready.run(ROLES, (input, weight) if bias is None else (input, weight, bias), {})
        return forward(input, weight, bias, *conf) if out is None else out

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


_library = torch.library.Library("maxdnn", "DEF")
conv2d = operator(_library, "conv2d", f"Tensor input, Tensor weight, Tensor? bias, {CONF}", forward, empty_output,
                  _of_conv2d, _keep)
conv2d_input = operator(_library, "conv2d_input", f"Tensor gradients, Tensor weight, SymInt[2] size, {CONF}",
                        input_gradient, _empty_input_gradient, _of_input_gradient, _keep)
conv2d_weight = operator(_library, "conv2d_weight", f"Tensor gradients, Tensor input, SymInt[2] size, {CONF}",
                         weight_gradient, _empty_weight_gradient, _of_weight_gradient, _keep)


def _batch_of_convolutions(info: Any, in_dims: tuple[Any, ...], images: Tensor, filters: Tensor,
                           bias: Tensor | None, *conf: Any) -> tuple[Tensor, int]:
    def plain(images: Tensor, filters: Tensor, *conf: Any) -> Tensor:
        found: Tensor = conv2d(images, filters, None, *conf)
        return found
    if in_dims[:2] == (None, None):
        out = plain(images, filters, *conf)[None]
    else:
        out, front = convolutions(plain, info.batch_size, in_dims[:2], images, filters, *conf)
        out = out.movedim(front, 0)
    if bias is not None:
        own = bias[None] if in_dims[2] is None else bias.movedim(in_dims[2], 0)
        out = out + own[:, None, :, None, None]
    return out, 0


if hasattr(torch.library, "register_vmap"):  # since PyTorch 2.5; for graphs that torch.compile makes
    for _name, _rule in (
            ("conv2d", _batch_of_convolutions),
            ("conv2d_input", lambda info, dims, *args: input_gradients(conv2d_input, info.batch_size, dims, *args)),
            ("conv2d_weight", lambda info, dims, *args: weight_gradients(conv2d_weight, info.batch_size, dims, *args))):
        torch.library.register_vmap(f"maxdnn::{_name}", _rule, lib=_library)
