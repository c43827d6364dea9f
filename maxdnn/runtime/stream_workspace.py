"""What a device keeps for each stream, and how it frees memory that launches may still use.

Every launch records its stream's event behind itself (devices/protocol.py). Memory is freed once the events of its
last uses have passed. So nothing waits for unrelated work, and a stream is never used after its owner has destroyed
it."""

from collections.abc import Callable
from typing import Any

from ..planning.plan import Plan
from .devices.protocol import Buffer, Device, Event, Streams, able
from .forks import FreshLock


class Leaving:
    """Memory and handles to free once the events of their last uses have passed."""

    def __init__(self) -> None:
        self._lock = FreshLock()
        self._waiting: list[tuple[list[Any], Callable[[], object]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, events: list[Any], free: Callable[[], object]) -> None:
        """Call `free` some time after the events have passed."""
        with self._lock:
            self._waiting.append((events, free))

    def sweep(self, wait: bool = False) -> None:
        """Free what is no longer in use. With `wait`, wait for the events of the rest and free that too."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
        left = []
        try:
            while waiting:
                events, free = waiting[-1]
                if wait:
                    for event in events:
                        event.wait()
                waiting.pop()
                if wait or all(event.passed() for event in events):
                    free()
                else:
                    left.append((events, free))
        finally:
            with self._lock:
                self._waiting += left + waiting


class NoEvent:
    """The event of a device without streams, whose launches are complete when they return."""

    handle, recorded = 0, False

    def record(self, stream: Any) -> None:
        """There is nothing to wait for."""

    def passed(self) -> bool:
        return True

    def wait(self) -> None:
        """There is nothing to wait for."""


class NoStreams:
    """`Streams` of a device that has none."""

    def stream_handle(self, stream: Any) -> int:
        return 0

    def wait_for(self, stream: Any, handle: int) -> None:
        """There is nothing to wait for."""

    def graph_of(self, handle: int) -> None:
        return None

    def event(self) -> Event:
        return NoEvent()


def streams_of(device: Device) -> Streams:
    return able(device, Streams) or NoStreams()


class Graphs:
    """The graphs that captured a use of something, as long as they exist."""

    def __init__(self) -> None:
        self._graphs: set[Any] = set()

    def __bool__(self) -> bool:
        if self._graphs:
            self._graphs = {graph for graph in self._graphs if graph.alive}
        return bool(self._graphs)

    def add(self, graph: Any) -> None:
        if graph is not None and graph not in self._graphs:
            self._graphs = {other for other in self._graphs if other.alive} | {graph}


class StreamWorkspace:
    """The event of a stream's last launch, and a workspace for the largest plan that ran on the stream.

    `event`: for launchers to record. `gone`: the engine's table no longer holds this object. `make_room(nbytes,
    handle)`: allocates for the stream with that handle; it releases idle memory first if need be."""

    def __init__(self, device: Device, leaving: Leaving, make_room: Callable[[int, int], Buffer]) -> None:
        self.lock = FreshLock()
        self._leaving, self._make_room = leaving, make_room
        streams = streams_of(device)
        self._graph_of, self._make_event = streams.graph_of, streams.event
        self._buffer: Buffer | None = None
        self._of_graphs: list[tuple[Any, Buffer]] = []
        self._swapping = FreshLock()
        self.event = self._make_event()
        self._before: list[Any] = []  # the event that was recorded before that one, if any
        self.gone = False

    @property
    def nbytes(self) -> int:
        """Bytes of the workspace, without those that belong to graphs."""
        kept = self._buffer  # another thread may free it meanwhile
        return 0 if kept is None else kept.nbytes

    def place(self, plan: Plan, handle: int) -> int:
        """The address of a workspace large enough for the plan, on the stream with that handle; 0 if the plan needs
        none. A captured call gets a workspace that belongs to its graph and lives as long as the graph. Raises
        OutOfMemoryError where the device has no room for it."""
        if not plan.workspace:
            return 0
        graph = self._graph_of(handle)
        if graph is not None:
            rooms = [room for owner, room in self._of_graphs if owner is graph and room.nbytes >= plan.workspace_bytes]
            if not rooms:
                rooms = [self._make_room(plan.workspace_bytes, handle)]
                self._of_graphs.append((graph, rooms[0]))
            return rooms[0].address
        if self._of_graphs:
            self._sweep_graphs()
        if self.nbytes < plan.workspace_bytes:
            self._let_go()  # first, since there may be no room for both
            self._buffer = self._make_room(plan.workspace_bytes, handle)
        assert self._buffer is not None
        return self._buffer.address

    def last_use(self) -> list[Any]:
        """Events that pass when everything launched on the stream so far is complete. Later launches do not record
        these events again."""
        with self._swapping:
            if self.event.recorded:
                self._before, self.event = [self.event], self._make_event()
            return self._before

    def used(self, event: Any, stream: int) -> None:
        """Note that a launch on the stream with that handle has recorded this event."""
        if event.handle:
            event.recorded = True
            while self.event is not event:  # `last_use` has replaced it meanwhile
                event = self.event
                event.record(stream)
                event.recorded = True

    def leave(self) -> bool:
        """Free the workspace, unless a call is using it now. Returns whether nothing is left, not even workspaces of
        graphs."""
        if not self.lock.now.acquire(blocking=False):
            return False
        try:
            self._let_go()
            self._sweep_graphs()
            self.gone = not self._of_graphs
            return self.gone
        finally:
            self.lock.now.release()

    def _let_go(self) -> None:
        if self._buffer is not None:
            self._leaving.add(self.last_use(), self._buffer.free)
            self._buffer = None

    def _sweep_graphs(self) -> None:
        gone = [room for graph, room in self._of_graphs if not graph.alive]
        self._of_graphs = [(graph, room) for graph, room in self._of_graphs if graph.alive]
        for room in gone:
            room.free()
