# ruff: noqa: F403, F405
"""What an SM of sm_90 has of its own, compiled: register banks and reuse cache, the queue between a scheduler and the
memory pipes of the SM, those pipes, and code.

Banks: two, each gives a register a cycle. An arithmetic instruction passes a stage that reserves its reads within the
next P_WINDOW cycles, or holds what is behind it. Reuse cache: an entry for each source slot and parity of register. A
read by a slot of a register that the entry holds, by the same warp, asks no bank; any read ends the entry or, with the
flag, begins one. Writes leave it alone."""

from .beside import bulk_copy, on_mbarrier
from .caches import constant_line, small_lookup
from .columns import *
from .instep import moved, own_record, variant
from .jit import compiled
from .lsu import into_l1, leave_queue, send_all, send_own, send_stores, store_waits, through_pipe
from .results import bring

BEFORE_UNIFORM = 3  # cycles from IMAD.WIDE to what is uniform (probes "mix 1xUIADD3 1xIMAD.WIDE", "3xUIADD3")

@compiled
def bank_reads_sm90(X, i, s, warp):
    """Reads per bank of an arithmetic instruction, counts of 8 bits, after the reuse cache; a register counts once."""
    counts, kept, last, flags, warp = X[i + I_LATE], -1, -1, X[i + I_REUSE], warp << 8
    for slot in range(3):
        r = X[i + I_R0 + slot]
        if r < 0:
            continue
        entry = s + S_REUSE + 2 * slot + (r & 1)
        key = (warp | r) * 2
        hit = X[entry] == key + 1
        X[entry] = key + (flags >> slot & 1)
        if not hit and r != kept and r != last:
            counts += 1 << ((r & 1) << 3)
        kept, last = last, r
    return counts


@compiled
def enter_sm90(X, s, now, counts):
    """Let an instruction into operand fetch; S_LEAVE2 is when the next may follow."""
    at = now
    for bank in range(2):
        n = counts >> (bank << 3) & 255
        if n:
            at = max(at, X[s + S_BANK0 + bank] + n - X[P_WINDOW])
    for bank in range(2):
        n = counts >> (bank << 3) & 255
        if n:
            X[s + S_BANK0 + bank] = max(X[s + S_BANK0 + bank], at) + n
    X[s + S_LEAVE1] = X[s + S_LEAVE2] = at + 1


@compiled
def room_sm90(X, s):
    """The cycle the scheduler's queue to the memory pipes has a free place, or the next store leaves one."""
    free = X[s + S_MIORING + X[s + S_MIOHEAD]]
    return free if free < NEVER else X[X[T_SM] + X[s + S_SM] * M_SIZE + M_SENDS]


@compiled
def read_in_queue(X, s, cycles, now):
    """A memory instruction waits in its scheduler's queue and has its registers read there: when they have been."""
    out = max(now + X[P_MIODELAY], X[s + S_MIOFREE]) + cycles
    X[s + S_MIOFREE] = out
    return out


@compiled
def memory_sm90(X, w, i, s, now):
    """(result there, operands read) of a memory instruction; the latter below 0 where its scoreboard is taken."""
    kind = X[i + I_KIND]
    if kind in (K_LDC, K_UNIT):
        return constant_sm90(X, w, i, s, now)
    out = read_in_queue(X, s, X[i + I_INTERVAL], now)
    if kind == K_SHUFFLE:
        start, _ = through_pipe(X, w, s, S_PORT0, 1, 2, out, True)
        leave_queue(X, s, max(out, start - X[P_MIOLAG]))
        X[s + S_LEAVE2] = max(X[s + S_LEAVE2], now + X[i + I_X0])
        return start + X[i + I_RESULT], out + X[i + I_DN]
    if kind in (K_MBARRIER, K_BULK):
        return beside_memory(X, w, i, s, out)
    if kind == K_FENCE:  # goes behind what the scheduler has sent before (probes "4 STS.128, then FENCE", "... MEMBAR")
        others = X[X[T_SM] + X[w + W_SM] * M_SIZE + M_SHARED] > max(out, X[s + S_PORT0])
        start, _ = through_pipe(X, w, s, S_PORT0, 1, 2, out, True)
        leave_queue(X, s, max(out, start - X[P_MIOLAG]))
        return start + X[i + I_RESULT], (start if X[P_BESIDE] or others else out) + X[i + I_DN]
    others = False
    if kind == K_SHARED:
        others = X[X[T_SM] + X[w + W_SM] * M_SIZE + M_SHARED] > max(out, X[s + S_PORT0])  # they keep the pipe
        chosen = own_record(X, w)
        cycles = max(X[variant(X, chosen, X[w + W_SHIFT])] & (1 << BANKS) - 1, X[i + I_LATEBY])
        X[C_SHARED_BUSY] += cycles
        start, last = through_pipe(X, w, s, S_PORT0, cycles, 2 * cycles, out, True)
        done = last + X[i + I_RESULT]
        if not X[i + I_STORE] and not X[i + I_ATOMIC]:
            done = bring(X, w, i, s, done, cycles)
    elif X[i + I_STORE] and not X[i + I_ATOMIC]:
        store_waits(X, w, i, s, out, now)
        X[w + W_REC] += 1
        send_stores(X, X[w + W_SM], now)
        return out, -1
    else:
        if X[i + I_ATOMIC]:
            send_all(X, X[w + W_SM])
        send_own(X, s)
        start, done = into_l1(X, w, i, s, out)
        if X[i + I_ATOMIC]:
            X[w + W_STORES] = max(X[w + W_STORES], done)
        if kind == K_COPY:
            X[w + W_COPIES] = max(X[w + W_COPIES], done)
    leave_queue(X, s, max(out, start - X[P_MIOLAG]))
    X[w + W_REC] += 1
    if kind == K_SHARED and X[i + I_STORE] and (X[P_BESIDE] or others):
        out = start  # its registers are read by then: probes "queue STS n", "shared STS.128 ..." of 4 and 8 warps
    return done, out + X[i + I_DN]


@compiled
def beside_memory(X, w, i, s, out):
    """(result there, operands read) of an operation on mbarriers or a bulk copy. The barrier whose phase it ends wakes
    those that wait."""
    start, done, ended = out, out, 0
    if X[i + I_KIND] == K_MBARRIER:
        start, _ = through_pipe(X, w, s, S_PORT0, 1, 2, out, True)
        done, ended = on_mbarrier(X, w, i, start)
    else:
        ended = bulk_copy(X, w, i, out)
    leave_queue(X, s, max(out, start - X[P_MIOLAG]))
    X[C_ENDED] = ended
    return done, out + max(X[i + I_DN], 0)


@compiled
def constant_sm90(X, w, i, s, now):
    """Loads of constants and reads of special registers, which the SM serves one after another. Those take the pipe of
    shared memory as well (probe "mix 1xS2R 1xLDS")."""
    unit = X[T_SM] + X[w + W_SM] * M_SIZE + M_SREG
    start = max(now, X[unit])
    if X[i + I_X1] > 0:
        start, _ = through_pipe(X, w, s, S_PORT0, X[P_SRINTERVAL], X[P_SRINTERVAL], start, True)
    X[unit] = start + X[P_SRINTERVAL]
    done = start
    if X[i + I_KIND] == K_LDC:
        shift = X[w + W_SHIFT]
        chosen = own_record(X, w)
        record = variant(X, chosen, shift)
        first = X[record + 1]
        for at in range(first, first + X[record + 2] * LINE_SIZE, LINE_SIZE):
            done = max(done, constant_line(X, X[w + W_SM], X[at] + moved(X, chosen, shift), start))
        done += max(X[record] - 1, 0)
        X[w + W_REC] += 1
    elif X[i + I_SERVICE] > 0:
        done = constant_line(X, X[w + W_SM], X[i + I_SERVICE] - 1, start)
        done += X[P_CLAT] if done > start else 0
    leave_queue(X, s, start)
    return done + X[i + I_RESULT], start + X[i + I_DN]


@compiled
def meet(X, w, now):
    """How long a BSSY, a BSYNC or a branch that parts lanes waits for those of other warps: the SM takes one a cycle
    (probes "flow BSSY, more warps", "flow BSSY and BSYNC, more warps")."""
    at = X[T_SM] + X[w + W_SM] * M_SIZE + M_MEET
    begin = max(X[at], now)
    X[at] = begin + 1
    return begin - now


@compiled
def jump(X, w, now):
    """When a warp that has jumped can go on: the SM has so much for jumps, one that is close behind another of its
    scheduler waits, and where lanes part it takes as long as where they meet (probes "flow BRA over one, ...",
    "loop that lanes leave ...")."""
    s, at = X[w + W_SCHED], X[T_SM] + X[w + W_SM] * M_SIZE + M_JUMP
    begin = max(X[at], now * TICK)
    X[at] = begin + X[P_JUMPTICKS]
    ready = (begin + TICK - 1) // TICK + X[P_TAKEN]
    if now - X[s + S_JUMP] < X[P_JUMPNEAR]:
        ready += X[P_JUMPWAIT]
    X[s + S_JUMP] = now
    if X[w + W_PARTED]:
        ready += X[P_SPLIT]
    return ready


@compiled
def take_fma(X, i, s, now):
    """The pipes that multiply: two for FFMA, each of which takes one in two cycles, the first where it is free.
    Integers have the second, and those of halves both (probes "outer product beside IMAD.MOV after 8", "after 21",
    "mix 1xFFMA 1xIMAD 1xIADD3", "mix 3xFFMA 1xHFMA2")."""
    lite, heavy, unit = s + S_UNIT0 + U_LITE, s + S_UNIT0 + U_HEAVY, X[i + I_UNIT]
    if unit == U_NONE and X[lite] <= now:
        X[lite] = now + 2
    elif unit == U_NONE:
        X[heavy] = max(X[heavy], now + 2)
    elif unit == U_BOTH:
        X[lite] = X[heavy] = X[s + S_UNIT0 + U_FMA] = now + X[i + I_INTERVAL]
    elif unit == U_HEAVY and X[i + I_SERVICE]:
        X[s + S_UNIT0 + U_FMA] = now + X[i + I_SERVICE]
        X[s + S_UNIT0 + U_UNIFORM] = max(X[s + S_UNIT0 + U_UNIFORM], now + BEFORE_UNIFORM)


@compiled
def take_fmas(X, s, last, count):
    """`take_fma` of so many FFMA, one a cycle, the last of which has issued at `last`."""
    lite, heavy = s + S_UNIT0 + U_LITE, s + S_UNIT0 + U_HEAVY
    if (X[lite] <= last + 1 - count) == (count & 1):
        lite, heavy = heavy, lite
    X[heavy] = max(X[heavy], last + 2)
    if count > 1:
        X[lite] = max(X[lite], last + 1)


@compiled
def issue_xu(X, i, s, now):
    """(result there, operands read) of an instruction of XU, which takes it when the one before the last is through.
    Meanwhile no warp's arithmetic issues (probe "mix 7xFFMA 1xMUFU" of 8 and 16 warps)."""
    X[s + S_LEAVE2] = max(X[s + S_LEAVE2], now + X[i + I_X0])
    start = max(now + X[P_XUDELAY], X[s + S_XUEND])
    X[s + S_UNIT0 + U_XU] = X[s + S_XUEND]
    X[s + S_XUEND] = start + X[i + I_INTERVAL]
    return start + X[i + I_RESULT], start + X[i + I_DN]


@compiled
def code_line_sm90(X, s, line, now):
    """The cycle a line of code is with the scheduler. Behind a line that was missing the next ones stream in."""
    place = (s - X[T_SCHED]) // S_SIZE
    fill, hit = small_lookup(X, X[T_L0], X[P_L0SETS], X[P_L0WAYS], place, line, now)
    X[C_I_LOOKUPS] += 1
    if hit:
        X[C_I_HITS] += 1
        return X[fill]
    sets, ways = X[P_ISETS], X[P_IWAYS]
    second, there = small_lookup(X, X[T_ICACHE], sets, ways, X[s + S_SM], line, now)
    ticks = X[P_LINETICKS]
    if not there:  # a launch brings the first lines with it, one behind the other
        X[second] = now + X[P_L2LAT] if line >= X[P_CODEAHEAD] else line * X[P_CODEAHEAD_TICKS] // TICK
    begin = now * TICK + X[P_LINELAT] * TICK
    if line == X[s + S_CODELINE] + 1:
        begin = max(now * TICK, X[s + S_CODETIME] + ticks)
    begin = max(begin, X[second] * TICK)
    X[s + S_CODELINE], X[s + S_CODETIME] = line, begin
    X[fill] = (begin + TICK - 1) // TICK
    return X[fill]
