"""Special registers, by the PTX ISA's definitions of the names that the compiler gives them."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from tests.semantics.bench import lane_addresses, load, make

BLOCK, GRID = 96, 5
LANES = BLOCK * GRID
THREAD, BLOCK_OF = np.arange(LANES) % BLOCK, np.arange(LANES) // BLOCK
LANE = (THREAD % 32).astype(np.uint64)
ONE = np.uint64(1)
REGISTERS = {  # code: value in every thread
    0x00: LANE, 0x21: THREAD, 0x22: 0 * THREAD, 0x23: 0 * THREAD, 0x25: BLOCK_OF, 0x26: 0 * THREAD,
    0x38: ONE << LANE, 0x39: (ONE << LANE) - ONE, 0x3A: (ONE << LANE + ONE) - ONE,
    0x3B: ~((ONE << LANE + ONE) - ONE), 0x3C: ~((ONE << LANE) - ONE),
}


@pytest.mark.parametrize("code", REGISTERS)
@pytest.mark.parametrize("mnemonic", ["S2R", "CS2R"])
def test_a_special_register_tells_every_thread_its_place(mnemonic, code):
    gpu = VirtualGpu(workers=1)
    out = gpu.alloc(4 * LANES)
    words = lane_addresses((18, 0, 2))
    words[2:3] = [make("XMAD", "I", d=0, a=1, b=BLOCK, c=0)]  # blocks of 96 threads
    words += [make(mnemonic, sr=code, d=12), make("STG", addr=(18, 0), d=12, e="E", size="")]
    load(gpu, words, pointers=1, constants=0).launch((GRID, 1, 1), (BLOCK, 1, 1), [out])
    got = np.empty(LANES, np.uint32)
    gpu.download(out, got)
    np.testing.assert_array_equal(got, REGISTERS[code].astype(np.uint32))
