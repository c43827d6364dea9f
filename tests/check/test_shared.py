"""Reuse of shared memory without a block barrier, in compiled code with and without its barrier."""

import dataclasses
import pathlib

import pytest

from maxdnn import cubin
from maxdnn.assemble import assemble
from maxdnn.check import check_hazards
from maxdnn.cubin import CubinKernel
from tests import oracles

SASS = pathlib.Path(__file__).resolve().parents[2] / "sass"
NOP = 0x50B0000000070F00

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


def without_barrier(kernel: CubinKernel, i: int) -> CubinKernel:
    """The kernel with one instruction replaced by a NOP of the same control code."""
    address = kernel.instructions[i].address
    code = bytearray(kernel.code)
    code[address:address + 8] = NOP.to_bytes(8, "little")
    return dataclasses.replace(kernel, code=bytes(code))


@pytest.mark.parametrize(("name", "which"), [("conv_fprop_64x64", 0), ("conv_fprop_64x64", 1), ("pixels_128x32", 0),
                                             ("pixels_128x32", 1), ("pixels_128x32", 2)])
def test_the_conv_kernels_need_each_of_their_barriers(name: str, which: int, tmp_path: pathlib.Path) -> None:
    """The third one lies behind a loop that is reached on one of several ways out of another one."""
    assemble(SASS / f"{name}.sass", tmp_path / "conv.cubin")
    kernel = cubin.read(tmp_path / "conv.cubin").kernel()
    assert races(kernel) == 0 and check_hazards(kernel).clean
    barriers = [i for i, inst in enumerate(kernel.instructions) if inst.opcode == "BAR"]
    assert races(without_barrier(kernel, barriers[which])) > 0
