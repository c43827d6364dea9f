"""A CUDA context of a GPU, as what is loaded into it needs it, and the driver behind it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from ....errors import DeviceError, LaunchError, OutOfMemoryError
from ..driver import OUT_OF_MEMORY, Driver, DriverError, Graph
from ..protocol import Texture
from . import primary

NATIVE = {(5, 0): "sm_50", (5, 2): "sm_52", (5, 3): "sm_53", (6, 0): "sm_60", (6, 1): "sm_61", (6, 2): "sm_62"}
SCHEDULED = {(8, 0): "sm_80", (8, 6): "sm_86", (8, 9): "sm_89", (9, 0): "sm_90"}
"""Which run kernels written for sm_90, and translations of the others."""
HALF_LANES = frozenset({(7, 0), (7, 2), (7, 5), (8, 0)})
"""Whose schedulers have 16 lanes for FP32, half a warp (CUDA C++ Programming Guide, throughput of arithmetic
instructions: 64 results of an SM in a clock)."""
TRANSLATED_FROM = "sm_52"  # the architecture whose cubins are translated for other GPUs

_starting = threading.Lock()
_driver: Driver | None = None


def driver() -> Driver:
    """The one of this process. Raises DeviceError where there is none."""
    global _driver
    if _driver is None:
        with _starting:
            if _driver is None:
                _driver = Driver()
    return _driver


class driver_call:
    """Turns a driver error into a DeviceError that says what was being attempted."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, DriverError):
            return
        hint = ""
        if "no kernel image" in str(error).lower() or "no binary" in str(error).lower():
            hint = "; the cubin is for another architecture than this GPU's: load the one of device.arch"
        kind = OutOfMemoryError if error.code == OUT_OF_MEMORY else DeviceError
        raise kind(f"{self._doing}: {error}{hint}") from error


def stream_handle(stream: Any) -> int:
    """The driver handle of a stream of pycuda, CuPy, PyTorch, or an int; 0 for the default stream."""
    if stream is None:
        return 0
    for attribute in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            stream = handle
            break
    if not isinstance(stream, int):
        raise LaunchError(f"stream must be a pycuda, CuPy or PyTorch stream or a handle (got {type(stream).__name__})")
    return stream if stream != 1 else 0  # 0 and 1 both name the legacy default stream


def undone(driver: Driver, active: "_Active", undo: Callable[..., object], *what: int) -> None:
    """Give back what belonged to something that is gone; nothing if its context is gone or not to be had. It may happen
    at any moment, so also while a stream is captured."""
    with suppress(DeviceError), active, driver.relaxed():
        undo(*what)


class _Active:
    """Makes a primary context current and takes it away again; of any other context, asks that it be current."""

    def __init__(self, name: str, own: primary.Primary | None, context: int) -> None:
        self._name, self._primary, self._context = name, own, context

    def __enter__(self) -> None:
        if self._primary is not None:
            try:
                self._primary.push()
            except self._primary.error as e:
                raise DeviceError(f"making the context of {self._name} current: {e}") from e
        elif driver().current_context() != self._context:
            raise DeviceError(f"the context these arrays live in, on {self._name}, is not current: push it first")

    def __exit__(self, *_: object) -> None:
        if self._primary is not None:
            self._primary.pop()


class GpuContext:
    """One CUDA context of one GPU. `name`, `capability` (major, minor), `arch` (of the cubins `load` wants), `native`
    (whether they run untranslated), `sms`, `clock_khz` (the maximum)."""

    def __init__(self, ordinal: int, context: int) -> None:
        """See GpuDevice."""
        with driver_call("starting CUDA"):
            asked = driver()
            if not 0 <= ordinal < asked.count():
                raise DeviceError(f"ordinal must be 0 to {asked.count() - 1} (got {ordinal})")
            self.ordinal = ordinal
            self.name = asked.name(ordinal)
            self._active = _Active(self.name, None if context else primary.of(ordinal, asked), context)
            self.capability = self.fact("major"), self.fact("minor")
            self.sms, self.clock_khz = self.fact("sms"), self.fact("clock_khz")
            self.native = self.capability in NATIVE
            # Where a texture may begin: the chip's own rule natively, 16-byte loads in a translation.
            self.texture_alignment = self.fact("texture_alignment") if self.native else 16
        self.arch = NATIVE.get(self.capability, TRANSLATED_FROM)
        self.texture_objects: list[Texture] = []
        self._uploads: int | None = None  # a stream of its own
        self.context = context  # its driver handle
        if not context:
            with self.active():
                self.context = driver().current_context()

    @property
    def ptx_target(self) -> str:
        """What its translations are made for: an older GPU where this one is newer than all that are known."""
        from ....ptx.translate import for_capability
        return for_capability(*self.capability)

    def fact(self, which: str) -> int:
        """A number that the driver has of the GPU, see driver.FACTS."""
        return driver().fact(self.ordinal, which)

    def active(self) -> "_Active":
        """The device's context, current for the time of a `with`. Raises DeviceError where that is the caller's to do
        and has not been done."""
        return self._active

    def stream_handle(self, stream: Any) -> int:
        """The driver handle of a stream, 0 for the default one. Raises LaunchError for what is no stream."""
        return stream_handle(stream)

    def graph_of(self, handle: int) -> Graph | None:
        """See devices/protocol.py."""
        return driver().graph_of(handle)

    def not_captured(self, stream: Any, what: str) -> None:
        """Raises DeviceError, saying what is not possible, if the stream is being captured."""
        if self.graph_of(stream_handle(stream)) is not None:
            raise DeviceError(f"{what} while its stream is captured into a graph: do it before the capture begins")

    def write(self, address: int, data: bytes) -> None:
        """Write memory that nothing uses yet, in the order of no stream; on return it is there for all."""
        with self.active(), driver().relaxed():
            if self._uploads is None:
                self._uploads = driver().own_stream()
            driver().copy_in(address, np.frombuffer(data, np.uint8), self._uploads)

    def wait_for(self, stream: Any, handle: int) -> None:
        """Later work on `stream` waits for what the stream with this driver handle (1: the legacy default stream) has
        to do now."""
        own = self.stream_handle(stream)
        if own != (0 if handle == 1 else handle):
            graph = self.graph_of(own)
            if graph is not None and (handle == 1 or self.graph_of(handle) is not graph):
                raise DeviceError("an array names a stream that has nothing to do with the graph being captured, so "
                                  "that it cannot be waited for: wait for it before the capture begins")
            with self.active():
                driver().order(handle, own)

    def synchronize(self) -> None:
        with self.active(), driver_call(f"waiting for {self.name}"):
            driver().synchronize()
