"""maxdnn.torch on a real GPU, where there is PyTorch for CUDA (`make test-gpu`): results, derivatives, what
a call does; test_gpu_graphs.py has streams and graphs, test_gpu_memory.py what happens where memory is short."""

import copy
import gc
import os
import random
import resource

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.planning import select
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from maxdnn.torch import ops, running
from maxdnn.torch.networks import Network

from .gpu import CUDA, close, networks, no_tf32  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.gpu


def random_layer(rng):
    groups = rng.choice([1, 1, 1, 2, 4])
    r, s = rng.choice([(1, 1), (3, 3), (5, 5), (1, 7), (7, 1), (2, 3), (11, 11)])
    dilation = rng.choice([1, 1, 2])
    stride = rng.choice([1, 1, 2, (1, 2)])
    padding = rng.choice([0, 1, (r // 2, s // 2)])
    n, c, k = rng.choice([1, 2, 8, 33]), groups * rng.randint(1, 70), groups * rng.randint(1, 70)
    size = [dilation * (x - 1) + rng.randint(1, 20) for x in (r, s)]
    return (n, c, *size), (k, c // groups, r, s), dict(stride=stride, padding=padding, dilation=dilation, groups=groups)


@pytest.mark.parametrize("seed", range(40))
def test_random_layers_and_gradients_match_float64(seed):
    images, filters, options = random_layer(random.Random(seed))
    torch.manual_seed(seed)
    given = [(torch.rand(s, device=CUDA) - 0.5).requires_grad_() for s in (images, filters, filters[:1])]
    doubles = [t.detach().double().requires_grad_() for t in given]
    out, wanted = mt.conv2d(*given, **options), F.conv2d(*doubles, **options)
    close(out, wanted.detach())
    weights = torch.rand(out.shape, device=CUDA)
    out.backward(weights)
    wanted.backward(weights.double())
    for found, right in zip(given, doubles, strict=True):
        close(found.grad, right.grad)


def test_channels_last_and_odd_addresses():
    x, w = torch.rand(4, 12, 20, 20, device=CUDA), torch.rand(16, 12, 3, 3, device=CUDA)
    wanted = F.conv2d(x.double(), w.double())
    close(mt.conv2d(x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)), wanted)
    flat = torch.zeros(x.numel() + 1, device=CUDA)
    flat[1:] = x.flatten()
    close(mt.conv2d(flat[1:].view(x.shape), w), wanted)


def test_calls_like_earlier_ones_are_checked_like_new_ones():
    """They go past PyTorch's dispatcher where nothing of it is needed, and only there."""
    x, w, b = (torch.rand(s, device=CUDA) - 0.5 for s in ((2, 8, 9, 9), (6, 8, 3, 3), (6,)))
    how = 1, 1, 1, 1
    asked = *how, "auto", select.MAX_ERROR, "auto"
    assert ops.eager(x, w, b, *asked) is None, "not made before"
    first = mt.conv2d(x, w, b, *how)
    assert torch.equal(ops.eager(x, w, b, *asked), first)
    for other in (torch._neg_view(-x), nn.Parameter(x)):
        with torch.no_grad():
            assert torch.equal(mt.conv2d(other, w, b, *how), first)
    last = mt.conv2d(x.to(memory_format=torch.channels_last), w, b, *how)  # by another plan
    torch.testing.assert_close(last, first, rtol=1e-5, atol=1e-5)
    assert last.is_contiguous(memory_format=torch.channels_last)
    wr, doubles = nn.Parameter(w), [t.double().requires_grad_() for t in (x, w, b)]
    F.conv2d(*doubles, *how).square().sum().backward()
    for xr in (x, x.clone().requires_grad_()):
        out = ops.eager(xr, wr, b, *asked)
        assert torch.equal(out, first) and out.requires_grad
        out.square().sum().backward()
        close(wr.grad, doubles[1].grad)
        wr.grad = None
    close(xr.grad, doubles[0].grad)
    with torch.no_grad():
        assert torch.equal(ops.eager(x, wr, b, *asked), first)
    found, pulled = torch.func.vjp(lambda w: mt.conv2d(x, w, b, *how), w)
    close(found, first)
    close(pulled(2 * found)[0], doubles[1].grad)
    with torch.autocast("cuda", dtype=torch.float16), pytest.raises(maxdnn.ShapeError, match="autocast"):
        mt.conv2d(x, w, b, *how)
    for wrong in ((x.double(), w, b), (x, w.half(), b), (x, w.cpu(), b), (x, w, b.cpu()), (x, w, b[:3])):
        with pytest.raises(maxdnn.ShapeError):
            mt.conv2d(*wrong, *how)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        mt.conv2d(x, w, b, *how)
    assert any("maxdnn" in event.name for event in seen.events())


def test_gradients_like_earlier_ones_are_checked_like_new_ones():
    x, w = torch.rand(2, 8, 9, 9, device=CUDA) - 0.5, torch.rand(6, 8, 3, 3, device=CUDA) - 0.5
    weights = torch.rand(2, 6, 9, 9, device=CUDA) - 0.5
    odd, last = torch.zeros(x.numel() + 1, device=CUDA)[1:].view(x.shape).copy_(x), torch.channels_last

    def gradients(x, w, weights):
        given = [tensor.detach().requires_grad_() for tensor in (x, w)]
        mt.conv2d(*given, None, 1, 1).backward(weights)
        return [tensor.grad for tensor in given]
    ops._gradients.clear()
    first = gradients(x, w, weights)
    assert len(ops._gradients) == 2
    last_ones = (x, w, weights.to(memory_format=last)), (x.to(memory_format=last), w, weights)
    others = (x, w, weights), (odd, w, weights), (x, torch._neg_view(-w), weights)
    known = []
    for again in (*last_ones, *last_ones, *others):
        for found, right in zip(gradients(*again), first, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
        known.append(len(ops._gradients))
    for found, right in zip(gradients(x, w, weights), first, strict=True):
        assert torch.equal(found, right)
    assert known[1:] == [known[1]] * 6, "only those with channels innermost are made ready like contiguous ones"


def test_tensors_on_different_devices_are_refused():
    with pytest.raises(maxdnn.ShapeError, match="filters must be on cuda:0, as the first tensor is"):
        mt.conv2d(torch.rand(1, 2, 4, 4, device=CUDA), torch.rand(3, 2, 2, 2))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_gpu_than_the_current_one():
    x, w = torch.rand(2, 3, 9, 9, device="cuda:1"), torch.rand(4, 3, 3, 3, device="cuda:1")
    with torch.cuda.device(0):
        out = mt.conv2d(x, w)
    assert out.device == x.device
    close(out, F.conv2d(x.double(), w.double()))


def test_a_compiled_model_has_no_breaks():
    own, stock = networks()
    x = torch.rand(4, 3, 64, 64, device=CUDA)
    out = torch.compile(own, fullgraph=True)(x)
    close(out, stock.double()(x.double()).detach())
    out.sum().backward()
    assert all(p.grad is not None for p in own.parameters())


def test_resnet50_compiles_and_computes_the_same():
    model = mt.replace(Network("resnet50").to(CUDA).eval())
    x = torch.rand(2, 3, 224, 224, device=CUDA)
    with torch.no_grad():
        close(torch.compile(model, fullgraph=True)(x), model(x).double(), 1e-4)


@pytest.mark.parametrize("operator, shapes, numbers", [
    ("conv2d", ((2, 4, 6, 6), (6, 4, 3, 3), (6,)), ([2, 1], [1, 0], [1, 1], 1)),
    ("conv2d_input", ((2, 6, 4, 4), (6, 4, 3, 3)), ([6, 6], [1, 1], [0, 0], [1, 1], 1)),
    ("conv2d_weight", ((2, 6, 4, 4), (2, 4, 6, 6)), ([3, 3], [1, 1], [0, 0], [1, 1], 1)),
])
def test_opcheck(operator, shapes, numbers):
    given = [torch.rand(s, device=CUDA, requires_grad=True) for s in shapes]
    found = torch.library.opcheck(getattr(torch.ops.maxdnn, operator).default, (*given, *numbers))
    assert set(found.values()) == {"SUCCESS"}


def test_gradcheck():
    """Linear in each argument, so differences of any width are right but for rounding."""
    for options in ({"padding": 1, "stride": 2}, {"padding": "same", "dilation": 2}, {"groups": 2}):
        given = [(torch.rand(s, device=CUDA) - 0.5).requires_grad_()
                 for s in ((1, 2, 3, 4), (2, 2 // options.get("groups", 1), 2, 2), (2,))]
        assert torch.autograd.gradcheck(lambda *g, o=options: mt.conv2d(*g, **o), given, eps=0.5, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n, c, hw, k, rs", [(1, 64, 14, 64, 1), (1, 64, 14, 64, 3), (32, 64, 14, 128, 3)])
@pytest.mark.parametrize("layer", [False, True])
def test_a_ready_call_does_nothing_but_launch(n, c, hw, k, rs, layer, monkeypatch):
    """One call of the driver for each launch of the plan, memory for the result and the workspace from what PyTorch's
    allocator holds, no copy. (`maxdnn bench` compares the host's time with PyTorch's.)"""
    x, w = torch.rand(n, c, hw, hw, device=CUDA), torch.rand(k, c, rs, rs, device=CUDA)
    module = mt.Conv2d(c, k, rs, bias=False).to(CUDA)
    call = (lambda: module(x)) if layer else (lambda: mt.conv2d(x, w))
    running._plans.clear()
    ops._eager.clear()
    with torch.inference_mode():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        (plan,), device = running._plans.values(), find.gpu(0)
        loaded, gone = engine.of(device).loaded(plan), []
        go = loaded._go
        loaded._go = lambda stream, event: gone.append(1) or go(stream, event)

        def refuse(*_, **__):
            raise AssertionError("a ready call copies nothing and asks the driver for no memory")
        for name in ("alloc", "upload", "download"):
            monkeypatch.setattr(type(device), name, refuse)
        before = torch.cuda.memory_stats()
        try:
            for _ in range(5):
                call()
            torch.cuda.synchronize()
        finally:
            loaded._go = go
        after = torch.cuda.memory_stats()
    assert len(gone) == 5 and len(loaded._prepared) == len(plan.launches)
    new, driver = (after[name] - before[name] for name in ("allocation.all.allocated", "segment.all.allocated"))
    assert (new, driver) == (5 * (1 + bool(plan.workspace_bytes)), 0)


def test_fifty_thousand_calls_grow_nothing():
    x, w = torch.rand(1, 16, 14, 14, device=CUDA), torch.rand(16, 16, 3, 3, device=CUDA)
    wr = w.clone().requires_grad_()

    def calls(count):
        for n in range(count):
            mt.conv2d(x, w)
            if n % 50 == 0:
                mt.conv2d(x, wr, padding=1).sum().backward()
                wr.grad = None
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        gc.collect()
        return resident(), torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    calls(2000)
    before = calls(2000)
    after = calls(int(os.environ.get("MAXDNN_CALLS", "50000")))
    print(f"\nresident KiB, allocated, free before {before} and after {after}")
    assert after[0] - before[0] < 2048 and after[1] == before[1] and after[2] >= before[2]


def resident():
    """KiB of this process in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.parametrize("made, size", [
    (lambda: nn.Conv1d(24, 40, 5, 2, 2), (24, 101)), (lambda: nn.ConvTranspose1d(24, 40, 4, 2, 1), (24, 50)),
    (lambda: nn.ConvTranspose2d(48, 32, 3, 2, 1, 1), (48, 14, 13)),
    (lambda: nn.ConvTranspose2d(32, 64, 2, 2, groups=4, bias=False), (32, 28, 28))],
    ids=["Conv1d", "ConvTranspose1d", "ConvTranspose2d", "groups"])
def test_layers_with_one_axis_and_transposed_ones(made, size):
    torch.manual_seed(0)
    stock = made().to(CUDA)
    own, right = mt.replace(copy.deepcopy(stock), frozen=True), copy.deepcopy(stock).double()
    x = torch.rand(8, *size, device=CUDA) - 0.5
    wanted = right(x.double())
    with torch.no_grad():
        for _ in range(4):
            close(own(x), wanted)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = own(x)
        out.zero_()
        graph.replay()
        close(out, wanted)
    given = x.clone().requires_grad_()
    own(given).square().sum().backward()
    doubled = x.double().requires_grad_()
    right(doubled).square().sum().backward()
    close(given.grad, doubled.grad)
    close(own.weight.grad, right.weight.grad)
    assert set(mt.ran(own, x).plans) == {type(own).__name__}


def test_tensor_cores_are_used_or_left_out_as_asked():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("machine code of sm_90")
    layer = nn.Conv2d(512, 512, 3, padding=1, bias=False).to(CUDA)
    x = torch.rand(32, 512, 14, 14, device=CUDA) - 0.5
    wanted = copy.deepcopy(layer).double()(x.double()).detach()
    found = {}
    for arithmetic in ("auto", "ffma"):
        mt.replace(layer, arithmetic=arithmetic)
        (found[arithmetic],) = mt.ran(layer, x).arithmetic.values()
        close(layer(x).detach(), wanted)
    assert "tensor cores" in found["auto"] and found["ffma"] == "FFMA"


def test_filters_that_are_kept_balance_what_tensor_cores_cut():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("machine code of sm_90")
    layer = nn.Conv2d(512, 512, 3, padding=1, bias=False).to(CUDA)
    x = torch.randn(32, 512, 14, 14, device=CUDA).relu()
    wanted, factors = F.conv2d(x.double(), layer.weight.detach().double(), padding=1), {}
    for frozen in (False, True):
        mt.replace(layer, frozen=frozen, algorithm="direct")
        with torch.inference_mode():
            found = [layer(x) for _ in range(3)][-1].double()
            assert "tensor cores" in str(mt.ran(layer, x).arithmetic)
        factors[frozen] = ((found * wanted).sum() / wanted.square().sum() - 1).item()
    assert factors[False] < -5e-8 and abs(factors[True]) < 3e-8
