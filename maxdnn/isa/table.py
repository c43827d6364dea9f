"""The ISA tables as Python values: maxwell.json and hopper.json are the only copies of an encoding; the assembler reads
them too."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .addressing import Addressing

RZ = 255  # the general register that reads zero
# Of a thread, the last: launches and USETMAXREG count them in from sm_70 on; to name one is an illegal instruction.
SYSTEM_REGISTERS = 2
PT = 7  # the predicate that is always true
URZ = 63  # the uniform register that reads zero
CC_TRUE = 15  # the test of the condition code that always holds
TABLE_PATH = Path(__file__).with_name("maxwell.json")
HOPPER_PATH = Path(__file__).with_name("hopper.json")
_LEAVING = frozenset(["jump", "call", "pop", "end", "far", "trap"])


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
    told: bool = False  # of fixed latency, and a write barrier may tell of its result all the same
    queue: str = ""  # from which operands are read in the order of issue; a row may have one of its own
    order: str = ""  # results of one such kind come in the order of issue; a row, or what is done to memory, may differ


@dataclass(frozen=True, slots=True)
class Access:
    """What an opcode does to memory. `spaces`: those an address may lie in, several for a generic one; `does`: load,
    store, atomic, sum (an atomic without result) or exchange (between lanes, in no space); `order`: operations of one
    such kind complete in the order of their issue ("" for none)."""

    spaces: frozenset[str]
    does: str
    order: str

    @property
    def atomic(self) -> bool:
        return self.does in ("atomic", "sum")

    @property
    def only_writes(self) -> bool:
        """Whether nothing comes back."""
        return self.does in ("store", "sum")


@dataclass(frozen=True, slots=True)
class Flow:
    """What an opcode does to control. `does`: jump, call, push (an address that a pop goes to), pop, place (an address
    for something else), end (of the thread), far (goes where a place said), trap, meet (lanes wait for each other) or
    barrier (warps of a block do). `stack`: the kind of entry that is pushed or popped; `relative`: a target in a
    register counts from the next word."""

    does: str
    stack: str = ""
    relative: bool = False

    @property
    def leaves(self) -> bool:
        """Whether control may go on elsewhere than behind it, or end."""
        return self.does in _LEAVING


def get_pieces(word: int, pieces: Iterable[Sequence[int]]) -> int:
    """The value whose bits lie scattered over a word."""
    value = at = 0
    for lsb, width in pieces:
        value |= (word >> lsb & ((1 << width) - 1)) << at
        at += width
    return value


def put_pieces(value: int, pieces: Iterable[Sequence[int]]) -> int:
    """The bits of a word that hold a scattered value."""
    word = 0
    for lsb, width in pieces:
        word |= (value & ((1 << width) - 1)) << lsb
        value >>= width
    return word


def merged(base: Any, change: Any) -> Any:
    """What stands in a table, with what `change` says instead: objects by key, lists of operands by name; null takes
    away."""
    if isinstance(base, list) and isinstance(change, Mapping):
        return [merged(one, change.get(one["name"], {})) for one in base]
    if not isinstance(base, Mapping) or not isinstance(change, Mapping):
        return change
    both = {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}
    return {key: value for key, value in both.items() if value is not None}


def as_of(data: Mapping[str, Any], arch: str) -> Mapping[str, Any]:
    """A table or a row as an architecture has it: its `before` tells what was otherwise before a later one."""
    for later in sorted(data.get("before", {}), reverse=True):
        data = merged(data, data["before"][later]) if arch < later else data
    return data


@dataclass(frozen=True, slots=True)
class Field:
    """A bit field with a string for each value: a modifier, or the sub-word selector of an operand."""

    lsb: int
    width: int
    values: Mapping[int, str]
    bits: tuple[int, ...] | None = None  # scattered two-part fields (IMAD): low part at bits[0], bit 5 at bits[1]
    pieces: tuple[tuple[int, int], ...] = ()  # (lsb, width) of the parts of a scattered field, low-order ones first

    def raw(self, text: str) -> int:
        """The field value printed as `text` (without leading dot); the first if there are several."""
        return next(k for k, v in self.values.items() if v.strip(".") == text)

    def get(self, word: int) -> int:
        if self.pieces:
            return get_pieces(word, self.pieces)
        if self.bits:
            return (word >> self.bits[0] & 1) | (word >> self.bits[1] & 1) << (self.width - 1)
        return word >> self.lsb & ((1 << self.width) - 1)

    def put(self, value: int) -> int:
        if self.pieces:
            return put_pieces(value, self.pieces)
        if self.bits:
            return (value & 1) << self.bits[0] | (value >> (self.width - 1) & 1) << self.bits[1]
        return (value & ((1 << self.width) - 1)) << self.lsb


@dataclass(frozen=True, slots=True)
class Number:
    """Where a number of an operand lies: the bits of `pieces`, times `scale`, plus `bias`, plus the address of the
    instruction if it is `relative`. `name`: the attribute of Operand that it is; several of one name are added."""

    name: str
    pieces: tuple[tuple[int, int], ...]  # (lsb, width), low-order ones first
    signed: bool = False
    scale: int = 1
    bias: int = 0
    relative: bool = False

    def get(self, word: int, address: int) -> int:
        raw = get_pieces(word, self.pieces)
        if self.signed:
            sign = 1 << sum(width for _, width in self.pieces) >> 1
            raw = (raw ^ sign) - sign
        return raw * self.scale + self.bias + (address if self.relative else 0)

    def put(self, value: int, address: int) -> int:
        return put_pieces((value - self.bias - (address if self.relative else 0)) // self.scale, self.pieces)


_FLAGS = (("neg", ("neg_bit", "neg_bit_suffix")), ("abs", ("abs_bit", "abs_bit_suffix")),
          ("inv", ("inv_bit", "inv_bit_suffix", "not_bit")), ("cc", ("cc_bit",)))


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
    scale: Field | None = None  # of the base register of an address

    @cached_property
    def flags(self) -> tuple[tuple[str, int], ...]:
        """(attribute of Operand, bit) of each sign and the like that it may have."""
        named = ((name, next((self.spec[key] for key in keys if key in self.spec), None)) for name, keys in _FLAGS)
        return tuple((name, bit) for name, bit in named if bit is not None)

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """What its bits say: the value by type, and the registers and the bank of an address or a constant."""
        s, found = self.spec, list(self._values())
        found += [Number(name, ((s[key], width),)) for key, name, width in
                  (("reg", "base", 8), ("ureg", "ubase", 6), ("bank_lsb", "bank", 5)) if key in s]
        if "bank" in s:
            lsb, width = (s["bank"]["lsb"], s["bank"]["w"]) if isinstance(s["bank"], dict) else (s["bank"], 5)
            found.append(Number("bank", ((lsb, width),)))
        return tuple(found)

    def _values(self) -> Iterator[Number]:
        s = self.spec
        pieces = tuple((lsb, width) for lsb, width in s.get("pieces", [(s.get("lsb", 0), s.get("width", 0))]))
        match self.type:
            case "literal" | "implied_next_gpr" | "enum_from_modifier":
                pass
            case "simm20_split" | "f32_top20_split" | "f64_top20_split":  # the upper 20 bits of a float
                scale = 1 << {"simm20_split": 0, "f32_top20_split": 12, "f64_top20_split": 44}[self.type]
                yield Number("value", ((s["lsb"], 19), (s["sign_bit"], 1)), self.type == "simm20_split", scale)
            case "f16_pair_split":  # of each half the sign and the highest other bits
                for half, top in ((s["lo"], 15), (s["hi"], 31)):
                    width = half.get("w", 9)
                    yield Number("value", ((half["lsb"], width), (half["sign"], 1)), scale=1 << top - width)
            case "addr" | "cbank_indexed":
                off = s.get("off", {"lsb": 0, "w": 0})
                yield Number("value", ((off["lsb"], off["w"]),), True, off.get("scale", 1))
            case "rel_target" | "rel_register":
                absolute, behind = "absolute" in s, 16 if "scale" in s else 8
                yield Number("value", pieces, "unsigned" not in s, s.get("scale", 1), 0 if absolute else behind,
                             not absolute)
            case "pred" | "upred" if "complement" in s:
                yield Number("value", pieces, scale=-1, bias=7)
            case "cbank" | "cx":
                yield Number("value", pieces, scale=s["scale"])
            case _:
                yield Number("value", pieces, self.type in ("simm", "gpr_plus_simm"))


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
    table: "Table"
    fill: int = 0  # bits that mean nothing and that the vendor sets

    @cached_property
    def opcode(self) -> str:
        """The bare mnemonic (`FFMA`, `BAR`): what semantics are looked up by, with `mnemonic` for specialised rows."""
        return self.mnemonic.split(".")[0]

    @property
    def uniform_guard(self) -> bool:
        """Whether the guard is a uniform predicate."""
        return self.spec["guard"] == "uniform"

    def operand(self, name: str) -> OperandField:
        for field in self.operands:
            if field.name == name:
                return field
        raise KeyError(name)


class Table:
    """All rows, the scheduling classes and the special registers; `find` picks the row of a word. `arch`: what a table
    that serves several architectures is for one of them; empty: all of it."""

    def __init__(self, data: Mapping[str, Any], arch: str = "") -> None:
        rows = data["rows"]
        if arch:
            data = as_of({key: value for key, value in data.items() if key != "rows"}, arch)
            rows = [as_of(r, arch) for r in rows if r["min_arch"] <= arch <= r.get("max_arch", arch)]
        self.name: str = data.get("name", "Maxwell")
        self.word_bits: int = data.get("word_bits", 64)
        self.guard_lsb: int = data.get("guard", {"lsb": 16})["lsb"]
        self._index = data.get("index", {"lsb": 56, "width": 8})  # the bits rows are looked up by
        reserved = data.get("reserved", {"lsb": 0, "width": 0})
        self._reserved = (1 << reserved["width"]) - 1 << reserved["lsb"]  # bits that no word has set
        self._sets = data["sets"]
        self.classes = {n: InstructionClass(n, **c) for n, c in data["classes"].items()}
        self.memory = {n: Access(frozenset(m["spaces"].split()), m["does"], m["order"])
                       for n, m in data.get("memory", {}).items() if n != "about"}  # by opcode
        self.flow = {n: Flow(**f) for n, f in data["flow"].items() if n != "about"}  # by opcode
        self.waits: dict[str, str] = {n: w for n, w in data["waits"].items() if n != "about"}  # by opcode
        self.tells: dict[str, str] = {n: w for n, w in data["tells"].items() if n != "about"}  # by opcode
        self.divergence: str = data["divergence"]  # how lanes part and meet: "stack" or "barriers"
        self.addressing = Addressing(data["addressing"]["word"], data["addressing"].get("group", 0))
        self.bank0: dict[str, int] = {n: at for n, at in data["bank0"].items() if n != "about"}
        self.banks: int = data["banks"]["count"]  # of registers, by number
        self.latencies: dict[str, Any] = data.get("latencies", {})  # cycles by classes of producer and consumer
        self.reuse_entries: int = data["operand_cache"]["entries"]  # of each source slot's reuse cache
        self.special_registers = {int(k): v for k, v in data["special_registers"].items()}
        self.cc_tests = {k: v.strip(".") for k, v in self._values("cc").items()}  # by the 5-bit field of a branch
        self.rows = tuple(self._row(i, r) for i, r in enumerate(rows))
        self._buckets = self._bucket_rows()

    def find(self, word: int) -> Row | None:
        """The most specific row that matches the word, or None."""
        if word & self._reserved:
            return None
        for row in self._buckets[word >> self._index["lsb"] & ((1 << self._index["width"]) - 1)]:
            if word & row.mask == row.value:
                return row
        return None

    def named(self, mnemonic: str) -> tuple[Row, ...]:
        return tuple(r for r in self.rows if r.mnemonic == mnemonic)

    def _bucket_rows(self) -> list[list[Row]]:
        ordered = sorted(self.rows, key=lambda r: -r.mask.bit_count())
        lsb, ones = self._index["lsb"], (1 << self._index["width"]) - 1
        if all(r.mask >> lsb & ones == ones for r in ordered):
            buckets: list[list[Row]] = [[] for _ in range(ones + 1)]
            for row in ordered:
                buckets[row.value >> lsb & ones].append(row)
            return buckets
        return [[r for r in ordered if (i ^ r.value >> lsb) & r.mask >> lsb & ones == 0] for i in range(ones + 1)]

    def _values(self, values: Any) -> Mapping[int, str]:
        if isinstance(values, str):
            values = self._sets[values]
        return {int(k): v for k, v in values.items()}

    def _field(self, spec: Mapping[str, Any]) -> Field:
        bits = tuple(spec["bits"]) if "bits" in spec else None
        pieces = tuple((lsb, width) for lsb, width in spec.get("pieces", ()))
        return Field(spec["lsb"], spec["width"], self._values(spec["values"]), bits, pieces)

    def _operand(self, spec: Mapping[str, Any]) -> OperandField:
        part = self._field(spec["part"]) if "part" in spec else None
        values = self._values(spec["values"]) if "values" in spec else None
        scale = self._field(spec["scale"]) if isinstance(spec.get("scale"), dict) else None
        return OperandField(spec["name"], spec["type"], spec["access"], spec, part, values, spec.get("slot"), scale)

    def _row(self, index: int, r: Mapping[str, Any]) -> Row:
        return Row(
            index, r["mnemonic"], r["form"], r["min_arch"], self.classes[r["class"]],
            int(r["value"], 16), int(r["mask"], 16), bool(r["guard"]), r["text"],
            tuple(self._operand(o) for o in r["operands"]),
            {k: self._field(m) for k, m in r["modifiers"].items()}, r, self, int(r.get("fill", "0"), 16),
        )


TABLE = Table(json.loads(TABLE_PATH.read_bytes()))


def hopper() -> Table:
    """The table of sm_90."""
    return _wide("sm_90")


def table_of(arch: str) -> Table:
    """The instruction set of an architecture such as sm_52."""
    return TABLE if int(arch.removeprefix("sm_")) < 70 else _wide(arch)


@functools.cache
def _wide(arch: str) -> Table:
    """Of words of 128 bits, read when it is first asked for."""
    return Table(json.loads(HOPPER_PATH.read_bytes()), arch)
