"""The layer, and the swap of those a model has."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import maxdnn.torch as mt
from maxdnn.torch import kept_filters
from maxdnn.torch.networks import Network

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


def test_filters_that_a_graph_reads_stay_when_others_go(monkeypatch):
    monkeypatch.setattr(kept_filters, "SHAPES", 2)
    layer = mt.replace(nn.Conv2d(2, 3, 1), frozen=True)
    every = layer.__dict__[kept_filters.WHERE] = kept_filters.Shapes(kept_filters.SHAPES)
    graphs = {n: SimpleNamespace(captured=n > 4) for n in range(3, 7)}
    for n, ready in graphs.items():
        every.put(torch.Size([n, 2, 3, 3]), kept_filters.Kept(("before",), None, ready, {}, (), set()))
    with torch.inference_mode():
        for size in ((1, 2, 3, 3), (2, 2, 3, 3)):
            layer(torch.rand(size))
            assert {n for n in graphs if every.get(torch.Size([n, 2, 3, 3])) is not None} == {5, 6}
            assert every.get(torch.Size(size)) is not None and len(every) == 3
        graphs[5].captured = False
        layer(torch.rand(1, 2, 9, 9))
    assert len(every) == 2 and every.get(torch.Size([6, 2, 3, 3])) is not None


def test_shapes_whose_plans_do_the_same_to_the_filters_share_them(monkeypatch):
    made, real = [], kept_filters.prepare_filters
    monkeypatch.setattr(kept_filters, "prepare_filters", lambda *g, **o: (made.append(g), real(*g, **o))[1])
    torch.manual_seed(3)
    stock = nn.Conv2d(16, 32, 3, padding=1).eval()
    own = mt.replace(copy.deepcopy(stock), frozen=True)
    sizes = [(1 + n // 4, 16, 6 + n, 9 + n % 4) for n in range(12)]
    with torch.no_grad():
        for time in (1, 2):
            for _ in range(3):
                for size in sizes:
                    x = torch.rand(size)
                    torch.testing.assert_close(own(x), stock(x), rtol=1e-4, atol=1e-4)
            kept = own.__dict__[kept_filters.WHERE].values()
            ways = {k.way for k in kept}
            assert all(isinstance(k, kept_filters.Kept) for k in kept) and len(kept) == 12
            assert len({id(k.filters.arrays) for k in kept}) == len(ways) < 12
            assert len(made) == time * len(ways)
            for layer in (own, stock):
                layer.weight.mul_(2)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one = nn.Conv2d(channels, 4, 1, bias=False)
        self.three = nn.Conv2d(4, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.norm(self.three(torch.relu(self.one(x)))))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), Block(6), nn.Conv2d(6, 5, 2, padding="same"))


def test_a_model_computes_what_it_did_with_the_same_parameters_names_and_hooks():
    stock = network().eval()
    swapped = copy.deepcopy(stock)
    seen = []
    swapped[0].register_forward_hook(lambda *_: seen.append(1))
    names = list(swapped.state_dict())
    weights = [id(p) for p in swapped.parameters()]
    reports = []
    assert mt.replace(swapped, reports.append) is swapped
    assert reports[0].swapped == ("0", "1.one", "1.three", "2") and not reports[0].left
    assert list(swapped.state_dict()) == names and [id(p) for p in swapped.parameters()] == weights
    x = torch.rand(2, 3, 9, 9)
    torch.testing.assert_close(swapped(x), stock(x), rtol=1e-5, atol=1e-5)
    assert seen == [1]


def test_training_steps_stay_together():
    losses = []
    for change in (lambda model: model, mt.replace):
        model = change(network())
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        torch.manual_seed(2)
        x, y = torch.rand(4, 3, 9, 9), torch.rand(4, 5, 4, 4)
        for _ in range(3):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-4) and losses[2] < losses[0]


class Own(nn.Conv2d):
    pass


def test_what_is_left_is_reported_with_the_reason():
    model = nn.ModuleDict({"ok": nn.Conv2d(2, 2, 1), "narrow": nn.Conv2d(2, 2, 1).half(), "own": Own(2, 2, 1),
                           "normed": nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 1)),
                           "patched": nn.Conv2d(2, 2, 1), "line": nn.Conv1d(2, 2, 1), "deep": nn.Conv3d(2, 2, 1),
                           "wide": nn.ConvTranspose2d(2, 2, 3, 1, 0, 1, dilation=2)})
    model["patched"].forward = lambda x: x
    with pytest.warns(UserWarning, match="maxDNN computes 2 of 8 convolutions") as said:
        mt.replace(model)
    text = str(said[0].message)
    for part in ("narrow: its dtype is torch.float16", "own: Own is a class of its own", "normed: Parametrized",
                 "patched: its forward is a function of its own", "deep: it convolves three axes",
                 "wide: output_padding must be below the stride (1, 1) (got (1, 1))"):
        assert part in text
    assert type(model["ok"]) is mt.Conv2d and type(model["narrow"]) is nn.Conv2d and type(model["line"]) is mt.Conv1d
    reports = []
    mt.replace(model, reports.append)  # once more: nothing is left to do
    assert reports[0].swapped == ()
    assert type(mt.replace(nn.Conv2d(2, 2, 1))) is mt.Conv2d


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_every_padding_mode(mode):
    layer = mt.Conv2d(3, 4, 3, padding=(1, 2), padding_mode=mode)
    stock = nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode=mode)
    stock.load_state_dict(layer.state_dict())
    x = torch.rand(2, 3, 5, 6)
    torch.testing.assert_close(layer(x), stock(x), rtol=1e-5, atol=1e-5)


def test_changed_weights_are_used():
    layer = mt.Conv2d(2, 2, 1, bias=False)
    x = torch.rand(1, 2, 3, 3)
    first = layer(x)
    with torch.no_grad():
        layer.weight.mul_(2)
    torch.testing.assert_close(layer(x), 2 * first)
    layer.weight.data = layer.weight.data * 2  # another tensor, the same parameter
    torch.testing.assert_close(layer(x), 4 * first)


def test_frozen_layers_keep_filters_until_the_weights_change(monkeypatch):
    made = []
    real = kept_filters.prepare_filters
    monkeypatch.setattr(kept_filters, "prepare_filters", lambda *given: made.append(1) or real(*given))
    layer = mt.replace(nn.Conv2d(8, 8, 3, padding=1), frozen=True)
    stock = nn.Conv2d(8, 8, 3, padding=1)
    stock.load_state_dict(layer.state_dict())
    x, other = torch.rand(2, 8, 9, 9), torch.rand(1, 8, 5, 5)

    def check(*given):
        for images in given:
            torch.testing.assert_close(layer(images), stock(images), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        check(x)
        assert not made, "the weights may be about to change"
        check(x, x, x)
        assert len(made) == 1
        check(other, other, x, other)
        assert len(made) == 1, "both shapes want the same"
        for module in (layer, stock):
            module.weight.mul_(2)
            module.bias.add_(1)
        check(x, x, x)
        assert len(made) == 2
        assert len(layer.__dict__[kept_filters.WHERE]) == 1, "what was made of other weights is gone"
        for module in (layer, stock):
            module.weight.data = module.weight.data + 1  # another tensor
        check(x, x)
        assert len(made) == 3
        for size in range(1, 12):
            check(x[..., :size], x[..., :size].contiguous())
        assert len(layer.__dict__[kept_filters.WHERE]) <= kept_filters.SHAPES
    check(x)  # wants derivatives
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.inference_mode():
        check(x, x, x[0], x[:0])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        assert copy.deepcopy(layer).frozen and kept_filters.WHERE not in copy.deepcopy(layer).__dict__
        assert not mt.replace(layer).frozen
        made.clear()
        check(x, x, x)
        assert not made


def test_a_layer_is_pickled_and_copied():
    layer = mt.Conv2d(2, 3, 1)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    x = torch.rand(1, 2, 3, 3)
    assert torch.equal(torch.load(file, weights_only=False)(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_a_compiled_model_has_no_graph_break_and_the_same_results():
    model = mt.replace(network()).eval()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    x = torch.rand(2, 3, 9, 9, requires_grad=True)
    out = compiled(x)
    assert counter.frame_count == 1
    torch.testing.assert_close(out, model(x), rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(out.sum(), [x, *model.parameters()])
    wanted = torch.autograd.grad(model(x).sum(), [x, *model.parameters()])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_resnet50_compiles_as_one_graph_of_our_operators():
    """On tensors without memory: what matters is what is traced."""
    seen = []

    def look(graph, example):
        seen.append(sum(node.target in (torch.ops.maxdnn.conv2d, torch.ops.maxdnn.conv2d.default)
                        for node in graph.graph.nodes))
        return graph.forward
    model = mt.replace(Network("resnet50").eval()).to("meta")
    out = torch.compile(model, backend=look, fullgraph=True)(torch.zeros(2, 3, 224, 224, device="meta"))
    assert seen == [53] and out.shape == (2, 1000)


def test_an_exported_model_takes_any_batch():
    model = mt.replace(network()).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (torch.rand(3, 3, 9, 9),), dynamic_shapes=({0: batch},))
    assert sum(node.target is torch.ops.maxdnn.conv2d.default for node in program.graph.nodes) == 4
    x = torch.rand(5, 3, 9, 9)
    torch.testing.assert_close(program.module()(x), model(x), rtol=1e-5, atol=1e-5)
