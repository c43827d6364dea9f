# ruff: noqa: F403, F405
"""What works beside the warps of an SM of sm_90, compiled: tensor cores, mbarriers, bulk copies and copies of threads.

Shared memory gives 128 bytes a cycle, to loads and to the operands of products. In kernels with any of these its cycles
are booked, because a product's operands are read later than it is issued. What arrives from L2 takes none: the probe
"rate L2, an SM" loads 114 bytes a cycle, each of which is written and read.

A product (HGMMA) of a warp is a quarter of its warpgroup's: 16 rows, on the tensor core of the warp's scheduler, which
takes them in the order of their issue, one after another. Some wait, whoever's, before the next one must wait to be
issued. One that follows on the sums of the last need not wait for them. A of shared memory is read before a product
begins, from when the one before has begun; B while it is computed. A warpgroup reads B once, so that a warp is charged
for a quarter, and each tensor core reads a quarter of the bytes of a cycle. Products come first: loads wait for their
operands, not the other way round.

An mbarrier's phase ends when its last arrival and its last byte have come. All that comes is known at issue, so the
cycle of the end is known once nothing is missing; until then warps that wait for it have no time to go on."""

from .bandwidth import book
from .columns import *
from .instep import READ, before, expect, moved, own_record, record_of, touch, variant
from .jit import compiled, popcount4
from .machine import LINE, SECTOR, SHARED_BANKS
from .parts import l2_read
from .rounds import begin_round, end_round

WIDTH = 4 * SHARED_BANKS  # bytes of shared memory a cycle
SCHEDULERS = 4


@compiled
def shared_bytes(X, sm, nbytes, start):
    """Take shared memory for some bytes from `start` on: the cycle behind the last."""
    ticks = nbytes * TICK // WIDTH
    begin = book(X, B_PORTS + X[P_SMS] + sm, ticks, start)
    return begin + (ticks + TICK - 1) // TICK


# -- products ---------------------------------------------------------------------------------------------------------


@compiled
def operand(X, w, s, nbytes, start):
    """Read a quarter of an operand of a product from `start` on: the cycle it has been read."""
    if nbytes == 0:
        return start
    start = max(start, X[s + S_TENSORREAD])
    book(X, B_PORTS + X[P_SMS] + X[w + W_SM], nbytes * TICK // WIDTH, start)
    X[s + S_TENSORREAD] = start + (SCHEDULERS * nbytes + WIDTH - 1) // WIDTH
    return X[s + S_TENSORREAD]


@compiled
def into_tensor_queue(X, s, begin):
    """A product that begins at `begin` waits in the scheduler's queue until then. The next one is issued when there is
    room."""
    head = X[s + S_TENSORHEAD]
    X[s + S_TENSORRING + head] = begin
    X[s + S_TENSORHEAD] = head = (head + 1) % X[P_TENSORQUEUE]
    X[s + S_UNIT0 + U_TENSOR] = X[s + S_TENSORRING + head]


@compiled
def product(X, w, i, s, now):
    """Issue a product of a warp: the cycle its sums are there."""
    read = operand(X, w, s, X[i + I_X1], max(now + X[P_TENSORSTART], X[s + S_TENSORBEGUN]))
    begin = max(X[s + S_TENSOREND], read)
    read = operand(X, w, s, X[i + I_SERVICE] - X[i + I_X1], begin)
    if X[s + S_TENSOREND] <= now:
        X[s + S_TENSORFROM] = begin
    X[s + S_TENSORBEGUN], X[s + S_TENSOREND] = begin, max(begin + X[i + I_INTERVAL], read)
    X[s + S_TENSORLAST] = w
    into_tensor_queue(X, s, begin)
    done = X[s + S_TENSOREND] + X[P_TENSORLAT]
    X[C_SHARED_BUSY] += X[i + I_SERVICE] // WIDTH
    X[C_TENSOR_BUSY] += X[i + I_INTERVAL]
    if X[i + I_DN]:
        X[w + W_GROUPRING + X[w + W_GROUPS] % GROUPS] = done
        X[w + W_GROUPS] += 1
    return done


@compiled
def amid_products(X, s, now):
    """The cycle from `now` on when a scheduler may issue arithmetic. While its tensor core works five of sixteen cycles
    are left, two of them side by side: the probes "tensor amid ..." find 4 cycles an instruction with a stall of 2, 3
    or 4, and 3.25 with a stall of 1; what is no arithmetic is not held up."""
    while X[s + S_TENSORFROM] <= now < X[s + S_TENSOREND]:
        place = now - X[s + S_TENSORFROM] & 15
        if place == 13 or place & 3 == 0:
            break
        now += 1
    return now


@compiled
def had_its_turn(X, w, s):
    """Whether a warp is about to issue a product and has issued the last one of its scheduler, or has waited for room
    in the queue of memory or of special functions: others that wait come first (probes "tensor turns of two
    warpgroups"; "rate STG", "STL, lanes at n words" of 8 and 16 warps, whose stores do not go along with each other;
    of "rate MUFU.RSQ", "queue of 24 LDG ..." all warps end together)."""
    reason = X[w + W_REASON]
    if X[P_SM90] and (reason == R_QUEUE or (reason == R_PIPE and X[X[w + W_PC] + I_UNIT] == U_XU)):
        return True
    return X[X[w + W_PC] + I_KIND] == K_PRODUCT and X[s + S_TENSORLAST] == w


@compiled
def products_left(X, w, open_):
    """The cycle when at most so many groups of a warp's products are left."""
    group = X[w + W_GROUPS] - open_ - 1
    if group < 0 or open_ >= GROUPS:
        return 0
    return X[w + W_GROUPRING + group % GROUPS]


# -- mbarriers --------------------------------------------------------------------------------------------------------


@compiled
def barrier_row(X, w, number):
    return X[T_MBARRIER] + ((X[w + W_SM] * X[P_BLOCK_SLOTS] + X[w + W_SLOT]) * X[P_MBARRIERS] + number) * MB_SIZE


@compiled
def tell(X, w, when):
    """The try-wait of a warp has its answer at `when`."""
    board = X[w + W_TRIED] - 1
    X[w + W_SB0 + board] = when
    if X[T_COUNT]:
        ring = X[T_COUNT] + (X[w + W_ID] * 6 + board) * COUNT_SIZE + 1
        for at in range(ring, ring + RING):
            if X[at] == NEVER:
                X[at] = when


@compiled
def comes(X, w, at, arrivals, nbytes, when):
    """Arrivals at a barrier and bytes that are announced (or have come, below 0), at `when`; True if it was the last of
    a phase."""
    X[at + MB_MISSING] -= arrivals
    X[at + MB_BYTES] += nbytes
    X[at + MB_LATEST] = max(X[at + MB_LATEST], when)
    if X[at + MB_MISSING] > 0 or X[at + MB_BYTES] != 0:
        return False
    X[at + MB_MISSING] = X[at + MB_EXPECTED]
    X[at + MB_PARITY] ^= 1
    X[at + MB_ENDED], X[at + MB_LATEST] = X[at + MB_LATEST], 0
    return True


@compiled
def barrier_record(X, w):
    shift = X[w + W_SHIFT]
    chosen = own_record(X, w)
    X[w + W_REC] += 1
    return variant(X, chosen, shift)


@compiled
def on_mbarrier(X, w, i, start):
    """An operation on mbarriers that begins at `start`: (its result, the barrier whose phase it ends or 0)."""
    record, how, done, ended = barrier_record(X, w), X[i + I_SERVICE], start + X[i + I_RESULT], 0
    first = X[record + 1]
    for line in range(first, first + X[record + 2] * LINE_SIZE, LINE_SIZE):
        at, what = barrier_row(X, w, X[line]), X[line + 1]
        arrivals, nbytes = what % ARRIVING, what // ARRIVING - MOST_BYTES
        if how == M_BEGIN:
            X[at + MB_PARITY], X[at + MB_BYTES], X[at + MB_ENDED], X[at + MB_LATEST] = 0, 0, 0, 0
            X[at + MB_EXPECTED] = X[at + MB_MISSING] = arrivals
        elif how == M_ARRIVE:
            if comes(X, w, at, arrivals, nbytes, start):
                ended = at
        elif how == M_WAIT:
            X[w + W_MBARRIER], X[w + W_TRIED] = at, X[i + I_WB] + 1
            if X[at + MB_PARITY] == arrivals:
                return NEVER, 0
            done = max(done, X[at + MB_ENDED] + X[i + I_RESULT])
    return done, ended


# -- copies -----------------------------------------------------------------------------------------------------------


@compiled
def bulk_mask(line, first, last):
    """The sectors of a line that lie between two bytes."""
    mask = 0
    for sector in range(LINE // SECTOR):
        begin = line * LINE + sector * SECTOR
        if begin < last and begin + SECTOR > first:
            mask |= 1 << sector
    return mask


@compiled
def lines_of_others_bulk(X, w):
    """The lines where the bulk copies of the other SMs, in step with this one, begin: the end of their table."""
    end, X[C_BLOCK] = X[T_AHEAD], X[w + W_BLOCK]
    for distance in range(1, min(X[P_MIRROR], X[P_BLOCKS] - X[w + W_BLOCK] - 1) + 1):
        block = X[w + W_BLOCK] + distance
        chosen, shift = record_of(X, w, block), X[T_SHIFT] + block * X[P_GROUPS]
        if chosen < 0:
            continue
        record = variant(X, chosen, shift)
        if X[record + 2] == 2:
            line = X[X[record + 1] + LINE_SIZE] + moved(X, chosen, shift)
            end = expect(X, end, line, 15, distance + distance * SPAN + SPAN * SPAN)
    return end


@compiled
def bulk_line(X, w, line, index, mask, start, end):
    """A line of a bulk copy on its way from L2, as `through_l2` has it for other accesses."""
    n = popcount4(mask)
    begin = book(X, B_PORTS + X[w + W_SM], n * X[P_PORT_TICKS], start)
    asking = min(X[P_MIRROR], X[P_BLOCKS] - X[w + W_BLOCK] - 1) + 1
    turn = X[C_ROTATE] % asking
    for at in range(X[T_AHEAD], end, AHEAD_SIZE):
        expect(X, at, X[at + A_LINE] + (index > 0), mask, X[at + A_SPAN])
    begin = begin_round(X, line, mask, begin)
    middle = before(X, end, turn)
    touch(X, X[T_AHEAD], middle, READ, begin)
    done = l2_read(X, line, mask, begin + X[C_ROUND] // TICK, X[w + W_BLOCK])
    touch(X, middle, end, READ, begin)
    end_round(X, begin)
    return done + X[X[T_SM] + X[w + W_SM] * M_SIZE + M_FAR] + (n - 1) * X[P_PORT_TICKS] // TICK


@compiled
def bulk_copy(X, w, i, start):
    """A bulk copy from global memory that begins at `start`: the barrier whose phase it ends, or 0."""
    shift = X[w + W_SHIFT]
    chosen = own_record(X, w)
    record = variant(X, chosen, shift)
    if X[record + 2] == 0:
        X[w + W_REC] += 1
        return 0
    first = X[record + 1]
    nbytes = X[first + 1]
    source = X[first + LINE_SIZE] * LINE + X[first + LINE_SIZE + 1] + moved(X, chosen, shift) * LINE
    engine = X[T_SM] + X[w + W_SM] * M_SIZE + M_BULK  # one for the SM, which takes copies one after another
    end = lines_of_others_bulk(X, w)
    last, line, ticks = start, source // LINE, max((start + X[P_BULKLAT]) * TICK, X[engine])
    while line * LINE < source + nbytes:
        mask = bulk_mask(line, source, source + nbytes)
        there = bulk_line(X, w, line, line - source // LINE, mask, ticks // TICK, end)
        last = max(last, there)
        ticks += X[P_BULK_TICKS]
        line += 1
    X[engine] = ticks
    X[C_ROTATE] += 1
    at = barrier_row(X, w, X[first])
    X[w + W_REC] += 1
    return at if comes(X, w, at, 0, -nbytes, last) else 0
