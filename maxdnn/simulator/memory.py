# ruff: noqa: F403, F405
"""Memory instructions at issue: when their result is there and when their operands have been read. Every shared
resource is a first-come-first-served server whose next free cycle is kept, so a completion is known at issue."""

from .atomics import l2_atomic
from .bandwidth import book, book_l2, l2_ticks
from .caches import constant_line, l1_lookup
from .columns import *
from .instep import CHANGE, READ, WRITE, before, how_many, lines_of_others, touch, touch_again
from .jit import compiled, popcount4
from .l2 import further, l2_way, write_sectors
from .parts import cross, l2_read, l2_write
from .rounds import begin_round, end_round
from .sharing import is_part, store_shared


@compiled
def shared_access(X, sm, phases, now):
    """A shared-memory access of `phases` phases: (result there, pipe taken from)."""
    pipe = X[T_SM] + sm * M_SIZE + M_SHARED
    start = max(now, X[pipe])
    X[pipe] = start + phases
    X[C_SHARED_BUSY] += phases
    return start + X[P_SHLAT] + X[P_SHWAY] * max(phases - 1, 0), start


@compiled
def load_constant(X, sm, record, shift, now):
    """LDC: distinct addresses are served one after another, each line from its level."""
    done = now
    first = X[record + 1]
    for at in range(first, first + X[record + 2] * LINE_SIZE, LINE_SIZE):
        done = max(done, constant_line(X, sm, X[at] + shift, now))
    return done + X[P_CLAT] + max(X[record] - 1, 0)


@compiled
def take_of_stores(X, ticks, sectors, hits, begin):
    """What loads take of L2's time for stores: of what they take of its time for loads, if L2 has what they ask for.
    sectors, hits: counters before they did."""
    if X[P_L2_LOAD_STORE] and X[C_L2_SECTORS] > sectors:
        share = ticks * (X[C_L2_HITS] - hits) // (X[C_L2_SECTORS] - sectors)
        book_l2(X, B_L2_STORES, share * X[P_L2_LOAD_STORE] >> TICK_BITS, begin)


@compiled
def through_gpc(X, sm, n, stored, begin):
    """n sectors of a line on their way between an SM and L2, of which SMs of its CPC and its GPC bring others. stored:
    what they cost where they are stored, else 0."""
    if stored:
        return book(X, X[sm + M_CPC] + 1, stored * X[P_CPC_STORE_TICKS], begin)
    begin = book(X, X[sm + M_CPC], n * X[P_CPC_LOAD_TICKS], begin)
    return book(X, X[sm + M_GPC], n * X[P_GPC_LOAD_TICKS], begin)


@compiled
def through_l2(X, w, i, index, line, mask, start, theirs):
    """Sectors of a line between this SM and L2, its turn among the mirrored SMs changing: when the last is there.
    `theirs`: which sectors of their lines the other SMs ask for, if they touch them."""
    n, sm = popcount4(mask), X[T_SM] + X[w + W_SM] * M_SIZE
    port = n * (X[P_WRITE_TICKS] if X[i + I_STORE] else X[P_PORT_TICKS])
    if X[P_SM90]:
        sends = X[i + I_STORE] or X[i + I_ATOMIC]
        port = (mask >> COST & COSTS) * X[P_WRITE_TICKS] if sends else max(port, TICK)
        start = max(start, X[sm + M_ASKS] if sends else max(X[sm + M_ASKS], X[sm + M_LOADS]))
    begin = book(X, B_PORTS + X[w + W_SM], port, start)
    X[C_PORTEND] = X[C_PORTLEFT] = begin + port // TICK
    if X[P_CPC_LOAD_TICKS]:
        begin = through_gpc(X, sm, n, mask >> COST & COSTS if sends else 0, begin)
    asking = min(X[P_MIRROR], X[P_BLOCKS] - X[w + W_BLOCK] - 1) + 1  # this SM and the mirrored ones that have a block
    turn = X[C_ROTATE] % asking
    X[C_ROTATE] += 1
    what = CHANGE if X[i + I_ATOMIC] else WRITE if X[i + I_STORE] else READ
    end = lines_of_others(X, w, i, index, theirs if what == READ else -1)
    middle, sectors, hits = before(X, end, turn), X[C_L2_SECTORS], X[C_L2_HITS]
    if X[P_BESIDE] and what == READ:  # blocks that follow each other drift apart
        begin = begin_round(X, line, mask, begin)
        touch(X, X[T_AHEAD], middle, READ, begin)
        done = l2_read(X, line, mask, begin + X[C_ROUND] // TICK, X[w + W_BLOCK])
        touch(X, middle, end, READ, begin)
        end_round(X, begin)
        return done + X[sm + M_FAR] + (n - 1) * X[P_PORT_TICKS] // TICK
    ticks = l2_ticks(X, n, what != READ if X[P_SM90] else X[i + I_STORE])
    if what == WRITE and X[P_SM90]:  # a line takes one more where bytes of its sectors are left out
        ticks = l2_ticks(X, mask >> COST & COSTS, True)
    all_ticks = asking * ticks
    if X[P_SM90] and not X[P_BESIDE]:  # blocks that are unlike may not have the line
        all_ticks = (how_many(X, end) + 1) * ticks
    begin = book_l2(X, B_L2_STORES if X[P_SM90] and what != READ else B_L2, all_ticks, begin)
    if what == CHANGE:
        X[C_TURN] = X[P_ATOMIC_FLOAT] if X[i + I_ATOMIC] == FLOATS else X[P_ATOMIC_LANE]
    touch(X, X[T_AHEAD], middle, what, begin)
    mine = begin + turn * all_ticks // (asking * TICK)
    X[C_PORTEND] = max(X[C_PORTEND], mine)
    if what == CHANGE:
        done = l2_atomic(X, line, mask, mine)
    elif what == WRITE and X[P_SHARING] and is_part(mask):
        X[C_EMPTIED] = 0
        dirty, fill = l2_way(X, line, mine, True)
        done = max(store_shared(X, X[w + W_SM], dirty, fill, mask, mine), X[C_EMPTIED])
        X[C_PORTEND] = max(X[C_PORTEND], done)
        X[C_L2_STORED] += popcount4(mask)
        done += X[P_L2LAT]
    elif what == WRITE:
        done = l2_write(X, line, mask, mine, X[w + W_BLOCK]) + X[P_L2LAT]
        X[C_PORTEND] = max(X[C_PORTEND], done - X[P_L2LAT])
        if X[P_SM90]:
            X[C_L2_STORED] += popcount4(mask)
            if not X[P_BESIDE]:  # where warps that only load run ahead, they do not wait
                X[sm + M_LOADS] = max(X[sm + M_LOADS], done - X[P_L2LAT])
    else:
        done = l2_read(X, line, mask, mine, X[w + W_BLOCK]) + further(X, line)
    touch_again(X, middle, line, begin, turn)
    touch(X, middle, end, what, begin)
    if what == READ:
        take_of_stores(X, all_ticks, sectors, hits, begin)
        cross(X, begin)
    return done + X[sm + M_FAR] + (n - 1) * X[P_PORT_TICKS] // TICK


@compiled
def further_words(X, w, i, index, line, mask, start):
    """Words that an SM has brought together with others of their sectors: L2 has them, of all SMs."""
    stored = X[C_L2_STORED]
    touch(X, X[T_AHEAD], lines_of_others(X, w, i, index, -1), WRITE, start)
    dirty, fill = l2_way(X, line, start, True)
    write_sectors(X, dirty, fill, mask, start)
    X[C_L2_STORED] = stored


@compiled
def one_line(X, w, i, half, index, line, mask, start):
    """One line of a global or texture access: the cycle its sectors are there."""
    if X[i + I_CACHED] != 1:
        return through_l2(X, w, i, index, line, mask, start, mask)
    fill, missing, there = l1_lookup(X, half, line, mask, start)
    if missing:
        got = through_l2(X, w, i, index, line, missing, start, missing)
        for sector in range(4):
            if missing >> sector & 1:
                X[fill + sector] = got
        there = max(there, got)
    return there


@compiled
def global_access(X, w, i, s, record, shift, now):
    """A global, local or texture access: (result there, operands taken from)."""
    busy = X[record]
    if busy and X[i + I_KIND] == K_TEX:
        busy = X[i + I_SERVICE]
    pipe = X[T_SM] + X[w + W_SM] * M_SIZE + M_TEX0 + X[s + S_HALF]
    start = max(now, X[pipe])
    X[pipe] = start + busy
    X[C_TEX_BUSY] += busy
    done, first = start + X[P_L1LAT], X[record + 1]
    for index in range(X[record + 2]):
        at = first + index * LINE_SIZE
        there = one_line(X, w, i, X[w + W_SM] * 2 + X[s + S_HALF], index, X[at] + shift, X[at + 1], start)
        done = max(done, there)
    done += max(busy - 1, 0)
    if X[i + I_STORE]:
        X[w + W_STORES] = max(X[w + W_STORES], done)
    return done, start
