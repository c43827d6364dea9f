// Where words meet: signs in narrow types before a conversion, and sums and tests of 64 bits in several operands.
#include "common.cuh"

// neg or abs in the type of the source, then a conversion, as one instruction of sm_52.
#define S16(k, op, cvt, c, type) { type r; asm("{ .reg .b16 t; " op ".s16 t, %1; cvt." cvt ".s16 %0, t; }" : "=" c(r) : "h"((short)x)); OUT(k, (s64)r); }
#define S32(k, op, cvt, c, type) { type r; asm("{ .reg .b32 t; " op ".s32 t, %1; cvt." cvt ".s32 %0, t; }" : "=" c(r) : "r"((int)x)); OUT(k, (s64)r); }
#define BOTH(k, op) \
    S16(k, op, "s32", "r", int) S16(k + 1, op, "u32", "r", u32) S16(k + 2, op, "s64", "l", s64) \
    S16(k + 3, op, "sat.u16", "h", u16) S16(k + 4, op, "sat.u8", "h", u16) S16(k + 5, op, "sat.s8", "h", short) \
    S16(k + 6, op, "sat.u32", "r", u32) S16(k + 7, op, "rn.f32", "f", float) S16(k + 8, op, "rn.f64", "d", double) \
    S32(k + 9, op, "s64", "l", s64) S32(k + 10, op, "sat.u32", "r", u32) S32(k + 11, op, "sat.u16", "h", u16) \
    S32(k + 12, op, "sat.s16", "h", short) S32(k + 13, op, "sat.u8", "h", u16) S32(k + 14, op, "sat.s8", "h", short) \
    S32(k + 15, op, "rz.f32", "f", float) S32(k + 16, op, "rn.f64", "d", double)

extern "C" __global__ void narrow_signs(const s64 *a, s64 *out, int n)
{
    ELEMENT;
    s64 x = a[i];
    BOTH(0, "neg")
    BOTH(17, "abs")
    short h = (short)x;
    s8 b = (s8)(x >> 8);
    OUT(34, (short)-h);
    OUT(35, (s64)(float)(short)-h);
    OUT(36, (u16)(short)-h);
    OUT(37, (s8)-b);
    OUT(38, (s64)(double)(s8)(b < 0 ? -b : b));
    OUT(39, -(int)h);
    OUT(40, (short)(h < 0 ? -h : h));
    OUT(41, (short)-(short)(x >> 16) < h);
    OUT(42, (u16)(s8)((u32)x * (u32)x));
}

extern "C" __global__ void wide_sums(const u64 *a, const u64 *b, const u64 *c, u64 *out, int n)
{
    ELEMENT;
    u64 x = a[i], y = b[i], z = c[i];
    OUT(0, x + y + z);
    OUT(1, x + y - z);
    OUT(2, x - y - z);
    OUT(3, 0 - x - y - z);
    OUT(4, 0 - x + y - z);
    OUT(5, x + (u32)y + (u32)z);
    OUT(6, (u64)(u32)x + (u32)y + (u32)z);
    OUT(7, x + y + ((u64)(u32)z << 32));
    OUT(8, x - y + (u32)z);
    OUT(9, x + (u64)(s64)(int)y + (u64)(s64)(short)z);
    OUT(10, 12345678901ull - x - z);
    OUT(11, 5 - x - y);
    OUT(12, x - (y << 3) - z);
    OUT(13, x - (y << 3));
    OUT(14, x + y * 8 - 5);
    OUT(15, (x + y + z) >> 63);
    OUT(16, ((u64)(u32)x - (u32)y) >> 32);
    OUT(17, (u64)((s64)x < 0 ? 0 - x : x) + y - z);
    OUT(18, x + y - z < y ? x : z);
}

extern "C" __global__ void wide_tests(const u64 *a, const u64 *b, const u64 *c, u32 *out, int n)
{
    ELEMENT;
    u64 x = a[i], y = b[i], z = c[i];
    OUT(0, (x & y) != 0);
    OUT(1, (x | y) == 0);
    OUT(2, (~x & y) != 0);
    OUT(3, (x ^ y) != z);
    OUT(4, (x & y & z) != 0);
    OUT(5, (x | y | z) == 0);
    OUT(6, ((x & y) | z) == 0);
    OUT(7, (x & 0x123456789abcull) != 0);
    OUT(8, (x << 5) != 0);
    OUT(9, (x >> 5) == 0);
    OUT(10, (s64)(x & y) > 0);
    OUT(11, x + y + z == 0);
    OUT(12, (s64)(x - y) < (s64)z);
}
