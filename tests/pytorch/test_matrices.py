"""Products of matrices inside optimized, compiled and exported networks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn.torch as mt
from maxdnn.torch import matrices, products, running
from tests.card import Card

from .graphs import Call, close, exactly, same

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


@pytest.fixture(autouse=True)
def ran(monkeypatch):
    """Products of one multiplication are ours, too; a list of how each of those that ran read its operands."""
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    found, real = [], products.matmul
    monkeypatch.setattr(products, "matmul", lambda *given, **how: found.append(
        "nt"[how["transpose_a"]] + "nt"[how["transpose_b"]]) or real(*given, **how))
    torch.manual_seed(27)
    return found


def halves(*size):
    return torch.rand(size) - 0.5


class Two(nn.Module):
    """Two tensors and a function of them."""

    def __init__(self, does):
        super().__init__()
        self.does = does

    def forward(self, a, b):
        return self.does(a, b)


FORMS = {
    "@": (lambda a, b: a @ b, (3, 4, 5), (3, 5, 6), "nn"),
    "matmul": (lambda a, b: torch.matmul(a, other=b), (4, 5), (5, 6), "nn"),
    "method": (lambda a, b: a.matmul(b), (2, 3, 4, 5), (5, 6), "nn"),
    "scores": (lambda a, b: a @ b.transpose(-2, -1), (2, 3, 4, 5), (2, 3, 6, 5), "nt"),
    "turned": (lambda a, b: torch.matmul(a.mT, b), (2, 5, 4), (2, 5, 6), "tn"),
    "of all": (lambda a, b: a @ b, (2, 1, 4, 5), (3, 5, 6), "nn"),
    "mm": (lambda a, b: torch.mm(a, b.t()), (4, 5), (6, 5), "nt"),
    "bmm": (lambda a, b: a.bmm(b), (3, 4, 5), (3, 5, 6), "nn"),
    "addmm": (lambda a, b: torch.addmm(a[0, :1] * 2, a, b, beta=0.5, alpha=-3), (4, 5), (5, 6), "nn"),
    "a sum of zero": (lambda a, b: torch.addmm(a[0, :1] / 0, a, b, beta=0, alpha=2), (4, 5), (5, 6), "nn"),
    "baddbmm": (lambda a, b: torch.baddbmm(a[:, :1, :1], a, b, alpha=2), (3, 4, 5), (3, 5, 6), "nn"),
}


@pytest.mark.parametrize("form", FORMS)
def test_products_of_matrices_are_ours(form, ran):
    does, size_a, size_b, read = FORMS[form]
    given = halves(*size_a), halves(*size_b)
    report = same(Two(does).eval(), *given, calls=1).report
    assert len(report.products) == 1 and not report.left and ran == [read]
    assert f"product: {report.products[0]}" in str(report)


def test_derivatives_of_inputs_are_right():
    network = mt.optimize(Two(lambda a, b: torch.baddbmm(a[:, :1, :1], a, b.mT, beta=2, alpha=3) @ b).eval())
    given = [halves(2, 3, 4).requires_grad_(), halves(2, 5, 4).requires_grad_()]
    doubles = [x.detach().double().requires_grad_() for x in given]
    found = torch.autograd.grad(network(*given).square().sum(), given)
    out = torch.baddbmm(doubles[0][:, :1, :1], doubles[0], doubles[1].mT, beta=2, alpha=3) @ doubles[1]
    close(found, torch.autograd.grad(out.square().sum(), doubles), 1e-5)


@pytest.mark.parametrize("how", [(), (0.5, -2.0), (1.0, 2.0, "ffma")], ids=str)
def test_the_operator_of_sums_is_one_of_pytorchs(how):
    given = [x.requires_grad_() for x in (halves(5), halves(2, 3, 4), halves(2, 5, 3))]
    torch.library.opcheck(torch.ops.maxdnn.product_sum.default, (*given, True, True, *how),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
    with pytest.raises(Exception, match="as many of one as of the other"):
        torch.ops.maxdnn.product(halves(2, 3, 4), halves(4, 5), False, False)


def test_compiled_and_exported_networks_multiply_by_products(ran):
    model = Call(lambda m, x: F.softmax(x @ x.transpose(1, 2), -1).bmm(x)).eval()
    x, told = halves(2, 4, 3), []
    wanted = exactly(model, x)
    with torch.no_grad():
        program = mt.optimize(torch.export.export(model, (x,)))
        close(program(x), wanted)
        torch._dynamo.reset()
        close(torch.compile(model, backend="maxdnn", options={"report": told.append})(x), wanted)
        torch._dynamo.reset()
    assert len(program.report.products) == len(told[0].products) == 2 and ran == ["nt", "nn"] * 2
    exported = torch.export.export(Two(lambda a, b: torch.addmm(a, a, b, alpha=2)), (halves(3, 3), halves(3, 3)))
    assert len(mt.optimize(exported).report.products) == 1


def test_what_is_no_product_of_float32_matrices_is_pytorchs(ran, monkeypatch):
    network = mt.optimize(Two(lambda a, b: a @ b).eval())
    for a, b in ((halves(4), halves(4)), (halves(3, 4), halves(4)), (halves(2, 3, 4), halves(4)),
                 (halves(3, 4).double(), halves(4, 2).double()), (halves(0, 4), halves(4, 2)),
                 (halves(2, 0, 3, 4), halves(4, 2))):
        torch.testing.assert_close(network(a, b), a @ b)
    with torch.autocast("cpu", torch.bfloat16):
        assert network(halves(3, 4), halves(4, 2)).dtype is torch.bfloat16
    for a, b in (((3, 4), (5, 2)), ((2, 3, 4), (3, 4, 5))):
        with pytest.raises(RuntimeError, match=r"size|shape"):
            network(halves(*a), halves(*b))
    with pytest.raises(RuntimeError, match=r"expand|size"):
        mt.optimize(Two(lambda a, b: torch.addmm(a, a, b)).eval())(halves(3, 4), halves(4, 5))
    with pytest.raises(RuntimeError):
        mt.optimize(Two(lambda a, b: torch.mm(a, b)).eval())(halves(2, 3, 4), halves(4, 5))
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 3 * 4 * 5 * 6)
    assert network(halves(3, 4, 5), halves(3, 5, 6)).shape == (3, 4, 6) and not ran, "each is smaller than 128 ** 3"
    monkeypatch.setattr(matrices, "LEAST_EACH", 4 * 5 * 6)
    network(halves(3, 4, 5), halves(3, 5, 6))
    assert ran == ["nn"]
    network(halves(2, 4, 5), halves(2, 5, 6))
    assert ran == ["nn"], "in all too few"


def test_what_is_left_is_said():
    def does(a, b):
        into = torch.empty_like(a)
        torch.mm(a, b, out=into)
        return torch.einsum("ij,jk", a, b) + F.scaled_dot_product_attention(a, b, b) + into.clone().addmm_(a, b)
    model = Two(does).eval()
    a, b = halves(3, 3), halves(3, 3)
    network = mt.optimize(model)
    close(network(a, b), exactly(model, a, b))
    reasons = sorted(network.report.left.values())
    assert not network.report.products and reasons == sorted([
        "it writes into a tensor that is given", "attention in one operator is PyTorch's",
        *["a product of tensors in this form is PyTorch's"] * 2])


def test_a_batch_on_a_gpu_is_one_plan_and_gets_its_factors(monkeypatch):
    """As far as that goes without one."""
    launched = []
    monkeypatch.setattr(running, "device_of", lambda where: (Card(), 16))
    monkeypatch.setattr(running, "launch", lambda plan, on, out, places, *more: launched.append((plan, more)))
    a, b, out = halves(3, 4, 8), halves(3, 6, 8), halves(3, 4, 6)
    products._launch(a, b, False, True, out, False, "auto")
    products._launch(a, b, False, True, out, True, "auto", {"alpha": 2, "beta": 3})
    (first, none), (second, factors) = launched
    assert (first.problem.shape.batch, first.problem.layout, none) == (3, "nt", ())
    assert second.problem.reads_out and factors == ({"alpha": 2, "beta": 3},)
