"""Tables of bounded size. A table that is over its bound drops entries at random, one at a time. A caller that cycles
through a few more keys than there is room for then misses only a few of them. If the least recently used entry were
dropped, it would miss every time, because that is the entry it needs next."""

import functools
import random
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from .forks import FreshLock

ENTRIES = 1 << 14  # of a table, at most
MODULES = 1 << 7  # at most, of a source that is loaded once for each content of its tables
HOST_BYTES = 1 << 29  # of host memory that plans remembered by one table may take, with what their kernels read
_TRIES = 64  # before `trim` gives up finding an entry that may be dropped

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Values by key, each with a weight. The weights together stay within `most`, unless entries may not be dropped.
    Any thread may use it. `get` costs as much as a dictionary's."""

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
        """Store a value unless the key has one. Returns the value that the key has then."""
        with self._lock:
            if key not in self._found:
                self._weights[key] = weight
                self._keys.append(key)
                self._found[key] = value
                self.weight += weight
            return self._found[key]

    def weigh(self, key: K, weight: float) -> None:
        """Set the weight of a key's entry, if there is one."""
        with self._lock:
            if key in self._found:
                self.weight += weight - self._weights[key]
                self._weights[key] = weight

    @property
    def over(self) -> bool:
        """Whether the table is beyond one of its bounds."""
        return self.weight > self.most or len(self._found) > self.entries

    def trim(self, may_go: Callable[[V], bool] = lambda value: True, keep: K | None = None) -> None:
        """Drop random entries until the table is within its bounds. The entry of `keep` stays, and so do those for
        which `may_go` is false. `may_go` is called right before an entry is dropped, and not again if it returns
        true."""
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
        """Drop every entry for which `may_go` is true."""
        with self._lock:
            for at in range(len(self._keys) - 1, -1, -1):
                if self._keys[at] not in self._found or may_go(self._found[self._keys[at]]):
                    self._drop(at)

    def forget(self, key: K) -> None:
        """Drop the entry of a key, if there is one. Takes time proportional to the number of entries."""
        with self._lock:
            if key in self._found:
                self._drop(self._keys.index(key))

    def clear(self) -> None:
        self.drop(lambda value: True)

    def remember(self, key: K, value: V, weight: float = 1, may_go: Callable[[V], bool] = lambda value: True) -> V:
        """`put` a value, then `trim` the table."""
        kept = self.put(key, value, weight)
        if self.over:
            self.trim(may_go, keep=key)
        return kept

    def replace(self, key: K, value: V) -> None:
        """Change the value of a key's entry, if there is one. The new value must have the same weight."""
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
    """Decorator for a function of hashable positional arguments. Its results are kept in a `Table`, which is the
    function's attribute `table`; `cache_clear` empties it. A call that raises is not remembered."""
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
