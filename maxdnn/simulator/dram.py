# ruff: noqa: F403, F405
"""DRAM, compiled: what it is taken for, what a write costs, how long a read takes. Its bandwidth is bandwidth.py's."""

from .bandwidth import room_of_dram
from .columns import *
from .jit import compiled


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
        following = window == X[C_WINDOW] + 1
        X[C_WINDOW_LAST] = X[C_WINDOW_TICKS] if following else 0
        X[C_READS_LAST] = X[C_WINDOW_READS] if following else 0
        X[C_WINDOW], X[C_WINDOW_TICKS], X[C_WINDOW_READS] = window, 0, 0
    X[C_WINDOW_TICKS] += ticks
    X[C_WINDOW_READS] += reads


@compiled
def write_ticks(X):
    """What a sector costs that goes to DRAM: more where others are read meanwhile (probes "launch of 0 loads and 1
    stores ...", "copies of all SMs, ...")."""
    mixed = 16 * X[C_READS_LAST] > X[C_WINDOW_LAST] or not X[P_DRAM_ALONE_TICKS]
    return X[P_DRAM_WRITE_TICKS] if mixed else X[P_DRAM_ALONE_TICKS]


@compiled
def dram_latency(X, line):
    """Of sm_90 it differs from line to line, and is longer the more DRAM is taken (probes "loads of DRAM, ...")."""
    if not X[P_DRAM_SPREAD]:
        return X[P_DRAMLAT]
    taken = min(X[C_WINDOW_LAST] >> WINDOW_BITS, X[P_DRAM_MOST])
    key = (line >> 1) * 0x9E3779B1 >> 32 - SPREAD_BITS & (1 << SPREAD_BITS) - 1
    more = X[P_DRAM_SPREAD] * (X[X[T_SPREAD] + key] - SPREAD_ONE) // SPREAD_ONE
    return X[P_DRAMLAT] + X[P_DRAM_OTHERS] + more + X[P_DRAM_WAIT] * taken // TICK * taken // (TICK - taken)
