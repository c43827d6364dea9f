"""What every device does before a launch: check the grid and block, and pack the arguments into the parameter block."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from .cubin import CubinKernel, Param
from .errors import LaunchError

# Compute capability 5.x and 6.x (CUDA C Programming Guide, technical specifications per compute capability).
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED_BYTES = 48 * 1024


def check_geometry(kernel: CubinKernel, grid: Sequence[int], block: Sequence[int], shared_bytes: int) -> None:
    """Raises LaunchError, naming the argument and its limit, for a launch this kernel or architecture cannot take."""
    for what, dims, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        if len(dims) != 3 or not all(1 <= d <= limit for d, limit in zip(dims, limits, strict=True)):
            raise LaunchError(f"{kernel.name}: {what} must be three numbers from 1 to {limits} (got {tuple(dims)})")
    threads = block[0] * block[1] * block[2]
    limit = MAX_THREADS if kernel.maxntid is None else int(np.prod(kernel.maxntid))
    if threads > limit:
        raise LaunchError(f"{kernel.name}: block must have at most {limit} threads (got {tuple(block)}: {threads})")
    if kernel.reqntid is not None and tuple(block) != kernel.reqntid:
        raise LaunchError(f"{kernel.name}: block must be {kernel.reqntid}, as the kernel requires (got {tuple(block)})")
    room = MAX_SHARED_BYTES - kernel.shared_bytes
    if not 0 <= shared_bytes <= room:
        raise LaunchError(f"{kernel.name}: shared_bytes must be 0 to {room}, the kernel's own {kernel.shared_bytes} "
                          f"taken off {MAX_SHARED_BYTES} (got {shared_bytes})")


def pack_arguments(kernel: CubinKernel, args: Sequence[Any]) -> bytearray:
    """The parameter block: `args` laid out at the kernel's parameter offsets (see Function.launch for what an argument
    may be). Raises LaunchError for a wrong count, or a value that does not fit its parameter."""
    if len(args) != len(kernel.params):
        raise LaunchError(f"{kernel.name}: args must hold {len(kernel.params)} values (got {len(args)})")
    block = bytearray(kernel.param_bytes)
    for param, value in zip(kernel.params, args, strict=True):
        block[param.offset:param.offset + param.size] = _argument(kernel.name, param, value)
    return block


def _argument(name: str, param: Param, value: Any) -> bytes:
    if type(value) is int and 0 <= value < 1 << 8 * param.size:  # nearly all are: keeps the cost of a launch low
        return value.to_bytes(param.size, "little")
    where = f"{name}: argument {param.ordinal}"
    if isinstance(value, (np.generic, np.ndarray)):
        data = value.tobytes()
    elif isinstance(value, float):
        if param.size not in (4, 8):
            raise LaunchError(f"{where} has {param.size} bytes, which no float fills")
        data = struct.pack("<f" if param.size == 4 else "<d", value)
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
