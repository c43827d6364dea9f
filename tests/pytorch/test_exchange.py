"""Models that leave this process or come from another: torch.jit.trace, ONNX, torch.export."""

import copy
import io
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.onnx._internal.torchscript_exporter import onnx_proto_utils

import maxdnn
import maxdnn.torch as mt
from maxdnn.torch import products

from .graphs import close, randomized

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run", "ignore::DeprecationWarning",
                                                            "ignore::torch.jit.TracerWarning", "ignore:.*torch.jit")]


def network():
    torch.manual_seed(3)
    return randomized(nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 4, 2, 2), nn.Flatten(2),
        nn.Conv1d(4, 6, 3, 2), nn.ConvTranspose1d(6, 4, 2), nn.Flatten(), nn.Linear(4 * 32, 5)))


X = (2, 3, 4, 4)


@pytest.mark.parametrize("made", [lambda m: m, lambda m: mt.replace(m), lambda m: mt.replace(m, frozen=True),
                                  mt.optimize], ids=["stock", "replaced", "frozen", "optimized"])
def test_a_traced_model_computes_what_the_model_does(monkeypatch, made):
    """torch.jit.trace sees the operators, not their results."""
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    stock = network()
    model, first, then = made(copy.deepcopy(stock)), torch.rand(X), torch.rand(X)
    with torch.no_grad():
        for _ in range(3):
            model(first)
        traced = torch.jit.trace(model, first)
        file = io.BytesIO()
        torch.jit.save(traced, file)
        file.seek(0)
        wanted = stock.double()(then.double())
        close(torch.jit.load(file)(then), wanted)
        close(traced(then), wanted)


def words(file):
    """The names of operators in an ONNX file, which are plain text in it, each with its length in front."""
    data = file.getvalue()
    names = ("Conv", "ConvTranspose", "Relu", "Gemm", "BatchNormalization", "MatMul", "Add")
    return {name: data.count(b"\x22" + bytes([len(name)]) + name.encode()) for name in names} | {
        "ours": data.lower().count(b"maxdnn::")}


@pytest.mark.parametrize("made", [lambda m: m, lambda m: mt.replace(m), lambda m: mt.replace(m, frozen=True),
                                  mt.optimize], ids=["stock", "replaced", "frozen", "optimized"])
def test_onnx_gets_plain_convolutions(monkeypatch, made):
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    if find_spec("onnx") is None:  # which only adds functions written in its script, of which there are none here
        monkeypatch.setattr(onnx_proto_utils, "_add_onnxscript_fn", lambda model_bytes, custom_opsets: model_bytes)
    model, x, file = made(network()), torch.rand(X), io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            model(x)
        torch.onnx.export(model, (x,), file, dynamo=False)
    found = words(file)
    assert (found["Conv"], found["ConvTranspose"], found["ours"]) == (2, 2, 0), found


def test_onnx_by_the_newer_exporter(monkeypatch):
    pytest.importorskip("onnxscript")
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    for made in (lambda m: mt.replace(m), mt.optimize):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(made(network()), (torch.rand(X),), dynamo=True, verbose=False)
        kinds = [node.op_type for node in program.model.graph]
        assert kinds.count("Conv") == 2 and kinds.count("ConvTranspose") == 2
        assert {node.domain for node in program.model.graph} <= {"", "ai.onnx"}


class Exported(nn.Module):
    """Whatever a program may hold that is fused, swapped or left."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.c, self.t, self.e = nn.Conv2d(4, 4, 3, padding="same"), nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv1d(4, 4, 3)
        self.d, self.f = nn.Linear(4, 5), nn.Conv3d(1, 1, 1)

    def forward(self, x, *, scale):
        y = torch.relu(self.b(self.a(x)))
        z = self.c(y)
        z += y
        z = nn.functional.dropout(nn.functional.relu(z, inplace=True), 0.5, self.training)
        z = self.f(z[:, None])[:, 0] * scale
        return {"map": self.e(nn.functional.silu(z).flatten(2)), "row": self.d(self.t(z).mean((2, 3)))}


@pytest.mark.parametrize("decomposed", [False, True], ids=["", "decomposed"])
def test_exported_programs_are_optimized(monkeypatch, decomposed):
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    torch.manual_seed(4)
    model = randomized(Exported())
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.rand(2, 3, 5, 6),), {"scale": torch.tensor(1.0)},
                                  dynamic_shapes={"x": {0: batch}, "scale": {}})
    if decomposed:
        program = program.run_decompositions()
    before = {name: tensor.clone() for name, tensor in program.state_dict.items()}
    made = mt.optimize(program)
    assert sorted(map(str, made.report.fused)) == [
        "a: batch norm b, ReLU", "c: sum with a, ReLU", "e: alone", "t: alone"]
    assert made.report.linear == ("d",) and "three axes" in made.report.left["f"]
    for n in (1, 3, 3, 3):
        x = torch.rand(n, 3, 5, 6)
        with torch.no_grad():
            found = made(x, scale=torch.tensor(0.5))
            wanted = copy.deepcopy(model).double()(x.double(), scale=torch.tensor(0.5).double())
        for name in wanted:
            close(found[name], wanted[name])
    with torch.no_grad():
        for part in made.parameters():
            part.zero_()
    assert all(torch.equal(program.state_dict[name], tensor) for name, tensor in before.items())
    assert not any("a.weight" in name for name, _ in made.named_parameters()), "weights that nothing reads are gone"


def test_a_program_of_a_replaced_model_and_a_saved_one():
    model, x = mt.replace(network()), torch.rand(X)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), file)
    file.seek(0)
    made = mt.optimize(torch.export.load(file))
    assert [one.batch_norm for one in made.report.fused if one.layer == "0"] == ["1"]
    with torch.no_grad():
        close(made(x), copy.deepcopy(model).double()(x.double()))


@pytest.mark.parametrize("model, says", [
    (nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), "1 is a batch norm by the statistics"),
    (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout()), "1 is a dropout")], ids=["batch norm", "dropout"])
def test_a_program_of_a_model_in_training_mode_is_refused(model, says):
    program = torch.export.export(model, (torch.rand(X),))
    with pytest.raises(maxdnn.ShapeError, match=rf"program must be of a model in eval mode: .*\({says}"):
        mt.optimize(program)
