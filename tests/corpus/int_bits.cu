// Shifts, bit fields, counts, permutes, three-input logic, 64-bit shifts.
#include "common.cuh"

extern "C" __global__ void bits_shift(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], t;
    u32 ux = x, uy = y;
    OUT(0, ux << (uy & 31));
    OUT(1, ux >> (uy & 31));
    OUT(2, x >> (y & 31));
    asm("shl.b32 %0, %1, %2;" : "=r"(t) : "r"(x), "r"(y));
    OUT(3, t);
    asm("shr.u32 %0, %1, %2;" : "=r"(t) : "r"(x), "r"(y));
    OUT(4, t);
    asm("shr.s32 %0, %1, %2;" : "=r"(t) : "r"(x), "r"(y));
    OUT(5, t);
    OUT(6, ux << 13 | ux >> 19);
    OUT(7, __funnelshift_l(x, y, y & 63));
    OUT(8, __funnelshift_r(x, y, x & 63));
    OUT(9, __funnelshift_lc(x, y, y & 63));
    OUT(10, __funnelshift_rc(x, y, x & 63));
    OUT(11, __funnelshift_l(x, y, 7));
    OUT(12, __funnelshift_r(x, y, 25));
    OUT(13, (x >> 7) + (ux >> 9));
    OUT(14, (1 << (y & 31)) - 1);
    OUT(15, x >> 31);
}

extern "C" __global__ void bits_shift64(const s64 *a, const int *b, s64 *out, int n)
{
    ELEMENT;
    s64 x = a[i];
    u64 ux = x, t;
    int y = b[i];
    OUT(0, ux << (y & 63));
    OUT(1, ux >> (y & 63));
    OUT(2, x >> (y & 63));
    asm("shl.b64 %0, %1, %2;" : "=l"(t) : "l"(x), "r"(y));
    OUT(3, t);
    asm("shr.u64 %0, %1, %2;" : "=l"(t) : "l"(x), "r"(y));
    OUT(4, t);
    asm("shr.s64 %0, %1, %2;" : "=l"(t) : "l"(x), "r"(y));
    OUT(5, t);
    OUT(6, ux << 5);
    OUT(7, ux >> 44);
    OUT(8, x >> 17);
    OUT(9, x >> 40);
    OUT(10, ux << 37);
    OUT(11, ux << 23 | ux >> 41);
    OUT(12, ~ux & (ux >> 3) ^ (ux << 1));
    OUT(13, (s64)(u32)x << 32 | (u32)(x >> 32));
}

extern "C" __global__ void bits_field(const int *a, const int *b, const int *c, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], t;
    int position = c[i] & 63, length = c[i] >> 6 & 63;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(position), "r"(length));
    OUT(0, t);
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(position), "r"(length));
    OUT(1, t);
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(t) : "r"(x), "r"(y), "r"(position), "r"(length));
    OUT(2, t);
    asm("bfe.u32 %0, %1, 5, 11;" : "=r"(t) : "r"(x));
    OUT(3, t);
    asm("bfe.s32 %0, %1, 20, 9;" : "=r"(t) : "r"(x));
    OUT(4, t);
    asm("bfe.s32 %0, %1, 25, 12;" : "=r"(t) : "r"(x));
    OUT(5, t);
    asm("bfi.b32 %0, %1, %2, 8, 16;" : "=r"(t) : "r"(x), "r"(y));
    OUT(6, t);
    OUT(7, (x >> 3) & 0x7f);
    OUT(8, (x & ~0xff0) | (y << 4 & 0xff0));
    asm("bfi.b32 %0, %1, 0x12345678, %2, 7;" : "=r"(t) : "r"(x), "r"(position));
    OUT(9, t);
    s64 wide = (s64)x << 32 | (u32)y, w;
    asm("bfe.s64 %0, %1, %2, %3;" : "=l"(w) : "l"(wide), "r"(position), "r"(length));
    OUT(10, (int)w);
    OUT(11, (int)(w >> 32));
    asm("bfe.u64 %0, %1, 13, 37;" : "=l"(w) : "l"(wide));
    OUT(12, (int)w ^ (int)(w >> 32));
    asm("bfi.b64 %0, %1, %2, 9, 40;" : "=l"(w) : "l"(wide), "l"(wide * 3));
    OUT(13, (int)w ^ (int)(w >> 32));
}

extern "C" __global__ void bits_count(const int *a, const s64 *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], t;
    s64 y = b[i];
    OUT(0, __popc(x));
    OUT(1, __clz(x));
    OUT(2, __brev(x));
    OUT(3, __ffs(x));
    OUT(4, __popcll(y));
    OUT(5, __clzll(y));
    OUT(6, __ffsll(y));
    u64 r = __brevll(y);
    OUT(7, (u32)r);
    OUT(8, (u32)(r >> 32));
    asm("bfind.u32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(9, t);
    asm("bfind.s32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(10, t);
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(11, t);
    asm("bfind.shiftamt.s32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(12, t);
    asm("bfind.u64 %0, %1;" : "=r"(t) : "l"(y));
    OUT(13, t);
    OUT(14, __popc(~x & 0x0ff0ff0f));
    OUT(15, __popc(x & -x));
    OUT(16, __popc(x) & 1 ? __clz(~x) : __ffs(~x));
}

extern "C" __global__ void bits_permute(const int *a, const int *b, const int *c, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], s = c[i], t;
    OUT(0, __byte_perm(x, y, s & 0x7777));
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(1, t);
    asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(2, t);
    asm("prmt.b32.b4e %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(3, t);
    asm("prmt.b32.rc8 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(4, t);
    asm("prmt.b32.ecl %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(5, t);
    asm("prmt.b32.ecr %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(6, t);
    asm("prmt.b32.rc16 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(s));
    OUT(7, t);
    OUT(8, __byte_perm(x, 0, 0x0123));
    OUT(9, __byte_perm(x, y, 0x6420));
    OUT(10, (x & 0xff) << 24 | (x & 0xff00) << 8 | (u32)x >> 24 | (x >> 8 & 0xff00));
    asm("prmt.b32 %0, %1, %2, 0xba98;" : "=r"(t) : "r"(x), "r"(y));
    OUT(11, t);
    OUT(12, (short)x << 16 | (u16)(y >> 16));
}

// Every three-input truth table: 256 of them, as immediate operands, folded four to a row.
template <int LUT> static __device__ int lop3(int x, int y, int z)
{
    int r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(x), "r"(y), "r"(z), "n"(LUT));
    return r;
}
template <int LUT> static __device__ void four_tables(int x, int y, int z, int *out, int n, int i)
{
    OUT(LUT / 4, lop3<LUT>(x, y, z) * 3 + lop3<LUT + 1>(y, z, x) * 5 + lop3<LUT + 2>(z, x, y) * 7 + lop3<LUT + 3>(x, z, y) * 11);
    if constexpr (LUT + 4 < 256) four_tables<LUT + 4>(x, y, z, out, n, i);
}
extern "C" __global__ void bits_lop3(const int *a, const int *b, const int *c, int *out, int n)
{
    ELEMENT;
    four_tables<0>(a[i], b[i], c[i], out, n, i);
}

extern "C" __global__ void bits_logic(const int *a, const int *b, const int *c, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], z = c[i];
    OUT(0, x & y);
    OUT(1, x | y);
    OUT(2, x ^ y);
    OUT(3, ~x);
    OUT(4, x & ~y);
    OUT(5, x | ~y);
    OUT(6, ~(x & y));
    OUT(7, ~(x | y));
    OUT(8, x ^ y ^ z);
    OUT(9, (x & y) | (~x & z));
    OUT(10, (x & y) | (y & z) | (x & z));
    OUT(11, x & 0x12345678);
    OUT(12, x | 0x80000001);
    OUT(13, x ^ 0xdeadbeef);
    OUT(14, (x & y) == 0 ? 1 : 2);
    OUT(15, (x & 0x10) != 0 ? y : z);
    OUT(16, !x + !!y * 2 + (x && y) * 4 + (x || z) * 8);
    int t;
    asm("cnot.b32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(17, t);
    OUT(18, (x & (x - 1)) | (y & -y));
    OUT(19, (x >= 0 && (y & 1)) ^ (z < 0) ? x : ~z);
}
