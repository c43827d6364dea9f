"""`maxdnn check` as a user sees it."""

import json
import pathlib

import pytest

from maxdnn.cli import main
from tests import oracles
from tests.checker.test_hazards import SOURCE

SAFE = """# Kernel: k
# Arch: sm_52
# SharedSize: 0
# Params(1):
#\t0:0x140:8:0
#
# Instructions:

--:-:-:-:6 MOV R4, c[0x0][0x140];
--:-:-:-:6 FADD R5, R4, 1.0;
--:-:-:-:5 EXIT;
"""
UNSAFE = SAFE.replace("--:-:-:-:6 MOV", "--:-:-:-:5 MOV")


def test_a_safe_cubin_gives_status_zero(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(oracles.compile_cuda(SOURCE))
    assert main(["check", str(path)]) == 0
    assert "0 errors" in capsys.readouterr().out


def test_a_source_with_a_hazard_gives_status_one_and_says_what_to_do(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.sass").write_text(UNSAFE)
    assert main(["check", str(tmp_path / "k.sass")]) == 1
    out = capsys.readouterr().out
    assert "raw-fixed: R4" in out and "6 cycles required, 5 guaranteed" in out
    assert "0008" in out and "0010" in out and "add 1 to the stall at 0008" in out


def test_a_warning_counts_only_when_strict(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.sass").write_text(SAFE.replace("--:-:-:-:6 MOV", "01:-:-:-:6 MOV"))
    assert main(["check", str(tmp_path / "k.sass")]) == 0
    assert "warning: wait-unset" in capsys.readouterr().out
    assert main(["check", "--strict", str(tmp_path / "k.sass")]) == 1


def test_json_carries_both_instructions(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.sass").write_text(UNSAFE)
    main(["check", "--json", str(tmp_path / "k.sass")])
    (finding,) = json.loads(capsys.readouterr().out)[0]["findings"]
    assert finding["producer"]["address"] == 8 and finding["consumer"]["text"].startswith("FADD R5")
    assert (finding["required"], finding["guaranteed"]) == (6, 5)


def test_advice_is_printed_only_when_asked_for(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.sass").write_text(SAFE.replace("--:-:-:-:6 MOV", "--:-:-:-:9 MOV"))
    main(["check", str(tmp_path / "k.sass")])
    assert "long-stall" not in capsys.readouterr().out
    assert main(["check", "--advice", str(tmp_path / "k.sass")]) == 0
    assert "stall 6" in capsys.readouterr().out


def test_a_file_that_is_neither_is_refused_with_its_name(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise.bin"
    path.write_text("no kernel here\n")
    assert main(["check", str(path)]) == 1
    assert "noise.bin" in capsys.readouterr().err
