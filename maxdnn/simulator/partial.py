# ruff: noqa: F403, F405
"""Sectors of L2 that lack bytes, compiled: of stores that leave out bytes of sectors that L2 has not. So many lines
with such sectors stay as they are. Beyond that L2 reads from DRAM what the sectors of a line lack (probes "launch of n
words of every n bytes, n MiB", with empty caches: a store waits until DRAM has taken that, and some of them are written
to DRAM soon, which is left out). Loads of such sectors in the same launch are not looked at.

How many words each sector lacks is above the mask of a line's dirty sectors."""

from .bandwidth import book_dram
from .columns import *
from .dram import loaded
from .jit import compiled, narrow, popcount4
from .machine import LINE, SECTOR

SECTORS, WORDS = LINE // SECTOR, SECTOR // 4  # of a line, of a sector
LACK_BITS, LACK = 4, 15  # of a sector


@compiled
def lacking(cell):
    """Which sectors lack bytes."""
    found = 0
    for sector in range(SECTORS):
        found |= (cell >> SECTORS + LACK_BITS * sector & LACK > 0) << sector
    return found


@compiled
def complete(X, dirty, now):
    """What the sectors of a line lack comes from DRAM."""
    Y = narrow(X)
    sectors = popcount4(lacking(Y[dirty]))
    ticks = sectors * X[P_DRAM_TICKS]
    loaded(X, now, ticks, ticks)
    X[C_EMPTIED] = max(X[C_EMPTIED], book_dram(X, ticks, now))
    X[C_DRAM_READ] += sectors
    Y[dirty] &= 15


@compiled
def of_set(X, base, lines):
    """How many lines of the set at `base` P_L2DIRTY or P_L2PARTIAL are: where they are no whole number some sets keep
    one more."""
    some = base // (X[P_L2WAYS] * SECTORED) & (1 << PARTIAL_BITS) - 1
    return lines + some >> PARTIAL_BITS


@compiled
def keep_few(X, dirty, now):
    """Complete the line that was used least recently of those of a set that lack bytes, if they are too many."""
    Y, ways, first, count, oldest = narrow(X), X[P_L2WAYS], 2 * X[T_L2], 0, -1
    base = dirty - (dirty - first) % (ways * SECTORED)
    for way in range(ways):
        if Y[base + 2 * ways + way] >> SECTORS:
            count += 1
            if oldest < 0 or Y[base + ways + way] < Y[base + ways + oldest]:
                oldest = way
    if count > of_set(X, base, X[P_L2PARTIAL]):
        complete(X, base + 2 * ways + oldest, now)


@compiled
def store_words(X, dirty, fill, mask, now):
    """Words of sectors of a line are stored, or the whole of them: what they lack then."""
    Y = narrow(X)
    cell, before = Y[dirty], Y[dirty] >> SECTORS
    for sector in range(SECTORS):
        if mask >> sector & 1:
            at = SECTORS + LACK_BITS * sector
            left = WORDS if Y[fill + sector] < 0 else cell >> at & LACK
            words = mask >> EACH + LACK_BITS * sector & LACK
            cell = cell & ~(LACK << at) | max(left - words, 0) << at
    Y[dirty] = cell
    if cell >> SECTORS and not before:
        keep_few(X, dirty, now)
