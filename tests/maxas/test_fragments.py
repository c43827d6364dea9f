"""A fragment that says what it takes, uses and leaves is held to it, in each kernel that includes it."""

import re
from pathlib import Path

import pytest

from tests.maxas import tool

SASS = Path(__file__).parents[2] / "sass"
HEAD = """# Kernel: k
# SharedSize: 64
# Param: u32 n   a number
<CONSTANT_MAPPING>
    many : 0x7
</CONSTANT_MAPPING>
<REGISTER_MAPPING>
    0-3 : sum<0-3>
    4 : left
    5 : low
</REGISTER_MAPPING>
"""
GOOD = """# Takes: sum<0-3> param_n many shared:64
# Uses: low P0
# Leaves: left P1
<REGISTER_MAPPING>
    6 : mine
</REGISTER_MAPPING>
--:-:-:-:6      IADD low, sum0, sum3;
--:-:-:-:6      MOV mine, param_n;
<CODE> return "--:-:-:-:d      ISETP.LT.AND P1, PT, low, many, PT;\\n" x 2; </CODE>
--:-:-:-:6  @P1 MOV left, mine;    # and other words, other P3
--:-:-:-:d      ISETP.LT.AND P0, PT, left, RZ, PT;
"""


def assembled(folder: Path, fragment: str, head: str = HEAD) -> tool.Ran:
    (folder / "part.inc").write_text(fragment)
    (folder / "main.sass").write_text(f'{head}<INCLUDE file="part.inc"/>\n--:-:-:-:f EXIT;\n')
    return tool.maxas("-c", "-o", folder / "o.cubin", folder / "main.sass")


def test_a_fragment_that_keeps_to_what_it_says_is_taken(tmp_path: Path) -> None:
    ran = assembled(tmp_path, GOOD)
    assert ran.status == 0, ran.err
    plain = assembled(tmp_path, "".join(line for line in GOOD.splitlines(True) if not line.startswith("#")))
    assert plain.status == 0 and plain.out == ran.out


@pytest.mark.parametrize(("says", "instead", "line", "words"), [
    ("sum<0-3> ", "sum<0-2> ", 7, "'sum3' is not among what this file says it takes, uses or leaves"),
    ("param_n ", "", 8, "'param_n' is not among"),
    ("many ", "", 9, "'many' is not among"),  # where the embedded code begins
    ("low P0", "P0", 7, "'low' is not among"),
    ("low P0", "low", 11, "'P0' is not among"),
    ("left P1", "left", 9, "'P1' is not among"),
    ("low P0", "low P0 P3", 2, "Uses: 'P3' is named by no instruction of this file"),
    ("sum<0-3>", "sum<0-3> other<0-1>", 1, "Takes: 'other<0-1>' is named by no instruction of this file"),
    ("shared:64", "shared:128", 1, "shared memory must have 128 bytes (has 64)"),
    ("sum<0-3>", "sum<3-0>", 1, "range 3-0 runs backwards"),
    ("sum<0-3> param_n many shared:64", "nothing", 9, "'many' is not among"),
    ("param_n", "param_m?", 8, "'param_n' is not among"),
])
def test_a_fragment_that_does_not_is_refused(says: str, instead: str, line: int, words: str, tmp_path: Path) -> None:
    assert says in GOOD
    ran = assembled(tmp_path, GOOD.replace(says, instead, 1))
    assert ran.status == 1 and f"part.inc:{line}: " in ran.err and words in ran.err
    assert not (tmp_path / "o.cubin").exists()


@pytest.mark.parametrize(("says", "instead"), [
    ("param_n", "param_*"),
    ("param_n", "param_n? sum<4-5>? P3?"),
    ("<REGISTER_MAPPING>\n",
     "<CONSTANT_MAPPING>\n    own : 0x3\n</CONSTANT_MAPPING>\n--:-:-:-:6 MOV mine, own;\n<REGISTER_MAPPING>\n"),
    ("# Uses: low P0\n", "# Uses: low P0 R<4-6>\n--:-:-:-:6 MOV R5, RZ;\n"),
])
def test_what_a_declaration_may_leave_open(says: str, instead: str, tmp_path: Path) -> None:
    """All parameters, names of some kernels only, constants of its own, and registers by number."""
    assert says in GOOD
    ran = assembled(tmp_path, GOOD.replace(says, instead, 1))
    assert ran.status == 0, ran.err


def test_every_fragment_says_what_it_takes() -> None:
    """Or declares parameters and nothing else, included ones too; that it keeps to it, each build of a kernel shows."""
    for file in sorted(SASS.rglob("*.inc")):
        text = file.read_text()
        if not re.search(r"^# (Takes|Uses|Leaves): ", text, re.M):
            assert re.search(r"^# Param: ", text, re.M), f"{file} declares nothing"
            assert not re.search(r"^(?!#|<INCLUDE ).", text, re.M), f"{file} has more than parameters: of what?"


def test_one_file_made_of_all_holds_no_fragment_to_anything(tmp_path: Path) -> None:
    assembled(tmp_path, GOOD, HEAD.replace("5 : low", "5 : low\n    7 : beside"))
    (tmp_path / "main.sass").write_text((tmp_path / "main.sass").read_text().replace(
        "--:-:-:-:f EXIT", "--:-:-:-:6 MOV beside, left;\n--:-:-:-:f EXIT"))
    assert tool.maxas("-p", "--flat", tmp_path / "main.sass", tmp_path / "flat.sass").status == 0
    ran = tool.maxas("-c", "-o", tmp_path / "flat.cubin", tmp_path / "flat.sass")
    assert ran.status == 0, ran.err
    assert tool.maxas("-c", "-o", tmp_path / "o.cubin", tmp_path / "main.sass").status == 0
    assert (tmp_path / "flat.cubin").read_bytes() == (tmp_path / "o.cubin").read_bytes()


def test_fragments_that_say_nothing_and_the_including_file_are_free(tmp_path: Path) -> None:
    """The source itself may name what it likes, and what it maps may be of no use to the fragment."""
    ran = assembled(tmp_path, "--:-:-:-:6      MOV left, sum1;\n")
    assert ran.status == 0, ran.err
