"""maxdnn.torch where memory is short, on virtual GPUs with little of it; and PyTorch's allocator played by one."""

import contextlib
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.emulator import VirtualGpu
from maxdnn.planning import select
from maxdnn.planning.select import chip_of
from maxdnn.runtime import engine, shortage
from maxdnn.runtime.devices import find
from maxdnn.runtime.stream_workspace import NoEvent
from maxdnn.torch import kept_filters, memory, ops, running

pytestmark = pytest.mark.torch
X, W = (4, 64, 16, 16), (64, 64, 3, 3)
HELD = 4 * (2 * 4 * 64 * 16 * 16 + 64 * 64 * 9)  # input, output and weights
ROOM = 1 << 16  # beside them; the best plan wants 256 KiB, the least 0 to 144 KiB


@pytest.fixture
def gpu(monkeypatch):
    """What CPU tensors run on; its memory can be limited later."""
    made = VirtualGpu()
    monkeypatch.setitem(running._devices, -1, (made, 16))
    for table in (running._plans, ops._eager, running._shortages):
        table.clear()
    yield made
    for table in (running._plans, ops._eager, running._shortages):
        table.clear()


def tensors():
    torch.manual_seed(4)
    return torch.rand(X) - 0.5, torch.rand(W) - 0.5


@pytest.mark.parametrize("kind", ["forward", "data", "filters"])
def test_layers_and_their_gradients_give_way(gpu, kind):
    (x, w), conf = tensors(), ([1, 1], [1, 1], [1, 1], 1)
    call = {"forward": lambda: mt.conv2d(x, w, padding=1), "data": lambda: ops.conv2d_input(x, w, X[2:], *conf),
            "filters": lambda: ops.conv2d_weight(x, x, W[2:], *conf)}[kind]
    right = call()
    (plan,) = running._plans.values()
    engine.of(gpu).release()
    gpu.memory._most = 4 * sum(o.extent for o in plan.problem.operands) + select.least_workspace(plan, chip_of(gpu))
    torch.testing.assert_close(call(), right, rtol=1e-4, atol=1e-4 * right.abs().max().item())
    assert list(shortage.of(gpu)._instead) == [plan]
    gpu.memory._most = HELD // 2
    with pytest.raises(maxdnn.OutOfMemoryError, match="free"):
        call()


def test_a_frozen_layer_lets_its_filters_go_and_keeps_them_again_when_there_is_memory(gpu):
    x, w = tensors()
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(w)
    mt.replace(layer, frozen=True)
    right = F.conv2d(x.double(), w.double(), padding=1)

    def check():
        torch.testing.assert_close(layer(x).double(), right, rtol=1e-5, atol=1e-4)
        return type(layer.__dict__[kept_filters.WHERE].get(x.shape))
    with torch.inference_mode():
        assert [check() for _ in range(3)][1:] == [kept_filters.Kept] * 2
        (kept,) = layer.__dict__[kept_filters.WHERE].values()
        assert kept.filters.nbytes > ROOM, "or they need not go"
        del kept
        ballast = torch.empty(1 << 18)
        gpu.memory._most = HELD + ROOM + ballast.numel() * 4
        held = gpu.adopt(ballast.numpy())
        engine.of(gpu).release()  # as for another call that lacks memory
        assert type(layer.__dict__[kept_filters.WHERE].get(x.shape)) is kept_filters.LetGo, "the filters stayed"
        assert [check() for _ in range(3)] == [kept_filters.LetGo] * 3, "asked again at every call"
        held.free()
        gpu.memory._most = None
        assert check() and [check() for _ in range(2 * shortage.LOOK)][-1] is kept_filters.Kept


def test_the_memory_of_filters_that_were_let_go_does_not_count_as_more_than_there_was(gpu, monkeypatch):
    x, _ = tensors()
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1, bias=False), frozen=True)

    def kept():
        return layer.__dict__[kept_filters.WHERE].get(x.shape)
    with torch.inference_mode():
        for _ in range(2):
            layer(x)
        alive, nbytes = weakref.ref(kept().filters), kept().filters.nbytes
        monkeypatch.setattr(kept_filters, "_free", lambda where: lambda: ROOM + (0 if alive() else nbytes))
        engine.of(gpu).release()
        for _ in range(2 * shortage.LOOK):
            layer(x)
            assert type(kept()) is kept_filters.LetGo and alive() is None


def test_no_filters_are_made_ready_where_there_is_no_room_for_them(gpu, monkeypatch):
    x, _ = tensors()
    layer = mt.replace(nn.Conv2d(64, 64, 3, padding=1, bias=False), frozen=True)
    asked = []

    def refuse(*given, **more):
        asked.append(given)
        raise maxdnn.OutOfMemoryError("none", 100, 10)
    monkeypatch.setattr(kept_filters, "prepare_filters", refuse)
    with torch.inference_mode():
        for _ in range(shortage.LOOK - 2):
            torch.testing.assert_close(layer(x), F.conv2d(x, layer.weight, padding=1), rtol=1e-4, atol=1e-4)
    assert len(asked) == 1


def refuse(*given):
    raise maxdnn.ShapeError("nothing fits")


class Allocator:
    """PyTorch's, on a virtual GPU."""

    def __init__(self, gpu):
        self.gpu, self.kept, self.asked = gpu, {}, []

    def alloc(self, nbytes, stream):
        self.asked.append(nbytes)
        try:
            buffer = self.gpu.alloc(nbytes)
        except maxdnn.OutOfMemoryError as e:
            raise torch.cuda.OutOfMemoryError(f"CUDA out of memory. {e}") from None
        self.kept[buffer.address] = buffer
        return buffer.address

    def delete(self, address):
        self.kept.pop(address).free()


@pytest.fixture
def played(gpu, monkeypatch):
    """Calls of `launch` as on a GPU: workspace from PyTorch's allocator."""
    allocator = Allocator(gpu)
    for name, function in (("getCurrentRawStream", lambda where: 0), ("getDevice", lambda: -1),
                           ("cudaCachingAllocator_raw_alloc", allocator.alloc),
                           ("cudaCachingAllocator_raw_delete", allocator.delete)):
        monkeypatch.setattr(torch._C, f"_cuda_{name}", function, raising=False)
    for name, function in (("get_device_properties", lambda where: SimpleNamespace(total_memory=1 << 40)),
                           ("memory_reserved", lambda where: 0), ("memory_allocated", lambda where: 0),
                           ("get_per_process_memory_fraction", lambda where: 1.0)):
        monkeypatch.setattr(torch.cuda, name, function, raising=False)
    allocator.graph = None
    for name, ability in (("graph_of", lambda stream: allocator.graph), ("stream_handle", lambda stream: 0),
                          ("wait_for", lambda stream, handle: None), ("event", NoEvent)):
        monkeypatch.setattr(gpu, name, ability, raising=False)
    return allocator


def test_workspace_of_pytorchs_allocator_gives_way(gpu, played):
    x, w = tensors()
    out, right = torch.empty(X), F.conv2d(x.double(), w.double(), padding=1)
    conf = (1, 1), (1, 1), (1, 1), 1, "auto", select.MAX_ERROR
    plan = running.plan_of("forward", {"images": x, "filters": w, "out": out}, X, W, conf, gpu)
    arrays = {"images": x.numpy(), "filters": w.numpy(), "out": out.numpy()}
    buffers = {role: gpu.adopt(array) for role, array in arrays.items()}

    def call():
        out.zero_()
        running.launch(plan, engine.of(gpu), out, {role: buffer.address for role, buffer in buffers.items()})
        torch.testing.assert_close(out.double(), right, rtol=1e-5, atol=1e-4)
        assert not played.kept, "a workspace stayed"
    call()
    assert played.asked == [plan.workspace_bytes]
    gpu.memory._most = HELD + ROOM
    call()
    short = running.shortage_of(-1)
    assert short._instead.get(plan).plan.workspace_bytes <= ROOM
    played.asked.clear()
    for _ in range(2 * shortage.LOOK):
        call()
    assert plan.workspace_bytes not in played.asked
    played.graph = SimpleNamespace(alive=True)
    gpu.memory._most = 1 << 40
    for _ in range(2 * shortage.LOOK):
        call()
    assert plan.workspace_bytes not in played.asked, "what a graph is made of changed during its capture"
    played.graph = None
    for _ in range(shortage.LOOK):
        call()
    assert played.asked[-1] == plan.workspace_bytes and not short._instead
    gpu.memory._most, played.graph = HELD + ROOM, SimpleNamespace(alive=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.Engine, "release", lambda self: pytest.fail("let go of something in a capture"))
        played.asked.clear()
        call()
        assert played.asked[0] == plan.workspace_bytes > ROOM >= max(played.asked[1:], default=0)
        assert not short._instead, "remembered, although nothing was let go"
        patch.setattr(shortage, "smaller", refuse)
        with pytest.raises(mt.OutOfMemoryError, match="during a capture: call") as e:
            call()
        assert (e.value.wanted, e.value.workspace) == (plan.workspace_bytes, True) and e.value.free <= ROOM
    assert issubclass(mt.OutOfMemoryError, torch.cuda.OutOfMemoryError)
    assert issubclass(mt.OutOfMemoryError, maxdnn.OutOfMemoryError)


def test_what_pytorchs_allocator_can_give_is_bounded_by_its_share_of_the_card(played, monkeypatch):
    device = find.host()
    monkeypatch.setattr(device, "free_bytes", lambda: 900)
    for name, value in (("get_device_properties", SimpleNamespace(total_memory=1000)), ("memory_reserved", 300),
                        ("memory_allocated", 250), ("get_per_process_memory_fraction", 0.5)):
        monkeypatch.setattr(torch.cuda, name, lambda where, value=value: value)
    idle = engine.of(device).idle_bytes
    assert memory.free_bytes(0, device) == 200 + 50 + idle
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda where: 600)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda where: 600)
    assert memory.free_bytes(0, device) == idle


INF = [(0, 3, 5, 7, float("inf")), (1, 0, 0, 0, float("nan")), (2, 9, 15, 15, float("-inf"))]


def test_infinities_stay_in_the_outputs_they_belong_to_by_the_direct_algorithm(gpu):
    x, w = tensors()
    w += 2  # no cancelling of infinities by a weight of zero
    for *at, value in INF:
        x[tuple(at)] = value
    wanted = F.conv2d(x, w, padding=1)
    assert mt.conv2d(x, w, padding=1).isnan().sum() > wanted.isnan().sum(), "Winograd is not taken here"
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(w)
    for frozen in (False, True):
        mt.replace(layer, frozen=frozen, algorithm="direct")
        with torch.no_grad():
            found = [mt.conv2d(x, w, padding=1, algorithm="direct"), *(layer(x) for _ in range(3))]
        for out in found:
            assert torch.equal(out.isnan(), wanted.isnan()) and torch.equal(out.isinf(), wanted.isinf())
    assert all(running._plans.get(key).algorithm == "direct" for key in running._plans if "direct" in key)
    given = [t.clone().requires_grad_() for t in (tensors()[0], w)]
    out = mt.conv2d(*given, padding=1, algorithm="direct")
    out.backward(x)
    assert {running._plans.get(key).algorithm for key in running._plans if "direct" in key} == {"direct"}
    doubles = [t.detach().clone().requires_grad_() for t in given]
    F.conv2d(*doubles, padding=1).backward(x)
    assert torch.equal(given[0].grad.isfinite(), doubles[0].grad.isfinite())


def test_an_algorithm_and_an_error_can_be_asked_for(gpu):
    x, w = (t.requires_grad_() for t in tensors())
    right = F.conv2d(x.double(), w.double(), padding=1)
    loose = mt.conv2d(x, w, padding=1, algorithm="winograd", max_error=1e-4)
    loose.sum().backward()
    torch.testing.assert_close(loose.double(), right, rtol=1e-3, atol=1e-3)
    assert running._plans.get(next(k for k in running._plans if k[0] == "forward")).algorithm == "winograd"
    layer = mt.Conv2d(64, 64, 1, algorithm="winograd")
    with pytest.raises(maxdnn.ShapeError, match="not served"):
        layer(x)
    layer.algorithm = "auto"
    assert layer(x).shape == X
    for options, words in (({"algorithm": "fourier"}, "algorithm must be one of auto, direct, winograd, fft"),
                           ({"max_error": 0}, "max_error must be a positive number"),
                           ({"max_error": 1e-9}, "max_error must be at least")):
        with pytest.raises(maxdnn.ShapeError, match=words):
            mt.conv2d(x, w, padding=1, **options)
        broken = pytest.raises(maxdnn.ShapeError, match=words)
        with broken if "at least" not in words else contextlib.nullcontext():
            mt.replace(nn.Conv2d(2, 2, 1), **options)
        with broken if "at least" not in words else contextlib.nullcontext():
            mt.Conv2d(2, 2, 1, **options)
    model = mt.replace(nn.Sequential(nn.Conv2d(2, 2, 1), mt.Conv2d(2, 2, 1)), algorithm="direct", max_error=1e-5)
    assert all((m.algorithm, m.max_error) == ("direct", 1e-5) for m in model)
    assert all((m.algorithm, m.max_error) == ("auto", select.MAX_ERROR) for m in mt.replace(model))
