"""Runs the items: here, or in a process of their own, so that one that hangs or leaves the GPU's context unusable costs
only itself."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from ..errors import MaxdnnError
from .items import FAILED, Item, Result, Stand
from .kernels import GuardError
from .kernels import items as kernel_items
from .report import clean

Tell = Callable[[int, int], None]
WORKER = (sys.executable, "-m", "maxdnn.selftest.worker")
PATIENCE = 300.0  # seconds for an item, the driver's compiler and the simulation included
_IN_A_ROW = 12  # failures after which a GPU is given up


def every(quick: bool = False) -> list[Item]:
    """All items in order: the same list in every process."""
    from .probes import clocks, questions
    from .times import items as time_items

    return [*kernel_items(quick), *questions(), *clocks(quick), *time_items(quick)]


def attempt(item: Item, stand: Stand) -> Result:
    """The result of an item, whatever happens."""
    try:
        return item.run(stand)
    except (MaxdnnError, GuardError, OSError, MemoryError) as e:
        return Result(item.part, item.name, FAILED, clean(str(e) or type(e).__name__))
    except Exception as e:  # what nobody has thought of is what a self-test is for
        return Result(item.part, item.name, FAILED, clean(f"{type(e).__name__}: {e}"))


def here(stand: Stand, quick: bool = False, tell: Tell | None = None) -> Iterator[Result]:
    """Run all items in this process."""
    items = every(quick)
    for number, item in enumerate(items):
        if tell:
            tell(number, len(items))
        yield attempt(item, stand)


def apart(ordinal: int, quick: bool = False, tell: Tell | None = None) -> Iterator[Result]:
    """Run all items on a GPU in other processes: one until an item fails, then another for the rest. Of items that fail
    one after the other so many are tried and no more."""
    items, number, in_a_row = every(quick), 0, 0
    while number < len(items) and in_a_row < _IN_A_ROW:
        failed = False
        for result in _Child(ordinal, number, quick).results():
            if tell:
                tell(number, len(items))
            yield result
            number += 1
            failed = result.state == FAILED
            in_a_row = in_a_row + 1 if failed else 0
        if number < len(items) and not failed:  # it ended without a word of this one
            item = items[number]
            yield Result(item.part, item.name, FAILED, f"no answer within {PATIENCE:.0f} s, or its process died")
            number, in_a_row = number + 1, in_a_row + 1
    for item in items[number:]:
        yield Result(item.part, item.name, FAILED, f"not run: the {_IN_A_ROW} items before it failed")


class _Child:
    """A process that runs the items from number `first` on, until one fails."""

    def __init__(self, ordinal: int, first: int, quick: bool) -> None:
        command = [*WORKER, str(ordinal), str(first), str(int(quick))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                         encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "utf-8"})
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def results(self) -> Iterator[Result]:
        try:
            while True:
                line = self._lines.get(timeout=PATIENCE)
                if line is None:
                    return
                if line.startswith(MARK):
                    yield Result(**json.loads(line[len(MARK):]))
        except queue.Empty:
            return
        finally:
            self._process.kill()
            self._process.wait()


MARK = "maxdnn selftest: "


def serve(device: Any, first: int, quick: bool, write: Callable[[str], Any]) -> int:
    """What the other process does. It ends at the first failure on a GPU, whose context may be unusable."""
    stand = Stand(device)
    for item in every(quick)[first:]:
        result = attempt(item, stand)
        write(MARK + json.dumps(asdict(result)) + "\n")
        if result.state == FAILED and stand.card:
            return 1
    return 0
