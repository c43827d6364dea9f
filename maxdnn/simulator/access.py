"""Lane addresses to what the memory pipes see: shared-memory phases, cache lines with sector masks, request counts.
Compiled, since a launch's traces have millions of rows.

An address row holds the byte address of each of 32 lanes, as int64; NO_LANE (all ones) for a lane that did not take
part."""

from ..emulator.trace import ARRIVALS, MORE, MORE_BITS
from .columns import ARRIVING, BANKS, COST, EACH, FILLED, K_BULK, K_LDC, K_MBARRIER, K_SHARED, MOST_BYTES, TURNS, WORK
from .jit import compiled
from .machine import CONSTANT_LINE, LINE, SECTOR, SHARED_BANKS

NO_LANE = -1
MERGES, OF_SM90, ADDS, PACKS, TWICE, SPINS = 1, 2, 4, 8, 16, 32
"""Rules: parts of an access of shared memory that agree share a phase; L1 of sm_90; lanes' arrivals at an mbarrier add
up; a store moves the bytes that it writes, not whole sectors; an
atomic takes each sector twice, since it has two operands; a compare-and-swap of shared memory lets a lane through for
each bank and does not wait for the others."""
TAGS = 4  # quarters of L1's tags, of which each finds a line a cycle
MOST_LINES = 64  # of one row: 32 lanes, each across the border of two lines


@compiled
def ways(row, start, stop, words, atomic, used, seen):
    """Passes for lanes start..stop-1 that read `words` words each: the largest number of different words in one bank;
    of atomics every lane counts. `used`, `seen`: scratch, a cell and MOST_LINES cells for
    each bank."""
    used[:] = 0
    most = 0
    for lane in range(start, stop):
        if row[lane] == NO_LANE:
            continue
        for word in range(row[lane] // 4, row[lane] // 4 + words):
            bank = word % SHARED_BANKS
            new = True
            for k in range(used[bank]):
                if seen[bank, k] == word and not atomic:
                    new = False
                    break
            if new:
                seen[bank, used[bank]] = word
                used[bank] += 1
                most = max(most, used[bank])
    return most


@compiled
def neighbours_agree(row, start, stop):
    """Whether every lane that takes part reads the address of the lane beside it, or every one that of the lane two
    on."""
    for step in (1, 2):
        agree = True
        for lane in range(start, stop):
            if row[lane] != NO_LANE and row[start + (lane - start ^ step)] != row[lane]:
                agree = False
                break
        if agree:
            return True
    return False


@compiled
def shared_phases(row, nbytes, pair_merge, atomic, used, seen):
    """Cycles one shared-memory access of `nbytes` (4, 8, 16) per lane occupies the 32 banks.

    32-bit: one phase per conflict way. 64-bit: two half warps, 128-bit: four quarter warps, each with its own ways.
    With `pair_merge`, two neighbouring parts are served as one when all their lanes agree in pairs (lane with lane ^ 1,
    or lane with lane ^ 2), the vendor's rule for later architectures."""
    parts = max(1, nbytes // 4)
    per = 32 // parts
    phases = 0
    step = 2 if parts > 1 and pair_merge and not atomic else 1
    for at in range(0, 32, per * step):
        if step == 2 and not neighbours_agree(row, at, at + 2 * per):
            phases += ways(row, at, at + per, parts, atomic, used, seen)
            phases += ways(row, at + per, at + 2 * per, parts, atomic, used, seen)
        else:
            phases += ways(row, at, at + per * step, parts, atomic, used, seen)
    return phases


@compiled
def put_line(lines, first, count, line, mask):
    """Add sectors of a line to the ascending ones from `first` on: how many there are now."""
    at = first + count
    while at > first and lines[at - 1, 0] > line:
        at -= 1
    if at > first and lines[at - 1, 0] == line:
        lines[at - 1, 1] |= mask
        return count
    for k in range(first + count, at, -1):
        lines[k, 0], lines[k, 1] = lines[k - 1, 0], lines[k - 1, 1]
    lines[at, 0], lines[at, 1] = line, mask
    return count + 1


@compiled
def cache_lines(row, nbytes, lines, first):
    """128-byte lines touched, written from lines[first] on in ascending order, each with the mask of its four 32-byte
    sectors: how many."""
    count = 0
    for lane in range(32):
        if row[lane] == NO_LANE:
            continue
        low, high = row[lane] // SECTOR, (row[lane] + nbytes - 1) // SECTOR
        count = put_line(lines, first, count, low * SECTOR // LINE, 1 << low % 4)
        if high != low:
            count = put_line(lines, first, count, high * SECTOR // LINE, 1 << high % 4)
    return count


@compiled
def is_first(row, start, lane, unit):
    """Whether no lane from `start` on and before this one has an address in the same `unit` bytes."""
    for before in range(start, lane):
        if row[before] != NO_LANE and row[before] // unit == row[lane] // unit:
            return False
    return True


@compiled
def global_requests(row, nbytes):
    """Requests a global or local access is split into before the tags: 8 lanes each up to 32 bit, 4 at 64, 2 at 128
    (an NVIDIA engineer on the developer forum, "Pascal L1 cache"), each needing a cycle per four lines it touches."""
    per = 8 if nbytes <= 4 else 4 if nbytes == 8 else 2
    total = 0
    for at in range(0, 32, per):
        tags = 0
        for lane in range(at, at + per):
            tags += row[lane] != NO_LANE and is_first(row, at, lane, LINE)
        total += (tags + 3) // 4
    return total


@compiled
def quarter_of(line):
    """Which quarter of L1's tags has a line: two parities of its number's bits (probes "LDG, words of 128 KiB", and
    "STG, 8 lines, bits ... and ..." of bits up to 19; those above: stores to lines anywhere in 32 GiB)."""
    return parity(line & 0x15EF7AB5) + 2 * parity(line & 0x0EBAD5DA)


@compiled
def parity(bits):
    bits ^= bits >> 16
    bits ^= bits >> 8
    bits ^= bits >> 4
    return 0x6996 >> (bits & 15) & 1


@compiled
def tags_and_banks(row, nbytes, used, seen):
    """Cycles of an access of sm_90 in L1, which finds a line in each quarter of its tags a cycle, and above BANKS those
    that it reads the 32 banks for."""
    quarters = 0  # eight bits each
    for lane in range(32):
        if row[lane] != NO_LANE and is_first(row, 0, lane, LINE):
            quarters += 1 << (quarter_of(row[lane] // LINE) << 3)
    most = 0
    for quarter in range(TAGS):
        most = max(most, quarters >> (quarter << 3) & 255)
    return most | shared_phases(row, nbytes, False, False, used, seen) << BANKS


@compiled
def add_turns(row, lines, first, count):
    """Add to the mask of each line of an atomic, above its sectors, the most lanes that share an address in it: they
    are served one after another."""
    for lane in range(32):
        if row[lane] == NO_LANE:
            continue
        turns = 1
        for before in range(lane):
            if row[before] == row[lane]:
                turns += 1
        for k in range(first, first + count):
            if lines[k, 0] == row[lane] // LINE:
                lines[k, 1] = lines[k, 1] & 15 | max(lines[k, 1] >> TURNS, turns) << TURNS


@compiled
def add_cost(row, lines, first, count, twice):
    """Add to the mask of each line of an atomic the cycles that it takes on the way to L2: one where it has one lane,
    else one more than sectors."""
    for k in range(first, first + count):
        lanes, sectors = 0, 0
        for lane in range(32):
            lanes += row[lane] != NO_LANE and row[lane] // LINE == lines[k, 0]
        for sector in range(LINE // SECTOR):
            sectors += lines[k, 1] >> sector & 1
        lines[k, 1] |= (1 if lanes == 1 else 1 + sectors * (2 if twice else 1)) << COST


@compiled
def add_work(row, lines, first, count, twice):
    """Add to the mask of each line of an atomic what L2 does for it: an operation for each sector, or as many as lanes
    share a word of it, half as many more for two operands where they have more than a word of the line."""
    for k in range(first, first + count):
        operations, lanes, words = 0, 0, 0
        for sector in range(LINE // SECTOR):
            most = 0
            for lane in range(32):
                if row[lane] == NO_LANE or row[lane] // SECTOR != lines[k, 0] * (LINE // SECTOR) + sector:
                    continue
                turns = 1
                for before in range(lane):
                    turns += row[before] == row[lane]
                most, lanes, words = max(most, turns), lanes + 1, words + (turns == 1)
            operations += most
        if twice and words > 1:
            operations += (operations + 1) // 2
        lines[k, 1] |= operations << WORK
        if lanes == LINE // 4 and lines[k, 1] >> TURNS & 63 == 1:
            lines[k, 1] |= FILLED


@compiled
def add_filled(row, nbytes, lines, first, count):
    """Add to the mask of each line of a store, above its sectors, how many words of it are written, and the cycles that
    it takes on the way to L2: one for each sector, one more where bytes of them are left out; above these whether none
    are, and the words of each sector."""
    for k in range(first, first + count):
        written, touched, each = 0, 0, 0
        for sector in range(LINE // SECTOR):
            start, of_sector = lines[k, 0] * LINE + sector * SECTOR, 0
            for lane in range(32):
                if row[lane] != NO_LANE:
                    of_sector += max(0, min(row[lane] + nbytes, start + SECTOR) - max(row[lane], start))
            touched += lines[k, 1] >> sector & 1
            written += min(of_sector, SECTOR)
            each |= min(of_sector, SECTOR) // 4 << 4 * sector
        lines[k, 1] |= written // 4 << TURNS | touched + (written < touched * SECTOR) << COST | each << EACH
        lines[k, 1] |= FILLED * (written == touched * SECTOR)


@compiled
def constant_lines(row, lines, first):
    """Lines of a constant load (bank << 16 | offset), in ascending order, and its distinct addresses, which are served
    one after another: (lines, addresses)."""
    count, serial = 0, 0
    for lane in range(32):
        if row[lane] == NO_LANE:
            continue
        serial += is_first(row, 0, lane, 1)
        count = put_line(lines, first, count, row[lane] // CONSTANT_LINE, 1)
    return count, serial


@compiled
def barriers_of(row, adds, lines, first):
    """mbarriers that lanes' words name (emulator/trace.py), each once, with what is done to it: how many."""
    count = 0
    for lane in range(32):
        if row[lane] == NO_LANE:
            continue
        barrier, arrivals = (row[lane] & (1 << ARRIVALS) - 1) // 8, row[lane] >> ARRIVALS & (1 << MORE - ARRIVALS) - 1
        nbytes, at = (row[lane] >> MORE) - (1 << MORE_BITS - 1), first
        while at < first + count and lines[at, 0] != barrier:
            at += 1
        if at == first + count:
            lines[at, 0], lines[at, 1] = barrier, arrivals + ARRIVING * (nbytes + MOST_BYTES)
            count += 1
        elif adds:
            lines[at, 1] += arrivals + ARRIVING * nbytes
    return count


@compiled
def bulk_of(row, lines, first):
    """A bulk copy: its mbarrier and bytes, then the line where it begins and the byte in there."""
    if row[0] == NO_LANE:
        return 0
    lines[first, 0], lines[first, 1] = (row[2] - row[0]) // 8, row[1] - row[0]
    lines[first + 1, 0], lines[first + 1, 1] = row[0] // LINE, row[0] % LINE
    return 2


@compiled
def same_row(a, b):
    for lane in range(32):  # noqa: SIM110 - compiled
        if a[lane] != b[lane]:
            return False
    return True


@compiled
def phases_of(row, index, nbytes, pair_merge, atomic, memory, rows, used, seen):
    """Phases of a shared access of instruction `index`, which often repeats one of its last two rows (`memory`: which
    to forget next, then their phases)."""
    for k in range(2):
        if memory[index, 1 + k] >= 0 and same_row(rows[index, k], row):
            return memory[index, 1 + k]
    k = memory[index, 0]
    memory[index, 0] = 1 - k
    rows[index, k, :] = row
    memory[index, 1 + k] = shared_phases(row, nbytes, pair_merge, atomic, used, seen)
    return memory[index, 1 + k]


@compiled
def reduce_rows(addresses, indices, kinds, nbytes, atomic, shift, rules, records, lines, memory, rows, used, seen):
    """Records of memory accesses. addresses: (n, 32); indices: (n,) the instruction of each; kinds, nbytes, atomic,
    rules (MERGES, OF_SM90): per instruction; `shift`: bytes added to every address. records: (n, 3) gets
    service cycles, first line, lines; `lines`:
    (at least MOST_LINES x n, 2) line numbers and sector masks. The rest is scratch (Reducer). Number of lines
    written."""
    total = 0
    row = addresses[0].copy()
    for n in range(len(indices)):
        index = indices[n]
        for lane in range(32):
            a = addresses[n, lane]
            row[lane] = a if a == NO_LANE else a + shift
        count = 0
        if kinds[index] == K_SHARED:
            merges = rules[index] & MERGES
            service = 1
            if not rules[index] & SPINS:
                service = phases_of(row, index, nbytes[index], merges, atomic[index], memory, rows, used, seen)
        elif kinds[index] == K_LDC:
            count, service = constant_lines(row, lines, total)
        elif kinds[index] == K_MBARRIER:
            count, service = barriers_of(row, rules[index] & ADDS, lines, total), 1
        elif kinds[index] == K_BULK:
            count, service = bulk_of(row, lines, total), 0
        else:
            sm90 = rules[index] & OF_SM90
            service = (tags_and_banks(row, nbytes[index], used, seen) if sm90
                       else global_requests(row, nbytes[index]))
            count = cache_lines(row, nbytes[index], lines, total)
            if atomic[index]:
                add_turns(row, lines, total, count)
                if sm90:
                    add_cost(row, lines, total, count, rules[index] & TWICE)
                    add_work(row, lines, total, count, rules[index] & TWICE)
            elif rules[index] & PACKS:
                add_filled(row, nbytes[index], lines, total, count)
        records[n, 0], records[n, 1], records[n, 2] = service, total, count
        total += count
    return total
