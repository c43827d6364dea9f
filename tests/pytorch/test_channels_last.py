"""Tensors whose channels lie innermost: read and written so in all passes, without a copy by PyTorch."""

import ctypes
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import maxdnn.torch as mt
from maxdnn.problem.operands import ArrayView
from maxdnn.runtime import shortage
from maxdnn.torch import kept_filters, ops, running
from maxdnn.torch.fused import FusedConv2d
from maxdnn.torch.shapes import layers

from .test_conv2d import close, tensors

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]
LAST = torch.channels_last
CASES = [((2, 8, 5, 6), (12, 8, 1, 1), {}), ((2, 8, 5, 6), (12, 8, 3, 3), {"padding": 1}),
         ((1, 6, 7, 7), (8, 3, 3, 3), {"stride": 2, "padding": 1, "groups": 2}),
         ((2, 8, 6, 6), (8, 1, 3, 3), {"padding": 1, "groups": 8}), ((1, 3, 11, 11), (4, 3, 5, 5), {"dilation": 2})]
BOTH_WAYS = ((2, 4, 3, 3), (8, 4, 3, 3), {})  # the result lies both ways


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


class Played(running.Ready):
    """A ready call on the virtual GPU, which gets addresses and the plan, as one on a GPU does."""

    def __init__(self, *given):
        super().__init__(*given)
        self._alone = False  # else it asks PyTorch for the stream


def launched(plan, on, out, places, scalars=running._ONE):
    views = {}
    for o in plan.problem.operands:
        flat = np.ctypeslib.as_array((ctypes.c_float * o.extent).from_address(places[o.role]))
        steps = o.strides or [math.prod(o.shape[axis + 1:]) for axis in range(len(o.shape))]
        memory = np.lib.stride_tricks.as_strided(flat, o.shape, [4 * step for step in steps])
        views[o.role] = ArrayView(o.role, memory, o.shape, places[o.role], 4 * o.extent, True, True, strides=o.strides)
    shortage.run(plan, views, scalars, on.device, None)


@pytest.fixture
def ready(monkeypatch):
    """Calls on the CPU are remembered as those on a GPU are. Gives a function after which `plain` may not be asked,
    nothing may be planned or copied, and all that runs is ready."""
    for table in (ops._eager, ops._gradients):
        table.clear()
    for where, name, value in ((ops, "_FIRST_GPU", -1), (ops, "Ready", Played), (running, "_new", None),
                               (running, "launch", launched)):
        monkeypatch.setattr(where, name, value)

    def only():
        def refused(*args, **how):
            raise AssertionError("no ready call")
        for where, names in ((ops, ("plain", "forward")), (running, ("run", "plan_of")),
                             (torch.Tensor, ("contiguous", "clone", "copy_", "to"))):
            for name in names:
                monkeypatch.setattr(where, name, refused)
    yield only
    for table in (ops._eager, ops._gradients):
        table.clear()


@pytest.mark.parametrize("taped", [False, True], ids=["", "taped"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("which", ["both", "input", "weight"])
@pytest.mark.parametrize(("shape", "filters", "options"), [*CASES, BOTH_WAYS], ids=str)
def test_a_second_call_is_ready(shape, filters, options, which, with_bias, taped, ready):
    """In all passes, beside contiguous calls of the same shapes."""
    plain = tensors(shape, filters, filters[:1])[:2 + with_bias]
    turned = [t.to(memory_format=LAST) if t.dim() == 4 and which in ("both", name) else t
              for t, name in zip(plain, ("input", "weight", "bias"), strict=False)]
    sets = [[t.detach().requires_grad_(taped) for t in given] for given in (turned, plain)]
    weights = torch.rand_like(mt.conv2d(*sets[0], **options).detach())

    def calls(given, weights):
        out = mt.conv2d(*given, **options)
        return [out, *(torch.autograd.grad(out, given, weights) if taped else [])]
    both = [weights, weights.contiguous()]
    first = [calls(*each) for each in zip(sets, both, strict=True)]
    ready()
    for _ in range(2):
        for given, upstream, before in zip(sets, both, first, strict=True):
            for one, other in zip(calls(given, upstream), before, strict=True):
                assert torch.equal(one, other) and one.requires_grad is other.requires_grad
                assert one.stride() == other.stride()
    assert last(first[0][0]) or all(t.is_contiguous() for t in turned)
    assert first[1][0].is_contiguous()


def test_the_format_met_first_is_known_as_soon_as_any(ready):
    x, w = tensors((2, 8, 6, 6), (16, 8, 3, 3))
    lasts = [t.to(memory_format=LAST) for t in (x, w)]
    for given in (lasts, (x, w), (lasts[0], w), (x, lasts[1])):
        mt.conv2d(*given)
        mt.conv2d(*given)
    lying = [found.lying for found in ops._eager.values()]
    assert lying == [(False, False), (True, True), (False, True), (True, False)]
    assert [len(key) for key in ops._eager] == [5, 7, 7, 7] and all(len(x.known) == 1 for x in ops._eager.values())


def test_other_views_are_never_ready(ready):
    x, w = tensors((2, 8, 6, 6), (16, 8, 3, 3))
    for _ in range(2):
        close(mt.conv2d(x.mT, w), F.conv2d(x.mT.double(), w.double()))
    assert not len(ops._eager)
    mt.conv2d(x, w)
    for given in ((x.mT, w), (x, w.mT), (x[:, :, ::2], w), (x.to(memory_format=LAST)[:, :, ::2], w)):
        for _ in range(2):
            close(mt.conv2d(*given), F.conv2d(*[t.double() for t in given]))


@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("which", ["both", "input", "weight"])
@pytest.mark.parametrize(("shape", "filters", "options"), [*CASES, BOTH_WAYS], ids=str)
def test_frozen_layers_keep_filters_of_both_formats(shape, filters, options, which, with_bias, request):
    groups = options.get("groups", 1)
    layer = mt.replace(torch.nn.Conv2d(filters[1] * groups, filters[0], filters[2], bias=with_bias, **options),
                       frozen=True)
    x = torch.rand(shape) - 0.5
    turned = x.to(memory_format=LAST) if which != "weight" else x
    with torch.no_grad():
        wanted = [layer(x) for _ in range(3)][-1]
        if which != "input":
            layer.to(memory_format=LAST)
        found = [layer(turned) for _ in range(3)]
        alike = turned.is_contiguous() and layer.weight.is_contiguous()
        request.getfixturevalue("uncopied")
        patch = request.getfixturevalue("monkeypatch")
        patch.setattr(kept_filters, "_look", lambda *given: pytest.fail("nothing is kept"))
        patch.setattr(ops, "eager", lambda *given: pytest.fail("nothing is kept"))
        out = layer(turned)
    close(out, wanted.double())
    for each in (*found, out):
        assert (each.is_contiguous() if alike else last(each)) and each.stride() == found[0].stride()
    assert torch.equal(out, found[-1])


@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize("formats", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)], ids=str)
def test_fused_layers_add_maps_of_either_format(formats, overwrites):
    """What is added is overwritten where it lies as the sum."""
    x, w, r = (t.to(memory_format=LAST) if turned else t for t, turned in zip(
        tensors((2, 8, 6, 6), (8, 8, 3, 3), (2, 8, 6, 6)), formats, strict=True))
    layer = FusedConv2d.of(w, None, (1, 1), (1, 1), (1, 1), 1, applies="relu", overwrites=overwrites)
    wanted = torch.relu(F.conv2d(x.double(), w.double(), padding=1) + r.double())
    with torch.no_grad():
        for _ in range(3):
            given = r.clone(memory_format=torch.preserve_format)
            out = layer(x, given)
            close(out, wanted)
            assert last(out) is any(formats[:2]) and out.is_contiguous() is not any(formats[:2])
    assert (out.data_ptr() == given.data_ptr()) is (overwrites and any(formats[:2]) is bool(formats[2]))


def test_weights_that_come_to_lie_otherwise_are_kept_again():
    """Also at the same address."""
    layer = mt.replace(torch.nn.Conv2d(8, 8, 3, padding=1, bias=False), frozen=True)
    x, memory = torch.rand(2, 8, 6, 6), torch.rand(8 * 8 * 3 * 3)
    with torch.no_grad():
        for strides in ((72, 9, 3, 1), (72, 1, 24, 8), (72, 9, 3, 1)):
            layer.weight.data = memory.as_strided((8, 8, 3, 3), strides)
            for _ in range(3):
                close(layer(x), F.conv2d(x.double(), layer.weight.double(), padding=1))


def test_a_batch_of_calls_is_not_remembered(ready):
    x, w = tensors((8, 2, 3, 6, 6), (4, 8, 3, 3))
    x = x.transpose(0, 2)
    found = torch.vmap(lambda x: mt.conv2d(x, w))(x)
    close(found.flatten(0, 1), F.conv2d(x.flatten(0, 1).double(), w.double()))
    assert not len(ops._eager)
