"""What the nodes of a traced network mean to `optimize`: convolutions, batch norms, sums, activations; which nodes
change a tensor in place, and which give one that nobody else has."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from . import functional, in_place, matrices, ops
from .fused import FusedConv2d
from .modules import LAYERS, OURS, Conv2d, hooked, why_left
from .products import linear

Constants = Callable[[Any], Tensor | None]
"""The tensor that an argument of a node stands for, if it is the same in every call."""

_CONVOLUTIONS = F.conv2d, torch.ops.maxdnn.conv2d, ops.conv2d, functional.conv2d
_ARGUMENTS = "input", "weight", "bias", "stride", "padding", "dilation", "groups"
_DEFAULTS = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_NORM_ARGUMENTS = "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"
_NORM_DEFAULTS = {"weight": None, "bias": None, "training": False, "eps": 1e-5}
_SUMS = operator.add, torch.add, operator.iadd, in_place.FUNCTIONS["iadd"]
_NORMS = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm
_OTHER_ACTIVATIONS = {  # that no kernel's epilogue has
    nn.Hardtanh: "Hardtanh", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh",
    nn.Hardsigmoid: "Hardsigmoid", nn.LeakyReLU: "LeakyReLU", nn.ELU: "ELU", nn.Mish: "Mish", nn.PReLU: "PReLU",
    F.leaky_relu: "LeakyReLU", F.hardtanh: "Hardtanh", F.hardsigmoid: "Hardsigmoid", F.elu: "ELU", F.mish: "Mish"}
_ACTIVATION_MODULES: dict[Any, str] = {
    nn.ReLU: "relu", nn.ReLU6: "relu6", nn.Hardswish: "hardswish", nn.SiLU: "silu", nn.GELU: "gelu",
    nn.Hardtanh: "relu6"}
_ACTIVATION_FUNCTIONS: dict[Any, str] = {
    F.relu: "relu", torch.relu: "relu", torch.relu_: "relu", F.relu6: "relu6", F.hardswish: "hardswish", F.silu: "silu",
    F.gelu: "gelu", F.hardtanh: "relu6", torch.ops.aten.hardtanh_.default: "relu6",
    torch.ops.aten.hardswish_.default: "hardswish", torch.ops.aten.silu_.default: "silu"}
_LIMITS = {"min_val": -1.0, "max_val": 1.0, "approximate": "none"}  # what functions that are not told take
_FRESH_MODULES = (*LAYERS, *OURS, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
                  nn.BatchNorm2d, *_ACTIVATION_MODULES, *(key for key in _OTHER_ACTIVATIONS if isinstance(key, type)))
_FRESH_FUNCTIONS = {*_CONVOLUTIONS, *matrices.FRESH, F.linear, linear, F.relu, torch.relu, F.relu6, F.hardswish, F.silu,
                    F.gelu, F.max_pool2d,
                    torch.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.batch_norm, operator.add, torch.add,
                    operator.mul, torch.mul, torch.cat,
                    *(key for key in _OTHER_ACTIVATIONS if not isinstance(key, type))}


@dataclass(frozen=True)
class Site:
    """A convolution of constant weights at a node."""

    node: fx.Node
    input: Any
    weight: Tensor
    bias: Tensor | None
    stride: Any
    padding: Any
    dilation: Any
    groups: int
    padding_mode: str = "zeros"
    applies: str | None = None  # an activation of its own


@dataclass(frozen=True)
class Norm:
    """A batch norm by constant statistics."""

    mean: Tensor
    variance: Tensor
    weight: Tensor | None
    bias: Tensor | None
    eps: float


def module_of(node: Any) -> nn.Module | None:
    """The module that a node calls."""
    if not isinstance(node, fx.Node) or node.op != "call_module":
        return None
    found: nn.Module = node.graph.owning_module.get_submodule(node.target)
    return found


def bound(node: fx.Node, names: tuple[str, ...], defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a function by name."""
    if len(node.args) > len(names) or not set(node.kwargs) <= set(names):
        return None
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


def convolution(node: fx.Node, constant: Constants) -> Site | str | None:
    """The convolution at a node; why it stays as it is; None if there is none."""
    module = module_of(node)
    if isinstance(module, nn.Conv2d) and not isinstance(module, FusedConv2d):
        why = None if type(module) is Conv2d else why_left(module)
        if why is None and hooked(module):
            why = "it has hooks"
        if why is None and (len(node.args) != 1 or node.kwargs):
            why = "its input is given by name"
        if why is not None:
            return why
        return Site(node, node.args[0], module.weight, module.bias, module.stride, module.padding, module.dilation,
                    module.groups, module.padding_mode, module.activation if isinstance(module, Conv2d) else None)
    if node.op != "call_function" or node.target not in _CONVOLUTIONS:
        return None
    ours = "algorithm", "max_error", "arithmetic", "activation"
    names = (*_ARGUMENTS, *ours) if node.target is not F.conv2d else _ARGUMENTS
    given = bound(node, names, _DEFAULTS)
    if given is None:
        return "its arguments are not those of conv2d"
    weight, bias = constant(given["weight"]), constant(given["bias"])
    if weight is None or (bias is None and given["bias"] is not None):
        return "its weights are computed"
    if weight.dim() != 4 or weight.dtype is not torch.float32 or (bias is not None and bias.dtype is not weight.dtype):
        return f"its weights are {weight.dtype}, and there is float32 alone here"
    conf = [given[name] for name in _ARGUMENTS[3:]]
    if any(isinstance(x, fx.Node) for x in torch.utils._pytree.tree_leaves(conf)):
        return "its stride, padding, dilation or groups are computed"
    stride, padding, dilation, groups = conf
    return Site(node, given["input"], weight, bias, stride, padding, dilation, groups,
                applies=given.get("activation"))


def batch_norm(node: fx.Node, constant: Constants,
               kind: type[nn.Module] = nn.BatchNorm2d) -> tuple[Any, Norm | str] | None:
    """The input of the batch norm at a node, and what it is or why it cannot be folded; None if there is none. `kind`:
    which of PyTorch's fits."""
    module = module_of(node)
    if isinstance(module, _NORMS):
        input = node.args[0] if node.args else None
        if type(module) is not kind:
            return input, f"{type(module).__name__} is another batch norm than {kind.__name__}"
        if hooked(module) or "forward" in vars(module):
            return input, "it has hooks or a forward of its own"
        mean, variance, weight, bias, eps = (module.running_mean, module.running_var, module.weight, module.bias,
                                             module.eps)
        trains = module.training
    elif node.op == "call_function" and node.target in (F.batch_norm, torch.batch_norm):
        given = bound(node, _NORM_ARGUMENTS, _NORM_DEFAULTS) if node.target is F.batch_norm else None
        if given is None:
            return None
        input, trains, eps = given["input"], given["training"], given["eps"]
        every = [constant(given[name]) for name in ("running_mean", "running_var", "weight", "bias")]
        if any(x is None and given[name] is not None
               for x, name in zip(every, ("running_mean", "running_var", "weight", "bias"), strict=True)):
            return input, "its weights are computed"
        mean, variance, weight, bias = every
    else:
        return None
    if isinstance(eps, fx.Node):
        return input, "its eps may be another at each call"
    if mean is None or variance is None or trains:
        return input, "it normalizes by the statistics of each batch"
    if any(x is not None and x.dtype is not torch.float32 for x in (mean, variance, weight, bias)):
        return input, "it is not float32"
    return input, Norm(mean, variance, weight, bias, float(eps))


def activation(node: fx.Node) -> tuple[Any, str] | None:
    """The input of an activation that kernels apply, and its name; None if there is none."""
    layer, given = module_of(node), None
    if layer is not None:
        name = _ACTIVATION_MODULES.get(type(layer))
        if not hooked(layer) and "forward" not in vars(layer) and len(node.args) == 1 and not node.kwargs:
            given = {"input": node.args[0]} | {key: getattr(layer, key) for key in _LIMITS if hasattr(layer, key)}
    else:
        name = (_ACTIVATION_FUNCTIONS.get(node.target) if node.op == "call_function" else
                "relu" if node.op == "call_method" and node.target in ("relu", "relu_") else None)
        names = tuple(_LIMITS) if name == "relu6" else ("approximate",) if name == "gelu" else ()
        if node.target is F.relu6:
            given = bound(node, ("input", "inplace"), {"min_val": 0, "max_val": 6})
        elif name is not None:
            given = bound(node, ("input", *names[:2], "inplace"), _LIMITS)
    if name is None or given is None or "input" not in given:
        return None
    if name == "relu6" and (given["min_val"], given["max_val"]) != (0, 6):
        return None
    if name == "gelu" and given["approximate"] != "none":
        return (given["input"], "gelu_tanh") if given["approximate"] == "tanh" else None
    return given["input"], name


def other_activation(node: fx.Node) -> str | None:
    """The name of an activation that no epilogue has."""
    if node.op == "call_module":
        return _OTHER_ACTIVATIONS.get(type(module_of(node)))
    return _OTHER_ACTIVATIONS.get(node.target) if node.op == "call_function" else None


def added(node: fx.Node) -> tuple[fx.Node, fx.Node, bool] | None:
    """The two tensors whose sum a node is, and whether it is put into the first one."""
    if node.op == "call_function" and node.target in _SUMS:
        changes = node.target in _SUMS[2:]
    elif node.op == "call_method" and node.target in ("add", "add_", "__add__", "__iadd__"):
        changes = node.target in ("add_", "__iadd__")
    else:
        return None
    if len(node.args) == 2 and not node.kwargs and all(isinstance(x, fx.Node) for x in node.args):
        one, other = node.args
        return one, other, changes
    return None


def passes(node: fx.Node) -> bool:
    """Whether a node gives back its input: dropout outside of training, an identity."""
    module = module_of(node)
    if module is not None:
        return (type(module) in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
                                 nn.FeatureAlphaDropout, nn.Identity)
                and not module.training and not hooked(module) and "forward" not in vars(module)
                and len(node.args) == 1 and not node.kwargs)
    if node.op == "call_function" and (getattr(node.target, "__module__", None), getattr(node.target, "__name__", None)
                                       ) == ("torchvision.ops.stochastic_depth", "stochastic_depth"):
        given = bound(node, ("input", "p", "mode", "training"), {"training": True})
        return given is not None and given["training"] is False
    if node.op != "call_function" or node.target not in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d,
                                                         F.alpha_dropout):
        return False
    default = node.target is not F.alpha_dropout
    given = bound(node, ("input", "p", "training", "inplace"), {"training": default})
    return given is not None and given["training"] is False


def quiet(node: fx.Node) -> bool:
    """Whether a node changes no tensor in place and no state of PyTorch."""
    if node.op in ("placeholder", "get_attr", "output"):
        return True
    if node.op == "call_module":
        layer = module_of(node)
        if isinstance(layer, OURS):
            return not getattr(layer, "overwrites", False)
        return (type(layer).__module__.startswith("torch.nn.modules.") and not getattr(layer, "inplace", False)
                and not hooked(layer) and "forward" not in vars(layer))
    if node.op == "call_method":
        name = str(node.target)
        return not name.endswith("_") or (name.startswith("__") and not name.startswith(("__i", "__set", "__del")))
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable
    if target in in_place.FUNCTIONS.values() or node.is_impure() or "out" in node.kwargs:
        return False
    if any(x is True for x in (*node.args, *node.kwargs.values())):
        return False  # `inplace` or `training`, wherever it is
    name, home = getattr(target, "__name__", "_"), str(getattr(target, "__module__", None))
    if home in ("_operator", "operator"):
        return name not in (*in_place.FUNCTIONS, "iconcat", "setitem", "delitem")
    return (home == "None" or home.split(".")[0] in ("torch", "math", "builtins", "maxdnn")) and not name.endswith("_")


def fresh(node: Any) -> bool:
    """Whether a node gives a tensor of its own, which shares memory with none of its inputs, and keeps none of them."""
    if isinstance(module := module_of(node), FusedConv2d):
        return True  # a map that it overwrites is nobody else's
    if not isinstance(node, fx.Node) or not quiet(node):
        return False
    if node.op == "call_module":
        return type(module) in _FRESH_MODULES
    return node.op == "call_function" and node.target in _FRESH_FUNCTIONS
