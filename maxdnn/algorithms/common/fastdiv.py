"""Division by multiplication: the parameters by which kernels divide, and what kernels compute with them."""

from collections.abc import Iterable, Mapping

import numpy as np

from ...errors import ShapeError
from ...planning.plan import Value

MOST_SHORT = 32768
"""Up to here `short_magic` is exact."""

MOST_REACH = 2047
"""Of a filter, dilation x taps, up to which `ceil_magic` serves."""


def magic(divisor: int, limit: int) -> tuple[int, int]:
    """(factor, shift): x // divisor = ((x + 1) * factor) >> (32 + shift) for 0 <= x < limit, factor below 2^32.

    With error = 2^(32 + shift) - factor * divisor, which is at least 1, the quotient is exact while
    limit * error <= 2^(32 + shift). Raises ShapeError where there is none."""
    for shift in range(32):
        factor = min(2**32 - 1, (2**(32 + shift) - 1) // divisor)
        if limit * (2**(32 + shift) - factor * divisor) <= 2**(32 + shift):
            return factor, shift
    raise ShapeError(f"pixels must be fewer than 2^31 (got {limit})")


def ceil_magic(divisor: int, limit: int) -> tuple[int, int]:
    """(factor, shift): ceil(x / divisor) = ((x + divisor - 1) * factor) >> shift for 0 <= x <= limit, below 2^16.
    Raises ShapeError where there is none."""
    for shift in range(32):
        factor = -(-2**shift // divisor)
        if factor < 2**16 and (factor * divisor - 2**shift) * (limit + divisor) < 2**shift:
            return factor, shift
    raise ShapeError(f"dilation x filter size must be below 2048 where there is padding (got {limit})")


def short_magic(divisor: int) -> int:
    """x // divisor = x * factor >> 31 for x up to `MOST_SHORT`."""
    return -(-2**31 // divisor)


def divisor(name: str, size: int, limit: int) -> dict[str, Value]:
    """Parameters of a division by `size` of what is below `limit`."""
    factor, shift = magic(size, limit)
    return {name: size, f"{name}_magic": factor, f"{name}_shift": shift}


def tap_tests(axes: Iterable[tuple[str, int, int]], tested: bool) -> dict[str, Value]:
    """Parameters of the test whether taps lie inside the map, of (axis, dilation, taps); zeros if none is made."""
    found: dict[str, Value] = {}
    for name, dilation, taps in axes:
        factor, shift = ceil_magic(dilation, dilation * taps) if tested else (0, 0)
        found |= {f"reach_{name}": dilation * taps * tested, f"dil_{name}_magic": factor,
                  f"dil_{name}_round": (dilation - 1) * factor, f"dil_{name}_shift": shift}
    return found


def quotient(v: Mapping[str, int], name: str, x: np.ndarray) -> np.ndarray:
    """x by the divisor that a launch's parameters `name` stand for, whose factor must be exact."""
    found = x // v[name]
    assert (((x + 1) * v[f"{name}_magic"] >> 32 + v[f"{name}_shift"]) == found).all(), name
    return found


def digits(v: Mapping[str, int], x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x in the number system of divisors d0 and d1, the fastest digit first."""
    first = quotient(v, "d0", x)
    second = quotient(v, "d1", first)
    return x % v["d0"], first % v["d1"], second


def tap_inside(v: Mapping[str, int], tap: int, h: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Whether the tap of a table (bit of its row, bit of its column 16 further) lies inside the map, for pixels whose
    first tap is at rows h and columns w."""
    row, column = (tap & 0xffff).bit_length() - 1, (tap >> 16).bit_length() - 1
    y, x = (at + index * (v[f"dil_{axis}_round"] // v[f"dil_{axis}_magic"] + 1)
            for axis, at, index in (("h", h, row), ("w", w, column)))
    return (y >= 0) & (y < v["h"]) & (x >= 0) & (x < v["w"])
