"""The assembler on sm_80, 86, 89 and 90: compiled code written out as source assembles to the same bits, and what goes
wrong is said."""

from pathlib import Path

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.emulator import VirtualGpu
from tests import oracles
from tests.corpus import cases, compiler
from tests.maxas.tool import again, assemble, maxas

PROGRAMS = compiler.sources()
COMPILED = [(arch, program) for program in PROGRAMS for arch in ("sm_80", "sm_86", "sm_89", "sm_90")]


def _relocations(image: cubin.Cubin) -> list[tuple[str, int, int, str, int | None]]:
    return sorted((r.section, r.offset, r.kind, r.symbol, r.addend) for r in image.relocations
                  if ".debug" not in r.section)


@pytest.mark.sampled(1, 4)
@pytest.mark.parametrize(("arch", "program"), COMPILED)
def test_compiled_programs_extracted_as_source_assemble_to_the_same_bits(
        tmp_path: Path, arch: str, program: str) -> None:
    vendor = compiler.compile_source(program, arch)
    had, got = cubin.read(vendor), cubin.read(again(vendor, tmp_path))
    assert got.kernels.keys() == had.kernels.keys()
    for name, ours in got.kernels.items():
        theirs = had.kernels[name]
        assert ours.code == theirs.code
        assert (ours.params, ours.registers, ours.barriers, ours.local_bytes) == (
            theirs.params, theirs.registers, theirs.barriers, theirs.local_bytes)
        # the compiler writes none where there is no more
        assert ours.shared_bytes == (theirs.shared_bytes or ours.system_shared_bytes)
    assert got.constant_bank == had.constant_bank
    assert {(n, s.offset, s.size) for n, s in got.constants.items()} == {
        (n, s.offset, s.size) for n, s in had.constants.items()}
    assert {(n, s.size) for n, s in got.globals.items()} == {(n, s.size) for n, s in had.globals.items()}
    assert _relocations(got) == _relocations(had)


def test_what_the_extractor_cannot_read_is_named(tmp_path: Path) -> None:
    """A product of matrices by tensor cores."""
    mma = """extern "C" __global__ void k(unsigned *x) {
        asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
            : "+r"(x[0]), "+r"(x[1]) : "r"(x[2]), "r"(x[3]), "r"(x[4])); }"""
    (tmp_path / "a.cubin").write_bytes(oracles.compile_cuda(mma, "sm_90"))
    ran = maxas("-e", tmp_path / "a.cubin", tmp_path / "a.sass")
    assert ran.status == 1 and "is no instruction" in ran.err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["barrier_fence", "memory_globals"])
def test_an_assembled_program_finds_its_variables(tmp_path: Path, name: str) -> None:
    """Their addresses lie in a constant bank that relocations fill."""
    case = cases.BY_NAME[name]
    image = again(compiler.compile_source(case.source, "sm_90"), tmp_path)
    assert cubin.read(image).relocations
    case.check(case.run(VirtualGpu(), image))


@pytest.mark.long
def test_an_addend_stays_with_its_relocation(tmp_path: Path) -> None:
    """The third word of a variable, in both forms: in the entry (sm_90) and in the data (sm_52)."""
    text = """# Kernel: k
# Arch: sm_%d
# Global: words 16 4 00000001 00000002 00000003 00000004
# ConstantData: bank 4 00000008 00000000
# ConstantAddress: bank 4 0x0 words
--:-:-:Y:5 EXIT;
"""
    for sm, addend, left in ((90, 8, 0), (52, None, 8)):
        for image in (first := assemble(tmp_path, text % sm), again(first, tmp_path)):
            read = cubin.read(image)
            assert _relocations(read) == [(".nv.constant4", 0, 2, "words", addend)]
            assert int.from_bytes(read.global_addresses, "little") == left


SOURCE = """# Kernel: scale
# Arch: {}
# ReqThreads: 32
# SharedSize: 128
# Param: ptr out
# Param: f32 factor
<REGISTER_MAPPING>
    0-3 : tid, value, to<0-1>
</REGISTER_MAPPING>
--:-:1:-:1      S2R tid, SR_TID.X;
--:-:2:-:1      LDC.64 to0, param_out[0];
--:-:-:-:4      ULDC.64 UR4, c[0x0][{}];
01:-:1:-:2      I2F.U32 value, tid;
03:-:-:-:6      IMAD.WIDE.U32 to0, tid, 0x4, to0;
--:-:-:-:6      FMUL value, value, param_factor;
--:-:-:-:2      STG.E desc[UR4][to0.64], value;
--:-:-:Y:5      EXIT;
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_a_source_becomes_a_cubin_that_the_vendors_tools_read(tmp_path: Path, arch: str) -> None:
    newest = arch == "sm_90"
    image, base = assemble(tmp_path, SOURCE.format(arch, "0x208" if newest else "0x118")), 0x210 if newest else 0x160
    kernel = cubin.read(image).kernel("scale")
    shared = 128 + kernel.system_shared_bytes
    assert (kernel.arch, kernel.registers, kernel.shared_bytes, kernel.reqntid) == (arch, 6, shared, (32, 1, 1))
    assert [(p.offset, p.size) for p in kernel.params] == [(0, 8), (8, 4)]
    text = [line for _, line in oracles.disassembly(image)["scale"]]
    assert text[:8] == [inst.text() for inst in kernel.instructions][:8]
    assert text[1] == f"LDC.64 R2, c[0x0][0x{base:x}]" and text[5] == f"FMUL R1, R1, c[0x0][0x{base + 8:x}]"
    assert text[6] == ("STG.E desc[UR4][R2.64], R1" if newest else "STG.E [R2.64], R1")
    assert len(text) % 8 == 0 and text[8].startswith("BRA ") and set(text[9:]) == {"NOP"}
    elf = oracles.cuobjdump(image, "-elf")
    assert f"sm={arch[3:]}" in elf and "EIATTR_REGCOUNT" in elf and "scale(0x4)\tregister count: 6" in elf
    gpu, found = VirtualGpu(), np.zeros(32, np.float32)
    out = gpu.alloc(found.nbytes)
    gpu.load(image).function("scale").launch((1, 1, 1), (32, 1, 1), [out, 3.0])
    gpu.download(out, found)
    assert np.array_equal(found, 3 * np.arange(32, dtype=np.float32))


def test_a_container_has_the_attributes_of_the_vendors_for_each_architecture(tmp_path: Path) -> None:
    for arch, place in (("sm_80", 0x118), ("sm_86", 0x118), ("sm_89", 0x118), ("sm_90", 0x208)):
        ours = assemble(tmp_path, SOURCE.format(arch, f"0x{place:x}"))
        theirs = compiler.compile_source("special.cu", arch)
        (mine,), others = cubin.read(ours).kernels.values(), cubin.read(theirs).kernels.values()
        given = {0x04, 0x05, 0x10, 0x1e}  # by what a source has: blocks in z, launch bounds, stacks
        assert {code for code, _ in mine.attributes} - given == {c for k in others for c, _ in k.attributes} - given
        flags = [int.from_bytes(image[48:52], "little") for image in (ours, theirs)]
        assert flags[0] == flags[1]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("line, complaint", [
    ("--:-:-:-:d NOP;", "a stall above 11 goes with Y"),
    ("--:-:1:-:1 STS [R0], R1;", "a write barrier on a store"),
    ("--:-:-:-:1 LDG.E R0, desc[R4][R2.64];", "its forms are LDG (P), R, [R+offset]"),
    ("--:-:-:-:1 LDG.E R0, desc[UR4][R2];", "its forms are LDG (P), R, [R+offset]"),
    ("--:-:-:-:1 FADD R0, R1, UR63;", "is not a uniform register"),
    ("--:-:-:-:1 @P0 UMOV UR0, UR1;", "guard '@P0' must be @UP0..@UP6"),
    ("--:-:-:-:1 BSSY B16, 0x40;", "a convergence barrier B0..B15 is wanted"),
    ("--:-:-:-:1 TEXS.LZ R0, R1, R2, R3, 0x0, 1D;", "unknown instruction 'TEXS'"),
    ("--:-:-:-:1 IADD3 R0, -R1, -R2, R3;", "only one operand can be negated here"),  # an H200: illegal instruction
    ("--:-:-:-:1 RED.E.ADD desc[UR4][R2.64], R1;", "RED.E.ADD is an instruction of sm_80 sm_86 sm_89, this kernel is "
     "for sm_90"),
    ("--:-:-:-:1 XMAD R0, R1, R2, R3;", "unknown instruction 'XMAD'"),
    ("<SCHEDULE_BLOCK>\n--:-:-:-:1 NOP;", "<SCHEDULE_BLOCK> is not closed"),
    ("<SCHEDULE_BLOCK>\nHERE:\n--:-:-:-:1 NOP;\n</SCHEDULE_BLOCK>", "no labels inside <SCHEDULE_BLOCK>"),
    ("<SCHEDULE_BLOCK>\n--:-:-:-:1 XMAD.LO R0, R1, R2, R3, R4;\n</SCHEDULE_BLOCK>", "unknown instruction 'XMAD'"),
])
def test_what_sm_90_does_not_have_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    source = tmp_path / "bad.sass"
    source.write_text(f"# Kernel: bad\n# Arch: sm_90\n{line}\n--:-:-:Y:5 EXIT;\n")
    ran = maxas("-c", "-o", tmp_path / "bad.cubin", source)
    assert ran.status == 1 and complaint in ran.err
    assert not (tmp_path / "bad.cubin").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch, line, complaint", [
    ("sm_80", "I2FP.F32.U32 R0, R1;", "I2FP.F32.U32 is an instruction of sm_86 sm_89 sm_90, this kernel is for sm_80"),
    ("sm_89", "VIADD R0, R1, R2;", "VIADD is an instruction of sm_90, this kernel is for sm_89"),
    ("sm_86", "HADD2.BF16_V2 R0, R1, R2;", "HADD2.BF16_V2 is an instruction of sm_90, this kernel is for sm_86"),
    ("sm_86", "F2FP.F16.F32.PACK_AB R0, R1, R2;", "is an instruction of sm_89 sm_90, this kernel is for sm_86"),
    ("sm_80", "REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R1;", "is an instruction of sm_90, this kernel is for sm_80"),
    ("sm_80", "LDG.E R0, [R2.64];", "its forms are LDG (P), R, [R+offset]"),  # what the vendor prints lacks UR4
    ("sm_75", "NOP;", "architecture 'sm_75' must be one of sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 sm_80 sm_86 sm_89 "
     "sm_90"),
])
def test_what_an_older_architecture_does_not_have_is_named(
        tmp_path: Path, arch: str, line: str, complaint: str) -> None:
    source = tmp_path / "bad.sass"
    source.write_text(f"# Kernel: bad\n# Arch: {arch}\n--:-:-:-:1 {line}\n--:-:-:Y:5 EXIT;\n")
    ran = maxas("-c", "-o", tmp_path / "bad.cubin", source)
    assert ran.status == 1 and complaint in ran.err
    assert not (tmp_path / "bad.cubin").exists()
