"""The ISA table as Python values. maxwell.json is the only copy of an encoding; the assembler reads it too."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

RZ = 255  # the general register that reads zero
PT = 7  # the predicate that is always true
CC_TRUE = 15  # the test of the condition code that always holds
TABLE_PATH = Path(__file__).with_name("maxwell.json")


@dataclass(frozen=True, slots=True)
class InstructionClass:
    """How instructions of one class behave in time (see "conventions" in maxwell.json)."""

    name: str
    pipe: str
    latency: str  # "fixed" or "variable"
    result_cycles: int
    read_cycles: int
    issue_cycles: int
    dual_second: bool
    sched_latency: int
    sched_throughput: int


@dataclass(frozen=True, slots=True)
class Field:
    """A bit field with a string for each value: a modifier, or the sub-word selector of an operand."""

    lsb: int
    width: int
    values: Mapping[int, str]
    bits: tuple[int, ...] | None = None  # scattered two-part fields (IMAD): low part at bits[0], bit 5 at bits[1]

    def raw(self, text: str) -> int:
        """The field value printed as `text` (without leading dot); the first if there are several."""
        return next(k for k, v in self.values.items() if v.strip(".") == text)

    def get(self, word: int) -> int:
        if self.bits:
            return (word >> self.bits[0] & 1) | (word >> self.bits[1] & 1) << (self.width - 1)
        return word >> self.lsb & ((1 << self.width) - 1)

    def put(self, value: int) -> int:
        if self.bits:
            return (value & 1) << self.bits[0] | (value >> (self.width - 1) & 1) << self.bits[1]
        return (value & ((1 << self.width) - 1)) << self.lsb


@dataclass(frozen=True)
class OperandField:
    """One operand of a row: name, type, access ("r", "w", "rw") and the bits it lives in (`spec`, as in the table)."""

    name: str
    type: str
    access: str
    spec: Mapping[str, Any]
    part: Field | None
    values: Mapping[int, str] | None
    slot: int | None


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction form."""

    index: int
    mnemonic: str
    form: str
    min_arch: str
    cls: InstructionClass
    value: int
    mask: int
    guard: bool
    text: str
    operands: tuple[OperandField, ...]
    modifiers: Mapping[str, Field]
    spec: Mapping[str, Any]

    @cached_property
    def opcode(self) -> str:
        """The bare mnemonic (`FFMA`, `BAR`): what semantics are looked up by, with `mnemonic` for specialised rows."""
        return self.mnemonic.split(".")[0]

    def operand(self, name: str) -> OperandField:
        for field in self.operands:
            if field.name == name:
                return field
        raise KeyError(name)


class Table:
    """All rows, the scheduling classes and the special registers; `find` picks the row of a word."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._sets = data["sets"]
        self.classes = {n: InstructionClass(n, **c) for n, c in data["classes"].items()}
        self.reuse_entries: int = data["operand_cache"]["entries"]  # of each source slot's reuse cache
        self.special_registers = {int(k): v for k, v in data["special_registers"].items()}
        self.special_registers_sm60 = {int(k): v for k, v in data["special_registers_sm60_extra"].items()}
        self.cc_tests = {k: v.strip(".") for k, v in self._values("cc").items()}  # by the 5-bit field of a branch
        self.rows = tuple(self._row(i, r) for i, r in enumerate(data["rows"]))
        self._buckets = self._bucket_rows()

    def find(self, word: int) -> Row | None:
        """The most specific row that matches the word, or None."""
        for row in self._buckets[word >> 56]:
            if word & row.mask == row.value:
                return row
        return None

    def named(self, mnemonic: str) -> tuple[Row, ...]:
        return tuple(r for r in self.rows if r.mnemonic == mnemonic)

    def _bucket_rows(self) -> list[list[Row]]:
        ordered = sorted(self.rows, key=lambda r: -r.mask.bit_count())
        return [[r for r in ordered if (top ^ r.value >> 56) & r.mask >> 56 == 0] for top in range(256)]

    def _values(self, values: Any) -> Mapping[int, str]:
        if isinstance(values, str):
            values = self._sets[values]
        return {int(k): v for k, v in values.items()}

    def _field(self, spec: Mapping[str, Any]) -> Field:
        bits = tuple(spec["bits"]) if "bits" in spec else None
        return Field(spec["lsb"], spec["width"], self._values(spec["values"]), bits)

    def _operand(self, spec: Mapping[str, Any]) -> OperandField:
        part = self._field(spec["part"]) if "part" in spec else None
        values = self._values(spec["values"]) if "values" in spec else None
        return OperandField(spec["name"], spec["type"], spec["access"], spec, part, values, spec.get("slot"))

    def _row(self, index: int, r: Mapping[str, Any]) -> Row:
        return Row(
            index, r["mnemonic"], r["form"], r["min_arch"], self.classes[r["class"]],
            int(r["value"], 16), int(r["mask"], 16), r["guard"], r["text"],
            tuple(self._operand(o) for o in r["operands"]),
            {k: self._field(m) for k, m in r["modifiers"].items()}, r,
        )


TABLE = Table(json.loads(TABLE_PATH.read_text()))
