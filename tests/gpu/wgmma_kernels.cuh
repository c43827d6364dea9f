// Kernels of tests/gpu/wgmma_probe.cu, which the tests of the virtual GPU compile by NVRTC, too.
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;

enum { F16 = 0, BF16 = 1, TF32 = 2 };

__device__ static inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ static inline uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory")
#define PROXY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")

#define D4(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define SS8(shape, types, tail) \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {%0,%1,%2,%3}, %4, %5, 1, 1, 1" tail ";" \
               : D4(d) : "l"(da), "l"(db) : "memory")
#define RS8(shape, types, tail) \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1" tail ";" \
               : D4(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db) : "memory")

// Where thread t's accumulator r lies in the 64 x n tile.
__device__ static inline int row_of(int t, int r) { return t / 32 * 16 + t % 32 / 4 + (r / 2 % 2) * 8; }
__device__ static inline int column_of(int t, int r) { return t % 4 * 2 + r % 2 + r / 4 * 8; }

// One instruction m64n8 a block: a is [64][32 bytes], b is [8][32 bytes] (k innermost), c and out are [64][8].
template <int type, bool registers>
__global__ void products(const uint8_t *a_all, const uint8_t *b_all, const float *c_all, float *out_all) {
  __shared__ __align__(1024) uint8_t sa[2048];
  __shared__ __align__(1024) uint8_t sb[256];
  const int t = threadIdx.x;
  const uint8_t *ga = a_all + blockIdx.x * 2048, *gb = b_all + blockIdx.x * 256;
  // Core matrices: 8 rows of 16 bytes; the two of a row group lie 128 bytes apart, row groups 256.
  for (int i = t; i < 128; i += 128) {
    int row = i / 2, half = i % 2;
    ((uint4 *)sa)[row / 8 * 16 + half * 8 + row % 8] = ((const uint4 *)ga)[i];
  }
  if (t < 16) ((uint4 *)sb)[t % 2 * 8 + t / 2] = ((const uint4 *)gb)[t];
  float d[4];
  for (int r = 0; r < 4; r++) d[r] = c_all[blockIdx.x * 512 + row_of(t, r) * 8 + column_of(t, r)];
  uint32_t a[4];
  for (int r = 0; r < 4; r++) {
    int row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, word = t % 4 + r / 2 * 4;
    a[r] = ((const uint32_t *)ga)[row * 8 + word];
  }
  uint64_t da = descriptor(shared_address(sa), 128, 256), db = descriptor(shared_address(sb), 128, 128);
  PROXY;
  __syncthreads();
  FENCE;
  if (registers) {
    if (type == F16) RS8("m64n8k16", "f16.f16", ", 0");
    if (type == BF16) RS8("m64n8k16", "bf16.bf16", ", 0");
    if (type == TF32) RS8("m64n8k8", "tf32.tf32", "");
  } else {
    if (type == F16) SS8("m64n8k16", "f16.f16", ", 0, 0");
    if (type == BF16) SS8("m64n8k16", "bf16.bf16", ", 0, 0");
    if (type == TF32) SS8("m64n8k8", "tf32.tf32", "");
  }
  COMMIT;
  for (int r = 0; r < 4; r++) out_all[blockIdx.x * 512 + row_of(t, r) * 8 + column_of(t, r)] = d[r];
}

#define D32 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
  "%28,%29,%30,%31}"
#define D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
  "+f"(d[i + 6]), "+f"(d[i + 7])
#define RS64(shape, types, tail) \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " " D32 ", {%32,%33,%34,%35}, %36, 1, 1, 1" tail ";" \
               : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db) : "memory")

// Where B (k x 64) is found: A is the identity in registers, so D[k][n] = B[k][n].  image: 64 KiB of shared memory.
template <int type, int transposed>
__global__ void find_b(const uint4 *image, uint64_t rest, int start, float *out) {
  extern __shared__ __align__(1024) uint8_t shared[];
  uint8_t *s = shared + (-shared_address(shared) & 1023);
  const int t = threadIdx.x;
  for (int i = t; i < 4096; i += 128) ((uint4 *)s)[i] = image[i];
  float d[32];
  for (int r = 0; r < 32; r++) d[r] = 0;
  uint32_t a[4];
  for (int r = 0; r < 4; r++) {
    int row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, word = t % 4 + r / 2 * 4;
    if (type == TF32) a[r] = row == word ? 0x3f800000 : 0;
    else a[r] = row / 2 == word ? (row % 2 ? 0x3c000000 : 0x3c00) : 0;
  }
  uint64_t db = rest | ((shared_address(s) + start) & 0x3ffff) >> 4;
  PROXY;
  __syncthreads();
  FENCE;
  if (type == TF32) RS64("m64n64k8", "tf32.tf32", "");
  else if (transposed) RS64("m64n64k16", "f16.f16", ", 1");
  else RS64("m64n64k16", "f16.f16", ", 0");
  COMMIT;
  if (t < 32)
    for (int r = 0; r < 32; r++) out[row_of(t, r) * 64 + column_of(t, r)] = d[r];
}

// Where A (64 x k) is found: columns first .. first + 7 of the identity are B, so D[m][j] = A[m][first + j].
template <int type, int transposed>
__global__ void find_a(const uint4 *image, uint64_t rest, int start, int first, float *out) {
  extern __shared__ __align__(1024) uint8_t shared[];
  uint8_t *s = shared + (-shared_address(shared) & 1023);
  uint8_t *sb = s + 65536;
  const int t = threadIdx.x;
  for (int i = t; i < 4096; i += 128) ((uint4 *)s)[i] = image[i];
  if (t < 64) ((uint32_t *)sb)[t] = 0;
  __syncthreads();
  if (t < 8) {
    int k = first + t;
    if (type == TF32) ((uint32_t *)sb)[k / 4 * 32 + t * 4 + k % 4] = 0x3f800000;
    else ((uint16_t *)sb)[k / 8 * 64 + t * 8 + k % 8] = 0x3c00;
  }
  float d[4] = {0, 0, 0, 0};
  uint64_t da = rest | ((shared_address(s) + start) & 0x3ffff) >> 4, db = descriptor(shared_address(sb), 128, 128);
  PROXY;
  __syncthreads();
  FENCE;
  if (type == TF32) SS8("m64n8k8", "tf32.tf32", "");
  else if (transposed) SS8("m64n8k16", "f16.f16", ", 1, 0");
  else SS8("m64n8k16", "f16.f16", ", 0, 0");
  COMMIT;
  for (int r = 0; r < 4; r++) out[row_of(t, r) * 8 + column_of(t, r)] = d[r];
}
