"""Runs plans on a device. Decides nothing: it loads what a plan names, places the workspace, resolves names, launches.

What two plans, or two streams, run at the same time shares nothing that is written: every plan has modules of its own,
with its tables in them from the first call on, and every stream a workspace of its own. So a call with a plan that has
run on a stream before uploads nothing and allocates nothing."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .arrays import ArrayView
from .cubins import cubin
from .devices.protocol import TEXTURE_ALIGNMENT, Buffer, Device, Function, Module, Texture
from .errors import ShapeError
from .forks import FreshLock
from .kernels import KernelSpec
from .plans import Place, Plan

PLANS = 256  # a device keeps loaded; of more the one not used for longest goes
STREAMS = 8  # a device keeps a workspace for, likewise
_PER_THREAD = 2  # the handle of the per-thread default stream: another stream in each thread


def run(plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], device: Device,
        stream: Any = None) -> None:
    """Run a plan on the device's arrays, or on host arrays, in the order of `stream`, without waiting for the result
    (host arrays hold it on return). `given`: every operand by role. Raises ShapeError, before anything runs, if an
    operand begins where the plan's kernels cannot read it."""
    engine = device.kept.get("engine") or device.kept.setdefault("engine", Engine(device))
    engine.run(plan, given, scalars, stream)


class Engine:
    """What a device keeps between calls."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._lock = FreshLock()  # of the tables below; never held while something runs
        self._loaded: OrderedDict[Plan, _Loaded] = OrderedDict()
        self._lanes: OrderedDict[tuple[int, int], _Lane] = OrderedDict()
        self._shared = _Modules(device)

    def run(self, plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], stream: Any) -> None:
        lane, loaded = self._lane(stream), self._plan(plan)
        with lane.lock:  # one call at a time in a stream: its launches stay together, since they share the workspace
            if next(iter(given.values())).on_host:
                with _HostArrays(self.device, plan, given, stream) as places:
                    self._run(plan, loaded, lane, places, scalars, stream)
            else:
                for array in given.values():
                    if array.stream is not None:
                        self.device.wait_for(stream, array.stream)  # type: ignore[attr-defined]
                places = {role: (array.address, array.nbytes) for role, array in given.items()}
                self._run(plan, loaded, lane, places, scalars, stream)

    def _run(self, plan: Plan, loaded: "_Loaded", lane: "_Lane", places: dict[str, Place], scalars: Mapping[str, Any],
             stream: Any) -> None:
        self._check_alignment(plan, places)
        if plan.workspace:
            lane.place(plan, places)
        with loaded.lock:  # texture references belong to the module
            for launch, function in zip(plan.launches, loaded.functions(), strict=True):
                textures = {name: Texture(*bound) for name, bound in launch.bound(places).items()}
                function.launch(launch.grid, launch.block, launch.arguments(places, scalars), textures=textures,
                                stream=stream)

    def _check_alignment(self, plan: Plan, places: Mapping[str, Place]) -> None:
        need = getattr(self.device, "texture_alignment", TEXTURE_ALIGNMENT)
        for role in plan.textured:
            if places[role][0] % need:
                raise ShapeError(f"{role} must begin at a multiple of {need} bytes on {self.device.name} in this plan "
                                 f"(got address 0x{places[role][0]:x}); maxdnn.plan(..., copy_{role}=True) makes one "
                                 "for arrays that begin anywhere")

    def _plan(self, plan: Plan) -> "_Loaded":
        return self._kept(self._loaded, plan, PLANS, lambda: _Loaded(self.device, plan, self._shared))

    def _lane(self, stream: Any) -> "_Lane":
        handle = getattr(self.device, "stream_handle", lambda stream: 0)(stream)
        key = handle, threading.get_ident() if handle == _PER_THREAD else 0
        return self._kept(self._lanes, key, STREAMS, lambda: _Lane(self.device))

    def _kept(self, table: OrderedDict[Any, Any], key: Any, most: int, make: Any) -> Any:
        """The entry of a table, made if there is none; the least recently used one goes if there are too many."""
        with self._lock:
            if key in table:
                table.move_to_end(key)
                return table[key]
            made = table[key] = make()
            gone = table.popitem(last=False)[1] if len(table) > most else None
        if gone is not None:
            with gone.lock:
                self.device.synchronize()  # its last launches may be on their way
                gone.free()
        return made


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
        self._device, self._plan, self._shared = device, plan, shared
        self._functions: list[Function] = []

    def functions(self) -> list[Function]:
        """One for each launch. The lock is held."""
        if not self._functions:
            self._functions = self._load()
        return self._functions

    def _load(self) -> list[Function]:
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

    def free(self) -> None:
        self._functions = []


def load(device: Device, spec: KernelSpec) -> Module:
    """A new module of a kernel's cubin."""
    return device.load(cubin(spec.source.removesuffix(".sass"), device.arch))


class _Lane:
    """What belongs to a stream: its workspace, as large as the largest plan that ran on it needs."""

    def __init__(self, device: Device) -> None:
        self.lock = FreshLock()
        self._device = device
        self._workspace: Buffer | None = None

    def place(self, plan: Plan, places: dict[str, Place]) -> None:
        """Add the plan's regions to the places."""
        if self._workspace is None or self._workspace.nbytes < plan.workspace_bytes:
            self._device.synchronize()
            self.free()
            self._workspace = self._device.alloc(plan.workspace_bytes)
        for name, region in plan.workspace.items():
            places[name] = self._workspace.address + region.offset, region.nbytes

    def free(self) -> None:
        if self._workspace is not None:
            self._workspace.free()
            self._workspace = None


class _HostArrays:
    """The user's host arrays on the device for the time of a call: places by role. They are lent to a device that can
    use them in place; else copied there, and what the plan wrote is copied back at the end."""

    def __init__(self, device: Device, plan: Plan, given: Mapping[str, ArrayView], stream: Any) -> None:
        self._device, self._plan, self._given, self._stream = device, plan, given, stream
        self._buffers: dict[str, Buffer] = {}
        self._adopt = getattr(device, "adopt", None)

    def __enter__(self) -> dict[str, Place]:
        try:
            for role, array in self._given.items():
                self._buffers[role] = self._place(role, array)
        except BaseException:
            self._free()
            raise
        return {role: (buffer.address, self._given[role].nbytes) for role, buffer in self._buffers.items()}

    def _place(self, role: str, array: ArrayView) -> Buffer:
        if self._adopt:
            return self._adopt(array.array)
        buffer = self._device.alloc(array.nbytes)
        if role not in self._plan.written or self._plan.problem.reads_out:
            self._device.upload(buffer, array.array, self._stream)
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
