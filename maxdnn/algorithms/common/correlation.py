"""What the forward kernels compute, and how a layer and the gradient with respect to its images come down to it: the
latter is a correlation of the gradients with rotated filters, or, with strides, one for every stride-th row and column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...errors import ShapeError
from ...planning.plan import FLOAT_BYTES
from ...problem.problem import Problem
from ...problem.shape import ConvShape, Steps
from ..spec import strided_reason
from .layout import Layout, maps
from .limits import CONSTANT_BYTES

EIGHT = 8
"""Channels of a tap that an iteration over phases of pixels consumes."""

PHASE_WORDS, TAP_BYTES = 14, 24
_MOST_PHASES = 65536  # residues of rows times those of columns; each is a launch or an entry of a table


@dataclass(frozen=True)
class Correlation(Steps):
    """out[k, p, q, n] = sum over c, r, s of maps[c, p stride - padding + r dilation, .., n] x filters[c, r, s, k],
    zeros where the maps end. Like a ConvShape, but that P and Q are given, that padding may be negative, and that
    there may be no taps (R = S = 0). `first`, `every`, `whole`: its pixels are those of an output of `whole` rows and
    columns from `first` on, `every` so many. `taps`: the layer's tap that comes first, and the step to the next, along
    both axes."""

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
        """The rows above and below the maps, and the columns left and right of them, that taps reach."""
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
    """The correlations that make up a problem of kind "data", one with taps first; of another kind, the layer's own."""
    s: ConvShape = problem.shape
    if isinstance(s, Correlation):
        return (s,)
    if problem.kind != "data":
        return (Correlation(s.N, s.C, s.H, s.W, s.K, s.R, s.S, s.P, s.Q, (s.str_h, s.str_w), (s.pad_h, s.pad_w),
                            (s.dil_h, s.dil_w), s.groups, (0, 0), (1, 1), (s.P, s.Q)),)
    phases = min(s.str_h, s.H) * min(s.str_w, s.W)
    if phases > _MOST_PHASES:
        raise ShapeError(f"stride of a gradient with respect to images must make at most {_MOST_PHASES} residue phases "
                         f"(got {phases} for {s})")
    found = []
    for row in _residues(s.H, s.R, s.str_h, s.pad_h, s.dil_h):
        for column in _residues(s.W, s.S, s.str_w, s.pad_w, s.dil_w):
            taps = (row.taps, column.taps) if row.taps and column.taps else (0, 0)
            found.append(Correlation(
                s.N, s.K, s.P, s.Q, s.C, *taps, row.count, column.count, (1, 1), (row.padding, column.padding),
                (row.dilation, column.dilation), s.groups, (row.first, column.first), (s.str_h, s.str_w), (s.H, s.W),
                ((row.tap, row.step), (column.tap, column.step))))
    return tuple(sorted(found, key=lambda x: -x.R * x.S))


@dataclass(frozen=True)
class _Residue:
    """Rows (or columns) of the maps that the same taps of the rotated filters reach: `count` of them from `first` on,
    a stride apart."""

    first: int
    count: int
    taps: int
    padding: int
    dilation: int
    tap: int
    step: int


def _residues(size: int, taps: int, stride: int, padding: int, dilation: int) -> list[_Residue]:
    # Row h of the map met tap r in output row (h + padding - r dilation) / stride, if that is a whole number.
    reached: dict[int, list[int]] = {}
    for r in range(taps):
        reached.setdefault((r * dilation - padding) % stride, []).append(r)
    found = []
    for first in range(min(stride, size)):
        reach = reached.get(first)
        count = -(-(size - first) // stride)
        if not reach:
            found.append(_Residue(first, count, 0, 0, 1, 0, 0))
            continue
        apart = reach[1] - reach[0] if len(reach) > 1 else 1
        found.append(_Residue(first, count, len(reach), (reach[-1] * dilation - first - padding) // stride,
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
class Phase:
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
    """Runs of pixels that the same taps reach. They are found from the places where that can change, so the time grows
    with the number of taps, not of pixels."""
    def inside(pixel: int) -> tuple[int, int]:
        start = pixel * stride - padding
        tap = max(0, -(start // dilation))
        count = min(taps, (size - 1 - start) // dilation + 1) - tap
        return (tap, count) if count > 0 else (0, 0)
    # Tap t is inside from the first pixel on with pixel stride - padding + t dilation >= 0, to the last with < size.
    edges = {-(-(edge + padding - tap * dilation) // stride) for tap in range(taps) for edge in (0, size)}
    begins = [0, *sorted(edge for edge in edges if 0 < edge < pixels)]
    first, found = 0, inside(0)
    for pixel in begins[1:]:
        if inside(pixel) != found:
            yield Span(first, pixel - first, *found)
            first, found = pixel, inside(pixel)
    yield Span(first, pixels - first, *found)


@lru_cache(maxsize=64)
def phases_of(problem: Problem) -> tuple[Phase, ...]:
    """The phases, those with the most taps first, so that the last CTAs to start are short."""
    found = [Phase(s, rows, columns) for s in correlations(problem)
             for rows in _spans(s.P, s.str_h, s.pad_h, s.dil_h, s.R, s.H)
             for columns in _spans(s.Q, s.str_w, s.pad_w, s.dil_w, s.S, s.W)]
    return tuple(sorted(found, key=lambda x: (-x.taps, -x.pixels)))


def phases_reason(problem: Problem) -> str | None:
    """Why no launch over all phases (dgrad_strided) serves a problem; None if one does."""
    s = correlations(problem)[0]
    if s.C // s.groups % EIGHT:
        return f"groups of {s.C // s.groups} filters, no multiple of {EIGHT}"
    refused = strided_reason(problem)
    if refused is None and not any(x.taps for x in phases_of(problem)):
        return "images that no tap reaches"
    if refused is None and phase_bytes(phases_of(problem)) > CONSTANT_BYTES:
        return f"pixels of more phases than fit {CONSTANT_BYTES} bytes"
    return refused


def phase_bytes(phases: tuple[Phase, ...]) -> int:
    return tap_lists_at(len(phases)) + TAP_BYTES * sum(x.taps for x in phases)


def tap_lists_at(phases: int) -> int:
    """Where the lists of taps begin: behind the phases and a last word."""
    return -(-FLOAT_BYTES * (PHASE_WORDS * phases + 1) // 8) * 8
