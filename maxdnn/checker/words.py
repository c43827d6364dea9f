"""Shared memory word by word along one path: who stored and loaded what since the last block barrier."""

from dataclasses import dataclass

import numpy as np

WORDS = 1 << 16  # 256 KiB, more than a block of any chip has
_NONE, _MANY = -1, -2


@dataclass(frozen=True)
class Clash:
    """Two accesses in the wrong order or in none: instruction indices, the earlier one first."""

    kind: str
    earlier: int
    later: int


def _first(found: np.ndarray) -> int:
    return int(found[0])


class Words:
    """`stored`, `loaded`, `changed` (by an atomic operation): a bit for each warp that did since the last barrier;
    `value`: a number for what all stores since then put there, where that is known and the same; `phase`, `lane`,
    `writer`: of the last store."""

    def __init__(self, size: int = WORDS) -> None:
        self.stored, self.loaded, self.changed = (np.zeros(size, np.uint64) for _ in range(3))
        self.value = np.full(size, _NONE)
        self.phase, self.lane, self.writer = (np.full(size, _NONE) for _ in range(3))
        self.loader = np.full(size, _NONE)
        self.early_lane, self.early_loader = np.full(size, _NONE), np.full(size, _NONE)
        self.order = Order(size)
        self.now = 0
        self.unknown_store = False
        self.somewhere: list[tuple[int, int]] = []  # loads since the last barrier: from which word on, instruction
        self.undecided: set[int] = set()  # those of them that may have met a store

    def barrier(self) -> None:
        """A barrier of the whole block."""
        self.now += 1
        self.somewhere.clear()
        for bits in (self.stored, self.loaded, self.changed):
            bits[:] = 0
        for each in (self.value, self.loader, self.early_lane, self.early_loader):
            each[:] = _NONE
        self.order.barrier()

    def load(self, words: np.ndarray, threads: np.ndarray, i: int) -> list[Clash]:
        """Threads read words; what is wrong with that."""
        bits = np.uint64(1) << (threads // 32).astype(np.uint64)
        others, own = (self.stored[words] | self.changed[words]) & ~bits, self.stored[words] & bits
        # the same value by all, this warp among them: it comes out the same in any order
        race = (others != 0) & ~((self.value[words] >= 0) & (own != 0))
        np.bitwise_or.at(self.loaded, words, bits)
        self.loader[words] = i
        if not self.unknown_store:
            self._note_early(words, threads, own != 0, i)
        self.order.load(words, threads, i, self.phase[words] == _NONE, (own != 0) & (self.lane[words] != threads),
                        self.stored[words] == 0, self.writer[words])
        return [Clash("shared-race", _first(self.writer[words[race]]), i)] if race.any() else []

    def load_somewhere(self, first: int, i: int) -> None:
        """Threads read words from `first` on, nobody knows which."""
        self.order.load_somewhere(first)
        if (self.stored[first:] | self.changed[first:]).any():
            self.undecided.add(i)
        self.somewhere.append((first, i))

    def _note_early(self, words: np.ndarray, threads: np.ndarray, fresh: np.ndarray, i: int) -> None:
        """Remember the words that some lanes of a warp read from before the last barrier, or before any store, while
        others of the same warp read what its other lanes have stored since: a store of the warp that fills them
        later in the phase comes too late."""
        exchanged = fresh & (self.lane[words] != threads)
        warps = threads // 32
        mixed = np.isin(warps, np.unique(warps[exchanged]))
        early = ~fresh & (self.stored[words] == 0) & (mixed | (self.phase[words] == _NONE))
        if early.any():
            where, lanes = words[early], threads[early]
            several = (self.early_lane[where] != _NONE) & (self.early_lane[where] != lanes)
            self.early_lane[where] = np.where(several, _MANY, lanes)
            again = np.bincount(where)[where] > 1
            self.early_lane[where[again]] = _MANY
            self.early_loader[where] = i

    def store(self, words: np.ndarray, threads: np.ndarray, new: np.ndarray, i: int) -> list[Clash]:
        """Threads write words, `new` what if that is known; what is wrong with that."""
        bits = np.uint64(1) << (threads // 32).astype(np.uint64)
        same = (new >= 0) & (self.value[words] == new)
        found = []
        reused = (self.loaded[words] & ~bits != 0) & ~(same & (self.loaded[words] & ~self.stored[words] == 0))
        changed = self.changed[words] & ~bits != 0
        if changed.any():
            found.append(Clash("shared-reuse", _first(self.writer[words[changed]]), i))
        if reused.any():
            found.append(Clash("shared-reuse", _first(self.loader[words[reused]]), i))
        twice = (self.stored[words] & ~bits != 0) & ~same
        if twice.any():
            found.append(Clash("shared-order", _first(self.writer[words[twice]]), i))
        late = (self.early_loader[words] != _NONE) & (self.early_lane[words] != threads)
        late &= self.loaded[words] & bits != 0
        if late.any():
            found.append(Clash("shared-late", _first(self.early_loader[words[late]]), i))
        self.order.store(words, threads, i, self.loaded[words] == bits, self.stored[words] == bits, self.writer[words])
        self._put(words, threads, bits, new, i)
        return found

    def out_of_order(self, ends: bool) -> list[Clash]:
        """What lanes of one warp did in another order than the words were meant for, known when a path is over."""
        return [] if self.unknown_store else self.order.found(ends)

    def change(self, words: np.ndarray, threads: np.ndarray, i: int) -> list[Clash]:
        """Threads change words by atomic operations, which do not disturb each other; what is wrong with that."""
        bits = np.uint64(1) << (threads // 32).astype(np.uint64)
        found = []
        for kind, before, by in (("shared-race", self.stored, self.writer), ("shared-reuse", self.loaded, self.loader)):
            clash = before[words] & ~bits != 0
            if clash.any():
                found.append(Clash(kind, _first(by[words[clash]]), i))
        self._meet(words)
        self.order.forget(words)
        np.bitwise_or.at(self.changed, words, bits)
        self.value[words], self.writer[words] = _NONE, i
        return found

    def _meet(self, words: np.ndarray) -> None:
        """Words are written: a load that may have come from there is undecided."""
        if self.somewhere and len(words):
            last = int(words.max())
            self.undecided |= {i for first, i in self.somewhere if first <= last}

    def _put(self, words: np.ndarray, threads: np.ndarray, bits: np.ndarray, new: np.ndarray, i: int) -> None:
        self._meet(words)
        first = self.stored[words] == 0
        kept = np.where(first | (self.value[words] == new), new, _NONE)
        self.value[words] = kept
        uneven = self.value[words] != kept  # threads of this store disagree on one word
        self.value[words[uneven]] = _NONE
        np.bitwise_or.at(self.stored, words, bits)
        self.phase[words], self.lane[words], self.writer[words] = self.now, threads, i
        self.early_lane[words], self.early_loader[words] = _NONE, _NONE


class Order:
    """Lanes of one warp that exchange words without a barrier do so by the order of their instructions alone. A load
    came too early where it found what was left over (nothing, what had been read in an earlier phase or by the same
    lane, what lay there before the warp began to exchange) and another lane stored there behind it what nobody ever
    read. The two need not be seen on one word or in one turn of a loop: the first load of a pair finds what is left
    over, the last store is the one that nobody reads. Where the load found nothing odd, a store behind it of which no
    word is ever read is a doubt. A store came too early where it overwrote what nobody had read, and what it stored was
    then read twice by one lane."""

    def __init__(self, size: int) -> None:
        # of the last load of a word in this phase, by what and by which lane, and whether it found what was left over
        # for sure, or if the warp exchanges words
        self.loader, self.lane, self.stale, self.old = (np.full(size, _NONE) for _ in range(4))
        self.reader, self.reads = np.full(size, _NONE), np.full(size, _NONE)  # since the last store: lane, first phase
        self.awaiting, self.unread = np.full(size, _NONE), np.full(size, _NONE)  # a pair whose store nobody has read
        self.lost, self.loser = np.full(size, _NONE), np.full(size, _NONE)  # a store overwritten unread, and by what
        self.now = 0
        self.exchanging: set[int] = set()  # warps, since the last barrier
        self._left_over: set[tuple[int, int]] = set()  # (load, store)
        self._never_read: set[tuple[int, int]] = set()
        self._overwritten: set[tuple[int, int]] = set()  # (store, store)
        self._read: set[int] = set()  # stores of which some word was read

    def barrier(self) -> None:
        self.now += 1
        self.exchanging.clear()
        for each in (self.loader, self.lane, self.stale, self.old, self.lost):
            each[:] = _NONE

    def load(self, words: np.ndarray, threads: np.ndarray, i: int, never: np.ndarray, exchanged: np.ndarray,
             before: np.ndarray, writers: np.ndarray) -> None:
        """`never`: stored; `exchanged`: stored by another lane of the warp in this phase; `before`: before it;
        `writers`: by what last."""
        self._read.update(writers.tolist())
        again = self.reader[words] == threads
        stale = never | again | ((self.reads[words] != _NONE) & (self.reads[words] < self.now))
        lost = again & (self.lost[words] != _NONE)
        self._overwritten.update(zip(self.lost[words[lost]].tolist(), self.loser[words[lost]].tolist(), strict=True))
        self.exchanging.update((threads[exchanged] // 32).tolist())
        several = np.bincount(words)[words] > 1
        several |= (self.loader[words] != _NONE) & (self.lane[words] != threads)
        self.lane[words] = np.where(several, _MANY, threads)
        self.loader[words], self.stale[words], self.old[words] = i, stale, before
        first = self.reads[words] == _NONE
        self.reader[words] = np.where(first & ~several, threads, np.where(again, threads, _MANY))
        self.reads[words] = np.where(first, self.now, self.reads[words])
        self.awaiting[words] = _NONE

    def load_somewhere(self, first: int) -> None:
        self.awaiting[first:] = _NONE

    def store(self, words: np.ndarray, threads: np.ndarray, i: int, mine: np.ndarray, again: np.ndarray,
              writers: np.ndarray) -> None:
        """`mine`: loaded in this phase by the warp alone; `again`: stored; `writers`: by what last."""
        waiting = self.awaiting[words] != _NONE
        self._note(self._never_read, words[waiting])
        behind = mine & (self.loader[words] != _NONE) & (self.lane[words] != threads)
        stale = behind & ((self.stale[words] == 1) | ((self.old[words] == 1)
                          & np.isin(threads // 32, list(self.exchanging))))
        self._left_over.update((load, i) for load in set(self.loader[words[stale]].tolist()))
        self.awaiting[words] = np.where(behind, self.loader[words], _NONE)
        self.unread[words] = np.where(behind, i, _NONE)
        over = again & (self.reads[words] == _NONE)
        self.lost[words] = np.where(over, writers, _NONE)
        self.loser[words] = i
        for each in (self.loader, self.lane, self.reader, self.reads):
            each[words] = _NONE

    def forget(self, words: np.ndarray) -> None:
        """Something else was done to words."""
        for each in (self.loader, self.lane, self.reader, self.reads, self.awaiting, self.lost):
            each[words] = _NONE

    def _note(self, pairs: set[tuple[int, int]], words: np.ndarray) -> None:
        pairs.update(zip(self.awaiting[words].tolist(), self.unread[words].tolist(), strict=True))

    def found(self, ends: bool) -> list[Clash]:
        if ends:
            self._note(self._never_read, np.flatnonzero(self.awaiting != _NONE))
        late = self._left_over & self._never_read
        idle = {pair for pair in self._never_read - late if ends and pair[1] not in self._read}
        return [*(Clash("shared-late", *pair) for pair in sorted(late)),
                *(Clash("shared-unread", *pair) for pair in sorted(idle)),
                *(Clash("shared-early", *pair) for pair in sorted(self._overwritten))]
