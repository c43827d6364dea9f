"""Models by name, for inference on a GPU: what `optimize` and the backend make of them beside PyTorch, in one run.

PyTorch computes in float32 as it is ("fp32"), with TF32 ("tf32"; hundreds of times less exact), or compiled with frozen
parameters and graphs of its own ("frozen": `torch.compile(mode="reduce-overhead")` with freezing). Ours is called as it
is (mode "eager"), replayed as a CUDA graph ("graph"), or compiled ("compiled": `torch.compile(backend="maxdnn")`, as it
is called). A row is of one mode beside one of those that are called alike: frozen ones hold graphs, and stand beside
graphs and compiled ones."""

import copy
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import MaxdnnError
from .measure import Bench, Call, _relative, _whole
from .optimizing import optimize

MODES = ("eager", "graph", "compiled")
BASELINES = {"eager": ("fp32", "tf32"), "graph": ("fp32", "frozen", "tf32"), "compiled": ("frozen",)}
"""Of each mode: what it stands beside."""


def built(name: str) -> nn.Module:
    """A model in eval mode with random weights: torchvision's of this name, or what `package:function` returns. Raises
    MaxdnnError."""
    try:
        if ":" in name:
            model = pkgutil.resolve_name(name)()
        else:
            from torchvision import models
            model = models.get_model(name, weights=None)
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        raise MaxdnnError(f"--model must name a model of torchvision or be package:function (got {name!r}: {e})") from e
    if not isinstance(model, nn.Module):
        raise MaxdnnError(f"--model {name}: must return a torch.nn.Module (got {type(model).__name__})")
    return model.eval()


class ModelBench(Bench):
    """Measures models of (n, *image) inputs."""

    def model(self, name: str, image: Sequence[int], n: int, modes: Sequence[str] = MODES) -> Iterator[dict[str, Any]]:
        """A row for each mode and baseline."""
        torch.manual_seed(1)
        stock = built(name).to(self.device)
        images = torch.rand(n, *image, device=self.device) - 0.5
        wanted = self._exact(stock, images)
        for mode in modes:
            ours = self._ours(stock, mode)
            row = {"network": name, "n": n, "kind": "inference", "mode": mode,
                   "whole_seconds": self._seconds(ours, images, mode), "error": _error(ours, images, wanted)}
            for baseline in BASELINES[mode]:
                theirs = self._theirs(stock, baseline)
                torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = baseline == "tf32"
                try:
                    found = {"cudnn_whole_seconds": self._seconds(theirs, images, mode, baseline),
                             "cudnn_error": _error(theirs, images, wanted)}
                finally:
                    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
                yield row | {"baseline": baseline} | found
            torch.compiler.reset()

    def _exact(self, model: nn.Module, images: Tensor) -> Tensor:
        """The output in float64, by none of the libraries that are compared."""
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
            result: Tensor = copy.deepcopy(model).double()(images.double())
        return result

    def _ours(self, stock: nn.Module, mode: str) -> Callable[[Tensor], Tensor]:
        if mode == "compiled":
            made: Callable[[Tensor], Tensor] = torch.compile(copy.deepcopy(stock), backend="maxdnn")
            return made
        return optimize(stock)

    def _theirs(self, stock: nn.Module, baseline: str) -> Callable[[Tensor], Tensor]:
        return torch.compile(copy.deepcopy(stock), mode="reduce-overhead") if baseline == "frozen" else stock

    def _seconds(self, model: Callable[[Tensor], Tensor], images: Tensor, mode: str, baseline: str = "") -> float:
        call: Call = _whole(model, images, False)
        if baseline != "frozen":
            return self._times([call], "graph" if mode == "graph" else "eager")[0]
        from torch._inductor import config
        with config.patch(freezing=True):  # in use while it is compiled, in the first calls
            return self._times([call], "eager")[0]


def _error(model: Callable[[Tensor], Tensor], images: Tensor, wanted: Tensor) -> float:
    with torch.inference_mode():
        return _relative(model(images), wanted)
