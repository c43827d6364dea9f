"""Launches of compiled programs: timing from a few blocks against timing from all of them."""

import numpy as np
import pytest

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import launchfile, timing
from maxdnn.simulator.machine import preset
from tests import oracles
from tests.corpus import compiler

I32, F32 = np.int32, np.float32
N = 512  # blocks


def words(count, seed=1):
    return np.random.default_rng(seed).integers(0, 2**32, count).astype(np.uint32)


def floats(count):
    return np.random.default_rng(2).uniform(-1, 1, count).astype(F32)


# kernel: (source, grid, block, arguments (an array is a buffer), whether a few blocks say it all)
PROGRAMS = {
    "program_sgemm": ("programs.cu", (16, 32, 1), (256, 1, 1), lambda: [floats(2048 * 16), floats(16 * 1024),
                      floats(2048 * 1024), I32(2048), I32(1024), I32(16)], True),
    "program_scan_blocks": ("programs.cu", (N, 1, 1), (256, 1, 1), lambda: [
                            words(1024 * N), words(1024 * N), words(N), I32(1024 * N - 1500)], True),
    "program_scan_add": ("programs.cu", (N, 1, 1), (256, 1, 1), lambda: [words(1024 * N), words(N), I32(1024 * N)],
                         True),
    "program_nbody": ("programs.cu", (N, 1, 1), (128, 1, 1), lambda: [floats(4 * 128 * N)] * 4 + [F32(0.01), I32(128)],
                      True),
    "program_stencil": ("programs.cu", (16, 32, 1), (32, 8, 1), lambda: [
                        floats(500 * 250 * 2), floats(500 * 250 * 2), I32(500), I32(250), I32(2), F32(1), F32(1),
                        F32(1)], True),
    "memory_vector": ("memory.cu", (N, 1, 1), (128, 1, 1), lambda: [
                      words(128 * N * 2), words(128 * N * 4), words(128 * N * 4), words(128 * N * 16),
                      words(128 * N * 16), I32(128 * N - 200)], True),
    "program_histogram": ("programs.cu", (N, 1, 1), (256, 1, 1), lambda: [
                          words(512 * N), np.zeros(256, np.uint32), I32(512 * N)], False),
    "program_radix_count": ("programs.cu", (N, 1, 1), (256, 1, 1), lambda: [
                            words(256 * N), words(16 * N), I32(0), I32(256 * N)], False),
    "program_mandelbrot": ("programs.cu", (32, 16, 1), (16, 16, 1), lambda: [
                           words(512 * 256), I32(512), I32(256), F32(-2.1), F32(-1.05), F32(0.006), I32(60)], False),
    "atomic_ticket": ("atomics.cu", (N, 1, 1), (32, 1, 1), lambda: [
                      words(32 * N), np.zeros(64, np.uint32), np.zeros(64 * N + 4096, np.uint32), I32(32 * N)], False),
}


def launched(name, full):
    source, grid, block, make, _ = PROGRAMS[name]
    gpu = VirtualGpu()
    args = []
    for value in make():
        if isinstance(value, np.ndarray):
            buffer = gpu.alloc(value.nbytes)
            gpu.upload(buffer, value)
            value = buffer
        args.append(value)
    kernel = gpu.load(compiler.compile_source(source)).function(name)
    found = timing.workload(kernel, grid, block, args, machine=preset("gm204"), full=full)
    return found, timing.simulated(found, kernel, block, preset("gm204"))


def described(workload, b):
    """What the engine reads for a block: of each warp the runs, and of its accesses service cycles, lines, sectors."""
    work, out = workload.work, []
    for w in range(workload.outline.block_warps):
        stream = work.class_of[b] * workload.outline.block_warps + w
        path = work.path[stream]
        records = work.records[slice(*work.record_ptr[stream:stream + 2])]
        group = np.where(records[:, 3] >= 0, records[:, 3], -1 - records[:, 3])
        shift, variant = work.shift[b, group].T
        records = np.where(records[:, 3:] >= 0, records, work.records[(records[:, 1] + variant) * (records[:, 3] < 0)])
        counts = records[:, 2]
        where = np.repeat(records[:, 1] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        lines = work.lines[where] + np.stack([np.repeat(shift, counts), 0 * where], 1)
        out += [work.runs[slice(*work.path_ptr[path:path + 2])], records[:, [0, 2]], lines]
    return out


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_few_blocks_give_what_all_blocks_give(name):
    (few, fast), (every, slow) = launched(name, False), launched(name, True)
    assert (few.outline.traced < 200) == PROGRAMS[name][4]
    assert fast.cycles == slow.cycles and np.array_equal(fast.stalls, slow.stalls)
    for b in range(N):
        for one, other in zip(described(few, b), described(every, b), strict=True):
            assert np.array_equal(one, other)


BIG = r"""
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n, int k) {
    __shared__ float as[16][16], bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int t = 0; t < k; t += 16) {
        as[ty][tx] = a[row * k + t + tx];
        bs[ty][tx] = b[(t + ty) * n + col];
        __syncthreads();
        for (int e = 0; e < 16; e++) sum += as[ty][e] * bs[e][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
extern "C" __global__ void reduce(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? in[i] : 0;
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
"""
BIG_LAUNCHES = {"matmul": ([100, 100], [16, 16], ["zeros:float32:1600x32"] * 2 + ["zeros:float32:1600x1600", 1600, 32]),
                "reduce": ([10_000], [256], ["zeros:float32:2560000", {"bytes": 4}, 2_559_900])}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kernel", BIG_LAUNCHES)
def test_ten_thousand_blocks_cost_a_few_traces_and_little_memory(kernel, monkeypatch):
    """Full length (k = 1600: 16 s) is the 1024 x 1024 x 1024 product and more; here a short one, for the same grid."""
    grid, block, args = BIG_LAUNCHES[kernel]
    description = launchfile.parse({"kernel": kernel, "grid": grid, "block": block, "args": args})
    simulated, nbytes = timing.simulated, []

    def seen(work, *args):
        nbytes.append(sum(a.nbytes for a in vars(work.work).values() if isinstance(a, np.ndarray)))
        return simulated(work, *args)
    monkeypatch.setattr(timing, "simulated", seen)
    timed, = timing.described(oracles.compile_cuda(BIG), description)
    assert timed.result.workload.blocks == 10_000 and timed.result.workload.traced < 60 and nbytes[0] < 4 << 20
