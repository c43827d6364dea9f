"""What a launch did, as plain data: the path each warp took and the addresses it touched. The emulator writes it, the
timing model reads it; neither imports the other."""

from dataclasses import dataclass

import numpy as np

# What an operation on an mbarrier does, as the word of a lane: its address below bit 18, from there on the arrivals
# (of a beginning: of a phase; of a wait: the parity), then the bytes that are announced, as a signed number + 2^21.
ARRIVALS, MORE, MORE_BITS = 18, 38, 22


@dataclass(frozen=True)
class WarpTrace:
    """One warp of one block.

    runs: (n, 2) uint32, the executed path: pairs (index of first instruction, number of consecutive instructions),
    instructions indexed as in CubinKernel.instructions. From sm_70 on a pair of a branch and zero follows where the
    branch parts the lanes.
    addresses: (m, 32) uint64, one row per executed memory instruction (global, generic, shared, local, texture,
    constant through LDC, atomics) in execution order: byte address of each lane; for textures the byte address of the
    texel; all ones for a lane that did not take part. Rows of operations on mbarriers hold words as ARRIVALS and MORE
    say; those of bulk copies in lanes 0 to 2 the source, and beyond it the size and the mbarrier's address.
    """

    block: tuple[int, int, int]
    warp: int
    runs: np.ndarray
    addresses: np.ndarray
