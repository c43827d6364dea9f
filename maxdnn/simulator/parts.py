# ruff: noqa: F403, F405
"""The two parts of L2 of sm_90, compiled. A line has its set in one of them. An SM asks the part that it is near to:
that keeps copies of the other part's lines, which take ways like any line. What an SM stores goes to the line's own
set, and a copy of it to the SM's part. Of copies behind each other the counter lts__t_sectors_srcunit_ltcfabric has
half of what is loaded at first, then a quarter, an eighth ..., and half of what is stored at all times. The sets of the
parts take turns, so that a line's own set and that of its copies are side by side."""

from .bandwidth import book_l2
from .columns import *
from .jit import compiled, narrow, popcount4
from .l2 import arrive, fetch, l2_empty, l2_find, l2_set, l2_way_of, last_there, read_sectors, write_sectors
from .partial import SECTORS, absent

GPCS = 8  # that blocks fill one after another


@compiled
def other_part(X, base):
    """Where the set begins whose lines are copies of lines of a set in the other part of L2."""
    size = X[P_L2WAYS] * SECTORED
    return base + size - 2 * size * ((base - 2 * X[T_L2]) // size & 1)


@compiled
def l2_near(X, home, block):
    """Where the set begins in which the SM of a block looks for a line whose own set begins at `home`: that one, or, if
    that is in the other part of L2, the one that has copies of its lines. Blocks fill the SMs of a GPC before those of
    the next one, and half of the GPCs are near to each part; those that come to an SM behind its first ones do by
    chance."""
    if not X[P_L2_COPY_TICKS] or block < 0:
        return home
    size, sms = X[P_L2WAYS] * SECTORED, X[P_MIRROR] + X[P_SMS]
    if block < X[P_BLOCK_SLOTS] * sms:
        part = block % sms * GPCS // sms & 1
    else:
        part = (block * 0x9E3779B1 ^ X[C_SEED] * 0x85EBCA6B) * 0xC2B2AE35 >> 24 & 1
    return home if (home - 2 * X[T_L2]) // size & 1 == part else other_part(X, home)


@compiled
def locate_copy(X, line, near, now):
    """`l2_locate` of the copy of a line."""
    ways = X[P_L2WAYS]
    way, hit = l2_find(X, near, ways, line, now)
    dirty = near + 2 * ways + way
    if not hit and X[C_L2_DIRTY] == dirty:
        X[C_L2_LINE] = -1
    return dirty, near + 3 * ways + SECTORS * way, not hit


@compiled
def l2_copy(X, line, near, now):
    """The arrival cells of the copy of a line, for which a way is made free if need be."""
    dirty, fill, fresh = locate_copy(X, line, near, now)
    if fresh:
        l2_empty(X, dirty, fill, now, 0, -1)
    return fill


@compiled
def come_across(X, line, home, fill, missing, begin):
    """Sectors of a line come from its own part of L2 to the other one: how many of them DRAM had to give."""
    Y = narrow(X)
    X[C_CROSSED] += popcount4(missing)
    _, there = l2_way_of(X, line, home, begin, False)
    gone = absent(X, there) & missing
    if gone:
        fetch(X, line, there, gone, begin)
    for sector in range(SECTORS):
        if missing >> sector & 1:
            Y[fill + sector] = Y[there + sector]
    return popcount4(gone)


@compiled
def cross(X, begin):
    """Take of L2's time for stores what loads, which do not wait for it, have brought from the other part."""
    if X[C_CROSSED]:
        book_l2(X, B_L2_STORES, X[C_CROSSED] * X[P_L2_COPY_TICKS], begin)
    X[C_CROSSED] = 0


@compiled
def write_copy(X, line, near, mask, begin):
    """What an SM stores in the other part of L2 its own part has, too."""
    arrive(X, l2_copy(X, line, near, begin), mask, begin)


@compiled
def l2_read(X, line, mask, begin, block):
    """Read sectors of a line for a block, or for none, L2's bandwidth is booked already: when the last is there."""
    home = l2_set(X, line)
    near = l2_near(X, home, block)
    if near == home:
        _, fill = l2_way_of(X, line, home, begin, False)
        return read_sectors(X, line, fill, mask, begin)
    fill, gone = l2_copy(X, line, near, begin), 0
    missing = absent(X, fill) & mask
    if missing:
        gone = come_across(X, line, home, fill, missing, begin)
    X[C_L2_SECTORS] += popcount4(mask)
    X[C_L2_HITS] += popcount4(mask) - gone
    return last_there(X, fill, mask, begin + X[P_L2LAT])


@compiled
def l2_write(X, line, mask, begin, block):
    """Write sectors of a line for a block, L2's bandwidth is booked already: when taken. Of sm_90 it waits until DRAM
    has taken what was in its place."""
    X[C_EMPTIED], home = 0, l2_set(X, line)
    dirty, fill = l2_way_of(X, line, home, begin, True)
    write_sectors(X, dirty, fill, mask, begin)
    emptied, near = X[C_EMPTIED], l2_near(X, home, block)
    if near != home:
        write_copy(X, line, near, mask, begin)
    return max(begin, emptied) if X[P_SM90] else begin
