// What the tensor cores of sm_90 compute, for tests/gpu/wgmma.py: single wgmma instructions on given bits, and where in
// shared memory a descriptor finds each element.  nvcc -gencode arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC
#include <cstdio>
#include <cuda_runtime.h>

#include "wgmma_kernels.cuh"

static int failed(cudaError_t e) {
  if (e != cudaSuccess) fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(e));
  return e != cudaSuccess;
}

struct Buffer {
  void *p = nullptr;
  size_t n;
  Buffer(const void *host, size_t bytes) : n(bytes) {
    failed(cudaMalloc(&p, bytes));
    if (host) failed(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
  }
  int back(void *host) {
    return failed(cudaGetLastError()) | failed(cudaDeviceSynchronize()) |
           failed(cudaMemcpy(host, p, n, cudaMemcpyDeviceToHost));
  }
  ~Buffer() { cudaFree(p); }
};

template <int type>
static void launch(bool registers, int tiles, Buffer &a, Buffer &b, Buffer &c, Buffer &out) {
  auto kernel = registers ? products<type, true> : products<type, false>;
  kernel<<<tiles, 128>>>((uint8_t *)a.p, (uint8_t *)b.p, (float *)c.p, (float *)out.p);
}

extern "C" int run_products(int type, int registers, int tiles, const void *a, const void *b, const void *c, void *out) {
  Buffer da(a, tiles * 2048), db(b, tiles * 256), dc(c, tiles * 2048), d(nullptr, tiles * 2048);
  if (type == F16) launch<F16>(registers, tiles, da, db, dc, d);
  if (type == BF16) launch<BF16>(registers, tiles, da, db, dc, d);
  if (type == TF32) launch<TF32>(registers, tiles, da, db, dc, d);
  return d.back(out);
}

extern "C" int run_find(int type, int operand_b, int transposed, const void *image, uint64_t rest, int start, int first,
                        void *out) {
  const int bytes = 65536 + 1024 + 256;
  Buffer di(image, 65536), d(nullptr, operand_b ? 16 * 64 * 4 : 64 * 8 * 4);
  if (operand_b) {
    auto kernel = type == TF32 ? find_b<TF32, 0> : transposed ? find_b<F16, 1> : find_b<F16, 0>;
    if (failed(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))) return 1;
    kernel<<<1, 128, bytes>>>((uint4 *)di.p, rest, start, (float *)d.p);
  } else {
    auto kernel = type == TF32 ? find_a<TF32, 0> : transposed ? find_a<F16, 1> : find_a<F16, 0>;
    if (failed(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))) return 1;
    kernel<<<1, 128, bytes>>>((uint4 *)di.p, rest, start, first, (float *)d.p);
  }
  return d.back(out);
}
