// Atomics on global and shared memory, 32 and 64 bits, with and without the old value.
#include "common.cuh"

// Every thread touches slot (key mod 16); results do not depend on the order of threads.
extern "C" __global__ void atomic_global32(const int *a, const u32 *key, int *slots, int n)
{
    ELEMENT;
    int x = a[i];
    u32 k = key[i] & 15;
    atomicAdd(&slots[0 * 16 + k], x);
    atomicSub(&slots[1 * 16 + k], x);
    atomicMin(&slots[2 * 16 + k], x);
    atomicMax(&slots[3 * 16 + k], x);
    atomicMin((u32 *)&slots[4 * 16 + k], (u32)x);
    atomicMax((u32 *)&slots[5 * 16 + k], (u32)x);
    atomicAnd(&slots[6 * 16 + k], x | 0x0f0f0f0f);
    atomicOr(&slots[7 * 16 + k], x & 0x11111111);
    atomicXor(&slots[8 * 16 + k], x);
    atomicInc((u32 *)&slots[9 * 16 + k], 37);
    atomicDec((u32 *)&slots[10 * 16 + k], 41);
    // An exclusive owner through CAS: exactly one thread sees the first value.
    if (atomicCAS(&slots[11 * 16 + k], -1, 1234) == -1) atomicAdd(&slots[12 * 16 + k], 1);
    // A CAS loop: multiply by 3 and add 1, once per thread.
    int old = slots[13 * 16 + k], assumed;
    do {
        assumed = old;
        old = atomicCAS(&slots[13 * 16 + k], assumed, assumed * 3 + 1);
    } while (old != assumed);
    // Exchange: one slot per thread.
    slots[14 * 16 + 16 + i] = atomicExch(&slots[14 * 16 + 16 + n + i], x);
}

extern "C" __global__ void atomic_global64(const s64 *a, const u32 *key, u64 *slots, int n)
{
    ELEMENT;
    s64 x = a[i];
    u32 k = key[i] & 15;
    atomicAdd(&slots[0 * 16 + k], (u64)x);
    atomicMin((s64 *)&slots[1 * 16 + k], x);
    atomicMax((s64 *)&slots[2 * 16 + k], x);
    atomicMin(&slots[3 * 16 + k], (u64)x);
    atomicMax(&slots[4 * 16 + k], (u64)x);
    atomicAnd(&slots[5 * 16 + k], (u64)x | 0xff00ff00ff00ffull);
    atomicOr(&slots[6 * 16 + k], (u64)x & 0x1111000011110000ull);
    atomicXor(&slots[7 * 16 + k], (u64)x);
    u64 old = slots[8 * 16 + k], assumed;
    do {
        assumed = old;
        old = atomicCAS(&slots[8 * 16 + k], assumed, assumed * 5 + 3);
    } while (old != assumed);
    slots[9 * 16 + i] = atomicExch(&slots[9 * 16 + n + i], (u64)x);
}

// Old values: the tickets that a counter hands out are a permutation; here each thread marks its ticket.
extern "C" __global__ void atomic_ticket(const u32 *key, u32 *counters, u32 *marks, int n)
{
    ELEMENT;
    u32 t = atomicAdd(&counters[0], 1);
    marks[t] += 1;
    u32 u = atomicInc(&counters[1], 99);
    atomicAdd(&marks[n + u], 1);
    u32 v = atomicDec(&counters[2], 49);
    atomicAdd(&marks[n + 100 + v], 1);
    u32 before = atomicOr(&counters[3 + (key[i] & 7)], 1u << (i & 31));
    if (!(before >> (i & 31) & 1)) atomicAdd(&marks[n + 150], 1);
    u32 max_before = atomicMax(&counters[11], i);
    if (max_before > (u32)n) atomicAdd(&marks[n + 151], 1);
}

// Sums of small integers are exact in float, so the order does not matter.
extern "C" __global__ void atomic_float(const float *a, const u32 *key, float *slots, double *wide, int n)
{
    __shared__ float local[8];
    if (threadIdx.x < 8) local[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&slots[key[i] & 7], a[i]);
        atomicAdd(&local[key[i] >> 3 & 7], a[i]);
        // Double precision through a CAS loop, as sm_52 has no native one.
        u64 *address = (u64 *)&wide[key[i] & 3], old = *address, assumed;
        do {
            assumed = old;
            old = atomicCAS(address, assumed, (u64)__double_as_longlong(__dadd_rn(__longlong_as_double(assumed), (double)a[i])));
        } while (assumed != old);
    }
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&slots[8 + threadIdx.x], local[threadIdx.x]);
}

extern "C" __global__ void atomic_shared32(const int *a, const u32 *key, int *out, int n)
{
    __shared__ int slots[12][16];
    int t = threadIdx.x;
    if (t < 16)
        for (int r = 0; r < 12; r++) slots[r][t] = r == 2 || r == 4 || r == 6 ? (r == 2 ? 0x7fffffff : -1) : r == 3 ? (int)0x80000000 : 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + t;
    if (i < n) {
        int x = a[i];
        u32 k = key[i] & 15;
        atomicAdd(&slots[0][k], x);
        atomicSub(&slots[1][k], x);
        atomicMin(&slots[2][k], x);
        atomicMax(&slots[3][k], x);
        atomicMin((u32 *)&slots[4][k], (u32)x);
        atomicMax((u32 *)&slots[5][k], (u32)x);
        atomicAnd(&slots[6][k], x | 0x0f0f0f0f);
        atomicOr(&slots[7][k], x & 0x11111111);
        atomicXor(&slots[8][k], x);
        atomicInc((u32 *)&slots[9][k], 17);
        atomicDec((u32 *)&slots[10][k], 21);
        int old = slots[11][k], assumed;
        do {
            assumed = old;
            old = atomicCAS(&slots[11][k], assumed, assumed * 7 + 1);
        } while (old != assumed);
    }
    __syncthreads();
    if (t < 16)
        for (int r = 0; r < 12; r++) out[(blockIdx.x * 12 + r) * 16 + t] = slots[r][t];
}

extern "C" __global__ void atomic_shared64(const s64 *a, const u32 *key, u64 *out, int n)
{
    __shared__ u64 slots[6][8];
    int t = threadIdx.x;
    if (t < 48) slots[t / 8][t % 8] = t / 8 == 1 ? ~0ull : t / 8 == 2 ? 0x8000000000000000ull : 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + t;
    if (i < n) {
        s64 x = a[i];
        u32 k = key[i] & 7;
        atomicAdd(&slots[0][k], (u64)x);
        atomicMin(&slots[1][k], (u64)x);
        atomicMax((s64 *)&slots[2][k], x);
        atomicXor(&slots[3][k], (u64)x);
        atomicOr(&slots[4][k], (u64)x & 0x0101010101010101ull);
        u64 old = slots[5][k], assumed;
        do {
            assumed = old;
            old = atomicCAS(&slots[5][k], assumed, assumed * 9 + 1);
        } while (old != assumed);
    }
    __syncthreads();
    if (t < 48) out[blockIdx.x * 48 + t] = slots[t / 8][t % 8];
}

// Explicit reductions and the generic address forms.
extern "C" __global__ void atomic_ptx(const int *a, const u32 *key, int *slots, int n)
{
    __shared__ int local[4];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t < 4) local[t] = 0;
    __syncthreads();
    if (i < n) {
        int x = a[i];
        int *p = &slots[key[i] & 3];
        asm volatile("red.global.add.s32 [%0], %1;" :: "l"(__cvta_generic_to_global(p)), "r"(x) : "memory");
        asm volatile("red.global.max.s32 [%0+16], %1;" :: "l"(__cvta_generic_to_global(p)), "r"(x) : "memory");
        asm volatile("red.global.xor.b32 [%0+32], %1;" :: "l"(__cvta_generic_to_global(p)), "r"(x) : "memory");
        asm volatile("red.global.min.u64 [%0], %1;" :: "l"(__cvta_generic_to_global(slots + 12 + 2 * (key[i] & 3))), "l"((u64)(u32)x << 8 | 5) : "memory");
        int old;
        asm volatile("atom.global.add.s32 %0, [%1+80], %2;" : "=r"(old) : "l"(__cvta_generic_to_global(p)), "r"(x & 255) : "memory");
        // A pointer that may be either space.
        int *either = (key[i] & 4) ? &local[key[i] & 3] : &slots[24 + (key[i] & 3)];
        atomicAdd(either, (x & 7) + (old < 0));
    }
    __syncthreads();
    if (t < 4) atomicAdd(&slots[28 + t], local[t]);
}
