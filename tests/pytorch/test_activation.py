"""Convolution, bias and ReLU in one kernel, in training too."""

import copy

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import maxdnn.torch as mt
from maxdnn.errors import ShapeError
from maxdnn.problem.activations import ACTIVATIONS, activated
from maxdnn.torch import epilogues
from maxdnn.torch.fused import ACTIVATIONS as THEIRS

from .graphs import close, conv, same

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]
OPTIONS = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)


@pytest.fixture
def fused(monkeypatch):
    """A list of the calls of kernels with ReLU."""
    ran, real = [], epilogues._convolved
    monkeypatch.setattr(epilogues, "_convolved", lambda *given: ran.append(given[4]) or real(*given))
    return ran


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(2,), ()], ids=["batch", "one"])
def test_the_function_and_its_derivatives_are_pytorchs(bias, batch, fused):
    torch.manual_seed(8)
    given = [torch.rand(size) - 0.5 for size in ((*batch, 4, 7, 6), (6, 2, 3, 3), (6,))][:3 if bias else 2]
    ours, doubles = ([t.detach().to(kind).requires_grad_() for t in given] for kind in (torch.float, torch.double))
    found = mt.conv2d(*ours, **OPTIONS, activation="relu")
    wanted = F.conv2d(*doubles, **OPTIONS).relu()
    close(found, wanted)
    assert fused == ["relu"] and 0 < (found == 0).sum() < found.numel()
    by_hand = torch.autograd.grad(found.pow(3).sum(), ours, create_graph=True)
    right = torch.autograd.grad(wanted.pow(3).sum(), doubles, create_graph=True)
    close(by_hand, right, 1e-5)
    close(torch.autograd.grad(sum(x.square().sum() for x in by_hand), ours),
          torch.autograd.grad(sum(x.square().sum() for x in right), doubles), 1e-4)


def test_what_relu_was_given_is_not_kept():
    kept = []
    x, w = torch.rand(1, 3, 4, 4, requires_grad=True), torch.rand(5, 3, 3, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out = mt.conv2d(x, w, activation="relu")
    assert {t.data_ptr() for t in kept} == {t.data_ptr() for t in (x, w, out)}


def test_nan_and_infinity_go_through_as_in_pytorch():
    x = torch.tensor([-1.0, float("nan"), float("inf"), -float("inf"), 0.0, 2.0]).view(1, 1, 1, 6).requires_grad_()
    w = torch.ones(1, 1, 1, 1, requires_grad=True)
    results = []
    for function in (lambda: mt.conv2d(x, w, activation="relu", algorithm="direct"), lambda: F.conv2d(x, w).relu()):
        out = function()
        results.append((out.detach(), *torch.autograd.grad(out, x, torch.full_like(out, 3.0))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=0, atol=0)


def test_transformations_traces_and_layers_without_float32_go_by_the_parts():
    layer = mt.Conv2d(3, 4, 3, activation="relu", padding="same", padding_mode="reflect")
    x = torch.rand(2, 3, 5, 6)
    parts = nn.Sequential(nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), nn.ReLU())
    parts[0].load_state_dict(layer.state_dict())
    close(layer(x), parts.double()(x.double()))
    assert layer.double()(x.double()).min() == 0
    w = torch.rand(4, 3, 3, 3) - 0.5
    batched = torch.func.vmap(lambda x: mt.conv2d(x, w, activation="relu"))(x[:, None])
    close(batched[:, 0], F.conv2d(x.double(), w.double()).relu())
    traced = fx.symbolic_trace(mt.replace(nn.Sequential(conv(3), nn.ReLU())))
    assert next(node.target for node in traced.graph.nodes if node.op == "call_function") is mt.conv2d
    with pytest.raises(ShapeError, match="activation must be 'relu' or None"):
        mt.conv2d(x, w, activation="gelu")
    with pytest.raises(ShapeError, match="activation must be 'relu' or None"):
        mt.Conv2d(3, 4, 3, activation="gelu")


def test_an_optimized_layer_keeps_its_activation():
    torch.manual_seed(9)
    model = nn.Sequential(mt.Conv2d(4, 4, 3, padding=1, activation="relu"), nn.BatchNorm2d(4)).eval()
    x = torch.rand(2, 4, 5, 6) - 0.5
    optimized = mt.optimize(model)
    with torch.no_grad():
        close(optimized(x), model(x).double())
    assert [str(one) for one in optimized.report.fused] == ["0: ReLU"] and list(optimized.report.left) == ["1"]


def test_replaced_sequences_apply_relu_in_the_kernel_and_nobody_can_tell(fused):
    torch.manual_seed(10)
    stock = nn.Sequential(conv(3), nn.ReLU(inplace=True), conv(), nn.BatchNorm2d(4), nn.ReLU(), conv(), nn.ReLU(),
                          nn.Sequential(conv(), nn.Tanh()))
    own = mt.replace(copy.deepcopy(stock))
    assert type(own) is mt.Sequential and type(own[7]) is nn.Sequential, "only what has something to fuse"
    x, right = torch.rand(2, 3, 5, 6), copy.deepcopy(stock).double()
    for model, given in ((own, x), (right, x.double())):
        model(given).square().sum().backward()
    assert fused == ["relu"] * 2
    close([p.grad for p in own.parameters()], [p.grad for p in right.parameters()], 1e-5)
    close(own.eval()(x).detach(), right.eval()(x.double()).detach())
    assert fused == ["relu"] * 4
    assert own[0](x).min() < 0 and type(own[:2]) is mt.Sequential, "a layer by itself does what it did"
    for at, sees in ((0, False), (1, True)):
        seen = []
        handle = own[at].register_forward_hook(lambda module, given, out, seen=seen: seen.append(out.clone()))
        own(x)
        assert len(seen) == 1 and (seen[0].min() >= 0) == sees, "hooks see what they saw"
        handle.remove()
    same(own, x)


def test_a_frozen_sequence_keeps_filters_and_applies_relu(fused):
    own = mt.replace(nn.Sequential(conv(), nn.ReLU()).eval(), frozen=True)
    right, x = copy.deepcopy(own).double(), torch.rand(2, 4, 5, 6)
    with torch.no_grad():
        for _ in range(3):
            close(own(x), right(x.double()))
    assert len(fused) == 1, "from the second call on by filters that are kept"


def test_activations_are_pytorchs_by_name():
    x = torch.linspace(-12, 12, 1001, dtype=torch.float64)
    for name in ACTIVATIONS[1:]:
        assert abs(activated(name, x.numpy()) - THEIRS[name](x).numpy()).max() < 1e-13, name
