"""Tables that remember without growing for ever: of what is too much an entry taken at random goes, one at a time. So
whoever walks in a circle through a few more keys than there is room for misses a few, where the least recently used
one would always be the next one wanted."""

import functools
import random
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from .forks import FreshLock

ENTRIES = 1 << 14  # that any table has room for
MODULES = 1 << 7  # of machine code that is loaded again and again, with other tables each time
HOST_BYTES = 1 << 29  # of host memory that plans remembered by one table may take, with what their kernels read
_TRIES = 64  # to find an entry that may go

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Values by key. Together they weigh at most `most`, as far as they may go. Any thread may use it; `get` costs what
    a dictionary does."""

    def __init__(self, most: float, entries: int = ENTRIES) -> None:
        self.most, self.entries, self.weight = most, entries, 0.0
        self._lock = FreshLock()
        self._found: dict[K, V] = {}
        self._keys: list[K] = []
        self._weights: dict[K, float] = {}
        self._random = random.Random(0)
        self.get: Callable[[K], V | None] = self._found.get

    def __len__(self) -> int:
        return len(self._found)

    def values(self) -> list[V]:
        return list(self._found.values())

    def put(self, key: K, value: V, weight: float = 1) -> V:
        """Remember the value, unless there is one; the one that is there then."""
        with self._lock:
            if key not in self._found:
                self._weights[key] = weight
                self._keys.append(key)
                self._found[key] = value
                self.weight += weight
            return self._found[key]

    def weigh(self, key: K, weight: float) -> None:
        """Say what the entry of a key, if there is one, weighs from now on."""
        with self._lock:
            if key in self._found:
                self.weight += weight - self._weights[key]
                self._weights[key] = weight

    @property
    def over(self) -> bool:
        """Whether something should go."""
        return self.weight > self.most or len(self._found) > self.entries

    def trim(self, may_go: Callable[[V], bool] = lambda value: True, keep: K | None = None) -> None:
        """Drop entries taken at random until what is left is within bounds, but those that may not go, and not the one
        of `keep`. `may_go` is asked once for each that goes, right before."""
        with self._lock:
            tries = 0
            while self.over and tries < _TRIES and self._keys:
                at = self._random.randrange(len(self._keys))
                key = self._keys[at]
                if key == keep or (key in self._found and not may_go(self._found[key])):
                    tries += 1
                    continue
                self._drop(at)

    def drop(self, may_go: Callable[[V], bool]) -> None:
        """Drop every entry that may go."""
        with self._lock:
            for at in range(len(self._keys) - 1, -1, -1):
                if self._keys[at] not in self._found or may_go(self._found[self._keys[at]]):
                    self._drop(at)

    def forget(self, key: K) -> None:
        """Drop the entry of a key, if there is one. Takes as long as there are entries."""
        with self._lock:
            if key in self._found:
                self._drop(self._keys.index(key))

    def clear(self) -> None:
        self.drop(lambda value: True)

    def remember(self, key: K, value: V, weight: float = 1, may_go: Callable[[V], bool] = lambda value: True) -> V:
        """`put`, and drop what is too much."""
        kept = self.put(key, value, weight)
        if self.over:
            self.trim(may_go, keep=key)
        return kept

    def replace(self, key: K, value: V) -> None:
        """Let the entry of a key, if there is one, have another value of the same weight."""
        with self._lock:
            if key in self._found:
                self._found[key] = value

    def _drop(self, at: int) -> None:
        key, last = self._keys[at], self._keys.pop()
        if at < len(self._keys):
            self._keys[at] = last
        self._found.pop(key, None)
        self.weight -= self._weights.pop(key, 0)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._found))


def remembered(most: float = ENTRIES, weigh: Callable[[Any], float] = lambda value: 1) -> Callable[[Any], Any]:
    """A decorator for functions of hashable positional arguments: what they gave is remembered, in a `Table` that it
    adds as `table`, with its `clear` as `cache_clear`; an error is not."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        table: Table[Any, Any] = Table(most)

        @functools.wraps(function)
        def call(*key: Any) -> Any:
            found = table.get(key)
            if found is None:
                value = function(*key)
                found = table.remember(key, (value,), weigh(value))
            return found[0]
        call.table, call.cache_clear = table, table.clear  # type: ignore[attr-defined]
        return call
    return decorate
