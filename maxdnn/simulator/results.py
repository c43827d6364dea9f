# ruff: noqa: F403, F405
"""What loads of shared memory bring on its way to the registers of an SM of sm_90, compiled.

It comes in the order in which the pipe serves the loads, one behind the other for all schedulers. Each scheduler has
some places for what it has not written yet; while all are taken, what is behind waits, whoever's it is. Pairs of
registers, which loads bring where neighbouring lanes agree, are written in a cycle in which no arithmetic issues that
writes registers; single ones beside it. Arithmetic waits for what has waited long, or while all places are taken. What
waits for a load waits until its last register has been written. (Probes "n LDS.128 waited for behind n FFMA to both
banks" and "to none", "round of ...", "FFMA beside LDS.64 after each n".)

Nothing here has an event of its own: whoever asks, or issues arithmetic, first has written what has been until then."""

from .columns import *
from .jit import compiled

TAG_BITS, PAIRS = 3, 7  # of what a result is: the warp, its scoreboard, how many pairs


@compiled
def copy(X, to, at):
    for cell in range(RESULT_SIZE):
        X[to + cell] = X[at + cell]


@compiled
def place(X, sm, n):
    """The n-th of the results that no scheduler has yet."""
    return sm + M_RESULTRING + (X[sm + M_RESULTHEAD] + n) % RESULTS * RESULT_SIZE


@compiled
def bring(X, w, i, s, done, cycles):
    """A load that keeps the pipe so many cycles brings two registers in each of them, or single ones: the cycle when
    they can be used, `done` or later, unless they wait."""
    pairs, sm, board = 0, X[T_SM] + X[w + W_SM] * M_SIZE, X[i + I_WB]
    if 0 < cycles <= X[i + I_SERVICE]:
        pairs = cycles
    elif X[i + I_SERVICE] > 1:
        done += X[P_WIDESINGLE]
    at = X[sm + M_RESULTS]
    if at == RESULTS or board < 0:
        return done
    come = done - X[P_WRITEAFTER] - 2 * max(pairs - 1, 0)
    while at > 0 and X[place(X, sm, at - 1)] > come:
        copy(X, place(X, sm, at), place(X, sm, at - 1))
        at -= 1
    row = place(X, sm, at)
    X[row], X[row + 1], X[row + 2] = come, s, (w << TAG_BITS | board) << TAG_BITS | pairs
    X[sm + M_RESULTS] += 1
    X[sm + M_COMING] += 1
    X[w + W_LATER] = 1
    X[w + W_COMING0 + board] += 1
    return done


@compiled
def write(X, sm, s, now):
    """What waits in a scheduler's places is written in cycles before `now`, the pairs of a load in every other one."""
    while X[s + S_RESULTS]:
        row = s + S_RESULTRING + 2 * X[s + S_RESULTHEAD]
        come, what = X[row], X[row + 1]
        at = max(come, X[s + S_WRITTEN])
        if what & PAIRS:
            at = max(come, X[s + S_WRITTEN] + 1, X[s + S_ARITHMETIC] + 1)
        if at >= now:
            return
        X[s + S_WRITTEN] = at
        if what & PAIRS > 1:
            X[row], X[row + 1] = come + 2, what - 1
            continue
        w, board = what >> 2 * TAG_BITS, what >> TAG_BITS & 7
        X[w + W_SB0 + board] = max(X[w + W_SB0 + board], at + X[P_WRITEAFTER])
        X[w + W_COMING0 + board] = max(X[w + W_COMING0 + board] - 1, 0)  # another block may have begun
        X[sm + M_COMING] -= 1
        X[s + S_RESULTHEAD] = (X[s + S_RESULTHEAD] + 1) % X[P_WRITEPLACES]
        X[s + S_RESULTS] -= 1
        X[s + S_PLACEFREE] = at


@compiled
def settle(X, sm, now):
    """What is written, and what goes to the places of schedulers, before `now`."""
    first = X[T_SCHED] + (sm - X[T_SM]) // M_SIZE * 4 * S_SIZE
    for s in range(first, first + 4 * S_SIZE, S_SIZE):
        write(X, sm, s, now)
    while X[sm + M_RESULTS]:
        row = place(X, sm, 0)
        s, come = X[row + 1], max(X[row], X[sm + M_RESULTTIME])
        if X[s + S_RESULTS] == X[P_WRITEPLACES]:
            return
        if X[s + S_RESULTS] == X[P_WRITEPLACES] - 1:
            come = max(come, X[s + S_PLACEFREE])
        if come >= now:
            return
        X[sm + M_RESULTTIME] = come
        last = s + S_RESULTRING + 2 * ((X[s + S_RESULTHEAD] + X[s + S_RESULTS]) % X[P_WRITEPLACES])
        X[last], X[last + 1] = come, X[row + 2]
        X[s + S_RESULTS] += 1
        X[sm + M_RESULTHEAD] = (X[sm + M_RESULTHEAD] + 1) % RESULTS
        X[sm + M_RESULTS] -= 1
        write(X, sm, s, now)


@compiled
def beside_results(X, i, s, now):
    """Arithmetic issues at `now`: the next waits for what has waited long to be written."""
    sm = X[T_SM] + X[s + S_SM] * M_SIZE
    if X[sm + M_COMING]:
        settle(X, sm, now)
    if X[i + I_LATEBY]:
        X[s + S_ARITHMETIC] = now
    if X[s + S_RESULTS]:
        row = s + S_RESULTRING + 2 * X[s + S_RESULTHEAD]
        long = max(X[row], X[s + S_WRITTEN]) + X[P_WRITEWAIT] <= now or X[s + S_RESULTS] == X[P_WRITEPLACES]
        if long and X[row + 1] & PAIRS:
            X[s + S_LEAVE2] = max(X[s + S_LEAVE2], now + 1 + X[P_WRITEHOLD])


@compiled
def results_there(X, w, i, s, now):
    """(cycle, scoreboard): when what a warp's next instruction waits for can be used, the next cycle where that is not
    known yet."""
    settle(X, X[T_SM] + X[s + S_SM] * M_SIZE, now)
    mask, coming, there, reason = X[i + I_WAIT], 0, now, 0
    for board in range(6):
        coming += X[w + W_COMING0 + board]
        if mask >> board & 1:
            if X[w + W_COMING0 + board]:
                return now + 1, board
            if X[w + W_SB0 + board] > there:
                there, reason = X[w + W_SB0 + board], board
    if there == now and coming == 0:
        X[w + W_LATER] = 0
    return there, reason
