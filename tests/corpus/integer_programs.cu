// Integer programs: hashes, ciphers, checksums, random numbers, long arithmetic, sorting, hashing, dynamic programming.
#include "common.cuh"

#define ROTR(x, k) ((x) >> (k) | (x) << (32 - (k)))
#define ROTL(x, k) ((x) << (k) | (x) >> (32 - (k)))

__constant__ u32 sha_k[64];

// SHA-256 of one 64-byte block per thread, from the standard initial state; fully unrolled.
extern "C" __global__ void hash_sha256(const u32 *a, const u32 *initial, u32 *out, int n)
{
    ELEMENT;
    u32 w[16], s[8];
#pragma unroll
    for (int k = 0; k < 16; k++) w[k] = __byte_perm(a[i * 16 + k], 0, 0x0123);
#pragma unroll
    for (int k = 0; k < 8; k++) s[k] = initial[k];
#pragma unroll
    for (int k = 0; k < 64; k++) {
        if (k >= 16) {
            u32 x = w[(k + 1) & 15], y = w[(k + 14) & 15];
            w[k & 15] += (ROTR(x, 7) ^ ROTR(x, 18) ^ x >> 3) + w[(k + 9) & 15] + (ROTR(y, 17) ^ ROTR(y, 19) ^ y >> 10);
        }
        u32 t1 = s[7] + (ROTR(s[4], 6) ^ ROTR(s[4], 11) ^ ROTR(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha_k[k] + w[k & 15];
        u32 t2 = (ROTR(s[0], 2) ^ ROTR(s[0], 13) ^ ROTR(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        s[7] = s[6], s[6] = s[5], s[5] = s[4], s[4] = s[3] + t1, s[3] = s[2], s[2] = s[1], s[1] = s[0], s[0] = t1 + t2;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) OUT(k, s[k] + initial[k]);
}

// ChaCha20 block function: constants, key and nonce in state[0..15], counter = thread.
extern "C" __global__ void cipher_chacha(const u32 *state, u32 *out, int n)
{
    ELEMENT;
    u32 x[16], y[16];
#pragma unroll
    for (int k = 0; k < 16; k++) y[k] = x[k] = state[k] + (k == 12 ? i : 0);
#define QUARTER(a, b, c, d) \
    x[a] += x[b], x[d] = ROTL(x[d] ^ x[a], 16), x[c] += x[d], x[b] = ROTL(x[b] ^ x[c], 12), \
    x[a] += x[b], x[d] = ROTL(x[d] ^ x[a], 8), x[c] += x[d], x[b] = ROTL(x[b] ^ x[c], 7)
#pragma unroll
    for (int round = 0; round < 10; round++) {
        QUARTER(0, 4, 8, 12);
        QUARTER(1, 5, 9, 13);
        QUARTER(2, 6, 10, 14);
        QUARTER(3, 7, 11, 15);
        QUARTER(0, 5, 10, 15);
        QUARTER(1, 6, 11, 12);
        QUARTER(2, 7, 8, 13);
        QUARTER(3, 4, 9, 14);
    }
#pragma unroll
    for (int k = 0; k < 16; k++) OUT(k, x[k] + y[k]);
}

extern "C" __global__ void random_numbers(const u64 *seeds, u32 *out, int n)
{
    ELEMENT;
    u64 s = seeds[i];
    // xorshift64*, PCG-XSH-RR, SplitMix64
    u64 x = s | 1;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
    }
    OUT(0, (u32)(x * 2685821657736338717ull >> 32));
    u64 p = s * 6364136223846793005ull + 1442695040888963407ull;
    u32 shifted = (u32)((p >> 18 ^ p) >> 27), rotation = (u32)(p >> 59);
    OUT(1, shifted >> rotation | shifted << (-rotation & 31));
    u64 z = s + 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    OUT(2, (u32)z);
    OUT(3, (u32)(z >> 32));
    // Philox4x32-10
    u32 c0 = (u32)s, c1 = (u32)(s >> 32), c2 = i, c3 = 7, k0 = 0xdeadbeef, k1 = 0x12345678;
#pragma unroll
    for (int r = 0; r < 10; r++) {
        u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    OUT(4, c0);
    OUT(5, c1);
    OUT(6, c2);
    OUT(7, c3);
}

// CRC-32 of 32 bytes: bit by bit, and by a table of 16 entries in constant memory.
__constant__ u32 crc_table[16];
extern "C" __global__ void checksum_crc32(const u8 *a, u32 *out, int n)
{
    ELEMENT;
    u32 c = 0xffffffffu, d = 0xffffffffu, adler_a = 1, adler_b = 0;
    for (int k = 0; k < 32; k++) {
        u8 byte = a[i * 32 + k];
        c ^= byte;
#pragma unroll
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        d ^= byte;
        d = d >> 4 ^ crc_table[d & 15];
        d = d >> 4 ^ crc_table[d & 15];
        adler_a = (adler_a + byte) % 65521;
        adler_b = (adler_b + adler_a) % 65521;
    }
    OUT(0, ~c);
    OUT(1, ~d);
    OUT(2, adler_b << 16 | adler_a);
}

// 256-bit product modulo 2^255 - 19, limbs of 32 bits with carry chains.
extern "C" __global__ void long_multiply(const u32 *a, const u32 *b, u32 *out, int n)
{
    ELEMENT;
    u32 x[8], y[8], p[17] = {};
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = a[i * 8 + k], y[k] = b[i * 8 + k];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        u32 carry = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            u64 t = (u64)x[j] * y[k] + p[j + k] + carry;
            p[j + k] = (u32)t;
            carry = (u32)(t >> 32);
        }
        p[j + 8] = carry;
    }
    // 2^256 = 38 modulo 2^255 - 19, twice.
    u32 carry = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        u64 t = (u64)p[k + 8] * 38 + p[k] + carry;
        p[k] = (u32)t;
        carry = (u32)(t >> 32);
    }
    u64 t = (u64)carry * 38;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        t += p[k];
        p[k] = (u32)t;
        t >>= 32;
    }
    p[0] += (u32)t * 38;
#pragma unroll
    for (int k = 0; k < 8; k++) OUT(k, p[k]);
}

// Bitonic sort of 1024 keys in shared memory by 256 threads.
extern "C" __global__ void __launch_bounds__(256) sort_bitonic(const int *a, int *out, int n)
{
    extern __shared__ int keys[];
    for (int k = threadIdx.x; k < 1024; k += 256) keys[k] = a[blockIdx.x * 1024 + k];
    __syncthreads();
    for (int size = 2; size <= 1024; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            for (int k = threadIdx.x; k < 512; k += 256) {
                int low = (k & ~(step - 1)) * 2 + (k & (step - 1)), high = low + step;
                int x = keys[low], y = keys[high];
                if ((x > y) == ((low & size) == 0)) keys[low] = y, keys[high] = x;
            }
            __syncthreads();
        }
    for (int k = threadIdx.x; k < 1024; k += 256) out[blockIdx.x * 1024 + k] = keys[k];
}

// Levenshtein distance of two 24-letter words per thread, one row of the table in local memory.
extern "C" __global__ void distance_edit(const s8 *a, const s8 *b, int *out, int n)
{
    ELEMENT;
    s8 x[24], y[24];
    int row[25];
    for (int k = 0; k < 24; k++) x[k] = a[i * 24 + k], y[k] = b[i * 24 + k];
    for (int k = 0; k <= 24; k++) row[k] = k;
    for (int p = 1; p <= 24; p++) {
        int diagonal = row[0];
        row[0] = p;
        for (int q = 1; q <= 24; q++) {
            int above = row[q];
            row[q] = min(min(above, row[q - 1]) + 1, diagonal + (x[p - 1] != y[q - 1]));
            diagonal = above;
        }
    }
    out[i] = row[24];
}

// Open-addressing hash table: distinct keys inserted in parallel, then looked up.
extern "C" __global__ void table_insert(const u32 *keys, u64 *table, u32 mask, int n)
{
    ELEMENT;
    u32 key = keys[i];
    u64 entry = (u64)key << 32 | i;
    for (u32 slot = (key * 2654435761u) & mask;; slot = (slot + 1) & mask) {
        u64 seen = atomicCAS(&table[slot], ~0ull, entry);
        if (seen == ~0ull) break;
    }
}
extern "C" __global__ void table_lookup(const u32 *keys, const u64 *table, u32 *out, u32 mask, int n)
{
    ELEMENT;
    u32 key = keys[i], found = 0xffffffffu;
    for (u32 slot = (key * 2654435761u) & mask; table[slot] != ~0ull; slot = (slot + 1) & mask)
        if ((u32)(table[slot] >> 32) == key) {
            found = (u32)table[slot];
            break;
        }
    out[i] = found;
}

// Game of life, 32 cells to a word, on a torus.
extern "C" __global__ void life_step(const u32 *in, u32 *out, int words, int height)
{
    int w = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (w >= words || y >= height) return;
    u32 ones = 0, twos = 0, fours = 0, here = 0;
#pragma unroll
    for (int dy = -1; dy <= 1; dy++) {
        const u32 *row = in + (y + dy + height) % height * words;
        u32 middle = row[w], left = row[(w + words - 1) % words], right = row[(w + 1) % words];
        u32 near[3] = {__funnelshift_l(left, middle, 1), middle, __funnelshift_r(middle, right, 1)};
#pragma unroll
        for (int k = 0; k < 3; k++) {
            if (dy == 0 && k == 1) {
                here = middle;
                continue;
            }
            u32 carry = ones & near[k], carry2 = twos & carry;
            ones ^= near[k];
            twos ^= carry;
            fours |= carry2;
        }
    }
    out[y * words + w] = twos & ~fours & (ones | here);
}

// Stream compaction with a warp-aggregated counter; the order of warps is free, so the case compares sorted output.
extern "C" __global__ void compact_positive(const int *a, int *out, u32 *count, int n)
{
    ELEMENT;
    int x = a[i];
    u32 lane, mask = __ballot_sync(__activemask(), x > 0);
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (x > 0) {
        int leader = __ffs(mask) - 1;
        u32 base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(mask));
        base = __shfl_sync(mask, base, leader);
        out[base + __popc(mask & ((1u << lane) - 1))] = x;
    }
}
// Rank sort of what compact_positive left, to make its order definite (values are distinct).
extern "C" __global__ void compact_rank(const int *in, int *out, const u32 *count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = *count, rank = 0;
    if (i >= n) return;
    for (int k = 0; k < n; k++) rank += in[k] < in[i];
    out[rank] = in[i];
}
