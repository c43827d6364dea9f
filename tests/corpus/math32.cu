// Single-precision functions: hardware approximations (MUFU), fast intrinsics and the full library versions.
#include "common.cuh"

#define A1(k, op) { float r; asm(op " %0, %1;" : "=f"(r) : "f"(x)); OUT(k, r); }

// Argument y is positive and x bounded; see the case for the ranges.
extern "C" __global__ void math32_approx(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i];
    A1(0, "rcp.approx.f32")
    A1(1, "rcp.approx.ftz.f32")
    A1(2, "sqrt.approx.f32")
    A1(3, "sqrt.approx.ftz.f32")
    A1(4, "rsqrt.approx.f32")
    A1(5, "rsqrt.approx.ftz.f32")
    A1(6, "lg2.approx.f32")
    A1(7, "lg2.approx.ftz.f32")
    A1(8, "ex2.approx.f32")
    A1(9, "ex2.approx.ftz.f32")
    x = b[i];
    A1(10, "sin.approx.f32")
    A1(11, "cos.approx.f32")
    A1(12, "sin.approx.ftz.f32")
    A1(13, "cos.approx.ftz.f32")
}

extern "C" __global__ void math32_fast(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i];
    OUT(0, __expf(x));
    OUT(1, __exp10f(x));
    OUT(2, __logf(y));
    OUT(3, __log2f(y));
    OUT(4, __log10f(y));
    OUT(5, __sinf(__fmul_rn(x, 0.03125f)));
    OUT(6, __cosf(__fmul_rn(x, 0.03125f)));
    float s, c;
    __sincosf(__fmul_rn(x, 0.03125f), &s, &c);
    OUT(7, s);
    OUT(8, c);
    OUT(9, __fdividef(x, y));
    float r;
    asm("div.approx.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    OUT(10, r);
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    OUT(11, r);
    asm("div.full.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    OUT(12, r);
}

extern "C" __global__ void math32_exp_log(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i];
    OUT(0, expf(x));
    OUT(1, exp2f(x));
    OUT(2, exp10f(x));
    OUT(3, expm1f(x));
    OUT(4, logf(y));
    OUT(5, log2f(y));
    OUT(6, log10f(y));
    OUT(7, log1pf(y));
    OUT(8, powf(y, x));
    OUT(9, cbrtf(x));
    OUT(10, hypotf(x, y));
    OUT(11, rsqrtf(y));
    OUT(12, logbf(y));
    OUT(13, ldexpf(x, (int)x));
}

extern "C" __global__ void math32_trig(const float *a, const float *b, float *out, int n)
{
    ELEMENT;
    float x = a[i], y = b[i];
    OUT(0, sinf(x));
    OUT(1, cosf(x));
    OUT(2, tanf(x));
    OUT(3, sinpif(y));
    OUT(4, cospif(y));
    OUT(5, asinf(y));
    OUT(6, acosf(y));
    OUT(7, atanf(x));
    OUT(8, atan2f(x, y));
    OUT(9, sinhf(__fmul_rn(y, 8.0f)));
    OUT(10, coshf(__fmul_rn(y, 8.0f)));
    OUT(11, tanhf(x));
    OUT(12, asinhf(x));
    OUT(13, acoshf(__fadd_rn(1.0f, fabsf(x))));
    OUT(14, atanhf(y));
}

extern "C" __global__ void math32_special(const float *a, float *out, int n)
{
    ELEMENT;
    float x = a[i];
    OUT(0, erff(x));
    OUT(1, erfcf(x));
    OUT(2, tgammaf(x));
    OUT(3, lgammaf(__fadd_rn(fabsf(x), 0.1f)));
    OUT(4, normcdff(x));
    OUT(5, fmodf(__fmul_rn(x, 100.0f), 0.7f));
    OUT(6, remainderf(__fmul_rn(x, 100.0f), 0.7f));
    OUT(7, fdimf(x, 1.25f));
    OUT(8, nextafterf(x, 2.0f));
    int e;
    OUT(9, frexpf(x, &e));
    OUT(10, (float)e);
    float whole;
    OUT(11, modff(__fmul_rn(x, 10.0f), &whole));
    OUT(12, whole);
    OUT(13, (float)ilogbf(x));
    OUT(14, (float)lrintf(__fmul_rn(x, 3.0f)));
    OUT(15, (float)llroundf(__fmul_rn(x, 5.0f)));
    OUT(16, scalbnf(x, -130));
}
