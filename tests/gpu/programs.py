"""Programs for the tests on a real GPU, compiled for sm_52. Where the compiler is missing (CUDA 13 has none for sm_52)
the cubins must be there already: `python -m tests.gpu.programs` writes them to build/gpu, to be taken along."""

import hashlib
import pathlib
from collections.abc import Callable

from tests import oracles
from tests.corpus import net

FOLDER = pathlib.Path(__file__).parent.parent.parent / "build" / "gpu"

# Lanes of one warp hand values on through shared and through global memory, inside loops with block barriers; half of
# the lanes take longer to get there. (__syncwarp is nothing on the architecture this is compiled for.)
IN_STEP = r"""
extern "C" __global__ void in_step(int *out, volatile int *scratch, const int *in, int n) {
    __shared__ volatile int s[256];
    int t = threadIdx.x, sum = 0;
    volatile int *mine = scratch + 256 * blockIdx.x;
    s[t] = in[t];
    mine[t] = in[t];
    __syncthreads();
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        int delay = (t + i) & 1 ? in[t] & 63 : 0;
        #pragma unroll 1
        for (int j = 0; j < delay; j++) sum = sum * 3 + in[(sum ^ j) & 255];
        s[t] = sum + i;
        sum += s[t ^ 1] * 5;
        s[t] = sum;
        sum ^= s[t ^ 16] + s[(t & ~31) | ((t * 7) & 31)];
        mine[t] = sum;
        sum += mine[t ^ 3];
        __syncthreads();
        sum += s[(t + 37) & 255];
        __syncthreads();
    }
    out[256 * blockIdx.x + t] = sum;
}
"""

# c0 to c3 of texels from 8 before the first to 8 behind the last.
TEXELS = r"""
extern "C" __global__ void texels(cudaTextureObject_t texture, float4 *out, int first) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v;
    asm volatile("tex.1d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(texture), "r"(i + first));
    out[i] = v;
}
"""

GUARDED = r"""
extern "C" __global__ void guarded(int *out, const int *in, int n) {
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = in[t];
    if (t < 128) asm volatile("bar.sync 1, 128;" ::: "memory");
    else asm volatile("bar.sync 2, 128;" ::: "memory");
    int sum = s[t & 128 | (t + 45) & 127];
    out[t] = sum + __syncthreads_count(sum & 1) + 1000 * __syncthreads_or(sum == 7) + 2000 * __syncthreads_and(n);
}
"""

SOURCES = {"in_step": IN_STEP, "texels": TEXELS, "guarded": GUARDED}
NETS = (3074,)


def compiled(name: str) -> bytes:
    """The cubin of a program, kept in build/gpu."""
    return _kept(name, SOURCES[name], lambda: oracles.compile_cuda(SOURCES[name]))


def compiled_net(seed: int) -> bytes:
    """The cubin of a random program (tests/corpus/net.py), kept in build/gpu."""
    return _kept(f"net_{seed}", net.source([seed]), lambda: net.compiled([seed]))


def _kept(name: str, source: str, compile_it: Callable[[], bytes]) -> bytes:
    place = FOLDER / f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:16]}.cubin"
    if not place.exists():
        data = compile_it()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return place.read_bytes()


if __name__ == "__main__":
    for each in SOURCES:
        print(f"{FOLDER}: {each}, {len(compiled(each))} bytes")
    for number in NETS:
        print(f"{FOLDER}: net_{number}, {len(compiled_net(number))} bytes")
