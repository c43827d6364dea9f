"""Forms of operands and instructions that compiled code of sm_80 to sm_90 uses, on the virtual GPU against NumPy: jump
tables, matches between lanes, barriers named by registers, conversions of uniform registers and constants, traps."""

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from tests import oracles

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90")
LANES = 32

SWITCH = """
extern "C" __global__ void k(unsigned *x, const unsigned *which)
{
    unsigned i = threadIdx.x, v = x[i], r;
    switch (which[i]) {
    case 0: r = v * 3; break;
    case 1: r = x[(i + 1) % 32] / 3; break;
    case 2: r = v ^ 0x55; break;
    case 3: r = __popc(v) + 77; break;
    case 4: r = v + i; break;
    case 5: r = __brev(v); break;
    case 6: r = v % 7; break;
    case 7: r = v * v; break;
    case 8: r = x[(i + 9) % 32] - 5; break;
    case 9: r = v >> 3; break;
    case 10: r = v << (i & 7); break;
    default: r = 4711;
    }
    __syncthreads();
    x[i] = r;
}
"""


def _switched(v: np.ndarray, which: np.ndarray) -> np.ndarray:
    i = np.arange(LANES, dtype=np.uint32)
    ways = [v * 3, np.roll(v, -1) // 3, v ^ 0x55, [77 + bin(x).count("1") for x in v], v + i,
            [int(f"{x:032b}"[::-1], 2) for x in v], v % 7, v * v, np.roll(v, -9) - 5, v >> 3, v << (i & 7)]
    ways += [np.full(LANES, 4711)] * 5
    return np.choose(which, [np.asarray(w, np.int64).astype(np.uint32) for w in ways])


MATCH = """
extern "C" __global__ void k(const unsigned *x, unsigned long long *out)
{
    unsigned i = threadIdx.x;
    unsigned long long wide = x[i] * 0x100000001ull ^ (unsigned long long)(x[i + 32] & 1) << 40;
    int all, same;
    out[i] = __match_any_sync(~0u, x[i]);
    out[i + 32] = __match_any_sync(~0u, wide);
    unsigned m = __match_all_sync(~0u, x[i], &all), n = __match_all_sync(~0u, wide & 0, &same);
    out[i + 64] = m | (unsigned long long)all << 32;
    out[i + 96] = n | (unsigned long long)same << 32;
    if (i % 3 == 0) out[i + 128] = __match_any_sync(0x49249249u, x[i]);
}
"""

BARRIERS = """
extern "C" __global__ void k(int *out, int number, int count)
{
    __shared__ int sums[64];
    int i = threadIdx.x;
    sums[i] = i * 3;
    asm volatile("barrier.sync %0, %1;" :: "r"(number), "r"(count) : "memory");
    out[i] = sums[(i + 33) % 64];
    int total;
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 20; barrier.red.popc.u32 %0, %2, %3, p; }"
                 : "=r"(total) : "r"(i), "r"(number + 1), "r"(count) : "memory");
    out[64 + i] = total;
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, -1; barrier.red.and.pred q, %2, p; selp.s32 %0, 1, 0, q; }"
                 : "=r"(total) : "r"(i), "r"(number + 2) : "memory");
    out[128 + i] = total;
}
"""

CONVERSIONS = """
__constant__ float few[4] = {1.5f, -2.25f, 3e10f, 1e-40f};
extern "C" __global__ void k(double *out, float *single, float f, unsigned long long wide, unsigned word,
                             long long minus, int small)
{
    out[0] = f;
    out[1] = few[blockIdx.x + 1];
    out[2] = wide;
    out[3] = minus;
    out[4] = word;
    out[5] = (short)small;
    out[6] = (unsigned char)(small >> 8);
    single[0] = __ull2float_ru(wide);
    single[1] = __ull2float_rd(wide);
    single[2] = __ll2float_rz(minus);
    single[3] = __uint2float_rz(word);
    single[4] = __uint2float_ru(word);
    single[5] = (signed char)small;
}
"""

TRAP = 'extern "C" __global__ void k(int *x) { if (x[threadIdx.x] == 7) __trap(); x[threadIdx.x] = 1; }'


def _kernel(source: str, arch: str, *opcodes: str) -> bytes:
    """A cubin whose kernel has all these words in its text."""
    image = oracles.compile_cuda(source, arch)
    texts = "\n".join(inst.text() for inst in cubin.read(image).kernel("k").instructions)
    assert all(opcode in texts for opcode in opcodes), texts
    return image


def _run(image: bytes, threads: int, arrays: list[np.ndarray], *args: object) -> list[np.ndarray]:
    gpu, found = VirtualGpu(), []
    buffers = [gpu.alloc(array.nbytes) for array in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        gpu.upload(buffer, array)
    gpu.load(image).function("k").launch((1, 1, 1), (threads, 1, 1), [*buffers, *args])
    gpu.synchronize()
    for buffer, array in zip(buffers, arrays, strict=True):
        found.append(np.empty_like(array))
        gpu.download(buffer, found[-1])
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_a_jump_table_goes_where_its_words_say(arch: str) -> None:
    rng = np.random.default_rng(24)
    v, which = rng.integers(0, 1 << 32, LANES, np.uint32), rng.integers(0, 16, LANES, np.uint32)
    x, _ = _run(_kernel(SWITCH, arch, "BRX"), LANES, [v, which])
    np.testing.assert_array_equal(x, _switched(v, which))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("values", [1, 3, 1 << 32])
def test_lanes_that_hold_the_same_find_each_other(arch: str, values: int) -> None:
    x = np.random.default_rng(values).integers(0, values, 2 * LANES, np.uint32)
    image = _kernel(MATCH, arch, "MATCH.ANY", "MATCH.ANY.U64", "MATCH.ALL")
    _, out = _run(image, LANES, [x, np.zeros(160, np.uint64)])
    narrow, wide = x[:LANES], [(int(a), int(b) & 1) for a, b in zip(x[:LANES], x[LANES:], strict=True)]
    for i in range(LANES):
        assert out[i] == sum(1 << j for j in range(LANES) if narrow[j] == narrow[i])
        assert out[32 + i] == sum(1 << j for j in range(LANES) if wide[j] == wide[i])
        assert out[64 + i] == (0x1FFFFFFFF if (narrow == narrow[0]).all() else 0)
        assert out[96 + i] == 0x1FFFFFFFF
        some = sum(1 << j for j in range(0, LANES, 3) if narrow[j] == narrow[i])
        assert out[128 + i] == (0 if i % 3 else some)


@pytest.mark.parametrize("arch", ARCHS)
def test_barriers_are_named_and_counted_by_registers(arch: str) -> None:
    deferred = ".DEFER_BLOCKING" if arch == "sm_90" else ""
    image = _kernel(BARRIERS, arch, f"BAR.SYNC{deferred} R", "BAR.RED.POPC.DEFER_BLOCKING R")
    out = _run(image, 64, [np.zeros(192, np.int32)], np.int32(3), np.int32(64))[0]
    i = np.arange(64)
    np.testing.assert_array_equal(out[:64], (i + 33) % 64 * 3)
    assert (out[64:128] == 43).all() and (out[128:] == 1).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_uniform_registers_and_constants_are_converted(arch: str) -> None:
    wide, word, minus, small = 0xFEDCBA9876543210, 0xFFFFFF81, -0x123456789ABCDEF, 0x7FFF8765
    image = _kernel(CONVERSIONS, arch, "F2F.F64.F32", "I2F.U64.RP", "I2F.F64.U64")
    out, single = _run(image, 1, [np.zeros(7), np.zeros(6, np.float32)], np.float32(-0.1), np.uint64(wide),
                       np.uint32(word), np.int64(minus), np.int32(small))
    few = np.array([1.5, -2.25, 3e10, 1e-40], np.float32)
    wanted = [np.float64(np.float32(-0.1)), few[1], float(wide), float(minus), word, -0x789B, 0x87]
    np.testing.assert_array_equal(out, wanted)
    up, down = np.float32(wide), np.float32(wide)
    up = up if int(up) >= wide else np.nextafter(up, np.float32(np.inf))
    down = down if int(down) <= wide else np.nextafter(down, np.float32(0))
    zero = np.float32(minus)
    zero = zero if int(zero) >= minus else np.nextafter(zero, np.float32(0))
    np.testing.assert_array_equal(single, np.array([up, down, zero, 4294967040, 4294967296, 0x65], np.float32))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_trap_is_a_fault_that_says_so(arch: str) -> None:
    image = _kernel(TRAP, arch, "BPT.TRAP")
    x = _run(image, LANES, [np.zeros(LANES, np.int32)])[0]
    assert (x == 1).all()
    with pytest.raises(EmulationFault, match="trap"):
        _run(image, LANES, [np.arange(LANES, dtype=np.int32)])
