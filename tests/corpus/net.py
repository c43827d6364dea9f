"""Random C programs (cprogram.py) through a host compiler, for what they mean, and through NVRTC, for any device.

A batch of programs is one source for both. g++ must be installed: without a reference there is nothing to test.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests import oracles
from tests.corpus.cprogram import BLOCKS, EDGES, TAIL, THREADS, program
from tests.corpus.runner import Array

FOLDER = pathlib.Path(__file__).parent
BATCH = 20
WORDS = 2 * THREADS * BLOCKS + TAIL
FIRST_TAIL = np.array([0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0], np.uint32)  # what the atomics start from
HOST_FLAGS = ("-std=c++14", "-O0", "-w", "-ffp-contract=off", "-shared", "-fPIC")
CUDA_FLAGS = ("--fmad=false", "--std=c++14", f"--include-path={FOLDER}")


def inputs(seed: int) -> Array:
    """The words all threads of a program read: edges often."""
    rng = np.random.default_rng(seed)
    count = 4 * THREADS * BLOCKS
    words = rng.integers(0, 1 << 32, count, np.uint64) >> rng.integers(0, 32, count, np.uint64)
    edges = np.array(EDGES, np.uint64)
    return np.where(rng.random(count) < 0.4, rng.choice(edges, count), words).astype(np.uint32)


def first_output() -> Array:
    """The output buffer before a launch."""
    return np.concatenate([np.full(WORDS - TAIL, 0xA5A5A5A5, np.uint32), FIRST_TAIL])


def source(seeds: Sequence[int]) -> str:
    return '#include "net.h"\n' + "\n".join(program(seed) for seed in seeds)


@functools.cache
def host_compiler() -> str:
    found = shutil.which("g++")
    if not found:
        raise oracles.OracleMissing("g++ not found: the random programs need a host compiler (apt-get install g++)")
    return found


def expected(seeds: Sequence[int], flags: Sequence[str] = HOST_FLAGS) -> dict[int, Array]:
    """What every program writes, by the host's compiler."""
    calls = "".join(f"    if (seed == {seed}) launch(net_{seed}, in, out, {BLOCKS}, {THREADS});\n" for seed in seeds)
    entry = f'extern "C" void run(u32 seed, const u32 *in, u32 *out)\n{{\n{calls}}}\n'
    using = "".join(f"using p{seed}::net_{seed};\n" for seed in seeds)
    with tempfile.TemporaryDirectory() as folder:
        path, library = pathlib.Path(folder, "net.cpp"), pathlib.Path(folder, "net.so")
        path.write_text(source(seeds) + using + entry)
        command = [host_compiler(), *flags, f"-I{FOLDER}", path, "-o", library]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise oracles.OracleError(f"{' '.join(map(str, command))}:\n{done.stderr[:2000]}")
        run = ctypes.CDLL(str(library)).run
        found = {}
        for seed in seeds:
            words, out = inputs(seed), first_output()
            run(seed, words.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
            found[seed] = out
    return found


def compiled(seeds: Sequence[int], arch: str = "sm_52") -> bytes:
    """The vendor's cubin of the programs."""
    return oracles.compile_cuda(source(seeds), arch, CUDA_FLAGS)


def compiled_back(seeds: Sequence[int], arch: str = "sm_90") -> tuple[bytes, dict[int, int]]:
    """The vendor's cubin for `arch` of our translation of the programs' cubin for sm_52, and the shared memory of each
    program: kernels of a translation get theirs at the launch, and take their parameters as one block."""
    from maxdnn.cubin import read  # here: what a bundle is run with needs NumPy alone
    from maxdnn.ptx.translate import translate

    cubin = read(compiled(seeds))
    shared = {seed: cubin.kernel(f"net_{seed}").shared_bytes for seed in seeds}
    return oracles.ptxas(translate(cubin, arch), arch), shared


def on_device(gpu: Any, cubin: bytes, seeds: Sequence[int], shared: Mapping[int, int] | None = None,
              ) -> dict[int, Array | str]:
    """What every program writes on a device (runtime.devices.protocol); the error's words where it fails. `shared`: the
    shared memory of each program, where `cubin` is of a translation (`compiled_back`)."""
    module = gpu.load(cubin)
    words, out = gpu.alloc(16 * THREADS * BLOCKS), gpu.alloc(4 * WORDS)
    found: dict[int, Array | str] = {}
    for seed in seeds:
        gpu.upload(words, inputs(seed))
        gpu.upload(out, first_output())
        result = first_output()
        args = [words, out] if shared is None else [np.array([words.address, out.address], np.uint64)]
        try:
            module.function(f"net_{seed}").launch((BLOCKS, 1, 1), (THREADS, 1, 1), args,
                                                  shared_bytes=(shared or {}).get(seed, 0))
            gpu.synchronize()
            gpu.download(out, result)
        except Exception as failure:
            found[seed] = f"{type(failure).__name__}: {failure}"
            continue
        found[seed] = result
    return found


def differences(found: dict[int, Any], wanted: dict[int, Array]) -> dict[int, str]:
    """Seed -> what is wrong, for every program that differs."""
    wrong = {}
    for seed, want in wanted.items():
        got = found[seed]
        if isinstance(got, str):
            wrong[seed] = got
        elif not np.array_equal(got, want):
            at = np.flatnonzero(got != want)
            wrong[seed] = f"{at.size} words differ, the first at {at[0]}: {got[at[0]]:#x}, want {want[at[0]]:#x}"
    return wrong
