"""Programs of torch.export: their operators as the functions that `patterns.py` knows."""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ..errors import ShapeError
from . import in_place

_aten = torch.ops.aten
_SAME: dict[Any, Any] = {  # with the same arguments in the same order
    _aten.conv1d.default: F.conv1d, _aten.conv1d.padding: F.conv1d, _aten.conv2d.default: F.conv2d,
    _aten.conv2d.padding: F.conv2d, _aten.conv3d.default: F.conv3d, _aten.conv3d.padding: F.conv3d,
    _aten.conv_transpose1d.default: F.conv_transpose1d, _aten.conv_transpose2d.input: F.conv_transpose2d,
    _aten.conv_transpose3d.input: F.conv_transpose3d, _aten.linear.default: F.linear, _aten.relu.default: F.relu,
    _aten.relu_.default: torch.relu_, _aten.dropout.default: F.dropout, _aten.feature_dropout.default: F.dropout2d,
    _aten.alpha_dropout.default: F.alpha_dropout, _aten.max_pool2d.default: F.max_pool2d,
    _aten.avg_pool2d.default: F.avg_pool2d, _aten.adaptive_avg_pool2d.default: F.adaptive_avg_pool2d,
    _aten.cat.default: torch.cat, _aten.mul.Tensor: torch.mul, _aten.silu.default: F.silu, _aten.gelu.default: F.gelu,
    _aten.hardswish.default: F.hardswish, _aten.hardsigmoid.default: F.hardsigmoid, _aten.hardtanh.default: F.hardtanh,
    _aten.matmul.default: torch.matmul, _aten.mm.default: torch.mm, _aten.bmm.default: torch.bmm,
    _aten.baddbmm.default: torch.baddbmm, _aten.einsum.default: torch.einsum,
    _aten.scaled_dot_product_attention.default: F.scaled_dot_product_attention,
    _aten.leaky_relu.default: F.leaky_relu, _aten.elu.default: F.elu, _aten.mish.default: F.mish}
_CONVOLUTIONS = {(1, False): F.conv1d, (2, False): F.conv2d, (3, False): F.conv3d, (1, True): F.conv_transpose1d,
                 (2, True): F.conv_transpose2d, (3, True): F.conv_transpose3d}


def network(program: torch.export.ExportedProgram) -> tuple[fx.GraphModule, dict[str, str]]:
    """A program as a module with tensors of its own, and by the names of nodes those of the layers they were. Raises
    ShapeError for a program of a model in training mode."""
    module: Any = program.module()
    _own(module)
    names = dict(_layers(module.graph))
    for node in list(module.graph.nodes):
        if node.op == "call_function":
            _rewrite(node)
    for node in module.graph.nodes:
        if node.op == "call_function" and (trains := _training(node)):
            raise ShapeError(f"program must be of a model in eval mode: call model.eval() before torch.export.export "
                             f"({names.get(node.name, node.name)} is {trains})")
    module.recompile()
    return module, names


def cleared(module: fx.GraphModule) -> None:
    """Let go of weights that a graph reads no more."""
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()


def _own(module: nn.Module) -> None:
    copies: dict[int, Any] = {}  # those that are shared stay so
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is not None and id(tensor) not in copies:
                    copy = tensor.detach().clone()
                    copies[id(tensor)] = tensor, nn.Parameter(copy, False) if table is part._parameters else copy
                table[name] = tensor if tensor is None else copies[id(tensor)][1]


def _layers(graph: fx.Graph) -> Iterator[tuple[str, str]]:
    for node in graph.nodes:
        stack = list(node.meta.get("nn_module_stack", {}).values())
        if node.op == "call_function" and stack and str(stack[-1][1]).startswith(("torch.nn.modules", "maxdnn.")):
            yield node.name, str(stack[-1][0]).removeprefix("L['self'].")


def _rewrite(node: fx.Node) -> None:
    target: Any = node.target
    if target in _SAME:
        node.target = _SAME[target]
    elif target in (_aten.add.Tensor, _aten.add_.Tensor) and not node.kwargs:
        node.target = torch.add if target is _aten.add.Tensor else in_place.FUNCTIONS["iadd"]
    elif target is _aten.convolution.default:
        x, weight, bias, stride, padding, dilation, transposed, more, groups = node.args
        node.target = _CONVOLUTIONS[len(list(stride)), bool(transposed)]
        rest = (more, groups, dilation) if transposed else (dilation, groups)
        node.args = (x, weight, bias, stride, padding, *rest)
    elif target is _aten.batch_norm.default:
        x, weight, bias, mean, variance, training, momentum, eps, _ = node.args
        node.target, node.args = F.batch_norm, (x, mean, variance, weight, bias, training, momentum, eps)
    elif target is _aten._native_batch_norm_legit_no_training.default:
        x, weight, bias, mean, variance, momentum, eps = node.args
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 0:
                user.target, user.args = F.batch_norm, (x, mean, variance, weight, bias, False, momentum, eps)
        if not node.users:
            node.graph.erase_node(node)
    elif target is _aten.addmm.default:
        node.target, (bias, x, turned) = torch.addmm, node.args
        if not node.kwargs and isinstance(turned, fx.Node) and (
                turned.target is _aten.t.default
                or (turned.target is _aten.permute.default and turned.args[1] == [1, 0])):
            node.target, node.args = F.linear, (x, turned.args[0], bias)
            if not turned.users:
                node.graph.erase_node(turned)


def _training(node: fx.Node) -> str | None:
    """What a node does that is for training alone."""
    if node.target is F.batch_norm and node.args[5] is True:
        return "a batch norm by the statistics of each batch"
    if node.target in (F.dropout, F.dropout2d, F.alpha_dropout) and (*node.args, *node.kwargs.values())[-1] is True:
        return "a dropout"
    return None
