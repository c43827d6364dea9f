"""What is called known of a value must hold for every value it stands for."""

import operator

import numpy as np
import pytest

from maxdnn.ptx.known_bits import Bits, KnownBits, join, may_meet, widen

SIZE = 4000
MACHINE = KnownBits((10, 10, 10))
MACHINE.count = SIZE


def numbers(rng, width):
    """Numbers of mixed size, most of them short or with long runs of one bit."""
    raw = rng.integers(0, 1 << 63, SIZE, np.uint64) << np.uint64(1) | rng.integers(0, 2, SIZE, np.uint64)
    raw >>= rng.integers(0, 64, SIZE, np.uint64)
    raw = np.where(rng.random(SIZE) < 0.3, ~raw, raw)
    return raw & np.uint64((1 << width) - 1)


def sample(rng, width):
    """A number and what is known of it."""
    number, unknown = numbers(rng, width), numbers(rng, width) * (rng.random(SIZE) < 0.7).astype(np.uint64)
    return number, Bits(width, number & ~unknown, unknown)


def holds(number, known):
    return ((number ^ known.value) & ~known.unknown & np.uint64((1 << known.width) - 1) == 0).all()


def signed(number, width):
    return (number << np.uint64(64 - width)).view(np.int64) >> (64 - width)


OPERATIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "and_": operator.and_,
              "or_": operator.or_, "xor": operator.xor}


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic(name, width):
    rng = np.random.default_rng(width)
    (a, known_a), (b, known_b) = sample(rng, width), sample(rng, width)
    result = getattr(MACHINE, name)(known_a, known_b)
    assert holds(OPERATIONS[name](a, b), result)
    exactly = known_a.exact & known_b.exact
    assert exactly.any() and result.exact[exactly].all(), "what follows from known numbers is known"


@pytest.mark.parametrize("width", [32, 64])
def test_shifts_and_widths(width):
    rng = np.random.default_rng(width)
    (a, known), by = sample(rng, width), rng.integers(0, width, SIZE, np.uint64)
    count = Bits(width, by, np.zeros(SIZE, np.uint64))
    assert holds(a << by, MACHINE.shl(known, count)) and holds(a >> by, MACHINE.lshr(known, count))
    assert holds((signed(a, width) >> by.view(np.int64)).view(np.uint64), MACHINE.ashr(known, count))
    assert holds(~a, MACHINE.not_(known)) and holds(a, MACHINE.zext(known, "i64"))
    assert holds(signed(a, width).view(np.uint64), MACHINE.sext(known, "i64"))
    assert holds(a, MACHINE.trunc(known, "i16"))


@pytest.mark.parametrize("op", ["eq", "ne", "ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"])
def test_comparisons_and_choices(op):
    rng = np.random.default_rng(1)
    (a, known_a), (b, known_b) = sample(rng, 32), sample(rng, 32)
    b, known_b.value[::2], known_b.unknown[::2] = np.where(np.arange(SIZE) % 2, b, a), a[::2], 0
    x, y = (signed(a, 32), signed(b, 32)) if op[0] == "s" else (a, b)
    name = op if op in ("eq", "ne") else op[1:]
    truth = getattr(operator, name)(x, y)
    known = MACHINE.icmp(op, known_a, known_b)
    assert holds(truth.astype(np.uint64), known)
    assert holds(np.where(truth, a, b), MACHINE.select(known, known_a, known_b))


@pytest.mark.parametrize("merge", [join, widen])
def test_merging_keeps_both(merge):
    rng = np.random.default_rng(2)
    (a, known_a), (b, known_b) = sample(rng, 32), sample(rng, 32)
    merged = merge(known_a, known_b)
    assert holds(a, merged) and holds(b, merged)


def test_lanes_meet_only_in_their_own_warp_and_never_themselves():
    machine = KnownBits((64, 1, 1))
    thread = machine.special("SR_TID.X")
    four = machine.const("i32", 4)
    own = machine.mul(thread, four)
    partner = machine.mul(machine.xor(thread, machine.const("i32", 1)), four)
    other_warp = machine.mul(machine.xor(thread, machine.const("i32", 32)), four)
    assert not may_meet(machine, [own], [own], 4)
    assert may_meet(machine, [own], [partner], 4)
    assert not may_meet(machine, [own], [other_warp], 4)
    assert may_meet(machine, [own], [own], 8), "a store of 8 bytes covers the next lane's word"
    assert may_meet(machine, [own], [machine.unknown(32)], 4)
    nobody = KnownBits(None)
    assert may_meet(nobody, [nobody.special("SR_TID.X")], [nobody.const("i32", 5)], 1), "any lane may be any other"
    assert not may_meet(nobody, [nobody.special("SR_LANEID")], [nobody.const("i32", 32)], 1)
