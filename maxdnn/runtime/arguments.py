"""Arguments that the user's functions have in common: numbers, plans, results, devices. Checked before any work
starts."""

import operator
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import DeviceError, ShapeError, shown
from ..planning.plan import Plan
from ..problem.operands import ArrayView
from . import engine
from .devices import find
from .devices.protocol import Device, able

LARGEST = 3.4e38  # below the largest float32
VECTOR_BYTES = 16  # of what kernels store at once, where the result's place allows


def number(name: str, value: Any) -> np.float32:
    """Argument `name` rounded to float32. Raises ShapeError unless it is a real number."""
    if type(value) is float and abs(value) < LARGEST:  # the usual case, without ceremony
        return np.float32(value)
    with suppress(TypeError, ValueError, OverflowError), np.errstate(over="ignore"):
        if not isinstance(value, (str, bytes)):
            return np.float32(float(value))
    raise ShapeError(f"{name} must be a real number (got {shown(value)})")


def factors(alpha: Any, beta: Any, out: Any) -> tuple[dict[str, np.float32], bool]:
    """The scalars of a call, and whether it reads what `out` held. Raises ShapeError if there is no `out` then."""
    scalars = {"alpha": number("alpha", alpha), "beta": number("beta", beta)}
    reads_out = bool(scalars["beta"] != 0)
    if reads_out and out is None:
        raise ShapeError(f"out must be given for a beta other than 0 (got beta={beta})")
    return scalars, reads_out


def flag(name: str, value: Any) -> bool:
    """Argument `name`. Raises ShapeError unless it is True or False."""
    if not isinstance(value, bool):
        raise ShapeError(f"{name} must be True or False (got {shown(value)})")
    return value


def factor_of(groups: Any) -> int:
    """How many times as many channels images have as filters; 1 for what is no number of groups (ConvShape says so)."""
    with suppress(TypeError):
        return max(1, operator.index(groups))
    return 1


def planned(plan: Any, kind: str, given: Mapping[str, ArrayView], said: Mapping[str, Any], silent: Mapping[str, Any], *,
            reads_out: bool) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the operands of the plan given, if it is one of that kind and the arrays have them. `said`:
    arguments that are the plan's own; `silent`: what they are if nobody says them. Raises ShapeError for a plan that is
    not for this call."""
    if not isinstance(plan, Plan) or plan.problem.kind != kind:
        made = "maxdnn.plan" + f'(.., kind="{kind}")' * (kind != "forward")
        got = f"one of kind {plan.problem.kind!r}" if isinstance(plan, Plan) else type(plan).__name__
        raise ShapeError(f"plan must come from {made} (got {got})")
    if any([value is not silent[name] and (type(value) is not type(silent[name]) or value != silent[name])
            for name, value in said.items()]):
        *first, last = said
        raise ShapeError(f"{', '.join(first)} and {last} are the plan's own: give either them or plan")
    wanted = plan.array_shapes()
    for what, asked, was in (("bias", "bias" in given, "bias" in wanted),
                             ("a beta other than 0", reads_out, plan.problem.reads_out)):
        if asked != was:
            raise ShapeError(f"{what} must be {'given' if was else 'left out'}: the plan was made "
                             f"{'with' if was else 'without'} it")
    check_shapes(given, wanted, "the plan's ")
    return wanted


def check_shapes(given: Mapping[str, ArrayView], wanted: Mapping[str, tuple[int, ...]], whose: str) -> None:
    """Raises ShapeError unless the arrays have the shapes wanted."""
    for array in given.values():
        if array.shape != wanted[array.name]:
            raise ShapeError(f"{array.name} must have {whose}shape {wanted[array.name]} (got {array.shape})")


def check_out(out: ArrayView, wanted: tuple[int, ...], given: Mapping[str, ArrayView]) -> ArrayView:
    """Raises ShapeError unless `out` can be filled while the arrays given are read."""
    if out.shape != wanted:
        raise ShapeError(f"out must have shape {wanted} (got {out.shape})")
    if not out.writable:
        raise ShapeError("out must be writable (got a read-only array)")
    for array in given.values():
        if out.overlaps(array):
            raise ShapeError(f"out must not overlap {array.name}")
    return out


def unaligned(given: Mapping[str, ArrayView], device: Device) -> list[str]:
    """The operands that begin where no texture may, and a result where no vector may be stored. Host arrays keep that
    on the way to a device in whose memory they are used in place; copies are aligned."""
    on = engine.of(device)
    if next(iter(given.values())).on_host and on.in_place is None:
        return []
    return [name for name, array in given.items()
            if array.address % (VECTOR_BYTES if name == "out" else on.alignment)]


def check_device(device: object) -> None:
    """Raises DeviceError for what is no device."""
    if able(device, Device) is None:
        raise DeviceError("device must be a device of this library, such as maxdnn.emulator.VirtualGpu() "
                          f"(got {shown(device)})")


def device_of(given: Mapping[str, ArrayView], asked: Device | None) -> Device:
    """The one device all arrays are on; for arrays on the host, the one asked for."""
    if asked is not None:
        check_device(asked)
    if len({array.on_host for array in given.values()}) > 1:
        places = ", ".join(f"{name} on {'the host' if array.on_host else 'a GPU'}" for name, array in given.items())
        raise ShapeError(f"all arrays must be on the same device (got {places})")
    reference = next(iter(given))
    if given[reference].on_host:
        return find.host() if asked is None else asked
    found = {name: find.of_address(array.address) if array.ordinal is None else find.gpu(array.ordinal)
             for name, array in given.items()}
    first = asked or found[reference]
    for name, place in found.items():
        if place is not first:
            wanted = "device" if asked else reference
            raise ShapeError(f"{name} must be on the same device as {wanted} (got {place.name}, {wanted} is "
                             f"{first.name})")
    return first
