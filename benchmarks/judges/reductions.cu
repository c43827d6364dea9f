// Sums, scans, sorts, histograms: threads of a block work together.

extern "C" __global__ void sum_shared(const float *x, float *sums, int n) {
    __shared__ float part[256];
    float s = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
    part[threadIdx.x] = s;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

extern "C" __global__ void sum_shuffle(const float4 *x, float *sum, int n) {
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        s += v.x + v.y + v.z + v.w;
    }
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, s);
}

// The place of the largest number of each row, a warp a row.
extern "C" __global__ void argmax(const float *x, int *place, int columns) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, at = lane;
    const float *r = x + (size_t)row * columns;
    float best = r[lane];
    for (int i = lane + 32; i < columns; i += 32)
        if (r[i] > best) best = r[i], at = i;
    for (int d = 16; d; d /= 2) {
        float other = __shfl_xor_sync(~0u, best, d);
        int where = __shfl_xor_sync(~0u, at, d);
        if (other > best || (other == best && where < at)) best = other, at = where;
    }
    if (lane == 0) place[row] = at;
}

static __device__ float of_block(float v, float *part, bool largest) {
    for (int d = 16; d; d /= 2) {
        float o = __shfl_xor_sync(~0u, v, d);
        v = largest ? fmaxf(v, o) : v + o;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < blockDim.x / 32; w++) v = largest ? fmaxf(v, part[w]) : v + part[w];
    return v;
}

extern "C" __global__ void softmax(const float *x, float *y, int columns) {
    __shared__ float part[32];
    const float *r = x + (size_t)blockIdx.x * columns;
    float top = -1e30f, sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, r[i]);
    top = of_block(top, part, true);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(r[i] - top);
    sum = 1 / of_block(sum, part, false);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) y[(size_t)blockIdx.x * columns + i] = __expf(r[i] - top) * sum;
}

// A warp a row of 1024, which stays in registers.
extern "C" __global__ void layer_norm(const float4 *x, const float4 *gain, const float4 *bias, float4 *y) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    float4 v[8];
    float sum = 0, squares = 0;
    for (int k = 0; k < 8; k++) {
        v[k] = x[row * 256 + k * 32 + lane];
        sum += v[k].x + v[k].y + v[k].z + v[k].w;
    }
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    float mean = sum / 1024;
    for (int k = 0; k < 8; k++) {
        v[k].x -= mean, v[k].y -= mean, v[k].z -= mean, v[k].w -= mean;
        squares += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    for (int d = 16; d; d /= 2) squares += __shfl_xor_sync(~0u, squares, d);
    float scale = rsqrtf(squares / 1024 + 1e-5f);
    for (int k = 0; k < 8; k++) {
        float4 g = gain[k * 32 + lane], b = bias[k * 32 + lane];
        y[row * 256 + k * 32 + lane] = make_float4(v[k].x * scale * g.x + b.x, v[k].y * scale * g.y + b.y,
                                                   v[k].z * scale * g.z + b.z, v[k].w * scale * g.w + b.w);
    }
}

extern "C" __global__ void histogram_global(const unsigned char *x, unsigned *count, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(count + x[i], 1u);
}

extern "C" __global__ void histogram_shared(const unsigned *x, unsigned *count, int n) {
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        unsigned four = x[i];
        for (int k = 0; k < 4; k++) atomicAdd(bins + (four >> 8 * k & 255), 1u);
    }
    __syncthreads();
    atomicAdd(count + threadIdx.x, bins[threadIdx.x]);
}

// Inclusive sums of each block's 1024 numbers, doubling distances in shared memory.
extern "C" __global__ void scan_doubling(const int *x, int *y) {
    __shared__ int a[2][1024];
    int t = threadIdx.x, now = 0;
    a[0][t] = x[blockIdx.x * 1024 + t];
    for (int d = 1; d < 1024; d *= 2) {
        __syncthreads();
        a[1 - now][t] = a[now][t] + (t >= d ? a[now][t - d] : 0);
        now = 1 - now;
    }
    y[blockIdx.x * 1024 + t] = a[now][t];
}

extern "C" __global__ void scan_shuffle(const int4 *x, int4 *y) {
    __shared__ int sums[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int4 v = x[blockIdx.x * 256 + threadIdx.x];
    v.y += v.x, v.z += v.y, v.w += v.z;
    int s = v.w;
    for (int d = 1; d < 32; d *= 2) {
        int o = __shfl_up_sync(~0u, s, d);
        if (lane >= d) s += o;
    }
    if (lane == 31) sums[warp] = s;
    __syncthreads();
    s -= v.w;
    for (int w = 0; w < warp; w++) s += sums[w];
    y[blockIdx.x * 256 + threadIdx.x] = make_int4(v.x + s, v.y + s, v.z + s, v.w + s);
}

// Largest number so far, up and down a tree.
extern "C" __global__ void prefix_max(const int *x, int *y) {
    __shared__ int a[512];
    int t = threadIdx.x;
    a[t] = x[blockIdx.x * 512 + t];
    a[t + 256] = x[blockIdx.x * 512 + t + 256];
    for (int d = 1; d < 512; d *= 2) {
        __syncthreads();
        int i = (t + 1) * 2 * d - 1;
        if (i < 512) a[i] = max(a[i], a[i - d]);
    }
    for (int d = 128; d; d /= 2) {
        __syncthreads();
        int i = (t + 1) * 2 * d - 1;
        if (i + d < 512) a[i + d] = max(a[i + d], a[i]);
    }
    __syncthreads();
    y[blockIdx.x * 512 + t] = a[t];
    y[blockIdx.x * 512 + t + 256] = a[t + 256];
}

extern "C" __global__ void bitonic(const int *x, int *y) {
    __shared__ int a[1024];
    int t = threadIdx.x;
    a[t] = x[blockIdx.x * 1024 + t];
    a[t + 512] = x[blockIdx.x * 1024 + t + 512];
    for (int size = 2; size <= 1024; size *= 2)
        for (int d = size / 2; d; d /= 2) {
            __syncthreads();
            int i = 2 * t - (t & (d - 1)), lo = a[i], hi = a[i + d];
            if ((lo > hi) == ((i & size) == 0)) a[i] = hi, a[i + d] = lo;
        }
    __syncthreads();
    y[blockIdx.x * 1024 + t] = a[t];
    y[blockIdx.x * 1024 + t + 512] = a[t + 512];
}

// Sixteen numbers a thread, sorted in its registers: neighbours change places.
extern "C" __global__ void sort_registers(const int *x, int *y, int threads) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, a[16];
#pragma unroll
    for (int k = 0; k < 16; k++) a[k] = x[k * threads + t];
#pragma unroll
    for (int round = 0; round < 16; round++)
#pragma unroll
        for (int i = round % 2; i < 15; i += 2) {
            int lo = min(a[i], a[i + 1]);
            a[i + 1] = max(a[i], a[i + 1]);
            a[i] = lo;
        }
#pragma unroll
    for (int k = 0; k < 16; k++) y[k * threads + t] = a[k];
}

// The same by insertion, whose places only turn up as it runs: the compiler keeps the numbers in local memory.
extern "C" __global__ void sort_local(const int *x, int *y, int threads) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, a[16];
    for (int k = 0; k < 16; k++) {
        int v = x[k * threads + t], at = k;
        for (; at > 0 && a[at - 1] > v; at--) a[at] = a[at - 1];
        a[at] = v;
    }
    for (int k = 0; k < 16; k++) y[k * threads + t] = a[k];
}

// How many of its block's 256 keys each key follows.
extern "C" __global__ void rank_sort(const unsigned *x, unsigned *y) {
    __shared__ unsigned keys[256];
    unsigned mine = keys[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    int rank = 0;
    __syncthreads();
    for (int i = 0; i < 256; i++) rank += keys[i] < mine || (keys[i] == mine && i < threadIdx.x);
    y[blockIdx.x * 256 + rank] = mine;
}
