"""The checker of sm_90 finds nothing in compiled code, whose latencies it was given, but what it cannot follow."""

import pytest

from maxdnn import cubin
from maxdnn.check import check_hazards
from tests.corpus import compiler


@pytest.mark.parametrize("program", [name for name in compiler.sources() if name not in ("texture.cu", "texref.ptx")])
def test_compiled_kernels_have_no_errors(program: str) -> None:
    for kernel in cubin.read(compiler.compile_source(program, "sm_90")).kernels.values():
        report = check_hazards(kernel)
        assert report.ok, report.text()
        assert {finding.kind for finding in report.warnings} <= {"not-followed"}
