"""What choosing a plan needs to know of a GPU, and the estimate all families share."""

from dataclasses import dataclass
from functools import cache

MEMORY_GIB = {"gm107": 2, "gm200": 12, "gm204": 4, "gm20b": 4, "gp104": 8}
"""Of the boards that the presets are named after (product pages). No part of the timing model, which does not ask."""

SCHEDULERS = 4  # of an SM, each one issue slot a clock
DRAM_PEAK = 2431 / 1697
"""The nominal rate of an H200's DRAM (4.8 TB/s at 1.98 GHz) to what streams reach there, `dram_bytes_per_clock`."""

TRANSLATED = 0.73
"""Of the issue slots, what translations of sums of products use: the mean of the paper's ten layers on an H200 (0.67 to
0.80). The vendor's compiler orders them, and leaves conflicts of register banks."""


@dataclass(frozen=True, slots=True)
class Chip:
    """`dram_bytes_per_clock`: of an SM clock. `native`: whether it runs the cubins untranslated. `memory`: bytes of
    DRAM, 0 if not known. `driver`: of a real GPU, with its capability: what measurements on it are remembered under
    beside its name; "" for a simulated chip. `arch`: whose machine code it runs, beside what is translated; "" for a
    simulated chip."""

    name: str
    sms: int
    dram_bytes_per_clock: float
    native: bool = True
    memory: int = 0
    driver: str = ""
    arch: str = ""

    @property
    def dram_peak(self) -> float:
        """Bytes a clock that DRAM takes of writes which many CTAs end with."""
        return self.dram_bytes_per_clock * DRAM_PEAK


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch asks of any chip. `slots`: issue slots of a block, all its warps together. `alone`: clocks of one
    block that has an SM for itself. `nbytes`: read from and written to DRAM, each byte once. `translated`: issue slots
    of a translation, if they are known to be others; None, too, for what is not translated. `resident`: blocks of an SM
    at a time, where a block is so large a part of the work that whole waves of them must be told from begun ones;
    `warps` of such a block. `ends`: clocks of the launch that issue nothing. `translated_resident`, `translated_ends`,
    `translated_alone`: those of a translation, if they are others. `least`: clocks that the longest of blocks of
    different lengths takes by itself; `translated_least`: of a translation. `turn`: clocks of an H200 at the ends of
    each wave in which an SM issues next to nothing, where all of its blocks begin and end together; a begun wave behind
    whole ones takes as long as they do then, since the SM that ends first takes all the blocks it has room for."""

    blocks: int
    slots: float
    alone: float
    nbytes: float
    translated: float | None = None
    resident: int = 0
    warps: int = SCHEDULERS
    translated_resident: int = 0
    ends: float = 0
    translated_ends: float = 0
    least: float = 0
    translated_least: float = 0
    translated_alone: float = 0
    turn: float = 0

    def clocks(self, chip: Chip) -> float:
        """The estimate: all issue slots spread evenly over the schedulers of all SMs, or all bytes at the rate of DRAM,
        whichever takes longer, and the time of one block for what does not overlap at the start and the end. With
        `resident`, the slots of whole waves, and for a begun one those of the fullest scheduler of the fullest SM, or
        one block's time."""
        slots = self.slots if chip.native or self.translated is None else self.translated / TRANSLATED
        ends = self.ends if chip.native else self.translated_ends or self.ends
        alone = self.alone if chip.native else self.translated_alone or self.alone
        if self.resident:
            resident = self.resident if chip.native else self.translated_resident or self.resident
            waves, rest = divmod(self.blocks, chip.sms * resident)
            turn = 0 if chip.native else self.turn
            if turn and waves and rest:
                waves, rest = waves + 1, 0
            warps = -(-(-(-rest // chip.sms) * self.warps) // SCHEDULERS)
            fullest = max(alone, warps * slots / self.warps) if rest else 0
            issue = waves * resident * slots / SCHEDULERS + fullest + turn * (waves + (rest > 0))
            return ends + max(issue, self.nbytes / chip.dram_bytes_per_clock)
        issue = self.blocks * slots / (SCHEDULERS * chip.sms)
        least = self.least if chip.native else self.translated_least
        return ends + alone + max(issue, least, self.nbytes / chip.dram_bytes_per_clock)


@cache
def preset(name: str = "gm204") -> Chip:
    """The chip of a preset of the timing model."""
    from ..simulator.machine import preset as machine

    figures = machine(name)
    return Chip(name, figures["sms"], figures.dram_bytes_per_cycle, memory=MEMORY_GIB[name] << 30)
