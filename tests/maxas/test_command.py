"""The command line: every mode, and what ends up in a cubin written from nothing."""

import io
import json
import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from maxdnn import cubin
from tests import oracles
from tests.maxas import tool

EXIT = "--:-:-:-:f EXIT;\n"
TWO = f"""# Constant: bank 3 weights 48
# Constant: bank 3 offset 4 16
# Global: counter 8 8
# Global: table 8 4 00000001 00000002
# ConstantAddress: bank 4 0x0 counter
# Kernel: first
# Arch: sm_61
# SharedSize: 1024
# Params(3):
#	ord:addr:size:align
#	0:0x140:8:0
#	1:0x148:4:0
#	2:0x150:8:0
# Texture: texA
# Texture: texB
# MaxThreads: 256 1 1
<REGISTER_MAPPING>
0-7 : a<0-7>
</REGISTER_MAPPING>
--:-:1:-:2 S2R a0, SR_CTAID.Y;
--:-:1:-:2 TLD.LZ.T a4, a0, texB, 1D, 0xf;
--:-:-:-:5 BAR.SYNC 0x2;
--:-:-:-:1 MOV a1, c[0x3][0x30];
--:-:-:-:f @P0 EXIT;
{EXIT}
# Kernel: second
# Arch: sm_61
# ReqThreads: 32 2 1
--:-:1:-:2 S2R R9, SR_CTAID.Z;
{EXIT}"""


def _attributes(data: bytes, kernel: str) -> dict[int, bytes]:
    return dict(cubin.read(data).kernels[kernel].attributes)


def test_a_cubin_from_nothing_has_all_that_the_header_says(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, TWO)
    module = cubin.read(data)
    assert module.arch == "sm_61"
    first, second = module.kernels["first"], module.kernels["second"]
    assert [(p.offset, p.size) for p in first.params] == [(0, 8), (8, 4), (16, 8)]
    assert (first.registers, first.shared_bytes, first.barriers, first.maxntid) == (8, 1024, 3, (256, 1, 1))
    assert (second.registers, second.shared_bytes, second.barriers, second.reqntid) == (10, 0, 0, (32, 2, 1))
    assert dict(first.textures) == {"texA": 0x158, "texB": 0x15C}
    assert len(first.constants[0]) == 0x160
    assert {n: (s.offset, s.size) for n, s in module.constants.items()} == {"weights": (0, 48), "offset": (48, 4)}
    assert set(module.globals) == {"counter", "table"}
    assert module.global_init == bytes([1, 0, 0, 0, 2, 0, 0, 0])
    assert [(r.kind, r.offset) for r in module.relocations if r.symbol == "counter"] == [(2, 0)]
    usage = oracles.cuobjdump(data, "-res-usage")
    assert re.search(r"Function first:\s+REG:8 STACK:0 SHARED:1024 LOCAL:0 CONSTANT\[0\]:352 TEXTURE:2", usage)
    assert re.search(r"GLOBAL:16 CONSTANT\[3\]:52 CONSTANT\[4\]:8", usage)


def test_exits_and_block_index_reads_are_listed_for_the_driver(tmp_path: Path) -> None:
    """first: S2R CTAID.Y at 0x8, EXITs at 0x30 and 0x38. second: CTAID.Z at 0x8 and EXIT at 0x10."""
    data = tool.assemble(tmp_path, TWO)
    first, second = _attributes(data, "first"), _attributes(data, "second")
    word = lambda *v: b"".join(n.to_bytes(4, "little") for n in v)  # noqa: E731
    assert (first[0x1D], first[0x1C]) == (word(0x8), word(0x30, 0x38))
    assert (second[0x1D], second[0x1C]) == (word(0x8), word(0x10))
    assert 0x04 in second and 0x04 not in first
    assert 0x15 in first and 0x15 not in second


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62"])
def test_every_architecture_gets_its_own_cubin(arch: str, tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, f"# Kernel: k\n--:-:-:-:1 MOV R0, R1;\n{EXIT}", "--arch", arch)
    assert cubin.read(data).arch == arch
    sm = int(arch[3:])
    assert ELFFile(io.BytesIO(data))["e_flags"] == sm << 16 | 0x500 | sm
    assert f"EF_CUDA_SM{sm}" in oracles.nvdisasm(data)
    assert [t for _, t in oracles.disassembly(data)["k"]][:2] == ["MOV R0, R1", "EXIT"]


def test_a_barrier_named_by_a_register_reserves_all_sixteen(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, f"# Kernel: k\n--:-:-:-:5 BAR.SYNC R0;\n{EXIT}")
    assert cubin.read(data).kernels["k"].barriers == 16


def test_list_names_kernels_and_symbols(tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(tool.assemble(tmp_path, TWO))
    out = tool.maxas("-l", tmp_path / "a.cubin").out
    assert "Arch: sm_61\n" in out
    assert "Kernel: first (Linkage: GLOBAL, Params: 3, Size: 128, Registers: 8, SharedMem: 1024, Barriers: 3)" in out
    assert "Symbol: weights (constant bank 3, Offset: 0x0, Size: 48)" in out


def test_extraction_takes_one_kernel_or_all(tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(tool.assemble(tmp_path, TWO))
    every = tool.maxas("-e", tmp_path / "a.cubin").out
    assert re.findall(r"^# Kernel: (.*)", every, re.MULTILINE) == ["first", "second"]
    one = tool.maxas("--extract", "-k", "second", tmp_path / "a.cubin").out
    assert re.findall(r"^# Kernel: (.*)", one, re.MULTILINE) == ["second"]
    wrong = tool.maxas("-e", "-k", "third", tmp_path / "a.cubin")
    assert wrong.status == 1 and "no kernel 'third'; it has: first second" in wrong.err


def test_insertion_in_the_upstream_form_replaces_the_kernel(tmp_path: Path) -> None:
    """`-i -w -k NAME -Dname value asm cubin [new]`, as the known build scripts call it."""
    template = tmp_path / "t.cubin"
    template.write_bytes(tool.assemble(tmp_path, TWO))
    (tmp_path / "new.sass").write_text(
        f"# Kernel: other\n--:-:-:-:1 MOV32I R30, [+ $value +];\n--:-:1:-:2 S2R R0, SR_CTAID.X;\n{EXIT}")
    ran = tool.maxas("-i", "-w", "-k", "second", "-Dvalue", "77", tmp_path / "new.sass", template, tmp_path / "n.cubin")
    assert ran.status == 0, ran.err
    data = (tmp_path / "n.cubin").read_bytes()
    assert next(t for _, t in oracles.disassembly(data)["second"]) == "MOV32I R30, 0x4d"
    assert cubin.read(data).kernels["second"].registers == 31
    assert _attributes(data, "second")[0x1D] == (0x10).to_bytes(4, "little")
    assert 0x04 not in _attributes(data, "second")
    assert cubin.read(data).kernels["first"].code == cubin.read(template.read_bytes()).kernels["first"].code
    assert tool.maxas("-i", "-k", "second", "-Dvalue", "1", tmp_path / "new.sass", template).status == 0
    assert template.read_bytes() != data, "without a new file the cubin itself is rewritten"


def test_insertion_reports_the_shared_memory_of_the_cubin_and_names_other_parameters(tmp_path: Path) -> None:
    shared = 'extern "C" __global__ void k(float *p) { __shared__ float a[6212]; a[p != 0] = 1; *p = a[0]; }'
    (tmp_path / "t.cubin").write_bytes(oracles.compile_cuda(shared))
    (tmp_path / "new.sass").write_text(f"# Kernel: k\n# Params(0):\n{EXIT}")
    ran = tool.maxas("-i", tmp_path / "new.sass", tmp_path / "t.cubin", tmp_path / "n.cubin")
    assert ran.status == 0 and ", 24848 bytes shared, " in ran.out
    assert cubin.read(tmp_path / "n.cubin").kernels["k"].shared_bytes == 24848
    assert "kernel k: its parameters (offset:size) in the cubin: 0:8; in the source: none" in ran.err


def test_insertion_names_the_kernels_there_are(tmp_path: Path) -> None:
    (tmp_path / "t.cubin").write_bytes(tool.assemble(tmp_path, TWO))
    (tmp_path / "new.sass").write_text(f"# Kernel: other\n{EXIT}")
    ran = tool.maxas("-i", tmp_path / "new.sass", tmp_path / "t.cubin")
    assert ran.status == 1 and "no kernel 'other'; it has: first second" in ran.err


def test_warnings_tell_of_bank_conflicts_and_cut_immediates_and_can_be_silenced(tmp_path: Path) -> None:
    (tmp_path / "k.sass").write_text(
        f"# Kernel: k\n--:-:-:-:1 FFMA R0, R1, R5, R9;\n--:-:-:-:1 FADD R0, R0, 0.1;\n{EXIT}")
    ran = tool.maxas("-c", "-o", tmp_path / "k.cubin", tmp_path / "k.sass")
    assert "warning: " in ran.err and "bank conflict: FFMA reads R1, R5, R9 from bank 1" in ran.err
    assert "immediate 0.1 is cut to 20 bits (FADD32I takes 32 bits)" in ran.err
    assert "3 instructions, 10 registers" in ran.out and "2 bank conflicts" in ran.out
    assert tool.maxas("-c", "-w", "-o", tmp_path / "k.cubin", tmp_path / "k.sass").err == ""


def test_reuse_percentage_counts_operands_served_by_the_cache(tmp_path: Path) -> None:
    """Six register reads, of which R1 and R3 of the second FFMA are served: 33.3 %."""
    (tmp_path / "k.sass").write_text(
        f"# Kernel: k\n--:-:-:-:1 FFMA R8, R1, R2, R3;\n--:-:-:-:1 FFMA R9, R1, R4, R3;\n{EXIT}")
    assert "33.3% reuse" in tool.maxas("-c", "-o", tmp_path / "k.cubin", tmp_path / "k.sass").out


def test_test_mode_fails_on_a_word_it_cannot_reproduce(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, f"# Kernel: k\n{EXIT}")
    code = tool.code_of(data)["k"]
    (tmp_path / "a.cubin").write_bytes(data.replace(code, code[:8] + b"\0" * 8 + code[16:]))
    ran = tool.maxas("-t", tmp_path / "a.cubin")
    assert ran.status == 1
    assert "FAIL: k+0x0008: word 0x0000000000000000 is no instruction" in ran.out
    listed = tool.maxas("-t", "-a", "-r", tmp_path / "a.cubin")
    assert listed.status == 1 and "NOP;" in listed.out


@pytest.mark.parametrize("damage", [
    (b"", "it is 0 bytes long"), (b"\x7fELF" + b"\0" * 100, "not a 64-bit little-endian ELF"),
    (b"MZ" * 64, "no ELF magic at its start")])
def test_a_file_that_is_no_cubin_is_called_so(damage: tuple[bytes, str], tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(damage[0])
    ran = tool.maxas("-l", tmp_path / "a.cubin")
    assert ran.status == 1 and f"{tmp_path / 'a.cubin'}: not a cubin this program can read: {damage[1]}" in ran.err


def test_a_truncated_cubin_is_called_so(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, TWO)
    (tmp_path / "a.cubin").write_bytes(data[:len(data) // 2])
    assert "section headers lie outside the file" in tool.maxas("-e", tmp_path / "a.cubin").err


def test_version_help_and_unknown_modes() -> None:
    assert tool.maxas("-v").out == "1.06\n"
    assert "maxas.pl -c [options]" in tool.maxas("--help").out
    assert tool.maxas("-z").status == 1
    assert "unknown option '-z'" in tool.maxas("-c", "-z", "a.sass").err
    assert "cannot read" in tool.maxas("-c", "/nonexistent/a.sass").err


def test_the_container_writer_takes_machine_code_of_another_architecture(tmp_path: Path) -> None:
    """What tools/container_test.py runs on a GPU, as far as it goes without one: the vendor's tools accept the file and
    read the same code and resources as in their own."""
    from tools import container_test
    ours = container_test.prepare(tmp_path, "sm_90").read_bytes()
    vendor = (tmp_path / "vendor.cubin").read_bytes()
    assert tool.code_of(ours) == tool.code_of(vendor)
    assert oracles.cuobjdump(ours, "-res-usage") == oracles.cuobjdump(vendor, "-res-usage")
    assert oracles.disassembly(ours) == oracles.disassembly(vendor)


def test_the_container_writer_names_what_is_missing(tmp_path: Path) -> None:
    for text, words in (("{", "not JSON"), ("[]", "an object with 'sm'"),
                        (json.dumps({"sm": 90, "kernels": [{"name": "k", "code": "0"}]}), "'registers' is missing")):
        (tmp_path / "m.json").write_text(text)
        ran = tool.maxas("--container", tmp_path / "m.json", "-o", tmp_path / "o.cubin")
        assert ran.status == 1 and words in ran.err
        assert not (tmp_path / "o.cubin").exists()
