"""Words a few bits away from those of the table: what is decoded says what the vendor's disassembler says, what is
encoded again means the same, and what means nothing is refused. MAXDNN_SAMPLES sets how many words of either set."""

import dataclasses
import os
import random
import re
from collections.abc import Callable, Sequence

import pytest

from maxdnn.errors import DecodeError
from maxdnn.isa import TABLE, Control, Table, decode, encode, hopper
from maxdnn.isa.control import CONTROL_LSB, join_control_word
from tests import oracles
from tests.isa import sampling

COUNT = 100 * int(os.environ.get("MAXDNN_SAMPLES", "24"))
SHOWN = ("INVALID", "???")  # by the vendor, for a value without meaning


def _flipped(table: Table, bits: int, seed: int) -> list[int]:
    rng, words = random.Random(seed), []
    rows = [row for row in table.rows if row.min_arch <= "sm_52" or table.word_bits > 64]
    for _ in range(COUNT):
        word = sampling.random_word(rng, rng.choice(rows))
        for _ in range(rng.choice([1, 1, 2, 3])):
            word ^= 1 << rng.randrange(bits)
        words.append(word)
    return words


def _vendor(words: Sequence[int], stream: Callable[[list[int]], list[int]], index: Callable[[int], int],
            address: Callable[[int], int], nop: int, arch: str) -> list[str | None]:
    """The vendor's text of each word, None where it has none."""
    words, refused = list(words), set[int]()
    while True:
        try:
            lines = dict(oracles.instruction_lines(oracles.nvdisasm_raw(stream(words), arch)))
            break
        except oracles.OracleError as e:
            bad = {index(int(at, 16)) for at in re.findall(r"at address 0x([0-9a-f]+)", str(e))}
            assert bad - refused, e
            refused |= bad
            for i in bad:
                words[i] = nop
    texts = [None if i in refused else lines.get(address(i)) for i in range(len(words))]
    return [None if text is None or any(sign in text for sign in SHOWN) else text for text in texts]


def _maxwell(words: list[int]) -> list[str | None]:
    def stream(words: list[int]) -> list[int]:
        groups = [[*words[i:i + 3], *[sampling.NOP] * 2][:3] for i in range(0, len(words), 3)]
        return [word for group in groups for word in (join_control_word((sampling.IDLE,) * 3), *group)]
    return _vendor(words, stream, lambda at: at // 32 * 3 + at % 32 // 8 - 1, sampling.address_of, sampling.NOP,
                   "sm_52")


def _hopper(words: list[int]) -> list[str | None]:
    idle = sampling.IDLE << CONTROL_LSB

    def stream(words: list[int]) -> list[int]:
        return [half for word in words for half in ((word | idle) & (1 << 64) - 1, (word | idle) >> 64)]
    return _vendor(words, stream, lambda at: at // 16, lambda i: 16 * i, 0x7918, "sm_90")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("table", "bits", "vendor"), [(TABLE, 64, _maxwell), (hopper(), 105, _hopper)],
                         ids=["Maxwell", "Hopper"])
def test_what_is_decoded_is_what_the_vendor_reads(table: Table, bits: int, vendor: Callable) -> None:
    words, same = _flipped(table, bits, 20150302), 0
    address = sampling.address_of if table is TABLE else hopper().addressing.address_of
    for i, (word, text) in enumerate(zip(words, vendor(words), strict=True)):
        try:
            inst = decode(word, Control(), address(i), table)
        except DecodeError:
            continue
        again = decode(encode(dataclasses.replace(inst, word=0)), Control(), address(i), table)
        assert again.text() == inst.text(), f"0x{word:032x}"
        assert text is None or _spelled(inst.text()) == text, f"0x{word:032x}"
        same += text is not None
    assert same > COUNT // 2


def _spelled(text: str) -> str:
    """As the vendor does it, who shows no scale of the zero that an ATOMS adds to its offset."""
    return re.sub(r"(ATOMS.*)\[RZ\.X\d+\+(?=-?0x)", r"\1[", text)


@pytest.mark.parametrize(("table", "word", "what"), [
    (TABLE, 0x4ce2a22f5e052ac1, "I2I has no meaning for value 1 of its operand 'b'"),  # .B1 of 32 bits
    (TABLE, 0x502f8110bff7afc6, "VABSDIFF4 has no meaning for value 11 of its operand 'b'"),
    (TABLE, 0xf0f002003af7002c, "DEPBAR.LE has no meaning for value 6 of its operand 'sb'"),
    (TABLE, 0xc4a0018d1cb15eb6, "no Maxwell instruction"),  # TEX.LC
    (TABLE, 0xde9601007576ffff, "no Maxwell instruction"),  # TEX.B.LC
    (hopper(), 0x2700f8018000525f3430, "HADD2 has no meaning for value 1 of its operand 'a'"),
    (hopper(), 0x1303000200ff19be7239, "I2IP has no meaning for value 3 of its operand 'c'"),
    (hopper(), 0xe7440000191a, "DEPBAR has no meaning for value 6 of its operand 'sb'"),
    (hopper(), 0x40024ea10080a29dfcff59338a, "no Hopper instruction"),  # ?PM1
])
def test_a_value_without_meaning_is_refused(table: Table, word: int, what: str) -> None:
    with pytest.raises(DecodeError, match=what):
        decode(word, Control(), 0, table)


@pytest.mark.parametrize("table", [TABLE, hopper()], ids=["Maxwell", "Hopper"])
def test_no_bit_that_is_always_set_is_an_operands(table: Table) -> None:
    """Else the assembler would change what is written: MUFU.RCP of 2.0 was that of -2.0."""
    rng = random.Random(1)
    for row in table.rows:
        if row.fill:
            fields = row.modifiers.values()
            least = sum(field.put(min(field.values)) for field in fields if field.values and 0 not in field.values)
            read = decode(row.value | row.fill | least, Control(), 0, table).text()
            word = sampling.random_word(rng, row) & ~row.fill
            assert decode(word, Control(), 0, table).text() == decode(word | row.fill, Control(), 0, table).text(), read
