"""Reuse of shared memory without a block barrier, in compiled code with and without its barrier."""

import dataclasses
import pathlib

import pytest

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import Finding, check_hazards
from maxdnn.checker.effects import all_effects
from maxdnn.checker.known import Knowledge
from maxdnn.checker.shared import Walk, shared_findings
from maxdnn.checker.values import UNKNOWN, Values
from maxdnn.cubin import CubinKernel
from maxdnn.isa import PT
from maxdnn.isa.control import CONTROL_BITS, CONTROL_LSB
from maxdnn.isa.program import Graph
from tests import oracles

SASS = pathlib.Path(__file__).resolve().parents[2] / "sass"
# The barrier of products on tensor cores orders mbarriers, which are no part of this analysis; one kernel has none.
HOPPER_SOURCES = ["taps", *sorted({path.stem for path in (SASS / "sm90").glob("*.sass")}
                                  - {"taps", "tensor_product", "tensor_float_b", "tensor_pixels", "interleave"})]

LOOP = r"""
extern "C" __global__ void __launch_bounds__(256) k(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    float a = 0;
    for (int i = 0; i < n; i++) {
        s[t] = x[i * 256 + t];
        __syncthreads();
        a += s[255 - t] + s[(t * 3) & 255];
        %s
    }
    y[t] = a;
}
"""

DOUBLE = r"""
extern "C" __global__ void __launch_bounds__(256) k(const float* x, float* y, int n) {
    __shared__ float s[512];
    int t = threadIdx.x, p = 0;
    float a = 0;
    for (int i = 0; i < n; i++) {
        s[p + t] = x[i * 256 + t];
        __syncthreads();
        a += s[p + 255 - t];
        p ^= %d;
    }
    y[t] = a;
}
"""


def races(kernel: CubinKernel) -> int:
    return sum(finding.kind.startswith("shared-") for finding in check_hazards(kernel).findings)


def compiled(source: str) -> CubinKernel:
    return cubin.read(oracles.compile_cuda(source)).kernel()


def test_a_buffer_with_both_barriers_is_safe() -> None:
    assert races(compiled(LOOP % "__syncthreads();")) == 0


def test_a_buffer_stored_again_before_all_have_read_it_is_found() -> None:
    assert races(compiled(LOOP % "")) > 0


def test_two_buffers_in_turn_need_one_barrier() -> None:
    assert races(compiled(DOUBLE % 256)) == 0


def test_two_buffers_that_overlap_are_found() -> None:
    assert races(compiled(DOUBLE % 128)) > 0


def test_a_kernel_of_unknown_block_size_is_not_judged() -> None:
    report = check_hazards(compiled((LOOP % "").replace("__launch_bounds__(256)", "")))
    assert report.ok and not report.clean
    assert any("block size" in w.message for w in report.warnings)


def test_a_block_larger_than_any_gpus_is_not_judged() -> None:
    """As damaged files declare; laying out its threads would take all memory."""
    kernel = dataclasses.replace(compiled(LOOP % ""), reqntid=None, maxntid=(64, 1 << 31, 1))
    assert any("no GPU has blocks" in w.message for w in check_hazards(kernel).warnings)
    assert kernel.most_threads == 1024


def without_barrier(kernel: CubinKernel, i: int) -> CubinKernel:
    """The kernel with one instruction replaced by a NOP of the same control code."""
    address, size = kernel.instructions[i].address, kernel.addressing.word
    nop = next(row for row in kernel.table.rows if row.opcode == "NOP")
    code = bytearray(kernel.code)
    kept = 0 if kernel.addressing.group else CONTROL_BITS << CONTROL_LSB
    word = int.from_bytes(code[address:address + size], "little") & kept
    word |= nop.value | nop.fill | PT << kernel.table.guard_lsb
    code[address:address + size] = word.to_bytes(size, "little")
    return dataclasses.replace(kernel, code=bytes(code))


def barriers(kernel: CubinKernel) -> list[int]:
    return [i for i, inst in enumerate(kernel.instructions) if inst.opcode == "BAR"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "which"), [("pixels_128x32", 0), ("pixels_128x32", 1), ("pixels_128x32", 2),
                                             ("conv_fprop_64x64", 0), ("conv_fprop_64x64", 1)])
def test_the_conv_kernels_need_each_of_their_barriers(name: str, which: int) -> None:
    """The third one lies behind a loop that is reached on one of several ways out of another one. That nothing is found
    in the kernel itself the build has made sure."""
    kernel = cubin.read(built(f"maxwell/{name}", "sm_52")).kernel()
    assert races(without_barrier(kernel, barriers(kernel)[which])) > 0


def judged(kernel: CubinKernel) -> list[Finding]:
    """What is said of shared memory alone."""
    graph, effects = Graph(kernel), all_effects(kernel.instructions)
    return shared_findings(kernel, Walk(graph, effects, Knowledge(graph.code, effects), graph.nodes))


@pytest.mark.sampled(1, 1)
@pytest.mark.parametrize("source", HOPPER_SOURCES)
def test_the_kernels_for_hopper_need_each_of_their_barriers(source: str) -> None:
    """A race, or a doubt for the list of elements, which is read at an address that comes with the launch. Of each
    source the first kernel and the last one; the build has found nothing in any."""
    kernels = list(cubin.read(built(f"sm90/{source}", "sm_90")).kernels.values())
    for kernel in {each.name: each for each in (kernels[0], kernels[-1])}.values():
        said = [{finding.kind for finding in judged(without_barrier(kernel, i))} for i in barriers(kernel)]
        assert said and all(said), kernel.name
        assert (said[0] == {"not-followed"}) == kernel.name.startswith("sm90_elements")
        assert "shared-race" in set().union(*said)


HISTOGRAM = r"""
extern "C" __global__ void __launch_bounds__(256) k(int* y, int n) {
    __shared__ int h[256];
    int t = threadIdx.x;
    h[t] = n;
    %s
    for (int i = 0; i < n; i++) atomicAdd(&h[t * 3 & 255], i);
    atomicMax(&h[t * 5 & 255], n);
    %s
    y[t] = h[255 - t];
}
"""

GENERIC = r"""
extern "C" __global__ void __launch_bounds__(256) k(int* y, int n) {
    __shared__ int s[256];
    int t = threadIdx.x, a;
    asm volatile("st.u32 [%%0], %%1;" :: "l"(s + t), "r"(n) : "memory");
    %s
    asm volatile("ld.u32 %%0, [%%1];" : "=r"(a) : "l"(s + (255 - t)) : "memory");
    %s
    s[t ^ 32] = a;
    __syncthreads();
    y[t] = s[t ^ 64] + a;
}
"""

LOCK = r"""
extern "C" __global__ void __launch_bounds__(256) k(float* y, float v) {
    __shared__ float s[8];
    int t = threadIdx.x;
    if (t < 8) s[t] = 0;
    __syncthreads();
    int *p = (int *)&s[t & 7], old = *(volatile int *)p, seen;
    do { seen = old; old = atomicCAS(p, seen, __float_as_int(__int_as_float(seen) * v)); } while (old != seen);
    __syncthreads();
    y[t] = s[t & 7];
}
"""


@pytest.mark.parametrize("arch", ["sm_52", "sm_90"])
@pytest.mark.parametrize("source", [HISTOGRAM, GENERIC], ids=["atomic", "generic"])
def test_atomics_and_generic_accesses_are_judged(source: str, arch: str) -> None:
    """Atomics do not disturb each other; what was stored before and is read afterwards wants a barrier."""
    sync = "__syncthreads();"
    whole = check_hazards(cubin.read(oracles.compile_cuda(source % (sync, sync), arch)).kernel())
    assert whole.clean, whole.text()
    for lacking in (("", sync), (sync, "")):
        assert races(cubin.read(oracles.compile_cuda(source % lacking, arch)).kernel()) > 0


@pytest.mark.parametrize("arch", ["sm_52", "sm_90"])
def test_loops_around_compare_and_swap_are_no_race(arch: str) -> None:
    assert races(cubin.read(oracles.compile_cuda(LOCK, arch)).kernel()) == 0


def test_an_access_by_a_generic_address_of_global_memory_is_no_doubt() -> None:
    """A kernel that never asks where shared memory lies cannot reach it so."""
    source = (LOOP % "__syncthreads();").replace("y[t] = a;", 'asm volatile("st.f32 [%0], %1;" :: "l"(y + t), "f"(a));')
    kernel = compiled(source)
    assert any(inst.opcode == "ST" for inst in kernel.instructions) and check_hazards(kernel).clean


@pytest.mark.parametrize("code", ["IADD.X R2, RZ, RZ", "IADD3.X R2, RZ, RZ, RZ"])
def test_a_carry_that_is_not_known_is_not_none(code: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "k.sass").write_text(f"# Kernel: k\n# Arch: sm_52\n--:-:-:-:6 {code};\n--:-:-:-:f EXIT;\n")
    assemble(tmp_path / "k.sass", tmp_path / "k.cubin")
    values = Values((64, 1, 1))
    values.step(cubin.read(tmp_path / "k.cubin").kernel().instructions[0])
    assert values.reg(2) is UNKNOWN


@pytest.mark.parametrize("lut", ["0x3c", "0xc0", "0x96", "0x1"])
def test_a_function_of_what_is_not_known_is_not_known(lut: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "k.sass").write_text("# Kernel: k\n# Arch: sm_90\n"
                                     f"--:-:-:-:6 LOP3.LUT R2, R4, R5, RZ, {lut}, !PT;\n--:-:-:Y:f EXIT;\n")
    assemble(tmp_path / "k.sass", tmp_path / "k.cubin")
    kernel = cubin.read(tmp_path / "k.cubin").kernel()
    values = Values((64, 1, 1), kernel.table)
    values.step(kernel.instructions[0])
    assert values.reg(2) is UNKNOWN
