# ruff: noqa: F403, F405
"""Set-associative LRU caches of an SM, compiled. Texture/L1 has lines of 128 bytes in four sectors, each with the cycle
its data arrives; constant and instruction caches keep whole lines."""

from .columns import *
from .jit import compiled, popcount4
from .machine import CONSTANT15_LINE, CONSTANT_LINE, INSTRUCTION_LINE
from .partial import SECTORS, WORDS
from .parts import l2_read
from .ways import claim, find

PARTS = 12  # of a word in each of 1 to 4 sectors
CONSTANT_LINES, INSTRUCTION_LINES = CONSTANT15_LINE // CONSTANT_LINE, CONSTANT15_LINE // INSTRUCTION_LINE
OWN_CONSTANTS, CODE = (1 << 16) // CONSTANT15_LINE, 1 << 20  # lines of banks behind the first, of code
CONSTANTS = 3 << 29  # the line of L2 that stands for the first one of constants


@compiled
def l1_set(X, line):
    """The set of L1 for a line; of sm_90 lines a power of two apart spread."""
    sets = X[P_L1SETS]
    return (line + line // sets) % sets if X[P_SM90] else line % sets


@compiled
def l1_lookup(X, half, line, mask, now):
    """Look a line up in one half of a texture/L1 cache: (its arrival cells, sectors to fetch, when the others are
    there)."""
    sets, ways = X[P_L1SETS], X[P_L1WAYS]
    base = X[T_L1] + (half * sets + l1_set(X, line)) * ways * SECTORED
    way, hit = find(X, base, ways, line, now)
    fill = base + 3 * ways + SECTORS * way if hit else claim(X, base, ways, way, line, now)
    missing, there = 0, 0
    for sector in range(SECTORS):
        if mask >> sector & 1:
            X[C_L1_SECTORS] += 1
            if X[fill + sector] < 0:
                missing |= 1 << sector
            else:
                X[C_L1_HITS] += 1
                there = max(there, X[fill + sector])
    return fill, missing, there


@compiled
def l1_store(X, sm, line, mask, now):
    """Sectors of a line that L1 has from now on, too, if they are written as a whole (probes "LDG behind STG of ..."),
    by several stores together if their lanes differ ("LDL of a new word behind ..."). A store hits where the line is
    there. Of a sector that is not there its cell tells how much was written: -1 less so many parts of words."""
    sets, ways, n = X[P_L1SETS], X[P_L1WAYS], popcount4(mask)
    base = X[T_L1] + (sm * sets + l1_set(X, line)) * ways * SECTORED
    way, hit = find(X, base, ways, line, now)
    fill = base + 3 * ways + SECTORS * way if hit else claim(X, base, ways, way, line, now)
    X[C_L1_SECTORS] += n
    X[C_L1_HITS] += n * hit
    parts = (mask >> TURNS & (1 << COST - TURNS) - 1) * PARTS // n
    for sector in range(SECTORS):
        if mask >> sector & 1 and X[fill + sector] < 0:
            X[fill + sector] -= parts
            if X[fill + sector] < -WORDS * PARTS:
                X[fill + sector] = now


@compiled
def small_lookup(X, table, sets, ways, sm, line, now):
    """A constant or instruction cache: (arrival cell, hit); on a miss the way is the line's, and the caller sets its
    arrival."""
    base = table + (sm * sets + line % sets) * ways * WHOLE
    way, hit = find(X, base, ways, line, now)
    if not hit:
        X[base + way], X[base + ways + way] = line, now
    return base + 2 * ways + way, hit


@compiled
def counted_lookup(X, table, sets, ways, sm, line, now, counter):
    """`small_lookup` that counts: how often in the cell `counter`, hits in the next one."""
    fill, hit = small_lookup(X, table, sets, ways, sm, line, now)
    X[counter] += 1
    X[counter + 1] += hit
    return fill, hit


@compiled
def behind_first_level(X, sm, line, now):
    """The cycle a 256-byte line is there from the cache that constants and instructions share, or from L2. Of sm_90
    what a kernel keeps in a bank of its own may have to come from DRAM."""
    fill, hit = counted_lookup(X, X[T_CONST15], X[P_C15SETS], X[P_C15WAYS], sm, line, now, C_C15_LOOKUPS)
    if not hit:
        there = now + X[P_L2LAT]
        if X[P_SM90] and OWN_CONSTANTS <= line < CODE:
            there = l2_read(X, CONSTANTS + line, 15, now, -1)
        X[fill] = there + X[P_C15FILL] - X[P_C15LAT]
    return max(X[fill], now) + X[P_C15LAT]


@compiled
def constant_line(X, sm, line, now):
    """The cycle a 64-byte line of a constant bank is in the first level; `now` for a hit."""
    fill, hit = counted_lookup(X, X[T_CONST], X[P_CSETS], X[P_CWAYS], sm, line, now, C_C_LOOKUPS)
    if not hit:
        X[fill] = behind_first_level(X, sm, line // CONSTANT_LINES, now) - X[P_CLAT]
    return max(X[fill], now)


@compiled
def instruction_line(X, sm, line, now):
    """The cycle a 128-byte line of code is in the instruction cache; a missing line brings the next ones with it."""
    sets, ways = X[P_ISETS], X[P_IWAYS]
    fill, hit = counted_lookup(X, X[T_ICACHE], sets, ways, sm, line, now, C_I_LOOKUPS)
    if hit:
        return X[fill]
    there = behind_first_level(X, sm, CODE + line // INSTRUCTION_LINES, now)
    X[fill] = there
    for ahead in range(1, X[P_PREFETCH] + 1):
        fill, hit = small_lookup(X, X[T_ICACHE], sets, ways, sm, line + ahead, now)
        if not hit:
            X[fill] = behind_first_level(X, sm, CODE + (line + ahead) // INSTRUCTION_LINES, now)
    return there
