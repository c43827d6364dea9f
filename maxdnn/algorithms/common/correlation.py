"""What the forward kernels compute, and how a layer and the gradient with respect to its images come down to it: the
latter is a correlation of the gradients with rotated filters, or, with strides, one for every stride-th row and column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...planning.plan import FLOAT_BYTES
from ...problem.problem import Problem
from ...problem.shape import ConvShape, Steps
from ..spec import strided_reason
from .layout import Layout, maps
from .limits import CONSTANT_BYTES

EIGHT = 8
"""Channels of a tap that an iteration over classes of pixels consumes."""

CLASS_WORDS, TAP_BYTES = 14, 24


@dataclass(frozen=True)
class Correlation(Steps):
    """out[k, p, q, n] = sum over c, r, s of maps[c, p stride - padding + r dilation, .., n] x bank[c, r, s, k], zeros
    where the maps end. Like a ConvShape, but that P and Q are given, that padding may be negative, and that there may
    be no taps (R = S = 0). `first`, `every`, `whole`: its pixels are those of an output of `whole` rows and columns
    from `first` on, `every` so many. `taps`: the layer's tap that comes first, and the step to the
    next, along both axes."""

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    P: int
    Q: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    first: tuple[int, int]
    every: tuple[int, int]
    whole: tuple[int, int]
    taps: tuple[tuple[int, int], tuple[int, int]] = ((0, 1), (0, 1))

    @property
    def patch(self) -> int:
        return self.C // self.groups * self.R * self.S

    @property
    def margins(self) -> tuple[int, int, int, int]:
        """Rows above and below the maps and columns left and right of them that taps reach."""
        if not self.patch:
            return 0, 0, 0, 0
        below = (self.P - 1) * self.str_h - self.pad_h + (self.R - 1) * self.dil_h - (self.H - 1)
        right = (self.Q - 1) * self.str_w - self.pad_w + (self.S - 1) * self.dil_w - (self.W - 1)
        return max(0, self.pad_h), max(0, below), max(0, self.pad_w), max(0, right)

    @property
    def steps(self) -> tuple[int, int]:
        """`every`, or 0 along an axis of one pixel, whose stride may be beyond any map."""
        return self.every[0] if self.P > 1 else 0, self.every[1] if self.Q > 1 else 0

    @property
    def start(self) -> int:
        """Its first pixel in the whole output."""
        return self.first[0] * self.whole[1] + self.first[1]

    @property
    def outputs(self) -> int:
        """Pixels of an image of the whole output."""
        return self.whole[0] * self.whole[1]

    def images(self, layout: str) -> Layout:
        """The maps without gaps."""
        return maps(layout, self.N, self.C, self.H, self.W)

    def results(self, layout: str) -> Layout:
        """The whole output, whose filters are axis C."""
        return maps(layout, self.N, self.K, *self.whole)

    def __str__(self) -> str:
        return f"N{self.N} C{self.C} {self.H}x{self.W} -> K{self.K} {self.P}x{self.Q}, filter {self.R}x{self.S}"


def maps_of(problem: Problem) -> str:
    """The operand that is correlated with filters."""
    return "gradients" if problem.kind == "data" else "images"


@lru_cache(maxsize=64)
def correlations(problem: Problem) -> tuple[Correlation, ...]:
    """Those that a problem of kind "data" consists of, the first of them with taps; else the layer's own."""
    s: ConvShape = problem.shape
    if isinstance(s, Correlation):
        return (s,)
    if problem.kind != "data":
        return (Correlation(s.N, s.C, s.H, s.W, s.K, s.R, s.S, s.P, s.Q, (s.str_h, s.str_w), (s.pad_h, s.pad_w),
                            (s.dil_h, s.dil_w), s.groups, (0, 0), (1, 1), (s.P, s.Q)),)
    found = []
    for row in _classes(s.H, s.R, s.str_h, s.pad_h, s.dil_h):
        for column in _classes(s.W, s.S, s.str_w, s.pad_w, s.dil_w):
            taps = (row.taps, column.taps) if row.taps and column.taps else (0, 0)
            found.append(Correlation(
                s.N, s.K, s.P, s.Q, s.C, *taps, row.count, column.count, (1, 1), (row.padding, column.padding),
                (row.dilation, column.dilation), s.groups, (row.first, column.first), (s.str_h, s.str_w), (s.H, s.W),
                ((row.tap, row.step), (column.tap, column.step))))
    return tuple(sorted(found, key=lambda x: -x.R * x.S))


@dataclass(frozen=True)
class _Class:
    """The rows (or columns) of the maps from `first` on that the same taps of the filters reach, rotated."""

    first: int
    count: int
    taps: int
    padding: int
    dilation: int
    tap: int
    step: int


def _classes(size: int, taps: int, stride: int, padding: int, dilation: int) -> list[_Class]:
    found = []
    for first in range(min(stride, size)):
        # Row h of the map met tap r in output row (h + padding - r dilation) / stride, if that is a whole number.
        reach = [r for r in range(taps) if (first + padding - r * dilation) % stride == 0]
        count = -(-(size - first) // stride)
        if not reach:
            found.append(_Class(first, count, 0, 0, 1, 0, 0))
            continue
        apart = reach[1] - reach[0] if len(reach) > 1 else 1
        found.append(_Class(first, count, len(reach), (reach[-1] * dilation - first - padding) // stride,
                            max(1, apart * dilation // stride), reach[-1], -apart))
    return found


@dataclass(frozen=True)
class Span:
    """Rows (or columns) of a correlation, `count` of them from `first` on: `taps` taps from `tap` on reach them."""

    first: int
    count: int
    tap: int
    taps: int


@dataclass(frozen=True)
class PixelClass:
    """Pixels that the same taps reach: rows and columns of one of a problem's correlations."""

    s: Correlation
    rows: Span
    columns: Span

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def pixels(self) -> int:
        """Of an image."""
        return self.rows.count * self.columns.count


def _spans(pixels: int, stride: int, padding: int, dilation: int, taps: int, size: int) -> Iterator[Span]:
    first, count, found = 0, 0, (0, 0)
    for pixel in range(pixels):
        start = pixel * stride - padding
        tap = max(0, -(start // dilation))
        inside = tap, min(taps, (size - 1 - start) // dilation + 1) - tap
        inside = inside if inside[1] > 0 else (0, 0)
        if count and inside == found:
            count += 1
            continue
        if count:
            yield Span(first, count, *found)
        first, count, found = pixel, 1, inside
    yield Span(first, count, *found)


@lru_cache(maxsize=64)
def pixel_classes(problem: Problem) -> tuple[PixelClass, ...]:
    """Those with the most taps first, so that the last blocks to begin are short."""
    found = [PixelClass(s, rows, columns) for s in correlations(problem)
             for rows in _spans(s.P, s.str_h, s.pad_h, s.dil_h, s.R, s.H)
             for columns in _spans(s.Q, s.str_w, s.pad_w, s.dil_w, s.S, s.W)]
    return tuple(sorted(found, key=lambda x: (-x.taps, -x.pixels)))


def phases_reason(problem: Problem) -> str | None:
    """What of a problem no launch over classes of pixels serves (classes.py)."""
    s = correlations(problem)[0]
    if s.C // s.groups % EIGHT:
        return f"groups of {s.C // s.groups} filters, no multiple of {EIGHT}"
    refused = strided_reason(problem)
    if refused is None and not any(x.taps for x in pixel_classes(problem)):
        return "images that no tap reaches"
    if refused is None and class_bytes(pixel_classes(problem)) > CONSTANT_BYTES:
        return f"pixels of more classes than fit {CONSTANT_BYTES} bytes"
    return refused


def class_bytes(classes: tuple[PixelClass, ...]) -> int:
    return tap_lists_at(len(classes)) + TAP_BYTES * sum(x.taps for x in classes)


def tap_lists_at(classes: int) -> int:
    """Where the lists of taps begin: behind the classes and a last word."""
    return -(-FLOAT_BYTES * (CLASS_WORDS * classes + 1) // 8) * 8
