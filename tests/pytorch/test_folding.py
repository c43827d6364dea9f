"""Batch norms in the weights of layers with one axis, and of transposed ones."""

import copy

import pytest
import torch
from torch import nn

import maxdnn.torch as mt
from maxdnn.errors import ShapeError

from .graphs import Call, close, exactly, same

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]
LAYERS = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, 2, "valid", bias=False), nn.BatchNorm1d, (2, 4, 9)),
    "grouped": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2, padding_mode="circular"), nn.BatchNorm1d, (2, 4, 9)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2, groups=2), nn.BatchNorm1d, (2, 4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, bias=False), nn.BatchNorm2d, (2, 4, 4, 3)),
    "transposed groups": (lambda: nn.ConvTranspose2d(4, 6, 2, 2, groups=2), nn.BatchNorm2d, (2, 4, 4, 3)),
}


def normed(layer, norm, affine=True):
    torch.manual_seed(11)
    made = norm(6, affine=affine)
    with torch.no_grad():
        made.running_mean.uniform_(-0.5, 0.5)
        made.running_var.uniform_(0.5, 2)
        for p in made.parameters():
            p.uniform_(0.5, 1.5)
    return nn.Sequential(layer, made, nn.ReLU()).eval()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_norm_is_in_the_weights(name, affine):
    made, norm, size = LAYERS[name]
    model, x = normed(made(), norm, affine), torch.rand(size) - 0.5
    before = copy.deepcopy(model.state_dict())
    for given in (model, mt.replace(copy.deepcopy(model))):
        optimized = same(given, x)
        assert [str(one) for one in optimized.report.fused] == ["0: batch norm 1"] and not optimized.report.left
        assert not any(isinstance(m, norm) for m in optimized.modules())
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("name", ["Conv1d", "ConvTranspose2d", "transposed groups"])
def test_so_it_is_of_exported_programs(name, decomposed):
    made, norm, size = LAYERS[name]
    model, x = normed(made(), norm), torch.rand(size) - 0.5
    program = torch.export.export(model, (x,))
    optimized = mt.optimize(program.run_decompositions() if decomposed else program)
    with torch.no_grad():
        close(optimized(x), exactly(model, x))
    assert [one.batch_norm for one in optimized.report.fused] == ["1"]


def test_what_does_not_fit_stays():
    torch.manual_seed(12)
    twice = Call(lambda m, x: m.b(m.a(x)) + m.a(x), a=nn.Conv1d(4, 4, 3, padding=1), b=nn.BatchNorm1d(4)).eval()
    used = Call(lambda m, x: (y := m.a(x)) + m.b(y), a=nn.Conv1d(4, 4, 3, padding=1), b=nn.BatchNorm1d(4)).eval()
    other = Call(lambda m, x: m.b(m.a(x)), a=nn.Linear(5, 5), b=nn.BatchNorm1d(4)).eval()
    x = torch.rand(2, 4, 5)
    assert "b" not in same(twice, x).report.left, "each call has weights of its own"
    assert "b" in same(used, x).report.left
    assert same(other, x).report.left == {"b": "it is not directly behind a convolution"}
    nan = normed(nn.ConvTranspose2d(4, 6, 2), nn.BatchNorm2d)
    nan[1].running_var[0] = float("inf")
    nan[1].weight.data[0] = float("inf")
    assert mt.optimize(nan).report.left["1"] == "its factors are not finite"


def test_a_folded_layer_with_one_axis_wants_a_batch():
    optimized = mt.optimize(normed(nn.Conv1d(4, 6, 1), nn.BatchNorm1d))
    with pytest.raises(ShapeError, match="input must have 3 axes, with a batch"):
        optimized(torch.rand(4, 6))
