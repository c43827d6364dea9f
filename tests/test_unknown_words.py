"""A word that is no instruction of the table: what `disasm`, `check`, the assembler and the virtual GPU say of it."""

import json
import pathlib

import pytest

from maxdnn import cli, cubin
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from tests import oracles
from tests.maxas import tool

SOURCE = """
extern "C" __global__ void bad(int *x) { x[threadIdx.x] = 3 * x[threadIdx.x]; }
extern "C" __global__ void good(int *x) { x[threadIdx.x] = 5 + x[threadIdx.x]; }
"""
UNKNOWN = {"sm_52": 0xFFFF000000000000, "sm_90": 0xFFF}  # no row has these opcodes


@pytest.fixture(params=UNKNOWN)
def damaged(request, tmp_path: pathlib.Path) -> tuple[pathlib.Path, cubin.CubinKernel, int]:
    """A cubin whose kernel `bad` has such a word, that kernel as it was, and the index of the word."""
    arch = request.param
    image = bytearray(oracles.compile_cuda(SOURCE, arch))
    kernel, index = cubin.read(bytes(image)).kernel("bad"), 4
    at = image.find(kernel.code) + kernel.addressing.address_of(index)
    size = kernel.addressing.word
    word = int.from_bytes(image[at:at + size], "little")
    control = word & ~((1 << 105) - 1) if size == 16 else 0
    image[at:at + size] = (UNKNOWN[arch] | control).to_bytes(size, "little")
    path = tmp_path / "damaged.cubin"
    path.write_bytes(image)
    return path, kernel, index


def test_disasm_prints_it_as_data_and_goes_on(damaged, capsys: pytest.CaptureFixture[str]) -> None:
    path, kernel, index = damaged
    assert cli.main(["disasm", str(path)]) == 3
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("/*")]
    good = cubin.read(path).kernel("good")
    assert len(lines) == len(kernel.words()) + len(good.words())
    words = [line for line in lines if ".word" in line]
    digits = kernel.table.word_bits // 4
    assert len(words) == 1 and f".word 0x{UNKNOWN[kernel.arch]:0{digits}x};" in words[0]
    assert words[0].startswith(f"/*{kernel.addressing.address_of(index):04x}*/")
    assert err.startswith("maxdnn: warning: kernel bad: 1 word is no instruction") and err.count("\n") == 1
    others = [" ".join(line.split()[2:]).rstrip(";") for line in lines if ".word" not in line]
    wanted = [inst.text() for i, inst in enumerate(kernel.instructions) if i != index]
    texts = {"bad": wanted, "good": [inst.text() for inst in good.instructions]}
    assert [text for name in cubin.read(path).kernels for text in texts[name]] == others


def test_disasm_of_another_kernel_says_nothing(damaged, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(damaged[0]), "--kernel", "good"]) == 0
    assert capsys.readouterr().err == ""


def test_json_has_it_without_an_opcode(damaged, capsys: pytest.CaptureFixture[str]) -> None:
    path, kernel, index = damaged
    assert cli.main(["disasm", str(path), "--kernel", "bad", "--json"]) == 3
    item = json.loads(capsys.readouterr().out)["kernels"][0]["instructions"][index]
    assert item["opcode"] == "" and item["text"].startswith(".word 0x")
    assert int(item["word"], 16) == UNKNOWN[kernel.arch]


def test_check_says_which_kernel_it_left_out_and_checks_the_others(damaged, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(damaged[0])]) == 1
    out, err = capsys.readouterr()
    assert "good: " in out and "bad: " not in out
    assert err.startswith("maxdnn: not checked: kernel bad: word 0x") and err.count("\n") == 1


def test_extract_names_kernel_and_place(damaged, tmp_path: pathlib.Path) -> None:
    path, kernel, index = damaged
    ran = tool.maxas("-e", "-k", "bad", path, tmp_path / "bad.sass")
    assert ran.status != 0 and not (tmp_path / "bad.sass").exists()
    assert f"bad+0x{kernel.addressing.address_of(index):04x}: word " in ran.err and "is no instruction" in ran.err


def test_the_assembler_does_not_take_a_word_for_an_instruction(damaged, tmp_path: pathlib.Path) -> None:
    _, kernel, _ = damaged
    source = tmp_path / "k.sass"
    word = f"--:-:-:-:1 .word 0x{UNKNOWN[kernel.arch]:x};"
    source.write_text(f"# Kernel: k\n# Arch: {kernel.arch}\n{word}\n--:-:-:-:5 EXIT;\n")
    ran = tool.maxas("-c", "-o", tmp_path / "k.cubin", source)
    assert ran.status != 0 and "k.sass:3: " in ran.err and ".word" in ran.err and not (tmp_path / "k.cubin").exists()


def test_the_virtual_gpu_faults_where_a_warp_comes_to_it(damaged) -> None:
    gpu = VirtualGpu()
    module, buffer = gpu.load(damaged[0].read_bytes()), gpu.alloc(128)
    module.function("good").launch((1, 1, 1), (32, 1, 1), [buffer])
    gpu.synchronize()
    with pytest.raises(EmulationFault, match="word that is no instruction at 0x"):
        module.function("bad").launch((1, 1, 1), (32, 1, 1), [buffer])
        gpu.synchronize()

