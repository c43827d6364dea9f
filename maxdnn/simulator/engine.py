# ruff: noqa: F403, F405
"""The cycle loop, compiled: schedulers choose warps, instructions issue.

A warp knows at the moment it issues when it may issue again as far as its own control codes say (stall, scoreboards);
what it shares with others (operand fetch, narrow units, memory queues, instruction lines) is asked when it is chosen.
Rows are named by where they start in the image X: w a warp, s a scheduler, i an instruction."""

from .beside import amid_products, had_its_turn, product, tell
from .caches import constant_line, instruction_line
from .columns import *
from .instep import moved, own_record, variant
from .jit import compiled
from .lsu import send_all, send_stores, waits_to_store, which_stores
from .memory import global_access, load_constant, shared_access
from .operand import bank_reads, enter, forget, read_later
from .residency import complete, finish_warp, release_barrier, step_path, wake
from .results import beside_results, results_there
from .scoreboards import occupy, wait_for_boards
from .sm90 import (
    bank_reads_sm90,
    code_line_sm90,
    enter_sm90,
    issue_xu,
    jump,
    meet,
    memory_sm90,
    room_sm90,
    take_fma,
    take_fmas,
)


@compiled
def queue_room(X, w, kind):
    """The cycle the warp's queue of shared or of global operations has a free place."""
    if kind in (K_SHARED, K_SHUFFLE):
        return X[w + W_SHRING + X[w + W_SHHEAD]]
    if kind in (K_GLOBAL, K_TEX):
        return X[w + W_GLRING + X[w + W_GLHEAD]]
    return 0


@compiled
def into_queue(X, ring, head, places, done):
    """An operation that ends at `done` takes the oldest place of a warp's queue."""
    X[ring + X[head]] = done
    X[head] += 1
    if X[head] == places:
        X[head] = 0


@compiled
def side_hazard(X, w, i, s, now):
    """Constant operands, narrow units and memory queues: (cycle they are free, reason)."""
    if X[i + I_CLINE] >= 0:
        there = constant_line(X, X[w + W_SM], X[i + I_CLINE], now)
        if there > now:
            return there, R_CONST
    if X[i + I_KIND] == K_PRODUCT:
        return X[s + S_UNIT0 + U_TENSOR], R_TENSOR
    unit = X[i + I_UNIT]
    if unit > 0 and X[s + S_UNIT0 + unit] > now:
        return X[s + S_UNIT0 + unit], R_PIPE
    if unit == U_BOTH and X[P_SM90]:
        return max(X[s + S_UNIT0 + U_LITE], X[s + S_UNIT0 + U_HEAVY]), R_PIPE
    if X[i + I_MEM]:
        if X[P_SM90]:
            return room_sm90(X, s), R_QUEUE
        if X[s + S_MEMFREE] > now:
            return X[s + S_MEMFREE], R_PIPE
        return queue_room(X, w, X[i + I_KIND]), R_QUEUE
    return now, R_STALL


@compiled
def hazard(X, w, s, now):
    """The cycle this instruction can have what it shares with others; if later than now, the warp is put off to it."""
    i = X[w + W_PC]
    free, reason = now, R_STALL
    if X[w + W_LATER] and X[i + I_WAIT]:
        free, reason = results_there(X, w, i, s, now)
    if free <= now and X[i + I_LINE] != X[w + W_LINE]:
        if X[P_SM90]:
            free, reason = code_line_sm90(X, s, X[i + I_LINE], now), R_FETCH
        else:
            free, reason = instruction_line(X, X[w + W_SM], X[i + I_LINE], now), R_FETCH
        X[w + W_LINE] = X[i + I_LINE]
    if free <= now and X[i + I_ALU]:
        free, reason = X[s + S_LEAVE2], R_BANK
        if X[P_SM90]:
            if free < X[w + W_READS]:
                free = X[w + W_READS]
            if free <= now and X[s + S_UNIT0 + U_FMA] > now and X[i + I_X1] <= 0:
                free, reason = X[s + S_UNIT0 + U_FMA], R_PIPE
            if free <= now and X[P_BESIDE]:
                free, reason = amid_products(X, s, now), R_PIPE
    if free <= now and (X[i + I_CLINE] >= 0 or X[i + I_UNIT] > 0 or X[i + I_MEM] or X[i + I_KIND] == K_PRODUCT):
        free, reason = side_hazard(X, w, i, s, now)
    if free > now:
        if reason == R_QUEUE and X[w + W_REASON] != R_QUEUE:
            X[w + W_ASKED] = now
        X[w + W_READY], X[w + W_REASON] = free, reason
    return free


@compiled
def issue_memory(X, w, i, s, now):
    """(result there, operands read) of a memory instruction."""
    kind = X[i + I_KIND]
    X[s + S_MEMFREE] = now + X[P_MEMGAP]
    if kind == K_SHUFFLE:
        done, start = shared_access(X, X[w + W_SM], 1, now)
        return done, start + X[P_RELEASE]
    shift = X[w + W_SHIFT]
    chosen = own_record(X, w)
    record = variant(X, chosen, shift)
    if kind == K_SHARED:
        done, start = shared_access(X, X[w + W_SM], X[record], now)
        into_queue(X, w + W_SHRING, w + W_SHHEAD, X[P_SHQUEUE], done)
    elif kind == K_LDC:
        done, start = load_constant(X, X[w + W_SM], record, moved(X, chosen, shift), now), now
    else:
        done, start = global_access(X, w, i, s, record, moved(X, chosen, shift), now)
        into_queue(X, w + W_GLRING, w + W_GLHEAD, X[P_GLQUEUE], done)
    X[w + W_REC] += 1
    return done, start + X[P_RELEASE]


@compiled
def issue_side(X, w, i, s, now):
    """Everything but a plain full-rate ALU instruction: units, memory, scoreboards."""
    unit = X[i + I_UNIT]
    if unit > 0:
        X[s + S_UNIT0 + unit] = now + X[i + I_INTERVAL]
    if X[P_SM90] and X[i + I_X0] > 0:
        X[w + W_READS] = now + X[i + I_X0]
    if X[i + I_KIND] == K_PRODUCT:
        done = read = product(X, w, i, s, now)
    elif X[i + I_KIND] == K_COMMIT:
        done = read = max(X[w + W_COPIES], now)
    elif X[P_SM90] and unit == U_XU:
        done, read = issue_xu(X, i, s, now)
    elif X[i + I_MEM]:
        X[w + W_SENT], X[s + S_SENT] = now, w
        done, read = memory_sm90(X, w, i, s, now) if X[P_SM90] else issue_memory(X, w, i, s, now)
    else:
        done, read = now + X[i + I_RESULT], now + X[P_RELEASE]
    X[C_RESULT], X[C_READ] = done, read
    board = X[i + I_WB]
    if board >= 0:
        if X[w + W_TRIED] == board + 1 and X[i + I_KIND] != K_MBARRIER:
            X[w + W_TRIED] = 0  # the scoreboard tells of something else from now on
        occupy(X, w, board, done)
        read = min(read, done)
    board = X[i + I_RB]
    if board >= 0 and read >= 0:
        occupy(X, w, board, read)
    if X[C_ENDED] > 0:
        end_phase(X, w)


@compiled
def end_phase(X, w):
    """Warps that wait for a phase of an mbarrier that has found its end go on behind it."""
    at = X[C_ENDED]
    X[C_ENDED] = 0
    first = X[T_WARP] + (X[w + W_SM] * X[P_WARP_SLOTS] + X[w + W_SLOT] * X[P_BLOCK_WARPS]) * W_SIZE
    for v in range(first, first + X[P_BLOCK_WARPS] * W_SIZE, W_SIZE):
        if X[v + W_ALIVE] and X[v + W_TRIED] and X[v + W_MBARRIER] == at and X[v + W_SB0 + X[v + W_TRIED] - 1] == NEVER:
            tell(X, v, X[at + MB_ENDED] + X[P_MBARLAT])
            if X[v + W_READY] == NEVER:
                wait_for_boards(X, v, X[v + W_PC], X[v + W_STALLED])
                wake(X, v, X[v + W_READY])


@compiled
def stand_still(X, s, now):
    """Operand fetch is full from `now` on: until there is room the stall counts of the scheduler stand still."""
    cycles, at = X[s + S_LEAVE2] - now, X[s + S_ORDER]
    while X[at] >= 0:
        w = X[at]
        if X[w + W_ALIVE] and X[w + W_STALLED] > now:
            X[w + W_STALLED] += cycles
            if X[w + W_READY] < X[w + W_STALLED]:
                X[w + W_READY], X[w + W_REASON] = X[w + W_STALLED], R_STALL
        at += 1


@compiled
def execute(X, w, i, s, now):
    """Issue one instruction: take its resources and set its scoreboards."""
    X[i + I_ISSUED] += 1
    if X[i + I_ALU]:
        if X[P_SM90]:
            enter_sm90(X, s, now, bank_reads_sm90(X, i, s, X[w + W_ID]))
            take_fma(X, i, s, now)
            beside_results(X, i, s, now)
        else:
            enter(X, s, now, bank_reads(X, i, s, X[w + W_ID]))
        if X[s + S_LEAVE2] > now + 1:
            stand_still(X, s, now + 1)
    if X[i + I_D0] >= 0:
        forget(X, i, s, X[w + W_ID])
    if X[i + I_LATE] and not X[P_SM90]:
        read_later(X, s, now, i)
    if not X[i + I_ALU] or X[i + I_UNIT] > 0:
        issue_side(X, w, i, s, now)


@compiled
def advance(X, w, i, now):
    """After an issue: when the warp's next instruction may issue by its control codes. False when the warp is done."""
    if not step_path(X, w):
        finish_warp(X, w, now + 1)
        return False
    ready, kind = now + X[i + I_STALL], X[i + I_KIND]
    if X[P_SM90]:
        if X[i + I_YIELD] and X[i + I_STALL] < 2:
            ready = now + 2
        if X[w + W_PC] != i + I_SIZE:
            if X[i + I_UNIT] == U_MEET:  # behind a BSYNC lanes go on that went another way
                ready = max(ready, now + X[P_TAKEN]) + X[i + I_SERVICE]
            else:
                ready = max(ready, jump(X, w, now) + X[i + I_SERVICE])
        if X[i + I_UNIT] == U_MEET or X[w + W_PARTED]:
            ready += meet(X, w, now)
        X[w + W_PARTED] = 0
    if X[i + I_STALL] > 1:  # its own count stands still with the others'
        ready += max(X[X[w + W_SCHED] + S_LEAVE2] - now - 1, 0)
    if kind == K_MEMBAR:
        send_all(X, X[w + W_SM])
        ready = max(ready, X[w + W_STORES])
    wait_for_boards(X, w, X[w + W_PC], ready)
    if kind == K_BAR:
        sm, slot = X[w + W_SM], X[w + W_SLOT]
        at = X[T_BLOCK] + (sm * X[P_BLOCK_SLOTS] + slot) * B_SIZE
        barrier = at + B_BARRIER0 + X[i + I_SERVICE] % BARRIERS * BARRIER_SIZE
        X[barrier + B_ARRIVED] += 1
        X[barrier + B_WANTED] = X[i + I_SERVICE] // BARRIERS
        if X[i + I_STORE] == 0:
            X[w + W_RESUME], X[w + W_READY], X[w + W_REASON] = X[w + W_READY], NEVER, R_BAR
            X[w + W_BARRIER] = barrier
        if X[P_SM90]:
            unit = X[T_SM] + sm * M_SIZE + M_BAR
            X[unit] = now = max(X[unit], now) + X[P_BARPER]
        if complete(X, at, barrier):
            release_barrier(X, sm, slot, barrier, now)
    return True


@compiled
def record_event(X, w, i, s, now, second):
    if X[C_TRACED] < X[P_EVENTS_MAX]:
        at = X[T_EVENT] + X[C_TRACED] * EVENT_SIZE
        X[at], X[at + 1], X[at + 2] = now, (s - X[T_SCHED]) // S_SIZE, X[w + W_ID]
        X[at + 3], X[at + 4], X[at + 5] = X[i + I_INDEX], second, X[w + W_BLOCK]
        side = X[i + I_ALU] == 0
        if not side or X[C_READ] >= 0:  # else the store that waits tells it
            X[at + 6], X[at + 7] = X[C_RESULT] if side else now + X[i + I_RESULT], X[C_READ] if side else now
        X[C_TRACED] += 1


@compiled
def pair_legal(X, first, second):
    """Different resources, and not both reading a constant bank."""
    if X[first + I_KIND] == K_FLOW and X[second + I_KIND] == K_FLOW:
        return True
    return X[first + I_ALU] != X[second + I_ALU] and not (X[first + I_CLINE] >= 0 and X[second + I_CLINE] >= 0)


@compiled
def gives_way(X, i):
    """What an issue means for the next choice: 0 the warp may go on, 1 another is preferred, 2 the next in turn is."""
    return 2 if X[i + I_STALL] >= X[P_TURN] else X[i + I_YIELD]


@compiled
def issue_second(X, w, first, s, now):
    """The instruction after a stall of 0: in the same cycle if nothing forbids it, else in the next."""
    i = X[w + W_PC]
    if X[w + W_READY] <= now and pair_legal(X, first, i) and hazard(X, w, s, now) <= now:
        X[C_DUAL] += 1
        X[i + I_DUAL] += 1
        execute(X, w, i, s, now)
        if X[P_TRACE_FROM] <= now < X[P_TRACE_TO]:
            record_event(X, w, i, s, now, 1)
        X[s + S_YIELDED] = gives_way(X, i)
        advance(X, w, i, now)
    else:
        X[C_FAILED_DUAL] += 1
        X[w + W_READY] = max(X[w + W_READY], now + 1)


@compiled
def burst(X, w, i, s, now, count):
    """Issue up to `count` plain instructions of one warp, one per cycle: nothing another warp does can come between.
    Stops where operand fetch is full. The cycle after the last."""
    warp = X[w + W_ID]
    start, end = i, i + count * I_SIZE
    while i < end and X[s + S_LEAVE2] <= now:
        X[i + I_ISSUED] += 1
        if X[P_SM90]:
            enter_sm90(X, s, now, bank_reads_sm90(X, i, s, warp))
            beside_results(X, i, s, now)
        else:
            enter(X, s, now, bank_reads(X, i, s, warp))
        if X[i + I_D0] >= 0:
            forget(X, i, s, warp)
        now += 1
        i += I_SIZE
    count = (i - start) // I_SIZE
    if X[P_SM90]:
        take_fmas(X, s, now - 1, count)
    X[C_ISSUED] += count
    X[w + W_PC] = i
    X[w + W_LEFT] -= count
    X[s + S_CURRENT], X[s + S_YIELDED] = w, 0
    if X[s + S_LEAVE2] > now:
        stand_still(X, s, now)
    wait_for_boards(X, w, i, now)
    return now


@compiled
def issue(X, w, s, now):
    """Issue from a warp at `now`: the cycle the scheduler may issue again."""
    i = X[w + W_PC]
    count = min(X[i + I_BURST], X[w + W_LEFT])
    alone = not X[P_BESIDE] and not X[X[T_SM] + X[s + S_SM] * M_SIZE + M_COMING]
    if alone and count > 1 and X[P_POLICY] != 2 and now >= X[P_TRACE_TO]:
        return burst(X, w, i, s, now, count)
    X[C_ISSUED] += 1
    execute(X, w, i, s, now)
    if X[P_TRACE_FROM] <= now < X[P_TRACE_TO]:
        record_event(X, w, i, s, now, 0)
    X[s + S_CURRENT], X[s + S_YIELDED] = w, gives_way(X, i)
    if advance(X, w, i, now) and X[i + I_DOUBLES]:
        issue_second(X, w, i, s, now)
    return now + 1


@compiled
def ready_or_when(X, w, s, now):
    """The warp's own ready time, moved on if what it shares with others is taken."""
    return X[w + W_READY] if X[w + W_READY] > now else hazard(X, w, s, now)


@compiled
def turn(w, best, current):
    """Whether w comes before best when one counts on from the current warp."""
    if (w <= current) != (best <= current):
        return best <= current
    return w < best


@compiled
def choose(X, s, now):
    """The warp to issue from, or -1; then S_NEXT is the cycle to try again and S_BLAMED the warp that will be first.

    Candidates are the oldest P_CANDIDATES warps that do not wait for something long. Policy 0: the current warp while
    it can, then the oldest; 1: the current warp while it can, then the next in turn; 2: always the next in turn."""
    current, policy = X[s + S_CURRENT], X[P_POLICY]
    if policy != 2 and current >= 0 and X[s + S_YIELDED] == 0 and X[current + W_ALIVE] \
            and ready_or_when(X, current, s, now) <= now and not had_its_turn(X, current, s):
        return current
    best, last, considered, next_try, blamed = -1, -1, 0, NEVER, -1
    at = X[s + S_ORDER] - 1
    while considered < X[P_CANDIDATES]:
        at += 1
        w = X[at]
        if w < 0:
            break
        if not X[w + W_ALIVE]:
            continue
        when = ready_or_when(X, w, s, now)
        if when > now:
            if when < next_try or blamed < 0:
                next_try, blamed = when, w
            considered += R_STALL <= X[w + W_REASON] <= R_QUEUE
            continue
        considered += 1
        if w == current:
            last = w
        elif policy == 0 and X[s + S_YIELDED] < 2:
            return w
        elif best < 0 or turn(w, best, current):
            best = w
    if best < 0:
        best = last
    if best < 0:
        X[s + S_NEXT], X[s + S_BLAMED], X[s + S_SINCE] = next_try, blamed, now
    return best


@compiled
def account(X, s, now):
    """Charge the slots since the scheduler last failed to issue to the warp that was to be first."""
    blamed, row, reason = X[s + S_BLAMED], (X[T_WARP] - X[T_CODE]) // I_SIZE, R_NONE
    if blamed >= 0 and X[blamed + W_ALIVE]:
        row, reason = X[X[blamed + W_PC] + I_INDEX], X[blamed + W_REASON]
    X[X[T_STALL] + row * REASON_COUNT + reason] += now - X[s + S_SINCE]
    X[s + S_SINCE] = -1


@compiled
def step(X, sm, now):
    """A cycle of the schedulers of an SM: the next one in which there is something for them to do."""
    first, last = X[T_SCHED] + sm * 4 * S_SIZE, X[T_SCHED] + (sm + 1) * 4 * S_SIZE
    for s in range(first, last, S_SIZE):
        if X[s + S_WAITS]:
            send_stores(X, sm, now)
        if X[s + S_NEXT] <= now:
            if X[s + S_SINCE] >= 0:
                account(X, s, now)
            w = choose(X, s, now)
            if w >= 0:
                if X[P_SM90] and waits_to_store(X, w):
                    w = which_stores(X, s, now)
                X[s + S_NEXT] = X[s + S_FREE] = issue(X, w, s, now)
    following = NEVER
    for s in range(first, last, S_SIZE):
        following = min(following, X[s + S_NEXT])
        if X[s + S_WAITS]:
            following = min(following, X[X[T_SM] + sm * M_SIZE + M_SENDS])
    return following


@compiled
def run(X, until):
    """Simulate until cycle `until` or the end. True when nothing can ever issue again."""
    first, last = X[T_NEXT], X[T_NEXT] + X[P_SMS]
    now = X[C_NOW]
    while now < until:
        following = NEVER
        for at in range(first, last):  # no SM changes when another one is next
            if X[at] <= now:
                X[at] = step(X, at - first, now)
            following = min(following, X[at])
        if following == NEVER:
            X[C_NOW] = now + 1
            return True
        now = max(now + 1, following)
    X[C_NOW] = now
    return False
