"""A sample of the cross-check by execution (tests/check/crosscheck.py runs more)."""

import functools

import pytest

from maxdnn import cubin
from maxdnn.check import check_hazards
from tests.check.crosscheck import outcome, run
from tests.check.delayed import random_program
from tests.check.programs import with_control
from tests.corpus import compiler, randomprog

PROGRAM, SEED = 1, 5


@functools.cache
def program() -> cubin.Cubin:
    return cubin.read(compiler.compile_text(randomprog.program(PROGRAM, statements=40), ".cu", "sm_52"))


@pytest.mark.parametrize("mode", ["early", "late"])
def test_delays_change_nothing_in_compiled_code(mode: str) -> None:
    data = program()
    assert outcome(data.kernel(), data, mode) == random_program(data.kernel(), data, "none")[0]


def test_a_wrong_result_comes_only_where_the_checker_reports() -> None:
    print("seed", SEED)
    counts = run(program(), each=14, seed=SEED)
    assert sum(n for (_, wrong, reported), n in counts.items() if wrong and not reported) == 0
    assert sum(n for (_, wrong, _), n in counts.items() if wrong) >= 3


def test_a_program_without_any_wait_goes_wrong_and_is_reported() -> None:
    data = program()
    kernel = data.kernel()
    for i, inst in enumerate(kernel.instructions):
        if inst.control.wait_mask:
            kernel = with_control(kernel, i, wait_mask=0)
    assert outcome(kernel, data, "late") != random_program(data.kernel(), data, "none")[0]
    assert not check_hazards(kernel).ok
