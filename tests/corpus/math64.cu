// Double-precision library functions.
#include "common.cuh"

extern "C" __global__ void math64_exp_log(const double *a, const double *b, double *out, int n)
{
    ELEMENT;
    double x = a[i], y = b[i];
    OUT(0, exp(x));
    OUT(1, exp2(x));
    OUT(2, expm1(x));
    OUT(3, log(y));
    OUT(4, log2(y));
    OUT(5, log10(y));
    OUT(6, log1p(y));
    OUT(7, pow(y, x));
    OUT(8, cbrt(x));
    OUT(9, hypot(x, y));
    OUT(10, rsqrt(y));
}

extern "C" __global__ void math64_trig(const double *a, const double *b, double *out, int n)
{
    ELEMENT;
    double x = a[i], y = b[i];
    OUT(0, sin(x));
    OUT(1, cos(x));
    OUT(2, tan(x));
    OUT(3, asin(y));
    OUT(4, acos(y));
    OUT(5, atan(x));
    OUT(6, atan2(x, y));
    OUT(7, sinh(__dmul_rn(y, 8.0)));
    OUT(8, cosh(__dmul_rn(y, 8.0)));
    OUT(9, tanh(x));
    OUT(10, erf(y));
    OUT(11, fmod(__dmul_rn(x, 100.0), 0.7));
}
