"""Docstrings of the public API name what is there, `make docs` covers it, ruff and mypy hold it."""

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import maxdnn
from maxdnn import cubin, reference
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import MaxdnnError
from maxdnn.runtime.devices import find

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ("Parameters", "Returns", "Yields", "Raises", "Notes", "Attributes")
PUBLIC = {name: getattr(maxdnn, name) for name in maxdnn.__all__ if name != "LAYERS"}
OTHERS = {"conv_reference": reference.conv_reference, "relative_error": reference.relative_error, "read": cubin.read,
          "VirtualGpu": VirtualGpu, "host": find.host, "gpu": find.gpu, "first_gpu": find.first_gpu,
          "of_address": find.of_address, "empty_like": find.empty_like}
EVERY = PUBLIC | OTHERS
RAISES_NOTHING = {"relative_error", "host", "first_gpu"}
ERRORS = {name: thing for name, thing in EVERY.items()
          if isinstance(thing, type) and issubclass(thing, MaxdnnError)}
PLAIN = {name: thing for name, thing in EVERY.items() if name not in ERRORS}
MADE_BY_OTHERS = {"Plan", "PreparedFilters", "Layer"}  # users read their attributes and do not construct them


def sections(thing: Any) -> dict[str, str]:
    """The text of each section of a docstring in NumPy style, "" for what stands in front."""
    text = inspect.getdoc(thing) or ""
    parts = re.split(rf"^({'|'.join(SECTIONS)})\n-+\n", text, flags=re.M)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def named(section: str) -> list[str]:
    """The names that a section describes, in order."""
    heads = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return [name.strip(" *") for head in heads for name in head.split(" : ")[0].split(",")]


def said_of(name: str, thing: Any) -> None:
    """Every parameter, result and error is described; nothing else is."""
    found = sections(thing)
    assert re.match(r".+\.$", found[""].split("\n\n")[0].strip(), re.S), f"{name}: no summary"
    if name in MADE_BY_OTHERS:
        assert named(found["Attributes"]) == [field.name for field in dataclasses.fields(thing)], name
        return
    wanted = [p for p in inspect.signature(thing).parameters if p != "self"]
    assert named(found.get("Parameters", "")) == wanted, name
    returns = None if isinstance(thing, type) else inspect.signature(thing).return_annotation
    assert bool(found.get("Returns", "").strip()) == (returns is not None), f"{name}: Returns"
    errors = named(found.get("Raises", ""))
    assert bool(errors) == (name not in RAISES_NOTHING), f"{name}: Raises"
    for error in errors:
        known = getattr(maxdnn, error, None) or getattr(importlib.import_module("builtins"), error)
        assert issubclass(known, Exception), error


@pytest.mark.parametrize("name", PLAIN)
def test_a_docstring_describes_parameters_results_and_errors(name):
    said_of(name, PLAIN[name])


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_when_it_is_raised(name):
    assert len(inspect.getdoc(ERRORS[name]) or "") > 20


@pytest.mark.parametrize("owner", [maxdnn.Plan, maxdnn.ConvShape, maxdnn.PreparedFilters, VirtualGpu],
                         ids=lambda owner: owner.__name__)
def test_every_public_member_says_what_it_is(owner):
    members = {name: member for base in owner.__mro__ if base.__module__.startswith("maxdnn")
               for name, member in vars(base).items() if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    silent = [name for name, member in members.items() if name not in fields and not inspect.getdoc(member)]
    assert not silent


@pytest.mark.parametrize("owner", [maxdnn.Plan, VirtualGpu], ids=lambda owner: owner.__name__)
def test_every_public_method_describes_its_parameters_and_result(owner):
    for name, method in vars(owner).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        found, signature = sections(method), inspect.signature(method)
        wanted = [p for p in signature.parameters if p != "self"]
        assert named(found.get("Parameters", "")) == wanted, name
        if wanted:
            assert bool(found.get("Returns")) == (signature.return_annotation not in (None, "None")), name


@pytest.mark.torch
def test_the_names_of_maxdnn_torch_do_too():
    import maxdnn.torch as library

    for name in ("conv2d", "linear", "replace", "optimize", "ran"):
        said_of(name, getattr(library, name))
    layer = named(sections(library.Conv2d)["Parameters"])
    assert layer == [p for p in inspect.signature(library.Conv2d).parameters if p != "options"][:1] + [
        "options", *layer[2:]] and set(layer[2:]) == {
            "algorithm", "max_error", "arithmetic", "activation"}


def test_a_parameter_that_is_not_described_is_found():
    def undescribed(one: int, two: int) -> None:
        """Do.

        Parameters
        ----------
        one : int
            The first.
        """
    with pytest.raises(AssertionError, match="undescribed"):
        said_of("undescribed", undescribed)


CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]


def test_the_rules_hold_for_the_modules_of_the_public_api():
    (glob, codes), = CONFIG["ruff"]["lint"]["per-file-ignores"].items()
    paths = re.fullmatch(r"!maxdnn/\{(.*)\}\.py", glob)[1].split(",")
    modules = {f"maxdnn.{path.replace('/', '.')}".removesuffix(".__init__") for path in paths}
    strict = next(rule for rule in CONFIG["mypy"]["overrides"] if rule.get("disallow_untyped_defs"))
    assert codes == ["D"] and set(strict["module"]) == modules
    assert {thing.__module__ for name, thing in PLAIN.items() if name != "Layer"} <= modules
    assert {"maxdnn.torch.functional", "maxdnn.torch.modules"} <= modules


def test_ruff_refuses_a_public_function_without_a_docstring():
    """The pattern of files is one that ruff understands."""
    for path, expected in (("maxdnn/conv.py", True), ("maxdnn/problem/shape.py", True), ("maxdnn/errors.py", False)):
        done = subprocess.run([sys.executable, "-m", "ruff", "check", "--stdin-filename", path, "-"], cwd=ROOT,
                              input="def public():\n    pass\n", capture_output=True, text=True, check=False)
        assert ("D103" in done.stdout) == expected, done.stdout


def test_the_pages_cover_every_module_with_public_names():
    rule = (ROOT / "Makefile").read_text().split("\ndocs:")[1].split("\n\n")[0]
    assert "build/docs" in rule and "--docformat numpy" in rule
    asked = set(re.findall(r" (maxdnn[\w.]*)", rule.replace("\\\n\t\t", "")))
    assert asked == {"maxdnn", "maxdnn.torch", "maxdnn.reference", "maxdnn.cubin", "maxdnn.emulator",
                     "maxdnn.runtime.devices.find"}
