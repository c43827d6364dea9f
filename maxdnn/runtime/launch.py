"""What every device does before a launch: check the grid and block, and pack the arguments into the parameter block."""

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..cubin import ASKED_SHARED, STATIC_SHARED, CubinKernel, Param
from ..errors import LaunchError, shown

# Compute capability 5.x and 6.x (CUDA C Programming Guide, technical specifications per compute capability).
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_LOCAL_BYTES = 512 * 1024  # per thread


def most_shared(arch: str) -> int:
    """Bytes of shared memory that a CTA may have if its launch asks for them."""
    return ASKED_SHARED.get(arch, STATIC_SHARED)


def check_geometry(kernel: CubinKernel, grid: Sequence[int], block: Sequence[int], shared_bytes: int,
                   most_shared: int = STATIC_SHARED) -> None:
    """Raises LaunchError, naming the argument and its limit, for a launch this kernel or architecture cannot take."""
    for what, dims, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        if not _three(dims) or not all(1 <= d <= limit for d, limit in zip(dims, limits, strict=True)):
            raise LaunchError(f"{kernel.name}: {what} must be three numbers from 1 to {limits} (got {shown(dims)})")
    threads = block[0] * block[1] * block[2]
    limit = kernel.most_threads
    if threads > limit:
        raise LaunchError(f"{kernel.name}: block must have at most {limit} threads (got {tuple(block)}: {threads})")
    if kernel.reqntid is not None and tuple(block) != kernel.reqntid:
        raise LaunchError(f"{kernel.name}: block must be {kernel.reqntid}, as the kernel requires (got {tuple(block)})")
    if kernel.local_bytes > MAX_LOCAL_BYTES:
        raise LaunchError(f"{kernel.name}: the kernel must ask for at most {MAX_LOCAL_BYTES} bytes of local memory per "
                          f"thread (its cubin says {kernel.local_bytes})")
    if not isinstance(shared_bytes, int):
        raise LaunchError(f"{kernel.name}: shared_bytes must be an integer (got {shown(shared_bytes)})")
    room = max(0, most_shared - kernel.shared_bytes)  # one that has more than that has declared all
    if not 0 <= shared_bytes <= room:
        raise LaunchError(f"{kernel.name}: shared_bytes must be 0 to {room}, the kernel's own {kernel.shared_bytes} "
                          f"taken off {most_shared} (got {shared_bytes})")


def _three(dims: Any) -> bool:
    return isinstance(dims, (tuple, list)) and len(dims) == 3 and all(isinstance(d, (int, np.integer)) for d in dims)


# struct codes of plain numbers by type and parameter size
_CODES: dict[type, dict[int, str]] = {
    int: {4: "I", 8: "Q"}, float: {4: "f", 8: "d"}, np.float32: {4: "f"}, np.float64: {8: "d"},
    np.int32: {4: "i"}, np.uint32: {4: "I"}, np.int64: {8: "q"}, np.uint64: {8: "Q"},
}


class ArgumentPacker:
    """Lays out the arguments of one kernel at its parameters' offsets (see Function.launch for what an argument may
    be). Keeps the layout of argument types it has seen: a launch must cost microseconds."""

    def __init__(self, kernel: CubinKernel) -> None:
        self._kernel = kernel
        self._layouts: dict[tuple[type, ...], struct.Struct | None] = {}

    def __call__(self, args: Sequence[Any]) -> bytes:
        """The parameter block. Raises LaunchError for a wrong count, or a value that does not fit its parameter."""
        kernel = self._kernel
        if not isinstance(args, (tuple, list)):
            raise LaunchError(f"{kernel.name}: args must be a list of values (got {shown(args)})")
        if len(args) != len(kernel.params):
            raise LaunchError(f"{kernel.name}: args must hold {len(kernel.params)} values (got {len(args)})")
        types = tuple(map(type, args))
        if types not in self._layouts:
            self._layouts[types] = self._layout(types)
        layout = self._layouts[types]
        if layout is not None:
            with contextlib.suppress(struct.error, OverflowError):  # a number out of range: explained below
                return layout.pack(*args)
        block = bytearray(kernel.param_bytes)
        for param, value in zip(kernel.params, args, strict=True):
            block[param.offset:param.offset + param.size] = _argument(kernel.name, param, value)
        return bytes(block)

    def layout(self, args: Sequence[Any]) -> struct.Struct:
        """The parameter block as one struct, for plain numbers like these. Raises LaunchError for others."""
        found = self._layout(tuple(map(type, args))) if len(args) == len(self._kernel.params) else None
        if found is None:
            raise LaunchError(f"{self._kernel.name}: args must be a plain number of the right size for each of "
                              f"{len(self._kernel.params)} parameters (got {shown(args)})")
        return found

    def _layout(self, types: tuple[type, ...]) -> struct.Struct | None:
        """The block as one struct, if all arguments are plain numbers of their parameters' sizes."""
        text, end = "<", 0
        for param, type_ in zip(self._kernel.params, types, strict=True):
            code = _CODES.get(type_, {}).get(param.size)
            if code is None or param.offset < end:
                return None
            text += "x" * (param.offset - end) + code
            end = param.offset + param.size
        return struct.Struct(text)


def _argument(name: str, param: Param, value: Any) -> bytes:
    if type(value) is int and 0 <= value < 1 << 8 * param.size:  # nearly all are: keeps the cost of a launch low
        return value.to_bytes(param.size, "little")
    where = f"{name}: argument {param.ordinal}"
    if isinstance(value, (np.generic, np.ndarray)):
        data = value.tobytes()
    elif isinstance(value, float):
        if param.size not in (4, 8):
            raise LaunchError(f"{where} has {param.size} bytes, which no float fills")
        try:
            data = struct.pack("<f" if param.size == 4 else "<d", value)
        except OverflowError as e:
            raise LaunchError(f"{where} is a float32, which cannot hold {value}") from e
    else:
        address = value if isinstance(value, int) else getattr(value, "address", None)
        if address is None:
            raise LaunchError(f"{where} must be a buffer, a number or a numpy value (got {type(value).__name__})")
        try:
            data = int(address).to_bytes(param.size, "little", signed=address < 0)
        except OverflowError as e:
            raise LaunchError(f"{where} does not fit its {param.size} bytes (got {address})") from e
    if len(data) != param.size:
        raise LaunchError(f"{where} must have {param.size} bytes (got {len(data)}: {value!r})")
    return data
