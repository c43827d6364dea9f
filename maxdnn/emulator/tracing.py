"""Recording what chosen blocks of a launch do: the path of every warp and the addresses of its memory instructions."""

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import LaunchError
from ..runtime.devices.protocol import Dim3
from . import helpers, layout
from .faults import fault_of
from .layout import LANES
from .memory import GlobalMemory
from .trace import WarpTrace
from .worker import LaunchPlan, Worker

_ROWS = 2048  # per warp before they are collected: 512 KiB
_RUNS = 8192
OnWarp = Callable[[WarpTrace], None]


class TraceWorker(Worker):
    """A worker whose compiled code writes runs and addresses into buffers that are emptied here."""

    def __init__(self, plan: LaunchPlan, on_warp: OnWarp) -> None:
        super().__init__(plan)
        self._room = max(_ROWS, len(plan.compiled.kernel.code) // 8)  # at least the rows of a basic block
        self._rows = np.empty((self.warps, self._room, LANES), np.uint64)
        self._runs = np.empty((self.warps, _RUNS, 2), np.uint32)
        self.ctx["rows"], self.ctx["runs"] = self._rows.ctypes.data, self._runs.ctypes.data
        self.ctx["rows_room"], self.ctx["runs_room"] = self._room, _RUNS
        self._parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(self.warps)]
        self._on_warp = on_warp

    def collect(self) -> None:
        """Empty the buffers; when the block is over, hand its warps on."""
        for index, parts in enumerate(self._parts):
            warp = self.warp(index)
            paths, accesses = warp["trace_runs"], warp["trace_rows"]
            parts.append((self._runs[index, :paths].copy(), self._rows[index, :accesses].copy()))
            warp["trace_runs"] = warp["trace_rows"] = 0
        if self.ctx["block_busy"]:
            return
        block = self.ctx["ctaid_x"], self.ctx["ctaid_y"], self.ctx["ctaid_z"]
        for index, parts in enumerate(self._parts):
            runs, rows = (np.concatenate([p[k] for p in parts]) for k in (0, 1))
            parts.clear()
            self._on_warp(WarpTrace(block, index, merged(runs), rows))


def merged(runs: np.ndarray) -> np.ndarray:
    """Join runs that continue one another. runs: (n, 2) uint32 pairs (first, count)."""
    if not len(runs):
        return runs
    ends = runs[:, 0] + runs[:, 1]
    starts = np.flatnonzero(np.concatenate([[True], runs[1:, 0] != ends[:-1]]))
    counts = np.add.reduceat(runs[:, 1], starts)
    return np.stack([runs[starts, 0], counts], axis=1).astype(np.uint32)


def linear(blocks: Sequence[Dim3], grid: Dim3) -> np.ndarray:
    """Block coordinates as numbers in launch order (x fastest). Raises LaunchError for one outside the grid."""
    for block in blocks:
        if len(block) != 3 or not all(0 <= b < g for b, g in zip(block, grid, strict=True)):
            raise LaunchError(f"blocks must lie inside the grid {tuple(grid)} (got {tuple(block)})")
    return np.array([x + grid[0] * (y + grid[1] * z) for x, y, z in blocks], np.int64)


def trace(plan: LaunchPlan, memory: GlobalMemory, on_warp: OnWarp) -> None:
    """Run the plan's blocks one after the other; `on_warp` gets every warp of a block when the block is over."""
    helpers.load()
    worker = TraceWorker(plan, on_warp)
    if worker.run() == layout.FAULTED:
        raise fault_of(worker, memory)
