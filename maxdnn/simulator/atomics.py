# ruff: noqa: F403, F405
"""Atomic operations in L2, compiled: what waits for what."""

from .columns import *
from .jit import compiled, narrow
from .l2 import further, l2_way, read_sectors
from .partial import SECTORS


@compiled
def slice_of(line):
    """The slice of L2 that does atomics of a line (probes "REDG of 132 SMs, lanes n bytes apart", "2 lanes, a line
    each" to "8 lanes")."""
    kib = line >> PLACE_BITS
    return (kib + 7 * (kib // (PLACES // 2))) % (PLACES // 2) * 2 + (line >> 1 & 1)


@compiled
def waits_for_itself(X, place, what):
    """How many kinds of requests come to a slice of L2 by turns, if one comes behind one of its kind, else 0. Of SMs
    in step those of a kind come one after the other, on the card they mix."""
    first, kinds = place + 2, 0
    if X[place + 1] != what:
        X[place + 1] = what
        for at in range(first, first + DIFFERENT):
            if X[at] == what:
                return 0
        for at in range(first + DIFFERENT - 1, first, -1):
            X[at] = X[at - 1]
        X[first] = what
        return 0
    for at in range(first, first + DIFFERENT):
        kinds += X[at] != 0
    return kinds


@compiled
def change_in_turn(X, line, dirty, fill, mask, begin):
    """`change_sectors` of sm_90: a slice of L2 does one sector after another. Lanes at one address, and what comes to
    the sectors that it had last, wait for each other (probes "REDG of 132 SMs, ...")."""
    place = X[T_PLACES] + slice_of(line) * PLACE_SIZE
    start = max(begin * TICK, X[place])
    lanes = mask >> TURNS & (1 << COST - TURNS) - 1
    took = (mask >> WORK & WORKS) * X[P_ATOMIC_FILLED if mask & FILLED else P_ATOMIC_SECTOR]
    kinds = waits_for_itself(X, place, line << SECTORS | mask & 15)
    if lanes > 1 or kinds:
        took = max(took, lanes * (X[C_TURN] if lanes > 1 else took + (X[C_TURN] - took) // kinds))
    X[place] = start + took
    narrow(X)[dirty] |= mask & 15
    return max(read_sectors(X, line, fill, mask, begin), X[place] // TICK + X[P_L2LAT])


@compiled
def change_sectors(X, line, dirty, fill, mask, begin):
    """Atomic operations on sectors of a line, in L2: the cycle the last one's result is there. Those on one address are
    done one after another, so a sector is taken until its last is done."""
    if X[P_SM90]:
        return change_in_turn(X, line, dirty, fill, mask, begin)
    Y, done = narrow(X), begin
    for sector in range(SECTORS):
        if mask >> sector & 1:
            there = read_sectors(X, line, fill, 1 << sector, begin)
            over = there + (mask >> TURNS) * X[P_ATOMIC]
            Y[fill + sector] = over
            done = max(done, over - X[P_ATOMIC])
    Y[dirty] |= mask & 15
    return done


@compiled
def l2_atomic(X, line, mask, begin):
    """`change_sectors` of a line, L2's bandwidth is booked already. The part of L2 that has the line does it (probes
    "ATOMG, 8 lines 32 apart, a bank each, each waited for" against "4 apart"), which delays the answer alone ("REDG,
    side by side")."""
    dirty, fill = l2_way(X, line, begin, True)
    far, done = further(X, line), change_sectors(X, line, dirty, fill, mask, begin)
    X[C_PORTEND] = max(X[C_PORTEND], done - X[P_L2LAT])
    return done + far + (X[P_ATOMIC_FAR] if far else 0)
