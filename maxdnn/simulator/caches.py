# ruff: noqa: F403, F405
"""Set-associative LRU caches, compiled, and the path of an access through L2 and DRAM. Texture/L1 and L2 have lines of
128 bytes in four sectors, each with the cycle its data arrives; constant and instruction caches keep whole lines."""

from .bandwidth import book_dram, book_l2, room_of_dram
from .columns import *
from .dram import dram_latency, loaded, read_ticks, to_dram
from .jit import VECTOR, compiled, first_of, least_of, narrow, popcount4, prefetch
from .machine import CONSTANT15_LINE, CONSTANT_LINE, INSTRUCTION_LINE
from .partial import SECTORS, WORDS, complete, store_words

PARTS = 12  # of a word in each of 1 to 4 sectors
CONSTANT_LINES, INSTRUCTION_LINES = CONSTANT15_LINE // CONSTANT_LINE, CONSTANT15_LINE // INSTRUCTION_LINE
OWN_CONSTANTS, CODE = (1 << 16) // CONSTANT15_LINE, 1 << 20  # lines of banks behind the first, of code
CONSTANTS = 3 << 29  # the line of L2 that stands for the first one of constants


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


@compiled
def by_sets(X, line):
    """line // L2's sets, without a division."""
    quotient = line * X[P_L2INVERSE] >> 32
    return quotient + (line - quotient * X[P_L2SETS] >= X[P_L2SETS])


@compiled
def l2_set(X, line):
    """Where L2's set for a line begins, in cells of 32 bits."""
    above = by_sets(X, line)
    folded = line ^ above  # so that power-of-two strides spread
    if above >= X[P_L2SETS]:
        folded ^= by_sets(X, above)
    number = folded - by_sets(X, folded) * X[P_L2SETS]
    if X[P_L2UNEVEN]:  # behind a launch that had the lines on other SMs it is chance which part of L2 has one
        number = number & -2 | (line * 0x9E3779B1 >> 27 ^ line * 0x85EBCA6B >> 22) & 1
    return 2 * X[T_L2] + number * X[P_L2WAYS] * SECTORED


@compiled
def of_some(Y, uses, count, key):
    """The way that was used least recently of so many that chance chooses."""
    key = key * 0x9E3779B97F4A7C15 >> 16
    way = key & VECTOR - 1
    for n in range(1, count):
        other = key >> 4 * n & VECTOR - 1
        if Y[uses + other] < Y[uses + way]:
            way = other
    return way


@compiled
def l2_find(X, base, ways, line, now):
    """`find` in L2, which gives the way to the line at once. L2 of sm_90 does not quite replace what was used least
    recently (probes "kept by L2, ...": of footprints somewhat too large it keeps a part)."""
    Y = narrow(X)
    if ways == VECTOR:
        way = first_of(Y, base, line)
        hit = way < VECTOR
        if not hit:
            oldest = least_of(Y, base + VECTOR)
            if X[P_L2CHOICE] and oldest > LONG_AGO:
                way = of_some(Y, base + VECTOR, X[P_L2CHOICE], line ^ now)
            else:
                way = first_of(Y, base + VECTOR, oldest)
    else:
        way, hit = find(Y, base, ways, line, now)
    Y[base + way], Y[base + ways + way] = line, now
    return way, hit


@compiled
def l2_soon(X, base):
    """A set of L2 will be searched: its lines' numbers and last uses come from memory meanwhile."""
    Y = narrow(X)
    for cell in range(base, base + 2 * X[P_L2WAYS], HOST_LINE):
        prefetch(Y, cell)


@compiled
def l2_write_back(X, dirty, now, number, cell):
    """The dirty sectors of a line go to DRAM. `dram_room` for what follows."""
    Y = narrow(X)
    if Y[dirty] >> SECTORS:
        complete(X, dirty, now)
    if Y[dirty]:
        number, cell = to_dram(X, popcount4(Y[dirty]), now, number, cell)
        Y[dirty] = 0
    return number, cell


@compiled
def too_dirty(X, base):
    """Whether as many sectors of a set of L2 are dirty as may be (probes "launch of 0 loads and 1 stores ...", "STG.64,
    new rows 128 apart from 0 on")."""
    Y, ways, count = narrow(X), X[P_L2WAYS], 0
    for way in range(ways):
        count += popcount4(Y[base + 2 * ways + way] & 15)
    return count >= SECTORS * X[P_L2DIRTY]


@compiled
def oldest_dirty(X, base, key):
    """The cell of the dirty sectors of a line of a set: of a quarter of the lines, which chance chooses, the dirty one
    that was used least recently; of all if none of them is dirty (probes "launch of 0 loads and 1 stores of 16 bytes,
    24 MiB" to "36 MiB", behind their like)."""
    Y, ways, oldest, of_all = narrow(X), X[P_L2WAYS], -1, -1
    key *= 0x9E3779B97F4A7C15
    chosen = key >> 16 & key >> 32
    for way in range(ways):
        if Y[base + 2 * ways + way] & 15:
            if of_all < 0 or Y[base + ways + way] < Y[base + ways + of_all]:
                of_all = way
            if chosen >> way & 1 and (oldest < 0 or Y[base + ways + way] < Y[base + ways + oldest]):
                oldest = way
    return base + 2 * ways + (oldest if oldest >= 0 else of_all)


@compiled
def l2_clean(X, base, line, now):
    """Where as many sectors of a set are dirty as may be, those of a line go to DRAM, and stay."""
    if too_dirty(X, base):
        emptied = X[C_EMPTIED]
        l2_write_back(X, oldest_dirty(X, base, line ^ now), now, 0, -1)
        X[C_EMPTIED] = max(X[C_EMPTIED], emptied)


@compiled
def l2_locate(X, line, base, now, store):
    """(dirty cell, arrival cells, whether it was given to the line just now) of L2's way for a line."""
    Y, ways = narrow(X), X[P_L2WAYS]
    if X[C_L2_LINE] == line:  # SMs in step ask for the same filters one after another
        if X[P_SM90]:
            Y[X[C_L2_DIRTY] - ways] = now
        return X[C_L2_DIRTY], X[C_L2_FILL], False
    way, hit = l2_find(X, base, ways, line, now)
    if store and X[P_L2DIRTY] < ways and not (hit and Y[base + 2 * ways + way] & 15):
        l2_clean(X, base, line, now)
    X[C_L2_LINE], X[C_L2_DIRTY], X[C_L2_FILL] = line, base + 2 * ways + way, base + 3 * ways + SECTORS * way
    return X[C_L2_DIRTY], X[C_L2_FILL], not hit


@compiled
def l2_empty(X, dirty, fill, now, number, cell):
    """Nothing is left in a way of L2: dirty sectors go to DRAM. `dram_room` for what follows."""
    Y = narrow(X)
    number, cell = l2_write_back(X, dirty, now, number, cell)
    for sector in range(fill, fill + SECTORS):
        Y[sector] = -1
    return number, cell


@compiled
def l2_way(X, line, now, store):
    """(dirty cell, arrival cells) of L2's way for the line, made free for it if need be."""
    dirty, fill, fresh = l2_locate(X, line, l2_set(X, line), now, store)
    if fresh:
        l2_empty(X, dirty, fill, now, 0, -1)
    return dirty, fill


@compiled
def absent(X, fill):
    """The sectors that a line in L2 has not got. `fill`: the arrival times of the line."""
    Y = narrow(X)
    return (Y[fill] < 0) | (Y[fill + 1] < 0) << 1 | (Y[fill + 2] < 0) << 2 | (Y[fill + 3] < 0) << 3


@compiled
def to_fetch(X, fill, missing):
    """What DRAM gives for sectors of a line that are asked for and missing: them and the absent ones that come together
    with them."""
    group, come = (1 << X[P_DRAM_SECTORS]) - 1, 0
    for _ in range(0, SECTORS, X[P_DRAM_SECTORS]):
        if missing & group:
            come |= group
        group <<= X[P_DRAM_SECTORS]
    return come & absent(X, fill)


@compiled
def l2_fetch(X, line, fill, missing, begin, number, cell):
    """Sectors of a line come from DRAM, one behind the other. number, cell: `room` of DRAM from `begin` on. Of sm_90
    what comes is written into L2 like what is stored (probes "launch of 1 loads and 1 stores of 16 bytes, 8 MiB" to
    "24 MiB", with empty caches)."""
    Y, n = narrow(X), popcount4(missing)
    ticks = read_ticks(X, n, (Y[fill] > begin) + (Y[fill + 1] > begin) + (Y[fill + 2] > begin) + (Y[fill + 3] > begin))
    loaded(X, begin, n * ticks, n * ticks)
    latency = dram_latency(X, line)
    if X[P_SM90]:
        book_l2(X, B_L2_STORES, n * X[P_L2_WRITE_TICKS], begin)
    X[C_DRAM_READ] += n
    together = X[cell] + n * ticks <= BUCKET * TICK
    served = number * BUCKET * TICK + X[cell]
    if together:
        X[cell] += n * ticks
    for sector in range(SECTORS):
        if missing >> sector & 1:
            when = max(begin * TICK, served) + TICK - 1 >> TICK_BITS if together else book_dram(X, ticks, begin)
            Y[fill + sector] = when + latency - (when + latency & X[P_SHARING])
            served += ticks


@compiled
def read_sectors(X, line, fill, mask, begin):
    """Read sectors of a line through L2: the cycle the last one is there."""
    Y, missing, done = narrow(X), absent(X, fill) & mask, begin + X[P_L2LAT]
    X[C_L2_SECTORS] += popcount4(mask)
    X[C_L2_HITS] += popcount4(mask)
    if missing:
        number, cell = room_of_dram(X, begin)
        X[C_L2_HITS] -= popcount4(missing)
        l2_fetch(X, line, fill, to_fetch(X, fill, missing), begin, number, cell)
    for sector in range(SECTORS):
        if mask >> sector & 1:
            done = max(done, Y[fill + sector])
    return done


@compiled
def further(X, line):
    """How much further away than others a line is: those of half the KiB are in the other part of L2 (probes "LDG L2, n
    KiB on, each waited for"). Copies to shared memory show nothing of it."""
    return X[P_L2FAR] * ((line >> PLACE_BITS) * 0x9E3779B1 >> 31 & 1)


@compiled
def l2_read(X, line, mask, begin):
    """`read_sectors` of a line, L2's bandwidth is booked already."""
    _, fill = l2_way(X, line, begin, False)
    return read_sectors(X, line, fill, mask, begin)


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


@compiled
def write_sectors(X, dirty, fill, mask, begin):
    """Write sectors of a line into L2 (write back; nothing is fetched for now)."""
    Y = narrow(X)
    if X[P_L2PARTIAL] and (mask & FILLED == 0 or Y[dirty] >> SECTORS):
        store_words(X, dirty, fill, mask, begin)
    Y[dirty] |= mask & 15
    for sector in range(SECTORS):
        if mask >> sector & 1:
            Y[fill + sector] = max(Y[fill + sector], begin - (begin & X[P_SHARING]))


@compiled
def l2_write(X, line, mask, begin):
    """`write_sectors` of a line, L2's bandwidth is booked already: when taken. Of sm_90 it waits until DRAM has taken
    what was in its place."""
    X[C_EMPTIED] = 0
    dirty, fill = l2_way(X, line, begin, True)
    write_sectors(X, dirty, fill, mask, begin)
    return max(begin, X[C_EMPTIED]) if X[P_SM90] else begin


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
            there = l2_read(X, CONSTANTS + line, 15, now)
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
