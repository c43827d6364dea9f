"""Every row of the table of sm_90: random legal text, assembled, is read by the vendor's disassembler as the same text.
MAXDNN_SAMPLES sets how many of a row."""

import os
import random
from pathlib import Path

from maxdnn import cubin
from maxdnn.isa import Control, Row, decode, hopper
from maxdnn.isa.control import CONTROL_LSB
from tests.isa import sampling
from tests.isa.test_hopper import IDLE, _vendor
from tests.maxas import tool

SEED = 20150104
SAMPLES = int(os.environ.get("MAXDNN_SAMPLES", "4"))
BANKS = "".join(f"# ConstantSize: bank {bank} 65536\n" for bank in range(1, 18))
TO_PLACES = ("rel_target", "rel_register")  # they depend on where a line stands


def _legal(rng: random.Random, row: Row) -> int:
    """A word with registers and constant banks that the assembler takes: the system keeps two registers."""
    while True:
        word = sampling.random_word(rng, row)
        inst = decode(word, Control(), 0, hopper())
        if all(r <= 252 for r in inst.reads() | inst.writes()) and all(op.bank <= 17 for op in inst.operands):
            return word


def _texts(words: list[int]) -> list[str | None]:
    texts = _vendor([word | IDLE << CONTROL_LSB for word in words])
    return [None if text is None or "INVALID" in text or "???" in text else text for text in texts]


def test_text_assembles_to_words_that_the_vendor_reads_as_the_same_text(tmp_path: Path) -> None:
    print(f"seed {SEED}, {SAMPLES} samples per row")
    rng = random.Random(SEED)
    rows = [row for row in hopper().rows if not any(field.type in TO_PLACES for field in row.operands)]
    each = [row for row in rows for _ in range(SAMPLES)]
    wanted = [(row, text) for row, text in zip(each, _texts([_legal(rng, row) for row in each]), strict=True) if text]
    assert len(wanted) > len(each) * 0.9
    lines = "".join(f"--:-:-:-:1 {text};\n" for _, text in wanted)
    source = "# Kernel: k\n# Arch: sm_90\n# SharedSize: 0\n# MaxRegs: 168\n" + BANKS + lines
    image = tool.assemble(tmp_path, source, "-n", "-w")
    found = _texts([word for _, word, _ in cubin.read(image).kernel("k").words()][:len(wanted)])
    wrong = [(row.spec["name"], a, b) for (row, a), b in zip(wanted, found, strict=True) if a != b]
    assert not wrong, f"{len(wrong)} of {len(wanted)}: {wrong[:10]}"
