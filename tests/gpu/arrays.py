"""Arrays on a GPU that need neither pycuda nor another library."""

from typing import Any

import numpy as np


class Array:
    """A copy of host values in device memory; `get` brings them back. `first`, `shape`: a piece of `of`, as a view."""

    def __init__(self, device: Any, values: np.ndarray | None = None, *, of: "Array | None" = None, first: int = 0,
                 shape: tuple[int, ...] = ()) -> None:
        self._device = device
        if of is None:
            assert values is not None
            values, shape = np.ascontiguousarray(values, np.float32), values.shape
            self._buffer = device.alloc(values.nbytes)
            device.upload(self._buffer, values)
        else:
            self._buffer = of._buffer
        self.shape = shape
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "strides": None, "version": 3,
                                         "data": (self._buffer.address + 4 * first, False)}

    def get(self) -> np.ndarray:
        """All of the memory, where this is no view."""
        found = np.empty(self.shape, np.float32)
        self._device.download(self._buffer, found)
        return found
