"""CUDA graphs in the place of calls, where the host takes longer than the GPU."""

import threading
import warnings
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from . import ops

GRAPHS = 16  # of a network; other shapes run as they are
_BEFORE = 2  # calls of a shape before it is captured: plans are made, and filters kept
_KINDS = Tensor, torch.nn.Parameter


class Captured:
    """Calls of `run` that replay graphs, one for each kind of arguments. Results are tensors of their own.

    `state`, of the arguments: equal as long as graphs hold what `run` would do. `fixed`: the numbers of arguments,
    weights, that graphs read where they are; when one of them lies elsewhere, or has changed, all is captured again."""

    def __init__(self, run: Callable[..., Any], state: Callable[..., Any], fixed: Collection[int] = ()) -> None:
        self._run, self._state, self._fixed = run, state, frozenset(fixed)
        self._lock = threading.Lock()
        self._graphs: dict[Any, _Graph] = {}
        self._calls: dict[Any, int] = {}  # of kinds that have no graph yet; -1: those that cannot have one
        self._seen: Any = None

    def __call__(self, *args: Any) -> Any:
        key = self._key(args)
        if key is None:
            return self._run(*args)
        with self._lock:
            state = self._state(args), [(args[n].data_ptr(), args[n]._version) for n in self._fixed]
            if state != self._seen:
                self._graphs.clear()
                self._calls.clear()
                self._seen = state
            graph = self._graphs.get(key) or self._captured(key, args)
            if graph is not None:
                return graph.replay(args)
        return self._run(*args)

    def _key(self, args: tuple[Any, ...]) -> Any:
        """All that decides what is launched; None for what is no graph's."""
        if torch.compiler.is_compiling() or ops.watched() or not _on_gpu(args):
            return None
        wanted = torch.is_grad_enabled()
        key: list[Any] = []
        for number, x in enumerate(args):
            if not isinstance(x, Tensor):
                if not (x is None or isinstance(x, (bool, int, float, str))):
                    return None
                key.append(x)
            elif type(x) not in _KINDS or (wanted and x.requires_grad):
                return None
            elif number not in self._fixed:
                key.append((x.shape, x.dtype, x.device, x.stride()))
        return (*key, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))

    def _captured(self, key: Any, args: tuple[Any, ...]) -> "_Graph | None":
        """A new graph, if it is time for one."""
        calls = self._calls.get(key, 0)
        if calls < _BEFORE or len(self._graphs) >= GRAPHS:
            if calls >= 0 and len(self._calls) < 1 << 12:
                self._calls[key] = calls + 1
            return None
        try:
            made = self._graphs[key] = record(self._run, args, self._fixed)
        except RuntimeError as e:
            self._calls[key] = -1
            warnings.warn(f"a call could not be captured and runs as it is: {e}", stacklevel=4)
            return None
        return made


class _Graph:
    """A graph, what it reads and what it gives."""

    def __init__(self, graph: Any, given: list[Any], out: Any, done: Any) -> None:
        self._graph, self._given, self._out, self._done = graph, given, out, done

    def replay(self, args: tuple[Any, ...]) -> Any:
        """On the current stream, behind the replay before it."""
        stream = torch.cuda.current_stream()
        stream.wait_event(self._done)
        for own, x in zip(self._given, args, strict=True):
            if own is not None:
                own.copy_(x)
        self._graph.replay()
        result = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, self._out)
        self._done.record(stream)
        return result


def record(run: Callable[..., Any], args: tuple[Any, ...], fixed: Collection[int]) -> _Graph:
    """Capture a call. Raises RuntimeError where it does what no graph holds."""
    with torch.inference_mode(False), torch.no_grad():  # memory that may be written in whatever mode a call is made
        given = [x.clone() if isinstance(x, Tensor) and number not in fixed else None for number, x in enumerate(args)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(*[x if own is None else own for x, own in zip(args, given, strict=True)])
    done = torch.cuda.Event()
    done.record()
    return _Graph(graph, given, out, done)


def _on_gpu(args: tuple[Any, ...]) -> bool:
    """Whether all tensors are on the current GPU, and nobody captures."""
    where = {x.device for x in args if isinstance(x, Tensor)}
    return (len(where) == 1 and (device := where.pop()).type == "cuda" and device.index == torch.cuda.current_device()
            and not torch.cuda.is_current_stream_capturing())
