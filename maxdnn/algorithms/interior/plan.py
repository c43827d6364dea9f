"""What both kernels for interior and border taps share: a CTA computes one output pixel of many images, knows which
taps lie inside the map, and walks over those alone."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ...problem.problem import Problem
from ..common.correlation import Correlation, correlations
from ..common.limits import CONSTANT_BYTES
from ..spec import groups_reason, strided_reason

RECORD = 8
"""Bytes of a tap of eight channels, or of an element."""


@lru_cache(maxsize=64)
def inside(s: Correlation) -> tuple[list[list[int]], list[tuple[int, ...]]]:
    """The filter rows inside the map for each output row, the filter columns for each output column."""
    rows = [[r for r in range(s.R) if 0 <= p * s.str_h - s.pad_h + r * s.dil_h < s.H] for p in range(s.P)]
    columns = [tuple(c for c in range(s.S) if 0 <= q * s.str_w - s.pad_w + c * s.dil_w < s.W) for q in range(s.Q)]
    return rows, columns


def border_reason(problem: Problem) -> str | None:
    """For `unsupported_reason`: every pixel needs a tap, and every row and column of an output a list of taps."""
    if refused := groups_reason(problem):
        return refused
    if any(RECORD * (s.P + s.Q) > CONSTANT_BYTES for s in correlations(problem)):
        return f"an output of more than {CONSTANT_BYTES // RECORD} rows and columns"
    if not all(taps for s in correlations(problem) for axis in inside(s) for taps in axis):
        return "pixels without any tap inside the map"
    return strided_reason(problem)


def inside_note(every: tuple[Correlation, ...]) -> Iterator[str]:
    """How many of the taps are computed."""
    used = sum(sum(map(len, rows)) * sum(map(len, columns)) for rows, columns in map(inside, every))
    taps = sum(s.P * s.Q * s.R * s.S for s in every)
    if used < taps:
        yield f"{used / taps:.1%} of the taps lie inside the map; the others cost nothing"


def tap_lists(s: Correlation, channels: np.ndarray, at: int, steps: tuple[int, int, int], unit: int,
              filter_row: int) -> tuple[dict[tuple[int, ...], int], np.ndarray]:
    """Lists of taps of a table from byte `at` on, one for each set of columns inside, row by row: where each begins,
    and (place in the maps, place in the filters) of all. `steps`: from one channel, row and column of the maps to the
    next, times `unit`; `filter_row`: of filters C,R,S."""
    begins: dict[tuple[int, ...], int] = {}
    lists: list[np.ndarray] = []
    for taps in dict.fromkeys(inside(s)[1]):
        begins[taps] = at
        r, col, c = (x.ravel() for x in np.meshgrid(np.arange(s.R), np.array(taps), channels, indexing="ij"))
        place = c * steps[0] + r * s.dil_h * steps[1] + col * s.dil_w * steps[2]
        lists.append(np.stack([place * unit, ((c * s.R + r) * s.S + col) * filter_row], 1))
        at += RECORD * len(r)
    return begins, np.concatenate(lists)
