"""Where there is no memory for a plan's workspace, after all that is idle was let go (`Engine.having_room`): the best
plan that fits takes its place, for as long as memory is that short. The one mechanism of all functions.

A plan that a caller gave is not replaced: its results are the same bits in every run, and another's need not be."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..errors import OutOfMemoryError, ShapeError
from ..planning.plan import Plan
from ..planning.select import chip_of, least_workspace, smaller
from ..problem.arrays import ArrayT
from ..problem.operands import ArrayView
from . import engine
from .devices import find
from .devices.protocol import CountsMemory, Device, able
from .remember import Table

LOOK = 8  # calls, of which one asks how much memory is free: the driver takes as long for that as for a small launch
REMEMBERED = 256  # plans that gave way
_SPARE = 16  # one part in so many of what is free stays free: allocators round up, and a capture wants it all again

Free = Callable[[], int | None]
"""Bytes that could be had now, those of idle workspaces included; None where nobody knows or counts."""


class Mark:
    """How much memory was free when so many bytes were missing."""

    def __init__(self, free: Free, missing: int) -> None:
        self._now, self._calls = free, 0
        self._step = max(missing // 4, 1)  # less might do for a plan between the two
        self.measure()

    def measure(self) -> None:
        """Take what is free now as what was."""
        self._free = self._now()

    def eased(self) -> bool:
        """Whether there is so much more now that it is worth another try; asked again at every `LOOK`-th call."""
        self._calls += 1
        if self._calls % LOOK:
            return False
        free = self._now()
        return free is None or self._free is None or free >= self._free + self._step


class _Instead(NamedTuple):
    plan: Plan
    mark: Mark


class Shortage:
    """Of a device and a source of its memory: which plans gave way to which."""

    def __init__(self, device: Device, free: Free) -> None:
        self.free = free
        self._device = device
        self._instead: Table[Plan, _Instead] = Table(REMEMBERED)

    def run(self, plan: Plan, attempt: Callable[[Plan], None], recorded: Callable[[], bool]) -> None:
        """`attempt` the plan, which was chosen, or what it gives way to. It raises OutOfMemoryError before anything is
        launched; so does this, where nothing fits. `recorded`: whether the call goes into a graph: what runs then is
        what took the plan's place before, or what fits although nothing was let go; the latter is not remembered."""
        instead = self._instead.get(plan)
        now = plan if instead is None or (not recorded() and instead.mark.eased()) else instead.plan
        failure = _failure(attempt, now)
        if failure is None:
            if now is plan and instead is not None:
                self._instead.forget(plan)
            return
        captured, free = recorded(), self.free()
        while failure is not None:
            now = self._smaller(plan, now, failure, captured)
            failure = _failure(attempt, now)
        if not captured:
            self._instead.forget(plan)
            self._instead.remember(plan, _Instead(now, Mark(self.free, plan.workspace_bytes - (free or 0))))

    def _smaller(self, plan: Plan, now: Plan, failure: OutOfMemoryError, captured: bool) -> Plan:
        """The best plan that takes less than `now`, and no more than is free as far as that is known."""
        chip, free = chip_of(self._device), failure.free
        most = now.workspace_bytes // 2 if free is None or free >= now.workspace_bytes else free
        for bound in (most - most // _SPARE, most):
            with suppress(ShapeError):
                return smaller(plan, chip, bound)
        known = "" if free is None else f", {free} free"
        hint = ("; nothing can be let go during a capture: call this once before it, so that what is idle is let go"
                if captured else "")
        raise type(failure)(f"out of memory on {self._device.name}: {plan.workspace_bytes} bytes of workspace wanted, "
                            f"at least {least_workspace(plan, chip)} by any plan{known} ({plan.problem.describe()})"
                            f"{hint}", plan.workspace_bytes, free, workspace=True)


def _failure(attempt: Callable[[Plan], None], plan: Plan) -> OutOfMemoryError | None:
    """Attempt a plan; why there is no memory for its workspace, if there is none."""
    try:
        attempt(plan)
    except OutOfMemoryError as e:
        if not e.workspace:
            raise
        return e.with_traceback(None)  # whose frames hold the caller's arrays
    return None


def of(device: Device) -> Shortage:
    """That of a device's own allocations; kept in the device."""
    found: Shortage | None = device.kept.get("shortage")
    return found or device.kept.setdefault("shortage", Shortage(device, _free(device)))


def _free(device: Device) -> Free:
    counted = able(device, CountsMemory)

    def free() -> int | None:
        found = None if counted is None else counted.free_bytes()
        return found if found is None else found + engine.of(device).idle_bytes
    return free


def run(plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], device: Device, stream: Any) -> None:
    """As `engine.run`, for a plan that was chosen, not given."""
    of(device).run(plan, lambda one: engine.run(one, given, scalars, device, stream),
                   lambda: engine.of(device).recorded(stream))


def run_at(plan: Plan, places: dict[str, int], scalars: Mapping[str, Any], device: Device, stream: Any) -> None:
    """The same, for arrays on the device at these addresses by role, which the stream may use at once."""
    on = engine.of(device)
    if plan.workspace:
        of(device).run(plan, lambda one: on.run_at(one, places, scalars, stream), lambda: on.recorded(stream))
    else:
        on.run_at(plan, places, scalars, stream)


def empty_like(array: ArrayT, shape: tuple[int, ...], device: Device, stream: Any) -> ArrayT:
    """`find.empty_like`, on `device`, after all that is idle was let go if need be and the call on that stream is not
    recorded into a graph."""
    return engine.of(device).having_room(lambda: find.empty_like(array, shape), stream)
