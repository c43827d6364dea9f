"""The self-test on a real GPU; on one that translates, the native questions of clocks are passed over."""

import pytest

from maxdnn.algorithms.registry import kernels
from maxdnn.cli import main
from maxdnn.selftest import report

pytestmark = pytest.mark.gpu


def test_the_quick_self_test_finds_nothing_and_runs_every_kernel(tmp_path, capsys):
    path = tmp_path / "report.md"
    status = main(["selftest", "--device", "0", "--quick", "--report", str(path)])
    print(capsys.readouterr().out)
    found = report.read(path)
    assert status == 0 and report.passed(found)
    used = {name for r in found["results"] if r["part"] == "kernels" for name in r["data"]["kernels"]}
    assert used == {name for name, spec in kernels().items() if spec.arch is None}  # what the virtual GPU runs, too
    assert found["how"] in ("native", "translated") and found["device"]["driver"]
