"""The estimate of launches whose blocks differ in length."""

import heapq
from dataclasses import dataclass

from ...planning.cost import SCHEDULERS, Chip, Work


@dataclass(frozen=True, slots=True)
class Blocks(Work):
    """Blocks that differ in length: `lengths`, slots of each in the order they start. `slots` is their mean."""

    lengths: tuple[float, ...] = ()

    def clocks(self, chip: Chip) -> float:
        """Each block begins where one ends, and has its share of an SM's schedulers."""
        free = [0.0] * (chip.sms * self.resident)
        for length in self.lengths:
            heapq.heapreplace(free, free[0] + length * self.resident / SCHEDULERS)
        return self.alone + max(max(free), self.nbytes / chip.dram_bytes_per_clock)
