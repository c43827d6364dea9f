"""Tensors whose channels lie innermost: read and written so in all passes, without a copy by PyTorch."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import maxdnn.torch as mt
from maxdnn.torch import running
from maxdnn.torch.shapes import layers

from .test_conv2d import close, tensors

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]
LAST = torch.channels_last
CASES = [((2, 8, 5, 6), (12, 8, 1, 1), {}), ((2, 8, 5, 6), (12, 8, 3, 3), {"padding": 1}),
         ((1, 6, 7, 7), (8, 3, 3, 3), {"stride": 2, "padding": 1, "groups": 2}),
         ((2, 8, 6, 6), (8, 1, 3, 3), {"padding": 1, "groups": 8}), ((1, 3, 11, 11), (4, 3, 5, 5), {"dilation": 2})]


def last(x):
    return x.is_contiguous(memory_format=LAST)


@pytest.fixture
def uncopied(monkeypatch):
    """Nothing turns a tensor but the plans."""
    def refused(*args, **how):
        raise AssertionError("a copy")
    for name in ("contiguous", "clone", "copy_", "to"):
        monkeypatch.setattr(torch.Tensor, name, refused)


@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("which", ["both", "input", "weight"])
@pytest.mark.parametrize(("shape", "filters", "options"), CASES, ids=str)
def test_outputs_and_gradients_lie_as_pytorchs_do(shape, filters, options, which, with_bias, request):
    x, w, b = tensors(shape, filters, filters[:1])
    x, w = (t.to(memory_format=LAST) if which in ("both", name) else t for t, name in ((x, "input"), (w, "weight")))
    x, w, b = given = [t.requires_grad_() for t in (x, w, b)]
    doubles = [t.detach().double().requires_grad_() for t in given]
    wanted = F.conv2d(*doubles[:2], doubles[2] if with_bias else None, **options)
    weights = torch.rand(wanted.shape)
    weights = weights.to(memory_format=LAST) if last(wanted) else weights
    right = torch.autograd.grad(wanted, doubles[:2 + with_bias], weights.double())
    request.getfixturevalue("uncopied")
    out = mt.conv2d(x, w, b if with_bias else None, **options)
    found = torch.autograd.grad(out, given[:2 + with_bias], weights)
    request.getfixturevalue("monkeypatch").undo()
    ways = which != "weight" or not w.is_contiguous()  # filters of one tap or channel lie both ways
    for ours, theirs in ((out, wanted), *zip(found, right, strict=True)):
        close(ours, theirs)
        if ways and ours.dim() == 4:
            assert last(ours)


def test_contiguous_tensors_get_the_plans_they_got():
    running._plans.clear()
    x, w = tensors((2, 8, 6, 6), (16, 8, 3, 3))
    before = mt.conv2d(x, w)
    mt.conv2d(x.to(memory_format=LAST), w)
    first, second = running._plans.values()
    assert first.problem.operand("images").strides is None and second.problem.operand("images").strides
    assert torch.equal(mt.conv2d(x, w), before) and mt.conv2d(x, w).is_contiguous()


def test_tracing_sees_the_memory_format():
    x, w = tensors((2, 8, 6, 6), (16, 8, 3, 3))
    x = x.to(memory_format=LAST)
    torch.library.opcheck(torch.ops.maxdnn.conv2d.default, (x, w, None, (1, 1), (1, 1), (1, 1), 1),
                          test_utils=("test_schema", "test_faketensor"))
    g = torch.rand(2, 16, 6, 6).to(memory_format=LAST)
    for operator, given in (("conv2d_input", (g, w)), ("conv2d_weight", (g, x))):
        size = (6, 6) if operator == "conv2d_input" else (3, 3)
        torch.library.opcheck(getattr(torch.ops.maxdnn, operator).default, (*given, size, (1, 1), (1, 1), (1, 1), 1),
                              test_utils=("test_schema", "test_faketensor"))


def test_a_network_stays_channels_last():
    """Between its layers, too: nothing but convolutions, batch norms and sums meets a map."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                                torch.nn.Conv2d(8, 8, 1)).to(memory_format=LAST)
    x = torch.rand(2, 4, 6, 6).to(memory_format=LAST)
    wanted = model.double()(x.double())
    mt.replace(model.float())

    class Copies(TorchDispatchMode):
        seen: list = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(function.overloadpacket)
            return function(*args, **(kwargs or {}))
    with Copies() as copies:
        out = model(x)
    close(out, wanted)
    assert last(out) and not {torch.ops.aten.clone, torch.ops.aten.copy_, torch.ops.aten.contiguous} & {*copies.seen}
    out.square().sum().backward()
    assert last(model[0].weight.grad)


@pytest.mark.parametrize("transposed", [False, True])
def test_tune_measures_the_problems_that_calls_are(transposed):
    """All passes, with the memory formats of the example and the weights."""
    layer = (mt.ConvTranspose2d if transposed else mt.Conv2d)(8, 16, 3, padding=1).to(memory_format=LAST)
    x = torch.rand(2, 8, 6, 5).to(memory_format=LAST).requires_grad_()
    running._plans.clear()
    layer(x).square().sum().backward()
    met = {plan.problem.kind: plan.problem.operands for plan in running._plans.values()}
    (found,) = layers(layer, x)
    for kind in ("forward", "data", "filters"):
        problem = found.problem(kind)
        assert {*problem.operands} == {*met[problem.kind]}, kind
