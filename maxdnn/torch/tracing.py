"""Traces networks by torch.fx as far as they can be traced: a module whose forward does what a trace cannot follow is
called as it is, and its parts are traced by themselves."""

import builtins
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import in_place
from .modules import OURS, hooked

_HOOKS = "it has hooks"
_FX = "torch.fx", "torch.nn.parameter", "torch.utils", "torch.overrides", "maxdnn."  # what a trace is made with


class Refused(Exception):
    """What a trace would get wrong."""


class Tracer(fx.Tracer):
    """Follows the forward of every module but PyTorch's, ours, those with hooks, and `closed` ones. `failed`: the
    innermost module whose forward could not be followed."""

    def __init__(self, closed: dict[nn.Module, str]) -> None:
        super().__init__()
        self.closed = closed
        self.failed: nn.Module | None = None

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return in_place.Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if hooked(m) and not super().is_leaf_module(m, module_qualified_name):
            self.closed.setdefault(m, _HOOKS)
        return (m in self.closed or isinstance(m, (*OURS, torch.jit.ScriptModule))
                or super().is_leaf_module(m, module_qualified_name))

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or m
            raise

    def create_args_for_root(self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None) -> Any:
        """Only what has no default is an argument of the graph: a trace would take another's presence for granted."""
        return root_fn, [self.root, *(self.create_proxy("placeholder", name, (), {}) for name in needed(self.root))]


def needed(module: nn.Module) -> list[str]:
    """The arguments of a module's forward that have no default."""
    every = inspect.signature(type(module).forward).parameters
    found = [p.name for p in list(every.values())[1:] if p.default is p.empty and p.kind not in (
        p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not found:
        raise Refused("its forward has no argument that must be given")
    if any(every[name].kind is inspect.Parameter.KEYWORD_ONLY for name in found):
        raise Refused("its forward has arguments that must be given by name")
    return found


def trace(module: nn.Module, closed: dict[nn.Module, str]) -> fx.GraphModule | str:
    """A module's graph; why there is none. Modules inside that cannot be followed are added to `closed`, with why."""
    while True:
        tracer = Tracer(closed)
        state = torch.random.get_rng_state()
        try:
            with _asked_for_its_type():
                graph = tracer.trace(module)
            if not torch.equal(state, torch.random.get_rng_state()):
                raise Refused("it draws random numbers, which a trace would keep")
            graph._tracer_cls = fx.Tracer  # what a pickle is read with
            return fx.GraphModule(module, graph, type(module).__name__)
        except Exception as e:
            why = f"{type(e).__name__}: {str(e).splitlines()[0]}" if str(e) else type(e).__name__
            if tracer.failed is None or tracer.failed in closed:
                return why.removeprefix("Refused: ")
            closed[tracer.failed] = why.removeprefix("Refused: ")


@contextlib.contextmanager
def _asked_for_its_type() -> Iterator[None]:
    """Code that asks whether a traced tensor is one would be told that it is none, and take another way than in a
    call: it is refused. (torch.fx itself asks for other types.)"""
    real = builtins.isinstance

    def told(thing: Any, kinds: Any) -> bool:
        if type(thing) in (in_place.Proxy, fx.proxy.Attribute):
            asks = sys._getframe(1).f_globals.get("__name__", "")
            if not asks.startswith(_FX) and not real(thing, kinds):
                raise Refused(f"{asks} asks for the type of a tensor")
        return real(thing, kinds)
    builtins.isinstance = told
    try:
        yield
    finally:
        builtins.isinstance = real


class Whole(nn.Module):
    """A module's graph in the place of its forward, for calls like the traced one; others get the forward of `given`,
    as it is written. Without `given` every call is like the traced one."""

    def __init__(self, graph: fx.GraphModule, names: list[str], given: nn.Module | None) -> None:
        super().__init__()
        self.graph, self.names = graph, tuple(names)
        self.given = () if given is None else (given,)  # no submodule: it may be the one that this is part of

    def forward(self, *args: Any, **options: Any) -> Any:
        """What the module gives."""
        if options:
            args, options = _in_order(self.names, args, options)
        if self.given and (options or len(args) != len(self.names) or not all(isinstance(x, Tensor) for x in args)):
            given = self.given[0]
            return type(given).forward(given, *args, **options)
        return self.graph(*args, **options)


def _in_order(names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Arguments given by name where they stand, as far as that is possible."""
    args, options = list(args), dict(options)  # type: ignore[assignment]
    while len(args) < len(names) and names[len(args)] in options:
        args.append(options.pop(names[len(args)]))  # type: ignore[attr-defined]
    return args, options


def whole(module: nn.Module, graph: fx.GraphModule) -> Whole:
    """Of a module that was traced."""
    names = needed(module)
    many = len(inspect.signature(type(module).forward).parameters) > 2
    return Whole(graph, names, module if many else None)
