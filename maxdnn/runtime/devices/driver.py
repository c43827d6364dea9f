"""NVIDIA's driver library through ctypes: all that this library asks of a real GPU, so that nothing but the driver has
to be installed. Handles are plain integers. Functions and constants are those of the CUDA Driver API reference; every
call but those for GPUs by their number wants a current context."""

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from ...errors import DeviceError
from ..forks import compiling

_POINTER_CONTEXT, _POINTER_ORDINAL = 1, 9  # CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_JIT_LOG, _JIT_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_FACTS = (4, 3, 1)  # CU_FUNC_ATTRIBUTE_NUM_REGS, LOCAL_SIZE_BYTES, SHARED_SIZE_BYTES
_PARAM_BUFFER, _PARAM_BYTES, _PARAM_END = 1, 2, 0  # CU_LAUNCH_PARAM_*
_FORMAT_FLOAT = 0x20  # CU_AD_FORMAT_FLOAT
_CAPTURING = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
FACTS = {"sms": 16, "clock_khz": 13, "texture_alignment": 14, "memory_khz": 36, "bus_bits": 37, "l2_bytes": 38,
         "major": 75, "minor": 76}
"""What a GPU can be asked for: CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CLOCK_RATE, TEXTURE_ALIGNMENT,
MEMORY_CLOCK_RATE, GLOBAL_MEMORY_BUS_WIDTH, L2_CACHE_SIZE, COMPUTE_CAPABILITY_MAJOR and _MINOR."""
_NO_SYNC, _MOVE = 1, 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CU_GRAPH_USER_OBJECT_MOVE
OUT_OF_MEMORY, NOT_READY = 2, 600  # CUDA_ERROR_*


_ELSEWHERE, _CAPTURED = -1, -2  # another context is current; all were put into a graph
# The launches, and then a record of the event, if there is one and they were not put into a graph.
# A row: the function; grid, block, shared bytes and a number unused; CU_LAUNCH_PARAM_*. The result: 0, _ELSEWHERE,
# _CAPTURED, or an error's code below the number of the launch, or their count for the event. `graph_gone`: what a graph
# calls with an address when it and all that was made of it are gone.
_TEXT = """
%row = type { ptr, [8 x i32], ptr }
declare i32 @cuLaunchKernel(ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)
declare i32 @cuCtxGetCurrent(ptr)
declare i32 @cuStreamIsCapturing(ptr, ptr)
declare i32 @cuEventRecord(ptr, ptr)
define void @graph_gone(ptr %there) {
  store atomic i64 0, ptr %there release, align 8
  ret void
}
define i64 @launch_all(ptr %stream, ptr %table, i64 %count, ptr %context, ptr %event) {
begin:
  %place = alloca ptr
  %state = alloca i32
  %any = icmp eq ptr %context, null
  br i1 %any, label %loop, label %look
look:
  store ptr null, ptr %place
  %failed = call i32 @cuCtxGetCurrent(ptr %place)
  %current = load ptr, ptr %place
  %same = icmp eq ptr %current, %context
  br i1 %same, label %loop, label %elsewhere
elsewhere:
  ret i64 -1
loop:
  %n = phi i64 [ 0, %begin ], [ 0, %look ], [ %next, %one ]
  %left = icmp ult i64 %n, %count
  br i1 %left, label %one, label %done
one:
  %function = getelementptr %row, ptr %table, i64 %n, i32 0
  %f = load ptr, ptr %function
""" + "".join(f"""
  %at{j} = getelementptr %row, ptr %table, i64 %n, i32 1, i32 {j}
  %v{j} = load i32, ptr %at{j}""" for j in range(7)) + """
  %extra = getelementptr %row, ptr %table, i64 %n, i32 2
  %e = load ptr, ptr %extra
  %code = call i32 @cuLaunchKernel(ptr %f, i32 %v0, i32 %v1, i32 %v2, i32 %v3, i32 %v4, i32 %v5, i32 %v6, ptr %stream,
                                   ptr null, ptr %e)
  %next = add i64 %n, 1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %wrong, label %loop
wrong:
  %low = zext i32 %code to i64
  %high = shl i64 %n, 32
  %both = or i64 %high, %low
  ret i64 %both
done:
  %default = icmp eq ptr %stream, null
  br i1 %default, label %ran, label %ask
ask:
  store i32 0, ptr %state
  %refused = call i32 @cuStreamIsCapturing(ptr %stream, ptr %state)
  %kind = load i32, ptr %state
  %captures = icmp eq i32 %kind, """ + str(_CAPTURING) + """
  br i1 %captures, label %captured, label %ran
captured:
  ret i64 """ + str(_CAPTURED) + """
ran:
  %silent = icmp eq ptr %event, null
  br i1 %silent, label %end, label %record
record:
  %late = call i32 @cuEventRecord(ptr %event, ptr %stream)
  %unsaid = icmp ne i32 %late, 0
  %low2 = zext i32 %late to i64
  %high2 = shl i64 %count, 32
  %both2 = or i64 %high2, %low2
  %told = select i1 %unsaid, i64 %both2, i64 0
  ret i64 %told
end:
  ret i64 0
}
"""


class _Row(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("numbers", ctypes.c_uint32 * 8), ("extra", ctypes.c_void_p)]


class Launch(NamedTuple):
    """`arguments`: a ctypes array of their bytes. `launching`: for the text of errors."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: Any
    launching: str


class DriverError(DeviceError):
    """A driver call failed, with a `code` of the driver's."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Graph:
    """A graph that a stream was recorded into. `alive`: whether it is still there, or something made from it that can
    be launched or has been and is not over."""

    def __init__(self) -> None:
        self.there = ctypes.c_int64(1)

    @property
    def alive(self) -> bool:
        return bool(self.there.value)


class Driver:
    def __init__(self) -> None:
        """Raises DeviceError where there is no driver, or no GPU for it."""
        name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        try:
            self._lib = lib = ctypes.CDLL(name)
        except OSError as e:
            raise DeviceError(f"GPU arrays need NVIDIA's driver, whose library {name} cannot be loaded: {e}") from e
        self._call("cuInit", 0)
        self._attribute = lib.cuPointerGetAttribute
        self._attribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
        self._context = lib.cuCtxGetCurrent
        self._launch_all = self._compiled()
        self._graphs: dict[int, Graph] = {}  # by the number of the capture
        self._graphs_lock = threading.Lock()

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._lib, name)(*args)
        if code:
            raise self._error(name, code)

    def _error(self, name: str, code: int) -> DriverError:
        text = ctypes.c_char_p()
        self._lib.cuGetErrorString(code, ctypes.byref(text))
        return DriverError(f"{name} failed: {(text.value or b'unknown error').decode()} ({code})", code)

    def version(self) -> int:
        """Of CUDA: 1000 times the first number and 10 times the second."""
        return self._number("cuDriverGetVersion")

    def count(self) -> int:
        """How many GPUs there are."""
        return self._number("cuDeviceGetCount")

    def name(self, ordinal: int) -> str:
        """Of a GPU."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, len(text), self._gpu(ordinal))
        return text.value.decode(errors="replace")

    def fact(self, ordinal: int, which: str) -> int:
        """A number that a GPU has, see FACTS."""
        return self._number("cuDeviceGetAttribute", FACTS[which], self._gpu(ordinal))

    def total_memory(self, ordinal: int) -> int:
        """Bytes of a GPU's memory."""
        nbytes = ctypes.c_size_t()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(nbytes), self._gpu(ordinal))
        return nbytes.value

    def primary_context(self, ordinal: int) -> int:
        """A GPU's primary context, which stays for as long as the process lives."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._gpu(ordinal))
        return context.value or 0

    def _gpu(self, ordinal: int) -> int:
        return self._number("cuDeviceGet", ordinal)

    def _number(self, name: str, *args: Any) -> int:
        found = ctypes.c_int()
        self._call(name, ctypes.byref(found), *args)
        return found.value

    def push(self, context: int) -> None:
        """Make a context current in this thread."""
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))

    def pop(self) -> None:
        """Make the one current that was before."""
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def synchronize(self) -> None:
        """Wait for all that the current context has been asked to do."""
        self._call("cuCtxSynchronize")

    def alloc(self, nbytes: int) -> int:
        """The address of new memory."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def free_bytes(self) -> int:
        """Bytes that the current context's GPU can still give."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

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
        """Let later work on stream `then` wait for the work that is on stream `first` now."""
        event = self.event()
        try:
            self.record(event, first)
            self._call("cuStreamWaitEvent", ctypes.c_void_p(then), ctypes.c_void_p(event), 0)
        finally:
            self.destroy_event(event)

    def event(self, timed: bool = False) -> int:
        """A new event."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 0 if timed else _DISABLE_TIMING)
        return event.value or 0

    def seconds(self, first: int, then: int) -> float:
        """From one timed event that has passed to another."""
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), ctypes.c_void_p(first), ctypes.c_void_p(then))
        return milliseconds.value * 1e-3

    def destroy_event(self, event: int) -> None:
        self._lib.cuEventDestroy_v2(ctypes.c_void_p(event))

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def passed(self, event: int) -> bool:
        """Whether the work that the event was recorded behind is complete; true if it was never recorded."""
        code = self._lib.cuEventQuery(ctypes.c_void_p(event))
        if code not in (0, NOT_READY):
            raise self._error("cuEventQuery", code)
        return bool(code == 0)

    def wait(self, event: int) -> None:
        self._call("cuEventSynchronize", ctypes.c_void_p(event))

    def graph_of(self, stream: int) -> Graph | None:
        """The graph that a stream is being recorded into, the same for every stream of a capture; None if it runs. The
        graph tells when it is gone (where the driver knows how: since CUDA 11.3)."""
        if not stream:  # the default stream cannot be captured
            return None
        status, capture, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        self._call("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(capture),
                   ctypes.byref(graph), None, None)
        if status.value != _CAPTURING:
            return None
        with self._graphs_lock:
            found = self._graphs.get(capture.value)
            if found is None:
                self._graphs = {number: one for number, one in self._graphs.items() if one.alive}
                found = self._graphs[capture.value] = Graph()
                with suppress(AttributeError, DriverError):
                    told = ctypes.c_void_p()
                    self._call("cuUserObjectCreate", ctypes.byref(told), ctypes.byref(found.there),
                               ctypes.c_void_p(self._code.address("graph_gone")), 1, _NO_SYNC)
                    self._call("cuGraphRetainUserObject", graph, told, 1, _MOVE)
            return found

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Lets this thread allocate, load, free and query events while a stream, of any thread, is being captured.
        Otherwise the driver would end the capture. None of these calls becomes part of the graph."""
        mode = ctypes.c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def own_stream(self) -> int:
        """A new stream that waits for no other one."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return stream.value or 0

    def load(self, image: bytes) -> int:
        """A module of a cubin, or of PTX that ends with a zero byte."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(_JIT_LOG, _JIT_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), image, 2, options, values)
        except DriverError as e:
            said = log.value.decode(errors="replace").strip()
            raise DriverError(f"{e}: {said}" if said else str(e), e.code) from None
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

    def allow_shared(self, function: int, nbytes: int) -> None:
        """Allow launches to use more dynamic shared memory than the default limit."""
        self._call("cuFuncSetAttribute", ctypes.c_void_p(function), _MOST_SHARED, nbytes)

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

    def launcher(self, launches: Sequence[Launch], context: int = 0) -> Callable[[int, int], bool | None]:
        """A function (stream, event = 0) that puts the launches on the stream, with the arguments they hold at that
        moment, and records the event behind them. It is one call of compiled code, because a ctypes call for each
        launch takes longer than the driver does. It returns whether the stream is being captured; then the event is
        not recorded. It returns None and launches nothing if `context` is given and is not the current one of the
        calling thread. It raises DriverError."""
        rows = (_Row * len(launches))()
        keep: list[Any] = [rows]
        for row, launch in zip(rows, launches, strict=True):
            size = ctypes.c_size_t(len(launch.arguments))
            extra = (ctypes.c_void_p * 5)(_PARAM_BUFFER, ctypes.addressof(launch.arguments), _PARAM_BYTES,
                                          ctypes.addressof(size), _PARAM_END)
            row.function, row.extra = launch.function, ctypes.addressof(extra)
            row.numbers[:] = (*launch.grid, *launch.block, launch.shared_bytes, 0)
            keep += launch.arguments, size, extra
        call, table, count = self._launch_all, ctypes.addressof(rows), len(rows)

        def go(stream: int, event: int = 0) -> bool | None:
            code = call(stream, table, count, context, event)
            if code:
                if code < 0:
                    return True if code == _CAPTURED else None
                assert keep
                number, code = divmod(code, 1 << 32)
                if number == count:
                    raise self._error("cuEventRecord", code)
                raise DriverError(f"{launches[number].launching}: {self._error('cuLaunchKernel', code)}", code)
            return False
        return go

    def _compiled(self) -> Any:
        """`launch_all` (_TEXT), calling this library."""
        with compiling:
            from ...emulator import native  # LLVM, which nothing else of a native card's calls needs

        for name in ("cuLaunchKernel", "cuCtxGetCurrent", "cuStreamIsCapturing", "cuEventRecord"):
            native.export(name, ctypes.cast(getattr(self._lib, name), ctypes.c_void_p).value or 0)
        self._code = native.Code(native.compile_module(_TEXT))
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
                                ctypes.c_void_p)
        return kind(self._code.address("launch_all"))

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
