"""Every row of the table against the vendor's disassembler: random words print alike, and encode back to themselves."""

import collections
import dataclasses
import random

import pytest

from maxdnn.isa import TABLE, Row, decode, encode
from tests.isa import sampling

SEED = 20150301
PARTS, SAMPLES = 8, 25  # words of a row in each part


def _by_architecture() -> dict[str, list[Row]]:
    """Rows by the first architecture that has them; sm_50 rows are read as sm_52, the first with all texture forms."""
    rows = collections.defaultdict(list)
    for row in TABLE.rows:
        rows["sm_52" if row.min_arch == "sm_50" else row.min_arch].append(row)
    return rows


@pytest.mark.sampled(len(_by_architecture()))
@pytest.mark.parametrize(("arch", "part"), [(arch, part) for arch in sorted(_by_architecture())
                                            for part in range(PARTS)])
def test_random_words_of_every_row_print_as_the_vendor_prints_them_and_encode_back(arch: str, part: int) -> None:
    rng = random.Random(f"{SEED} {part}")
    print(f"seed {SEED} {part}, {SAMPLES} samples per row")
    rows = [row for row in _by_architecture()[arch] for _ in range(SAMPLES)]
    words = [sampling.random_word(rng, row) for row in rows]
    reuse = [sampling.random_reuse(rng, row) for row in rows]
    for i, text in enumerate(sampling.vendor_texts(words, reuse, arch)):
        inst = decode(words[i], sampling.control(reuse[i]), sampling.address_of(i))
        assert inst.text() == text, f"{rows[i].mnemonic} {rows[i].form} 0x{words[i]:016x}"
        again = dataclasses.replace(inst, word=0)  # encode must not copy the word it came from
        assert encode(again) == words[i], f"{rows[i].mnemonic} {rows[i].form} {text}"


def test_every_row_is_found_by_a_word_of_its_own() -> None:
    rng = random.Random(SEED)
    for row in TABLE.rows:
        assert TABLE.find(sampling.random_word(rng, row)) is row


def test_no_bit_of_a_row_has_two_meanings() -> None:
    for row in TABLE.rows:
        fixed = row.mask
        for name, field in row.modifiers.items():
            free = [k for k in field.values if field.put(k) & ~fixed]
            clash = any(field.put(k) & fixed & ~row.value for k in field.values)
            assert not clash, f"{row.mnemonic} {row.form}: modifier {name} contradicts the fixed bits"
            assert free or len(field.values) == 1, f"{row.mnemonic} {row.form}: modifier {name} chooses nothing"


def test_a_constant_at_an_offset_alone_prints_no_register() -> None:
    """At offset 0, too."""
    words = [0xEF9401F00007FFBC | offset << 20 for offset in (0, 4)]
    texts = sampling.vendor_texts(words, [0, 0], "sm_52")
    assert texts == ["LDC R188, c[0x1f][0x0]", "LDC R188, c[0x1f][0x4]"]
    assert [decode(w, sampling.control(0), sampling.address_of(i)).text() for i, w in enumerate(words)] == texts
