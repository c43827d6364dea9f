"""Networks that replay graphs, as far as that goes without a GPU: what stands in for graphs calls again what it was
captured of. test_gpu_layers.py has the rest."""

import copy
import pickle

import pytest
import torch
from torch import nn

import maxdnn.torch as mt
from maxdnn.torch import captured
from maxdnn.torch.backend import maxdnn as backend

from .graphs import close, conv, exactly

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


class Again:
    """In the place of a graph."""

    def __init__(self, run, args, fixed):
        self.run, self.replays = run, 0
        self.given = [x.clone() if isinstance(x, torch.Tensor) and n not in fixed else None for n, x in enumerate(args)]
        self.args = [x if own is None else own for x, own in zip(args, self.given, strict=True)]
        run(*self.args)

    def replay(self, args):
        self.replays += 1
        for own, x in zip(self.given, args, strict=True):
            if own is not None:
                own.copy_(x)
        return self.run(*self.args)


@pytest.fixture
def graphs(monkeypatch):
    """A list of what was captured."""
    made = []
    monkeypatch.setattr(captured, "_on_gpu", lambda args: True)
    monkeypatch.setattr(captured, "record", lambda *given: made.append(Again(*given)) or made[-1])
    return made


def network():
    torch.manual_seed(14)
    return nn.Sequential(conv(3), nn.BatchNorm2d(4), nn.ReLU(), conv()).eval()


def test_the_third_call_of_a_shape_is_captured_and_later_ones_replay(graphs):
    stock = network()
    own = mt.optimize(stock, graphs=True)
    with torch.inference_mode():
        for n in range(5):
            for size in ((1, 3, 5, 6), (2, 3, 5, 6)):
                x = torch.rand(size)
                close(own(x), exactly(stock, x))
            assert len(graphs) == (2 if n >= 2 else 0)
    assert [graph.replays for graph in graphs] == [3, 3]
    assert not mt.optimize(stock).graphs and own.graphs


def test_what_is_no_graphs_runs_as_it_is(graphs):
    stock = network()
    own, x = mt.optimize(stock, graphs=True), torch.rand(1, 3, 5, 6)
    for _ in range(4):
        own(x.clone().requires_grad_()).sum().backward()
        torch.func.vmap(own)(x[None])
    with torch.no_grad(), torch.autograd.profiler.profile():
        for _ in range(4):
            own(x)
    assert not graphs


def test_weights_that_change_are_captured_again(graphs):
    stock = network()
    own, x = mt.optimize(stock, graphs=True), torch.rand(1, 3, 5, 6)
    with torch.no_grad():
        for _ in range(4):
            before = own(x)
        for p in own.parameters():
            p.mul_(2)
        for calls in range(4):
            after = own(x)
            assert not torch.equal(before, after) and len(graphs) == (2 if calls >= 2 else 1)
        own.to("cpu")
        own(x)
    assert len(graphs) == 2


def test_copies_capture_for_themselves(graphs):
    own, x = mt.optimize(network(), graphs=True), torch.rand(1, 3, 5, 6)
    with torch.no_grad():
        for _ in range(4):
            wanted = own(x)
        for other in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            close(other(x), wanted.double())
            assert other.graphs
    assert len(graphs) == 1


def test_what_cannot_be_captured_is_said_once(graphs, monkeypatch):
    def refuse(*given):
        raise RuntimeError("operation not permitted when stream is capturing")
    monkeypatch.setattr(captured, "record", refuse)
    stock = network()
    own, x = mt.optimize(stock, graphs=True), torch.rand(1, 3, 5, 6)
    with torch.no_grad():
        own(x), own(x)
        with pytest.warns(UserWarning, match="could not be captured and runs as it is: operation not permitted"):
            close(own(x), exactly(stock, x))
        close(own(x), exactly(stock, x))


def test_there_are_so_many_graphs_at_most(graphs, monkeypatch):
    monkeypatch.setattr(captured, "GRAPHS", 2)
    run = captured.Captured(lambda x: x + 1, lambda args: None)
    for size in (1, 2, 3):
        for _ in range(4):
            assert torch.equal(run(torch.ones(size)), torch.full((size,), 2.0))
    assert len(graphs) == 2


def test_a_compiled_model_is_captured_if_asked_and_follows_its_weights(graphs):
    stock, x = network(), torch.rand(1, 3, 5, 6)
    for mode, many in ((None, 0), ("reduce-overhead", 1)):
        torch.compiler.reset()
        compiled = torch.compile(stock, backend=backend, mode=mode)
        with torch.no_grad():
            for _ in range(4):
                close(compiled(x), exactly(stock, x))
            assert len(graphs) == many
            stock[1].weight.mul_(2)
            for _ in range(4):
                close(compiled(x), exactly(stock, x))
    assert len(graphs) == 2
    torch.compiler.reset()
