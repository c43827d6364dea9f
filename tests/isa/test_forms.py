"""Every form of operands that the vendor's disassembler accepts, swept by form and not by what compiled code happened
to hold: it decodes to the vendor's text and encodes to its bits, or stands in a list of what is left out.

nvdisasm checks the stall and reuse bits of a word by tables of its form, and its error names the form; so words with
bits that no form allows tell which form each of them is. forms.json has a word of each form; blind words look for forms
that it has not."""

import dataclasses
import functools
import json
import operator
import pathlib
import random
import re

import pytest

from maxdnn.isa import Control, Row, Table, Undecodable, encode, read_word, table_of
from maxdnn.isa.control import CONTROL_LSB
from maxdnn.isa.table import put_pieces
from tests import oracles
from tests.isa.test_hopper import ARCHS, IDLE, _vendor
from tools import forms_table

SEED = 24
BLIND = 3  # words of each of the 4096 opcodes
VARIED = 3  # words of each served form, varied where nobody asked
NO_FORM = (IDLE | 0x1F | 0xF << 17) << CONTROL_LSB  # stall, yield and reuse bits that no form allows together
OPCODES = 1 << 12
DATA = json.loads(pathlib.Path(__file__).with_name("forms.json").read_text())
FAMILIES = {name for names in DATA["left_out"].values() for name in names.split()}


def _forms(words: list[int], arch: str) -> list[str | None]:
    """The form of each word as `opcode name`; None where it is no instruction."""
    found: list[str | None] = [None] * len(words)
    halves = [half for w in words for half in ((w | NO_FORM) & (1 << 64) - 1, (w | NO_FORM) >> 64)]
    with pytest.raises(oracles.OracleError) as refused:
        oracles.nvdisasm_raw(halves, arch)
    for name, address in re.findall(r"Opclass '(\S+)', undefined value \S+ for table '\S+' at address (0x[0-9a-f]+)",
                                    str(refused.value)):
        index = int(address, 16) // 16
        found[index] = f"{words[index] & OPCODES - 1:03x} {name}"
    return found


def left_out(form: str, arch: str) -> str:
    """Why a form is left out on an architecture; empty if it is served."""
    family = form.split(" ")[1].split("_")[0].upper()
    reasons = [why for why, names in DATA["left_out"].items() if family in names.split()]
    reasons += [why for why, forms in DATA["left_out_forms"].items() if arch[3:] in forms.get(form, "").split()]
    return reasons[0] if reasons else ""


def known(arch: str) -> dict[str, int]:
    """A word of each form of an architecture."""
    return {form: int(word, 16) for form, words in DATA["forms"].items() for word, archs in words.items()
            if arch[3:] in archs.split()}


def _clean(text: str | None) -> bool:
    return text is not None and "INVALID" not in text and "???" not in text


@functools.cache
def _texts(words: tuple[int, ...], arch: str) -> list[str | None]:
    return _vendor([word | IDLE << CONTROL_LSB for word in words], arch)


@functools.cache
def _owned(row: Row) -> int:
    """The bits of a row's word that its operands, modifiers and guard own."""
    parts = [field for op in row.operands for field in (op.part, op.scale) if field is not None]
    bits = (0xF << row.table.guard_lsb) if row.guard else 0
    for field in (*row.modifiers.values(), *parts):
        bits |= field.put(-1)
    for op in row.operands:
        s = op.spec
        bits |= sum(1 << at for key, at in s.items() if key.endswith("_bit"))
        bits |= put_pieces(-1, s["pieces"]) if "pieces" in s else 0
        places = [(s["lsb"], s.get("width", 8))] if "lsb" in s and "pieces" not in s else []
        places += [(s[key], width) for key, width in (("reg", 8), ("ureg", 6), ("bank_lsb", 5)) if key in s]
        places += [(s[key]["lsb"], s[key]["w"]) for key in ("off", "bank") if key in s]
        bits |= sum((1 << width) - 1 << lsb for lsb, width in places)
    return bits


def _check(table: Table, word: int, address: int, text: str) -> str:
    """What is wrong with a word whose text is the vendor's; empty if nothing is."""
    inst = read_word(word, Control(), address, table)
    if isinstance(inst, Undecodable):
        return inst.why
    if inst.text() != text:
        return f"prints {inst.text()}"
    again = encode(dataclasses.replace(inst, word=0))
    if (again ^ word) & (_owned(inst.row) | inst.row.mask):
        return f"encodes to 0x{again:032x}"
    return ""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_form_has_the_vendors_text_and_its_bits_or_is_left_out_by_name(arch: str) -> None:
    table, forms = table_of(arch), known(arch)
    assert len(forms) > 900
    assert _forms(list(forms.values()), arch) == list(forms), "a word is not of the form that it stands for"
    wrong, needless = [], []
    for i, (form, text) in enumerate(zip(forms, _texts(tuple(forms.values()), arch), strict=True)):
        problem = _check(table, forms[form], 16 * i, text) if text is not None and _clean(text) else "no text"
        if problem and not left_out(form, arch):
            wrong.append(f"{form} 0x{forms[form]:032x} {text}: {problem}")
        elif not problem and left_out(form, arch):
            needless.append(form)
    assert not wrong, f"{len(wrong)}: {wrong[:20]}"
    assert not needless, "served, and on the list of what is left out"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ARCHS)
def test_blind_words_of_all_opcodes_find_no_form_that_is_not_listed(arch: str) -> None:
    """And those of a served form have its text. Bits that belong to no field of a row may be anything there: the word
    without them must print the same."""
    rng, table, forms = random.Random(SEED), table_of(arch), known(arch)
    print(f"seed {SEED}")
    words = []
    for opcode in range(OPCODES):
        for n in range(BLIND):
            bits = rng.getrandbits(128)
            bits &= rng.getrandbits(128) if n % 3 == 1 else -1
            words.append(opcode | 7 << 12 | bits & (1 << 102) - (1 << 16))
    for word in forms.values():
        for _ in range(VARIED):
            at = rng.randrange(16, 96)
            words.append(word ^ rng.getrandbits(rng.choice((1, 4, 8))) << at & (1 << 102) - (1 << 16))
    found = _forms(words, arch)
    assert len({form for form in found if form}) > 600
    new = sorted({form for form in found if form and form not in forms})
    assert not new, "forms that forms.json has not"
    served = [(form, word) for form, word in zip(found, words, strict=True) if form and not left_out(form, arch)]
    _same_without_what_nobody_owns(table, served, arch)


def _plain(row: Row, word: int) -> int:
    """The word without bits that no field owns, or that no value of its field has."""
    parts = [field for op in row.operands for field in (op.part, op.scale) if field is not None]
    for field in (*row.modifiers.values(), *parts):
        every = functools.reduce(operator.or_, field.values)
        word = word & ~field.put(-1) | field.put(field.get(word) & every)
    return word & _owned(row) & ~row.mask | row.value | row.fill & ~_owned(row)


def _same_without_what_nobody_owns(table: Table, served: list[tuple[str, int]], arch: str) -> None:
    """But for targets, which depend on where a word stands. Where no row has the word as it is, one of the opcode's
    must."""
    rows = {opcode: [row for row in table.rows if row.value % OPCODES == opcode] for opcode in range(OPCODES)}
    tried: list[tuple[str, str, int]] = []  # what it stands for, its text, the word without bits of nobody's
    for (form, word), text in zip(served, _texts(tuple(word for _, word in served), arch), strict=True):
        found = table.find(word)
        for row in [found] if found is not None else rows[word % OPCODES]:
            if text is not None and _clean(text) and not any(op.type.startswith("rel_") for op in row.operands):
                tried.append((f"{form} 0x{word:032x} {text}", text, _plain(row, word)))
    texts = _texts(tuple(plain for *_, plain in tried), arch)
    problems: dict[str, str] = {}
    for i, ((what, text, plain), other) in enumerate(zip(tried, texts, strict=True)):
        problem = "bits that no field owns change its text" if other != text else _check(table, plain, 16 * i, text)
        problems[what] = problem if problems.get(what, problem) else ""
    assert len(problems) > 2000
    wrong = [f"{what}: {problem}" for what, problem in problems.items() if problem]
    assert not wrong, f"{len(wrong)} of {len(problems)}: {wrong[:20]}"


def test_the_page_of_forms_is_drawn_from_this_list() -> None:
    assert forms_table.PAGE.read_text() == forms_table.page(DATA), "run python tools/forms_table.py"


def test_what_is_left_out_is_there() -> None:
    """No name on the list is of nothing."""
    families = {form.split(" ")[1].split("_")[0].upper() for form in DATA["forms"]}
    assert families >= FAMILIES
    for forms in DATA["left_out_forms"].values():
        for form, archs in forms.items():
            assert all(form in known(f"sm_{arch}") for arch in archs.split()), form
