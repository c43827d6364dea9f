"""What runs beside a warp: a pipeline of bulk copies, mbarriers and products compiled by the vendor, and what misuse of
each of its parts is called."""

import re

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from maxdnn.isa import Undecodable, read_word
from tests import oracles
from tests.emulator.test_gpu import fetch, on_device
from tests.gpu.wgmma_models import DEPTH, wgmma

COMMON = r"""
typedef unsigned int u32; typedef unsigned long u64;
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u32 bar, int n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(bar), "r"(n)); }
__device__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(bar) : "memory"); }
__device__ void expect(u32 bar, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(n) : "memory");
}
__device__ void copy(u32 to, const void* from, int n, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(n), "r"(bar) : "memory");
}
__device__ void wait(u32 bar, int parity) {
  asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra L;\n}"
               :: "r"(bar), "r"(parity) : "memory");
}
__device__ u64 desc(u32 address) {  // rows of 128 bytes, swizzled
  return (u64)((address & 0x3ffff) >> 4) | 1ul << 16 | 64ul << 32 | 1ul << 62;
}
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT0 asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#define PROXY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
  "+f"(d[i + 6]), "+f"(d[i + 7])
__device__ void product(float* d, u64 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,"
    "%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
    : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24) : "l"(a), "l"(b) : "memory");
}
__device__ void save(float* out, const float* d, int t) {
  for (int r = 0; r < 32; r++)
    out[(t / 32 * 16 + t % 32 / 4 + r / 2 % 2 * 8) * 64 + t % 4 * 2 + r % 2 + r / 4 * 8] = d[r];
}
"""
# Warpgroup 0 copies, the others multiply: 64 rows of A each, 64 columns, 64 of k a step, both already swizzled.
PIPELINE = COMMON + r"""
extern "C" __global__ void __launch_bounds__(384) pipeline(const char* a, const char* b, float* out, int steps) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ u64 full[STAGES], empty[STAGES];
  char* tiles = memory + (-at(memory) & 1023);
  const int t = threadIdx.x, group = t / 128;
  if (t == 0) for (int s = 0; s < STAGES; s++) { init(at(full + s), 1); init(at(empty + s), CONSUMERS); }
  PROXY;
  __syncthreads();
  if (group == 0) {
    GIVE
    if (t == 0)
      for (int i = 0; i < steps; i++) {
        int s = i % STAGES;
        char* to = tiles + s * 24576;
        wait(at(empty + s), (i / STAGES & 1) ^ 1);
        expect(at(full + s), ANNOUNCED);
        copy(at(to), a + i * 16384, 16384, at(full + s));
        copy(at(to + 16384), b + i * 8192, 8192, at(full + s));
      }
    return;
  }
  TAKE
  float d[32];
  for (int r = 0; r < 32; r++) d[r] = 0;
  for (int i = 0; i < steps; i++) {
    int s = i % STAGES;
    u32 from = at(tiles + s * 24576);
    FULL
    u64 da = desc(from + (group - 1) * 8192), db = desc(from + 16384);
    FENCE;
    for (int k = 0; k < 4; k++) product(d, da + 2 * k, db + 2 * k);
    COMMIT;
    EARLY
    WAIT0;
    LATE
  }
  save(out + (group - 1) * 4096, d, t % 128);
}
"""
RELEASE = "if (t % 128 == 0) arrive(at(empty + s));"
PLAIN = {"FULL": "wait(at(full + s), i / STAGES & 1);", "EARLY": "", "LATE": RELEASE, "GIVE": "", "TAKE": "",
         "STAGES": 3, "CONSUMERS": 2, "ANNOUNCED": 24576}
TURNS = {"GIVE": 'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");',
         "TAKE": 'asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");'}


def built(source, **parts):
    for word, text in parts.items():
        source = re.sub(rf"\b{word}\b", str(text), source)
    return oracles.compile_cuda(source, "sm_90a")


def swizzled(x):
    """Rows of 64 halves as a tile: 16-byte pieces of row r change places by r mod 8."""
    rows, steps = x.shape[0], x.shape[1] // 64
    pieces = x.reshape(rows, steps, 8, 8).transpose(1, 0, 2, 3)
    order = np.arange(8)[None, :] ^ (np.arange(rows) % 8)[:, None]
    return np.ascontiguousarray(np.take_along_axis(pieces, order[None, :, :, None], axis=2))


def modelled(a, b):
    """Sums of 16 products after another, by the model."""
    out = np.zeros((len(a), len(b)), np.uint32)
    x, y = a.view(np.uint16), b.view(np.uint16)
    for k in range(0, a.shape[1], DEPTH["f16"]):
        shape = (len(a), len(b), 16)
        parts = (np.broadcast_to(z, shape) for z in (x[:, None, k:k + 16], y[None, :, k:k + 16]))
        out = wgmma(*parts, out, "f16")
    return out.view(np.float32)


def run(cubin, steps, gpu=None):
    rng = np.random.default_rng(steps)
    a, b = (rng.normal(size=(n, 64 * steps)).astype(np.float16) for n in (128, 64))
    gpu = gpu or VirtualGpu()
    buffers = on_device(gpu, swizzled(a), swizzled(b), np.zeros((128, 64), np.float32))
    gpu.load(cubin).function("pipeline").launch((1, 1, 1), (384, 1, 1), [*buffers, np.int32(steps)],
                                                shared_bytes=3 * 24576 + 1024)
    return fetch(gpu, buffers[-1], np.zeros((128, 64), np.float32)), a, b


@pytest.mark.sampled(1)
@pytest.mark.parametrize("checks", [{}, {"race": True, "undefined": True}])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_pipeline_of_copies_and_products_is_right(steps, checks):
    out, a, b = run(built(PIPELINE, **PLAIN), steps, VirtualGpu(**checks))
    assert np.array_equal(out, modelled(a, b))


def test_registers_change_hands():
    out, a, b = run(built(PIPELINE, **{**PLAIN, **TURNS}), 4)
    assert np.array_equal(out, modelled(a, b))


def faulty(**parts):
    with pytest.raises(EmulationFault) as fault:
        run(built(PIPELINE, **{**PLAIN, **parts}), 8)
    return str(fault.value)


def test_bytes_announced_that_nobody_copies_are_a_deadlock_that_names_the_barrier():
    text = faulty(ANNOUNCED=24576 + 16)
    assert "deadlock" in text and "mbarrier" in text and "16 bytes" in text


@pytest.mark.long
def test_bytes_copied_that_nobody_announced_are_a_deadlock_that_names_the_barrier():
    text = faulty(ANNOUNCED=24576 - 16)
    assert "deadlock" in text and "mbarrier" in text and "-16 bytes" in text


@pytest.mark.long
def test_arrivals_that_never_come_are_a_deadlock():
    text = faulty(CONSUMERS=3)
    assert "deadlock" in text and "1 arrival" in text


@pytest.mark.long
def test_one_arrival_too_many_is_a_fault_or_an_overwritten_operand():
    assert re.search("arriv|still reads|bulk copy", faulty(CONSUMERS=1))


def test_operands_that_have_not_been_waited_for_are_a_fault():
    assert "bulk copy" in faulty(FULL="")


def test_a_stage_released_before_its_products_are_done_is_a_fault():
    text = faulty(EARLY=RELEASE, LATE="")
    assert "reads" in text or "arriv" in text


STORED = COMMON + r"""
extern "C" __global__ void __launch_bounds__(128) stored(const uint4* a, const uint4* b, float* out) {
  __shared__ __align__(1024) uint4 tile[1024];
  const int t = threadIdx.x;
  for (int i = t; i < 512; i += 128) { tile[i] = a[i]; tile[512 + i] = b[i]; }
  BEFORE
  __syncthreads();
  AFTER
  float d[32];
  for (int r = 0; r < 32; r++) d[r] = 0;
  FENCE;
  for (int k = 0; k < 4; k++) product(d, desc(at(tile)) + 2 * k, desc(at(tile + 512)) + 2 * k);
  COMMIT;
  MEANWHILE
  WAIT0;
  save(out, d, t);
}
"""


def stored(change=None, **parts):
    cubin = built(STORED, **{"BEFORE": "PROXY;", "AFTER": "", "MEANWHILE": "", **parts})
    cubin = change(cubin) if change else cubin
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=(64, 64)).astype(np.float16) for _ in "ab")
    gpu = VirtualGpu()
    buffers = on_device(gpu, swizzled(a), swizzled(b), np.zeros((64, 64), np.float32))
    gpu.load(cubin).function("stored").launch((1, 1, 1), (128, 1, 1), buffers)
    assert np.array_equal(fetch(gpu, buffers[-1], np.zeros((64, 64), np.float32)), modelled(a, b))


@pytest.mark.parametrize("parts", [{}, {"BEFORE": "", "AFTER": "PROXY;"}], ids=["each writer", "behind the barrier"])
def test_ordinary_stores_are_seen_behind_a_proxy_fence(parts):
    stored(**parts)


def test_ordinary_stores_without_a_proxy_fence_are_a_fault():
    with pytest.raises(EmulationFault, match=r"FENCE.VIEW.ASYNC.*STS"):
        stored(BEFORE="")


def test_operands_overwritten_before_the_wait_are_a_fault():
    with pytest.raises(EmulationFault, match=r"still reads.*HGMMA"):
        stored(MEANWHILE="tile[t] = a[t];")


def without(cubin, opcode):
    """The cubin with the first such instruction made a NOP."""
    kernel = next(iter(VirtualGpu().load(cubin).cubin.kernels.values()))
    for n, (address, word, control) in enumerate(kernel.words()):
        item = read_word(word, control, address, kernel.table)
        if not isinstance(item, Undecodable) and item.text().startswith(opcode):
            raw = int.from_bytes(kernel.code[16 * n:16 * n + 16], "little")
            nop = 0x7918 | (raw >> 105 & 0x1FFFFF) << 105
            code = kernel.code[:16 * n] + nop.to_bytes(16, "little") + kernel.code[16 * n + 16:]
            assert cubin.count(kernel.code) == 1
            return cubin.replace(kernel.code, code)
    raise AssertionError(f"no {opcode}")


def test_sums_read_before_the_wait_are_a_fault():
    with pytest.raises(EmulationFault, match=r"not been waited for.*WARPGROUP.DEPBAR.*R\d+"):
        stored(lambda cubin: without(cubin, "WARPGROUP.DEPBAR"))


def test_products_without_warpgroup_arrive_are_a_fault():
    with pytest.raises(EmulationFault, match=r"WARPGROUP.ARRIVE"):
        stored(lambda cubin: without(cubin, "WARPGROUP.ARRIVE"))


ALONE = COMMON + r"""
extern "C" __global__ void alone(int* out) {
  __shared__ u64 bar;
  FIRST
  __syncthreads();
  SECOND
  out[threadIdx.x] = 1;
}
"""


def alone(first, second, threads=64):
    gpu = VirtualGpu()
    (out,) = on_device(gpu, np.zeros(threads, np.int32))
    gpu.load(built(ALONE, FIRST=first, SECOND=second)).function("alone").launch((1, 1, 1), (threads, 1, 1), [out])
    return fetch(gpu, out, np.zeros(threads, np.int32))


def test_phases_count_arrivals_of_all_warps():
    begin = "if (threadIdx.x == 0) init(at(&bar), 64);"
    assert alone(begin, "arrive(at(&bar)); wait(at(&bar), 0); arrive(at(&bar)); wait(at(&bar), 1);").all()


def test_a_barrier_that_was_not_begun_is_a_fault():
    with pytest.raises(EmulationFault, match="mbarrier that was not initialised"):
        alone("", "arrive(at(&bar));")


def test_more_arrivals_than_a_phase_expects_while_bytes_are_missing_are_a_fault():
    with pytest.raises(EmulationFault, match="more arrivals"):
        alone("if (threadIdx.x == 0) { init(at(&bar), 1); expect(at(&bar), 16); arrive(at(&bar)); }", "")


def test_a_phase_that_nobody_completes_is_a_deadlock():
    with pytest.raises(EmulationFault, match=r"deadlock.*warp 0 waits.*mbarrier 0x\w+.*64 arrivals"):
        alone("if (threadIdx.x == 0) init(at(&bar), 64);", "wait(at(&bar), 0);")
