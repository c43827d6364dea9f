"""A machine is a named set of figures read from presets/*.json, each with its kind (documented, measured, assumed) and
its source. A sibling chip names the chip it is like and gives its differences."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import SimulationError
from .figures import check_together, check_value

# Figures in cycles of the SMs, and in parts of such, that last as long at any clock of theirs.
_BYTES = "l2_bytes", "l2_load_bytes", "l2_store_bytes"  # a cycle
_CYCLES = ("l2_store_least", "l2_load_least", "l2_complete", "atomic_cycles", "atomic_float_cycles",
           "atomic_sector_cycles", "atomic_filled_cycles", "dram_others", "dram_spread", "dram_wait")

PRESETS = Path(__file__).with_name("presets")


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
    arch: str = "sm_52"  # whose machine code it runs

    def __getitem__(self, name: str) -> Any:
        try:
            return self.figures[name].value
        except KeyError:
            raise SimulationError(f"{self.name} has no figure {name!r}; it has: {', '.join(self.figures)}") from None

    @property
    def sm90(self) -> bool:
        """Whether it is an SM of sm_90, with the parts that are its own (sm90.py)."""
        return self.arch == "sm_90"

    @property
    def of_any(self) -> Mapping[str, Any]:
        """Values by name, 0 for a figure that such a machine does not have."""
        return defaultdict(int, {name: self[name] for name in self.figures})

    @property
    def peak_flops_per_cycle(self) -> int:
        """Float32 operations per cycle of the whole chip: two per lane, 128 lanes per SM."""
        return 256 * self["sms"]

    @property
    def dram_bytes_per_cycle(self) -> float:
        return self["dram_gb_per_s"] * 1000 / self["clock_mhz"]

    def at_clock(self, mhz: int) -> "Machine":
        """The same machine with its SMs at another clock, as of a card that draws much power. L2 and DRAM keep theirs:
        an H200's L2 has 1,703 MHz while its SMs have 1,565 to 1,975 (Nsight Compute, lts__cycles_elapsed.max by
        gpu__time_duration.sum, kernels on tensor cores and others). The way to L2 takes as many cycles as before: it is
        as long on an H100 and an H200, whose L2 do atomics at rates that are a tenth apart."""
        longer = mhz / self["clock_mhz"]
        behind = (self["dram_latency"] - self["l2_latency"]) * longer
        found = {"clock_mhz": mhz, "dram_latency": self["l2_latency"] + round(behind)}
        found |= {name: self[name] / longer for name in _BYTES if name in self.figures}
        for name in _CYCLES:
            if name in self.figures:
                found[name] = round(self[name] * longer) if isinstance(self[name], int) else self[name] * longer
        return self.with_values(found)

    def with_values(self, values: Mapping[str, Any]) -> "Machine":
        """The same machine with other values of some figures that follow from its own: kinds and sources stay."""
        changed = {name: replace(self.figures[name], value=value) for name, value in values.items()}
        return replace(self, figures={**self.figures, **changed})

    def replace(self, **values: Any) -> "Machine":
        """The same machine with some figures changed, for what-if studies; the changed ones are marked "assumed".
        Raises SimulationError for a name that is no figure or cannot be set, and a value out of range (figures.py)."""
        figures = dict(self.figures)
        for name, value in values.items():
            check_value(name, value, self.arch)
            figures[name] = Figure(value, "assumed", "set by the caller")
        check_together({name: figure.value for name, figure in figures.items()}, self.arch)
        return Machine(self.name, self.title, figures, self.arch)


def names() -> list[str]:
    """The presets there are."""
    return sorted(p.stem for p in PRESETS.glob("*.json"))


def preset(name: str) -> Machine:
    """The machine of a preset. Raises SimulationError naming the presets for an unknown name."""
    if not isinstance(name, str) or name not in names():
        raise SimulationError(f"no preset {name!r}; there are: {', '.join(names())}")
    return _read(name)


@cache
def _read(name: str) -> Machine:
    data = json.loads((PRESETS / f"{name}.json").read_bytes())
    figures = dict(preset(data["like"]).figures) if "like" in data else {}
    figures |= {key: Figure(*entry) for key, entry in data["figures"].items()}
    arch = preset(data["like"]).arch if "like" in data else data.get("arch", "sm_52")
    return Machine(data["name"], data["title"], figures, arch)


def _built_in(*figures: str) -> list[int]:
    """Figures that are constants of the compiled engine, the same for all presets."""
    return [int(preset("gm204")[name]) for name in figures]


SECTOR, LINE, INSTRUCTION_LINE, CONSTANT_LINE, CONSTANT15_LINE = _built_in(
    "sector_bytes", "line_bytes", "instruction_line_bytes", "constant_line_bytes", "constant15_line_bytes")
REGISTER_BANKS, SHARED_BANKS = _built_in("register_banks", "shared_banks")
