"""Linear layers, attention and convolutions with ReLU on a real GPU, in inference, training and graphs."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn.torch as mt
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from maxdnn.torch import backend, captured, products

from .gpu import CUDA, close, no_tf32  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.gpu


def trained(own, right, x, tolerance=2e-5):
    """Outputs and gradients of two steps are those of the model in float64; the second step is a graph's."""
    def step():
        for p in own.parameters():
            p.grad = None
        out = own(x)
        out.square().mean().backward()
        return out
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for seed in range(2):
        torch.manual_seed(seed)
        x.uniform_(-1, 1)
        right.zero_grad()
        wanted = right(x.double())
        wanted.square().mean().backward()
        graph.replay()
        close(out.detach(), wanted.detach(), tolerance)
        for p, q in zip(own.parameters(), right.parameters(), strict=True):
            assert (p.grad.double() - q.grad).norm() <= tolerance * q.grad.norm()


def test_linear_layers_are_trained_and_captured():
    torch.manual_seed(0)
    stock = nn.Sequential(nn.Linear(384, 1024), nn.GELU(), nn.Linear(1024, 384, bias=False)).to(CUDA)
    own, x = mt.replace(copy.deepcopy(stock)), torch.rand(4, 500, 384, device=CUDA)
    trained(own, stock.double(), x)
    assert all(plans for plans in mt.ran(own, x).plans.values()), "both are of some size"


@pytest.mark.parametrize("other", [nn.ReLU6(), nn.Hardswish(), nn.SiLU(), nn.GELU(), nn.GELU("tanh")], ids=str)
def test_activations_behind_every_kind_of_convolution(other):
    """Pointwise, depthwise, of a stem, on tensor cores, by Winograd; captured and replayed."""
    torch.manual_seed(2)
    stock = nn.Sequential(nn.Conv2d(3, 40, 3, 2, 1), other, nn.Conv2d(40, 240, 1), other,
                          nn.Conv2d(240, 240, 5, 2, 2, groups=240), other, nn.Conv2d(240, 64, 1),
                          nn.Conv2d(64, 64, 3, 1, 1), other, nn.Conv2d(64, 130, 3, 1, 1), other).eval().to(CUDA)
    own, x = mt.optimize(stock, graphs=True), torch.rand(4, 3, 96, 100, device=CUDA) - 0.5
    assert sum(bool(one.activation) for one in own.report.fused) == 5 and not own.report.left
    with torch.inference_mode():
        wanted = copy.deepcopy(stock).double()(x.double())
        for _ in range(5):
            assert (own(x).double() - wanted).norm() <= 5e-6 * wanted.norm()


def test_activations_of_all_of_float32_are_within_their_error_on_the_card():
    """Where MUFU's tables are the card's."""
    from maxdnn.problem.activations import ACTIVATIONS, ERROR, activated
    from tests.algorithms.test_activations import everything

    x = everything(1 << 12)
    given = torch.from_numpy(x[:len(x) // 512 * 512].reshape(1, 2, 256, -1)).to(CUDA)
    weight, exact = torch.ones(2, 1, 1, 1, device=CUDA), given.double().cpu().numpy()
    for name in ACTIVATIONS[1:]:
        out = torch.ops.maxdnn.conv2d_epilogue(given, weight, None, None, name, [1, 1], [0, 0], [1, 1], 2).cpu().numpy()
        want = activated(name, exact)
        finite = np.isfinite(want)
        assert np.array_equal(out[~finite], want[~finite].astype(np.float32), equal_nan=True), name
        most = ERROR * abs(np.where(np.isfinite(exact), exact, 0)) + 2.0**-126
        assert (abs(out - want)[finite] <= most[finite]).all(), name


@pytest.mark.parametrize("other", ["nt", "nn"])
def test_batches_of_products_inside_a_network(other):
    torch.manual_seed(3)

    class Two(nn.Module):
        def forward(self, a, b):
            return torch.baddbmm(a[:, :1, :1], a, b.mT if other == "nt" else b, beta=0.5, alpha=2)

    own = mt.optimize(Two().eval())
    a, b = (torch.rand(8, 512, 512, device=CUDA) - 0.5 for _ in "ab")
    wanted = Two()(a.double(), b.double())
    assert (own(a, b).double() - wanted).norm() <= 2e-6 * wanted.norm() and len(own.report.products) == 1


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("m, k, n", [(512, 700, 513), (33, 5000, 900)])
def test_products_of_any_orientation(turned, m, k, n):
    torch.manual_seed(1)
    a, b = (torch.rand(size[::-1] if transpose else size, device=CUDA) - 0.5
            for size, transpose in zip(((m, k), (k, n)), turned, strict=True))
    wanted = (a.mT if turned[0] else a).double() @ (b.mT if turned[1] else b).double()
    close(products.product(a, b, *turned), wanted)


def test_convolutions_with_relu_are_trained_and_captured():
    torch.manual_seed(2)
    stock = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(inplace=True),
                          nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU(), nn.Conv2d(64, 16, 1)).to(CUDA)
    own = mt.replace(copy.deepcopy(stock))
    assert type(own) is mt.Sequential
    trained(own, stock.double(), torch.rand(8, 3, 64, 64, device=CUDA), 1e-4)


def test_relu_takes_no_launch_and_no_memory_of_its_own():
    x, w = torch.rand(4, 16, 20, 20, device=CUDA), torch.rand(24, 16, 3, 3, device=CUDA, requires_grad=True)
    b = torch.rand(24, device=CUDA, requires_grad=True)
    ran, counts = [], {}
    for activation in (None, "relu"):
        for _ in range(2):
            mt.conv2d(x, w, b, activation=activation)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        engine.watchers.append(ran.append)
        try:
            out = mt.conv2d(x, w, b, activation=activation)
        finally:
            engine.watchers.remove(ran.append)
        counts[activation] = torch.cuda.memory_stats()["allocation.all.allocated"] - before
        out.sum().backward()
    assert len(ran) == 2 and len(ran[0].launches) == len(ran[1].launches) and counts[None] == counts["relu"]
    assert ran[0].name == ran[1].name
    own = engine.of(find.gpu(0))
    assert all(len(own.loaded(plan)._prepared) == len(plan.launches) for plan in ran)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_in_an_optimized_network(batch_first):
    torch.manual_seed(3)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed = nn.MultiheadAttention(384, 6, batch_first=batch_first)
            self.norm, self.inner, self.out = nn.LayerNorm(384), nn.Linear(384, 1536), nn.Linear(1536, 384)

        def forward(self, x):
            y = self.norm(x)
            x = x + self.mixed(y, y, y, need_weights=False)[0]
            return x + self.out(F.gelu(self.inner(self.norm(x))))
    stock = Block().to(CUDA).eval()
    own, right = mt.optimize(stock), copy.deepcopy(stock).double()
    x = torch.rand(8, 200, 384, device=CUDA) - 0.5
    with torch.inference_mode():
        for _ in range(2):
            close(own(x), right(x.double()))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = own(x)
        x.uniform_(-1, 1)
        graph.replay()
        close(out, right(x.double()))
    assert sorted(own.report.linear) == ["inner", "mixed", "out"]


@pytest.mark.parametrize("compiled", [False, True], ids=["optimize", "compile"])
def test_calls_replay_graphs_on_any_stream_and_follow_the_weights(compiled):
    torch.manual_seed(4)
    stock = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                          nn.Conv2d(32, 64, 3, padding=1), nn.Flatten(), nn.Linear(64 * 256, 10)).to(CUDA).eval()
    own = (torch.compile(stock, backend=backend.maxdnn, mode="reduce-overhead") if compiled else
           mt.optimize(stock, graphs=True))
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    made, real = [], captured.record
    captured.record = lambda *given: made.append(1) or real(*given)
    try:
        for mode in (torch.inference_mode, torch.no_grad):
            for number in range(12):
                x = torch.rand(4 if number % 2 else 8, 3, 32, 32, device=CUDA) - 0.5
                torch.cuda.synchronize()
                with mode(), torch.cuda.stream(streams[number % 3]):
                    first = own(x)
                    second = own(x * 2)
                torch.cuda.synchronize()
                with torch.no_grad():
                    right = copy.deepcopy(stock).double()
                    close(first, right(x.double()))
                    close(second, right(2 * x.double()))
        assert made, "something was captured"
        if compiled:
            with torch.no_grad():
                stock[0].weight.mul_(1.5)
                for _ in range(4):
                    close(own(x), copy.deepcopy(stock).double()(x.double()))
    finally:
        captured.record = real
        torch.compiler.reset()


def test_what_waits_for_the_gpu_is_not_captured_and_runs():
    class Waits(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            y = self.conv(x)
            return y if y.sum().item() > 1e9 else -y
    stock = Waits().to(CUDA).eval()
    own, x = mt.optimize(stock, graphs=True), torch.rand(2, 3, 9, 9, device=CUDA)
    with torch.inference_mode():
        own(x), own(x)
        with pytest.warns(UserWarning, match="could not be captured"):
            own(x)
        for _ in range(3):
            close(own(x), copy.deepcopy(stock).double()(x.double()))
