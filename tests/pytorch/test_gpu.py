"""maxdnn.torch on a real GPU, where there are PyTorch for CUDA and pycuda (`make test-gpu`)."""

import gc
import os
import random
import resource
import statistics
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.planning import select
from maxdnn.problem import problem
from maxdnn.runtime import engine, shortage
from maxdnn.runtime.devices import find
from maxdnn.torch import kept_filters, ops
from maxdnn.torch.networks import Network

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def no_tf32():
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def close(found, wanted, tolerance=1e-5):
    assert found.shape == wanted.shape and found.dtype == torch.float32
    assert (found.double() - wanted).abs().max() <= tolerance * max(wanted.abs().max().item(), 1e-3)


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


def layers():
    return nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1, bias=False),
                         nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 24, 1), nn.Conv2d(24, 24, (1, 7), padding="same"),
                         nn.Conv2d(24, 10, 2, padding="same"))


def networks():
    torch.manual_seed(0)
    stock = layers().to(CUDA)
    own = layers().to(CUDA)
    own.load_state_dict(stock.state_dict())
    return mt.replace(own), stock


def test_a_graph_replays_right_with_changed_inputs_and_weights():
    own, stock = networks()
    own.eval(), stock.eval()
    x = torch.rand(8, 3, 64, 64, device=CUDA)
    side = torch.cuda.Stream()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            own(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = own(x)
        for seed in range(4):
            torch.manual_seed(seed)
            x.copy_(torch.rand_like(x))
            own[2].weight.mul_(1.1)
            stock[2].weight.copy_(own[2].weight)
            junk = [torch.full((1 << 22,), float("nan"), device=CUDA) for _ in range(8)]  # over memory that was let go
            del junk
            graph.replay()
            close(out, stock.double()(x.double()))
            stock.float()


def test_frozen_layers_replay_right_and_on_any_stream():
    own, stock = networks()
    mt.replace(own.eval(), frozen=True)
    stock.eval().double()
    x = torch.rand(8, 3, 64, 64, device=CUDA)
    with torch.inference_mode():
        for stream in (torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()):
            with torch.cuda.stream(stream):
                for _ in range(3):
                    out = own(x)
            torch.cuda.synchronize()
            close(out, stock(x.double()))
        assert any(isinstance(value, kept_filters.Kept) for layer in own if isinstance(layer, mt.Conv2d)
                   for value in layer.__dict__[kept_filters.WHERE].values())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = own(x)
        for seed in range(3):
            torch.manual_seed(seed)
            x.copy_(torch.rand_like(x))
            graph.replay()
            close(out, stock(x.double()))
    with torch.no_grad():
        own[2].weight.mul_(2)
        stock[2].weight.copy_(own[2].weight)
        for _ in range(4):
            close(own(x), stock(x.double()))


def test_a_training_step_replays_as_a_graph():
    own, stock = networks()
    x, y = torch.rand(8, 3, 48, 48, device=CUDA), torch.rand(8, 10, 24, 24, device=CUDA)
    losses = {}
    for name, model in (("own", own), ("stock", stock)):
        optimizer = torch.optim.SGD(model.parameters(), 0.05)

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=False)
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        losses[name] = []
        for _ in range(5):
            graph.replay()
            losses[name].append(loss.item())
    assert losses["own"] == pytest.approx(losses["stock"], rel=1e-4) and losses["own"][-1] < losses["own"][0]


def test_a_step_is_captured_after_one_on_another_stream_has_made_its_plans():
    """While nobody collects what cycles hold: derivatives that stayed would tie the capture to that stream. Candidates
    for such sizes are refused on the way."""
    own = mt.replace(nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).to(CUDA))
    x = torch.rand(33, 3, 222, 222, device=CUDA)

    def step():
        own.zero_grad(set_to_none=True)
        (own(x) ** 2).mean().backward()
    gc.collect()
    gc.disable()
    try:
        step()
        wanted = [p.grad.clone() for p in own.parameters()]
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
            with torch.cuda.graph(graph, stream=side):
                step()
    finally:
        gc.enable()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(p.grad, right) for p, right in zip(own.parameters(), wanted, strict=True))


def test_a_graph_outlives_many_other_plans(monkeypatch):
    monkeypatch.setattr(engine.of(find.gpu(0))._plans, "entries", 4)
    x, w = torch.rand(8, 16, 20, 20, device=CUDA), torch.rand(24, 16, 3, 3, device=CUDA)
    with torch.inference_mode():
        wanted = mt.conv2d(x, w)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            out = mt.conv2d(x, w)
        for n in range(1, 9):
            mt.conv2d(x[:, :, n:], w)
        out.zero_()
        graph.replay()
        assert torch.equal(out, wanted)


def test_filters_that_a_graph_reads_outlive_many_other_shapes(monkeypatch):
    monkeypatch.setattr(kept_filters, "SHAPES", 3)
    layer = mt.replace(nn.Conv2d(64, 64, 3).to(CUDA), frozen=True)
    x = torch.rand(8, 64, 30, 30, device=CUDA)
    with torch.inference_mode():
        for _ in range(3):
            wanted = layer(x)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            out = layer(x)
        for n in range(1, 9):
            for _ in range(3):
                layer(x[:, :, n:].contiguous())
        junk = [torch.full((64, 64, 3, 3), float("nan"), device=CUDA) for _ in range(64)]
        out.zero_()
        graph.replay()
        assert torch.equal(out, wanted) and len(junk) == 64


def test_two_streams_run_two_plans_at_once_and_share_nothing_that_is_written():
    shapes = [((16, 64, 28, 28), (64, 64, 3, 3)), ((16, 32, 28, 28), (96, 32, 3, 3))]
    given = [(torch.rand(x, device=CUDA), torch.rand(w, device=CUDA)) for x, w in shapes]
    wanted = [mt.conv2d(x, w, padding=1) for x, w in given]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for _ in range(30):
        found = []
        for stream, (x, w) in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                found.append([mt.conv2d(x, w, padding=1) for _ in range(3)])
        torch.cuda.synchronize()
        for results, right in zip(found, wanted, strict=True):
            assert all(torch.equal(result, right) for result in results)


def test_a_stream_that_cupy_captures_keeps_its_workspace():
    cupy = pytest.importorskip("cupy")
    shape = maxdnn.ConvShape(64, 8, 3, 3, 64, 3, 3, 1, 1)
    plan = maxdnn.plan(shape, kernel="sconv_fprop_K64_N64", device=find.gpu(0))
    assert plan.workspace_bytes
    rng = np.random.default_rng(1)  # and copies, which need no compiler of CuPy's
    x, w = (cupy.asarray(rng.random((8, 3, 3, 64), np.float32)) for _ in range(2))
    out, right = cupy.zeros((64, 3, 3, 64), "f"), maxdnn.conv_fprop(x, w, plan=plan)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:  # that the arrays name
        stream.begin_capture()
        maxdnn.conv_fprop(x, w, plan=plan, out=out, stream=stream.ptr)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert np.array_equal(cupy.asnumpy(out), cupy.asnumpy(right))


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
    asked = *how, "auto", select.MAX_ERROR
    assert ops.eager(x, w, b, *asked) is None, "not made before"
    first = mt.conv2d(x, w, b, *how)
    assert torch.equal(ops.eager(x, w, b, *asked), first)
    for other in (torch._neg_view(-x), x.to(memory_format=torch.channels_last), nn.Parameter(x)):
        with torch.no_grad():
            assert torch.equal(mt.conv2d(other, w, b, *how), first)
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
    with pytest.raises(RuntimeError, match="functorch"):  # which PyTorch does not offer such operators
        torch.func.vjp(lambda w: mt.conv2d(x, w, b, *how), w)
    with torch.autocast("cuda", dtype=torch.float16), pytest.raises(maxdnn.ShapeError, match="autocast"):
        mt.conv2d(x, w, b, *how)
    for wrong in ((x.double(), w, b), (x, w.half(), b), (x, w.cpu(), b), (x, w, b.cpu()), (x, w, b[:3])):
        with pytest.raises(maxdnn.ShapeError):
            mt.conv2d(*wrong, *how)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        mt.conv2d(x, w, b, *how)
    assert any("maxdnn" in event.name for event in seen.events())


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


def host_microseconds(call, repeats=500):
    """Median host time; the GPU is let catch up in between, so that no queue is ever full."""
    times = []
    for n in range(repeats + 50):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
        if n % 20 == 0:
            torch.cuda.synchronize()
    return 1e6 * statistics.median(times[50:])


@pytest.mark.parametrize("n, c, hw, k, rs", [(1, 64, 14, 64, 1), (1, 64, 14, 64, 3), (32, 64, 14, 128, 3)])
def test_host_time_of_a_ready_call(n, c, hw, k, rs):
    x, w = torch.rand(n, c, hw, hw, device=CUDA), torch.rand(k, c, rs, rs, device=CUDA)
    shape = maxdnn.ConvShape(n, c, hw, hw, k, rs, rs)
    device = find.gpu(0)
    plan = select.choose(problem.forward(shape, layout="NCHW"), device.chip)
    out = torch.empty(plan.array_shapes()["out"], device=CUDA)
    most = 20 + 6 * len(plan.launches)
    with torch.inference_mode():
        module = mt.Conv2d(c, k, rs, bias=False).to(CUDA)
        found = {"maxdnn.torch.conv2d": host_microseconds(lambda: mt.conv2d(x, w)),
                 "maxdnn.torch.Conv2d": host_microseconds(lambda: module(x))}
    with torch.no_grad():
        found["maxdnn.torch.conv2d, no_grad"] = host_microseconds(lambda: mt.conv2d(x, w))
    stream = torch.cuda.current_stream()
    found["maxdnn.conv_fprop"] = host_microseconds(lambda: maxdnn.conv_fprop(x, w, plan=plan, out=out, stream=stream))
    stock = host_microseconds(lambda: F.conv2d(x, w))
    wr = w.clone().requires_grad_()
    with_grad = host_microseconds(lambda: mt.conv2d(x, wr))
    print(f"\nhost {shape}: {len(plan.launches)} launches, at most {most}:",
          ", ".join(f"{name} {us:.1f}" for name, us in found.items()),
          f"; with autograd {with_grad:.1f}; F.conv2d {stock:.1f}")
    assert max(found["maxdnn.conv_fprop"], found["maxdnn.torch.conv2d"]) <= most


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


LAYER, MEMORY = (100, 64, 256, 256), int(4.5 * 2**30)
"""3 x 3 filters: 1.56 GiB of input and of output each, 3.5 GiB of workspace."""


@pytest.fixture
def little_memory():
    """PyTorch's allocator with 4.5 GiB."""
    gc.collect()
    torch.cuda.empty_cache()
    for device in list(ops._devices.values()):
        engine.of(device[0]).release()
    ops._shortages.clear()
    assert torch.cuda.memory_allocated() < 64 << 20, "another test keeps tensors"
    torch.cuda.set_per_process_memory_fraction(MEMORY / torch.cuda.get_device_properties(0).total_memory)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()
    ops._shortages.clear()


def right_rows(x, layer):
    """The first and the last image of a layer's output, in float64, by the host: the GPU has no memory for it."""
    x, weight, bias = (t.detach().cpu().double() for t in (x[[0, -1]], layer.weight, layer.bias))
    return F.conv2d(x, weight, bias, padding=1)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_layer_whose_workspace_cannot_be_had_runs_and_is_captured(little_memory, frozen):
    """Where PyTorch's own runs too."""
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1).to(CUDA), frozen=frozen)
    with torch.inference_mode():
        x = torch.rand(LAYER, device=CUDA) - 0.5
        for _ in range(4):  # of a frozen layer the second one keeps filters
            out = layer(x)
            close(out[[0, -1]].cpu(), right_rows(x, layer))
            del out
        assert ops._shortages[0]._instead, "there was memory enough"
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(x)
        for seed in range(2):
            torch.manual_seed(seed)
            x.uniform_(-0.5, 0.5)
            out.zero_()
            graph.replay()
            close(out[[0, -1]].cpu(), right_rows(x, layer))


@pytest.mark.parametrize("frozen", [False, True])
def test_a_first_call_in_a_capture_is_of_what_fits(little_memory, frozen):
    """Nothing was let go or tried before."""
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1).to(CUDA), frozen=frozen)
    with torch.inference_mode():
        x = torch.rand(LAYER, device=CUDA) - 0.5
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(x)
        assert 0 not in ops._shortages or not len(ops._shortages[0]._instead)
        out.zero_()
        graph.replay()
        close(out[[0, -1]].cpu(), right_rows(x, layer))


def test_filters_are_let_go_while_another_stream_is_busy():
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1, bias=False).to(CUDA), frozen=True)
    with torch.inference_mode():
        x = torch.rand((4, 64, 32, 32), device=CUDA) - 0.5
        for _ in range(3):
            out = layer(x)
        assert type(layer.__dict__[kept_filters.WHERE].get(x.shape)) is kept_filters.Kept
        torch.cuda.synchronize()
        busy = torch.cuda.Stream()
        with torch.cuda.stream(busy):
            torch.cuda._sleep(1 << 31)
        kept_filters.let_go(ops.device_of(0)[0])
        assert not busy.query(), "the device was waited for"
        assert type(layer.__dict__[kept_filters.WHERE].get(x.shape)) is kept_filters.LetGo
        torch.testing.assert_close(layer(x), out, rtol=1e-4, atol=1e-4)
        torch.cuda.synchronize()


def test_gradients_whose_workspace_cannot_be_had_are_computed(little_memory):
    conf = [1, 1], [1, 1], [1, 1], 1
    w = torch.rand(64, 64, 3, 3, device=CUDA) - 0.5
    g = torch.rand(LAYER, device=CUDA).sub_(0.5)  # in place: there is no memory for a third array of this size
    found = ops.conv2d_input(g, w, LAYER[2:], *conf)
    close(found[:1].cpu(), F.conv_transpose2d(g[:1].cpu().double(), w.cpu().double(), padding=1))
    del found
    x = torch.rand(LAYER, device=CUDA).sub_(0.5)
    found = ops.conv2d_weight(g, x, (3, 3), *conf).double()

    def gradient(make):
        """In float64, a few images at a time."""
        return sum(torch.nn.grad.conv2d_weight(make(x[n:n + 2]).double(), w.shape, make(g[n:n + 2]).double(), padding=1)
                   for n in range(0, 100, 2))
    most = 2e-6 * gradient(torch.abs)  # max_error of the sum of |terms|
    assert ((found - gradient(lambda t: t)).abs() <= most).all()
    assert ops._shortages[0]._instead


def test_the_better_plan_comes_back_when_there_is_memory_again(little_memory):
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1).to(CUDA))
    with torch.inference_mode():
        x = torch.rand(LAYER, device=CUDA) - 0.5
        layer(x)
        assert ops._shortages[0]._instead
        torch.cuda.set_per_process_memory_fraction(1.0)
        for _ in range(shortage.LOOK):
            layer(x)
        assert not ops._shortages[0]._instead


def test_there_is_an_error_of_both_libraries_where_nothing_fits(little_memory):
    x = torch.rand(LAYER, device=CUDA)
    w = torch.rand(64, 64, 3, 3, device=CUDA)
    held = [torch.empty(1 << 28, dtype=torch.uint8, device=CUDA) for _ in range(8)]
    with pytest.raises(torch.cuda.OutOfMemoryError):
        mt.conv2d(x, w, padding=1)
    del held
    assert mt.conv2d(x, w, padding=1).shape == LAYER


@pytest.mark.parametrize("call", ["forward", "data", "filters", "product"])
def test_functions_with_tensors_give_way_on_a_full_card(call):
    """The driver's own memory is what is short: a ballast leaves 1.5 GiB beside the operands."""
    gc.collect()
    for device in list(ops._devices.values()):
        engine.of(device[0]).release()
    device = find.gpu(0)
    x, g, w = torch.rand(LAYER, device=CUDA), torch.rand(LAYER, device=CUDA), torch.rand(64, 64, 3, 3, device=CUDA)
    a, b = torch.rand(512, 1 << 20, device=CUDA), torch.rand(1 << 20, 511, device=CUDA)  # b is copied: rows of 511
    out = {"forward": torch.empty(LAYER, device=CUDA), "data": torch.empty(LAYER, device=CUDA),
           "filters": torch.empty(64, 64, 3, 3, device=CUDA), "product": torch.empty(512, 511, device=CUDA)}[call]
    run = {"forward": lambda: maxdnn.conv_fprop(x, w, padding=1, layout="NCHW", out=out),
           "data": lambda: maxdnn.conv_bprop_data(g, w, (256, 256), padding=1, layout="NCHW", out=out),
           "filters": lambda: maxdnn.conv_bprop_filters(x, g, (3, 3), padding=1, layout="NCHW", out=out),
           "product": lambda: maxdnn.matmul(a, b, out=out)}[call]
    run()
    torch.cuda.synchronize()
    right = out.cpu()
    engine.of(device).release()
    least = (5 << 30) // 2 if call == "product" else (3 << 30) // 2
    ballast = device.alloc(device.free_bytes() - least)
    try:
        run()
        torch.cuda.synchronize()
        assert (out.cpu() - right).abs().max() <= 1e-4 * right.abs().max()
        assert call == "product" or shortage.of(device)._instead
    finally:
        ballast.free()
        engine.of(device).release()
        device.kept.pop("shortage", None)
