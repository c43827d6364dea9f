"""What a device must offer. The virtual GPU and real GPUs fulfil the same protocol, so nothing above this folder knows
which one it talks to."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

Dim3 = tuple[int, int, int]

TEXTURE_ALIGNMENT = 16
"""Bytes at whose multiples a texture may begin, where a device does not say otherwise (AlignedTextures)."""


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
        float64 by the parameter's size). Raises LaunchError before anything runs if they do not fit the kernel."""


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


class Device(Protocol):
    """A GPU, real or virtual. What some have besides are the protocols below; see `able`."""

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


# -- optional abilities: of devices; of a Module (Weighed) and of a Function (Preparing) -------------------------------

class InPlace(Protocol):
    """Host memory is shared."""

    def adopt(self, array: np.ndarray) -> Buffer:
        """A C-contiguous NumPy array as device memory, in place."""


class AlignedTextures(Protocol):
    """`texture_alignment`: bytes, what a texture's address must be a multiple of; else TEXTURE_ALIGNMENT."""

    texture_alignment: int


class Graph(Protocol):
    """What a stream is recorded into. `alive` turns false when it and all that was made of it are gone."""

    @property
    def alive(self) -> bool: ...


class Event(Protocol):
    """What a stream has to do at some moment. `handle`: for launchers to record; whoever does says so in `recorded`."""

    handle: int
    recorded: bool

    def record(self, stream: Any) -> None: ...

    def passed(self) -> bool: ...

    def wait(self) -> None: ...


class Streams(Protocol):
    """Work is put into streams, each of which has a number, its handle: 0 for the default one.

    What loads, allocates, frees, writes constants of new modules, asks for an event or for what is free does not
    disturb a stream that is being captured; what waits for the device does."""

    def stream_handle(self, stream: Any) -> int:
        """Raises LaunchError for what is no stream."""

    def wait_for(self, stream: Any, handle: int) -> None:
        """Later work on `stream` waits for what is on the stream with that handle now."""

    def graph_of(self, handle: int) -> Graph | None:
        """The graph that the stream is recorded into, None if it runs."""

    def event(self) -> Event: ...


class Launching(Protocol):
    """A device that puts several prepared launches (see Preparing) on a stream by one call."""

    def launcher(self, prepared: Sequence[Any]) -> Callable[[int, int], bool]:
        """A function (stream handle, event handle) that puts the launches on the stream in order, with the arguments
        written into them by then, and records the event behind them, unless its handle is 0. It returns whether the
        stream is being captured; then the event is not recorded."""


class Translating(Protocol):
    """Runs machine code of Maxwell as it is, or a translation of it."""

    def load_translated(self, cubin: bytes) -> Module: ...


class CountsMemory(Protocol):
    def free_bytes(self) -> int | None:
        """Bytes of memory that are free now; None where there is no limit."""


class SharesMemory(Protocol):
    def let_go(self) -> None:
        """Give back what other libraries of this process keep of the device's memory without using it."""


class Card(Protocol):
    """A real GPU: time can be measured there, and its driver says facts."""

    clock_khz: int

    def elapsed_seconds(self, work: Callable[[], object], repeats: int = 1, stream: Any = None,
                        before: Callable[[], object] | None = None) -> list[float]:
        """Seconds of each of `repeats` runs of `work()`, `before()` having been called before each."""

    def facts(self) -> dict[str, Any]: ...


class Weighed(Protocol):
    """A module. `nbytes`: of device memory that it takes, about."""

    nbytes: int


class Preparing(Protocol):
    """A function whose launches cost little."""

    def prepare(self, grid: Dim3, block: Dim3, args: Sequence[Any], textures: Mapping[str, int]) -> Prepared:
        """`args`: plain numbers; `textures`: the bytes of each texture reference."""


A = TypeVar("A")


def able(thing: object, ability: type[A]) -> A | None:
    """The thing as one that has all that a protocol names; None if it lacks some of it, or has None there.

    What is forwarded by `__getattr__` counts, which `isinstance` does not see from Python 3.12 on, so any class that
    forwards is a wrapper of a device. Asked when something is made for a device, not at every call."""
    for name in _members(ability):  # type: ignore[arg-type]  # a class is hashable, whatever mypy makes of a protocol
        if getattr(thing, name, None) is None:
            return None
    return cast(A, thing)


@functools.cache
def _members(protocol: Any) -> list[str]:
    return [name for name in {**vars(protocol), **protocol.__annotations__} if not name.startswith("_")]


def texture_alignment(device: Device) -> int:
    """Bytes, what the address of a texture must be a multiple of there."""
    own = able(device, AlignedTextures)
    return TEXTURE_ALIGNMENT if own is None else own.texture_alignment
