"""How fast the virtual GPU is: a 64x64-tile SGEMM that NVIDIA's compiler made for sm_52, against NumPy's float32 matrix
product on the same cores in the same run; and what a first and a cached launch cost.

    python -m benchmarks.emulator [--size 1024] [--repeat 7] [--json FILE]

Needs the development packages (nvidia-cuda-nvrtc-cu12). Reported are medians; CPU seconds stand beside wall seconds
because a busy machine stretches only the latter."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from tests import oracles

TILE, STEP, THREADS = 64, 8, 64
SGEMM = r"""
extern "C" __global__ void __launch_bounds__(64)
sgemm(int n, const float* __restrict__ A, const float* __restrict__ B, float* C)   // C = A^T B, row-major, n % 64 == 0
{
    __shared__ float a_tile[8][64], b_tile[8][64];
    int t = threadIdx.x, tx = t % 8, ty = t / 8, bx = blockIdx.x * 64, by = blockIdx.y * 64;
    float c[8][8] = {0};
    for (int k = 0; k < n; k += 8) {
        #pragma unroll
        for (int r = 0; r < 8; r++) {
            a_tile[r][t] = A[(k + r) * n + by + t];
            b_tile[r][t] = B[(k + r) * n + bx + t];
        }
        __syncthreads();
        #pragma unroll
        for (int r = 0; r < 8; r++) {
            float a[8], b[8];
            *(float4*)&a[0] = *(float4*)&a_tile[r][ty * 4]; *(float4*)&a[4] = *(float4*)&a_tile[r][ty * 4 + 32];
            *(float4*)&b[0] = *(float4*)&b_tile[r][tx * 4]; *(float4*)&b[4] = *(float4*)&b_tile[r][tx * 4 + 32];
            #pragma unroll
            for (int i = 0; i < 8; i++)
                #pragma unroll
                for (int j = 0; j < 8; j++) c[i][j] = fmaf(a[i], b[j], c[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j += 4)
            *(float4*)&C[(by + ty * 4 + i % 4 + i / 4 * 32) * n + bx + tx * 4 + j * 8] =
                make_float4(c[i][j], c[i][j + 1], c[i][j + 2], c[i][j + 3]);
}
"""
# 1,000 dependent integer instructions: what a first launch costs.
LONG = """extern "C" __global__ void long_kernel(unsigned* x)
{ unsigned v = x[threadIdx.x], w = v; %s x[threadIdx.x] = v; }"""
STARTS = """
import sys, time, pathlib, numpy as np
data = pathlib.Path(sys.argv[1]).read_bytes()
start = time.perf_counter()
from maxdnn.emulator import VirtualGpu
gpu = VirtualGpu()
buffer = gpu.alloc(4096)
gpu.load(data).function("long_kernel").launch((1, 1, 1), (64, 1, 1), [buffer])
print(time.perf_counter() - start)
"""


def timed(run: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Median wall and CPU seconds."""
    walls, cpus = [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return median(walls), median(cpus)


def sgemm(n: int, repeat: int) -> dict[str, float]:
    """Throughput of both, in GFLOP/s, and thread-instructions per second."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    gpu = VirtualGpu()
    buffers = [gpu.alloc(a.nbytes) for _ in range(3)]
    gpu.upload(buffers[0], a)
    gpu.upload(buffers[1], b)
    cubin = oracles.compile_cuda(SGEMM)
    function = gpu.load(cubin).function("sgemm")
    grid = (n // TILE, n // TILE, 1)

    def launch() -> None:
        function.launch(grid, (THREADS, 1, 1), [n, *buffers])

    launch()
    out = np.empty_like(a)
    gpu.download(buffers[2], out)
    want = a.T.astype(np.float64) @ b
    assert np.abs(out - want).max() < 1e-3 * np.abs(want).max()
    issued: list[int] = []
    function.trace(grid, (THREADS, 1, 1), [n, *buffers], blocks=[(0, 0, 0)],
                   on_warp=lambda t: issued.append(int(t.runs[:, 1].sum())))
    instructions = 32 * sum(issued) * grid[0] * grid[1]
    flops = 2 * n**3
    emulated, emulated_cpu = timed(launch, repeat)
    numpy_, numpy_cpu = timed(lambda: a.T @ b, repeat)
    return {"emulator GFLOP/s": flops / emulated / 1e9, "NumPy GFLOP/s": flops / numpy_ / 1e9,
            "ratio, wall": numpy_ / emulated, "ratio, CPU time": numpy_cpu / emulated_cpu,
            "emulator GFLOP per CPU second": flops / emulated_cpu / 1e9,
            "thread-instructions per second": instructions / emulated}


def starts(repeat: int) -> dict[str, float]:
    """Seconds from import to the end of a first launch, in fresh processes: empty cache, then filled."""
    body = " ".join(f"v = (v ^ w) * {2 * k + 3}u + (w >> {k % 31 + 1}); w += v;" for k in range(130))
    cubin = oracles.compile_cuda(LONG % body)
    count = sum(i.opcode != "NOP" for i in read(cubin).kernel().instructions)
    first, cached = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.cubin")
        path.write_bytes(cubin)
        for k in range(repeat):
            env = {**os.environ, "MAXDNN_CACHE": str(Path(folder, str(k)))}
            for found in (first, cached):
                done = subprocess.run([sys.executable, "-c", STARTS, str(path)], env=env, check=True, text=True,
                                      capture_output=True)
                found.append(float(done.stdout))
    return {"instructions": count, "first launch s": median(first), "launch from disk cache s": median(cached)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the figures to a file")
    args = parser.parse_args()
    if args.size % TILE:
        parser.error(f"--size must be a multiple of {TILE} (got {args.size})")
    figures = {**sgemm(args.size, args.repeat), **starts(3)}
    load = os.getloadavg()[0]
    print(f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {load:.1f}, "
          f"size {args.size}, medians of {args.repeat}")
    for name, value in figures.items():
        print(f"  {name:32} {value:,.3f}" if value < 1e6 else f"  {name:32} {value:.3e}")
    if args.json:
        args.json.write_text(json.dumps({"load": load, "size": args.size, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
