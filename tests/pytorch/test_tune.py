"""The layers of a model, for tuning."""

import pytest
import torch
from torch import nn

from maxdnn import ConvShape, tune
from maxdnn.errors import ShapeError
from maxdnn.planning import records
from maxdnn.torch import running
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
    assert found == [(ConvShape(2, 8, 6, 5, 8, 3, 3, 1, 1), False), (ConvShape(2, 8, 7, 6, 6, 2, 4, 1, (0, 1)), True),
                     (ConvShape(2, 6, 8, 7, 4, 3, 3, 2), True)]
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_the_layers_of_a_model_are_tuned_once_each():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1))
    found = tune(model, torch.rand(2, 8, 5, 5), device=Card(), seconds=600)
    assert [t.problem.shape for t in found] == [ConvShape(2, 8, 5, 5, 8, 3, 3, 1, 1), ConvShape(2, 8, 5, 5, 4, 1, 1)]
    assert not running._plans  # what a module does next is chosen anew
    assert all(t.problem.layout == "NCHW" and "bias" in t.problem.roles for t in found)
    with pytest.raises(ShapeError, match="a convolution in float32"):
        tune(nn.ReLU(), torch.rand(3), device=Card())
    with pytest.raises(ShapeError, match="example must be an input of the model"):
        tune(model)
