"""Instructions that only mean something together, in the sequences that the documents and the compiler use."""

import numpy as np
import pytest

from tests.corpus import exact
from tests.semantics.bench import RZ, Guard, make, run
from tests.semantics.operands import INTEGERS, integers, singles

LANES = 10_240
A, B, AH, BH = 4, 6, 5, 7


def add64(negated=False):
    sign = {"b_neg": True} if negated else {}
    return [make("IADD", d=12, d_cc=True, a=A, b=B, **sign), make("IADD", d=13, a=AH, b=BH, x="X", **sign)]


def add3(a_neg=False, b_neg=False, c_neg=False, **more):
    """a + b + a with signs: the compiler writes two IADD3, and the carry between them may be 2."""
    signs = {"a_neg": a_neg, "b_neg": b_neg, "c_neg": c_neg}
    return [make("IADD3", d=12, d_cc=True, a=A, b=B, c=A, **signs, **more),
            make("IADD3", d=13, a=AH, b=BH, c=AH, x="X", **signs)]


def and64():
    """(a & b) != 0 as all ones: the upper LOP.X sees the flags of the lower one."""
    return [make("LOP", d=RZ, d_cc=True, a=A, b=B, op="AND"), make("MOV", d=13, m=15),
            make("LOP", pd=0, d=RZ, a=AH, b=BH, x="X", op="AND", pop="NZ"),
            make("SEL", "I", d=12, a=RZ, b=-1, ps=0, ps_inv=True)]


def other_carry():
    """The carry of an IADD between replaces both carries of IADD3."""
    low, high = add3()
    return [low, make("IADD", d=30, d_cc=True, a=A, b=B), high]


def with_other_carry(a, b):
    word = np.uint64(0xFFFFFFFF)
    carry = (a & word) + (b & word) >> np.uint64(32)
    upper = 2 * (a >> np.uint64(32)) + (b >> np.uint64(32)) + carry
    return upper << np.uint64(32) | 2 * a + b & word


def compare64(cmp, u):
    """Low words subtracted, high words compared; the result as all ones."""
    return [make("IADD", d=RZ, d_cc=True, a=A, b=B, b_neg=True), make("MOV", d=13, m=15),
            make("ISETP", pd=0, a=AH, b=BH, x="X", cmp=cmp, u=u), make("SEL", "I", d=12, a=RZ, b=-1, ps=0, ps_inv=True)]


def minmax64(least, u):
    """The high words decide and tell in the flags who won; low words are compared unsigned after a tie."""
    return [make("IMNMX", d=13, d_cc=True, a=AH, b=BH, ps=7, ps_inv=not least, m="XHI", u=u),
            make("IMNMX", d=12, a=A, b=B, ps=7, ps_inv=not least, m="XLO", u="U32")]


def product_low():
    """XMAD t, a, b; XMAD.MRG u, a, b.H1; XMAD.PSL.CBCC d, a.H1, u.H1, t."""
    return [make("MOV", d=13, m=15), make("XMAD", d=30, a=A, b=B, c=RZ),
            make("XMAD", d=31, a=A, b=B, b_part="H1", c=RZ, mrg="MRG"),
            make("XMAD", d=12, a=A, a_part="H1", b=31, b_part="H1", c=30, psl="PSL", cmode="CBCC")]


def product_high(signed):
    types = ({"type": "U16.S16"}, {"type": "S16.S16", "cmode": "CSFU"}, {"type": "S16.U16"}) if signed else ({}, {}, {})
    return [make("MOV", d=13, m=15), make("XMAD", d=30, a=A, b=B, c=RZ),
            make("XMAD", d=31, a=A, b=B, b_part="H1", c=RZ, **types[0]),
            make("XMAD", d=32, a=A, a_part="H1", b=B, b_part="H1", c=RZ, **types[1]),
            make("XMAD", d=33, a=A, a_part="H1", b=B, c=30, cmode="CHI", **types[2]),
            make("IADD3", d=12, a=33, b=31, c=32, mode="RS")]


def pointer():
    """base + (index << 3): LEA, then LEA.HI.X with the index extended."""
    return [make("LEA", d=12, d_cc=True, a=A, b=B, s=3), make("LEA.HI", d=13, a=A, b=BH, c=AH, s=3, x="X")]


def s64(x):
    return x.view(np.int64)


def words64(low):
    """A 32-bit result, its upper word zero."""
    return (low & 0xFFFFFFFF).astype(np.uint64)


def high(a, b):
    return words64(a.astype(object) * b >> 32)


def low_signed(x):
    return (x & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)


RELATIONS = {"LT": np.less, "LE": np.less_equal, "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal,
             "GT": np.greater}
SEQUENCES = {  # name: words, then the 64 bits of d that operands a and b (uint64) give
    "a + b": (add64(), lambda a, b: a + b),
    "a - b": (add64(True), lambda a, b: a - b),
    **{f"{'-' * x}a + {'-' * y}b + {'-' * z}a": (
        add3(x, y, z), lambda a, b, x=x, y=y, z=z: (-a if x else a) + (-b if y else b) + (-a if z else a))
       for x in (False, True) for y in (False, True) for z in (False, True)},
    "(a & b) != 0": (and64(), lambda a, b: words64(np.where((a & b) != 0, -1, 0))),
    "a + b + a, then another carry": (other_carry(), with_other_carry),
    **{f"a {cmp} b, signed": (compare64(cmp, ""), lambda a, b, f=f: words64(f(s64(a), s64(b)) * np.int64(-1)))
       for cmp, f in RELATIONS.items()},
    **{f"a {cmp} b, unsigned": (compare64(cmp, "U32"), lambda a, b, f=f: words64(f(a, b) * np.int64(-1)))
       for cmp, f in RELATIONS.items()},
    "min, signed": (minmax64(True, ""), lambda a, b: np.minimum(s64(a), s64(b)).view(np.uint64)),
    "max, signed": (minmax64(False, ""), lambda a, b: np.maximum(s64(a), s64(b)).view(np.uint64)),
    "min, unsigned": (minmax64(True, "U32"), np.minimum),
    "max, unsigned": (minmax64(False, "U32"), np.maximum),
    "product, low word": (product_low(), lambda a, b: words64(a * (b & np.uint64(0xFFFFFFFF)))),
    "product, high word": (product_high(False), lambda a, b: high(words64(a), words64(b))),
    "signed product, high word": (product_high(True), lambda a, b: high(low_signed(a), low_signed(b))),
    "pointer": (pointer(), lambda a, b: b + (a << np.uint64(3))),
}


@pytest.fixture(scope="module")
def results():
    draw = np.random.default_rng(64)
    before = integers(draw, LANES)
    edge = draw.random((4, LANES)) < 0.4  # words that are equal, so that ties come up
    before[:4] = np.where(edge, draw.choice(INTEGERS[[0, 1, 18, 19, -1]], (4, LANES)), before[:4])
    got = run([(words, True) for words, _ in SEQUENCES.values()], before, np.zeros(32, np.uint32))
    a, b = (before[k].astype(np.uint64) | before[k + 1].astype(np.uint64) << np.uint64(32) for k in (0, 2))
    return a, b, dict(zip(SEQUENCES, got, strict=True))


@pytest.mark.parametrize("name", SEQUENCES)
def test_64_bit_sequences(results, name):
    a, b, got = results
    pair = got[name][:, 0].astype(np.uint64) | got[name][:, 1].astype(np.uint64) << np.uint64(32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(pair, SEQUENCES[name][1](a, b))


@pytest.mark.parametrize("reduction, function, of_numpy", [("SINCOS", "SIN", np.sin), ("SINCOS", "COS", np.cos),
                                                       ("EX2", "EX2", np.exp2)])
def test_range_reduction_and_function_together(reduction, function, of_numpy):
    """sin.approx, cos.approx: 2^-20.5 absolute within one turn; ex2.approx: 2 ulp (PTX ISA)."""
    before = singles(np.random.default_rng(3), LANES)
    words = [make("RRO", d=30, b=A, b_neg=True, func=reduction), make("MUFU", d=12, a=30, func=function)]
    before[0] = np.where(before[0] & 0x7F800000 == 0x7F800000, 1, before[0])  # finite
    got = run([(words, False)], before, np.zeros(32, np.uint32))[0, :, 0].copy().view(np.float32).astype(np.float64)
    x = -before[0].view(np.float32).astype(np.float64)
    chosen = np.abs(x) < (2 * np.pi if reduction == "SINCOS" else 126)
    want = of_numpy(x[chosen])
    assert chosen.sum() > 1000
    assert (np.abs(got[chosen] - want) <= (2.0**-20.5 if reduction == "SINCOS" else 2.0**-22 * want)).all()


def test_the_division_check_lets_through_only_what_the_short_sequence_divides_right():
    """The compiler's sequence: two Newton steps around MUFU.RCP, taken where FCHK gives false."""
    before = singles(np.random.default_rng(5), LANES)
    b, r, q, e = B, 30, 12, 31
    words = [make("FCHK", pd=0, a=A, b=b), make("MUFU", d=r, a=b, func="RCP"),
             make("MOV32I", "I", d=32, b=0x3F800000, m=15),
             make("FFMA", d=e, a=b, b=r, b_neg=True, c=32), make("FFMA", d=r, a=r, b=e, c=r),
             make("FFMA", d=q, a=A, b=r, c=RZ), make("FFMA", d=e, a=b, b=q, b_neg=True, c=A),
             make("FFMA", d=q, a=e, b=r, c=q), make("FFMA", d=e, a=b, b=q, b_neg=True, c=A),
             make("FFMA", d=q, a=e, b=r, c=q)]
    got = run([(words, True)], before, np.zeros(32, np.uint32))[0]
    short = got[:, 2] & 1 == 0
    x, y = before[0].view(np.float32), before[2].view(np.float32)
    np.testing.assert_array_equal(got[short, 0], exact.div32(x, y)[short].view(np.uint32))
    exponents = before[:4:2] >> 23 & 0xFF
    assert short[((exponents > 67) & (exponents < 187)).all(0)].all(), "ordinary quotients need no long way"


def test_predicates_are_kept_across_the_bench():
    """What the bench itself relies on: SEL sees the predicate that R2P set and P2R packs."""
    before = integers(np.random.default_rng(4), LANES)
    words = [w for p in range(7) for w in (make("SEL", "I", d=30, a=RZ, b=1 << p, ps=p, ps_inv=True),
                                           make("LOP", d=12, a=12 if p else RZ, b=30, op="OR"))]
    got = run([(words, True)], before, np.zeros(32, np.uint32))[0]
    np.testing.assert_array_equal(got[:, 0], before[8] & 0x7F)
    np.testing.assert_array_equal(got[:, 2] & 0x7F, before[8] & 0x7F)
    guarded = [w for p in range(7) for w in (make("LOP32I", "I", d=12, a=RZ if not p else 12, b=0, op="OR"),
                                             make("LOP32I", "I", Guard(p), d=12, a=12, b=1 << p, op="OR"))]
    got = run([(guarded, True)], before, np.zeros(32, np.uint32))[0]
    np.testing.assert_array_equal(got[:, 0], before[8] & 0x7F)
