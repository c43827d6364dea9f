"""Models by name on a GPU beside PyTorch, in one run: for inference what `optimize` and the backend make of them, in
training steps with what `replace` makes of them.

PyTorch computes in float32 as it is ("fp32"), with TF32 ("tf32"; hundreds of times less exact), or, for inference,
compiled with frozen parameters and graphs of its own ("frozen": `torch.compile(mode="reduce-overhead")` with freezing).
Ours is called as it is (mode "eager"), replayed as a CUDA graph ("graph"), or compiled ("compiled":
`torch.compile(backend="maxdnn")`, as it is called). A row is of one mode beside one of those that are called alike:
frozen ones hold graphs, and stand beside graphs and compiled ones."""

import contextlib
import copy
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import MaxdnnError
from . import backend, replace
from .measure import BATCHES, Bench, Call, _wanted, _whole
from .optimizing import optimize

MODES = ("eager", "graph", "compiled")
BASELINES = {"eager": ("fp32", "tf32"), "graph": ("fp32", "frozen", "tf32"), "compiled": ("frozen",)}
"""Of each mode: what it stands beside."""
Model = Callable[[Tensor], Any]
Turn = Callable[[], None]
"""Called when all is ready to be measured (cli/_turns.py)."""


class Job(NamedTuple):
    """A model, given `image` (C, H, W), and what of it is measured."""

    name: str
    image: Sequence[int]
    n: int
    training: bool
    modes: Sequence[str] = MODES
    baselines: Sequence[str] = ("fp32", "frozen", "tf32")

    def pairs(self) -> list[tuple[str, str]]:
        """(mode, baseline) of each row. In training nothing is compiled."""
        skipped = "compiled" if self.training else ""
        return [(mode, baseline) for mode in self.modes if mode != skipped for baseline in BASELINES[mode]
                if baseline in self.baselines and not (self.training and baseline == "frozen")]


def measured(job: tuple[Job, int, float], turn: Turn) -> Iterator[dict[str, Any]]:
    """The rows of a job on a GPU by number, each measurement repeated for some seconds."""
    what, ordinal, seconds = job
    yield from ModelBench(ordinal, seconds).model(what, turn)


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

    def model(self, job: Job, turn: Turn = lambda: None) -> Iterator[dict[str, Any]]:
        """A row for each mode and baseline. Before `turn` is called nothing is measured, and all is made that takes
        the host's time."""
        torch.manual_seed(1)
        with self.device:
            stock = _settled(built(job.name), self._images(4, job.image, 1)).train(job.training)
        images = self._images(job.n, job.image, 0)
        row = {"network": job.name, "n": job.n, "kind": "training" if job.training else "inference"}
        found = self._trained(job, stock, images, turn) if job.training else self._inferred(job, stock, images, turn)
        for (mode, baseline), result in found:
            yield row | {"mode": mode, "baseline": baseline} | result

    def _inferred(self, job: Job, stock: nn.Module, images: Tensor, turn: Turn) -> Iterator[Any]:
        pairs, wanted = job.pairs(), _wanted(copy.deepcopy(stock).double(), [images], False)
        every: dict[str, Any] = {}
        if any(mode != "compiled" for mode, _ in pairs):
            every["ours"] = optimize(stock)
        if any(mode == "compiled" for mode, _ in pairs):
            every["compiled"] = torch.compile(copy.deepcopy(stock), backend=backend.maxdnn)
        errors = self._errors(every, [images], wanted, False)
        with contextlib.ExitStack() as until_the_end:
            theirs = {baseline: stock for _, baseline in pairs}
            if "frozen" in theirs:
                theirs["frozen"] = self._frozen(stock, images, until_the_end, turn)
            self._ready(turn)
            for name, model in theirs.items():
                with _tf32(name == "tf32"):
                    errors |= self._errors({name: model}, [images], wanted, False)
            every |= theirs
            calls = {name: _whole(model, images, False) for name, model in every.items()}
            for pair, times in self._in_pairs(pairs, calls):
                (error,), (their_error,) = errors[_who(pair[0])], errors[pair[1]]
                yield pair, {"whole_seconds": times[0], "error": error, "cudnn_whole_seconds": times[1],
                             "cudnn_error": their_error}

    def _trained(self, job: Job, stock: nn.Module, images: Tensor, turn: Turn) -> Iterator[Any]:
        pairs = job.pairs()
        every = {"ours": replace(copy.deepcopy(stock), lambda _: None)} | {baseline: stock for _, baseline in pairs}
        given = [self._images(job.n, job.image, seed) for seed in range(BATCHES)]
        wanted = _wanted(_calm(stock).double(), given, True)
        errors = self._errors({"ours": _calm(every["ours"])}, given, wanted, True)
        self._ready(turn)
        for name in {baseline for _, baseline in pairs}:
            with _tf32(name == "tf32"):
                errors |= self._errors({name: _calm(stock)}, given, wanted, True)
        del wanted
        calls = {name: _whole(model, images, True) for name, model in every.items()}
        for pair, times in self._in_pairs(pairs, calls):
            (error, gradient), (their_error, their_gradient) = errors["ours"], errors[pair[1]]
            yield pair, {"whole_seconds": times[0], "error": error, "gradient_error": gradient,
                         "cudnn_whole_seconds": times[1], "cudnn_error": their_error,
                         "cudnn_gradient_error": their_gradient}

    def _in_pairs(self, pairs: Sequence[tuple[str, str]], calls: dict[str, Call]) -> Iterator[Any]:
        """((mode, baseline), seconds of both); what stands in several rows is measured once, or together."""
        kept: dict[tuple[str, str], float] = {}
        for mode, baseline in pairs:
            how = "eager" if mode == "compiled" else mode
            places = (_who(mode), how), (baseline, "eager" if baseline == "frozen" else how)
            missing = [place for place in places if place not in kept]
            together = [missing] if how == "eager" and baseline != "tf32" else [[place] for place in missing]
            for some in together:
                with _tf32(baseline == "tf32" and some[0][0] == "tf32"):
                    kept |= zip(some, self._times([calls[name] for name, _ in some], some[0][1]), strict=True)
            yield (mode, baseline), [kept[place] for place in places]

    def _frozen(self, stock: nn.Module, images: Tensor, until_the_end: contextlib.ExitStack, turn: Turn) -> Model:
        """The model compiled with frozen parameters. It runs when it is our turn: in its first calls the compiler
        measures, and so does cuDNN."""
        from torch._inductor import config, list_mode_options
        inductor: Any = torch._dynamo.lookup_backend("inductor")

        def compiler(graph: Any, inputs: Any) -> Any:
            made = inductor(graph, inputs, config_patches=list_mode_options("reduce-overhead"))
            self._ready(turn)
            return made
        until_the_end.enter_context(config.patch(freezing=True))  # compiled in the first calls
        made: Model = torch.compile(copy.deepcopy(stock), backend=compiler)
        with torch.inference_mode():
            made(images)
        return made

    def _ready(self, turn: Turn) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
        turn()


def _who(mode: str) -> str:
    """Which of our models a mode is of."""
    return "compiled" if mode == "compiled" else "ours"


@contextlib.contextmanager
def _tf32(wanted: bool) -> Iterator[None]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _settled(model: nn.Module, images: Tensor) -> nn.Module:
    """The model with weights that are zero made random, and batch norms by the statistics of some images: else outputs
    may be zero or next to it, and errors relative to them say nothing."""
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.detach().any():
            nn.init.normal_(parameter, std=0.02)
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    try:
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
            model(images)
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.eval()
    return model


def _calm(model: nn.Module) -> nn.Module:
    """A copy that drops nothing at random, since other numbers would be dropped in float64."""
    made = copy.deepcopy(model)
    for module in made.modules():
        if "Drop" in type(module).__name__ or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    return made
