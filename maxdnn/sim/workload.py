"""What the warps of a launch do, reduced from their traces to the flat arrays the engine streams through.

Warps with the same path share it. Blocks whose addresses differ only by a constant per memory instruction share one
stream of records and differ by a row of shifts; `Builder` is told which blocks those are, and addresses decide."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import SimulationError
from ..isa import Instruction
from ..trace import WarpTrace
from . import columns as c
from .access import cache_lines, constant_lines, global_requests, shared_phases
from .lower import access_bytes, memory_kind
from .machine import CONSTANT_LINE, LINE
from .state import Work


@dataclass(frozen=True)
class Workload:
    """A launch ready to be timed: `work` for the engine, the instructions, and the address group of each of them."""

    instructions: tuple[Instruction, ...]
    work: Work
    groups: np.ndarray  # int64 per instruction: column of work.shift
    blocks: int
    block_warps: int

    def executed(self) -> np.ndarray:
        """How often each instruction is executed by the whole grid, warps counted."""
        counts = np.zeros(len(self.instructions) + 1, np.int64)
        per_path = np.bincount(self.work.path, minlength=len(self.work.path_ptr) - 1)
        for path, times in enumerate(per_path):
            a, b = self.work.path_ptr[path], self.work.path_ptr[path + 1]
            start, length = self.work.runs[a:b].T
            np.add.at(counts, start, times)
            np.add.at(counts, start + length, -times)
        return np.cumsum(counts)[:-1]


def expand(runs: np.ndarray) -> np.ndarray:
    """Indices of the executed instructions of a path, in order."""
    starts, lengths = runs[:, 0].astype(np.int64), runs[:, 1].astype(np.int64)
    offsets = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return offsets + np.arange(int(lengths.sum()))


@dataclass
class _Records:
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    lines: list[np.ndarray] = field(default_factory=list)
    total: int = 0

    def add(self, service: int, lines: np.ndarray | None = None, masks: np.ndarray | int = 1) -> None:
        count = 0 if lines is None else len(lines)
        self.rows.append((service, self.total, count))
        if lines is not None and count:
            self.lines.append(np.stack(np.broadcast_arrays(lines, masks), 1).astype(np.int64))
            self.total += count


class Reducer:
    """Turns one warp's address rows into records; equal rows of one instruction are reduced once."""

    def __init__(self, instructions: Sequence[Instruction], pair_merge: bool) -> None:
        self.kinds = np.array([k if (k := memory_kind(i)) is not None else -1 for i in instructions])
        self.bytes = [access_bytes(i) for i in instructions]
        self.pair_merge = pair_merge
        self._seen: dict[tuple[int, bytes], int] = {}

    def memory_indices(self, runs: np.ndarray) -> np.ndarray:
        """Instruction index of each memory instruction a path executes, in order."""
        path = expand(runs)
        return path[self.kinds[path] >= 0]

    def records(self, runs: np.ndarray, addresses: np.ndarray, out: _Records) -> None:
        indices = self.memory_indices(runs)
        if len(indices) != len(addresses):
            raise SimulationError(f"a trace must have one address row per executed memory instruction "
                                  f"({len(indices)} executed, {len(addresses)} rows)")
        for index, row in zip(indices.tolist(), addresses, strict=True):
            kind, nbytes = self.kinds[index], self.bytes[index]
            if kind == c.K_SHARED:
                out.add(self._phases(index, row, nbytes))
            elif kind == c.K_LDC:
                lines, serial = constant_lines(row, CONSTANT_LINE)
                out.add(serial, lines)
            else:
                lines, masks = cache_lines(row, nbytes)
                out.add(global_requests(row, nbytes), lines, masks)

    def _phases(self, index: int, row: np.ndarray, nbytes: int) -> int:
        key = index, row.tobytes()
        if key not in self._seen:
            self._seen[key] = shared_phases(row, nbytes, self.pair_merge)
        return self._seen[key]


def _paths(runs: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Distinct paths as (runs, pointers) and the path number of each given one."""
    numbers: dict[bytes, int] = {}
    kept: list[np.ndarray] = []
    which = []
    for r in runs:
        r = np.ascontiguousarray(r, np.int64)
        key = r.tobytes()
        if key not in numbers:
            numbers[key] = len(kept)
            kept.append(r)
        which.append(numbers[key])
    joined = np.concatenate(kept)
    pointers = np.concatenate([[0], np.cumsum([len(k) for k in kept])]).astype(np.int64)
    return joined, pointers, which


def build(instructions: Sequence[Instruction], traces: Sequence[WarpTrace], *, blocks: int, block_warps: int,
          stream_of: np.ndarray | None = None, shift: np.ndarray | None = None, groups: np.ndarray | None = None,
          pair_merge: bool = True) -> Workload:
    """Reduce traces to a workload.

    Without `stream_of`, `traces` holds every warp of the grid: trace b * block_warps + w is warp w of the b-th block
    (x fastest). With it, stream_of[b * block_warps + w] names the trace that warp shares, and shift[b, group] (bytes, a
    multiple of 128) is added to the addresses of the instructions of that address group (`groups`, one per
    instruction). Raises SimulationError for traces that do not fit the instructions."""
    if stream_of is None:
        stream_of = np.arange(blocks * block_warps)
        if len(traces) != len(stream_of):
            raise SimulationError(f"{blocks} blocks of {block_warps} warps need {blocks * block_warps} traces "
                                  f"(got {len(traces)})")
    shift = np.zeros((blocks, 1), np.int64) if shift is None else np.asarray(shift, np.int64)
    if (shift % LINE).any():
        raise SimulationError(f"blocks can share a stream only if their addresses differ by multiples of {LINE} bytes")
    groups = np.zeros(len(instructions), np.int64) if groups is None else groups.astype(np.int64)
    reducer, records, pointers = Reducer(instructions, pair_merge), _Records(), [0]
    for trace in traces:
        reducer.records(trace.runs, trace.addresses, records)
        pointers.append(len(records.rows))
    runs, path_ptr, which = _paths(t.runs for t in traces)
    lines = np.concatenate(records.lines) if records.lines else np.zeros((1, 2), np.int64)
    work = Work(runs, path_ptr, np.array(which, np.int64)[stream_of], stream_of.astype(np.int64),
                np.array(pointers, np.int64), np.array(records.rows or [(0, 0, 0)], np.int64), lines, shift // LINE)
    return Workload(tuple(instructions), work, groups, blocks, block_warps)
