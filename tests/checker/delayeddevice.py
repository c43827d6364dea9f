"""The delayed machine as a device of the library, so that conv_fprop itself runs on it, with one kernel changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from maxdnn import cubin
from maxdnn.cubin import CubinKernel
from maxdnn.runtime.devices.protocol import Dim3, Texture
from maxdnn.runtime.launch import ArgumentPacker
from tests.checker.delayed import launch
from tests.checker.delayedmemory import Memory


class DelayedBuffer:
    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes

    def free(self) -> None:
        """Memory is not handed out again: a device lives for one call."""


class DelayedFunction:
    def __init__(self, module: "DelayedModule", kernel: CubinKernel) -> None:
        self.module, self.kernel, self.name = module, kernel, kernel.name

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any], *, shared_bytes: int = 0,
               textures: Mapping[str, Texture] | None = None, stream: Any = None) -> None:
        device = self.module.device
        params = bytearray(ArgumentPacker(self.kernel)(args)) + bytes(64)
        bound = {}
        for number, (name, offset) in enumerate(self.kernel.textures):
            params[offset - 0x140:offset - 0x140 + 4] = number.to_bytes(4, "little")
            bound[number] = (textures or {})[name]
        device.executed[self.name] = launch(
            self.kernel, device.memory, grid, block, bytes(params), mode=device.mode, textures=bound,
            banks={3: bytes(self.module.constants)}, limit=20_000)


class DelayedModule:
    def __init__(self, device: "DelayedDevice", data: bytes) -> None:
        self.device, self.cubin = device, cubin.read(data)
        self.constants = bytearray(self.cubin.constant_bank)

    def function(self, name: str) -> DelayedFunction:
        return DelayedFunction(self, self.device.change(self.cubin.kernel(name)))

    def set_constant(self, name: str, data: bytes | np.ndarray, offset: int = 0, stream: Any = None) -> None:
        at = self.cubin.constants[name].offset + offset
        self.constants[at:at + len(bytes(data))] = bytes(data)

    def get_global(self, name: str) -> tuple[int, int]:
        raise NotImplementedError(name)


class DelayedDevice:
    """`change`: what to do to a kernel before it is used; `executed`: kernel name -> instructions executed."""

    name, arch = "delayed", "sm_52"

    def __init__(self, mode: str, change: Callable[[CubinKernel], CubinKernel] = lambda kernel: kernel) -> None:
        self.mode, self.change, self.memory = mode, change, Memory(1 << 22)
        self.executed: dict[str, set[int]] = {}
        self.kept: dict[str, Any] = {}

    def alloc(self, nbytes: int) -> DelayedBuffer:
        return DelayedBuffer(self.memory.alloc(nbytes), nbytes)

    def upload(self, buffer: DelayedBuffer, data: np.ndarray, stream: Any = None) -> None:
        at = buffer.address - self.memory.base
        self.memory.data[at:at + data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)

    def download(self, buffer: DelayedBuffer, out: np.ndarray, stream: Any = None) -> None:
        at = buffer.address - self.memory.base
        out[...] = np.frombuffer(self.memory.data[at:at + out.nbytes].tobytes(), out.dtype).reshape(out.shape)

    def load(self, data: bytes) -> DelayedModule:
        return DelayedModule(self, data)

    def synchronize(self) -> None:
        """Launches are complete when they return."""
