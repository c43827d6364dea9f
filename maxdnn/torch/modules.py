"""Layers: one that computes by this library's kernels, and the swap of those that a model has."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from ..errors import ShapeError, shown
from ..planning.select import MAX_ERROR, check_wanted
from . import kept_filters, ops
from .functional import conv2d, why_not
from .products import Linear
from .running import DEFAULTS, Ending
from .transposed import beyond, conv1d, conv_transpose1d, conv_transpose2d

THREE_AXES = "it convolves three axes, and kernels here have one or two"
RELU = Ending(activation="relu")
Model = TypeVar("Model", bound=nn.Module)


class _Asked:
    """What every layer of this library can be asked for, beside a layer of PyTorch."""

    frozen = False
    algorithm, max_error, arithmetic = DEFAULTS

    def __init__(self, *args: Any, algorithm: str = "auto", max_error: float = MAX_ERROR, arithmetic: str = "auto",
                 **options: Any) -> None:
        check_wanted(algorithm, max_error, None, arithmetic)
        super().__init__(*args, **options)
        self.algorithm, self.max_error, self.arithmetic = algorithm, max_error, arithmetic

    @property
    def _how(self) -> dict[str, Any]:
        return {"algorithm": self.algorithm, "max_error": self.max_error, "arithmetic": self.arithmetic}

    def __getstate__(self) -> dict[str, Any]:
        """All but the filters kept, which copies make for themselves."""
        return {name: value for name, value in self.__dict__.items() if name != kept_filters.WHERE}


class Conv2d(_Asked, nn.Conv2d):
    """torch.nn.Conv2d whose float32 calls run by this library's kernels.

    Other dtypes, and calls inside an autocast to one, are left to PyTorch's operator. Parameters and state as there;
    every padding mode.

    Parameters
    ----------
    *args, **options
        As for torch.nn.Conv2d.
    algorithm, max_error, arithmetic
        As for `conv2d`; attributes that may be set at any time.
    activation : {"relu"}, optional
        As for `conv2d`, of every call; an attribute that may be set at any time.

    Attributes
    ----------
    frozen : bool
        A promise that weights change only in ways that PyTorch counts (optimizers, load_state_dict, writes in place
        under no_grad), not through `.data` or the replay of a CUDA graph, and not while a graph captured with the
        layer is in use. Calls that need no derivative then keep what is made of the filters alone until the weights
        change. It costs memory for each shape of the input, which is let go where memory is short.

    Raises
    ------
    ShapeError
        `algorithm`, `max_error`, `arithmetic` or `activation` is none.
    """

    activation: str | None = None

    def __init__(self, *args: Any, activation: str | None = None, **options: Any) -> None:
        if activation not in (None, "relu"):
            raise ShapeError(f"activation must be 'relu' or None (got {shown(activation)})")
        super().__init__(*args, **options)
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        """Convolve, as torch.nn.Conv2d does, and activate.

        Parameters
        ----------
        input : torch.Tensor
            (N, C, H, W) or (C, H, W).

        Returns
        -------
        torch.Tensor
            (N, K, P, Q) or (K, P, Q).
        """
        own = self._parameters  # to find them as attributes takes as long as half a launch
        if "weight" in own and "bias" in own:
            return self._conv_forward(input, own["weight"], own["bias"])
        return super().forward(input)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._convolved(input, weight, bias, self.activation)

    def _convolved(self, input: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        if self.padding_mode == "zeros":
            how: tuple[Any, ...] = (self.stride, self.padding, self.dilation, self.groups, self.algorithm,
                                    self.max_error, self.arithmetic)
            out = None
            if self.frozen:
                out = kept_filters.call(self, input, weight, bias, how if activation is None else (*how, RELU))
            if out is None and activation is None:
                out = ops.eager(input, weight, bias, *how)
            if out is not None:
                return out
        if why_not(input, weight, bias) is not None:  # PyTorch computes it, or says what is wrong
            made = super()._conv_forward(input, weight, bias)
            return made if activation is None else torch.relu(made)
        padding: str | tuple[int, int] = self.padding
        if self.padding_mode != "zeros":
            input = nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0, 0)
        return conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups,
                      **self._how, activation=activation)


class Sequential(nn.Sequential):
    """torch.nn.Sequential that has the kernel of a `Conv2d` apply the ReLU behind it, where nobody can tell.

    Each layer still does what it did when it is called by itself. Layers with hooks, and calls that are traced or
    compiled, go one after the other.

    Parameters
    ----------
    *args
        As for torch.nn.Sequential.
    """

    def forward(self, input: Any) -> Any:
        """Call the layers one after the other.

        Parameters
        ----------
        input : object
            For the first layer.

        Returns
        -------
        object
            What the last layer gives.
        """
        layers = list(self._modules.values())
        if isinstance(input, fx.Proxy) or torch.compiler.is_compiling() or nn.modules.module._has_any_global_hook():
            return super().forward(input)
        number = 0
        while number < len(layers):
            layer: Any = layers[number]
            if applies(layer, layers[number + 1] if number + 1 < len(layers) else None):
                input = layer._convolved(input, layer.weight, layer.bias, "relu")
                number += 1
            else:
                input = layer(input)
            number += 1
        return input


def applies(layer: Any, then: Any) -> bool:
    """Whether a convolution's kernel may apply what follows it: ReLU, and nobody looks at either."""
    return (type(layer) is Conv2d and type(then) is nn.ReLU and layer.activation is None
            and not hooked(layer) and not hooked(then) and not vars(layer).keys() & {"forward", "_conv_forward"}
            and "forward" not in vars(then))


def hooked(module: nn.Module) -> bool:
    """Whether somebody looks at the calls of a module, or changes them."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks)


class Conv1d(_Asked, nn.Conv1d):
    """torch.nn.Conv1d whose float32 calls run by this library's kernels, as convolutions of maps of one row.

    Parameters
    ----------
    *args, **options
        As for torch.nn.Conv1d.
    algorithm, max_error, arithmetic
        As for `Conv2d`.

    Attributes
    ----------
    frozen : bool
        As of `Conv2d`.

    Raises
    ------
    ShapeError
        `algorithm`, `max_error` or `arithmetic` is none.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if why_not(input, weight, bias, axes=1) is not None:  # PyTorch computes it, or says what is wrong
            return super()._conv_forward(input, weight, bias)
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        if self.frozen and not isinstance(padding, str) and not isinstance(input, fx.Proxy):
            (step,), (pad,), (dilation,) = self.stride, padding or (0,), self.dilation
            how = (1, step), (0, pad), (1, dilation), self.groups, *self._how.values()
            out = kept_filters.call(self, input.unsqueeze(-2), weight.unsqueeze(-2), bias, how)
            if out is not None:
                return out.squeeze(-2)
        return conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups, **self._how)


class _Transposed(_Asked):
    """Forward of the transposed layers."""

    _convolve: Callable[..., Tensor]
    _axes: int

    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Convolve, as the layer of PyTorch does.

        Parameters
        ----------
        input : torch.Tensor
            (N, C, H, W) or (C, H, W), or with one axis less.
        output_size : list of int, optional
            As for PyTorch's layer.

        Returns
        -------
        torch.Tensor
            (N, K, P, Q) or (K, P, Q), or with one axis less.
        """
        weight, bias, more = self.weight, self.bias, self.output_padding
        served = why_not(input, weight, bias, self._axes) is None
        if served and output_size is not None:
            more = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, self._axes,
                                        self.dilation)
        if not served or beyond(more, self.stride) is not None:  # PyTorch computes it, or says what is wrong
            return super().forward(input, output_size)  # type: ignore[misc]
        return type(self)._convolve(input, weight, bias, self.stride, self.padding, tuple(more), self.groups,
                                    self.dilation, **self._how)


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d whose float32 calls run by this library's kernels.

    What is not served, as an output_padding that is not below the stride, is PyTorch's. Filters are not kept: `frozen`
    has no effect.

    Parameters
    ----------
    *args, **options
        As for torch.nn.ConvTranspose2d.
    algorithm, max_error, arithmetic
        As for `conv_transpose2d`.

    Raises
    ------
    ShapeError
        `algorithm`, `max_error` or `arithmetic` is none.
    """

    _convolve, _axes = staticmethod(conv_transpose2d), 2


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d whose float32 calls run by this library's kernels, as those of `ConvTranspose2d` do.

    Parameters
    ----------
    *args, **options
        As for torch.nn.ConvTranspose1d.
    algorithm, max_error, arithmetic
        As for `ConvTranspose2d`.

    Raises
    ------
    ShapeError
        As for `ConvTranspose2d`.
    """

    _convolve, _axes = staticmethod(conv_transpose1d), 1


LAYERS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: Conv2d, nn.Conv1d: Conv1d, nn.ConvTranspose2d: ConvTranspose2d, nn.ConvTranspose1d: ConvTranspose1d,
    nn.Linear: Linear}
"""What takes the place of PyTorch's layers."""
OURS = tuple(LAYERS.values())
LIKE_THEM = (*LAYERS, nn.Conv3d, nn.ConvTranspose3d)
"""Layers that are served, or of which is said why not."""


@dataclass(frozen=True)
class Replaced:
    """What `replace` did.

    Attributes
    ----------
    swapped : tuple of str
        Names of the layers that were swapped.
    left : mapping of str to str
        Why which others were left.
    """

    swapped: tuple[str, ...]
    left: Mapping[str, str]

    def __str__(self) -> str:
        of = len(self.swapped) + len(self.left)
        lines = [f"maxDNN computes {len(self.swapped)} of {of} convolutions and linear layers"]
        return "\n".join(lines + [f"  left: {name or 'the model itself'}: {why}" for name, why in self.left.items()])


def replace(model: Model, report: Callable[[Replaced], object] | None = None, *, frozen: bool = False,
            algorithm: str = "auto", max_error: float = MAX_ERROR, arithmetic: str = "auto") -> Model:
    """Make every convolution and linear layer of a model that can be served a layer of this library, in place.

    They are torch.nn.Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d and Linear. A torch.nn.Sequential with a
    convolution in front of a ReLU becomes one that has the kernel apply it.

    Parameters
    ----------
    model : torch.nn.Module
        Parameters, hooks and names stay.
    report : callable, optional
        Gets a `Replaced`. Without one, layers that are left are named in a warning.
    frozen : bool
        Of every `Conv1d` and `Conv2d` in the model, for inference.
    algorithm : {"auto", "direct", "winograd", "fft"}
        Of every such layer in the model; "direct" for models in which infinities or NaN must stay in the outputs they
        belong to.
    max_error : float
        Of every such layer in the model.
    arithmetic : {"auto", "ffma"}
        Of every such layer in the model.

    Returns
    -------
    torch.nn.Module
        The model.

    Raises
    ------
    ShapeError
        `algorithm`, `max_error` or `arithmetic` is none.
    """
    check_wanted(algorithm, max_error, None, arithmetic)
    swapped, left = [], {}
    for name, module in model.named_modules():
        if isinstance(module, OURS):
            _set(module, frozen, algorithm, max_error, arithmetic)
        if not isinstance(module, LIKE_THEM) or isinstance(module, OURS):
            continue
        why = why_left(module)
        if why is None:
            module.__class__ = LAYERS[type(module)]
            _set(module, frozen, algorithm, max_error, arithmetic)
            swapped.append(name)
        else:
            left[name] = why
    for module in model.modules():
        layers = list(module.children())
        if type(module) is nn.Sequential and "forward" not in vars(module) and any(
                map(applies, layers, layers[1:])):
            module.__class__ = Sequential
    done = Replaced(tuple(swapped), left)
    if report is not None:
        report(done)
    elif left:
        warnings.warn(str(done), stacklevel=2)
    return model


def _set(layer: Any, frozen: bool, *how: Any) -> None:
    layer.frozen, (layer.algorithm, layer.max_error, layer.arithmetic) = frozen, how


def why_left(module: Any) -> str | None:
    """Why a layer stays as it is, None if it does not."""
    if type(module) in (nn.Conv3d, nn.ConvTranspose3d):
        return THREE_AXES
    if type(module) not in LAYERS:
        if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
            return "the attention that it is a part of computes it"
        return f"{type(module).__name__} is a class of its own, which may mean something else"
    if "forward" in vars(module) or "_conv_forward" in vars(module):
        return "its forward is a function of its own"
    if module.weight.dtype is not torch.float32:
        return f"its dtype is {module.weight.dtype}, and there is float32 alone here"
    if module.weight.device.type not in ("cpu", "cuda", "meta"):
        return f"it is on {module.weight.device}"
    transposed = not isinstance(module, nn.Linear) and module.transposed
    return beyond(module.output_padding, module.stride) if transposed else None
