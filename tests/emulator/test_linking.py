"""What a cubin leaves open is filled in when it is loaded, or refused by name: nothing stays zero in silence."""

import dataclasses

import numpy as np
import pytest

from maxdnn.cubin import Relocation, external_functions, read, require_linked
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import CubinError
from tests import oracles
from tests.emulator.test_gpu import fetch, on_device

MISSING = r"""
extern "C" __device__ int helper(int);
extern "C" __global__ void k(int* p) { p[0] = helper(p[1]); }
"""
APART = r"""
__device__ __noinline__ int triple(int a) { return a * 3 + 1; }
extern "C" __global__ void k(int* p) { p[0] = triple(p[1]); }
"""
POINTERS = r"""
__device__ int x[4] = {1, 2, 3, 4};
__device__ int* third = x + 2;
__constant__ int* first = x;
extern "C" __global__ void k(int* p, int n) { p[0] = third[n] * 10 + first[n]; }
"""


def test_a_function_that_is_nowhere_is_named():
    data = oracles.compile_cuda(MISSING, options=["-rdc=true"])
    assert external_functions(read(data)) == ("helper",)
    with pytest.raises(CubinError, match="calls helper, which is not in it: the virtual GPU cannot run it"):
        VirtualGpu().load(data)


def test_a_cubin_that_is_not_linked_is_refused():
    data = oracles.compile_cuda(APART, options=["-rdc=true"])
    with pytest.raises(CubinError, match=r"R_CUDA_ABS32_20 against _Z6triplei at \.text\.k \+ 0x\w+ .* not linked"):
        VirtualGpu().load(data)
    VirtualGpu().load(oracles.compile_cuda(APART))


@pytest.mark.parametrize("section, kind", [(".text.k", 99), (".nv.constant3", 1), (".nv.constant0.k", 7),
                                           (".nv.constant2.k", 2), (".nv.global.init", 77), (".nv.shared.k", 2)])
def test_a_relocation_that_nothing_resolves_is_refused(section, kind):
    cubin = read(oracles.compile_cuda(POINTERS))
    extra = Relocation(section, 0, kind, "x")
    damaged = dataclasses.replace(cubin, relocations=(*cubin.relocations, extra))
    with pytest.raises(CubinError, match="is not resolved") as found:
        VirtualGpu().load(damaged)
    assert section in str(found.value)


def test_relocations_of_debug_sections_do_not_matter():
    VirtualGpu().load(oracles.compile_cuda(POINTERS, options=["-lineinfo"]))


def test_pointers_in_variables_and_constants_point():
    gpu = VirtualGpu()
    (out,) = on_device(gpu, np.zeros(1, np.int32))
    gpu.load(oracles.compile_cuda(POINTERS)).function("k").launch((1, 1, 1), (1, 1, 1), [out, 1])
    assert fetch(gpu, out, np.zeros(1, np.int32)) == [42]


def test_who_fills_in_fewer_sections_refuses_more():
    cubin = read(oracles.compile_cuda(POINTERS))
    with pytest.raises(CubinError, match=r"R_CUDA_G64 against x at \.nv\.(constant3|global\.init)"):
        require_linked(cubin)
