# ruff: noqa: F403, F405
"""DRAM, compiled: what it is taken for, what a write costs, how long a read takes. Its bandwidth is bandwidth.py's."""

from .bandwidth import book_dram, room_of_dram
from .columns import *
from .jit import compiled
from .machine import LINE, SECTOR

# Windows that a mean is of, a power of two's bits: of what tells what a write costs, and how long a read takes; what is
# forgotten after so many.
MEAN_BITS, TAKEN_BITS, FORGOTTEN = 4, 2, 64


@compiled
def dram_room(X, number, cell, start):
    """`room` of DRAM; number, cell: what it was before from the same cycle on, or 0, -1."""
    if cell < 0 or X[cell] >= BUCKET * TICK:
        return room_of_dram(X, start)
    return number, cell


@compiled
def loaded(X, begin, ticks, reads):
    """Count what DRAM is taken for, in windows of time, and how much of it is read."""
    window = begin >> WINDOW_BITS
    if window > X[C_WINDOW]:
        X[C_WINDOW_LAST] = X[C_WINDOW_TICKS] if window == X[C_WINDOW] + 1 else 0
        for _ in range(min(window - X[C_WINDOW], FORGOTTEN)):
            X[C_LATELY_TICKS] -= (X[C_LATELY_TICKS] >> MEAN_BITS) - X[C_WINDOW_TICKS]
            X[C_LATELY_READS] -= (X[C_LATELY_READS] >> MEAN_BITS) - X[C_WINDOW_READS]
            X[C_TAKEN] -= (X[C_TAKEN] >> TAKEN_BITS) - X[C_WINDOW_TICKS]
            X[C_WINDOW_TICKS], X[C_WINDOW_READS] = 0, 0
        X[C_WINDOW] = window
    X[C_WINDOW_TICKS] += ticks
    X[C_WINDOW_READS] += reads


@compiled
def read_ticks(X, n, coming):
    """What each of so many sectors of a line costs that are read. A line costs something however little of it is read
    (probes "launch of loads of pieces of 64 bytes, n MiB"), which sectors of it that are coming have paid for."""
    if coming:
        return max(n * X[P_DRAM_TICKS] - max(X[P_DRAM_LEAST] - coming * X[P_DRAM_TICKS], 0), 0) // n
    return max(X[P_DRAM_TICKS], X[P_DRAM_LEAST] // n)


@compiled
def write_ticks(X):
    """What a sector costs that goes to DRAM: more where others are read, too (probes "launch of 0 loads and 1 stores
    ...", "copies of all SMs, ..."). SMs in step read all together what those of a card read by turns, so that it is
    the mean of some 16 windows that counts."""
    mixed = 64 * X[C_LATELY_READS] > X[C_LATELY_TICKS] or not X[P_DRAM_ALONE_TICKS]
    return X[P_DRAM_WRITE_TICKS] if mixed else X[P_DRAM_ALONE_TICKS]


@compiled
def to_dram(X, n, now, number, cell):
    """Write so many sectors of a line to DRAM: C_EMPTIED is when it has taken them. `dram_room` for what follows."""
    ticks = n * write_ticks(X)
    if n < LINE // SECTOR:
        ticks = max(ticks, X[P_DRAM_WRITE_LEAST])
    number, cell = dram_room(X, number, cell, now)
    if X[cell] + ticks <= BUCKET * TICK:
        X[C_EMPTIED] = max(now, number * BUCKET + (X[cell] + TICK - 1) // TICK)
        X[cell] += ticks
    else:
        X[C_EMPTIED] = book_dram(X, ticks, now)
    X[C_DRAM_WRITE] += n
    loaded(X, now, ticks, 0)
    return number, cell


@compiled
def dram_latency(X, line):
    """Of sm_90 it differs from line to line, and is longer the more DRAM is taken (probes "loads of DRAM, ..."). SMs in
    step take it at times where those of a card take it all the time: the mean counts, too (probes "tiles of DRAM, 4
    loads.128 at a time, ...")."""
    if not X[P_DRAM_SPREAD]:
        return X[P_DRAMLAT]
    taken = min(max(X[C_TAKEN] >> TAKEN_BITS, X[C_WINDOW_LAST]) >> WINDOW_BITS, X[P_DRAM_MOST])
    key = (line >> 1) * 0x9E3779B1 >> 32 - SPREAD_BITS & (1 << SPREAD_BITS) - 1
    more = X[P_DRAM_SPREAD] * (X[X[T_SPREAD] + key] - SPREAD_ONE) // SPREAD_ONE
    return X[P_DRAMLAT] + X[P_DRAM_OTHERS] + more + X[P_DRAM_WAIT] * taken // TICK * taken // (TICK - taken)
