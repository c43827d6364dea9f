"""Words that are no instruction, and decoding of random bits."""

import random

import pytest

from maxdnn.errors import DecodeError
from maxdnn.isa import TABLE, Control, decode, encode

SEED = 5


@pytest.mark.parametrize(("word", "words"), [
    (0x0000000000000000, "0x0000000000000000 at 0x0008 is no Maxwell instruction"),
    (0xFFFFFFFFFFFFFFFF, "is no Maxwell instruction"),
    (0x5C68060000000000 | 7 << 16 | 1 << 43, "FMUL has no meaning for value 7 of its field 'scale'"),
    (0xDD00000050000000 | 7 << 16, "TLD.B has no meaning for value 5 of its operand 'dim'"),
])
def test_a_word_without_meaning_is_refused_by_name(word: int, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode(word, Control(), 8)


def test_a_texture_phase_that_does_not_exist_is_refused() -> None:
    word = 0xDD9A003780870004
    assert decode(word, Control(reuse=2), 8).text().startswith("TLD.B.")
    with pytest.raises(DecodeError, match="texture phase 3"):
        decode(word, Control(reuse=3), 8)


def test_random_bits_decode_or_are_refused_and_their_known_bits_survive() -> None:
    """Bits that belong to no field are dropped; decoding what is left gives the same instruction again."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    decoded = 0
    for _ in range(20_000):
        word = rng.getrandbits(64)
        try:
            inst = decode(word, Control(), 0x48)
        except DecodeError:
            continue
        decoded += 1
        kept = encode(inst)
        if TABLE.find(kept) is inst.row:
            assert decode(kept, Control(), 0x48).text() == inst.text()
    assert decoded > 2_000
