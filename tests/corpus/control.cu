// Control flow: divergent loops with break and continue, nested branches, switch tables, calls, recursion, early exits.
#include "common.cuh"

extern "C" __global__ void control_loops(const int *a, int *out, int n)
{
    ELEMENT;
    int x = a[i], sum = 0, steps = 0;
    for (int k = 0; k < 50; k++) {
        steps++;
        if ((x >> (k & 15) & 3) == 3) continue;
        sum += k * (x & 7);
        if (sum > 200 + (x & 63)) break;
        if (k > (x >> 8 & 31)) {
            sum ^= 0x55;
            if (sum & 1) continue;
            sum += 3;
        }
    }
    OUT(0, sum);
    OUT(1, steps);
    // Collatz with a bound.
    u32 c = (x & 1023) + 1, length = 0;
    while (c != 1 && length < 400) {
        c = c & 1 ? 3 * c + 1 : c >> 1;
        length++;
    }
    OUT(2, length);
    // Nested loops with an exit from the inner one.
    int found = -1;
    for (int p = 1; p < 12 && found < 0; p++)
        for (int q = p; q < 12; q++) {
            if (p * q == (x & 127)) {
                found = p * 100 + q;
                break;
            }
        }
    OUT(3, found);
    int d = 0, y = x & 0xffff;
    do {
        d += y % 10;
        y /= 10;
    } while (y > 0);
    OUT(4, d);
}

extern "C" __global__ void control_nested(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i], r = 0;
    if (x & 1) {
        r = y;
        if (x & 2) {
            r += 10;
            if (y & 4) {
                r *= 3;
            } else {
                r -= 7;
                if ((x ^ y) & 8)
                    for (int k = 0; k < (x & 7); k++) r = r * 2 + 1;
            }
            r ^= 0x1234;
        } else if (y > 0) {
            r = -r;
        }
    } else {
        while (r < (y & 31)) {
            r += (x & 6) + 1;
            if (r == 9) r += 5;
        }
        if (x > y || (x & y & 16)) r += 1000;
    }
    OUT(0, r);
    int s = 0;
    for (int k = 0; k < 8; k++) {
        if (x >> k & 1)
            s += y >> k & 1 ? k : 2 * k;
        else if (y >> k & 1)
            s -= k;
        else
            s ^= k;
    }
    OUT(1, s);
    OUT(2, (x > 5 && y < 3) || (x < -5 && y > -3) ? x - y : x < y && !(x & 1) ? x + y : 7);
}

static __device__ int action(int op, int x, int y)
{
    switch (op) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return x & y;
    case 4: return x | ~y;
    case 5: return x ^ (y >> 3);
    case 6: return x << (y & 7);
    case 7: return min(x, y) * 3;
    case 8: return __popc(x) - y;
    case 9: return (x >> 5) + (y >> 7);
    case 10: return x == y ? 1 : -1;
    case 11: return __clz(x ^ y);
    case 12: return max(x, -y);
    case 13: return x * 9 - y;
    default: return op;
    }
}
// A bytecode machine: a switch in a divergent loop.
extern "C" __global__ void control_switch(const int *a, const int *b, const u32 *code, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i];
    u32 program = code[i];
    OUT(0, action(program & 15, x, y));
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        int next = action(program >> (4 * k) & 15, x, y);
        y = x;
        x = next;
    }
    OUT(1, x);
    int kind = 0;
    switch (x & 255) {
    case 1: kind = 10; break;
    case 7: kind = 20;
    case 9: kind += 5; break;
    case 100: kind = y; break;
    case 128: case 129: case 130: kind = 3; break;
    case 255: kind = -1;
    }
    OUT(2, kind);
}

static __device__ __noinline__ int mix(int x, int y) { return (x ^ y * 31) + (x >> 3); }
static __device__ __noinline__ float shape(float x, int k)
{
    for (int j = 0; j < k; j++) x = __fmaf_rn(x, 0.75f, 0.125f * j);
    return x;
}
static __device__ __noinline__ s64 wide_sum(s64 a, int b, s64 c) { return mix((int)a, b) + c * 3; }
static __device__ __noinline__ int4 four(int4 v, int k) { return make_int4(v.y + k, v.z, v.w ^ k, v.x); }
extern "C" __global__ void control_calls(const int *a, int *out, int n)
{
    ELEMENT;
    int x = a[i];
    OUT(0, mix(x, i));
    int r = x;
    if (x & 1) r = mix(r, 5);
    for (int k = 0; k < (x & 7); k++) r = mix(r, k);
    OUT(1, r);
    OUT(2, __float_as_int(shape((float)(x & 255), x >> 8 & 7)));
    s64 w = wide_sum((s64)x << 20, i, x);
    OUT(3, (int)w);
    OUT(4, (int)(w >> 32));
    int4 v = make_int4(x, i, x + i, x - i);
    for (int k = 0; k < 5; k++) v = four(v, k);
    OUT(5, v.x ^ v.y + v.z ^ v.w);
}

static __device__ __noinline__ int fibonacci(int k) { return k < 2 ? k : fibonacci(k - 1) + fibonacci(k - 2); }
static __device__ __noinline__ int ackermann(int m, int k)
{
    if (m == 0) return k + 1;
    if (k == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, k - 1));
}
extern "C" __global__ void control_recursion(const int *a, int *out, int n)
{
    ELEMENT;
    OUT(0, fibonacci(a[i] & 7));
    OUT(1, ackermann(a[i] & 1, a[i] >> 3 & 3));
}

typedef int (*operation)(int, int);
static __device__ __noinline__ int op_add(int x, int y) { return x + y; }
static __device__ __noinline__ int op_sub(int x, int y) { return x - y * 2; }
static __device__ __noinline__ int op_xor(int x, int y) { return x ^ y; }
extern "C" __global__ void control_pointers(const int *a, const int *b, int *out, int n)
{
    ELEMENT;
    int x = a[i], y = b[i];
    operation f = y % 3 == 0 ? op_add : y % 3 == 1 ? op_sub : op_xor;
    OUT(0, f(x, y));
    for (int k = 0; k < 4; k++) {
        operation g = (x >> k & 1) ? op_sub : op_xor;
        x = g(x, k + 3);
    }
    OUT(1, x);
}

// Threads leave one by one; those that remain keep working with warp-wide votes.
extern "C" __global__ void control_exit(const int *a, int *out, int n)
{
    ELEMENT;
    int x = a[i] & 63;
    OUT(0, x);
    OUT(1, -1);
    OUT(2, -2);
    if (x < 8) return;
    OUT(1, x * 2);
    for (int k = 0; k < 64; k++) {
        if (k == x) {
            OUT(2, k + 1000);
            return;
        }
        if (k > 40) break;
    }
    OUT(2, x + 2000);
}

// goto-made irreducible-looking flow and predicated stores.
extern "C" __global__ void control_goto(const int *a, int *out, int n)
{
    ELEMENT;
    int x = a[i], state = x & 3, trips = 0, value = x;
start:
    trips++;
    if (trips > 20) goto done;
    if (state == 0) { value += 3; state = value & 3; goto start; }
    if (state == 1) { value ^= value >> 2; state = 2; goto middle; }
    if (state == 2) goto middle;
    value -= 5;
    state = (value >> 1) & 3;
    if (value & 64) goto done;
    goto start;
middle:
    value = value * 3 + 1;
    state = (state + value) & 3;
    if (value & 256) goto start;
    trips += 2;
    if (state) goto start;
done:
    OUT(0, value);
    OUT(1, trips);
    out[2 * n + i] = 0;
    if (value > 0) out[2 * n + i] = 1;
    if (value & 4) out[2 * n + i] = 5;
    if (x > 1000 && (value & 1)) out[2 * n + i] = 9;
}
