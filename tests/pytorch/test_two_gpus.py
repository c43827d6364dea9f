"""benchmarks/two_gpus.py with two processes on the virtual GPU."""

import json
import pathlib
import subprocess
import sys

import pytest

import maxdnn

pytestmark = pytest.mark.torch
SCRIPT = pathlib.Path(maxdnn.__file__).parents[1] / "benchmarks" / "two_gpus.py"


def test_two_processes_come_to_the_losses_of_one(tmp_path):
    out = tmp_path / "losses.json"
    done = subprocess.run([sys.executable, str(SCRIPT), "--network", "small", "--steps", "3", "--json", str(out)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["losses"] == pytest.approx(found["losses_alone"], rel=1e-5)
    assert found["losses_stock"] == pytest.approx(found["losses_alone"], rel=1e-5)
    assert found["losses"][0] != found["losses"][2], "it learns"
    assert "largest relative difference" in done.stdout
