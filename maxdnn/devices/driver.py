"""NVIDIA's driver library through ctypes, for what pycuda does not offer or makes dear: whose a pointer is, streams of
other libraries by their handles, captures, modules and launches. Handles are plain integers. Functions and constants
are those of the CUDA Driver API reference; every call wants a current context."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import DeviceError

_POINTER_CONTEXT, _POINTER_ORDINAL = 1, 9  # CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_JIT_LOG, _JIT_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
_FACTS = (4, 3, 1)  # CU_FUNC_ATTRIBUTE_NUM_REGS, LOCAL_SIZE_BYTES, SHARED_SIZE_BYTES
_PARAM_BUFFER, _PARAM_BYTES, _PARAM_END = 1, 2, 0  # CU_LAUNCH_PARAM_*
_FORMAT_FLOAT = 0x20  # CU_AD_FORMAT_FLOAT
_CAPTURING = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class DriverError(DeviceError):
    """A driver call failed."""


class Driver:
    def __init__(self) -> None:
        self._lib = lib = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        self._attribute = lib.cuPointerGetAttribute
        self._attribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
        self._launch = lib.cuLaunchKernel
        self._launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
        self._context = lib.cuCtxGetCurrent

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._lib, name)(*args)
        if code:
            raise self._error(name, code)

    def _error(self, name: str, code: int) -> DriverError:
        text = ctypes.c_char_p()
        self._lib.cuGetErrorString(code, ctypes.byref(text))
        return DriverError(f"{name} failed: {(text.value or b'unknown error').decode()} ({code})")

    def current_context(self) -> int:
        handle = ctypes.c_void_p()
        code = self._context(ctypes.byref(handle))
        if code:
            raise self._error("cuCtxGetCurrent", code)
        return handle.value or 0

    def context_of(self, pointer: int) -> int:
        """The handle of the context a device pointer belongs to; 0 for memory bound to none."""
        context = ctypes.c_void_p()
        failed = self._attribute(ctypes.byref(context), _POINTER_CONTEXT, pointer)
        return 0 if failed else context.value or 0

    def ordinal_of(self, pointer: int) -> int:
        """The number of the GPU a device pointer belongs to."""
        ordinal = ctypes.c_int()
        self._call("cuPointerGetAttribute", ctypes.byref(ordinal), _POINTER_ORDINAL, pointer)
        return ordinal.value

    def order(self, first: int, then: int) -> None:
        """Make everything later on stream `then` wait for what is now on stream `first`."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), _DISABLE_TIMING)
        try:
            self._call("cuEventRecord", event, ctypes.c_void_p(first))
            self._call("cuStreamWaitEvent", ctypes.c_void_p(then), event, 0)
        finally:
            self._lib.cuEventDestroy_v2(event)

    def capture_of(self, stream: int) -> int:
        """A number for the capture that a stream is being recorded into; 0 if it runs."""
        status, capture = ctypes.c_int(), ctypes.c_uint64()
        if stream:  # the default stream cannot be captured
            self._call("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), ctypes.byref(status),
                       ctypes.byref(capture), None, None, None)
        return capture.value if status.value == _CAPTURING else 0

    def while_capturing(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, allowed to allocate although some stream is being captured."""
        mode = ctypes.c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            return work()
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def load(self, image: bytes) -> int:
        """A module of a cubin, or of PTX that ends with a zero byte."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(_JIT_LOG, _JIT_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), image, 2, options, values)
        except DriverError as e:
            said = log.value.decode(errors="replace").strip()
            raise DriverError(f"{e}: {said}" if said else str(e)) from None
        return module.value or 0

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def function(self, module: int, name: str) -> int:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), name.encode())
        return function.value or 0

    def facts(self, function: int) -> tuple[int, int, int]:
        """Registers of a thread, bytes of local memory of a thread, bytes of static shared memory."""
        found = [ctypes.c_int() for _ in _FACTS]
        for value, which in zip(found, _FACTS, strict=True):
            self._call("cuFuncGetAttribute", ctypes.byref(value), which, ctypes.c_void_p(function))
        return found[0].value, found[1].value, found[2].value

    def symbol(self, module: int, name: str) -> tuple[int, int]:
        """Address and bytes of a variable."""
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuModuleGetGlobal_v2", ctypes.byref(pointer), ctypes.byref(size), ctypes.c_void_p(module),
                   name.encode())
        return pointer.value, size.value

    def bind_texture(self, module: int, name: str, address: int, nbytes: int, channels: int) -> None:
        """Let a texture reference read floats of linear memory."""
        reference, offset = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("cuModuleGetTexRef", ctypes.byref(reference), ctypes.c_void_p(module), name.encode())
        self._call("cuTexRefSetFormat", reference, _FORMAT_FLOAT, channels)
        self._call("cuTexRefSetAddress_v2", ctypes.byref(offset), reference, ctypes.c_uint64(address),
                   ctypes.c_size_t(nbytes))

    def launcher(self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int,
                 arguments: Any, launching: str) -> Callable[[int], None]:
        """Launches a kernel on a stream, with what the ctypes array `arguments` holds at that moment. `launching`: for
        the text of errors."""
        size = ctypes.c_size_t(len(arguments))
        extra = (ctypes.c_void_p * 5)(_PARAM_BUFFER, ctypes.addressof(arguments), _PARAM_BYTES, ctypes.addressof(size),
                                      _PARAM_END)
        launch, (gx, gy, gz), (x, y, z) = self._launch, grid, block
        keep = arguments, size

        def go(stream: int) -> None:
            code = launch(function, gx, gy, gz, x, y, z, shared_bytes, stream, None, extra)
            if code:
                assert keep
                raise DriverError(f"{launching}: {self._error('cuLaunchKernel', code)}")
        return go

    def copy_in(self, address: int, data: np.ndarray, stream: int) -> None:
        """Copy a host array to the device in the order of a stream; on return the copy is done."""
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(data.ctypes.data),
                   ctypes.c_size_t(data.nbytes), ctypes.c_void_p(stream))
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def copy_out(self, out: np.ndarray, address: int, stream: int) -> None:
        """The way back."""
        self._call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(address),
                   ctypes.c_size_t(out.nbytes), ctypes.c_void_p(stream))
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))
