"""What is known of predicates and counters, against all values they may have."""

import itertools
import random

import pytest

from maxdnn.checker import sets
from maxdnn.checker.effects import all_effects
from maxdnn.checker.facts import PREDICATES, comparison, conflict, literal, shifted
from maxdnn.checker.known import NOTHING_KNOWN, Knowledge
from tests.checker.programs import assembled

R = ("R", 7)


def after(lines: str) -> dict[object, object]:
    """The facts behind straight code."""
    code = assembled(lines + "--:-:-:-:5 EXIT;\n").instructions
    knowledge, known = Knowledge(code, all_effects(code)), NOTHING_KNOWN
    for i in range(lines.count(";")):
        known, _ = knowledge.step(i, known)
    return known.facts


@pytest.mark.parametrize("delta", [1, -8, 16, -16, 0x30, 1 << 20, -(1 << 20), 0x7FFFFFFF])
def test_a_fact_about_a_counter_holds_for_the_counter_moved(delta: int) -> None:
    """For whatever values make the first true; signed counters are taken not to wrap by small steps."""
    rng = random.Random(3)
    facts = [((R, None, "s"), (low, low + width)) for low in (-(1 << 31), -9, 0, 100, (1 << 31) - 20)
             for width in (0, 19)] + [((R, None, "u"), (low, low + 15)) for low in (0, 8, (1 << 32) - 16)]
    facts += [((R, None, "=", 5), True), *(((R, None, "&", m), b) for m in (1, 0x10, 0x18) for b in (True, False))]
    for (key, value), _ in itertools.product(facts, range(30)):
        new = shifted(key, value, R, R, delta)
        x = {"s": lambda v=value: rng.randint(*v), "u": lambda v=value: rng.randint(*v), "=": lambda: 5,
             "&": lambda k=key, v=value: next(x for x in iter(lambda: rng.getrandbits(32), None)
                                              if bool(x & k[3]) == v)}[key[2]]()
        signed = (x + (1 << 31)) % (1 << 32) - (1 << 31)
        if new is None or (key[2] == "s" and not -(1 << 31) <= signed + delta < 1 << 31 and abs(delta) <= 1 << 20):
            continue
        made = (x + delta) % (1 << 32)
        (_, _, kind, *rest), told = new
        number = made if kind != "s" else (made + (1 << 31)) % (1 << 32) - (1 << 31)
        holds = {"s": lambda t=told, n=number: t[0] <= n <= t[1], "u": lambda t=told, n=number: t[0] <= n <= t[1],
                 "=": lambda r=rest, t=told, n=number: (n == r[0]) == t,
                 "&": lambda r=rest, t=told, n=number: bool(n & r[0]) == t}[kind]()
        assert holds, (key, value, delta, new, x)


def test_a_counter_that_a_branch_left_below_its_bound_stays_there() -> None:
    low = comparison(R, None, -9, "s", "LE")
    assert low is not None
    ((key, value),) = low.items()
    moved = shifted(key, value, R, R, -8)
    assert moved is not None and conflict(dict([moved]), comparison(R, None, -16, "s", "GE"))


@pytest.mark.parametrize("how", ["AND.AND", "OR.OR", "AND.OR", "XOR.AND", "OR.XOR"])
def test_psetp_of_three_conditions_is_known_exactly(how: str) -> None:
    first, second = how.split(".")
    logic = {"AND": lambda a, b: a and b, "OR": lambda a, b: a or b, "XOR": lambda a, b: a != b}
    facts = after(f"--:-:-:Y:d PSETP.{how} P4, P5, P1, !P2, P3;\n")
    possible = facts[PREDICATES]
    for v in range(sets.COUNT):
        p = [bool(v >> n & 1) for n in range(7)]
        once = logic[first](p[1], not p[2])
        made = p[4] == logic[second](once, p[3]) and p[5] == logic[second](not once, p[3])
        assert bool(possible >> v & 1) == made  # type: ignore[operator]


def test_predicates_written_under_a_guard_are_known_exactly() -> None:
    facts = after("--:-:-:Y:d @P1 R2P PR, R5, 0x8;\n--:-:-:Y:d @!P1 R2P PR, RZ, 0x8;\n")
    assert conflict(facts, {PREDICATES: sets.having(3, True) & sets.having(1, False)})
    assert not conflict(facts, {PREDICATES: sets.having(3, True) & sets.having(1, True)})
    assert not conflict(facts, {PREDICATES: sets.having(3, False)})


@pytest.mark.parametrize(("offset", "follows"), [("0x20", True), ("-0x20", False)])
def test_a_comparison_with_a_bound_further_on_follows(offset: str, follows: bool) -> None:
    """Of P5 = R7 < R5 and P6 = R7 < R5 + offset."""
    before, compare = f"--:-:-:-:6 IADD R8, R5, {offset};\n", "--:-:-:Y:d ISETP.LT.AND P{}, PT, R7, R{}, PT;\n"
    for lines in (before + compare.format(5, 5) + compare.format(6, 8),
                  compare.format(5, 5) + before + compare.format(6, 8)):
        assert conflict(after(lines), {PREDICATES: sets.having(5, True) & sets.having(6, False)}) == follows
        assert conflict(after(lines), {PREDICATES: sets.having(5, False) & sets.having(6, True)}) != follows


@pytest.mark.parametrize(("step", "flips"), [("IADD R7, R7, -0x10", True), ("IADD R7, R7, 0x30", True),
                                             ("IADD R7, R7, 0x20", False), ("LOP.XOR R7, R7, 0x10", True),
                                             ("LOP.XOR R7, R7, 0x8", False), ("IADD R7, R7, 0x8", None)])
def test_a_bit_of_a_counter_alternates(step: str, flips: bool | None) -> None:
    test = "--:-:-:Y:d LOP.AND.NZ P{}, RZ, R7, 0x10;\n"
    facts = after(test.format(0) + f"--:-:-:-:6 {step};\n" + test.format(1))
    same = sum(sets.having(0, v) & sets.having(1, v) for v in (True, False))
    assert conflict(facts, {PREDICATES: same}) == (flips is True)
    assert conflict(facts, {PREDICATES: sets.ALL & ~same}) == (flips is False)


@pytest.mark.parametrize("zero", ["@!P0 MOV R9, RZ", "SEL R9, R9, RZ, P0", "SEL R9, RZ, R9, !P0"])
def test_a_mask_that_is_zero_where_a_predicate_is_not_sets_none(zero: str) -> None:
    facts = after(f"--:-:-:-:6 {zero};\n--:-:-:Y:d R2P PR, R9, 0x6;\n")
    assert conflict(facts, {PREDICATES: sets.having(1, True) & sets.having(0, False)})
    assert not conflict(facts, {PREDICATES: sets.having(1, True) & sets.having(0, True)})


def test_a_literal_is_what_it_says() -> None:
    assert literal(2, True)[PREDICATES] == sum(1 << v for v in range(128) if v & 4)
    assert sets.having(2, True) ^ sets.having(2, False) == sets.ALL
