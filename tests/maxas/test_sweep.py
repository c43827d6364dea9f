"""Every row of the table: random legal text, assembled, read by the vendor's disassembler, is the same text."""

import random
from pathlib import Path

import pytest

from maxdnn.isa import TABLE, Row, decode
from tests.isa import sampling
from tests.maxas import tool

SEED = 20150103
PARTS, SAMPLES = 8, 25  # words of a row in each part
ARCHS = ("sm_52", "sm_53", "sm_61")
BANKS = "".join(f"# ConstantSize: bank {bank} 65536\n" for bank in range(1, 18))


def _arch(row: Row) -> str:
    return {"sm_50": "sm_52", "sm_60": "sm_61"}.get(row.min_arch, row.min_arch)


def _legal(word: int, index: int) -> bool:
    """Registers up to R254, constant banks up to 17, scoreboards up to 5: more does not exist and is refused."""
    inst = decode(word, sampling.control(0), sampling.address_of(index))
    return (all(r <= 254 for r in inst.reads() | inst.writes()) and all(op.bank <= 17 for op in inst.operands)
            and all(op.value <= 5 for op in inst.operands if op.type == "scoreboard"))


def _word(rng: random.Random, row: Row, index: int) -> int:
    while True:
        word = sampling.random_word(rng, row)
        if _legal(word, index):
            return word


def _samples(rows: list[Row], arch: str, part: int) -> tuple[list[str], list[Row]]:
    """Vendor's texts of SAMPLES random words per row, and the row of each."""
    rng = random.Random(f"{SEED} {arch} {part}")
    each = [row for row in rows for _ in range(SAMPLES)]
    words = [_word(rng, row, i) for i, row in enumerate(each)]
    reuse = [sampling.random_reuse(rng, row) for row in each]
    return _texts(words, reuse, arch), each


def _texts(words: list[int], reuse: list[int], arch: str) -> list[str]:
    """The vendor's texts; its dual-issue braces are cut off, and with them the brace that ends DEPBAR's set."""
    return [t + "}" if "{" in t and "}" not in t else t for t in sampling.vendor_texts(words, reuse, arch)]


@pytest.mark.sampled(len(ARCHS), 8)
@pytest.mark.parametrize(("arch", "part"), [(arch, part) for arch in ARCHS for part in range(PARTS)])
def test_text_assembles_to_words_that_the_vendor_reads_as_the_same_text(arch: str, part: int, tmp_path: Path) -> None:
    print(f"seed {SEED} {arch} {part}, {SAMPLES} samples per row")
    rows = [row for row in TABLE.rows if _arch(row) == arch]
    wanted, each = _samples(rows, arch, part)
    header = f"{BANKS}# Kernel: k\n# Arch: {arch}\n# SharedSize: 0\n"
    found = tool.words(tmp_path, "".join(f"--:-:-:Y:0 {text};\n" for text in wanted), "-n", "-w", header=header)
    again = _texts([w for w, _ in found], [c >> 17 for _, c in found], arch)
    wrong = [(row.mnemonic, row.form, a, b) for row, a, b in zip(each, wanted, again, strict=True) if a != b]
    assert not wrong, f"{len(wrong)} of {len(each)}: {wrong[:10]}"
