# ruff: noqa: F403, F405
"""What an SM of sm_90 has of its own, compiled: register banks and reuse cache, the queue between a scheduler and the
memory pipes of the SM, and those pipes.

Reuse cache: an entry for each source slot and parity of register. A read by a slot of a register that the entry holds,
by the same warp, asks no bank; any read ends the entry or, with the flag, begins one. Writes leave it alone."""

from .caches import constant_line, l1_lookup
from .columns import *
from .jit import compiled
from .memory import moved, through_l2, variant


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
def room_sm90(X, s):
    """The cycle the scheduler's queue to the memory pipes has a free place."""
    return X[s + S_MIORING + X[s + S_MIOHEAD]]


@compiled
def leave_queue(X, s, cycles, now):
    """A memory instruction goes through its scheduler's queue, which lets one through in so many cycles: when it has
    left."""
    out = max(now + X[P_MIODELAY], X[s + S_MIOFREE])
    X[s + S_MIOFREE] = out + cycles
    X[s + S_MIORING + X[s + S_MIOHEAD]] = out
    X[s + S_MIOHEAD] += 1
    if X[s + S_MIOHEAD] == X[P_MIOQUEUE]:
        X[s + S_MIOHEAD] = 0
    return out


@compiled
def shared_sm90(X, w, i, phases, out):
    """An access of shared memory: (result there, operands read)."""
    pipe = X[T_SM] + X[w + W_SM] * M_SIZE + M_SHARED
    start = max(out, X[pipe])
    X[pipe] = start + phases
    X[C_SHARED_BUSY] += phases
    return start + phases - 1 + X[i + I_RESULT], start


@compiled
def global_sm90(X, w, i, record, shift, out):
    """An access of global or local memory through L1: (result there, operands read)."""
    pipe = X[T_SM] + X[w + W_SM] * M_SIZE + M_TEX0
    start = max(out, X[pipe])
    X[pipe] = start + X[record]
    X[C_TEX_BUSY] += X[record]
    done, first = start + X[record] - 1 + X[i + I_RESULT], X[record + 1]
    late = X[i + I_RESULT] - X[P_L1LAT]
    for index in range(X[record + 2]):
        at = first + index * LINE_SIZE
        line, mask, there = X[at] + shift, X[at + 1], 0
        missing, fill = mask, -1
        if X[i + I_CACHED]:
            fill, missing, there = l1_lookup(X, X[w + W_SM], line, mask, start)
        if missing:
            got = through_l2(X, w, i, index, line, missing, start)
            there = max(there, got)
            if fill >= 0:
                for sector in range(4):
                    if missing >> sector & 1:
                        X[fill + sector] = got
        done = max(done, there + late)
    if X[i + I_STORE]:
        X[w + W_STORES] = max(X[w + W_STORES], done)
    return done, start


@compiled
def memory_sm90(X, w, i, s, now):
    """(result there, operands read) of a memory instruction."""
    kind = X[i + I_KIND]
    out = leave_queue(X, s, X[i + I_INTERVAL], now)
    if kind == K_SHUFFLE:
        done, start = shared_sm90(X, w, i, X[i + I_LATEBY], out)
        return done, start + X[i + I_DN]
    if kind == K_UNIT:
        return out + X[i + I_RESULT], out + X[i + I_DN]
    shift = X[w + W_SHIFT]
    chosen = X[T_RECORD] + (X[w + W_STREAM] + X[w + W_REC]) * RECORD_SIZE
    record = variant(X, chosen, shift)
    if kind == K_SHARED:
        done, start = shared_sm90(X, w, i, X[record], out)
    elif kind == K_LDC:
        done, first = out, X[record + 1]
        for at in range(first, first + X[record + 2] * LINE_SIZE, LINE_SIZE):
            done = max(done, constant_line(X, X[w + W_SM], X[at] + moved(X, chosen, shift), out))
        done, start = done + X[i + I_RESULT] + max(X[record] - 1, 0), out
    else:
        done, start = global_sm90(X, w, i, record, moved(X, chosen, shift), out)
    X[w + W_REC] += 1
    return done, start + X[i + I_DN]
