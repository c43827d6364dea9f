"""What one lane knows along its path: facts that hold, and what each predicate being true or false implies. So a branch
on P tells both its sides, complementary guards exclude each other, and predicates computed from one counter or from
each other are related. An instruction changes this (`step`); where paths meet it is joined."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..isa import PT, RZ, Instruction, Operand
from .effects import PREDICATE, Effects
from .facts import NOTHING, Facts, Variable, both, comparison, conflict, either, moved, without

Sides = tuple[Facts | None, Facts | None]  # implied by true, by false; None: it never has that value


@dataclass(frozen=True)
class Known:
    """`facts` hold; `implied[p]` follow from predicate p."""

    facts: Facts
    implied: dict[int, Sides]


NOTHING_KNOWN = Known(NOTHING, {})


@dataclass(frozen=True)
class Change:
    """What an instruction did to the things facts speak of; `old` facts become facts about the new state."""

    keys: frozenset[object]
    clobbered: frozenset[Variable]
    to: Variable | None = None
    source: Variable | None = None
    delta: int = 0

    def after(self, old: Facts | None) -> Facts | None:
        new = without(old, self.keys) if self.keys else old
        return moved(new, self.clobbered, self.to, self.source, self.delta) if self.clobbered else new


def join_known(a: Known, b: Known, widen: bool) -> Known:
    facts = either(a.facts, b.facts, widen)
    assert facts is not None
    implied = {}
    for p, (true, false) in a.implied.items():
        other = b.implied.get(p)
        if other is not None:
            implied[p] = either(true, other[0], widen), either(false, other[1], widen)
    return Known(facts, implied)


_INTEGERS = "compare integers"
_OPPOSITE = {"LT": "GE", "LE": "GT", "EQ": "NE", "NE": "EQ", "GE": "LT", "GT": "LE"}
_SWAPPED = {"LT": "GT", "LE": "GE", "EQ": "EQ", "NE": "NE", "GE": "LE", "GT": "LT"}


class Knowledge:
    """How each instruction of a kernel changes what is known."""

    def __init__(self, code: Sequence[Instruction], effects: Sequence[Effects]) -> None:
        self.code = code
        self._compared = {op.value for inst in code if inst.tells == _INTEGERS for op in inst.operands
                          if op.type == "gpr" and op.name in "ab" and op.value != RZ}
        mask = sum(1 << r for r in self._compared) | 0x7F << PREDICATE
        self._relevant = [bool(eff.writes & mask) for eff in effects]
        self._written = [frozenset(r for r in self._compared if eff.writes >> r & 1) for eff in effects]
        self._predicates = [[p for p in range(PT) if eff.writes >> PREDICATE + p & 1] for eff in effects]
        self._compares: dict[int, Sides] = {}

    # -- guards ------------------------------------------------------------------------------------------------

    def literal(self, p: int, value: bool, known: Known) -> Facts | None:
        """What follows from predicate p having a value, that included."""
        if p == PT:
            return NOTHING if value else None
        sides = known.implied.get(p)
        return both({p: value}, sides[0 if value else 1]) if sides else {p: value}

    def guard(self, i: int, known: Known) -> Facts | None:
        """What holds where instruction i is executed; None if it never is."""
        guard = self.code[i].guard
        if guard.uniform or (guard.index == PT and not guard.negated):
            return NOTHING
        return self._possible(guard.index, not guard.negated, known)

    def skipped(self, i: int, known: Known) -> Facts | None:
        """What holds where its guard keeps instruction i from being executed; None if it never does."""
        guard = self.code[i].guard
        if guard.uniform:
            return NOTHING
        return None if guard.index == PT and not guard.negated else self._possible(guard.index, guard.negated, known)

    def _possible(self, p: int, value: bool, known: Known) -> Facts | None:
        facts = self.literal(p, value, known)
        return None if conflict(facts, known.facts) else facts

    # -- instructions ------------------------------------------------------------------------------------------

    def step(self, i: int, known: Known) -> tuple[Known, Change | None]:
        """What is known after instruction i, and how older facts change (None: not at all)."""
        if not self._relevant[i]:
            return known, None
        run, skip = self.guard(i, known), self.skipped(i, known)
        if run is None:
            return known, None
        change = self._change(i, certain=skip is None)
        new = self._results(i, known, change)
        implied = {p: (change.after(t), change.after(f)) for p, (t, f) in known.implied.items()
                   if p not in change.keys}
        facts = change.after(known.facts) or NOTHING
        for p, (true, false) in new.items():
            if skip is not None:
                ran, not_ran = change.after(run), change.after(skip)
                true = either(both(ran, true), both(not_ran, change.after(self.literal(p, True, known))))
                false = either(both(ran, false), both(not_ran, change.after(self.literal(p, False, known))))
            if conflict(facts, true):
                facts, true = both(facts, both({p: False}, false)) or facts, None
            elif conflict(facts, false):
                facts, false = both(facts, both({p: True}, true)) or facts, None
            implied[p] = true, false
        if skip is None:
            facts = both(facts, self._constant(self.code[i])) or facts
        return Known(facts, implied), change

    def _change(self, i: int, certain: bool) -> Change:
        inst = self.code[i]
        keys = frozenset([*self._predicates[i], ("?", i)])
        clobbered = frozenset(("R", r) for r in self._written[i])
        if not clobbered or not certain:
            return Change(keys, clobbered)
        source, delta = _copied(inst)
        if source is None:
            return Change(keys, clobbered)
        return Change(keys, clobbered, ("R", inst["d"].value), ("R", source), delta)

    @staticmethod
    def _constant(inst: Instruction) -> Facts | None:
        """What loading a constant tells."""
        if inst.tells != "copy" or inst["m"].value != 15:
            return NOTHING
        value = _immediate(inst["b"])
        if value is None or inst["d"].value == RZ:
            return NOTHING
        name = "R", inst["d"].value
        signed = (value ^ 0x80000000) - 0x80000000
        return both(comparison(name, None, signed, "s", "EQ"), comparison(name, None, value, "u", "EQ"))

    def _results(self, i: int, known: Known, change: Change) -> dict[int, Sides]:
        """What the predicates an instruction writes imply, its guard aside."""
        inst = self.code[i]
        if inst.tells == "combine":
            a, b = self._operand(inst["pa"], known, change), self._operand(inst["pb"], known, change)
            first = _combined(inst.mods["op1"], a, b)
            how = inst.mods["op2"]
        elif inst.tells in (_INTEGERS, "compare"):
            if i not in self._compares:
                self._compares[i] = _compare(inst, i)
            first = self._compares[i]
            how = inst.mods["bool" if "bool" in inst.mods else "op2"]
        else:
            return {}
        last = self._operand(inst["ps"], known, change)
        results = {inst["pq"].value: _combined(how, (first[1], first[0]), last),
                   inst["pd"].value: _combined(how, first, last)}
        results.pop(PT, None)
        return results

    def _operand(self, op: Operand, known: Known, change: Change) -> Sides:
        """What a predicate operand's value implies, in terms that outlive the instruction."""
        true, false = (change.after(self.literal(op.value, value, known)) for value in (True, False))
        return (false, true) if op.inv else (true, false)


def _combined(how: str, a: Sides, b: Sides) -> Sides:
    """Sides of a AND, OR or XOR b."""
    if how == "OR":
        return either(a[0], b[0]), both(a[1], b[1])
    if how == "XOR":
        return either(both(a[0], b[1]), both(a[1], b[0])), either(both(a[0], b[0]), both(a[1], b[1]))
    return both(a[0], b[0]), either(a[1], b[1])


def _compare(inst: Instruction, i: int) -> Sides:
    """What a comparison's outcome tells about what it compares."""
    unknown: Sides = {("?", i): True}, {("?", i): False}
    test = inst.mods.get("cmp", "")
    if test in ("T", "F"):
        return (NOTHING, None) if test == "T" else (None, NOTHING)
    if inst.tells != _INTEGERS or inst.mods.get("x") or inst.operand("pr") is not None:  # of a second word
        return unknown
    sign = "u" if inst.mods["u"] == "U32" else "s"
    a, b = _term(inst["a"], sign), _term(inst["b"], sign)
    if a is None or b is None:
        return unknown
    if a[0] is None:
        if b[0] is None:
            holds = {"LT": a[1] < b[1], "LE": a[1] <= b[1], "EQ": a[1] == b[1], "NE": a[1] != b[1],
                     "GE": a[1] >= b[1], "GT": a[1] > b[1]}[test]
            return (NOTHING, None) if holds else (None, NOTHING)
        a, b, test = b, a, _SWAPPED[test]
    u, v, c = a[0], b[0], b[1] - a[1]
    assert u is not None
    if u == v:
        return unknown
    true, false = comparison(u, v, c, sign, test), comparison(u, v, c, sign, _OPPOSITE[test])
    return both(true, unknown[0]), both(false, unknown[1])


def _term(op: Operand, sign: str) -> tuple[Variable | None, int] | None:
    """An operand as a variable or a constant; None if it is neither."""
    if op.neg or op.part or op.inv or op.abs:
        return None
    if op.type == "gpr":
        return (None, 0) if op.value == RZ else (("R", op.value), 0)
    if op.type == "cbank":
        return ("C", op.bank, op.value), 0
    value = _immediate(op)
    if value is None:
        return None
    return None, value if sign == "u" else (value ^ 0x80000000) - 0x80000000


def _immediate(op: Operand) -> int | None:
    """The 32 bits of an immediate or RZ."""
    if op.neg or op.inv or op.part:
        return None
    if op.type == "gpr" and op.value == RZ:
        return 0
    return op.value & 0xFFFFFFFF if op.type in ("simm20_split", "simm", "uimm") else None


def _copied(inst: Instruction) -> tuple[int | None, int]:
    """(source register, delta) of an instruction whose result is a register plus a constant."""
    if inst.tells == "add" and not inst.mods["x"] and not inst.mods["sat"]:
        a, b = inst["a"], inst["b"]
        if b.type in ("simm20_split", "simm") and not (a.neg or b.neg) and a.value != RZ:
            return a.value, (b.value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
    if inst.tells == "copy" and inst["m"].value == 15 and inst["b"].type == "gpr" and inst["b"].value != RZ:
        return inst["b"].value, 0
    return None, 0
