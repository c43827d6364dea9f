// Double precision: arithmetic in every rounding mode, division, roots, comparisons, min/max.
#include "common.cuh"

extern "C" __global__ void f64_add_mul(const double *a, const double *b, double *out, int n)
{
    ELEMENT;
    double x = a[i], y = b[i];
    OUT(0, __dadd_rn(x, y));
    OUT(1, __dadd_rz(x, y));
    OUT(2, __dadd_ru(x, y));
    OUT(3, __dadd_rd(x, y));
    OUT(4, __dsub_rn(x, y));
    OUT(5, __dmul_rn(x, y));
    OUT(6, __dmul_rz(x, y));
    OUT(7, __dmul_ru(x, y));
    OUT(8, __dmul_rd(x, y));
    OUT(9, __dmul_rn(-x, fabs(y)));
    OUT(10, __dadd_rn(-fabs(x), 0.1));
    OUT(11, __dmul_rn(x, 1.5));
}

extern "C" __global__ void f64_fma(const double *a, const double *b, const double *c, double *out, int n)
{
    ELEMENT;
    double x = a[i], y = b[i], z = c[i];
    OUT(0, __fma_rn(x, y, z));
    OUT(1, __fma_rz(x, y, z));
    OUT(2, __fma_ru(x, y, z));
    OUT(3, __fma_rd(x, y, z));
    OUT(4, __fma_rn(-x, y, z));
    OUT(5, __fma_rn(x, y, -z));
    OUT(6, __fma_rn(x, 2.5, z));
    OUT(7, __fma_rn(x, y, 1.0));
}

extern "C" __global__ void f64_div_sqrt(const double *a, const double *b, double *out, int n)
{
    ELEMENT;
    double x = a[i], y = b[i];
    OUT(0, __ddiv_rn(x, y));
    OUT(1, __ddiv_rz(x, y));
    OUT(2, __ddiv_ru(x, y));
    OUT(3, __ddiv_rd(x, y));
    OUT(4, __dsqrt_rn(x));
    OUT(5, __dsqrt_rz(x));
    OUT(6, __dsqrt_ru(x));
    OUT(7, __dsqrt_rd(x));
    OUT(8, __drcp_rn(x));
    OUT(9, __drcp_rz(x));
    OUT(10, __drcp_ru(x));
    OUT(11, __drcp_rd(x));
}

#define CMP(bit, op) asm("{.reg .pred p; setp." op ".f64 p, %1, %2; selp.u32 %0, 1, 0, p;}" : "=r"(t) : "d"(x), "d"(y)); m |= t << bit;
extern "C" __global__ void f64_compare(const double *a, const double *b, double *out, u32 *flags, int n)
{
    ELEMENT;
    double x = a[i], y = b[i];
    u32 t, m = 0;
    CMP(0, "eq") CMP(1, "ne") CMP(2, "lt") CMP(3, "le") CMP(4, "gt") CMP(5, "ge")
    CMP(6, "equ") CMP(7, "neu") CMP(8, "ltu") CMP(9, "leu") CMP(10, "gtu") CMP(11, "geu")
    CMP(12, "num") CMP(13, "nan")
    flags[i] = m;
    asm("set.lt.u32.f64 %0, %1, %2;" : "=r"(t) : "d"(x), "d"(y));
    flags[n + i] = t;
    float f;
    asm("set.ge.f32.f64 %0, %1, %2;" : "=f"(f) : "d"(x), "d"(y));
    flags[2 * n + i] = __float_as_uint(f);
    flags[3 * n + i] = (isnan(x) ? 1 : 0) | (isinf(y) ? 2 : 0) | (isfinite(x) ? 4 : 0) | (signbit(y) ? 8 : 0);
    OUT(0, fmin(x, y));
    OUT(1, fmax(x, y));
    OUT(2, x < y ? x : y);
    OUT(3, fabs(x));
    OUT(4, -y);
    OUT(5, copysign(x, y));
    OUT(6, fmin(fmax(x, -1.0), 1.0));
    OUT(7, x > 0 ? __dadd_rn(x, 1.0) : __dmul_rn(y, 2.0));
}

// Compensated sums and products: exact error terms in both precisions.
extern "C" __global__ void f64_compensated(const double *a, const double *b, double *out, float *single, int n)
{
    ELEMENT;
    double x = a[i], y = b[i];
    double s = __dadd_rn(x, y), v = __dsub_rn(s, x);
    OUT(0, s);
    OUT(1, __dadd_rn(__dsub_rn(x, __dsub_rn(s, v)), __dsub_rn(y, v)));
    double p = __dmul_rn(x, y);
    OUT(2, p);
    OUT(3, __fma_rn(x, y, -p));
    float fx = __double2float_rn(x), fy = __double2float_rn(y);
    float fs = __fadd_rn(fx, fy), fv = __fsub_rn(fs, fx), fp = __fmul_rn(fx, fy);
    single[i] = fs;
    single[n + i] = __fadd_rn(__fsub_rn(fx, __fsub_rn(fs, fv)), __fsub_rn(fy, fv));
    single[2 * n + i] = fp;
    single[3 * n + i] = __fmaf_rn(fx, fy, -fp);
}

// 4x4 matrix inverse by Gauss-Jordan without pivoting, fully unrolled, operations in a fixed order.
extern "C" __global__ void f64_inverse4(const double *a, double *out, int n)
{
    ELEMENT;
    double m[4][8];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            m[r][c] = a[i * 16 + r * 4 + c];
            m[r][c + 4] = r == c;
        }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        double pivot = __drcp_rn(m[k][k]);
#pragma unroll
        for (int c = 0; c < 8; c++) m[k][c] = __dmul_rn(m[k][c], pivot);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            if (r == k) continue;
            double factor = m[r][k];
#pragma unroll
            for (int c = 0; c < 8; c++) m[r][c] = __fma_rn(-factor, m[k][c], m[r][c]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) OUT(r * 4 + c, m[r][c + 4]);
}
