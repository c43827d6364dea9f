"""What L2 keeps of a launch's memory, by who touches its lines."""

import numpy as np

from . import columns as c
from .machine import LINE, Machine
from .state import Work

_MOST = 1 << 21  # lines that are looked at
_SOME = 16
_BY_KIND = "l2_own_kib", "l2_kib", "l2_written_kib"  # figures: of lines that one SM reads, that several do, written


def _lines(work: Work, kinds: np.ndarray, first: int, end: int, group: int, some: bool) -> np.ndarray:
    """The lines of records from `first` to `end` that belong to a group, each once. `some`: one of _SOME of them."""
    rows = work.records[first:end]
    memory = (kinds[first:end] > 0) & (kinds[first:end] != c.WARM_CONSTANT)
    taken = np.flatnonzero(memory & (np.where(rows[:, 3] >= 0, rows[:, 3], -1 - rows[:, 3]) == group))
    rows, bulk = rows[taken], kinds[first:end][taken] == c.WARM_BULK
    apart = rows[:, 3] < 0
    rows = np.where(apart[:, None], work.records[np.where(apart, rows[:, 1], 0)], rows)
    at, n = rows[~bulk, 1], rows[~bulk, 2]
    found, where = work.lines[_spread(at, n), 0], rows[bulk & (rows[:, 2] > 0), 1]
    if some:
        found, where = found[_chosen(found)], where[_chosen(work.lines[where + 1, 0])]
    copied = _spread(work.lines[where + 1, 0], -(-work.lines[where, 1] // LINE))
    return np.unique(np.concatenate([found, copied]))


def _chosen(lines: np.ndarray) -> np.ndarray:
    return (lines * 0x9E3779B1 >> 24) % _SOME == 0


def _spread(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Numbers from each of `first` on, as many as `count` says."""
    return np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))


def kept_kib(kinds: np.ndarray, work: Work, machine: Machine, warm: bool) -> int:
    """What L2 keeps of the lines that a launch touches: it has more room for those that one SM reads than for those
    that several do, and least for those that are written. Behind a launch of its like, when another SM has a line than
    the one before, all are alike."""
    whole = machine["l2_ways"] * LINE // 1024
    if warm:
        return int(machine["l2_next_kib"]) // (2 * whole) * 2 * whole  # pairs of sets: `l2_set`
    shared, written = _shares(kinds, work)
    own, several, changed = (machine[name] for name in _BY_KIND)
    taken = (1 - shared - written) / own + shared / several + written / changed
    return round(1 / taken) // whole * whole


def _shares(kinds: np.ndarray, work: Work) -> tuple[float, float]:
    """Of the lines that blocks touch the share that at least two of them touch and none writes, and the share that one
    writes."""
    classes = int(work.class_of.max()) + 1
    stores = np.where(kinds == c.WARM_STORE, kinds, 0)
    warps = (len(work.record_ptr) - 1) // classes
    lines, times, changed, size = [], [], [], 0
    for number in range(classes):
        blocks = np.flatnonzero(work.class_of == number)
        first, end = (int(work.record_ptr[(number + n) * warps]) for n in (0, 1))
        for group in range(work.shift.shape[1]):
            mine = _lines(work, kinds, first, end, group, classes > _SOME and len(blocks) == 1)
            if not len(mine) or size > _MOST:
                continue
            moves, count = np.unique(work.shift[blocks, group, 0], return_counts=True)
            moves, count = moves[:_MOST // len(mine) + 1], count[:_MOST // len(mine) + 1]
            lines.append((mine[:, None] + moves).ravel())
            written = np.isin(mine, _lines(work, stores, first, end, group, classes > _SOME and len(blocks) == 1))
            times.append(np.broadcast_to(count, (len(mine), len(moves))).ravel())
            changed.append(np.repeat(written, len(moves)))
            size += len(lines[-1])
    if not lines:
        return 0.0, 0.0
    _, where = np.unique(np.concatenate(lines), return_inverse=True)
    written = np.bincount(where, np.concatenate(changed)) > 0
    shared = np.bincount(where, np.concatenate(times)) >= 2
    return float((shared & ~written).mean()), float(written.mean())
