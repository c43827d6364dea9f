"""A kernel's interface, declared once in its header: what the assembler derives, what Python reads, what is refused."""

import json
from pathlib import Path

import pytest

from maxdnn import cubin
from maxdnn.build.assemble import assemble, interface
from maxdnn.errors import CubinError
from tests import oracles
from tests.maxas import tool

END = "--:-:-:-:f EXIT;\n"
HEADER = """# Kernel: k
# SharedSize: 1024
# ReqThreads: 64 2
# MaxRegs: 40
# Texture: maps
# Constant: bank 3 table 16
# Constant: bank 3 more 8 8
# Param: f32 alpha  factor: of the sum
# Param: ptr out    N float32, aligned
# Param: i32 shift
# Param: u32 n
"""
BODY = """--:-:-:-:1 MOV R0, param_alpha;
--:-:-:-:1 MOV R1, param_out[0];
--:-:-:-:1 MOV R2, param_out[1];
--:-:-:-:1 IADD R3, R3, -param_shift;
--:-:-:-:6 MOV R4, param_n;
--:-:1:-:2 TLD.LZ.T R4, R4, RZ, maps, 1D, 0xf;
"""
WANTED = {
    "name": "k", "threads": [64, 2, 1], "shared": 1024, "registers": 40, "textures": ["maps"], "channels": [4],
    "params": [{"name": "alpha", "type": "f32", "offset": 0, "size": 4, "meaning": "factor: of the sum"},
               {"name": "out", "type": "ptr", "offset": 8, "size": 8, "meaning": "N float32, aligned"},
               {"name": "shift", "type": "i32", "offset": 16, "size": 4, "meaning": ""},
               {"name": "n", "type": "u32", "offset": 20, "size": 4, "meaning": ""}],
    "constants": [{"bank": 3, "name": "table", "offset": 0, "bytes": 16},
                  {"bank": 3, "name": "more", "offset": 16, "bytes": 8}],
}


def test_declared_parameters_get_offsets_records_and_constant_names(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, HEADER + BODY + END, "-w")
    kernel = cubin.read(data).kernel()
    assert [(p.ordinal, p.offset, p.size) for p in kernel.params] == [(0, 0, 4), (1, 8, 8), (2, 16, 4), (3, 20, 4)]
    assert [text for _, text in oracles.disassembly(data)["k"]][:5] == [
        "MOV R0, c[0x0][0x140]", "MOV R1, c[0x0][0x148]", "MOV R2, c[0x0][0x14c]", "IADD R3, R3, -c[0x0][0x150]",
        "MOV R4, c[0x0][0x154]"]
    assert kernel.textures == (("maps", 0x158),)


def test_python_reads_the_interface_from_the_cubin_and_from_the_source(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, HEADER + BODY + END, "-w")
    assert cubin.interface(data) == interface(tmp_path / "kernel.sass") == [WANTED]
    printed = tool.maxas("--interface", "--no-code", tmp_path / "kernel.sass").out
    assert json.loads(printed) == {"kernels": [WANTED]}


def test_what_stands_before_the_first_kernel_belongs_to_all(tmp_path: Path) -> None:
    """Whatever a kernel declares itself follows, or replaces what all have."""
    common = HEADER.replace("# Kernel: k\n", "")
    source = common + f"# Kernel: a\n{BODY}{END}# Kernel: b\n# SharedSize: 64\n# Param: u32 m\n{BODY}{END}"
    data = tool.assemble(tmp_path, source, "-w")
    more = {"name": "m", "type": "u32", "offset": 24, "size": 4, "meaning": ""}
    wanted = [WANTED | {"name": "a"}, WANTED | {"name": "b", "shared": 64, "params": [*WANTED["params"], more]}]
    assert cubin.interface(data) == interface(tmp_path / "kernel.sass") == wanted
    kernels = cubin.read(data).kernels
    assert [(k.shared_bytes, k.reqntid, k.textures) for k in kernels.values()] == [
        (1024, (64, 2, 1), (("maps", 0x158),)), (64, (64, 2, 1), (("maps", 0x15c),))]
    assert tool.maxas("-p", "--flat", tmp_path / "kernel.sass", tmp_path / "flat.sass").status == 0
    assert tool.assemble(tmp_path, (tmp_path / "flat.sass").read_text(), "-w") == data


def test_the_header_of_a_source_with_code_is_read_without_running_it(tmp_path: Path) -> None:
    """Also where the header is an included file's, and where the code would be refused."""
    mark = tmp_path / "mark"
    (tmp_path / "head.inc").write_text(HEADER.replace("# Kernel: k\n", ""))
    (tmp_path / "k.sass").write_text('# Kernel: k\n<INCLUDE file="head.inc"/>\n' + BODY
                                     + f"<CODE>\nopen my $f, '>', '{mark}'; return '';\n</CODE>\n"
                                     + f"[+ open(my $f, '>', '{mark}') && '' +]\n" + END)
    assert interface(tmp_path / "k.sass") == [WANTED]
    assert tool.maxas("--interface", "--no-code", tmp_path / "k.sass").status == 0
    assert not mark.exists()


def test_an_old_header_and_a_cubin_of_others_say_what_they_know(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, "# Kernel: k\n# Params(1):\n#\t0:0x140:8:0\n" + END)
    assert cubin.interface(data) == [{
        "name": "k", "threads": None, "shared": 0, "registers": None, "textures": [], "channels": [], "constants": [],
        "params": [{"name": None, "type": None, "offset": 0, "size": 8, "meaning": ""}]}]
    assert cubin.interface(oracles.ptxas(".version 6.5\n.target sm_52\n.address_size 64\n.entry k() { ret; }\n")) == []
    with pytest.raises(CubinError, match=r"maxdnn\.interface is not what the assembler writes"):
        cubin.interface(data.replace(b'{"kernels"', b'{"kerne1s"'))


def test_the_vendors_tools_pass_over_the_section(tmp_path: Path) -> None:
    data = tool.assemble(tmp_path, HEADER + BODY + END, "-w")
    assert b".maxdnn.interface" in data
    assert "REG:8" in oracles.cuobjdump(data, "-res-usage")
    assert len(oracles.disassembly(data)["k"]) >= 7


WRONG = {
    "a type nobody knows": ("# Param: u64 n\n", "header 'Param: u64 n': Param wants type (ptr, f32, u32 or i32), name"),
    "no name": ("# Param: ptr\n", "header 'Param: ptr': Param wants type"),
    "a name twice": ("# Param: u32 n\n# Param: f32 n\n", "parameter 'n' is declared twice"),
    "declared in both ways": ("# Param: u32 n\n# Params(1):\n#\t0:0x140:4:0\n", "by '# Param:' and by '# Params'"),
    "mapped to another place": (
        "# Param: ptr out\n# Param: u32 n\n<CONSTANT_MAPPING>\nparam_n : c[0x0][0x144]\n</CONSTANT_MAPPING>\n",
        "CONSTANT_MAPPING maps 'param_n' to 'c[0x0][0x144]', but parameter 'n' lies at c[0x0][0x148]"),
    "used by another name": ("# Param: u32 n\n--:-:-:-:1 MOV R0, param_m;\n", "undefined register 'param_m'"),
    "a pointer used as a word": ("# Param: ptr n\n--:-:-:-:1 MOV R0, param_n;\n", "undefined register 'param_n'"),
    "beyond its end": ("# Param: u32 n\n--:-:-:-:1 MOV R0, c[0x0][0x144];\n", "the parameters end at 0x144"),
    "too many": ("".join(f"# Param: ptr p{n}\n" for n in range(513)), "ends beyond 4096 bytes"),
}


@pytest.mark.parametrize("title", WRONG)
def test_a_wrong_declaration_is_refused(title: str, tmp_path: Path) -> None:
    text, words = WRONG[title]
    (tmp_path / "k.sass").write_text("# Kernel: k\n" + text + END)
    ran = tool.maxas("-c", "-o", tmp_path / "k.cubin", tmp_path / "k.sass")
    assert ran.status == 1 and words in ran.err and f"{tmp_path / 'k.sass'}:" in ran.err
    assert not (tmp_path / "k.cubin").exists()


def test_another_assembler_gets_the_names_spelled_out(tmp_path: Path) -> None:
    """`-p --flat`: includes in place, one mapping behind each kernel's line, code untouched."""
    (tmp_path / "head.inc").write_text("# Kernel: not_this\n# Param: ptr out\n")
    (tmp_path / "k.sass").write_text(
        '# Kernel: first\n<INCLUDE file="head.inc"/>\n--:-:-:-:1 MOV R0, [+ \'param_out[1]\' +];\n' + END
        + "# Kernel: second\n# Param: u32 n\n--:-:-:-:1 MOV R0, param_n;\n" + END)
    text = tool.maxas("-p", "--flat", tmp_path / "k.sass").out
    assert "    param_out[1] : c[0x0][0x144]\n" in text and "    param_n : c[0x0][0x140]\n" in text
    assert "[+ 'param_out[1]' +]" in text and "INCLUDE" not in text
    (tmp_path / "flat.sass").write_text(text)
    for name in ("k", "flat"):
        assemble(tmp_path / f"{name}.sass", tmp_path / f"{name}.cubin")
    assert cubin.read(tmp_path / "k.cubin") == cubin.read(tmp_path / "flat.cubin")
