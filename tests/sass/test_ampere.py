"""The kernels of sm_90 assembled for sm_80, sm_86 and sm_89: right on the virtual GPU of each for random problems,
clean by their checker, weakened codes reported as those of sm_90."""

import itertools
import random
import struct

import pytest

from maxdnn import cubin
from maxdnn.build.cubins import AMPERE, FOR_AMPERE, HOPPER
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import findings
from maxdnn.cubin import ASKED_SHARED, STATIC_SHARED
from maxdnn.emulator.converge import ConvergenceLowering
from maxdnn.emulator.program import Program
from maxdnn.isa import table_of
from maxdnn.runtime.devices import find
from tests import oracles
from tests.gpu import mutants

from . import test_classes_sm90, test_filters_sm90, test_pixels_sm90, test_product_sm90, test_taps_sm90
from .native import seen_as
from .test_heads import registers_allow

KINDS = {
    "products": test_product_sm90.test_random_products_are_right_and_write_nothing_else,
    "pixels": test_pixels_sm90.test_random_layers_are_right_and_write_nothing_else,
    "taps": test_taps_sm90.test_random_layers_are_right_and_write_nothing_else,
    "gradients of filters": test_filters_sm90.test_random_layers_are_right_and_write_nothing_else,
    "strided gradients": test_classes_sm90.test_random_gradients_are_right_and_write_nothing_else,
}
EACH, AT_ONCE = 500, 20
SMALL = "sm90/product_32x64"  # takes the least to assemble
SOURCES = sorted(FOR_AMPERE)
EXHAUSTIVE = pytest.mark.exhaustive


def _is_right(kind, arch, seeds, monkeypatch):
    device = seen_as(arch)
    device.kept.clear()  # plans of earlier tests, whose modules would be used again
    taken = []
    load = device.load
    monkeypatch.setattr(find, "host", lambda: device)
    monkeypatch.setattr(device, "load", lambda image: taken.append(cubin.read(image).arch) or load(image))
    for seed in seeds:
        KINDS[kind](seed)
    assert arch in taken and HOPPER not in taken


@pytest.mark.parametrize("seed", [16, pytest.param(19, marks=pytest.mark.long)])
def test_a_product_is_right_on_an_rtx_30(seed, monkeypatch):
    """By the smallest tiles."""
    _is_right("products", "sm_86", [seed], monkeypatch)


@EXHAUSTIVE
@pytest.mark.parametrize("first", range(0, EACH, AT_ONCE))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch", AMPERE)
def test_random_problems_are_right(arch, kind, first, monkeypatch):
    _is_right(kind, arch, range(first, first + AT_ONCE), monkeypatch)


@EXHAUSTIVE
@pytest.mark.parametrize(("source", "arch"), list(itertools.product(SOURCES, AMPERE)))
def test_the_checker_of_the_architecture_has_nothing_to_say(source, arch):
    image = built(source, arch)
    assert cubin.read(image).arch == arch
    for kernel in cubin.read(image).kernels.values():
        assert not findings(kernel), kernel.name


@pytest.mark.long
@pytest.mark.parametrize("source", [pytest.param(s, marks=[] if s == SMALL else [EXHAUSTIVE]) for s in SOURCES])
def test_one_cubin_means_the_same_on_all_three(source):
    """Bits, the text of each instruction, cycles that the checker asks for."""
    every = [cubin.read(built(source, arch)).kernels for arch in AMPERE]
    for kernels in zip(*(found.values() for found in every), strict=True):
        assert len({kernel.code for kernel in kernels}) == 1
        assert len({tuple(inst.text() for inst in kernel.instructions) for kernel in kernels}) == 1
    assert table_of("sm_80").latencies == table_of("sm_86").latencies == table_of("sm_89").latencies


@EXHAUSTIVE
@pytest.mark.parametrize("source", SOURCES)
def test_the_virtual_gpus_of_all_three_do_the_same(source):
    """The code that it makes of a kernel is the same."""
    for name in cubin.read(built(source, "sm_80")).kernels:
        modules = [ConvergenceLowering(Program(cubin.read(built(source, arch)).kernel(name), frozenset()), False,
                                       (0x400,) * 18, frozenset()).module for arch in AMPERE]
        assert len({str(module).replace(arch, "") for module, arch in zip(modules, AMPERE, strict=True)}) == 1


@pytest.mark.parametrize("source", [pytest.param(s, marks=[] if s == SMALL else [EXHAUSTIVE]) for s in SOURCES])
def test_resources_are_within_those_of_each_architecture(source):
    """As many CTAs as the estimate takes an SM of sm_90 to hold: warps, CTAs, registers and shared memory (CUDA C++
    Programming Guide, technical specifications). Of gradients of filters fewer fit sm_86 and sm_89, which the estimate
    does not know."""
    limits = {"sm_80": (64, 32, 164), "sm_86": (48, 16, 100), "sm_89": (48, 24, 100)}
    for arch, (warps, ctas, kib) in limits.items():
        for kernel in cubin.read(built(source, arch)).kernels.values():
            threads, held = kernel.reqntid[0], registers_allow(kernel)
            assert kernel.shared_bytes <= STATIC_SHARED <= ASKED_SHARED[arch]
            assert held * threads // 32 <= warps and held <= ctas
            fit = (kib << 10) // (kernel.shared_bytes + 1024)
            assert held <= fit or (fit >= 2 and arch != "sm_80" and source.startswith("sm90/filters")), kernel.name


@pytest.mark.parametrize("source", [pytest.param(s, marks=[pytest.mark.long] if s == SMALL else [EXHAUSTIVE])
                                    for s in SOURCES])
def test_weakened_codes_are_reported_as_those_of_sm_90(source, monkeypatch):
    """Of an instruction that both have, a code weakened in the same way: what is reported there is reported here, but
    for stalls that compiled code of sm_80 to sm_89 leaves shorter (from an FFMA to a store 4 cycles, not 5)."""
    most = 6 if source == SMALL else 48
    names = sorted(cubin.read(built(source, HOPPER)).kernels)
    name = random.Random(source).choice(names)
    there, here = (cubin.read(built(source, arch)).kernel(name) for arch in (HOPPER, "sm_80"))
    places = {(inst.text(), inst.control): i for i, inst in enumerate(here.instructions)}
    compared = 0
    for mutant in mutants.mutants([(source, name)], 2 * most + 6, seed=3):
        old = there.instructions[mutant.index]
        index = places.get((old.text(), old.control))
        if index is None or compared == most:
            continue
        compared += 1
        there_reported = mutant.reported()
        with monkeypatch.context() as patch:
            patch.setattr(mutants, "HOPPER", "sm_80")
            patch.setattr(mutants, "_kernel", lambda source, name: here)
            moved = mutants.Mutant(source, name, index, mutant.kind, mutant.control)
            assert moved.reported() or not there_reported or mutant.kind in ("stall", "no stall"), str(moved)
    assert 2 * compared >= most


@pytest.mark.parametrize(("source", "arch"), [
    pytest.param(source, arch, marks=[] if (source, arch) == (SMALL, "sm_86") else [EXHAUSTIVE])
    for source, arch in itertools.product(SOURCES, AMPERE)])
def test_the_vendors_disassembler_reads_what_was_written(source, arch):
    """Each of the cubin's instructions, as code of that architecture."""
    for name, kernel in cubin.read(built(source, arch)).kernels.items():
        words = struct.unpack(f"<{len(kernel.code) // 8}Q", kernel.code)
        told = oracles.instruction_lines(oracles.nvdisasm_raw(words, arch))
        assert [text for _, text in told] == [inst.text() for inst in kernel.instructions], name
