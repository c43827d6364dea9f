"""Calls of maxdnn.torch like earlier ones, which go a shorter way, do what the first did, and changed ones are seen."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import maxdnn
import maxdnn.torch as mt
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.select import MAX_ERROR
from maxdnn.torch import ops, running

from .test_conv2d import close, tensors

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run", "ignore:Using padding='same'")]


class Again:
    """Stands for a call that was made before, which on the CPU is not remembered."""
    conf = (2, 1), (1, 1), (1, 1), 2, "auto", MAX_ERROR

    def __init__(self, serves):
        self.serves, self.known, self.lying = serves, [], (True, True)

    def run(self, roles, given, places):
        assert roles == ("images", "filters", "bias")
        assert not torch.is_grad_enabled() or not any(t.requires_grad for t in given)
        return running.forward(*given, *[None] * (3 - len(given)), *self.conf) if self.serves else None


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("serves", [True, False])
def test_calls_like_earlier_ones_have_the_same_derivatives(monkeypatch, with_bias, serves):
    x, w, b = tensors((3, 4, 6, 5), (6, 2, 3, 3), (6,))
    given = [t.requires_grad_() for t in ((x, w, b) if with_bias else (x, w))]
    options = {"stride": (2, 1), "padding": 1, "groups": 2}
    key = x.shape, w.shape, b.shape if with_bias else None, -1, ((2, 1), 1, 1, 2, "auto", MAX_ERROR, "auto")
    assert key not in ops._eager
    found = []
    for before in ({}, {key: Again(serves)}):
        monkeypatch.setattr(ops, "_eager", before)
        out = mt.conv2d(*given, **options)
        first = torch.autograd.grad((out ** 2).sum(), given, create_graph=True)
        found.append([out, *first, *torch.autograd.grad(sum((t ** 2).sum() for t in first), given)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    wanted = F.conv2d(*[t.double() for t in given], **options)
    close(found[1][0].detach(), wanted.detach())


class Mode(TorchDispatchMode):
    """Looks at every operator."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def within(context):
    """A change of what surrounds a call."""
    def change(call, x, w):
        with context():
            return call(x, w)
    return change


CHANGES = {
    "strides": lambda call, x, w: call(x.transpose(2, 3), w),
    "sizes": lambda call, x, w: call(x[:, :, 1:].contiguous(), w),
    "dtype": lambda call, x, w: call(x.double(), w),
    "kind of tensor": lambda call, x, w: call(torch.nn.Parameter(x, requires_grad=False), w),
    "subclass": lambda call, x, w: call(x.as_subclass(Other), w),
    "signs": lambda call, x, w: call(torch._neg_view(-x), w),
    "wants a derivative": lambda call, x, w: call(x.clone().requires_grad_(), w),
    "of inference": within(torch.inference_mode),
    "of other dtype": within(lambda: torch.autocast("cpu")),
    "mode": within(Mode),
    "profiler": within(torch.profiler.profile),
    "dual numbers": within(torch.autograd.forward_ad.dual_level),
    "vmap": lambda call, x, w: torch.vmap(lambda _: call(x, w).sum())(torch.rand(2)),
    "grad": lambda call, x, w: torch.func.grad(lambda a: call(x, w).sum() + a)(torch.rand(())),
    "jit": lambda call, x, w: torch.jit.trace(lambda a: call(a, w), x, check_trace=False),
}


def ready_again(monkeypatch, given):
    """A call with these tensors is ready and was made; a list of what `ops.plain` is asked from now on."""
    again, asked, plain = Again(True), [], ops.plain
    again.conf = (1, 1), (0, 0), (1, 1), 1, "auto", MAX_ERROR, "auto"
    shapes = [t.shape for t in given] + [None] * (3 - len(given))
    monkeypatch.setattr(ops, "_eager", {(*shapes, -1, (1, 0, 1, 1, "auto", MAX_ERROR, "auto")): again})
    mt.conv2d(*given)
    monkeypatch.setattr(ops, "plain", lambda given: asked.append(given) or plain(given))
    return asked


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("taped", [True, False])
def test_a_call_like_the_last_ones_is_looked_at_once(monkeypatch, with_bias, taped):
    given = tensors((3, 4, 6, 5), (6, 4, 3, 3), (6,))[:3 if with_bias else 2]
    given[1].requires_grad_(taped)
    wanted = mt.conv2d(*given)
    asked = ready_again(monkeypatch, given)
    for context, taped_there, first in ((torch.enable_grad, taped, False), (torch.no_grad, False, True),
                                        (torch.no_grad, False, False), (torch.enable_grad, taped, False)):
        asked.clear()
        with context():
            out = mt.conv2d(*given)
        assert torch.equal(out, wanted) and out.requires_grad is taped_there and bool(asked) is first


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_about_a_call_it_is_looked_at_closely(monkeypatch, change, known):
    """Or goes the long way. Without guards every call does the one or the other."""
    x, w = tensors((3, 4, 6, 5), (6, 4, 3, 3))
    w.requires_grad_(change not in ("wants a derivative", "jit"))
    if not known:
        monkeypatch.setattr(ops, "_Guards", None)
    asked = ready_again(monkeypatch, (x, w))
    log = []

    def call(x, w):
        asked.clear()
        out = ops.eager(x, w, None, 1, 0, 1, 1, "auto", MAX_ERROR, "auto")
        log.append(out is None or bool(asked))
        return F.conv2d(x.float(), w) if out is None else out
    CHANGES[change](call, x, w)
    assert log == [True]
    log.clear()
    out = call(x, w)
    assert log == [not known] and out.requires_grad is w.requires_grad


def test_of_a_ready_call_a_few_kinds_of_tensors_are_known(monkeypatch):
    given = x, w = tensors((3, 4, 6, 5), (6, 4, 3, 3))
    ready_again(monkeypatch, given)
    (ready,) = ops._eager.values()
    for images in (x, torch.empty(0).set_(x)):
        for filters in (w, torch.nn.Parameter(w), torch.nn.Parameter(w, requires_grad=False)):
            for context in (torch.no_grad, torch.enable_grad, torch.inference_mode):
                with context():
                    out = mt.conv2d(images, filters)
                assert out.requires_grad is (filters.requires_grad and context is torch.enable_grad)
                assert 1 <= len(ready.known) <= ops._KNOWN


def test_what_is_no_tensor_is_refused_by_a_ready_call(monkeypatch):
    x, w = tensors((3, 4, 6, 5), (6, 4, 3, 3))
    ready_again(monkeypatch, (x, w))
    for wrong in ((x.tolist(), w), (None, w), (x, 3)):
        with pytest.raises((TypeError, AttributeError)):
            mt.conv2d(*wrong)
    with pytest.raises(maxdnn.ShapeError):
        mt.conv2d(x, w, stride=[1, 0])


class Other(torch.Tensor):
    """A kind of tensors that has a way of its own with operators."""
    seen: list = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.maxdnn.conv2d.default:
            cls.seen.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("which", [0, 1, 2])
def test_tensors_of_other_kinds_are_asked_wherever_they_are(monkeypatch, which):
    given = tensors((3, 4, 6, 5), (6, 4, 3, 3), (6,))
    wanted = mt.conv2d(*given)
    how = 1, 0, 1, 1, "auto", MAX_ERROR, "auto"
    monkeypatch.setattr(ops, "_eager", {(*[t.shape for t in given], -1, how): Again(True)})
    given[which] = given[which].as_subclass(Other)
    monkeypatch.setattr(Other, "seen", [])
    assert torch.equal(torch.Tensor(mt.conv2d(*given)), wanted) and len(Other.seen) == 1


@pytest.mark.parametrize("current", [0, 1], ids=["the current device", "another"])
def test_a_call_on_a_gpu_gives_its_workspace_back_whatever_happens(monkeypatch, current):
    """Here a tensor plays one on GPU 0, and the engine notes what it is given."""
    log = []

    class Loaded:
        def run(self, places, room, scalars, stream):
            log.append((room, stream))
            if fails:
                raise RuntimeError("the launch")
    for name, function in (("getCurrentRawStream", lambda where: 7), ("getDevice", lambda: current),
                           ("cudaCachingAllocator_raw_alloc", lambda nbytes, stream: 512 * stream),
                           ("cudaCachingAllocator_raw_delete", lambda room: log.append(("freed", room)))):
        monkeypatch.setattr(torch._C, f"_cuda_{name}", function, raising=False)
    out = SimpleNamespace(get_device=lambda: 0, new_empty=lambda count: torch.empty(count))
    for fails, nbytes in ((False, 0), (False, 90), (True, 90)):
        log.clear()
        with pytest.raises(RuntimeError, match="the launch") if fails else contextlib.nullcontext():
            running.launch(SimpleNamespace(workspace_bytes=nbytes, terms=None),
                       SimpleNamespace(loaded=lambda plan: Loaded(), device=VirtualGpu()), out, {})
        if not nbytes:
            assert log == [(0, 7)]
        elif current == 0:
            assert log == [(3584, 7), ("freed", 3584)]
        else:
            assert len(log) == 1 and log[0][0] % 16 == 0 < log[0][0]
