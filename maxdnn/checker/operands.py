"""Where in shared memory operands of products lie: what a descriptor says, on NumPy arrays."""

import functools
from typing import NamedTuple

import numpy as np

_SIZES = {"f16": 2, "bf16": 2, "tf32": 4}  # bytes of an element; a product has 32 bytes of k
_DEPTH_BYTES = 32
_ADDRESSES = (1 << 18) - 1


class Product(NamedTuple):
    """An operand of a product: type of its elements, "a" or "b", columns of the product, which of the warps of its
    warpgroup, flags (1 A, 2 B transposed)."""

    type: str
    operand: str
    columns: int
    warp: int
    flags: int


@functools.lru_cache(4096)
def product_words(desc: int, of: Product) -> np.ndarray:
    """The words that a warp's product reads through a descriptor of 64 bits."""
    size = _SIZES[of.type]
    rows = np.arange(of.columns) if of.operand == "b" else np.arange(16 * of.warp, 16 * of.warp + 16)
    row, k = (x.ravel() for x in np.meshgrid(rows, np.arange(_DEPTH_BYTES // size), indexing="ij"))
    start, leading, stride = ((desc >> place & 0x3FFF) << 4 for place in (0, 16, 32))
    mode, base = desc >> 62 & 3, desc >> 49 & 7
    log = 8 - mode if mode else 4  # of a row's bytes
    if of.flags & (1 if of.operand == "a" else 2):
        whole, rest = row >> log - 1, row & (1 << log - 1) - 1
        far, near = (leading, stride) if mode else (stride, leading)
        offset = whole * far + (k >> 3) * near + ((k & 7) << log) + (rest << 1)
    else:
        byte = k * size
        along = byte if mode else (byte >> 4) * leading + (byte & 15)
        offset = (row >> 3) * stride + ((row & 7) << log) + along
    address = start + offset & _ADDRESSES
    mask = 15 >> mode if mode else 0
    address = address ^ ((address >> 7) - base & mask) << 4
    return np.unique(address // 4)
