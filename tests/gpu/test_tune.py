"""Tuning on a real GPU."""

import time

import pytest

import maxdnn
from maxdnn import ConvShape, tune
from maxdnn.planning import records
from maxdnn.planning.select import choose
from maxdnn.problem.problem import forward
from maxdnn.runtime.measure import Runner, Stopwatch

pytestmark = pytest.mark.gpu


@pytest.fixture
def device(tmp_path, monkeypatch):
    from maxdnn.runtime.devices import cuda
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path))
    monkeypatch.setenv("MAXDNN_TUNED", "1")
    records._recalled.table.clear()
    yield cuda.device(0)
    records._recalled.table.clear()


def test_the_stopwatch_leaves_the_host_out(device):
    """A call that the host makes slow takes the GPU no longer."""
    problem = forward(ConvShape(1, 64, 14, 14, 64, 3, 3, 1, 1), layout="NCHW")
    plan = choose(problem, device.chip)
    call, watch = Runner(device).call(plan), Stopwatch(device)
    call()
    quick = min(watch.seconds(call, len(plan.launches), 5))

    def slow():
        time.sleep(2e-4)
        call()
    slow()
    assert quick < 1e-4 and min(watch.seconds(slow, len(plan.launches), 5)) < 1.5 * quick


def test_tuned_plans_are_taken_and_not_slower_than_the_estimate(device):
    shapes = [ConvShape(1, 64, 14, 14, 64, 3, 3, 1, 1), ConvShape(8, 64, 28, 28, 64, 3, 3, 1, 1),
              ConvShape(1, 1024, 14, 14, 256, 1, 1)]
    for found in tune(shapes, device=device, layout="NCHW", seconds=3):
        print(found)
        assert found.new and found.remembered and not found.record.simulated and found.gain >= 1
        plan = maxdnn.plan(found.problem.shape, device=device, layout="NCHW")
        assert plan.chosen == found.plan.chosen and f"by measurement on {device.name}" in plan.explain()


def test_the_layers_of_a_model(device):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding="same"), torch.nn.ReLU(),
                                torch.nn.Conv2d(16, 8, 1)).cuda()
    found = tune(model, torch.rand(2, 8, 9, 9, device="cuda"), seconds=1)
    assert [t.problem.shape.K for t in found] == [16, 8] and all(t.record.chip == device.name for t in found)
