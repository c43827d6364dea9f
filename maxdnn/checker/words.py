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
    `value`: what all stores since then put there, where that is known and the same; `phase`, `lane`, `writer`: of the
    last store."""

    def __init__(self) -> None:
        self.stored, self.loaded, self.changed = (np.zeros(WORDS, np.uint64) for _ in range(3))
        self.value = np.full(WORDS, _NONE)
        self.phase, self.lane, self.writer = (np.full(WORDS, _NONE) for _ in range(3))
        self.loader = np.full(WORDS, _NONE)
        self.early_lane, self.early_loader = np.full(WORDS, _NONE), np.full(WORDS, _NONE)
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
        return [Clash("shared-race", _first(self.writer[words[race]]), i)] if race.any() else []

    def load_somewhere(self, first: int, i: int) -> None:
        """Threads read words from `first` on, nobody knows which."""
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
            again = np.bincount(where, minlength=WORDS)[where] > 1
            self.early_lane[where[again]] = _MANY
            self.early_loader[where] = i

    def store(self, words: np.ndarray, threads: np.ndarray, values: np.ndarray | None, i: int) -> list[Clash]:
        """Threads write words, `values` what if that is known; what is wrong with that."""
        bits = np.uint64(1) << (threads // 32).astype(np.uint64)
        new = np.full(len(words), _NONE) if values is None else values.astype(np.int64)
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
        self._put(words, threads, bits, new, i)
        return found

    def change(self, words: np.ndarray, threads: np.ndarray, i: int) -> list[Clash]:
        """Threads change words by atomic operations, which do not disturb each other; what is wrong with that."""
        bits = np.uint64(1) << (threads // 32).astype(np.uint64)
        found = []
        for kind, before, by in (("shared-race", self.stored, self.writer), ("shared-reuse", self.loaded, self.loader)):
            clash = before[words] & ~bits != 0
            if clash.any():
                found.append(Clash(kind, _first(by[words[clash]]), i))
        self._meet(words)
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
