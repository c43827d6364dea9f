// Special registers, 3D grids and blocks, clocks.
#include "common.cuh"

// Launched with a 3D grid of 3D blocks; row k of out has one element per thread of the whole grid.
extern "C" __global__ void special_indices(int *out, int n)
{
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    OUT(0, threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16);
    OUT(1, blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16);
    OUT(2, blockDim.x | blockDim.y << 8 | blockDim.z << 16);
    OUT(3, gridDim.x | gridDim.y << 8 | gridDim.z << 16);
    u32 lane, eq, lt, le, gt, ge;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(le));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(gt));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
    OUT(4, lane);
    OUT(5, eq);
    OUT(6, lt);
    OUT(7, le);
    OUT(8, gt);
    OUT(9, ge);
    OUT(10, warpSize);
    u32 shared;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(shared));
    OUT(11, shared);
}

// Clocks advance; the flags say so, whatever the values.
extern "C" __global__ void special_clock(const int *a, int *out, int n)
{
    ELEMENT;
    u32 before = clock(), smid, warpid, nsmid;
    s64 wide = clock64();
    int x = a[i];
    for (int k = 0; k < 20; k++) x = x * 1664525 + 1013904223;
    s64 later = clock64();
    u32 after = clock();
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsmid));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warpid));
    OUT(0, x);
    OUT(1, (int)(after - before) > 0);
    OUT(2, later > wide);
    OUT(3, smid < nsmid);
    OUT(4, warpid < 64);
}
