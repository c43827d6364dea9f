"""Sums of products as the tensor cores of Hopper form them: exact products and the addend are aligned to the largest
exponent among them, cut there towards zero, added, and cut once more to float32. An operand's exponent counts, not that
of the normalised product. What was measured on an H200, and how: tests/gpu/wgmma.py.

A warp's operands lie decoded in the worker's tensor memory: magnitudes, signs and exponents as 32-bit numbers, A for
each lane (the row depends on the lane and on which half of eight rows), B by groups of eight columns."""

from dataclasses import dataclass

from llvmlite import ir

from ..irkit import I32, I64, PTR, Function, V, at, c32, c64, get
from ..layout import CTX, LANES, VECTOR_BYTES
from .memory import VI1, VI32, VI64, splat

FRACTION = 25  # bits that are kept below the largest exponent
LOWEST = -133  # the largest exponent counts as this at least
DEPTH = 16  # room for so many elements of k
COLUMNS = 256
NOTHING = -4096  # the exponent of a zero: below all others
NAN = 0x7FFFFFFF
INFINITE, BROKEN, ZERO = 1, 2, 4  # what is special about an operand
# Parts of a decoded operand, and where they begin in tensor memory.
PARTS = ("exponent", "magnitude", "sign", "special")
A_BYTES = 2 * DEPTH * VECTOR_BYTES
B_BYTES = 4 * DEPTH * COLUMNS
A_AT = {name: A_BYTES * i for i, name in enumerate(PARTS)}
B_AT = {name: A_BYTES * len(PARTS) + B_BYTES * i for i, name in enumerate(PARTS)}
TENSOR_BYTES = (A_BYTES + B_BYTES) * len(PARTS)


@dataclass(frozen=True)
class Format:
    """Operands of a type: bits of exponent and fraction, bytes in memory, low bits that are ignored, elements of k."""

    name: str
    exponent: int
    fraction: int
    size: int
    ignored: int
    depth: int

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1


FORMATS = (Format("f16", 5, 10, 2, 0, 16), Format("bf16", 8, 7, 2, 0, 16), Format("tf32", 8, 10, 4, 13, 8))


def decoded(b: ir.IRBuilder, bits: V, form: Format, negated: V) -> dict[str, V]:
    """The parts of an element, from its bits; `negated` is 0 or 1."""
    top, low = (1 << form.exponent) - 1, (1 << form.fraction) - 1
    short = b.lshr(bits, c32(form.ignored))
    field, fraction = b.and_(b.lshr(short, c32(form.fraction)), c32(top)), b.and_(short, c32(low))
    normal = b.icmp_unsigned("!=", field, c32(0))
    magnitude = b.select(normal, b.or_(fraction, c32(low + 1)), fraction)
    nothing = b.icmp_unsigned("==", magnitude, c32(0))
    exponent = b.sub(b.select(normal, field, c32(1)), c32(form.bias))
    sign = b.and_(b.xor(b.lshr(short, c32(form.exponent + form.fraction)), negated), c32(1))
    odd = b.icmp_unsigned("==", field, c32(top))
    broken = b.icmp_unsigned("!=", fraction, c32(0))
    kind = b.select(odd, b.select(broken, c32(BROKEN), c32(INFINITE)), b.select(nothing, c32(ZERO), c32(0)))
    return {"exponent": b.select(nothing, c32(NOTHING), exponent), "magnitude": magnitude,
            "sign": b.sub(c32(0), sign), "special": kind}


def _constant(value: int) -> V:
    return ir.Constant(VI32, [value & 0xFFFFFFFF] * LANES)


def _wide(value: int) -> V:
    return ir.Constant(VI64, [value & 0xFFFFFFFFFFFFFFFF] * LANES)


def _most(b: ir.IRBuilder, x: V, y: V) -> V:
    return b.select(b.icmp_signed(">", x, y), x, y)


class _Element:
    """One accumulator register of a warp: all the terms of its 32 sums."""

    def __init__(self, b: ir.IRBuilder, tensor: V, half: V, column: V, form: Format) -> None:
        self.b, self.tensor, self.form = b, tensor, form
        self.a_offset = b.mul(half, c64(DEPTH * VECTOR_BYTES))
        self.b_offset = b.shl(column, c64(2))

    def a(self, part: str, k: int) -> V:
        where = at(self.b, at(self.b, self.tensor, A_AT[part] + VECTOR_BYTES * k), self.a_offset)
        return self.b.load(where, typ=VI32, align=64)

    def b_(self, part: str, k: int) -> V:
        """Four columns, each for the lanes that hold it."""
        four = ir.VectorType(I32, 4)
        where = at(self.b, at(self.b, self.tensor, B_AT[part] + 4 * COLUMNS * k), self.b_offset)
        loaded = self.b.load(where, typ=four, align=16)
        return self.b.shuffle_vector(loaded, loaded, ir.Constant(VI32, [lane % 4 for lane in range(LANES)]))

    def exponent(self, k: int) -> V:
        return self.b.add(self.a("exponent", k), self.b_("exponent", k))

    def sum(self, addend: V) -> V:
        """Bits of the sums, where no operand is infinite or NaN."""
        b, form = self.b, self.form
        field = b.and_(b.lshr(addend, _constant(23)), _constant(255))
        fraction = b.and_(addend, _constant(0x7FFFFF))
        normal = b.icmp_unsigned("!=", field, _constant(0))
        magnitude = b.select(normal, b.or_(fraction, _constant(1 << 23)), fraction)
        exponent = b.sub(b.select(normal, field, _constant(1)), _constant(127))
        nothing = b.icmp_unsigned("==", magnitude, _constant(0))
        exponent = b.select(nothing, _constant(2 * NOTHING), exponent)
        largest = _most(b, exponent, _constant(LOWEST))
        for k in range(form.depth):
            largest = _most(b, largest, self.exponent(k))
        total = b.sext(self._aligned(magnitude, largest, exponent, b.ashr(addend, _constant(31)), 23), VI64)
        for first in range(0, form.depth, 8):  # eight terms are below 2^30
            part = None
            for k in range(first, first + 8):
                product = b.mul(self.a("magnitude", k), self.b_("magnitude", k))
                sign = b.xor(self.a("sign", k), self.b_("sign", k))
                term = self._aligned(product, largest, self.exponent(k), sign, 2 * form.fraction)
                part = term if part is None else b.add(part, term)
            total = b.add(total, b.sext(part, VI64))
        return self._single(total, largest)

    def _aligned(self, magnitude: V, largest: V, exponent: V, sign: V, places: int) -> V:
        """A term in units of the last bit that is kept, cut towards zero."""
        b = self.b
        away = b.sub(largest, exponent)
        away = b.select(b.icmp_unsigned("<", away, _constant(31)), away, _constant(31))
        cut = b.lshr(b.shl(magnitude, _constant(FRACTION - places)), away)
        return b.sub(b.xor(cut, sign), sign)

    def _single(self, total: V, largest: V) -> V:
        """total * 2^(largest - FRACTION) as float32, cut towards zero. A double holds the total exactly."""
        b = self.b
        negative = b.icmp_signed("<", total, _wide(0))
        size = b.select(negative, b.sub(_wide(0), total), total)
        double = ir.VectorType(ir.DoubleType(), LANES)
        shift = ir.Constant(double, [float(1 << 52)] * LANES)
        exact = b.fsub(b.bitcast(b.or_(size, _wide(0x433 << 52)), double), shift)
        bits = b.bitcast(exact, VI64)
        exponent = b.add(b.sub(b.trunc(b.lshr(bits, _wide(52)), VI32), _constant(1023 + FRACTION)), largest)
        kept = b.or_(b.and_(b.trunc(b.lshr(bits, _wide(29)), VI32), _constant(0x7FFFFF)), _constant(1 << 23))
        below = b.sub(_constant(-126), exponent)
        small = b.icmp_signed(">", below, _constant(0))
        lost = b.select(b.icmp_unsigned("<", below, _constant(31)), below, _constant(31))
        scaled = b.or_(b.shl(b.add(exponent, _constant(127)), _constant(23)), b.and_(kept, _constant(0x7FFFFF)))
        value = b.select(small, b.lshr(kept, lost), scaled)
        value = b.select(b.icmp_signed(">", exponent, _constant(127)), _constant(0x7F800000), value)
        value = b.select(b.icmp_unsigned("==", size, _wide(0)), _constant(0), value)
        signed = b.and_(negative, b.icmp_unsigned("!=", value, _constant(0)))
        return b.select(signed, b.or_(value, _constant(1 << 31)), value)

    def special(self) -> tuple[V, V, V]:
        """Which sums have a NaN among their products, +inf, -inf."""
        b = self.b
        none = ir.Constant(VI1, None)
        broken, plus, minus = none, none, none

        def has(x: V, what: int) -> V:
            return b.icmp_unsigned("!=", b.and_(x, _constant(what)), _constant(0))

        for k in range(self.form.depth):
            x, y = self.a("special", k), self.b_("special", k)
            either = b.or_(x, y)
            undefined = b.and_(has(either, INFINITE), has(either, ZERO))
            broken = b.or_(broken, b.or_(has(either, BROKEN), undefined))
            infinite = has(either, INFINITE)
            negative = b.icmp_signed("<", b.xor(self.a("sign", k), self.b_("sign", k)), _constant(0))
            plus = b.or_(plus, b.and_(infinite, b.not_(negative)))
            minus = b.or_(minus, b.and_(infinite, negative))
        return broken, plus, minus


def _with_specials(b: ir.IRBuilder, value: V, addend: V, specials: tuple[V, V, V]) -> V:
    """The bits where infinities and NaN among products or addend decide."""
    broken, plus, minus = specials
    size = b.and_(addend, _constant(0x7FFFFFFF))
    broken = b.or_(broken, b.icmp_unsigned(">", size, _constant(0x7F800000)))
    plus = b.or_(plus, b.icmp_unsigned("==", addend, _constant(0x7F800000)))
    minus = b.or_(minus, b.icmp_unsigned("==", addend, _constant(0xFF800000)))
    value = b.select(plus, _constant(0x7F800000), b.select(minus, _constant(0xFF800000), value))
    return b.select(b.or_(broken, b.and_(plus, minus)), _constant(NAN), value)


def build_sums(module: ir.Module, form: Format) -> None:
    """rt_sums_TYPE(ctx, columns, special, keeps, d): registers d .. d + columns / 2 - 1 become A x B plus what they
    hold, or alone where `keeps` is 0. `special` is 0 where no operand is infinite or NaN."""
    f = Function(module, f"rt_sums_{form.name}", ir.VoidType(), PTR, I32, I32, I32, PTR)
    b, (ctx, columns, special, keeps, d) = f.b, f.args
    tensor = get(b, ctx, CTX, "tensor")
    kept = b.sub(c32(0), keeps)
    with f.for_(c32(0), b.lshr(columns, c32(1))) as number:  # register 4q + 2h + p: columns 8q + p, rows 8h
        group, half, odd = (b.zext(x, I64) for x in (b.lshr(number, c32(2)), b.and_(b.lshr(number, c32(1)), c32(1)),
                                                     b.and_(number, c32(1))))
        column = b.add(b.shl(group, c64(3)), b.shl(odd, c64(2)))
        element = _Element(b, tensor, half, column, form)
        where = at(b, d, b.mul(b.zext(number, I64), c64(VECTOR_BYTES)))
        addend = b.and_(b.load(where, typ=VI32, align=64), splat(b, kept))
        value = element.sum(addend)
        slot = f.array(I32, LANES)
        none = (ir.Constant(VI1, None),) * 3
        b.store(_with_specials(b, value, addend, none), slot, align=64)
        with f.if_(b.icmp_unsigned("!=", special, c32(0))):
            b.store(_with_specials(b, value, addend, element.special()), slot, align=64)
        b.store(b.load(slot, typ=VI32, align=64), where, align=64)
    b.ret_void()


def put_a(b: ir.IRBuilder, tensor: V, row: V, k: V, parts: dict[str, V]) -> None:
    """Element (row 0..15 of the warp, k) of A, for the four lanes that need it."""
    four = ir.VectorType(I32, 4)
    half, within = b.lshr(row, c32(3)), b.and_(row, c32(7))
    offset = b.add(b.mul(b.add(b.mul(half, c32(DEPTH)), k), c32(VECTOR_BYTES)), b.shl(within, c32(4)))
    for name, value in parts.items():
        alone = b.insert_element(ir.Constant(four, ir.Undefined), value, c32(0))
        alike = b.shuffle_vector(alone, alone, ir.Constant(four, [0] * 4))
        b.store(alike, at(b, at(b, tensor, A_AT[name]), b.zext(offset, I64)), align=16)


def put_b(b: ir.IRBuilder, tensor: V, column: V, k: V, parts: dict[str, V]) -> None:
    """Element (k, column) of B: even columns of eight first, then odd ones."""
    odd, pair = b.and_(column, c32(1)), b.and_(b.lshr(column, c32(1)), c32(3))
    place = b.or_(b.and_(column, c32(~7)), b.or_(b.shl(odd, c32(2)), pair))
    offset = b.shl(b.add(b.mul(k, c32(COLUMNS)), place), c32(2))
    for name, value in parts.items():
        b.store(value, at(b, at(b, tensor, B_AT[name]), b.zext(offset, I64)))


def build(module: ir.Module) -> None:
    for form in FORMATS:
        build_sums(module, form)

