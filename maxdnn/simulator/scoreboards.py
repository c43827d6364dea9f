# ruff: noqa: F403, F405
"""Scoreboards of a warp, compiled: who holds them, and when what waits for them may issue."""

from .beside import products_left
from .columns import *
from .jit import compiled


@compiled
def few_left(X, w, what, ready):
    """The cycle, `ready` or later, when at most n operations on a scoreboard are left; what: n * 8 + scoreboard."""
    ring = X[T_COUNT] + (X[w + W_ID] * 6 + (what & 7)) * COUNT_SIZE
    first, later = ring + 1, what >> 3
    last = first + min(X[ring], RING)
    over = -later  # of those that end after `ready` so many have to end first; ends need not be in order
    for at in range(first, last):
        over += ready < X[at] < NEVER
    if over <= 0:
        return ready
    rank, sign = (later + 1, 1) if later < over else (over, -1)  # counted from the last, or from the first
    limit = NEVER if sign > 0 else -ready
    while rank > 0:
        latest, times = -NEVER, 0
        for at in range(first, last):
            end = X[at] * sign
            if latest < end < limit:
                latest, times = end, 1
            elif end == latest:
                times += 1
        limit, rank = latest, rank - times
    return limit * sign


@compiled
def occupy(X, w, board, until):
    """An operation holds a scoreboard of its warp."""
    if until < NEVER and X[w + W_UNREAD0 + board]:
        X[w + W_READ0 + board] = max(X[w + W_READ0 + board], until)
    elif X[w + W_SB0 + board] < until:
        if until == NEVER:
            X[w + W_READ0 + board] = X[w + W_SB0 + board]
        X[w + W_SB0 + board] = until
    if X[T_COUNT]:
        ring = X[T_COUNT] + (X[w + W_ID] * 6 + board) * COUNT_SIZE
        X[ring + 1 + X[ring] % RING] = until
        X[ring] += 1


@compiled
def clear(X, w, board, when):
    """The first of the operations on a scoreboard whose end was not known ends at `when`."""
    X[w + W_READ0 + board] = max(X[w + W_READ0 + board], when)
    if not X[w + W_UNREAD0 + board]:
        X[w + W_SB0 + board] = X[w + W_READ0 + board]
    if X[T_COUNT]:
        ring = X[T_COUNT] + (X[w + W_ID] * 6 + board) * COUNT_SIZE
        for n in range(max(X[ring] - RING, 0), X[ring]):
            if X[ring + 1 + n % RING] == NEVER:
                X[ring + 1 + n % RING] = when
                return


@compiled
def wait_for_boards(X, w, i, ready):
    """Put the warp off until the scoreboards its next instruction waits for are clear."""
    X[w + W_STALLED] = ready
    reason, mask = R_STALL, X[i + I_WAIT]
    if mask:
        for board in range(6):
            if mask >> board & 1 and X[w + W_SB0 + board] > ready:
                ready, reason = X[w + W_SB0 + board], board
        if mask & WAIT_COUNTED:
            left = few_left(X, w, X[i + I_SERVICE], ready)
            if left > ready:
                ready, reason = left, X[i + I_SERVICE] & 7
        if reason + 1 == X[w + W_TRIED] and reason < 6:
            reason = R_MBARRIER
    if X[i + I_KIND] == K_PRODUCTS and products_left(X, w, X[i + I_SERVICE]) > ready:
        ready, reason = products_left(X, w, X[i + I_SERVICE]), R_TENSOR
    if X[T_COUNT] and X[P_BOARDMOST] and X[i + I_WB] >= 0 and X[i + I_MEM]:
        left = few_left(X, w, (X[P_BOARDMOST] - 1) * 8 + X[i + I_WB], ready)
        if left > ready:  # probes "n LDG missing on 1 scoreboards": it counts no more
            ready, reason = left, R_QUEUE
    X[w + W_READY], X[w + W_REASON] = ready, reason
