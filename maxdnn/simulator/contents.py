"""What L2 holds between the launches of a plan: a warm launch finds it when it begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import columns as c
from .state import Image


@dataclass(frozen=True)
class L2Contents:
    """cells: L2's table of an image; age: of the next touch. Images of the same machine, of warm launches, have tables
    of the same shape."""

    cells: np.ndarray
    age: int

    @classmethod
    def of(cls, image: Image) -> L2Contents:
        return cls(_table(image).copy(), int(image.X[c.C_AGE]))

    def put(self, image: Image) -> None:
        _table(image)[:] = self.cells
        image.X[c.C_AGE] = self.age


def _table(image: Image) -> np.ndarray:
    X = image.X
    cells = int(X[c.P_L2SETS] * X[c.P_L2WAYS]) * c.SECTORED  # of 32 bits
    return image.table(c.T_L2, (cells + 1) // 2, 1)
