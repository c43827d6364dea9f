"""maxdnn.torch on CPU tensors, that is on the virtual GPU, against PyTorch in float64."""

import contextlib
import random
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import maxdnn
import maxdnn.torch as mt
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.select import MAX_ERROR
from maxdnn.runtime.remember import Table
from maxdnn.torch import ops, running

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run", "ignore:Using padding='same'")]
TOLERANCE = 1e-5  # of sums of at most a few hundred products of numbers below 1


def close(found, wanted):
    scale = max(1.0, wanted.abs().max().item() if wanted.numel() else 1.0)
    assert found.shape == wanted.shape and found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=TOLERANCE * scale)


def tensors(*shapes, seed=0):
    torch.manual_seed(seed)
    return [torch.rand(s) - 0.5 for s in shapes]


OPTIONS = [
    {}, {"stride": 2}, {"stride": (2, 1), "padding": (0, 2)}, {"padding": 1}, {"padding": "valid"}, {"padding": "same"},
    {"padding": "same", "dilation": (2, 1)}, {"dilation": 2, "padding": 2}, {"groups": 2},
    {"stride": (3,), "padding": [1]}, {"groups": 4, "padding": 1, "stride": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_every_option_means_what_it_means_in_pytorch(options, with_bias):
    x, w, b = tensors((2, 4, 7, 6), (4, 4 // options.get("groups", 1), 3, 2), (4,))
    b = b if with_bias else None
    wanted = F.conv2d(x.double(), w.double(), None if b is None else b.double(), **options)
    close(mt.conv2d(x, w, b, **options), wanted)


def random_case(rng):
    groups = rng.choice([1, 1, 1, 2, 3])
    r, s = rng.randint(1, 4), rng.randint(1, 4)
    dilation = rng.randint(1, 2), rng.randint(1, 2)
    options = {"groups": groups, "dilation": dilation}
    if rng.random() < 0.3:
        options["padding"] = "same"
    else:
        options["padding"] = rng.randint(0, 3), rng.randint(0, 3)
        options["stride"] = rng.randint(1, 3), rng.randint(1, 3)
    size = [dil * (k - 1) + rng.randint(1, 7) for k, dil in zip((r, s), dilation, strict=True)]
    n, c, k = rng.randint(1, 5), groups * rng.randint(1, 5), groups * rng.randint(1, 5)
    return (n, c, *size), (k, c // groups, r, s), options


@pytest.mark.parametrize("seed", range(12))
def test_random_layers_and_their_gradients_match_float64(seed):
    images, filters, options = random_case(random.Random(seed))
    given = [t.requires_grad_() for t in tensors(images, filters, filters[:1], seed=seed)]
    doubles = [t.detach().double().requires_grad_() for t in given]
    out, wanted = mt.conv2d(*given, **options), F.conv2d(*doubles, **options)
    close(out, wanted)
    (weights,) = tensors(out.shape, seed=seed + 1)
    (out * weights).sum().backward()
    (wanted * weights.double()).sum().backward()
    for found, right in zip(given, doubles, strict=True):
        close(found.grad, right.grad)


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": (2, 1), "padding": (0, 1)}, {"groups": 2},
                                     {"dilation": (1, 2), "padding": "same"}], ids=str)
def test_second_derivatives_match_float64(options):
    def curvature(conv, x, w, b):
        out = conv(x, w, b, **options)
        first = torch.autograd.grad((out ** 2).sum(), (x, w, b), create_graph=True)
        return torch.autograd.grad(sum((g ** 2).sum() for g in first), (x, w, b))
    given = [t.requires_grad_() for t in tensors((1, 2, 4, 5), (2, 2 // options.get("groups", 1), 3, 2), (2,), seed=3)]
    found = curvature(mt.conv2d, *given)
    wanted = curvature(F.conv2d, *[t.detach().double().requires_grad_() for t in given])
    for one, other in zip(found, wanted, strict=True):
        close(one, other)


@pytest.mark.parametrize("options", [{"padding": 1, "stride": 2}, {"padding": "same", "dilation": 2}, {"groups": 2}],
                         ids=str)
def test_gradcheck_by_differences(options):
    """The function is linear in each argument, so differences of any width are right but for rounding."""
    x, w, b = (t.requires_grad_() for t in tensors((1, 2, 3, 4), (2, 2 // options.get("groups", 1), 2, 2), (2,)))
    assert torch.autograd.gradcheck(lambda *given: mt.conv2d(*given, **options), (x, w, b), eps=0.5, atol=1e-4,
                                    rtol=1e-4, nondet_tol=0.0)


def test_gradients_only_for_what_asks_for_them():
    x, w, b = tensors((1, 2, 4, 4), (3, 2, 3, 3), (3,))
    for wanting in (x, w, b):
        wanting.requires_grad_()
        mt.conv2d(x, w, b).sum().backward()
        assert [t.grad is not None for t in (x, w, b)] == [t is wanting for t in (x, w, b)]
        wanting.grad = None
        wanting.requires_grad_(False)


@pytest.mark.parametrize("shape", [(3, 6, 5), (0, 3, 6, 5), (2, 3, 6, 5)], ids=["unbatched", "empty", "batched"])
def test_batches_of_any_kind_and_their_gradients(shape):
    given = [t.requires_grad_() for t in tensors(shape, (4, 3, 3, 3), (4,))]
    doubles = [t.detach().double().requires_grad_() for t in given]
    out, wanted = mt.conv2d(*given, padding=1), F.conv2d(*doubles, padding=1)
    close(out, wanted)
    out.sum().backward()
    wanted.sum().backward()
    for found, right in zip(given, doubles, strict=True):
        close(found.grad, right.grad)


def test_other_memory_formats_and_views_are_read_as_what_they_hold():
    x, w = tensors((2, 5, 6, 7), (4, 5, 3, 3))
    wanted = F.conv2d(x.double(), w.double())
    close(mt.conv2d(x.to(memory_format=torch.channels_last), w), wanted)
    close(mt.conv2d(x, w.to(memory_format=torch.channels_last)), wanted)
    wide = torch.zeros(2, 5, 6, 9)
    wide[..., 1:8] = x
    close(mt.conv2d(wide[..., 1:8], w), wanted)
    flat = torch.zeros(x.numel() + 1)
    flat[1:] = x.flatten()
    assert flat[1:].data_ptr() % 16, "begins where no texture may"
    close(mt.conv2d(flat[1:].view(x.shape), w), wanted)
    close(mt.conv2d(torch.complex(x, x).conj().imag, -w), wanted)


X, W = (2, 4, 6, 6), (6, 4, 3, 3)


class Elsewhere:
    """Looks like a tensor on a device that this library does not know."""

    def __init__(self, like):
        self.dtype, self.shape, self.dim, self.device = like.dtype, like.shape, like.dim, torch.device("xpu")


def test_tensors_without_memory_have_the_right_shapes():
    x, w = (t.to("meta").requires_grad_() for t in tensors(X, W))
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            out = mt.conv2d(x, w, padding=1, stride=2)
        assert out.shape == (2, 6, 3, 3) and out.device.type == "meta"
    out.sum().backward()
    assert x.grad.shape == X and w.grad.shape == W


@pytest.mark.parametrize("call, says", [
    (lambda x, w: mt.conv2d(x.half(), w), "input must be float32 (got torch.float16)"),
    (lambda x, w: mt.conv2d(x, w.double()), "weight must be float32 (got torch.float64)"),
    (lambda x, w: mt.conv2d(x, w, w[:, 0, 0, 0].double()), "bias must be float32 with 1 axis (got torch.float64"),
    (lambda x, w: mt.conv2d(x[0, 0], w), "input must have 4 axes, or 3 without a batch (got 2: shape (6, 6))"),
    (lambda x, w: mt.conv2d(x, w[0]), "weight must have 4 axes (got 3"),
    (lambda x, w: mt.conv2d(x, w[:, :3]), "input must have 3 channels, 1 (groups) times those of weight (got input"),
    (lambda x, w: mt.conv2d(x, w, groups=4), "input must have 16 channels"),
    (lambda x, w: mt.conv2d(x[:, :2], w[:, :1], groups=2) + mt.conv2d(x[:, :4], w[:5, :2], groups=2),
     "groups must divide K"),
    (lambda x, w: mt.conv2d(x, w, w[:5, 0, 0, 0]), "bias must have shape (6,) (got (5,))"),
    (lambda x, w: mt.conv2d(x[:0], w, w[:5, 0, 0, 0]), "bias must have shape (6,) (got (5,))"),
    (lambda x, w: mt.conv2d(x, w, stride=0), "stride must be at least 1 (got (0, 0))"),
    (lambda x, w: mt.conv2d(x, w, dilation=0), "dilation must be at least 1"),
    (lambda x, w: mt.conv2d(x, w, stride=1.5), "stride must be one integer or two (got 1.5)"),
    (lambda x, w: mt.conv2d(x, w, padding=(1, 2, 3)), "padding must be one integer or two (got (1, 2, 3))"),
    (lambda x, w: mt.conv2d(x, w, padding=-1), "padding must be at least 0"),
    (lambda x, w: mt.conv2d(x, w, padding="full"), "padding must be 'same', 'valid', one integer or two (got 'full')"),
    (lambda x, w: mt.conv2d(x, w, padding="same", stride=2), "padding 'same' needs stride 1 (got (2, 2))"),
    (lambda x, w: mt.conv2d(x, w, dilation=3), "R must be at most H + 2 x padding = 6"),
    (lambda x, w: mt.conv2d(x, w[:0]), "K must be at least 1"),
    (lambda x, w: mt.conv2d(Elsewhere(x), w), "input must be on the CPU or a CUDA GPU (got xpu)"),
], ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_what_is_no_convolution_here_is_said(call, says):
    x, w = tensors(X, W)
    mt.conv2d(x, w, w[:, 0, 0, 0].contiguous())  # a call like it is known already
    with pytest.raises(maxdnn.ShapeError) as caught:
        call(x, w)
    assert says in str(caught.value)


def test_an_autocast_is_refused_by_the_function_and_left_to_pytorch_by_the_layer():
    x, w = tensors(X, W)
    layer = mt.Conv2d(4, 6, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(maxdnn.ShapeError, match=r"autocast asks for torch.bfloat16, .*enabled=False"):
            mt.conv2d(x, w)
        assert layer(x).dtype == torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert mt.conv2d(x, w).dtype == torch.float32
    assert layer.double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize("operator, shapes, numbers", [
    (ops.conv2d, (X, W, (6,)), ([2, 1], [1, 0], [1, 1], 1)),
    (ops.conv2d_input, ((2, 6, 4, 4), W), ([6, 6], [1, 1], [0, 0], [1, 1], 1)),
    (ops.conv2d_weight, ((2, 6, 4, 4), X), ([3, 3], [1, 1], [0, 0], [1, 1], 1)),
], ids=["conv2d", "conv2d_input", "conv2d_weight"])
def test_opcheck(operator, shapes, numbers):
    given = [t.requires_grad_() for t in tensors(*shapes)]
    assert set(torch.library.opcheck(operator, (*given, *numbers)).values()) == {"SUCCESS"}


def test_the_virtual_gpu_is_announced_once():
    code = ("import warnings, torch, maxdnn.torch as mt\n"
            "with warnings.catch_warnings(record=True) as said:\n"
            "    warnings.simplefilter('always')\n"
            "    for _ in range(3): mt.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1))\n"
            "print(*[w.message for w in said])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "CPU tensors run on maxDNN's virtual GPU, which is made for checking, not for speed\n"


def test_importing_maxdnn_does_not_import_torch():
    code = "import sys, maxdnn; from maxdnn.cli import build_parser; build_parser(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_the_table_of_plans_is_bounded(monkeypatch):
    monkeypatch.setattr(running, "_plans", Table(1 << 20, entries=3))
    for width in range(3, 10):
        x, w = tensors((1, 1, 3, width), (1, 1, 1, 1))
        close(mt.conv2d(x, w), x.double() * w.double())
        assert 1 <= len(running._plans) <= 3


def test_no_warning_besides():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mt.conv2d(*tensors((1, 2, 3, 3), (2, 2, 2, 2)))


class Seen(TorchDispatchMode):
    """Notes the operators of this library."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "maxdnn":
            self.names.append(function._opname)
        return function(*args, **kwargs or {})


def test_calls_that_somebody_looks_at_go_by_the_operators_and_others_past_them():
    x, w = tensors((2, 3, 5, 5), (4, 3, 3, 3))
    x.requires_grad_(), w.requires_grad_()
    found = {}
    for looks in (False, True):
        seen = Seen()
        with seen if looks else contextlib.nullcontext():
            out = mt.conv2d(x, w, padding=1)
            found[looks] = out, *torch.autograd.grad((out ** 2).sum(), (x, w))
        assert seen.names == (["conv2d", "conv2d_input", "conv2d_weight"] if looks else [])
    assert "Taped" in type(found[False][0].grad_fn).__name__ != type(found[True][0].grad_fn).__name__
    assert all(torch.equal(a, b) for a, b in zip(*found.values(), strict=True))
    with torch.no_grad():
        assert mt.conv2d(x, w, padding=1).grad_fn is None
    with torch.inference_mode():
        assert torch.equal(mt.conv2d(x, w, padding=1), found[True][0])


def test_what_a_derivative_needs_is_kept_as_pytorch_keeps_it():
    """Hooks of saved tensors, checkpoints, and weights changed in between."""
    x, w = tensors((2, 3, 5, 5), (4, 3, 3, 3))
    w.requires_grad_()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        out = mt.conv2d(x, w)
    assert packed == [x.shape, w.shape]
    (wanted,) = torch.autograd.grad(out.sum(), w)
    out = torch.utils.checkpoint.checkpoint(lambda w: mt.conv2d(x, w), w, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(out.sum(), w)[0], wanted)
    out = mt.conv2d(x.requires_grad_(), w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


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
