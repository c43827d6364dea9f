"""Convolutions with one axis and transposed ones, on the virtual GPU, against PyTorch in float64."""

import copy
import pickle
import random

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.torch import backend, kept_filters, ops

from .graphs import Call, close, conv

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run", "ignore:Using padding='same'")]

LINES = [{}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}, {"groups": 2, "padding": (2,)},
         {"padding": "valid", "stride": (3,)}]
TRANSPOSED = [{}, {"stride": 2}, {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}, {"padding": 2},
              {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "stride": 2}, {"dilation": 2},
              {"groups": 4, "stride": 2, "padding": 1, "output_padding": 1, "dilation": (2, 1)}]


def tensors(*shapes, seed=0):
    torch.manual_seed(seed)
    return [torch.rand(s) - 0.5 for s in shapes]


def check(ours, theirs, given, options):
    """Results, gradients and gradients of gradients are those of float64."""
    found, wanted = [], []
    for function, tensors_, results in ((ours, given, found), (theirs, [t.double() for t in given], wanted)):
        wanting = [t.detach().requires_grad_() for t in tensors_]
        out = function(*wanting, **options)
        first = torch.autograd.grad((out ** 2).sum(), wanting, create_graph=True)
        results += [out, *first, *torch.autograd.grad(sum((t ** 2).sum() for t in first), wanting)]
        with torch.no_grad():
            results.append(function(*wanting, **options))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32 and one.is_contiguous()
        close(one.detach(), other.detach())


@pytest.mark.parametrize("options", LINES, ids=str)
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_conv1d_and_its_derivatives(options, with_bias):
    given = tensors((2, 4, 11), (4, 4 // options.get("groups", 1), 3), (4,))[:2 + with_bias]
    check(mt.conv1d, F.conv1d, given, options)


@pytest.mark.parametrize("options", TRANSPOSED, ids=str)
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_conv_transpose2d_and_its_derivatives(options, with_bias):
    outputs = 8
    given = tensors((2, 4, 4, 3), (4, outputs // options.get("groups", 1), 3, 4), (outputs,))[:2 + with_bias]
    check(mt.conv_transpose2d, F.conv_transpose2d, given, options)


@pytest.mark.parametrize("options", [{}, {"stride": 3, "padding": 1, "output_padding": (2,)},
                                     {"groups": 2, "dilation": 2}], ids=str)
def test_conv_transpose1d_and_its_derivatives(options):
    given = tensors((2, 4, 5), (4, 6 // options.get("groups", 1), 3), (6,))
    check(mt.conv_transpose1d, F.conv_transpose1d, given, options)


@pytest.mark.parametrize("seed", range(6))
def test_random_transposed_layers(seed):
    rng = random.Random(seed)
    groups = rng.choice([1, 1, 2, 3])
    stride, dilation = ([rng.randint(1, 3) for _ in range(2)] for _ in range(2))
    size, padding = [rng.randint(1, 4) for _ in range(2)], [rng.randint(0, 2) for _ in range(2)]
    more = [rng.randrange(step) for step in stride]
    least = [max(1, -(-(1 + 2 * p - d * (k - 1) - o - 1) // s) + 1)
             for p, d, k, o, s in zip(padding, dilation, size, more, stride, strict=True)]
    images = rng.randint(1, 3), groups * rng.randint(1, 4), *[one + rng.randint(0, 4) for one in least]
    outputs = groups * rng.randint(1, 4)
    given = tensors(images, (images[1], outputs // groups, *size), (outputs,), seed=seed)
    check(mt.conv_transpose2d, F.conv_transpose2d, given, {
        "stride": tuple(stride), "padding": tuple(padding), "output_padding": tuple(more), "groups": groups,
        "dilation": tuple(dilation)})


def test_gradcheck_by_differences():
    """The function is linear in each argument, so differences of any width are right but for rounding."""
    x, w, b = (t.requires_grad_() for t in tensors((1, 2, 3, 2), (2, 2, 2, 2), (2,)))
    assert torch.autograd.gradcheck(lambda *given: mt.conv_transpose2d(*given, 2, 1, 1), (x, w, b), eps=0.5, atol=1e-4,
                                    rtol=1e-4, nondet_tol=0.0)


def test_opcheck():
    """Of the operator with rows and columns that its filters reach beyond the last step."""
    given = [t.requires_grad_() for t in tensors((2, 4, 3, 3), (4, 3, 3, 3))]
    torch.library.opcheck(ops.conv2d_input, (*given, [6, 6], [2, 2], [1, 1], [1, 1], 1))


@pytest.mark.parametrize("ours, theirs, images, filters", [
    (mt.conv1d, F.conv1d, (4, 7), (6, 4, 3)), (mt.conv_transpose1d, F.conv_transpose1d, (4, 7), (4, 6, 3)),
    (mt.conv_transpose2d, F.conv_transpose2d, (4, 7, 5), (4, 6, 3, 3))])
def test_batches_of_any_kind(ours, theirs, images, filters):
    for size in (images, (0, *images)):
        x, w, b = (t.requires_grad_() for t in tensors(size, filters, (6,)))
        wanted = theirs(x.double(), w.double(), b.double())
        found = ours(x, w, b)
        close(found.detach(), wanted.detach())
        found.sum().backward()
        assert torch.equal(b.grad, torch.full((6,), float(wanted.numel() // 6)))


@pytest.mark.parametrize("call, says", [
    (lambda: mt.conv1d(torch.rand(1, 2, 3, 4), torch.rand(2, 2, 3)), "input must have 3 axes, or 2 without a batch"),
    (lambda: mt.conv1d(torch.rand(1, 2, 9), torch.rand(2, 2, 3, 3)), "weight must have 3 axes"),
    (lambda: mt.conv1d(torch.rand(1, 2, 9), torch.rand(2, 2, 3), stride=(1, 2)), "stride must be one integer"),
    (lambda: mt.conv1d(torch.rand(1, 2, 9).double(), torch.rand(2, 2, 3)), "input must be float32"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 2, 9, 9), torch.rand(2, 2, 3, 3), output_padding=1),
     r"output_padding must be below the stride \(1, 1\) \(got \(1, 1\)\)"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 2, 9, 9), torch.rand(2, 2, 3, 3), stride=(1, 2), output_padding=1),
     "output_padding must be below the stride"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 3, 9, 9), torch.rand(2, 2, 3, 3)), "input must have 2 channels"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 2, 9, 9), torch.rand(2, 2, 3, 3), torch.rand(3)), "bias must have 2"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 2, 1, 1), torch.rand(2, 2, 1, 1), padding=1), "too small"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 2, 4, 4), torch.rand(2, 2, 1, 1), stride=0), "stride and dilation must"),
    (lambda: mt.conv_transpose2d(torch.rand(1, 2, 4, 4), torch.rand(2, 2, 1, 1), stride="2"), "stride must be one"),
    (lambda: mt.conv_transpose1d(torch.rand(1, 2, 4, 4), torch.rand(2, 2, 1)), "input must have 3 axes"),
    (lambda: mt.ConvTranspose1d(2, 2, 1, arithmetic="tf32"), "arithmetic must be one of")])
def test_what_is_not_served_is_said(call, says):
    with pytest.raises(maxdnn.ShapeError, match=says):
        call()


def several():
    torch.manual_seed(1)
    return nn.ModuleDict({
        "line": nn.Conv1d(4, 6, 3, 2, 1), "same": nn.Conv1d(4, 6, 4, padding="same", bias=False),
        "reflect": nn.Conv1d(4, 6, 3, padding=2, padding_mode="reflect"), "up": nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
        "plain": nn.ConvTranspose2d(4, 6, 2, 2, bias=False), "row": nn.ConvTranspose1d(4, 6, 4, 2, 1),
        "deep": nn.Conv3d(2, 2, 1), "wide": nn.ConvTranspose1d(4, 6, 3, 1, 0, 1, dilation=2)}).eval()


def images(layer):
    return torch.rand((2, 4, 5, 6) if isinstance(layer, nn.ConvTranspose2d) else (2, 4, 9)) - 0.5


@pytest.mark.parametrize("frozen", [False, True], ids=["", "frozen"])
def test_replaced_layers_compute_the_same(monkeypatch, frozen):
    stock = several()
    reports, prepared = [], []
    real = kept_filters.prepare_filters
    monkeypatch.setattr(kept_filters, "prepare_filters", lambda *given: prepared.append(1) or real(*given))
    own = mt.replace(copy.deepcopy(stock), reports.append, frozen=frozen)
    assert reports[0].swapped == ("line", "same", "reflect", "up", "plain", "row")
    assert "three axes" in reports[0].left["deep"] and "output_padding" in reports[0].left["wide"]
    again = pickle.loads(pickle.dumps(own))
    for name, layer in own.items():
        if name == "deep":
            continue
        x = images(layer)
        wanted = copy.deepcopy(stock[name]).double()(x.double()).detach()
        with torch.no_grad():
            for _ in range(3):
                close(layer(x), wanted)
            close(again[name](x), wanted)
            close(layer(x[0]), wanted[0])
            assert set(mt.ran(layer, x).arithmetic.values()) <= {"FFMA"}
        assert type(layer).__module__.startswith("maxdnn") is (name != "wide")
        layer(x).square().sum().backward()
        stock[name](x).square().sum().backward()
        torch.testing.assert_close(layer.weight.grad, stock[name].weight.grad, rtol=1e-4, atol=1e-4)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
    assert bool(prepared) is frozen


def test_an_output_size_is_taken_as_pytorch_does():
    own = mt.ConvTranspose2d(2, 3, 3, 2, 1, dilation=3)
    stock = nn.ConvTranspose2d(2, 3, 3, 2, 1, dilation=3)
    stock.load_state_dict(own.state_dict())
    x = torch.rand(1, 2, 4, 4)
    for size in ([11, 11], [12, 11], [13, 13]):  # of the last no gradient of a convolution is
        if size == [13, 13]:
            with pytest.raises(ValueError, match="output size"):
                own(x, size)
        else:
            close(own(x, size).detach(), stock.double()(x.double(), size).detach())


def test_a_replaced_model_is_traced_exported_and_compiled():
    stock = nn.Sequential(nn.ConvTranspose2d(4, 4, 2, 2), nn.ReLU(), nn.Flatten(2), nn.Conv1d(4, 4, 3)).eval()
    own, x = mt.replace(copy.deepcopy(stock)), torch.rand(2, 4, 3, 3)
    wanted = stock.double()(x.double()).detach()
    traced = fx.symbolic_trace(own)
    assert {mt.conv1d, mt.conv_transpose2d} <= {node.target for node in traced.graph.nodes}
    exported = torch.export.export(own, (x,))
    targets = [node.target for node in exported.graph.nodes]
    assert ops.conv2d in targets and ops.conv2d_input in targets
    with torch.no_grad():
        for model in (traced, exported.module(), torch.compile(own, backend="eager", fullgraph=True)):
            close(model(x), wanted)


@pytest.mark.parametrize("forward", [
    lambda m, x: m.b(m.a(x).flatten(2)), lambda m, x: m.b(m.a(x)[:, :, 0]).relu(),
    lambda m, x: F.conv1d(F.conv_transpose2d(x, m.a.weight, m.a.bias, stride=2).flatten(2), m.b.weight, padding=1)],
    ids=["modules", "slices", "functions"])
@pytest.mark.parametrize("way", ["optimize", "compile"])
def test_optimized_networks_have_such_layers(forward, way):
    torch.manual_seed(2)
    model = Call(forward, a=nn.ConvTranspose2d(4, 4, 2, 2), b=nn.Conv1d(4, 4, 3, bias=False)).eval()
    x, reports = torch.rand(2, 4, 3, 3), []
    if way == "optimize":
        made = mt.optimize(model, report=reports.append)
    else:
        made = torch.compile(model, backend=backend.maxdnn, options={"report": reports.append})
    with torch.no_grad():
        found = [made(x) for _ in range(3)]
    wanted = model.double()(x.double()).detach()
    for one in found:
        close(one, wanted)
    assert len(reports[0].fused) == 2, str(reports[0])


def test_an_optimized_network_says_what_it_leaves():
    model = nn.Sequential(nn.Conv3d(2, 2, 1), nn.ConvTranspose1d(2, 2, 3, dilation=2, output_padding=1), conv()).eval()
    found = mt.optimize(model).report
    assert "three axes" in found.left["0"] and "output_padding" in found.left["1"]
    assert [one.layer for one in found.fused] == ["2"]
    again = mt.optimize(mt.replace(nn.Sequential(nn.Conv1d(2, 2, 1), nn.ReLU())).eval())
    close(again(torch.ones(1, 2, 3)), again(torch.ones(1, 2, 3)).double())
