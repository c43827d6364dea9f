"""race=True finds what a missing barrier does, and stays silent where there is one."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from tests import oracles
from tests.emulator.test_gpu import on_device

TURN = r"""
extern "C" __global__ void turn(int* out) {
    __shared__ int box[128];
    int t = threadIdx.x;
    box[t] = t;
    BARRIER
    out[t] = box[(t + SHIFT) % 128];
}
"""
COUNT = r"""
extern "C" __global__ void count(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    BARRIER
    atomicAdd(&sum, 1);
    __syncthreads();
    out[threadIdx.x] = sum;
}
"""


def launch(source, name, **parts):
    for word, text in parts.items():
        source = source.replace(word, str(text))
    gpu = VirtualGpu(race=True)
    (out,) = on_device(gpu, np.zeros(128, np.int32))
    gpu.load(oracles.compile_cuda(source)).function(name).launch((2, 1, 1), (128, 1, 1), [out])


def test_a_read_of_another_warps_write_without_a_barrier_is_reported_with_both_instructions():
    with pytest.raises(EmulationFault) as fault:
        launch(TURN, "turn", BARRIER="", SHIFT=32)
    text = str(fault.value)
    assert "turn: block (" in text and "shared-memory race at 0x" in text and "LDS" in text
    assert "with warp" in text and "STS" in text and "no barrier between" in text


def test_a_write_after_another_warps_read_is_reported():
    with pytest.raises(EmulationFault, match="race"):
        launch(TURN.replace("out[t] =", "int x =").replace("128];\n}", "128]; box[t] = x; out[t] = box[t];\n}"), "turn",
               BARRIER="__syncthreads();", SHIFT=32)


@pytest.mark.parametrize("parts", [dict(BARRIER="__syncthreads();", SHIFT=32), dict(BARRIER="", SHIFT=0)])
def test_a_barrier_or_keeping_to_ones_own_words_is_no_race(parts):
    launch(TURN, "turn", **parts)


def test_atomics_do_not_race_with_one_another_but_with_a_plain_store():
    launch(COUNT, "count", BARRIER="__syncthreads();")
    with pytest.raises(EmulationFault, match="race"):
        launch(COUNT, "count", BARRIER="")
