"""What a device must offer, and how one is chosen for an array. The virtual GPU and real GPUs fulfil the same protocol,
so nothing above this file knows which one it talks to."""

import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

Dim3 = tuple[int, int, int]


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


class Module(Protocol):
    """A loaded cubin with its own constant banks and global variables."""

    def function(self, name: str) -> Function: ...

    def set_constant(self, name: str, data: bytes | np.ndarray, offset: int = 0, stream: Any = None) -> None:
        """Write a `__constant__` symbol. Raises DeviceError for an unknown name or too many bytes."""

    def get_global(self, name: str) -> tuple[int, int]:
        """(device address, bytes) of a global variable."""


class Device(Protocol):
    """A GPU, real or virtual. One that shares the host's memory also has `adopt(array) -> Buffer`: a C-contiguous NumPy
    array as device memory, in place. `texture_alignment` (bytes), if it has that, is what a texture's address must be a
    multiple of; else 16."""

    name: str  # "virtual gm204", "NVIDIA H200" ...
    arch: str  # of the cubins `load` takes: "sm_52" ...

    def alloc(self, nbytes: int) -> Buffer: ...

    def upload(self, buffer: Buffer, data: np.ndarray, stream: Any = None) -> None:
        """Copy a C-contiguous array into the buffer. Raises LaunchError if it does not fit."""

    def download(self, buffer: Buffer, out: np.ndarray, stream: Any = None) -> None:
        """Copy the first out.nbytes bytes of the buffer into a C-contiguous array."""

    def load(self, cubin: bytes) -> Module: ...

    def synchronize(self) -> None: ...


@functools.cache
def virtual() -> Device:
    """The virtual GPU that NumPy arrays run on, made at first use."""
    from .emu import VirtualGpu

    return VirtualGpu()


def for_address(address: int) -> Device:
    """The device that GPU memory is on. Raises DeviceError if that GPU cannot be used (no pycuda, memory of a context
    that is not current)."""
    gpu = sys.modules.get(f"{__package__}.gpu") or import_module(".gpu", __package__)
    return cast(Device, gpu.for_pointer(address))
