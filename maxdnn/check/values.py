"""The machine of maxdnn.semantics on NumPy arrays with one element for each thread of a block: integers that follow
from the thread index, enough to know shared-memory addresses. What depends on memory, parameters, other lanes or
floating point is unknown: None, and so is whatever is computed from it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..isa import PT, TABLE, Instruction, Table
from ..semantics import meaning

V = Any  # an array, or None
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


def _unknown(*_: object, **__: object) -> None:
    """What an operation gives that is not followed: floating point, memory, other lanes."""


def _known_only(operation: Callable[..., V]) -> Callable[..., V]:
    return lambda *operands: None if any(x is None for x in operands) else operation(*operands)


class Values:
    """Registers, predicates and flags of a block of `block` = (x, y, z) threads; `active`: those on the present path.
    Every operation of the abstract machine that is not here gives None."""

    def __init__(self, block: tuple[int, int, int], table: Table = TABLE) -> None:
        self.block, self.table = block, table
        self.count = block[0] * block[1] * block[2]
        self.thread = np.arange(self.count, dtype=np.uint32)
        self.active = np.ones(self.count, bool)
        self.registers: dict[int, V] = {}
        self.predicates: dict[int, V] = {}
        self.flags: dict[str, V] = {}
        self._mask: V = self.active
        self._set: set[tuple[str, Any]] = set()

    def __getattr__(self, name: str) -> Callable[..., V]:
        if name.startswith("_"):
            raise AttributeError(name)
        operation = _OPERATIONS.get(name)
        return _unknown if operation is None else _known_only(operation)

    def guard(self, inst: Instruction) -> V:
        """Which threads execute the instruction; None if that is not known."""
        known = self.pred(inst.guard.index)
        return None if known is None else self.active & (known ^ inst.guard.negated)

    def step(self, inst: Instruction) -> None:
        """What an instruction does to registers, predicates and flags."""
        self._mask, self._set = self.guard(inst), set()
        function = None if self._mask is None or _is_float(inst) else meaning(inst)
        if function is not None:
            function(self, inst)
        for register in inst.writes():
            self._forget(self.registers, "R", register)
        for p in inst.pred_writes():
            self._forget(self.predicates, "P", p)
        for flag in "ZSCO" if inst.cc_writes() else "":
            self._forget(self.flags, "C", flag)

    def _forget(self, where: dict[Any, V], kind: str, key: Any) -> None:
        if (kind, key) not in self._set:
            where[key] = None

    def _put(self, where: dict[Any, V], kind: str, key: Any, value: V) -> None:
        self._set.add((kind, key))
        old, mask = where.get(key), self._mask
        if value is None or mask.all() or np.array_equal(mask, self.active):
            where[key] = value
        else:
            where[key] = None if old is None else np.where(mask, value, old)

    # -- what of the machine concerns the block itself ---------------------------------------------------------

    def const(self, type_: str, value: float) -> V:
        if type_ not in _TYPES:
            return None
        return np.full(self.count, int(value) & ((1 << int(type_[1:])) - 1), _TYPES[type_])

    def bitcast(self, a: V, type_: str) -> V:
        return a.view(_TYPES[type_]) if a is not None and type_ in _TYPES else None

    def reg(self, index: int) -> V:
        return self.registers.get(index)

    def set_reg(self, index: int, value: V) -> None:
        self._put(self.registers, "R", index, value)

    def pred(self, index: int) -> V:
        return np.ones(self.count, bool) if index == PT else self.predicates.get(index)

    def set_pred(self, index: int, value: V) -> None:
        self._put(self.predicates, "P", index, value)

    def flag(self, name: str) -> V:
        return self.flags.get(name)

    def set_flag(self, name: str, value: Callable[[], V]) -> None:
        self._put(self.flags, "C", name, value())

    def constant(self, bank: int, offset: int) -> V:
        axis = offset - self.table.bank0["block"]
        return self.const("i32", self.block[axis // 4]) if bank == 0 and axis in (0, 4, 8) else None

    def special(self, name: str) -> V:
        x, y, _ = self.block
        values = {"SR_TID.X": self.thread % x, "SR_TID.Y": self.thread // x % y, "SR_TID.Z": self.thread // (x * y),
                  "SR_LANEID": self.thread % 32}
        value = values.get(name)
        return None if value is None else value.astype(np.uint32)


def _is_float(inst: Instruction) -> bool:
    return inst.opcode[0] in "FDHR" and inst.opcode not in ("FLO", "R2P")
