"""Runs the items: here, or in processes of their own, so that one that hangs or leaves the GPU's context unusable costs
only itself.

Most of the time goes into machine code, for the virtual GPU and, where kernels are translated, for the card; so several
processes share the items, those of a kernel in one of them. What is measured is measured alone, at the end. Nobody can
tell which of several processes stopped a card; so when one gives no answer all are ended, and what has no result goes
on in one process, where it can be told."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import MaxdnnError
from .items import FAILED, Item, Result, Stand
from .kernels import GuardError, KernelItem
from .kernels import items as kernel_items
from .report import clean

Tell = Callable[[int, int], None]
WORKER = (sys.executable, "-m", "maxdnn.selftest.worker")
PATIENCE = 300.0  # seconds for an item, the driver's compiler and the simulation included
MARK = "maxdnn selftest: "  # before a result in a worker's output
_IN_A_ROW = 12  # failures after which a GPU is given up
_MOST = 12  # processes at once
_MEMORY = 1024  # MiB of the card that must be there for each
_MEASURED = ("clocks", "times")  # parts that nothing may run beside


def every(quick: bool = False) -> list[Item]:
    """All items in order: the same list in every process."""
    from .probes import clocks, questions
    from .times import items as time_items

    return [*kernel_items(quick), *questions(), *clocks(quick), *time_items(quick)]


def attempt(item: Item, stand: Stand) -> Result:
    """The result of an item, for any exception too."""
    try:
        return item.run(stand)
    except (MaxdnnError, GuardError, OSError, MemoryError) as e:
        return Result(item.part, item.name, FAILED, clean(str(e) or type(e).__name__))
    except Exception as e:  # a self-test exists for errors that were not foreseen
        return Result(item.part, item.name, FAILED, clean(f"{type(e).__name__}: {e}"))


def here(stand: Stand, quick: bool = False, tell: Tell | None = None) -> Iterator[tuple[int, Result]]:
    """Run all items in this process; yields the number of each and its result."""
    items = every(quick)
    for number, item in enumerate(items):
        if tell:
            tell(number, len(items))
        yield number, attempt(item, stand)


def processes(memory_mib: int) -> int:
    """How many may share the items on a card with so much memory."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST, cpus, memory_mib // _MEMORY))


def apart(ordinal: int, quick: bool = False, tell: Tell | None = None,
          most: int = 1) -> Iterator[tuple[int, Result]]:
    """Run all items on a GPU in other processes, up to `most` at once; yields the number of each and its result, as
    they come. Of items that fail one after the other so many are tried and no more."""
    items = every(quick)
    done: set[int] = set()
    in_a_row = 0
    shared = [numbers for numbers in _groups(items) if items[numbers[0]].part not in _MEASURED]
    alone = [[n for n, item in enumerate(items) if item.part in _MEASURED]]
    for groups, count in ((shared, most), (None, 1), (alone, 1)):
        if groups is None:  # what is left where one gave no answer
            groups = [[n for numbers in shared for n in numbers if n not in done]]
        crew = _Crew(items, groups, lambda: _Child(ordinal, quick), count)
        try:
            for number, result in crew.results():
                if tell:
                    tell(len(done), len(items))
                yield number, result
                done.add(number)
                in_a_row = in_a_row + 1 if result.state == FAILED else 0
                if in_a_row >= _IN_A_ROW:
                    break
        finally:
            crew.stop()
        if in_a_row >= _IN_A_ROW:
            break
    for number, item in enumerate(items):
        if number not in done:
            yield number, Result(item.part, item.name, FAILED, f"not run: the {_IN_A_ROW} items before it failed")


def _groups(items: Sequence[Item]) -> list[list[int]]:
    """The numbers of items that are best run by one process, one after the other: they have a kernel in common."""
    found: dict[Any, list[int]] = {}
    for number, item in enumerate(items):
        key = item.plan.spec.name if isinstance(item, KernelItem) else (item.part, item.name)
        found.setdefault(key, []).append(number)
    return list(found.values())


class _Crew:
    """Processes that take groups of items until none is left."""

    def __init__(self, items: Sequence[Item], groups: Iterable[list[int]], start: Callable[[], "_Child"],
                 most: int) -> None:
        self._items, self._start = items, start
        self._groups = deque(numbers for numbers in groups if numbers)
        self._results: queue.Queue[tuple[int, Result] | None] = queue.Queue()
        self._children: set[_Child] = set()
        self._over = False
        self._lock = threading.Lock()  # of the two above
        self._threads = [threading.Thread(target=self._serve, daemon=True)
                         for _ in range(min(most, len(self._groups)))]

    def results(self) -> Iterator[tuple[int, Result]]:
        """All results, as they come; of several processes none behind the first item without an answer."""
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            while (found := self._results.get()) is not None:
                yield found

    def stop(self) -> None:
        """End all processes."""
        with self._lock:
            self._over = True
            for child in self._children:
                child.end()

    def _serve(self) -> None:
        child = None
        try:
            while not self._over and self._groups:
                try:
                    numbers = self._groups.popleft()
                except IndexError:
                    break
                for number in numbers:
                    child = child or self._new()
                    if child is None:
                        return
                    result = self._answer(child, number)
                    if result is None:
                        return
                    self._results.put((number, result))
                    if result.state == FAILED:
                        self._gone(child)
                        child = None
        finally:
            if child is not None:
                self._gone(child)
            self._results.put(None)

    def _new(self) -> "_Child | None":
        with self._lock:
            if self._over:
                return None
            child = self._start()
            self._children.add(child)
            return child

    def _gone(self, child: "_Child") -> None:
        child.end()
        with self._lock:
            self._children.discard(child)

    def _answer(self, child: "_Child", number: int) -> Result | None:
        """The result of an item; None if the fault may be another process's."""
        item = self._items[number]
        try:
            found = child.ask(number)
        except queue.Empty:
            if len(self._threads) > 1:
                self.stop()
        else:
            if found is not None:
                return found
        if self._over:
            return None
        return Result(item.part, item.name, FAILED, f"no answer within {PATIENCE:.0f} s, or its process died")


class _Child:
    """A process that runs the items it is told the numbers of, until one fails."""

    def __init__(self, ordinal: int, quick: bool) -> None:
        command = [*WORKER, str(ordinal), str(int(quick))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
                                         env={"MAXDNN_NATIVE": "1", **os.environ, "PYTHONIOENCODING": "utf-8"})
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, number: int) -> Result | None:
        """The result of an item; None if the process has died. Raises queue.Empty if it says nothing for too long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{number}\n")
            self._process.stdin.flush()
        except OSError:
            return None
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            if line.startswith(MARK):
                return Result(**json.loads(line[len(MARK):]))
        return None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(device: Any, quick: bool, numbers: Iterable[str], write: Callable[[str], Any]) -> int:
    """What the other process does with the numbers it is told. It ends at the first failure on a GPU, whose context may
    be unusable."""
    stand, items = Stand(device), every(quick)
    for number in numbers:
        result = attempt(items[int(number)], stand)
        write(MARK + json.dumps(asdict(result)) + "\n")
        if result.state == FAILED and stand.card:
            return 1
    return 0
