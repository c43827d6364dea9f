"""How much local memory a thread of a kernel gets."""

import numpy as np

from ..cubin import CubinKernel

RECURSION_STACK = 1024  # bytes per thread: default of cudaLimitStackSize (CUDA C Programming Guide, cudaDeviceSetLimit)
_CALLS = (0x343, 0x344, 0x143, 0x144)  # low bits of CALL on Hopper
_CAL = 0xE26  # top bits of CAL's word


def stack_bytes(kernel: CubinKernel) -> int:
    """What the compiler asks for; CUDA's default limit where recursion kept it from knowing. Words are matched by
    opcode, so that damaged code does not matter here."""
    if not kernel.addressing.group:
        low = np.frombuffer(kernel.code, np.uint64)[::2] & np.uint64(0x3FF)
        return kernel.local_bytes or (RECURSION_STACK if np.isin(low, _CALLS).any() else 0)
    words = np.frombuffer(kernel.code, np.uint64).reshape(-1, 4)[:, 1:]  # less the control words
    return kernel.local_bytes or (RECURSION_STACK if (words >> np.uint64(52) == _CAL).any() else 0)
