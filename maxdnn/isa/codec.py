"""Words to instructions and back, derived from the table. Nothing here knows a particular opcode."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import DecodeError
from .control import CONTROL_BITS, CONTROL_LSB, Control, split_control_word
from .instruction import Instruction
from .operand import Guard, Operand
from .table import RZ, TABLE, Field, OperandField, Row, Table


def _bits(word: int, lsb: int, width: int) -> int:
    return word >> lsb & ((1 << width) - 1)


# -- words --------------------------------------------------------------------------------------------------------


def words(code: bytes, table: Table) -> Iterator[tuple[int, int, Control]]:
    """(byte address, word without control code, control code) of every instruction slot of some code."""
    size, group = table.addressing.word, table.addressing.group
    if not group:
        for address in range(0, len(code), size):
            word = int.from_bytes(code[address:address + size], "little")
            yield address, word & ~(CONTROL_BITS << CONTROL_LSB), Control.unpack(word >> CONTROL_LSB & CONTROL_BITS)
        return
    for base in range(0, len(code), group):
        control, *found = struct.unpack_from(f"<{group // size}Q", code, base)
        for i, (word, field) in enumerate(zip(found, split_control_word(control), strict=True)):
            yield base + size + size * i, word, Control.unpack(field)


# -- decoding -----------------------------------------------------------------------------------------------------


def _numbers(field: OperandField, word: int, address: int) -> dict[str, int]:
    """Value, bank and registers of an operand."""
    found = {"value": 0}
    for number in field.numbers:
        found[number.name] = found.get(number.name, 0) + number.get(word, address)
    return found


def _regs(rule: Any, row: Row, word: int) -> int:
    """How many registers an operand covers, by the rule in its "regs" (see the conventions in the table)."""
    if isinstance(rule, int):
        return rule
    if isinstance(rule, list):
        return sum(_regs(part, row, word) for part in rule)
    if "popcount" in rule:
        mask = row.operand(rule["popcount"]).spec
        return max(1, _bits(word, mask["lsb"], mask["width"]).bit_count())
    by = row.modifiers.get(rule["by"])
    if by is None:
        spec = row.operand(rule["by"]).spec
        raw = _bits(word, spec["lsb"], spec["width"])
    else:
        raw = by.get(word)
    if "each" in rule:
        return int(rule["each"]) * (raw + 1)
    return _regs(rule["map"].get(str(raw), rule.get("default", 1)), row, word)


def _told(field: Field, of: str, row: Row, word: int, address: int) -> str:
    """What a field says of the instruction. Raises DecodeError for a value that says nothing."""
    text = field.values.get(field.get(word))
    if text is None:
        raise DecodeError(f"word 0x{word:016x} at 0x{address:04x}: {row.mnemonic} has no meaning for value "
                          f"{field.get(word)} of its {of}")
    return text.strip(".")


def _operand(field: OperandField, row: Row, word: int, address: int) -> Operand:
    flags = {name: bool(word >> bit & 1) for name, bit in field.flags}
    part, scale = (_told(of, f"operand '{field.name}'", row, word, address) if of else ""
                   for of in (field.part, field.scale))
    regs = _regs(field.spec.get("regs", 1), row, word)
    return Operand(field, part=part or scale, regs=regs, **flags, **_numbers(field, word, address))  # type: ignore[arg-type]


def _implied(row: Row, word: int, operands: list[Operand]) -> list[Operand]:
    """Fill the operands that have no bits of their own: the register after another, a dimension told by a modifier."""
    for i, op in enumerate(operands):
        s = op.field.spec
        if op.type == "implied_next_gpr":
            step = s["step"]["map"][str(row.modifiers[s["step"]["sel"]].get(word))]
            of = next(o for o in operands if o.name == s["of"]).value
            operands[i] = Operand(op.field, RZ if of == RZ else of + step, regs=step)
        elif op.type == "enum_from_modifier":
            operands[i] = Operand(op.field, row.modifiers[s["of"]].get(word))
    return operands


def decode(word: int, control: Control, address: int, table: Table = TABLE) -> Instruction:
    """Decode the `word` (of 64 or 128 bits, without control code) at byte `address` by a table. Raises DecodeError for
    a word no row matches, one whose modifier or enum field holds a value the table does not know, or a texture phase
    that does not exist."""
    row = table.find(word)
    if row is None:
        raise DecodeError(f"word 0x{word:0{table.word_bits // 4}x} at 0x{address:04x} is no {table.name} instruction")
    mods = {name: _told(field, f"field '{name}'", row, word, address) for name, field in row.modifiers.items()}
    operands = _implied(row, word, [_operand(f, row, word, address) for f in row.operands])
    for op in operands:
        if (op.field.values and op.value not in op.field.values) or (op.type == "scoreboard" and op.value > 5):
            raise DecodeError(f"word 0x{word:016x} at 0x{address:04x}: {row.mnemonic} has no meaning for value "
                              f"{op.value} of its operand '{op.name}'")
    if row.cls.name == "tex" and control.reuse & 3 == 3:
        raise DecodeError(f"control code of {row.mnemonic} at 0x{address:04x}: there is no texture phase 3")
    guard = Guard()
    if row.guard:
        lsb = table.guard_lsb
        guard = Guard(_bits(word, lsb, 3), bool(word >> lsb + 3 & 1), row.uniform_guard)
    return Instruction(address, word, control, row, guard, tuple(operands), mods)


@dataclass(frozen=True)
class Undecodable:
    """A word that is no instruction of its table, and why."""

    address: int
    word: int
    control: Control
    why: str


def read_word(word: int, control: Control, address: int, table: Table = TABLE) -> Instruction | Undecodable:
    """`decode`, or what could not be decoded."""
    try:
        return decode(word, control, address, table)
    except DecodeError as e:
        return Undecodable(address, word, control, str(e))


# -- encoding -----------------------------------------------------------------------------------------------------


def _put_operand(op: Operand, address: int) -> int:
    word = 0
    for number in op.field.numbers:
        word |= number.put(getattr(op, number.name), address)
    for name, bit in op.field.flags:
        if getattr(op, name):
            word |= 1 << bit
    if op.field.part or op.field.scale:
        part = op.field.part or op.field.scale
        word |= part.put(part.raw(op.part))  # type: ignore[union-attr]
    return word


def _raw_modifiers(inst: Instruction) -> Iterator[int]:
    """The bits of each modifier. Where several values of one print alike, an operand tells which is meant."""
    told = {op.field.spec["of"]: op.value for op in inst.operands if op.type == "enum_from_modifier"}
    for name, field in inst.row.modifiers.items():
        yield field.put(told[name] if name in told else field.raw(inst.mods[name]))


def encode(inst: Instruction) -> int:
    """The word of an instruction (without control code), built from its row, guard, operands and modifiers (never from
    `word`)."""
    row = inst.row
    word = row.value | row.fill
    if row.guard:
        word |= (inst.guard.index | inst.guard.negated << 3) << row.table.guard_lsb
    for op in inst.operands:
        word |= _put_operand(op, inst.address)
    for bits in _raw_modifiers(inst):
        word |= bits
    return word
