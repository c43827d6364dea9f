"""Translation to PTX, judged by the vendor's assembler here and by running it where there is a GPU (tests/gpu)."""

import pytest

from maxdnn import cubin
from maxdnn.emu.ptx import translate
from tests import oracles
from tests.corpus import cases, compiler

TARGETS = ("sm_52", "sm_70", "sm_80", "sm_90")

EVERY_SPACE = r"""
__constant__ float table[16];
__device__ int counter = 7;
extern "C" __global__ void spaces(float *a, const float4 *b, int n, const short *h) {
    __shared__ float near[64];
    extern __shared__ float far[];
    float local[16];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    near[threadIdx.x] = b[i].x * table[n & 15] + b[i].w;
    far[threadIdx.x] = h[i];
    for (int j = 0; j < 16; ++j) local[j] = near[(j * n) & 63];
    __syncthreads();
    for (int j = 0; j < n; ++j)
        if (i < n + j) a[i] = near[63 - threadIdx.x] + local[j & 15] + far[j] + __shfl_sync(~0u, a[j], 3);
    atomicAdd(&counter, __popc(__ballot_sync(~0u, i < n)));
    if (__syncthreads_or(i == n)) atomicMax((unsigned *)a, 5u);
}
"""

RECURSIVE = r"""
__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recurse(int *a) { a[threadIdx.x] = ackermann(1, threadIdx.x); }
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", [EVERY_SPACE, RECURSIVE], ids=["spaces", "recursion"])
def test_the_vendors_assembler_accepts_a_translation(source, target):
    text = translate(cubin.read(oracles.compile_cuda(source)), target)
    assert oracles.ptxas(text, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", sorted({case.source for case in cases.ALL}))
def test_the_vendors_assembler_accepts_the_whole_corpus(source, target):
    assert oracles.ptxas(translate(cubin.read(compiler.compile_source(source)), target), target)


def test_a_static_stack_leaves_no_stack_behind():
    text = translate(cubin.read(oracles.compile_cuda(EVERY_SPACE)), "sm_90")
    assert "brx" not in text
    assert text.count("bar.sync") >= 1


def test_lanes_in_step_are_brought_together_but_not_inside_a_paced_loop():
    store_then_load = r"""
    extern "C" __global__ void handed_on(float *a) {
        __shared__ volatile float s[64];
        s[threadIdx.x] = a[threadIdx.x];
        a[threadIdx.x] = s[threadIdx.x ^ 1];
    }"""
    paced = r"""
    extern "C" __global__ void paced(float *a, int n) {
        __shared__ volatile float s[2][64];
        float sum = 0;
        #pragma unroll 1
        for (int i = 0; i < n; ++i) {
            s[i & 1][threadIdx.x] = a[i * 64 + threadIdx.x];
            sum += s[~i & 1][threadIdx.x ^ 1];
            __syncthreads();
        }
        a[threadIdx.x] = sum;
    }"""
    texts = [translate(cubin.read(oracles.compile_cuda(source)), "sm_90") for source in (store_then_load, paced)]
    assert ["bar.warp.sync" in text for text in texts] == [True, False]


def test_symbols_keep_their_place_in_the_arrays():
    text = translate(cubin.read(oracles.compile_cuda(EVERY_SPACE)), "sm_90")
    assert "maxdnn_bank3[64]" in text
    assert "maxdnn_global_init[4] = {7}" in text
