"""Puts what follows a convolution in a traced graph into its kernel: a batch norm into filters and bias, the sum with
another map and an activation into the epilogue."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, fx, nn
from torch.nn import functional as F

from . import folding, matrices, patterns
from .folding import folded
from .fused import INSTEAD, FusedConv2d
from .modules import THREE_AXES
from .patterns import Constants, Norm, Site
from .products import linear
from .report import Fused, Notes

Made = Callable[[FusedConv2d, Site, Norm | None], None]


def constants_of(graph_module: fx.GraphModule, given: Mapping[fx.Node, Tensor]) -> Constants:
    """Of the attributes of a module, and of nodes whose values are given."""
    def constant(argument: Any) -> Tensor | None:
        if not isinstance(argument, fx.Node):
            return None
        found: Any = given.get(argument)
        if found is None and argument.op == "get_attr":
            found = graph_module
            for name in str(argument.target).split("."):
                found = getattr(found, name)
        return found if isinstance(found, Tensor) else None
    return constant


class Fusing:
    """Works on a graph. `how`: algorithm, max_error, arithmetic. `constant`: what of its values never changes.
    `prefix`: of names in the notes. `made`: is told of each new layer. `names`: of layers, by
    those of their nodes."""

    def __init__(self, graph_module: fx.GraphModule, constant: Constants, notes: Notes, how: Mapping[str, Any],
                 prefix: str = "", made: Made | None = None, names: Mapping[str, str] | None = None) -> None:
        self._module, self._graph, self._constant = graph_module, graph_module.graph, constant
        self._notes, self._prefix, self._made, self._names = notes, prefix, made, names or {}
        self._how = how
        self._done: dict[fx.Node, Fused] = {}
        self._norms: dict[fx.Node, str] = {}  # that are in the weights of functions

    def run(self) -> None:
        """Change the graph and the module."""
        for node in list(self._graph.nodes):
            if patterns.passes(node):
                self._notes.removed.append(self._name(node))
                node.replace_all_uses_with(node.args[0] if node.args else node.kwargs["input"])
                self._graph.erase_node(node)
        for node in reversed(list(self._graph.nodes)):  # of two convolutions the later one adds the other
            found = None if node._erased else patterns.convolution(node, self._constant)
            if isinstance(found, str):
                self._notes.left[self._name(node)] = found
            elif found is not None:
                self._fuse(found)
        self._overwrite()
        if self._made is None:  # else weights may change, which is followed for the others alone
            for node in list(self._graph.nodes):
                self._fold(node)
        for node in list(self._graph.nodes):
            if node.op == "call_function" and node.target is F.linear:
                node.target = linear
                node.kwargs = {**node.kwargs, "arithmetic": self._how["arithmetic"]}
                self._notes.linear.append(self._name(node))
            elif node.op == "call_function" and node.target in INSTEAD:
                node.target = INSTEAD[node.target]
                node.kwargs = {**node.kwargs, **self._how}
                self._notes.fused.append(Fused(self._name(node), self._norms.get(node)))
            else:
                self._multiply(node)
        self._say_what_is_left()
        self._notes.fused += [self._done[node] for node in self._graph.nodes if node in self._done]
        self._module.delete_all_unused_submodules()
        self._graph.lint()
        self._module.recompile()

    def _multiply(self, node: fx.Node) -> None:
        """Let a product of matrices be ours."""
        found = matrices.instead(node)
        if isinstance(found, str):
            self._notes.left[self._name(node)] = found
        elif found is not None:
            node.op = "call_function"
            node.target, node.args, options = found
            node.kwargs = {**options, "arithmetic": self._how["arithmetic"]}
            self._notes.products.append(self._name(node))

    def _name(self, node: fx.Node) -> str:
        return self._prefix + (str(node.target) if node.op == "call_module" else
                               self._names.get(node.name, node.name))

    def _fuse(self, site: Site) -> None:
        node = last = site.node
        weight, bias, norm, absorbed = site.weight, site.bias, None, [node]
        norm_name, residual, applies = None, None, site.applies
        user = None if applies else self._next(node, last)
        found = None if user is None else patterns.batch_norm(user, self._constant)
        if user and found and found[0] is last and isinstance(found[1], Norm) and self._fits(
                len(weight), weight, bias, found[1], user):
            norm, norm_name, last = found[1], self._name(user), user
            weight, bias = folded(weight, bias, norm)
            absorbed.append(user)
        if not applies and (user := self._next(node, last)) is not None:
            residual = self._residual(user, last)
            if residual is not None:
                last = user
                absorbed.append(user)
        user = self._next(node, last)
        found = None if user is None or applies else patterns.activation(user)
        if user is not None and found and found[0] is last:
            applies, last = found[1], user
            absorbed.append(user)
        layer = FusedConv2d.of(weight, bias, site.stride, site.padding, site.dilation, site.groups, site.padding_mode,
                               applies=applies, **self._how)
        if self._made:
            self._made(layer, site, norm)
        target, name = self._target(node), self._name(node)
        self._module.add_submodule(target, layer)
        with self._graph.inserting_after(last):
            new = self._graph.call_module(target, (site.input,) if residual is None else (site.input, residual))
        last.replace_all_uses_with(new)
        for old in reversed(absorbed):
            self._graph.erase_node(old)
        self._done[new] = Fused(name, norm_name, None, applies)  # the rest: `_overwrite`

    def _fold(self, node: fx.Node) -> None:
        """Put the batch norm behind a layer with one axis, or a transposed one, into its weights."""
        layer = folding.layer(node, self._constant)
        user = None if layer is None else self._next(node, node)
        if layer is None or user is None:
            return
        found = patterns.batch_norm(user, self._constant, layer.norm)
        if found is None or found[0] is not node or not isinstance(found[1], Norm):
            return
        made = (layer.groups, layer.transposed)
        if not self._fits(folding.channels(layer), layer.weight, layer.bias, found[1], user, made):
            return
        weight, bias = folded(layer.weight, layer.bias, found[1], *made)
        name, norm = self._name(node), self._name(user)
        target = self._target(node)
        if layer.module is not None:
            self._module.add_submodule(target, folding.module_with(layer, weight, bias, frozen=True, **self._how))
            node.target = target
            self._notes.fused.append(Fused(name, norm))
        else:
            self._give(node, target, weight, bias)
            self._norms[node] = norm
        user.replace_all_uses_with(node)
        self._graph.erase_node(user)

    def _give(self, node: fx.Node, target: str, *tensors: Tensor | None) -> None:
        """Make these the weight and the bias of a function."""
        at = []
        with self._graph.inserting_before(node):
            for what, tensor in zip(("weight", "bias"), tensors, strict=True):
                assert tensor is not None
                self._module.register_parameter(f"{target}_{what}", nn.Parameter(tensor.detach(), requires_grad=False))
                at.append(self._graph.get_attr(f"{target}_{what}"))
        node.args = (node.args[0], *at, *node.args[3:])
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in ("weight", "bias")}

    def _next(self, node: fx.Node, last: fx.Node) -> fx.Node | None:
        """The only user of a chain from `node` to `last`, if the chain may be computed where the user is: nothing in
        between changes what it reads."""
        if len(last.users) != 1:
            return None
        (user,) = last.users
        between = node.next
        while between is not user:
            if not patterns.quiet(between) and not _of_chain(between, node):
                return None
            between = between.next
        return user

    def _fits(self, channels: int, weight: Tensor, bias: Tensor | None, norm: Norm, user: fx.Node,
              made: tuple[int, bool] = (1, False)) -> bool:
        """Whether a batch norm can be folded. `made`: groups, and whether the layer is transposed."""
        why = None
        if norm.mean.shape != (channels,):
            why = "it has another number of channels than the convolution"
        elif norm.mean.device != weight.device:
            why = "it is on another device than the convolution"
        elif not weight.is_meta and not all(
                t is None or bool(t.isfinite().all()) for t in folded(weight, bias, norm, *made)):
            why = "its factors are not finite"
        if why is not None:
            self._notes.left[self._name(user)] = why
        return why is None

    def _residual(self, user: fx.Node, last: fx.Node) -> fx.Node | None:
        """What is added to the end of a chain, if it can be added in the kernel."""
        found = patterns.added(user)
        if found is None or found[0] is found[1]:
            return None
        one, other, in_place = found
        if one is last:
            return other
        if in_place and not (patterns.fresh(one) and len(one.users) == 1):
            self._notes.left[self._name(user)] = "it changes a map in place that others may read"
            return None
        return one

    def _target(self, node: fx.Node) -> str:
        """A name for the new module: the old one's, if nobody else calls that."""
        first = str(node.target) if node.op == "call_module" else node.name
        calls = [n for n in self._graph.nodes if n.op in ("call_module", "get_attr") and n is not node]
        taken = {str(n.target) for n in calls}
        if node.op != "call_module":
            taken |= {name for name, _ in self._module.named_modules()} | set(dir(self._module))
        number, name = 1, first
        while name in taken or any(t.startswith(f"{name}.") for t in taken):
            number, name = number + 1, f"{first}_{number + 1}"
        return name

    def _overwrite(self) -> None:
        """Let sums take the place of maps that nobody reads afterwards."""
        place = {node: number for number, node in enumerate(self._graph.nodes)}
        for node, fused in list(self._done.items()):
            if len(node.args) < 2:
                continue
            input, residual = node.args
            others = [user for user in residual.users if user is not node]
            overwrites = (residual is not input and patterns.fresh(residual)
                          and all(place[user] < place[node] and patterns.fresh(user) for user in others))
            layer: Any = patterns.module_of(node)
            layer.overwrites = overwrites
            adds = self._done[residual].layer if residual in self._done else self._name(residual)
            self._done[node] = replace(fused, adds=adds, overwrites=overwrites)

    def _say_what_is_left(self) -> None:
        for node in self._graph.nodes:
            name = self._name(node)
            if name in self._notes.left:
                continue
            row = isinstance(patterns.module_of(node), nn.BatchNorm1d)
            found = patterns.batch_norm(node, self._constant, nn.BatchNorm1d if row else nn.BatchNorm2d)
            if found is not None:
                input, norm = found
                self._notes.left[name] = (norm if isinstance(norm, str) else
                                          "the convolution in front of it is used elsewhere too, or what it reads "
                                          "changes in between" if self._convolves(input) else
                                          "it is not directly behind a convolution")
                continue
            if node.op == "call_function" and node.target in (F.conv3d, F.conv_transpose3d):
                self._notes.left[name] = THREE_AXES
            inputs = [x for x in node.all_input_nodes if x in self._done]
            other = patterns.other_activation(node)
            if other and inputs:
                self._notes.left[name] = f"{other} is in no kernel's epilogue, PyTorch computes it"
            elif inputs and (patterns.activation(node) is not None or patterns.added(node)):
                self._notes.left[name] = ("the convolution in front of it is used elsewhere too, has another end "
                                          "already, or what it reads changes in between")


    def _convolves(self, node: Any) -> bool:
        """Whether a node is a convolution and nothing more."""
        if node in self._done:
            return not (self._done[node].activation or self._done[node].adds or self._done[node].batch_norm)
        return isinstance(node, fx.Node) and patterns.convolution(node, self._constant) is not None


def _of_chain(node: fx.Node, start: fx.Node) -> bool:
    """Whether a node is one that follows `start` alone, each the only user of the one before."""
    at = start
    while len(at.users) == 1:
        (at,) = at.users
        if at is node:
            return True
    return False
