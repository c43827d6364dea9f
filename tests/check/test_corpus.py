"""The checker against code that is right: the whole vendor corpus and every kernel of this library."""

import pathlib

import pytest

from maxdnn import cubin
from maxdnn.assemble import assemble
from maxdnn.check import check_cubin, check_hazards
from maxdnn.errors import DecodeError
from tests.corpus import compiler

SASS = pathlib.Path(__file__).resolve().parents[2] / "sass"
FAMILIES = sorted(SASS.glob("*.sass"))


@pytest.mark.parametrize("source", compiler.sources())
def test_compiled_programs_have_no_hazard(source: str) -> None:
    judged = 0
    for kernel in cubin.read(compiler.compile_source(source, "sm_52")).kernels.values():
        try:
            report = check_hazards(kernel)
        except DecodeError:
            continue  # instructions outside the table; the decoder's tests count them
        assert report.findings == (), report.text()
        judged += 1
    assert judged


@pytest.mark.parametrize("source", FAMILIES, ids=lambda path: path.stem)
def test_kernels_of_this_library_have_no_hazard(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assemble(source, tmp_path / "kernel.cubin")
    for report in check_cubin(tmp_path / "kernel.cubin"):
        assert report.findings == (), report.text()
