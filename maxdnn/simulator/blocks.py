"""Which blocks of a grid behave alike, and how their addresses move, learned from a few traced blocks.

The grid is cut into boxes. Inside a box every warp takes the same path with the same lanes taking part, and the address
of each lane of each memory access is affine in the box's digits. A digit steps along one axis of the grid; an axis that
a kernel takes apart by division (tile = z % tiles, filter = z // tiles) becomes two of them. Where a block does not fit
what its box predicts, the box is cut there; random blocks of every box are traced to find such places."""

import functools
import hashlib
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..emulator.trace import WarpTrace
from .access import NO_LANE

Tracer = Callable[[Sequence[int]], Sequence[WarpTrace]]
"""Traces of every warp of the blocks of these numbers (x fastest), in that order."""

_EACH, _WHOLE = 3, 8  # random blocks traced in every box, and more over the whole grid
_KEPT_BYTES = 256 << 20  # of traces, so that none is made twice
_LONGEST_PERIOD = 64  # of a digit found by trying
_KINDS = 3  # of blocks in a longer one
_FEW = 8  # blocks of a grid that are all traced rather than learned


class _Irregular(Exception):
    """More boxes than tracing every block would cost."""


@dataclass(frozen=True, slots=True)
class Digit:
    """Steps of `stride` blocks along an axis (0 x, 1 y, 2 z), `extent` of them."""

    axis: int
    stride: int
    extent: int


@dataclass(frozen=True)
class Box:
    """Blocks at origin + the sum of digit x stride along each axis, for every value of every digit."""

    origin: tuple[int, int, int]
    digits: tuple[Digit, ...]

    @property
    def size(self) -> int:
        return int(np.prod([d.extent for d in self.digits], dtype=np.int64))

    def values(self) -> np.ndarray:
        """Every combination of digit values: (size, digits)."""
        return np.stack([v.ravel() for v in np.indices([d.extent for d in self.digits])], 1) if self.digits \
            else np.zeros((1, 0), np.int64)

    def numbers(self, values: np.ndarray, grid: Sequence[int]) -> np.ndarray:
        """Block numbers (x fastest) of digit values."""
        step = (1, grid[0], grid[0] * grid[1])
        first = sum(o * s for o, s in zip(self.origin, step, strict=True))
        strides = np.array([d.stride * step[d.axis] for d in self.digits], np.int64)
        return first + values.astype(np.int64) @ strides

    def part(self, which: int, start: int, stop: int) -> "Box":
        """The box with one digit's values limited to start..stop-1."""
        digit = self.digits[which]
        origin = list(self.origin)
        origin[digit.axis] += start * digit.stride
        kept = [Digit(d.axis, d.stride, stop - start) if n == which else d for n, d in enumerate(self.digits)]
        return Box((origin[0], origin[1], origin[2]), tuple(d for d in kept if d.extent > 1))


@dataclass(frozen=True)
class Block:
    """What one block did: the runs of each warp, all address rows (int64) warp after warp, rows of each warp."""

    runs: tuple[np.ndarray, ...]
    rows: np.ndarray
    counts: tuple[int, ...]

    @functools.cached_property
    def key(self) -> bytes:
        """Equal for blocks that took the same paths with the same lanes."""
        digest = hashlib.blake2b(np.packbits(self.rows == NO_LANE).tobytes())
        for runs, count in zip(self.runs, self.counts, strict=True):
            digest.update(count.to_bytes(8) + np.ascontiguousarray(runs).tobytes())
        return digest.digest()

    @staticmethod
    def of(traces: Sequence[WarpTrace]) -> "Block":
        rows = np.concatenate([t.addresses for t in traces]).view(np.int64)
        return Block(tuple(t.runs for t in traces), rows, tuple(len(t.addresses) for t in traces))


@dataclass(frozen=True)
class Motion:
    """How a block's address rows move with the digits: by slopes[group[row]] bytes for each step of each digit, all
    lanes alike; the rows `apart` by lane_slopes (rows, 32, digits)."""

    group: np.ndarray  # int64 (rows,)
    slopes: np.ndarray  # int64 (groups, digits)
    apart: np.ndarray  # int64, rows
    lane_slopes: np.ndarray

    def moved(self, base: np.ndarray, values: Sequence[int]) -> np.ndarray:
        """Address rows of the block at these digit values."""
        steps = np.asarray(values, np.int64)
        rows = base + (self.slopes @ steps)[self.group][:, None]
        if len(self.apart):
            rows[self.apart] = base[self.apart] + self.lane_slopes @ steps
        rows[base == NO_LANE] = NO_LANE
        return rows


@dataclass(frozen=True)
class Alike:
    """Blocks that behave alike: `first` is what the one at digits 0 did."""

    box: Box
    first: Block
    motion: Motion


def _motion(base: Block, steps: Sequence[np.ndarray]) -> Motion:
    """The motion that takes a block to the rows `steps[i]` one step of digit i away."""
    taking = base.rows != NO_LANE
    lead = taking.argmax(1) if len(base.rows) else np.zeros(0, np.int64)
    rows = np.arange(len(base.rows))
    leads, together = [], np.ones(len(rows), bool)
    for step in steps:
        delta = step - base.rows
        leads.append(np.where(taking[rows, lead], delta[rows, lead], 0))
        together &= ((delta == leads[-1][:, None]) | ~taking).all(1)
    apart = np.flatnonzero(~together)
    table = np.stack(leads, 1) if leads else np.zeros((len(rows), 0), np.int64)
    table[apart] = 0
    slopes, group = np.unique(table, axis=0, return_inverse=True)
    lanes = np.stack([np.where(taking[apart], s[apart] - base.rows[apart], 0) for s in steps], 2) if len(steps) \
        else np.zeros((0, 32, 0), np.int64)
    return Motion(group.reshape(-1).astype(np.int64), slopes, apart, lanes)


class Learner:
    """Cuts a grid into boxes of like blocks. `trace` runs blocks; it must be good for any block, in any order."""

    def __init__(self, trace: Tracer, grid: Sequence[int]) -> None:
        self._trace, self.grid = trace, tuple(grid)
        self.blocks = int(np.prod(grid, dtype=np.int64))
        self.traced = 0
        self._limit = max(64, min(self.blocks // 2, 2048))
        self._kept: OrderedDict[int, Block] = OrderedDict()
        self._random = random.Random(2015)

    def learn(self) -> list[Alike] | None:
        """The boxes; None when tracing all blocks is no more work."""
        try:
            return self._learn() if self.blocks > _FEW else None
        except _Irregular:
            return None

    def _learn(self) -> list[Alike]:
        whole = Box((0, 0, 0), tuple(Digit(a, 1, n) for a, n in enumerate(self.grid) if n > 1))
        todo, done = [whole], []
        while todo:
            box = todo.pop()
            found = self._alike(box)
            if isinstance(found, Alike):
                done.append(found)
            else:
                todo += found
        return done

    # -- blocks seen -----------------------------------------------------------------------------------------------

    def _see(self, box: Box, values: Sequence[int]) -> Block:
        number = int(box.numbers(np.array([values], np.int64).reshape(1, -1), self.grid)[0])
        if number not in self._kept:
            self.traced += 1
            if self.traced > self._limit:
                raise _Irregular
            self._kept[number] = Block.of(self._trace([number]))
        self._kept.move_to_end(number)
        while len(self._kept) > 2 and sum(b.rows.nbytes for b in self._kept.values()) > _KEPT_BYTES:
            self._kept.popitem(last=False)
        return self._kept[number]

    def _fits(self, box: Box, base: Block, motion: Motion, values: Sequence[int]) -> bool:
        seen = self._see(box, values)
        return seen.key == base.key and np.array_equal(motion.moved(base.rows, values), seen.rows)

    # -- a box -----------------------------------------------------------------------------------------------------

    def _alike(self, box: Box) -> "Alike | list[Box]":
        """The box as one that behaves alike, or the parts it falls into."""
        n = len(box.digits)
        base = self._see(box, [0] * n)
        steps: list[np.ndarray] = []
        for which in range(n):
            stop = self._stop(box, which, 0)
            if stop is not None:
                return self._cut(box, which, stop)
            steps.append(self._see(box, np.eye(n, dtype=np.int64)[which]).rows)
        motion = _motion(base, steps)
        for values in self._samples(box):
            if not self._fits(box, base, motion, values):
                return self._cut(box, *self._where(box, base, motion, values))
        return Alike(box, base, motion)

    def _stop(self, box: Box, which: int, start: int) -> int | None:
        """The first value found along a digit, from `start` on, whose block is not as the two there promise."""
        digit, unit = box.digits[which], np.eye(len(box.digits), dtype=np.int64)[which]
        base, one = self._see(box, unit * start), self._see(box, unit * (start + 1))
        if one.key != base.key:
            return start + 1
        alone = _motion(base, [one.rows])

        def along(steps: int) -> bool:
            seen = self._see(box, unit * (start + steps))
            return seen.key == base.key and np.array_equal(alone.moved(base.rows, [steps]), seen.rows)
        last = digit.extent - 1 - start
        return None if last < 2 or along(last) else start + _first_failure(along, 1, last)

    def _samples(self, box: Box) -> list[list[int]]:
        """Digit values of the far corner and of random blocks, more in a box that is a large part of the grid."""
        wanted = min(_EACH + _WHOLE * box.size // self.blocks, box.size)
        corner = [d.extent - 1 for d in box.digits]
        return [corner, *([self._random.randrange(d.extent) for d in box.digits] for _ in range(wanted))]

    def _where(self, box: Box, base: Block, motion: Motion, values: Sequence[int]) -> tuple[int, int]:
        """(digit, value) from which on blocks do not fit, on a way from the origin to a block that does not."""
        at = [0] * len(values)
        for which, value in enumerate(values):
            def along(v: int, which: int = which) -> bool:
                return self._fits(box, base, motion, [*at[:which], v, *at[which + 1:]])
            if value and not along(value):
                return which, _first_failure(along, 0, value)
            at[which] = value
        raise AssertionError("a block that does not fit must be on the way to itself")

    def _cut(self, box: Box, which: int, at: int) -> list[Box]:
        """Two digits in place of one if its blocks repeat, else the parts before and from `at` on."""
        n, period = box.digits[which].extent, self._period(box, which, at)
        if period is None:
            return [box.part(which, 0, at), box.part(which, at, n)]
        digit, times = box.digits[which], n // period
        two = (Digit(digit.axis, digit.stride, period), Digit(digit.axis, digit.stride * period, times))
        parts = [Box(box.origin, (*box.digits[:which], *two, *box.digits[which + 1:]))]
        return parts + ([box.part(which, times * period, n)] if times * period < n else [])

    def _period(self, box: Box, which: int, at: int) -> int | None:
        """After how many steps of a digit blocks do the same again, if they do."""
        n = box.digits[which].extent
        longest = _LONGEST_PERIOD if at <= 2 else at + 1
        for period in range(max(at, 2), longest + 1):
            if period * 2 <= n and self._repeats(box, which, period):
                return period
        return self._long_period(box, which, at) if n > 2 * _LONGEST_PERIOD else None

    def _long_period(self, box: Box, which: int, at: int) -> int | None:
        """The same beyond what is tried: from one kind of blocks to the next, such as border, inside and border of a
        row, until one begins as the first did."""
        n = box.digits[which].extent
        for _ in range(_KINDS):
            stop = self._stop(box, which, at) if at + 1 < n else None
            if stop is None or stop * 2 > n:
                return None
            if self._repeats(box, which, stop):
                return stop
            at = stop
        return None

    def _repeats(self, box: Box, which: int, period: int) -> bool:
        """Whether blocks differ from the one at the start of their period as those of the first period do."""
        times = box.digits[which].extent // period
        unit = np.eye(len(box.digits), dtype=np.int64)[which]
        base = self._see(box, 0 * unit)
        for k in sorted({1, self._random.randrange(times), times - 1} - {0}):
            start = self._see(box, unit * period * k)
            if start.key != base.key:
                if k == 1:
                    return False
                continue  # another kind of block from some place on, where the box will be cut
            for offset in sorted({1, period // 2, period - 1} - {0}):
                near, far = self._see(box, unit * offset), self._see(box, unit * (offset + period * k))
                if near.key != far.key:
                    return False
                if near.key == base.key and not np.array_equal(far.rows - start.rows, near.rows - base.rows):
                    return False
        return True


def _first_failure(fits: Callable[[int], bool], good: int, bad: int) -> int:
    """The least value found not to fit, between one that fits and one that does not."""
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return bad


def every_block(trace: Tracer, blocks: int, at_once: int,
                before: Callable[[], None] | None = None) -> Iterator[tuple[int, Block]]:
    """Every block of a grid in order, traced a few at a time: (number, what it did). `before` is called first."""
    if before:
        before()
    for first in range(0, blocks, at_once):
        numbers = range(first, min(first + at_once, blocks))
        traces = trace(numbers)
        warps = len(traces) // len(numbers)
        for k, b in enumerate(numbers):
            yield b, Block.of(traces[k * warps:(k + 1) * warps])
