// The full-size programs: tiled SGEMM, scan, radix sort, histogram, Mandelbrot, N-body, 3D stencil.
#include "common.cuh"

// C (m x n) = A (m x k) B (k x n), row major, sizes multiples of 64 (k of 16).  A block of 16 x 16 threads computes a
// 64 x 64 tile, each thread 4 x 4, through double-buffered shared tiles of depth 16.
extern "C" __global__ void __launch_bounds__(256) program_sgemm(const float *a, const float *b, float *c, int m, int n, int k)
{
    __shared__ float as[2][16][64], bs[2][16][64];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    int load_row = threadIdx.x >> 2, load_k = (threadIdx.x & 3) * 4;
    int load_depth = threadIdx.x >> 4, load_column = (threadIdx.x & 15) * 4;
    const float *pa = a + (row + load_row) * k + load_k;
    const float *pb = b + load_depth * n + column + load_column;
    float acc[4][4] = {};
    float4 va = *(const float4 *)pa, vb = *(const float4 *)pb;
    int stage = 0;
    for (int base = 0; base < k; base += 16) {
        as[stage][load_k + 0][load_row] = va.x;
        as[stage][load_k + 1][load_row] = va.y;
        as[stage][load_k + 2][load_row] = va.z;
        as[stage][load_k + 3][load_row] = va.w;
        *(float4 *)&bs[stage][load_depth][load_column] = vb;
        __syncthreads();
        if (base + 16 < k) {
            pa += 16;
            pb += 16 * n;
            va = *(const float4 *)pa;
            vb = *(const float4 *)pb;
        }
#pragma unroll
        for (int d = 0; d < 16; d++) {
            float4 x = *(const float4 *)&as[stage][d][ty * 4], y = *(const float4 *)&bs[stage][d][tx * 4];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int p = 0; p < 4; p++)
#pragma unroll
                for (int q = 0; q < 4; q++) acc[p][q] = __fmaf_rn(xs[p], ys[q], acc[p][q]);
        }
        stage ^= 1;
    }
    for (int p = 0; p < 4; p++)
        *(float4 *)&c[(row + ty * 4 + p) * n + column + tx * 4] = make_float4(acc[p][0], acc[p][1], acc[p][2], acc[p][3]);
}

// Exclusive scan of one block of 1024 elements by 256 threads; block totals go to sums.
extern "C" __global__ void program_scan_blocks(const u32 *in, u32 *out, u32 *sums, int n)
{
    __shared__ u32 warp_sums[8];
    int t = threadIdx.x, base = blockIdx.x * 1024 + t * 4;
    uint4 v = base + 3 < n ? *(const uint4 *)&in[base] : make_uint4(0, 0, 0, 0);
    u32 local = v.x + v.y + v.z + v.w, inclusive = local;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(0xffffffffu, inclusive, step);
        if ((t & 31) >= step) inclusive += other;
    }
    if ((t & 31) == 31) warp_sums[t >> 5] = inclusive;
    __syncthreads();
    if (t < 8) {
        u32 s = warp_sums[t];
#pragma unroll
        for (int step = 1; step < 8; step *= 2) {
            u32 other = __shfl_up_sync(0xffu, s, step, 8);
            if (t >= step) s += other;
        }
        warp_sums[t] = s;
        if (t == 7) sums[blockIdx.x] = s;
    }
    __syncthreads();
    u32 before = inclusive - local + (t >= 32 ? warp_sums[(t >> 5) - 1] : 0);
    if (base + 3 < n) *(uint4 *)&out[base] = make_uint4(before, before + v.x, before + v.x + v.y, before + v.x + v.y + v.z);
}
extern "C" __global__ void program_scan_add(u32 *out, const u32 *sums, int n)
{
    int i = blockIdx.x * 1024 + threadIdx.x * 4;
    u32 s = sums[blockIdx.x];
    if (i + 3 < n) {
        uint4 v = *(uint4 *)&out[i];
        *(uint4 *)&out[i] = make_uint4(v.x + s, v.y + s, v.z + s, v.w + s);
    }
}

// One pass of a stable radix sort, 4 bits a digit.  Counts are laid out digit-major for one scan over all blocks.
extern "C" __global__ void program_radix_count(const u32 *keys, u32 *counts, int shift, int n)
{
    __shared__ u32 local[16];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    if (t < 16) local[t] = 0;
    __syncthreads();
    if (i < n) atomicAdd(&local[keys[i] >> shift & 15], 1);
    __syncthreads();
    if (t < 16) counts[t * gridDim.x + blockIdx.x] = local[t];
}
extern "C" __global__ void program_radix_scatter(const u32 *keys, const u32 *values, u32 *keys_out, u32 *values_out, const u32 *offsets, int shift, int n)
{
    __shared__ u32 warp_counts[8][16];
    int t = threadIdx.x, warp = t >> 5, i = blockIdx.x * 256 + t;
    if (t < 128) ((u32 *)warp_counts)[t] = 0;
    __syncthreads();
    u32 key = i < n ? keys[i] : 0xffffffffu, digit = key >> shift & 15, below;
    u32 peers = __ballot_sync(0xffffffffu, i < n);
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
#pragma unroll
    for (int bit = 0; bit < 4; bit++) {
        u32 set = __ballot_sync(0xffffffffu, digit >> bit & 1);
        peers &= digit >> bit & 1 ? set : ~set;
    }
    u32 rank = __popc(peers & below);
    if (i < n && rank == 0) warp_counts[warp][digit] = __popc(peers);
    __syncthreads();
    if (i < n) {
        for (int w = 0; w < warp; w++) rank += warp_counts[w][digit];
        u32 target = offsets[digit * gridDim.x + blockIdx.x] + rank;
        keys_out[target] = key;
        values_out[target] = values[i];
    }
}

extern "C" __global__ void program_histogram(const uchar4 *data, u32 *bins, int n)
{
    __shared__ u32 local[2][256];
    int t = threadIdx.x;
    for (int k = t; k < 512; k += blockDim.x) ((u32 *)local)[k] = 0;
    __syncthreads();
    u32 *mine = local[t >> 5 & 1];
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) {
        uchar4 v = data[i];
        atomicAdd(&mine[v.x], 1);
        atomicAdd(&mine[v.y], 1);
        atomicAdd(&mine[v.z], 1);
        atomicAdd(&mine[v.w], 1);
    }
    __syncthreads();
    for (int k = t; k < 256; k += blockDim.x) atomicAdd(&bins[k], local[0][k] + local[1][k]);
}

// Escape counts; the operation order is fixed so that the count is exact.
extern "C" __global__ void program_mandelbrot(u16 *counts, int width, int height, float left, float top, float step, int limit)
{
    int px = blockIdx.x * 16 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y;
    if (px >= width || py >= height) return;
    float cx = __fmaf_rn((float)px, step, left), cy = __fmaf_rn((float)py, step, top), x = 0, y = 0;
    int count = 0;
    while (count < limit) {
        float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) > 4.0f) break;
        y = __fmaf_rn(__fadd_rn(x, x), y, cy);
        x = __fadd_rn(__fsub_rn(xx, yy), cx);
        count++;
    }
    counts[py * width + px] = (u16)count;
}

// One step of N bodies with softening; positions in float4 (mass in w), tiles of 128 through shared memory.
extern "C" __global__ void program_nbody(const float4 *position, const float4 *velocity, float4 *position_out, float4 *velocity_out, float dt, int n)
{
    __shared__ float4 tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    float4 p = position[i];
    float ax = 0, ay = 0, az = 0;
    for (int base = 0; base < n; base += 128) {
        tile[threadIdx.x] = position[base + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 128; j++) {
            float4 q = tile[j];
            float dx = __fsub_rn(q.x, p.x), dy = __fsub_rn(q.y, p.y), dz = __fsub_rn(q.z, p.z);
            float r2 = __fmaf_rn(dx, dx, __fmaf_rn(dy, dy, __fmaf_rn(dz, dz, 0.01f)));
            float inverse = rsqrtf(r2);
            float s = __fmul_rn(q.w, __fmul_rn(inverse, __fmul_rn(inverse, inverse)));
            ax = __fmaf_rn(dx, s, ax);
            ay = __fmaf_rn(dy, s, ay);
            az = __fmaf_rn(dz, s, az);
        }
        __syncthreads();
    }
    float4 v = velocity[i];
    v.x = __fmaf_rn(ax, dt, v.x);
    v.y = __fmaf_rn(ay, dt, v.y);
    v.z = __fmaf_rn(az, dt, v.z);
    velocity_out[i] = v;
    position_out[i] = make_float4(__fmaf_rn(v.x, dt, p.x), __fmaf_rn(v.y, dt, p.y), __fmaf_rn(v.z, dt, p.z), p.w);
}

// 3D stencil of radius 2 (13 points), marching in z with a register queue and a shared plane with halo; zero border.
extern "C" __global__ void program_stencil(const float *in, float *out, int nx, int ny, int nz, float c0, float c1, float c2)
{
    __shared__ float plane[12][36];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 32 + tx, y = blockIdx.y * 8 + ty, area = nx * ny;
    auto at = [&](int px, int py, int pz) {
        return px >= 0 && px < nx && py >= 0 && py < ny && pz >= 0 && pz < nz ? in[pz * area + py * nx + px] : 0.0f;
    };
    float m2 = 0, m1 = 0, here = at(x, y, 0), p1 = at(x, y, 1), p2 = at(x, y, 2);
    for (int z = 0; z < nz; z++) {
        plane[ty + 2][tx + 2] = here;
        if (tx < 2) {
            plane[ty + 2][tx] = at(x - 2, y, z);
            plane[ty + 2][tx + 34] = at(x + 32, y, z);
        }
        if (ty < 2) {
            plane[ty][tx + 2] = at(x, y - 2, z);
            plane[ty + 10][tx + 2] = at(x, y + 8, z);
        }
        __syncthreads();
        float near = __fadd_rn(__fadd_rn(__fadd_rn(plane[ty + 2][tx + 1], plane[ty + 2][tx + 3]),
                                         __fadd_rn(plane[ty + 1][tx + 2], plane[ty + 3][tx + 2])), __fadd_rn(m1, p1));
        float far = __fadd_rn(__fadd_rn(__fadd_rn(plane[ty + 2][tx], plane[ty + 2][tx + 4]),
                                        __fadd_rn(plane[ty][tx + 2], plane[ty + 4][tx + 2])), __fadd_rn(m2, p2));
        if (x < nx && y < ny) out[z * area + y * nx + x] = __fmaf_rn(c2, far, __fmaf_rn(c1, near, __fmul_rn(c0, here)));
        __syncthreads();
        m2 = m1, m1 = here, here = p1, p1 = p2, p2 = at(x, y, z + 3);
    }
}
