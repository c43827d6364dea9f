"""Video instructions held to Python integers. Rules: PTX ISA, video instructions: operands are taken from bytes,
halves or words and widened; the result saturates to the type of the merge field or of the word; then merge, add, min or
max."""

import numpy as np
import pytest

from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import integers, shifts
from tests.semantics.test_integer import WORD, bits, relation, signed


def types(s: Sample):
    """Whether a and b are signed."""
    if "s1" in s.mods:
        return s.mods["s1"] == "S", s.mods.get("s2") == "S"
    first, _, second = s.mods["ss"].partition(".")
    return not first.startswith("U"), not second.startswith("U")


def operand(s: Sample, name, is_signed):
    """The part of the width that the form names (R.8.16: a byte of a, a half of b), widened."""
    width = int(s.inst.row.form.split(".")[1 if name == "a" else 2])
    at = int(s[name].part[1]) * width if s[name].part else 0
    value = s.n(name) >> at & (1 << width) - 1
    return (signed(value, width) if is_signed else value).astype(object)


def limited(value, width, is_signed):
    low, high = (-1 << width - 1, (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    return np.array([min(max(int(v), low), high) for v in value], object)


MERGE = {"MRG_16H": (16, 16), "MRG_16L": (16, 0), "MRG_8B0": (8, 0), "MRG_8B2": (8, 16)}  # width, place


def finished(s: Sample, value, is_signed):
    mode, c = s.mods["mode"], s.n("c").astype(object)
    width, place = MERGE.get(mode, (32, 0))
    value = limited(value, width, is_signed) if s.mods.get("sat") else value
    if mode in MERGE:
        mask = (1 << width) - 1 << place
        value = c & ~mask | value << place & mask
    elif mode == "ACC":
        value = value + c
    elif mode:
        value, c = (signed(value), signed(c)) if is_signed else (value & WORD, c)
        value = np.minimum(value, c) if mode == "MIN" else np.maximum(value, c)
    return ended(value)


def ended(value):
    word = bits(value)
    return After(word, flags={"Z": word == 0, "S": word >> 31 == 1})


def ab(s: Sample):
    return [operand(s, n, sign) for n, sign in zip("ab", types(s), strict=True)]


def vadd(s: Sample):
    a, b = (-x if s[n].neg else x for n, x in zip("ab", ab(s), strict=True))
    return finished(s, a + b + (".PO" in s.inst.mnemonic), s.mods["ud"] != "UD")


def vabsdiff(s: Sample):
    a, b = ab(s)
    return finished(s, abs(a - b), s.mods["ud"] == "SD")


def vmnmx(s: Sample):
    return finished(s, (np.maximum if s.mods["mx"] else np.minimum)(*ab(s)), s.mods["ud"] != "UD")


def vset(s: Sample):
    return finished(s, relation(s.mods["cmp"], *ab(s)).astype(object) * 1, False)


def vsh(s: Sample):
    """Amounts beyond 32 count as 32; .W takes them modulo 32."""
    a, n = operand(s, "a", types(s)[0]), operand(s, "b", False)
    n = n & 31 if s.mods["w"] else np.minimum(n, 32)
    return finished(s, a >> n if s.inst.opcode == "VSHR" else a << n, s.mods["ud"] != "UD")


def vmad(s: Sample):
    """Signed if an operand is or a sign is given; then c is too, and the shift arithmetic."""
    is_signed = any(types(s)) or s["a"].neg or s["c"].neg
    a, b = ab(s)
    c = (s.s("c") if is_signed else s.n("c")).astype(object)
    total = (-a * b if s["a"].neg else a * b) + (-c if s["c"].neg else c) + (".PO" in s.inst.mnemonic)
    total = total >> {"": 0, "SHR_7": 7, "SHR_15": 15}[s.mods["shr"]]
    return ended(limited(total, 32, is_signed) if s.mods["sat"] else total)


def vabsdiff4(s: Sample):
    """Digits of the byte choice: 0..3 are a, 4..7 are b, the last digit belongs to byte 0."""
    first, second = {"": (1, 1), "U8.U8": (0, 0), "S8.U8": (1, 0), "U8.S8": (0, 1)}[s.mods["ss"]]
    named = s.mods.get("xy", "") + s.mods.get("zw", "")
    value, source = s.n("c"), [s.n(n) >> 8 * k & 0xFF for n in "ab" for k in range(4)]
    for k in range(4):
        if named and "XYZW"[k] not in named:
            continue
        at_a, at_b = (int(s[n].part[3 - k]) if s[n].part else k + 4 * (n == "b") for n in "ab")
        b = source[at_b] if s["b"].type == "gpr" else s.n("b") & 0xFF
        gap = abs((signed(source[at_a], 8) if first else source[at_a]) - (signed(b, 8) if second else b))
        if s.mods["sat"]:
            gap = np.clip(gap, *((-128, 127) if s.mods["sd"] else (0, 255)))
        value = value + gap if s.mods["red"] else value & ~(0xFF << 8 * k) | (gap & 0xFF) << 8 * k
    return ended(value)


CASES = {
    "VADD VADD.PO": (integers, vadd, {}),
    "VABSDIFF": (integers, vabsdiff, {}),
    "VMNMX": (integers, vmnmx, {}),
    "VSET": (integers, vset, {}),
    "VSHL VSHR": (shifts, vsh, {}),
    "VMAD VMAD.PO": (integers, vmad, {"least": 6}),
    "VABSDIFF4": (integers, vabsdiff4, {}),
}


@pytest.mark.sampled(1, 2)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, lanes=1024, **options), "operand sets")
