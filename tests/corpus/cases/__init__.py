"""Every corpus program as a list of cases, one module per family."""

from __future__ import annotations

import importlib
import pathlib

from tests.corpus.runner import Case


def _load() -> list[Case]:
    found: list[Case] = []
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("_"):
            found += importlib.import_module(f"{__name__}.{path.stem}").CASES
    return found


ALL: list[Case] = _load()
BY_NAME: dict[str, Case] = {case.name: case for case in ALL}
