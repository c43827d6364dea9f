"""A fork copies only the thread that forks: a lock that another thread held stays locked in the child for ever, and
what it protected may be half changed. So a fork waits for the locks made here, and finds what they protect whole."""

import os
import threading
from typing import Any


class ForkLock:
    """A lock, reentrant, that every fork of the process waits for. Forks take them in the order they were made: whoever
    holds one and waits for another must do so in that order too. For short holds, or for making machine code."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _known.append(self._lock)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_known: list[Any] = []


def _before() -> None:
    for lock in _known:
        lock.acquire()


def _after() -> None:
    for lock in reversed(_known):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)

compiling = ForkLock()  # held while anything is compiled, by LLVM or by numba
