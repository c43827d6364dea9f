"""What a device must offer. The virtual GPU and real GPUs fulfil the same protocol, so nothing above this folder knows
which one it talks to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

Dim3 = tuple[int, int, int]

TEXTURE_ALIGNMENT = 16
"""Bytes at whose multiples a texture may begin, where a device does not say otherwise (`texture_alignment`)."""


@dataclass(frozen=True, slots=True)
class Texture:
    """A 1D texture reference over linear memory: texels of `channels` float32 values from device address `address`,
    `nbytes` long; reads beyond the end give zero. At most 2^28 texels (4 GiB at 4 channels)."""

    address: int
    nbytes: int
    channels: int = 4


@runtime_checkable
class Buffer(Protocol):
    """A piece of device memory; freed when `free` is called or the object dies."""

    address: int
    nbytes: int

    def free(self) -> None: ...


class Function(Protocol):
    """A kernel ready to launch."""

    name: str

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any], *, shared_bytes: int = 0,
               textures: Mapping[str, Texture] | None = None, stream: Any = None) -> None:
        """Run the kernel. `args`: one value per kernel parameter in declaration order: a Buffer (its address), a
        numpy scalar or array whose bytes fill the parameter, or a Python int (parameter's size) or float (float32 or
        float64 by the parameter's size). Raises LaunchError before anything runs if they do not fit the kernel.

        What some have besides: `prepare(grid, block, args, textures) -> Prepared`, where launches must cost little:
        `args` plain numbers, `textures` the bytes of each texture reference."""


class Prepared(Protocol):
    """A launch of which nothing but numbers is left to say."""

    def slot(self, what: int | str) -> tuple[Any, int]:
        """A sequence and an index: where to write the value of the argument of that number, or the address of the
        texture reference of that name."""


class Module(Protocol):
    """A loaded cubin with its own constant banks and global variables."""

    def function(self, name: str) -> Function: ...

    def set_constant(self, name: str, data: bytes | np.ndarray, offset: int = 0, stream: Any = None) -> None:
        """Write a `__constant__` symbol. Raises DeviceError for an unknown name or too many bytes."""

    def get_global(self, name: str) -> tuple[int, int]:
        """(device address, bytes) of a global variable."""


@runtime_checkable
class Device(Protocol):
    """A GPU, real or virtual. What some have besides:

    `adopt(array) -> Buffer`, where host memory is shared: a C-contiguous NumPy array as device memory, in place.
    `texture_alignment` (bytes): what a texture's address must be a multiple of; else 16.
    `stream_handle(stream) -> int`, where there are streams: a number for the stream, 0 for the default one; raises
    LaunchError for what is no stream. `wait_for(stream, handle)`: later work on `stream` waits for what is on the
    stream with that handle now. `graph_of(handle)`: the graph that the stream is recorded into, None if it runs; its
    `alive` turns false when it and all that was made of it are gone. `event()`: an event, with its `handle`,
    `record(stream)`, `passed() -> bool` and `wait()`.
    `launcher(prepared) -> Callable[[int, int], bool]`, where launches can be prepared: launches them in their order,
    with what stands there then, on the stream with that handle, and says whether that is being recorded into a graph;
    if not, it records the event with the handle given behind them, unless that is 0.
    `free_bytes() -> int | None`, where that is known: bytes of memory that are free now; None where there is no limit.
    `let_go()`: gives back what other libraries of this process keep of its memory without using it.
    What loads, allocates, frees, writes constants of new modules or asks for an event does not disturb a stream that is
    being captured; what waits for the device does.
    `chip`: the Chip to choose plans for; else that of `preset`, the timing model's name of what a virtual GPU is.
    `elapsed_seconds(work, repeats, before=)`, where time can be measured: seconds of each of `repeats` runs of
    `work()`, `before()` having been called before each."""

    name: str  # "virtual gm204", "NVIDIA H200" ...
    arch: str  # of the cubins `load` takes: "sm_52" ...
    kept: dict[str, Any]
    """Room for what others make for this device and what must die with it. (A weak dictionary beside the device would
    never let go: a loaded module holds its device.)"""

    def alloc(self, nbytes: int) -> Buffer:
        """Raises OutOfMemoryError where there is no such memory."""

    def upload(self, buffer: Buffer, data: np.ndarray, stream: Any = None) -> None:
        """Copy a C-contiguous array into the buffer. Raises LaunchError if it does not fit."""

    def download(self, buffer: Buffer, out: np.ndarray, stream: Any = None) -> None:
        """Copy the first out.nbytes bytes of the buffer into a C-contiguous array."""

    def load(self, cubin: bytes) -> Module: ...

    def synchronize(self) -> None: ...
