"""docs/tutorial.md does what it says: its files are written, its commands run, and what they print is compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
MAXDNN = f'"{sys.executable}" -m maxdnn '


def test_the_tutorial_runs(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = 0
    for kind, name, content in BLOCK.findall(TEXT):
        if name:
            (tmp_path / name).write_text(content)
            continue
        assert kind == "console", "every other block must name its file"
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", content, re.M):
            line = re.sub(r"^python ", f'"{sys.executable}" ', re.sub(r"^maxdnn ", MAXDNN, command))
            done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert done.returncode == int("1 errors" in expected), done.stderr
            assert re.fullmatch(pattern(expected), done.stdout), f"{command}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran == 10


def pattern(expected: str) -> str:
    """What is printed, with lines of `...` for any lines and `...` in a line for anything there."""
    lines = [r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
             for line in expected.splitlines()]
    return "".join(lines)
