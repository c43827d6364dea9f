"""What one lane knows along its path: facts that hold, and what each predicate being true or false implies. So a branch
on P tells both its sides, complementary guards exclude each other, and predicates computed from one counter or from
each other are related. An instruction changes this (`step`); where paths meet it is joined."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..isa import PT, RZ, Guard, Instruction, Operand
from . import facts as fact
from .effects import PREDICATE, Effects
from .facts import NOTHING, PREDICATES, Facts, Variable, both, comparison, conflict, either, moved, rewritten
from .sets import ALL, Image, free, having, put

Sides = tuple[Facts | None, Facts | None]  # implied by true, by false; None: it never has that value


@dataclass(frozen=True)
class Known:
    """`facts` hold; `implied[p]` follow from predicate p."""

    facts: Facts
    implied: dict[int, Sides]


NOTHING_KNOWN = Known(NOTHING, {})


@dataclass(frozen=True)
class Change:
    """What an instruction did to the things facts speak of; `old` facts become facts about the new state. `to` is
    (`source` + delta) XOR flip."""

    gone: object
    image: Image | None
    clobbered: frozenset[Variable]
    to: Variable | None = None
    source: Variable | None = None
    delta: int = 0
    flip: int = 0

    def after(self, old: Facts | None) -> Facts | None:
        new = rewritten(old, self.image, self.gone)
        return moved(new, self.clobbered, self.to, self.source, self.delta, self.flip) if self.clobbered else new

    def alias(self) -> Facts:
        """That two variables are now a constant apart."""
        if self.to is None or self.source is None or self.to == self.source or self.flip:
            return NOTHING
        return dict(fact.interval(self.to, self.source, sign, self.delta, self.delta) for sign in "su")


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
        self._tested = _tested(code)
        self._compared = {op.value for inst in code if inst.tells == _INTEGERS for op in inst.operands
                          if op.type == "gpr" and op.name in "ab" and op.value != RZ} | self._tested.keys()
        mask = sum(1 << r for r in self._compared) | 0x7F << PREDICATE
        self._relevant = [bool(eff.writes & mask) for eff in effects]
        self._written = [frozenset(r for r in self._compared if eff.writes >> r & 1) for eff in effects]
        self._predicates = [[p for p in range(PT) if eff.writes >> PREDICATE + p & 1] for eff in effects]
        self._compares: dict[int, Sides] = {}
        self._changes: dict[tuple[int, bool], Change] = {}

    # -- guards ------------------------------------------------------------------------------------------------

    def literal(self, p: int, value: bool, known: Known) -> Facts | None:
        """What follows from predicate p having a value, that included."""
        if p == PT:
            return NOTHING if value else None
        sides = known.implied.get(p)
        holds = fact.literal(p, value)
        return both(holds, sides[0 if value else 1]) if sides else holds

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
                   if p not in self._predicates[i]}
        facts = both(change.after(known.facts), change.alias()) or NOTHING
        for p, (true, false) in new.items():
            true, false = _spread(true, facts), _spread(false, facts)
            if skip is not None:
                ran, not_ran = change.after(run), change.after(skip)
                true = either(both(ran, true), both(not_ran, change.after(self.literal(p, True, known))))
                false = either(both(ran, false), both(not_ran, change.after(self.literal(p, False, known))))
            if conflict(facts, true):
                facts, true = both(facts, both(fact.literal(p, False), false)) or facts, None
            elif conflict(facts, false):
                facts, false = both(facts, both(fact.literal(p, True), true)) or facts, None
            implied[p] = true, false
        for p, value, told in self._constants(i, skip is not None):
            if p == PT:
                facts = both(facts, told) or facts
            else:
                true, false = implied.get(p, (NOTHING, NOTHING))
                implied[p] = (both(true, told), false) if value else (true, both(false, told))
        if new:
            facts = both(facts, _related(list(new), implied)) or facts
        return Known(facts, implied), change

    def _change(self, i: int, certain: bool) -> Change:
        found = self._changes.get((i, certain))
        if found is None:
            found = self._changes[i, certain] = self._find_change(i, certain)
        return found

    def _find_change(self, i: int, certain: bool) -> Change:
        inst = self.code[i]
        clobbered = frozenset(("R", r) for r in self._written[i])
        image = _image(self._writing(i)) if self._predicates[i] else None
        unknown = Change(("?", i), image, clobbered)
        if not clobbered or not certain:
            return unknown
        source, delta, flip = _copied(inst)
        if source is None:
            return unknown
        return Change(("?", i), image, clobbered, ("R", inst["d"].value), ("R", source), delta, flip)

    def _writing(self, i: int) -> "Writing":
        inst, tells = self.code[i], self.code[i].tells
        may, how = (True, True), ""
        if tells == "combine":
            how = inst.mods["op2"]
        elif tells in (_INTEGERS, "compare"):
            how = inst.mods["bool" if "bool" in inst.mods else "op2"]
            true, false = self._outcomes(i)
            may = true is not None, false is not None
        elif tells == "unpack" and inst["a"].type == "gpr" and inst["a"].value == RZ:
            may = False, True
        named = {op.name: (op.value, op.inv) for op in inst.operands if op.name in ("pa", "pb", "ps", "pq", "pd")}
        return Writing(inst.guard, tells, inst.mods.get("op1", ""), how, may, tuple(sorted(named.items())),
                       tuple(self._predicates[i]))

    def _outcomes(self, i: int) -> Sides:
        """What the outcome of comparison i implies."""
        if i not in self._compares:
            self._compares[i] = _compare(self.code[i], i)
        return self._compares[i]

    def _constants(self, i: int, guarded: bool) -> Iterator[tuple[int, bool, Facts]]:
        """(predicate, its value, what is then known of what instruction i wrote) where that is a constant."""
        inst, guard = self.code[i], self.code[i].guard
        if inst.tells == "copy" and (not guarded or not guard.uniform) and inst["m"].value == 15:
            told = self._constant(inst["d"], inst["b"])
            if told:
                yield (guard.index, not guard.negated, told) if guarded else (PT, True, told)
        elif inst.tells == "select" and not guarded:
            ps = inst["ps"]
            for value, name in ((True, "a"), (False, "b")):
                told = self._constant(inst["d"], inst[name])
                if told and ps.value != PT:
                    yield ps.value, value != ps.inv, told

    def _constant(self, to: Operand, source: Operand) -> Facts | None:
        """What loading a constant tells."""
        value = _immediate(source)
        if value is None or to.value == RZ:
            return NOTHING
        name = "R", to.value
        signed = (value ^ 0x80000000) - 0x80000000
        bits = {(name, None, "&", mask): bool(value & mask) for mask in self._tested.get(to.value, ())}
        return both(both(comparison(name, None, signed, "s", "EQ"), comparison(name, None, value, "u", "EQ")), bits)

    def _results(self, i: int, known: Known, change: Change) -> dict[int, Sides]:
        """What the predicates an instruction writes imply, its guard aside."""
        inst = self.code[i]
        if inst.tells == "combine":
            a, b = self._operand(inst["pa"], known, change), self._operand(inst["pb"], known, change)
            first = _combined(inst.mods["op1"], a, b)
            how = inst.mods["op2"]
        elif inst.tells in (_INTEGERS, "compare"):
            first = self._outcomes(i)
            how = inst.mods["bool" if "bool" in inst.mods else "op2"]
        else:
            moving = {p: tuple(map(change.after, sides)) for p, sides in _bits_told(inst).items()}
            return {p: moving[p] for p in self._predicates[i] if p in moving}  # type: ignore[misc]
        last = self._operand(inst["ps"], known, change)
        results = {inst["pq"].value: _combined(how, (first[1], first[0]), last),
                   inst["pd"].value: _combined(how, first, last)}
        results.pop(PT, None)
        return results

    def _operand(self, op: Operand, known: Known, change: Change) -> Sides:
        """What a predicate operand's value implies, in terms that outlive the instruction."""
        true, false = (change.after(self.literal(op.value, value, known)) for value in (True, False))
        return (false, true) if op.inv else (true, false)


class Writing(NamedTuple):
    """All that decides what an instruction makes of the predicates. `first`, `how`: the operations of two predicates
    and of the outcome with a third one; `may`: whether the outcome may be true, and false; `named`: (index, negated)
    of its predicate operands."""

    guard: Guard
    tells: str
    first: str
    how: str
    may: tuple[bool, bool]
    named: tuple[tuple[str, tuple[int, bool]], ...]
    written: tuple[int, ...]


@lru_cache(maxsize=4096)
def _image(writing: Writing) -> Image:
    """The same for all instructions alike: it takes long to make."""
    return Image(_rule(writing))


def _rule(writing: Writing) -> Callable[[int], list[int]]:
    """What the predicates of a number become where the instruction meets it."""
    guard, made = writing.guard, _made(writing)

    def rule(v: int) -> list[int]:
        if guard.uniform:
            return [v, *made(v)]
        runs = (guard.index == PT or bool(v >> guard.index & 1)) != guard.negated
        return made(v) if runs else [v]

    return rule if guard.index != PT or guard.negated else made


def _made(writing: Writing) -> Callable[[int], list[int]]:
    """The same where it is executed."""
    named, tells, written = dict(writing.named), writing.tells, writing.written

    def value(v: int, name: str) -> bool:
        index, inv = named[name]
        return (index == PT or bool(v >> index & 1)) != inv

    def made(v: int) -> list[int]:
        if tells == "combine":
            firsts = [_logic(writing.first, value(v, "pa"), value(v, "pb"))]
        elif tells in (_INTEGERS, "compare"):
            firsts = [first for first, may in zip((True, False), writing.may, strict=True) if may]
        elif tells == "unpack" and not writing.may[0]:
            return [v & ~sum(1 << p for p in written)]
        else:
            return free(v, written)
        last = value(v, "ps")
        return [put(put(v, named["pq"][0], _logic(writing.how, not first, last)), named["pd"][0],
                    _logic(writing.how, first, last)) for first in firsts]

    return made


def _combined(how: str, a: Sides, b: Sides) -> Sides:
    """Sides of a AND, OR or XOR b."""
    if how == "OR":
        return either(a[0], b[0]), both(a[1], b[1])
    if how == "XOR":
        return either(both(a[0], b[1]), both(a[1], b[0])), either(both(a[0], b[0]), both(a[1], b[1]))
    return both(a[0], b[0]), either(a[1], b[1])


def _logic(how: str, a: bool, b: bool) -> bool:
    return a or b if how == "OR" else a != b if how == "XOR" else a and b


def _spread(side: Facts | None, facts: Facts) -> Facts | None:
    """What follows from some facts where others say that two variables are a constant apart."""
    out = side
    for key, value in (side or NOTHING).items():
        if not isinstance(key, tuple) or len(key) < 3:
            continue
        for other, apart in facts.items():
            if (isinstance(other, tuple) and len(other) == 3 and other[1] is not None and other[2] == key[2]
                    and apart[0] == apart[1]):
                for to, source, delta in ((other[0], other[1], apart[0]), (other[1], other[0], -apart[0])):
                    new = fact.shifted(key, value, source, to, delta) if source in key[:2] else None
                    out = both(out, dict([new])) if new is not None else out
    return out


def _related(new: Sequence[int], implied: dict[int, Sides]) -> Facts:
    """Which values predicates cannot have together, for what each of them implies."""
    possible = ALL
    for p in new:
        for q, others in implied.items():
            for value, side in zip((True, False), implied[p], strict=True):
                for its, other in zip((True, False), others, strict=True):
                    if (p != q or value == its) and conflict(side, other):
                        possible &= ~(having(p, value) & having(q, its))
    return {PREDICATES: possible} if possible not in (0, ALL) else NOTHING


def _tested(code: Sequence[Instruction]) -> dict[int, set[int]]:
    """By register, the masks of bits that instructions move to predicates."""
    found: dict[int, set[int]] = {}
    for inst in code:
        for true, _ in _bits_told(inst).values():
            for key in true or ():
                if key[2] == "&":
                    found.setdefault(key[0][1], set()).add(key[3])
    return found


def _bits_told(inst: Instruction) -> dict[int, Sides]:
    """What predicates that an instruction sets to bits of a register imply."""
    if inst.tells not in ("unpack", "bits"):
        return {}
    a = inst["a"]
    if a.type != "gpr" or a.part or a.inv or a.neg:
        return {}
    if inst.tells == "unpack":
        if a.value == RZ:
            return {p: (None, NOTHING) for p in range(PT)}
        return {p: _has(("R", a.value), 1 << p) for p in range(PT)}
    mask = _immediate(inst["b"])
    pop = inst.mods.get("pop", "")
    if inst.mods["op"] != "AND" or not mask or a.value == RZ or pop not in ("Z", "NZ") or inst.mods["x"]:
        return {}
    true, false = _has(("R", a.value), mask)
    return {inst["pd"].value: (true, false) if pop == "NZ" else (false, true)}


def _has(u: Variable, mask: int) -> Sides:
    """What follows from u having a bit of a mask, and none."""
    some, zero = (u, None, "&", mask), fact.equality(u, None, 0, False)[0]
    return {some: True, zero: False}, {some: False}


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


def _copied(inst: Instruction) -> tuple[int | None, int, int]:
    """(source register, delta, flip) of an instruction whose result is (a register + delta) XOR flip."""
    if inst.tells == "add" and not inst.mods["x"] and not inst.mods["sat"]:
        a, b = inst["a"], inst["b"]
        if b.type in ("simm20_split", "simm") and not (a.neg or b.neg) and a.value != RZ:
            return a.value, (b.value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000, 0
    if inst.tells == "bits" and inst.mods["op"] == "XOR" and not inst.mods["x"]:
        a, flip = inst["a"], _immediate(inst["b"])
        if flip is not None and not a.inv and a.value != RZ:
            return a.value, 0, flip
    if inst.tells == "copy" and inst["m"].value == 15 and inst["b"].type == "gpr" and inst["b"].value != RZ:
        return inst["b"].value, 0, 0
    return None, 0, 0
