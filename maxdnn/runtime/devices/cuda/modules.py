"""Cubins loaded into a CUDA context, native or translated, and launches of their kernels."""

import ctypes
import struct
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....cubin import STATIC_SHARED, Cubin, CubinKernel, read
from ....errors import DeviceError, LaunchError
from ...launch import ArgumentPacker, check_geometry
from ...remember import MODULES, remembered
from ..driver import Launch
from ..protocol import Dim3, Texture
from .context import NATIVE, GpuContext, driver, driver_call, stream_handle, undone


class GpuFunction:
    """A kernel on the GPU. `registers`, `local_bytes`, `shared_bytes`: what the driver's compiler gave it."""

    def __init__(self, module: "GpuModule", name: str) -> None:
        self.module, self.device = module, module.device
        self.kernel = module.cubin.kernel(name)
        # a translated kernel's is all dynamic
        self.dynamic = self.kernel.launch_shared_bytes if module.native else self.kernel.shared_bytes
        self.name = name
        self.pack = ArgumentPacker(self.kernel)
        self.launching = f"launching {name} on {module.device.name}"
        with self.device.active(), driver_call(f"finding kernel {name}"):
            self.handle = driver().function(module.handle, name)
            self.registers, self.local_bytes, self.shared_bytes = driver().facts(self.handle)
            if self.dynamic > STATIC_SHARED:
                driver().allow_shared(self.handle, self.dynamic)

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any], *, shared_bytes: int = 0,
               textures: Mapping[str, Texture] | None = None, stream: Any = None) -> None:
        """See devices/protocol.py. `stream`: None, a handle, or a stream of pycuda, CuPy or PyTorch."""
        check_geometry(self.kernel, grid, block, shared_bytes)
        data = self.pack(args)
        with self.device.active(), driver_call(self.launching):
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
def _translated(data: bytes, target: str, only: str | None) -> bytes:
    from ....ptx.translate import translated
    return translated(data, target, only) + b"\0"


_read = remembered(MODULES)(read)


def load(device: GpuContext, data: bytes, translate: bool = False) -> "GpuModule | GpuKernels":
    """A cubin, as machine code if the GPU runs it and `translate` does not forbid that."""
    cubin: Cubin = _read(data)
    apart = len(cubin.kernels) > 1 and not (cubin.constants or cubin.globals)
    if apart and cubin.arch in NATIVE.values() and (translate or not device.native):
        return GpuKernels(device, cubin, data)
    return GpuModule(device, data, translate)


class GpuKernels:
    """A translation of kernels that share no variable: each is translated and compiled, which takes the driver up to
    seconds, when it is first asked for."""

    def __init__(self, device: GpuContext, cubin: Cubin, data: bytes) -> None:
        self.device, self.cubin, self._data = device, cubin, data
        self._modules: dict[str, GpuModule] = {}

    @property
    def nbytes(self) -> int:
        return sum(module.nbytes for module in self._modules.values())

    def function(self, name: str) -> GpuFunction:
        self.cubin.kernel(name)  # or the error that names those there are
        if name not in self._modules:
            self._modules[name] = GpuModule(self.device, self._data, True, name)
        return self._modules[name].function(name)

    def get_global(self, name: str) -> tuple[int, int]:
        raise no_symbol(name, ())

    def set_constant(self, name: str, data: bytes | np.ndarray, offset: int = 0, stream: Any = None) -> None:
        raise no_symbol(name, ())


def no_symbol(name: str, known: Iterable[str]) -> DeviceError:
    return DeviceError(f"no symbol {name!r} in this module; it has: {', '.join(known) or 'none'}")


class GpuModule:
    """A loaded cubin, native or translated. `only`: the kernel that alone is translated."""

    def __init__(self, device: GpuContext, data: bytes, translate: bool = False, only: str | None = None) -> None:
        self.device = device
        self.cubin: Cubin = _read(data)
        self.native = device.native and not translate
        if self.cubin.arch not in NATIVE.values():  # never translated
            if not _runs(self.cubin.arch, device.capability):
                raise DeviceError(f"this cubin is machine code of {self.cubin.arch}, which {device.name} does not run")
            self.native = True
        image: bytes = data if self.native else _translated(data, device.ptx_target, only)
        # Its code grows in a translation, whose instructions are twice as long; the banks are there beside the file.
        size = len(data) if only is None else len(self.cubin.kernel(only).code)
        self.nbytes = size * (1 if self.native else 4) + len(self.cubin.constant_bank)
        self._in_use = False
        with device.active(), driver().relaxed(), driver_call(f"loading a {self.cubin.arch} module on {device.name}"):
            self.handle = driver().load(image)
            weakref.finalize(self, undone, driver(), device.active(), driver().unload, self.handle).atexit = False
            self._places = {} if self.native else self._translated_places()
        self._textures: dict[str, Texture] = {}
        self.uses_objects = not self.native and b"maxdnn_textures" in image
        self._objects_sent = 0

    def _translated_places(self) -> dict[str, tuple[int, int]]:
        """Address and size of every symbol: a translated module keeps those of a section in one array. Its bank of
        global addresses is filled in here."""
        from ....ptx.translate import GLOBAL_ADDRESSES, GLOBAL_ARRAYS
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
            raise no_symbol(name, known)
        if name in self._places:
            return self._places[name]
        with self.device.active(), driver_call(f"finding symbol {name}"):
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
        with self.device.active(), driver_call(f"writing constant {name}"):
            self.device.write(address + offset, payload)

    def send_texture_objects(self) -> None:
        """Bring a translated module's table of texture objects up to date; rows in use stay as they are."""
        objects = self.device.texture_objects
        if not self.uses_objects or self._objects_sent == len(objects):
            return
        from ....ptx.translate import TEXTURE_OBJECTS
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
