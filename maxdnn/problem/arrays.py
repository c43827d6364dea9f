"""Types of the arrays that users hand in."""

from typing import Any, Protocol, TypeVar

import numpy as np


class CudaArray(Protocol):
    """A float32 array on a GPU: a GPUArray of pycuda, an array of CuPy or Numba, a tensor of PyTorch."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface: shape, typestr, data, strides, stream."""


Array = np.ndarray | CudaArray
ArrayT = TypeVar("ArrayT", bound=Array)
