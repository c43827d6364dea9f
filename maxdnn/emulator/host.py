"""Functions that device code calls and the host serves: printf, malloc, free, a failed assertion.

A linked cubin holds the code address of such a function in constant bank 4. The virtual GPU writes addresses there that
lie outside all code; a warp that jumps to one stops, the function runs here for its active lanes, and the warp returns.
Arguments are where the compiler's calling convention puts them: R4 and up, 64-bit values in pairs, results in R4.
A launch of a kernel that may call the host runs its blocks one after the other: output and addresses come in an order
that does not change."""

import struct
import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ..errors import EmulationFault, MaxdnnError
from ..runtime.forks import tables
from .layout import LANES, LOCAL_WINDOW, REGS_OFFSET, SHARED_WINDOW, VECTOR_BYTES
from .memory import GlobalMemory, VirtualBuffer
from .printf import Arguments, formatted
from .record import Record

HEAP_BYTES = 8 << 20  # default of cudaLimitMallocHeapSize (CUDA C++ Programming Guide, heap memory allocation)
_ASSERT, _LONGEST = "__assertfail", 1 << 16
_FIRST = 0xFFFFF008
ADDRESSES = {name: _FIRST + 32 * k for k, name in enumerate(("vprintf", "malloc", "free", _ASSERT))}
_NAMES = {address: name for name, address in ADDRESSES.items()}


def to_stdout(text: str) -> None:
    sys.stdout.write(text)


class Heap:
    """What device code got from malloc: allocations of their own, so that accesses outside them are found."""

    def __init__(self, memory: GlobalMemory, nbytes: int) -> None:
        self.memory, self.nbytes, self.used = memory, nbytes, 0
        self._live: dict[int, VirtualBuffer] = {}

    def malloc(self, nbytes: int) -> int:
        """An address; 0 where the heap is full, or for nothing. Every byte of the memory reads 0xff at first."""
        with tables:
            if not 0 < nbytes <= self.nbytes - self.used:
                return 0
            self.used += nbytes
        buffer = self.memory.alloc(nbytes)
        buffer.data[:] = 0xFF
        self._live[buffer.address] = buffer
        return buffer.address

    def free(self, address: int) -> bool:
        """Whether malloc gave this address and it is not free yet."""
        buffer = self._live.pop(address, None)
        if buffer is None:
            return False
        with tables:
            self.used -= buffer.nbytes
        buffer.free()
        return True


class Caller(Protocol):
    """The worker whose warp has jumped to such a function (worker.py)."""

    ctx: Record

    @property
    def kernel_name(self) -> str: ...

    def warp(self, index: int) -> Record: ...

    def shared_bytes(self, index: int, lane: int) -> np.ndarray: ...

    def local_bytes_of(self, index: int, lane: int) -> np.ndarray: ...

    def refresh_allocations(self, memory: GlobalMemory) -> None: ...


class HostCalls:
    """The functions for one device. `output` gets the text of every printf."""

    def __init__(self, memory: GlobalMemory, heap: Heap, output: Callable[[str], None]) -> None:
        self.memory, self.heap, self.output = memory, heap, output

    def serves(self, pc: int) -> bool:
        return pc in _NAMES

    def call(self, worker: Caller, index: int) -> None:
        """Run the function that warp `index` has jumped to, for each of its active lanes. Raises EmulationFault."""
        warp = worker.warp(index)
        name, active = _NAMES[warp["pc"]], warp["active"]
        heap_changes = False
        for lane in range(LANES):
            if not active >> lane & 1:
                continue
            call = _Call(self.memory, worker, index, lane, name)
            if name == "vprintf":
                call.give(self._printf(call), 4)
            elif name == "malloc":
                call.give(self.heap.malloc(call.pair(4)), 8)
                heap_changes = True
            elif name == "free":
                address = call.pair(4)
                if address and not self.heap.free(address):
                    raise call.fault(f"free of 0x{address:x}, which malloc did not give or which is free already")
                heap_changes = True
            else:
                raise call.fault(f"assertion failed: {call.text(call.pair(6))}:{call.word(8)}: "
                                 f"{call.text(call.pair(10))}: {call.text(call.pair(4))}")
        if heap_changes:
            worker.refresh_allocations(self.memory)

    def _printf(self, call: "_Call") -> int:
        if not call.pair(4):
            return -1
        buffer = call.pair(6)
        arguments = Arguments(lambda at, size: call.read(buffer + at, size))
        self.output(formatted(call.text(call.pair(4)), arguments, call.text))
        return arguments.count


class _Call:
    """One lane's view of its registers and memory."""

    def __init__(self, memory: GlobalMemory, worker: Caller, index: int, lane: int, name: str) -> None:
        self._memory, self._worker, self._warp, self._lane, self._name = memory, worker, worker.warp(index), lane, name
        self._index = index

    def _register(self, number: int) -> np.ndarray:
        start = self._warp.base + REGS_OFFSET + VECTOR_BYTES * number + 4 * self._lane
        return self._warp.data[start:start + 4].view(np.uint32)

    def word(self, number: int) -> int:
        return int(self._register(number)[0])

    def pair(self, number: int) -> int:
        return self.word(number) | self.word(number + 1) << 32

    def give(self, value: int, nbytes: int) -> None:
        """The result, in R4 and for 8 bytes R5."""
        written = self._warp.array("written", np.uint32, 256)
        for k in range(nbytes // 4):
            self._register(4 + k)[0] = value >> 32 * k & 0xFFFFFFFF
            written[4 + k] |= np.uint32(1 << self._lane)

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes at a generic address."""
        window, offset = address >> 24, address & 0xFFFFFF
        near = {SHARED_WINDOW: self._worker.shared_bytes, LOCAL_WINDOW: self._worker.local_bytes_of}.get(window)
        data = self._memory.host(address, nbytes) if near is None else near(self._index, self._lane)
        if near is not None and data is not None:
            data = data[offset:offset + nbytes] if offset + nbytes <= data.nbytes else None
        if data is None:
            raise self.fault(f"{self._name} reads {nbytes} bytes out of bounds at 0x{address:x}: "
                             f"{self._memory.describe(address)}")
        return bytes(data)

    def text(self, address: int) -> str:
        """A string that ends with a zero."""
        out = bytearray()
        while len(out) < _LONGEST:
            byte = self.read(address + len(out), 1)
            if byte == b"\0":
                break
            out += byte
        return out.decode("utf-8", "replace")

    def fault(self, what: str) -> MaxdnnError:
        c = self._worker.ctx
        block = c["ctaid_x"], c["ctaid_y"], c["ctaid_z"]
        place = f"block {block}, warp {self._index}, lane {self._lane}"
        return EmulationFault(f"{self._worker.kernel_name}: {place}: {what}")


def bits(name: str) -> bytes:
    """The code address of a function, as bank 4 holds it."""
    return struct.pack("<I", ADDRESSES[name])
