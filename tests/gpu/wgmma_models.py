"""Candidates for what wgmma does with products and an addend: one function with options, in exact integers."""

from dataclasses import dataclass, replace
from itertools import product as combinations

import numpy as np

# Bits of exponent and fraction as the operand counts them, and places that an element in memory has more.
FORMATS = {"f16": (5, 10, 0), "bf16": (8, 7, 0), "tf32": (8, 10, 13)}
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8}
NAN = 0x7FFFFFFF


@dataclass(frozen=True)
class Model:
    """What was open.  The defaults give the bits of an H200."""

    fraction: int = 25  # bits kept below the largest exponent
    cut: str = "zero"  # terms are cut towards zero, or "floor"
    normalised: bool = False  # a product counts with its own exponent, not the sum of its operands'
    blocks: int = 1  # the products in this many sums, one after another
    addend: str = "first"  # added with the first block; or "last": with the sum of all
    between: str = "f32"  # what is kept between blocks: float32 towards zero
    zeros: bool = False  # a product or addend of zero takes part in the largest exponent
    subnormals: str = "raw"  # operands below the normal ones count with the smallest exponent, or "normalised"
    result: str = "zero"  # the last rounding: "zero", "nearest", "floor"
    negative_zero: str = "never"  # -0: "never", "all" terms negative zeros
    huge: str = "finite"  # a product of 2^128 and more: "finite", or "inf"
    lowest: int | None = -133  # the largest exponent is never below this
    flush: bool = False  # results below 2^-126 become zero
    overflow: str = "inf"  # or "largest"
    tf32: str = "truncated"  # float32 to TF32; or "nearest"


AXES = {
    "fraction": (23, 24, 25, 26, 27, 28),
    "cut": ("zero", "floor"),
    "normalised": (False, True),
    "blocks": (1, 2, 4),
    "addend": ("first", "last"),
    "zeros": (False, True),
    "subnormals": ("raw", "normalised"),
    "result": ("zero", "nearest", "floor"),
    "negative_zero": ("never", "all"),
    "huge": ("finite", "inf"),
    "lowest": (None, -126, -133, -149, -252),
    "flush": (False, True),
    "overflow": ("inf", "largest"),
    "tf32": ("truncated", "nearest"),
}
TOGETHER = ("fraction", "cut", "normalised", "blocks", "addend")
SMALLEST = -(1 << 20)


def decode(bits, exponent_bits, fraction_bits):
    """Sign, exponent, significand (an integer, with its first bit), infinity and NaN of bits in int64."""
    top = (1 << exponent_bits) - 1
    bias = top >> 1
    field = bits >> fraction_bits & top
    low = bits & ((1 << fraction_bits) - 1)
    significand = np.where(field > 0, low | 1 << fraction_bits, low)
    special = field == top
    return (bits >> (exponent_bits + fraction_bits) & 1, np.where(field > 0, field, 1) - bias, significand,
            special & (low == 0), special & (low != 0))


def lift(exponent, significand, fraction_bits):
    """Significands below the first bit brought up to it."""
    length = np.frexp(significand.astype(np.float64))[1]
    shift = np.where(significand > 0, np.maximum(fraction_bits + 1 - length, 0), 0)
    return exponent - shift, significand << shift


def shifted(value, by, cut):
    """value * 2^by for value >= 0 or either sign, what falls off cut towards zero or down."""
    by = np.clip(by, -62, 40)
    left = value << np.maximum(by, 0)
    right = np.maximum(-by, 0)
    return np.where(left < 0, -(-left >> right), left >> right) if cut == "zero" else left >> right


def to_float32(total, unit, model):
    """Bits of total * 2^unit, total an exact integer below 2^53."""
    sign, size = total < 0, np.abs(total)
    length = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    exponent = unit + length - 1
    quantum = np.maximum(exponent - 23, -149)
    by = unit - quantum
    kept = shifted(size, by, "zero")
    back = np.where(by < 0, size - (kept << np.clip(-by, 0, 62)), 0)
    back = np.where(by < -62, size, back)
    if model.result == "floor":
        kept = kept + (sign & (back > 0))
    elif model.result == "nearest":
        half = np.int64(1) << np.clip(-by - 1, 0, 61)
        kept = kept + ((by < 0) & (by > -62) & ((back > half) | ((back == half) & (kept & 1 == 1))))
    grown = kept >> 24
    kept, quantum = kept >> grown, quantum + grown
    bits = np.where(kept >> 23 == 0, kept, (quantum + 150 << 23) + (kept & 0x7FFFFF))
    if model.flush:
        bits = np.where(bits < 0x800000, 0, bits)
    limit = 0x7F800000 if model.overflow == "inf" else 0x7F7FFFFF
    bits = np.where(size == 0, 0, np.where(quantum > 104, limit, bits))
    return bits | np.where(sign & (bits != 0), 1 << 31, 0)


def block(signs, exponents, significands, places, model):
    """Bits of the sum of terms (last axis), each significand * 2^(exponent - places of it)."""
    counted = np.where(significands > 0, exponents, exponents if model.zeros else SMALLEST)
    largest = counted.max(axis=-1)
    if model.lowest is not None:
        largest = np.maximum(largest, model.lowest)
    largest = np.where(largest == SMALLEST, 0, largest)
    value = np.where(signs == 1, -significands, significands)
    aligned = shifted(value, exponents - places - (largest[..., None] - model.fraction), model.cut)
    return to_float32(aligned.sum(axis=-1), largest - model.fraction, model)


SILICON = Model()


def wgmma(a, b, c, kind, model=SILICON):
    """What one instruction gives: a, b [..., k] bits of the operands, c [...] bits of float32; bits of float32."""
    exponent_bits, fraction_bits, spare = FORMATS[kind]
    a, b, c = (np.asarray(x).astype(np.int64) for x in (a, b, c))
    if spare:
        half = 1 << spare - 1 if model.tf32 == "nearest" else 0
        a, b = (np.where(x >> 23 & 255 == 255, x, x + half) >> spare for x in (a, b))
    sa, ea, ma, ia, na = decode(a, exponent_bits, fraction_bits)
    sb, eb, mb, ib, nb = decode(b, exponent_bits, fraction_bits)
    sc, ec, mc, ic, nc = decode(c, 8, 23)
    infinite = ia | ib
    broken = na | nb | (ia & (mb == 0) & ~ib) | (ib & (ma == 0) & ~ia)
    if model.subnormals == "normalised":
        (ea, ma), (eb, mb), (ec, mc) = lift(ea, ma, fraction_bits), lift(eb, mb, fraction_bits), lift(ec, mc, 23)
    sign, exponent, significand = sa ^ sb, ea + eb, ma * mb
    places = np.full(sign.shape, 2 * fraction_bits)
    if model.normalised:
        more = significand >> 2 * fraction_bits + 1
        exponent, places = exponent + more, places + more
    if model.huge == "inf":
        infinite = infinite | (exponent + (significand >> 2 * fraction_bits + 1) * (not model.normalised) > 127)
    plus = (infinite & (sign == 0)).any(axis=-1) | (ic & (sc == 0))
    minus = (infinite & (sign == 1)).any(axis=-1) | (ic & (sc == 1))
    broken = broken.any(axis=-1) | nc | (plus & minus)
    out, depth = c, a.shape[-1]
    parts = [slice(i, i + depth // model.blocks) for i in range(0, depth, depth // model.blocks)]
    if model.addend == "last":
        out = np.zeros_like(c)
    for part in parts + [slice(0, 0)] * (model.addend == "last"):
        if model.addend == "last" and part.stop == 0:
            addends = [out, c]
        else:
            addends = [out]
        more = [decode(x, 8, 23)[:3] for x in addends]
        if model.subnormals == "normalised":
            more = [(s, *lift(e, m, 23)) for s, e, m in more]
        join = [np.concatenate([x[..., part], *(m[i][..., None] for m in more)], axis=-1)
                for i, x in enumerate((sign, exponent, significand))]
        where = np.concatenate([places[..., part], *(np.full((*c.shape, 1), 23) for _ in more)], axis=-1)
        out = block(*join, where, model)
    if model.negative_zero == "all":
        nothing = (significand == 0).all(axis=-1) & (mc == 0) & (sign == 1).all(axis=-1) & (sc == 1)
        out = np.where(nothing, 1 << 31, out)
    out = np.where(plus, 0x7F800000, np.where(minus, 0xFF800000, out))
    return np.where(broken, NAN, out).astype(np.uint32)


def candidates():
    """The models whose options go together, all combinations."""
    for values in combinations(*(AXES[name] for name in TOGETHER)):
        yield replace(Model(), **dict(zip(TOGETHER, values, strict=True)))


def neighbours(model, kind):
    """Models with one option changed."""
    for name, values in AXES.items():
        for value in values:
            if value != getattr(model, name) and (name != "tf32" or kind == "tf32"):
                yield replace(model, **{name: value})
