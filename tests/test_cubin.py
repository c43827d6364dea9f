"""Reading cubins: everything the vendor's compiler puts into them, and nothing but a CubinError from damaged ones."""

import random
import re
import struct

import pytest

from maxdnn import cubin
from maxdnn.errors import CubinError, DecodeError
from tests import oracles
from tests.corpus import compiler

SEED = 64
SOURCE = """
__constant__ float table[5] = {1, 2, 3, 4, 5};
__constant__ int count;
__device__ int total;
__device__ float init[3] = {7, 8, 9};
__device__ __noinline__ float slow(float x, int n) { for (int i = 0; i < n; ++i) x = x * x + 1; return x; }
extern "C" __global__ void __launch_bounds__(96) plain(float *out, int n, double d) {
    __shared__ float s[64];
    s[threadIdx.x % 64] = n;
    __syncthreads();
    out[threadIdx.x] = s[n] + table[n & 3] + init[n & 1] + d + count;
    atomicAdd(&total, n);
}
extern "C" __global__ void caller(float *out, char c, short s, int n) {
    float local[40];
    for (int i = 0; i < 40; ++i) local[i * n % 40] = slow(out[i], n);
    for (int i = 0; i < n; ++i) out[i] = local[i * 7 % 40] + c + s;
}
"""
SMALL = """
__constant__ float factor;
__device__ int total;
extern "C" __global__ void k(float *out) { out[0] = factor; total = 1; }
"""


@pytest.fixture(scope="module")
def image() -> bytes:
    return oracles.compile_cuda(SOURCE)


@pytest.fixture(scope="module")
def module(image: bytes) -> cubin.Cubin:
    return cubin.read(image)


def test_kernels_are_those_of_the_source(module: cubin.Cubin) -> None:
    assert set(module.kernels) == {"plain", "caller"}
    assert module.arch == "sm_52"


def test_parameters_have_their_natural_places(module: cubin.Cubin) -> None:
    places = {k.name: [(p.ordinal, p.offset, p.size) for p in k.params] for k in module.kernels.values()}
    assert places["plain"] == [(0, 0, 8), (1, 8, 4), (2, 16, 8)]
    assert places["caller"] == [(0, 0, 8), (1, 8, 1), (2, 10, 2), (3, 12, 4)]
    assert module.kernel("plain").param_bytes == 24
    assert len(module.kernel("plain").constants[0]) == module.kernel("plain").param_base + 24


def test_resources_are_those_the_vendor_reports(module: cubin.Cubin, image: bytes) -> None:
    text = oracles.cuobjdump(image, "-res-usage")
    for name, kernel in module.kernels.items():
        usage = re.search(rf"Function {name}:\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", text)
        assert usage, text
        assert kernel.registers == int(usage[1])
        assert kernel.local_bytes == int(usage[2])
        assert kernel.shared_bytes == int(usage[3])
    assert module.kernel("plain").barriers == 1
    assert module.kernel("caller").barriers == 0


def test_local_arrays_count_as_local_memory(module: cubin.Cubin) -> None:
    assert module.kernel("caller").local_bytes >= 160
    assert module.kernel("plain").local_bytes == 0


def test_launch_bounds_are_read(module: cubin.Cubin) -> None:
    assert module.kernel("plain").maxntid == (96, 1, 1)
    assert module.kernel("caller").maxntid is None


def test_device_functions_stay_inside_the_kernel_that_calls_them(module: cubin.Cubin) -> None:
    kernel = module.kernel("caller")
    (function,) = [f for f in kernel.functions if "slow" in f.name]
    assert function.offset > 0 and function.offset + function.size <= len(kernel.code)
    assert module.kernel("plain").functions == ()


def test_user_constants_have_names_places_and_initial_values(module: cubin.Cubin) -> None:
    table = module.constants["table"]
    assert (table.section, table.size) == (".nv.constant3", 20)
    assert struct.unpack_from("<5f", module.constant_bank, table.offset) == (1, 2, 3, 4, 5)
    assert module.constants["count"].size == 4


def test_globals_have_names_places_and_initial_values(module: cubin.Cubin) -> None:
    init = module.globals["init"]
    assert struct.unpack_from("<3f", module.global_init, init.offset) == (7, 8, 9)
    assert module.globals["total"].section == ".nv.global"
    assert module.global_bytes >= 4


def test_addresses_of_globals_are_relocations_of_bank_4(module: cubin.Cubin) -> None:
    found = {(r.section, cubin.RELOCATIONS[r.kind], r.symbol) for r in module.relocations}
    assert {(".nv.constant4", "R_CUDA_64", "total"), (".nv.constant4", "R_CUDA_64", "init")} <= found
    assert len(module.global_addresses) % 8 == 0


def test_textures_have_a_handle_word_after_the_parameters() -> None:
    source = next(name for name in compiler.sources() if name == "texref.ptx")
    for kernel in cubin.read(compiler.compile_source(source)).kernels.values():
        assert kernel.textures
        first, last = kernel.param_base + kernel.param_bytes, len(kernel.constants[0]) - 4
        assert all(first <= at <= last for _, at in kernel.textures)


def test_an_unknown_kernel_is_an_error_with_the_known_ones(module: cubin.Cubin) -> None:
    with pytest.raises(CubinError, match=r"no kernel 'plane' .*plain"):
        module.kernel("plane")
    with pytest.raises(CubinError, match="caller"):
        module.kernel()


def test_a_cubin_for_another_machine_is_refused() -> None:
    with pytest.raises(CubinError, match=r"sm_75; this library reads sm_50"):
        cubin.read(oracles.compile_cuda("__global__ void k() {}", "sm_75"))


@pytest.mark.parametrize(("damage", "words"), [
    (lambda b: b"", "does not begin with an ELF header"),
    (lambda b: b[:40], "cut short"),
    (lambda b: b[:4] + b"\1" + b[5:], "not a 64-bit"),
    (lambda b: b[:18] + b"\x3e\0" + b[20:], "want 190"),
    (lambda b: b[:len(b) // 2], "section headers"),
    (lambda b: b[:62] + b"\xff\xff" + b[64:], "hold the section names"),
    (lambda b: b.replace(b".nv.shared.plain\0", b".nv.constant4\0\0\0\0"), r"section \.nv\.constant4 is there twice"),
])
def test_damage_is_named(image: bytes, damage, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CubinError, match=words):
        cubin.read(damage(image))


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Flipped bytes, overwritten words, a cut, or a piece moved; half of them where headers and symbols are."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(min(64, len(out)) if rng.random() < 0.2 else len(out))
        kind = rng.randrange(4)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            out[at:at + 8] = struct.pack("<Q", rng.choice((0, 1, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1)))[:len(out) - at]
        else:
            del out[rng.randrange(1, len(out)):]
        if len(out) < 2:
            break
    return bytes(out)


@pytest.mark.long
def test_ten_thousand_damaged_cubins_raise_only_this_librarys_errors() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    image = oracles.compile_cuda(SMALL)
    refused = 0
    for _ in range(10_000):
        try:
            for kernel in cubin.read(_mutate(rng, image)).kernels.values():
                for inst in kernel.instructions:
                    inst.text()
        except (CubinError, DecodeError) as error:
            refused += 1
            assert str(error) and "\n" not in str(error)
    assert 2_000 < refused < 10_000
