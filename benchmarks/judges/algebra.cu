// Transforms and linear algebra of small problems, sparse matrices, clustering, text, graphs.

// 256 complex numbers a block of 128 threads, radix 2; w: exp(-2 pi i k / 256) for k < 128.
extern "C" __global__ void fft_256(const float2 *x, const float2 *w, float2 *y) {
    __shared__ float re[2][256], im[2][256];
    int t = threadIdx.x, now = 0;
    for (int k = t; k < 256; k += 128) {
        float2 v = x[blockIdx.x * 256 + k];
        re[0][k] = v.x, im[0][k] = v.y;
    }
    for (int s = 1; s < 256; s *= 2) {  // Stockham's: in order at the end
        __syncthreads();
        int q = t % s, p = t / s;
        float2 f = w[p * s];
        float ar = re[now][t], ai = im[now][t], br = re[now][t + 128], bi = im[now][t + 128];
        float dr = ar - br, di = ai - bi;
        re[1 - now][q + s * 2 * p] = ar + br, im[1 - now][q + s * 2 * p] = ai + bi;
        re[1 - now][q + s * (2 * p + 1)] = dr * f.x - di * f.y, im[1 - now][q + s * (2 * p + 1)] = dr * f.y + di * f.x;
        now = 1 - now;
    }
    __syncthreads();
    for (int k = t; k < 256; k += 128) y[blockIdx.x * 256 + k] = make_float2(re[now][k], im[now][k]);
}

// Walsh-Hadamard transform of 1024 numbers a warp: in registers, then by shuffles.
extern "C" __global__ void hadamard(const float *x, float *y) {
    int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; k++) v[k] = x[warp * 1024 + k * 32 + lane];
#pragma unroll
    for (int d = 1; d < 32; d *= 2)
#pragma unroll
        for (int k = 0; k < 32; k++)
            if (!(k & d)) {
                float a = v[k], b = v[k + d];
                v[k] = a + b, v[k + d] = a - b;
            }
#pragma unroll
    for (int d = 1; d < 32; d *= 2)
#pragma unroll
        for (int k = 0; k < 32; k++) {
            float o = __shfl_xor_sync(~0u, v[k], d);
            v[k] = lane & d ? o - v[k] : v[k] + o;
        }
#pragma unroll
    for (int k = 0; k < 32; k++) y[warp * 1024 + k * 32 + lane] = v[k];
}

// L and U of a matrix of 32 x 32 a block, without pivots.
extern "C" __global__ void lu_32(const float *a, float *b) {
    __shared__ float m[32][33];
    int x = threadIdx.x, y = threadIdx.y;
    for (int r = y; r < 32; r += 8) m[r][x] = a[blockIdx.x * 1024 + r * 32 + x];
    __syncthreads();
    for (int k = 0; k < 31; k++) {
        if (y == 0 && x > k) m[x][k] /= m[k][k];
        __syncthreads();
        for (int r = k + 1 + y; r < 32; r += 8)
            if (x > k) m[r][x] -= m[r][k] * m[k][x];
        __syncthreads();
    }
    for (int r = y; r < 32; r += 8) b[blockIdx.x * 1024 + r * 32 + x] = m[r][x];
}

// The lower factor of a symmetric matrix of 16 x 16 a half warp, a row a lane, by shuffles.
extern "C" __global__ void cholesky_16(const float *a, float *b) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, row = t % 16;
    float m[16];
#pragma unroll
    for (int k = 0; k < 16; k++) m[k] = a[t * 16 + k];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        float d = __shfl_sync(~0u, m[k], k, 16), inverse = rsqrtf(d);
        m[k] = row >= k ? m[k] * inverse : 0;
#pragma unroll
        for (int j = k + 1; j < 16; j++) m[j] -= m[k] * __shfl_sync(~0u, m[k], j, 16);
    }
#pragma unroll
    for (int k = 0; k < 16; k++) b[t * 16 + k] = m[k];
}

// Tridiagonal systems, one a thread, kept in memory: (-1, 4, -1) x = r.
extern "C" __global__ void thomas(const float *r, float *c, float *x, int rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float cp = -0.25f, dp = r[i] * 0.25f;
    c[i] = cp, x[i] = dp;
    for (int k = 1; k < rows; k++) {
        float m = 1 / (4 + cp);
        cp = -m, dp = (r[k * n + i] + dp) * m;
        c[k * n + i] = cp, x[k * n + i] = dp;
    }
    for (int k = rows - 2; k >= 0; k--) x[k * n + i] = dp = x[k * n + i] - c[k * n + i] * dp;
}

// Inverses of 8 x 8 matrices in double precision, one a thread group of 8.
extern "C" __global__ void inverse_double(const double *a, double *b) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, row = t % 8;
    double m[8], e[8];
#pragma unroll
    for (int k = 0; k < 8; k++) m[k] = a[t * 8 + k], e[k] = row == k;
#pragma unroll
    for (int p = 0; p < 8; p++) {
        double scale = 1 / __shfl_sync(~0u, m[p], p, 8), mine = m[p];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            double u = __shfl_sync(~0u, m[k], p, 8) * scale, v = __shfl_sync(~0u, e[k], p, 8) * scale;
            m[k] = row == p ? u : m[k] - mine * u;
            e[k] = row == p ? v : e[k] - mine * v;
        }
    }
#pragma unroll
    for (int k = 0; k < 8; k++) b[t * 8 + k] = e[k];
}

extern "C" __global__ void csr_thread(const int *first, const int *column, const float *value, const float *x, float *y, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float s = 0;
    for (int k = first[r]; k < first[r + 1]; k++) s += value[k] * x[column[k]];
    y[r] = s;
}

extern "C" __global__ void csr_warp(const int *first, const int *column, const float *value, const float *x, float *y, int rows) {
    int r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= rows) return;
    float s = 0;
    for (int k = first[r] + lane; k < first[r + 1]; k += 32) s += value[k] * x[column[k]];
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
    if (lane == 0) y[r] = s;
}

// The same number of elements in each row, by columns.
extern "C" __global__ void ell(const int *column, const float *value, const float *x, float *y, int rows, int width) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float s = 0;
    for (int k = 0; k < width; k++) s += value[k * rows + r] * x[column[k * rows + r]];
    y[r] = s;
}

// A step of PageRank: what each vertex is given by those that point to it.
extern "C" __global__ void page_rank(const int *first, const int *source, const float *rank, const int *degree, float *next, int n) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= n) return;
    float s = 0;
    for (int k = first[v]; k < first[v + 1]; k++) {
        int u = source[k];
        s += rank[u] / degree[u];
    }
    next[v] = 0.15f / n + 0.85f * s;
}

// A step of breadth-first search from the vertices at distance `level`.
extern "C" __global__ void bfs_step(const int *first, const int *edge, int *distance, int level, int n) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= n || distance[v] != level) return;
    for (int k = first[v]; k < first[v + 1]; k++) {
        int u = edge[k];
        if (distance[u] < 0) distance[u] = level + 1;
    }
}

// The nearest of 32 centres in 8 dimensions, and what is added to it.
extern "C" __global__ void k_means(const float *point, const float *centre, int *nearest, float *sum, int n) {
    __shared__ float c[256], s[256];
    c[threadIdx.x] = centre[threadIdx.x], s[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x, at = 0;
    float p[8], best = 1e30f;
    for (int d = 0; d < 8; d++) p[d] = point[d * n + i];
    for (int k = 0; k < 32; k++) {
        float e = 0;
        for (int d = 0; d < 8; d++) e += (p[d] - c[k * 8 + d]) * (p[d] - c[k * 8 + d]);
        if (e < best) best = e, at = k;
    }
    nearest[i] = at;
    for (int d = 0; d < 8; d++) atomicAdd(s + at * 8 + d, p[d]);
    __syncthreads();
    atomicAdd(sum + threadIdx.x, s[threadIdx.x]);
}

// The four nearest of `n` points in three dimensions, by insertion.
extern "C" __global__ void neighbours(const float4 *query, const float4 *point, int4 *nearest, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, at[4] = {-1, -1, -1, -1};
    float4 q = query[i];
    float best[4] = {1e30f, 1e30f, 1e30f, 1e30f};
    for (int j = 0; j < n; j++) {
        float4 p = point[j];
        float d = (p.x - q.x) * (p.x - q.x) + (p.y - q.y) * (p.y - q.y) + (p.z - q.z) * (p.z - q.z);
        if (d >= best[3]) continue;
        best[3] = d, at[3] = j;
        for (int k = 3; k > 0 && best[k] < best[k - 1]; k--) {
            float b = best[k];
            int a = at[k];
            best[k] = best[k - 1], at[k] = at[k - 1], best[k - 1] = b, at[k - 1] = a;
        }
    }
    nearest[i] = make_int4(at[0], at[1], at[2], at[3]);
}

// Whether a word of up to 16 letters begins here.
extern "C" __global__ void find_text(const char *text, const char *word, int length, unsigned char *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int k = 0;
    while (k < length && text[i + k] == word[k]) k++;
    found[i] = k == length;
}

// Edit distances of pairs of 16 letters, a row of the table in registers.
extern "C" __global__ void edit_distance(const unsigned char *a, const unsigned char *b, int *distance, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row[17];
    unsigned char letter[16];
#pragma unroll
    for (int k = 0; k < 16; k++) letter[k] = b[k * n + i];
#pragma unroll
    for (int k = 0; k < 17; k++) row[k] = k;
    for (int p = 0; p < 16; p++) {
        int corner = row[0], one = a[p * n + i];
        row[0] = p + 1;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            int best = min(min(row[k], row[k + 1]) + 1, corner + (one != letter[k]));
            corner = row[k + 1], row[k + 1] = best;
        }
    }
    distance[i] = row[16];
}

// Puts keys into a table of open addresses, then looks them up.
extern "C" __global__ void hash_insert(const unsigned *key, unsigned *table, unsigned *place, int bits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned k = key[i], at = k * 2654435769u >> (32 - bits);
    for (unsigned was; (was = atomicCAS(table + at, 0u, k)) != 0 && was != k;) at = (at + 1) & ((1u << bits) - 1);
    place[i] = table[at];
}

// Forces of 32 neighbours in a list.
extern "C" __global__ void neighbour_list(const float4 *atom, const int *list, float4 *force, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 me = atom[i];
    float fx = 0, fy = 0, fz = 0;
    for (int k = 0; k < 32; k++) {
        float4 o = atom[list[k * n + i]];
        float dx = me.x - o.x, dy = me.y - o.y, dz = me.z - o.z, r = dx * dx + dy * dy + dz * dz + 0.1f;
        if (r > 1.5f) continue;
        float inverse = 1 / r, six = inverse * inverse * inverse, s = six * (six - 0.5f) * inverse;
        fx += s * dx, fy += s * dy, fz += s * dz;
    }
    force[i] = make_float4(fx, fy, fz, 0);
}

// Polynomials of degree 15 at a point each, coefficients from memory, by Horner in double precision.
extern "C" __global__ void horner_double(const double *c, const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = c[15], v = x[i];
    for (int k = 14; k >= 0; k--) s = s * v + c[k];
    y[i] = s + exp(-v * v);
}
