// Global, local, constant and shared memory in every width; vector accesses; caching hints; generic addresses.
#include "common.cuh"

extern "C" __global__ void memory_vector(const int2 *a, const int4 *b, const double2 *c, int4 *out, double2 *wide, int n)
{
    ELEMENT;
    int2 x = a[i];
    int4 y = b[i];
    double2 z = c[i];
    OUT(0, make_int4(x.y, x.x, y.w, y.z));
    OUT(1, make_int4(y.x + x.x, y.y - x.y, y.z ^ x.x, y.w | x.y));
    wide[i] = make_double2(z.y, -z.x);
    ((int2 *)out)[2 * 2 * n + i] = make_int2(y.x, x.x);
    ((int2 *)out)[2 * 2 * n + n + i] = x;
    ((longlong2 *)out)[3 * n + i] = make_longlong2((s64)x.x * y.x, (s64)x.y * y.y);
}

extern "C" __global__ void memory_narrow(const s8 *a, const u8 *b, const short *c, const u16 *d, int *out, u8 *bytes, u16 *halves, int n)
{
    ELEMENT;
    OUT(0, a[i] + b[i]);
    OUT(1, a[i] * c[i]);
    OUT(2, b[i] * d[i] - c[i]);
    char4 q = ((const char4 *)a)[i / 4];
    OUT(3, q.x + 2 * q.y + 3 * q.z + 4 * q.w);
    ushort2 h = ((const ushort2 *)d)[i / 2];
    OUT(4, h.x * 3 + h.y);
    bytes[i] = (u8)(a[i] ^ d[i]);
    halves[i] = (u16)(c[i] + b[i]);
    ((s8 *)bytes)[n + i] = a[n - 1 - i];
    ((uchar2 *)(bytes + 2 * n))[i] = make_uchar2(b[i] >> 1, b[i] << 1);
}

extern "C" __global__ void memory_hints(const int *a, int *out, volatile int *scratch, int n)
{
    ELEMENT;
    int x = __ldg(&a[i]);
    int4 y = __ldg(&((const int4 *)a)[i / 4]);
    float2 f = __ldg(&((const float2 *)a)[i / 2]);
    OUT(0, x + y.x + y.w);
    OUT(1, __float_as_int(f.x) ^ __float_as_int(f.y));
    OUT(2, __ldcg(&a[n - 1 - i]));
    OUT(3, __ldcs(&a[i ^ 1]));
    OUT(4, __ldca(&a[i ^ 2]));
    OUT(5, __ldcv(&a[i ^ 3]));
    __stcg(&out[6 * n + i], x * 2);
    __stcs(&out[7 * n + i], x * 3);
    __stwt(&out[8 * n + i], x * 5);
    __stwb(&out[9 * n + i], x * 7);
    scratch[i] = x;
    scratch[i] = scratch[i] + 1;
    OUT(10, scratch[i]);
    OUT(11, __ldg((const s8 *)a + i) + __ldg((const u8 *)a + i) + __ldg((const short *)a + i) + __ldg((const u16 *)a + i));
    asm volatile("prefetch.global.L2 [%0];" :: "l"(a + i));
    OUT(12, x >= 0 ? a[(u32)x % n] : -1);
}

// One function reads through pointers to global, shared and local memory.
static __device__ __noinline__ int read_any(const int *p, int k) { return p[k & 7] * 3 + p[(k + 1) & 7]; }
extern "C" __global__ void memory_generic(const int *a, int *out, int n)
{
    __shared__ int shared[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 8) shared[threadIdx.x] = a[threadIdx.x] + 100;
    __syncthreads();
    if (i >= n) return;
    int local[8];
    for (int k = 0; k < 8; k++) local[(k + i) & 7] = a[k] - i;
    const int *p = i % 4 == 0 ? a : i % 4 == 1 ? shared : i % 4 == 2 ? local : a + 8;
    OUT(0, read_any(p, a[i]));
    OUT(1, __isGlobal(p) * 4 + __isShared(p) * 2 + __isLocal(p));
    int *w = i & 1 ? &local[i & 7] : &out[2 * n + i];
    *w = 77;
    if (i & 1) OUT(2, local[i & 7] + 1);
}

struct Packed { char tag; short small; int value; double wide; };
extern "C" __global__ void memory_struct(const Packed *a, Packed *out, Packed extra, int n)
{
    ELEMENT;
    Packed x = a[i], y;
    y.tag = x.tag + extra.tag;
    y.small = x.small * extra.small;
    y.value = x.value - extra.value;
    y.wide = __dmul_rn(x.wide, extra.wide);
    ((s64 *)&y)[0] |= 0;
    out[i].tag = y.tag;
    out[i].small = y.small;
    out[i].value = y.value;
    out[i].wide = y.wide;
}

// Global variables: initialised, zero, addressed by index, written and read across launches.
__device__ int global_counter = 17;
__device__ float global_table[16] = {0.5f, 1.5f, -2.0f, 3.25f};
__device__ int *global_pointer;
extern "C" __global__ void memory_globals_write(const int *a, int *out, int n)
{
    ELEMENT;
    if (i == 0) {
        global_counter += a[0];
        global_pointer = out + n;
    }
    if (i < 12) global_table[i + 4] = (float)(a[i] & 1023);
}
extern "C" __global__ void memory_globals_read(const int *a, int *out, int n)
{
    ELEMENT;
    OUT(0, global_counter + __float_as_int(global_table[a[i] & 15]));
    global_pointer[i] = a[i] + 1;
}

extern "C" __global__ void local_dynamic(const u32 *a, u32 *out, int n)
{
    ELEMENT;
    u32 table[32];
    for (int k = 0; k < 32; k++) table[k] = k * 0x9e3779b9u ^ a[i];
    u32 x = a[i];
    for (int k = 0; k < 64; k++) {
        u32 j = x & 31, t = table[j];
        table[j] = t * 5 + k;
        x = (x >> 5 | x << 27) ^ t;
    }
    OUT(0, x);
    OUT(1, table[x & 31] + table[x >> 5 & 31] * 2 + table[x >> 10 & 31] * 4);
    u8 bytes[64];
    short halves[32];
    double wide[4];
    for (int k = 0; k < 64; k++) bytes[k ^ (x & 63)] = (u8)(x >> (k & 7)) + k;
    for (int k = 0; k < 32; k++) halves[(k + x) & 31] = (short)(x * k);
    for (int k = 0; k < 4; k++) wide[(k ^ x) & 3] = (double)(k * 3 + 1);
    OUT(2, bytes[x >> 3 & 63] | bytes[x >> 9 & 63] << 8 | (u32)bytes[0] << 16);
    OUT(3, (u32)(int)halves[x >> 7 & 31]);
    OUT(4, (u32)wide[x >> 4 & 3]);
}

// Insertion sort and an explicit-stack quicksort of a private array.
extern "C" __global__ void local_sort(const int *a, int *out, int n)
{
    ELEMENT;
    int v[24], w[24], stack[24];
    for (int k = 0; k < 24; k++) v[k] = w[k] = a[(i * 24 + k) % n];
    for (int k = 1; k < 24; k++) {
        int key = v[k], j = k - 1;
        while (j >= 0 && v[j] > key) {
            v[j + 1] = v[j];
            j--;
        }
        v[j + 1] = key;
    }
    int top = 0;
    stack[top++] = 0;
    stack[top++] = 23;
    while (top > 0) {
        int high = stack[--top], low = stack[--top];
        if (low >= high) continue;
        int pivot = w[high], p = low;
        for (int k = low; k < high; k++)
            if (w[k] < pivot) {
                int t = w[k];
                w[k] = w[p];
                w[p++] = t;
            }
        w[high] = w[p];
        w[p] = pivot;
        if (p - 1 - low > high - p - 1) {
            stack[top++] = low, stack[top++] = p - 1, stack[top++] = p + 1, stack[top++] = high;
        } else {
            stack[top++] = p + 1, stack[top++] = high, stack[top++] = low, stack[top++] = p - 1;
        }
    }
    int checksum = 0, same = 1;
    for (int k = 0; k < 24; k++) {
        checksum = checksum * 31 + v[k];
        same &= v[k] == w[k];
    }
    OUT(0, checksum);
    OUT(1, same);
    OUT(2, v[i % 24]);
}

__constant__ int table32[64];
__constant__ s8 table8[64];
__constant__ u16 table16[32];
__constant__ double table64[16];
__constant__ float4 table128[8];
__constant__ float filled[6] = {1.0f, 0.5f, 0.25f, -3.0f, 1e10f, 7.0f};
extern "C" __global__ void constant_read(const int *a, int *out, float *single, double *wide, int n)
{
    ELEMENT;
    u32 x = a[i];
    OUT(0, table32[x & 63] + table32[5]);
    OUT(1, table8[x >> 6 & 63]);
    OUT(2, table16[x >> 12 & 31] * 3);
    OUT(3, table32[blockIdx.x & 63] * table32[threadIdx.x & 63]);
    wide[i] = __dadd_rn(table64[x & 15], table64[3]);
    float4 v = table128[x >> 2 & 7];
    single[i] = __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w));
    single[n + i] = __fmaf_rn(filled[x % 6], filled[1], filled[4]);
    single[2 * n + i] = __fmul_rn(table128[2].y, (float)(int)x);
    int sum = 0;
    for (int k = 0; k < 64; k++) sum = sum * 3 + table32[k] * (int)x;
    OUT(4, sum);
}
