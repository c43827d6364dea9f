# ruff: noqa: F403, F405
"""What the caches hold when a launch begins behind another one of the same kernel with the same arguments, compiled:
L2 the lines that it touched last, and of what was there before what it has left (contents.py), the schedulers and the
SM its code. Nothing of L1 and of constants outlives a launch
(probes "LDG ..." and "ULDC of a parameter" of first.py)."""

from .caches import CONSTANT_LINES, CONSTANTS, small_lookup
from .columns import *
from .instep import moved, variant
from .jit import compiled, narrow
from .l2 import l2_find, l2_set, oldest_dirty, too_dirty
from .machine import LINE
from .partial import SECTORS
from .parts import l2_near
from .ways import claim


@compiled
def touch_set(X, line, base, mask, age):
    """Sectors of a line are in a set of L2: (its way there, whether the line was there, whether all of them were)."""
    Y, ways, had = narrow(X), X[P_L2WAYS], True
    way, hit = l2_find(X, base, ways, line, age)
    fill = base + 3 * ways + SECTORS * way if hit else claim(Y, base, ways, way, line, age)
    for sector in range(SECTORS):
        if mask >> sector & 1:
            had &= Y[fill + sector] >= 0
            Y[fill + sector] = 0
    return way, hit, had


@compiled
def touch(X, line, mask, store, age, block):
    """Sectors of a line are in L2; of those that were stored as many are dirty as may be."""
    Y, ways, base = narrow(X), X[P_L2WAYS], l2_set(X, line)
    near = l2_near(X, base, block)
    if near != base:
        _, _, copied = touch_set(X, line, near, mask, age)
        if copied and not store:
            return
    way, hit, _ = touch_set(X, line, base, mask, age)
    if store:
        if X[P_L2DIRTY] < ways << PARTIAL_BITS and not (hit and Y[base + 2 * ways + way] & 15) and too_dirty(X, base):
            Y[oldest_dirty(X, base, line)] = 0
        Y[base + 2 * ways + way] |= mask & 15


@compiled
def touch_record(X, record, further, kind, age, block):
    """What one memory instruction of a warp touches in L2."""
    first = X[record + 1]
    if kind == WARM_BULK:
        if X[record + 2] == 0:
            return
        line = X[first + LINE_SIZE] + further
        for n in range((X[first + 1] + X[first + LINE_SIZE + 1] + LINE - 1) // LINE):
            touch(X, line + n, 15, False, age, block)
        return
    for at in range(first, first + X[record + 2] * LINE_SIZE, LINE_SIZE):
        if kind == WARM_CONSTANT:
            if X[P_SM90]:
                touch(X, CONSTANTS + (X[at] + further) // CONSTANT_LINES, 15, False, age, -1)
        else:
            touch(X, X[at] + further, X[at + 1], kind == WARM_STORE, age, block)


@compiled
def touch_wave(X, first, last, age):
    """Blocks that are resident at a time, all of whose warps get on alike, those with few accesses beside those with
    many: the age behind them."""
    longest = 0
    for block in range(first, last):
        stream = X[T_RECPTR] + X[X[T_CLASS] + block] * X[P_BLOCK_WARPS]
        for at in range(stream, stream + X[P_BLOCK_WARPS]):
            longest = max(longest, X[at + 1] - X[at])
    for step in range(longest):
        for block in range(first, last):
            shift, stream = X[T_SHIFT] + block * X[P_GROUPS], X[T_RECPTR] + X[X[T_CLASS] + block] * X[P_BLOCK_WARPS]
            for at in range(stream, stream + X[P_BLOCK_WARPS]):
                count = X[at + 1] - X[at]
                for n in range(X[at] + step * count // longest, X[at] + (step + 1) * count // longest):
                    kind = X[X[T_WARM] + n]
                    if kind:
                        chosen = X[T_RECORD] + n * RECORD_SIZE
                        touch_record(X, variant(X, chosen, shift), moved(X, chosen, shift), kind, age + step, block)
    return age + longest


@compiled
def touch_all(X):
    wave = X[P_BLOCK_SLOTS] * (X[P_MIRROR] + X[P_SMS])
    X[C_SEED] = X[C_AGE]
    for first in range(0, X[P_BLOCKS], wave):
        X[C_AGE] = touch_wave(X, first, min(first + wave, X[P_BLOCKS]), X[C_AGE])


@compiled
def keep_code(X, lines):
    """The schedulers and the SMs have the code, as far as it goes in."""
    for line in range(lines):
        for s in range(X[P_SMS] * 4):
            fill, _ = small_lookup(X, X[T_L0], X[P_L0SETS], X[P_L0WAYS], s, line, line - AGE)
            X[fill] = 0
        for sm in range(X[P_SMS]):
            fill, _ = small_lookup(X, X[T_ICACHE], X[P_ISETS], X[P_IWAYS], sm, line, line - AGE)
            X[fill] = 0


@compiled
def warm_up(X, lines):
    if X[T_WARM]:
        X[C_WARMS] = 1
        touch_all(X)
        X[C_WARMS] = 0
        X[C_SEED] = X[C_AGE]
        if X[P_SM90]:
            keep_code(X, lines)
