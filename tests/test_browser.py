"""Where there is no browser its tests are left out in words; where one is required that is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run_without_a_browser(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The tests of the page that open it, in a process whose path holds no browser. Nothing is simulated for them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/simulator/test_page.py", "-k",
               "no_colour or on_a_phone"]
    env = {k: v for k, v in os.environ.items() if k not in ("MAXDNN_REQUIRE_BROWSER", "PYTEST_ADDOPTS")}
    return subprocess.run(command, cwd=ROOT, env={**env, "PATH": str(folder), **environment}, capture_output=True,
                          text=True, check=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("required", ["", "0"])
def test_without_a_browser_its_tests_are_left_out_with_the_reason(tmp_path: Path, required: str) -> None:
    done = run_without_a_browser(tmp_path, MAXDNN_REQUIRE_BROWSER=required)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no chromium or chromium-browser or google-chrome on the path" in done.stdout
    assert " passed" not in done.stdout and " failed" not in done.stdout and " error" not in done.stdout


def test_where_a_browser_is_required_its_absence_fails(tmp_path: Path) -> None:
    done = run_without_a_browser(tmp_path, MAXDNN_REQUIRE_BROWSER="1")
    assert done.returncode == 1 and "MAXDNN_REQUIRE_BROWSER says that they must run" in done.stdout


def test_continuous_integration_requires_one() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.index("apt-get install -y -qq chromium") < script.index("export MAXDNN_REQUIRE_BROWSER=1")
    assert script.index("export MAXDNN_REQUIRE_BROWSER=1") < script.index("\nmake test ")
