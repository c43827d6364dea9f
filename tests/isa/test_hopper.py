"""The table of sm_90 against the vendor: compiled code and random words of every row print as nvdisasm prints them and
encode back to themselves."""

import collections
import dataclasses
import os
import random
import re

import pytest

from maxdnn import cubin
from maxdnn.isa import Control, Row, decode, encode, hopper
from maxdnn.isa.control import CONTROL_LSB
from tests import oracles
from tests.corpus import compiler, randomprog
from tests.isa import sampling

SEED = 20150301
SAMPLES = int(os.environ.get("MAXDNN_SAMPLES", "24"))  # words of a row; 200 where there is time
IDLE = 0x7E0  # no stall, no barriers
NOP = 0x7918
PROGRAMS = [*compiler.sources(), *(f"random_{seed}.cu" for seed in range(20, 24))]
# Mnemonics the table leaves out that compiled code of these programs has: textures.
LEFT_OUT = {"TLD"}


def _vendor(words: list[int]) -> list[str | None]:
    """The vendor's text of words at 0, 16, ..; None where it refuses one."""
    words, refused = list(words), set()
    while True:
        halves = [half for w in words for half in (w & (1 << 64) - 1, w >> 64)]
        try:
            lines = oracles.instruction_lines(oracles.nvdisasm_raw(halves, "sm_90"))
            break
        except oracles.OracleError as e:
            bad = {int(at, 16) // 16 for at in re.findall(r"at address 0x([0-9a-f]+)", str(e))}
            assert bad, e
            refused |= bad
            for i in bad:
                words[i] = NOP | IDLE << CONTROL_LSB
    texts = dict(lines)
    return [None if i in refused else texts[16 * i] for i in range(len(words))]


def _kernels(program: str) -> list[cubin.CubinKernel]:
    text = randomprog.program(int(program[7:-3])) if program.startswith("random_") else None
    image = compiler.compile_text(text, ".cu", "sm_90") if text else compiler.compile_source(program, "sm_90")
    return list(cubin.read(image).kernels.values())


@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_code_prints_as_the_vendor_prints_it_and_encodes_to_the_same_bits(program: str) -> None:
    for kernel in _kernels(program):
        whole = [w | c.pack() << CONTROL_LSB for _, w, c in kernel.words()]
        for (address, word, control), text in zip(kernel.words(), _vendor(whole), strict=True):
            assert text is not None
            if re.sub(r"^@\S+ ", "", text).split(" ")[0].split(".")[0] in LEFT_OUT:
                assert hopper().find(word) is None
                continue
            inst = decode(word, control, address, hopper())
            assert inst.text() == text
            assert encode(dataclasses.replace(inst, word=0)) == word, text


def test_the_corpus_is_large_enough() -> None:
    assert sum(len(k.code) // hopper().addressing.word for p in PROGRAMS for k in _kernels(p)) > 30_000


def test_random_words_of_every_row_print_as_the_vendor_prints_them_and_encode_back() -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}, {SAMPLES} samples per row")
    rows = [row for row in hopper().rows for _ in range(SAMPLES)]
    words = [sampling.random_word(rng, row) for row in rows]
    seen: collections.Counter[Row] = collections.Counter()
    texts = _vendor([word | IDLE << CONTROL_LSB for word in words])
    for i, (row, word, text) in enumerate(zip(rows, words, texts, strict=True)):
        if text is None or "INVALID" in text or "???" in text:
            continue  # fields that are right one by one and mean nothing together
        seen[row] += 1
        inst = decode(word, Control(), hopper().addressing.address_of(i), hopper())
        assert inst.text() == text, f"{row.spec['name']} 0x{word:032x}"
        assert encode(dataclasses.replace(inst, word=0)) == word, f"{row.spec['name']} {text}"
    poor = [row.spec["name"] for row in hopper().rows if seen[row] < SAMPLES // 4]
    assert not poor, "rows of which the vendor refuses most words"


def test_every_row_is_found_by_a_word_of_its_own() -> None:
    rng = random.Random(SEED)
    for row in hopper().rows:
        assert hopper().find(sampling.random_word(rng, row)) is row


def test_reuse_flags_print_where_the_vendor_prints_them() -> None:
    """The flag of an operand is not always that of its field; a flag on an operand that has none is refused."""
    rng, words, rows = random.Random(SEED), [], []
    for row in hopper().rows:
        for slot in {f.slot for f in row.operands if f.slot is not None}:
            control = Control(stall=1, reuse=1 << slot)
            words.append(sampling.random_word(rng, row) | control.pack() << CONTROL_LSB)
            rows.append((row, control))
    for i, (text, (row, control)) in enumerate(zip(_vendor(words), rows, strict=True)):
        if text is None or "INVALID" in text or "???" in text:
            continue
        word = words[i] & ~(control.pack() << CONTROL_LSB)
        assert decode(word, control, hopper().addressing.address_of(i), hopper()).text() == text, row.spec["name"]
