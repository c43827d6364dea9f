// Transposes and matrix products.

extern "C" __global__ void transpose_naive(const float *a, float *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    b[x * n + y] = a[y * n + x];
}

template <int WIDTH> static __device__ void transposed(const float *a, float *b, int n) {
    __shared__ float tile[32][WIDTH];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = a[(y + k) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) b[(y + k) * n + x] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void transpose_tiled(const float *a, float *b, int n) {
    transposed<32>(a, b, n);
}

extern "C" __global__ void transpose_padded(const float *a, float *b, int n) {
    transposed<33>(a, b, n);
}

extern "C" __global__ void product_naive(const float *a, const float *b, float *c, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float s = 0;
    for (int k = 0; k < n; k++) s += a[y * n + k] * b[k * n + x];
    c[y * n + x] = s;
}

template <class T, int N> static __device__ void tiled(const T *a, const T *b, T *c, int n) {
    __shared__ T p[N][N], q[N][N];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * N + tx, y = blockIdx.y * N + ty;
    T s = 0;
    for (int k0 = 0; k0 < n; k0 += N) {
        p[ty][tx] = a[y * n + k0 + tx];
        q[ty][tx] = b[(k0 + ty) * n + x];
        __syncthreads();
        for (int k = 0; k < N; k++) s += p[ty][k] * q[k][tx];
        __syncthreads();
    }
    c[y * n + x] = s;
}

extern "C" __global__ void product_16(const float *a, const float *b, float *c, int n) { tiled<float, 16>(a, b, c, n); }
extern "C" __global__ void product_32(const float *a, const float *b, float *c, int n) { tiled<float, 32>(a, b, c, n); }
extern "C" __global__ void product_double(const double *a, const double *b, double *c, int n) {
    tiled<double, 16>(a, b, c, n);
}

// A tile of 64 x 64 a block of 256 threads, 4 x 4 a thread.
extern "C" __global__ void product_blocked(const float *a, const float *b, float *c, int n) {
    __shared__ float p[16][68], q[16][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, x0 = blockIdx.x * 64, y0 = blockIdx.y * 64;
    float s[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        float4 u = *(const float4 *)(a + (y0 + t / 4) * n + k0 + t % 4 * 4);
        p[t % 4 * 4][t / 4] = u.x, p[t % 4 * 4 + 1][t / 4] = u.y, p[t % 4 * 4 + 2][t / 4] = u.z;
        p[t % 4 * 4 + 3][t / 4] = u.w;
        *(float4 *)&q[ty][tx * 4] = *(const float4 *)(b + (k0 + ty) * n + x0 + tx * 4);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            float4 f = *(float4 *)&p[k][ty * 4], g = *(float4 *)&q[k][tx * 4];
            float fs[4] = {f.x, f.y, f.z, f.w}, gs[4] = {g.x, g.y, g.z, g.w};
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) s[i][j] += fs[i] * gs[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        *(float4 *)(c + (y0 + ty * 4 + i) * n + x0 + tx * 4) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
}

static __device__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
}

// The same sums with tiles that cp.async brings, two ahead.
extern "C" __global__ void product_pipelined(const float *a, const float *b, float *c, int n) {
    __shared__ __align__(16) float p[3][64][20], q[3][16][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, x0 = blockIdx.x * 64, y0 = blockIdx.y * 64, tiles = n / 16;
    float s[4][4] = {};
    for (int k = 0; k < tiles + 2; k++) {
        if (k < tiles) {
            copy16(&p[k % 3][t / 4][t % 4 * 4], a + (y0 + t / 4) * n + k * 16 + t % 4 * 4);
            copy16(&q[k % 3][ty][tx * 4], b + (k * 16 + ty) * n + x0 + tx * 4);
        }
        asm volatile("cp.async.commit_group;");
        if (k < 2) continue;
        asm volatile("cp.async.wait_group 2;");
        __syncthreads();
        int now = (k - 2) % 3;
        for (int i = 0; i < 16; i++) {
            float4 g = *(float4 *)&q[now][i][tx * 4];
            for (int j = 0; j < 4; j++) {
                float f = p[now][ty * 4 + j][i];
                s[j][0] += f * g.x, s[j][1] += f * g.y, s[j][2] += f * g.z, s[j][3] += f * g.w;
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        *(float4 *)(c + (y0 + ty * 4 + i) * n + x0 + tx * 4) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
}

// A row a warp.
extern "C" __global__ void matrix_vector(const float4 *a, const float4 *x, float *y, int quads) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    float s = 0;
    for (int i = lane; i < quads; i += 32) {
        float4 u = a[(size_t)row * quads + i], v = x[i];
        s += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
    }
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
    if (lane == 0) y[row] = s;
}

// Bytes, four a word; b is given by columns.
extern "C" __global__ void product_bytes(const int *a, const int *b, int *c, int n) {
    __shared__ int p[32][17], q[32][17];
    int tx = threadIdx.x, ty = threadIdx.y, t = ty * 16 + tx, words = n / 4, s[2][2] = {};
    for (int k0 = 0; k0 < words; k0 += 16) {
        for (int r = 0; r < 32; r += 16) {
            p[r + ty][tx] = a[(blockIdx.y * 32 + r + ty) * words + k0 + tx];
            q[r + ty][tx] = b[(blockIdx.x * 32 + r + ty) * words + k0 + tx];
        }
        __syncthreads();
        for (int k = 0; k < 16; k++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) s[i][j] = __dp4a(p[ty + 16 * i][k], q[tx + 16 * j][k], s[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) c[(blockIdx.y * 32 + ty + 16 * i) * n + blockIdx.x * 32 + tx + 16 * j] = s[i][j];
}

// Tensor cores, a warp for 16 x 32 of the result: mma.sync of halves (b by columns), operands straight from memory.
extern "C" __global__ void product_mma(const unsigned *a, const unsigned *b, float *c, int n) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, in = lane % 4, words = n / 2;
    int y0 = (blockIdx.y * 4 + warp) * 16, x0 = blockIdx.x * 32;
    float s[4][4] = {};
    for (int k = 0; k < words; k += 8) {
        const unsigned *p = a + (y0 + group) * words + k + in;
        unsigned a0 = p[0], a1 = p[8 * words], a2 = p[4], a3 = p[8 * words + 4];
        for (int j = 0; j < 4; j++) {
            const unsigned *q = b + (x0 + 8 * j + group) * words + k + in;
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(s[j][0]), "+f"(s[j][1]), "+f"(s[j][2]), "+f"(s[j][3])
                : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(q[0]), "r"(q[4]));
        }
    }
    for (int j = 0; j < 4; j++) {
        float *r = c + (y0 + group) * n + x0 + 8 * j + 2 * in;
        r[0] = s[j][0], r[1] = s[j][1], r[8 * n] = s[j][2], r[8 * n + 1] = s[j][3];
    }
}
