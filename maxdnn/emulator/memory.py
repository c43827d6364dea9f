"""Global memory of the virtual GPU: every allocation is a host array with a device address of its own. Addresses are
never given out twice and lie at least a guard apart, so a stray access cannot land in a neighbour."""

import bisect
import contextlib
import mmap
import weakref
from collections import deque
from collections.abc import Iterator

import numpy as np

from ..errors import LaunchError, OutOfMemoryError, shown
from ..runtime.forks import tables

FIRST_ADDRESS = 0x2_0000_0000  # above 4 GiB: a dropped high word is noticed
GUARD = 1 << 20
ALIGNMENT = 512
_HUGE = 4 << 20  # bytes from which on NumPy asks for huge pages


def aligned_bytes(nbytes: int, alignment: int = 64) -> np.ndarray:
    """A zeroed uint8 array whose data starts at a multiple of `alignment`."""
    raw = np.zeros(nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start:start + nbytes]


def aligned_copy(data: bytes | np.ndarray) -> np.ndarray:
    """The same bytes at an aligned address."""
    out = aligned_bytes(len(data))
    out[:] = np.frombuffer(data, np.uint8)
    return out


def _sparse_bytes(nbytes: int) -> np.ndarray:
    """A zeroed uint8 array at an aligned address, of which only what is touched takes memory, 4 KiB at a time. NumPy
    asks for huge pages instead: a few floats here and there, as a simulation's blocks write them, would take it all."""
    if nbytes < _HUGE or not hasattr(mmap, "MAP_ANONYMOUS"):
        return aligned_bytes(nbytes, ALIGNMENT)
    raw = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that has none
            raw.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(raw, np.uint8)


class VirtualBuffer:
    """Device memory of the virtual GPU. `data` is its content."""

    def __init__(self, memory: "GlobalMemory", address: int, data: np.ndarray) -> None:
        self.address = address
        self.nbytes = data.nbytes
        self.data = data
        self._release = weakref.finalize(self, memory.release, address)

    def free(self) -> None:
        self._release()


class GlobalMemory:
    """All allocations, by address. `most`: bytes of all that is there at a time, None for what the host has. Any thread
    may use it."""

    def __init__(self, most: int | None = None) -> None:
        self._most, self._used = most, 0
        self._next = FIRST_ADDRESS
        self._live: dict[int, np.ndarray] = {}
        self._addresses: list[int] = []
        self._freed: list[tuple[int, int]] = []
        self._dead: deque[int] = deque()  # to be released
        self._busy = False

    @contextlib.contextmanager
    def _table(self) -> Iterator[None]:
        """Read or change the table alone. A buffer may die at any moment, also of a thread that is in here already:
        then it waits in `_dead`."""
        with tables:
            nested, self._busy = self._busy, True
            try:
                if not nested:
                    self._bury()
                yield
            finally:
                self._busy = nested
        if self._dead:
            self._sweep()

    def _sweep(self) -> None:
        """Release what is dead, unless somebody is at the table, who will do it: finalizers must not wait for locks."""
        if tables.acquire(blocking=False):
            try:
                if not self._busy:
                    self._bury()
            finally:
                tables.release()

    def _bury(self) -> None:
        while self._dead:
            address = self._dead.popleft()
            data = self._live.pop(address, None)
            if data is not None:
                del self._addresses[bisect.bisect_left(self._addresses, address)]
                self._used -= data.nbytes
                self._freed.append((address, data.nbytes))
                del self._freed[:-1000]

    def alloc(self, nbytes: int) -> VirtualBuffer:
        if not isinstance(nbytes, (int, np.integer)) or not 0 <= nbytes < 1 << 47:
            raise LaunchError(f"nbytes must be an integer from 0 to 2^47 - 1 (got {shown(nbytes)})")
        self._check(int(nbytes))
        try:
            data = _sparse_bytes(int(nbytes))
        except (MemoryError, ValueError, OSError) as e:  # numpy: more than an array can have; mmap: no room
            raise OutOfMemoryError(f"out of host memory for an allocation of {nbytes} bytes", int(nbytes)) from e
        return self._add(data)

    def _check(self, nbytes: int) -> None:
        """Raises OutOfMemoryError where so much is more than there is left."""
        free = self.free_bytes()
        if free is not None and nbytes > free:
            raise OutOfMemoryError(f"out of memory on the virtual GPU: {nbytes} bytes wanted, {free} of {self._most} "
                                   "free", nbytes, free)

    def free_bytes(self) -> int | None:
        """Bytes that there are left; None where there is no limit."""
        with self._table():
            return None if self._most is None else self._most - self._used

    def adopt(self, array: np.ndarray) -> VirtualBuffer:
        """A C-contiguous array as an allocation, in place; its device address is aligned as its host address is. Raises
        LaunchError for any other array, which would have to be copied."""
        if not array.flags.c_contiguous:
            raise LaunchError(f"array must be C-contiguous (got shape {array.shape} with strides "
                              f"{array.strides} bytes)")
        return self._add(array.reshape(-1).view(np.uint8))

    def _add(self, data: np.ndarray) -> VirtualBuffer:
        shift = int(data.ctypes.data) % ALIGNMENT
        with self._table():
            self._check(data.nbytes)
            self._used += data.nbytes
            address = self._next + shift
            self._live[address] = data
            self._addresses.append(address)
            self._next += (shift + data.nbytes + GUARD + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return VirtualBuffer(self, address, data)

    def release(self, address: int) -> None:
        self._dead.append(address)
        self._sweep()

    def table(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """(n, 4) uint64, ascending: device address, bytes, host address, 0; and the arrays, which whoever uses the
        table must hold on to: another thread may free them."""
        with self._table():
            addresses = self._addresses.copy()
            arrays = [self._live[address] for address in addresses]
        out = np.zeros((len(addresses), 4), np.uint64)
        for row, address, data in zip(out, addresses, arrays, strict=True):
            row[:3] = address, data.nbytes, data.ctypes.data
        return out, arrays

    def host(self, address: int, nbytes: int) -> np.ndarray | None:
        """The bytes of a device range, or None if no allocation holds it."""
        with self._table():
            at = bisect.bisect_right(self._addresses, address) - 1
            if at < 0:
                return None
            start = self._addresses[at]
            data = self._live[start]
        offset = address - start
        return data[offset:offset + nbytes] if offset + nbytes <= data.nbytes else None

    def describe(self, address: int) -> str:
        """Where an address lies relative to the nearest allocation."""
        with self._table():
            freed, spans = self._freed.copy(), [(a, self._live[a].nbytes) for a in self._addresses]
        for start, nbytes in reversed(freed):
            if start <= address < start + nbytes:
                return f"inside a freed allocation of {nbytes} bytes at 0x{start:x}"
        if not spans:
            return "there are no allocations"
        start, nbytes = min(spans, key=lambda s: max(s[0] - address, address - (s[0] + s[1]), 0))
        if address >= start + nbytes:
            return f"{address - start - nbytes} bytes past the end of the allocation of {nbytes} bytes at 0x{start:x}"
        if address < start:
            return f"{start - address} bytes before the allocation of {nbytes} bytes at 0x{start:x}"
        return f"in the allocation of {nbytes} bytes at 0x{start:x}, {start + nbytes - address} bytes before its end"

