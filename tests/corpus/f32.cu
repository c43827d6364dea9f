// Single-precision arithmetic with every rounding mode, with and without flush to zero and saturation; comparisons;
// min/max.  Every operation is spelled so that no compiler may contract it.
#include "common.cuh"

#define F2(k, op) { float r; asm(op " %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); OUT(k, r); }
#define F3(k, op) { float r; asm(op " %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(y), "f"(z)); OUT(k, r); }
#define F1(k, op) { float r; asm(op " %0, %1;" : "=f"(r) : "f"(x)); OUT(k, r); }

extern "C" __global__ void f32_add_mul(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i];
    OUT(0, __fadd_rn(x, y));
    OUT(1, __fadd_rz(x, y));
    OUT(2, __fadd_ru(x, y));
    OUT(3, __fadd_rd(x, y));
    OUT(4, __fsub_rn(x, y));
    OUT(5, __fsub_rd(x, y));
    OUT(6, __fmul_rn(x, y));
    OUT(7, __fmul_rz(x, y));
    OUT(8, __fmul_ru(x, y));
    OUT(9, __fmul_rd(x, y));
    F2(10, "add.rn.ftz.f32")
    F2(11, "add.rz.ftz.f32")
    F2(12, "add.rp.ftz.f32")
    F2(13, "add.rm.ftz.f32")
    F2(14, "sub.rn.ftz.f32")
    F2(15, "mul.rn.ftz.f32")
    F2(16, "mul.rz.ftz.f32")
    F2(17, "mul.rp.ftz.f32")
    F2(18, "mul.rm.ftz.f32")
    F2(19, "add.rn.sat.f32")
    F2(20, "mul.rn.sat.f32")
    F2(21, "mul.rn.ftz.sat.f32")
    F2(22, "add.rn.ftz.sat.f32")
    OUT(23, __fadd_rn(__fmul_rn(x, 3.25f), 1e-3f));
    OUT(24, __fmul_rn(-x, fabsf(y)));
    OUT(25, __fadd_rn(fabsf(x), -fabsf(y)));
    OUT(26, __fmul_rn(x, 2.0f));
    OUT(27, __fmul_rn(x, 0.125f));
    OUT(28, __fadd_rn(x, x));
}

extern "C" __global__ void f32_fma(const float *a, const float *b, const float *c, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i], z = c[i];
    OUT(0, __fmaf_rn(x, y, z));
    OUT(1, __fmaf_rz(x, y, z));
    OUT(2, __fmaf_ru(x, y, z));
    OUT(3, __fmaf_rd(x, y, z));
    F3(4, "fma.rn.ftz.f32")
    F3(5, "fma.rz.ftz.f32")
    F3(6, "fma.rp.ftz.f32")
    F3(7, "fma.rm.ftz.f32")
    F3(8, "fma.rn.sat.f32")
    F3(9, "fma.rn.ftz.sat.f32")
    OUT(10, __fmaf_rn(-x, y, z));
    OUT(11, __fmaf_rn(x, y, -z));
    OUT(12, __fmaf_rn(-x, y, -z));
    OUT(13, __fmaf_rn(x, 1.5f, z));
    OUT(14, __fmaf_rn(x, y, 0.1f));
    OUT(15, __fmaf_rn(x, x, y));
    OUT(16, __fmaf_rn(__fmaf_rn(__fmaf_rn(x, y, 0.5f), y, 0.25f), y, 0.125f));
}

extern "C" __global__ void f32_div_sqrt(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i];
    OUT(0, __fdiv_rn(x, y));
    OUT(1, __fdiv_rz(x, y));
    OUT(2, __fdiv_ru(x, y));
    OUT(3, __fdiv_rd(x, y));
    OUT(4, __fsqrt_rn(x));
    OUT(5, __fsqrt_rz(x));
    OUT(6, __fsqrt_ru(x));
    OUT(7, __fsqrt_rd(x));
    OUT(8, __frcp_rn(x));
    OUT(9, __frcp_rz(x));
    OUT(10, __frcp_ru(x));
    OUT(11, __frcp_rd(x));
    OUT(12, __frsqrt_rn(x));
    F2(13, "div.rn.ftz.f32")
    F1(14, "sqrt.rn.ftz.f32")
    F1(15, "rcp.rn.ftz.f32")
}

extern "C" __global__ void f32_minmax(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i];
    F2(0, "min.f32")
    F2(1, "max.f32")
    F2(2, "min.ftz.f32")
    F2(3, "max.ftz.f32")
    OUT(4, fminf(fabsf(x), y));
    OUT(5, fmaxf(-x, y));
    OUT(6, fminf(fmaxf(x, -1.0f), 1.0f));
    F1(7, "abs.ftz.f32")
    F1(8, "neg.ftz.f32")
    OUT(9, __saturatef(x));
    F2(10, "copysign.f32")
    OUT(11, x < y ? x : y);
    OUT(12, x > 0.0f ? __fadd_rn(x, y) : __fmul_rn(x, y));
    OUT(13, __fsub_rn(fmaxf(x, y), fminf(x, y)));
}

// All fourteen comparisons, plain and flushing, as one bit each.
#define CMP(bit, op) asm("{.reg .pred p; setp." op ".f32 p, %1, %2; selp.u32 %0, 1, 0, p;}" : "=r"(t) : "f"(x), "f"(y)); m |= t << bit;
extern "C" __global__ void f32_compare(const float *a, const float *b, const float *c, u32 *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i], z = c[i];
    u32 t, m = 0;
    CMP(0, "eq") CMP(1, "ne") CMP(2, "lt") CMP(3, "le") CMP(4, "gt") CMP(5, "ge")
    CMP(6, "equ") CMP(7, "neu") CMP(8, "ltu") CMP(9, "leu") CMP(10, "gtu") CMP(11, "geu")
    CMP(12, "num") CMP(13, "nan")
    OUT(0, m);
    m = 0;
    CMP(0, "eq.ftz") CMP(1, "ne.ftz") CMP(2, "lt.ftz") CMP(3, "le.ftz") CMP(4, "gt.ftz") CMP(5, "ge.ftz")
    CMP(6, "equ.ftz") CMP(7, "neu.ftz") CMP(8, "ltu.ftz") CMP(9, "leu.ftz") CMP(10, "gtu.ftz") CMP(11, "geu.ftz")
    CMP(12, "num.ftz") CMP(13, "nan.ftz")
    OUT(1, m);
    m = 0;
    // Set with a boolean operation and a second predicate; results as mask and as float.
    asm("set.lt.u32.f32 %0, %1, %2;" : "=r"(t) : "f"(x), "f"(y));
    OUT(2, t);
    float f;
    asm("set.geu.f32.f32 %0, %1, %2;" : "=f"(f) : "f"(x), "f"(y));
    OUT(3, __float_as_uint(f));
    asm("{.reg .pred p, q, r; setp.gt.f32 r, %3, 0f00000000; setp.lt.and.f32 p|q, %1, %2, r;"
        " selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}" : "=r"(t) : "f"(x), "f"(y), "f"(z));
    OUT(4, t);
    asm("{.reg .pred p, q, r; setp.gt.f32 r, %3, 0f00000000; setp.ge.or.f32 p|q, %1, %2, r;"
        " selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}" : "=r"(t) : "f"(x), "f"(y), "f"(z));
    OUT(5, t);
    asm("{.reg .pred p, q, r; setp.gt.f32 r, %3, 0f00000000; setp.neu.xor.f32 p|q, %1, %2, !r;"
        " selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}" : "=r"(t) : "f"(x), "f"(y), "f"(z));
    OUT(6, t);
    asm("slct.f32.f32 %0, %1, %2, %3;" : "=f"(f) : "f"(x), "f"(y), "f"(z));
    OUT(7, __float_as_uint(f));
    asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(t) : "r"(__float_as_uint(x)), "r"(__float_as_uint(y)), "r"(__float_as_int(z)));
    OUT(8, t);
    OUT(9, (isnan(x) ? 1 : 0) | (isinf(y) ? 2 : 0) | (isfinite(z) ? 4 : 0) | (signbit(x) ? 8 : 0));
    m = 0;
    for (int k = 0; k < 8; k++) {
#define P(op) asm("{.reg .pred p; testp." op ".f32 p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(t) : "f"(x)); m = m * 2 + t;
        if (k == 0) { P("finite") P("infinite") P("number") P("notanumber") P("normal") P("subnormal") }
    }
    OUT(10, m);
    OUT(11, x == y && y < z ? 1 : x <= z || !(y > z) ? 2 : 3);
}
