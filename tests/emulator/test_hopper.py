"""The vendor corpus, compiled for sm_80, 86, 89 and 90, on the virtual GPU."""

import os

import pytest

from maxdnn.emulator import VirtualGpu
from tests.corpus import cases, compiler, record

CASES = list(cases.ALL)
EVERY = bool(os.environ.get("MAXDNN_ALL_TARGETS"))  # all programs for each architecture: minutes
OLDER = ("sm_80", "sm_86", "sm_89")
COMPILED = [("sm_90", case) for case in CASES]
COMPILED += [(arch, case) for n, arch in enumerate(OLDER) for case in (CASES if EVERY else CASES[n::12])]


def test_most_of_the_corpus_is_there() -> None:
    assert len(CASES) >= 114


@pytest.mark.parametrize(("arch", "case"), COMPILED, ids=lambda x: getattr(x, "name", x))
def test_corpus_program(arch, case):
    """What an H200 gave stands for the older ones, too: bits that do not depend on the chip."""
    problem = case.problem()
    outputs = case.run(VirtualGpu(), compiler.compile_source(case.source, arch), problem)
    silicon, meant = record.as_compiled(case)
    if meant:
        case.check(outputs, problem)
    assert silicon is None or record.digests(problem, outputs) == silicon, "an H200 gave other bits"
