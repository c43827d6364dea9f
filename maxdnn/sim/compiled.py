"""The two entry points of the compiled engine, kept on disk between processes. Importing this module compiles.

Numba checks only the file of the function it keeps, not those of the functions it calls; a number made from all of this
room's sources, used inside the kept functions, is part of the key, so that a change anywhere compiles anew."""

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import njit

from . import engine
from .columns import P_STAMP
from .jit import pointer


def _stamp() -> int:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return zlib.crc32(b"".join(f.read_bytes() for f in files))


def _entries(stamp: int) -> tuple[Callable[[np.ndarray], None], Callable[[np.ndarray, int], bool]]:
    @njit("void(int64[::1])", nogil=True, cache=True)
    def begin(X):
        X[P_STAMP] = stamp
        engine.begin(pointer(X))

    @njit("boolean(int64[::1], int64)", nogil=True, cache=True)
    def run(X, until):
        X[P_STAMP] = stamp
        return engine.run(pointer(X), until)

    return begin, run


begin, run = _entries(_stamp())
