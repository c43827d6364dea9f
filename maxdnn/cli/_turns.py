"""Jobs in processes of their own, which get ready side by side and then measure one after the other, while nobody else
computes. What ends one of them, be it a fault of the GPU, costs its results only."""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from ..errors import MaxdnnError

Turn = Callable[[], None]
"""Called by a job when it is ready: comes back when nobody else computes; at once if it has done so before."""
Work = Callable[[Any, Turn], Iterator[Any]]
_ALONE = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # processes take the cores


class Failed(NamedTuple):
    """In the place of results that do not come any more."""

    why: str


def in_turns(work: Work, jobs: Sequence[Any], side_by_side: int, patience: float) -> Iterator[tuple[Any, Any]]:
    """(job, result) of each thing that `work(job, turn)` yields behind its turn, as it comes; (job, Failed) where it
    ends otherwise. `side_by_side`: how many get ready at a time. A job gets `patience` seconds to get ready, and so
    many to its next result. `work` is a function of a module."""
    runs = [_Run(work, job) for job in jobs]
    try:
        yield from _get_ready(runs, side_by_side, patience)
        for run in runs:
            if run.pipe is not None:
                run.pipe.send("go")
            while run.pipe is not None:
                if run.pipe.poll(patience):
                    yield from run.told()
                else:
                    run.stop()
                    yield run.job, Failed(f"nothing came for {patience:g} s")
    finally:
        for run in runs:
            run.stop()


def _get_ready(runs: "list[_Run]", side_by_side: int, patience: float) -> Iterator[tuple[Any, Any]]:
    """Until every job waits for its turn, or has ended."""
    waiting = list(runs)
    busy: list[_Run] = []
    while waiting or busy:
        while waiting and len(busy) < side_by_side:
            busy.append(waiting.pop(0))
            busy[-1].start()
        pipes = {run.pipe: run for run in busy}
        until = min(run.begun for run in busy) + patience
        for pipe in wait([pipe for pipe in pipes if pipe is not None], max(0.0, until - time.monotonic())):
            yield from pipes[pipe].told()  # type: ignore[index]
        for run in busy:
            if run.getting_ready and time.monotonic() > run.begun + patience:
                run.stop()
                yield run.job, Failed(f"was not ready after {patience:g} s")
        busy = [run for run in busy if run.getting_ready]


class _Run:
    """A job's process, seen from here. `pipe`: to it; None before its start and behind its end."""

    def __init__(self, work: Work, job: Any) -> None:
        self._work, self.job = work, job
        self.pipe: Connection | None = None
        self.begun, self._ready = 0.0, False

    @property
    def getting_ready(self) -> bool:
        return self.pipe is not None and not self._ready

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.begun = time.monotonic()
        self._process = context.Process(target=_main, args=(other, self._work, self.job))
        before = {name: os.environ.get(name) for name in _ALONE}
        os.environ.update(_ALONE)  # a new process has them from its first import on
        try:
            self._process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        other.close()

    def told(self) -> list[tuple[Any, Any]]:
        """What the process says next, as far as it is a result."""
        assert self.pipe is not None
        try:
            what, value = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            what, value = "failed", f"its process ended with {self._process.exitcode}"
        if what == "ready":
            self._ready = True
            return []
        if what == "result":
            return [(self.job, value)]
        self.stop()
        return [(self.job, Failed(value))] if what == "failed" else []

    def stop(self) -> None:
        if self.pipe is not None:
            self._process.kill()
            self._process.join()
            self.pipe.close()
            self.pipe = None


def _main(pipe: Connection, work: Work, job: Any) -> None:
    """The process of a job."""
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            pipe.send(("ready", None))
            pipe.recv()
    try:
        for result in work(job, turn):
            pipe.send(("result", result))
        pipe.send(("done", None))
    except Exception as e:
        if not isinstance(e, MaxdnnError):
            traceback.print_exc()
        pipe.send(("failed", str(e)))
