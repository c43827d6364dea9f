"""What each figure of a machine means: unit, range, meaning (figures.json). Values, their kinds and sources are in
presets/*.json.

A range says what the engine can run with, not what is likely. Figures without one are built into the compiled engine:
they stand in the presets with their source, and no caller may set them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SimulationError
from .columns import RING_LIMITS

_STALLS = ("12", "13", "14", "15")


@dataclass(frozen=True, slots=True)
class Rule:
    """`least` and `most`: the range, None for a figure that cannot be set. `whole`: no fractions. `of`: the machine code
    of the machines that have it, "" for all. `table`: whether it is a number for each of some names."""

    unit: str
    least: float | None
    most: float | None
    meaning: str
    whole: bool = True
    of: str = ""
    table: bool = False

    @property
    def settable(self) -> bool:
        return self.least is not None

    @property
    def range(self) -> str:
        return f"{self.least:,} to {self.most:,}" if self.settable else "built in"


def _rules() -> dict[str, Rule]:
    """What figures.json says; how long the queues may be says the image of a warp."""
    most = dict(zip(("global_queue", "shared_queue"), RING_LIMITS, strict=True))
    data = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    found = {}
    for name, entry in data.items():
        least, limit = entry.get("range", (None, None))
        found[name] = Rule(entry["unit"], least, most.get(name, limit), entry["meaning"], entry.get("whole", True),
                           entry.get("of", ""), entry.get("table", False))
    return found


def rules_of(arch: str) -> dict[str, Rule]:
    """Those of the machines that run some machine code."""
    return {name: rule for name, rule in RULES.items() if rule.of in ("", "sm_90" if arch == "sm_90" else "sm_5x")}


RULES = _rules()
_CACHES = (("l1", "line_bytes", 2), ("l2", "line_bytes", 1), ("constant", "constant_line_bytes", 1),
           ("constant15", "constant15_line_bytes", 1), ("instruction", "instruction_line_bytes", 1))


def check_value(name: str, value: Any, arch: str = "sm_52") -> None:
    """Raises SimulationError for a figure that is none, cannot be set, or is given a value out of its range."""
    rules = rules_of(arch)
    rule = rules.get(name)
    if rule is None or not rule.settable:
        why = "there is no figure" if rule is None else "the engine is built for the preset's value of"
        known = ", ".join(n for n, r in rules.items() if r.settable)
        raise SimulationError(f"{why} {name!r}; these can be set: {known}")
    if name == "unyielded_stall":
        complete = isinstance(value, dict) and set(value) == set(_STALLS)
        if not complete or not all(_fits(rule, v) for v in value.values()):
            raise SimulationError(f'{name} must give cycles from {rule.range} for each of the stalls, such as '
                                  f'{{"12": 23, "13": 8, "14": 9, "15": 10}} (got {_shown(value)})')
    elif rule.table:
        if not isinstance(value, dict) or not all(_fits(rule, v) for v in value.values()):
            raise SimulationError(f"{name} must give {rule.unit} from {rule.range} by name, such as "
                                  f'{{"alu": 2}} (got {_shown(value)})')
    elif not _fits(rule, value):
        number = "a whole number" if rule.whole else "a number"
        raise SimulationError(f"{name} must be {number} from {rule.range} ({rule.unit}; got {_shown(value)})")


def check_together(values: Mapping[str, Any], arch: str = "sm_52") -> None:
    """Raises SimulationError unless every cache is a whole number of sets."""
    for cache, line, halves in _CACHES:
        parts = 1 if arch == "sm_90" else halves
        kib, ways, row = values[f"{cache}_kib"], values[f"{cache}_ways"], values[line] * parts
        if kib * 1024 % (row * ways):
            raise SimulationError(f"{cache}_kib x 1024 must be a multiple of {cache}_ways x {row} bytes: a whole "
                                  f"number of sets (got {cache}_kib {kib}, {cache}_ways {ways})")


def _fits(rule: Rule, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or rule.least is None or rule.most is None:
        return False
    if rule.whole and not isinstance(value, int):
        return False
    return rule.least <= value <= rule.most  # NaN is not


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) < 80 else text[:77] + "..."
