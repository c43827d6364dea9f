"""What the warps of a launch do, reduced from their traces to the flat arrays the engine streams through.

Blocks that behave alike (blocks.py) share paths and one stream of records for each warp. A block's addresses lie beyond
those of the stream by whole cache lines, kept per block and group of accesses; where they do not, the access has a
record for each remainder that occurs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import SimulationError
from ..isa import Instruction
from . import columns as c
from .access import MOST_LINES, NO_LANE
from .blocks import Alike, Block
from .lower import accesses, local_bytes, merge_rules
from .machine import CONSTANT_LINE, LINE, SHARED_BANKS
from .state import Work, expand

_CHUNK = 4096  # rows reduced in one go
_WORD = 4
_LOCAL = 1 << 37  # where local memory is taken to lie
_LOCAL_BLOCKS = 1056  # that have some of their own, those of eight for each SM; a later one has that of one before it


@dataclass(frozen=True)
class Outline:
    """What stays known of a launch when it is timed and its streams are gone. `executed`: how often each instruction is
    executed by the whole grid, warps counted. `classes`: of blocks that share a stream; `traced`: blocks that were run
    to find them."""

    instructions: tuple[Instruction, ...]
    executed: np.ndarray
    blocks: int
    block_warps: int
    classes: int
    traced: int


@dataclass(frozen=True)
class Workload:
    """A launch ready to be timed: `work` for the engine, and what stays known of it."""

    work: Work
    outline: Outline


def _executed(work: Work, instructions: int, classes: int) -> np.ndarray:
    """How often each instruction is executed."""
    blocks = np.bincount(work.class_of, minlength=classes)
    walked = np.zeros(len(work.path_ptr) - 1, np.int64)  # each path, by warps
    np.add.at(walked, work.path, np.repeat(blocks, len(work.path) // classes))
    times = np.repeat(walked, np.diff(work.path_ptr))
    start, length = work.runs.astype(np.int64).T
    counts = np.zeros(instructions + 1, np.int64)
    np.add.at(counts, start, times)
    np.add.at(counts, start + length, -times)
    return np.cumsum(counts)[:-1]


class Reducer:
    """Turns address rows into records (access.py)."""

    def __init__(self, instructions: Sequence[Instruction], pair_merge: bool) -> None:
        self.kinds, self.bytes, self.atomic = accesses(tuple(instructions))
        self._rules = merge_rules(tuple(instructions), pair_merge)
        self.local = local_bytes(tuple(instructions))
        memory = np.full((len(instructions), 3), -1, np.int64)
        memory[:, 0] = 0
        self._scratch = (memory, np.zeros((len(instructions), 2, 32), np.int64), np.zeros(SHARED_BANKS, np.int64),
                         np.zeros((SHARED_BANKS, MOST_LINES), np.int64))
        self._lines = np.empty((_CHUNK * MOST_LINES, 2), np.int64)
        self._kept: list[np.ndarray] = []
        self.total = 0  # lines kept
        self.barriers: dict[int, int] = {}  # mbarriers by address / 8: their numbers

    def memory_indices(self, runs: np.ndarray) -> np.ndarray:
        """Instruction index of each memory instruction a path executes, in order."""
        path = expand(runs)
        return path[self.kinds[path] >= 0]

    def interleaved(self, block: Block, indices: np.ndarray) -> np.ndarray:
        """A block's address rows where a word of local memory of all lanes of a warp is a line: warp after warp the
        lines of each."""
        where = np.flatnonzero(self.local[indices])
        if not len(where):
            return block.rows
        rows, width = block.rows.copy(), np.maximum(self.local[indices[where]], _WORD)[:, None]
        warp = np.repeat(np.arange(len(block.counts)), block.counts)[where][:, None]
        at = rows[where]
        lines = int(at.max()) // _WORD + _WORD  # of a warp
        place = _LOCAL + (warp * lines + at // _WORD) * LINE + np.arange(32) * width + at % _WORD
        rows[where] = np.where(at == NO_LANE, NO_LANE, place)
        return rows

    def records(self, rows: np.ndarray, indices: np.ndarray, shift: int = 0) -> np.ndarray:
        """(n, 3): service cycles, first line, lines of each row, every address moved by `shift`."""
        from .compiled import reduce_rows  # here, because it compiles
        out = np.zeros((len(rows), 3), np.int64)
        for first in range(0, len(rows), _CHUNK):
            part = slice(first, first + _CHUNK)
            written = reduce_rows(np.ascontiguousarray(rows[part]), indices[part], self.kinds, self.bytes, self.atomic,
                                  shift, self._rules, out[part], self._lines, *self._scratch)
            self._number_barriers(out[part], self.kinds[indices[part]])
            out[part, 1] += self.total
            self._kept.append(self._lines[:written].copy())
            self.total += written
        return out

    def _number_barriers(self, records: np.ndarray, kinds: np.ndarray) -> None:
        """mbarriers that have just been written to lines get numbers from 0 on."""
        named = ((kinds == c.K_MBARRIER) | (kinds == c.K_BULK)) & (records[:, 2] > 0)
        counts = np.where(kinds[named] == c.K_BULK, 1, records[named, 2])
        firsts = np.repeat(records[named, 1] - np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64), counts)
        where = firsts + np.arange(len(firsts))
        for barrier in np.unique(self._lines[where, 0]).tolist():
            self.barriers.setdefault(barrier, len(self.barriers))
        known = np.array(sorted(self.barriers), np.int64)
        numbers = np.array([self.barriers[barrier] for barrier in known.tolist()], np.int64)
        if len(where):
            self._lines[where, 0] = numbers[np.searchsorted(known, self._lines[where, 0])]

    def lines(self) -> np.ndarray:
        return np.concatenate(self._kept) if self.total else np.zeros((1, 2), np.int64)


class Builder:
    """Collects classes of blocks into a workload."""

    def __init__(self, instructions: Sequence[Instruction], blocks: int, block_warps: int, pair_merge: bool) -> None:
        self.instructions, self.blocks, self.block_warps = tuple(instructions), blocks, block_warps
        self.reducer = Reducer(instructions, pair_merge)
        self._class_of = np.full(blocks, -1, np.int64)
        self._shifts: list[tuple[np.ndarray, np.ndarray]] = []  # block numbers, (blocks, groups, 2)
        self._numbers: dict[bytes, int] = {}  # of paths
        self._runs: list[np.ndarray] = []
        self._path: list[int] = []
        self._records: list[np.ndarray] = []
        self._pointers = [0]
        self._variants: list[np.ndarray] = []
        self._variant_total = 0

    # -- classes ---------------------------------------------------------------------------------------------------

    def single(self, number: int, block: Block) -> None:
        """A block that shares with none."""
        self._start([number], block)
        indices = self._indices(block)
        every = np.concatenate(indices)
        rows, local = self.reducer.interleaved(block, every), self.reducer.local[every] > 0
        if local.any():
            size = (int(rows[local].max()) - _LOCAL) // LINE * LINE + LINE
            rows[local] += np.where(rows[local] == NO_LANE, 0, number % _LOCAL_BLOCKS * size)
        for w, of_warp in enumerate(_split(rows, block.counts)):
            self._stream(_with_group(self.reducer.records(of_warp, indices[w])))

    def alike(self, found: Alike, grid: Sequence[int]) -> None:
        """A box of blocks that behave alike."""
        box, block, motion = found.box, found.first, found.motion
        values = box.values()
        numbers = box.numbers(values, grid)
        self._start(numbers, block)
        indices = np.concatenate(self._indices(block))
        records = np.zeros((len(block.rows), 4), np.int64)
        groups = _Groups(len(numbers))
        kinds = self.reducer.kinds[indices]
        local = self.reducer.local[indices] > 0
        if local.any():
            rows = self.reducer.interleaved(block, indices)
            size = int(rows[local].max()) - _LOCAL + LINE
            self._moving(records, np.flatnonzero(local), rows[local], indices[local], groups,
                         np.array(numbers) % _LOCAL_BLOCKS * (size // LINE * LINE), LINE)
        aside = np.zeros(len(indices), bool)
        aside[motion.apart] = True
        for g, slope in enumerate(motion.slopes):
            shift = values @ slope
            for of_kind, unit in ((kinds == c.K_SHARED, 0), (kinds == c.K_LDC, CONSTANT_LINE),
                                  ((kinds != c.K_SHARED) & (kinds != c.K_LDC) & ~local, LINE)):
                where = np.flatnonzero((motion.group == g) & of_kind & ~aside)
                if len(where):
                    self._moving(records, where, block.rows[where], indices[where], groups, shift, unit)
        if len(motion.apart):
            self._apart(records, found, values, indices[motion.apart], groups)
        self._shifts.append((numbers, groups.table()))
        for part in _split(records, block.counts):
            self._stream(part)

    def _moving(self, records: np.ndarray, where: np.ndarray, rows: np.ndarray, indices: np.ndarray,
                groups: "_Groups", shift: np.ndarray, unit: int) -> None:
        """Records of accesses that move by `shift` bytes from block to block, all lanes alike. `unit`: bytes of a line;
        0 for shared memory, whose phases only change with the place of an address inside a word."""
        lines, remainder = (shift // unit, shift % unit) if unit else (0 * shift, shift % _WORD)
        present, variant = np.unique(remainder, return_inverse=True)
        group = groups.number(lines, variant)
        if len(present) == 1:
            records[where, :3] = self.reducer.records(rows, indices, int(present[0]))
            records[where, 3] = group
            return
        self._choose(records, where, np.stack([self.reducer.records(rows, indices, int(r)) for r in present], 1), group)

    def _apart(self, records: np.ndarray, found: Alike, values: np.ndarray, indices: np.ndarray,
               groups: "_Groups") -> None:
        """Records of accesses whose lanes move apart: one for each block."""
        motion, base = found.motion, found.first.rows[found.motion.apart]
        every = [np.where(base == NO_LANE, NO_LANE, base + motion.lane_slopes @ v) for v in values]
        reduced = np.stack([self.reducer.records(rows, indices) for rows in every], 1)
        count = np.arange(len(values))
        self._choose(records, motion.apart, reduced, groups.number(0 * count, count))

    def _choose(self, records: np.ndarray, where: np.ndarray, variants: np.ndarray, group: int) -> None:
        """Records that name the first of their variants. variants: (rows, variants, 3)."""
        records[where, 1] = self._variant_total + variants.shape[1] * np.arange(len(where))
        records[where, 3] = -1 - group
        self._variants.append(_with_group(variants.reshape(-1, 3)))
        self._variant_total += len(self._variants[-1])

    def _start(self, numbers: Sequence[int] | np.ndarray, block: Block) -> None:
        if len(block.runs) != self.block_warps:
            raise SimulationError(f"a block has {self.block_warps} warps (got traces of {len(block.runs)})")
        self._class_of[numbers] = len(self._path) // self.block_warps
        for runs in block.runs:
            runs = np.ascontiguousarray(runs, np.int64)
            key = runs.tobytes()
            if key not in self._numbers:
                self._numbers[key] = len(self._runs)
                self._runs.append(runs)
            self._path.append(self._numbers[key])

    def _indices(self, block: Block) -> list[np.ndarray]:
        found = [self.reducer.memory_indices(runs) for runs in block.runs]
        for indices, count in zip(found, block.counts, strict=True):
            if len(indices) != count:
                raise SimulationError(f"a trace must have one address row per executed memory instruction "
                                      f"({len(indices)} executed, {count} rows)")
        return found

    def _stream(self, records: np.ndarray) -> None:
        self._records.append(records)
        self._pointers.append(self._pointers[-1] + len(records))

    # -- the result ------------------------------------------------------------------------------------------------

    def workload(self, traced: int = 0) -> Workload:
        """Raises SimulationError if a block is in no class."""
        if (self._class_of < 0).any():
            missing = int(np.flatnonzero(self._class_of < 0)[0])
            raise SimulationError(f"block {missing} is in no class of blocks")
        width = max((table.shape[1] for _, table in self._shifts), default=1)
        shift = np.zeros((self.blocks, width, 2), np.int64)
        for numbers, table in self._shifts:
            shift[numbers, :table.shape[1]] = table
        streams = np.concatenate([*self._records, *self._variants, np.zeros((1, 4), np.int64)])
        inside = np.flatnonzero(streams[:self._pointers[-1], 3] < 0)
        streams[inside, 1] += self._pointers[-1]
        path_ptr = np.concatenate([[0], np.cumsum([len(r) for r in self._runs])]).astype(np.int64)
        work = Work(np.concatenate(self._runs), path_ptr, np.array(self._path, np.int64), self._class_of,
                    np.array(self._pointers, np.int64), streams, self.reducer.lines(), shift,
                    len(self.reducer.barriers))
        classes = len(self._path) // self.block_warps
        executed = _executed(work, len(self.instructions), classes)
        return Workload(work, Outline(self.instructions, executed, self.blocks, self.block_warps, classes, traced))


class _Groups:
    """The ways accesses of a class move: for each a line shift and a variant per block. Number 0 does not move."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._numbers: dict[bytes, int] = {bytes(16 * blocks): 0}
        self._columns = [np.zeros((blocks, 2), np.int64)]

    def number(self, lines: np.ndarray, variant: np.ndarray) -> int:
        column = np.ascontiguousarray(np.stack([lines, variant.reshape(-1)], 1), np.int64)
        key = column.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._columns)
            self._columns.append(column)
        return self._numbers[key]

    def table(self) -> np.ndarray:
        return np.stack(self._columns, 1)


def _with_group(records: np.ndarray) -> np.ndarray:
    """Records of accesses that do not move."""
    return np.concatenate([records, np.zeros((len(records), 1), np.int64)], 1)


def _split(rows: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    return np.split(rows, np.cumsum(counts)[:-1])
