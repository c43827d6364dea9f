"""Integer instructions held to exact integers, one line per family. Rules: PTX ISA for what the compiler maps onto
them; carries as add.cc, addc and sub.cc define them; XMAD's modifiers in the order in which they act."""

import numpy as np
import pytest

from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import integers, shifts

WORD = 0xFFFFFFFF


def bits(x):
    return (x & WORD).astype(np.uint32)


def signed(x, width=32):
    """The low bits as a signed number."""
    return ((x + (1 << width - 1)) & ((1 << width) - 1)) - (1 << width - 1)


def adds(s: Sample, a, b, carry):
    """a + b + carry of unsigned words, with flags and signed saturation."""
    total, exact = a + b + carry, signed(a) + signed(b) + carry
    value = np.clip(exact, -1 << 31, (1 << 31) - 1) if s.mods.get("sat") else total
    return After(bits(value), flags={"Z": (total & WORD) == 0, "S": signed(total) < 0, "C": total > WORD,
                                     "O": exact != signed(exact)} if not s.mods.get("sat") else {})


def carry(s: Sample, otherwise=0):
    return s.flag("C").astype(np.int64) if s.mods.get("x") else np.int64(otherwise)


def entering(s: Sample, name, value):
    """-x enters a sum as ~x; the missing 1 is the carry."""
    return ~value & WORD if s[name].neg else value


def iadd(s: Sample):
    """Both signs together mean a + b + 1."""
    one = ".PO" in s.inst.mnemonic or s["a"].neg or s["b"].neg
    return adds(s, entering(s, "a", s.n("a")), entering(s, "b", s.n("b")), carry(s, int(one)))


def iscadd(s: Sample):
    one = ".PO" in s.inst.mnemonic or s["a"].neg or s["b"].neg
    return adds(s, entering(s, "a", s.n("a") << s["s"].value & WORD), entering(s, "b", s.n("b")), np.int64(one))


def part(s: Sample, name):
    return s.n(name) >> 16 * (s[name].part == "H1") & (0xFFFF if s[name].part else WORD)


def iadd3(s: Sample):
    """-x is ~x + 1, which carries for 0; with .X it is ~x. C is the lower bit of the carry, which may be 2 or 3."""
    one = 0 if s.mods["x"] else 1
    a, b, c = ((~part(s, n) & WORD) + one if s[n].neg else part(s, n) for n in "abc")
    mode = s.mods.get("mode", "")
    two = {"": lambda t: t, "RS": lambda t: t >> 16 & 0x1FFFF, "LS": lambda t: t << 16 & WORD}[mode](a + b)
    total = two + c + carry(s)
    flags = {"Z": (total & WORD) == 0, "S": signed(total) < 0, "C": total >> 32 & 1 == 1}
    if not mode:
        exact = sum(signed(~part(s, n)) + one if s[n].neg else signed(part(s, n)) for n in "abc") + carry(s)
        flags["O"] = exact != signed(exact)
    return After(bits(total), flags=flags)


def xmad(s: Sample):
    types = s.mods["type"].split(".") if s.mods["type"] else ["U16", "U16"]
    a_reg, b_reg, c = s.n("a"), s.n("b"), s.n("c")
    a, b = (x >> 16 * (s[n].part == "H1") & 0xFFFF for n, x in (("a", a_reg), ("b", b_reg)))
    a, b = (signed(x, 16) if t == "S16" else x for x, t in zip((a, b), types, strict=True))
    product = a * b << 16 * bool(s.mods.get("psl")) & WORD
    other_a, other_b = (x >> 16 * (s[n].part != "H1") & 0xFFFF for n, x in (("a", a_reg), ("b", b_reg)))
    c = {"": lambda: c, "CLO": lambda: c & 0xFFFF, "CHI": lambda: c >> 16, "CBCC": lambda: c + (b_reg << 16),
         "CSFU": lambda: c - 65536 * ((a < 0) & (other_b != 0)) - 65536 * ((b < 0) & (other_a != 0)),
         }[s.mods["cmode"]]() & WORD
    total = product + c + carry(s)
    value = total & 0xFFFF | b_reg << 16 if s.mods.get("mrg") else total
    return After(bits(value), flags={"C": total > WORD})


def product(s: Sample):
    """a * b under the types of the modifier, as Python integers."""
    left, right = {"": "SS", "U32.U32": "UU", "S32.U32": "SU", "U32.S32": "US"}[s.mods["t"]]
    return (s.s("a") if left == "S" else s.n("a")).astype(object) * (s.s("b") if right == "S" else s.n("b"))


def imul(s: Sample):
    value = bits(product(s) >> 32 * bool(s.mods["hi"]))
    return After(value, flags={"Z": value == 0, "S": value.view(np.int32) < 0})


def imad(s: Sample):
    p = -product(s) if s["a"].neg else product(s)
    word = bits(p >> 32 * bool(s.mods["hi"])).astype(np.int64)
    return adds(s, word, entering(s, "c", s.n("c")), carry(s, int(".PO" in s.inst.mnemonic or s["c"].neg)))


def relation(name, a, b):
    return {"F": a != a, "LT": a < b, "EQ": a == b, "LE": a <= b, "GT": a > b, "NE": a != b, "GE": a >= b,
            "T": a == a}[name]


def related(s: Sample):
    """.X: the upper words; the lower ones were subtracted before and left Z and C (clear: borrow)."""
    if not s.mods.get("x"):
        return relation(s.mods["cmp"], *(s.n(n) if s.mods["u"] else s.s(n) for n in "ab"))
    a, b = (s.n(n) if s.mods["u"] else s.s(n) for n in "ab")
    below = np.where(s.flag("C"), np.where(s.flag("Z"), 0, 1), -1)  # order of the lower words
    return relation(s.mods["cmp"], np.sign(a - b) * 2 + below, 0)


def joined(how, a, b):
    return {"AND": a & b, "OR": a | b, "XOR": a ^ b}[how]


def setp(s: Sample, holds):
    return After(pd=joined(s.mods["bool"], holds, s.p("ps")), pq=joined(s.mods["bool"], ~holds, s.p("ps")))


def boolean(s: Sample, holds):
    value = np.where(holds, 0x3F800000 if s.mods["bf"] else WORD, 0).astype(np.uint32)
    return After(value, flags={"Z": value == 0, "S": value >> 31 == 1})


def icmp(s: Sample):
    c = s.n("c") if s.mods["u"] else s.s("c")
    return After(np.where(relation(s.mods["cmp"], c, 0), s.u("a"), s.u("b")))


def imnmx(s: Sample):
    a, b = (s.n(n) if s.mods["u"] else s.s(n) for n in "ab")
    value = bits(np.where(s.p("ps"), np.minimum(a, b), np.maximum(a, b)))
    return After(value, flags={} if s.mods["m"] else {"Z": value == 0, "S": value >> 31 == 1})


def lea(s: Sample):
    """The predicate says that the word is not zero, as the compiler's generic atomics use it."""
    wide = s.n("a").astype(object)
    if s.inst.mnemonic == "LEA.HI":
        wide = (wide | s.n("c").astype(object) << 32) << s["s"].value >> 32
    else:
        wide <<= s["s"].value
    after = adds(s, entering(s, "a", (wide & WORD).astype(np.int64)), s.n("b"), carry(s, int(s["a"].neg)))
    after.pd = after.d != 0
    return after


def flo(s: Sample):
    """bfind: the highest bit unlike the sign."""
    x = ~s.s("b") if s["b"].inv else s.s("b")
    x = x & WORD if s.mods["u"] else np.where(x < 0, ~x, x)
    top = np.array([int(v).bit_length() - 1 for v in x])
    value = bits(np.where(top < 0, -1, 31 - top if s.mods["sh"] else top))
    return After(value, flags={"Z": value == 0, "S": value >> 31 == 1})


def popc(s: Sample):
    x = ~s.u("b") if s["b"].inv else s.u("b")
    return After(np.array([int(v).bit_count() for v in x], np.uint32))


def dot(s: Sample):
    """dp4a, dp2a: bytes of b with bytes or halves of a."""
    width = 8 if s.inst.mnemonic == "IDP.4A" else 16
    first = 2 * (s.mods.get("h") == "HI")
    total = s.n("c")
    for k in range(32 // width):
        x, y = s.n("a") >> width * k & (1 << width) - 1, s.n("b") >> 8 * (k + first) & 0xFF
        x = signed(x, width) if s.mods["s1"][0] == "S" else x
        total = total + x * (signed(y, 8) if s.mods["s2"][0] == "S" else y)
    return After(bits(total))


def saturated_low(i):  # mad.sat exists for the upper word of a signed product only
    return bool(i.mods.get("sat")) and (not i.mods["hi"] or i.mods["t"] != "" or i["a"].neg)


CASES = {
    "IADD IADD.PO IADD32I IADD32I.PO": (integers, iadd, {}),
    "ISCADD ISCADD.PO ISCADD32I": (integers, iscadd, {}),
    "IADD3": (integers, iadd3, {"least": 16}),
    "XMAD": (integers, xmad, {"least": 16}),
    "IMUL IMUL32I": (integers, imul, {}),
    "IMAD IMAD.PO IMAD32I IMAD32I.PO": (integers, imad, {"skip": saturated_low}),
    "ISETP": (integers, lambda s: setp(s, related(s)), {"least": 12}),
    "ISET": (integers, lambda s: boolean(s, joined(s.mods["bool"], related(s), s.p("ps"))), {"least": 12}),
    "ICMP": (integers, icmp, {}),
    "IMNMX": (integers, imnmx, {"skip": lambda i: i.mods["m"] in ("XLO", "XMED")}),
    "SEL": (integers, lambda s: After(np.where(s.p("ps"), s.u("a"), s.u("b"))), {}),
    "LEA": (integers, lea, {}),
    "LEA.HI": (integers, lea, {"skip": lambda i: i["a"].neg}),  # the sign of a pair's upper word: not documented
    "FLO": (shifts, flo, {"least": 4}),
    "POPC": (shifts, popc, {}),
    "IDP.4A IDP.2A": (integers, dot, {"arch": "gp104"}),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, **options), "operand sets")
