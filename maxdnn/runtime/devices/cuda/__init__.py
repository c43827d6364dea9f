"""Real GPUs, by their driver's own calls. pycuda, which only this package names, need not be installed. Compute
capability 5.x and 6.x runs the cubins as they are; any other GPU runs the same kernels translated to PTX. Arrays of
pycuda, CuPy, PyTorch and everything else with `__cuda_array_interface__` are used where they are; nothing here copies
user data through the host."""

import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import DeviceError, LaunchError, OutOfMemoryError
from ....planning.cost import Chip
from ..driver import OUT_OF_MEMORY, DriverError
from ..protocol import Texture
from . import primary
from .context import HALF_LANES, SCHEDULED, GpuContext, driver, driver_call, stream_handle, undone
from .modules import GpuKernels, GpuModule, PreparedLaunch, load

STREAMS = 0.7
"""Of the nominal rate of DRAM, what streams of reads and writes reach where code is translated: transforms and sums of
40 to 400 MB took 0.66 to 0.73 of an H200's 4.8 TB/s."""


def out_of_memory(device: "GpuDevice", nbytes: int) -> OutOfMemoryError:
    """The error for so many bytes that there are not."""
    free = device.free_bytes()
    return OutOfMemoryError(f"out of memory on {device.name}: {nbytes} bytes wanted, {free} of {device.chip.memory} "
                            "free", nbytes, free)


class GpuBuffer:
    """Device memory; freed by `free` or with the object."""

    def __init__(self, device: "GpuDevice", nbytes: int) -> None:
        with device.active(), driver_call(f"allocating {nbytes} bytes on {device.name}"), driver().relaxed():
            try:
                self.address = driver().alloc(max(nbytes, 1))
            except DriverError as e:
                if e.code != OUT_OF_MEMORY:
                    raise
                raise out_of_memory(device, nbytes) from None
        self.nbytes = nbytes
        self._free = weakref.finalize(self, undone, driver(), device.active(), driver().free, self.address)
        self._free.atexit = False

    def free(self) -> None:
        self._free()


class GpuEvent:
    """What a stream has to do at some moment. `handle`: the driver's, for launchers to record. `recorded`: whoever
    does may say so here."""

    def __init__(self, device: "GpuDevice", timed: bool = False) -> None:
        self.recorded = False
        self._active = device.active()
        with self._active, driver().relaxed(), driver_call(f"making an event on {device.name}"):
            self.handle = driver().event(timed)
        weakref.finalize(self, undone, driver(), self._active, driver().destroy_event, self.handle).atexit = False

    def record(self, stream: Any) -> None:
        """Let it pass when all is done that the stream has to do now."""
        with self._active, driver_call("recording an event"):
            driver().record(self.handle, stream_handle(stream))

    def passed(self) -> bool:
        with self._active, driver().relaxed(), driver_call("asking for an event"):
            return driver().passed(self.handle)

    def wait(self) -> None:
        """Return when it has passed."""
        with self._active, driver().relaxed(), driver_call("waiting for an event"):
            driver().wait(self.handle)


class GpuDevice(GpuContext):
    """A GPU as a device of this library: see devices/protocol.py."""

    def __init__(self, ordinal: int = 0, *, context: int = 0) -> None:
        """The primary context of GPU `ordinal`, or the context with driver handle `context`, which must be current
        whenever this device is used. Raises DeviceError if there is no such GPU."""
        super().__init__(ordinal, context)
        self.kept: dict[str, Any] = {}
        with driver_call(f"asking for facts of {self.name}"):
            memory = driver().total_memory(ordinal)
            per_clock = 2 * self.fact("memory_khz") * self.fact("bus_bits") / 8 / self.clock_khz  # twice a clock
        per_clock *= 1 if self.native else STREAMS
        self.chip = Chip(self.name, self.sms, per_clock or math.inf, self.native,  # 0 from a driver that does not say
                         memory, f"sm_{self.capability[0]}{self.capability[1]}, {driver_version()}",
                         SCHEDULED.get(self.capability, self.arch), self.clock_khz / 1000,
                         2 if self.capability in HALF_LANES else 1, f"gpu {ordinal}")

    def facts(self) -> dict[str, Any]:
        """What the driver says of the card: sizes, clocks (the highest, MHz), versions."""
        with driver_call(f"asking for facts of {self.name}"):
            return {"name": self.name, "capability": list(self.capability), "driver": driver_version(),
                    "sms": self.sms, "clock_mhz": self.clock_khz // 1000,
                    "memory_mhz": self.fact("memory_khz") // 1000, "bus_bits": self.fact("bus_bits"),
                    "l2_kib": self.fact("l2_bytes") // 1024, "memory_mib": self.chip.memory >> 20,
                    "texture_alignment": self.fact("texture_alignment")}

    def launcher(self, prepared: Sequence[PreparedLaunch]) -> Callable[[int, int], bool]:
        """See devices/protocol.py."""
        if all(one.plain for one in prepared):
            together = driver().launcher([one.launch for one in prepared], self.context)

            def go(stream: int, event: int = 0) -> bool:
                captured = together(stream, event)
                if captured is None:
                    with self._active:
                        captured = together(stream, event)
                return bool(captured)
            return go
        each = [(one, driver().launcher([one.launch])) for one in prepared]

        def bind_and_go(stream: int, event: int = 0) -> bool:
            captured = False
            with nullcontext() if driver().current_context() == self.context else self._active:
                for one, launch in each:
                    one.bind()
                    captured = bool(launch(stream, event if launch is each[-1][1] else 0))
            return captured
        return bind_and_go

    def event(self) -> GpuEvent:
        """See devices/protocol.py."""
        return GpuEvent(self)

    def alloc(self, nbytes: int) -> GpuBuffer:
        return GpuBuffer(self, nbytes)

    def free_bytes(self) -> int:
        """Bytes that the driver can still give."""
        with self.active(), driver().relaxed(), driver_call(f"asking {self.name} for its free memory"):
            return driver().free_bytes()

    def let_go(self) -> None:
        """Give back what allocators of other libraries keep without using it: the driver cannot give it to anybody."""
        torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
        with self.active(), driver().relaxed():
            if torch is not None and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
                torch.cuda.empty_cache()
            if cupy is not None:
                cupy.get_default_memory_pool().free_all_blocks()

    def upload(self, buffer: GpuBuffer, data: np.ndarray, stream: Any = None) -> None:
        self._check_copy("data", buffer, data)
        self.not_captured(stream, "host memory cannot be copied")
        with self.active(), driver_call(f"copying {data.nbytes} bytes to {self.name}"):
            driver().copy_in(buffer.address, data, stream_handle(stream))

    def download(self, buffer: GpuBuffer, out: np.ndarray, stream: Any = None) -> None:
        self._check_copy("out", buffer, out)
        self.not_captured(stream, "device memory cannot be copied to the host")
        with self.active(), driver_call(f"copying {out.nbytes} bytes from {self.name}"):
            driver().copy_out(out, buffer.address, stream_handle(stream))

    @staticmethod
    def _check_copy(what: str, buffer: GpuBuffer, array: np.ndarray) -> None:
        if not array.flags.c_contiguous or array.nbytes > buffer.nbytes:
            raise LaunchError(f"{what} must be C-contiguous and at most {buffer.nbytes} bytes "
                              f"(got {array.nbytes} bytes, strides {array.strides})")

    def load(self, cubin: bytes) -> GpuModule | GpuKernels:
        return load(self, cubin)

    def load_translated(self, cubin: bytes) -> GpuModule | GpuKernels:
        """A cubin for Maxwell, translated where its machine code would run, too."""
        return load(self, cubin, translate=True)

    def texture_object(self, texture: Texture) -> int:
        """A handle for bindless fetches in translated kernels; valid while this device lives. Natively texture objects
        are the driver's, which nothing here makes."""
        from ....ptx.translate import MAX_TEXTURE_OBJECTS
        if self.native:
            raise DeviceError(f"texture objects on {self.name} need the driver's own, which are not made here")
        if len(self.texture_objects) == MAX_TEXTURE_OBJECTS:
            raise DeviceError(f"at most {MAX_TEXTURE_OBJECTS} texture objects (got one more)")
        self.texture_objects.append(texture)
        return len(self.texture_objects) - 1

    def elapsed_seconds(self, work: Any, repeats: int = 1, stream: Any = None,
                        before: Callable[[], None] | None = None) -> list[float]:
        """Run `work()` `repeats` times, timed by events on the stream; `before()` is called before each and not
        timed."""
        times = []
        start, end, on = GpuEvent(self, timed=True), GpuEvent(self, timed=True), stream_handle(stream)
        with self.active(), driver_call(f"timing on {self.name}"):
            for _ in range(repeats):
                if before is not None:
                    before()
                driver().record(start.handle, on)
                work()
                driver().record(end.handle, on)
                driver().wait(end.handle)
                times.append(driver().seconds(start.handle, end.handle))
        return times


def driver_version() -> str:
    """The driver's own version, where the system tells it, and that of its CUDA: "driver 580.159.04, CUDA 13.0"."""
    version = driver().version()
    found = f"CUDA {version // 1000}.{version % 1000 // 10}"
    with suppress(OSError, IndexError):
        own = Path("/proc/driver/nvidia/version").read_text("utf-8").split("Kernel Module")[1].split()
        numbers = [word for word in own if word[0].isdigit()]
        found = f"driver {numbers[0]}, {found}"
    return found


def count() -> int:
    """How many GPUs there are; 0 also where there is no driver."""
    with suppress(DeviceError):
        return driver().count()
    return 0


_finding = threading.RLock()  # of the two below: a GPU has one device, whichever thread asks first
_primary: dict[int, GpuDevice] = {}  # by ordinal
_by_context: dict[int, GpuDevice] = {}  # by context handle


def device(ordinal: int = 0) -> GpuDevice:
    """The primary context of a GPU, made once."""
    found = _primary.get(ordinal)
    if found is not None:
        return found
    with _finding:
        if ordinal not in _primary:
            made = _primary[ordinal] = GpuDevice(ordinal)
            _by_context[made.context] = made
        return _primary[ordinal]


def for_pointer(pointer: int) -> GpuDevice:
    """The device that device memory is on: the primary context of its GPU, or the context the memory belongs to, which
    must be current when the device is used. Raises DeviceError for a null pointer."""
    if pointer == 0:
        raise DeviceError("an empty array is on no device")
    context = driver().context_of(pointer)
    found = _by_context.get(context)
    if found is not None:
        return found
    with _finding:
        if context in _by_context:
            return _by_context[context]
        ordinal = driver().ordinal_of(pointer)
        primary = device(ordinal)
        if context and context not in _by_context:
            _by_context[context] = GpuDevice(ordinal, context=context)
        return _by_context.get(context, primary)


def array_pointer(array: Any) -> int:
    """The device address of an array's first element."""
    interface = getattr(array, "__cuda_array_interface__", None)
    return int(interface["data"][0]) if interface else int(array.gpudata)


def empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """A new float32 array of the same library and on the same GPU as `array`. Raises OutOfMemoryError where there is no
    such memory, whatever that library raises."""
    try:
        return _empty_like(array, shape)
    except Exception as e:
        if type(e).__name__ not in ("OutOfMemoryError", "MemoryError"):  # of PyTorch and CuPy; of pycuda and Python
            raise
        raise out_of_memory(for_pointer(array_pointer(array)), 4 * math.prod(shape)) from e


def _empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    library = type(array).__module__.split(".")[0]
    if library == "torch":
        return array.new_empty(shape)
    if library == "cupy":
        cupy = sys.modules["cupy"]
        with array.device:
            return cupy.empty(shape, np.float32)
    if primary.pycuda() is None:
        raise DeviceError(f"out must be given for arrays of {library} where pycuda is not in use, of which new arrays "
                          "would be")
    from pycuda import gpuarray
    with for_pointer(array_pointer(array)).active():
        return gpuarray.empty(shape, np.float32)
