"""Damaged cubins of sm_52 and sm_90 through every command that takes one and through the API: an error of this library
or a result, never a signal, a traceback, no end or the machine's memory.

MAXDNN_DAMAGED sets how many are tried of each architecture (1000 for the full length)."""

import json
import os
import signal
import sys

import pytest

from maxdnn.emulator import VirtualGpu
from tests import damage, damaged, oracles

COUNT = int(os.environ.get("MAXDNN_DAMAGED", "13"))
EACH = 40  # files a worker
BUDGET = 20_000
# Shared and local memory, a barrier, a divergent loop, atomics, a call, a switch, constants, variables by address.
SOURCE = r"""
__constant__ int table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ int place[4] = {7, 5, 3, 1}, unset[4];
__device__ __noinline__ int twice(int x, int y) { return x * 2 + y % (x | 1); }
extern "C" __global__ __launch_bounds__(64) void box(int n, const int* x, int* y) {
    __shared__ int s[32]; int t = threadIdx.x;
    s[t] = x[t]; __syncthreads(); if (t < n) y[t] = s[31 - t] * x[t] + table[t & 7] + place[t & 3];
}
extern "C" __global__ void loop(int n, const int* x, int* y) {
    int v = 0, list[64];
    #pragma unroll 1
    for (int i = 0; i < 64; i++) list[(x[i & 31] + i) & 63] = i;
    #pragma unroll 1
    for (int i = 0; i < (x[threadIdx.x] & 3); i++) v += list[i * n & 63];
    switch (x[threadIdx.x] & 7) {
        case 0: v += twice(v, n); break; case 1: v ^= n; break; case 2: v -= unset[v & 3]; break;
        case 3: v *= 3; break; case 4: v = -v; break; case 5: v += 9; break; default: v = __shfl_xor_sync(~0u, v, 1);
    }
    atomicAdd(&y[31], v);
}
"""


def jobs(file, launch, name, seed):
    """Every command that reads a cubin, and the API; options of commands by turns."""
    other = seed % 2 == 1
    yield ["disasm", file, *["--json"] * other]
    yield ["check", file, *["--json"] * (not other)]
    yield ["ptx", file, "--target", "sm_90"]
    run = ["run", file, "--kernel", name, "--grid", "2", "--block", "32", "--budget", str(BUDGET), "--arg", "30"]
    yield [*run, *["--arg", "zeros:int32:32"] * 2, *["--race", "--undefined"] * other]
    yield ["simulate", file, "--launch", launch]
    yield ["(api)", file]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The undamaged files, launch descriptions, and everything loaded and compiled once before workers are forked."""
    folder = tmp_path_factory.mktemp("damaged")
    for name in ("box", "loop"):
        description = {"kernel": name, "grid": [2, 1, 1], "block": [32, 1, 1],
                       "args": [30, {"buffer": 128}, {"buffer": 128}]}
        (folder / f"{name}.json").write_text(json.dumps(description))
    for arch, refused in (("sm_52", set()), ("sm_90", {"ptx", "simulate"})):  # which know Maxwell's alone
        file = folder / f"{arch}.cubin"
        file.write_bytes(oracles.compile_cuda(SOURCE, arch))
        for name in ("box", "loop"):
            for job in (job for seed in (0, 1) for job in jobs(str(file), str(folder / f"{name}.json"), name, seed)):
                found = damaged.outcome(job)
                assert found == str(int(job[0] in refused)), f"{arch}: {' '.join(job)} on the undamaged file: {found}"
    return folder


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ["sm_52", "sm_90"])
@pytest.mark.parametrize("first", range(0, COUNT, EACH))
def test_everything_that_reads_a_cubin_survives_a_damaged_one(folder, monkeypatch, first, arch):
    monkeypatch.setattr("maxdnn.runtime.cache.store", lambda key, suffix, data: False)  # not worth keeping
    monkeypatch.setitem(VirtualGpu.__init__.__kwdefaults__, "instruction_budget", BUDGET)
    original = (folder / f"{arch}.cubin").read_bytes()
    every = []
    for seed in range(first, min(first + EACH, COUNT)):
        data, kind = damage.spoil(original, seed)
        file, name = folder / f"{arch}_{seed}.cubin", ("box", "loop")[seed // len(damage.KINDS) % 2]
        file.write_bytes(data)
        every += [(f"{arch} seed {seed} ({kind}): {' '.join([job[0], *job[2:]])}", job)
                  for job in jobs(str(file), str(folder / f"{name}.json"), name, seed)]
    results = list(damaged.outcomes(every, lambda: None))
    assert len(results) == len(every)
    # disasm alone ends with 3, for a file with words that are no instructions
    wrong = [f"{name}: {found}" for name, found in results
             if found not in damaged.RIGHT and not (found == "3" and "): disasm" in name)]
    assert not wrong, "\n".join(wrong)
    assert {"0", "1"} <= {found for _, found in results}


def test_damage_of_every_kind_changes_the_file_the_same_way_each_time(folder):
    original = (folder / "sm_90.cubin").read_bytes()
    for seed in range(2 * len(damage.KINDS)):
        data, kind = damage.spoil(original, seed)
        assert (data, kind) == damage.spoil(original, seed) and kind == damage.KINDS[seed % len(damage.KINDS)]
    changed = {kind for data, kind in (damage.spoil(original, seed) for seed in range(40)) if data != original}
    assert changed == set(damage.KINDS)


def test_the_harness_sees_what_a_command_does_to_its_process(monkeypatch):
    def command(argv):
        if argv == ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if argv == ["leave"]:
            os._exit(3)
        if argv == ["raise"]:
            raise KeyError("gone")
        print("maxdnn: no" if argv == ["refuse"] else "", file=sys.stderr)
        return 1

    monkeypatch.setattr("tests.damaged.main", command)
    names = ["die", "refuse", "leave", "raise", "silent", "refuse"]
    found = dict(enumerate(f for _, f in damaged.outcomes([(n, [n]) for n in names], lambda: None)))
    assert [found[0], found[1], found[2], found[5]] == ["SIGKILL", "1", "the process left with status 3", "1"]
    assert found[3].startswith("KeyError: 'gone'") and found[4] == "status 1 without a word"
