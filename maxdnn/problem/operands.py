"""What a user hands in: NumPy arrays, or anything with `__cuda_array_interface__` (GPUArrays of pycuda, CuPy,
PyTorch ...), seen alike and checked before any work starts."""

import math
import operator
from typing import Any, NamedTuple

import numpy as np
from numpy import ma

from ..errors import ShapeError, shown

FLOAT_BYTES = 4
_TYPES: dict[Any, str] = {}  # of PyTorch's dtypes that were met


class ArrayView(NamedTuple):
    """A float32 array: where it is and how much memory it spans. `strides`: in elements, None for C-contiguous. `name`
    is the argument it came in as. `stream`: the handle of the stream whose work so far must be done before the array is
    used (1: the legacy default stream, 2: the per-thread one); None if it may be used at once. `ordinal`: of the GPU in
    whose primary context it lies, if that is known."""

    name: str
    array: Any
    shape: tuple[int, ...]
    address: int
    nbytes: int
    on_host: bool
    writable: bool
    stream: int | None = None
    strides: tuple[int, ...] | None = None
    ordinal: int | None = None

    @property
    def memory(self) -> Any:
        """Of a host array: all it spans, C-contiguous."""
        if self.strides is None:
            return self.array
        return np.lib.stride_tricks.as_strided(self.array, (self.nbytes // FLOAT_BYTES,), (FLOAT_BYTES,),
                                               writeable=self.writable)

    def overlaps(self, other: "ArrayView") -> bool:
        return (self.on_host == other.on_host and self.address < other.address + other.nbytes
                and other.address < self.address + self.nbytes)


def view(name: str, array: Any, rank: int | None = 4, strided: bool = False) -> ArrayView:
    """Describe argument `name`. Raises ShapeError unless it is a C-contiguous float32 array without empty axes, with
    `rank` axes (None: any number); with `strided`, strides may be any number of elements but negative ones."""
    stream = ordinal = None
    if isinstance(array, ma.MaskedArray):
        raise ShapeError(f"{name} must be a plain array (got a masked one, whose mask would be ignored)")
    if isinstance(array, np.ndarray):
        shape, typestr = array.shape, array.dtype.str
        strides: tuple[int, ...] | None = array.strides
        address, on_host, writable = array.ctypes.data, True, array.flags.writeable
    elif type(array).__module__ == "torch" and array.is_cuda and array.is_contiguous() and not array.requires_grad:
        # The interface of a tensor takes longer than all the rest of a call.
        shape, typestr, strides = tuple(array.shape), _TYPES.get(array.dtype) or _torch_type(array.dtype), None
        address, on_host, writable, ordinal = array.data_ptr(), False, True, array.get_device()
    else:
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            raise ShapeError(f"{name} must be a NumPy array or have __cuda_array_interface__ "
                             f"(got {type(array).__name__})")
        shape, typestr, strides, address, writable = _interface(name, interface)
        on_host, stream = False, interface.get("stream")
        if stream is not None and (not isinstance(stream, int) or stream < 1):
            raise ShapeError(f"the stream of {name}'s __cuda_array_interface__ must be None, 1, 2 or a handle "
                             f"(got {shown(stream)})")
    if rank is not None and len(shape) != rank:
        raise ShapeError(f"{name} must have {rank} axes (got {len(shape)}: shape {shape})")
    if typestr != "<f4":
        raise ShapeError(f"{name} must be float32 (got {array.dtype if on_host else _dtype(typestr)})")
    if 0 in shape:
        raise ShapeError(f"{name} must have no axis of size zero (got shape {shape})")
    steps = None
    if strides is not None and not _contiguous(shape, strides):
        if not strided:
            raise ShapeError(f"{name} must be C-contiguous (got shape {shape} with strides {tuple(strides)} bytes)")
        if any(stride < 0 or stride % FLOAT_BYTES for stride in strides):
            raise ShapeError(f"{name} must have strides that are multiples of {FLOAT_BYTES} and not negative "
                             f"(got {tuple(strides)} bytes)")
        steps = tuple(stride // FLOAT_BYTES if size > 1 else 0 for size, stride in zip(shape, strides, strict=True))
    if address % FLOAT_BYTES:
        raise ShapeError(f"{name} must begin at a multiple of {FLOAT_BYTES} bytes (got address 0x{address:x})")
    count = math.prod(shape) if steps is None else 1 + sum((n - 1) * d for n, d in zip(shape, steps, strict=True))
    return ArrayView(name, array, shape, address, count * FLOAT_BYTES, on_host, writable, stream, steps, ordinal)


def _interface(name: str, interface: Any) -> tuple[tuple[int, ...], Any, tuple[int, ...] | None, int, bool]:
    """(shape, typestr, strides, address, writable) of a `__cuda_array_interface__`."""
    try:
        shape = tuple(map(operator.index, interface["shape"]))
        address, read_only = interface["data"]
        strides = interface.get("strides")
        strides = None if strides is None else tuple(map(operator.index, strides))
        if min(shape, default=0) < 0 or len(shape if strides is None else strides) != len(shape):
            raise ValueError
        found = shape, interface["typestr"], strides, operator.index(address or 0), not read_only
    except (TypeError, ValueError, LookupError, AttributeError):
        raise ShapeError(f"{name} must have a __cuda_array_interface__ with shape, typestr, data and perhaps strides "
                         f"(got {shown(interface)})") from None
    if interface.get("mask") is not None:
        raise ShapeError(f"{name} must be a plain array (got a masked one, whose mask would be ignored)")
    return found


def _torch_type(dtype: Any) -> str:
    found = _TYPES[dtype] = "<f4" if str(dtype) == "torch.float32" else str(dtype)
    return found


def _dtype(typestr: Any) -> Any:
    """The dtype of a typestr; what is none, as it is."""
    try:
        return np.dtype(typestr) if isinstance(typestr, str) else typestr
    except TypeError:
        return typestr


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = FLOAT_BYTES
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
