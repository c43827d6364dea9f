"""The layers of a model, for tuning."""

import pytest
import torch
from torch import nn

import maxdnn.torch as mt
from maxdnn import ConvShape, tune
from maxdnn.errors import ShapeError
from maxdnn.planning import records
from maxdnn.runtime import engine
from maxdnn.torch import products, running
from maxdnn.torch.fused import Attention
from maxdnn.torch.shapes import layers
from tests.card import Card


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path))
    monkeypatch.setenv("MAXDNN_TUNED", "1")
    records._recalled.table.clear()
    yield
    records._recalled.table.clear()


def test_every_layer_that_runs_is_found_with_the_size_it_runs_at():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding="same", bias=False), nn.Conv2d(8, 6, (2, 4), padding="same"),
                          nn.Conv2d(6, 4, 3, 2, 1, padding_mode="reflect"), nn.Conv2d(4, 4, 1, groups=2).double())
    found = []
    with pytest.raises(RuntimeError):
        found = layers(model, torch.rand(2, 8, 6, 5))  # the last layer's dtype does not fit
    found = layers(model[:3], torch.rand(2, 8, 6, 5))
    assert [(one.shape, one.bias) for one in found] == [
        (ConvShape(2, 8, 6, 5, 8, 3, 3, 1, 1), False), (ConvShape(2, 8, 7, 6, 6, 2, 4, 1, (0, 1)), True),
        (ConvShape(2, 6, 8, 7, 4, 3, 3, 2), True)]
    assert not any(m._forward_pre_hooks for m in model.modules())


class Every(nn.Module):
    """Layers of each kind, and what they are given."""

    def __init__(self):
        super().__init__()
        self.row, self.back = nn.Conv1d(4, 6, 3, 2, padding=1, groups=2), nn.ConvTranspose1d(6, 4, 3, 2)
        self.up = nn.ConvTranspose2d(4, 6, (3, 2), 2, (1, 0), groups=2, bias=False)
        self.same = nn.Conv1d(4, 4, 4, padding="same", padding_mode="reflect")
        self.mixed, self.last = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 5)

    def forward(self, x):
        x = self.same(self.back(self.row(x)))
        x = self.up(x.unsqueeze(-2), output_size=[2, 2 * x.shape[-1]]).flatten(2).mT
        return self.last(self.mixed(x, x, x)[0])


@pytest.mark.torch
def test_what_a_model_s_layers_run_by_is_what_is_tuned(monkeypatch):
    """Forward and back: problems that `tune` finds are those that the layers ask for, but for the last step."""
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    torch.manual_seed(13)
    model, x = Every(), torch.rand(2, 4, 9)
    found = {(p.kind, p.shape, p.layout) for one in layers(model, x) for kind in ("forward", "data", "filters")
             for p in [one.problem(kind)]}
    asked = set()
    own = mt.replace(model, lambda _: None)
    attention = next(m for m in own.modules() if isinstance(m, nn.MultiheadAttention))
    attention.__class__ = Attention
    monkeypatch.setattr(attention, "forward", lambda *x: Attention.forward(attention, *x, need_weights=False))
    engine.watchers.append(lambda plan: asked.add((plan.problem.kind, plan.problem.shape, plan.problem.layout)))
    try:
        own(x.requires_grad_()).sum().backward()
    finally:
        engine.watchers.pop()
    assert asked == found and len(found) == 3 * 7


def test_the_layers_of_a_model_are_tuned_once_each():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1))
    found = tune(model, torch.rand(2, 8, 5, 5), device=Card(), seconds=600)
    assert [t.problem.shape for t in found] == [ConvShape(2, 8, 5, 5, 8, 3, 3, 1, 1), ConvShape(2, 8, 5, 5, 4, 1, 1)]
    assert not running._plans  # what a module does next is chosen anew
    assert all(t.problem.layout == "NCHW" and "bias" in t.problem.roles for t in found)
    with pytest.raises(ShapeError, match="a convolution, or a linear layer of some size, in float32"):
        tune(nn.ReLU(), torch.rand(3), device=Card())
    with pytest.raises(ShapeError, match="example must be an input of the model"):
        tune(model)
