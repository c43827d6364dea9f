"""The virtual GPU: the device protocol on the CPU. Launches are synchronous; CTAs run in parallel on all cores."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..cubin import ADDRESSES, CODE_ADDRESS, Cubin, CubinKernel, external_functions, read, require_linked
from ..errors import CubinError, DeviceError, LaunchError, shown
from ..runtime.devices.protocol import Dim3, Texture
from ..runtime.forks import tables
from ..runtime.launch import ArgumentPacker, check_geometry, most_shared
from ..runtime.remember import MODULES, remembered
from . import host, layout
from .compiled import CompiledKernel
from .host import HEAP_BYTES, Heap, HostCalls, to_stdout
from .layout import LOCAL_WINDOW, SHARED_WINDOW
from .memory import GlobalMemory, VirtualBuffer, aligned_bytes, aligned_copy
from .stack import stack_bytes
from .threads import cores, run
from .tracing import OnWarp, linear, trace
from .worker import LaunchPlan

DEFAULT_BUDGET = 1 << 36  # instructions per warp
_MAX_TEXELS = 1 << 28
_ARCHS = {"gm107": "sm_50", "gm200": "sm_52", "gm204": "sm_52", "gm20b": "sm_53", "gp104": "sm_61"}
_PATCHED = (".nv.constant3", ".nv.constant4", ".nv.global.init")  # sections that may hold addresses of variables


class VirtualGpu:
    """A Maxwell GPU run by this computer's CPU.

    Parameters
    ----------
    preset : {"gm204", "gm107", "gm200", "gm20b", "gp104"}
        The chip; `arch` is its architecture. Computing is the same on all.
    instruction_budget : int
        Instructions that one warp may execute before a launch is taken for an endless loop.
    workers : int, optional
        Threads that run CTAs; all cores that this process may use if None.
    race : bool
        Report races of shared memory.
    undefined : bool
        Report reads of registers that were never written.
    output : callable, optional
        Gets the text of every printf of device code; this process's standard output if None.
    heap_bytes : int
        Bytes that malloc of device code can give in all.
    memory_bytes : int, optional
        Bytes that all allocations together can have, host arrays used in place and globals of loaded modules among
        them. As much as the host has if None.

    Raises
    ------
    LaunchError
        A value is none of these.
    """

    def __init__(self, preset: str = "gm204", *, instruction_budget: int = DEFAULT_BUDGET, workers: int | None = None,
                 race: bool = False, undefined: bool = False, output: Callable[[str], None] | None = None,
                 heap_bytes: int = HEAP_BYTES, memory_bytes: int | None = None) -> None:
        for name, value, least, most in (("instruction_budget", instruction_budget, 1, 1 << 62),
                                         ("workers", 1 if workers is None else workers, 1, 1 << 16),
                                         ("heap_bytes", heap_bytes, 0, (1 << 47) - 1),
                                         ("memory_bytes", 0 if memory_bytes is None else memory_bytes, 0, 1 << 62)):
            if not isinstance(value, int) or not least <= value <= most:
                raise LaunchError(f"{name} must be an integer from {least} to {most} (got {shown(value)})")
        if not isinstance(race, bool) or not isinstance(undefined, bool):
            raise LaunchError(f"race and undefined must be True or False (got {shown(race)}, {shown(undefined)})")
        if not isinstance(preset, str) or preset not in _ARCHS:
            raise LaunchError(f"preset must be one of {', '.join(_ARCHS)} (got {shown(preset)})")
        if output is not None and not callable(output):
            raise LaunchError(f"output must be a function of a text, or None (got {shown(output)})")
        self.name = f"virtual {preset}"
        self.preset = preset
        self.arch = _ARCHS[preset]
        self.instruction_budget = instruction_budget
        self.workers = workers or cores()
        self.checks = frozenset(n for n, on in (("race", race), ("undefined", undefined)) if on)
        self.memory = GlobalMemory(memory_bytes)
        self.kept: dict[str, Any] = {}  # see devices/protocol.py
        self.host = HostCalls(self.memory, Heap(self.memory, heap_bytes), output or to_stdout)
        self._textures: tuple[Texture, ...] = ()

    def alloc(self, nbytes: int) -> VirtualBuffer:
        """Allocate device memory.

        Parameters
        ----------
        nbytes : int
            Bytes, at least 0.

        Returns
        -------
        buffer
            Zeroed memory at device address `address`, freed by its `free` or with the object.

        Raises
        ------
        OutOfMemoryError
            There is not so much memory.
        LaunchError
            `nbytes` is no number of bytes.
        """
        return self.memory.alloc(nbytes)

    def adopt(self, array: np.ndarray) -> VirtualBuffer:
        """Use a host array as device memory, in place, until the buffer is freed.

        Parameters
        ----------
        array : numpy.ndarray
            C-contiguous. Nothing is copied, so a kernel that writes there writes the array.

        Returns
        -------
        buffer
            Device memory, as `alloc` gives it.

        Raises
        ------
        LaunchError
            The array is not C-contiguous.
        """
        return self.memory.adopt(array)

    def free_bytes(self) -> int | None:
        """Bytes that `alloc` can still give; None where there is no limit."""
        return self.memory.free_bytes()

    def upload(self, buffer: Any, data: np.ndarray, stream: Any = None) -> None:
        """Copy a host array to device memory.

        Parameters
        ----------
        buffer : buffer
            Where to, from its beginning on.
        data : numpy.ndarray
            C-contiguous, of any type.
        stream : None
            No effect: the copy is complete on return.

        Raises
        ------
        LaunchError
            The array is not C-contiguous or larger than the buffer.
        """
        _fits("data", buffer, data)
        buffer.data[:data.nbytes] = data.reshape(-1).view(np.uint8)

    def download(self, buffer: Any, out: np.ndarray, stream: Any = None) -> None:
        """Copy device memory to a host array.

        Parameters
        ----------
        buffer : buffer
            Where from; its first out.nbytes bytes.
        out : numpy.ndarray
            As `data` of `upload`.
        stream : None
            Likewise.

        Raises
        ------
        LaunchError
            As for `upload`.
        """
        _fits("out", buffer, out)
        out.reshape(-1).view(np.uint8)[:] = buffer.data[:out.nbytes]

    def load(self, cubin: bytes | Cubin) -> "VirtualModule":
        """Load a cubin.

        Parameters
        ----------
        cubin : bytes or Cubin
            The file's content, or what `maxdnn.cubin.read` returned.

        Returns
        -------
        module
            Kernels by `function(name)`; `set_constant` and `get_global` reach its variables.

        Raises
        ------
        CubinError
            This is no cubin.
        DecodeError
            A word of its code is no instruction.
        """
        if isinstance(cubin, Cubin):
            return VirtualModule(self, cubin)
        plain = isinstance(cubin, (bytes, bytearray, memoryview))
        return VirtualModule(self, _read(bytes(cubin)) if plain else read(cubin))

    def texture_object(self, texture: Texture) -> int:
        """Make a texture object.

        Parameters
        ----------
        texture : Texture
            Linear device memory: address, bytes, floats of a texel.

        Returns
        -------
        int
            A 64-bit handle for bindless fetches, valid as long as this device exists.

        Raises
        ------
        LaunchError
            The memory is not inside an allocation, too large, or `channels` is not 1, 2 or 4.
        """
        self._checked_row(texture)
        with tables:
            self._textures = (*self._textures, texture)
            return len(self._textures) - 1

    def synchronize(self) -> None:
        """Return when all launches are complete, which here they are when they return."""

    def _checked_row(self, texture: Texture) -> tuple[int, int, int]:
        """Host address, texels and channels. Raises LaunchError for a range outside every allocation."""
        if texture.channels not in (1, 2, 4):
            raise LaunchError(f"channels of a texture must be 1, 2 or 4 (got {texture.channels})")
        row = self._texture_row(texture)
        if row is None:
            raise LaunchError(f"texture of {texture.nbytes} bytes at 0x{texture.address:x} is not inside an "
                              f"allocation: {self.memory.describe(texture.address)}")
        if row[1] > _MAX_TEXELS:
            raise LaunchError(f"a linear texture holds at most {_MAX_TEXELS} texels (got {row[1]})")
        return row

    def _texture_row(self, texture: Texture) -> tuple[int, int, int] | None:
        data = self.memory.host(texture.address, texture.nbytes)
        return None if data is None else (int(data.ctypes.data), texture.nbytes // (4 * texture.channels),
                                          texture.channels)

    def _texture_table(self, every: Sequence[Texture]) -> np.ndarray:
        """The header table of texture objects and of a launch's references."""
        table = np.zeros((max(1, len(every)), 4), np.uint64)
        for row, texture in zip(table, every, strict=False):
            found = self._texture_row(texture)
            if found is None:
                continue  # an object whose memory was freed, perhaps just now by another thread: a fault if it is used
            host, texels, channels = found
            row[:3] = host, texels | channels << 32, texture.address
        return table

    @property
    def textures(self) -> tuple[Texture, ...]:
        """The texture objects; the handle of one is its place here."""
        return self._textures


def _dim3(numbers: Sequence[int]) -> Dim3:
    x, y, z = map(int, numbers)
    return x, y, z


def _fits(name: str, buffer: Any, array: np.ndarray) -> None:
    if not array.flags.c_contiguous:
        raise LaunchError(f"{name} must be C-contiguous")
    if array.nbytes > buffer.nbytes:
        raise LaunchError(f"{name} has {array.nbytes} bytes, the buffer {buffer.nbytes}")


_read = remembered(MODULES)(read)


class VirtualModule:
    """A loaded cubin: global variables, constant banks, kernels."""

    def __init__(self, gpu: VirtualGpu, cubin: Cubin) -> None:
        require_linked(cubin, host.ADDRESSES, addresses=_PATCHED)
        self.gpu = gpu
        self.cubin = cubin
        self._init = self._global_buffer(cubin.global_init, len(cubin.global_init))
        self._zeros = self._global_buffer(b"", cubin.global_bytes)
        self._bank3, self._bank4 = aligned_copy(cubin.constant_bank), aligned_copy(cubin.global_addresses)
        self._relocate()
        self._functions: dict[str, VirtualFunction] = {}

    def _global_buffer(self, initial: bytes, nbytes: int) -> VirtualBuffer | None:
        if not nbytes:
            return None
        buffer = self.gpu.alloc(nbytes)
        buffer.data[:len(initial)] = np.frombuffer(initial, np.uint8)
        return buffer

    def _relocate(self) -> None:
        """Write the addresses of global variables where the file asks for them."""
        places = {".nv.constant4": self._bank4, ".nv.constant3": self._bank3}
        if self._init is not None:
            places[".nv.global.init"] = self._init.data
        for r in self.cubin.relocations:
            place = places.get(r.section)
            if place is not None and r.kind == CODE_ADDRESS:
                place[r.offset:r.offset + 4] = np.frombuffer(host.bits(r.symbol), np.uint8)
            if place is None or r.kind not in ADDRESSES:
                continue
            word = place[r.offset:r.offset + 8]
            if word.nbytes != 8:
                raise CubinError(f"damaged cubin: {r} runs past the end of its section")
            before = int.from_bytes(word.tobytes(), "little") if r.addend is None else r.addend
            address = (self.get_global(r.symbol)[0] + before) % (1 << 64)
            word[:] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)

    def function(self, name: str) -> "VirtualFunction":
        """The kernel of that name, ready to launch. Raises CubinError if there is none."""
        found = self._functions.get(name)
        return found or self._functions.setdefault(name, VirtualFunction(self, self.cubin.kernel(name)))

    def set_constant(self, name: str, data: bytes | np.ndarray, offset: int = 0, stream: Any = None) -> None:
        """Write a `__constant__` symbol. Raises DeviceError for an unknown name or too many bytes."""
        raw = np.frombuffer(bytes(data) if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes(), np.uint8)
        self._bank3[self.constant_place(name, raw.nbytes, offset)] = raw

    def constant_place(self, name: str, nbytes: int, offset: int = 0) -> slice:
        """Where some bytes of a __constant__ symbol lie in bank 3. Raises DeviceError if it does not have them."""
        symbol = self.cubin.constants.get(name)
        if symbol is None:
            raise DeviceError(f"no __constant__ {name!r}; there are: {', '.join(self.cubin.constants) or 'none'}")
        if offset < 0 or offset + nbytes > symbol.size:
            raise DeviceError(f"__constant__ {name} has {symbol.size} bytes (got {nbytes} at offset {offset})")
        return slice(symbol.offset + offset, symbol.offset + offset + nbytes)

    def get_global(self, name: str) -> tuple[int, int]:
        """(device address, bytes) of a global variable. Raises DeviceError for an unknown name."""
        symbol = self.cubin.globals.get(name)
        buffer = self._zeros if symbol is not None and symbol.section == ".nv.global" else self._init
        if symbol is None or buffer is None:
            raise DeviceError(f"no global variable {name!r}; there are: {', '.join(self.cubin.globals) or 'none'}")
        return buffer.address + symbol.offset, symbol.size

    def banks(self, kernel: CubinKernel) -> list[np.ndarray]:
        """Constant banks 0.. as they are before a launch.

        Those that change are fresh copies: bank 0 is the launch's own, and bank 3 may be written by another thread.
        """
        first = bytes(max(len(kernel.constants.get(0, b"")), kernel.param_base + kernel.param_bytes))
        banks = [aligned_bytes(0)] * layout.BANKS
        for number, data in {**kernel.constants, 0: first}.items():
            banks[number] = aligned_copy(data)
        if self._bank3.nbytes:
            banks[3] = aligned_copy(self._bank3)
        if self._bank4.nbytes:
            banks[4] = self._bank4
        return banks


class VirtualFunction:
    """A kernel of a module, ready to launch."""

    def __init__(self, module: VirtualModule, kernel: CubinKernel) -> None:
        self.module = module
        self.kernel = kernel
        self.name = kernel.name
        self._compiled = CompiledKernel(kernel, tuple(bank.nbytes for bank in module.banks(kernel)))

    @property
    def local_bytes(self) -> int:
        """Stack of a thread."""
        return stack_bytes(self.kernel)

    def plan(self, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int = 0,
             textures: Mapping[str, Texture] | None = None, order: np.ndarray | None = None,
             checks: frozenset[str] | None = None) -> LaunchPlan:
        """Check a launch and prepare what its workers share. Raises LaunchError."""
        gpu, kernel = self.module.gpu, self.kernel
        check_geometry(kernel, grid, block, shared_bytes, most_shared(kernel.arch))
        banks = self.module.banks(kernel)
        objects = gpu.textures
        references = self._references({} if textures is None else textures)
        allocations, memory = gpu.memory.table()
        self._fill_bank0(banks[0], grid, block, args, shared_bytes)
        for number, (_, offset) in enumerate(kernel.textures):
            banks[0][offset:offset + 4].view(np.uint32)[0] = len(objects) + number
        return LaunchPlan(self._compiled, _dim3(grid), _dim3(block), kernel.shared_bytes + shared_bytes,
                          self.local_bytes, banks, allocations, memory, gpu._texture_table((*objects, *references)),
                          gpu.instruction_budget, gpu.checks if checks is None else checks, order,
                          gpu.host if external_functions(self.module.cubin) else None)

    def _references(self, textures: Mapping[str, Texture]) -> list[Texture]:
        names = [name for name, _ in self.kernel.textures]
        if not isinstance(textures, Mapping):
            raise LaunchError(f"{self.name}: textures must map names to textures (got {shown(textures)})")
        unknown = sorted(set(textures) - set(names))
        missing = sorted(set(names) - set(textures))
        if unknown or missing:
            raise LaunchError(f"{self.name}: textures must bind exactly {names or 'nothing'} "
                              f"(missing {missing}, unknown {unknown})")
        for texture in textures.values():
            self.module.gpu._checked_row(texture)
        return [textures[name] for name in names]

    def _fill_bank0(self, bank: np.ndarray, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int) -> None:
        base = self.kernel.param_base
        words, where = bank[:base].view(np.uint32), self.kernel.table.bank0
        data = ArgumentPacker(self.kernel)(args)
        bank[base:base + len(data)] = np.frombuffer(bytes(data), np.uint8)
        found = {"block": block, "grid": grid, "shared_window": (SHARED_WINDOW << 24,),
                 "local_window": (LOCAL_WINDOW << 24,), "local_bytes": (self.local_bytes,),
                 "shared_bytes": (shared_bytes,), "sms": (1,)}
        for name in found.keys() & where.keys():
            words[where[name] // 4:][:len(found[name])] = found[name]

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any], *, shared_bytes: int = 0,
               textures: Mapping[str, Texture] | None = None, stream: Any = None) -> None:
        """Run the kernel to its end. Raises LaunchError, or EmulationFault for what goes wrong inside."""
        plan = self.plan(grid, block, args, shared_bytes, textures)
        run(plan, self.module.gpu.workers, self.module.gpu.memory)

    def trace(self, grid: Dim3, block: Dim3, args: Sequence[Any], *, blocks: Sequence[Dim3], on_warp: OnWarp,
              shared_bytes: int = 0, textures: Mapping[str, Texture] | None = None, hollow: bool = False) -> None:
        """Run some CTAs and tell what they did.

        Run only `blocks` (coordinates in the grid), in that order, and call `on_warp` with the WarpTrace of every
        warp, block by block. The blocks really run: memory holds their results afterwards. Lane addresses: global and
        generic as the program forms them; shared and local as byte offsets; constants as bank << 16 | offset; textures
        as the texel's device address, all ones for a coordinate out of range. `hollow`: tensor cores compute nothing,
        for kernels whose paths and addresses do not hang on it.
        """
        order = linear(blocks, grid)
        trace(self.plan(grid, block, args, shared_bytes, textures, order,
                        frozenset({"trace", "hollow"} if hollow else {"trace"})),
              self.module.gpu.memory, on_warp)
