"""A tour of the dialect: one source per feature in tests/maxas/dialect.

Lines `#= control text` in a source are the instructions it must become, derived by hand from the dialect's rules:
`text` is compared with what the vendor's disassembler reads in the cubin, `control` with its control code. `#!` holds
command-line options.
"""

import re
from pathlib import Path

import pytest

from maxdnn.isa import Control
from tests import oracles
from tests.maxas import tool

FOLDER = Path(__file__).with_name("dialect")
FEATURES = sorted(path.stem for path in FOLDER.glob("*.sass"))


def _expected(source: str) -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in re.finditer(r"^#= (\S+) (.*)$", source, re.MULTILINE)]


def _normal(text: str) -> str:
    """Blanks squeezed; labels without their names, which the vendor invents anew; the brace oracles cut off."""
    text = re.sub(r"`\(.*?\)", "`()", " ".join(text.split()))
    return text + "}" if "{" in text and "}" not in text else text


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FEATURES)
def test_a_dialect_feature_becomes_the_expected_machine_code(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.sass"
    source = path.read_text()
    options = " ".join(re.findall(r"^#! (.*)$", source, re.MULTILINE)).split()
    ran = tool.maxas("-c", *options, "-o", tmp_path / "k.cubin", path)
    assert ran.status == 0, ran.err
    data = (tmp_path / "k.cubin").read_bytes()
    expected = _expected(source)
    texts = [_normal(text) for _, text in oracles.disassembly(data)["k"]][:len(expected)]
    controls = [str(Control.unpack(bits)) for _, bits in tool.words_of(tool.code_of(data)["k"])][:len(expected)]
    assert list(zip(controls, texts, strict=True)) == [(c, _normal(t)) for c, t in expected]


@pytest.mark.sampled(4, 8)
@pytest.mark.parametrize("name", FEATURES)
def test_preprocessing_keeps_the_meaning(name: str, tmp_path: Path) -> None:
    """-p expands everything up to scheduling; what it prints assembles to the same code."""
    path = FOLDER / f"{name}.sass"
    options = " ".join(re.findall(r"^#! (.*)$", path.read_text(), re.MULTILINE)).split()
    plain = [o for o in options if o == "-n"]
    assert tool.maxas("-p", *options, path, tmp_path / "pre.sass").status == 0
    assert tool.maxas("-c", *options, "-o", tmp_path / "a.cubin", path).status == 0
    ran = tool.maxas("-c", *plain, "--no-code", "-o", tmp_path / "b.cubin", tmp_path / "pre.sass")
    assert ran.status == 0, ran.err
    direct, through_text = [tool.code_of((tmp_path / f"{n}.cubin").read_bytes()) for n in "ab"]
    assert direct == through_text


def test_a_label_before_a_group_names_its_control_word_unless_asked_otherwise(tmp_path: Path) -> None:
    """The branch is at 0x10; the next word is 0x18. START is the first instruction of the first group: its control
    word is at 0x0 (displacement -0x18), the instruction at 0x8 (-0x10)."""
    body = "START:\n--:-:-:-:1 NOP;\n--:-:-:-:5 BRA START;\n--:-:-:-:f EXIT;\n"
    for line, displacement in (("", -0x18), ("# Targets: group\n", -0x18), ("# Targets: instruction\n", -0x10)):
        found = tool.words(tmp_path, body, header=f"# Kernel: k\n{line}")
        assert found[1][0] >> 20 & 0xFFFFFF == displacement & 0xFFFFFF


def test_every_kernel_ends_in_a_branch_to_itself_and_padding_to_64_bytes(tmp_path: Path) -> None:
    for count in range(1, 8):
        body = "--:-:-:-:1 NOP;\n" * (count - 1) + "--:-:-:-:f EXIT;\n"
        found = tool.words_of(tool.code_of(tool.assemble(tmp_path, "# Kernel: k\n" + body))["k"])
        assert len(found) % 6 == 0 and len(found) - count <= 6
        displacement = -0x10 if count % 3 == 0 else -8
        assert found[count] == (0xE24000000000000F | 7 << 16 | (displacement & 0xFFFFFF) << 20, 0x7FF)
        assert set(found[count + 1:]) <= {(0x50B0000000070F00, 0x7E0)}
