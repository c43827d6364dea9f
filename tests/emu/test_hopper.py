"""The vendor corpus, compiled for sm_90, on the virtual GPU."""

import pytest

from maxdnn.emu import VirtualGpu
from tests.corpus import cases, compiler, record

LEFT_OUT = {"texture_fetch4", "texture_fetch1", "texture_components", "texref_two"}  # textures are not in the table
CASES = [case for case in cases.ALL if case.name not in LEFT_OUT]


def test_most_of_the_corpus_is_there() -> None:
    assert len(CASES) >= 110 and {case.name for case in cases.ALL} > LEFT_OUT


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corpus_program(case):
    problem = case.problem()
    outputs = case.run(VirtualGpu(), compiler.compile_source(case.source, "sm_90"), problem)
    silicon, meant = record.as_compiled(case)
    if meant:
        case.check(outputs, problem)
    assert silicon is None or record.digests(problem, outputs) == silicon, "an H200 gave other bits"
