"""The checker against code that is right: the whole vendor corpus and every kernel of this library."""

import pytest

from maxdnn import cubin
from maxdnn.build.cubins import architectures, sources
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_hazards
from maxdnn.errors import DecodeError
from tests.corpus import compiler


@pytest.mark.sampled(1, 6)
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


@pytest.mark.parametrize("source", sources())
def test_kernels_of_this_library_have_no_hazard(source: str) -> None:
    """Nor any doubt: the build refuses them, and checks again when a source, the assembler or a rule changes."""
    assert built(source, architectures(source)[-1])
