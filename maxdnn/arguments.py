"""Arguments that the user's functions have in common: numbers, results, devices. Checked before any work starts."""

from contextlib import suppress
from typing import Any

import numpy as np

from .arrays import ArrayView
from .devices import find
from .devices.protocol import TEXTURE_ALIGNMENT, Device
from .errors import DeviceError, ShapeError, shown

LARGEST = 3.4e38  # below the largest float32


def number(name: str, value: Any) -> np.float32:
    """Argument `name` rounded to float32. Raises ShapeError unless it is a real number."""
    if type(value) is float and abs(value) < LARGEST:  # the usual case, without ceremony
        return np.float32(value)
    with suppress(TypeError, ValueError, OverflowError), np.errstate(over="ignore"):
        if not isinstance(value, (str, bytes)):
            return np.float32(float(value))
    raise ShapeError(f"{name} must be a real number (got {shown(value)})")


def check_out(out: ArrayView, wanted: tuple[int, ...], given: dict[str, ArrayView]) -> ArrayView:
    """Raises ShapeError unless `out` can be filled while the arrays given are read."""
    if out.shape != wanted:
        raise ShapeError(f"out must have shape {wanted} (got {out.shape})")
    if not out.writable:
        raise ShapeError("out must be writable (got a read-only array)")
    for array in given.values():
        if out.overlaps(array):
            raise ShapeError(f"out must not overlap {array.name}")
    return out


def unaligned(given: dict[str, ArrayView], device: Device) -> list[str]:
    """The arrays that begin where no texture may. Host arrays keep that on the way to a device in whose memory they are
    used in place; copies are aligned."""
    if next(iter(given.values())).on_host and not getattr(device, "adopt", None):
        return []
    need = getattr(device, "texture_alignment", TEXTURE_ALIGNMENT)
    return [name for name, array in given.items() if name != "out" and array.address % need]


def device_of(given: dict[str, ArrayView], asked: Device | None) -> Device:
    """The one device all arrays are on; for arrays on the host, the one asked for."""
    if asked is not None and not isinstance(asked, Device):
        raise DeviceError(f"device must be a device of this library, such as maxdnn.emu.VirtualGpu() (got {asked!r})")
    if len({array.on_host for array in given.values()}) > 1:
        places = ", ".join(f"{name} on {'the host' if array.on_host else 'a GPU'}" for name, array in given.items())
        raise ShapeError(f"all arrays must be on the same device (got {places})")
    reference = next(iter(given))
    if given[reference].on_host:
        return find.host() if asked is None else asked
    found = {name: find.of_address(array.address) for name, array in given.items()}
    first = asked or found[reference]
    for name, place in found.items():
        if place is not first:
            wanted = "device" if asked else reference
            raise ShapeError(f"{name} must be on the same device as {wanted} (got {place.name}, {wanted} is "
                             f"{first.name})")
    return first
