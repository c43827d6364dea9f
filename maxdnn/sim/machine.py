"""A machine is a named set of figures read from presets/*.json, each with its kind (documented, measured, assumed) and
its source. A sibling chip names the chip it is like and gives its differences."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import SimulationError

PRESETS = Path(__file__).with_name("presets")
KINDS = ("documented", "measured", "assumed", "fitted")
SECTOR, LINE = 32, 128  # bytes
INSTRUCTION_LINE, CONSTANT_LINE, CONSTANT15_LINE = 128, 64, 256


@dataclass(frozen=True, slots=True)
class Figure:
    """One hardware figure: its value, "documented", "measured", "assumed" or "fitted", and where it comes from."""

    value: Any
    kind: str
    source: str


@dataclass(frozen=True)
class Machine:
    """A GPU as the timing model knows it. `machine["l2_latency"]` is the value of a figure."""

    name: str
    title: str
    figures: Mapping[str, Figure]

    def __getitem__(self, name: str) -> Any:
        try:
            return self.figures[name].value
        except KeyError:
            raise SimulationError(f"{self.name} has no figure {name!r}; it has: {', '.join(self.figures)}") from None

    @property
    def peak_flops_per_cycle(self) -> int:
        """Float32 operations per cycle of the whole chip: two per lane, 128 lanes per SM."""
        return 256 * self["sms"]

    @property
    def dram_bytes_per_cycle(self) -> float:
        return self["dram_gb_per_s"] * 1000 / self["clock_mhz"]

    def replace(self, **values: Any) -> "Machine":
        """The same machine with some figures changed, for what-if studies; the changed ones are marked "assumed"."""
        figures = dict(self.figures)
        for name, value in values.items():
            self[name]
            figures[name] = Figure(value, "assumed", "set by the caller")
        return Machine(self.name, self.title, figures)


def names() -> list[str]:
    """The presets there are."""
    return sorted(p.stem for p in PRESETS.glob("*.json"))


@cache
def preset(name: str) -> Machine:
    """The machine of a preset. Raises SimulationError naming the presets for an unknown name."""
    path = PRESETS / f"{name}.json"
    if name not in names():
        raise SimulationError(f"no preset {name!r}; there are: {', '.join(names())}")
    data = json.loads(path.read_text())
    figures = dict(preset(data["like"]).figures) if "like" in data else {}
    figures |= {key: Figure(*entry) for key, entry in data["figures"].items()}
    return Machine(data["name"], data["title"], figures)
