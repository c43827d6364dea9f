"""What a launch did, as plain data: the path each warp took and the addresses it touched. The emulator writes it, the
timing model reads it; neither imports the other."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WarpTrace:
    """One warp of one block.

    runs: (n, 2) uint32, the executed path: pairs (index of first instruction, number of consecutive instructions),
    instructions indexed as in CubinKernel.instructions.
    addresses: (m, 32) uint64, one row per executed memory instruction (global, generic, shared, local, texture,
    constant through LDC, atomics) in execution order: byte address of each lane; for textures the byte address of the
    texel; all ones for a lane that did not take part.
    """

    block: tuple[int, int, int]
    warp: int
    runs: np.ndarray
    addresses: np.ndarray
