"""The console command: its frame, `disasm`, `asm`, and how errors leave it."""

import json
import pathlib

import pytest

from maxdnn import cli
from maxdnn.cubin import read
from tests import oracles

SOURCE = """
extern "C" __global__ void scale(float *out, const float *in, float s) { out[threadIdx.x] = in[threadIdx.x] * s; }
extern "C" __global__ void fill(float *out) { out[threadIdx.x] = 1.0f; }
"""


@pytest.fixture(scope="module")
def cubin_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("cubins") / "two.cubin"
    path.write_bytes(oracles.compile_cuda(SOURCE))
    return path


@pytest.mark.parametrize("name", cli.command_names())
def test_every_subcommand_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: maxdnn {name}" in capsys.readouterr().out


def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out
    assert {"asm", "disasm"} <= set(cli.command_names())
    assert all(name in listed for name in cli.command_names())


def test_no_subcommand_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([])
    assert end.value.code == 2


def test_disasm_prints_the_vendors_text_with_addresses(cubin_path: pathlib.Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path), "--kernel", "scale"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    printed = [(int(line[2:6], 16), " ".join(line[8:].rstrip(";").split()[1:])) for line in lines]
    code = read(cubin_path).kernel("scale").code
    words = [int.from_bytes(code[i:i + 8], "little") for i in range(0, len(code), 8)]
    assert printed == oracles.instruction_lines(oracles.nvdisasm_raw(words))


def test_disasm_of_a_whole_cubin_names_each_kernel(cubin_path: pathlib.Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path)]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if " regs " in line]
    assert sorted(head.split()[1] for head in heads) == ["fill", "scale"]


def test_disasm_json_carries_words_and_text(cubin_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path), "--json"]) == 0
    module = json.loads(capsys.readouterr().out)
    scale = next(k for k in module["kernels"] if k["name"] == "scale")
    assert module["arch"] == "sm_52"
    assert [p["size"] for p in scale["params"]] == [8, 8, 4]
    assert scale["instructions"][-1].items() >= {"word": "0x50b0000000070f00", "control": "--:-:-:Y:0", "reuse": 0,
                                                 "opcode": "NOP", "guard": "", "text": "NOP"}.items()


@pytest.mark.parametrize(("argv", "words"), [
    (["disasm", "no-such.cubin"], "no-such.cubin: No such file"),
    (["disasm", __file__], "not a cubin"),
    (["disasm", "."], "Is a directory"),
])
def test_an_error_is_one_line_on_stderr_and_status_1(argv: list[str], words: str,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maxdnn: ") and words in err
    assert err.count("\n") == 1


def test_an_unknown_kernel_is_refused_with_those_there_are(cubin_path: pathlib.Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path), "--kernel", "scales"]) == 1
    err = capsys.readouterr().err
    assert "scales" in err and "fill" in err and "scale" in err


STORE = """# Kernel: answer
# Arch: sm_50
# Params(1):
#\t0:0x140:8:0
--:-:-:-:1 MOV R2, c[0x0][0x140];
--:-:-:-:6 MOV R3, c[0x0][0x144];
--:-:-:-:6 MOV32I R0, [+ $value || 7 +];
--:-:-:-:2 STG.E [R2], R0;
--:-:-:-:f EXIT;
"""


def test_asm_writes_a_cubin_that_disasm_reads_back(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "answer.sass", tmp_path / "answer.cubin"
    source.write_text(STORE)
    assert cli.main(["asm", str(source), "-o", str(output), "-D", "value", "42", "--arch", "sm_61"]) == 0
    assert "answer" in capsys.readouterr().out
    assert cli.main(["disasm", str(output)]) == 0
    listing = capsys.readouterr().out
    assert "sm_61" in listing and "param bytes 8" in listing
    assert "MOV32I R0, 0x2a;" in listing
    assert oracles.disassembly(output.read_bytes())["answer"][2] == (0x18, "MOV32I R0, 0x2a")


@pytest.mark.parametrize(("text", "options", "words"), [
    ("--:-:-:-:1 MOVE R2, R3;\n", [], "answer.sass:1: "),
    (STORE, ["--no-code"], "answer.sass:7: "),
    (STORE, ["--arch", "sm_70"], "sm_70"),
])
def test_asm_passes_the_assemblers_message_on_and_writes_nothing(
        tmp_path: pathlib.Path, text: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "answer.sass", tmp_path / "answer.cubin"
    source.write_text(text)
    assert cli.main(["asm", str(source), "-o", str(output), *options]) == 1
    assert words in capsys.readouterr().err
    assert not output.exists()
