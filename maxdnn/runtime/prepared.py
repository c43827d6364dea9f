"""Filters made ready for a plan once and used in many calls."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..planning.plan import FLOAT_BYTES, REGION_ALIGNMENT, Plan
from ..problem.arrays import Array
from ..problem.operands import ArrayView, view
from . import engine, shortage
from .arguments import device_of
from .devices.protocol import Device


@dataclass(frozen=True, eq=False)
class PreparedFilters:
    """Filters of `prepare_filters`, accepted by `conv_fprop` in place of filters.

    Attributes
    ----------
    plan : Plan
        The only plan they fit.
    arrays : dict of str to array
        What is kept, by the plan's names.
    """

    plan: Plan
    arrays: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are kept."""
        return sum(self.views[name].nbytes for name in self.arrays)

    @property
    def views(self) -> dict[str, ArrayView]:
        """The arrays as operands of what is left of the plan."""
        return {name: view(name, array, rank=None, strided=True) for name, array in self.arrays.items()}


def prepare_filters(filters: Array, plan: Plan, *, device: Device | None = None, stream: Any = None) -> PreparedFilters:
    """Do once what a plan does to the filters alone: transforms and changes of layout.

    Parameters
    ----------
    filters : array of float32
        (C/groups, R, S, K), or (K, C/groups, R, S) in a plan for "NCHW". Where the plan reads filters as they lie
        the array itself is kept and must not change meanwhile.
    plan : Plan
        Of `maxdnn.plan`.
    device : Device, optional
        Where NumPy arrays run: the virtual GTX 980 if None.
    stream : stream, optional
        As for `conv_fprop`. A later call in another stream must come after this one is done.

    Returns
    -------
    PreparedFilters
        For calls with this plan.

    Raises
    ------
    ShapeError
        The plan is none of a convolution, or the filters are not the plan's.
    DeviceError
        There is no such device.
    OutOfMemoryError
        There is no memory for the result or the workspace.
    """
    if not isinstance(plan, Plan) or "filters" not in plan.problem.roles or "filters" in plan.written:
        raise ShapeError(f"plan must be that of a convolution, from maxdnn.plan (got {type(plan).__name__})")
    planned = plan.problem.operand("filters")
    given = {"filters": view("filters", filters, strided=planned.strides is not None)}
    found, wanted = given["filters"], planned.shape
    if found.shape != wanted:
        raise ShapeError(f"filters must have the plan's shape {wanted} (got {found.shape})")
    if replace(planned, strides=found.strides).channels_last is not planned.channels_last:
        raise ShapeError(f"filters must lie as the plan's, with strides {planned.strides} (got {found.strides})")
    target = device_of(given, device)
    first, rest = plan.apart
    arrays: dict[str, Any] = {"filters": filters} if "filters" in rest.problem.roles else {}
    if first is not None:
        for operand in first.problem.operands[1:]:
            arrays[operand.role] = _empty_like(filters, operand.shape, target, stream)
            given[operand.role] = view(operand.role, arrays[operand.role], rank=1)
        engine.run(first, given, {}, target, stream)
    return PreparedFilters(plan, arrays)


def _empty_like(array: Any, shape: tuple[int, ...], device: Device, stream: Any) -> Any:
    """A new array that begins where any device lets a texture begin."""
    if not isinstance(array, np.ndarray):
        return shortage.empty_like(array, shape, device, stream)
    room = np.empty(shape[0] + REGION_ALIGNMENT // FLOAT_BYTES, np.float32)
    start = -room.ctypes.data % REGION_ALIGNMENT // FLOAT_BYTES
    return room[start:start + shape[0]]
