"""A line on standard error for each call, where MAXDNN_VERBOSE asks for it.

1 says what is computed, by which plan, with which arithmetic and what it is estimated to take; 2 also how long it took.
The first call of a plan is followed by a line for each candidate that was not taken. The variable is read when a device
is used for the first time; where it is not set a call asks for nothing (engine.py)."""

import os
import time
from collections.abc import Callable

from ..errors import MaxdnnError
from ..planning.plan import Plan
from ..planning.select import chip_of
from .devices.protocol import Card, Device, able
from .notices import say

MEASURED = 2


def level() -> int:
    """What MAXDNN_VERBOSE asks for. Raises MaxdnnError for what it cannot be."""
    value = os.environ.get("MAXDNN_VERBOSE", "") or "0"
    if value not in ("0", "1", "2"):
        raise MaxdnnError(f"MAXDNN_VERBOSE must be 0, 1 (a line for each call) or 2 (with its time) "
                          f"(got {value[:80]!r})")
    return int(value)


class Teller:
    """Tells of the calls of a plan on a device."""

    def __init__(self, plan: Plan, device: Device, verbosity: int) -> None:
        self._plan, self._device, self._measures = plan, device, verbosity >= MEASURED
        self._card = able(device, Card)
        chip, problem = chip_of(device), plan.problem
        launches = f"{len(plan.launches)} launch{'es' * (len(plan.launches) > 1)}"
        self._text = "; ".join((
            f"{problem.kind} {problem.layout} {problem.describe()}",
            f"plan {plan.name or plan.family}, {launches}, {plan.spec.name}",
            f"{plan.algorithm}, float32 by {plan.arithmetic}, error at most {plan.error:.2g} of the sum of |terms|",
            f"estimated {chip.said(plan.clocks(chip))} on {chip.name}"))
        self._first = True

    def tell(self, run: Callable[[], None], stream: int, recorded: bool) -> None:
        """Run, and say so. `recorded`: into a graph, so that nothing can be measured."""
        found = ""
        if self._measures and not recorded:
            found = self._measured(run, stream) + ", loading included" * self._first
        else:
            run()
        say(self._text + found + "; recorded into a graph" * recorded)
        if self._first and self._plan.account is not None:
            for line in self._plan.account():
                say(f"  {line}")
        self._first = False

    def _measured(self, run: Callable[[], None], stream: int) -> str:
        """By events on the default stream of a GPU, else from one synchronization to the next."""
        self._device.synchronize()
        if self._card is not None and not stream:
            return f"; measured {self._card.elapsed_seconds(run)[0] * 1e6:.1f} us"
        start = time.perf_counter()
        run()
        self._device.synchronize()
        seconds = time.perf_counter() - start
        return f"; measured {seconds * 1e6:.1f} us" if self._card else f"; emulated in {seconds:.3f} s"
