"""The public names of `maxdnn` are what they are, whichever of its modules were imported before."""

import pkgutil
import subprocess
import sys

import pytest

import maxdnn

HOMES = sorted(set(maxdnn._HOME.values()))


def test_no_module_has_the_name_of_a_public_function():
    """Importing it would put the module in the place of the function."""
    modules = {found.name for found in pkgutil.iter_modules(maxdnn.__path__)}
    assert {"conv", "planning"} <= modules and not modules & set(maxdnn.__all__)


@pytest.mark.parametrize("first", ["modules", "names"])
def test_names_and_modules_are_imported_in_any_order(first):
    steps = {"modules": f"[importlib.import_module(f'maxdnn.{{home}}') for home in {HOMES}]",
             "names": "[getattr(maxdnn, name) for name in maxdnn.__all__]"}
    code = "\n".join(["import importlib, inspect, maxdnn", steps.pop(first), *steps.values(),
                      "print(*(name for name in maxdnn.__all__ if inspect.ismodule(getattr(maxdnn, name))))",
                      "from maxdnn import conv_fprop, matmul, tune, plan",
                      "print(*(x.__name__ for x in (conv_fprop, matmul, tune, plan)))"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["", "conv_fprop matmul tune plan", ""]
