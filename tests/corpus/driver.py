"""A GPU through the CUDA driver library alone (ctypes), as a corpus device: what tools/compare_gpu.py runs on.

Needs nothing but NVIDIA's driver.  Functions and constants are those of the CUDA Driver API reference.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxdnn.runtime.devices.protocol import Dim3, Texture
from tests.corpus.runner import Array

_FORMAT_FLOAT, _RESOURCE_LINEAR = 0x20, 2  # CU_AD_FORMAT_FLOAT, CU_RESOURCE_TYPE_LINEAR


class DriverError(Exception):
    """A driver call failed."""


class DriverBuffer:
    """Device memory."""

    def __init__(self, gpu: DriverDevice, nbytes: int) -> None:
        pointer = ctypes.c_uint64()
        gpu.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 1)))
        self.gpu, self.address, self.nbytes = gpu, pointer.value, nbytes

    def free(self) -> None:
        self.gpu.call("cuMemFree_v2", ctypes.c_uint64(self.address))


class DriverFunction:
    """A kernel; arguments are packed one by one, so that the driver checks nothing but their count."""

    def __init__(self, module: DriverModule, name: str) -> None:
        self.module, self.name, self.handle = module, name, ctypes.c_void_p()
        module.gpu.call("cuModuleGetFunction", ctypes.byref(self.handle), module.handle, name.encode())

    def launch(
        self,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        textures: Mapping[str, Texture] | None = None,
        stream: Any = None,
    ) -> None:
        for name, texture in (textures or {}).items():
            self.module.bind(name, texture)
        values = [np.uint64(a.address) if isinstance(a, DriverBuffer) else a for a in args]
        blobs = [ctypes.create_string_buffer(value.tobytes(), value.nbytes) for value in values]
        pointers = (ctypes.c_void_p * len(blobs))(*[ctypes.addressof(blob) for blob in blobs])
        sizes = [ctypes.c_uint(v) for v in (*grid, *block, shared_bytes)]
        self.module.gpu.call("cuLaunchKernel", self.handle, *sizes, None, pointers, None)


class DriverModule:
    """A loaded cubin."""

    def __init__(self, gpu: DriverDevice, cubin: bytes) -> None:
        self.gpu, self.handle = gpu, ctypes.c_void_p()
        gpu.call("cuModuleLoadData", ctypes.byref(self.handle), cubin)

    def function(self, name: str) -> DriverFunction:
        return DriverFunction(self, name)

    def get_global(self, name: str) -> tuple[int, int]:
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.gpu.call("cuModuleGetGlobal_v2", ctypes.byref(pointer), ctypes.byref(size), self.handle, name.encode())
        return pointer.value, size.value

    def set_constant(self, name: str, data: bytes | Array, offset: int = 0, stream: Any = None) -> None:
        data = bytes(data)
        address = self.get_global(name)[0] + offset
        self.gpu.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def bind(self, name: str, texture: Texture) -> None:
        reference, offset = ctypes.c_void_p(), ctypes.c_size_t()
        self.gpu.call("cuModuleGetTexRef", ctypes.byref(reference), self.handle, name.encode())
        self.gpu.call("cuTexRefSetFormat", reference, _FORMAT_FLOAT, texture.channels)
        address, size = ctypes.c_uint64(texture.address), ctypes.c_size_t(texture.nbytes)
        self.gpu.call("cuTexRefSetAddress_v2", ctypes.byref(offset), reference, address, size)


class _ResourceDesc(ctypes.Structure):
    """CUDA_RESOURCE_DESC for linear memory: the union is 128 bytes."""

    _fields_ = [("kind", ctypes.c_uint), ("address", ctypes.c_uint64), ("format", ctypes.c_uint),
                ("channels", ctypes.c_uint), ("nbytes", ctypes.c_size_t), ("rest", ctypes.c_char * 104),
                ("flags", ctypes.c_uint)]  # fmt: skip


class DriverDevice:
    """GPU number `index`."""

    def __init__(self, index: int = 0) -> None:
        self._library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        self.call("cuInit", 0)
        device, context, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name, major, minor = ctypes.create_string_buffer(100), ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetName", name, 100, device)
        self.call("cuDeviceGetAttribute", ctypes.byref(major), 75, device)  # compute capability, major and minor
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.name, self.arch = name.value.decode(), f"sm_{major.value}{minor.value}"
        self.driver = f"{version.value // 1000}.{version.value % 1000 // 10}"

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{name}: error {status}: {(text.value or b'').decode()}")

    def alloc(self, nbytes: int) -> DriverBuffer:
        return DriverBuffer(self, nbytes)

    def upload(self, buffer: DriverBuffer, data: Array, stream: Any = None) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(buffer.address), data.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_size_t(data.nbytes))  # fmt: skip

    def download(self, buffer: DriverBuffer, out: Array, stream: Any = None) -> None:
        self.call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(buffer.address),
                  ctypes.c_size_t(out.nbytes))  # fmt: skip

    def load(self, cubin: bytes) -> DriverModule:
        return DriverModule(self, cubin)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def texture_object(self, texture: Texture) -> int:
        resource = _ResourceDesc(
            _RESOURCE_LINEAR, texture.address, _FORMAT_FLOAT, texture.channels, texture.nbytes, b"", 0
        )
        sampler, handle = ctypes.create_string_buffer(104), ctypes.c_uint64()  # CUDA_TEXTURE_DESC, all defaults
        self.call("cuTexObjectCreate", ctypes.byref(handle), ctypes.byref(resource), sampler, None)
        return handle.value
