"""Digests of outputs that must agree bit for bit on every device, and the results recorded on a GPU.

nvidia_h200.json was written by `tools/compare_gpu.py gpu` on an NVIDIA H200: the same sources compiled for sm_90.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.corpus import compiler
from tests.corpus.runner import ANY_NAN, BITS, Array, Case, Problem

RECORDED = pathlib.Path(__file__).parent / "nvidia_h200.json"


def digest(array: Array, any_nan: bool) -> str:
    if any_nan and array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def digests(problem: Problem, outputs: Mapping[str, Array]) -> dict[str, str]:
    """Output (and row, where rows have rules of their own) -> digest.  Outputs judged by an error bound have none."""
    found = {}
    for name in problem.expected() or problem.scratch:
        rule = problem.rules.get(name, BITS)
        if callable(rule):
            parts = {name: (rule, outputs[name])}
        else:
            parts = {f"{name}[{k}]": (row_rule, outputs[name][k]) for k, row_rule in enumerate(rule)}
        found.update({key: digest(array, r is ANY_NAN) for key, (r, array) in parts.items() if r in (BITS, ANY_NAN)})
    return found


def recorded(case: Case, path: pathlib.Path = RECORDED) -> dict[str, str] | None:
    """The recorded digests of a case; None if there are none for the present version of its source, or if the program
    that ran there was not what the source means."""
    result = _result(case, path)
    return None if "wrong" in result else result.get("digests")


def as_compiled(case: Case) -> tuple[dict[str, str] | None, bool]:
    """The recorded digests for code that the same compiler makes of the source, and whether it means what that does."""
    result = _result(case, RECORDED)
    return result.get("digests"), "wrong" not in result


def _result(case: Case, path: pathlib.Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())["cases"].get(case.name, {})
    return result if result.get("source") == compiler.source_digest(case.source) else {}
