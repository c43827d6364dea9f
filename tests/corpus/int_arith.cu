// 32-bit and 64-bit integer arithmetic: add, multiply in all widths, divide, carry chains, min/max, sums of differences.
#include "common.cuh"

extern "C" __global__ void int_add_sub(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i];
    u32 ux = x, uy = y;
    OUT(0, ux + uy);
    OUT(1, ux - uy);
    OUT(2, uy - ux);
    OUT(3, 0u - ux);
    OUT(4, ux + uy + 12345u);
    OUT(5, ux - uy - 0x89abcdefu);
    OUT(6, ux + uy + (ux >> 16));
    OUT(7, (ux & 0xffff) + (uy & 0xffff) + ux);
    OUT(8, (ux << 3) + uy);
    OUT(9, (ux << 2) - uy);
    OUT(10, uy - (ux << 5));
    OUT(11, ux * 9 + uy * 17);
    int sat;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(sat) : "r"(x), "r"(y));
    OUT(12, sat);
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(sat) : "r"(x), "r"(y));
    OUT(13, sat);
    OUT(14, ((ux + uy) >> 16) + 7u);
    OUT(15, ~ux + uy);
}

extern "C" __global__ void int_mul(const int *a, const int *b, const int *c, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], z = c[i];
    u32 ux = x, uy = y, uz = z;
    OUT(0, ux * uy);
    OUT(1, ux * uy + uz);
    OUT(2, __mulhi(x, y));
    OUT(3, __umulhi(ux, uy));
    OUT(4, __mul24(x, y));
    OUT(5, __umul24(ux, uy));
    OUT(6, (int)(short)x * (int)(short)y + z);
    OUT(7, (ux & 0xffff) * (uy & 0xffff) + uz);
    OUT(8, (ux >> 16) * (uy >> 16));
    OUT(9, (int)(short)x * (int)(y & 0xffff));
    OUT(10, ux * 1000003u);
    OUT(11, ux * 0xfffffff1u + uy);
    OUT(12, (x >> 16) * (short)y);
    int t;
    asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(z));
    OUT(13, t);
    asm("mad.hi.u32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(z));
    OUT(14, t);
    asm("mad.hi.sat.s32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(z));
    OUT(15, t);
    asm("mad24.lo.s32 %0, %1, %2, %3;" : "=r"(t) : "r"(x), "r"(y), "r"(z));
    OUT(16, t);
    asm("mul24.hi.s32 %0, %1, %2;" : "=r"(t) : "r"(x), "r"(y));
    OUT(17, t);
    asm("mul24.hi.u32 %0, %1, %2;" : "=r"(t) : "r"(x), "r"(y));
    OUT(18, t);
    OUT(19, ux * ux * ux + uy);
}

extern "C" __global__ void int_mul_wide(const int *a, const int *b, const s64 *c, s64 *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i];
    s64 z = c[i];
    OUT(0, (s64)x * y);
    OUT(1, (s64)((u64)(u32)x * (u32)y));
    OUT(2, (s64)((u64)((s64)x * y) + (u64)z));
    OUT(3, (s64)((u64)(u32)x * (u32)y + (u64)z));
    OUT(4, (s64)(short)x * (short)y);
    OUT(5, (s64)x * 86400000);
    int w;
    u64 t;
    asm("mad.wide.s16 %0, %1, %2, %3;" : "=r"(w) : "h"((short)x), "h"((short)y), "r"(y));
    OUT(6, (s64)w);
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(t) : "r"(x), "r"(y));
    OUT(7, (s64)t);
}

extern "C" __global__ void int_div_s32(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i];
    if (y == 0 || (y == -1 && x == (int)0x80000000)) y = 3;
    OUT(0, x / y);
    OUT(1, x % y);
    OUT(2, x / 7);
    OUT(3, x % 7);
    OUT(4, x / 1000000007);
    OUT(5, x % -13);
    OUT(6, x / 8);
    OUT(7, x % 64);
    OUT(8, x / -2147483647);
    OUT(9, (short)x / (short)((y & 0x7fff) | 1));
}

extern "C" __global__ void int_div_u32(const u32 *a, const u32 *b, u32 *out, int n)
{
    ELEMENT;
    u32 x = a[i], y = b[i];
    if (y == 0) y = 10;
    OUT(0, x / y);
    OUT(1, x % y);
    OUT(2, x / 3);
    OUT(3, x / 7);
    OUT(4, x % 10);
    OUT(5, x / 641);
    OUT(6, x % 1000000007u);
    OUT(7, x / 0xfffffffeu);
    OUT(8, (x & 0xff) / ((y & 0xf) + 1));
    OUT(9, x / 60 % 60);
}

extern "C" __global__ void int64_arith(const s64 *a, const s64 *b, s64 *out, int n)
{
    ELEMENT;
    u64 x = a[i], y = b[i];
    s64 sx = x, sy = y;
    OUT(0, x + y);
    OUT(1, x - y);
    OUT(2, 0 - x);
    OUT(3, x * y);
    OUT(4, x * y + (x ^ y));
    OUT(5, __mul64hi(sx, sy));
    OUT(6, (s64)__umul64hi(x, y));
    OUT(7, sx < sy ? sx : sy);
    OUT(8, sx > sy ? sx : sy);
    OUT(9, (s64)(x < y ? x : y));
    OUT(10, (s64)(x > y ? x : y));
    OUT(11, sx < 0 ? (s64)(0 - x) : sx);
    OUT(12, x * 6364136223846793005ull + 1442695040888963407ull);
    OUT(13, x + (u32)y);
    OUT(14, x - (y << 7));
    OUT(15, (s64)(x & y) + (s64)(x | ~y));
}

extern "C" __global__ void int64_div(const s64 *a, const s64 *b, s64 *out, int n)
{
    ELEMENT;
    s64 x = a[i], y = b[i];
    if (y == 0 || (y == -1 && x == (s64)0x8000000000000000ll)) y = 5;
    u64 ux = x, uy = y;
    OUT(0, x / y);
    OUT(1, x % y);
    OUT(2, ux / uy);
    OUT(3, ux % uy);
    OUT(4, x / 1000);
    OUT(5, (s64)(ux % 1000000007ull));
    OUT(6, x / 4096);
    OUT(7, (s64)(ux / (u32)(uy | 1)));
}

extern "C" __global__ void int64_compare(const s64 *a, const s64 *b, int *out, int n)
{
    ELEMENT;
    s64 x = a[i], y = b[i];
    u64 ux = x, uy = y;
    OUT(0, (x < y) | (x <= y) << 1 | (x > y) << 2 | (x >= y) << 3 | (x == y) << 4 | (x != y) << 5);
    OUT(1, (ux < uy) | (ux <= uy) << 1 | (ux > uy) << 2 | (ux >= uy) << 3);
    OUT(2, (x > 0) | (x < 0) << 1 | (x == -1) << 2 | (x < 1000000000000ll) << 3 | (ux > 0xffffffffull) << 4);
    OUT(3, x < y && ux > uy ? 11 : x == y || ux < 17 ? 22 : 33);
}

// Carry chains: 128-bit add, subtract and multiply, 96-bit multiply-add.
extern "C" __global__ void carry_chain(const uint4 *a, const uint4 *b, uint4 *out, int n)
{
    ELEMENT;
    uint4 x = a[i], y = b[i], r;
    asm("add.cc.u32 %0, %4, %8; addc.cc.u32 %1, %5, %9; addc.cc.u32 %2, %6, %10; addc.u32 %3, %7, %11;"
        : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
        : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y), "r"(y.z), "r"(y.w));
    OUT(0, r);
    asm("sub.cc.u32 %0, %4, %8; subc.cc.u32 %1, %5, %9; subc.cc.u32 %2, %6, %10; subc.u32 %3, %7, %11;"
        : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
        : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y), "r"(y.z), "r"(y.w));
    OUT(1, r);
    // Low 128 bits of (x.x, x.y) * (y.x, y.y): schoolbook with mad.cc and madc.
    asm("{\n\t"
        "mul.lo.u32 %0, %4, %6;\n\t"
        "mul.hi.u32 %1, %4, %6;\n\t"
        "mad.lo.cc.u32 %1, %4, %7, %1;\n\t"
        "madc.hi.u32 %2, %4, %7, 0;\n\t"
        "mad.lo.cc.u32 %1, %5, %6, %1;\n\t"
        "madc.hi.cc.u32 %2, %5, %6, %2;\n\t"
        "addc.u32 %3, 0, 0;\n\t"
        "mad.lo.cc.u32 %2, %5, %7, %2;\n\t"
        "madc.hi.u32 %3, %5, %7, %3;\n\t"
        "}"
        : "=&r"(r.x), "=&r"(r.y), "=&r"(r.z), "=&r"(r.w)
        : "r"(x.x), "r"(x.y), "r"(y.x), "r"(y.y));
    OUT(2, r);
    // Carry out of each limb sum, gathered as 0 or 1.
    asm("{\n\t.reg .u32 t;\n\t"
        "add.cc.u32 t, %4, %8; addc.u32 %0, 0, 0;\n\t"
        "add.cc.u32 t, %5, %9; addc.u32 %1, 0, 0;\n\t"
        "sub.cc.u32 t, %6, %10; subc.u32 %2, 0, 0;\n\t"
        "sub.cc.u32 t, %7, %11; subc.u32 %3, 5, 0;\n\t}"
        : "=&r"(r.x), "=&r"(r.y), "=&r"(r.z), "=&r"(r.w)
        : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y), "r"(y.z), "r"(y.w));
    OUT(3, r);
    asm("add.cc.u64 %0, %2, %3; addc.u64 %1, %4, %5;"
        : "=l"(*(u64 *)&r.x), "=l"(*(u64 *)&r.z)
        : "l"((u64)x.x << 32 | x.y), "l"((u64)y.x << 32 | y.y), "l"((u64)x.z << 32 | x.w), "l"((u64)y.z << 32 | y.w));
    OUT(4, r);
}

extern "C" __global__ void int_minmax(const int *a, const int *b, const int *c, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], z = c[i];
    u32 ux = x, uy = y, uz = z;
    OUT(0, min(x, y));
    OUT(1, max(x, y));
    OUT(2, min(ux, uy));
    OUT(3, max(ux, uy));
    OUT(4, max(min(x, y), z));
    OUT(5, x == (int)0x80000000 ? x : abs(x));
    OUT(6, __sad(x, y, uz));
    OUT(7, __usad(ux, uy, uz));
    OUT(8, __hadd(x, y));
    OUT(9, __rhadd(x, y));
    OUT(10, __uhadd(ux, uy));
    OUT(11, __urhadd(ux, uy));
    OUT(12, min(max(x, -100), 100));
    OUT(13, max(0, min(x, 255)));
    OUT(14, (x < y) + (x > z) * 2 + (ux < uy) * 4 + (ux >= uz) * 8 + (x == z) * 16 + (y != z) * 32);
    OUT(15, x < y ? z : x > z ? y : x);
    OUT(16, -(x < y));
    OUT(17, (x < y && y < z) || (x > z && ux < uy) ? 1 : 2);
    OUT(18, (x < y) ^ (ux < uz) ? x : y);
}

// Sub-word arithmetic: results wrap at 8 and 16 bits.
extern "C" __global__ void int_narrow(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    s8 x8 = (s8)a[i], y8 = (s8)b[i];
    short x16 = (short)a[i], y16 = (short)b[i];
    OUT(0, (s8)(x8 + y8));
    OUT(1, (u8)(x8 - y8));
    OUT(2, (s8)(x8 * y8));
    OUT(3, (short)(x16 + y16));
    OUT(4, (u16)(x16 * y16));
    OUT(5, (s8)(a[i] >> 8) + (s8)(b[i] >> 24));
    OUT(6, (u8)(a[i] >> 16) * (u8)(b[i] >> 8));
    OUT(7, (short)(a[i] >> 16) - (short)(b[i] >> 16));
    OUT(8, x8 < y8 ? x16 : y16);
    OUT(9, (u16)x16 > (u16)y16 ? (u8)x8 : (u8)y8);
    short s;
    asm("mul.hi.s16 %0, %1, %2;" : "=h"(s) : "h"(x16), "h"(y16));
    OUT(10, s);
    asm("mad.lo.s16 %0, %1, %2, %1;" : "=h"(s) : "h"(x16), "h"(y16));
    OUT(11, s);
    asm("cvt.sat.s8.s32 %0, %1;" : "=h"(s) : "r"(a[i]));
    OUT(12, (s8)s);
    asm("cvt.sat.u8.s32 %0, %1;" : "=h"(s) : "r"(a[i]));
    OUT(13, (u8)s);
    asm("cvt.sat.s16.u32 %0, %1;" : "=h"(s) : "r"(a[i]));
    OUT(14, s);
    asm("cvt.sat.u16.s32 %0, %1;" : "=h"(s) : "r"(a[i]));
    OUT(15, (u16)s);
    int t;
    asm("cvt.sat.u32.s32 %0, %1;" : "=r"(t) : "r"(a[i]));
    OUT(16, t);
    asm("cvt.sat.s32.u32 %0, %1;" : "=r"(t) : "r"(a[i]));
    OUT(17, t);
}
