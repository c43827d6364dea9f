// Vectors: one pass over memory.

extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void triad(const float4 *a, const float4 *b, float s, float4 *c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 x = a[i], y = b[i];
        c[i] = make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
    }
}

extern "C" __global__ void strided(const float *x, float *y, int stride, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i * stride];
}

extern "C" __global__ void daxpy(double a, const double *x, double *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void gelu(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
}

// Half precision, two numbers a register: y = a x + y, then a polynomial of degree `degree` in y.
static __device__ unsigned fma2(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

extern "C" __global__ void half_polynomial(unsigned a, const uint4 *x, uint4 *y, int degree, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 u = x[i], s = u;
    for (int k = 0; k < degree; k++) {
        s.x = fma2(s.x, u.x, a);
        s.y = fma2(s.y, u.y, a);
        s.z = fma2(s.z, u.z, a);
        s.w = fma2(s.w, u.w, a);
    }
    y[i] = s;
}

// Four planes of bytes from three: luminance and two colours.
extern "C" __global__ void luminance(const uchar4 *rgba, unsigned char *y, char2 *uv, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 p = rgba[i];
    y[i] = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
    uv[i] = make_char2((-43 * p.x - 84 * p.y + 127 * p.z) >> 8, (127 * p.x - 106 * p.y - 21 * p.z) >> 8);
}

extern "C" __global__ void gather(const int *where, const float *x, float *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[where[i]];
}

extern "C" __global__ void scatter(const int *where, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[where[i]] = x[i];
}

// Each thread follows a chain of its own.
extern "C" __global__ void chase(const int *next, int *end, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = i;
    for (int k = 0; k < steps; k++) at = next[at];
    end[i] = at;
}

extern "C" __global__ void chase_shared(const unsigned short *next, int *end, int steps) {
    __shared__ unsigned short table[4096];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) table[i] = next[i];
    __syncthreads();
    int at = (blockIdx.x * blockDim.x + threadIdx.x) & 4095;
    for (int k = 0; k < steps; k++) at = table[at];
    end[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
