# ruff: noqa: F403, F405
"""Blocks and warps of an SM, compiled: how they come, go from instruction to instruction, meet at barriers and end."""

from .columns import *
from .instep import bring_together, touch_left
from .jit import compiled


@compiled
def step_path(X, w):
    """Go to the warp's next instruction; False when its path has ended."""
    if X[w + W_LEFT] > 0:
        X[w + W_LEFT] -= 1
        X[w + W_PC] += I_SIZE
        return True
    run = X[w + W_RUN]
    if run >= X[w + W_RUNEND]:
        return False
    if X[run + 1] == 0:  # the lanes have parted
        run += RUN_SIZE
        X[w + W_PARTED] = 1
    X[w + W_PC], X[w + W_LEFT], X[w + W_RUN] = X[run], X[run + 1] - 1, run + RUN_SIZE
    return True


@compiled
def to_youngest(X, s, w):
    """Move a warp to the end of its scheduler's list, which is kept oldest first and ends with -1."""
    at = X[s + S_ORDER]
    while X[at] != w:
        at += 1
    while X[at + 1] >= 0:
        X[at] = X[at + 1]
        at += 1
    X[at] = w


@compiled
def wake(X, w, ready):
    s = X[w + W_SCHED]
    X[w + W_READY] = ready
    X[s + S_NEXT] = min(X[s + S_NEXT], max(ready, X[s + S_FREE]))


@compiled
def launch_warp(X, w, block, number, slot, now):
    for cell in range(w + W_READY, w + W_SHIFT):
        X[cell] = 0
    for cell in range(w + W_GROUPS, w + W_SIZE):
        X[cell] = 0
    X[w + W_BLOCK], X[w + W_NUMBER], X[w + W_SLOT] = block, number, slot
    X[w + W_ALIVE], X[w + W_LINE], X[w + W_REASON] = 1, -1, R_LAUNCH
    index = X[X[T_CLASS] + block] * X[P_BLOCK_WARPS] + number
    path = X[T_PATHPTR] + X[X[T_PATH] + index]
    X[w + W_RUN], X[w + W_RUNEND] = X[path], X[path + 1]
    X[w + W_STREAM], X[w + W_REC] = X[X[T_RECPTR] + index], 0
    X[w + W_SHIFT] = X[T_SHIFT] + block * X[P_GROUPS]
    if X[T_COUNT]:
        for board in range(6):
            X[X[T_COUNT] + (X[w + W_ID] * 6 + board) * COUNT_SIZE] = 0
    step_path(X, w)
    to_youngest(X, X[w + W_SCHED], w)
    wake(X, w, now + X[P_LAUNCH])


@compiled
def launch_block(X, sm, slot, now):
    """Put the next block of the grid into a free slot of an SM, if there is one left."""
    block = X[C_NEXT_BLOCK]
    if block >= X[P_BLOCKS]:
        return
    if X[P_SM90]:  # an SM gets its blocks one after another, later ones in turn with all SMs: probes "blocks as many
        # as fit, ...", "blocks of n warps that rest ..."
        last = X[T_SM] + sm * M_SIZE + M_LAUNCH
        now = max(now, X[last])
        X[last] = now + (X[P_BLOCKALL] if X[C_DONE] else X[P_BLOCKPER])
    X[C_NEXT_BLOCK] += X[P_MIRROR] + 1
    X[C_LAUNCHED] += 1
    at = X[T_BLOCK] + (sm * X[P_BLOCK_SLOTS] + slot) * B_SIZE
    X[at + B_LIVE] = X[P_BLOCK_WARPS]
    for cell in range(at + B_BARRIER0, at + B_SIZE):
        X[cell] = 0
    w = X[T_WARP] + (sm * X[P_WARP_SLOTS] + slot * X[P_BLOCK_WARPS]) * W_SIZE
    for number in range(X[P_BLOCK_WARPS]):
        launch_warp(X, w + number * W_SIZE, block, number, slot, now)
    if X[T_ALIKE]:
        bring_together(X, w)


@compiled
def begin(X):
    """Fill the SMs with the first blocks of the grid, one block per SM in turn."""
    for slot in range(X[P_BLOCK_SLOTS]):
        for sm in range(X[P_SMS]):
            launch_block(X, sm, slot, 0)


@compiled
def complete(X, at, barrier):
    """Whether all warps that a barrier of a block waits for have arrived."""
    wanted = X[barrier + B_WANTED]
    return X[barrier + B_ARRIVED] >= (wanted if wanted else X[at + B_LIVE])


@compiled
def release_barrier(X, sm, slot, barrier, now):
    """Let the warps of a block that wait at a barrier go on."""
    X[barrier + B_ARRIVED] = X[barrier + B_WANTED] = 0
    first = X[T_WARP] + (sm * X[P_WARP_SLOTS] + slot * X[P_BLOCK_WARPS]) * W_SIZE
    for w in range(first, first + X[P_BLOCK_WARPS] * W_SIZE, W_SIZE):
        if X[w + W_ALIVE] and X[w + W_READY] == NEVER and X[w + W_BARRIER] == barrier:
            X[w + W_BARRIER] = 0
            wake(X, w, max(X[w + W_RESUME], X[w + W_STALLED], now + X[P_BARLAT]))


@compiled
def end_block(X, sm, slot, at):
    """A block has ended, and its last stores have begun: another one follows."""
    X[C_DONE] += 1
    X[C_STORED] = max(X[C_STORED], X[at + B_STORED])
    launch_block(X, sm, slot, max(X[at + B_ENDED] + X[P_BLOCKNEXT], X[at + B_STORED]))


@compiled
def finish_warp(X, w, now):
    X[w + W_ALIVE] = 0
    if X[T_SLOT]:
        touch_left(X, w, now)
    sm, slot = X[w + W_SM], X[w + W_SLOT]
    at = X[T_BLOCK] + (sm * X[P_BLOCK_SLOTS] + slot) * B_SIZE
    X[at + B_LIVE] -= 1
    if X[P_SM90]:  # another follows when its stores are in L2: probes "blocks ..."
        X[at + B_STORED] = max(X[at + B_STORED], X[w + W_STORES])
    if X[at + B_LIVE] == 0:
        X[at + B_ENDED] = now
        if X[at + B_WAITS] == 0:
            end_block(X, sm, slot, at)
        return
    for barrier in range(at + B_BARRIER0, at + B_STORED, BARRIER_SIZE):
        if X[barrier + B_ARRIVED] and complete(X, at, barrier):
            release_barrier(X, sm, slot, barrier, now)
