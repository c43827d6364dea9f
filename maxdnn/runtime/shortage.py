"""What happens when there is no device memory for a plan's workspace. First everything idle is released
(`Engine.having_room`). If that is not enough, the best plan that fits runs in the plan's place, for as long as memory
stays that short. All functions of the library share this.

A plan that the caller gave is never replaced: its results have the same bits in every run, and another plan's may
differ."""

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

LOOK = 8  # one call in so many asks how much memory is free: that takes the driver as long as a small launch
REMEMBERED = 256  # replaced plans
_SPARE = 16  # 1/16 of the free memory is left: allocators round up, and a capture allocates everything anew

Free = Callable[[], int | None]
"""Bytes that could be had now, those of idle workspaces included; None where nobody knows or counts."""


class Mark:
    """How much memory was free when an allocation failed, and how much more is worth another attempt."""

    def __init__(self, free: Free, missing: int) -> None:
        self._now, self._calls = free, 0
        self._step = max(missing // 4, 1)  # a plan between the two may need only part of it
        self.measure()

    def measure(self) -> None:
        """Take the memory that is free now as the new mark."""
        self._free = self._now()

    def eased(self) -> bool:
        """Whether enough memory has become free to try the original plan again. Only every `LOOK`-th call asks the
        device; the others return False."""
        self._calls += 1
        if self._calls % LOOK:
            return False
        free = self._now()
        return free is None or self._free is None or free >= self._free + self._step


class _Instead(NamedTuple):
    plan: Plan
    mark: Mark


class Shortage:
    """The plans that replace others for lack of memory, for one device and one source of its memory."""

    def __init__(self, device: Device, free: Free) -> None:
        self.free = free
        self._device = device
        self._instead: Table[Plan, _Instead] = Table(REMEMBERED)

    def run(self, plan: Plan, attempt: Callable[[Plan], None], recorded: Callable[[], bool]) -> None:
        """Call `attempt` with the plan, or with the plan that replaces it. `attempt` raises OutOfMemoryError before it
        launches anything, and so does this method if no plan fits.

        `recorded`: whether the call is captured into a graph. A captured call runs the plan that already replaces this
        one, or else one that fits without releasing anything; that choice is not remembered."""
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
        """The best plan with a smaller workspace than `now`, and no larger than the free memory where that is known."""
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
    """Attempt a plan. Returns the error if there is no memory for its workspace, else None."""
    try:
        attempt(plan)
    except OutOfMemoryError as e:
        if not e.workspace:
            raise
        return e.with_traceback(None)  # the frames of a traceback keep the caller's arrays alive
    return None


def of(device: Device) -> Shortage:
    """The device's own, for workspaces that the library allocates there."""
    found: Shortage | None = device.kept.get("shortage")
    return found or device.kept.setdefault("shortage", Shortage(device, _free(device)))


def _free(device: Device) -> Free:
    counted = able(device, CountsMemory)

    def free() -> int | None:
        found = None if counted is None else counted.free_bytes()
        return found if found is None else found + engine.of(device).idle_bytes
    return free


def run(plan: Plan, given: Mapping[str, ArrayView], scalars: Mapping[str, Any], device: Device, stream: Any) -> None:
    """Like `engine.run`, for a plan that the library chose."""
    of(device).run(plan, lambda one: engine.run(one, given, scalars, device, stream),
                   lambda: engine.of(device).recorded(stream))


def run_at(plan: Plan, places: dict[str, int], scalars: Mapping[str, Any], device: Device, stream: Any) -> None:
    """Like `Engine.run_at`, for a plan that the library chose."""
    on = engine.of(device)
    if plan.workspace:
        of(device).run(plan, lambda one: on.run_at(one, places, scalars, stream), lambda: on.recorded(stream))
    else:
        on.run_at(plan, places, scalars, stream)


def empty_like(array: ArrayT, shape: tuple[int, ...], device: Device, stream: Any) -> ArrayT:
    """`find.empty_like`. If memory is short, idle memory of `device` is released first, unless the call on that stream
    is captured into a graph."""
    return engine.of(device).having_room(lambda: find.empty_like(array, shape), stream)
