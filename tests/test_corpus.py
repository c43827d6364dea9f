"""The vendor corpus compiles for sm_52, is large enough, and every case has a working reference."""

import collections

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from tests import oracles
from tests.corpus import cases, compiler, randomprog, record
from tests.corpus.cases._random import random_case
from tests.corpus.runner import ANY_NAN, BITS, Array, Bound, Case, Mismatch, Problem


def _rounded(problem: Problem) -> dict[str, Array]:
    """What a device without error would leave in the buffers: references may be wider than their outputs."""
    expected = problem.expected()
    with np.errstate(all="ignore"):
        return {name: expected.get(name, first).astype(first.dtype) for name, first in problem.buffers.items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", compiler.sources())
def test_every_kernel_of_a_source_compiles_and_is_launched_by_a_case(source: str) -> None:
    kernels = set(oracles.disassembly(compiler.compile_source(source)))
    launched = {launch.kernel for case in cases.ALL if case.source == source for launch in case.problem().launches}
    assert kernels == launched


@pytest.mark.long
def test_the_corpus_has_at_least_60_kernels_and_25000_instructions() -> None:
    kernels: collections.Counter[str] = collections.Counter()
    for source in compiler.sources():
        for name, lines in oracles.disassembly(compiler.compile_source(source)).items():
            kernels[name] += sum(text != "NOP" for _, text in lines)
    assert len(kernels) >= 60
    assert kernels.total() >= 25_000


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", cases.ALL, ids=lambda case: case.name)
def test_a_reference_fits_its_output_and_an_unwritten_output_is_caught(case: Case) -> None:
    problem = case.problem()
    expected = problem.expected()
    for name, want in expected.items():
        rule = problem.rules.get(name, BITS)
        assert want.shape == problem.buffers[name].shape
        assert callable(rule) or len(rule) == len(want)
    with pytest.raises(Mismatch):
        case.check(problem.buffers, problem)
    case.check(_rounded(problem), problem)


def test_case_names_are_unique_and_problems_repeat() -> None:
    assert len(cases.BY_NAME) == len(cases.ALL)
    first, second = (cases.BY_NAME["int_add_sub"].problem().buffers for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_changed_input_is_a_mismatch() -> None:
    case = cases.BY_NAME["int_add_sub"]
    problem = case.problem()
    outputs = {**problem.buffers, **problem.expected()}
    case.check(outputs, problem)
    outputs["in0"] = outputs["in0"] ^ 1
    with pytest.raises(Mismatch, match="int_add_sub: in0"):
        case.check(outputs, problem)


def test_rules_judge_nan_zero_and_distance() -> None:
    nan = np.array([0x7FFFFFFF, 0x7FC00000, 0x80000000], np.uint32).view(np.float32)
    other = np.array([0x7FFFFFFF, 0x7FFFFFFF, 0x00000000], np.uint32).view(np.float32)
    assert BITS(nan, other).tolist() == [False, True, True]
    assert ANY_NAN(nan, other).tolist() == [False, False, True]
    want = np.array([1.0, 1.0, 2.0**-130, np.inf])
    got = np.array([1 + 2.0**-23, 1 + 2.0**-21, 0.0, 3e38], np.float32)
    assert Bound("test", ulps=1)(got, want).tolist() == [False, True, True, True]
    assert Bound("test", ulps=1, flush=True)(got, want).tolist() == [False, True, False, True]


@pytest.mark.long
def test_references_give_the_bits_that_an_h200_gave() -> None:
    fresh = 0
    for case in cases.ALL:
        problem = case.problem()
        outputs = _rounded(problem)
        theirs = record.recorded(case)
        fresh += theirs is not None
        assert theirs is None or record.digests(problem, outputs) == theirs, case.name
    assert fresh > 0.8 * len(cases.ALL), "sources have changed: record them again with tools/compare_gpu.py"


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_gives_the_bits_that_an_h200_gave(seed: int) -> None:
    case = random_case(seed)
    theirs = record.recorded(case)
    assert theirs is not None, "the generator has changed: record it again with tools/compare_gpu.py gpu --random 60"
    problem = case.problem()
    outputs = case.run(VirtualGpu(), compiler.compile_source(case.source), problem)
    assert record.digests(problem, outputs) == theirs


def test_a_random_program_is_the_same_for_the_same_seed_and_compiles() -> None:
    assert randomprog.program(7) == randomprog.program(7) != randomprog.program(8)
    kernels = oracles.disassembly(compiler.compile_text(randomprog.program(7), ".cu"))
    assert len(kernels["random_kernel"]) > 1000


def test_a_refused_source_shows_the_compilers_words() -> None:
    with pytest.raises(oracles.OracleError, match='identifier "y" is undefined'):
        oracles.compile_cuda("__global__ void k(int *x) { x[0] = y; }")
    with pytest.raises(oracles.OracleError, match="ptxas"):
        oracles.ptxas("no ptx at all")


def test_disassembly_of_words_and_of_cubins_agrees() -> None:
    cubin = oracles.compile_cuda('extern "C" __global__ void k(int *x) { x[threadIdx.x] += 3; }')
    kernel = oracles.disassembly(cubin)["k"]
    assert kernel[0] == (8, "MOV R1, c[0x0][0x20]")
    assert any(text.startswith("STG.E") for _, text in kernel)
    raw = oracles.nvdisasm_raw([0x001F8000FC0007E0, 0xE30000000007000F, 0x50B0000000070F00, 0x50B0000000070F00])
    assert oracles.instruction_lines(raw) == [(8, "EXIT"), (16, "NOP"), (24, "NOP")]
