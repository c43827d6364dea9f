"""Compare-and-swap of shared memory that may fail (ATOMS.CAST.SPIN), as an H100 does it: of lanes that meet at a bank
one gets through, and warps come between each other."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.simulator.probes.frame import assembled

# Each thread adds one to the word whose offset it has, once or until it gets through; it keeps what the swap said last.
SOURCE = """
# Kernel: spin
# Arch: sm_90
# SharedSize: 4096
# Param: ptr out
# Param: ptr data
--:-:1:-:1      S2R R7, SR_TID.X;
--:-:2:-:1      LDC.64 R4, param_data[0];
--:-:3:-:1      LDC.64 R10, param_out[0];
--:-:-:-:a      ULDC.64 UR4, c[0x0][0x208];
03:-:-:-:6      IMAD.WIDE.U32 R4, R7, 0x4, R4;
04:-:-:-:6      IMAD.WIDE.U32 R10, R7, 0x4, R10;
--:-:1:-:2      LDG.E R8, desc[UR4][R4.64];
01:2:-:-:2      STS [R8], RZ;
02:-:-:-:6      BAR.SYNC.DEFER_BLOCKING 0x0;
TRY:
--:-:2:-:2      LDS R20, [R8];
02:-:-:-:6      IADD3 R21, R20, 0x1, RZ;
--:-:2:-:2      ATOMS.CAST.SPIN R22, [R8], R20, R21;
02:-:-:Y:d      ISETP.NE.U32.AND P3, PT, R22, 0x1, PT;
{}
--:1:-:-:2      STG.E desc[UR4][R10.64], R22;
01:-:-:Y:5      EXIT;
"""
LOOP = "--:-:-:Y:5  @P3 BRA TRY;"


def run(offsets, loop="", trace=False):
    gpu = VirtualGpu()
    out, data = gpu.alloc(4 * len(offsets)), gpu.alloc(4 * len(offsets))
    gpu.upload(data, np.array(offsets, np.uint32))
    function = gpu.load(assembled(SOURCE.format(loop))).function("spin")
    if trace:
        found = []
        function.trace((1, 1, 1), (len(offsets), 1, 1), [out, data], blocks=[(0, 0, 0)], on_warp=found.append)
        swap = next(n for n, i in enumerate(function.kernel.instructions) if i.opcode == "ATOMS")
        return [sum(first <= swap < first + count for first, count in warp.runs) for warp in found]
    function.launch((1, 1, 1), (len(offsets), 1, 1), [out, data])
    kept = np.empty(len(offsets), np.uint32)
    gpu.download(out, kept)
    return kept


@pytest.mark.parametrize("lanes", [1, 2, 4, 32])
def test_of_lanes_that_meet_at_a_bank_the_first_gets_through(lanes):
    """As many as that are in words of their own, a line apart."""
    kept = run([t % lanes * 128 + t // lanes * 4 for t in range(32)])
    np.testing.assert_array_equal(kept, [t % lanes == 0 for t in range(32)])


def test_lanes_that_fail_try_again_until_all_have_been_through():
    assert run([128 * (t % 4) for t in range(64)], LOOP).all()


@pytest.mark.parametrize(("offsets", "rounds"), [
    ([4 * t for t in range(32)] * 4, [1, 2, 3, 4]),  # "swaps, side by side": a round for each warp
    ([4 * t for t in range(128)], [1, 1, 1, 1]),
    ([t % 4 * 128 + t // 4 % 8 * 4 for t in range(64)], [4, 5]),
])
def test_warps_of_a_traced_block_come_between_each_other(offsets, rounds):
    assert run(offsets, LOOP, trace=True) == rounds
