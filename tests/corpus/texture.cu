// Texture objects: 1D linear fetches of one, two and four channels; out-of-range indices read zero.
#include "common.cuh"

extern "C" __global__ void texture_fetch4(unsigned long long texels, const int *index, float4 *out, int n)
{
    ELEMENT;
    float4 v = tex1Dfetch<float4>(texels, index[i]);
    float4 w = tex1Dfetch<float4>(texels, i);
    OUT(0, v);
    OUT(1, make_float4(__fadd_rn(v.x, w.w), __fmul_rn(v.y, w.z), v.z, w.x));
}

extern "C" __global__ void texture_fetch1(unsigned long long texels, const int *index, float *out, int n)
{
    ELEMENT;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum = __fmaf_rn(tex1Dfetch<float>(texels, index[i] + k), (float)(k + 1), sum);
    OUT(0, sum);
    OUT(1, tex1Dfetch<float>(texels, i));
}

extern "C" __global__ void texture_components(unsigned long long texels, const int *index, float *out, int n)
{
    ELEMENT;
    int k = index[i];
    OUT(0, tex1Dfetch<float4>(texels, k).x);
    OUT(1, tex1Dfetch<float4>(texels, k + 1).y);
    float4 v = tex1Dfetch<float4>(texels, k + 2);
    OUT(2, v.z);
    OUT(3, v.w);
    float4 w = tex1Dfetch<float4>(texels, k + 3);
    OUT(4, __fadd_rn(w.x, w.z));
    OUT(5, __fadd_rn(w.y, w.w));
    float4 u = tex1Dfetch<float4>(texels, k + 4);
    OUT(6, __fadd_rn(__fadd_rn(u.x, u.y), u.z));
    float4 t = tex1Dfetch<float4>(texels, k + 5);
    OUT(7, __fadd_rn(t.x, t.w));
}
