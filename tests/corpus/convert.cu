// Conversions between every width, with every rounding mode and saturation; rounding to integral values; halves.
#include "common.cuh"

#define CVT_FI(k, type, op, c) { type r; asm("cvt." op " %0, %1;" : "=" c(r) : "f"(x)); OUT(k, r); }
#define CVT_DI(k, type, op, c) { type r; asm("cvt." op " %0, %1;" : "=" c(r) : "d"(x)); OUT(k, r); }

extern "C" __global__ void convert_f32_s32(const float *a, int *out, int n)
{
    ELEMENT;
    float x = a[i];
    OUT(0, __float2int_rz(x));
    OUT(1, __float2int_rn(x));
    OUT(2, __float2int_ru(x));
    OUT(3, __float2int_rd(x));
    OUT(4, __float2uint_rz(x));
    OUT(5, __float2uint_rn(x));
    OUT(6, __float2uint_ru(x));
    OUT(7, __float2uint_rd(x));
    CVT_FI(8, int, "rzi.ftz.s32.f32", "r")
    CVT_FI(9, int, "rpi.ftz.s32.f32", "r")
    CVT_FI(10, int, "rmi.ftz.s32.f32", "r")
    CVT_FI(11, int, "rpi.ftz.u32.f32", "r")
    CVT_FI(12, short, "rzi.s16.f32", "h")
    CVT_FI(13, short, "rni.s16.f32", "h")
    CVT_FI(14, u16, "rzi.u16.f32", "h")
    CVT_FI(15, u16, "rpi.u16.f32", "h")
    CVT_FI(16, int, "rzi.s8.f32", "r")
    CVT_FI(17, int, "rmi.s8.f32", "r")
    CVT_FI(18, int, "rzi.u8.f32", "r")
    CVT_FI(19, int, "rni.u8.f32", "r")
    OUT(20, __float2int_rz(fabsf(x)));
    OUT(21, __float2int_rn(-x));
}

extern "C" __global__ void convert_f32_s64(const float *a, s64 *out, int n)
{
    ELEMENT;
    float x = a[i];
    OUT(0, __float2ll_rz(x));
    OUT(1, __float2ll_rn(x));
    OUT(2, __float2ll_ru(x));
    OUT(3, __float2ll_rd(x));
    OUT(4, (s64)__float2ull_rz(x));
    OUT(5, (s64)__float2ull_rn(x));
    OUT(6, (s64)__float2ull_ru(x));
    OUT(7, (s64)__float2ull_rd(x));
    CVT_FI(8, s64, "rpi.ftz.s64.f32", "l")
    CVT_FI(9, s64, "rmi.ftz.u64.f32", "l")
}

extern "C" __global__ void convert_f64_int(const double *a, s64 *out, int n)
{
    ELEMENT;
    double x = a[i];
    OUT(0, __double2ll_rz(x));
    OUT(1, __double2ll_rn(x));
    OUT(2, __double2ll_ru(x));
    OUT(3, __double2ll_rd(x));
    OUT(4, (s64)__double2ull_rz(x));
    OUT(5, (s64)__double2ull_rn(x));
    OUT(6, __double2int_rz(x));
    OUT(7, __double2int_rn(x));
    OUT(8, __double2int_ru(x));
    OUT(9, __double2int_rd(x));
    OUT(10, (s64)__double2uint_rz(x));
    OUT(11, (s64)__double2uint_rn(x));
    OUT(12, (s64)__double2uint_ru(x));
    OUT(13, (s64)__double2uint_rd(x));
    OUT(14, (s64)__double2hiint(x) << 32 | (u32)__double2loint(x));
}

extern "C" __global__ void convert_int_f32(const s64 *a, float *out, int n)
{
    ELEMENT;
    s64 x = a[i];
    int s = (int)x;
    OUT(0, __int2float_rn(s));
    OUT(1, __int2float_rz(s));
    OUT(2, __int2float_ru(s));
    OUT(3, __int2float_rd(s));
    OUT(4, __uint2float_rn(s));
    OUT(5, __uint2float_rz(s));
    OUT(6, __uint2float_ru(s));
    OUT(7, __uint2float_rd(s));
    OUT(8, __ll2float_rn(x));
    OUT(9, __ll2float_rz(x));
    OUT(10, __ll2float_ru(x));
    OUT(11, __ll2float_rd(x));
    OUT(12, __ull2float_rn(x));
    OUT(13, __ull2float_rz(x));
    OUT(14, __ull2float_ru(x));
    OUT(15, __ull2float_rd(x));
    OUT(16, (float)(short)s);
    OUT(17, (float)(u16)s);
    OUT(18, (float)(s8)s);
    OUT(19, (float)(u8)s);
    OUT(20, (float)(u8)(s >> 8));
    OUT(21, (float)(u8)(s >> 16));
    OUT(22, (float)(u8)(s >> 24));
    OUT(23, (float)(s8)(s >> 8));
    OUT(24, (float)(short)(s >> 16));
    OUT(25, (float)(u16)(s >> 16));
    OUT(26, (float)-s);
}

extern "C" __global__ void convert_int_f64(const s64 *a, double *out, int n)
{
    ELEMENT;
    s64 x = a[i];
    int s = (int)x;
    OUT(0, (double)s);
    OUT(1, (double)(u32)s);
    OUT(2, __ll2double_rn(x));
    OUT(3, __ll2double_rz(x));
    OUT(4, __ll2double_ru(x));
    OUT(5, __ll2double_rd(x));
    OUT(6, __ull2double_rn(x));
    OUT(7, __ull2double_rz(x));
    OUT(8, __ull2double_ru(x));
    OUT(9, __ull2double_rd(x));
    OUT(10, (double)(short)s);
    OUT(11, (double)(u8)s);
    OUT(12, (double)(s8)(s >> 16));
    OUT(13, __hiloint2double((s & 0x7fffff) | 0x3ff00000, (int)(x >> 32)));
}

extern "C" __global__ void convert_f32_f64(const double *a, const float *b, float *out, double *wide, int n)
{
    ELEMENT;
    double x = a[i];
    float y = b[i];
    OUT(0, __double2float_rn(x));
    OUT(1, __double2float_rz(x));
    OUT(2, __double2float_ru(x));
    OUT(3, __double2float_rd(x));
    float r;
    asm("cvt.rn.ftz.f32.f64 %0, %1;" : "=f"(r) : "d"(x));
    OUT(4, r);
    asm("cvt.rn.sat.f32.f64 %0, %1;" : "=f"(r) : "d"(x));
    OUT(5, r);
    wide[i] = y;
    double d;
    asm("cvt.ftz.f64.f32 %0, %1;" : "=d"(d) : "f"(y));
    wide[n + i] = d;
    wide[2 * n + i] = fabsf(y);
    wide[3 * n + i] = -y;
}

extern "C" __global__ void convert_round(const float *a, const double *b, float *out, double *wide, int n)
{
    ELEMENT;
    float x = a[i];
    double y = b[i];
    OUT(0, floorf(x));
    OUT(1, ceilf(x));
    OUT(2, truncf(x));
    OUT(3, rintf(x));
    OUT(4, roundf(x));
    float r;
    asm("cvt.rmi.ftz.f32.f32 %0, %1;" : "=f"(r) : "f"(x));
    OUT(5, r);
    asm("cvt.rpi.ftz.sat.f32.f32 %0, %1;" : "=f"(r) : "f"(x));
    OUT(6, r);
    OUT(7, __fsub_rn(x, truncf(x)));
    OUT(8, floorf(fabsf(x)));
    wide[i] = floor(y);
    wide[n + i] = ceil(y);
    wide[2 * n + i] = trunc(y);
    wide[3 * n + i] = rint(y);
    wide[4 * n + i] = round(y);
}

extern "C" __global__ void convert_half(const float *a, const u16 *b, u16 *out, float *wide, int n)
{
    ELEMENT;
    float x = a[i];
    u16 h = b[i], r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    OUT(0, r);
    asm("cvt.rz.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    OUT(1, r);
    asm("cvt.rp.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    OUT(2, r);
    asm("cvt.rm.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    OUT(3, r);
    asm("cvt.rn.ftz.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    OUT(4, r);
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    wide[i] = f;
    asm("cvt.ftz.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    wide[n + i] = f;
    // A packed pair: low and high half through one 32-bit word.
    u32 packed = ((const u32 *)b)[i / 2];
    asm("{.reg .f16 l, h; .reg .f32 p, q; mov.b32 {l, h}, %1; cvt.f32.f16 p, l; cvt.f32.f16 q, h; add.rn.f32 %0, p, q;}"
        : "=f"(f) : "r"(packed));
    wide[2 * n + i] = f;
}

// Integer narrowing and widening through memory and registers.
extern "C" __global__ void convert_width(const int *a, s64 *out, int n)
{
    ELEMENT;
    int x = a[i];
    OUT(0, (s64)(s8)x);
    OUT(1, (s64)(u8)x);
    OUT(2, (s64)(short)x);
    OUT(3, (s64)(u16)x);
    OUT(4, (s64)x);
    OUT(5, (s64)(u32)x);
    OUT(6, (s64)(s8)(x >> 8) << 40);
    OUT(7, (s64)(short)((u32)x >> 16) * (s8)(x >> 24));
    int t;
    asm("cvt.s32.s8 %0, %1;" : "=r"(t) : "r"(x));
    OUT(8, t);
    asm("cvt.u32.u16 %0, %1;" : "=r"(t) : "h"((u16)x));
    OUT(9, t);
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(10, t);
    asm("cvt.sat.u16.s32 %0, %1;" : "=r"(t) : "r"(x));
    OUT(11, t);
    s64 w = (s64)x * 65537;
    asm("cvt.sat.s32.s64 %0, %1;" : "=r"(t) : "l"(w));
    OUT(12, t);
    asm("cvt.sat.u32.s64 %0, %1;" : "=r"(t) : "l"(w));
    OUT(13, (s64)(u32)t);
}
