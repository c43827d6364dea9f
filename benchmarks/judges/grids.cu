// Stencils, images, pooling: neighbours on a grid.

extern "C" __global__ void heat_1d(const float *x, float *y, int steps) {  // 256 of 288 cells of a block are right
    __shared__ float a[2][288];
    int t = threadIdx.x, now = 0;
    a[0][t] = x[blockIdx.x * 256 + t];
    a[1][t] = a[0][t];
    for (int s = 0; s < steps; s++) {
        __syncthreads();
        if (t > 0 && t < 287) a[1 - now][t] = a[now][t] + 0.25f * (a[now][t - 1] - 2 * a[now][t] + a[now][t + 1]);
        now = 1 - now;
    }
    __syncthreads();
    if (t >= 16 && t < 272) y[blockIdx.x * 256 + t - 16] = a[now][t];
}

extern "C" __global__ void jacobi_2d(const float *a, float *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x + 1, y = blockIdx.y * 8 + threadIdx.y + 1, w = n + 2;
    const float *p = a + y * w + x;
    b[y * w + x] = 0.25f * (p[-1] + p[1] + p[-w] + p[w]);
}

// Four sweeps in shared memory over tiles that overlap.
extern "C" __global__ void jacobi_tiled(const float *a, float *b, int n) {
    __shared__ float s[2][32][33];
    int tx = threadIdx.x, ty = threadIdx.y, w = n + 8, x = blockIdx.x * 24 + tx, y = blockIdx.y * 24 + ty, now = 0;
    for (int k = 0; k < 32; k += 8) s[0][ty + k][tx] = s[1][ty + k][tx] = a[(y + k) * w + x];
    for (int sweep = 0; sweep < 4; sweep++) {
        __syncthreads();
        for (int k = ty; k < 32; k += 8)
            if (tx > 0 && tx < 31 && k > 0 && k < 31)
                s[1 - now][k][tx] = 0.25f * (s[now][k][tx - 1] + s[now][k][tx + 1] + s[now][k - 1][tx] + s[now][k + 1][tx]);
        now = 1 - now;
    }
    __syncthreads();
    for (int k = ty; k < 32; k += 8)
        if (tx >= 4 && tx < 28 && k >= 4 && k < 28) b[(blockIdx.y * 24 + k - 4) * n + blockIdx.x * 24 + tx - 4] = s[now][k][tx];
}

extern "C" __global__ void laplace_3d(const float *a, float *b, int nx, int ny, int nz) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y, z = blockIdx.z;
    if (x == 0 || y == 0 || z == 0 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
    int i = (z * ny + y) * nx + x;
    b[i] = a[i - 1] + a[i + 1] + a[i - nx] + a[i + nx] + a[i - nx * ny] + a[i + nx * ny] - 6 * a[i];
}

// A column of cells a thread, whose upper and lower neighbours stay in registers.
extern "C" __global__ void march_3d(const float *a, float *b, int nx, int ny, int nz) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, plane = nx * ny, i = y * nx + x;
    bool inside = x > 0 && y > 0 && x < nx - 1 && y < ny - 1;
    float below = a[i], here = a[i + plane];
    for (int z = 1; z < nz - 1; z++) {
        i += plane;
        float above = a[i + plane];
        if (inside) b[i] = 0.5f * here + 0.0833f * (below + above + a[i - 1] + a[i + 1] + a[i - nx] + a[i + nx]);
        below = here, here = above;
    }
}

extern "C" __global__ void life(const unsigned char *a, unsigned char *b, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int l = (x + n - 1) % n, r = (x + 1) % n, u = (y + n - 1) % n * n, d = (y + 1) % n * n, h = y * n;
    int s = a[u + l] + a[u + x] + a[u + r] + a[h + l] + a[h + r] + a[d + l] + a[d + x] + a[d + r];
    b[h + x] = s == 3 || (s == 2 && a[h + x]);
}

__constant__ float window[49];

// 7 x 7 taps from constant memory, each pixel from L1.
extern "C" __global__ void filter_naive(const float *a, float *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, w = n + 6;
    float s = 0;
    for (int v = 0; v < 7; v++)
        for (int u = 0; u < 7; u++) s += window[v * 7 + u] * a[(y + v) * w + x + u];
    b[y * n + x] = s;
}

extern "C" __global__ void filter_tiled(const float *a, float *b, int n) {
    __shared__ float tile[22][40];
    int tx = threadIdx.x, ty = threadIdx.y, w = n + 6;
    for (int y = ty; y < 22; y += 16)
        for (int x = tx; x < 38; x += 32) tile[y][x] = a[(blockIdx.y * 16 + y) * w + blockIdx.x * 32 + x];
    __syncthreads();
    float s = 0;
    for (int v = 0; v < 7; v++)
        for (int u = 0; u < 7; u++) s += window[v * 7 + u] * tile[ty + v][tx + u];
    b[(blockIdx.y * 16 + ty) * n + blockIdx.x * 32 + tx] = s;
}

// Channels last: C channels to 32 filters of 3 x 3, a thread a pixel and filter.
extern "C" __global__ void channels_3x3(const float *a, const float *f, float *b, int n, int c) {
    int o = threadIdx.x, x = blockIdx.x * 8 + threadIdx.y, y = blockIdx.y;
    float s = 0;
    for (int v = 0; v < 3; v++)
        for (int u = 0; u < 3; u++)
            for (int k = 0; k < c; k++) s += a[((y + v) * (n + 2) + x + u) * c + k] * f[((v * 3 + u) * c + k) * 32 + o];
    b[(y * n + x) * 32 + o] = s;
}

extern "C" __global__ void max_pool(const float *a, float *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, w = 2 * n + 1;
    const float *p = a + (size_t)blockIdx.z * w * w + 2 * y * w + 2 * x;
    float best = p[0];
    for (int v = 0; v < 3; v++)
        for (int u = 0; u < 3; u++) best = fmaxf(best, p[v * w + u]);
    b[((size_t)blockIdx.z * n + y) * n + x] = best;
}

static __device__ void order(int &a, int &b) {
    int lo = min(a, b);
    b = max(a, b);
    a = lo;
}

extern "C" __global__ void median_3x3(const unsigned char *a, unsigned char *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, w = n + 2, v[9];
    for (int k = 0; k < 9; k++) v[k] = a[(y + k / 3) * w + x + k % 3];
    for (int k = 0; k < 9; k += 3) order(v[k], v[k + 1]), order(v[k + 1], v[k + 2]), order(v[k], v[k + 1]);
    int lo = max(max(v[0], v[3]), v[6]), hi = min(min(v[2], v[5]), v[8]);
    order(v[1], v[4]), order(v[4], v[7]), order(v[1], v[4]);
    int mid = v[4];
    order(lo, mid), order(mid, hi), order(lo, mid);
    b[y * n + x] = mid;
}

extern "C" __global__ void sobel(const float *a, float *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, w = n + 2;
    const float *p = a + y * w + x, *q = p + w, *r = q + w;
    float gx = p[2] - p[0] + 2 * (q[2] - q[0]) + r[2] - r[0], gy = r[0] - p[0] + 2 * (r[1] - p[1]) + r[2] - p[2];
    b[y * n + x] = sqrtf(gx * gx + gy * gy);
}

// Turned about its middle, bilinear; outside is 0.
extern "C" __global__ void rotate_image(const float *a, float *b, float cosine, float sine, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float mid = 0.5f * (n - 1), dx = x - mid, dy = y - mid, u = cosine * dx - sine * dy + mid, v = sine * dx + cosine * dy + mid;
    int i = (int)floorf(u), j = (int)floorf(v);
    float s = 0, fu = u - i, fv = v - j;
    if (i >= 0 && j >= 0 && i < n - 1 && j < n - 1) {
        const float *p = a + j * n + i;
        s = (1 - fv) * ((1 - fu) * p[0] + fu * p[1]) + fv * ((1 - fu) * p[n] + fu * p[n + 1]);
    }
    b[y * n + x] = s;
}

// Running sums along rows, a thread a row of a tile in shared memory.
extern "C" __global__ void integral_rows(const float *a, float *b, int n) {
    __shared__ float tile[32][33];
    float sum = 0;
    for (int x0 = 0; x0 < n; x0 += 32) {
        for (int y = threadIdx.y; y < 32; y += 4) tile[y][threadIdx.x] = a[(blockIdx.x * 32 + y) * n + x0 + threadIdx.x];
        __syncthreads();
        if (threadIdx.y == 0)
            for (int x = 0; x < 32; x++) tile[threadIdx.x][x] = sum += tile[threadIdx.x][x];
        __syncthreads();
        for (int y = threadIdx.y; y < 32; y += 4) b[(blockIdx.x * 32 + y) * n + x0 + threadIdx.x] = tile[y][threadIdx.x];
        __syncthreads();
    }
}
