"""The accesses of a path to shared memory, in order, judged when the path ends: a load whose result is never read is
no error. And which registers hold the same value in all threads of a block."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ..isa import PT, RZ, Instruction
from .effects import Effects
from .words import Clash, Words

_REGISTERS = (1 << RZ) - 1
_OWN = ("SR_TID", "SR_LANEID", "SR_EQMASK", "SR_LTMASK", "SR_LEMASK", "SR_GTMASK", "SR_GEMASK", "SR_VIRTID",
        "SR_WARPID", "SR_CLOCK", "SR_INVOCATION", "SR_THREAD")  # special registers that threads or warps differ in


class Event(NamedTuple):
    """`does`: barrier, load, store, atomic, somewhere (a load from a word on) or unknown (a store anywhere);
    instruction `i` at step `at` of the path; words, threads, and what is stored (a number for each value known apart,
    -1: unknown)."""

    does: str
    i: int
    at: int
    words: np.ndarray
    threads: np.ndarray
    values: np.ndarray


_NOTHING = np.zeros(0, np.int64)


def event(does: str, i: int, at: int, words: np.ndarray = _NOTHING, threads: np.ndarray = _NOTHING,
          values: np.ndarray = _NOTHING) -> Event:
    return Event(does, i, at, words.astype(np.int32), threads.astype(np.int32), values)


def judged(events: Sequence[Event], trace: Sequence[int], effects: Sequence[Effects], ends: bool) -> tuple[
        list[Clash], set[int]]:
    """What is wrong along a path, and the loads of unknown addresses that were not decided. `ends`: the path ends where
    the kernel does, so that nothing is read later."""
    words = Words(max((int(e.words.max()) for e in events if len(e.words)), default=0) + 1)
    found: list[Clash] = []
    unread = _unread(trace, effects, {e.at for e in events if e.does == "load"}) if ends else set()
    for e in events:
        if e.does == "barrier":
            words.barrier()
        elif e.does == "unknown":
            words.unknown_store = True
        elif e.does == "somewhere":
            words.load_somewhere(int(e.words[0]), e.i)
        elif e.does == "load":
            found += [] if e.at in unread else words.load(e.words, e.threads, e.i)
        elif e.does == "store":
            found += words.store(e.words, e.threads, e.values, e.i)
        else:
            found += words.change(e.words, e.threads, e.i)
    return found + words.out_of_order(ends), words.undecided


def _unread(trace: Sequence[int], effects: Sequence[Effects], loads: Collection[int]) -> set[int]:
    """The loads of a path, by step, whose results are not read later."""
    live, found = 0, set()
    for at in range(len(trace) - 1, -1, -1):
        eff = effects[trace[at]]
        written = eff.writes & _REGISTERS
        if at in loads and not written & live:
            found.add(at)
        if eff.guard.index == PT and not eff.guard.negated:
            live &= ~written
        live |= eff.reads & _REGISTERS
    return found


class Uniform:
    """Registers written by one instruction only, from constants, parameters and registers of that kind: all threads
    that come there put the same value in. A number for each value known apart."""

    def __init__(self, code: Sequence[Instruction], effects: Sequence[Effects]) -> None:
        writers: dict[int, list[int]] = {}
        for i, eff in enumerate(effects):
            for n in range(eff.writes.bit_length()):
                if eff.writes >> n & 1:
                    writers.setdefault(n, []).append(i)
        self._numbers: dict[tuple[int, int], int] = {}
        own = {i for i, inst in enumerate(code) if _differs(inst)}
        kept = {n: found[0] for n, found in writers.items() if len(found) == 1 and found[0] not in own}
        while True:
            mask = sum(1 << n for n in kept)
            left = {n: i for n, i in kept.items() if not effects[i].reads & ~mask}
            if left == kept:
                break
            kept = left
        self._by = {n: i for n, i in kept.items() if n < RZ}
        self._changes = {i for i in self._by.values() if effects[i].reads}
        self._count: dict[int, int] = {}

    def start(self) -> None:
        """At the beginning of a path."""
        self._count = {}

    def step(self, i: int) -> None:
        """Instruction i is executed."""
        if i in self._changes:
            self._count[i] = self._count.get(i, 0) + 1

    def value(self, register: int) -> int:
        """The number of a register's value; 0: zero, -1: threads may differ."""
        if register == RZ:
            return 0
        i = self._by.get(register)
        if i is None:
            return -1
        return self._numbers.setdefault((register, self._count.get(i, 0)), len(self._numbers) + 1)


def _differs(inst: Instruction) -> bool:
    """Whether what an instruction gives may differ between threads, or between warps, for other reasons than its
    registers."""
    if inst.access is not None and inst.access.does != "load":
        return True
    if inst.cls.pipe == "tex" or (inst.access is not None and not inst.touches("constant")):
        return True
    if inst.row.spec.get("own") or inst.cc_reads():
        return True
    names = [inst.row.table.special_registers.get(op.value, "") for op in inst.operands if op.type == "special_reg"]
    return any(name.startswith(_OWN) or not name for name in names)

