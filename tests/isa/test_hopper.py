"""The table of sm_90 against the vendor: compiled code and random words of every row print as nvdisasm prints them and
encode back to themselves."""

import collections
import dataclasses
import os
import random
import re

import pytest

from maxdnn import cubin
from maxdnn.isa import Control, Row, decode, encode, hopper, table_of
from maxdnn.isa.control import CONTROL_LSB
from tests import oracles
from tests.corpus import compiler, randomprog
from tests.isa import sampling

SEED = 20150301
SAMPLES = int(os.environ.get("MAXDNN_SAMPLES", "24"))  # words of a row; 200 where there is time
IDLE = 0x7E0  # no stall, no barriers
NOP = 0x7918
PROGRAMS = [*compiler.sources(), *(f"random_{seed}.cu" for seed in range(20, 24))]
OLDER = ("sm_80", "sm_86", "sm_89")
ARCHS = (*OLDER, "sm_90")
COMPILED = [(arch, program) for program in PROGRAMS for arch in ARCHS]


def _vendor(words: list[int], arch: str = "sm_90") -> list[str | None]:
    """The vendor's text of words at 0, 16, ..; None where it refuses one."""
    words, refused = list(words), set()
    while True:
        halves = [half for w in words for half in (w & (1 << 64) - 1, w >> 64)]
        try:
            lines = oracles.instruction_lines(oracles.nvdisasm_raw(halves, arch))
            break
        except oracles.OracleError as e:
            bad = {int(at, 16) // 16 for at in re.findall(r"at address 0x([0-9a-f]+)", str(e))}
            assert bad, e
            refused |= bad
            for i in bad:
                words[i] = NOP | IDLE << CONTROL_LSB
    texts = dict(lines)
    return [None if i in refused else texts.get(16 * i) for i in range(len(words))]  # it prints nothing for a few


def _kernels(program: str, arch: str) -> list[cubin.CubinKernel]:
    text = randomprog.program(int(program[7:-3])) if program.startswith("random_") else None
    image = compiler.compile_text(text, ".cu", arch) if text else compiler.compile_source(program, arch)
    return list(cubin.read(image).kernels.values())


@pytest.mark.sampled(2, 12)
@pytest.mark.parametrize(("arch", "program"), COMPILED)
def test_compiled_code_prints_as_the_vendor_prints_it_and_encodes_to_the_same_bits(arch: str, program: str) -> None:
    table, every = table_of(arch), [word for kernel in _kernels(program, arch) for word in kernel.words()]
    texts = _vendor([w | c.pack() << CONTROL_LSB for _, w, c in every], arch)
    for i, ((_, word, control), text) in enumerate(zip(every, texts, strict=True)):
        assert text is not None
        inst = decode(word, control, table.addressing.address_of(i), table)
        assert inst.text() == text
        assert encode(dataclasses.replace(inst, word=0)) == word, text


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_corpus_is_large_enough(arch: str) -> None:
    assert sum(len(k.words()) for p in PROGRAMS for k in _kernels(p, arch)) > 30_000


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ARCHS)
def test_random_words_of_every_row_print_as_the_vendor_prints_them_and_encode_back(arch: str) -> None:
    rng, table = random.Random(SEED), table_of(arch)
    print(f"seed {SEED}, {SAMPLES} samples per row")
    rows = [row for row in table.rows for _ in range(SAMPLES)]
    words = [sampling.random_word(rng, row) for row in rows]
    seen: collections.Counter[Row] = collections.Counter()
    texts = _vendor([word | IDLE << CONTROL_LSB for word in words], arch)
    for i, (row, word, text) in enumerate(zip(rows, words, texts, strict=True)):
        if text is None or "INVALID" in text or "???" in text:
            continue  # fields that are right one by one and mean nothing together
        seen[row] += 1
        inst = decode(word, Control(), table.addressing.address_of(i), table)
        assert inst.text() == text, f"{row.spec['name']} 0x{word:032x}"
        assert encode(dataclasses.replace(inst, word=0)) == word, f"{row.spec['name']} {text}"
    poor = [row.spec["name"] for row in table.rows if seen[row] < SAMPLES // 4]
    assert not poor, "rows of which the vendor refuses most words"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", OLDER)
def test_what_an_architecture_lacks_does_not_exist_there_or_prints_otherwise(arch: str) -> None:
    """Rows and values that its table leaves out are left out with reason."""
    rng, words, said = random.Random(SEED), [], []
    known = {row.spec["name"]: row for row in table_of(arch).rows}
    for row in hopper().rows:
        other = known.get(row.spec["name"])
        if other is None:
            words.append(sampling.random_word(rng, row))
            said.append(row.spec["name"])
            continue
        for name, field in row.modifiers.items():
            there = set(other.modifiers[name].values.values())
            for value, text in field.values.items():
                if text not in there:
                    words.append(sampling.random_word(rng, row) & ~field.put(-1) | field.put(value))
                    said.append(f"{row.spec['name']} {text}")
    assert words
    for what, word, old, new in zip(said, words, _vendor([w | IDLE << CONTROL_LSB for w in words], arch),
                                    _vendor([w | IDLE << CONTROL_LSB for w in words]), strict=True):
        assert old is None or "INVALID" in old or "???" in old or old != new, f"{what} 0x{word:032x} {old}"


@pytest.mark.parametrize("arch", ARCHS)
def test_every_row_is_found_by_a_word_of_its_own(arch: str) -> None:
    rng, table = random.Random(SEED), table_of(arch)
    for row in table.rows:
        assert table.find(sampling.random_word(rng, row)) is row


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ARCHS)
def test_reuse_flags_print_where_the_vendor_prints_them(arch: str) -> None:
    """The flag of an operand is not always that of its field; a flag on an operand that has none is refused."""
    table, rng, words, rows = table_of(arch), random.Random(SEED), [], []
    for row in table.rows:
        for slot in {f.slot for f in row.operands if f.slot is not None}:
            control = Control(stall=1, reuse=1 << slot)
            words.append(sampling.random_word(rng, row) | control.pack() << CONTROL_LSB)
            rows.append((row, control))
    for i, (text, (row, control)) in enumerate(zip(_vendor(words, arch), rows, strict=True)):
        if text is None or "INVALID" in text or "???" in text:
            continue
        word = words[i] & ~(control.pack() << CONTROL_LSB)
        assert decode(word, control, table.addressing.address_of(i), table).text() == text, row.spec["name"]
