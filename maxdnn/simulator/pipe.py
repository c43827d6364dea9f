# ruff: noqa: F403, F405
"""The pipe of shared memory and L1 that the schedulers of an SM of sm_90 share, compiled: which access has which of its
cycles.

Of a scheduler's accesses of shared memory a phase is served in two cycles at most, so that two schedulers have the pipe
by turns. Loads that L1 does not have take cycles that nothing else wants: what is in shared memory, or in L1, goes
first (probes "LDS.128 waited for behind n LDG.128, ...", "LDG.128, ..., before n LDS.128"). A scheduler with
little to ask is served before those with much (`by_turns`); what it takes from them they have later."""

from .columns import *
from .jit import compiled


@compiled
def taken(X, sm, cycle):
    """Whether accesses that go first have a cycle (1), whether any have (2)."""
    cell = X[sm + M_PIPE + (cycle & PIPE - 1)]
    return cell & 3 if cell >> 2 == cycle else 0


@compiled
def take(X, sm, cycle, bits):
    X[sm + M_PIPE + (cycle & PIPE - 1)] = cycle << 2 | taken(X, sm, cycle) | bits


@compiled
def next_free(X, sm, cycle, bit):
    """The first cycle from one on that is not taken."""
    full = sm + M_FULL + 2 * (bit - 1)  # a stretch of cycles that all are
    if X[full] <= cycle < X[full + 1]:
        cycle = X[full + 1]
    first = cycle
    while taken(X, sm, cycle) & bit:
        cycle += 1
    if first == X[full + 1]:
        X[full + 1] = cycle
    elif cycle - first > X[full + 1] - X[full]:
        X[full], X[full + 1] = first, cycle
    return cycle


@compiled
def serve(X, sm, start, limit, cycles, apart, first):
    """(first, last cycle) of an access from `start` on, so many cycles `apart`, that begins at `limit` whoever has the
    pipe then; `first`: whether it goes before loads that L1 does not have."""
    bit, bits, at, owed, late = 1 if first else 2, 3 if first else 2, start, 0, 0
    begin = last = start
    for n in range(cycles):
        at = max(at, min(next_free(X, sm, at, bit), limit))
        was = taken(X, sm, at)
        if was & bit:
            owed += 1
        else:
            late += was > 0
            take(X, sm, at, bits)
        if n == 0:
            begin = at
        last = at
        at += apart
    for _ in range(owed):
        at = next_free(X, sm, at, bit)
        late += taken(X, sm, at) > 0
        take(X, sm, at, bits)
    for _ in range(late):
        take(X, sm, next_free(X, sm, at, 2), 2)
    X[C_OWED], X[C_LATE] = owed, late
    return begin, last


@compiled
def let_ahead(X, w, s, begin, shared):
    """What other queues have at the pipe ends later by what an access that went ahead took of them."""
    first = X[T_SCHED] + X[w + W_SM] * 4 * S_SIZE
    for other in range(first, first + 4 * S_SIZE, S_SIZE):
        if (other != s or shared) and X[other + S_LSUEND] > begin:
            X[other + S_LSUEND] += X[C_OWED] + X[C_LATE]
        if (other != s or not shared) and X[other + S_SHEND] > begin:
            X[other + S_SHEND] += X[C_OWED]


@compiled
def by_turns(X, w, s, out, shared):
    """When the SM's pipe serves a scheduler's next access at the latest: behind its own last one of shared memory or of
    L1, and one and a half of each other queue that waits, however many those have (probes "chain of LDS beside ...":
    1.2 to 1.9)."""
    start = max(out, X[s + (S_SHEND if shared else S_LSUEND)])
    first, ahead = X[T_SCHED] + X[w + W_SM] * 4 * S_SIZE, 0
    for other in range(first, first + 4 * S_SIZE, S_SIZE):
        if (other != s or shared) and X[other + S_LSUEND] > start:
            ahead += X[other + S_LSUCOST]
        if (other != s or not shared) and X[other + S_SHEND] > start:
            ahead += X[other + S_SHCOST]
    return start + 3 * ahead // 2
