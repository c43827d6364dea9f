"""How much local memory a thread of a kernel gets."""

import numpy as np

from ..cubin import CubinKernel
from ..isa import Table

RECURSION_STACK = 1024  # bytes per thread: default of cudaLimitStackSize (CUDA C Programming Guide, cudaDeviceSetLimit)
_LOW = (1 << 64) - 1


def stack_bytes(kernel: CubinKernel) -> int:
    """What the compiler asks for; CUDA's default limit where recursion kept it from knowing."""
    return kernel.local_bytes or (RECURSION_STACK if _calls(kernel.code, kernel.table) else 0)


def _calls(code: bytes, table: Table) -> bool:
    """Whether a word is a call, by the lower 64 bits alone, so that damaged code does not matter here."""
    where = table.addressing
    words = np.frombuffer(code, np.uint64).reshape(-1, (where.group or where.word) // 8)
    words = words[:, 1:] if where.group else words[:, :1]  # less the control words, or the upper halves
    calls = [row for row in table.rows if (flow := table.flow.get(row.opcode)) is not None and flow.does == "call"]
    return any((words & np.uint64(row.mask & _LOW) == np.uint64(row.value & _LOW)).any() for row in calls)
