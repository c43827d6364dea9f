"""What each figure of a machine means: unit, range, meaning. Values, their kinds and sources are in presets/*.json.

A range says what the engine can run with, not what is likely. Figures without one are built into the compiled engine:
they stand in the presets with their source, and no caller may set them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SimulationError
from .columns import RING_LIMITS

_STALLS = ("12", "13", "14", "15")


@dataclass(frozen=True, slots=True)
class Rule:
    """`least` and `most`: the range, None for a figure that cannot be set. `whole`: no fractions."""

    unit: str
    least: float | None
    most: float | None
    meaning: str
    whole: bool = True

    @property
    def settable(self) -> bool:
        return self.least is not None

    @property
    def range(self) -> str:
        return f"{self.least:,} to {self.most:,}" if self.settable else "built in"


def _built_in(unit: str, meaning: str) -> Rule:
    return Rule(unit, None, None, meaning)


RULES: dict[str, Rule] = {
    "sms": Rule("SMs", 1, 256, "streaming multiprocessors of the chip"),
    "clock_mhz": Rule("MHz", 1, 10_000, "clock of SMs and L2", whole=False),
    "dram_gb_per_s": Rule("GB/s", 1, 100_000, "bandwidth of DRAM", whole=False),
    "l2_kib": Rule("KiB", 1, 131_072, "size of L2"),
    "shared_per_sm": Rule("bytes", 1, 1 << 20, "shared memory of an SM"),
    "shared_per_block": Rule("bytes", 0, 1 << 20, "most shared memory of a block"),
    "shared_unit": Rule("bytes", 1, 1 << 16, "shared memory is given to blocks in multiples of this"),
    "registers_per_sm": Rule("registers", 1, 1 << 20, "registers of an SM"),
    "registers_per_block": Rule("registers", 1, 1 << 20, "most registers of a block"),
    "registers_per_thread": Rule("registers", 0, 255, "most registers of a thread"),
    "register_unit": Rule("registers", 1, 1 << 16, "registers are given to warps in multiples of this"),
    "warp_unit": Rule("warps", 1, 64, "registers are counted for a multiple of so many warps"),
    "warps_per_sm": Rule("warps", 1, 64, "most warps resident on an SM"),
    "blocks_per_sm": Rule("blocks", 1, 64, "most blocks resident on an SM"),
    "threads_per_block": Rule("threads", 1, 1024, "most threads of a block"),
    "candidates": Rule("warps", 1, 64, "warps a scheduler chooses among"),
    "turn_stall": Rule("cycles", 0, 16, "stall count from which on the next warp in turn issues; 16: none"),
    "unyielded_stall": Rule("cycles", 1, 1000, "stall counts 12 to 15 without the yield hint: cycles of each"),
    "operand_fetch_depth": _built_in("instructions", "instructions in operand fetch at a time"),
    "register_banks": _built_in("banks", "register banks of a scheduler, each read once a cycle"),
    "memory_issue_gap": Rule("cycles", 1, 1000, "between two memory instructions of a scheduler"),
    "shared_queue": Rule("operations", 1, RING_LIMITS[1], "shared operations of a warp in flight before it blocks"),
    "global_queue": Rule("operations", 1, RING_LIMITS[0], "global operations of a warp in flight before it blocks"),
    "operand_release_cycles": Rule("cycles", 0, 10_000,
                                   "from the issue of a memory instruction until its sources are free"),
    "shared_latency": Rule("cycles", 1, 10_000, "of a shared load"),
    "shared_way_cycles": Rule("cycles", 0, 1000, "latency that each further conflict way adds"),
    "shared_banks": _built_in("banks", "banks of shared memory, 4 bytes wide"),
    "shared_pair_merge": Rule("0 or 1", 0, 1, "whether two parts of a wide access that agree share a phase"),
    "texture_units": _built_in("units", "texture paths of an SM, one for each pair of schedulers"),
    "texture_cycles_per_channel": Rule("cycles", 1, 1000, "a warp's fetch keeps a texture path busy"),
    "sector_bytes": _built_in("bytes", "what texture/L1, L2 and DRAM move at once"),
    "line_bytes": _built_in("bytes", "line of texture/L1 and L2"),
    "l1_latency": Rule("cycles", 1, 10_000, "of a texture/L1 hit"),
    "l1_kib": Rule("KiB", 1, 1024, "size of texture/L1, two halves"),
    "l1_ways": Rule("ways", 1, 1024, "associativity of texture/L1"),
    "l2_latency": Rule("cycles", 1, 10_000, "of an L2 hit"),
    "l2_ways": Rule("ways", 1, 1024, "associativity of L2"),
    "l2_port_bytes": Rule("bytes/cycle", 1, 65_536, "from L2 into one SM", whole=False),
    "l2_bytes": Rule("bytes/cycle", 1, 65_536, "of the whole L2", whole=False),
    "atomic_cycles": Rule("cycles", 0, 1000, "between two global atomics on one address"),
    "dram_latency": Rule("cycles", 1, 10_000, "of DRAM behind L2"),
    "constant_latency": Rule("cycles", 1, 10_000, "of a hit in the first level of constants"),
    "constant_kib": Rule("KiB", 1, 1024, "size of the first level of constants"),
    "constant_ways": Rule("ways", 1, 1024, "associativity of the first level of constants"),
    "constant_line_bytes": _built_in("bytes", "line of the first level of constants"),
    "constant15_latency": Rule("cycles", 1, 10_000, "of a hit in the level that constants and instructions share"),
    "constant15_kib": Rule("KiB", 1, 1024, "size of that level"),
    "constant15_ways": Rule("ways", 1, 1024, "associativity of that level"),
    "constant15_line_bytes": _built_in("bytes", "line of that level"),
    "instruction_kib": Rule("KiB", 1, 1024, "size of the instruction cache"),
    "instruction_ways": Rule("ways", 1, 1024, "associativity of the instruction cache"),
    "instruction_line_bytes": _built_in("bytes", "line of the instruction cache"),
    "instruction_prefetch": Rule("lines", 0, 64, "lines fetched with a missing one"),
    "barrier_cycles": Rule("cycles", 0, 100_000, "from the last arrival at BAR to the first issue after it"),
    "block_launch_cycles": Rule("cycles", 0, 1_000_000, "from a block's end to the first issue of its successor"),
}
_CACHES = (("l1", "line_bytes", 2), ("l2", "line_bytes", 1), ("constant", "constant_line_bytes", 1),
           ("constant15", "constant15_line_bytes", 1), ("instruction", "instruction_line_bytes", 1))


def check_value(name: str, value: Any) -> None:
    """Raises SimulationError for a figure that is none, cannot be set, or is given a value out of its range."""
    rule = RULES.get(name)
    if rule is None or not rule.settable:
        why = "there is no figure" if rule is None else "the engine is built for the preset's value of"
        known = ", ".join(n for n, r in RULES.items() if r.settable)
        raise SimulationError(f"{why} {name!r}; these can be set: {known}")
    if name == "unyielded_stall":
        complete = isinstance(value, dict) and set(value) == set(_STALLS)
        if not complete or not all(_fits(rule, v) for v in value.values()):
            raise SimulationError(f'{name} must give cycles from {rule.range} for each of the stalls, such as '
                                  f'{{"12": 23, "13": 8, "14": 9, "15": 10}} (got {_shown(value)})')
    elif not _fits(rule, value):
        number = "a whole number" if rule.whole else "a number"
        raise SimulationError(f"{name} must be {number} from {rule.range} ({rule.unit}; got {_shown(value)})")


def check_together(values: Mapping[str, Any]) -> None:
    """Raises SimulationError unless every cache is a whole number of sets."""
    for cache, line, parts in _CACHES:
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
