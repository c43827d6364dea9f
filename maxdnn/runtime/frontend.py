"""The way of every call: operands -> problem -> select -> run. The same for NumPy arrays, arrays and tensors on a GPU,
for convolutions and products; conv.py, product.py and torch/ say what the operands are called and what is computed."""

from collections.abc import Mapping
from typing import Any

from ..planning.plan import Plan
from ..planning.select import MAX_ERROR, chip_of, choose
from ..problem.operands import ArrayView, view
from ..problem.problem import Problem
from . import engine, shortage
from .arguments import check_out, device_of, unaligned
from .devices.protocol import Device


def chosen(problem: Problem, given: Mapping[str, ArrayView], device: Device, algorithm: str = "auto",
           max_error: float = MAX_ERROR, prepared: bool = False, arithmetic: str = "auto") -> Plan:
    """The plan for a problem of arrays that begin where these do; see `planning.select.choose`."""
    return choose(problem.with_unaligned(unaligned(given, device)), chip_of(device), algorithm=algorithm,
                  max_error=max_error, arithmetic=arithmetic, prepared=prepared)


class Call:
    """A call whose operands are checked: the device it runs on, and where its result goes."""

    def __init__(self, given: Mapping[str, ArrayView], wanted: tuple[int, ...], out: Any, scalars: Mapping[str, Any],
                 device: Device | None, stream: Any) -> None:
        """`given`: operands by role, the first of the library that a new result is of. `wanted`: the result's shape.
        Raises ShapeError for an `out` that cannot be filled, or arrays on several devices."""
        self.given, self._wanted, self._out, self._scalars, self._stream = {**given}, wanted, out, scalars, stream
        self._like = next(iter(given.values())).array
        if out is not None:
            self.given["out"] = check_out(view("out", out, len(wanted)), wanted, self.given)
        self.device = device_of(self.given, device)

    def choose(self, problem: Problem, algorithm: str, max_error: float, arithmetic: str) -> Plan:
        """The plan for these operands."""
        return chosen(problem, self.given, self.device, algorithm, max_error, arithmetic=arithmetic)

    def result(self) -> Any:
        """What is filled: the array that was given, or a new one."""
        if self._out is None:
            self._out = shortage.empty_like(self._like, self._wanted, self.device, self._stream)
            self.given["out"] = view("out", self._out, len(self._wanted))
        return self._out

    def run(self, plan: Plan, part: Mapping[str, ArrayView] | None = None, *, given: bool = False) -> None:
        """Fill it, or what is `part` of the operands. `given`: the plan is the caller's, so that nothing replaces it
        where memory is short."""
        run = engine.run if given else shortage.run
        run(plan, part or self.given, self._scalars, self.device, self._stream)
