"""torch.compile(model, backend="maxdnn")."""

import copy
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.backends import registry
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.torch.backend import maxdnn as backend

from .graphs import Call, close, conv, exactly, randomized

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]
X = (2, 4, 5, 6)


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network():
    torch.manual_seed(6)
    return randomized(Call(lambda m, x: F.relu(m.d(m.c(F.relu(m.b(m.a(x))))) + x), a=conv(bias=False),
                           b=nn.BatchNorm2d(4), c=conv(), d=nn.BatchNorm2d(4)))


def test_it_is_found_by_its_name_and_fuses_what_optimize_fuses(monkeypatch):
    project = tomllib.loads((Path(maxdnn.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    (name, place), = project["entry-points"]["torch_dynamo_backends"].items()
    assert name == "maxdnn"
    monkeypatch.setitem(registry._BACKENDS, name, EntryPoint(name, place, "torch_dynamo_backends"))
    model, reports = network(), []
    compiled = torch.compile(model, backend="maxdnn", fullgraph=True, options={"report": reports.append})
    x = torch.rand(X) - 0.5
    with torch.no_grad():
        for _ in range(3):
            close(compiled(x), exactly(model, x))
    (report,) = reports
    what = [(bool(one.batch_norm), bool(one.adds), one.relu) for one in report.fused]
    own = mt.optimize(model).report
    assert what == [(bool(one.batch_norm), bool(one.adds), one.relu) for one in own.fused] == [
        (True, False, True), (True, True, True)]
    assert not report.left


def test_weights_that_change_are_used():
    model = network()
    compiled = torch.compile(model, backend=backend)
    x = torch.rand(X) - 0.5

    def check():
        with torch.no_grad():
            for _ in range(3):
                close(compiled(x), exactly(model, x))
    check()
    with torch.no_grad():
        model.b.running_mean.add_(1)
        check()
        model.c.weight.mul_(-2)
        check()
        model.load_state_dict(randomized(copy.deepcopy(model)).state_dict())
        check()
        before = model.a.weight
        kept = before.clone()
        model.a.weight = nn.Parameter(torch.rand_like(before))
        check()
        model.c.bias.data = torch.rand(4)
        check()
    assert torch.equal(before, kept), "weights that were replaced are not written"


def test_maps_of_any_size():
    model, made = network(), []
    compiled = torch.compile(model, backend=backend, options={"report": made.append})
    with torch.no_grad():
        for size in ((2, 4, 5, 6), (3, 4, 5, 6), (4, 4, 7, 9), (2, 4, 7, 9), (5, 4, 8, 8)):
            x = torch.rand(size) - 0.5
            close(compiled(x), exactly(model, x))
    assert len(made) <= 3 and all(one.batch_norm for one in made[-1].fused)
    torch._dynamo.reset()
    made.clear()
    compiled = torch.compile(model, backend=backend, dynamic=True, options={"report": made.append})
    with torch.no_grad():
        close(compiled(x), exactly(model, x))
    assert "its eps may be another at each call" in made[0].left.values()


def test_training_is_left_to_pytorch_in_words():
    model = network()
    compiled = torch.compile(model, backend=backend)
    x = torch.rand(X) - 0.5
    with pytest.warns(UserWarning, match=r"is for inference, and derivatives are wanted(.|\n)*inference_mode"):
        out = compiled(x)
    out.square().sum().backward()
    found = model.a.weight.grad.clone()
    other = copy.deepcopy(model).double()
    other.zero_grad()
    other(x.double()).square().sum().backward()
    close(found, other.a.weight.grad, 1e-5)
    with torch.no_grad():
        close(compiled(x), exactly(model, x))


def test_inference_mode_and_options():
    model, reports = network(), []
    compiled = torch.compile(model, backend=backend, options={"algorithm": "direct", "report": reports.append})
    x = torch.rand(X) - 0.5
    with torch.inference_mode():
        for _ in range(3):
            close(compiled(x), exactly(model, x))
    assert all(one.relu for one in reports[0].fused)
    for wrong in ({"algorithm": "fourier"}, {"speed": 2}):
        with pytest.raises(Exception, match=r"(algorithm|options) must be"), torch.no_grad():
            torch._dynamo.reset()
            torch.compile(network(), backend=backend, options=wrong)(x)


def test_replaced_models_and_maps_that_are_read_later():
    model = randomized(Call(_read_later, a=conv(), b=conv()))
    x = torch.rand(X) - 0.5
    for each in (model, mt.replace(copy.deepcopy(model))):
        torch._dynamo.reset()
        compiled = torch.compile(each, backend=backend)
        with torch.no_grad():
            for _ in range(3):
                close(compiled(x), exactly(model, x))


def _read_later(model, x):
    y = model.a(x)
    z = F.relu(model.b(x) + y)
    y += 1
    return z, y
