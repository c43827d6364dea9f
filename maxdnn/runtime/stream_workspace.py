"""Device memory that belongs to a stream: what the plans that run on it put down between their launches."""

from ..errors import OutOfMemoryError
from ..planning.plan import Plan
from .devices.protocol import Buffer, Device
from .forks import FreshLock


class StreamWorkspace:
    """What belongs to a stream: its workspace, as large as the largest plan that ran on it needs."""

    def __init__(self, device: Device) -> None:
        self.lock = FreshLock()
        self.used, self.captured = 0, False
        self._device = device
        self._capture_of = getattr(device, "capture_of", lambda handle: 0)
        self._workspace: Buffer | None = None

    def place(self, plan: Plan, handle: int) -> int:
        """The address of a workspace that is large enough for the plan; 0 if it needs none. A capture gets one of its
        own, which stays for as long as the device, since nobody says when a graph has run for the last time. Raises
        OutOfMemoryError where the device has no room for it."""
        if not plan.workspace:
            return 0
        capture = self._capture_of(handle)
        if capture:
            kept = self._device.kept.setdefault("captures", {}).setdefault(capture, [])
            if not kept or kept[-1].nbytes < plan.workspace_bytes:
                kept.append(self._alloc(plan.workspace_bytes))
            return kept[-1].address
        if self._workspace is None or self._workspace.nbytes < plan.workspace_bytes:
            self._device.synchronize()
            self.free()
            self._workspace = self._alloc(plan.workspace_bytes)
        return self._workspace.address

    def _alloc(self, nbytes: int) -> Buffer:
        try:
            return self._device.alloc(nbytes)
        except OutOfMemoryError as e:
            e.workspace = True
            raise

    @property
    def idle_bytes(self) -> int:
        """What `free` would give back."""
        kept = self._workspace  # another thread may free it meanwhile
        return 0 if kept is None else kept.nbytes

    def free(self) -> None:
        if self._workspace is not None:
            self._workspace.free()
            self._workspace = None
