# ruff: noqa: F403, F405
"""Operand fetch of one scheduler: the reuse cache and the four register banks, compiled.

Reuse cache: two entries for each of three source slots. Every operand read takes the least recently used entry of its
slot; a later read of the same register in the same slot by the same warp hits if the instruction that last touched the
entry had the reuse flag. Banks: an instruction enters operand fetch one per cycle and in order, at most two are in it,
each bank serves first come first served one register per cycle, and an instruction leaves when all is read and its
predecessor has left. While two are in it stall counts stand still (engine.py). These rules reproduce the CuAssembler
RegBank measurements but for what the ledger says.

Memory, texture and special-function instructions take no place in operand fetch, but ask the same banks for their
registers some cycles after issue (`read_cycles` of the instruction table); the bank serves them in their turn, before
what an arithmetic instruction asks for in the same cycle, which was issued later."""

from .columns import *
from .jit import compiled
from .machine import REGISTER_BANKS


@compiled
def touch(X, entry, key, flag):
    """Read an operand through its slot's two entries: 1 for a hit."""
    first = X[entry]
    X[entry] = key * 2 + flag
    if first >> 1 == key:
        return first & 1
    second = X[entry + 1]
    X[entry + 1] = first
    return second & 1 if second >> 1 == key else 0


@compiled
def bank_reads(X, i, s, warp):
    """Reads per bank of an ALU instruction, four counts of 8 bits, after the reuse cache; a register counts once."""
    counts, a, b, c = 0, -1, -1, -1
    flags, warp = X[i + I_REUSE], warp << 8
    r = X[i + I_R0]
    if r >= 0 and touch(X, s + S_REUSE, warp | r, flags & 1) == 0:
        a = r
        counts = 1 << ((r & REGISTER_BANKS - 1) << 3)
    r = X[i + I_R1]
    if r >= 0 and touch(X, s + S_REUSE + 2, warp | r, flags >> 1 & 1) == 0 and r != a:
        b = r
        counts += 1 << ((r & REGISTER_BANKS - 1) << 3)
    r = X[i + I_R2]
    if r >= 0 and touch(X, s + S_REUSE + 4, warp | r, flags >> 2 & 1) == 0 and r != a and r != b:
        c = r
        counts += 1 << ((r & REGISTER_BANKS - 1) << 3)
    for x in (X[i + I_X0], X[i + I_X1]):
        if x >= 0 and x != a and x != b and x != c:
            counts += 1 << ((x & REGISTER_BANKS - 1) << 3)
    return counts


@compiled
def forget(X, i, s, warp):
    """A write drops the reuse entries that hold the registers written."""
    first = X[i + I_D0]
    last = first + X[i + I_DN]
    for entry in range(s + S_REUSE, s + S_REUSE + 6):
        key = X[entry] >> 1
        if key >> 8 == warp and first <= key & 255 < last:
            X[entry] = -2


@compiled
def read_later(X, s, now, i):
    """An instruction issued at `now` will ask the banks for its registers."""
    if X[s + S_DUE] <= now:
        arrive(X, s, now)
    at = s + S_COMING0 + 2 * X[s + S_COMING]
    X[at], X[at + 1] = now + X[i + I_LATEBY], X[i + I_LATE]
    X[s + S_COMING] += 1
    X[s + S_DUE] = min(X[s + S_DUE], X[at])


@compiled
def arrive(X, s, now):
    """Let the coming reads of cycles up to `now` into the banks' queues."""
    coming, kept = X[s + S_COMING], s + S_COMING0
    X[s + S_DUE], X[s + S_COMING] = NEVER, 0
    for at in range(kept, kept + 2 * coming, 2):
        cycle, counts = X[at], X[at + 1]
        if cycle > now:
            X[kept], X[kept + 1] = cycle, counts
            X[s + S_DUE] = min(X[s + S_DUE], cycle)
            X[s + S_COMING] += 1
            kept += 2
            continue
        for bank in range(REGISTER_BANKS):
            n = counts >> (bank << 3) & 255
            if n:
                done = max(X[s + S_BANK0 + bank], cycle) + n
                X[s + S_BANK0 + bank] = done
                X[s + S_BUSY] = max(X[s + S_BUSY], done)


@compiled
def enter(X, s, now, counts):
    """Let an instruction into operand fetch at `now`, when the caller has seen that there is room."""
    if X[s + S_DUE] <= now:
        arrive(X, s, now)
    X[s + S_LEAVE2] = X[s + S_LEAVE1]
    if counts & 0x7E7E7E7E == 0 and X[s + S_BUSY] <= now:
        X[s + S_LEAVE1] = now + 1  # no bank is asked twice and none is busy: it leaves the next cycle
        return
    leave = max(X[s + S_LEAVE1], now + 1)
    busy = X[s + S_BUSY]
    for bank in range(REGISTER_BANKS):
        n = counts >> (bank << 3) & 255
        if n:
            done = max(X[s + S_BANK0 + bank], now) + n
            X[s + S_BANK0 + bank] = done
            leave = max(leave, done)
            busy = max(busy, done)
    X[s + S_BUSY] = busy
    X[s + S_LEAVE1] = leave
