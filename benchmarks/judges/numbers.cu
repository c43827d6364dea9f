// Arithmetic: physics, finance, random numbers, hashes, integers.

extern "C" __global__ void n_body(const float4 *body, float4 *force, int n) {
    __shared__ float4 tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    float4 me = body[i];
    float fx = 0, fy = 0, fz = 0;
    for (int j0 = 0; j0 < n; j0 += 128) {
        tile[threadIdx.x] = body[j0 + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 128; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = tile[j].w * inverse * inverse * inverse;
            fx += s * dx, fy += s * dy, fz += s * dz;
        }
        __syncthreads();
    }
    force[i] = make_float4(fx, fy, fz, 0);
}

extern "C" __global__ void n_body_double(const double4 *body, double *force, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double4 me = body[i];
    double f = 0;
    for (int j = 0; j < n; j++) {
        double4 b = body[j];
        double dx = b.x - me.x, dy = b.y - me.y, dz = b.z - me.z, r = dx * dx + dy * dy + dz * dz + 0.01;
        f += b.w / (r * sqrt(r));
    }
    force[i] = f;
}

extern "C" __global__ void mandelbrot(int *count, int width, float x0, float y0, float step, int most) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, k = 0;
    float cx = x0 + x * step, cy = y0 + y * step, u = 0, v = 0;
    while (k < most && u * u + v * v < 4) {
        float w = u * u - v * v + cx;
        v = 2 * u * v + cy, u = w, k++;
    }
    count[y * width + x] = k;
}

static __device__ float normal(float d) {
    float k = 1 / (1 + 0.2316419f * fabsf(d));
    float p = 0.39894228f * __expf(-0.5f * d * d) * k *
              (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    return d > 0 ? 1 - p : p;
}

extern "C" __global__ void black_scholes(const float *price, const float *strike, const float *years, float *call,
                                         float *put, float rate, float vol, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = price[i], x = strike[i], t = years[i], root = sqrtf(t);
    float d = (__logf(s / x) + (rate + 0.5f * vol * vol) * t) / (vol * root), c = normal(d), e = normal(d - vol * root);
    float later = x * __expf(-rate * t);
    call[i] = s * c - later * e;
    put[i] = later * (1 - e) - s * (1 - c);
}

static __device__ unsigned xorshift(unsigned &s) {
    s ^= s << 13, s ^= s >> 17, s ^= s << 5;
    return s;
}

// Points in a quarter circle; divides a warp now and then.
extern "C" __global__ void monte_carlo(unsigned *hits, int draws) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned s = 0x9E3779B9u * (i + 1), inside = 0;
    for (int k = 0; k < draws; k++) {
        float x = (xorshift(s) >> 8) * 5.9604645e-8f, y = (xorshift(s) >> 8) * 5.9604645e-8f;
        inside += x * x + y * y < 1;
    }
    hits[i] = inside;
}

extern "C" __global__ void philox(uint4 *out, unsigned key, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 c = make_uint4(i, 0, 7, 0);
    uint2 k = make_uint2(key, 0xBB67AE85u);
#pragma unroll
    for (int r = 0; r < 10; r++) {
        unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        unsigned h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k.x, l1, h0 ^ c.w ^ k.y, l0);
        k.x += 0x9E3779B9u, k.y += 0xBB67AE85u;
    }
    out[i] = c;
}

// Box-Muller of uniform numbers.
extern "C" __global__ void gauss_noise(float2 *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned s = i * 747796405u + 2891336453u;
    float2 sum = make_float2(0, 0);
    for (int k = 0; k < rounds; k++) {
        float u = ((xorshift(s) >> 8) + 1) * 5.9604645e-8f, v = (xorshift(s) >> 8) * 5.9604645e-8f;
        float r = sqrtf(-2 * __logf(u)), a, b;
        __sincosf(6.2831853f * v, &a, &b);
        sum.x += r * a, sum.y += r * b;
    }
    out[i] = sum;
}

static __device__ unsigned rotate(unsigned x, int n) { return __funnelshift_l(x, x, n); }

extern "C" __global__ void murmur(const uint4 *key, unsigned *hash, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint4 q = key[i];
        unsigned words[4] = {q.x, q.y, q.z, q.w}, h = 42;
        for (int k = 0; k < 4; k++) h = rotate(h ^ rotate(words[k] * 0xcc9e2d51u, 15) * 0x1b873593u, 13) * 5 + 0xe6546b64u;
        h ^= 16, h ^= h >> 16, h *= 0x85ebca6bu, h ^= h >> 13, h *= 0xc2b2ae35u;
        hash[i] = h ^ h >> 16;
    }
}

// SHA-256 of single blocks of 64 bytes; its constants are the 64 of the standard, given as an array.
extern "C" __global__ void sha256(const unsigned *message, const unsigned *constants, unsigned *digest, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned w[16], s[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, a[8];
#pragma unroll
    for (int k = 0; k < 16; k++) w[k] = message[k * n + i];
#pragma unroll
    for (int k = 0; k < 8; k++) a[k] = s[k];
#pragma unroll
    for (int r = 0; r < 64; r++) {
        if (r >= 16) {
            unsigned p = w[(r + 1) % 16], q = w[(r + 14) % 16];
            w[r % 16] += (rotate(p, 25) ^ rotate(p, 14) ^ p >> 3) + w[(r + 9) % 16] + (rotate(q, 15) ^ rotate(q, 13) ^ q >> 10);
        }
        unsigned t = a[7] + (rotate(a[4], 26) ^ rotate(a[4], 21) ^ rotate(a[4], 7)) + ((a[4] & a[5]) ^ (~a[4] & a[6])) +
                     constants[r] + w[r % 16];
        unsigned u = (rotate(a[0], 30) ^ rotate(a[0], 19) ^ rotate(a[0], 10)) + ((a[0] & a[1]) ^ (a[0] & a[2]) ^ (a[1] & a[2]));
        a[7] = a[6], a[6] = a[5], a[5] = a[4], a[4] = a[3] + t, a[3] = a[2], a[2] = a[1], a[1] = a[0], a[0] = t + u;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) digest[k * n + i] = s[k] + a[k];
}

// CRC-32 of 64 bytes a thread, by a table in shared memory.
extern "C" __global__ void crc_table(const unsigned *text, unsigned *crc, int n) {
    __shared__ unsigned table[256];
    unsigned e = threadIdx.x;
    for (int k = 0; k < 8; k++) e = e >> 1 ^ (e & 1 ? 0xEDB88320u : 0);
    table[threadIdx.x] = e;
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x;
    unsigned c = ~0u;
    for (int k = 0; k < 16; k++) {
        unsigned word = text[k * n + i];
        for (int b = 0; b < 4; b++) c = c >> 8 ^ table[(c ^ word >> 8 * b) & 255];
    }
    crc[i] = ~c;
}

extern "C" __global__ void collatz(unsigned *steps, unsigned first, int most) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
    unsigned long long v = first + i;
    while (v != 1 && k < most) {
        v = v & 1 ? 3 * v + 1 : v >> 1;
        k++;
    }
    steps[i] = k;
}

extern "C" __global__ void greatest_divisor(const unsigned *a, const unsigned *b, unsigned *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    while (y) {
        unsigned r = x % y;
        x = y, y = r;
    }
    c[i] = x;
}

// Powers modulo a 32-bit number by 64-bit division.
extern "C" __global__ void power_modulo(const unsigned *base, const unsigned *modulus, unsigned *result, unsigned exponent) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long b = base[i], m = modulus[i], r = 1;
    for (unsigned e = exponent; e; e >>= 1) {
        if (e & 1) r = r * b % m;
        b = b * b % m;
    }
    result[i] = r;
}

// 256-bit products, word by word.
extern "C" __global__ void long_product(const unsigned *a, const unsigned *b, unsigned *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x[8], y[8], z[16] = {};
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = a[k * n + i], y[k] = b[k * n + i];
#pragma unroll
    for (int p = 0; p < 8; p++) {
        unsigned long long carry = 0;
#pragma unroll
        for (int q = 0; q < 8; q++) {
            carry += (unsigned long long)x[p] * y[q] + z[p + q];
            z[p + q] = (unsigned)carry;
            carry >>= 32;
        }
        z[p + 8] = (unsigned)carry;
    }
#pragma unroll
    for (int k = 0; k < 16; k++) c[k * n + i] = z[k];
}

// The nearest of 256 codes of 128 bits, by bits that differ.
extern "C" __global__ void hamming(const uint4 *code, const uint4 *book, int *nearest) {
    __shared__ uint4 words[256];
    words[threadIdx.x] = book[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x, best = 1000, at = 0;
    uint4 c = code[i];
    for (int k = 0; k < 256; k++) {
        uint4 w = words[k];
        int d = __popc(c.x ^ w.x) + __popc(c.y ^ w.y) + __popc(c.z ^ w.z) + __popc(c.w ^ w.w);
        if (d < best) best = d, at = k;
    }
    nearest[i] = at;
}

extern "C" __global__ void bit_reverse(const float2 *x, float2 *y, int bits) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[__brev(i) >> (32 - bits)] = x[i];
}
