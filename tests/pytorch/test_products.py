"""Linear layers and attention by this library's products."""

import copy
import sys
from types import ModuleType

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import maxdnn.torch as mt
from maxdnn.errors import ShapeError
from maxdnn.torch import products, running
from tests.card import Card

from .graphs import Call, close, conv, randomized, same

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    """Products of one multiplication are ours, too; the fixture is a list of those that ran."""
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    ran, real = [], products.matmul
    monkeypatch.setattr(products, "matmul", lambda *given, **how: ran.append(how["arithmetic"]) or real(*given, **how))
    return ran


def leaves(*sizes):
    torch.manual_seed(6)
    return [(torch.rand(size) - 0.5).requires_grad_() for size in sizes]


@pytest.mark.parametrize("rows", [(7,), (2, 3), ()], ids=str)
def test_a_linear_layer_and_its_derivatives_are_products(rows, of_any_size):
    given = leaves((*rows, 6), (5, 6), (5,))
    doubles = [t.detach().double().requires_grad_() for t in given]
    out, wanted = mt.linear(*given, arithmetic="ffma"), F.linear(*doubles)
    close(out, wanted)
    found = torch.autograd.grad(out.square().sum(), given, create_graph=True)
    right = torch.autograd.grad(wanted.square().sum(), doubles, create_graph=True)
    close(found, right)
    assert of_any_size == ["ffma"] * 3, "forward, of the input, of the weights"
    for one, other in zip(given, doubles, strict=True):
        one.grad = other.grad = None
    sum((x ** 3).sum() for x in found).backward()
    sum((x ** 3).sum() for x in right).backward()
    close([x.grad for x in given], [x.grad for x in doubles], 1e-5)


@pytest.mark.filterwarnings("ignore:Input #")  # is float32
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_products_have_products_as_derivatives(turned):
    a, b = (t.detach().T.contiguous().requires_grad_() if transpose else t
            for t, transpose in zip(leaves((3, 4), (4, 5)), turned, strict=True))
    assert torch.autograd.gradcheck(lambda *x: torch.ops.maxdnn.product(*x, *turned), (a, b), eps=1e-2, atol=1e-3)
    torch.library.opcheck(torch.ops.maxdnn.product.default, (a, b, *turned))


def test_a_step_of_training_of_a_replaced_model_is_pytorchs(of_any_size):
    torch.manual_seed(7)
    stock = nn.Sequential(conv(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 6), nn.GELU(), nn.Linear(6, 2, bias=False))
    own, told = copy.deepcopy(stock), []
    mt.replace(own, told.append, arithmetic="ffma")
    assert told[0].swapped == ("0", "3", "5") and type(own[3]) is mt.Linear and own[3].arithmetic == "ffma"
    right, x = copy.deepcopy(stock).double(), torch.rand(2, 3, 4, 3)
    for model, given in ((own, x), (right, x.double())):
        model(given).square().sum().backward()
    close([p.grad for p in own.parameters()], [p.grad for p in right.parameters()], 1e-5)
    assert of_any_size == ["ffma"] * 6
    assert own.state_dict().keys() == stock.state_dict().keys()


def test_what_is_no_float32_is_pytorchs(of_any_size):
    layer = mt.replace(nn.Linear(4, 3)).double()
    assert layer(torch.rand(2, 4).double()).dtype is torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert mt.linear(torch.rand(2, 4), torch.rand(3, 4)).dtype is torch.bfloat16
    assert mt.linear(torch.rand(0, 4), torch.rand(3, 4)).shape == (0, 3)
    torch.func.vmap(mt.linear)(torch.rand(2, 3, 4), torch.rand(2, 5, 4))
    assert not of_any_size
    with pytest.raises(ShapeError, match="arithmetic must be"):
        mt.Linear(3, 4, arithmetic="tf32")


class Tokens(nn.Module):
    def __init__(self, batch_first=True, bias=True):
        super().__init__()
        self.mixed = nn.MultiheadAttention(8, 2, batch_first=batch_first, bias=bias, dropout=0.1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-0.5, 0.5)

    def forward(self, x):
        mixed, _ = self.mixed(x, x, x, need_weights=False)
        return mixed + x


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_projections_of_attention_are_products(batch_first, bias, of_any_size):
    optimized = same(Tokens(batch_first, bias).eval(), torch.rand(3, 5, 8), calls=1)
    assert len(of_any_size) == 2 and optimized.report.linear == ("mixed",) and not optimized.report.left


def test_other_attention_is_pytorchs(of_any_size):
    inner = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, mask = torch.rand(2, 5, 8), (torch.rand(5, 5) > 0.5).fill_diagonal_(False)  # each row sees itself
    layer = mt.optimize(Call(lambda m, x: m.a(x, x, x), a=inner).eval())
    with torch.no_grad():
        torch.testing.assert_close(layer(x), inner(x, x, x))
        for how in ({}, {"need_weights": False, "attn_mask": mask}, {"need_weights": False, "is_causal": True,
                                                                     "attn_mask": mask}):
            own = next(m for m in layer.modules() if isinstance(m, nn.MultiheadAttention))
            torch.testing.assert_close(own(x, x, x, **how), inner(x, x, x, **how))
        torch.testing.assert_close(own(x, x.clone(), x, need_weights=False), inner(x, x.clone(), x, need_weights=False))
    assert not of_any_size
    told = []
    mt.replace(Tokens(), told.append)
    assert told[0].left == {"mixed.out_proj": "the attention that it is a part of computes it"}


def test_stochastic_depth_is_gone_and_the_sum_behind_it_is_fused(monkeypatch):
    """As torchvision has it."""
    home = ModuleType("torchvision.ops.stochastic_depth")
    exec("def stochastic_depth(input, p, mode, training=True):\n    return input", home.__dict__)
    monkeypatch.setitem(sys.modules, home.__name__, home)
    monkeypatch.setitem(globals(), "drop", home.stochastic_depth)
    fx._symbolic_trace._wrapped_fns_to_patch[id(globals()), "drop"] = globals()  # fx.wrap
    try:
        model = randomized(Call(lambda m, x: globals()["drop"](m.b(m.a(x)), 0.2, "row", m.training) + x,
                                a=conv(), b=nn.BatchNorm2d(4)))
        report = same(model, torch.rand(2, 4, 5, 6)).report
    finally:
        del fx._symbolic_trace._wrapped_fns_to_patch[id(globals()), "drop"]
    assert [str(one) for one in report.fused] == ["a: batch norm b, sum with x"] and len(report.removed) == 1


def test_a_product_on_a_gpu_is_planned_once_and_goes_where_its_matrices_lie(monkeypatch):
    """As far as that goes without one: what is launched, for matrices that begin anywhere."""
    launched, card = [], Card()
    monkeypatch.setattr(running, "device_of", lambda where: (card, 16))
    monkeypatch.setattr(running, "launch", lambda plan, on, out, places: launched.append((plan, places)))
    room = torch.rand(1000)
    a, b, out = room[:60].view(6, 10), room[256:326].view(7, 10), room[512:554].view(6, 7)
    for _ in range(2):
        products._launch(a, b, False, True, out, True, "auto")
    products._launch(room[1:61].view(6, 10), b, False, True, out, True, "auto")
    products._launch(b, a, False, True, room[600:642].view(7, 6), False, "ffma")
    plans = [plan for plan, _ in launched]
    assert plans[0] is plans[1] and plans[0] is not plans[2]
    assert [plan.problem.reads_out for plan in plans] == [True, True, True, False]
    assert launched[0][1] == {"a": a.data_ptr(), "b": b.data_ptr(), "out": out.data_ptr()}
    shape = plans[0].problem.shape
    assert (shape.M, shape.N, shape.K, plans[0].problem.layout) == (6, 7, 10, "nt")
    assert (plans[3].problem.shape.M, plans[3].arithmetic) == (7, "FFMA")
