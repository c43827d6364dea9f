"""The README says what is so: its table is the results', its example runs, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_table_is_that_of_the_results():
    done = subprocess.run([sys.executable, ROOT / "tools" / "readme_table.py", "--check"], check=False)
    assert done.returncode == 0, "run tools/readme_table.py"


def test_the_example_prints_what_the_readme_says():
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.S).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == printed


def test_the_commands_it_names_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for name in re.findall(r"`maxdnn ([a-z]+) ", README):
        assert (ROOT / "maxdnn" / "commands" / f"{name}.py").exists(), name
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path
