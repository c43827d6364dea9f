"""The machine of maxdnn.semantics on NumPy arrays with one element for each thread of a block: integers that follow
from the thread index, enough to know shared-memory addresses. What depends on memory, parameters, other lanes or
floating point is UNKNOWN, and so is whatever is computed from it (not None, by which semantics mean nothing)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..isa import PT, RZ, TABLE, Instruction, Table
from ..semantics import meaning
from ..semantics.machine import FLAGS, UNIFORM, UNIFORM_PREDICATE, UNIFORM_ZERO, WINDOWS

V = Any  # an array, or UNKNOWN
Writes = dict[int, list[tuple[str, str, Any]]]
UNKNOWN = type("Unknown", (), {"__repr__": lambda _: "unknown"})()
_TYPES = {"i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64}
_SIGNED = {np.dtype(np.uint8): np.int8, np.dtype(np.uint16): np.int16, np.dtype(np.uint32): np.int32,
           np.dtype(np.uint64): np.int64}
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
            "ge": np.greater_equal}


def _signed(a: V) -> V:
    return a.view(_SIGNED[a.dtype])


def _sext(a: V, type_: str) -> V:
    wide = np.dtype(_TYPES[type_])
    return -a.astype(_SIGNED[wide]).astype(wide) if a.dtype == bool else _signed(a).astype(_SIGNED[wide]).view(wide)


def _icmp(op: str, a: V, b: V) -> V:
    if op[0] == "s":
        a, b = _signed(a), _signed(b)
    return _COMPARE[op if op in _COMPARE else op[1:]](a, b)


_OPERATIONS: dict[str, Callable[..., V]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and_": np.bitwise_and, "or_": np.bitwise_or,
    "xor": np.bitwise_xor, "not_": np.invert, "shl": np.left_shift, "lshr": np.right_shift,
    "ashr": lambda a, n: (_signed(a) >> _signed(n)).view(a.dtype), "icmp": _icmp, "select": np.where,
    "rarely": lambda c, value, otherwise: np.where(c, value(), otherwise) if c.any() else otherwise,
    "zext": lambda a, type_: a.astype(_TYPES[type_]), "sext": _sext,
    "trunc": lambda a, type_: (a & a.dtype.type(1)).astype(bool) if type_ == "i1" else a.astype(_TYPES[type_]),
}


def _unknown(*_: object, **__: object) -> V:
    """What an operation gives that is not followed: floating point, memory, other lanes."""
    return UNKNOWN


def _known_only(operation: Callable[..., V]) -> Callable[..., V]:
    return lambda *operands: UNKNOWN if any(x is UNKNOWN for x in operands) else operation(*operands)


@dataclass(frozen=True)
class Touch:
    """What an instruction did to memory: load, store, atomic or swap (an atomic that code may wait with); the space
    and the address in it; the kind as semantics have it (`64`, `U32`); the first register stored."""

    does: str
    space: str
    address: V
    kind: str
    source: int = RZ


class Values:
    """Registers, predicates and flags of a block of `block` = (x, y, z) threads; `active`: those on the present path.
    Every operation of the abstract machine that is not here gives UNKNOWN. `writes`: what instructions of the kernel
    write, as far as others of its kind have met them."""

    def __init__(self, block: tuple[int, int, int], table: Table = TABLE, writes: Writes | None = None) -> None:
        self.block, self.table = block, table
        self.count = block[0] * block[1] * block[2]
        self.thread = np.arange(self.count, dtype=np.uint32)
        self.active = np.ones(self.count, bool)
        self.registers: dict[int, V] = {}
        self.predicates: dict[int, V] = {}
        self.flags: dict[str, V] = {}
        self.touched: Touch | None = None  # by the last instruction
        self._mask: V = self.active
        self._set: set[tuple[str, Any]] = set()
        self._writes: Writes = {} if writes is None else writes  # by instructions met so far

    def __getattr__(self, name: str) -> Callable[..., V]:
        if name.startswith("_"):
            raise AttributeError(name)
        operation = _OPERATIONS.get(name)
        return _unknown if operation is None else _known_only(operation)

    def guard(self, inst: Instruction) -> V:
        """Which threads execute the instruction; None if that is not known."""
        number = inst.guard.index
        known = self.pred(number + UNIFORM_PREDICATE if inst.guard.uniform and number != PT else number)
        return None if known is UNKNOWN else self.active & (known ^ inst.guard.negated)

    def forget(self, inst: Instruction) -> None:
        """What an instruction does of which nothing is ever known."""
        self.touched = None
        for where, _, key in self._written(inst):
            getattr(self, where)[key] = UNKNOWN

    def step(self, inst: Instruction, mask: V = None) -> None:
        """What an instruction does to registers, predicates and flags, and to memory (`touched`). `mask`: the threads
        that execute it, if its guard does not tell."""
        self._mask, self._set, self.touched = self.guard(inst) if mask is None else mask, set(), None
        function = None if self._mask is None else meaning(inst)
        if function is not None:
            function(self, inst)
        for where, kind, key in self._written(inst):
            if (kind, key) not in self._set:
                self._put(getattr(self, where), kind, key, UNKNOWN)

    def _written(self, inst: Instruction) -> list[tuple[str, str, Any]]:
        """What an instruction writes: where, and by what name."""
        found = self._writes.get(inst.address)
        if found is None:
            found = [("registers", "R", register) for register in inst.writes()]
            found += [("predicates", "P", p) for p in inst.pred_writes()]
            found += [("registers", "R", UNIFORM + register) for register in inst.uniform_writes()]
            found += [("predicates", "P", UNIFORM_PREDICATE + p) for p in inst.uniform_pred_writes()]
            found += [("flags", "C", flag) for flag in ("ZSCO" if inst.cc_writes() else "")]
            self._writes[inst.address] = found
        return found

    def _put(self, where: dict[Any, V], kind: str, key: Any, value: V) -> None:
        self._set.add((kind, key))
        old, mask = where.get(key, UNKNOWN), self._mask
        if value is UNKNOWN or mask.all() or np.array_equal(mask, self.active):
            where[key] = value
        else:
            where[key] = UNKNOWN if old is UNKNOWN else np.where(mask, value, old)

    # -- what of the machine concerns the block itself ---------------------------------------------------------

    def const(self, type_: str, value: float) -> V:
        if type_ not in _TYPES:
            return UNKNOWN
        return np.full(self.count, int(value) & ((1 << int(type_[1:])) - 1), _TYPES[type_])

    def bitcast(self, a: V, type_: str) -> V:
        return a.view(_TYPES[type_]) if a is not UNKNOWN and type_ in _TYPES else UNKNOWN

    def reg(self, index: int) -> V:
        return self.const("i32", 0) if index == UNIFORM_ZERO else self.registers.get(index, UNKNOWN)

    def set_reg(self, index: int, value: V) -> None:
        self._put(self.registers, "R", index, value)

    def pred(self, index: int) -> V:
        always = index in (PT, UNIFORM_PREDICATE + PT)
        return np.ones(self.count, bool) if always else self.predicates.get(index, UNKNOWN)

    def set_pred(self, index: int, value: V) -> None:
        self._put(self.predicates, "P", index, value)

    def flag(self, name: str) -> V:
        return self.flags.get(name, UNKNOWN)

    def set_flag(self, name: str, value: Callable[[], V]) -> None:
        self._put(self.flags, "C", name, value())

    def upper_sum(self, _a: V, _b: V) -> None:
        """The words are added one by one."""

    def load(self, space: str, address: V, kind: str, _dest: int) -> None:
        self.touched = Touch("load", space, address, kind)

    def store(self, space: str, address: V, kind: str, source: int) -> None:
        self.touched = Touch("store", space, address, kind, source)

    def copy(self, to: V, _source: V, kind: str, _keeps: V) -> None:
        self.touched = Touch("store", "shared", to, kind)

    def atomic(self, space: str, address: V, op: str, kind: str, _operands: Sequence[V], _dest: int | None) -> None:
        self.touched = Touch("swap" if op in ("CAS", "EXCH", "SPIN") else "atomic", space, address, kind)

    def constant(self, bank: int, offset: int) -> V:
        where = self.table.bank0
        if bank == 0 and offset == where.get("shared_window"):
            return self.const("i32", WINDOWS["S"] << 24)
        axis = offset - where["block"]
        return self.const("i32", self.block[axis // 4]) if bank == 0 and axis in (0, 4, 8) else UNKNOWN

    def special(self, name: str) -> V:
        x, y, _ = self.block
        values = {"SR_TID.X": self.thread % x, "SR_TID.Y": self.thread // x % y, "SR_TID.Z": self.thread // (x * y),
                  "SR_LANEID": self.thread % 32}
        if name in ("SR_CgaCtaId", "SR_SWINHI"):  # of the window of shared memory
            return self.const("i32", WINDOWS["S"] if name == "SR_CgaCtaId" else 0)
        return values[name].astype(np.uint32) if name in values else UNKNOWN



_REGISTERS = ("gpr", "pred")
_followed: dict[tuple[Any, ...], bool] = {}


def is_followed(inst: Instruction) -> bool:
    """Whether something may ever be known of what an instruction does. Floating point is most of a kernel, and looking
    at each form of it once is enough: what is unknown where all operands are known is unknown everywhere."""
    if inst.access is not None or any(op.type not in _REGISTERS for op in inst.operands):
        return True
    form = (inst.row.table.name, inst.mnemonic, *sorted(inst.mods.items()),
            *((op.value == RZ if op.type == "gpr" else op.value == PT, op.type) for op in inst.operands))
    found = _followed.get(form)
    if found is None:
        one = Values((1, 1, 1), inst.row.table)
        zero, yes = one.const("i32", 0), one.const("i1", 1)
        one.registers = dict.fromkeys(range(RZ), zero)
        one.predicates, one.flags = dict.fromkeys(range(PT), yes), dict.fromkeys(FLAGS, yes)
        one.step(inst, yes)
        written = one._written(inst)
        found = _followed[form] = one.touched is not None or not written or any(
            getattr(one, where)[key] is not UNKNOWN for where, _, key in written)
    return found
