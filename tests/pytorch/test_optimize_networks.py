"""`optimize` of networks: random ones, those of maxdnn.torch.networks, those that cannot be traced; torch.compile."""

import copy
import random

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import maxdnn.torch as mt
from maxdnn import networks
from maxdnn.torch.fused import FusedConv2d
from maxdnn.torch.networks import Network

from .graphs import Call, close, conv, exactly, randomized, same

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


class Random(nn.Module):
    """A network that a seed decides: convolutions, batch norms, ReLUs, sums, changes in place, dropouts, of any map
    that is there."""

    def __init__(self, seed):
        super().__init__()
        rng = random.Random(seed)
        self.steps, self.parts = [], nn.ModuleList()
        for _ in range(rng.randint(6, 14)):
            kind = rng.choice([*["conv", "block", "block", "add", "add"] * 3, "norm", "relu", "F.relu", "relu_", "iadd",
                               "drop", "old", "clone"])
            part = {"conv": lambda: conv(size=rng.choice([1, 3]), bias=rng.random() < 0.5,
                                         groups=rng.choice([1, 1, 2])),
                    "block": lambda: nn.Sequential(conv(bias=False), nn.BatchNorm2d(4),
                                                   *[nn.ReLU(inplace=rng.random() < 0.5)] * rng.randint(0, 1)),
                    "norm": lambda: nn.BatchNorm2d(4), "relu": nn.ReLU, "relu_": lambda: nn.ReLU(inplace=True),
                    "drop": nn.Dropout, "old": lambda: rng.choice(list(self.parts)) if len(self.parts) else nn.ReLU(),
                    }.get(kind, nn.Identity)()
            self.parts.append(part)
            # mostly the last map, sometimes an older one
            self.steps.append((kind, rng.choice([1, 1, 1, 1, 1, 2, 3]), rng.choice([1, 2, 3])))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        maps = [x * 1.0]
        for (kind, one, other), part in zip(self.steps, self.parts, strict=True):
            y, z = maps[-min(one, len(maps))], maps[-min(other, len(maps))]
            if kind == "add":
                y = y + z
            elif kind == "iadd":
                y += z
            elif kind == "F.relu":
                y = F.relu(y)
            elif kind == "clone":
                y = y.clone()
            else:
                y = part(y)
            maps.append(y)
        return self.head(maps[-1].mean((2, 3))), maps[-1], maps[len(maps) // 2]


@pytest.mark.parametrize("seed", range(16))
def test_a_random_network_gives_the_results_of_float64(seed):
    torch.manual_seed(seed)
    same(randomized(Random(seed)), torch.rand(2, 4, 5, 6) - 0.5, calls=2, tolerance=1e-5)


def test_random_networks_have_what_is_to_be_fused():
    """In all there is something of everything: else the test above would test nothing."""
    fused = [one for seed in range(24) for one in mt.optimize(randomized(Random(seed))).report.fused]
    for what, least in (("batch_norm", 20), ("adds", 4), ("relu", 20), ("overwrites", 2)):
        assert sum(bool(getattr(one, what)) for one in fused) >= least, what
    assert sum(not one.overwrites for one in fused if one.adds) >= 2


def residual(o, x):
    """A small one with the blocks of ResNet-50."""
    x = o.max_pool(networks._normed(o, x, 4, 7, 2, 3), 3, 2, 1)
    for width, times, first in ((2, 2, 1), (4, 2, 2)):
        for number in range(times):
            inner = networks._normed(o, x, width, 1)
            inner = networks._normed(o, inner, width, 3, first if number == 0 else 1, 1)
            inner = o.norm(o.conv(inner, 4 * width, 1, bias=False))
            if number == 0:
                x = o.norm(o.conv(x, 4 * width, 1, first, bias=False))
            x = o.relu(o.add(inner, x))
    return o.linear(o.mean_pool(x, 3, 1), 5)


def test_a_residual_network_adds_in_its_kernels_and_in_place(monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "small", (residual, (3, 20, 20)))
    torch.manual_seed(5)
    model = randomized(Network("small"))
    report = same(model, torch.rand(2, 3, 20, 20) - 0.5, tolerance=5e-6).report
    assert len(report.fused) == sum(bool(one.batch_norm) for one in report.fused) == 15
    assert [one.overwrites for one in report.fused if one.adds] == [True] * 4
    assert sum(one.relu for one in report.fused) == 13 and not report.left and not report.untraced


@pytest.mark.parametrize("name, sums, without_relu, linear", [
    ("alexnet", 0, 0, 3), ("vgg16", 0, 0, 3), ("resnet50", 16, 4, 1), ("inception", 0, 0, 1), ("unet", 0, 1, 0)])
def test_what_is_fused_of_networks(name, sums, without_relu, linear):
    """On tensors without memory."""
    with torch.device("meta"):
        model = Network(name).eval()
    report, count = mt.optimize(model).report, len(networks.convolutions(name, 1))
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    found = [sum(bool(getattr(one, what)) for one in report.fused) for what in ("layer", "batch_norm", "adds", "relu")]
    assert (*found, len(report.linear)) == (count, norms, sums, count - without_relu, linear)
    assert all(one.overwrites for one in report.fused if one.adds) and not report.untraced


def _on_values(model, x):
    y = model.a(x)
    return F.relu(model.b(y)) if y.sum() > 0 else model.b(-y)


def _on_type(model, x):
    y = model.a(x)
    return F.relu(y) + 1 if isinstance(y, torch.Tensor) else y


def block():
    return nn.Sequential(conv(bias=False), nn.BatchNorm2d(4), nn.ReLU())


@pytest.mark.parametrize("forward, why", [(_on_values, "control flow"), (_on_type, "asks for the type of a tensor")])
def test_what_cannot_be_traced_is_optimized_part_by_part(forward, why):
    model = randomized(Call(forward, a=block(), b=conv()))
    for sign in (1, -1):
        optimized = same(model, sign * torch.rand(2, 4, 5, 6))
    assert [str(one) for one in optimized.report.fused] == ["a.0: batch norm a.1, ReLU", "b: alone"]
    assert why in optimized.report.untraced[""] and "not traced: the model itself: " in str(optimized.report)
    inside = randomized(nn.Sequential(conv(), Call(forward, a=block(), b=conv()), nn.ReLU()))
    report = same(inside, torch.rand(2, 4, 5, 6)).report
    assert [str(one) for one in report.fused] == ["0: alone", "1.a.0: batch norm 1.a.1, ReLU", "1.b: alone"]
    assert list(report.untraced) == ["1"]


def _takes_apart(model, x):
    found = []
    for layer in model.a:
        x = layer(x)
        found.append(x if x.sum() > 0 else -x)
    return found


def test_a_module_that_is_taken_apart_gives_what_its_parts_give():
    model = randomized(Call(_takes_apart, a=block()))
    optimized = mt.optimize(model)
    x = torch.rand(2, 4, 5, 6) - 0.5
    close(optimized(x), exactly(model, x))
    assert [str(one) for one in optimized.report.fused] == ["a.0: batch norm a.1, ReLU"]


def test_parts_move_and_are_copied_with_the_whole():
    optimized = mt.optimize(randomized(Call(_on_values, a=block(), b=conv())))
    x = torch.rand(2, 4, 5, 6)
    wanted = optimized(x)
    moved = copy.deepcopy(optimized).double()
    close(moved(x.double()).float(), wanted.double(), 1e-5)
    close(optimized(x), wanted.double())


def test_hooks_are_called_and_what_has_them_stays_whole():
    seen = []
    model = randomized(nn.Sequential(conv(), nn.BatchNorm2d(4), block(), conv(), nn.ReLU()))
    model[0].register_forward_hook(lambda m, given, out: seen.append("conv"))
    model[2].register_forward_hook(lambda m, given, out: seen.append("block"))
    model.register_forward_pre_hook(lambda m, given: seen.append("model"))
    optimized = mt.optimize(model)
    x = torch.rand(2, 4, 5, 6)
    wanted = exactly(model, x)
    seen.clear()
    close(optimized(x).detach(), wanted)
    assert seen == ["model", "conv", "block"]
    assert optimized.report.left["0"] == "it has hooks" and optimized.report.untraced["2"] == "it has hooks"
    assert "2.0: batch norm 2.1, ReLU" in [str(one) for one in optimized.report.fused]


class Options(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = conv()

    def forward(self, x, mask=None, *, twice=False):
        y = F.relu(self.a(x))
        if mask is not None:
            y = y * mask
        return y + y if twice else y


def test_arguments_with_defaults_mean_what_they_meant():
    model = Options().eval()
    optimized = mt.optimize(model)
    x, mask = torch.rand(2, 4, 5, 6), torch.rand(2, 4, 5, 6)
    for given, options in (((x,), {}), ((x, mask), {}), ((), {"x": x}), ((x,), {"mask": mask}), ((x, None), {}),
                           ((x,), {"twice": True}), ((), {"mask": mask, "x": x, "twice": True})):
        with torch.no_grad():
            wanted = model(*given, **options)
            torch.testing.assert_close(optimized(*given, **options), wanted, rtol=1e-5, atol=1e-6)
    assert [str(one) for one in optimized.report.fused] == ["a: ReLU"]


def test_what_draws_random_numbers_is_not_traced():
    model = Call(lambda m, x: m.a(x) + torch.rand(1), a=conv()).eval()
    optimized = mt.optimize(model)
    x = torch.rand(2, 4, 5, 6)
    assert not torch.equal(optimized(x), optimized(x)) and "random" in optimized.report.untraced[""]


def test_a_replaced_model_is_optimized_and_linear_layers_are_ours(monkeypatch):
    from maxdnn.torch import products
    calls, real = [], products._multiplied
    monkeypatch.setattr(products, "_multiplied", lambda *given: calls.append(1) or real(*given))
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1000)
    model = randomized(Call(lambda m, x: F.linear(m.b(m.a(x).flatten(2)), m.c.weight), a=block(), b=nn.Linear(30, 9),
                            c=nn.Linear(9, 4)))
    x = torch.rand(2, 4, 5, 6)
    optimized = same(mt.replace(copy.deepcopy(model)), x)
    assert [str(one) for one in optimized.report.fused] == ["a.0: batch norm a.1, ReLU"]
    assert sorted(optimized.report.linear) == ["b", "linear"] and len(calls) == 3, "the second is too small"
    same(model, x[:0])
    for given in (torch.rand(40, 30), torch.rand(30).repeat(40, 1).t().contiguous().t()):
        layer = mt.optimize(nn.Sequential(nn.Linear(30, 9)).eval())
        close(layer(given), exactly(layer, given))
    assert len(calls) == 5


def test_the_operators_pass_pytorchs_checks():
    given = [torch.rand(s, requires_grad=True) for s in ((2, 4, 6, 6), (6, 4, 3, 3), (6,), (2, 6, 4, 4))]
    torch.library.opcheck(torch.ops.maxdnn.conv2d_epilogue.default, (*given, "relu", [1, 1], [0, 0], [1, 1], 1))
    rows = [torch.rand(s, requires_grad=True) for s in ((2, 3, 4), (5, 4), (5,))]
    torch.library.opcheck(torch.ops.maxdnn.linear.default, tuple(rows))


def test_derivatives_of_the_operators_are_those_of_their_parts():
    given = [torch.rand(s) - 0.5 for s in ((2, 4, 6, 6), (6, 4, 3, 3), (6,), (2, 6, 4, 4))]
    ours, doubles = ([t.detach().to(dtype).requires_grad_() for t in given] for dtype in (torch.float, torch.double))
    torch.ops.maxdnn.conv2d_epilogue(*ours, "relu", [1, 1], [0, 0], [1, 1], 1).square().sum().backward()
    F.relu(F.conv2d(*doubles[:3]) + doubles[3]).square().sum().backward()
    for one, other in zip(ours, doubles, strict=True):
        close(one.grad, other.grad, 1e-5)


def test_symbolic_trace_keeps_our_operator():
    for model in (mt.replace(nn.Sequential(conv(), nn.ReLU(), conv(size=2, padding="same"))),
                  Call(lambda m, x: mt.conv2d(x, m.a.weight, m.a.bias, padding=1), a=conv())):
        traced = fx.symbolic_trace(model)
        assert sum(node.target is mt.conv2d for node in traced.graph.nodes) in (1, 2)
        x = torch.rand(2, 4, 5, 6)
        assert torch.equal(traced(x), model(x)) and torch.equal(traced(x[0]), model(x[0]))
    optimized = mt.optimize(randomized(Call(lambda m, x: F.relu(m.a(x) + x), a=conv())))
    again = fx.symbolic_trace(optimized.network.graph)
    assert any(node.target is mt.conv2d for node in again.graph.nodes)


def test_an_optimized_model_compiles_as_one_graph():
    model = randomized(Call(lambda m, x: F.relu(m.b(m.a(x)) + x), a=conv(), b=nn.BatchNorm2d(4)))
    seen = []

    def look(graph, example):
        seen.extend(node.target for node in graph.graph.nodes if "maxdnn" in str(node.target))
        return graph.forward
    compiled = torch.compile(mt.optimize(model), backend=look, fullgraph=True)
    x = torch.rand(2, 4, 5, 6)
    with torch.no_grad():
        close(compiled(x), exactly(model, x))
    assert [str(target) for target in seen] == ["maxdnn.conv2d_epilogue.default"]
    assert isinstance(next(m for m in compiled.modules() if isinstance(m, FusedConv2d)), nn.Conv2d)
