"""Every program of the vendor corpus runs on the virtual GPU and gives what its reference says."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from tests.corpus import cases, compiler
from tests.emulator.test_gpu import fetch, on_device

STACK = r"""
extern "C" __global__ void stack(const int* order, int* out) {
    int box[8], t = threadIdx.x;
    for (int k = 0; k < 8; k++) box[order[k]] = t * 8 + k;
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 8; k++) sum = sum * 3 + box[order[7 - k]];
    out[t] = sum;
}
"""


@pytest.mark.sampled(7, 20)
@pytest.mark.parametrize("case", cases.ALL, ids=lambda case: case.name)
def test_corpus_program(case):
    problem = case.problem()
    case.check(case.run(VirtualGpu(), compiler.compile_source(case.source), problem), problem)


def test_every_warp_has_local_memory_of_its_own():
    gpu, order = VirtualGpu(), np.random.default_rng(3).permutation(8).astype(np.int32)
    b_order, b_out = on_device(gpu, order, np.zeros(256, np.int32))
    from tests import oracles
    gpu.load(oracles.compile_cuda(STACK)).function("stack").launch((1, 1, 1), (256, 1, 1), [b_order, b_out])
    want = np.zeros(256, np.int64)
    for k in range(8):
        want = want * 3 + np.arange(256) * 8 + (7 - k)
    np.testing.assert_array_equal(fetch(gpu, b_out, np.zeros(256, np.int32)), want)
