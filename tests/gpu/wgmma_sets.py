"""Operands for wgmma: tiles of 64 rows of A, 8 columns of B and 512 addends, random and nasty, from a seed."""

import numpy as np

from tests.gpu.wgmma_models import DEPTH, FORMATS, SILICON, Model, wgmma

EXACT = Model(fraction=36, result="nearest")


def pack(kind, sign, exponent, fraction, low=0):
    """Bits of elements; exponents are clipped to finite ones, below the smallest the fraction alone is left."""
    exponent_bits, fraction_bits, spare = FORMATS[kind]
    top = (1 << exponent_bits) - 1
    field = np.clip(exponent + (top >> 1), 0, top - 1)
    bits = (sign << exponent_bits + fraction_bits) | (field << fraction_bits) | (fraction & ((1 << fraction_bits) - 1))
    return (bits << spare) | (low & ((1 << spare) - 1))


def pack_float32(sign, exponent, fraction):
    return (sign << 31) | (np.clip(exponent + 127, 0, 254) << 23) | (fraction & 0x7FFFFF)


class Maker:
    """Random elements of a kind."""

    def __init__(self, kind, seed):
        self.kind, self.rng, self.k = kind, np.random.default_rng(seed), DEPTH[kind]
        self.range = (1 << FORMATS[kind][0] - 1) - 1

    def integers(self, low, high, shape):
        return self.rng.integers(low, high, shape, dtype=np.int64)

    def elements(self, shape, low, high, fraction=None, low_bits=False):
        """Signs and fractions at random, exponents low <= e <= high."""
        fraction = self.integers(0, 1 << 10, shape) if fraction is None else fraction
        spare = self.integers(0, 1 << 13, shape) if low_bits else 0
        return pack(self.kind, self.integers(0, 2, shape), self.integers(low, high + 1, shape), fraction, spare)

    def addends(self, tiles, low, high):
        shape = (tiles, 64, 8)
        return pack_float32(self.integers(0, 2, shape), self.integers(low, high + 1, shape),
                            self.integers(0, 1 << 23, shape))

    def near(self, a, b, sign=1):
        """Addends that nearly cancel the sum of products: its rounding, a few units off."""
        zero = np.zeros((len(a), 64, 8), np.int64)
        total = tiles_of(a, b, zero, self.kind, EXACT).astype(np.int64)
        finite = total >> 23 & 255 < 255
        off = self.integers(-3, 4, total.shape) * (self.rng.random(total.shape) < 0.5)
        size = np.clip((total & 0x7FFFFFFF) + off, 0, 0x7F7FFFFF)
        return np.where(finite, size | ((total >> 31 ^ sign) << 31), 0)

    def salted(self, x, bits, share):
        return np.where(self.rng.random(x.shape) < share, np.asarray(bits)[self.integers(0, len(bits), x.shape)], x)


def random_tiles(kind, tiles, seed):
    """A, B, C of three thirds: exponents narrow, medium, over the whole range."""
    make = Maker(kind, seed)
    parts = []
    for i, spread in enumerate((2, 8, 2 * make.range if kind == "f16" else make.range)):
        n = tiles // 3 + (i < tiles % 3)
        low, high = max(-spread // 2, -make.range), min(spread // 2, make.range)
        a = make.elements((n, 64, make.k), low, high, low_bits=True)
        b = make.elements((n, 8, make.k), low, high, low_bits=True)
        near = make.near(a, b, 0) >> 23 & 255
        c = make.addends(n, 0, 0) & 0x807FFFFF | np.clip(near + make.integers(-26, 27, near.shape), 0, 254) << 23
        parts.append((a, b, make.salted(c, [0, 1 << 31], 0.1)))
    return tuple(np.concatenate([p[i] for p in parts]) for i in range(3))


def nasty_tiles(kind, each, seed):
    """A dictionary: family -> (A, B, C), `each` tiles of it."""
    make = Maker(kind, seed)
    families = {}

    def put(name, a, b, c):
        families[name] = (a, b, c)

    a, b = make.elements((each, 64, make.k), -3, 3), make.elements((each, 8, make.k), -3, 3)
    _cancelling(put, make, kind, each, a, b)
    _aligned_apart(put, make, kind, each, a, b)
    _special_values(put, make, kind, each, a, b)
    return families


def _cancelling(put, make, kind, each, a, b):
    """Sums that cancel, and results at either end of the range."""
    k, top = make.k, make.range
    sa, sb = (each, 64, k), (each, 8, k)
    bottom = 1 - top
    put("cancels with the addend", a, b, make.near(a, b))
    pairs = a.copy()
    pairs[..., 1::2] = pairs[..., ::2] ^ (1 << (31 if kind == "tf32" else 15))
    twins = b.copy()
    twins[..., 1::2] = twins[..., ::2]
    put("products cancel in pairs", pairs, twins, make.addends(each, -40, 4))
    odd = pairs.copy()
    odd[..., 1] = make.elements(sa[:2], -14, -8)
    put("pairs cancel but one", odd, twins, make.salted(make.addends(each, -40, -10), [0], 0.5))
    wide_a, wide_b = make.elements(sa, bottom, top), make.elements(sb, bottom, top)
    put("whole range, cancels", wide_a, wide_b, make.near(wide_a, wide_b))
    tiny_a, tiny_b = make.elements(sa, -200, bottom - 1), make.elements(sb, -200, top)
    put("subnormal operands", tiny_a, tiny_b, make.near(tiny_a, tiny_b))
    put("subnormal operands both", tiny_a, make.elements(sb, -200, bottom), make.addends(each, -149, -120))
    small_a = make.elements(sa, *((bottom, bottom + 2) if kind == "f16" else (-66, -62)))
    small_b = make.elements(sb, *((bottom - 3, bottom + 2) if kind == "f16" else (-80, -60)))
    put("results subnormal", small_a, small_b, make.addends(each, -150, -124))
    low_a, low_b = make.elements(sa, -80, -70), make.elements(sb, -82, -70)
    put("products below every float", low_a, low_b, make.salted(make.addends(each, -150, -140), [0, 1 << 31], 0.5))
    edge = make.elements(sa, top - 1, top), make.elements(sb, *((top - 1, top) if kind == "f16" else (0, 1)))
    put("overflow at the end", *edge, make.addends(each, 125, 127) | 0x7E000000)
    put("products overflow", *(make.elements(s, top // 2, top // 2 + 2) for s in (sa, sb)),
        make.addends(each, 120, 127))
    big_pairs = pairs.copy()
    huge = make.elements((each, 64, k // 2), top, top)
    big_pairs[..., ::2], big_pairs[..., 1::2] = huge, huge ^ (1 << (31 if kind == "tf32" else 15))
    put("huge products cancel", big_pairs, twins * 0 + make.elements((each, 8, 1), top - 2, top),
        make.addends(each, -10, 120))


def _aligned_apart(put, make, kind, each, a, b):
    """Terms whose exponents lie apart: ties, and bits that are cut where terms are aligned."""
    k = make.k
    sa, sb = (each, 64, k), (each, 8, k)
    ones = make.elements(sa, -26, 0, fraction=np.zeros(sa, np.int64)), make.elements(sb, 0, 0, np.zeros(sb, np.int64))
    put("powers of two, ties", *ones, make.addends(each, 0, 1) & 0xFF800003)
    put("powers of two, no addend", *ones, np.zeros((each, 64, 8), np.int64))
    steps = pack(
        kind, make.integers(0, 2, sa), -np.arange(k) * 2 + make.integers(0, 2, sa), make.integers(0, 1024, sa))
    put("exponents in steps", steps, make.elements(sb, 0, 1), make.addends(each, -28, 2))
    put("steps the other way", steps[..., ::-1], make.elements(sb, 0, 1), make.addends(each, -28, 2))
    one = a.copy()
    one[..., 1:] = make.elements((each, 64, k - 1), -13, -11)
    put("one large product", one, make.elements(sb, 0, 0), make.salted(make.addends(each, -30, -12), [0], 0.3))
    last = one[..., ::-1].copy()
    put("one large product at the end", last, make.elements(sb, 0, 0), make.addends(each, -30, -12))
    put("addend much larger", a, b, make.addends(each, 18, 34))
    put("addend much smaller", a, b, make.addends(each, -40, -18))
    full = make.elements(sa, -1, 0, np.full(sa, 1023)), make.elements(sb, -1, 0, np.full(sb, 1023))
    put("carries far", *full, make.addends(each, -3, 6) | 0x7FFFF0)
    if kind != "f16":  # a last bit short of 2^-149, and halves of that bit: are they cut?
        more = 3 if kind == "tf32" else 0
        a_small = np.broadcast_to(pack(kind, 0, np.int64(-70), 0), sa).copy()
        b_small = pack(kind, 0, make.integers(-91, -88, sb), 0)
        a_small[..., 0], b_small[..., 0] = (pack(kind, 0, np.int64(e), f << more) for e, f in ((-70, 18), (-80, 96)))
        put("around the smallest cut", a_small, b_small, np.zeros((each, 64, 8), np.int64))


def _special_values(put, make, kind, each, a, b):
    """Infinities, NaN and zeros."""
    k, top = make.k, make.range
    sa, sb = (each, 64, k), (each, 8, k)
    infinite = [0x7C00, 0xFC00] if kind == "f16" else [0x7F80, 0xFF80]
    quiet = [x | 1 for x in infinite] + [0x7E00 if kind == "f16" else 0x7FC0]
    if kind == "tf32":
        infinite, quiet = ([x << 16 for x in y] for y in (infinite, quiet))
        quiet = quiet + [0x7F800001, 0x7F801000]
    put("infinity in products", make.salted(a, infinite, 0.02), make.salted(b, infinite, 0.02),
        make.addends(each, -9, 9))
    put("infinity and zero", make.salted(a, [infinite[0], 0], 0.05), make.salted(b, [infinite[1], 0], 0.05),
        make.salted(make.addends(each, -9, 9), [0x7F800000, 0xFF800000], 0.3))
    put("NaN", make.salted(a, quiet, 0.01), make.salted(b, quiet, 0.01),
        make.salted(make.addends(each, -9, 9), [0x7FC00000, 0xFFC12345, 0x7F800001], 0.2))
    minus = 1 << (31 if kind == "tf32" else 15)
    put("zeros of both signs", make.salted(a * 0, [0, minus], 1), make.salted(b * 0, [0, minus], 1),
        make.salted(np.zeros((each, 64, 8), np.int64), [0, 1 << 31], 1))
    negative = np.where(make.rng.random((each, 64, 1)) < 0.5, minus, 0) + a * 0
    put("zeros of one sign a row", negative, make.elements(sb, 0, 1) & (minus - 1),
        make.salted(np.zeros((each, 64, 8), np.int64), [0, 1 << 31], 1))
    exact = make.elements(sa, 0, 0, np.zeros(sa, np.int64)), make.elements(sb, 0, 0, np.zeros(sb, np.int64))
    put("sums of exactly zero", *exact, make.near(*exact))
    nothing = make.salted(make.elements(sa, top - 2, top), [0, minus], 0.9)
    thin = make.salted(make.elements(sb, -14, -12), [0, minus], 0.3)
    put("zero times large", make.salted(make.elements(sa, -9, -7), [0, minus], 0.3),
        np.where(make.rng.random(sb) < 0.5, make.elements(sb, top, top), make.elements(sb, -12, -10)),
        make.addends(each, -30, -10))
    put("large times zero", nothing, thin, make.addends(each, -60, 4))


def tiles_of(a, b, c, kind, model=SILICON):
    """The model for tiles: a [t][64][k], b [t][8][k], c [t][64][8]."""
    shape = (len(a), 64, 8, a.shape[-1])
    parts = [wgmma(np.broadcast_to(a[i:i + 32, :, None], (len(a[i:i + 32]), *shape[1:])),
                   np.broadcast_to(b[i:i + 32, None], (len(a[i:i + 32]), *shape[1:])), c[i:i + 32], kind, model)
             for i in range(0, len(a), 32)]
    return np.concatenate(parts)
