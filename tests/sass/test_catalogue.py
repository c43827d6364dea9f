"""The built cubins of every architecture are what the catalogue says."""

import pytest

from maxdnn.cubin import interface, read
from maxdnn.cubins import ARCHS, cubin
from maxdnn.families.direct import OUT_OF_RANGE
from maxdnn.families.registry import kernels

from .machine_code import built

SPECS = pytest.mark.parametrize("spec", kernels().values(), ids=kernels())


@SPECS
@pytest.mark.parametrize("arch", ARCHS)
def test_cubin_has_the_resources_and_parameters_of_its_spec(spec, arch):
    kernel = built(spec, arch)
    assert [(p.offset, p.size) for p in kernel.params] == [(p.offset, p.nbytes) for p in spec.params]
    assert kernel.shared_bytes == spec.shared_bytes
    assert kernel.reqntid == (spec.threads, 1, 1)
    assert kernel.registers <= spec.max_registers
    assert kernel.local_bytes == 0
    assert [name for name, _ in kernel.textures] == list(spec.textures)


@SPECS
@pytest.mark.parametrize("arch", ARCHS)
def test_constant_symbols_have_their_bank_and_size(spec, arch):
    symbols = read(cubin(spec.source.removesuffix(".sass"), arch)).constants
    for wanted in spec.constants:
        symbol = symbols[wanted.name]
        assert (symbol.section, symbol.offset, symbol.size) == (f".nv.constant{wanted.bank}", 0, wanted.nbytes)


@SPECS
def test_every_architecture_runs_the_same_instructions(spec):
    assert len({built(spec, arch).code for arch in ARCHS}) == 1


@SPECS
def test_header_declares_what_the_catalogue_says(spec):
    declared, = interface(cubin(spec.source.removesuffix(".sass"), "sm_52"))
    assert declared["name"] == spec.name
    assert declared["threads"] == [spec.threads, 1, 1]
    assert (declared["shared"], declared["registers"]) == (spec.shared_bytes, spec.max_registers)
    assert [(p["name"], p["type"], p["offset"], p["size"], p["meaning"]) for p in declared["params"]] == [
        (p.name, p.type, p.offset, p.nbytes, p.meaning) for p in spec.params]
    assert declared["textures"] == list(spec.textures)
    assert [(c["name"], c["bank"], c["bytes"]) for c in declared["constants"]] == [
        (c.name, c.bank, c.nbytes) for c in spec.constants]


def test_missing_table_entries_miss_the_largest_texture_from_every_base():
    largest_base, texels = 2**29 + 2**28, 2**28
    assert texels <= OUT_OF_RANGE and OUT_OF_RANGE + largest_base < 2**31
