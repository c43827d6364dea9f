"""The assembler's own unit tests, in Perl, and its promise to use nothing but core modules, strict and warnings."""

import re
import subprocess

from tests.maxas import tool

FOLDER = tool.MAXAS.parent
OWN = re.compile(r"^use (?!strict|warnings|lib|constant)([A-Z][\w:]*)", re.MULTILINE)
CORE = {"Cwd", "Exporter", "File::Basename", "File::Spec", "File::Temp", "JSON::PP", "List::Util", "Test::More"}


def test_the_passes_work_by_themselves() -> None:
    done = subprocess.run(["perl", FOLDER / "t" / "units.t"], capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert done.returncode == 0 and len(failed) == 1, done.stdout[-3000:] + done.stderr
    assert done.stderr == ""


def test_only_core_modules_are_used_and_every_file_is_strict() -> None:
    for path in [FOLDER / "maxas.pl", *FOLDER.glob("lib/MaxAs/*.pm"), *FOLDER.glob("t/*")]:
        text = path.read_text()
        assert "use strict;\nuse warnings;" in text, path
        foreign = {m for m in OWN.findall(text) if not m.startswith("MaxAs::")} - CORE
        assert not foreign, f"{path} uses {foreign}"


def test_files_stay_small() -> None:
    for path in FOLDER.glob("lib/MaxAs/*.pm"):
        assert len(path.read_text().splitlines()) <= 420, path
