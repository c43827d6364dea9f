"""Runs plans on a device. It chooses nothing: it loads the kernels that a plan names, places the workspace, replaces
names by addresses and launches.

Plans or streams that run at the same time share nothing that is written. Every plan has modules of its own, whose
tables are uploaded at its first call; every stream has a workspace of its own. So a plan that has run on a stream
before uploads nothing and allocates nothing.

What is kept is bounded by its bytes on the device. Beyond the bound, idle entries chosen at random are dropped
(remember.py) and freed when the events of their last uses have passed (stream_workspace.py). Nothing here synchronizes
the device. During a call on a captured stream nothing is freed, and what a graph uses is kept as long as the graph.
The first call of a plan may be captured: loading it does not become part of the graph."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..build.interface import KernelSpec
from ..errors import LaunchError, OutOfMemoryError, ShapeError
from ..planning.cost import HasChip
from ..planning.plan import FLOAT_BYTES, Plan, begin
from ..problem.operands import ArrayView
from . import trust, verbose
from .devices.protocol import (
    Buffer,
    Device,
    Function,
    InPlace,
    Launching,
    Module,
    Prepared,
    Preparing,
    SharesMemory,
    Texture,
    Weighed,
    able,
    texture_alignment,
)
from .forks import FreshLock
from .remember import Table
from .stream_workspace import Graphs, Leaving, StreamWorkspace, streams_of

PLAN_SHARE = 1 / 16  # of a device's memory, at most, for modules of plans
WORKSPACE_SHARE = 1 / 4  # and for workspaces of streams
MEMORY = 4 << 30  # assumed of a device that does not say its own
MODULE_BYTES = 1 << 17  # assumed of a module that does not say its own
STREAMS = 1 << 10  # whose events and workspaces are kept
holders: list[Callable[[Device], None]] = []
"""Functions that let go of what others keep on a device and can make again."""
_PER_THREAD = 2  # the handle of the per-thread default stream: another stream in each thread


def run(plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], device: Device,
        stream: Any = None, workspace: int | None = None) -> None:
    """Run a plan on the device's arrays, or on host arrays, in the order of `stream`, without waiting for the result
    (host arrays hold it on return). `given`: every operand by role. `workspace`: the address of the plan's
    workspace_bytes, from where a texture may begin, for arrays on the device and the caller to keep until the stream is
    done; None for the stream's own. Raises ShapeError, before anything runs, if an operand begins where the plan's
    kernels cannot read it."""
    of(device).run(plan, given, scalars, stream, workspace)


watchers: list[Callable[[Plan], object]] = []
"""Told of each plan that is about to run, in the thread that runs it."""


def of(device: Device) -> "Engine":
    """The engine that is kept in the device."""
    found: Engine | None = device.kept.get("engine")
    return found or device.kept.setdefault("engine", Engine(device, verbose.level()))


class Engine:
    """What a device keeps between calls. `verbosity`: whether to tell of each call (verbose.py)."""

    def __init__(self, device: Device, verbosity: int = 0) -> None:
        self.device = device
        self._load = functools.partial(_Told, verbosity) if verbosity else _Loaded
        known = able(device, HasChip)
        memory = (known and known.chip.memory) or MEMORY
        # Texture references belong to a module of Maxwell's machine code; a translated kernel takes them as parameters.
        self.binds_textures = known is None or known.chip.runs_maxwell
        self._plans: Table[Plan, _Loaded] = Table(PLAN_SHARE * memory)
        self._streams: Table[Any, StreamWorkspace] = Table(WORKSPACE_SHARE * memory, STREAMS)
        self._leaving = Leaving()
        self._shared = _Modules(device)
        streams = streams_of(device)
        self._stream_handle, self._wait_for = streams.stream_handle, streams.wait_for
        self.graph_of, self.alignment = streams.graph_of, texture_alignment(device)
        self.in_place = able(device, InPlace)
        self._others = able(device, SharesMemory)

    def run(self, plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], stream: Any,
            workspace: int | None = None) -> None:
        handle = self._stream_handle(stream)
        on_host = next(iter(given.values())).on_host
        if workspace is not None:
            self.loaded(plan).run(self._places(given, stream), workspace, scalars, handle)
        elif not on_host:
            self.run_at(plan, self._places(given, stream), scalars, stream)
        elif self.recorded(stream):
            raise LaunchError("host arrays cannot be used while the stream is captured into a graph: copy them to "
                              "arrays on the device before the capture begins")
        else:
            with _HostArrays(self, plan, given, stream) as places:
                self._run(plan, places, scalars, handle)

    def run_at(self, plan: Plan, places: dict[str, int], scalars: Mapping[str, Any], stream: Any) -> None:
        """Run a plan on arrays on the device at these addresses by role, which the stream may use at once."""
        handle = self._stream_handle(stream)
        if plan.workspace:
            self._run(plan, places, scalars, handle)
        else:
            self.loaded(plan).run(places, 0, scalars, handle)

    def _run(self, plan: Plan, places: dict[str, int], scalars: Mapping[str, Any], handle: int) -> None:
        """Run in the stream's own workspace."""
        own = self.workspace_of(handle)
        with own.lock:  # one call at a time in a stream: its launches stay together, since they share the workspace
            if not own.gone:
                self.loaded(plan).run(places, own.place(plan, handle), scalars, handle, own)
                return
        self._run(plan, places, scalars, handle)  # it was dropped in between

    def _places(self, given: Mapping[str, ArrayView], stream: Any) -> dict[str, int]:
        """The addresses by role. Work on the stream waits for the arrays' own streams."""
        for array in given.values():
            if array.stream is not None:
                self._wait_for(stream, array.stream)
        return {role: array.address for role, array in given.items()}

    def loaded(self, plan: Plan) -> "_Loaded":
        """The plan, ready to run with addresses."""
        for tell in watchers:
            tell(plan)
        found = self._plans.get(plan)
        if found is None or found.gone:  # `put` then waits until the thread that drops it has taken it out of the table
            found = self._plans.put(plan, self._load(self, plan, self._shared), weight=0)
        return found

    def captured(self, plan: Plan) -> bool:
        """Whether there is a graph that runs the plan."""
        found = self._plans.get(plan)
        return found is not None and found.captured

    def workspace_of(self, handle: int) -> StreamWorkspace:
        """The event and workspace of the stream with that handle, in this thread."""
        key = (handle, threading.get_ident()) if handle == _PER_THREAD else handle
        found = self._streams.get(key)
        if found is None or found.gone:  # as in `loaded`
            made = StreamWorkspace(self.device, self._leaving, functools.partial(self._room, key))
            found = self._streams.put(key, made, weight=0)
            if self._streams.over and self.graph_of(handle) is None:
                self._streams.trim(lambda own: own.leave(), keep=key)
        return found

    def recorded(self, stream: Any) -> bool:
        """Whether launches on a stream are being captured into a graph."""
        return self.graph_of(self._stream_handle(stream)) is not None

    @property
    def idle_bytes(self) -> int:
        """Bytes of the workspaces that `release` would free."""
        return sum(own.nbytes for own in self._streams.values())

    def release(self) -> None:
        """Free everything on the device that is not in use: what the functions in `holders` free, plans that no graph
        runs, workspaces of streams without a running call, and memory that other libraries cache. Waits only for the
        last uses of these. Must not be called during a capture."""
        for let_go in holders:
            let_go(self.device)
        self._plans.drop(lambda loaded: loaded.leave(self._leaving))
        self._streams.drop(lambda own: own.leave())
        self._leaving.sweep(wait=True)
        if self._others is not None:
            self._others.let_go()

    def kept(self, plan: Plan, nbytes: int, stream: int) -> None:
        """Note the bytes of a plan that has just been loaded, and drop others if the bound is exceeded."""
        self._plans.weigh(plan, nbytes)
        if self.graph_of(stream) is None:
            self._leaving.sweep()
            self._plans.trim(lambda loaded: loaded.leave(self._leaving), keep=plan)

    def having_room(self, make: Callable[[], Any], stream: Any) -> Any:
        """Call `make`, which may raise OutOfMemoryError. If it does, release what is idle and call it once more,
        unless the call on that stream is captured into a graph."""
        try:
            return make()
        except OutOfMemoryError:
            if self.recorded(stream):
                raise
        self.release()
        return make()

    def _room(self, key: Any, nbytes: int, stream: int) -> Buffer:
        """Memory for the workspace of a stream."""
        if not self.recorded(stream):
            self._leaving.sweep()
            self._streams.weigh(key, nbytes)
            self._streams.trim(lambda own: own.leave(), keep=key)
        try:
            found: Buffer = self.having_room(lambda: self.device.alloc(nbytes), stream)
        except OutOfMemoryError as e:
            e.workspace = True
            raise
        return found


class _Modules:
    """Modules, by source, of kernels without tables and textures: all plans share them."""

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

    def __init__(self, engine: Engine, plan: Plan, shared: _Modules) -> None:
        device = engine.device
        self.lock = FreshLock()
        self.regions = [(name, region.offset) for name, region in plan.workspace.items()]
        self._engine, self._device, self._plan, self._shared = engine, device, plan, shared
        self._graph_of, self._alignment = engine.graph_of, engine.alignment
        self._textured = plan.textured
        self.gone = False
        self._graphs = Graphs()
        self._prepared: list[Prepared] = []  # they keep the modules alive
        self._nbytes = 0  # of modules of its own
        self._used_on: dict[Any, StreamWorkspace] = {}  # the streams that have run it, if it has modules of its own
        self._go: Callable[[int, int], bool | None] | None = None  # see `launcher` in devices/protocol.py
        self._addresses: list[tuple[Any, int, str, int]] = []  # where to write the address of what, and an offset
        self._scalars: list[tuple[Any, int, str]] = []
        self._told: Mapping[str, Any] | None = None  # the scalars that were written last

    @property
    def captured(self) -> bool:
        """Whether there is a graph that runs it."""
        return bool(self._graphs)

    def run(self, places: dict[str, int], workspace: int, scalars: Mapping[str, Any], stream: int,
            own: StreamWorkspace | None = None) -> None:
        """Launch all, with the addresses of the operands (`places`, which is changed) and of the workspace, on the
        stream with that handle. `own`: what belongs to the stream, if that workspace does. `scalars` must stay as they
        are from then on. Raises ShapeError for an address at which the plan's kernels cannot read."""
        for role in self._textured:
            if places[role] % self._alignment:
                raise ShapeError(f"{role} must begin at a multiple of {self._alignment} bytes on {self._device.name} "
                                 f"in this plan (got address 0x{places[role]:x}); maxdnn.plan(..., copy_{role}=True) "
                                 "makes one for arrays that begin anywhere")
        for name, offset in self.regions:
            places[name] = workspace + offset
        first = False
        with self.lock.now:  # the launches read what is written below
            go = self._go
            if go is None and not self.gone:
                first, go = True, self._engine.having_room(self._prepare, stream)
            if go is not None:
                for values, at, name, offset in self._addresses:
                    values[at] = places[name] + offset
                if scalars is not self._told:
                    for values, at, name in self._scalars:
                        values[at] = scalars[name]
                    self._told = scalars
                if self._nbytes:
                    own = self._used_on.get(stream) or self._use_on(stream)
                if own is None:  # it uses nothing that could be freed
                    captured = go(stream, 0)
                else:
                    event = own.event
                    captured = go(stream, event.handle)
                    if not captured:
                        own.used(event, stream)
                if captured:
                    self._graphs.add(self._graph_of(stream))
        if go is None:  # it was dropped in between
            self._engine.loaded(self._plan).run(places, workspace, scalars, stream, own)
        elif first:
            self._engine.kept(self._plan, self._nbytes, stream)

    def leave(self, leaving: Leaving) -> bool:
        """Free the modules if they are not in use. Returns False if a call is using them now or a graph runs them."""
        if not self.lock.now.acquire(blocking=False):
            return False
        try:
            if self.captured:
                return False
            events = [event for used in self._used_on.values() for event in used.last_use()]
            leaving.add(events, [self._prepared, self._go].clear)
            self.gone, self._go, self._prepared = True, None, []
            self._addresses, self._scalars = [], []
            return True
        finally:
            self.lock.now.release()

    def _use_on(self, stream: int) -> StreamWorkspace:
        own = self._engine.workspace_of(stream)
        self._used_on[(stream, threading.get_ident()) if stream == _PER_THREAD else stream] = own
        return own

    def _prepare(self) -> Callable[[int, int], bool | None]:
        functions, nbytes = self._load()
        sizes = {name: (0, region.nbytes) for name, region in self._plan.workspace.items()}
        sizes |= {operand.role: (0, FLOAT_BYTES * operand.extent) for operand in self._plan.problem.operands}
        every: list[Prepared] = []
        addresses: list[tuple[Any, int, str, int]] = []
        scalars: list[tuple[Any, int, str]] = []
        for launch, function in zip(self._plan.launches, functions, strict=True):
            kinds = [param.type for param in launch.spec.params]
            values = [launch.values[param.name] for param in launch.spec.params]
            args = [value if isinstance(value, (int, float)) else 0 if kind == "ptr" else 0.0
                    for value, kind in zip(values, kinds, strict=True)]
            reach = {texture: nbytes for texture, (_, nbytes, _) in launch.bound(sizes).items()}
            own = able(function, Preparing)
            prepare = own.prepare if own else functools.partial(_Plain, function, launch.spec.channels)
            prepared: Prepared = prepare(launch.grid, launch.block, args, reach)
            for number, (value, kind) in enumerate(zip(values, kinds, strict=True)):
                if isinstance(value, (int, float)):
                    continue
                if kind == "ptr":
                    addresses.append((*prepared.slot(number), *begin(value)))
                else:
                    scalars.append((*prepared.slot(number), str(value)))
            addresses += [(*prepared.slot(name), *begin(memory)) for name, memory in launch.textures.items()]
            every.append(prepared)
        together = able(self._device, Launching)
        go: Callable[[int, int], bool | None] = together.launcher(every) if together else _plain(every)
        self._prepared, self._addresses, self._scalars, self._nbytes = every, addresses, scalars, nbytes
        self._go = go
        return go

    def _load(self) -> tuple[list[Function], int]:
        """The kernel of each launch, and the bytes that modules of its own take."""
        own: dict[tuple[Any, ...], Function] = {}
        functions, nbytes = [], 0
        for launch in self._plan.launches:
            launch.check()
        for launch in self._plan.launches:
            spec = launch.spec
            if not spec.constants and not (spec.textures and self._engine.binds_textures):
                functions.append(self._shared.function(spec))
                continue
            key = spec.source, spec.name, *sorted(launch.tables.items())
            if key not in own:
                module = load(self._device, spec)
                for symbol, content in launch.tables.items():
                    module.set_constant(symbol, content)  # which is there for every stream when this returns
                own[key] = module.function(spec.name)
                weighed = able(module, Weighed)
                nbytes += weighed.nbytes if weighed else MODULE_BYTES
            functions.append(own[key])
        return functions, nbytes


class _Told(_Loaded):
    """The same with a line for each call."""

    def __init__(self, verbosity: int, engine: Engine, plan: Plan, shared: _Modules) -> None:
        super().__init__(engine, plan, shared)
        self._teller = verbose.Teller(plan, engine.device, verbosity)

    def run(self, places: dict[str, int], workspace: int, scalars: Mapping[str, Any], stream: int,
            own: StreamWorkspace | None = None) -> None:
        self._teller.tell(lambda: super(_Told, self).run(places, workspace, scalars, stream, own), stream,
                          self._graph_of(stream) is not None)


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


def _plain(prepared: Sequence[Any]) -> Callable[[int, int], None]:
    def go(stream: int, event: int) -> None:
        for launch in prepared:
            launch.run(stream)
    return go


def load(device: Device, spec: KernelSpec) -> Module:
    """A new module of a kernel's cubin."""
    return trust.load(device, spec.source.removesuffix(".sass"), spec.arch)


class _HostArrays:
    """The user's host arrays on the device for the time of a call: places by role. They are lent to a device that can
    use them in place; else copied there, and what the plan wrote is copied back at the end."""

    def __init__(self, engine: Engine, plan: Plan, given: Mapping[str, ArrayView], stream: Any) -> None:
        self._device, self._plan, self._given, self._stream = engine.device, plan, given, stream
        self._having_room = engine.having_room
        self._buffers: dict[str, Buffer] = {}
        self._in_place = engine.in_place

    def __enter__(self) -> dict[str, int]:
        try:
            for role, array in self._given.items():
                self._buffers[role] = self._place(role, array)
        except BaseException:
            self._free()
            raise
        return {role: buffer.address for role, buffer in self._buffers.items()}

    def _place(self, role: str, array: ArrayView) -> Any:
        if self._in_place is not None:
            return self._having_room(functools.partial(self._in_place.adopt, array.memory), self._stream)
        buffer: Buffer = self._having_room(functools.partial(self._device.alloc, array.nbytes), self._stream)
        if role not in self._plan.written or self._plan.problem.reads_out:
            self._device.upload(buffer, array.memory, self._stream)
        return buffer

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if self._in_place is None and failure is None:
                for role in self._plan.written:
                    self._device.download(self._buffers[role], self._given[role].memory, self._stream)
        finally:
            self._free()

    def _free(self) -> None:
        for buffer in self._buffers.values():
            buffer.free()
