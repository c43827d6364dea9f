# ruff: noqa: F403, F405
"""Set-associative LRU caches, compiled, and the path of an access through L2 and DRAM. Texture/L1 and L2 have lines of
128 bytes in four sectors, each with the cycle its data arrives; constant and instruction caches keep whole lines."""

from numba import njit

from .columns import *


@njit(nogil=True, error_model="numpy")
def find(X, first, ways, size, line, now):
    """(way's row, hit): the way of a set that holds the line, or the least recently used one."""
    victim, oldest = first, NEVER
    for way in range(first, first + ways * size, size):
        if X[way] == line:
            X[way + V_USE] = now
            return way, True
        if X[way + V_USE] < oldest:
            victim, oldest = way, X[way + V_USE]
    return victim, False


@njit(nogil=True, error_model="numpy")
def popcount4(mask):
    return (mask & 1) + (mask >> 1 & 1) + (mask >> 2 & 1) + (mask >> 3 & 1)


@njit(nogil=True, error_model="numpy")
def book(X, resource, ticks, start):
    """Take `ticks` of a bandwidth-limited resource from cycle `start` on: the cycle it is served."""
    begin = max(start * TICK, X[resource])
    X[resource] = begin + ticks
    return (begin + TICK - 1) // TICK


@njit(nogil=True, error_model="numpy")
def l2_way(X, line, now):
    """The way of L2 that holds the line, made free for it if need be: dirty sectors go to DRAM."""
    sets = X[P_L2SETS]
    index = (line ^ line // sets ^ line // sets // sets) % sets  # folded, so that power-of-two strides spread
    way, hit = find(X, X[T_L2] + index * X[P_L2WAYS] * V_SIZE, X[P_L2WAYS], V_SIZE, line, now)
    if not hit:
        if X[way + V_DIRTY]:
            n = popcount4(X[way + V_DIRTY])
            book(X, C_DRAM_FREE, n * X[P_DRAM_TICKS], now)
            X[C_DRAM_WRITE] += n
        X[way + V_LINE], X[way + V_USE], X[way + V_DIRTY] = line, now, 0
        for sector in range(4):
            X[way + V_FILL + sector] = -1
    return way


@njit(nogil=True, error_model="numpy")
def l2_read(X, line, mask, start):
    """Read sectors of a line through L2: the cycle the last one is there."""
    n = popcount4(mask)
    X[C_L2_SECTORS] += n
    begin = book(X, C_L2_FREE, n * X[P_L2_TICKS], start)
    way = l2_way(X, line, begin)
    done = begin + X[P_L2LAT]
    for sector in range(4):
        if mask >> sector & 1:
            there = X[way + V_FILL + sector]
            if there < 0:
                there = book(X, C_DRAM_FREE, X[P_DRAM_TICKS], begin) + X[P_DRAMLAT]
                X[way + V_FILL + sector] = there
                X[C_DRAM_READ] += 1
            else:
                X[C_L2_HITS] += 1
            done = max(done, there)
    return done


@njit(nogil=True, error_model="numpy")
def l2_write(X, line, mask, start):
    """Write sectors of a line into L2 (write back, nothing fetched): the cycle they are taken."""
    begin = book(X, C_L2_FREE, popcount4(mask) * X[P_L2_TICKS], start)
    way = l2_way(X, line, begin)
    X[way + V_DIRTY] |= mask
    for sector in range(4):
        if mask >> sector & 1:
            X[way + V_FILL + sector] = max(X[way + V_FILL + sector], begin)
    return begin


@njit(nogil=True, error_model="numpy")
def l1_lookup(X, half, line, mask, now):
    """Look a line up in one half of a texture/L1 cache: (way, sectors to fetch, cycle the others are there)."""
    sets, ways = X[P_L1SETS], X[P_L1WAYS]
    way, hit = find(X, X[T_L1] + (half * sets + line % sets) * ways * V_SIZE, ways, V_SIZE, line, now)
    if not hit:
        X[way + V_LINE], X[way + V_USE] = line, now
        for sector in range(4):
            X[way + V_FILL + sector] = -1
    missing, there = 0, 0
    for sector in range(4):
        if mask >> sector & 1:
            X[C_L1_SECTORS] += 1
            if X[way + V_FILL + sector] < 0:
                missing |= 1 << sector
            else:
                X[C_L1_HITS] += 1
                there = max(there, X[way + V_FILL + sector])
    return way, missing, there


@njit(nogil=True, error_model="numpy")
def small_lookup(X, table, sets, ways, sm, line, now):
    """A constant or instruction cache: (way, hit); on a miss the way is the line's, and the caller sets its arrival."""
    way, hit = find(X, table + (sm * sets + line % sets) * ways * Y_SIZE, ways, Y_SIZE, line, now)
    if not hit:
        X[way + Y_LINE], X[way + Y_USE] = line, now
    return way, hit


@njit(nogil=True, error_model="numpy")
def behind_first_level(X, sm, line, now):
    """The cycle a 256-byte line is there from the cache that constants and instructions share, or from L2."""
    way, hit = small_lookup(X, X[T_CONST15], X[P_C15SETS], X[P_C15WAYS], sm, line, now)
    X[C_C15_LOOKUPS] += 1
    if hit:
        X[C_C15_HITS] += 1
    else:
        X[way + Y_FILL] = now + X[P_L2LAT] - X[P_C15LAT]
    return max(X[way + Y_FILL], now) + X[P_C15LAT]


@njit(nogil=True, error_model="numpy")
def constant_line(X, sm, line, now):
    """The cycle a 64-byte line of a constant bank is in the first level; `now` for a hit."""
    way, hit = small_lookup(X, X[T_CONST], X[P_CSETS], X[P_CWAYS], sm, line, now)
    X[C_C_LOOKUPS] += 1
    if hit:
        X[C_C_HITS] += 1
    else:
        X[way + Y_FILL] = behind_first_level(X, sm, line >> 2, now) - X[P_CLAT]
    return max(X[way + Y_FILL], now)


@njit(nogil=True, error_model="numpy")
def instruction_line(X, sm, line, now):
    """The cycle a 128-byte line of code is in the instruction cache; a missing line brings the next ones with it."""
    sets, ways = X[P_ISETS], X[P_IWAYS]
    way, hit = small_lookup(X, X[T_ICACHE], sets, ways, sm, line, now)
    X[C_I_LOOKUPS] += 1
    if hit:
        X[C_I_HITS] += 1
        return X[way + Y_FILL]
    there = behind_first_level(X, sm, (1 << 20) + line // 2, now)
    X[way + Y_FILL] = there
    for ahead in range(1, X[P_PREFETCH] + 1):
        way, hit = small_lookup(X, X[T_ICACHE], sets, ways, sm, line + ahead, now)
        if not hit:
            X[way + Y_FILL] = behind_first_level(X, sm, (1 << 20) + (line + ahead) // 2, now)
    return there
