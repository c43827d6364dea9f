"""benchmarks/alexnet_overfeat.py: what it writes, that it continues after an interrupt, and what it refuses."""

import csv
import importlib.util
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import maxdnn
from maxdnn.layers import LAYERS, Layer
from maxdnn.networks import NETWORKS
from maxdnn.planning import records
from maxdnn.planning.cost import preset as chip
from maxdnn.planning.select import plans
from maxdnn.problem.problem import forward
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator.machine import preset

ROOT = Path(__file__).parents[1]
TINY = (Layer("alexnet", "conv1", ConvShape(64, 4, 5, 5, 64, 3, 3), 93.4, 32.5),
        Layer("overfeat", "L1", ConvShape(64, 4, 5, 5, 96, 3, 3), 70.3, 39.6))


@pytest.fixture()
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with two small layers in place of the ten."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("alexnet_overfeat", ROOT / "benchmarks" / "alexnet_overfeat.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "alexnet_overfeat", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LAYERS", TINY)
    return module


def test_quick_writes_the_table_and_the_figures(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--quick", "--output", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "alexnet_overfeat.json").read_text())["layers"]
    assert [(r["network"], r["layer"], r["paper_ce"]) for r in rows] == [("alexnet", "conv1", 93.4),
                                                                         ("overfeat", "L1", 70.3)]
    for row in rows:
        assert row["kind"] == "simulated" and row["gpu"] == "gm204" and row["clocks"] > 0 and 0 < row["ce"] < 100
        assert row["kernel"] == "sconv_fprop_paper" and row["check"] is None
        assert row["difference"] == pytest.approx(row["ce"] - row["paper_ce"])
    assert len(list(csv.reader((tmp_path / "alexnet_overfeat.csv").read_text().splitlines()))) == 3
    assert "| alexnet | conv1 | 32.5 | 93.4 |" in (tmp_path / "alexnet_overfeat.md").read_text()
    assert (tmp_path / "alexnet_overfeat.txt").read_text() == capsys.readouterr().out
    for name in ("figure1", "figure2", "slots"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"{name}.svg").read_bytes()
    assert not list(tmp_path.glob("*partial*"))


def test_the_whole_run_checks_outputs_and_reports_two_policies(bench: Any, tmp_path: Path) -> None:
    assert bench.main(["--layers", "alexnet-conv1", "--output", str(tmp_path)]) == 0
    row, = json.loads((tmp_path / "alexnet_overfeat.json").read_text())["layers"]
    assert row["check"]["ok"] and row["check"]["error"] < 2e-6
    assert row["ours_kernel"] == "sdepthwise_3x3_s1" and 0 < row["ours_ce"] < 100
    assert list(row["ce_by_policy"]) == ["greedy-then-oldest", "greedy-then-round-robin"]
    assert "conv_fprop's kernel" in (tmp_path / "alexnet_overfeat.txt").read_text()


RECORDED = json.loads((ROOT / "benchmarks" / "results" / "alexnet_overfeat.json").read_text())


def test_the_recorded_table_is_of_these_kernels_and_this_model(bench: Any) -> None:
    now = bench.fingerprint(preset("gm204"))
    changed = [part for part, digest in now.items() if RECORDED["fingerprint"].get(part) != digest]
    assert not changed, f"{' and '.join(changed)} changed since the table was made: run `make table`"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["alexnet-conv1", "alexnet-conv5"])
def test_a_recorded_layer_simulated_again_takes_the_same_clocks(bench: Any, name: str) -> None:
    layer = next(x for x in LAYERS if f"{x.network}-{x.name}" == name)
    row = next(r for r in RECORDED["layers"] if (r["network"], r["layer"]) == (layer.network, layer.name))
    again = bench.simulated(layer, row["policy"], preset("gm204"), lambda share: None)
    assert (again["kernel"], again["clocks"]) == (row["kernel"], row["clocks"]), "run `make table`"
    assert again["launches"][0]["executed"] == row["launches"][0]["executed"]


def test_recorded_errors_have_two_digits() -> None:
    for name in ("alexnet_overfeat", "alexnet_overfeat.h200"):
        for row in json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["layers"]:
            error = row["check"]["error"] if "check" in row else row["error"]
            assert error == float(f"{error:.1e}"), (name, row["layer"])


def test_a_fingerprint_sees_statements_figures_and_code_and_no_comments(bench: Any) -> None:
    import fingerprint
    plain = 'def f():\n    x = "# no comment"\n    return x\n'
    told = '"""Module."""\n\ndef f():\n    """What."""\n    # why\n    x = "# no comment"  # here\n    return x\n'
    assert fingerprint.statements(told) == fingerprint.statements(plain)
    assert fingerprint.statements(plain.replace("return x", "return 1")) != fingerprint.statements(plain)
    gm204 = preset("gm204")
    was, now = (bench.fingerprint(m) for m in (gm204, gm204.replace(l1_latency=83)))
    assert was["machine"] != now["machine"] and was["model"] == now["model"] and was["kernels"] == now["kernels"]


def test_an_interrupted_run_continues(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    real, done = bench.simulated, []

    def second_is_interrupted(layer: Layer, policy: str, *rest: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append((layer.name, policy))
        return real(layer, policy, *rest)
    monkeypatch.setattr(bench.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(bench, "simulated", second_is_interrupted)
    assert bench.main(["--quick", "--output", str(tmp_path)]) == 130
    assert "1 pieces are kept" in capsys.readouterr().err
    again: list[tuple[str, str]] = []
    monkeypatch.setattr(bench, "simulated", lambda layer, policy, *rest: again.append((layer.name, policy))
                        or real(layer, policy, *rest))
    assert bench.main(["--quick", "--output", str(tmp_path)]) == 0
    assert sorted(done + again) == [("L1", "greedy-then-oldest"), ("conv1", "greedy-then-oldest")]


def test_partial_results_of_another_model_are_not_used(bench: Any, tmp_path: Path) -> None:
    store = bench.Store(tmp_path, "one")
    store.put("piece", 1)
    assert bench.Store(tmp_path, "one").pieces == {"piece": 1}
    assert bench.Store(tmp_path, "other").pieces == {}


def test_a_wrong_output_is_told_and_fails_the_run(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "checked", lambda layer: {"error": 1.0, "ok": False, "outputs": 1})
    assert bench.main(["--network", "alexnet", "--output", str(tmp_path)]) == 1
    assert "WRONG (1.0e+00)" in (tmp_path / "alexnet_overfeat.txt").read_text()


def test_a_missing_output_of_either_kernel_is_wrong(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import verify_layers
    for errors in ((float("nan"), 1e-7), (1e-7, float("nan"))):
        results = [verify_layers.Result("alexnet", "conv1", 1, e, 1.0, 1.0, 1.0) for e in errors]
        monkeypatch.setattr(verify_layers, "verify", lambda *_, results=results: results)
        assert not bench.checked(TINY[0])["ok"]


def test_measured_rows_speak_the_same_words(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--gpu: rows of gpu_table.py become rows of the table; here a stand-in plays the GPU."""
    class Table:
        def rows(self, layers: Any) -> Any:
            for x in layers:
                yield {"network": x.network, "layer": x.name, "gpu": "Some GPU", "kind": "measured", "ce": 50.0,
                       "paper_ce": x.paper_ce, "clocks": 1e6, "seconds": 1e-3, "error": 1e-7, "correct": True}
    monkeypatch.setitem(sys.modules, "gpu_table", type("gpu_table", (), {"GpuTable": Table}))
    assert bench.main(["--gpu", "--output", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "alexnet_overfeat.json").read_text())["layers"]
    assert {r["kind"] for r in rows} == {"measured"} and rows[0]["label"] == "measured Some GPU"


def test_layers_and_network_that_exclude_each_other_are_refused(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--layers", "alexnet-conv1", "--network", "overfeat"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_the_ten_layers_are_the_tables() -> None:
    assert [x.name for x in LAYERS] == ["conv1", "conv2", "conv3", "conv4", "conv5", "L1", "L2", "L3", "L4", "L5"]


def test_the_table_does_not_follow_what_somebody_measured(bench: Any, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAXDNN_TUNED", "1")
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path))
    shape, (other, *_) = TINY[1].shape, (name for name in plans(forward(TINY[1].shape), chip()) if "pixels" in name)
    assert records.remember(records.measured(chip(), forward(shape), {other: 1e-6}, simulated=True, left_out=0))
    assert maxdnn.plan(shape).spec.name == other
    row = bench.simulated(TINY[1], bench.OURS, preset("gm204"), lambda share: None)
    assert row["kernel"] == maxdnn.plan(shape, tuned=False).spec.name != other


SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "argparse" in path.read_text())


def without_modules(script: Path, options: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """A script run where pycuda, PyTorch and NVML are not."""
    run = (f"import runpy, sys; sys.modules |= dict.fromkeys(('pycuda', 'torch', 'pynvml')); "
           f"sys.argv = [{str(script)!r}, *{options!r}]; sys.path[:0] = [{str(script.parent)!r}, {str(ROOT)!r}]; "
           f"runpy.run_path({str(script)!r}, run_name='__main__')")
    return subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, cwd=folder)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_says_what_it_takes_wherever_it_is(script: Path) -> None:
    done = without_modules(script, ["--help"], ROOT)
    assert done.returncode == 0 and done.stdout.startswith("usage: ") and not done.stderr, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("script", "options", "missing"), [
    ("gpu_table", [], "pycuda"), ("gpu_counters", [], "pycuda"), ("suite", ["--json", "x.json"], "pycuda"),
    ("two_gpus", [], "torch"), ("alexnet_overfeat", ["--gpu", "--output", "."], "pycuda")])
def test_what_is_missing_is_said_in_a_line(script: str, options: list[str], missing: str, tmp_path: Path) -> None:
    done = without_modules(ROOT / "benchmarks" / f"{script}.py", options, tmp_path)
    assert done.returncode == 1 and missing in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.iterdir())


def test_two_gpus_came_to_the_losses_of_one() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "two_gpus.h200.json").read_text())
    assert len(found["losses"]) == len(found["losses_alone"]) == len(found["losses_stock"]) == 20
    assert found["losses"][-1] < 0.5 * found["losses"][0] and "H200" in found["what"]
    assert found["difference"] <= 4 * found["difference_by_order"] and found["difference"] < 1e-3


def test_every_network_was_measured_in_every_way_beside_cudnn_and_float64() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "networks.h200.json").read_text())["rows"]
    wanted = {(name, kind, n, mode) for name in NETWORKS for mode in ("eager", "graph")
              for kind, n in (("inference", 1), ("inference", 8), ("inference", 32), ("training", 32))}
    assert sorted((r["network"], r["kind"], r["n"], r["mode"]) for r in rows) == sorted(wanted)
    for row in rows:
        errors = ["error", "gradient_error"] if row["kind"] == "training" else ["error"]
        for name in ("seconds", "whole_seconds", *errors):
            assert row[name] > 0 and row[f"cudnn_{name}"] > 0, row
        assert all(row[name] <= 4 * row[f"cudnn_{name}"] for name in errors), row


def test_the_clock_is_what_the_sms_count_and_not_what_the_driver_says(bench: Any,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of 132 SMs at 1700 MHz, where NVML reports 1980; ones that stand still are not believed."""
    import gpu_baselines
    memory: dict[int, np.ndarray] = {}
    state = {"clocks": 0, "step": 1_700_000, "ns": 0}

    def allocate(nbytes: int) -> int:
        memory[len(memory)] = np.zeros((nbytes // 16, 2), np.uint64)
        return len(memory) - 1

    def probe(at: int, **_: Any) -> None:
        state["clocks"] += state["step"]
        state["ns"] += 1_000_000
        memory[at][:132] = [(10**9 * sm + state["clocks"], 10**15 + state["ns"]) for sm in range(132)]
    driver = SimpleNamespace(
        Error=RuntimeError, mem_alloc=allocate, memset_d32=lambda at, value, count: memory[at].fill(value),
        module_from_buffer=lambda ptx: SimpleNamespace(get_function=lambda name: probe),
        memcpy_dtoh=lambda host, at: host.__setitem__(slice(None), memory[at]))
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    monkeypatch.setattr(gpu_baselines, "ClockSampler", lambda ordinal: SimpleNamespace(read=lambda: 1980))
    device = SimpleNamespace(ordinal=0, sms=132, kept={}, active=nullcontext,
                             elapsed_seconds=lambda work, repeats: [work() or 1e-3] * repeats)
    assert gpu_baselines.measure(device, lambda: None, calls=4) == gpu_baselines.Timing(2.5e-4, 1700.0)
    state["step"] = 0
    assert gpu_baselines.measure(device, lambda: None).sm_mhz == 1980
