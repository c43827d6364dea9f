"""The device of an array. Loads the virtual GPU or the GPU driver only when an array asks for it."""

import math
from functools import cache
from typing import Any, cast

import numpy as np

from ...errors import OutOfMemoryError
from ..forks import compiling
from .protocol import Device


def host() -> Device:
    """The device that NumPy arrays run on: the virtual GPU, made at first use.

    Returns
    -------
    Device
        The same in every call of a process.
    """
    with compiling:  # a fork waits until all of it is there
        from . import virtual

    return virtual.default()


def gpu(ordinal: int) -> Device:
    """The primary context of a GPU.

    Parameters
    ----------
    ordinal : int
        Of the GPU, from 0.

    Returns
    -------
    Device
        With the methods of VirtualGpu. A GPU that cannot run Maxwell code runs translations.

    Raises
    ------
    DeviceError
        There is no such GPU, or no driver.
    """
    return cast(Device, _cuda().device(ordinal))


def first_gpu() -> Device | None:
    """The first GPU of this machine.

    Returns
    -------
    Device or None
        None where there is no GPU, or no driver.
    """
    return gpu(0) if _cuda().count() else None


def of_address(address: int) -> Device:
    """The device that GPU memory is on.

    Parameters
    ----------
    address : int
        Of memory of a GPU, in bytes.

    Returns
    -------
    Device
        The primary context of that GPU.

    Raises
    ------
    DeviceError
        That GPU cannot be used: no driver, or memory of a context that is not current.
    """
    return cast(Device, _cuda().for_pointer(address))


@cache  # an import that finds a module costs more than the rest
def _cuda() -> Any:
    with compiling:
        from . import cuda

    return cuda


def empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """A new array of the same library and on the same device as another.

    Parameters
    ----------
    array : array
        What it is to be like.
    shape : tuple of int
        Of the new array.

    Returns
    -------
    array of float32
        Its content is undefined.

    Raises
    ------
    OutOfMemoryError
        There is no such memory.
    """
    if isinstance(array, np.ndarray):
        try:
            return np.empty(shape, np.float32)
        except (MemoryError, ValueError) as e:  # more than an array can have
            raise OutOfMemoryError(f"out of host memory for an array of shape {shape}", 4 * math.prod(shape)) from e
    return _cuda().empty_like(array, shape)
