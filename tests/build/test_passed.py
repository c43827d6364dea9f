"""passed.json: what the checker has passed is not checked again, and the file says nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from maxdnn import checker
from maxdnn.build import assemble, cubins, passed

ROOT = Path(__file__).resolve().parents[2]
UNSAFE = "--:-:-:-:1 MOV R0, RZ;\n--:-:-:-:5 IADD R1, R0, R0;\n--:-:-:-:f EXIT;\n"


def test_every_kernel_has_a_line_and_every_kept_cubin_has_passed():
    every = cubins.wanted((*cubins.ARCHS, *cubins.AMPERE, cubins.HOPPER))
    assert sorted(passed.verdicts()) == sorted(passed.name(*one) for one in every), "run python tools/passed.py"
    for path, one in zip(cubins.build_all(), cubins.wanted((*cubins.ARCHS, cubins.HOPPER)), strict=True):
        assert passed.verdicts()[passed.name(*one)] == passed.verdict(path.read_bytes(), cubins.checked_by()), (
            f"{one[0]}: run python tools/passed.py")


@pytest.mark.long
def test_the_checker_passes_them_all_now():
    """Those of Ampere, too, whatever the file says."""
    assert subprocess.run([sys.executable, ROOT / "tools" / "passed.py", "--check"], check=False).returncode == 0


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes a kernel that the checker refuses, in a tree whose file lists what it is given: whether it was checked."""
    (tmp_path / "a.sass").write_text("# Kernel: a\n# Arch: sm_52\n# Params(0):\n# Instructions:\n" + UNSAFE)
    assemble.assemble(tmp_path / "a.sass", tmp_path / "a.cubin", arch="sm_50")
    monkeypatch.setattr(passed, "FILE", tmp_path / "passed.json")

    def make(text):
        passed.FILE.write_text(text)
        passed.verdicts.cache_clear()
        asked = []
        with monkeypatch.context() as patch:
            patch.setattr(checker, "findings", asked.append)
            cubins._made(str(tmp_path / "a"), cubins.ARCHS, "a.cubin")
        return bool(asked)
    yield make, (tmp_path / "a.cubin").read_bytes()
    passed.verdicts.cache_clear()


def test_only_the_very_bytes_by_the_very_rules_go_unchecked(made):
    make, data = made
    now = cubins.checked_by()
    assert not make(json.dumps({"a sm_50": passed.verdict(data, now)}))
    assert make(json.dumps({"a sm_50": passed.verdict(data, "other rules")}))
    assert make(json.dumps({"a sm_50": passed.verdict(data + b"\0", now)}))


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"'])
def test_with_a_damaged_file_everything_is_checked(made, text):
    assert made[0](text)
