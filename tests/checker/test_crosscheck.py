"""A sample of the cross-check by execution (tests/checker/crosscheck.py runs more)."""

import functools

import pytest

from maxdnn import cubin
from maxdnn.checker import check_hazards
from tests.checker.crosscheck import CONVOLUTIONS, MODES, Convolution, Program, outcome, run
from tests.checker.programs import with_control
from tests.corpus import compiler, randomprog

PROGRAM, SEED = 1, 5


@functools.cache
def program() -> Program:
    return Program(cubin.read(compiler.compile_text(randomprog.program(PROGRAM, statements=40), ".cu", "sm_52")))


@pytest.mark.parametrize("mode", MODES)
def test_delays_change_nothing_in_compiled_code(mode: str) -> None:
    assert outcome(program(), program().kernel, mode) == outcome(program(), program().kernel, "none")


@pytest.mark.long
def test_a_wrong_result_comes_only_where_the_checker_reports() -> None:
    print("seed", SEED)
    counts = run(program(), each=14, seed=SEED)
    assert sum(n for (_, wrong, reported), n in counts.items() if wrong and not reported) == 0
    assert sum(n for (_, wrong, _), n in counts.items() if wrong) >= 3


def test_a_program_without_any_wait_goes_wrong_and_is_reported() -> None:
    kernel = program().kernel
    for i, inst in enumerate(kernel.instructions):
        if inst.control.wait_mask:
            kernel = with_control(kernel, i, wait_mask=0)
    assert outcome(program(), kernel, "late") != outcome(program(), program().kernel, "none")
    assert not check_hazards(kernel).ok


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize(("name", "k", "n"), CONVOLUTIONS)
def test_delays_change_nothing_in_a_convolution_and_what_goes_wrong_is_reported(name: str, k: int, n: int) -> None:
    print("seed", SEED)
    counts = run(Convolution(name, k, n), each=6, seed=SEED)  # compares the unchanged kernel under all modes first
    assert sum(number for (_, wrong, reported), number in counts.items() if wrong and not reported) == 0
