"""The course of a launch: issue slots by reason from its begin to its end, in a few hundred stretches, and every issue
of two short windows, one at the begin and one in the middle. Both are taken from the image between two calls of the
engine, which knows nothing of it."""

from typing import Any, Protocol

import numpy as np

from . import columns as c
from .state import Image

STRETCHES = 512  # of a launch, at most; at least half as many of a long one
FIRST_STRETCH = 64  # cycles; doubled whenever there are too many
MOST_CYCLES = 65_536  # of one window
WINDOWS = 2
_COUNTERS = (c.C_L1_SECTORS, c.C_L1_HITS, c.C_L2_SECTORS, c.C_L2_HITS, c.C_DRAM_READ, c.C_DRAM_WRITE, c.C_DONE)


class Recorded(Protocol):
    """What is asked of a simulated launch here (simulate.Result)."""

    @property
    def cycles(self) -> int: ...

    @property
    def resident_warps(self) -> int: ...

    @property
    def issued(self) -> np.ndarray: ...

    @property
    def events(self) -> np.ndarray: ...

    @property
    def windows(self) -> tuple[tuple[int, int], ...]: ...

    @property
    def samples(self) -> np.ndarray | None: ...


class Recorder:
    """Looks at an image every `step` cycles. `cycles`: length of a window; `instructions`: warp-instructions the
    simulated SMs will issue, after half of which the second window begins. `trace`: the only window, if one was asked
    for."""

    def __init__(self, image: Image, cycles: int, instructions: int, trace: tuple[int, int] | None) -> None:
        self._image, self._cycles, self._half = image, cycles, instructions // 2
        self.windows = [trace or (0, cycles)]
        self._wanted = 1 if trace else WINDOWS
        self.step = FIRST_STRETCH
        self.samples: list[np.ndarray] = [self._sample()]

    def look(self) -> None:
        """To be called after `step` cycles, and at the end."""
        self.samples.append(self._sample())
        if len(self.samples) > STRETCHES:
            del self.samples[1::2]
            self.step *= 2
        X = self._image.X
        if len(self.windows) < self._wanted and X[c.C_ISSUED] + X[c.C_DUAL] >= self._half \
                and X[c.C_NOW] >= self._cycles:
            schedulers = self._image.table(c.T_SCHED, self._image.shape.sms * 4, c.S_SIZE)
            first = max(int(X[c.C_NOW]), int(schedulers[:, c.S_FREE].max()))  # what issues in one go has done so
            self.windows.append((first, first + self._cycles))
            X[c.P_TRACE_FROM], X[c.P_TRACE_TO] = self.windows[-1]

    def finish(self) -> np.ndarray:
        """The samples, cut where nothing happened any more."""
        last = self._sample()
        if self.samples[-1][0] < last[0]:
            self.samples.append(last)
        return np.stack(self.samples)

    def _sample(self) -> np.ndarray:
        """Cycle, slots issued, slots lost by reason, counters: all since the begin."""
        image, X = self._image, self._image.X
        now = int(X[c.C_NOW])
        lost = image.table(c.T_STALL, image.instructions + 1, c.REASON_COUNT).sum(0)
        for s in image.table(c.T_SCHED, image.shape.sms * 4, c.S_SIZE):
            if 0 <= s[c.S_SINCE] < now:  # a wait that is not over
                w = int(s[c.S_BLAMED])
                lost[X[w + c.W_REASON] if w >= 0 and X[w + c.W_ALIVE] else c.R_NONE] += now - s[c.S_SINCE]
        return np.concatenate([[now, X[c.C_ISSUED]], lost, X[list(_COUNTERS)]])


def as_dict(result: Recorded) -> dict[str, Any]:
    """The course of a launch as plain values. `cycle`: where each stretch ends, the first one begins at 0; `percent`:
    for each stretch, of the issue slots of the simulated SMs; `events`: columns with an entry for each issue of the
    first SM in a window: cycle after that of the entry before (of the window's begin), warp, row of the instruction in
    report.instruction_rows, whether second of a pair, block, and cycles from the issue until the result is there and
    until the operands have been read."""
    assert result.samples is not None
    steps = np.diff(result.samples, axis=0)
    slots = np.maximum(steps[:, 1:2 + c.REASON_COUNT], 0)  # a wait may have been charged to another reason in the end
    percent = 100 * slots / np.maximum(slots.sum(1, keepdims=True), 1)
    names = ("issued", *c.REASONS)
    return {
        "sm": 0, "warps": result.resident_warps, "schedulers": 4,
        "cycle": result.samples[1:, 0].tolist(),
        "percent": {name: [round(v, 2) for v in column] for name, column in zip(names, percent.T.tolist(), strict=True)
                    if max(column, default=0) >= 0.005},
        "blocks_done": result.samples[1:, -1].tolist(),
        "windows": [_window(result, first, last) for first, last in result.windows if first < result.cycles]}


def _window(result: Recorded, first: int, last: int) -> dict[str, Any]:
    e = result.events
    e = e[(e[:, 1] < 4) & (first <= e[:, 0]) & (e[:, 0] < last)]
    e = e[np.argsort(e[:, 0], kind="stable")]
    row = np.cumsum(result.issued > 0) - 1
    columns = {"cycle": np.diff(e[:, 0], prepend=first), "warp": e[:, 2], "instruction": row[e[:, 3]],
               "second": e[:, 4], "block": e[:, 5], "there": e[:, 6] - e[:, 0], "read": e[:, 7] - e[:, 0]}
    return {"first": first, "last": min(last, result.cycles),
            "events": {name: column.tolist() for name, column in columns.items()}}
