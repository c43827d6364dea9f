"""Integer values of all threads of a block along one path, where they follow from the thread index: enough arithmetic
to know shared-memory addresses. What depends on memory, parameters or anything not listed here is unknown (None)."""

from collections.abc import Callable

import numpy as np

from ..isa import PT, RZ, Instruction, Operand

Value = np.ndarray | None  # int64, 0 .. 2**32 - 1, one element per thread
_MASK = 0xFFFFFFFF
_COMPARE = {"LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater, "NE": np.not_equal,
            "GE": np.greater_equal}
_BOOL = {"": np.logical_and, "AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}


def _signed(x: np.ndarray) -> np.ndarray:
    return (x ^ 0x80000000) - 0x80000000


class Lanes:
    """Registers and predicates of a block of `block` = (x, y, z) threads. `shared_bytes` limits nothing here."""

    def __init__(self, block: tuple[int, int, int]) -> None:
        self.block = block
        self.count = block[0] * block[1] * block[2]
        self.warp = np.arange(self.count) // 32
        self.registers: dict[int, Value] = {}
        self.predicates: dict[int, Value] = {}
        self.active = np.ones(self.count, bool)

    def constant(self, x: int) -> np.ndarray:
        return np.full(self.count, x & _MASK, np.int64)

    def guard(self, inst: Instruction) -> Value:
        """Which threads execute the instruction; None if that is unknown."""
        if inst.guard.index == PT:
            return self.active & (not inst.guard.negated)
        known = self.predicates.get(inst.guard.index)
        return None if known is None else self.active & (known.astype(bool) ^ inst.guard.negated)

    def step(self, inst: Instruction) -> None:
        """Execute one instruction's effect on registers and predicates."""
        rule = _RULES.get(inst.opcode)
        guard = self.guard(inst)
        results = None if rule is None or guard is None else rule(self, inst)
        for register in inst.writes():
            self._put(self.registers, register, results, "d", guard)
        for op in inst.operands:
            if op.type == "pred" and "w" in op.field.access and op.value != PT:
                self._put(self.predicates, op.value, results, op.name, guard)
        for predicate in inst.pred_writes() if inst.opcode == "R2P" else ():
            self.predicates[predicate] = None

    def _put(self, where: dict[int, Value], key: int, results: dict[str, Value] | None, name: str,
             guard: Value) -> None:
        new = None if results is None else results.get(name)
        old = where.get(key)
        if new is None or guard is None:
            where[key] = None
        elif guard.all() or old is not None:
            where[key] = new if old is None else np.where(guard, new, old)
        else:
            where[key] = None if not np.array_equal(guard, self.active) else new

    def read(self, inst: Instruction, name: str) -> Value:
        """The value of an operand with its modifiers; registers and constants that are not known give None."""
        op = inst.operand(name)
        if op is None:
            return None
        value = self._raw(op)
        if value is None:
            return None
        if op.part in ("H1", "H1_H1"):
            value = value >> 16
        elif op.part == "H0":
            value = value & 0xFFFF
        if op.abs:
            value = np.abs(_signed(value)) & _MASK
        if op.neg:
            value = -value & _MASK
        return value ^ _MASK if op.inv else value

    def _raw(self, op: Operand) -> Value:
        if op.type in ("gpr", "implied_next_gpr"):
            return self.constant(0) if op.value == RZ else self.registers.get(op.value)
        if op.type == "cbank":
            sizes = {0x8 + 4 * i: n for i, n in enumerate(self.block)}
            return self.constant(sizes[op.value]) if op.bank == 0 and op.value in sizes else None
        if op.type in ("simm20_split", "simm", "uimm"):
            return self.constant(op.value)
        return None

    def predicate(self, inst: Instruction, name: str) -> Value:
        op = inst.operand(name)
        if op is None:
            return None
        known = np.ones(self.count, bool) if op.value == PT else self.predicates.get(op.value)
        return None if known is None else known.astype(bool) ^ op.inv


Rule = Callable[[Lanes, Instruction], dict[str, Value] | None]


def _pure(function: Callable[..., np.ndarray], *names: str) -> Rule:
    """A rule for an instruction whose register result is a function of register operands."""
    def rule(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
        values = [lanes.read(inst, name) for name in names]
        if inst.mods.get("x") or inst.mods.get("sat") or any(v is None for v in values):
            return None
        return {"d": function(inst, *values) & _MASK}
    return rule


def _special(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
    x, y, _ = lanes.block
    thread = np.arange(lanes.count)
    known = {0x21: thread % x, 0x22: thread // x % y, 0x23: thread // (x * y), 0x00: thread % 32}
    value = known.get(inst.operands[1].value)
    return None if value is None else {"d": value}


def _shift_left(inst: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    count = b & 31 if inst.mods.get("w") else np.minimum(b, 32)
    return a << count


def _shift_right(inst: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    count = b & 31 if inst.mods.get("w") else np.minimum(b, 32)
    return (a if inst.mods.get("u") == "U32" else _signed(a)) >> count


def _logic(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
    a, b, op = lanes.read(inst, "a"), lanes.read(inst, "b"), inst.mods["op"]
    a = b if op == "PASS_B" else a
    if a is None or b is None or inst.mods.get("x"):
        return None
    d = {"AND": np.bitwise_and, "OR": np.bitwise_or, "XOR": np.bitwise_xor}[op](a, b) if op != "PASS_B" else b
    test = {"Z": d == 0, "NZ": d != 0, "T": np.ones(lanes.count, bool)}.get(inst.mods.get("pop", ""))
    return {"d": d, "pd": test}


def _lut(inst: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    table, out = inst["lut"].value, np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out


def _field(inst: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    position, length = b & 0xFF, np.minimum(b >> 8 & 0xFF, 32)
    value = a >> np.minimum(position, 32) & ((1 << length) - 1)
    if inst.mods.get("u") == "U32":
        return value
    sign = (a >> np.minimum(np.minimum(position + length - 1, 31), 63) & 1) * (length > 0)
    return value - (sign << length)


def _xmad(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
    a, b, c = (lanes.read(inst, name) for name in "abc")
    mode = inst.mods.get("cmode", "")
    if a is None or b is None or c is None or inst.mods.get("x") or mode == "CSFU" or inst.mods.get("type"):
        return None
    whole = lanes._raw(inst["b"])
    assert whole is not None
    product = (a & 0xFFFF) * (b & 0xFFFF) << (16 if inst.mods.get("psl") else 0)
    addend = {"CLO": c & 0xFFFF, "CHI": c >> 16, "CBCC": c + (whole << 16)}.get(mode, c)
    d = product + addend
    return {"d": (d & 0xFFFF | whole << 16 if inst.mods.get("mrg") else d) & _MASK}


def _compare(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
    a, b, ps = lanes.read(inst, "a"), lanes.read(inst, "b"), lanes.predicate(inst, "ps")
    test = _COMPARE.get(inst.mods["cmp"])
    if a is None or b is None or ps is None or test is None or inst.mods.get("x"):
        return None
    if inst.mods.get("u") != "U32":
        a, b = _signed(a), _signed(b)
    join = _BOOL[inst.mods["bool"]]
    return {"pd": join(test(a, b), ps), "pq": join(~test(a, b), ps)}


def _select(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
    a, b, ps = lanes.read(inst, "a"), lanes.read(inst, "b"), lanes.predicate(inst, "ps")
    return None if a is None or b is None or ps is None else {"d": np.where(ps, a, b)}


def _minmax(lanes: Lanes, inst: Instruction) -> dict[str, Value] | None:
    a, b, ps = lanes.read(inst, "a"), lanes.read(inst, "b"), lanes.predicate(inst, "ps")
    if a is None or b is None or ps is None or inst.mods.get("m"):
        return None
    if inst.mods.get("u") != "U32":
        a, b = _signed(a), _signed(b)
    return {"d": np.where(ps, np.minimum(a, b), np.maximum(a, b)) & _MASK}


def _add3(inst: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    mode = inst.mods.get("mode", "")
    return (a + b >> 16) + c if mode == "RS" else (a + b << 16) + c if mode == "LS" else a + b + c


def _scaled(inst: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a << inst["s"].value) + b


_ADD = _pure(lambda inst, a, b: a + b + inst.mnemonic.endswith(".PO"), "a", "b")
_RULES: dict[str, Rule] = {
    "S2R": _special, "IADD": _ADD, "IADD32I": _ADD, "IADD3": _pure(_add3, "a", "b", "c"),
    "ISCADD": _pure(_scaled, "a", "b"), "ISCADD32I": _pure(_scaled, "a", "b"),
    "LEA": lambda lanes, inst: None if inst.mnemonic != "LEA" else _pure(_scaled, "a", "b")(lanes, inst),
    "SHL": _pure(_shift_left, "a", "b"), "SHR": _pure(_shift_right, "a", "b"), "LOP": _logic, "LOP32I": _logic,
    "LOP3": _pure(_lut, "a", "b", "c"), "BFE": _pure(_field, "a", "b"), "XMAD": _xmad,
    "MOV": _pure(lambda inst, b: b, "b"), "MOV32I": _pure(lambda inst, b: b, "b"),
    "SEL": _select, "IMNMX": _minmax, "ISETP": _compare,
}
