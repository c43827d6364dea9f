"""The README says what is so: its table is the results', its example runs, its commands exist."""

import argparse
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import maxdnn
from maxdnn import cli
from maxdnn.cubin import read
from tests.corpus import cases, compiler

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
    for target in re.findall(r"make ([a-z-]+)", README):
        assert is_target(target), target


def is_target(name: str) -> bool:
    return bool(re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.long
def test_the_vendors_programs_it_counts_are_those_there_are():
    kernels = sum(len(read(compiler.compile_source(name)).kernels) for name in compiler.sources() if ".cu" in name)
    assert f"every instruction of {kernels} CUDA C kernels" in README
    assert f"references for {len(cases.ALL)} programs" in README


DOCUMENTS = [ROOT / "README.md", ROOT / "DESIGN.md", ROOT / "sass" / "README.md", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "benchmarks" / "results").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_files_and_options_that_a_document_names_exist(document: Path):
    text = document.read_text()
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert is_target(target), target
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (document.parent / path).exists(), path
    for path in re.findall(r"`(\w[\w./*-]*(?:\.(?:py|pl|inc|sass|json|svg|md)|/))`|python (\w[\w/]+\.py)", text):
        assert "".join(path) in MADE or is_file("".join(path)), path
    for name, rest in re.findall(r"maxdnn ([a-z]+)((?: [^`\n]*)?)`", text):
        assert name in cli.command_names(), name
        options = {o for action in build(name)._actions for o in action.option_strings}
        assert set(re.findall(r"--[a-z][a-z-]*", rest)) <= options, rest
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert importlib.util.find_spec(module), module
    for name in re.findall(r"`maxdnn\.(\w+)\b", text):
        assert hasattr(maxdnn, name) or importlib.util.find_spec(f"maxdnn.{name}"), name


def build(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"maxdnn.cli.{name}").configure(parser)
    return parser


def is_file(path: str) -> bool:
    """Whether there is such a file or folder; one named alone may be anywhere."""
    folders = ("maxdnn", "sass", "tests", "benchmarks")
    return any(ROOT.glob(path)) or any(any((ROOT / folder).rglob(path)) for folder in folders)


MADE = ("sass/name.sass", "make_arrays.py", "launch.py")  # files that a reader makes
