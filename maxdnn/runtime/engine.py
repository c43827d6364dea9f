"""Runs plans on a device. Decides nothing: it loads what a plan names, places the workspace, resolves names, launches.

What two plans, or two streams, run at the same time shares nothing that is written: every plan has modules of its own,
with its tables in them from the first call on, and every stream a workspace of its own. So a call with a plan that has
run on a stream before uploads nothing and allocates nothing."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..build.cubins import cubin
from ..build.interface import KernelSpec
from ..errors import ShapeError
from ..planning.plan import FLOAT_BYTES, Part, Plan
from ..problem.operands import ArrayView
from .devices.protocol import TEXTURE_ALIGNMENT, Buffer, Device, Function, Module, Prepared, Texture
from .forks import FreshLock
from .stream_workspace import StreamWorkspace

PLANS = 256  # a device keeps loaded; of more the one not used for longest goes
STREAMS = 8  # a device keeps a workspace for, likewise
_PER_THREAD = 2  # the handle of the per-thread default stream: another stream in each thread


def run(plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], device: Device,
        stream: Any = None, workspace: int | None = None) -> None:
    """Run a plan on the device's arrays, or on host arrays, in the order of `stream`, without waiting for the result
    (host arrays hold it on return). `given`: every operand by role. `workspace`: the address of the plan's
    workspace_bytes, from where a texture may begin, for arrays on the device and the caller to keep until the stream is
    done; None for the stream's own. Raises ShapeError, before anything runs, if an operand begins where the plan's
    kernels cannot read it."""
    of(device).run(plan, given, scalars, stream, workspace)


def of(device: Device) -> "Engine":
    """The engine that is kept in the device."""
    found: Engine = device.kept.get("engine") or device.kept.setdefault("engine", Engine(device))
    return found


class Engine:
    """What a device keeps between calls."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._lock = FreshLock()  # of the tables below; never held while something runs
        self._loaded: dict[Plan, _Loaded] = {}
        self._workspaces: dict[tuple[int, int], StreamWorkspace] = {}
        self._uses = 0
        self._shared = _Modules(device)
        self._stream_handle = getattr(device, "stream_handle", lambda stream: 0)

    def run(self, plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], stream: Any,
            workspace: int | None = None) -> None:
        handle, loaded = self._stream_handle(stream), self.loaded(plan)
        on_host = next(iter(given.values())).on_host
        if workspace is not None or not (on_host or plan.workspace):
            loaded.run(self._places(given, stream), workspace or 0, scalars, handle)
            return
        own = self.workspace_of(handle)
        with own.lock:  # one call at a time in a stream: its launches stay together, since they share the workspace
            if on_host:
                with _HostArrays(self.device, plan, given, stream) as places:
                    loaded.run(places, own.place(plan, handle), scalars, handle)
            else:
                loaded.run(self._places(given, stream), own.place(plan, handle), scalars, handle)

    def _places(self, given: Mapping[str, ArrayView], stream: Any) -> dict[str, int]:
        """The addresses by role, of arrays that may be used once this returns."""
        for array in given.values():
            if array.stream is not None:
                self.device.wait_for(stream, array.stream)  # type: ignore[attr-defined]
        return {role: array.address for role, array in given.items()}

    def loaded(self, plan: Plan) -> "_Loaded":
        """The plan, ready to run with addresses."""
        found = self._loaded.get(plan)
        if found is None:
            return self._kept(self._loaded, plan, PLANS, lambda: _Loaded(self.device, plan, self._shared))
        self._uses += 1
        found.used = self._uses
        return found

    def release(self) -> None:
        """Let go of everything that is not in use: plans that no graph runs, workspaces of streams."""
        with self._lock:
            idle = [*(self._loaded.pop(plan) for plan in [p for p, it in self._loaded.items() if not it.captured]),
                    *self._workspaces.values()]
            self._workspaces.clear()
        self.device.synchronize()
        for one in idle:
            with one.lock:
                one.free()

    @property
    def idle_bytes(self) -> int:
        """Bytes of the workspaces that `release` would let go of."""
        with self._lock:
            return sum(own.idle_bytes for own in self._workspaces.values())

    def captured(self, plan: Plan) -> bool:
        """Whether a graph runs the plan."""
        found = self._loaded.get(plan)
        return found is not None and found.captured

    def workspace_of(self, handle: int) -> StreamWorkspace:
        """The workspace of the stream with that handle."""
        key = handle, threading.get_ident() if handle == _PER_THREAD else 0
        return self._kept(self._workspaces, key, STREAMS, lambda: StreamWorkspace(self.device))

    def _kept(self, table: dict[Any, Any], key: Any, most: int, make: Any) -> Any:
        """The entry of a table, made if there is none; the least recently used one goes if there are too many. None
        that a graph runs: its kernels die with the module, and nobody says when a graph has run for the last time."""
        found = table.get(key)
        if found is None:
            gone = None
            with self._lock:
                if key not in table:
                    free = [k for k in table if not table[k].captured] if len(table) >= most else []
                    if free:
                        gone = table.pop(min(free, key=lambda k: table[k].used))
                    table[key] = make()
                found = table[key]
            if gone is not None:
                with gone.lock:
                    self.device.synchronize()  # its last launches may be on their way
                    gone.free()
        self._uses += 1
        found.used = self._uses  # two threads may write the same number: no harm
        return found


class _Modules:
    """Modules of kernels that hold nothing of a plan: neither tables nor textures. By source."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = FreshLock()
        self._modules: dict[str, Module] = {}

    def function(self, spec: KernelSpec) -> Function:
        with self._lock:
            if spec.source not in self._modules:
                self._modules[spec.source] = load(self._device, spec)
            return self._modules[spec.source].function(spec.name)


class _Loaded:
    """A plan's kernels on the device, made at its first call: one module for each content of the tables."""

    def __init__(self, device: Device, plan: Plan, shared: _Modules) -> None:
        self.lock = FreshLock()
        self.used, self.captured = 0, False
        self.regions = [(name, region.offset) for name, region in plan.workspace.items()]
        self._device, self._plan, self._shared = device, plan, shared
        self._alignment = getattr(device, "texture_alignment", TEXTURE_ALIGNMENT)
        self._textured = plan.textured
        self._told: Mapping[str, Any] | None = None  # the scalars that were written last
        self.free()

    def run(self, places: dict[str, int], workspace: int, scalars: Mapping[str, Any], stream: int) -> None:
        """Launch all, with the addresses of the operands (`places`, which is changed) and of the workspace, on the
        stream with that handle. `scalars` must stay as they are from then on. Raises ShapeError for an address at which
        the plan's kernels cannot read."""
        for role in self._textured:
            if places[role] % self._alignment:
                raise ShapeError(f"{role} must begin at a multiple of {self._alignment} bytes on {self._device.name} "
                                 f"in this plan (got address 0x{places[role]:x}); maxdnn.plan(..., copy_{role}=True) "
                                 "makes one for arrays that begin anywhere")
        for name, offset in self.regions:
            places[name] = workspace + offset
        with self.lock.now:  # what is written below is read by the launches
            if not self._prepared:
                self._prepare()
            for values, at, name, offset in self._addresses:
                values[at] = places[name] + offset
            if scalars is not self._told:
                for values, at, name in self._scalars:
                    values[at] = scalars[name]
                self._told = scalars
            if self._go(stream):
                self.captured = True

    def free(self) -> None:
        self._prepared: list[Prepared] = []  # holds the modules, whose kernels die with them
        self._go: Callable[[int], bool | None]  # launches all on a stream, and says whether that is captured
        self._addresses: list[tuple[Any, int, str, int]] = []  # where to write the address of what, and an offset
        self._scalars: list[tuple[Any, int, str]] = []
        self._told = None

    def _prepare(self) -> None:
        functions = self._load()
        sizes = {name: (0, region.nbytes) for name, region in self._plan.workspace.items()}
        sizes |= {operand.role: (0, FLOAT_BYTES * operand.extent) for operand in self._plan.problem.operands}
        every = []
        for launch, function in zip(self._plan.launches, functions, strict=True):
            kinds = [param.type for param in launch.spec.params]
            values = [launch.values[param.name] for param in launch.spec.params]
            args = [value if isinstance(value, (int, float)) else 0 if kind == "ptr" else 0.0
                    for value, kind in zip(values, kinds, strict=True)]
            reach = {texture: nbytes for texture, (_, nbytes, _) in launch.bound(sizes).items()}
            prepare = getattr(function, "prepare", None) or partial(_Plain, function, launch.spec.channels)
            prepared: Prepared = prepare(launch.grid, launch.block, args, reach)
            for number, (value, kind) in enumerate(zip(values, kinds, strict=True)):
                if isinstance(value, (int, float)):
                    continue
                if kind == "ptr":
                    self._addresses.append((*prepared.slot(number), *_begin(value)))
                else:
                    self._scalars.append((*prepared.slot(number), str(value)))
            self._addresses += [(*prepared.slot(name), *_begin(memory)) for name, memory in launch.textures.items()]
            every.append(prepared)
        self._go = getattr(self._device, "launcher", _plain)(every)
        self._prepared = every

    def _load(self) -> list[Function]:
        """The kernel of each launch."""
        own: dict[tuple[Any, ...], Function] = {}
        functions = []
        for launch in self._plan.launches:
            launch.check()
        for launch in self._plan.launches:
            spec = launch.spec
            if not spec.constants and not spec.textures:
                functions.append(self._shared.function(spec))
                continue
            key = spec.source, spec.name, *sorted(launch.tables.items())
            if key not in own:
                module = load(self._device, spec)
                for symbol, content in launch.tables.items():
                    module.set_constant(symbol, content)
                own[key] = module.function(spec.name)
            functions.append(own[key])
        if any(launch.tables for launch in self._plan.launches):
            self._device.synchronize()  # the tables are there for every stream
        return functions


def _begin(memory: Any) -> tuple[str, int]:
    """The name and the offset of named memory."""
    return (memory.name, memory.offset) if isinstance(memory, Part) else (memory, 0)


class _Plain:
    """A launch on a device that does not prepare any: see devices/protocol.py."""

    def __init__(self, function: Function, channels: Mapping[str, int], grid: Any, block: Any, args: list[Any],
                 textures: Mapping[str, int]) -> None:
        self._function, self._grid, self._block, self._args = function, grid, block, args
        self._addresses = [0] * len(textures)
        self._textures = [(name, size, channels[name]) for name, size in textures.items()]

    def slot(self, what: int | str) -> tuple[Any, int]:
        if isinstance(what, int):
            return self._args, what
        return self._addresses, [name for name, _, _ in self._textures].index(what)

    def run(self, stream: int) -> None:
        textures = {name: Texture(address, size, channels)
                    for address, (name, size, channels) in zip(self._addresses, self._textures, strict=True)}
        self._function.launch(self._grid, self._block, self._args, textures=textures, stream=stream or None)


def _plain(prepared: Sequence[Any]) -> Callable[[int], None]:
    def go(stream: int) -> None:
        for launch in prepared:
            launch.run(stream)
    return go


def load(device: Device, spec: KernelSpec) -> Module:
    """A new module of a kernel's cubin."""
    return device.load(cubin(spec.source.removesuffix(".sass"), spec.arch or device.arch))


class _HostArrays:
    """The user's host arrays on the device for the time of a call: places by role. They are lent to a device that can
    use them in place; else copied there, and what the plan wrote is copied back at the end."""

    def __init__(self, device: Device, plan: Plan, given: Mapping[str, ArrayView], stream: Any) -> None:
        self._device, self._plan, self._given, self._stream = device, plan, given, stream
        self._buffers: dict[str, Buffer] = {}
        self._adopt = getattr(device, "adopt", None)

    def __enter__(self) -> dict[str, int]:
        try:
            for role, array in self._given.items():
                self._buffers[role] = self._place(role, array)
        except BaseException:
            self._free()
            raise
        return {role: buffer.address for role, buffer in self._buffers.items()}

    def _place(self, role: str, array: ArrayView) -> Buffer:
        if self._adopt:
            return self._adopt(array.memory)
        buffer = self._device.alloc(array.nbytes)
        if role not in self._plan.written or self._plan.problem.reads_out:
            self._device.upload(buffer, array.memory, self._stream)
        return buffer

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if not self._adopt and failure is None:
                for role in self._plan.written:
                    self._device.download(self._buffers[role], self._given[role].array, self._stream)
        finally:
            self._free()

    def _free(self) -> None:
        for buffer in self._buffers.values():
            buffer.free()
