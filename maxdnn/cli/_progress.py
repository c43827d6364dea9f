"""Signs of life on stderr during long work: a bar on a terminal, else a line every few seconds."""

import sys
import threading
import time
from types import TracebackType
from typing import Any

_EVERY = 5.0  # seconds between two lines


class Progress:
    """`with Progress("simulating") as tell: ... tell(done, of)`. Prints nothing for work shorter than a few seconds."""

    def __init__(self, title: str, every: float = _EVERY) -> None:
        self._title, self._every = title, every
        self._share = 0.0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        self._share = min(1.0, done / of) if of > 0 else 0.0
        if self._bar is not None:
            self._bar.update(0, completed=self._share)

    def __enter__(self) -> "Progress":
        self._start = time.monotonic()
        if sys.stderr.isatty():
            self._bar = _bar()
            self._bar.add_task(self._title, total=1.0)
            self._bar.start()
        else:
            self._thread = threading.Thread(target=self._lines, daemon=True)
            self._thread.start()
        return self

    def _lines(self) -> None:
        while not self._over.wait(self._every):
            done = f", {100 * self._share:.0f} % done" if self._share else ""
            print(f"{self._title}: {time.monotonic() - self._start:.0f} s{done}", file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._over.set()
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._thread.join()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    return Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                    TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
