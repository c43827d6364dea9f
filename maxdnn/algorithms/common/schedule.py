"""The estimate of launches whose blocks differ in length."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from ...planning.cost import SCHEDULERS, Chip, Work

MANY = 2**16
"""Blocks beyond which one stands for several of its neighbours: thousands for each SM, of which the last few decide."""


def neighbours(runs: Iterable[tuple[float, int]]) -> tuple[list[float], int]:
    """Of runs of (length, blocks) the lengths one after the other, each of which stands for so many blocks."""
    runs = list(runs)
    each = max(1, -(-sum(count for _, count in runs) // MANY))
    return [length for length, count in runs for _ in range(-(-count // each))], each


@dataclass(frozen=True, slots=True)
class Blocks(Work):
    """Blocks that differ in length: `lengths`, slots of each in the order they start, or of every `each`-th. `slots` is
    their mean."""

    lengths: tuple[float, ...] = ()
    each: int = 1

    def clocks(self, chip: Chip) -> float:
        """Each block begins where one ends, and has its share of an SM's schedulers."""
        free = [0.0] * (chip.sms * self.resident)
        for length in self.lengths:
            heapq.heapreplace(free, free[0] + length * self.resident / SCHEDULERS)
        return self.alone + max(self.each * max(free), self.nbytes / chip.dram_bytes_per_clock)
