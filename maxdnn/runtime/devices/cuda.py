"""Real GPUs: pycuda, which only this file names, for contexts, memory and events; the driver's own calls for the
rest. Compute capability 5.x and 6.x runs the cubins as they are; any other GPU runs the same kernels translated to PTX.
Arrays of pycuda, CuPy, PyTorch and everything else with `__cuda_array_interface__` are used where they are; nothing
here copies user data through the host."""

import ctypes
import math
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...cubin import Cubin, CubinKernel, read
from ...errors import DeviceError, LaunchError, OutOfMemoryError
from ...planning.cost import Chip
from ..launch import ArgumentPacker, check_geometry
from ..remember import MODULES, remembered
from .driver import OUT_OF_MEMORY, Driver, DriverError, Graph, Launch
from .protocol import Dim3, Texture

try:
    import pycuda.driver as cuda
except ImportError as e:
    raise DeviceError("GPU arrays need pycuda: pip install 'maxdnn[cuda]'") from e

NATIVE = {(5, 0): "sm_50", (5, 2): "sm_52", (5, 3): "sm_53", (6, 0): "sm_60", (6, 1): "sm_61", (6, 2): "sm_62"}
HOPPER = {(9, 0): "sm_90"}  # which runs kernels written for it, and translations of the others
TRANSLATED_FROM = "sm_52"  # the architecture whose cubins are translated for other GPUs
STREAMS = 0.7
"""Of the nominal rate of DRAM, what streams of reads and writes reach where code is translated: transforms and sums of
40 to 400 MB took 0.66 to 0.73 of an H200's 4.8 TB/s."""


class _driver_call:
    """Turns a driver error into a DeviceError that says what was being attempted."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, (cuda.Error, DriverError)):
            return
        hint = ""
        if "no kernel image" in str(error).lower() or "no binary" in str(error).lower():
            hint = "; the cubin is for another architecture than this GPU's: load the one of device.arch"
        short = isinstance(error, cuda.MemoryError) or getattr(error, "code", 0) == OUT_OF_MEMORY
        raise (OutOfMemoryError if short else DeviceError)(f"{self._doing}: {error}{hint}") from error


def out_of_memory(device: "GpuDevice", nbytes: int) -> OutOfMemoryError:
    """The error for so many bytes that there are not."""
    free = device.free_bytes()
    return OutOfMemoryError(f"out of memory on {device.name}: {nbytes} bytes wanted, {free} of {device.chip.memory} "
                            "free", nbytes, free)


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


class GpuBuffer:
    """Device memory; freed by `free` or with the object."""

    def __init__(self, device: "GpuDevice", nbytes: int) -> None:
        with device.active(), _driver_call(f"allocating {nbytes} bytes on {device.name}"), driver().relaxed():
            try:
                memory = cuda.mem_alloc(max(nbytes, 1))
            except cuda.MemoryError:
                raise out_of_memory(device, nbytes) from None
        self.address = int(memory)
        self.nbytes = nbytes
        self._free = weakref.finalize(self, _undone, driver(), device.active(), memory.free)
        self._free.atexit = False

    def free(self) -> None:
        self._free()


class GpuEvent:
    """What a stream has to do at some moment. `handle`: the driver's, for launchers to record. `recorded`: whoever
    does may say so here."""

    def __init__(self, device: "GpuDevice") -> None:
        self.recorded = False
        self._active = device.active()
        with self._active, driver().relaxed(), _driver_call(f"making an event on {device.name}"):
            self.handle = driver().event()
        weakref.finalize(self, _undone, driver(), self._active, driver().destroy_event, self.handle).atexit = False

    def record(self, stream: Any) -> None:
        """Let it pass when all is done that the stream has to do now."""
        with self._active, _driver_call("recording an event"):
            driver().record(self.handle, stream_handle(stream))

    def passed(self) -> bool:
        with self._active, driver().relaxed(), _driver_call("asking for an event"):
            return driver().passed(self.handle)

    def wait(self) -> None:
        """Return when it has passed."""
        with self._active, driver().relaxed(), _driver_call("waiting for an event"):
            driver().wait(self.handle)


class GpuFunction:
    """A kernel on the GPU. `registers`, `local_bytes`, `shared_bytes`: what the driver's compiler gave it."""

    def __init__(self, module: "GpuModule", name: str) -> None:
        self.module, self.device = module, module.device
        self.kernel = module.cubin.kernel(name)
        self.dynamic = 0 if module.native else self.kernel.shared_bytes  # a translated kernel's is all dynamic
        self.name = name
        self.pack = ArgumentPacker(self.kernel)
        self.launching = f"launching {name} on {module.device.name}"
        with self.device.active(), _driver_call(f"finding kernel {name}"):
            self.handle = driver().function(module.handle, name)
            self.registers, self.local_bytes, self.shared_bytes = driver().facts(self.handle)

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any], *, shared_bytes: int = 0,
               textures: Mapping[str, Texture] | None = None, stream: Any = None) -> None:
        """See devices/protocol.py. `stream`: None, a handle, or a stream of pycuda, CuPy or PyTorch."""
        check_geometry(self.kernel, grid, block, shared_bytes)
        data = self.pack(args)
        with self.device.active(), _driver_call(self.launching):
            data += self.module.bind_textures(self.kernel, textures or {}, len(data))
            self.module.send_texture_objects()
            room = ctypes.create_string_buffer(data, len(data))
            driver().launcher([Launch(self.handle, grid, block, self.dynamic + shared_bytes, room, self.launching)])(
                stream_handle(stream), 0)

    def prepare(self, grid: Dim3, block: Dim3, args: Sequence[Any], textures: Mapping[str, int]) -> "PreparedLaunch":
        """See devices/protocol.py."""
        return PreparedLaunch(self, grid, block, args, textures)


class PreparedLaunch:
    """A launch of which nothing but numbers is left to say. See devices/protocol.py."""

    def __init__(self, function: GpuFunction, grid: Dim3, block: Dim3, args: Sequence[Any],
                 textures: Mapping[str, int]) -> None:
        kernel, module = function.kernel, function.module
        check_geometry(kernel, grid, block, 0)
        self._kernel = kernel
        self._slots: dict[str, tuple[Any, int]] = {}
        self._bound: list[tuple[str, int, int]] = []  # references, bytes, channels; their addresses come with a launch
        self._addresses = [0] * len(textures)
        data = function.pack(args)
        if module.native:
            for number, (name, _) in enumerate(kernel.textures):
                self._slots[name] = self._addresses, number
                self._bound.append((name, textures[name], kernel.texture_channels(number)))
        else:
            given = {name: Texture(0, textures[name], kernel.texture_channels(number))
                     for number, (name, _) in enumerate(kernel.textures)}
            first = -(-len(data) // 8)  # the first texture's address, in words
            data += module.bind_textures(kernel, given, len(data))
        room = bytearray(-(-len(data) // 8) * 8)
        room[:len(data)] = data
        self._words, self._floats = memoryview(room).cast("Q"), memoryview(room).cast("f")
        if not module.native:
            self._slots |= {name: (self._words, first + 2 * number) for number, (name, _) in enumerate(kernel.textures)}
        self.launch = Launch(function.handle, grid, block, function.dynamic,
                             (ctypes.c_char * len(data)).from_buffer(room), function.launching)
        self._module = module
        self.plain = not self._bound and not module.uses_objects  # there is nothing to do before

    def slot(self, what: int | str) -> tuple[Any, int]:
        if isinstance(what, str):
            return self._slots[what]
        param = self._kernel.params[what]
        assert param.size in (4, 8) and param.offset % param.size == 0, f"{self._kernel.name}: argument {what}"
        return (self._words, param.offset // 8) if param.size == 8 else (self._floats, param.offset // 4)

    def bind(self) -> None:
        """What the driver is told before a launch that is not `plain`."""
        for (name, nbytes, channels), address in zip(self._bound, self._addresses, strict=True):
            self._module.bind_native(name, Texture(address, nbytes, channels))
        self._module.send_texture_objects()


def _runs(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU runs machine code of an architecture: its own, or that of an earlier one of the same generation."""
    major, minor = divmod(int(arch.removeprefix("sm_")), 10)
    return capability[0] == major and capability[1] >= minor


@remembered(MODULES)
def _translated(data: bytes, target: str) -> bytes:
    from ...ptx.translate import translated
    return translated(data, target) + b"\0"


_read = remembered(MODULES)(read)


class GpuModule:
    """A loaded cubin, native or translated."""

    def __init__(self, device: "GpuDevice", data: bytes) -> None:
        self.device = device
        self.cubin: Cubin = _read(data)
        self.native = device.native
        if self.cubin.arch not in NATIVE.values():  # never translated
            if not _runs(self.cubin.arch, device.capability):
                raise DeviceError(f"this cubin is machine code of {self.cubin.arch}, which {device.name} does not run")
            self.native = True
        image = data if self.native else self._translate(data)
        # Its code grows in a translation, whose instructions are twice as long; the banks are there beside the file.
        self.nbytes = len(data) * (1 if self.native else 4) + len(self.cubin.constant_bank)
        self._in_use = False
        with device.active(), driver().relaxed(), _driver_call(f"loading a {self.cubin.arch} module on {device.name}"):
            self.handle = driver().load(image)
            weakref.finalize(self, _undone, driver(), device.active(), driver().unload, self.handle).atexit = False
            self._places = {} if self.native else self._translated_places()
        self._textures: dict[str, Texture] = {}
        self.uses_objects = not self.native and b"maxdnn_textures" in image
        self._objects_sent = 0

    def _translate(self, data: bytes) -> bytes:
        image: bytes = _translated(data, self.device.ptx_target)
        return image

    def _translated_places(self) -> dict[str, tuple[int, int]]:
        """Address and size of every symbol: a translated module keeps those of a section in one array. Its bank of
        global addresses is filled in here."""
        from ...ptx.translate import GLOBAL_ADDRESSES, GLOBAL_ARRAYS
        arrays = {**GLOBAL_ARRAYS, ".nv.constant3": "maxdnn_bank3"}
        places = {}
        for symbol in (*self.cubin.constants.values(), *self.cubin.globals.values()):
            base, _ = driver().symbol(self.handle, arrays[symbol.section])
            places[symbol.name] = (base + symbol.offset, symbol.size)
        for r in self.cubin.relocations:
            if r.section == ".nv.constant4" and r.symbol in places:
                bank, _ = driver().symbol(self.handle, GLOBAL_ADDRESSES)
                before = self.cubin.global_addresses[r.offset:r.offset + 8]
                addend = int.from_bytes(before, "little") if r.addend is None else r.addend
                address = (places[r.symbol][0] + addend) % (1 << 64)
                self.device.write(bank + r.offset, address.to_bytes(8, "little"))
        return places

    def function(self, name: str) -> GpuFunction:
        self._in_use = True
        return GpuFunction(self, name)

    def _symbol(self, name: str, known: Mapping[str, Any]) -> tuple[int, int]:
        if name not in known:
            raise DeviceError(f"no symbol {name!r} in this module; it has: {', '.join(known) or 'none'}")
        if name in self._places:
            return self._places[name]
        with self.device.active(), _driver_call(f"finding symbol {name}"):
            return driver().symbol(self.handle, name)

    def get_global(self, name: str) -> tuple[int, int]:
        return self._symbol(name, self.cubin.globals)

    def set_constant(self, name: str, data: bytes | np.ndarray, offset: int = 0, stream: Any = None) -> None:
        """Write a `__constant__` symbol before this returns, so that every stream sees the new content; after all that
        the device has been asked to do, if one of the module's functions may use the old one. Raises DeviceError for
        that while `stream` is being captured."""
        payload = bytes(data) if isinstance(data, (bytes, bytearray)) else np.ascontiguousarray(data).tobytes()
        address, size = self._symbol(name, self.cubin.constants)
        if offset < 0 or offset + len(payload) > size:
            raise DeviceError(f"constant {name} has {size} bytes (got {len(payload)} at offset {offset})")
        if self._in_use:
            self.device.not_captured(stream, f"constant {name} cannot be written again")
            self.device.synchronize()
        with self.device.active(), _driver_call(f"writing constant {name}"):
            self.device.write(address + offset, payload)

    def send_texture_objects(self) -> None:
        """Bring a translated module's table of texture objects up to date; rows in use stay as they are."""
        objects = self.device.texture_objects
        if not self.uses_objects or self._objects_sent == len(objects):
            return
        from ...ptx.translate import TEXTURE_OBJECTS
        rows = np.zeros(len(objects), [("address", "<u8"), ("texels", "<u4"), ("channels", "<u4")])
        for row, texture in zip(rows, objects, strict=True):
            row["address"], row["texels"] = texture.address, texture.nbytes // (4 * texture.channels)
            row["channels"] = texture.channels
        address, _ = driver().symbol(self.handle, TEXTURE_OBJECTS)
        self.device.write(address, rows.tobytes())
        self._objects_sent = len(objects)

    def bind_textures(self, kernel: CubinKernel, given: Mapping[str, Texture], at: int) -> bytes:
        """Bind the texture references of a kernel. Natively the driver is told; a translated kernel takes the address
        and texel count of each texture behind its parameters, as 8-byte values (returned)."""
        names = [name for name, _ in kernel.textures]
        if len(names) != len(given) or any(name not in given for name in names):
            raise LaunchError(f"textures must name {names or 'none'} (got {sorted(given)})")
        if not self.native:
            return self._texture_block(kernel, given, at)
        for name in names:
            self.bind_native(name, given[name])
        return b""

    @staticmethod
    def _texture_block(kernel: CubinKernel, given: Mapping[str, Texture], at: int) -> bytes:
        block = bytes(-at % 8) if kernel.textures else b""
        for number, (name, _) in enumerate(kernel.textures):
            texture, channels = given[name], kernel.texture_channels(number)
            if texture.channels != channels:
                raise LaunchError(f"texture {name} must have {channels} channels in a translated kernel "
                                  f"(got {texture.channels})")
            block += struct.pack("<QQ", texture.address, texture.nbytes // (4 * channels))
        return block

    def bind_native(self, name: str, texture: Texture) -> None:
        if self._textures.get(name) == texture:
            return
        driver().bind_texture(self.handle, name, texture.address, texture.nbytes, texture.channels)
        self._textures[name] = texture


def _undone(driver: Driver, active: "_Active", undo: Callable[..., object], *what: int) -> None:
    """Give back what belonged to something that is gone; nothing if its context is gone or not to be had. It may happen
    at any moment, so also while a stream is captured."""
    with suppress(DeviceError, cuda.Error), active, driver.relaxed():
        undo(*what)


class _Active:
    """Makes a primary context current and takes it away again; of any other context, asks that it be current."""

    def __init__(self, name: str, primary: Any, context: int) -> None:
        self._name, self._primary, self._context = name, primary, context

    def __enter__(self) -> None:
        if self._primary is not None:
            self._primary.push()
        elif driver().current_context() != self._context:
            raise DeviceError(f"the context these arrays live in, on {self._name}, is not current: push it first")

    def __exit__(self, *_: object) -> None:
        if self._primary is not None:
            self._primary.pop()


class GpuDevice:
    """One CUDA context of one GPU. `name`, `capability` (major, minor), `arch` (of the cubins `load` wants), `native`
    (whether they run untranslated), `sms`, `clock_khz` (the maximum)."""

    def __init__(self, ordinal: int = 0, *, context: int = 0) -> None:
        """The primary context of GPU `ordinal`, or the context with driver handle `context`, which must be current
        whenever this device is used. Raises DeviceError if there is no such GPU."""
        with _driver_call("starting CUDA"):
            cuda.init()
            if not 0 <= ordinal < cuda.Device.count():
                raise DeviceError(f"ordinal must be 0 to {cuda.Device.count() - 1} (got {ordinal})")
            device = cuda.Device(ordinal)
        self.ordinal = ordinal
        self.name = device.name()
        self._active = _Active(self.name, None if context else device.retain_primary_context(), context)
        self.capability = device.compute_capability()
        self.native = self.capability in NATIVE
        self.arch = NATIVE.get(self.capability, TRANSLATED_FROM)
        attribute = cuda.device_attribute
        self.sms = device.get_attribute(attribute.MULTIPROCESSOR_COUNT)
        self.clock_khz = device.get_attribute(attribute.CLOCK_RATE)
        # Where a texture may begin: the chip's own rule natively, 16-byte loads in a translation.
        self.texture_alignment = device.get_attribute(attribute.TEXTURE_ALIGNMENT) if self.native else 16
        self.texture_objects: list[Texture] = []
        self._uploads: int | None = None  # a stream of its own
        self.kept: dict[str, Any] = {}
        memory_khz = device.get_attribute(attribute.MEMORY_CLOCK_RATE)  # twice a clock
        per_clock = 2 * memory_khz * device.get_attribute(attribute.GLOBAL_MEMORY_BUS_WIDTH) / 8 / self.clock_khz
        per_clock *= 1 if self.native else STREAMS
        self.chip = Chip(self.name, self.sms, per_clock or math.inf, self.native,  # 0 from a driver that does not say
                         device.total_memory(), f"sm_{self.capability[0]}{self.capability[1]}, {driver_version()}",
                         HOPPER.get(self.capability, self.arch), self.clock_khz / 1000)
        self.context = context  # its driver handle
        if not context:
            with self.active():
                self.context = driver().current_context()

    def facts(self) -> dict[str, Any]:
        """What the driver says of the card: sizes, clocks (the highest, MHz), versions."""
        attribute = cuda.device_attribute
        with _driver_call(f"asking for facts of {self.name}"):
            card = cuda.Device(self.ordinal)

            def get(name: str) -> int:
                return card.get_attribute(getattr(attribute, name))
            return {"name": self.name, "capability": list(self.capability), "driver": driver_version(),
                    "sms": self.sms, "clock_mhz": self.clock_khz // 1000,
                    "memory_mhz": get("MEMORY_CLOCK_RATE") // 1000, "bus_bits": get("GLOBAL_MEMORY_BUS_WIDTH"),
                    "l2_kib": get("L2_CACHE_SIZE") // 1024, "memory_mib": card.total_memory() >> 20,
                    "texture_alignment": get("TEXTURE_ALIGNMENT")}

    @property
    def ptx_target(self) -> str:
        """What its translations are made for: an older GPU where this one is newer than all that are known."""
        from ...ptx.translate import for_capability
        return for_capability(*self.capability)

    def active(self) -> "_Active":
        """The device's context, current for the time of a `with`. Raises DeviceError where that is the caller's to do
        and has not been done."""
        return self._active

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

    def stream_handle(self, stream: Any) -> int:
        """The driver handle of a stream, 0 for the default one. Raises LaunchError for what is no stream."""
        return stream_handle(stream)

    def graph_of(self, handle: int) -> Graph | None:
        """See devices/protocol.py."""
        return driver().graph_of(handle)

    def event(self) -> GpuEvent:
        """See devices/protocol.py."""
        return GpuEvent(self)

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

    def alloc(self, nbytes: int) -> GpuBuffer:
        return GpuBuffer(self, nbytes)

    def free_bytes(self) -> int:
        """Bytes that the driver can still give."""
        with self.active(), driver().relaxed(), _driver_call(f"asking {self.name} for its free memory"):
            return int(cuda.mem_get_info()[0])

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
        with self.active(), _driver_call(f"copying {data.nbytes} bytes to {self.name}"):
            driver().copy_in(buffer.address, data, stream_handle(stream))

    def download(self, buffer: GpuBuffer, out: np.ndarray, stream: Any = None) -> None:
        self._check_copy("out", buffer, out)
        self.not_captured(stream, "device memory cannot be copied to the host")
        with self.active(), _driver_call(f"copying {out.nbytes} bytes from {self.name}"):
            driver().copy_out(out, buffer.address, stream_handle(stream))

    @staticmethod
    def _check_copy(what: str, buffer: GpuBuffer, array: np.ndarray) -> None:
        if not array.flags.c_contiguous or array.nbytes > buffer.nbytes:
            raise LaunchError(f"{what} must be C-contiguous and at most {buffer.nbytes} bytes "
                              f"(got {array.nbytes} bytes, strides {array.strides})")

    def load(self, cubin: bytes) -> GpuModule:
        return GpuModule(self, cubin)

    def texture_object(self, texture: Texture) -> int:
        """A handle for bindless fetches in translated kernels; valid while this device lives. Natively texture objects
        are the driver's, which pycuda does not make."""
        from ...ptx.translate import MAX_TEXTURE_OBJECTS
        if self.native:
            raise DeviceError(f"texture objects on {self.name} need the driver's own, which pycuda does not offer")
        if len(self.texture_objects) == MAX_TEXTURE_OBJECTS:
            raise DeviceError(f"at most {MAX_TEXTURE_OBJECTS} texture objects (got one more)")
        self.texture_objects.append(texture)
        return len(self.texture_objects) - 1

    def synchronize(self) -> None:
        with self.active(), _driver_call(f"waiting for {self.name}"):
            cuda.Context.synchronize()

    def elapsed_seconds(self, work: Any, repeats: int = 1, stream: Any = None,
                        before: Callable[[], None] | None = None) -> list[float]:
        """Run `work()` `repeats` times, timed by events on the stream (a pycuda stream or None); `before()` is called
        before each and not timed."""
        times = []
        with self.active(), _driver_call(f"timing on {self.name}"):
            for _ in range(repeats):
                if before is not None:
                    before()
                start, end = cuda.Event(), cuda.Event()
                start.record(stream)
                work()
                end.record(stream)
                end.synchronize()
                times.append(end.time_since(start) * 1e-3)
        return times


def driver_version() -> str:
    """The driver's own version, where the system tells it, and that of its CUDA: "driver 580.159.04, CUDA 13.0"."""
    version = cuda.get_driver_version()
    found = f"CUDA {version // 1000}.{version % 1000 // 10}"
    with suppress(OSError, IndexError):
        own = Path("/proc/driver/nvidia/version").read_text("utf-8").split("Kernel Module")[1].split()
        numbers = [word for word in own if word[0].isdigit()]
        found = f"driver {numbers[0]}, {found}"
    return found


def count() -> int:
    """How many GPUs there are; 0 also where there is no driver."""
    with suppress(cuda.Error):
        cuda.init()
        return cuda.Device.count()
    return 0


_finding = threading.RLock()  # of the three below: a GPU has one device, whichever thread asks first
_driver: Driver | None = None
_primary: dict[int, GpuDevice] = {}  # by ordinal
_by_context: dict[int, GpuDevice] = {}  # by context handle


def driver() -> Driver:
    global _driver
    with _finding:
        if _driver is None:
            cuda.init()
            _driver = Driver()
        return _driver


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
    context = (_driver or driver()).context_of(pointer)
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
    from pycuda import gpuarray
    with for_pointer(array_pointer(array)).active():
        return gpuarray.empty(shape, np.float32)
