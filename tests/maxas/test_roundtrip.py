"""Every corpus kernel: extracted as dialect source and assembled without a template, it is the same machine code, and
the vendor's tools see the same resources."""

import re
from pathlib import Path

import pytest

from maxdnn import cubin
from maxdnn.cubin import CubinKernel
from tests import oracles
from tests.corpus import compiler
from tests.maxas import tool


def _resources(kernel: CubinKernel) -> tuple[object, ...]:
    return (kernel.registers, kernel.shared_bytes, kernel.local_bytes, kernel.barriers, kernel.params,
            {bank: bytes(data) for bank, data in kernel.constants.items()}, sorted(kernel.textures), kernel.reqntid,
            kernel.maxntid)


def _usage(data: bytes) -> list[list[str]]:
    """cuobjdump -res-usage, whatever the order of kernels and banks."""
    return sorted(sorted(line.split()) for line in oracles.cuobjdump(data, "-res-usage").split("\n"))


def _elf_facts(data: bytes) -> list[str]:
    """What cuobjdump -elf says of each kernel's code section: `bar = 1 reg = 15 lmem=0 smem=512`."""
    text = oracles.cuobjdump(data, "-elf")
    return sorted(re.findall(r"^\.text\.\S+\n(bar = .*)$", text, re.MULTILINE))


def _texts(data: bytes) -> dict[str, list[str]]:
    """The vendor disassembler's lines. It numbers labels through the whole file, so the numbers are dropped; and the
    padding after the last branch, which it prints in some files only."""
    found = {}
    for name, lines in oracles.disassembly(data).items():
        texts = [re.sub(r"\.L_x_\d+", ".L", text) for _, text in lines]
        while texts[-1] == "NOP":
            texts.pop()
        found[name] = texts
    return found


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("source", compiler.sources())
def test_extracted_and_assembled_again_a_corpus_cubin_is_the_same(source: str, tmp_path: Path) -> None:
    vendor = compiler.compile_source(source)
    ours = tool.again(vendor, tmp_path, counted=False)
    assert tool.code_of(ours) == tool.code_of(vendor)
    assert _usage(ours) == _usage(vendor)
    assert _elf_facts(ours) == _elf_facts(vendor) != []
    assert _texts(ours) == _texts(vendor)
    assert oracles.instruction_lines(oracles.cuobjdump(ours, "-sass")) != []
    had, got = cubin.read(vendor), cubin.read(ours)
    assert {k: _resources(v) for k, v in got.kernels.items()} == {k: _resources(v) for k, v in had.kernels.items()}
    assert got.constant_bank == had.constant_bank
    assert {(n, s.offset, s.size) for n, s in got.constants.items()} == {
        (n, s.offset, s.size) for n, s in had.constants.items()}
    assert {(n, s.size) for n, s in got.globals.items()} == {(n, s.size) for n, s in had.globals.items()}
    assert sorted((r.section, r.offset, r.kind, r.symbol) for r in got.relocations) == sorted(
        (r.section, r.offset, r.kind, r.symbol) for r in had.relocations)


@pytest.mark.sampled(1, 4)
@pytest.mark.parametrize("source", compiler.sources())
def test_every_instruction_of_the_corpus_re_encodes_from_its_text(source: str, tmp_path: Path) -> None:
    (tmp_path / "vendor.cubin").write_bytes(compiler.compile_source(source))
    ran = tool.maxas("-t", tmp_path / "vendor.cubin")
    assert ran.status == 0, ran.out
    assert re.search(r"^Totals: Pass: [1-9]\d* FAIL: 0$", ran.out, re.MULTILINE)


@pytest.mark.long
def test_a_listing_of_the_vendor_reads_like_the_cubin(tmp_path: Path) -> None:
    data = compiler.compile_source("int_bits.cu")
    (tmp_path / "a.cubin").write_bytes(data)
    (tmp_path / "a.txt").write_text(oracles.cuobjdump(data, "-sass"))
    assert tool.maxas("-t", tmp_path / "a.txt").out.split("\n")[-2] == tool.maxas(
        "-t", tmp_path / "a.cubin").out.split("\n")[-2]
    from_text = tool.maxas("-s", tmp_path / "a.txt").out
    from_cubin = tool.maxas("-e", tmp_path / "a.cubin").out
    body = [line for line in from_cubin.split("\n") if line and not line.startswith("#")]
    assert sorted(line for line in from_text.split("\n") if line and not line.startswith("#")) == sorted(body)


def test_code_of_a_hand_written_kernel_survives_insertion_into_a_vendor_cubin(tmp_path: Path) -> None:
    """Into a cubin of toolkit 12.9 go the cubin's own kernels, extracted: nothing changes but attributes that only
    the compiler can make."""
    data = compiler.compile_source("int_bits.cu")
    (tmp_path / "a.cubin").write_bytes(data)
    assert tool.maxas("-e", tmp_path / "a.cubin", tmp_path / "a.sass").status == 0
    ran = tool.maxas("-i", "-n", tmp_path / "a.sass", tmp_path / "a.cubin", tmp_path / "b.cubin")
    assert ran.status == 0, ran.err
    ours = (tmp_path / "b.cubin").read_bytes()
    assert tool.code_of(ours) == tool.code_of(data)
    had, got = cubin.read(data), cubin.read(ours)
    assert {k: _resources(v) for k, v in got.kernels.items()} == {k: _resources(v) for k, v in had.kernels.items()}
    for name, kernel in got.kernels.items():
        kept = {code: value for code, value in kernel.attributes if code in (0x1C, 0x1D)}
        assert kept == {c: v for c, v in had.kernels[name].attributes if c in (0x1C, 0x1D)}
