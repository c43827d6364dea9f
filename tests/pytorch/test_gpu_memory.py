"""Memory that is short on a real GPU."""

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.runtime import engine, shortage
from maxdnn.runtime.devices import find
from maxdnn.torch import kept_filters, ops, running

from .gpu import CUDA, close, no_tf32  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.gpu


LAYER, MEMORY = (100, 64, 256, 256), int(4.5 * 2**30)
"""3 x 3 filters: 1.56 GiB of input and of output each, 3.5 GiB of workspace."""


@pytest.fixture
def little_memory():
    """PyTorch's allocator with 4.5 GiB."""
    gc.collect()
    torch.cuda.empty_cache()
    for device in list(running._devices.values()):
        engine.of(device[0]).release()
    running._shortages.clear()
    assert torch.cuda.memory_allocated() < 64 << 20, "another test keeps tensors"
    torch.cuda.set_per_process_memory_fraction(MEMORY / torch.cuda.get_device_properties(0).total_memory)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()
    running._shortages.clear()


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
        assert running._shortages[0]._instead, "there was memory enough"
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
        assert 0 not in running._shortages or not len(running._shortages[0]._instead)
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
        kept_filters.let_go(running.device_of(0)[0])
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
    assert running._shortages[0]._instead


def test_the_better_plan_comes_back_when_there_is_memory_again(little_memory):
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1).to(CUDA))
    with torch.inference_mode():
        x = torch.rand(LAYER, device=CUDA) - 0.5
        layer(x)
        assert running._shortages[0]._instead
        torch.cuda.set_per_process_memory_fraction(1.0)
        for _ in range(shortage.LOOK):
            layer(x)
        assert not running._shortages[0]._instead


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
    for device in list(running._devices.values()):
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
