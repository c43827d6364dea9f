"""The assembler on sm_90: compiled code written out as source assembles to the same bits, and what goes wrong is
said."""

import re
from pathlib import Path

import pytest

from maxdnn import cubin
from tests import oracles
from tests.corpus import compiler
from tests.maxas.tool import assemble, maxas

# Mnemonics that the table leaves out: textures, an address space query, a cluster fence.
LEFT_OUT = ("TLD", "QSPC", "CGAERRBAR")


@pytest.mark.parametrize("program", compiler.sources())
def test_compiled_kernels_extracted_as_source_assemble_to_the_same_bits(tmp_path: Path, program: str) -> None:
    vendor, source, again = (tmp_path / name for name in ("vendor.cubin", "again.sass", "again.cubin"))
    vendor.write_bytes(compiler.compile_source(program, "sm_90"))
    kernels = cubin.read(vendor).kernels
    whole = {n: k for n, k in kernels.items() if all(k.table.find(word) is not None for _, word, _ in k.words())}
    if whole != kernels:
        assert re.search("|".join(LEFT_OUT), oracles.cuobjdump(vendor.read_bytes(), "-sass"))
    for chosen in [[]] if whole == kernels else [["-k", name] for name in whole]:
        extracted = maxas("-e", *chosen, vendor, source)
        assert extracted.status == 0, extracted.err
        counted = re.sub(r"^# MinRegs:.*\n", "", source.read_text(), flags=re.MULTILINE)
        source.write_text(counted)  # the assembler finds the number of registers itself
        assembled = maxas("-c", "-n", "-w", "-o", again, source)
        assert assembled.status == 0, assembled.err
        for name, ours in cubin.read(again).kernels.items():
            assert ours.code == kernels[name].code
            theirs = kernels[name]
            assert (ours.params, ours.registers, ours.barriers) == (theirs.params, theirs.registers, theirs.barriers)


SOURCE = """# Kernel: scale
# Arch: sm_90
# ReqThreads: 32
# SharedSize: 128
# Param: ptr out
# Param: f32 factor
<REGISTER_MAPPING>
    0-3 : tid, value, to<0-1>
</REGISTER_MAPPING>
--:-:1:-:1      S2R tid, SR_TID.X;
--:-:2:-:1      LDC.64 to0, param_out[0];
--:-:-:-:4      ULDC.64 UR4, c[0x0][0x208];
01:-:-:-:6      I2FP.F32.U32 value, tid;
02:-:-:-:6      IMAD.WIDE.U32 to0, tid, 0x4, to0;
--:-:-:-:6      FMUL value, value, param_factor;
--:-:-:-:2      STG.E desc[UR4][to0.64], value;
--:-:-:Y:5      EXIT;
"""


def test_a_source_becomes_a_cubin_that_the_vendors_tools_read(tmp_path: Path) -> None:
    image = assemble(tmp_path, SOURCE)
    kernel = cubin.read(image).kernel("scale")
    assert (kernel.arch, kernel.registers, kernel.shared_bytes, kernel.reqntid) == ("sm_90", 6, 128 + 0x400, (32, 1, 1))
    assert [(p.offset, p.size) for p in kernel.params] == [(0, 8), (8, 4)]
    text = [line for _, line in oracles.disassembly(image)["scale"]]
    assert text[1] == "LDC.64 R2, c[0x0][0x210]" and text[5] == "FMUL R1, R1, c[0x0][0x218]"
    assert len(text) % 8 == 0 and text[8].startswith("BRA ") and set(text[9:]) == {"NOP"}
    elf = oracles.cuobjdump(image, "-elf")
    assert "sm=90" in elf and "EIATTR_REGCOUNT" in elf and "scale(0x4)\tregister count: 6" in elf


@pytest.mark.parametrize("line, complaint", [
    ("--:-:-:-:d NOP;", "a stall above 11 goes with Y"),
    ("--:-:1:-:1 STS [R0], R1;", "a write barrier on a store"),
    ("--:-:-:-:1 LDG.E R0, desc[R4][R2.64];", "its forms are LDG (P), R, [R+offset]"),
    ("--:-:-:-:1 LDG.E R0, desc[UR4][R2];", "its forms are LDG (P), R, [R+offset]"),
    ("--:-:-:-:1 FADD R0, R1, UR63;", "is not a uniform register"),
    ("--:-:-:-:1 @P0 UMOV UR0, UR1;", "guard '@P0' must be @UP0..@UP6"),
    ("--:-:-:-:1 BSSY B16, 0x40;", "a convergence barrier B0..B15 is wanted"),
    ("--:-:-:-:1 TLD.LZ R0, R1, R2, UR6, 0x0, 1D;", "unknown instruction 'TLD'"),
    ("--:-:-:-:1 XMAD R0, R1, R2, R3;", "unknown instruction 'XMAD'"),
    ("<SCHEDULE_BLOCK>\n--:-:-:-:1 NOP;\n</SCHEDULE_BLOCK>", "<SCHEDULE_BLOCK> is not available for sm_90"),
])
def test_what_sm_90_does_not_have_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    source = tmp_path / "bad.sass"
    source.write_text(f"# Kernel: bad\n# Arch: sm_90\n{line}\n--:-:-:Y:5 EXIT;\n")
    ran = maxas("-c", "-o", tmp_path / "bad.cubin", source)
    assert ran.status == 1 and complaint in ran.err
    assert not (tmp_path / "bad.cubin").exists()
