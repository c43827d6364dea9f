"""Which arithmetic is asked for, and which ran."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import maxdnn
import maxdnn.torch as mt
from maxdnn import product
from maxdnn.planning.select import MAX_ERROR
from maxdnn.runtime import engine
from maxdnn.runtime.remember import Table
from maxdnn.torch import backend, kept_filters, products, running
from tests.algorithms.test_tensor_cores import multiplied
from tests.card import Card
from tests.sass.native import H200

from .graphs import Call, conv

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]
X = torch.rand(1, 4, 5, 5)


@pytest.fixture
def asked(monkeypatch):
    """What the arithmetic of each new plan was to be."""
    found = []

    def noting(real, at):
        def choose(*given, **options):
            found.append(given[at] if len(given) > at else options["arithmetic"])
            return real(*given, **options)
        return choose
    monkeypatch.setattr(running, "_plans", Table(1 << 20))
    monkeypatch.setattr(running, "frontend", SimpleNamespace(chosen=noting(running.frontend.chosen, 6)))
    monkeypatch.setattr(product, "choose", noting(product.choose, 9))
    product._chosen.table.clear()
    product._seen.clear()
    return found


@pytest.mark.parametrize("arithmetic", ["auto", "ffma"])
def test_a_convolution_and_its_derivatives_are_computed_as_asked(asked, arithmetic):
    w = torch.rand(4, 4, 3, 3, requires_grad=True)
    x = X.clone().requires_grad_()
    torch.autograd.grad(mt.conv2d(x, w, arithmetic=arithmetic).sum(), (x, w))
    assert asked == [arithmetic] * 3


@pytest.mark.parametrize("made", [
    lambda model: mt.replace(model, arithmetic="ffma"), lambda model: mt.replace(model, frozen=True, arithmetic="ffma"),
    lambda model: mt.optimize(model, arithmetic="ffma"),
    lambda model: torch.compile(model, backend=backend.maxdnn, options={"arithmetic": "ffma"}),
    lambda model: nn.Sequential(mt.Conv2d(4, 4, 3, padding=1, arithmetic="ffma"), *model[1:])],
    ids=["replace", "frozen", "optimize", "compile", "Conv2d"])
def test_whole_networks_are_computed_as_asked(asked, monkeypatch, made):
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    model = made(nn.Sequential(conv(), nn.ReLU(), nn.Flatten(), nn.Linear(100, 8)).eval())
    with torch.no_grad():
        for _ in range(3):  # by the third call filters are kept
            model(X)
    assert asked and set(asked) == {"ffma"}


def test_linear_layers_that_no_graph_holds_are_computed_as_asked(asked, monkeypatch):
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)

    class Untraced(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) if x.sum() > -1e9 else x
    with torch.no_grad():
        mt.optimize(Untraced().eval(), arithmetic="ffma")(torch.rand(2, 4))
    assert asked == ["ffma"]


@pytest.mark.parametrize("call", [
    lambda how: mt.conv2d(X, torch.rand(4, 4, 3, 3), arithmetic=how), lambda how: mt.Conv2d(4, 4, 3, arithmetic=how),
    lambda how: mt.replace(conv(), arithmetic=how), lambda how: mt.optimize(conv().eval(), arithmetic=how)])
def test_what_is_no_arithmetic_is_refused(call):
    with pytest.raises(maxdnn.ShapeError, match="arithmetic must be one of auto, ffma"):
        call("tf32")


def test_a_gpu_with_tensor_cores_gets_other_plans():
    """Of a layer whose products of Winograd tensor cores compute in less time."""
    card = Card()
    card.chip = H200
    x, w = torch.empty(32, 512, 14, 14), torch.empty(512, 512, 3, 3)
    found = [running.plan_of("forward", {"images": x, "filters": w}, x.shape, w.shape,
                             ((1, 1), (1, 1), (1, 1), 1, "auto", MAX_ERROR, arithmetic), card).arithmetic
             for arithmetic in ("auto", "ffma")]
    assert "tensor cores" in found[0] and found[1] == "FFMA"


def test_what_ran_is_said_by_layer(monkeypatch):
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    model = nn.Sequential(conv(), nn.ReLU(), nn.Flatten(), nn.Linear(100, 8)).eval()
    optimized, replaced = mt.optimize(model), mt.replace(nn.Sequential(conv(), conv()))
    found = mt.ran(replaced, X)
    assert found.arithmetic == {"0": "FFMA", "1": "FFMA"} and found.plans["0"][0].problem.shape.H == 5
    for _ in range(3):  # by the third call filters are kept
        found = mt.ran(optimized, X)
        assert [name.rpartition(".")[2] for name in found.plans] == ["0", "3"]
        assert all(len(plans) == 1 for plans in found.plans.values()), "of preparing filters nothing is said"
    assert str(found).count("float32 by FFMA") == 2
    outside = mt.ran(Call(lambda m, x: mt.conv2d(x, m.a.weight), a=conv()), X)
    assert str(outside).startswith("outside of layers: ") and len(outside.plans[""]) == 1
    layer = mt.replace(conv())
    with torch.autocast("cpu", torch.bfloat16):
        assert mt.ran(layer, X).arithmetic == {"Conv2d": "PyTorch"}
    assert not engine.watchers and not layer._forward_hooks and not layer._forward_pre_hooks


def test_a_call_that_fails_leaves_nobody_watching():
    layer = mt.replace(conv())
    with pytest.raises(RuntimeError):
        mt.ran(layer, torch.rand(1, 3, 5, 5).double())
    assert not engine.watchers and not layer._forward_hooks


def test_balanced_weights_are_a_unit_larger_where_that_is_rounding():
    weights = torch.randn(1000, 64)
    made = kept_filters.balanced(weights)
    larger = torch.nextafter(weights, weights.sign() * torch.inf)
    assert torch.equal(made, torch.where(weights.view(torch.int32) & 0xFFF != 0, larger, weights))
    assert 0.8e-7 < (made.double() / weights.double() - 1).mean() < 0.92e-7
    same = torch.tensor([0, -0.0, 1, -3, 4095, 0.125, 1.1 * 2.0 ** 100, 3.4e38, 1e-40, 1e-45, torch.inf,
                         -torch.inf, torch.nan])
    same[-1:].view(torch.int32).fill_(0x7FFFFFFF)
    assert torch.equal(kept_filters.balanced(same).view(torch.int32), same.view(torch.int32))


@pytest.mark.parametrize("k", [64, 576])
def test_products_of_balanced_weights_have_no_common_factor(k):
    """On the virtual H200, whose tensor cores cut as those of the card do."""
    weights, maps = torch.randn(128, k), torch.randn(k, 128).relu()
    wanted, factors = weights.double() @ maps.double(), []
    for given in (weights, kept_filters.balanced(weights)):
        found = torch.from_numpy(multiplied(given.numpy(), maps.numpy())).double()
        factors.append(((found * wanted).sum() / wanted.square().sum() - 1).item())
    assert factors[0] < -7e-8 and abs(factors[1]) < 2e-8
