"""What a device keeps for a stream, and how it lets go of things that launches may still use.

A launch ends by recording its stream's event (devices/protocol.py), so that nothing that leaves waits for more than
what used it, and no stream is touched after its owner has let go of it."""

from collections.abc import Callable
from typing import Any

from ..planning.plan import Plan
from .devices.protocol import Buffer, Device, Event, Streams, able
from .forks import FreshLock


class Leaving:
    """Things that are let go once the events of their last uses have passed."""

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
        """Let go of what is not used any more; of everything, if need be by waiting for it, if `wait`."""
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
    """Of a device without streams, whose launches are over when they return."""

    handle, recorded = 0, False

    def record(self, stream: Any) -> None:
        """There is nothing to wait for."""

    def passed(self) -> bool:
        return True

    def wait(self) -> None:
        """There is nothing to wait for."""


class NoStreams:
    """Of a device that has none."""

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
    """The graphs that something was recorded into, for as long as there are any."""

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
    """What belongs to a stream: the event of its last launch, and a workspace as large as the largest plan that ran on
    it needs. `event`: for launchers to record. `gone`: nobody finds it any more. `make_room(nbytes, handle)`:
    allocates for the stream with that handle, if need be after letting go of what is idle."""

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
        """Device memory that is kept, without that of graphs."""
        kept = self._buffer  # another thread may let go of it meanwhile
        return 0 if kept is None else kept.nbytes

    def place(self, plan: Plan, handle: int) -> int:
        """The address of a workspace that is large enough for the plan, on the stream with that handle; 0 if it needs
        none. What is recorded into a graph gets one of its own, which stays for as long as there is the graph. Raises
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
            self._let_go()  # first: both may not fit
            self._buffer = self._make_room(plan.workspace_bytes, handle)
        assert self._buffer is not None
        return self._buffer.address

    def last_use(self) -> list[Any]:
        """Events that pass when all that was launched on the stream so far is done, and that later launches do not
        record again."""
        with self._swapping:
            if self.event.recorded:
                self._before, self.event = [self.event], self._make_event()
            return self._before

    def used(self, event: Any, stream: int) -> None:
        """A launch on the stream with that handle has recorded this event."""
        if event.handle:
            event.recorded = True
            while self.event is not event:  # it was asked for by `last_use` meanwhile
                event = self.event
                event.record(stream)
                event.recorded = True

    def leave(self) -> bool:
        """Let go of the workspace, unless a call uses it now; whether nothing is left."""
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
