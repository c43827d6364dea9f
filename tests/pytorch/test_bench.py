"""`maxdnn bench` and what it measures with, as far as that goes without a GPU; test_gpu.py has the rest."""

import copy
import json
import sys

import pytest
import torch

from maxdnn import cli, networks
from maxdnn.cli import bench as command
from maxdnn.errors import MaxdnnError
from maxdnn.torch import measure, measure_models
from maxdnn.torch.networks import Network

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run")]


def tiny(o, x):
    x = o.max_pool(o.relu(o.norm(o.conv(x, 4, 3, 1, 1, bias=False))), 3, 2, 1)
    x = o.add(o.join(o.conv(x, 2, (1, 3), 1, (0, 1)), o.conv(x, 2, 3, 1, 2, 2)), x)
    return o.linear(o.mean_pool(o.twice(x), 2, 2), 3)


@pytest.fixture
def with_tiny(monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "tiny", (tiny, (3, 6, 6)))


class OnTheCpu(measure.Bench):
    """Measures no time."""

    def __init__(self, *_):
        self.device = torch.device("cpu")
        self.about = {"gpu": "none", "torch": torch.__version__, "cudnn": 0}

    def _times(self, calls, mode):
        for call in calls:
            call(), call(), call()
        return [2.0 for _ in calls]

    def _host_times(self, calls):
        return [3.0 for _ in calls]


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_the_sizes_of_every_network_are_those_of_its_module(name):
    model, seen = Network(name).to("meta"), []
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda m, given, out: seen.append((m, given[0].shape, out.shape)))
    model(torch.zeros(2, *model.image, device="meta"))
    wanted = networks.convolutions(name, 2)
    assert len(seen) == len(wanted)
    for (module, given, out), (shape, bias) in zip(seen, wanted, strict=True):
        assert given == (shape.N, shape.C, shape.H, shape.W) and out == (shape.N, shape.K, shape.P, shape.Q)
        assert module.weight.shape == (shape.K, shape.C, shape.R, shape.S) and (module.bias is not None) == bias
        assert (module.stride, module.padding, module.dilation) == (shape.stride, shape.padding, shape.dilation)


def test_a_network_s_rows_have_times_and_errors(with_tiny):
    (row,) = OnTheCpu().network("tiny", 2, True, ["eager"])
    assert row.pop("host_seconds") == row.pop("cudnn_host_seconds") == 3.0
    times = {name: value for name, value in row.items() if name.endswith("seconds")}
    assert times == dict.fromkeys(("seconds", "cudnn_seconds", "whole_seconds", "cudnn_whole_seconds"), 2.0)
    assert 0 < row["error"] < 1e-6 and 0 < row["gradient_error"] < 1e-5 and row["kind"] == "training"
    (row,) = OnTheCpu().network("tiny", 2, False, ["eager"])
    assert 0 < row["error"] < 1e-6 and "gradient_error" not in row


def test_the_float64_network_is_pytorchs_own(with_tiny):
    for name in ("tiny", "unet", "inception"):
        torch.manual_seed(3)
        model = Network(name).eval()
        x = torch.rand(1, *((3, 6, 6) if name == "tiny" else (3, 96, 96) if name == "unet" else model.image))
        wanted, right = copy.deepcopy(model).double(), measure._exact(model)
        with torch.inference_mode():
            a, b = wanted(x.double()), right(x.double())
        assert a.shape == b.shape and ((a - b).norm() <= 1e-12 * a.norm())


def test_the_command_measures_where_there_is_a_gpu(with_tiny, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "_no_gpu", lambda ordinal: None)
    monkeypatch.setattr(measure, "Bench", OnTheCpu)
    out, picture = tmp_path / "rows.json", tmp_path / "rows.svg"
    assert cli.main(["bench", "tiny", "1,3,5,5,4,3,3", "--n", "2", "--mode", "graph", "--json", str(out), "--picture",
                     str(picture)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("measured on none beside cuDNN 0 through PyTorch") and "SIMULATED" not in said
    assert "training, whole: ahead of cuDNN in 0 of 1, geometric mean of the speed 1.00, least 1.00" in said
    rows = json.loads(out.read_text())["rows"]
    assert [(row["network"], row["n"], row["kind"], row["mode"]) for row in rows] == [
        ("tiny", 2, "inference", "graph"), ("N1 C3 5x5 -> K4, filter 3x3", 1, "inference", "graph"),
        ("tiny", 2, "training", "graph"), ("N1 C3 5x5 -> K4, filter 3x3", 1, "training", "graph")]
    assert "measured on none" in picture.read_text()


def a_model():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())


def not_a_model():
    return 1


def two_outputs():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = a_model()
            self.other = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), torch.nn.Dropout())

        def forward(self, x):
            return {"out": self.one(x), "aux": self.other(x)}
    return Two()


class Models(OnTheCpu, measure_models.ModelBench):
    """Without a compiler."""

    def _theirs(self, stock, images, until_the_end, turn):
        return stock


@pytest.fixture
def of_models(monkeypatch):
    monkeypatch.setattr(command, "_no_gpu", lambda ordinal: None)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(measure, "Bench", OnTheCpu)
    monkeypatch.setattr(measure_models, "ModelBench", Models)
    monkeypatch.setattr(Models, "_frozen", Models._theirs)


def test_models_stand_beside_what_is_called_alike(of_models, monkeypatch, tmp_path, capsys):
    timed = []

    def times(self, calls, mode):
        timed.append((len(calls), mode, torch.backends.cudnn.allow_tf32))
        return [2.0 for call in calls if call() is None]
    monkeypatch.setattr(Models, "_times", times)
    out = tmp_path / "rows.json"
    assert cli.main(["bench", "--model", f"{__name__}:a_model", "--image", "3,6,5", "--n", "2", "--mode", "eager",
                     "graph", "compiled", "--json", str(out), "--picture", str(tmp_path / "rows.svg")]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["mode"], row["baseline"]) for row in rows] == [
        ("eager", "fp32"), ("eager", "tf32"), ("graph", "fp32"), ("graph", "frozen"), ("graph", "tf32"),
        ("compiled", "frozen")]
    assert timed == [(2, "eager", False), (1, "eager", True), (1, "graph", False), (1, "graph", False),
                     (1, "eager", False), (1, "graph", True), (1, "eager", False)], "each once; as they are in turns"
    assert not torch.backends.cudnn.allow_tf32
    assert all(0 < row["error"] < 1e-6 and row["whole_seconds"] == row["cudnn_whole_seconds"] == 2 for row in rows)
    said = capsys.readouterr().out
    assert ("inference of models, N = 2, graph, beside frozen: ahead in 0 of 1, geometric mean of the speed 1.00, "
            "least 1.00") in said


def test_models_are_trained_beside_pytorchs(of_models, tmp_path, capsys):
    out = tmp_path / "rows.json"
    assert cli.main(["bench", "--model", f"{__name__}:two_outputs", "--image", "3,4,5", "--n", "2", "--kind",
                     "training", "--mode", "graph", "compiled", "--baseline", "fp32", "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["kind"], row["mode"], row["baseline"]) == ("training", "graph", "fp32")
    assert all(0 < row[f"{who}{what}"] < 1e-5 for who in ("", "cudnn_") for what in ("error", "gradient_error"))


def test_what_stops_one_network_costs_its_rows_only(with_tiny, monkeypatch, tmp_path, capsys):
    class Stops(OnTheCpu):
        def _convolutions(self, layers, training, mode):
            if training and mode == "graph":
                raise RuntimeError("no capture today")
            return super()._convolutions(layers, training, mode)
    monkeypatch.setattr(command, "_no_gpu", lambda ordinal: None)
    monkeypatch.setattr(measure, "Bench", Stops)
    out = tmp_path / "rows.json"
    assert cli.main(["bench", "tiny", "1,3,5,5,4,3,3", "--n", "2", "--kind", "training", "inference", "--json",
                     str(out)]) == 1
    rows = json.loads(out.read_text())["rows"]
    assert [(row["n"], row["kind"], row["mode"]) for row in rows] == [
        (2, "training", "eager"), (1, "training", "eager"), (2, "inference", "eager"), (2, "inference", "graph"),
        (1, "inference", "eager"), (1, "inference", "graph")]
    said = capsys.readouterr().err
    assert said.count("RuntimeError: no capture today") == 2, "with the way to it"
    assert "\nnot measured: tiny, N = 2, training: no capture today\n" in said


def test_without_a_gpu_every_heading_says_that_it_is_simulated(with_tiny, tmp_path, capsys):
    out, picture = tmp_path / "rows.json", tmp_path / "rows.svg"
    assert cli.main(["bench", "tiny", "1,3,5,5,4,3,3", "--json", str(out), "--picture", str(picture)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("SIMULATED on the preset gm204, nothing was measured: PyTorch finds no CUDA GPU")
    assert "simulated ms" in said[1] and all("simulated" in line for line in said[2:4])
    found = json.loads(out.read_text())
    assert found["what"] == "simulated" and all(0 < row["seconds"] < 1e-3 for row in found["rows"])
    assert "SIMULATED gm204" in picture.read_text()


@pytest.mark.parametrize("arguments, says", [
    (["lenet"], "NETWORK must be one of alexnet, vgg16, resnet50, inception, unet, or N,C,H,W,K,R,S"),
    (["1,2,3"], "NETWORK must be one of"),
    (["1,3,2,2,4,3,3"], "R must be at most H"),
    (["--seconds", "0"], "--seconds must be positive"),
    (["--model", "resnet18", "--wait", "-1"], "--wait must be positive"),
    (["--picture", "x.pdf"], "--picture must end in .png or .svg"),
    (["--model", "resnet18", "--simulate"], "--model needs a GPU: --simulate was given"),
    (["alexnet", "--mode", "compiled"], "--mode compiled is of models"),
    (["--simulate", "--kind", "training"], "--kind must be inference where there is no GPU (--simulate was given)"),
])
def test_wrong_arguments_are_one_line(arguments, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", *arguments]) == 1
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


@pytest.mark.parametrize("name", ["math:none", "nowhere:none", "math:", f"{__name__}:not_a_model"])
def test_what_is_no_model_is_said(name):
    with pytest.raises(MaxdnnError, match="--model"):
        measure_models.built(name)


def test_where_pytorch_is_missing_that_is_the_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert command._no_gpu(0) == "PyTorch is not installed: pip install 'maxdnn[torch,cuda]'"
