// Barriers: whole block, named with counts, arrive without waiting, reductions; memory fences.
#include "common.cuh"

extern "C" __global__ void barrier_reduce(const int *a, int *out, int n)
{
    ELEMENT;
    int x = a[i];
    OUT(0, __syncthreads_count(x > 0));
    OUT(1, __syncthreads_and(x != 7) != 0);
    OUT(2, __syncthreads_or(x < -0x70000000) != 0);
    OUT(3, __syncthreads_count((x & 3) == (int)(threadIdx.x & 3)) * 2 + 1);
    int r;
    asm volatile("{.reg .pred p; setp.gt.s32 p, %1, 100; bar.red.popc.u32 %0, 3, 128, p;}" : "=r"(r) : "r"(x));
    OUT(4, r);
}

// Two warps produce, two consume, through barriers 1 (full) and 2 (empty) with 128 threads each.
extern "C" __global__ void barrier_producer(const int *a, int *out, int n)
{
    __shared__ int buffer[64];
    int t = threadIdx.x, base = blockIdx.x * 512;
    if (t < 64) {
        for (int k = 0; k < 8; k++) {
            buffer[t] = a[base + k * 64 + t] * 3 + k;
            asm volatile("membar.cta; bar.arrive 1, 128;" ::: "memory");
            asm volatile("bar.sync 2, 128;" ::: "memory");
        }
    } else {
        for (int k = 0; k < 8; k++) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            int value = buffer[127 - t];
            asm volatile("membar.cta; bar.arrive 2, 128;" ::: "memory");
            out[base + k * 64 + t - 64] = value;
        }
    }
}

// Pairs of warps exchange halves through one barrier per pair; barrier number in a register.
extern "C" __global__ void barrier_pairs(const int *a, int *out, int n)
{
    __shared__ int half[256];
    int t = threadIdx.x, pair = t / 64 + 1;
    ELEMENT;
    half[t] = a[i];
    asm volatile("bar.sync %0, 64;" :: "r"(pair) : "memory");
    int other = half[t ^ 32];
    asm volatile("bar.sync %0, %1;" :: "r"(pair + 4), "r"(64) : "memory");
    half[t] = other + 1;
    __syncthreads();
    out[i] = half[255 - t];
}

// The last block to finish adds up what the others wrote (threadfence reduction).
__device__ unsigned int blocks_done;
extern "C" __global__ void barrier_fence(const int *a, int *partial, int *out, int n)
{
    __shared__ int sums[128];
    __shared__ bool last;
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    sums[t] = i < n ? a[i] : 0;
    __syncthreads();
    for (int s = 64; s; s >>= 1) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = sums[0];
        __threadfence();
        last = atomicAdd(&blocks_done, 1) == gridDim.x - 1;
        __threadfence_system();
    }
    __syncthreads();
    if (last && t == 0) {
        int total = 0;
        for (int k = 0; k < gridDim.x; k++) total += ((volatile int *)partial)[k];
        out[0] = total;
    }
}
