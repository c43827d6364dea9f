"""How filters with more rows or columns than half a tile are used: whole, or cut into parts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..common.correlation import Correlation

_FILTERS = 16  # for which products take as many issue slots as a transform of maps


@dataclass(frozen=True)
class Cut:
    """A filter in `parts` down and across of `part` rows and columns of taps each, the last maybe fewer, and rows and
    columns of results of a tile. A part is a filter of its own, whose maps lie so many rows and columns further."""

    side: int
    taps: tuple[int, int]
    parts: tuple[int, int] = (1, 1)

    @classmethod
    def best(cls, side: int, s: Correlation) -> "Cut":
        """The cut of least work: fewer parts mean fewer transforms and products, but fewer outputs of each tile."""
        c, k = s.C // s.groups, s.K // s.groups
        down, across = (sorted({1, -(-taps // (side // 2))}) for taps in (s.R, s.S))
        every = (cls(side, (s.R, s.S), parts) for parts in product(down, across))

        def work(cut: Cut) -> float:
            return math.prod(cut.tiles(s)) * (len(cut) * c * (1 + k / _FILTERS) + k)

        return min(every, key=work)

    @property
    def part(self) -> tuple[int, int]:
        return -(-self.taps[0] // self.parts[0]), -(-self.taps[1] // self.parts[1])

    @property
    def step(self) -> tuple[int, int]:
        return self.side + 1 - self.part[0], self.side + 1 - self.part[1]

    def tiles(self, s: Correlation) -> tuple[int, int]:
        """Rows and columns of tiles of an image."""
        return -(-s.P // self.step[0]), -(-s.Q // self.step[1])

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """First row and column of each part, and how many of both."""
        for row in range(0, self.taps[0], self.part[0]):
            for column in range(0, self.taps[1], self.part[1]):
                yield row, column, min(self.part[0], self.taps[0] - row), min(self.part[1], self.taps[1] - column)

    def __len__(self) -> int:
        return self.parts[0] * self.parts[1]

    @property
    def said(self) -> list[str]:
        """For the notes of a plan."""
        if len(self) == 1:
            return [f"filters of {self.taps[0]}x{self.taps[1]} come whole"] if max(self.taps) > self.side // 2 else []
        return ["filters of {}x{} come in {} parts of at most {}x{}, as channels of their own".format(
            *self.taps, len(self), *self.part)]
