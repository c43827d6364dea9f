# ruff: noqa: F403, F405
"""Sectors of L2 that lack bytes, compiled: of stores that leave out bytes of sectors that L2 has not. So many lines
with such sectors stay as they are. Beyond that L2 reads from DRAM what the sectors of a line lack (probes "launch of n
words of every n bytes, n MiB", with empty caches: a store waits until DRAM has taken that, and some of them are written
to DRAM soon, which is left out). A store of parts of sectors that are being completed waits until they are there
(probes "launch of a word of every 32 bytes of 24 MiB and the next one n MiB behind it"). Loads of such sectors in the
same launch are not looked at.

Where several stores, one after another, have left different sectors of a line without bytes, L2 completes what each of
them has left by itself, and it is written to DRAM at once (probes "launch of a word of each of n sectors of every line,
one behind the other, n MiB").

How many words each sector lacks is above the mask of a line's dirty sectors, and above that how many stores have left
further sectors of it without bytes, beside a first one to a line of which L2 had nothing."""

from .bandwidth import book_dram, book_l2
from .columns import *
from .dram import dram_latency, loaded
from .jit import compiled, narrow, popcount4
from .machine import LINE, SECTOR

SECTORS, WORDS = LINE // SECTOR, SECTOR // 4  # of a line, of a sector
LACK_BITS, LACK = 4, 15  # of a sector
FURTHER, FURTHER_MOST = SECTORS + LACK_BITS * SECTORS, 3  # where that begins, the most it can be


@compiled
def lacking(cell):
    """Which sectors lack bytes."""
    found = 0
    for sector in range(SECTORS):
        found |= (cell >> SECTORS + LACK_BITS * sector & LACK > 0) << sector
    return found


@compiled
def absent(X, fill):
    """The sectors that a line in L2 has not got. `fill`: the arrival times of the line."""
    Y = narrow(X)
    return (Y[fill] < 0) | (Y[fill + 1] < 0) << 1 | (Y[fill + 2] < 0) << 2 | (Y[fill + 3] < 0) << 3


@compiled
def set_of(X, cell):
    """Where the set of L2 begins that a cell belongs to."""
    return cell - (cell - 2 * X[T_L2]) % (X[P_L2WAYS] * SECTORED)


@compiled
def complete(X, dirty, now):
    """What the sectors of a line lack comes from DRAM."""
    Y = narrow(X)
    lack, further = lacking(Y[dirty]), Y[dirty] >> FURTHER
    sectors = popcount4(lack)
    ticks = sectors * X[P_DRAM_TICKS]
    loaded(X, now, ticks, ticks)
    taken = book_dram(X, ticks, now)
    X[C_EMPTIED] = max(X[C_EMPTIED], taken)
    X[C_DRAM_READ] += sectors
    Y[dirty] &= 15
    if X[P_L2_COMPLETE_TICKS]:
        come_from_dram(X, dirty, lack, taken)
        if further:
            write_completed(X, dirty, lack, min(further, sectors), now)


@compiled
def come_from_dram(X, dirty, lack, taken):
    """Sectors of a line, which DRAM has begun to give at a cycle, are there when its latency is over."""
    Y, ways, base = narrow(X), X[P_L2WAYS], set_of(X, dirty)
    way = dirty - base - 2 * ways
    there = taken + dram_latency(X, Y[base + way])
    for sector in range(SECTORS):
        if lack >> sector & 1:
            Y[base + 3 * ways + SECTORS * way + sector] = there - (there & X[P_SHARING])


@compiled
def write_completed(X, dirty, lack, further, now):
    """What several stores have left of a line has been completed, and is written."""
    sectors = popcount4(lack)
    ticks = max(sectors * X[P_DRAM_WRITE_TICKS], further * X[P_DRAM_WRITE_LEAST])
    loaded(X, now, ticks, 0)
    taken = max(book_dram(X, ticks, now), book_l2(X, B_L2_STORES, further * X[P_L2_COMPLETE_TICKS], now))
    X[C_EMPTIED] = max(X[C_EMPTIED], taken)
    X[C_DRAM_WRITE] += sectors
    narrow(X)[dirty] &= ~lack


@compiled
def of_set(X, base, lines):
    """How many lines of the set at `base` P_L2DIRTY or P_L2PARTIAL are: where they are no whole number some sets keep
    one more."""
    some = base // (X[P_L2WAYS] * SECTORED) & (1 << PARTIAL_BITS) - 1
    return lines + some >> PARTIAL_BITS


@compiled
def keep_few(X, dirty, now):
    """Complete the line that was used least recently of those of a set that lack bytes, if they are too many."""
    Y, ways, base, count, oldest = narrow(X), X[P_L2WAYS], set_of(X, dirty), 0, -1
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
    before, further, cell = lacking(Y[dirty]), Y[dirty] >> FURTHER, Y[dirty] & (1 << FURTHER) - 1
    first = absent(X, fill) == 15
    for sector in range(SECTORS):
        if mask >> sector & 1:
            at = SECTORS + LACK_BITS * sector
            left = WORDS if Y[fill + sector] < 0 else cell >> at & LACK
            words = mask >> EACH + LACK_BITS * sector & LACK
            cell = cell & ~(LACK << at) | max(left - words, 0) << at
    if not first and lacking(cell) & ~before:
        further = min(further + 1, FURTHER_MOST)
    Y[dirty] = cell | further << FURTHER if cell >> SECTORS else cell
    if cell >> SECTORS and not before:
        keep_few(X, dirty, now)
