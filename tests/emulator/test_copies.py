"""Copies of threads from global to shared memory (cp.async), compiled by the vendor: what they copy, and when it may be
looked at."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from tests import oracles
from tests.emulator.test_gpu import fetch, on_device

# Each thread copies BYTES a step, two steps ahead, zeros from `some` on, and sums what another thread copied.
SOURCE = r"""
#define GROUP asm volatile("cp.async.commit_group;" ::: "memory")
extern "C" __global__ void __launch_bounds__(64) copies(const int* from, int* out, int steps, int some) {
  __shared__ __align__(16) int tile[3][64][BYTES / 4];
  const int t = threadIdx.x, other = t ^ 33;
  int sum[BYTES / 4] = {};
  for (int i = 0; i < steps + 2; i++) {
    if (i < steps) {
      unsigned to = (unsigned)__cvta_generic_to_shared(tile[i % 3][t]);
      const int* at = from + (i * 64 + t) * (BYTES / 4);
      int ignored = t >= some;
      asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; cp.async.HOW.shared.global [%0], [%1], BYTES, p;}"
                   :: "r"(to), "l"(at), "r"(ignored) : "memory");
    }
    GROUP;
    if (i < 2) continue;
    asm volatile("cp.async.wait_group OPEN;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < BYTES / 4; k++) sum[k] = sum[k] * 3 + tile[(i - 2) % 3][other][k];
    __syncthreads();
  }
  for (int k = 0; k < BYTES / 4; k++) out[t * (BYTES / 4) + k] = sum[k];
}
"""


def run(nbytes, open_=2, arch="sm_90", some=50, steps=7, room=0):
    text = SOURCE
    for word, value in {"BYTES": nbytes, "OPEN": open_, "HOW": "cg" if nbytes == 16 else "ca"}.items():
        text = text.replace(word, str(value))
    words = nbytes // 4
    data = np.random.default_rng(nbytes).integers(-1000, 1000, (steps, 64, words)).astype(np.int32)
    gpu = VirtualGpu(race=True)
    buffers = on_device(gpu, data.reshape(-1)[:data.size - room], np.zeros((64, words), np.int32))
    kernel = gpu.load(oracles.compile_cuda(text, arch)).function("copies")
    kernel.launch((1, 1, 1), (64, 1, 1), [*buffers, np.int32(steps), np.int32(some)])
    want = np.zeros((64, words), np.int32)
    data[:, some:] = 0
    for step in data:
        want = want * 3 + step[np.arange(64) ^ 33]
    return fetch(gpu, buffers[-1], want), want


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("nbytes", [4, 8, 16])
def test_copies_are_there_when_their_group_is(nbytes, arch):
    out, want = run(nbytes, arch=arch)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("nbytes", [4, 16])
def test_a_copy_whose_group_may_be_open_is_a_fault(nbytes):
    with pytest.raises(EmulationFault, match=r"under way.*because of .*LDGSTS"):
        run(nbytes, open_=3)


def test_what_a_copy_leaves_out_it_does_not_read():
    out, want = run(16, room=14 * 4, steps=1)
    assert np.array_equal(out, want)


def test_a_copy_from_beyond_an_allocation_is_a_fault():
    with pytest.raises(EmulationFault, match=r"outside|past the end"):
        run(16, some=64, room=4, steps=1)
