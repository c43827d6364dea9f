"""Whole networks for inference: `optimize`."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..errors import ShapeError
from ..planning.select import MAX_ERROR, check_wanted
from . import exported, tracing
from .fused import Attention
from .fusing import Fusing, constants_of
from .modules import LIKE_THEM, OURS, Conv2d, replace, why_left
from .products import Linear
from .report import Fused, Notes, Optimization


class Optimized(nn.Module):
    """A network as `optimize` made it.

    Parameters
    ----------
    network : torch.nn.Module
        What computes.
    report : Optimization
        What was done.

    Attributes
    ----------
    report : Optimization
        What was done; `print(model.report)`.
    """

    def __init__(self, network: nn.Module, report: Optimization) -> None:
        super().__init__()
        self.network, self.report = network, report
        self.training = False

    def forward(self, *args: Any, **options: Any) -> Any:
        """Compute what the given network computes.

        Parameters
        ----------
        *args, **options
            As for the given network.

        Returns
        -------
        object
            As of the given network.
        """
        return self.network(*args, **options)

    def train(self, mode: bool = True) -> "Optimized":
        """Refuse training; do nothing with mode=False.

        Parameters
        ----------
        mode : bool
            Whether to train.

        Returns
        -------
        Optimized
            This module.

        Raises
        ------
        ShapeError
            mode is true.
        """
        if mode:
            raise ShapeError("an optimized network is for inference: train the one that it was made of, and call "
                             "maxdnn.torch.optimize again")
        return self

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "Optimized":
        """To graphs in the place of a forward, too."""
        super()._apply(fn, recurse)
        for module in self.modules():
            own = module.__dict__.get("forward")
            if isinstance(own, tracing.Whole):
                own._apply(fn, recurse)
        return self


def optimize(model: nn.Module | torch.export.ExportedProgram, *,
             report: Callable[[Optimization], object] | None = None, algorithm: str = "auto",
             max_error: float = MAX_ERROR, arithmetic: str = "auto") -> Optimized:
    """Make a network for inference of a model: with fewer, larger kernels, and the same results but for rounding.

    Batch norms go into the filters and biases of the convolutions in front of them; bias, the sum with another map
    and ReLU into the kernel of the convolution; filters are kept as the kernels read them; dropout goes; linear layers
    of some size become products of this library. Other layers stay PyTorch's.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        In eval mode; a program is one of such a model, decomposed or not. It is not changed, and what happens to it
        later, as by load_state_dict, does not reach the result: call this again.
    report : callable, optional
        Gets an `Optimization`, which the result has as `report`, too.
    algorithm : {"auto", "direct", "winograd", "fft"}
        Of every convolution, as for `conv2d`.
    max_error : float
        Of every convolution, as for `conv2d`.
    arithmetic : {"auto", "ffma"}
        Of every convolution and linear layer, as for `conv2d`.

    Returns
    -------
    Optimized
        A module that is called as the model is. Its parameters are its own, need no derivative and lie where the
        model's do; its inputs may want derivatives.

    Raises
    ------
    ShapeError
        The model, or a part of it, is in training mode; `algorithm`, `max_error` or `arithmetic`
        is none.

    Notes
    -----
    The forward of the model is traced (torch.fx). Where that is not possible, as where the way depends on values, the
    module is called as it is written and its parts are traced, which the report says. Modules with hooks stay whole,
    and hooks are called. A call with arguments that have defaults goes through the forward as it is written.
    """
    check_wanted(algorithm, max_error, None, arithmetic)
    how = {"algorithm": algorithm, "max_error": max_error, "arithmetic": arithmetic}
    notes = Notes()
    network = (_of_program(model, notes, how) if isinstance(model, torch.export.ExportedProgram) else
               _of_model(model, notes, how))
    done = notes.report()
    if report is not None:
        report(done)
    return Optimized(network, done)


def _of_program(program: torch.export.ExportedProgram, notes: Notes, how: dict[str, Any]) -> nn.Module:
    network, names = exported.network(program)
    Fusing(network, constants_of(network, {}), notes, how, names=names).run()
    exported.cleared(network)
    return network


def _of_model(model: nn.Module, notes: Notes, how: dict[str, Any]) -> nn.Module:
    for name, module in model.named_modules():
        if module.training:
            raise ShapeError("model must be in eval mode: call model.eval() first, then optimize "
                             f"({name or 'the model itself'} is in training mode)")
    return _Optimizing(copy.deepcopy(model).requires_grad_(False), notes, how).run()


class _Optimizing:
    """Of a copy of a model, which is changed."""

    def __init__(self, model: nn.Module, notes: Notes, how: dict[str, Any]) -> None:
        self._model, self._notes = model, notes
        self._how = how
        self._names = {module: name for name, module in model.named_modules()}
        self._seen: set[nn.Module] = set()

    def run(self) -> nn.Module:
        found = self._part(self._model)
        if found is not None and not found.given and not tracing.hooked(self._model):
            network: nn.Module = found
            self._swap(network)
        else:
            network = self._model
            for holder in [network, *(m.__dict__["forward"] for m in network.modules() if "forward" in m.__dict__)]:
                if isinstance(holder, nn.Module):
                    self._swap(holder)
        return network

    def _part(self, module: nn.Module) -> tracing.Whole | None:
        """A module's forward is taken over by its graph, if there is one; else so are its parts' own."""
        self._seen.add(module)
        name = self._names[module]
        closed: dict[nn.Module, str] = {}
        graph = tracing.trace(module, closed) if _written(module) else ""
        if isinstance(graph, str):
            if graph:
                self._notes.untraced[name] = graph
            for child in module.children():
                if child not in self._seen and not _leaf(child):
                    self._part(child)
            return None
        prefix = f"{name}." if name else ""
        Fusing(graph, constants_of(graph, {}), self._notes, self._how, prefix).run()
        made = tracing.whole(module, graph)
        for inner in graph.modules():
            why = closed.get(inner)
            if why is not None and inner not in self._seen:
                self._notes.untraced[self._names[inner]] = why
                self._part(inner)
        module.__dict__["forward"] = made
        return made

    def _swap(self, network: nn.Module) -> None:
        """Layers that no graph has fused."""
        known = {one.layer for one in self._notes.fused} | {*self._notes.linear}
        replace(network, lambda _: None, frozen=True, **self._how)
        for m in network.modules():
            if type(m) in OURS and (name := self._names.get(m)) is not None and name not in known:
                self._notes.linear.append(name) if isinstance(m, Linear) else self._notes.fused.append(Fused(name))
        inside = set()
        for m in network.modules():
            if type(m) is nn.MultiheadAttention and "forward" not in vars(m) and m.in_proj_weight is not None:
                m.__class__, m.arithmetic = Attention, self._how["arithmetic"]
                self._notes.linear.append(self._names.get(m, ""))
                inside.add(m.out_proj)
        for m in network.modules():
            if isinstance(m, LIKE_THEM) and not isinstance(m, OURS) and m not in inside:
                self._notes.left.setdefault(self._names.get(m, ""), str(why_left(m)))


def _written(module: nn.Module) -> bool:
    """Whether a module has a forward to be traced."""
    return (type(module).forward is not nn.Module.forward and "forward" not in vars(module)
            and not isinstance(module, (nn.ModuleList, nn.ModuleDict)))


def _leaf(module: nn.Module) -> bool:
    """Whether a module is a layer of PyTorch's, with nothing inside to be traced."""
    return (isinstance(module, OURS) and not isinstance(module, Conv2d)) or (
        type(module).__module__.startswith("torch.nn.modules.")
        and not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)))
