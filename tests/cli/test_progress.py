"""Signs of life: on a terminal a bar, else lines; nothing for short work. Both long commands give them."""

import io
import time
from pathlib import Path

import pytest

from maxdnn import cli
from maxdnn.cli import _progress
from tests import oracles


def test_long_work_is_told_of_in_lines_with_its_share(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress.Progress("working", every=0.05) as tell:
        time.sleep(0.12)
        tell(1, 4)
        time.sleep(0.12)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "working: 0 s" and lines[-1] == "working: 0 s, 25 % done"


def test_short_work_and_work_that_fails_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError), _progress.Progress("working") as tell:
        tell(0, 0)
        raise ValueError
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with _progress.Progress("working") as tell:
        tell(3, 4)
    assert "working" in screen.getvalue() and "75 %" in screen.getvalue()


def test_run_and_simulate_tell_of_their_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share never falls and ends at all."""
    told: list[list[float]] = []

    class Heard(_progress.Progress):
        def __enter__(self) -> "Heard":
            told.append([])
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __call__(self, done: int, of: int) -> None:
            told[-1].append(done / of)
    monkeypatch.setattr(_progress, "Progress", Heard)
    source = 'extern "C" __global__ void fill(float *out) { out[blockIdx.x * 32 + threadIdx.x] = 1.0f; }'
    (tmp_path / "fill.cubin").write_bytes(oracles.compile_cuda(source))
    (tmp_path / "launch.json").write_text("""{"buffers": {"a": "zeros:float32:64x32"}, "launches": [
        {"grid": [64], "block": [32], "args": ["a"]}, {"grid": [32], "block": [32], "args": ["a"]}]}""")
    for command in ("run", "simulate"):
        assert cli.main([command, str(tmp_path / "fill.cubin"), "--launch", str(tmp_path / "launch.json")]) == 0
    assert cli.main(["simulate", "64,8,2,2,64,1,1"]) == 0
    assert len(told) == 3 and all(shares == sorted(shares) and shares[-1] == 1 for shares in told)
