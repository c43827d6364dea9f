"""`torch.compile(model, backend="maxdnn")`: what `optimize` does, of the graphs that torch.compile makes.

PyTorch finds it by an entry point (`torch_dynamo_backends` in pyproject.toml).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import ShapeError
from ..planning.select import check_wanted
from .folding import folded
from .fused import FusedConv2d
from .fusing import Fusing, constants_of
from .patterns import Norm, Site
from .report import Notes
from .running import DEFAULTS

_OPTIONS = "algorithm", "max_error", "arithmetic", "report"


def maxdnn(graph_module: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None,
           options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a graph for inference, as a backend of torch.compile.

    Weights are inputs of such graphs. What is made of them is kept, and made again when they change in a way that
    PyTorch counts, or when other tensors come in their place.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
        What torch.compile traced; it is changed.
    inputs : sequence
        Of the first call.
    mode : str, optional
        Of torch.compile; has no effect.
    options : mapping, optional
        Of torch.compile: "algorithm", "max_error", "arithmetic" as for `optimize`, and "report", a function that gets
        an `Optimization` of each graph.

    Returns
    -------
    callable
        The compiled graph. Where derivatives are wanted it is the graph as it was, which a warning says.

    Raises
    ------
    ShapeError
        An option is none.
    """
    asked: dict[str, Any] = dict(zip(_OPTIONS, DEFAULTS, strict=False)) | dict(options or {})
    unknown = asked.keys() - _OPTIONS
    if unknown:
        raise ShapeError(f"options must be some of {', '.join(_OPTIONS)} (got {', '.join(sorted(unknown))})")
    check_wanted(asked["algorithm"], asked["max_error"], None, asked["arithmetic"])
    told = asked.pop("report", None)
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn('torch.compile(backend="maxdnn") is for inference, and derivatives are wanted: the graph runs as '
                      "PyTorch's. Call the model under torch.inference_mode() or torch.no_grad(); for training, "
                      "maxdnn.torch.replace(model) and another backend", stacklevel=2)
        unchanged: Callable[..., Any] = graph_module.forward
        return unchanged
    notes, compiled = Notes(), _Compiled(graph_module, inputs)
    Fusing(graph_module, constants_of(graph_module, compiled.weights), notes, asked,
           made=compiled.add).run()
    compiled.seen = compiled.look(inputs)
    if told is not None:
        told(notes.report())
    return compiled


class _Compiled:
    """A graph, and which of its inputs layers were made of."""

    def __init__(self, graph_module: fx.GraphModule, inputs: Sequence[Any]) -> None:
        self._run = graph_module
        places = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self.weights = {node: x for node, x in zip(places, inputs, strict=True) if _weight(x)}
        self._places = {id(x): number for number, x in enumerate(inputs)}
        self._watched: list[int] = []
        self._layers: list[tuple[FusedConv2d, dict[str, int], dict[str, int], Norm | None]] = []
        self.seen: list[Any] = []

    def add(self, layer: FusedConv2d, site: Site, norm: Norm | None) -> None:
        """A layer that was made."""
        own, of_norm = self._numbers(site), {} if norm is None else self._numbers(norm)
        self._layers.append((layer, own, of_norm, norm))
        self._watched += [number for number in (*own.values(), *of_norm.values()) if number not in self._watched]

    def _numbers(self, of: Site | Norm) -> dict[str, int]:
        """The inputs that its tensors are, by field."""
        every = {field.name: getattr(of, field.name) for field in fields(of)}
        return {name: self._places[id(x)] for name, x in every.items()
                if isinstance(x, Tensor) and id(x) in self._places}

    def look(self, inputs: Sequence[Any]) -> list[Any]:
        """What changes with the weights."""
        return [(inputs[number]._version, inputs[number].data_ptr()) for number in self._watched]

    def __call__(self, *inputs: Any) -> Any:
        seen = self.look(inputs)
        if seen != self.seen:
            self._make(inputs)
            self.seen = seen
        return self._run(*inputs)

    def _make(self, inputs: Sequence[Any]) -> None:
        """Make the layers again."""
        for layer, own, of_norm, norm in self._layers:
            if norm is not None:
                tensors: dict[str, Any] = {name: inputs[number] for name, number in of_norm.items()}
                norm = replace(norm, **tensors)
            with torch.no_grad():
                bias = inputs[own["bias"]] if "bias" in own else None
                weight, bias = folded(inputs[own["weight"]], bias, norm)
            layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
            layer.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)


def _weight(value: Any) -> bool:
    """Whether an input of a graph is a parameter or buffer of the model, whose changes are counted."""
    return (isinstance(value, Tensor) and not isinstance(value, FakeTensor) and not value.is_inference()
            and (isinstance(value, nn.Parameter) or hasattr(value, "_dynamo_static_input_type")))
