"""What orders the warps of a block and the units beside them, as clocks that messages carry: block barriers, mbarriers,
proxy fences, waits for products. Two uses of one word of shared memory with no such order between them are a clash,
whichever came first where the block was followed: another execution has them the other way round.

A clock has a part for each warp (its accesses), for each warpgroup (groups of products known to be done) and for each
mbarrier (phases known to be complete). A second clock says which ordinary stores a proxy fence has made visible to
units. A wait for a phase is taken to tell as little as it may: the first phase of its parity that the warp does not
know to be complete."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

Clock = np.ndarray
_WARPGROUPS, _MBARRIERS = 8, 128  # of a block at most, so many are followed
_NONE = -1


class Undecided(Exception):
    """The block cannot be followed any further."""


class Broken(NamedTuple):
    """A hazard: its kind, the earlier instruction (None if there is none) and the later one."""

    kind: str
    earlier: int | None
    later: int


@dataclass
class Mbarrier:
    """`at`: its part of clocks; `count` arrivals make a phase, `missing` of them and `announced` bytes are still to
    come; `done`: what each complete phase tells; `begun`: by which warp, when; `by`: the instructions that began it,
    arrived last and sent bytes last."""

    at: int
    count: int
    begun: tuple[int, int]
    by: int
    missing: int
    clock: Clock
    fenced: Clock
    announced: int = 0
    phase: int = 0
    arrived: int | None = None
    copied: int | None = None
    done: list[tuple[Clock, Clock]] = field(default_factory=list)


class Order:
    """The clocks of `warps` warps, and what was done to `words` words of shared memory."""

    def __init__(self, warps: int, words: int) -> None:
        self.warps = warps
        size = warps + _WARPGROUPS + _MBARRIERS
        self.seen, self.fenced = np.zeros((warps, size), np.int64), np.zeros((warps, size), np.int64)
        self.seen[range(warps), range(warps)] = 1
        self.mbarriers: dict[int, Mbarrier] = {}
        self._begun = 0
        self.found: dict[tuple[str, int], Broken] = {}  # by kind and later instruction
        self.written, self.writer, self.written_by = (np.full(words, _NONE) for _ in range(3))
        self.read = np.full((warps, words), _NONE, np.int32)
        self.read_by = np.full((warps, words), _NONE, np.int32)
        self.used = np.full((_WARPGROUPS, words), _NONE, np.int32)  # by which group of products last
        self.used_by = np.full(words, _NONE)
        self.copied, self.copied_in, self.copied_by = (np.full(words, _NONE) for _ in range(3))  # mbarrier, its phase
        self.groups = [0] * warps  # of copies by threads that are committed
        self.fetching = np.full(words, _NONE)  # group of its writer that is not waited for

    # -- messages ----------------------------------------------------------------------------------------------

    def tick(self, warp: int) -> None:
        self.seen[warp, warp] += 1

    def nothing(self) -> tuple[Clock, Clock]:
        return np.zeros_like(self.seen[0]), np.zeros_like(self.seen[0])

    def tell(self, warp: int, clock: Clock, fenced: Clock) -> None:
        """Put what a warp knows into a message."""
        np.maximum(clock, self.seen[warp], out=clock)
        np.maximum(fenced, self.fenced[warp], out=fenced)
        self.tick(warp)

    def hear(self, warp: int, clock: Clock, fenced: Clock) -> None:
        np.maximum(self.seen[warp], clock, out=self.seen[warp])
        np.maximum(self.fenced[warp], fenced, out=self.fenced[warp])

    def fence(self, warp: int) -> None:
        """Asynchronous units can see what this warp knows to be stored."""
        np.maximum(self.fenced[warp], self.seen[warp], out=self.fenced[warp])
        self.tick(warp)

    def products_done(self, warp: int, groups: int) -> None:
        """The warp has waited for so many groups of its warpgroup."""
        place = self.warps + warp // 4
        self.seen[warp, place] = max(self.seen[warp, place], groups)

    # -- memory ------------------------------------------------------------------------------------------------

    def refuse(self, kind: str, earlier: int | None, later: int) -> None:
        self.found.setdefault((kind, later), Broken(kind, earlier, later))

    def _clash(self, kind: str, bad: np.ndarray, by: np.ndarray, i: int) -> None:
        if bad.any():
            first = int(by[bad][0])
            self.refuse(kind, None if first == _NONE else first, i)

    def _refuse_copies(self, warp: int, words: np.ndarray, i: int) -> None:
        """Bytes of a bulk copy may be used only by warps that have waited for its mbarrier's phase."""
        on_way = self.copied[words]
        known = self.seen[warp][np.maximum(on_way, 0)]
        self._clash("arriving", (on_way != _NONE) & (known <= self.copied_in[words]), self.copied_by[words], i)

    def _refuse_fetches(self, words: np.ndarray, i: int) -> None:
        """Bytes of a thread's asynchronous copy may be used only after its warp has waited for their group."""
        self._clash("fetching", self.fetching[words] != _NONE, self.written_by[words], i)

    def _refuse_readers(self, warp: int, words: np.ndarray, i: int) -> None:
        """Words that other warps or products may still read must not be overwritten."""
        for other in range(self.warps):
            if other != warp:
                late = self.read[other, words] > self.seen[warp, other]
                self._clash("shared-reuse", late, self.read_by[other, words], i)
        for group in range(-(-self.warps // 4)):
            busy = self.used[group, words] > self.seen[warp, self.warps + group]
            self._clash("busy", busy, self.used_by[words], i)

    def _refuse_unfenced(self, warp: int, words: np.ndarray, i: int) -> None:
        """Asynchronous units see ordinary stores only after a proxy fence."""
        writer, when = self.writer[words], self.written[words]
        known = (self.seen[warp][np.maximum(writer, 0)] >= when) | (writer == warp)
        unseen = (writer != _NONE) & (self.fenced[warp][np.maximum(writer, 0)] < when)
        self._clash("shared-race", unseen & ~known, self.written_by[words], i)
        self._clash("unfenced", unseen & known, self.written_by[words], i)

    def load(self, warp: int, words: np.ndarray, i: int) -> None:
        self._refuse_copies(warp, words, i)
        self._refuse_fetches(words, i)
        writer = self.writer[words]
        race = (writer != _NONE) & (writer != warp) & (
            self.seen[warp][np.maximum(writer, 0)] < self.written[words])
        self._clash("shared-race", race, self.written_by[words], i)
        self.read[warp, words], self.read_by[warp, words] = self.seen[warp, warp], i

    def store(self, warp: int, words: np.ndarray, i: int) -> None:
        self._refuse_copies(warp, words, i)
        self._refuse_fetches(words, i)
        self._refuse_readers(warp, words, i)
        self.writer[words], self.written[words], self.written_by[words] = warp, self.seen[warp, warp], i

    def fetch(self, warp: int, words: np.ndarray, i: int) -> None:
        """Threads of a warp copy to words, in its next group."""
        self._refuse_copies(warp, words, i)
        self._refuse_readers(warp, words, i)
        self.writer[words], self.written_by[words], self.fetching[words] = warp, i, self.groups[warp]

    def fetched(self, warp: int, open_: int) -> None:
        """The warp has waited for all but the last groups of its copies: it has stored them now."""
        done = (self.writer == warp) & (self.fetching != _NONE) & (self.fetching + open_ < self.groups[warp])
        self.written[done], self.fetching[done] = self.seen[warp, warp], _NONE

    def product(self, warp: int, words: np.ndarray, group: int, i: int) -> None:
        """Group number `group` of a warpgroup reads words."""
        self._refuse_copies(warp, words, i)
        self._refuse_fetches(words, i)
        self._refuse_unfenced(warp, words, i)
        self.used[warp // 4, words], self.used_by[words] = group, i

    def copy(self, warp: int, words: np.ndarray, address: int, count: int, i: int) -> None:
        """A bulk copy of `count` bytes is sent to words (none if they are not known); it is done at once."""
        bar = self._known(warp, address, i)
        if bar is None:
            return
        if len(words):
            self._refuse_copies(warp, words, i)
            self._refuse_fetches(words, i)
            self._refuse_readers(warp, words, i)
            self._refuse_unfenced(warp, words, i)
            self.writer[words] = _NONE
            self.copied[words], self.copied_in[words], self.copied_by[words] = bar.at, bar.phase, i
        bar.copied = i
        self.tell(warp, bar.clock, bar.fenced)
        bar.announced -= count
        self._complete(bar)

    # -- mbarriers ---------------------------------------------------------------------------------------------

    def begin(self, warp: int, address: int, word: int, i: int) -> None:
        """Of its 64 bits 1-20 are the arrivals of a phase (2^20 less them), 21-42 bytes announced, 43-62 the arrivals
        that are missing, 63 the phase's parity."""
        earlier = self.mbarriers.get(address)
        if earlier is not None:
            self.refuse("mbarrier-twice", earlier.by, i)
        if self._begun == _MBARRIERS:
            raise Undecided(f"more than {_MBARRIERS} mbarriers")
        at = self.warps + _WARPGROUPS + self._begun
        self._begun += 1
        count, missing = ((1 << 20) - (word >> place & 0xFFFFF) for place in (1, 43))
        announced = (word >> 21 & 0x3FFFFF ^ 1 << 21) - (1 << 21)
        if word >> 63:
            raise Undecided("an mbarrier that begins with an odd phase")
        when = warp, int(self.seen[warp, warp])
        self.mbarriers[address] = Mbarrier(at, count, when, i, missing, *self.nothing(), announced)

    def drop(self, warp: int, address: int, i: int) -> None:
        if self._known(warp, address, i) is not None:
            del self.mbarriers[address]

    def _known(self, warp: int, address: int, i: int) -> Mbarrier | None:
        bar = self.mbarriers.get(address)
        if bar is None:
            self.refuse("mbarrier", None, i)
            return None
        by, when = bar.begun
        if by != warp and self.seen[warp, by] < when:
            self.refuse("mbarrier-early", bar.by, i)
        return bar

    def arrive(self, warp: int, address: int, arrivals: int, more: int, drops: int, i: int) -> None:
        """So many arrivals at once, of which `drops` are the last of theirs; `more` bytes are announced."""
        bar = self._known(warp, address, i)
        if bar is None:
            return
        if arrivals > bar.missing:
            self.refuse("arrivals", bar.arrived, i)
            raise Undecided("more arrivals than a phase has")
        bar.arrived = i
        self.tell(warp, bar.clock, bar.fenced)
        bar.announced += more
        bar.missing -= arrivals
        bar.count -= drops
        self._complete(bar)

    def _complete(self, bar: Mbarrier) -> None:
        if bar.missing == 0 and bar.announced == 0:
            bar.phase += 1
            bar.missing = bar.count
            bar.clock[bar.at] = bar.phase
            bar.done.append((bar.clock.copy(), bar.fenced.copy()))

    def passes(self, warp: int, address: int, parity: int, late: bool, i: int) -> bool:
        """Whether a wait for the phase with this parity is over; if so, the warp knows what the phase tells. `late`:
        count the wait as not over wherever that is possible."""
        bar = self._known(warp, address, i)
        if bar is None:
            return True
        known = int(self.seen[warp, bar.at])
        if known % 2 != parity:
            return True
        if late or bar.phase <= known:
            return False
        if bar.phase > known + 1:
            self.refuse("phase-missed", bar.arrived, i)
        self.hear(warp, *bar.done[known])
        return True
