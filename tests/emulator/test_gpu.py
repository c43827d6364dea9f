"""The virtual GPU runs kernels that the vendor's compiler made for sm_52."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.emulator.compiled import CompiledKernel
from tests import oracles

SAXPY = r"""
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}
"""

SGEMM = r"""
extern "C" __global__ void __launch_bounds__(256) sgemm(int n, const float* A, const float* B, float* C) {
    __shared__ float As[8][64], Bs[8][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, bx = blockIdx.x * 64, by = blockIdx.y * 64;
    float c[4][4] = {0};
    for (int k = 0; k < n; k += 8) {
        for (int i = 0; i < 2; i++) {
            int e = t + i * 256, kk = e / 64, cc = e % 64;
            As[kk][cc] = A[(k + kk) * n + by + cc];
            Bs[kk][cc] = B[(k + kk) * n + bx + cc];
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; kk++) {
            float4 a = *(float4*)&As[kk][ty * 4], b = *(float4*)&Bs[kk][tx * 4];
            float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
            for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) c[i][j] = fmaf(av[i], bv[j], c[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        *(float4*)&C[(by + ty * 4 + i) * n + bx + tx * 4] = make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
}
"""


def on_device(gpu, *arrays):
    buffers = [gpu.alloc(a.nbytes) for a in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        gpu.upload(buffer, array)
    return buffers


def fetch(gpu, buffer, like):
    out = np.empty_like(like)
    gpu.download(buffer, out)
    return out


@pytest.mark.parametrize("n", [1, 31, 1000])
def test_saxpy_rounds_once_and_leaves_lanes_beyond_the_end_alone(n):
    gpu, rng = VirtualGpu(), np.random.default_rng(n)
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    bx, by = on_device(gpu, x, y)
    gpu.load(oracles.compile_cuda(SAXPY)).function("saxpy").launch((9, 1, 1), (128, 1, 1), [n, np.float32(2.7), bx, by])
    want = (np.float64(np.float32(2.7)) * x + y).astype(np.float32)  # the sum is exact enough not to round twice here
    np.testing.assert_allclose(fetch(gpu, by, y), want, rtol=2**-23, atol=0)


def test_shared_memory_sgemm_of_full_tiles_matches_numpy():
    gpu, rng, n = VirtualGpu(), np.random.default_rng(1), 192
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    ba, bb, bc = on_device(gpu, a, b, np.full((n, n), np.nan, np.float32))
    gpu.load(oracles.compile_cuda(SGEMM)).function("sgemm").launch((3, 3, 1), (256, 1, 1), [n, ba, bb, bc])
    want = a.T.astype(np.float64) @ b
    bound = n * 2.0**-24 * (np.abs(a.T).astype(np.float64) @ np.abs(b))  # length x half ulp x sum of magnitudes
    assert (np.abs(fetch(gpu, bc, a) - want) <= bound).all()


def test_a_kernel_is_optimized_once_many_warps_ran_and_gives_the_same_bits(monkeypatch):
    gpu, rng, n, levels = VirtualGpu(), np.random.default_rng(2), 64, []
    real = CompiledKernel.run_address
    monkeypatch.setattr(CompiledKernel, "run_address",
                        lambda self, full, checks, level: levels.append(level) or real(self, full, checks, level))
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    ba, bb, bc = on_device(gpu, a, b, a)
    function, bits = gpu.load(oracles.compile_cuda(SGEMM)).function("sgemm"), []
    for count in (1, 1000, 30):  # CTAs of eight warps that all do the same
        function.launch((1, 1, count), (256, 1, 1), [n, ba, bb, bc])
        bits.append((levels[-1], fetch(gpu, bc, a).tobytes()))
    assert [level for level, _ in bits] == [0, 0, 1] and len({result for _, result in bits}) == 1


def test_two_threads_may_use_the_emulator_for_the_first_time_together():
    program = textwrap.dedent("""
        import threading
        import numpy as np
        import maxdnn
        from maxdnn.emulator import VirtualGpu
        ones = np.ones((3, 4, 4, 8), np.float32), np.ones((3, 2, 2, 5), np.float32)
        results = []
        def work(): results.append(maxdnn.conv_fprop(*ones, device=VirtualGpu()))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert len(results) == 4 and all((r == 12).all() for r in results)
    """)
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="tells no resident memory")
def test_memory_that_is_not_touched_takes_none():
    """A few floats all over large arrays, as a simulation's blocks write them, take a page of 4 KiB each."""
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    buffer = VirtualGpu().alloc(1 << 28)
    before = resident()
    buffer.data[::2 << 20] = 1
    assert resident() - before < 16 << 20 and int(buffer.data.sum()) == 128
