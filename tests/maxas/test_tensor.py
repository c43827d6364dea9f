"""The assembler and what only sm_90 has: kernels of tensor cores come back bit for bit, their cubins say sm_90a, blocks
that are scheduled keep their order, and what is wrong is said."""

from pathlib import Path

import pytest

from maxdnn import cubin
from tests import oracles
from tests.corpus import tensor
from tests.maxas.tool import again, assemble, maxas

COUNT, INSTRUCTIONS, RECONFIGURES = 0x38, 0x39, 0x54  # attributes: barriers in shared memory, registers given away
PLAIN, ACCELERATED = 0x5A055A, 0x5A0D5A  # flags of a file for sm_90, for sm_90a


def _flags(image: bytes) -> int:
    return int.from_bytes(image[48:52], "little")


@pytest.mark.sampled(2, 8)
@pytest.mark.parametrize("name", ["pipeline", *tensor.SMALL])
def test_compiled_kernels_extracted_as_source_assemble_to_the_same_bits(tmp_path: Path, name: str) -> None:
    vendor = tensor.pipeline() if name == "pipeline" else tensor.small(name)
    made = again(vendor, tmp_path)
    (theirs,), (ours,) = (cubin.read(x).kernels.values() for x in (vendor, made))
    assert ours.code == theirs.code
    assert (ours.params, ours.registers, ours.barriers) == (theirs.params, theirs.registers, theirs.barriers)
    if name != "copies_arrive":  # of which ptxas notes places that are not its own
        told = [{code: value for code, value in k.attributes if code in (COUNT, INSTRUCTIONS, RECONFIGURES)}
                for k in (ours, theirs)]
        assert told[0] == told[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("n", "kind", "registers", "wide"), [
    (256, "tf32", True, True), (40, "f16", False, True), (24, "f16", False, False)])
def test_every_kind_of_product_assembles_to_the_same_bits(
        tmp_path: Path, n: int, kind: str, registers: bool, wide: bool) -> None:
    image = tensor.products(n, kind, registers, wide)
    (theirs,), (ours,) = (cubin.read(x).kernels.values() for x in (image, again(image, tmp_path)))
    assert ours.code == theirs.code


@pytest.mark.long
def test_a_cubin_says_whether_only_sm_90a_has_its_instructions(tmp_path: Path) -> None:
    """As the toolkit does; barriers and copies belong to every sm_90."""
    made = again(tensor.pipeline(), tmp_path)
    assert _flags(made) == _flags(tensor.pipeline()) == ACCELERATED
    assert "sm=90a" in oracles.cuobjdump(made, "-elf")
    assert maxas("-l", tmp_path / "vendor.cubin").out.startswith("Arch: sm_90a\n")
    assert _flags(again(tensor.small("copies_in"), tmp_path)) == PLAIN
    assert cubin.read(made).arch == "sm_90"


def test_code_put_into_a_cubin_takes_the_flag_along(tmp_path: Path) -> None:
    plain = assemble(tmp_path, "# Kernel: k\n# Arch: sm_90\n--:-:-:Y:5 EXIT;\n")
    (tmp_path / "plain.cubin").write_bytes(plain)
    (tmp_path / "new.sass").write_text("# Kernel: k\n# Arch: sm_90\n--:-:-:-:1 WARPGROUP.ARRIVE;\n--:-:-:Y:5 EXIT;\n")
    ran = maxas("-i", "-k", "k", tmp_path / "new.sass", tmp_path / "plain.cubin", tmp_path / "new.cubin")
    assert ran.status == 0, ran.err
    assert [_flags(plain), _flags((tmp_path / "new.cubin").read_bytes())] == [PLAIN, ACCELERATED]


def test_what_is_asynchronous_keeps_its_place_in_a_scheduled_block(tmp_path: Path) -> None:
    """And chains of products on one accumulator are not held apart."""
    body = """<SCHEDULE_BLOCK>
--:-:-:-:1 FADD R200, R201, R202;
--:-:-:Y:6 WARPGROUP.ARRIVE;
--:-:-:-:1 HGMMA.64x64x16.F32 R24, gdesc[UR4], RZ, !UPT;
--:-:-:-:1 HGMMA.64x64x16.F32 R24, gdesc[UR8], R24;
--:-:-:-:3 HGMMA.64x64x16.F32 R24, gdesc[UR12], R24, gsb0;
--:-:-:-:1 FADD R203, R201, R202;
--:-:-:-:2 WARPGROUP.DEPBAR.LE gsb0, 0x0;
--:-:-:-:1 FADD R204, R24, R202;
--:1:-:-:1 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR16], RZ;
--:1:-:-:1 UBLKCP.G.S [UR18], [UR20], UR21;
</SCHEDULE_BLOCK>
--:-:-:Y:5 EXIT;
"""
    image = assemble(tmp_path, "# Kernel: k\n# Arch: sm_90\n# SharedSize: 0\n" + body)
    made = cubin.read(image).kernel("k").instructions
    names = [inst.opcode for inst in made]
    first, last = names.index("WARPGROUP"), names.index("WARPGROUP", names.index("HGMMA"))
    assert names[first + 1:last] == ["HGMMA"] * 3 + ["FADD"]
    sums = {inst["d"].value: i for i, inst in enumerate(made) if inst.opcode == "FADD"}
    assert sums[200] < first < sums[203] < last < sums[204] < names.index("SYNCS") < names.index("UBLKCP")
    assert [inst.control.stall for inst in made[first:first + 3]] == [6, 1, 1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("header, line, complaint", [
    ("", "HGMMA.64x12x16.F32 R24, gdesc[UR4], R24;", "HGMMA has no form with '.64x12x16.F32'"),
    ("", "HGMMA.64x64x16.F32 R24, UR4, R24;", "gdesc[UR] is wanted"),
    ("", "HGMMA.64x64x16.F32 R24, gdesc[R4], R24;", "operand 2"),
    ("", "HGMMA.64x256x16.F32 R136, gdesc[UR4], R136;", "more than 255 registers"),
    ("", "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb1;", "gsb0"),
    ("", "UBLKCP.S.G UR4, UR6, UR8;", "[UR] is wanted"),
    ("", "SYNCS.ARRIVE.TRANS64.A1T1 RZ, [R0+URZ], RZ;", "SYNCS has no form with '.ARRIVE.TRANS64.A1T1'"),
    ("", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R0+URZ], RZ;", "has no shared memory: say how many bytes"),
    ("", "USETMAXREG.DEALLOC.CTAPOOL 0x28;", "how many registers a launch gives each thread: '# MaxRegs: count'"),
    ("# MaxRegs: 100\n", "USETMAXREG.DEALLOC.CTAPOOL 0x28;", "# MaxRegs: 100: must be a multiple of 8"),
])
def test_what_is_wrong_is_named(tmp_path: Path, header: str, line: str, complaint: str) -> None:
    source = tmp_path / "bad.sass"
    source.write_text(f"# Kernel: bad\n# Arch: sm_90\n{header}--:-:-:-:1 {line}\n--:-:-:Y:5 EXIT;\n")
    ran = maxas("-c", "-o", tmp_path / "bad.cubin", source)
    assert ran.status == 1 and complaint in ran.err, ran.err
    assert not (tmp_path / "bad.cubin").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89"])
@pytest.mark.parametrize("line", ["HGMMA.64x64x16.F32 R24, gdesc[UR4], R24;", "WARPGROUP.ARRIVE;",
                                  "FENCE.VIEW.ASYNC.S;", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R0+URZ], RZ;",
                                  "UBLKCP.S.G [UR4], [UR6], UR8;"])
def test_no_older_architecture_has_them(tmp_path: Path, arch: str, line: str) -> None:
    source = tmp_path / "bad.sass"
    source.write_text(f"# Kernel: bad\n# Arch: {arch}\n--:-:-:-:1 {line}\n--:-:-:Y:5 EXIT;\n")
    ran = maxas("-c", "-o", tmp_path / "bad.cubin", source)
    assert ran.status == 1 and f"is an instruction of sm_90, this kernel is for {arch}" in ran.err, ran.err


def test_the_registers_of_a_launch_are_not_those_that_warps_take_later(tmp_path: Path) -> None:
    text = """# Kernel: k
# Arch: sm_90
# MaxRegs: 168
--:-:1:-:2 USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0;
01:-:-:-:1 MOV R200, RZ;
--:-:-:Y:5 EXIT;
"""
    (tmp_path / "odd.sass").write_text(text.replace("0xf0", "0x29"))
    warned = maxas("-c", "-o", tmp_path / "odd.cubin", tmp_path / "odd.sass")
    assert "41 registers: should be a multiple of 8 from 24 to 240" in warned.err
    kernel = cubin.read(assemble(tmp_path, text)).kernel("k")
    assert kernel.registers == 168 and RECONFIGURES in dict(kernel.attributes)
    kernel = cubin.read(assemble(tmp_path, text.replace("USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0", "NOP"))).kernel("k")
    assert kernel.registers == 203 and RECONFIGURES not in dict(kernel.attributes)
