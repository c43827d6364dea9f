"""Programs in CUDA C that judge the timing model of sm_90: NVRTC compiles them, none was written with a figure of the
model in mind. Each is a function of sizes that makes its memory, one launch and what NumPy computes in its place."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FOLDER = Path(__file__).parent
_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Work:
    """A launch. `args`: names of buffers, and NumPy scalars; `expected`: buffers as they are afterwards. `error`: how
    far floats may be from that, as a share of the largest; `unlike`: the share of elements that may be others. `once`:
    a second launch would find other work to do."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: Sequence[Any]
    buffers: Mapping[str, Array]
    expected: Callable[[], Mapping[str, Array]]
    constants: Mapping[str, Array] = field(default_factory=dict)
    error: float = 1e-5
    unlike: float = 0
    once: bool = False


@dataclass(frozen=True)
class Program:
    """`sizes`: of the launches that are timed; `small`: of one that is compared with NumPy."""

    kernel: str
    source: str
    make: Callable[..., Work]
    sizes: Sequence[tuple[Any, ...]]
    small: tuple[Any, ...]


PROGRAMS: dict[str, Program] = {}


def program(
    source: str, sizes: Sequence[tuple[Any, ...]], small: tuple[Any, ...], kernel: str = ""
) -> Callable[..., Any]:
    """Registers a function that makes the work of a kernel of its name."""

    def keep(make: Callable[..., Work]) -> Callable[..., Work]:
        name = kernel or make.__name__
        PROGRAMS[name] = Program(name, source, make, sizes, small)
        return make

    return keep


def line(blocks: int, threads: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block of one dimension."""
    return (blocks, 1, 1), (threads, 1, 1)


def cover(n: int, threads: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """As many blocks as give each of `n` a thread."""
    return line(-(-n // threads), threads)


@functools.cache
def _random(seed: int) -> Array:
    return np.random.default_rng(seed).random(_NUMBERS, np.float32)


def floats(n: int, low: float = -1, high: float = 1, seed: int = 1, dtype: Any = np.float32) -> Array:
    """Ordinary numbers; the same million again and again."""
    return (low + (high - low) * np.resize(_random(seed), n)).astype(dtype)


def integers(n: int, low: int, high: int, seed: int = 1, dtype: Any = np.int32) -> Array:
    return np.random.default_rng(seed).integers(low, high, n, dtype)


def all_programs() -> dict[str, Program]:
    from . import algebra, grids, numbers, products, reductions, streams  # noqa: F401  (they register)

    return PROGRAMS
