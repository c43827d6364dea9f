"""Which access of a warp in one block stands for which in another where blocks differ in what they load and store: the
n-th load for the n-th load, the n-th store for the n-th store."""

import numpy as np

from . import columns as c
from .state import Work

_MOST = 1 << 24  # cells of the table


def uneven(kinds: np.ndarray, work: Work) -> bool:
    """Whether an access has more lines in some blocks than in others. `kinds`: what each record touches."""
    classes, most = int(work.class_of.max(initial=0)) + 1, int(work.record_ptr[-1])
    lengths = np.diff(work.record_ptr).reshape(classes, -1)
    if (lengths != lengths[0]).any():
        return False
    rows, lines = work.records[:most], work.records[:, 2].copy()
    of_class = np.repeat(np.arange(classes), most // classes)
    for group in np.unique(rows[rows[:, 3] < 0, 3]).tolist():  # of those that have a record for each remainder
        for number in range(classes):
            where = np.flatnonzero((rows[:, 3] == group) & (of_class == number))
            present = np.unique(work.shift[work.class_of == number, -1 - group, 1])
            counts = work.records[rows[where, 1][:, None] + present, 2]
            if (counts != counts[:, :1]).any():
                return True
            lines[where] = counts[:, 0]
    counts = np.where(np.isin(kinds, (c.WARM_LOAD, c.WARM_STORE)), lines, 0)[:most].reshape(classes, -1)
    return bool((counts != counts[0]).any())


def slots(kinds: np.ndarray, work: Work) -> tuple[np.ndarray, np.ndarray, int] | None:
    """The slot of each record, -1 for one that goes to no memory; by stream the record of each slot, -1 where there is
    none; how many slots are of loads. None where all blocks load and store as often or the table would be too large."""
    streams = len(work.record_ptr) - 1
    classes = int(work.class_of.max(initial=0)) + 1
    of_record, by_kind = np.full(len(kinds), -1, np.int64), []
    for kind in (c.WARM_LOAD, c.WARM_STORE):
        where = np.flatnonzero(kinds[:work.record_ptr[-1]] == kind)
        stream = np.searchsorted(work.record_ptr, where, "right") - 1
        count = np.bincount(stream, minlength=streams)
        rank = np.arange(len(where)) - np.repeat(np.cumsum(count) - count, count)
        by_kind.append((where, stream, count, rank))
    counts = np.stack([count for _, _, count, _ in by_kind]).reshape(2, classes, -1)
    loads, stores = (int(count.max(initial=0)) for count in counts)
    if (counts == counts[:, :1]).all() or streams * (loads + stores) > _MOST:
        return None
    by_slot = np.full((streams, loads + stores), -1, np.int64)
    for first, (where, stream, _, rank) in zip((0, loads), by_kind, strict=True):
        of_record[where] = first + rank
        by_slot[stream, first + rank] = where
    return of_record, by_slot, loads
