"""A fork copies only the thread that forks: a lock that another thread held stays locked in the child for ever, and
what it protected may be half changed.

So a fork waits for the locks that are held briefly (`ForkLock`), and finds what they protect whole. Locks that are held
for as long as somebody computes (`FreshLock`) begin anew in the child, where nobody computes."""

import concurrent.futures.thread  # noqa: F401  imported here because they have hooks of forks, too: what is imported
import logging  # noqa: F401  while a fork waits is told of its end without having been told of its beginning
import os
import threading
import weakref
from typing import Any


class ForkLock:
    """A lock, reentrant, that every fork of the process waits for. Forks take them in the order they were made: whoever
    holds one and waits for another must do so in that order too. For short holds, or for making machine code."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.acquire, self.release = lock.acquire, lock.release
        watch(lock)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class FreshLock:
    """A lock, not reentrant, that is free in the child of a fork. What it protects must bear being left anywhere.
    `now`: what this process locks, for calls that must cost little."""

    def __init__(self) -> None:
        self.now = threading.Lock()
        _fresh.add(weakref.ref(self, _fresh.discard))

    def __enter__(self) -> None:
        self.now.acquire()

    def __exit__(self, *_: object) -> None:
        self.now.release()


_watched: list[Any] = []
_held: list[Any] = []  # by the fork that is going on: another thread may have more of them watched meanwhile
_fresh: set[Any] = set()  # of as many locks as there are plans on devices


def watch(lock: Any) -> None:
    """Let forks wait for a lock (`acquire`, `release`, reentrant) after those known so far."""
    _watched.append(lock)


def _before() -> None:
    for lock in list(_watched):
        lock.acquire()
        _held.append(lock)


def _release() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _release()
    for reference in list(_fresh):
        lock = reference()
        if lock is not None:
            lock.now = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)

compiling = ForkLock()  # held while anything is compiled, by LLVM or by numba, or imported at its first use
tables = ForkLock()  # held while the virtual GPU's tables of memory and textures are read or changed
