"""Which plans the layers of a network run by."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ..planning.plan import Plan
from ..runtime import engine
from .modules import OURS
from .report import Ran


def ran(model: nn.Module, *args: Any, **options: Any) -> Ran:
    """Run a model once, without derivatives, and say by which kernels and which arithmetic its layers ran.

    Parameters
    ----------
    model : torch.nn.Module
        As `replace` or `optimize` made it.
    *args, **options
        As for the model.

    Returns
    -------
    Ran
        The plans of each layer of this library, in the order of the calls; `print(maxdnn.torch.ran(model, x))`.

    Raises
    ------
    Exception
        What the model raises.

    Notes
    -----
    What another shape of the input, a tuned kernel or a lack of memory would run is another matter. The replay of a
    CUDA graph runs what was captured, and nobody is told.
    """
    found: dict[str, list[Plan]] = {}
    running: list[list[Plan]] = []  # of the layers that are being computed, the innermost last
    here = threading.get_ident()

    def told(plan: Plan) -> None:
        if threading.get_ident() == here:
            (running[-1] if running else found.setdefault("", [])).append(plan)

    def begins(module: nn.Module, given: Any) -> None:
        running.append([])

    def ends(name: str) -> Callable[..., None]:
        def done(*_: Any) -> None:
            found.setdefault(name, []).extend(running.pop()[-1:])  # before the last one filters may have been prepared
        return done
    hooks = []
    for name, module in _layers(model, ""):
        hooks += [module.register_forward_pre_hook(begins), module.register_forward_hook(ends(name))]
    engine.watchers.append(told)
    try:
        with torch.no_grad():
            model(*args, **options)
    finally:
        engine.watchers.remove(told)
        for hook in hooks:
            hook.remove()
    return Ran({name: tuple(plans) for name, plans in found.items()})


def _layers(model: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """This library's layers by name, those in graphs in the place of a forward too (optimizing.py)."""
    seen: set[nn.Module] = set()
    for name, module in model.named_modules(prefix=prefix):
        if isinstance(module, OURS):
            yield name or type(module).__name__, module
        own = vars(module).get("forward")
        if isinstance(own, nn.Module):
            for inner_name, inner in _layers(own, name):
                if inner not in seen:
                    seen.add(inner)
                    yield inner_name, inner
