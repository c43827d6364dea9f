"""Random C programs mean on the virtual GPU what they mean to the host's compiler.

MAXDNN_PROGRAMS sets how many are tried: run 2000 after a change to decoding, semantics, lowering or the runtime. Of
those for sm_90 and of translations that the vendor compiles for it there is a sample here; `tools/random_programs.py
check` runs any number."""

import os
import re

import pytest

from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu, compiled
from tests.corpus import net
from tests.corpus.cprogram import program

COUNT = int(os.environ.get("MAXDNN_PROGRAMS", "100"))


@pytest.fixture
def optimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether kernels are optimized from their first warp on: then variants for all lanes and for some take turns."""
    if request.param:
        monkeypatch.setattr(compiled, "_FEW_WARPS", -1)


@pytest.mark.sampled(0, 3)
@pytest.mark.parametrize(("first", "optimized"), [(first, first // net.BATCH % 2 == 0)
                                                  for first in range(0, COUNT, net.BATCH)], indirect=["optimized"])
def test_a_random_program_gives_what_the_hosts_compiler_makes_of_it(first: int, optimized: None) -> None:
    seeds = range(first, min(first + net.BATCH, COUNT))
    found = net.on_device(VirtualGpu(), net.compiled(seeds), seeds)
    wrong = net.differences(found, net.expected(seeds))
    assert not wrong, "\n".join(f"program {seed}: {what}" for seed, what in wrong.items())


SM_90 = (33, 40, 60, 113, 136, 324)
BACK = (1, 2, 9, 17)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("optimized", [True, False], indirect=True)
def test_a_random_program_for_sm_90_gives_what_the_hosts_compiler_makes_of_it(optimized: None) -> None:
    found = net.on_device(VirtualGpu(), net.compiled(SM_90, "sm_90"), SM_90)
    wrong = net.differences(found, net.expected(SM_90))
    assert not wrong, "\n".join(f"program {seed}: {what}" for seed, what in wrong.items())


def test_a_translation_compiled_for_sm_90_gives_the_same() -> None:
    cubin, shared = net.compiled_back(BACK, "sm_90")
    assert read(cubin).arch == "sm_90"
    wrong = net.differences(net.on_device(VirtualGpu(), cubin, BACK, shared), net.expected(BACK))
    assert not wrong, "\n".join(f"program {seed}: {what}" for seed, what in wrong.items())


def test_the_programs_use_every_part_of_the_language() -> None:
    text = "".join(program(seed) for seed in range(100))
    parts = ["for (", "while (", "do {", "switch (", "break", "continue", "CALLED", "__shfl_sync", "__shfl_xor_sync",
             "__shfl_up_sync", "__shfl_down_sync", "__ballot_sync", "__syncthreads_count", "__shared__", "list[4]",
             "fma", "atomicAdd", "atomicMin", "double", "float", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
    assert [part for part in parts if part not in text] == []
    assert re.search(r"^    .*return .*;\n(?!})", text, re.MULTILINE), "a return before the end"


def test_a_program_is_the_same_for_the_same_seed() -> None:
    assert program(7) == program(7) != program(8)
