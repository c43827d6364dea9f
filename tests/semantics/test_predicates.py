"""Predicate and flag logic. Order of the flags in P2R and R2P: Z S C O from bit 0."""

import numpy as np
import pytest

from tests.semantics.bench import FLAGS, After, Sample, check
from tests.semantics.operands import integers
from tests.semantics.test_integer import boolean, joined


def psetp(s: Sample):
    first = joined(s.mods["op1"], s.p("pa"), s.p("pb"))
    return After(pd=joined(s.mods["op2"], first, s.p("ps")), pq=joined(s.mods["op2"], ~first, s.p("ps")))


def pset(s: Sample):
    return boolean(s, joined(s.mods["op2"], joined(s.mods["op1"], s.p("pa"), s.p("pb")), s.p("ps")))


TESTS = {  # of the flags that a subtraction left; C is set if it did not borrow
    "F": lambda z, s, c, o: z & ~z, "T": lambda z, s, c, o: z | ~z,
    "LT": lambda z, s, c, o: s ^ o, "GE": lambda z, s, c, o: s == o,
    "LE": lambda z, s, c, o: (s ^ o) | z, "GT": lambda z, s, c, o: (s == o) & ~z,
    "EQ": lambda z, s, c, o: z, "NE": lambda z, s, c, o: ~z,
    "HS": lambda z, s, c, o: c, "LO": lambda z, s, c, o: ~c,
    "HI": lambda z, s, c, o: c & ~z, "LS": lambda z, s, c, o: ~c | z,
    "SFT": lambda z, s, c, o: s, "SFF": lambda z, s, c, o: ~s,
    "OFT": lambda z, s, c, o: o, "OFF": lambda z, s, c, o: ~o,
}


def flag_test(s: Sample):
    return TESTS[s.mods["cc"]](*(s.flag(n) for n in FLAGS))


def csetp(s: Sample):
    holds = flag_test(s)
    return After(pd=joined(s.mods["op2"], holds, s.p("ps")), pq=joined(s.mods["op2"], ~holds, s.p("ps")))


def cset(s: Sample):
    return boolean(s, joined(s.mods["op2"], flag_test(s), s.p("ps")))


def byte(s: Sample, part):
    return 8 * int(part[1]) if part else 0


def p2r(s: Sample):
    packed = s.n_state(s["src"].label)
    mask, at = s.n("b") & 0xFF, byte(s, s.mods["byte"])
    return After(((s.n("a") & ~(mask << at)) | (packed & mask) << at).astype(np.uint32))


def r2p(s: Sample):
    value, mask = s.n("a") >> byte(s, s["a"].part), s.n("b")
    count = 4 if s["dst"].label == "CC" else 7
    new = {k: np.where(mask >> k & 1, value >> k & 1, s.n_state(s["dst"].label) >> k & 1).astype(bool)
           for k in range(count)}
    return After(preds=new) if count == 7 else After(flags={FLAGS[k]: v for k, v in new.items()})


def unknown_test(i):
    return i.mods["cc"] not in TESTS


def wide_mask(i):  # a mask beyond the byte: no document says what it does
    return i["b"].type not in ("gpr", "cbank") and i["b"].value & ~0xFF != 0


def masks(draw, lanes):
    out = integers(draw, lanes)
    out[2] &= 0xFF
    return out


CASES = {
    "PSETP": (integers, psetp, {"least": 6}),
    "PSET": (integers, pset, {"least": 6}),
    "CSETP": (integers, csetp, {"skip": unknown_test}),
    "CSET": (integers, cset, {"skip": unknown_test}),
    "P2R": (masks, p2r, {"skip": wide_mask, "least": 8}),
    "R2P": (integers, r2p, {"least": 8}),
}


@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, **options), "operand sets")
