# ruff: noqa: F403, F405
"""The other SMs of a launch of which one is simulated, compiled: in step with it, whenever it goes to L2 they touch L2
with their own blocks' addresses. This is most of what the clock has to do, so that it is done in passes over a table of
their lines: what these are, which way of L2 each has, what becomes of its sectors. L2's image, far larger than the
caches of this processor, comes in time so.

Many of them ask for the same line in the same cycle, and all but the first of these change nothing. On sm_90, with its
many SMs, blocks are brought together when a block begins: of each group of accesses the list of those that move
differently."""

from .atomics import change_sectors
from .bandwidth import book_l2, l2_ticks
from .columns import *
from .dram import dram_room
from .jit import compiled, narrow, popcount4, prefetch
from .l2 import l2_empty, l2_fetch, l2_locate, l2_set, l2_soon, to_fetch, write_sectors
from .partial import absent
from .parts import come_across, l2_copy, l2_near, locate_copy, other_part, write_copy
from .rounds import asked_ticks
from .sharing import is_part, loaded_by_others, store_part

READ, WRITE, CHANGE = range(3)
AHEAD = 8  # cells: what follows in the next cache line of the processor that runs this


@compiled
def variant(X, record, shift):
    """The record that says what an access of a block does; `shift`: where the block's shifts are."""
    group = X[record + 3]
    return record if group >= 0 else X[record + 1] + X[shift - (group + 1) * SHIFT_SIZE + 1] * RECORD_SIZE


@compiled
def group_of(X, record):
    group = X[record + 3]
    return group if group >= 0 else -1 - group


@compiled
def moved(X, record, shift):
    """Lines by which a block's access lies beyond those of its record."""
    return X[shift + group_of(X, record) * SHIFT_SIZE]


# -- blocks that move alike -------------------------------------------------------------------------------------------


@compiled
def first_of(span):
    return span & SPAN - 1


@compiled
def last_of(span):
    return span >> SPAN_BITS & SPAN - 1


@compiled
def times_of(span):
    return span >> 2 * SPAN_BITS


@compiled
def alike(X, w, group):
    """Where the list of a group of a warp's block begins."""
    place = (X[w + W_SM] * X[P_BLOCK_SLOTS] + X[w + W_SLOT]) * (X[P_GROUPS] // SHIFT_SIZE) + group
    return X[T_ALIKE] + place * (1 + X[P_MIRROR] * ALIKE_SIZE)


@compiled
def same_motion(X, block, other, group):
    """Whether an access of a group is the same in two blocks."""
    first = X[T_SHIFT] + group * SHIFT_SIZE
    a, b = first + block * X[P_GROUPS], first + other * X[P_GROUPS]
    return X[X[T_CLASS] + block] == X[X[T_CLASS] + other] and X[a] == X[b] and X[a + 1] == X[b + 1]


@compiled
def found(X, block, group):
    """The row that tells where a block like this one is in the list, or a free one."""
    shift = X[T_SHIFT] + block * X[P_GROUPS] + group * SHIFT_SIZE
    key = (X[shift] * 31 + X[shift + 1]) * 31 + X[X[T_CLASS] + block]
    at = (key ^ key >> 9 ^ key >> 18) & FOUND - 1
    row = X[T_FOUND] + at * FOUND_SIZE
    while X[row] == X[C_FOUND] and not same_motion(X, block, X[row + 1], group):
        at = at + 1 & FOUND - 1
        row = X[T_FOUND] + at * FOUND_SIZE
    return row


@compiled
def bring_together(X, w):
    """Lists of the blocks of the other SMs, as a block of this one begins; `w`: a warp of it."""
    block = X[w + W_BLOCK]
    for group in range(X[P_GROUPS] // SHIFT_SIZE):
        X[C_FOUND] += 1
        first = alike(X, w, group)
        end = first + 1
        for distance in range(1, min(X[P_MIRROR], X[P_BLOCKS] - block - 1) + 1):
            row = found(X, block + distance, group)
            if X[row] == X[C_FOUND]:
                at = X[row + 2]
                span = X[at]
                X[at] = first_of(span) + distance * SPAN + (times_of(span) + 1) * SPAN * SPAN
            else:
                X[row], X[row + 1], X[row + 2] = X[C_FOUND], block + distance, end
                X[end] = distance + distance * SPAN + SPAN * SPAN
                X[end + 1] = X[X[T_SHIFT] + (block + distance) * X[P_GROUPS] + group * SHIFT_SIZE]
                end += ALIKE_SIZE
        X[first] = end


# -- their lines ------------------------------------------------------------------------------------------------------


@compiled
def expect(X, at, line, mask, span):
    """Write down a line that is asked for: the next row."""
    base, copy = l2_set(X, line), 0
    if X[P_L2_COPY_TICKS]:
        near = l2_near(X, base, X[C_BLOCK] + first_of(span))
        if near != base:
            copy = near
        elif times_of(span) > 1 and l2_near(X, base, X[C_BLOCK] + last_of(span)) != base:
            copy = -other_part(X, base)
    X[at + A_LINE], X[at + A_MASK], X[at + A_SPAN], X[at + A_SET], X[at + A_COPY] = line, mask, span, base, copy
    if at == X[T_AHEAD] or X[at - AHEAD_SIZE + A_LINE] != line:
        l2_soon(X, copy if copy > 0 else base)
    return at + AHEAD_SIZE


@compiled
def of_slot(X, stream, slot):
    """The record that a stream has in a slot, or below 0."""
    at = X[X[T_BYSLOT] + stream * X[P_SLOTS] + slot]
    return X[T_RECORD] + at * RECORD_SIZE if at >= 0 else -1


@compiled
def own_record(X, w):
    """The record of a warp's next access of memory."""
    return X[T_RECORD] + (X[w + W_STREAM] + X[w + W_REC]) * RECORD_SIZE


@compiled
def record_of(X, w, block):
    """What a warp of another block does where this one is: the record that stands for it, below 0 if it has ended."""
    number = X[X[T_CLASS] + block] * X[P_BLOCK_WARPS] + X[w + W_NUMBER]
    if X[T_SLOT]:
        slot = X[X[T_SLOT] + X[w + W_STREAM] + X[w + W_REC]]
        return of_slot(X, number, slot) if slot >= 0 else -1
    stream = X[T_RECPTR] + number
    ordinal = X[stream] + X[w + W_REC]
    return -1 if ordinal >= X[stream + 1] else X[T_RECORD] + ordinal * RECORD_SIZE


@compiled
def line_of(X, at, chosen, block, index, mask, span):
    """Write down the line of a block's access, if it has so many."""
    shift = X[T_SHIFT] + block * X[P_GROUPS]
    record = variant(X, chosen, shift)
    if index >= X[record + 2]:
        return at
    row = X[record + 1] + index * LINE_SIZE
    prefetch(X, chosen + AHEAD)  # of classes with few blocks these are streams of their own
    prefetch(X, row + AHEAD)
    return expect(X, at, X[row] + moved(X, chosen, shift), X[row + 1] & mask, span)


@compiled
def lines_of_each(X, w, index, mask):
    """The lines of every other SM: the end of the table."""
    end = X[T_AHEAD]
    for distance in range(1, min(X[P_MIRROR], X[P_BLOCKS] - X[w + W_BLOCK] - 1) + 1):
        block = X[w + W_BLOCK] + distance
        chosen = record_of(X, w, block)
        if chosen >= 0:
            end = line_of(X, end, chosen, block, index, mask, distance + distance * SPAN + SPAN * SPAN)
    return end


@compiled
def lines_of_group(X, w, group, index, mask):
    """The lines of the other SMs, whose access belongs to a group of blocks that move alike: the end of the table,
    below 0 if in blocks of another class it belongs to another group."""
    end, first, seen, chosen, line, sectors = X[T_AHEAD], alike(X, w, group), -1, -1, -1, 0
    classes = X[T_CLASS] + X[w + W_BLOCK]
    for at in range(first + 1, X[first], ALIKE_SIZE):
        span = X[at]
        if X[classes + first_of(span)] != seen:
            seen, chosen = X[classes + first_of(span)], record_of(X, w, X[w + W_BLOCK] + first_of(span))
            if chosen >= 0 and group_of(X, chosen) != group:
                return -1
            line = -1
            if chosen >= 0 and X[chosen + 3] >= 0 and index < X[chosen + 2]:
                row = X[chosen + 1] + index * LINE_SIZE
                line, sectors = X[row], X[row + 1] & mask
                prefetch(X, chosen + AHEAD)  # of classes with few blocks these are streams of their own
                prefetch(X, row + AHEAD)
        if line >= 0:
            end = expect(X, end, line + X[at + 1], sectors, span)
        elif chosen >= 0:
            end = line_of(X, end, chosen, X[w + W_BLOCK] + first_of(span), index, mask, span)
    return end


@compiled
def place_group(X, w, group):
    """Write down the blocks of a group's list whose access belongs to it by the distance of the first: the groups that
    the others' accesses belong to."""
    first, seen, chosen, further = alike(X, w, group), -1, -1, 0
    for at in range(first + 1, X[first], ALIKE_SIZE):
        block = X[w + W_BLOCK] + first_of(X[at])
        if X[X[T_CLASS] + block] != seen:
            seen, chosen = X[X[T_CLASS] + block], record_of(X, w, block)
        if chosen >= 0:
            its = group_of(X, chosen)
            further |= 1 << its
            if its == group:
                X[X[T_PLACE] + first_of(X[at])] = X[at]
    return further


@compiled
def lines_of_groups(X, w, mine, index, mask):
    """`lines_of_group` where classes differ in the group that an access belongs to. All are in the order of SMs."""
    end = X[T_AHEAD]
    further = place_group(X, w, mine)
    for group in range(X[P_GROUPS] // SHIFT_SIZE):
        if further >> group & 1 and group != mine:
            place_group(X, w, group)
    for at in range(X[T_PLACE], X[T_PLACE] + X[P_MIRROR] + 1):
        if X[at]:
            block = X[w + W_BLOCK] + first_of(X[at])
            end = line_of(X, end, record_of(X, w, block), block, index, mask, X[at])
            X[at] = 0
    return end


@compiled
def lines_of_others(X, w, i, index, mask):
    """The lines that the other SMs ask for while a warp has its access' line `index`: the end of the table."""
    X[C_BLOCK] = X[w + W_BLOCK]
    if not X[T_ALIKE] or X[i + I_ATOMIC]:
        return lines_of_each(X, w, index, mask)
    group = group_of(X, own_record(X, w))
    end = lines_of_group(X, w, group, index, mask)
    return lines_of_groups(X, w, group, index, mask) if end < 0 else end


# -- what becomes of them ---------------------------------------------------------------------------------------------


@compiled
def before(X, end, turn):
    """Where those lines end that SMs ask for before this one has its turn, which is behind that of so many others."""
    at = X[T_AHEAD]
    while at < end and first_of(X[at + A_SPAN]) <= turn:
        at += AHEAD_SIZE
    return at


@compiled
def how_many(X, end):
    """How many of the other SMs ask for the lines of the table up to `end`."""
    count = 0
    for at in range(X[T_AHEAD], end, AHEAD_SIZE):
        count += times_of(X[at + A_SPAN])
    return count


@compiled
def locate(X, first, end, what, begin):
    """Find the ways of L2 for the lines of the table from `first` to `end`."""
    Y = narrow(X)
    for at in range(first, end, AHEAD_SIZE):
        if what == READ and X[at + A_COPY] > 0:
            dirty, fill, fresh = locate_copy(X, X[at + A_LINE], X[at + A_COPY], begin)
        else:
            dirty, fill, fresh = l2_locate(X, X[at + A_LINE], X[at + A_SET], begin, what != READ)
        prefetch(Y, fill)
        if fresh or what != READ:
            prefetch(Y, dirty)
        X[at + A_DIRTY], X[at + A_FILL] = -1 - dirty if fresh else dirty, fill


@compiled
def touch(X, first, end, what, begin):
    """Lines of the table from `first` to `end` are read, written or changed."""
    locate(X, first, end, what, begin)
    if what == READ:
        read(X, first, end, begin)
        return
    number, cell = 0, -1
    for at in range(first, end, AHEAD_SIZE):
        dirty, fill, mask = X[at + A_DIRTY], X[at + A_FILL], X[at + A_MASK]
        if dirty < 0:
            dirty = -1 - dirty
            number, cell = l2_empty(X, dirty, fill, begin, number, cell)
        if what == WRITE and X[P_SHARING] and is_part(mask):
            store_part(X, dirty, fill, mask, begin)
            X[C_L2_STORED] += popcount4(mask)
        elif what == WRITE:
            write_sectors(X, dirty, fill, mask, begin)
            if X[P_SM90]:
                X[C_L2_STORED] += popcount4(mask)
            if X[at + A_COPY] > 0:
                write_copy(X, X[at + A_LINE], X[at + A_COPY], mask, begin)
        else:
            change_sectors(X, X[at + A_LINE], dirty, fill, mask, begin)


@compiled
def read(X, first, end, begin):
    """Lines that have been located are read. All but the first SM that asks for a line find what that one fetches."""
    number, cell, asked, missed = 0, -1, 0, 0
    for at in range(first, end, AHEAD_SIZE):
        fill, mask = X[at + A_FILL], X[at + A_MASK]
        if X[at + A_DIRTY] < 0:
            number, cell = l2_empty(X, -1 - X[at + A_DIRTY], fill, begin, number, cell)
        if X[P_BESIDE]:
            X[C_ROUND] += asked_ticks(X, X[at + A_LINE], mask)
        asked += popcount4(mask) * times_of(X[at + A_SPAN])
        missing = absent(X, fill) & mask
        if X[at + A_COPY] > 0:
            if missing:
                missed += come_across(X, X[at + A_LINE], X[at + A_SET], fill, missing, begin)
                cell = -1
            continue
        if missing:
            number, cell = dram_room(X, number, cell, begin)
            missed += popcount4(missing)
            l2_fetch(X, X[at + A_LINE], fill, to_fetch(X, fill, missing), begin, number, cell)
        if X[at + A_COPY] < 0:
            copy = l2_copy(X, X[at + A_LINE], -X[at + A_COPY], begin)
            missing = absent(X, copy) & mask
            if missing:
                come_across(X, X[at + A_LINE], X[at + A_SET], copy, missing, begin)
                cell = -1
        if X[P_SHARING]:
            loaded_by_others(X, fill)
    X[C_L2_SECTORS] += asked
    X[C_L2_HITS] += asked - missed


@compiled
def touch_again(X, end, line, begin, turn):
    """The line of this SM, which an SM had asked for before it, is asked for by one behind it."""
    for at in range(X[T_AHEAD], end, AHEAD_SIZE):
        if X[at + A_LINE] == line and last_of(X[at + A_SPAN]) > turn:
            l2_locate(X, line, X[at + A_SET], begin, False)


@compiled
def touch_beyond(X, w, i, index, what, now):
    """Lines that the other SMs' accesses have beyond so many, which this one's has."""
    end = lines_of_others(X, w, i, index, -1)
    while end > X[T_AHEAD]:
        for at in range(X[T_AHEAD], end, AHEAD_SIZE):
            n = X[at + A_MASK] >> COST & COSTS if what == WRITE else popcount4(X[at + A_MASK])
            ticks = l2_ticks(X, n, what == WRITE) * times_of(X[at + A_SPAN])
            book_l2(X, B_L2_STORES if what == WRITE else B_L2, ticks, now)
        touch(X, X[T_AHEAD], end, what, now)
        index += 1
        end = lines_of_others(X, w, i, index, -1)


@compiled
def touch_left(X, w, now):
    """A warp has ended: what those of the other SMs load and store that it does not have itself."""
    own, last = X[X[T_CLASS] + X[w + W_BLOCK]] * X[P_BLOCK_WARPS] + X[w + W_NUMBER], X[P_BLOCKS] - X[w + W_BLOCK] - 1
    for slot in range(X[P_SLOTS]):
        if of_slot(X, own, slot) >= 0:
            continue
        index, end = 0, X[T_AHEAD] + 1
        while end > X[T_AHEAD]:
            end = X[T_AHEAD]
            for distance in range(1, min(X[P_MIRROR], last) + 1):
                block = X[w + W_BLOCK] + distance
                chosen = of_slot(X, X[X[T_CLASS] + block] * X[P_BLOCK_WARPS] + X[w + W_NUMBER], slot)
                if chosen >= 0:
                    end = line_of(X, end, chosen, block, index, -1, distance + distance * SPAN + SPAN * SPAN)
            touch(X, X[T_AHEAD], end, READ if slot < X[P_LOADSLOTS] else WRITE, now)
            index += 1
