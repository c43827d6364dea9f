"""The vendor corpus, compiled for sm_80, 86, 89 and 90, on the virtual GPU."""

import pytest

from maxdnn.emulator import VirtualGpu
from tests.corpus import cases, compiler, record

CASES = list(cases.ALL)
COMPILED = [(arch, case) for case in CASES for arch in ("sm_80", "sm_86", "sm_89", "sm_90")]


def test_most_of_the_corpus_is_there() -> None:
    assert len(CASES) >= 114


@pytest.mark.sampled(5, 20)
@pytest.mark.parametrize(("arch", "case"), COMPILED, ids=lambda x: getattr(x, "name", x))
def test_corpus_program(arch, case):
    """What an H200 gave stands for the older ones, too: bits that do not depend on the chip."""
    problem = case.problem()
    outputs = case.run(VirtualGpu(), compiler.compile_source(case.source, arch), problem)
    silicon, meant = record.as_compiled(case)
    if meant:
        case.check(outputs, problem)
    assert silicon is None or record.digests(problem, outputs) == silicon, "an H200 gave other bits"
