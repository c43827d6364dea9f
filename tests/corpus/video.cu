// SIMD within a word (intrinsics) and the scalar video instructions of PTX.
#include "common.cuh"

extern "C" __global__ void video_bytes(const u32 *a, const u32 *b, const u32 *c, u32 *out, int n)
{
    ELEMENT;
    u32 x = a[i], y = b[i], z = c[i];
    OUT(0, __vadd4(x, y));
    OUT(1, __vsub4(x, y));
    OUT(2, __vaddss4(x, y));
    OUT(3, __vaddus4(x, y));
    OUT(4, __vsubss4(x, y));
    OUT(5, __vsubus4(x, y));
    OUT(6, __vavgu4(x, y));
    OUT(7, __vhaddu4(x, y));
    OUT(8, __vavgs4(x, y));
    OUT(9, __vabsdiffu4(x, y));
    OUT(10, __vabsdiffs4(x, y));
    OUT(11, __vmaxu4(x, y));
    OUT(12, __vmins4(x, y));
    OUT(13, __vcmpeq4(x, z & 0x00ff00ff | x & 0xff00ff00));
    OUT(14, __vcmpgtu4(x, y));
    OUT(15, __vcmples4(x, y));
    OUT(16, __vsetltu4(x, y));
    OUT(17, __vsadu4(x, y));
    OUT(18, __vsads4(x, y));
    OUT(19, __vabs4(x));
    OUT(20, __vneg4(x));
    OUT(21, __vabsss4(x));
}

extern "C" __global__ void video_halves(const u32 *a, const u32 *b, const u32 *c, u32 *out, int n)
{
    ELEMENT;
    u32 x = a[i], y = b[i], z = c[i];
    OUT(0, __vadd2(x, y));
    OUT(1, __vsub2(x, y));
    OUT(2, __vaddss2(x, y));
    OUT(3, __vaddus2(x, y));
    OUT(4, __vsubss2(x, y));
    OUT(5, __vsubus2(x, y));
    OUT(6, __vavgu2(x, y));
    OUT(7, __vhaddu2(x, y));
    OUT(8, __vavgs2(x, y));
    OUT(9, __vabsdiffu2(x, y));
    OUT(10, __vabsdiffs2(x, y));
    OUT(11, __vmaxs2(x, y));
    OUT(12, __vminu2(x, y));
    OUT(13, __vcmpeq2(x, z & 0xffff | x & 0xffff0000));
    OUT(14, __vcmpgts2(x, y));
    OUT(15, __vcmpleu2(x, y));
    OUT(16, __vsetges2(x, y));
    OUT(17, __vsadu2(x, y));
    OUT(18, __vsads2(x, y));
    OUT(19, __vabs2(x));
    OUT(20, __vnegss2(x));
    OUT(21, __vabsss2(x));
}

#define V2(k, op) { u32 r; asm(op ";" : "=r"(r) : "r"(x), "r"(y), "r"(z)); OUT(k, r); }
extern "C" __global__ void video_scalar(const u32 *a, const u32 *b, const u32 *c, u32 *out, int n)
{
    ELEMENT;
    u32 x = a[i], y = b[i], z = c[i];
    V2(0, "vadd.s32.s32.s32 %0, %1.b1, %2.b3")
    V2(1, "vadd.u32.u32.u32 %0, %1.h0, %2.h1")
    V2(2, "vadd.s32.s32.u32.sat %0, %1, %2.h0")
    V2(3, "vadd.u32.u32.u32.add %0, %1.b0, %2.b2, %3")
    V2(4, "vadd.s32.u32.s32.min %0, %1.b2, %2.h1, %3")
    V2(5, "vsub.s32.s32.s32 %0, %1.h1, %2.b0")
    V2(6, "vsub.s32.u32.u32 %0, %1.b3, %2.b1")
    V2(7, "vsub.s32.s32.s32.max %0, %1.h0, %2.h1, %3")
    V2(8, "vabsdiff.u32.u32.u32 %0, %1.b0, %2.b0")
    V2(9, "vabsdiff.u32.s32.s32.add %0, %1.h1, %2.h0, %3")
    V2(10, "vabsdiff.u32.u32.u32.add %0, %1.b3, %2.b2, %3")
    V2(11, "vmin.s32.s32.s32 %0, %1.b1, %2.b2")
    V2(12, "vmax.u32.u32.u32 %0, %1.h0, %2.h0")
    V2(13, "vmax.s32.s32.s32.max %0, %1.h1, %2.b1, %3")
    V2(14, "vmin.u32.u32.u32.add %0, %1, %2.b3, %3")
    V2(15, "vset.s32.s32.lt %0, %1.b0, %2.b1")
    V2(16, "vset.u32.u32.ge %0, %1, %2.h1")
    V2(17, "vset.u32.u32.ne.add %0, %1.b2, %2.b2, %3")
    V2(18, "vmad.s32.s32.s32 %0, %1.h0, %2.h1, %3")
    V2(19, "vmad.u32.u32.u32 %0, %1.b1, %2.h0, %3")
    V2(20, "vmad.s32.u32.s32 %0, %1.b3, %2.b0, %3")
    V2(21, "vmad.s32.s32.s32.shr7 %0, %1.h1, %2.h0, %3")
    V2(22, "vmad.s32.s32.s32.sat %0, %1.h0, %2.h0, %3")
    V2(23, "vshl.u32.u32.u32.wrap %0, %1, %2.b0")
    V2(24, "vshr.u32.u32.u32.clamp %0, %1, %2.b1")
    V2(25, "vshr.s32.s32.u32.wrap %0, %1.h1, %2.b0")
    V2(26, "vadd.u32.u32.u32 %0.b1, %1.b0, %2.b2, %3")
    V2(27, "vsub.s32.s32.s32 %0.h0, %1.h0, %2.h0, %3")
    V2(28, "vmax.u32.u32.u32 %0.h0, %1.b0, %2.b3, %3")
    // No result in .h1: ptxas 12.9 merges the upper half of the sum there for sm_90, against the text of the PTX ISA.
    V2(29, "vmin.s32.s32.s32 %0.b3, %1.b0, %2.b3, %3")
    V2(30, "vabsdiff.u32.u32.u32 %0.b2, %1.b0, %2.b3, %3")
}
