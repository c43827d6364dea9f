"""Bitwise logic, shifts, fields and permutes, written bit by bit or byte by byte after the pseudo-code of the PTX ISA
(bfe, bfi, prmt, shf, lop3)."""

import numpy as np
import pytest

from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import integers, shifts
from tests.semantics.test_integer import WORD, bits, signed


def zero_flags(value):
    return {"Z": value == 0, "S": value >> 31 == 1}


def logical(s: Sample, value):
    """With .X the word is zero if the words below were, too."""
    zero = (value == 0) & (s.flag("Z") if s.mods["x"] else True)
    pd = {"": None, "T": value == value, "Z": zero, "NZ": ~zero}[s.mods.get("pop", "")]
    return After(value, pd=pd, flags={"Z": zero, "S": value >> 31 == 1, "C": value != value, "O": value != value})


def done(value):
    value = bits(value)
    return After(value, flags=zero_flags(value))


def lop(s: Sample):
    a, b = (~s.u(n) if s[n].inv else s.u(n) for n in "ab")
    return logical(s, {"AND": a & b, "OR": a | b, "XOR": a ^ b, "PASS_B": b}[s.mods["op"]])


def lop3(s: Sample):
    value = np.zeros(s.lanes, np.uint32)
    for k in range(32):
        number = (s.u("a") >> k & 1) << 2 | (s.u("b") >> k & 1) << 1 | s.u("c") >> k & 1
        value |= (s["lut"].value >> number & 1).astype(np.uint32) << np.uint32(k)
    return logical(s, value)


def reverse(x):
    return sum((x >> k & 1) << 31 - k for k in range(32))


def amount(s: Sample, limit=32):
    n = s.n("b")
    return n & limit - 1 if s.mods["w"] else np.minimum(n, limit)


def shr(s: Sample):
    a = reverse(s.n("a")) if s.mods["brev"] else s.n("a")
    return done((a if s.mods["u"] else signed(a)) >> amount(s))


def shf(s: Sample):
    pair = s.n("a").astype(object) | s.n("c").astype(object) << 32
    n = amount(s, 64 if s.mods["type"] else 32)
    if s.inst.mnemonic == "SHF.L":
        return done((pair << n) >> 32)
    pair = signed(pair, 64) if s.mods["type"] == "S64" else pair
    return done(pair >> n >> 32 * (s.mods["hi"] == "HI"))


def bfe(s: Sample):
    a = reverse(s.n("a")) if s.mods["brev"] else s.n("a")
    position, length = s.n("b") & 0xFF, s.n("b") >> 8 & 0xFF
    last = np.minimum(position + length - 1, 31)
    sign = 0 if s.mods["u"] else np.where(length == 0, 0, a >> np.maximum(last, 0) & 1)
    value = np.zeros(s.lanes, np.int64)
    for k in range(32):
        inside = (k < length) & (position + k <= 31)
        value |= np.where(inside, a >> np.minimum(position + k, 31) & 1, sign) << k
    return done(value)


def bfi(s: Sample):
    position, length = s.n("b") & 0xFF, s.n("b") >> 8 & 0xFF
    value = s.n("c")
    for k in range(32):
        inside, at = (k < length) & (position + k <= 31), np.minimum(position + k, 31)
        value = np.where(inside, value & ~(1 << at) | (s.n("a") >> k & 1) << at, value)
    return done(value)


def prmt(s: Sample):
    source = np.stack([s.n(n) >> 8 * k & 0xFF for n in "ac" for k in range(4)])
    selector, value = s.n("b"), np.zeros(s.lanes, np.int64)
    for k in range(4):
        n = selector & 3
        at = {"": selector >> 4 * k & 7, "F4E": (n + k) % 8, "B4E": (n - k) % 8, "RC8": n, "ECL": np.maximum(n, k),
              "ECR": np.minimum(n, k), "RC16": 2 * (n & 1) + k % 2}[s.mods["mode"]]
        byte = np.take_along_axis(source, at[None], 0)[0]
        if not s.mods["mode"]:
            byte = np.where(selector >> 4 * k & 8, 0xFF * (byte >> 7), byte)
        value |= byte << 8 * k
    return After(bits(value))


def mov(s: Sample):
    """The mask names lanes of each quad."""
    return After(np.where(s["m"].value >> np.arange(s.lanes) % 4 & 1, s.u("b"), s.registers[12]))


def has_x(i):  # what .X does to these has not been published
    return bool(i.mods.get("x")) or i.mods.get("hi") in ("X", "XHI")


CASES = {
    "LOP LOP32I": (integers, lop, {"least": 12}),
    "LOP3.LUT": (integers, lop3, {"least": 16}),
    "SHL": (shifts, lambda s: done(s.n("a") << amount(s) & WORD), {"skip": has_x}),
    "SHR": (shifts, shr, {"skip": has_x}),
    "SHF.L SHF.R": (shifts, shf, {"skip": has_x}),
    "BFE": (shifts, bfe, {}),
    "BFI": (shifts, bfi, {}),
    "PRMT": (integers, prmt, {}),
    "MOV MOV32I": (integers, mov, {}),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, **options), "operand sets")
