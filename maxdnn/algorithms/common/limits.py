"""Limits of kernels and GPUs that several algorithms share."""

from collections.abc import Iterable

from ...errors import ShapeError

TEXEL_FLOATS, TEXEL_BYTES = 4, 16
"""Of a texel: operands are read 16 bytes at a time."""

MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits
REACH = 2**32  # bytes: kernels of sm_90 count maps and filters in 32 bits
CONSTANT_BYTES = 65536  # of a constant bank
MAX_GRID_YZ = 65535  # CUDA C Programming Guide, technical specifications


def within(shape: object, limits: Iterable[tuple[str, int, int, str]]) -> None:
    """Raises ShapeError for the first (what, how many, at most, of what) that is beyond its limit."""
    for what, count, limit, reason in limits:
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} {reason} (got {count} for {shape})")


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
