# ruff: noqa: F403, F405
"""L2's bandwidth where SMs in step ask for a line each at a time, compiled: a round of theirs, in which the lines that
several of them ask for are brought together."""

from .bandwidth import book_l2
from .columns import *
from .jit import compiled, popcount4
from .parts import cross


@compiled
def asked_ticks(X, line, mask):
    """What a request for sectors of a line costs L2's bandwidth. Those of SMs in step for the same line are brought
    together, in each part of L2 for itself: the second SM is behind another part with (parts - 1) / parts."""
    at = line & ASKED - 1
    cell = X[T_ASKED] + at * ASKED_SIZE
    while X[cell + 1] == X[C_ASKED] and X[cell] != line:
        at = at + 1 & ASKED - 1
        cell = X[T_ASKED] + at * ASKED_SIZE
    if X[cell + 1] != X[C_ASKED]:
        X[cell], X[cell + 1], X[cell + 2] = line, X[C_ASKED], X[P_L2_TICKS]
    cost = X[cell + 2]
    X[cell + 2] = cost * (X[P_L2PARTS] - 1) // X[P_L2PARTS]
    return popcount4(mask) * cost


@compiled
def begin_round(X, line, mask, start):
    """SMs in step ask for a line each, one of them for this: the cycle L2 begins with it."""
    X[C_ASKED] += 1
    X[C_ROUND] = 0
    return book_l2(X, B_L2, asked_ticks(X, line, mask), start)


@compiled
def end_round(X, begin):
    """Take the bandwidth that the other SMs' lines have asked for."""
    if X[C_ROUND]:
        book_l2(X, B_L2, X[C_ROUND], begin)
    cross(X, begin)
