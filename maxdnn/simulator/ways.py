# ruff: noqa: F403, F405
"""The ways of a set of any cache, compiled: which one has a line, or is given to it."""

from .columns import *
from .jit import compiled
from .partial import SECTORS


@compiled
def find(X, base, ways, line, now):
    """(way, hit): the way of the set at `base` that holds the line, or the least recently used one. A set is the lines
    of its ways, their last uses, then whatever else its cache keeps."""
    for way in range(ways):
        if X[base + way] == line:
            X[base + ways + way] = now
            return way, True
    victim, oldest = 0, NEVER
    for way in range(ways):
        if X[base + ways + way] < oldest:
            victim, oldest = way, X[base + ways + way]
    return victim, False


@compiled
def claim(X, base, ways, way, line, now):
    """Give a way of a sectored set to a line: nothing of it is there yet. Row of its four arrival times."""
    X[base + way], X[base + ways + way], X[base + 2 * ways + way] = line, now, 0
    fill = base + 3 * ways + SECTORS * way
    for sector in range(fill, fill + SECTORS):
        X[sector] = -1
    return fill
