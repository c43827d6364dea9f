"""Damaged cubins: every one either runs or ends in an error of this library; the process survives all of them.

Two small kernels with shared memory, a barrier, a divergent loop and atomics are damaged in one to five places, mostly
in their code. The seed of a failing file is in the message. MAXDNN_CORRUPTIONS sets how many files are tried; each is
compiled, so the default is small: run 10000 after a change to decoding, lowering or the runtime."""

import os
import random

import numpy as np
import pytest

from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import MaxdnnError
from tests import oracles

EACH = 25
CHUNKS = -(-int(os.environ.get("MAXDNN_CORRUPTIONS", "400")) // EACH)
SOURCE = r"""
extern "C" __global__ void box(int n, const int* x, int* y) {
    __shared__ int s[32]; int t = threadIdx.x;
    s[t] = x[t]; __syncthreads(); if (t < n) y[t] = s[31 - t] * x[t];
}
extern "C" __global__ void loop(int n, const int* x, int* y) {
    int v = 0; for (int i = 0; i < (x[threadIdx.x] & 3); i++) v += i * n;
    atomicAdd(&y[31], v);
}
"""


@pytest.fixture(scope="module")
def original():
    return oracles.compile_cuda(SOURCE)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    """Thousands of kernels that never come back are not worth keeping."""
    from maxdnn.emulator import helpers
    helpers.load()
    monkeypatch.setattr("maxdnn.runtime.cache.store", lambda key, suffix, data: False)


def damaged(original, code, seed):
    """A copy with changed bits or bytes, and the name of the kernel to launch."""
    rng, data = random.Random(seed), bytearray(original)
    name = rng.choice(["box", "loop"])
    start = original.index(code[name])
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = start + rng.randrange(len(code[name])) if rng.random() < 0.7 else rng.randrange(len(data))
        data[at] = rng.randrange(256) if rng.random() < 0.5 else data[at] ^ 1 << rng.randrange(8)
    return bytes(data), name


def outcome(data, name):
    """"ran", or the name of our error."""
    try:
        gpu = VirtualGpu(instruction_budget=50_000, workers=1)
        module = gpu.load(data)
        x, y = gpu.alloc(128), gpu.alloc(128)
        gpu.upload(x, np.arange(32, dtype=np.int32))
        module.function(name).launch((2, 1, 1), (32, 1, 1), [30, x, y])
        return "ran"
    except MaxdnnError as e:
        return type(e).__name__


@pytest.mark.sampled(1, 5)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_files_run_or_are_refused(original, chunk):
    code = {name: kernel.code for name, kernel in read(original).kernels.items()}
    seen = {}
    for seed in range(chunk * EACH, (chunk + 1) * EACH):
        data, name = damaged(original, code, seed)
        try:
            found = outcome(data, name)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}") from e
        seen[found] = seen.get(found, 0) + 1
    assert seen["ran"] and seen["EmulationFault"]
