"""What choosing a plan needs to know of a GPU, and the estimate all families share."""

import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ..runtime.forks import compiling

MEMORY_GIB = {"gm107": 2, "gm200": 12, "gm204": 4, "gm20b": 4, "gp104": 8, "h200": 141, "h100": 80, "h100-pcie": 80}
"""Of the boards that the presets are named after (product pages). No part of the timing model, which does not ask."""

SCHEDULERS = 4  # of an SM, each one issue slot a clock
DRAM_PEAK = 2431 / 1697
"""The nominal rate of an H200's DRAM (4.8 TB/s at 1.98 GHz) to what streams reach there, `dram_bytes_per_clock`."""

TRANSLATED = 0.73
"""Of the issue slots, what translations of sums of products use: the mean of the paper's ten layers on an H200 (0.67 to
0.80). The vendor's compiler orders them, and leaves conflicts of register banks."""

SHORT_CTA = 2800
"""Issue slots that a CTA of translated transposes counts for, as 26 of them took on an H200: it waits for its loads,
and the next one begins behind it."""

BETWEEN = 2500
"""Clocks from the end of a launch to the begin of the next one, as 750 plans took on an H200 (1.3 us). The timing model
of Maxwell has none."""

MANY = 2**16
"""CTAs beyond which one stands for several of its neighbours: thousands for each SM, of which the last few decide."""


@dataclass(frozen=True, slots=True)
class Chip:
    """`dram_bytes_per_clock`: of an SM clock. `runs_maxwell`: whether it runs
    machine code of Maxwell; else translations of it. `memory`: bytes of
    DRAM, 0 if not known. `driver`: of a real GPU, with its capability: what measurements on it are remembered under
    beside its name; "" for a simulated chip. `arch`: whose machine code it runs, beside what is translated; "" for a
    simulated chip. `clock_mhz`: the highest of the SMs; 0 if not known. `ffma_cycles`: in which a scheduler issues an
    FFMA, 2 where it has 16 lanes. `trial`: how another process finds the card, "" where there is none."""

    name: str
    sms: int
    dram_bytes_per_clock: float
    runs_maxwell: bool = True
    memory: int = 0
    driver: str = ""
    arch: str = ""
    clock_mhz: float = 0
    ffma_cycles: int = 1
    trial: str = field(default="", compare=False)

    def said(self, clocks: float) -> str:
        """An estimate in words."""
        return f"{clocks:,.0f} clocks" + (f" ({clocks / self.clock_mhz:.1f} us)" if self.clock_mhz else "")

    @property
    def dram_peak(self) -> float:
        """Bytes a clock that DRAM takes of writes which many CTAs end with."""
        return self.dram_bytes_per_clock * DRAM_PEAK


class HasChip(Protocol):
    """A device that says what plans are chosen for. Others may be SimulatesChip."""

    chip: Chip


class SimulatesChip(Protocol):
    """A device that computes as a preset of the timing model does."""

    preset: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What the CTAs of a launch cost in one instruction set.

    `slots`: issue slots of a CTA, all its warps together (their mean where CTAs differ). `critical_path`: clocks of a
    CTA that has an SM for itself. `ctas_per_sm`: how many an SM holds at a time, where whole waves must be told from a
    tail wave; 0 where CTAs are short. `overhead`: clocks of the launch that issue nothing. `longest`: clocks that the
    longest of CTAs of different lengths takes by itself. `wave_ends`: clocks of prologues and epilogues in every wave
    in which an SM issues next to nothing, where all CTAs of a wave begin and end together; a tail wave behind whole
    ones takes as long as they do then, since the SM that ends first takes all the CTAs it has room for. `staggered`,
    if not 0: CTAs of a wave end one after another, so that a tail wave takes what its own CTAs take; the pace of an SM
    with hardly any of them, to that of a full one."""

    slots: float
    critical_path: float
    ctas_per_sm: int = 0
    overhead: float = 0
    longest: float = 0
    wave_ends: float = 0
    staggered: float = 0

    def translated(self, slots: float, **others: Any) -> "Cost":
        """The same of a translation of so many instructions; `others`: fields that differ, too."""
        return replace(self, slots=slots / TRANSLATED, **others)


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch asks of any chip. `nbytes`: read from and written to DRAM, each byte once. `translation`: of a
    kernel that is translated where its machine code does not run; None if that costs the same. `warps`: of a CTA.
    `lengths`: slots of each CTA, or of every `each`-th, in the order they start, where they differ."""

    ctas: int
    nbytes: float
    code: Cost
    translation: Cost | None = None
    warps: int = SCHEDULERS
    lengths: tuple[float, ...] = ()
    each: int = 1

    def clocks(self, chip: Chip) -> float:
        """The estimate: all issue slots spread over the schedulers of all SMs, or all bytes at the rate of DRAM,
        whichever takes longer, and what does not overlap at the start and the end."""
        cost = self.code if chip.runs_maxwell or self.translation is None else self.translation
        if chip.ffma_cycles > 1:
            return self._slower(cost, chip.ffma_cycles).clocks(replace(chip, ffma_cycles=1))
        memory, slots_of_chip = self.nbytes / chip.dram_bytes_per_clock, chip.sms * cost.ctas_per_sm
        if self.lengths and (not cost.critical_path or self.ctas > slots_of_chip):
            return cost.overhead + max(self._scheduled(cost, slots_of_chip), memory)
        if cost.ctas_per_sm:
            return cost.overhead + max(self._waves(cost, chip), memory)
        issue = self.ctas * cost.slots / (SCHEDULERS * chip.sms)
        return cost.overhead + cost.critical_path + max(issue, cost.longest, memory)

    def _slower(self, cost: Cost, cycles: int) -> "Work":
        """The same where every slot takes so many cycles: nearly all are FFMA."""
        code = replace(cost, slots=cycles * cost.slots, critical_path=cycles * cost.critical_path,
                       longest=cycles * cost.longest)
        return replace(self, code=code, translation=None, lengths=tuple(cycles * x for x in self.lengths))

    def _scheduled(self, cost: Cost, slots_of_chip: int) -> float:
        """A CTA begins where another ends, and gets its share of the SM's schedulers."""
        free = [0.0] * slots_of_chip
        for length in self.lengths:
            heapq.heapreplace(free, free[0] + length * cost.ctas_per_sm / SCHEDULERS)
        return self.each * max(free)

    def _waves(self, cost: Cost, chip: Chip) -> float:
        """Slots of whole waves, and for a tail wave those of the fullest scheduler of the fullest SM, or the critical
        path of a CTA."""
        waves, rest = divmod(self.ctas, chip.sms * cost.ctas_per_sm)
        if cost.wave_ends and waves and rest and not cost.staggered:
            waves, rest = waves + 1, 0
        on_fullest = -(-rest // chip.sms)
        tail = -(-on_fullest * self.warps // SCHEDULERS) * cost.slots / self.warps
        if cost.staggered and on_fullest > 1:  # of one alone the critical path tells
            tail /= cost.staggered + (1 - cost.staggered) * on_fullest / cost.ctas_per_sm
        tail = max(cost.critical_path, tail) if rest else 0
        return waves * cost.ctas_per_sm * cost.slots / SCHEDULERS + tail + cost.wave_ends * (waves + (rest > 0))


def neighbours(runs: Iterable[tuple[float, int]]) -> tuple[list[float], int]:
    """The lengths in runs of (length, CTAs), in order, and how many CTAs each entry stands for: one, unless there are
    more than MANY."""
    runs = list(runs)
    each = max(1, -(-sum(count for _, count in runs) // MANY))
    lengths: list[float] = []
    for length, count in runs:
        lengths += [length] * -(-count // each)
    return lengths, each


@cache
def preset(name: str = "gm204") -> Chip:
    """The chip of a preset of the timing model."""
    with compiling:
        from ..simulator.machine import preset as machine

    figures = machine(name)
    return Chip(name, figures["sms"], figures.dram_bytes_per_cycle, not figures.sm90, MEMORY_GIB[name] << 30,
                arch=figures.arch if figures.sm90 else "", clock_mhz=figures["clock_mhz"])


@cache
def described(name: str) -> Chip:
    """A chip that is known from documents only (chips.json): "rtx4090", "rtx3080", "a100"."""
    found = json.loads(Path(__file__).with_name("chips.json").read_bytes())[name]
    figures = {key: entry[0] for key, entry in found.items() if isinstance(entry, list)}
    rate = figures["dram_share"] * figures["dram_gb_per_s"] * 1000 / figures["clock_mhz"]
    return Chip(found["name"], figures["sms"], rate, runs_maxwell=False, memory=figures["dram_gib"] << 30,
                arch=found["arch"], clock_mhz=figures["clock_mhz"], ffma_cycles=figures["ffma_cycles"])
