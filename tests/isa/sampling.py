"""Random legal words of a table row, and the vendor disassembler's text for many words at once."""

import random
from collections.abc import Sequence

from maxdnn.isa import Control, OperandField, Row
from maxdnn.isa.control import join_control_word
from maxdnn.isa.table import put_pieces
from tests import oracles

NOP = 0x50B0000000070F00
IDLE = 0x7E0  # control field without stall, barrier or wait; the one the vendor pads with


def _choose(rng: random.Random, lsb: int, width: int, values: Sequence[int] | None = None) -> int:
    """A field's bits: one of `values`, or any number with the edges (0, all ones, infinities, NaNs) seen often."""
    if values:
        return rng.choice(values) << lsb
    if rng.random() < 0.8:
        return rng.getrandbits(width) << lsb
    ones = (1 << width) - 1
    edges = [0, 1, ones, ones >> 1, ones ^ ones >> 1]
    magnitude = ones >> 1 if width == 32 else ones  # a whole float has its sign in the field, a cut one elsewhere
    for exponent in (8, 11, 5):  # float, double, half
        infinity = magnitude ^ magnitude >> exponent
        edges += [infinity, infinity | 1]
    return rng.choice(edges) << lsb


def _operand_bits(rng: random.Random, row: Row, field: OperandField) -> int:
    """Random bits for one operand: any register, any immediate, only values that have a meaning."""
    s = field.spec
    word = 0
    for key in ("neg_bit", "neg_bit_suffix", "abs_bit", "abs_bit_suffix", "inv_bit", "inv_bit_suffix", "not_bit",
                "cc_bit", "sign_bit"):
        if key in s:
            word |= rng.getrandbits(1) << s[key]
    for part in filter(None, (field.part, field.scale)):
        word |= part.put(rng.choice(list(part.values)))
    if "pieces" in s:
        word |= put_pieces(rng.getrandbits(12) << 2 if "absolute" in s else rng.getrandbits(s["width"]), s["pieces"])
        word |= _register(rng, s["reg"]) if "reg" in s else 0
        return word | (_uniform_register(rng, s["ureg"]) if "ureg" in s else 0)
    match field.type:
        case "literal" | "implied_next_gpr" | "enum_from_modifier":
            return word
        case "addr" | "cbank_indexed":
            word |= _choose(rng, s["off"]["lsb"], s["off"]["w"]) if "off" in s else 0
            word |= _register(rng, s["reg"], "NonRZ" in row.spec.get("name", "")) if "reg" in s else 0
            word |= _uniform_register(rng, s["ureg"]) if "ureg" in s else 0
            return word | (_choose(rng, s["bank"]["lsb"], s["bank"]["w"]) if "bank" in s else 0)
        case "gpr_plus_simm":
            return word | _register(rng, s["reg"]) | _choose(rng, s["lsb"], s["width"])
        case "f16_pair_split":
            return word | sum(_choose(rng, half["lsb"], half.get("w", 9)) | _choose(rng, half["sign"], 1)
                              for half in (s["hi"], s["lo"]))
        case "gpr":
            not_rz = "rz_not_allowed" in s or field.name in row.spec.get("reg_not_rz", ())
            return word | _register(rng, s["lsb"], not_rz)
        case "ugpr":
            return word | _uniform_register(rng, s["lsb"])
        case "cbank":
            banks = range(18) if row.table.word_bits > 64 else None
            return word | _choose(rng, s["lsb"], s["width"]) | _choose(rng, s["bank_lsb"], s["bank_width"], banks)
        case "cx":
            return word | _choose(rng, s["lsb"], s["width"]) | _uniform_register(rng, s["ureg"])
        case "rel_register":
            word |= _register(rng, s["reg"]) if "reg" in s else _uniform_register(rng, s["ureg"])
            return word | _choose(rng, s["lsb"], s["width"])
        case "cbank36":
            return word | _choose(rng, s["lsb"], s["width"]) | _choose(rng, s["bank"], 5)
        case "scoreboard":
            return word | _choose(rng, s["lsb"], s["width"], range(6))
    return word | _choose(rng, s["lsb"], s["width"], list(field.values) if field.values else None)


def _register(rng: random.Random, lsb: int, not_rz: bool = False) -> int:
    """Any register; RZ often enough to be seen."""
    return (255 if not not_rz and rng.random() < 0.1 else rng.randrange(253)) << lsb


def _uniform_register(rng: random.Random, lsb: int) -> int:
    return (63 if rng.random() < 0.1 else rng.randrange(63)) << lsb


def _plus_one(row: Row, word: int) -> bool:
    """Whether both negate bits of an addition are set, which is the row's .PO sibling."""
    return any("plus_one_partner_bit" in s and word >> s[key] & 1 and word >> s["plus_one_partner_bit"] & 1
               for s in (f.spec for f in row.operands) for key in ("neg_bit", "neg_bit_suffix") if key in s)


def random_word(rng: random.Random, row: Row) -> int:
    """One word that is this row's and no more special row's, every field holding a value that has a meaning."""
    while True:
        word = row.value | row.fill
        for field in row.operands:
            word |= _operand_bits(rng, row, field)
        for modifier in row.modifiers.values():
            word |= modifier.put(rng.choice(list(modifier.values)))
        if row.guard:
            word |= (rng.getrandbits(4) if rng.random() < 0.5 else 7) << row.table.guard_lsb
        if row.table.find(word) is row and not _plus_one(row, word):
            return word


def random_reuse(rng: random.Random, row: Row) -> int:
    """Any reuse bits; for textures one of the three phases."""
    return rng.randrange(3 if row.cls.name == "tex" else 8)


def vendor_texts(words: Sequence[int], reuse: Sequence[int], arch: str) -> list[str]:
    """The vendor's text of each word; a word stands at `address_of` its index."""
    padding = -len(words) % 3
    every = list(zip([*words, *[NOP] * padding], [*reuse, *[0] * padding], strict=True))
    stream = []
    for i in range(0, len(every), 3):
        group = every[i:i + 3]
        fields = tuple(IDLE | r << 17 for _, r in group)
        stream += [join_control_word((fields[0], fields[1], fields[2])), *(w for w, _ in group)]
    lines = oracles.instruction_lines(oracles.nvdisasm_raw(stream, arch))
    assert [a for a, _ in lines] == [address_of(i) for i in range(len(every))], "lines are missing"
    return [text for _, text in lines[:len(words)]]


def address_of(index: int) -> int:
    """Byte address of instruction number `index`, control words counted."""
    return index // 3 * 32 + 8 + index % 3 * 8


def control(reuse: int) -> Control:
    return Control.unpack(IDLE | reuse << 17)
