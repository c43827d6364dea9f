// Floating-point programs with a fixed order of operations: transforms, filters, sparse products, geometry.
#include "common.cuh"

// 8x8 discrete cosine transform (type II, orthogonal) of one block of the image per thread row: separable, coefficients
// in constant memory, columns through shared memory.
__constant__ float dct_matrix[8][8];
extern "C" __global__ void transform_dct8(const float *image, float *out, int width)
{
    __shared__ float tile[8][8][9];
    int block = threadIdx.z, x = threadIdx.x, y = threadIdx.y, left = (blockIdx.x * 8 + block) * 8, top = blockIdx.y * 8;
    tile[block][y][x] = image[(top + y) * width + left + x];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum = __fmaf_rn(dct_matrix[x][k], tile[block][y][k], sum);
    __syncthreads();
    tile[block][y][x] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum = __fmaf_rn(dct_matrix[y][k], tile[block][k][x], sum);
    out[(top + y) * width + left + x] = sum;
}

// 32-point radix-2 FFT per thread in registers, twiddles from constant memory, decimation in time.
__constant__ float2 twiddle[16];
extern "C" __global__ void transform_fft32(const float2 *a, float2 *out, int n)
{
    ELEMENT;
    float2 v[32];
#pragma unroll
    for (int k = 0; k < 32; k++) v[k] = a[i * 32 + (__brev(k) >> 27)];
#pragma unroll
    for (int half = 1; half < 32; half *= 2)
#pragma unroll
        for (int k = 0; k < 16; k++) {
            int low = (k & ~(half - 1)) * 2 + (k & (half - 1)), high = low + half;
            float2 w = twiddle[(k & (half - 1)) * (16 / half)], x = v[high], y = v[low];
            float re = __fmaf_rn(w.x, x.x, -__fmul_rn(w.y, x.y)), im = __fmaf_rn(w.x, x.y, __fmul_rn(w.y, x.x));
            v[low] = make_float2(__fadd_rn(y.x, re), __fadd_rn(y.y, im));
            v[high] = make_float2(__fsub_rn(y.x, re), __fsub_rn(y.y, im));
        }
#pragma unroll
    for (int k = 0; k < 32; k++) OUT(k, v[k]);
}

// Fast Walsh-Hadamard transform of 512 values in shared memory.
extern "C" __global__ void transform_walsh(const float *a, float *out, int n)
{
    __shared__ float v[512];
    int t = threadIdx.x;
    v[t] = a[blockIdx.x * 512 + t], v[t + 256] = a[blockIdx.x * 512 + t + 256];
    for (int half = 1; half < 512; half *= 2) {
        __syncthreads();
        int low = (t & ~(half - 1)) * 2 + (t & (half - 1));
        float x = v[low], y = v[low + half];
        v[low] = __fadd_rn(x, y);
        v[low + half] = __fsub_rn(x, y);
    }
    __syncthreads();
    out[blockIdx.x * 512 + t] = v[t], out[blockIdx.x * 512 + t + 256] = v[t + 256];
}

// 5x5 filter with clamped borders, weights in constant memory.
__constant__ float weights[25];
extern "C" __global__ void filter_5x5(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0;
#pragma unroll
    for (int dy = -2; dy <= 2; dy++)
#pragma unroll
        for (int dx = -2; dx <= 2; dx++)
            sum = __fmaf_rn(weights[(dy + 2) * 5 + dx + 2], in[min(max(y + dy, 0), height - 1) * width + min(max(x + dx, 0), width - 1)], sum);
    out[y * width + x] = sum;
}

// 3x3 median by a sorting network.
extern "C" __global__ void filter_median(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= width || y >= height) return;
    float v[9];
#pragma unroll
    for (int k = 0; k < 9; k++) v[k] = in[(y + k / 3) % height * width + (x + k % 3) % width];
#define SORT(p, q) { float t = fminf(v[p], v[q]); v[q] = fmaxf(v[p], v[q]); v[p] = t; }
    SORT(1, 2) SORT(4, 5) SORT(7, 8) SORT(0, 1) SORT(3, 4) SORT(6, 7) SORT(1, 2) SORT(4, 5) SORT(7, 8)
    SORT(0, 3) SORT(5, 8) SORT(4, 7) SORT(3, 6) SORT(1, 4) SORT(2, 5) SORT(4, 7) SORT(4, 2) SORT(6, 4) SORT(4, 2)
    out[y * width + x] = v[4];
}

// Sparse matrix times vector, rows in CSR, one warp per row; double-precision sums of exact products.
extern "C" __global__ void sparse_product(const int *start, const int *column, const float *value, const float *x, double *out, int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (row >= rows) return;
    double sum = 0;
    for (int k = start[row] + lane; k < start[row + 1]; k += 32) sum = __fma_rn((double)value[k], (double)x[column[k]], sum);
#pragma unroll
    for (int step = 16; step; step /= 2) sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, step));
    if (lane == 0) out[row] = sum;
}

extern "C" __global__ void matrix_transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int k = 0; k < 32; k += 8)
        if (x < width && y + k < height) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
#pragma unroll
    for (int k = 0; k < 32; k += 8)
        if (x < height && y + k < width) out[(y + k) * height + x] = tile[threadIdx.x][threadIdx.y + k];
}

// LU factors of an 8x8 matrix per thread, in registers, without pivoting; then one triangular solve.
extern "C" __global__ void matrix_lu8(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float m[8][8], x[8];
#pragma unroll
    for (int r = 0; r < 8; r++) {
#pragma unroll
        for (int c = 0; c < 8; c++) m[r][c] = a[i * 64 + r * 8 + c];
        x[r] = b[i * 8 + r];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float pivot = __frcp_rn(m[k][k]);
#pragma unroll
        for (int r = k + 1; r < 8; r++) {
            float f = __fmul_rn(m[r][k], pivot);
            x[r] = __fmaf_rn(-f, x[k], x[r]);
#pragma unroll
            for (int c = k + 1; c < 8; c++) m[r][c] = __fmaf_rn(-f, m[k][c], m[r][c]);
        }
    }
#pragma unroll
    for (int k = 7; k >= 0; k--) {
#pragma unroll
        for (int c = k + 1; c < 8; c++) x[k] = __fmaf_rn(-m[k][c], x[c], x[k]);
        x[k] = __fdiv_rn(x[k], m[k][k]);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) OUT(k, x[k]);
}

// First hit of a ray with a list of spheres: roots with square roots and divisions, divergent early outs.
extern "C" __global__ void geometry_rays(const float4 *origin, const float4 *direction, const float4 *spheres, int count, float *out, int *hit, int n)
{
    ELEMENT;
    float4 o = origin[i], d = direction[i];
    float best = 1e30f;
    int which = -1;
    float a = __fmaf_rn(d.x, d.x, __fmaf_rn(d.y, d.y, __fmul_rn(d.z, d.z)));
    for (int k = 0; k < count; k++) {
        float4 s = spheres[k];
        float x = __fsub_rn(o.x, s.x), y = __fsub_rn(o.y, s.y), z = __fsub_rn(o.z, s.z);
        float h = __fmaf_rn(x, d.x, __fmaf_rn(y, d.y, __fmul_rn(z, d.z)));
        float c = __fmaf_rn(x, x, __fmaf_rn(y, y, __fmaf_rn(z, z, -__fmul_rn(s.w, s.w))));
        float q = __fmaf_rn(h, h, -__fmul_rn(a, c));
        if (q < 0) continue;
        float root = __fsqrt_rn(q), t = __fdiv_rn(__fsub_rn(-h, root), a);
        if (t < 0.001f) t = __fdiv_rn(__fadd_rn(-h, root), a);
        if (t < 0.001f || t >= best) continue;
        best = t;
        which = k;
    }
    out[i] = best;
    hit[i] = which;
}

// Double-single arithmetic: sum and product of pairs of floats with error-free transformations.
extern "C" __global__ void double_single(const float2 *a, const float2 *b, float2 *out, int n)
{
    ELEMENT;
    float2 x = a[i], y = b[i];
    float s = __fadd_rn(x.x, y.x), v = __fsub_rn(s, x.x);
    float e = __fadd_rn(__fsub_rn(y.x, v), __fsub_rn(x.x, __fsub_rn(s, v)));
    e = __fadd_rn(e, __fadd_rn(x.y, y.y));
    float high = __fadd_rn(s, e);
    OUT(0, make_float2(high, __fsub_rn(e, __fsub_rn(high, s))));
    float p = __fmul_rn(x.x, y.x), f = __fmaf_rn(x.x, y.x, -p);
    f = __fmaf_rn(x.x, y.y, __fmaf_rn(x.y, y.x, f));
    high = __fadd_rn(p, f);
    OUT(1, make_float2(high, __fsub_rn(f, __fsub_rn(high, p))));
}
