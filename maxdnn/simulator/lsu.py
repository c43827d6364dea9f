# ruff: noqa: F403, F405
"""The pipe of an SM of sm_90 that has shared memory and L1 (LSU), compiled: what the schedulers hand on to it, and how
stores go on to L2. Only so many stores may be on their way there; others wait in their schedulers' queues, of which L1
takes one by turns."""

from .access import quarter_of
from .beside import WIDTH, shared_bytes
from .caches import WORDS, l1_lookup, l1_set, l1_store
from .columns import *
from .instep import READ, WRITE, moved, own_record, touch_beyond, variant
from .jit import compiled, popcount4
from .machine import LINE
from .memory import further_words, through_l2
from .pipe import by_turns, let_ahead, serve
from .residency import end_block, wake
from .scoreboards import clear, occupy, wait_for_boards

# A warp asks for a place right behind its last access, or behind other instructions, fewer than so many cycles; it
# comes before that only after so long (probes "STG, n words of 4 rows ... apart in turn ..., then n FFMA").
RIGHT_BEHIND, BEHIND, PATIENCE = 8, 100, 400


@compiled
def waits_to_store(X, w):
    """Whether a warp that may issue has waited for a place in the queue for a store."""
    i = X[w + W_PC]
    return X[w + W_REASON] == R_QUEUE and X[i + I_KIND] == K_GLOBAL and X[i + I_STORE] and not X[i + I_ATOMIC]


@compiled
def rank(X, s, w, now):
    """Of warps that wait to store: 0 whose last access was right before, and others had places since; 1 who had the
    last one; 2 who has done other things since its last access."""
    if RIGHT_BEHIND < X[w + W_ASKED] - X[w + W_SENT] < BEHIND and now < X[w + W_ASKED] + PATIENCE:
        return 2
    return int(X[s + S_SENT] == w)


@compiled
def which_stores(X, s, now):
    """Which of the warps that wait to store has the place: the least rank, then who has waited longest; if two or more
    have done other things, one of these comes before who had the last place."""
    at, chosen, least, fresh, many = X[s + S_ORDER], -1, 3, -1, 0
    while X[at] >= 0:
        w = X[at]
        at += 1
        if not X[w + W_ALIVE] or X[w + W_READY] > now or not waits_to_store(X, w):
            continue
        its = rank(X, s, w, now)
        if its < least or (its == least and X[w + W_ASKED] < X[chosen + W_ASKED]):
            chosen, least = w, its
        if its == 2:
            many += 1
            if fresh < 0 or X[w + W_ASKED] < X[fresh + W_ASKED]:
                fresh = w
    return fresh if least == 1 and many > 1 else chosen


@compiled
def leave_queue(X, s, out):
    """The place in the queue is free from `out` on."""
    X[s + S_MIORING + X[s + S_MIOHEAD]] = out
    X[s + S_MIOHEAD] += 1
    if X[s + S_MIOHEAD] == X[P_MIOQUEUE]:
        X[s + S_MIOHEAD] = 0


@compiled
def through_pipe(X, w, s, port, cycles, way, out, first):
    """(first, last cycle) of an access that keeps the SM's pipe of shared memory and L1 so many cycles, and the
    scheduler's way there `way`. `first`: whether it goes before loads that L1 does not have."""
    sm, shared = X[T_SM] + X[w + W_SM] * M_SIZE, port == S_PORT0
    apart = 2 if shared and way > cycles else 1
    start = max(out, X[s + port])
    if X[P_BESIDE]:
        start = shared_bytes(X, X[w + W_SM], cycles * WIDTH, start) - cycles
        last = start + apart * (cycles - 1)
        X[s + port] = start + way
    else:
        limit = max(by_turns(X, w, s, out, shared), start)
        start, last = serve(X, sm, start, limit, cycles, apart, first)
        if X[C_OWED] or X[C_LATE]:
            let_ahead(X, w, s, start, shared)
        X[sm + M_SHARED] = max(X[sm + M_SHARED], last + 1)
        X[s + port] = max(start + way, last + 1)
    if shared:
        X[s + S_SHEND], X[s + S_SHCOST] = last + 1, cycles
    else:
        X[s + S_LSUEND], X[s + S_LSUCOST] = last + 1, cycles
    return start, last


@compiled
def in_l1(X, sm, line):
    """Whether L1 has a line."""
    ways = X[P_L1WAYS]
    base = X[T_L1] + (sm * X[P_L1SETS] + l1_set(X, line)) * ways * SECTORED
    there = False
    for way in range(base, base + ways):
        there |= X[way] == line
    return there


@compiled
def next_store(X, sm):
    """The scheduler whose store L1 begins with next, or -1; M_SENDS is when."""
    first, last = X[T_SCHED] + sm * 4 * S_SIZE, X[T_SM] + sm * M_SIZE
    free = max(X[last + M_LINERING + X[last + M_LINEHEAD]], X[last + M_STOREPIPE])
    free = max(free, X[last + M_WAYRING + X[last + M_WAYHEAD]])
    chosen, begin = -1, NEVER
    for turn in range(1, 5):
        s = first + (X[last + M_TURN] + turn) % 4 * S_SIZE
        if X[s + S_WAITS]:
            at = max(free, X[s + S_WAITRING + X[s + S_WAITHEAD] * WAIT_SIZE + WAIT_OUT])
            if at < begin:
                chosen, begin = s, at
    X[last + M_SENDS] = begin
    return chosen


@compiled
def has_read(X, w, board, when):
    """A store of a warp that has waited leaves the queue and has its registers read."""
    X[w + W_UNREAD0 + board] -= 1
    clear(X, w, board, when)
    if X[w + W_UNREAD0 + board] or X[w + W_READY] < NEVER or not X[w + W_ALIVE]:
        return
    at_barrier = X[w + W_REASON] == R_BAR
    wait_for_boards(X, w, X[w + W_PC], X[w + W_STALLED])
    if at_barrier and X[w + W_BARRIER]:
        X[w + W_RESUME], X[w + W_READY], X[w + W_REASON] = X[w + W_READY], NEVER, R_BAR
    else:
        wake(X, w, X[w + W_READY])


@compiled
def leaves(X, s, at, when):
    """A store that has waited in the queue of its scheduler goes on to L1."""
    w, i, out = X[at + WAIT_WARP], X[at + WAIT_CODE], max(X[at + WAIT_OUT], when)
    last = X[T_SM] + X[s + S_SM] * M_SIZE
    behind = out
    if X[last + M_ATOMICS] > out:  # it goes behind atomics that are on their way
        behind = max(out, X[last + M_WAYRING + X[last + M_WAYHEAD]])
    begin, _ = through_pipe(X, w, s, S_PORT1, X[at + WAIT_CYCLES], X[at + WAIT_CYCLES], behind, True)
    X[X[at + WAIT_PLACE]] = max(out, begin - X[P_MIOLAG])
    X[at + WAIT_OUT] = begin
    X[s + S_LEFT] += 1
    if X[at + WAIT_EVENT]:
        X[X[at + WAIT_EVENT] + 7] = out + X[i + I_DN]
    if X[i + I_RB] >= 0:
        has_read(X, w, X[i + I_RB], out + X[i + I_DN])


@compiled
def on_its_way(X, last):
    """What has been sent is on its way to L2 until it has come to L2's port."""
    X[last + M_WAYRING + X[last + M_WAYHEAD]] = X[C_PORTEND]
    X[last + M_WAYHEAD] = (X[last + M_WAYHEAD] + 1) % X[P_STOREQUEUE]


@compiled
def send_store(X, sm):
    """Let L1 begin with the next one of the stores that wait."""
    s, last = next_store(X, sm), X[T_SM] + sm * M_SIZE
    begin = X[last + M_SENDS]
    at = s + S_WAITRING + X[s + S_WAITHEAD] * WAIT_SIZE
    w = X[at + WAIT_WARP]
    X[last + M_STOREPIPE] = begin + X[at + WAIT_CYCLES]
    following, X[w + W_REC] = X[w + W_REC], X[at + WAIT_REC]
    X[C_PORTEND] = begin
    done = global_sm90(X, w, X[at + WAIT_CODE], 0, begin)
    on_its_way(X, last)
    X[w + W_REC] = following
    X[w + W_STORES] = max(X[w + W_STORES], done)
    if X[at + WAIT_EVENT]:
        X[X[at + WAIT_EVENT] + 6] = done
    X[s + S_WAITS] -= 1
    X[s + S_LEFT] -= 1
    X[s + S_WAITHEAD] = (X[s + S_WAITHEAD] + 1) % WAIT_PLACES
    X[last + M_TURN] = (s - X[T_SCHED]) // S_SIZE % 4
    if X[s + S_WAITS] > X[s + S_LEFT]:
        leaves(X, s, s + S_WAITRING + (X[s + S_WAITHEAD] + X[s + S_LEFT]) % WAIT_PLACES * WAIT_SIZE, begin)
    next_store(X, sm)
    block = X[T_BLOCK] + (sm * X[P_BLOCK_SLOTS] + X[w + W_SLOT]) * B_SIZE
    X[block + B_WAITS] -= 1
    if not X[w + W_ALIVE]:
        X[block + B_STORED] = max(X[block + B_STORED], done)
        if X[block + B_LIVE] == 0 and X[block + B_WAITS] == 0:
            end_block(X, sm, X[w + W_SLOT], block)


@compiled
def send_stores(X, sm, now):
    """Let L1 begin with those of the stores that wait that it can have until `now`."""
    last = X[T_SM] + sm * M_SIZE
    while X[last + M_SENDS] <= now:
        send_store(X, sm)


@compiled
def send_all(X, sm):
    """Let L1 begin with all stores that wait, ahead of time."""
    while next_store(X, sm) >= 0:
        send_store(X, sm)


@compiled
def send_own(X, s):
    """Let L1 begin ahead of time with the stores of a scheduler that are in front of what comes."""
    while X[s + S_WAITS]:
        send_store(X, X[s + S_SM])


@compiled
def store_waits(X, w, i, s, out, now):
    """A store takes a place in its scheduler's queue, which it keeps until there is room for it at L1."""
    at = s + S_WAITRING + (X[s + S_WAITHEAD] + X[s + S_WAITS]) % WAIT_PLACES * WAIT_SIZE
    X[at + WAIT_WARP], X[at + WAIT_CODE], X[at + WAIT_REC], X[at + WAIT_OUT] = w, i, X[w + W_REC], out
    X[at + WAIT_PLACE] = s + S_MIORING + X[s + S_MIOHEAD]
    X[at + WAIT_CYCLES], _, _ = l1_cycles(X, i, variant(X, own_record(X, w), X[w + W_SHIFT]))
    X[at + WAIT_EVENT] = 0
    if X[P_TRACE_FROM] <= now < X[P_TRACE_TO] and X[C_TRACED] < X[P_EVENTS_MAX]:
        X[at + WAIT_EVENT] = X[T_EVENT] + X[C_TRACED] * EVENT_SIZE
    leave_queue(X, s, NEVER)
    if X[i + I_RB] >= 0:
        X[w + W_UNREAD0 + X[i + I_RB]] += 1
        occupy(X, w, X[i + I_RB], NEVER)
    X[s + S_WAITS] += 1
    if X[s + S_LEFT] == X[s + S_WAITS] - 1 and X[s + S_LEFT] < (X[P_STOREQUEUE] + 3) // 4:
        leaves(X, s, at, out)
    X[X[T_BLOCK] + (X[w + W_SM] * X[P_BLOCK_SLOTS] + X[w + W_SLOT]) * B_SIZE + B_WAITS] += 1
    next_store(X, X[w + W_SM])


@compiled
def brought_together(X, sm, line, mask):
    """What goes to L2 of a store, as a mask: of what goes to lines that L1 has from stores before, each sector goes
    once. When a line comes to a quarter that is full, its oldest line goes on to L2, and all that came before that one
    (probes "STG, words of ... in turn", "STG, 8 lines, bits ..."). A line takes a cycle more if bytes of its sectors
    are left out when another one takes its cell."""
    last = X[T_SM] + sm * M_SIZE
    first = last + M_STORED + 2 * STORED * quarter_of(line)
    at, oldest = first, first
    while at < first + 2 * STORED and X[at] >> COST != line:
        if X[at + 1] < X[oldest + 1]:
            oldest = at
        at += 2
    new = mask & 15
    if at < first + 2 * STORED and X[at + 1] > X[last + M_DRAINED]:
        known = X[at]
        new &= ~known
        words = min((known & WRITTEN) + (mask & WRITTEN), LINE // 4 << TURNS)
        X[at] = line << COST | words | known & 15 | new
        return mask >> WORK << WORK | popcount4(new) << COST | new
    if at == first + 2 * STORED:
        at = oldest
        X[last + M_DRAINED] = max(X[last + M_DRAINED], X[at + 1])
    known = X[at]
    cost = popcount4(new) + (known >> TURNS & WRITTEN >> TURNS < WORDS * popcount4(known))
    X[last + M_CAME] += 1
    X[at], X[at + 1] = line << COST | mask & WRITTEN | new, X[last + M_CAME]
    return mask >> WORK << WORK | cost << COST | new


@compiled
def l1_cycles(X, i, record):
    """Cycles that an access keeps L1, its tags and its banks."""
    tags, banks = X[record] & (1 << BANKS) - 1, max(X[record] >> BANKS, X[i + I_LATEBY])
    cycles = max(tags, banks)
    X[C_TEX_BUSY] += cycles
    return cycles, tags, banks


@compiled
def into_l1(X, w, i, s, out):
    """(begin, result there) of a load or an atomic. As many of these as of stores may be on their way to L2, those of
    all schedulers in their order."""
    chosen, last = own_record(X, w), X[T_SM] + X[w + W_SM] * M_SIZE
    record = variant(X, chosen, X[w + W_SHIFT])
    cycles, tags, banks = l1_cycles(X, i, record)
    if X[i + I_ATOMIC]:
        out = max(out, X[last + M_WAYRING + X[last + M_WAYHEAD]])
    there = not X[i + I_CACHED] or in_l1(X, X[w + W_SM], X[X[record + 1]] + moved(X, chosen, X[w + W_SHIFT]))
    start, _ = through_pipe(X, w, s, S_PORT1, cycles, max(cycles, 2 * banks), out, there)
    X[C_PORTEND] = start
    done = global_sm90(X, w, i, max(tags - 1, 0) + 2 * (banks - 1), start)
    if X[i + I_ATOMIC]:
        on_its_way(X, last)
        X[last + M_ATOMICS] = X[C_PORTEND]
    return start, done


@compiled
def global_sm90(X, w, i, more, start):
    """The cycle what an access that begins in L1 asks for is there; `more`: cycles that it takes beyond the least."""
    chosen, last = own_record(X, w), X[T_SM] + X[w + W_SM] * M_SIZE
    record, shift = variant(X, chosen, X[w + W_SHIFT]), moved(X, chosen, X[w + W_SHIFT])
    late, first = 0 if X[i + I_STORE] else X[i + I_RESULT], X[record + 1]
    done, left = start + late + more, 0
    for index in range(X[record + 2]):
        at = first + index * LINE_SIZE
        line, mask, there = X[at] + shift, X[at + 1], 0
        missing, fill = mask, -1
        if X[i + I_CACHED]:
            fill, missing, there = l1_lookup(X, X[w + W_SM], line, mask, start)
        elif X[i + I_STORE] and not X[i + I_ATOMIC]:
            l1_store(X, X[w + W_SM], line, mask, start)
            missing = brought_together(X, X[w + W_SM], line, mask)
            if mask & FILLED == 0:
                # a cycle more before it is in L2, if no other part went for it (probe "blocks four at a time, 1 warps")
                left += (missing >> COST & COSTS) == popcount4(missing)
                if missing & 15 == 0 and X[P_L2PARTIAL] and not X[P_SHARING]:
                    further_words(X, w, i, index, line, mask, start)
            mask, there = missing, start + X[P_L2LAT]  # where what it goes along with is on its way
        elif not X[i + I_ATOMIC]:
            X[C_L1_SECTORS] += popcount4(mask)  # past L1, whose counters have them as misses
        if missing & 15:
            # sectors of other blocks lie elsewhere in their lines
            got = through_l2(X, w, i, index, line, missing, start, 15 if missing == mask else missing)
            there = max(there, got)
            if X[i + I_STORE] and not X[i + I_ATOMIC]:
                X[last + M_LINERING + X[last + M_LINEHEAD]] = X[C_PORTLEFT]
                X[last + M_LINEHEAD] = (X[last + M_LINEHEAD] + 1) % X[P_STORELINES]
            if fill >= 0:
                for sector in range(4):
                    if missing >> sector & 1:
                        X[fill + sector] = got
        done = max(done, there + late + left)
    if X[P_UNEVEN] and not X[i + I_ATOMIC]:
        touch_beyond(X, w, i, X[record + 2], WRITE if X[i + I_STORE] else READ, start)
    return done
