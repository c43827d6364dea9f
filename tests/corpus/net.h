// The frame of random programs (cprogram.py) for two compilers: NVRTC, and a host compiler for which this file plays a
// block of threads. There each thread is a context of its own that runs until the next point where all must meet.
#pragma once

typedef signed char s8;
typedef unsigned char u8;
typedef short s16;
typedef unsigned short u16;
typedef int s32;
typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define FUNCTION static __device__
#define CALLED static __device__ __noinline__
#define KERNEL __global__ void
FUNCTION float float_of(u32 x) { return __uint_as_float(x); }
FUNCTION u32 word_of(float x) { return __float_as_uint(x); }
FUNCTION u64 word_of(double x) { return __double_as_longlong(x); }
#else
#include <cmath>
#include <cstring>
#include <ucontext.h>
#define FUNCTION static inline
#define CALLED static __attribute__((noinline))
#define KERNEL void
#define __shared__ static
FUNCTION float float_of(u32 x) { float f; memcpy(&f, &x, 4); return f; }
FUNCTION u32 word_of(float x) { u32 w; memcpy(&w, &x, 4); return w; }
FUNCTION u64 word_of(double x) { u64 w; memcpy(&w, &x, 8); return w; }

struct Place { u32 x; };
static Place threadIdx, blockIdx;
static const u32 MOST = 1024;
static struct Context { ucontext_t self; char stack[32768]; bool over; u32 turn; } threads[MOST];
static ucontext_t conductor;
static u64 slots[2][MOST];
static u32 present;

// Every thread of the block comes here before any goes on.
static void meet()
{
    u32 me = threadIdx.x;
    swapcontext(&threads[me].self, &conductor);
    threadIdx.x = me;
}

// Leave a value for the others; the slots of the next meeting are other ones.
static u64 *show(u64 value)
{
    u64 *mine = slots[threads[threadIdx.x].turn++ & 1];
    mine[threadIdx.x] = value;
    meet();
    return mine;
}

template <class T> static T take(T value, u32 from)
{
    u64 all = 0;
    memcpy(&all, &value, sizeof value);
    all = show(all)[from];
    memcpy(&value, &all, sizeof value);
    return value;
}

// Lane `lane` of the segment of `width` lanes, or the thread itself where that lies outside.
template <class T> static T other(T value, s32 lane, s32 width)
{
    s32 mine = threadIdx.x & (width - 1);
    return take(value, lane < 0 || lane >= width ? threadIdx.x : threadIdx.x - mine + lane);
}
#define LANE(width) (s32)(threadIdx.x & ((width) - 1))
template <class T> static T __shfl_sync(u32, T v, u32 lane, s32 w) { return other(v, lane & (w - 1), w); }
template <class T> static T __shfl_xor_sync(u32, T v, s32 n, s32 w) { return other(v, LANE(w) ^ n, w); }
template <class T> static T __shfl_up_sync(u32, T v, u32 n, s32 w) { return other(v, LANE(w) - (s32)n, w); }
template <class T> static T __shfl_down_sync(u32, T v, u32 n, s32 w) { return other(v, LANE(w) + (s32)n, w); }

static u32 __ballot_sync(u32, bool p)
{
    u32 first = threadIdx.x & ~31u, mask = 0;
    u64 *all = show(p);
    for (u32 lane = 0; lane < 32; lane++) mask |= (u32)all[first + lane] << lane;
    return mask;
}
static bool __any_sync(u32, bool p) { return __ballot_sync(~0u, p) != 0; }
static bool __all_sync(u32, bool p) { return __ballot_sync(~0u, p) == ~0u; }
static void __syncthreads() { meet(); }
static s32 __syncthreads_count(bool p)
{
    s32 count = 0;
    u64 *all = show(p);
    for (u32 n = 0; n < present; n++) count += (s32)all[n];
    return count;
}

template <class T> static void atomicAdd(T *p, T v) { *p += v; }
static void atomicXor(u32 *p, u32 v) { *p ^= v; }
static void atomicOr(u32 *p, u32 v) { *p |= v; }
static void atomicAnd(u32 *p, u32 v) { *p &= v; }
static void atomicMax(u32 *p, u32 v) { *p = *p > v ? *p : v; }
static void atomicMin(u32 *p, u32 v) { *p = *p < v ? *p : v; }

static s32 __popc(u32 x) { return __builtin_popcount(x); }
static s32 __popcll(u64 x) { return __builtin_popcountll(x); }
static s32 __clz(s32 x) { return x ? __builtin_clz((u32)x) : 32; }
static u32 __brev(u32 x) { u32 r = 0; for (u32 k = 0; k < 32; k++) r |= (x >> k & 1) << (31 - k); return r; }
static u32 __umulhi(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
static s32 __mulhi(s32 a, s32 b) { return (s32)((s64)a * b >> 32); }
static u64 __umul64hi(u64 a, u64 b) { return (u64)((unsigned __int128)a * b >> 64); }
static u32 __byte_perm(u32 a, u32 b, u32 s)
{
    u64 both = (u64)b << 32 | a;
    u32 r = 0;
    for (u32 k = 0; k < 4; k++) r |= (u32)(both >> 8 * (s >> 4 * k & 7) & 255) << 8 * k;
    return r;
}

static void (*kernel)(const u32 *, u32 *);
static const u32 *kernel_in;
static u32 *kernel_out;
static void entry()
{
    kernel(kernel_in, kernel_out);
    threads[threadIdx.x].over = true;
}

// Run a kernel: one block after the other, in a block every thread up to its next meeting, in turn.
static void launch(void (*what)(const u32 *, u32 *), const u32 *in, u32 *out, u32 blocks, u32 count)
{
    kernel = what, kernel_in = in, kernel_out = out, present = count;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (u32 n = 0; n < count; n++) {
            getcontext(&threads[n].self);
            threads[n].self.uc_stack.ss_sp = threads[n].stack;
            threads[n].self.uc_stack.ss_size = sizeof threads[n].stack;
            threads[n].self.uc_link = &conductor;
            threads[n].over = false, threads[n].turn = 0;
            makecontext(&threads[n].self, entry, 0);
        }
        for (bool busy = true; busy;) {
            busy = false;
            for (u32 n = 0; n < count; n++) {
                if (threads[n].over) continue;
                threadIdx.x = n;
                swapcontext(&conductor, &threads[n].self);
                busy |= !threads[n].over;
            }
        }
    }
}
#endif

template <class T> FUNCTION T lesser(T a, T b) { return a < b ? a : b; }
template <class T> FUNCTION T greater(T a, T b) { return a > b ? a : b; }
template <class T, class W> FUNCTION T magnitude(T a) { return a < (T)0 ? (T)((W)0 - (W)a) : a; }
FUNCTION s32 to_int(float x) { return x > -2e9f && x < 2e9f ? (s32)x : 7; }
FUNCTION s32 to_int(double x) { return x > -2e9 && x < 2e9 ? (s32)x : 9; }

// Into the hash of a thread. A NaN counts as one: its payload is nobody's promise.
template <class T> FUNCTION u64 bits_of(T x) { return (u64)x; }
FUNCTION u64 bits_of(float x) { return x == x ? word_of(x) : 0x7fffffffu; }
FUNCTION u64 bits_of(double x) { return x == x ? word_of(x) : 0x7fffffffffffffffull; }
template <class T> FUNCTION u64 mix(u64 hash, T x) { return (hash << 7 | hash >> 57) ^ bits_of(x); }

// A variable's first value, from two words of input: integers take the bits, floats any bits or a moderate number.
template <class T> FUNCTION void load(T &v, u32 a, u32 b) { v = (T)((u64)b << 32 | a); }
FUNCTION void load(float &v, u32 a, u32 b) { v = b & 1 ? float_of(a) : (float)(s32)a * 0.001f; }
FUNCTION void load(double &v, u32 a, u32 b) { v = (double)(s32)a * (double)(s32)b; }
