"""What the forward kernels compute, and how a layer and the gradient with respect to its images come down to it: the
latter is a correlation of the gradients with turned filters, or, with strides, one for every stride-th row and column.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...errors import ShapeError
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, Launch, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape, Steps
from ..memory_ops.plan import MAX_GRID_YZ, TURN, TURN_TILE
from ..spec import refuses_strided

EIGHT = 8
"""Channels of a tap that an iteration over classes of pixels consumes."""

CLASSES_BYTES = 65536
"""What constant memory holds of classes and their taps."""

CLASS_WORDS, TAP_BYTES = 14, 24
_MOST_CLASSES = 65536  # of the rows times those of the columns; each is a launch or an entry of a table
_MOST = 32768  # the kernel's divisions by a multiplication are exact up to here
_TURN_SLOTS = 130  # issue slots of a warp, counted in the source


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
    classes = min(s.str_h, s.H) * min(s.str_w, s.W)
    if classes > _MOST_CLASSES:
        raise ShapeError(f"stride of a gradient with respect to images must make at most {_MOST_CLASSES} classes of "
                         f"pixels that other taps reach (got {classes} for {s})")
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
    """The rows (or columns) of the maps from `first` on that the same taps of the filters reach, turned."""

    first: int
    count: int
    taps: int
    padding: int
    dilation: int
    tap: int
    step: int


def _classes(size: int, taps: int, stride: int, padding: int, dilation: int) -> list[_Class]:
    # Row h of the map met tap r in output row (h + padding - r dilation) / stride, if that is a whole number.
    reached: dict[int, list[int]] = {}
    for r in range(taps):
        reached.setdefault((r * dilation - padding) % stride, []).append(r)
    found = []
    for first in range(min(stride, size)):
        reach = reached.get(first)
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
    """Runs of pixels that the same taps reach, found by where that may change: work that grows with the taps alone."""
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
def pixel_classes(problem: Problem) -> tuple[PixelClass, ...]:
    """Those with the most taps first, so that the last blocks to begin are short."""
    found = [PixelClass(s, rows, columns) for s in correlations(problem)
             for rows in _spans(s.P, s.str_h, s.pad_h, s.dil_h, s.R, s.H)
             for columns in _spans(s.Q, s.str_w, s.pad_w, s.dil_w, s.S, s.W)]
    return tuple(sorted(found, key=lambda x: (-x.taps, -x.pixels)))


def refuses_classes(problem: Problem) -> str | None:
    """What of a problem no launch over classes of pixels serves (classes.py)."""
    s = correlations(problem)[0]
    if s.C // s.groups % EIGHT:
        return f"groups of {s.C // s.groups} filters, no multiple of {EIGHT}"
    refused = refuses_strided(problem)
    if refused is None and not any(x.taps for x in pixel_classes(problem)):
        return "images that no tap reaches"
    if refused is None and class_bytes(pixel_classes(problem)) > CLASSES_BYTES:
        return f"pixels of more classes than fit {CLASSES_BYTES} bytes"
    return refused


def class_bytes(classes: tuple[PixelClass, ...]) -> int:
    return tap_lists_at(len(classes)) + TAP_BYTES * sum(x.taps for x in classes)


def tap_lists_at(classes: int) -> int:
    """Where the lists of taps begin: behind the classes and a last word."""
    return -(-FLOAT_BYTES * (CLASS_WORDS * classes + 1) // 8) * 8


def as_they_lie(problem: Problem) -> bool:
    """Whether filters of one tap need no turning: those of N,C,H,W are K,C."""
    s: ConvShape = problem.shape
    return problem.layout == "NCHW" and s.R == s.S == s.groups == 1


def turned(problem: Problem, s: Correlation, rows: int, columns: int, region: Callable[[str, int], str]) -> Launch:
    """Writes the filters of a problem of kind "data" for one of its correlations: `rows` rows (c, r, s), zero from the
    last on, of groups x columns floats, zero where a group has no such channel. Fills region `turned` of `region`."""
    layer: ConvShape = problem.shape
    c, k, row = layer.C // layer.groups, layer.K // layer.groups, s.groups * columns
    (tap_h, step_h), (tap_w, step_w) = s.taps
    if problem.layout == "CHWN":
        src_s, src_r, src_c, src_k = layer.K, layer.S * layer.K, layer.R * layer.S * layer.K, 1
    else:
        src_s, src_r, src_c, src_k = 1, layer.S, layer.R * layer.S, c * layer.R * layer.S
    taps, tiles = s.R * s.S, columns // TURN_TILE
    filters = -(-rows // taps)
    for what, count, limit in (("filter taps R x S", taps, _MOST), ("filters / 32", filters // TURN_TILE, MAX_GRID_YZ),
                               ("channels of all groups / 32", row // TURN_TILE, _MOST)):
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} (got {count} for {layer})")
    name = region(f"turned_{s.first[0]}_{s.first[1]}" if s.every != (1, 1) else "turned", rows * row)
    grid = taps, -(-filters // TURN_TILE), row // TURN_TILE
    values: dict[str, Value] = {"dst": name, "src": "filters", "rows": rows, "row": row, "group_tiles": tiles,
              "group_magic": -(-2**31 // tiles), "taps": taps, "taps_w": s.S, "taps_magic": -(-2**31 // s.S), "c": c,
              "k": k, "src_start": tap_h * src_r + tap_w * src_s, "src_r": step_h * src_r % 2**32,
              "src_s": step_w * src_s % 2**32, "src_c": src_c, "src_k": src_k, "src_group": k * src_k,
              "across": int(src_k < src_c)}
    blocks = grid[0] * grid[1] * grid[2]
    work = Work(blocks, 8 * _TURN_SLOTS, 1500, 4 * rows * row + 4 * c * k * taps * s.groups)
    return Launch(TURN, grid, values, work, "filters are turned: their channels become rows", (name,))
