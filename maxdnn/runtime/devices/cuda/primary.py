"""Who makes a GPU's primary context current: pycuda, where it is installed, because its arrays know a context only if
pycuda has pushed it; the driver alone elsewhere. This is all that either is asked for."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ....errors import DeviceError, MaxdnnError
from ..driver import Driver, DriverError


class Primary(NamedTuple):
    """A primary context: what makes it current in the calling thread, what takes it away again, what these raise."""

    push: Callable[[], object]
    pop: Callable[[], object]
    error: type[Exception]


def of(ordinal: int, driver: Driver) -> Primary:
    """The primary context of a GPU that is there. Raises DeviceError where it cannot be had, MaxdnnError for a
    MAXDNN_PYCUDA that is neither 0 nor 1."""
    cuda = pycuda()
    if cuda is None:
        context = driver.primary_context(ordinal)
        return Primary(lambda: driver.push(context), driver.pop, DriverError)
    try:
        cuda.init()
        return Primary(cuda.Device(ordinal).retain_primary_context().push, cuda.Context.pop, cuda.Error)
    except cuda.Error as e:
        raise DeviceError(f"starting CUDA by pycuda: {e}") from e


def pycuda() -> Any:
    """Its driver module; None where it is not installed, or not to be used (MAXDNN_PYCUDA=0)."""
    value = os.environ.get("MAXDNN_PYCUDA", "1")
    if value not in ("0", "1"):
        raise MaxdnnError(f"MAXDNN_PYCUDA must be 0 (the driver alone) or 1 (got {value[:80]!r})")
    if value == "0":
        return None
    try:
        import pycuda.driver as cuda
    except ImportError:
        return None
    return cuda
