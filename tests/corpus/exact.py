"""Exact reference arithmetic in NumPy and Python integers: IEEE 754 results under any rounding mode.

Single precision is computed in double precision with rounding to odd (53 bits are more than 24 + 2, so the second
rounding is innocuous: S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008); double
precision under directed rounding goes through Python fractions.  NaN results are 0x7fffffff in single precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Operand = Any  # an array or a NumPy scalar
NAN32 = np.array(0x7FFFFFFF, np.uint32).view(np.float32)[()]
MODES = ("rn", "rz", "ru", "rd")


def canonical(x: Array) -> Array:
    """float32 with every NaN replaced by 0x7fffffff."""
    return np.where(np.isnan(x), NAN32, x.astype(np.float32)).astype(np.float32)


def flush(x: Array) -> Array:
    """float32 with denormals replaced by zero of the same sign."""
    x = np.asarray(x, np.float32)
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def saturate(x: Array) -> Array:
    """.SAT: clamp to [0, 1], NaN and -0 to +0."""
    x = np.asarray(x, np.float32)
    return np.where(x > 0, np.minimum(x, np.float32(1)), np.float32(0)).astype(np.float32)


def to_f32(x: Array, mode: str = "rn") -> Array:
    """Round float64 to float32."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        y = x.astype(np.float32)
        wide = y.astype(np.float64)
        down, up = np.nextafter(y, np.float32(-np.inf)), np.nextafter(y, np.float32(np.inf))
    if mode in ("rd", "rz"):
        lower = np.where(wide > x, down, y)
    if mode in ("ru", "rz"):
        upper = np.where(wide < x, up, y)
    if mode == "rd":
        y = lower
    elif mode == "ru":
        y = upper
    elif mode == "rz":
        y = np.where(x > 0, lower, upper)
    # nextafter steps over zero without its sign: a result of zero has the sign of the exact value.
    y = np.where((y == 0) & (x != 0), np.copysign(np.float32(0), x.astype(np.float32)), y)
    return canonical(y)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """float64 a + b rounded to odd: the exact error (Knuth's two-sum) decides the last bit."""
    with np.errstate(all="ignore"):
        s = a + b
        bb = s - a
        error = (a - (s - bb)) + (b - bb)
        even = (s.view(np.int64) & 1) == 0
        fix = np.isfinite(s) & (error != 0) & even
        toward = np.where(error > 0, np.inf, -np.inf)
        return np.where(fix, np.nextafter(s, toward), s)


def _zero_sign(exact: Array, a: Array, b: Array, mode: str) -> Array:
    """The sign of an exactly zero sum a + b: that of the operands if equal, else + (- when rounding down)."""
    zero = (exact == 0) & (a + b == 0)
    both = np.signbit(a) & np.signbit(b)
    either = np.signbit(a) | np.signbit(b)
    negative = either if mode == "rd" else both
    return np.where(zero, np.where(negative, -0.0, 0.0), exact)


def add32(a: Operand, b: Operand, mode: str = "rn", ftz: bool = False) -> Array:
    a, b = _widen(a, ftz), _widen(b, ftz)
    return _finish(_zero_sign(_sum_to_odd(a, b), a, b, mode), mode, ftz)


def mul32(a: Operand, b: Operand, mode: str = "rn", ftz: bool = False) -> Array:
    with np.errstate(all="ignore"):
        return _finish(_widen(a, ftz) * _widen(b, ftz), mode, ftz)


def fma32(a: Operand, b: Operand, c: Operand, mode: str = "rn", ftz: bool = False) -> Array:
    with np.errstate(all="ignore"):
        product, c = _widen(a, ftz) * _widen(b, ftz), _widen(c, ftz)
        return _finish(_zero_sign(_sum_to_odd(product, c), product, c, mode), mode, ftz)


def div32(a: Operand, b: Operand, mode: str = "rn", ftz: bool = False) -> Array:
    """The double-precision quotient is never within 2^-53 of a single-precision boundary unless it is on it."""
    with np.errstate(all="ignore"):
        return _finish(_widen(a, ftz) / _widen(b, ftz), mode, ftz)


def sqrt32(a: Operand, mode: str = "rn", ftz: bool = False) -> Array:
    with np.errstate(all="ignore"):
        return _finish(np.sqrt(_widen(a, ftz)), mode, ftz)


def _widen(x: Operand, ftz: bool) -> Array:
    return np.asarray(flush(x) if ftz else x, np.float32).astype(np.float64)


def _finish(x: Array, mode: str, ftz: bool) -> Array:
    """Round to float32, keeping the zero's sign.

    Flushing looks at the value before rounding: what is below 2^-126 becomes zero even if it would round up to it
    (seen on an H200 in multiplication and division).
    """
    y = to_f32(x, mode)
    zero = (x == 0) | (ftz & (np.abs(x) < 2.0**-126))
    return np.where(zero, np.copysign(np.float32(0), x).astype(np.float32), y).astype(np.float32)


# ------------------------------------------------------------------------------------------------ double precision


def round_fraction(x: Fraction, mode: str, bits: int = 53, emin: int = -1022, emax: int = 1023) -> float:
    """A non-zero rational rounded to a binary format of `bits` significant bits with gradual underflow."""
    sign, x = (-1.0, -x) if x < 0 else (1.0, x)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > x:
        exponent -= 1
    quantum = max(exponent, emin) - (bits - 1)
    scaled = x / Fraction(2) ** quantum
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    half = 2 * rest - scaled.denominator
    up = {
        "rn": half > 0 or (half == 0 and whole & 1 == 1),
        "rz": False,
        "ru": rest > 0 and sign > 0,
        "rd": rest > 0 and sign < 0,
    }[mode]
    whole += up
    if whole * Fraction(2) ** quantum >= Fraction(2) ** (emax + 1):
        away = mode == "rn" or (mode == "ru" and sign > 0) or (mode == "rd" and sign < 0)
        return sign * (math.inf if away else float((2 - Fraction(2) ** (1 - bits)) * Fraction(2) ** emax))
    return sign * math.ldexp(float(whole), quantum)


def _elementwise(function: Callable[..., float]) -> Callable[..., Array]:
    def apply(*operands: Operand, mode: str = "rn") -> Array:
        arrays = np.broadcast_arrays(*operands)
        flat = [function(*map(float, row), mode) for row in zip(*[array.ravel() for array in arrays], strict=True)]
        return np.array(flat, np.float64).reshape(arrays[0].shape)

    return apply


def _fma64(a: float, b: float, c: float, mode: str) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            infinite = np.float64(a if math.isinf(a) or math.isnan(a) else math.copysign(1.0, a) if a else 0.0)
            other = np.float64(b if math.isinf(b) or math.isnan(b) else math.copysign(1.0, b) if b else 0.0)
            return float(infinite * other + (c if not math.isfinite(c) else 0.0))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        signs = (math.copysign(1.0, a) * math.copysign(1.0, b) < 0, math.copysign(1.0, c) < 0)
        negative = any(signs) if mode == "rd" else all(signs)
        return -0.0 if negative else 0.0
    return round_fraction(exact, mode)


def _div64(a: float, b: float, mode: str) -> float:
    if not math.isfinite(a) or not math.isfinite(b) or a == 0 or b == 0:
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return round_fraction(Fraction(a) / Fraction(b), mode)


def _root(x: Fraction) -> Fraction:
    """The square root to about 200 bits, exact when it is a short binary fraction, else cut with a sticky bit."""
    shift = 400 - 2 * ((x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    scaled = x * Fraction(2) ** shift
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    exact = whole * whole == scaled
    return (Fraction(whole) if exact else Fraction(2 * whole + 1, 2)) / Fraction(2) ** (shift // 2)


def _sqrt64(a: float, mode: str) -> float:
    if not math.isfinite(a) or a <= 0:
        return a if a == 0 or a == math.inf else math.nan
    return round_fraction(_root(Fraction(a)), mode)


def _rsqrt32(a: float, mode: str) -> float:
    if a == 0:
        return math.copysign(math.inf, a)
    if not a > 0 or math.isinf(a):
        return 0.0 if a == math.inf else math.nan
    return round_fraction(_root(1 / Fraction(a)), mode, 24, -126, 127)


fma64 = _elementwise(_fma64)
div64 = _elementwise(_div64)
sqrt64 = _elementwise(_sqrt64)
_rsqrt = _elementwise(_rsqrt32)
add64 = _elementwise(lambda a, b, mode: _fma64(a, 1.0, b, mode))


def mul64(a: Operand, b: Operand, mode: str = "rn") -> Array:
    """A product of zero has the sign of its factors in every mode."""
    with np.errstate(all="ignore"):
        plain = np.multiply(a, b)
        exact = fma64(a, b, np.zeros_like(plain), mode=mode)
    return np.where((np.asarray(a) == 0) | (np.asarray(b) == 0), plain, exact)


def rsqrt32(a: Array) -> Array:
    """Correctly rounded reciprocal square root of float32."""
    return canonical(_rsqrt(np.asarray(a, np.float32)).astype(np.float32))


# ----------------------------------------------------------------------------------------------------- conversions


def to_integer(x: Array, dtype: np.dtype[Any] | type, mode: str = "rz") -> Array:
    """Float to integer as PTX `cvt` does: round, then saturate.

    NaN gives 0, but 1 << (bits - 1) if the source is float64 or the result 64 bits wide (PTX ISA, `cvt`).
    """
    x, info = np.asarray(x), np.iinfo(dtype)
    rounded = {"rz": np.trunc, "rn": np.rint, "ru": np.ceil, "rd": np.floor}[mode](x.astype(np.float64))
    low, high = float(info.min), float(info.max)
    with np.errstate(all="ignore"):
        safe = np.where((rounded >= low) & (rounded < high), rounded, 0.0)
    result = safe.astype(dtype)
    result = np.where(rounded >= high, info.max, np.where(rounded <= low, info.min, result)).astype(dtype)
    odd_nan = x.dtype == np.float64 or info.bits == 64
    nan = np.array(1 << (info.bits - 1), np.uint64).astype(f"u{info.bits // 8}").view(dtype) if odd_nan else dtype(0)  # type: ignore[operator]
    return np.where(np.isnan(x), nan, result).astype(dtype)


def integer_to_f32(x: Array, mode: str = "rn") -> Array:
    return canonical(np.array([round_fraction(Fraction(int(v)), mode, 24, -126, 127) if v else 0.0 for v in x.ravel()]))


def integer_to_f64(x: Array, mode: str = "rn") -> Array:
    return np.array([round_fraction(Fraction(int(v)), mode) if v else 0.0 for v in x.ravel()])


def to_f16(x: Array, mode: str = "rn") -> Array:
    """Round float32 to float16."""
    with np.errstate(all="ignore"):
        values = [
            round_fraction(Fraction(float(v)), mode, 11, -14, 15) if np.isfinite(v) and v != 0 else float(v)
            for v in np.asarray(x).ravel()
        ]
        return np.array(values, np.float64).astype(np.float16).reshape(np.shape(x))
