"""Where there is no memory for a plan's workspace: what lies idle is let go, and if that is not enough the best plan
that fits takes its place, for as long as memory is that short. The one mechanism of all functions.

A plan that a caller gave is not replaced: its results are the same bits in every run, and another's need not be."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from .errors import OutOfMemoryError, ShapeError
from .planning.plan import Plan
from .planning.select import chip_of, least_workspace, smaller
from .problem.operands import ArrayView
from .runtime import engine
from .runtime.devices import find
from .runtime.devices.protocol import Device

LOOK = 8  # calls, of which one asks how much memory is free: the driver takes as long for that as for a small launch
REMEMBERED = 256  # plans that gave way
_SPARE = 16  # one part in so many of what is free stays free: allocators round up, and a capture wants it all again

holders: list[Callable[[Device], None]] = []
"""Functions that let go of what others keep for a device and can make again."""


class Memory(Protocol):
    """Where workspaces come from."""

    def free(self) -> int | None:
        """Bytes that could be had now, those of idle workspaces included; None where nobody knows or counts."""

    def release(self) -> None:
        """Let go of all that is idle."""


class DeviceMemory:
    """A device's own allocations."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def free(self) -> int | None:
        free: int | None = getattr(self._device, "free_bytes", lambda: None)()
        return free if free is None else free + engine.of(self._device).idle_bytes

    def release(self) -> None:
        for let_go in holders:
            let_go(self._device)
        engine.of(self._device).release()
        getattr(self._device, "let_go", lambda: None)()


class Mark:
    """How much memory was free when so many bytes were missing."""

    def __init__(self, memory: Memory, missing: int) -> None:
        self._memory, self._free, self._calls = memory, memory.free(), 0
        self._step = max(missing // 4, 1)  # less might do for a plan between the two

    def eased(self) -> bool:
        """Whether there is so much more now that it is worth another try; asked again at every `LOOK`-th call."""
        self._calls += 1
        if self._calls % LOOK:
            return False
        free = self._memory.free()
        return free is None or self._free is None or free >= self._free + self._step


class _Instead(NamedTuple):
    plan: Plan
    mark: Mark


class Shortage:
    """Of a device and a source of its memory: which plans gave way to which."""

    def __init__(self, device: Device, memory: Memory) -> None:
        self.memory = memory
        self._device = device
        self._instead: dict[Plan, _Instead] = {}

    def run(self, plan: Plan, attempt: Callable[[Plan], None], capturing: Callable[[], bool]) -> None:
        """`attempt` the plan, which was chosen, or what it gives way to. It raises OutOfMemoryError before anything is
        launched; so does this, where nothing fits. `capturing`: whether the call is being recorded: nothing is let go
        or loaded then, and what runs is what took the plan's place before."""
        instead = self._instead.get(plan)
        now = plan if instead is None or (not capturing() and instead.mark.eased()) else instead.plan
        try:
            attempt(now)
        except OutOfMemoryError as e:
            failure = e.with_traceback(None)  # whose frames hold the caller's arrays
        else:
            if now is plan and instead is not None:
                self._instead.pop(plan, None)
            return
        if capturing():
            raise type(failure)(f"{failure}; nothing can be let go during a capture: call this once before it, while "
                                "as little memory is free, and a plan that needs less takes its place",
                                failure.wanted, failure.free)
        self.memory.release()
        self._give_way(plan, now, attempt)

    def _give_way(self, plan: Plan, now: Plan, attempt: Callable[[Plan], None]) -> None:
        """Attempt `now`, then what is left when workspaces must be smaller and smaller."""
        free = self.memory.free()
        while True:
            try:
                attempt(now)
                break
            except OutOfMemoryError as e:
                failure = e.with_traceback(None)
            if not failure.workspace:
                raise failure
            now = self._smaller(plan, now, failure)
        self._instead.pop(plan, None)
        if now is not plan:
            if len(self._instead) >= REMEMBERED:
                self._instead.pop(next(iter(self._instead)), None)
            self._instead[plan] = _Instead(now, Mark(self.memory, plan.workspace_bytes - (free or 0)))

    def _smaller(self, plan: Plan, now: Plan, failure: OutOfMemoryError) -> Plan:
        chip, free = chip_of(self._device), failure.free
        most = now.workspace_bytes // 2 if free is None or free >= now.workspace_bytes else free
        for bound in (most - most // _SPARE, most):
            with suppress(ShapeError):
                return smaller(plan, chip, bound)
        known = "" if free is None else f", {free} free"
        raise type(failure)(f"out of memory on {self._device.name}: {plan.workspace_bytes} bytes of workspace wanted, "
                            f"at least {least_workspace(plan, chip)} by any plan{known} ({plan.problem.describe()})",
                            plan.workspace_bytes, free)


def of(device: Device) -> Shortage:
    """That of a device's own allocations; kept in the device."""
    found: Shortage = (device.kept.get("shortage")
                       or device.kept.setdefault("shortage", Shortage(device, DeviceMemory(device))))
    return found


def run(plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], device: Device, stream: Any) -> None:
    """As `engine.run`, for a plan that was chosen, not given."""
    def capturing() -> bool:
        graph_of = getattr(device, "graph_of", None)
        return graph_of is not None and graph_of(device.stream_handle(stream)) is not None  # type: ignore[attr-defined]
    of(device).run(plan, lambda one: engine.run(one, given, scalars, device, stream), capturing)


def empty_like(array: Any, shape: tuple[int, ...], device: Device) -> Any:
    """`find.empty_like`, on `device`, after all that is idle was let go if need be."""
    try:
        return find.empty_like(array, shape)
    except OutOfMemoryError:
        pass
    of(device).memory.release()
    return find.empty_like(array, shape)
