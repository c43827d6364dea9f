# ruff: noqa: F403, F405
"""L2 and the path of an access through it and DRAM, compiled. A set-associative LRU cache with lines of 128 bytes in
four sectors, each with the cycle its data arrives."""

from .bandwidth import book_dram, book_l2, room_of_dram
from .columns import *
from .dram import dram_latency, loaded, read_ticks, to_dram
from .jit import VECTOR, compiled, first_of, least_of, narrow, popcount4, prefetch
from .partial import SECTORS, absent, complete, of_set, store_words
from .ways import find


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
def oldest_clean(X, base, oldest):
    """The way of a set that was used least recently of those that are not dirty; `oldest`, of all, if all are."""
    Y, ways, found = narrow(X), X[P_L2WAYS], -1
    for way in range(ways):
        if Y[base + 2 * ways + way] == 0 and (found < 0 or Y[base + ways + way] < Y[base + ways + found]):
            found = way
    return found if found >= 0 else oldest


@compiled
def clean_way(X, dirty, now):
    """What a way holds that stays goes to DRAM."""
    if X[C_WARMS]:  # before the launch
        narrow(X)[dirty] = 0
        return
    emptied = X[C_EMPTIED]
    l2_write_back(X, dirty, now, 0, -1)
    X[C_EMPTIED] = max(X[C_EMPTIED], emptied)


@compiled
def l2_replaced(X, base, key, oldest, now):
    """The way of a set of L2 with copies that is given to another line: the one that was used least recently, or, of so
    many of 256 lines, the next one. If it is dirty, what it holds goes to DRAM, and stays; the clean one that was used
    least recently is taken then (docs/timing-h200.md, "Launches in a row")."""
    Y, ways, way = narrow(X), X[P_L2WAYS], oldest
    if (key * 0x9E3779B97F4A7C15 >> 29 & 255) < X[P_L2SECOND]:
        way = 1 if oldest == 0 else 0
        for other in range(ways):
            if other != oldest and Y[base + ways + other] < Y[base + ways + way]:
                way = other
    if not Y[base + 2 * ways + way]:
        return way
    clean = oldest_clean(X, base, way)
    if clean != way:
        clean_way(X, base + 2 * ways + way, now)
    return clean


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
    if not hit and X[P_L2_COPY_TICKS]:
        way = l2_replaced(X, base, line ^ now, way, now)
    Y[base + way], Y[base + ways + way] = line, now
    return way, hit


@compiled
def too_dirty(X, base):
    """Whether as many sectors of a set of L2 are dirty as may be (probes "launch of 0 loads and 1 stores ...", "STG.64,
    new rows 128 apart from 0 on")."""
    Y, ways, count = narrow(X), X[P_L2WAYS], 0
    for way in range(ways):
        count += popcount4(Y[base + 2 * ways + way] & 15)
    return count >= SECTORS * of_set(X, base, X[P_L2DIRTY])


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
        clean_way(X, oldest_dirty(X, base, line ^ now), now)


@compiled
def l2_locate(X, line, base, now, store):
    """(dirty cell, arrival cells, whether it was given to the line just now) of L2's way for a line."""
    Y, ways = narrow(X), X[P_L2WAYS]
    if X[C_L2_LINE] == line:  # SMs in step ask for the same filters one after another
        if X[P_SM90]:
            Y[X[C_L2_DIRTY] - ways] = now
        return X[C_L2_DIRTY], X[C_L2_FILL], False
    way, hit = l2_find(X, base, ways, line, now)
    if store and X[P_L2DIRTY] < ways << PARTIAL_BITS and not (hit and Y[base + 2 * ways + way] & 15):
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
def l2_way_of(X, line, base, now, store):
    """(dirty cell, arrival cells) of L2's way for the line, whose set begins at `base`, made free for it if need be."""
    dirty, fill, fresh = l2_locate(X, line, base, now, store)
    if fresh:
        l2_empty(X, dirty, fill, now, 0, -1)
    return dirty, fill


@compiled
def l2_way(X, line, now, store):
    return l2_way_of(X, line, l2_set(X, line), now, store)


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
    "24 MiB", with empty caches), with copies (parts.py) into one part."""
    Y, n = narrow(X), popcount4(missing)
    ticks = read_ticks(X, n, (Y[fill] > begin) + (Y[fill + 1] > begin) + (Y[fill + 2] > begin) + (Y[fill + 3] > begin))
    loaded(X, begin, n * ticks, n * ticks)
    latency = dram_latency(X, line)
    if X[P_SM90]:
        book_l2(X, B_L2_STORES, n * (X[P_L2_COPY_TICKS] or X[P_L2_WRITE_TICKS]), begin)
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
def fetch(X, line, fill, missing, begin):
    """`l2_fetch` of what is missing of a line, by itself."""
    number, cell = room_of_dram(X, begin)
    l2_fetch(X, line, fill, to_fetch(X, fill, missing), begin, number, cell)


@compiled
def last_there(X, fill, mask, when):
    """The cycle the last of some sectors is there, `when` or later."""
    Y = narrow(X)
    for sector in range(SECTORS):
        if mask >> sector & 1:
            when = max(when, Y[fill + sector])
    return when


@compiled
def arrive(X, fill, mask, when):
    """Sectors are there from `when` on, or have yet to come."""
    Y = narrow(X)
    for sector in range(SECTORS):
        if mask >> sector & 1:
            Y[fill + sector] = max(Y[fill + sector], when)


@compiled
def read_sectors(X, line, fill, mask, begin):
    """Read sectors of a line through L2: the cycle the last one is there."""
    missing = absent(X, fill) & mask
    X[C_L2_SECTORS] += popcount4(mask)
    X[C_L2_HITS] += popcount4(mask) - popcount4(missing)
    if missing:
        fetch(X, line, fill, missing, begin)
    return last_there(X, fill, mask, begin + X[P_L2LAT])


@compiled
def further(X, line):
    """How much further away than others a line is: those of half the KiB are in the other part of L2 (probes "LDG L2, n
    KiB on, each waited for"). Copies to shared memory show nothing of it."""
    return X[P_L2FAR] * ((line >> PLACE_BITS) * 0x9E3779B1 >> 31 & 1)


@compiled
def write_sectors(X, dirty, fill, mask, begin):
    """Write sectors of a line into L2 (write back; nothing is fetched for now)."""
    Y = narrow(X)
    if X[P_L2PARTIAL] and (mask & FILLED == 0 or Y[dirty] >> SECTORS):
        if X[P_L2_COMPLETE_TICKS]:
            X[C_EMPTIED] = max(X[C_EMPTIED], last_there(X, fill, mask & 15, 0))  # what is being completed
        store_words(X, dirty, fill, mask, begin)
    Y[dirty] |= mask & 15
    arrive(X, fill, mask, begin - (begin & X[P_SHARING]))
