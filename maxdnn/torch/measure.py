"""Networks and single layers on a GPU, by this library's kernels and by cuDNN through PyTorch, in one run: float32 with
TF32 off, cudnn.benchmark on, contiguous N,C,H,W for both.

Two times are taken of each: of the convolutions alone, one after the other in the network's order (in training also
their gradients, in the order of a backward pass; the bias gradients are among them, the first layer's input gradient is
not), and of the whole: the network's forward pass, or a step of training with the loss and SGD. Each is called as it
is ("eager": the host's time is in it wherever the GPU waits for it) or replayed as a CUDA graph. Medians of event
times. Of whole networks as they are called the host's time is taken, too ("host_seconds"). Errors are relative, root of
mean squares, against the same network in float64: of the outputs, and of the gradients of all parameters together;
the median of a few batches, since where rounding turns a ReLU on or off decides
how far gradients are off. The float64 network's convolutions are matrix products over explicit patches, so that no
convolution library says what is right.

For inference this library's layers are `frozen`: what is made of the filters alone is made once."""

import copy
import functools
import gc
import operator
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from ..networks import convolutions
from ..planning import records
from ..problem.shape import ConvShape
from ..runtime.devices import find
from . import conv2d, ops, replace
from .networks import Network

MODES = ("eager", "graph")
BATCHES = 3  # whose errors are looked at
_HOST_CALLS = 100
Call = Callable[[], Any]
Layers = Sequence[tuple[ConvShape, bool]]
_aten_gradients = torch.ops.aten.convolution_backward.default


class Bench:
    """Measures on CUDA device `ordinal`. `seconds`: how long each measurement is repeated, at least."""

    def __init__(self, ordinal: int = 0, seconds: float = 0.2) -> None:
        self.device, self.seconds = torch.device("cuda", ordinal), seconds
        torch.cuda.set_device(self.device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        facts: Any = find.gpu(ordinal)
        self.about = {"gpu": facts.name, "driver": facts.facts()["driver"], "library": records.library(),
                      "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}

    def network(self, name: str, n: int, training: bool, modes: Sequence[str] = MODES) -> Iterator[dict[str, Any]]:
        """A row for each mode."""
        torch.manual_seed(1)
        with self.device:
            stock = Network(name).train(training)
        own = replace(copy.deepcopy(stock), frozen=not training)
        given = [self._images(n, stock.image, seed) for seed in range(BATCHES)]
        found = self._errors({"": own, "cudnn_": stock}, given, _wanted(_exact(stock), given, training), training)
        errors = {f"{who}{what}": error for who, both in found.items()
                  for what, error in zip(("error", "gradient_error"), both)}  # noqa: B905 (training has both)
        images = given[0]
        for mode in modes:
            row = {"network": name, "n": n, "kind": "training" if training else "inference", "mode": mode}
            row |= self._convolutions(convolutions(name, n), training, mode)
            wholes = [_whole(model, images, training) for model in (own, stock)]
            row["whole_seconds"], row["cudnn_whole_seconds"] = self._times(wholes, mode)
            if mode == "eager":
                row["host_seconds"], row["cudnn_host_seconds"] = self._host_times(wholes)
            yield row | errors
            torch.cuda.empty_cache()

    def layer(self, shape: ConvShape, training: bool, modes: Sequence[str] = MODES) -> Iterator[dict[str, Any]]:
        """A row for each mode, of one layer without bias."""
        for mode in modes:
            yield {"network": str(shape), "n": shape.N, "kind": "training" if training else "inference",
                   "mode": mode} | self._convolutions([(shape, False)], training, mode)

    def _convolutions(self, layers: Layers, training: bool, mode: str) -> dict[str, float]:
        torch.manual_seed(2)
        given = [self._tensors(shape, bias) for shape, bias in layers]
        calls = ((_passes(given, _ours), _passes(given, _stock)) if training else
                 (_inference(given, lambda layer: replace(layer, frozen=True)), _inference(given, lambda layer: layer)))
        return dict(zip(("seconds", "cudnn_seconds"), self._times(calls, mode), strict=True))

    def _tensors(self, s: ConvShape, bias: bool) -> tuple[Any, ...]:
        def uniform(*size: int) -> Tensor:
            return torch.rand(size, device=self.device) - 0.5
        return (s, uniform(s.N, s.C, s.H, s.W), uniform(s.K, s.C // s.groups, s.R, s.S),
                uniform(s.K) if bias else None, uniform(s.N, s.K, s.P, s.Q))

    def _times(self, calls: Sequence[Call], mode: str) -> list[float]:
        """Median seconds of each call. As they are, calls take turns, since the host is not as fast at one moment as at
        another; graphs, which keep memory, come one after the other."""
        if mode == "graph":
            return [time for call in calls for time in self._medians([call], True)]
        return self._medians(calls, False)

    def _host_times(self, calls: Sequence[Call]) -> list[float]:
        """Median seconds that the host takes for each call; they take turns, and the GPU is let catch up in between, so
        that no queue is ever full."""
        times: list[list[float]] = [[] for _ in calls]
        for number in range(_HOST_CALLS):
            for call, found in zip(calls, times, strict=True):
                begun = time.perf_counter()
                call()
                found.append(time.perf_counter() - begun)
                if number % 4 == 0:
                    torch.cuda.synchronize(self.device)
        return [statistics.median(found[len(found) // 10:]) for found in times]

    def _medians(self, calls: Sequence[Call], captured: bool) -> list[float]:
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            for call in calls:
                for _ in range(3):
                    call()
            stream.synchronize()
            if captured:
                gc.collect()  # nodes of derivatives on another stream, kept in cycles, would stop the capture
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    for call in calls:
                        call()
                calls = [graph.replay]
            times: list[list[float]] = [[] for _ in calls]
            while len(times[0]) < 6 or (sum(times[0]) < self.seconds and len(times[0]) < 300):
                for call, found in zip(calls, times, strict=True):
                    call()  # into the caches
                    for _ in range(3):
                        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        start.record()
                        call()
                        end.record()
                        end.synchronize()
                        found.append(1e-3 * start.elapsed_time(end))
        return [statistics.median(found) for found in times]

    def _errors(self, models: Mapping[str, Any], given: Sequence[Tensor], wanted: Sequence[list[Tensor]],
                training: bool) -> dict[str, list[float]]:
        """Of the outputs, and in training of the gradients of all parameters, each model's: medians over batches."""
        found: dict[str, list[list[float]]] = {name: [] for name in models}
        for images, right in zip(given, wanted, strict=True):
            for name, model in models.items():
                results = zip(_results(model, images, training), right, strict=True)
                found[name].append([_relative(*both) for both in results])
        return {name: [statistics.median(one) for one in zip(*errors, strict=True)] for name, errors in found.items()}

    def _images(self, n: int, image: Sequence[int], seed: int) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.rand(n, *image, device=self.device, generator=generator) - 0.5


class _Exact(nn.Conv2d):
    """Explicit patches times filters."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        assert self.groups == 1 and not isinstance(self.padding, str)
        patches = F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
        size = [(x + 2 * pad - dil * (k - 1) - 1) // step + 1 for x, k, step, pad, dil in zip(
            input.shape[2:], self.kernel_size, self.stride, self.padding, self.dilation, strict=True)]
        out = (weight.flatten(1) @ patches).unflatten(2, size)
        return out if bias is None else out + bias[:, None, None]


def _exact(model: Any) -> Any:
    """A copy in float64."""
    right = copy.deepcopy(model).double()
    for module in right.modules():
        if isinstance(module, nn.Conv2d):
            module.__class__ = _Exact
    return right


def _wanted(right: Any, given: Sequence[Tensor], training: bool) -> list[list[Tensor]]:
    """The results of a model in float64 for each batch, by no library that is compared."""
    with torch.backends.cudnn.flags(enabled=False):
        return [_results(right, images.double(), training) for images in given]


def _relative(found: Tensor, wanted: Tensor) -> float:
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def _leaves(out: Any) -> list[Tensor]:
    """The tensors that a model gives, which may be several."""
    return [x for x in tree_leaves(out) if isinstance(x, Tensor)]


def _loss(out: Any) -> Tensor:
    return functools.reduce(operator.add, [(x ** 2).mean() for x in _leaves(out)])


def _results(model: Any, images: Tensor, training: bool) -> list[Tensor]:
    """The output, and in training the gradients of all parameters, each in one row."""
    if not training:
        with torch.inference_mode():  # the third call is the first by filters that are kept
            out = [model(images) for _ in range(3)][-1]
            return [torch.cat([x.flatten() for x in _leaves(out)])]
    out = model(images)
    gradients = torch.autograd.grad(_loss(out), list(model.parameters()), allow_unused=True)
    return [torch.cat([x.detach().flatten() for x in _leaves(out)]),
            torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])]


def _whole(model: Any, images: Tensor, training: bool) -> Call:
    if not training:
        def infer() -> None:
            with torch.inference_mode():
                model(images)
        return infer
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        _loss(model(images)).backward()
        optimizer.step()
    return step


def _inference(given: Sequence[tuple[Any, ...]], change: Callable[[nn.Conv2d], nn.Conv2d]) -> Call:
    """The convolutions of a pass forward, each a layer of its own."""
    layers = []
    for s, x, _, b, _ in given:
        layer = nn.Conv2d(s.C, s.K, (s.R, s.S), s.stride, s.padding, s.dilation, s.groups, b is not None,
                          device=x.device)
        layers.append((change(layer), x))

    def calls() -> None:
        with torch.inference_mode():
            for layer, x in layers:
                layer(x)
    return calls


def _passes(given: Sequence[tuple[Any, ...]], how: Any) -> Call:
    """The convolutions of a pass forward and a pass back."""
    forward, back = how

    def calls() -> None:
        with torch.inference_mode():
            for layer in given:
                forward(*layer)
            for number in reversed(range(len(given))):
                back(*given[number], number > 0)
    return calls


def _ours_forward(s: ConvShape, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor) -> None:
    conv2d(x, w, b, s.stride, s.padding, s.dilation, s.groups)


def _ours_back(s: ConvShape, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor, wanted: bool) -> None:
    conf = s.stride, s.padding, s.dilation, s.groups
    if wanted:
        ops.conv2d_input(g, w, (s.H, s.W), *conf)
    ops.conv2d_weight(g, x, (s.R, s.S), *conf)
    if b is not None:
        g.sum((0, 2, 3))


def _stock_forward(s: ConvShape, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor) -> None:
    F.conv2d(x, w, b, s.stride, s.padding, s.dilation, s.groups)


def _stock_back(s: ConvShape, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor, wanted: bool) -> None:
    _aten_gradients(g, x, w, None if b is None else [s.K], s.stride, s.padding, s.dilation, False, (0, 0), s.groups,
                    (wanted, True, b is not None))


_ours, _stock = (_ours_forward, _ours_back), (_stock_forward, _stock_back)
