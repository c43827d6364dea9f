"""Whole networks by `optimize`: what is fused, what is not, and that results are those of the given model."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.errors import ShapeError
from maxdnn.torch import kept_filters
from maxdnn.torch.fused import FusedConv2d

from .graphs import Call, close, conv, exactly, randomized, same

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


X = (2, 4, 7, 6)
PATTERNS = {  # a network, and what its report says of the convolutions
    "bias": (lambda: nn.Sequential(conv()), ["0: alone"]),
    "batch norm": (lambda: nn.Sequential(conv(bias=False), nn.BatchNorm2d(4)), ["0: batch norm 1"]),
    "batch norm with a bias in front": (lambda: nn.Sequential(conv(), nn.BatchNorm2d(4)), ["0: batch norm 1"]),
    "batch norm without weights": (lambda: nn.Sequential(conv(), nn.BatchNorm2d(4, affine=False)), ["0: batch norm 1"]),
    "ReLU": (lambda: nn.Sequential(conv(), nn.ReLU()), ["0: ReLU"]),
    "batch norm and ReLU in place": (lambda: nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
                                     ["0: batch norm 1, ReLU"]),
    "a Sequential in a Sequential": (lambda: nn.Sequential(nn.Sequential(conv(), nn.BatchNorm2d(4)), nn.ReLU()),
                                     ["0.0: batch norm 0.1, ReLU"]),
    "groups, stride, dilation": (lambda: nn.Sequential(conv(groups=2, stride=2, dilation=2, padding=2),
                                                       nn.BatchNorm2d(4), nn.ReLU()), ["0: batch norm 1, ReLU"]),
    "depthwise": (lambda: nn.Sequential(conv(groups=4, bias=False), nn.BatchNorm2d(4)), ["0: batch norm 1"]),
    "padding by name": (lambda: nn.Sequential(conv(padding="same"), nn.ReLU(), conv(size=2, padding="same"),
                                              nn.ReLU(), conv(padding="valid")), ["0: ReLU", "2: ReLU", "4: alone"]),
    "padding by reflection": (lambda: nn.Sequential(conv(padding_mode="reflect"), nn.BatchNorm2d(4), nn.ReLU()),
                              ["0: batch norm 1, ReLU"]),
    "F.relu": (lambda: Call(lambda m, x: F.relu(m.b(m.a(x))), a=conv(), b=nn.BatchNorm2d(4)),
               ["a: batch norm b, ReLU"]),
    "relu_ as a method": (lambda: Call(lambda m, x: m.a(x).relu_(), a=conv()), ["a: ReLU"]),
    "F.conv2d and F.batch_norm": (lambda: Call(lambda m, x: torch.relu(F.batch_norm(
        F.conv2d(x, m.a.weight, m.a.bias, padding=1), m.b.running_mean, m.b.running_var, m.b.weight, m.b.bias)),
        a=conv(), b=nn.BatchNorm2d(4)), ["conv2d: batch norm batch_norm, ReLU"]),
    "+": (lambda: Call(lambda m, x: m.b(m.a(x)) + x, a=conv(), b=nn.BatchNorm2d(4)), ["a: batch norm b, sum with x"]),
    "torch.add in the other order": (lambda: Call(lambda m, x: torch.add(x, m.a(x)), a=conv()), ["a: sum with x"]),
    "x.add": (lambda: Call(lambda m, x: m.a(x).add(x).relu(), a=conv()), ["a: sum with x, ReLU"]),
    "+= into the convolution": (lambda: Call(_into, a=conv()), ["a: sum with x, ReLU"]),
    "two convolutions": (lambda: Call(lambda m, x: F.relu(m.c(m.a(x)) + m.d(m.b(x))), a=conv(), b=conv(),
                                      c=nn.BatchNorm2d(4), d=nn.BatchNorm2d(4)),
                         ["a: batch norm c", "b: batch norm d, sum with a (in its place), ReLU"]),
    "dropouts and identities": (lambda: nn.Sequential(conv(), nn.Dropout(), nn.Identity(), nn.Dropout2d(), nn.ReLU()),
                                ["0: ReLU"]),
    "F.dropout": (lambda: Call(lambda m, x: F.relu(F.dropout(m.a(x), 0.5, m.training)), a=conv()), ["a: ReLU"]),
    "views": (lambda: Call(lambda m, x: m.b(m.a(x).flatten(1).view(x.size(0), 4, 7, 6)).relu().mean((2, 3)), a=conv(),
                           b=conv()), ["a: alone", "b: ReLU"]),
    **{said: (lambda other=other: nn.Sequential(conv(), nn.BatchNorm2d(4), other), [f"0: batch norm 1, {said}"])
       for said, other in (("ReLU6", nn.ReLU6()), ("SiLU", nn.SiLU(inplace=True)), ("Hardswish", nn.Hardswish()),
                           ("GELU", nn.GELU()), ("GELU by tanh", nn.GELU(approximate="tanh")))},
    "functions": (lambda: Call(lambda m, x: F.hardtanh(m.b(F.gelu(m.a(F.relu6(m.a(x))), approximate="tanh")) + x, 0, 6),
                               a=conv(), b=conv()), ["a: ReLU6", "a: GELU by tanh", "b: sum with x, ReLU6"]),
}


def _into(model, x):
    out = model.a(x)
    out += x
    return F.relu(out, inplace=True)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_fused_and_gives_the_results_of_float64(name):
    make, said = PATTERNS[name]
    optimized = same(randomized(make()), torch.rand(X) - 0.5)
    assert [str(one) for one in optimized.report.fused] == said
    assert not any(isinstance(m, (nn.BatchNorm2d, nn.ReLU, nn.Dropout)) for m in optimized.modules())
    assert not optimized.report.left and not optimized.report.untraced


def _twice(model, x):
    out = model.a(x)
    return model.b(out) + F.relu(out)


def _in_between(model, x):
    y = F.max_pool2d(x, 1)
    out = model.a(y)
    y.mul_(3)
    return F.relu(out + y)


def _changed_input(model, x):
    y = F.max_pool2d(x, 1)
    y += model.a(y)
    return y


def _changed_map_that_is_read(model, x):
    y = F.max_pool2d(x, 1)
    view = y.view(-1)
    y += model.a(x)
    return F.relu(y) + view.sum()


def _half_in_place(model, x):
    out = model.a(x)
    F.relu_(out)
    return out + x


def _same_twice(model, x):
    out = model.a(x)
    return out + out


LEFT = {  # a network in which something must not be fused, what is fused, and of what the report must say why it is not
    "a norm in front": (lambda: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), conv()), ["2: alone"],
                        {"0": "not directly behind a convolution"}),
    "a norm behind a ReLU": (lambda: nn.Sequential(conv(), nn.ReLU(), nn.BatchNorm2d(4)), ["0: ReLU"],
                             {"2": "not directly behind a convolution"}),
    "an output used twice": (lambda: Call(_twice, a=conv(), b=nn.BatchNorm2d(4)), ["a: alone"],
                             {"b": "used elsewhere"}),
    "statistics of each batch": (lambda: nn.Sequential(conv(), nn.BatchNorm2d(4, track_running_stats=False)),
                                 ["0: alone"], {"1": "statistics of each batch"}),
    "a map that changes in between": (lambda: Call(_in_between, a=conv()), ["a: alone"], {"add": "in between"}),
    "a sum in place of the input": (lambda: Call(_changed_input, a=conv()), ["a: alone"],
                                    {"iadd": "changes a map in place"}),
    "a sum in place of a map with a view": (lambda: Call(_changed_map_that_is_read, a=conv()), ["a: alone"],
                                            {"iadd": "changes a map in place"}),
    "a ReLU that changes the output for others": (lambda: Call(_half_in_place, a=conv()), ["a: alone"],
                                                  {"relu_": "used elsewhere"}),
    "an output added to itself": (lambda: Call(_same_twice, a=conv()), ["a: alone"], {"add": "used elsewhere"}),
    "an infinite factor": (lambda: nn.Sequential(conv(), _flat()), ["0: alone"], {"1": "not finite"}),
    **{type(other).__name__: (lambda other=other: nn.Sequential(conv(), nn.BatchNorm2d(4), other), ["0: batch norm 1"],
                              {"2": f"{type(other).__name__} is in no kernel's epilogue"})
       for other in (nn.Mish(), nn.Hardtanh())},
}


def _flat():
    norm = nn.BatchNorm2d(4, eps=0.0)
    norm.keep = True
    norm.running_var.zero_()
    return norm


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_be_fused_is_left_with_the_reason(name):
    make, fused, left = LEFT[name]
    torch.manual_seed(3)
    model, x = randomized(make()), torch.rand(X) - 0.5
    if name == "an infinite factor":
        report = mt.optimize(model).report
    else:
        report = same(model, x).report
    assert [str(one) for one in report.fused] == fused
    for layer, why in left.items():
        assert why in report.left[layer], report
        assert f"left: {layer}: " in str(report)


def _reads_later(model, x):
    y = model.a(x)
    return model.b(x) + y, model.c(y)


def _view_of_it(model, x):
    y = model.a(x)
    flat = y.view(-1)
    return model.b(x) + y + flat.sum()


def _returned(model, x):
    y = model.a(x)
    return F.relu(model.b(x) + y), y


def _own_input(model, x):
    y = model.a(x)
    return F.relu(model.b(y) + y)


def _chained(model, x):
    y = model.a(x)
    y = F.relu(model.b(y) + y)
    return F.relu(model.c(model.a(x)) + y)


@pytest.mark.parametrize("forward, sums", [(_reads_later, [False]), (_view_of_it, [False]), (_returned, [False]),
                                           (_own_input, [False]), (_chained, [False, True])])
def test_a_map_that_somebody_still_reads_is_not_overwritten(forward, sums):
    torch.manual_seed(4)
    model = randomized(Call(forward, a=conv(), b=conv(), c=conv()))
    report = same(model, torch.rand(X) - 0.5).report
    assert [one.overwrites for one in report.fused if one.adds] == sums


def test_the_input_is_never_written():
    model = mt.optimize(randomized(Call(lambda m, x: F.relu(m.a(x) + x), a=conv())))
    x = torch.rand(X) - 0.5
    before = x.clone()
    with torch.no_grad():
        for _ in range(3):
            model(x)
            assert torch.equal(x, before)


def test_a_shared_convolution_is_fused_at_each_call_by_itself():
    model = randomized(Call(lambda m, x: m.a(F.relu(m.b(m.a(x)))) + m.c(m.a(x * 2)), a=conv(), b=nn.BatchNorm2d(4),
                            c=nn.BatchNorm2d(4)))
    optimized = same(model, torch.rand(X) - 0.5)
    assert sorted(map(str, optimized.report.fused)) == ["a: alone", "a: batch norm b, ReLU",
                                                        "a: batch norm c, sum with a (in its place)"]


def test_sums_that_broadcast_and_numbers():
    for forward in (lambda m, x: m.a(x) + x[:, :1], lambda m, x: m.a(x) + x.mean((2, 3), keepdim=True),
                    lambda m, x: m.a(x) + x.size(0), lambda m, x: F.relu(m.a(x) + 1.5),
                    lambda m, x: m.a(x[:1]) + x, lambda m, x: m.a(x).transpose(2, 3) + x.transpose(2, 3)):
        same(randomized(Call(forward, a=conv())), torch.rand(X) - 0.5)


def test_inputs_that_lie_otherwise_and_have_no_batch():
    model = randomized(nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU()))
    x = torch.rand(X) - 0.5
    same(model, x.to(memory_format=torch.channels_last))
    same(model, x.repeat(1, 1, 1, 2)[..., ::2])
    same(model, x[:0])
    block = randomized(Call(lambda m, x: F.relu(m.a(x) + x), a=conv()))
    same(block, x[0])
    same(block, x.to(memory_format=torch.channels_last))
    mixed = randomized(Call(lambda m, x: F.relu(m.a(x) + x.transpose(2, 3)), a=conv()))
    same(mixed, torch.rand(2, 4, 5, 5))
    assert mt.optimize(model.to(memory_format=torch.channels_last))(x).shape == X


def test_the_given_model_is_unchanged_and_what_happens_to_it_does_not_reach_the_other():
    model = randomized(nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU(), nn.Linear(6, 3)))
    before, kinds = copy.deepcopy(model.state_dict()), [type(m) for m in model.modules()]
    optimized = mt.optimize(model)
    x = torch.rand(X)
    wanted = optimized(x)
    assert [type(m) for m in model.modules()] == kinds and all(p.requires_grad for p in model.parameters())
    assert not any(p.requires_grad for p in optimized.parameters())
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    model.load_state_dict(randomized(copy.deepcopy(model)).state_dict())
    close(optimized(x), wanted.double())
    close(mt.optimize(model)(x).detach(), exactly(model, x))
    assert (mt.optimize(model)(x) - wanted).abs().max() > 0.01


def test_its_own_state_can_be_saved_and_loaded():
    make = lambda: randomized(nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU()))  # noqa: E731
    one, other = mt.optimize(make()), mt.optimize(make())
    x = torch.rand(X)
    with torch.no_grad():
        for _ in range(2):
            assert (one(x) - other(x)).abs().max() > 0.01
        other.load_state_dict(one.state_dict())
        for _ in range(2):
            close(other(x), one(x).double())


def test_copies_and_pickles_compute_the_same():
    model = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(168, 3)).eval()
    optimized = mt.optimize(model)
    x = torch.rand(X)
    with torch.no_grad():
        wanted = [optimized(x) for _ in range(3)][-1]
        for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized)), _saved(optimized)):
            assert str(other.report) == str(optimized.report)
            assert not any(kept_filters.WHERE in m.__dict__ for m in other.modules())
            for _ in range(3):
                torch.testing.assert_close(other(x), wanted, rtol=1e-6, atol=1e-6)


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_training_mode_is_refused_with_what_to_do():
    with pytest.raises(maxdnn.ShapeError, match=r"call model.eval\(\) first"):
        mt.optimize(nn.Sequential(conv()))
    partly = nn.Sequential(conv(), nn.BatchNorm2d(4)).eval()
    partly[1].train()
    with pytest.raises(maxdnn.ShapeError, match="1 is in training mode"):
        mt.optimize(partly)
    optimized = mt.optimize(partly.eval())
    assert optimized.eval() is optimized and not optimized.training
    with pytest.raises(maxdnn.ShapeError, match="for inference"):
        optimized.train()


def test_algorithm_and_error_are_those_asked_for():
    model = nn.Sequential(conv(), nn.ReLU(), conv()).eval()
    reports = []
    optimized = mt.optimize(model, report=reports.append, algorithm="direct", max_error=1e-5)
    layers = [m for m in optimized.modules() if isinstance(m, FusedConv2d)]
    assert [(m.algorithm, m.max_error) for m in layers] == [("direct", 1e-5)] * 2 and reports == [optimized.report]
    for wrong in ({"algorithm": "fourier"}, {"max_error": -1.0}):
        with pytest.raises(maxdnn.ShapeError):
            mt.optimize(model, **wrong)


def test_other_dtypes_and_autocasts_compute_as_the_model_does():
    model = randomized(nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU(), conv()))
    x = torch.rand(X)
    double = mt.optimize(copy.deepcopy(model).double())
    assert torch.equal(double(x.double()), copy.deepcopy(model).double()(x.double()))
    assert "torch.float64" in double.report.left["0"]
    optimized = mt.optimize(model)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = optimized(x), model(x)
    assert found.dtype == wanted.dtype == torch.bfloat16
    assert (found - wanted).abs().max() < 0.05
    moved = copy.deepcopy(optimized).double()
    close(moved(x.double()).float(), exactly(model, x))


def test_inputs_may_want_derivatives():
    model = randomized(Call(lambda m, x: F.relu(m.b(m.a(x)) + x), a=conv(), b=nn.BatchNorm2d(4)))
    optimized = mt.optimize(model)
    x = (torch.rand(X) - 0.5).requires_grad_()
    other = x.detach().double().requires_grad_()
    optimized(x).square().sum().backward()
    copy.deepcopy(model).double()(other).square().sum().backward()
    close(x.grad, other.grad, 1e-5)


@pytest.mark.parametrize("other", [nn.SiLU(), nn.GELU()], ids=str)
def test_derivatives_go_through_activations_that_kernels_apply(other):
    model = nn.Sequential(conv(), other).eval()
    x, y = (torch.rand(X, dtype=dtype) - 0.5 for dtype in (torch.float32, torch.float64))
    y.copy_(x)
    optimized = mt.optimize(model)
    found = [m(t.requires_grad_()).square().sum() for m, t in ((optimized, x), (copy.deepcopy(model).double(), y))]
    close(torch.autograd.grad(found[0], x), torch.autograd.grad(found[1], y), 1e-5)
    (layer,) = [m for m in optimized.modules() if isinstance(m, nn.Conv2d)]
    how = layer.weight, layer.bias, None, "silu", [1, 1], [1, 1], [1, 1], 1
    out = torch.ops.maxdnn.conv2d_epilogue(x.detach(), *how)
    close(out, F.silu(F.conv2d(y, layer.weight.double(), layer.bias.double(), padding=1)).detach())
    with pytest.raises(ShapeError, match="activation must be 'relu' or None where derivatives are wanted"):
        torch.ops.maxdnn.conv2d_epilogue(x, *how)
