"""Sums, extremes and bits of a warp (REDUX), whole and with some lanes away."""

import functools
import operator
from collections.abc import Callable

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from tests.corpus import compiler

OPERATIONS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("unsigned", operator.add), "min": ("int", min), "max": ("int", max), "and": ("unsigned", operator.and_),
    "or": ("unsigned", operator.or_), "xor": ("unsigned", operator.xor),
}
UNSIGNED = {"min": ("unsigned", min), "max": ("unsigned", max)}
EVERY = [(name, *rest) for table in (OPERATIONS, UNSIGNED) for name, rest in table.items()]
SOURCE = "\n".join(f"""extern "C" __global__ void k{n}({type_} *out, const {type_} *in, unsigned some) {{
  if (some >> threadIdx.x & 1) out[threadIdx.x] = __reduce_{name}_sync(some, in[threadIdx.x]);
}}""" for n, (name, type_, _) in enumerate(EVERY))


@pytest.mark.parametrize("some", [0xFFFFFFFF, 0x80F0A001, 0x00000200])
def test_a_warp_is_joined(some: int) -> None:
    gpu = VirtualGpu()
    module = gpu.load(compiler.compile_text(SOURCE, ".cu", "sm_90"))
    given = np.random.default_rng(5).integers(0, 1 << 32, 32, np.uint64).astype(np.uint32)
    given[::3] = (given[::3].view(np.int32) >> 13).view(np.uint32)
    source, out = gpu.alloc(128), gpu.alloc(128)
    gpu.upload(source, given)
    lanes = [n for n in range(32) if some >> n & 1]
    for n, (name, type_, join) in enumerate(EVERY):
        gpu.upload(out, np.full(32, 0xDEADBEEF, np.uint32))
        module.function(f"k{n}").launch((1, 1, 1), (32, 1, 1), [out, source, np.uint32(some)])
        gpu.synchronize()
        found = np.empty(32, np.uint32)
        gpu.download(out, found)
        numbers = (given.view(np.int32) if type_ == "int" else given)[lanes].tolist()
        wanted = np.full(32, 0xDEADBEEF, np.uint32)
        wanted[lanes] = functools.reduce(join, numbers) & 0xFFFFFFFF
        assert (found == wanted).all(), (name, type_)
