// Shared by the corpus: short type names and the frame of an elementwise kernel.
#pragma once

typedef signed char s8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;

// One thread per element; OUT(k, e) stores row k of an (rows, n) output.
#define ELEMENT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define OUT(k, e) out[(k) * n + i] = (e)
