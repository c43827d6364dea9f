"""The built cubins of every architecture are what their headers declare and what the families make of it."""

import pytest

from maxdnn.algorithms.registry import kernels
from maxdnn.build.cubins import ARCHS, HOPPER, architectures, cubin, generations
from maxdnn.cubin import read

from .machine_code import built

SPECS = pytest.mark.parametrize("spec", kernels().values(), ids=kernels())
BUILDS = pytest.mark.parametrize("spec, arch", [
    pytest.param(spec, arch, id=f"{arch}-{name}", marks=[] if arch in (*ARCHS, HOPPER) else [pytest.mark.exhaustive])
    for name, spec in kernels().items() for arch in architectures(spec.source)])


@BUILDS
def test_cubin_has_the_resources_and_parameters_that_its_header_declares(spec, arch):
    kernel = built(spec, arch)
    assert [(p.offset, p.size) for p in kernel.params] == [(p.offset, p.nbytes) for p in spec.params]
    assert kernel.shared_bytes == spec.shared_bytes + kernel.system_shared_bytes
    assert kernel.reqntid == (spec.threads, 1, 1)
    assert kernel.registers <= spec.max_registers
    assert kernel.local_bytes == 0
    assert [name for name, _ in kernel.textures] == list(spec.textures)


@pytest.mark.sampled(40)
@BUILDS
def test_constant_symbols_have_their_bank_and_size(spec, arch):
    symbols = read(cubin(spec.source.removesuffix(".sass"), arch)).constants
    assert set(symbols) == {wanted.name for wanted in spec.constants}
    for wanted in spec.constants:
        symbol = symbols[wanted.name]
        assert (symbol.section, symbol.offset, symbol.size) == (f".nv.constant{wanted.bank}", 0, wanted.nbytes)


@pytest.mark.sampled(20)
@SPECS
def test_every_architecture_runs_the_same_instructions(spec):
    for archs in generations(spec.source)[-1:]:
        assert len({built(spec, arch).code for arch in archs}) == 1


@SPECS
def test_every_parameter_has_a_meaning(spec):
    assert all(p.meaning for p in spec.params)
