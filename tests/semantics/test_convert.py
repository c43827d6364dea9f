"""Conversions held to exact rounding, one line per family. Rules: PTX ISA, cvt."""

import numpy as np
import pytest

from tests.corpus import exact
from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import doubles, halves, integers, singles
from tests.semantics.test_integer import bits, signed

BITS = {"F16": 16, "F32": 32, "F64": 64}
DTYPE = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
NAN = {"F16": 0x7FFF, "F32": 0x7FFFFFFF}
PRECISION = {"F16": (11, -14, 15), "F32": (24, -126, 127), "F64": (53, -1022, 1023)}


def source(s: Sample, type_):
    """The float operand with its marks, flushed if .FTZ says so."""
    op = s["b"]
    if type_ == "F64":
        return s.d("b")
    if type_ == "F32":
        return exact.flush(s.f("b")) if s.ftz else s.f("b")
    half = (s.u("b") >> 16 * (op.part == "H1") & 0xFFFF).astype(np.uint16).view(np.float16)
    half = np.abs(half) if op.abs else half
    return -half if op.neg else half


def rounded(x, type_, mode):
    """Narrow to a type. A wider type takes the value as it is."""
    if mode == "rn" or type_ == "F64":
        return x.astype(DTYPE[type_])
    if type_ == "F32":
        return exact.to_f32(x, mode)
    values = [fraction(exact.Fraction(float(v)), mode, type_) if np.isfinite(v) and v else float(v) for v in x]
    return np.array(values).astype(np.float16)


def fraction(x, mode, type_):
    return exact.round_fraction(x, mode, *PRECISION[type_]) if x else 0.0


def result(s: Sample, x, type_):
    """.SAT, the NaN of the type, and for F16 the upper half of the word zero."""
    if s.mods.get("sat"):
        x = np.where(x > 0, np.minimum(x, 1), 0).astype(x.dtype)
    word = x.view(f"u{BITS[type_] // 8}")
    if type_ == "F64":
        known = ~np.isnan(x)
        return After(word, wrong=lambda got: np.where(known, got != word, ~np.isnan(got.view(np.float64))))
    word = np.where(np.isnan(x), np.uint32(NAN[type_]), word.astype(np.uint32))
    return After(word, flags={"Z": word == 0, "S": word >> 31 == 1})


def f2f(s: Sample):
    """A result that .FTZ would flush: judged before rounding."""
    to, from_ = s.mods["types"].split(".")
    x = source(s, from_)
    y = rounded(x, to, s.mode)
    if s.ftz and to == "F32" and from_ == "F64":
        y = np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), y), y)
    return result(s, y, to)


INTEGRAL = {"ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil, "TRUNC": np.trunc}


def f2f_round(s: Sample):
    type_ = s.mods["types"].split(".")[0]
    return result(s, INTEGRAL.get(s.mods["rnd"], np.copy)(source(s, type_)).astype(DTYPE[type_]), type_)


def f2i(s: Sample):
    width, type_ = int(s.mods["dw"]), s.mods["src"]
    mode = {"": "rn", "FLOOR": "rd", "CEIL": "ru", "TRUNC": "rz"}[s.mods["rnd"]]
    x = source(s, type_)
    types = (np.int16, np.int32, np.int64) if s.mods["ds"] == "S" else (np.uint16, np.uint32, np.uint64)
    dtype = types[(16, 32, 64).index(width)]
    if width == 16:  # NaN: the 32-bit answer, then limited like any other
        wide = exact.to_integer(x, types[1], mode)
        value = np.clip(wide, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(np.int64)
        return After(bits(value))
    value = exact.to_integer(x, dtype, mode)
    return After(value.view(np.uint64) if width == 64 else value.view(np.uint32))


def integer(s: Sample, width, wraps=True):
    """The integer operand as Python integers, with absolute value and negation in its own width: neg.s16 and abs.s16 of
    -32768 are -32768."""
    op = s["b"]
    value = s.wide("b").astype(object) if width == 64 else s.n("b").astype(object)
    value = value >> {"B": 8, "H": 16}.get(op.part[:1], 0) * int(op.part[1:] or 0) & (1 << width) - 1
    is_signed = s.mods["ss"] == "S"
    value = signed(value, width) if is_signed else value
    value = abs(value) if op.abs else value
    value = -value if op.neg else value
    if not wraps:
        return value
    return signed(value, width) if is_signed else value & (1 << width) - 1


def width_of(s: Sample):
    return {"B": 8, "H": 16}.get(s.inst.mnemonic.partition(".")[2]) or int(s.mods["sw"])


def i2f(s: Sample):
    to, value = s.mods["dst"], integer(s, width_of(s))
    floats = np.array([fraction(exact.Fraction(int(v)), s.mode, to) for v in value])
    return result(s, floats.astype(DTYPE[to]), to)


def i2i(s: Sample):
    """.SAT limits what the marks gave; the bits above the destination's width are zero. I2I.S32.S32.SAT is the
    saturating negation."""
    width, to_signed = int(s.mods["dw"]), s.mods["ds"] == "S"
    saturating = s.mods["sat"] and to_signed and s.mods["ss"] == "S" and width_of(s) == width == 32
    value = integer(s, width_of(s), wraps=not saturating)
    if s.mods["sat"]:
        low, high = (-1 << width - 1, (1 << width - 1) - 1) if to_signed else (0, (1 << width) - 1)
        value = np.array([min(max(int(v), low), high) for v in value], object)
    word = bits(value & (1 << width) - 1)
    return After(word, flags={"Z": word == 0, "S": word >> 31 == 1})


def by_type(draw, lanes):
    """Lanes that make sense as doubles, singles, halves and integers."""
    kinds = [kind(draw, lanes) for kind in (doubles, singles, halves, integers)]
    return np.where(draw.integers(0, 4, lanes) == np.arange(4)[:, None, None], kinds, 0).sum(0).astype(np.uint32)


def marked_unsigned(i):  # a sign on an unsigned or 64-bit integer: not documented
    return (i["b"].abs or i["b"].neg) and (i.mods["ss"] == "U" or i.mods.get("sw") == "64")


def wide_immediate(i):  # the vendor's tools never make one
    return i["b"].type == "simm20_split" and i.mods.get("sw") == "64"


CASES = {
    "F2F": (by_type, f2f, {"lanes": 1024}),
    "F2F.H": (by_type, f2f, {}),
    "F2F.round": (by_type, f2f_round, {}),
    "F2I": (by_type, f2i, {"least": 12}),
    "I2F I2F.B I2F.H": (integers, i2f, {"lanes": 512, "skip": lambda i: marked_unsigned(i) or wide_immediate(i)}),
    "I2I I2I.B I2I.H": (integers, i2i, {"least": 8, "skip": marked_unsigned}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, **options), "operand sets")
