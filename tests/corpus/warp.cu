// Shuffles, votes and warp-wide reductions.  One warp per 32 consecutive elements; n is a multiple of the block size.
#include "common.cuh"

#define FULL 0xffffffffu

extern "C" __global__ void warp_shuffle(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], lane = threadIdx.x & 31;
    OUT(0, __shfl_sync(FULL, x, y & 31));
    OUT(1, __shfl_sync(FULL, x, 5));
    OUT(2, __shfl_up_sync(FULL, x, 3));
    OUT(3, __shfl_down_sync(FULL, x, 7));
    OUT(4, __shfl_xor_sync(FULL, x, 16));
    OUT(5, __shfl_sync(FULL, x, y, 8));
    OUT(6, __shfl_up_sync(FULL, x, 2, 16));
    OUT(7, __shfl_down_sync(FULL, x, 1, 4));
    OUT(8, __shfl_xor_sync(FULL, x, 3, 8));
    OUT(9, __shfl_up_sync(FULL, x, lane));
    OUT(10, __shfl_down_sync(FULL, x, y & 15));
    int r, p;
    asm("{.reg .pred q; shfl.sync.down.b32 %0|q, %2, %3, 0x1f, -1; selp.s32 %1, 1, 0, q;}"
        : "=r"(r), "=r"(p) : "r"(x), "r"(y & 31));
    OUT(11, r);
    OUT(12, p);
    asm("{.reg .pred q; shfl.sync.up.b32 %0|q, %2, %3, 0x0, -1; selp.s32 %1, 1, 0, q;}"
        : "=r"(r), "=r"(p) : "r"(x), "r"(y & 31));
    OUT(13, r);
    OUT(14, p);
    asm("{.reg .pred q; shfl.sync.bfly.b32 %0|q, %2, 9, 0x180f, -1; selp.s32 %1, 1, 0, q;}"
        : "=r"(r), "=r"(p) : "r"(x));
    OUT(15, r);
    OUT(16, p);
    asm("{.reg .pred q; shfl.sync.idx.b32 %0|q, %2, %3, 0x1807, -1; selp.s32 %1, 1, 0, q;}"
        : "=r"(r), "=r"(p) : "r"(x), "r"(y & 31));
    OUT(17, r);
    OUT(18, p);
    s64 w = (s64)x * 1000003 + y;
    w = __shfl_xor_sync(FULL, w, 21);
    OUT(19, (int)w);
    OUT(20, (int)(w >> 32));
    OUT(21, __float_as_int(__shfl_down_sync(FULL, __int_as_float(x & 0x3fffffff), 9)));
}

extern "C" __global__ void warp_vote(const int *a, const int *b, u32 *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i];
    OUT(0, __ballot_sync(FULL, x & 1));
    OUT(1, __any_sync(FULL, x > 0x70000000));
    OUT(2, __all_sync(FULL, x > -0x70000000));
    u32 p;
    asm("{.reg .pred q, r; setp.lt.s32 q, %1, 0; vote.sync.uni.pred r, q, -1; selp.u32 %0, 1, 0, r;}" : "=r"(p) : "r"(y));
    OUT(3, p);
    OUT(4, __popc(__ballot_sync(FULL, x < y)));
    // Votes in a diverged warp: each side sees its own lanes.
    u32 seen;
    if (y & 2) {
        u32 mask = __activemask();
        seen = __ballot_sync(mask, x < 0) ^ mask << 1;
    } else {
        u32 mask = __activemask();
        seen = __popc(mask) * 1000 + __any_sync(mask, x == y) + 2 * __all_sync(mask, x != 0);
    }
    OUT(5, seen);
    // Rank among lanes of the same parity.
    u32 odd = __ballot_sync(FULL, x & 1), lanes;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
    OUT(6, x & 1 ? __popc(odd & lanes) : __popc(~odd & lanes));
}

extern "C" __global__ void warp_reduce(const int *a, const float *b, int *out, float *single, int n)
{
    ELEMENT;
    int x = a[i], sum = x, low = x, bits = x;
    float f = b[i], top = b[i];
    for (int step = 16; step; step >>= 1) {
        sum += __shfl_xor_sync(FULL, sum, step);
        low = min(low, __shfl_xor_sync(FULL, low, step));
        bits ^= __shfl_down_sync(FULL, bits, step);
        f = __fadd_rn(f, __shfl_xor_sync(FULL, f, step));
        top = fmaxf(top, __shfl_xor_sync(FULL, top, step));
    }
    OUT(0, sum);
    OUT(1, low);
    OUT(2, __shfl_sync(FULL, bits, 0));
    int prefix = x, lane = threadIdx.x & 31;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(FULL, prefix, step);
        if (lane >= step) prefix += other;
    }
    OUT(3, prefix);
    single[i] = f;
    single[n + i] = top;
}

// Bitonic sort of 32 keys in a warp, values carried along.
extern "C" __global__ void warp_sort(const u32 *a, u32 *out, int n)
{
    ELEMENT;
    u32 key = a[i], value = i;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int size = 2; size <= 32; size *= 2)
#pragma unroll
        for (int step = size / 2; step; step /= 2) {
            u32 k = __shfl_xor_sync(FULL, key, step), v = __shfl_xor_sync(FULL, value, step);
            bool up = (lane & size) == 0, lower = (lane & step) == 0;
            bool less = k < key || (k == key && v < value);
            if (less == (up == lower)) key = k, value = v;
        }
    OUT(0, key);
    OUT(1, value);
}

// 32x32 bit-matrix transpose by ballots.
extern "C" __global__ void warp_transpose_bits(const u32 *a, u32 *out, int n)
{
    ELEMENT;
    u32 row = a[i], column = 0;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < 32; k++) {
        u32 ballot = __ballot_sync(FULL, row >> k & 1);
        if (lane == k) column = ballot;
    }
    out[i] = column;
}
