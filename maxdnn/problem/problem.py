"""What is to be computed, as a value: the kind of work, its sizes, its operands. Knows no kernel and no device."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from ..errors import ShapeError, shown
from .activations import ACTIVATIONS
from .shape import ConvShape, ProductShape, SumShape

LAYOUTS = ("CHWN", "NCHW")
MOST_ELEMENTS = 2**36
"""Of an operand: 256 GiB. No kernel reaches so far; each family has limits of its own, below."""
MOST_TAPS, MOST_PATCH = 2**16, 2**22
"""Rows or columns of a filter, and elements of one; tables grow with them."""


class Alignment(IntEnum):
    """Where an operand begins: at any float, at a multiple of 16 bytes, or where the device lets a texture begin (which
    is also a multiple of 16 bytes)."""

    FLOAT = 0
    VECTOR = 1
    TEXTURE = 2


@dataclass(frozen=True, slots=True)
class Operand:
    """A float32 array of the user's. `role`: its name in plans and errors. `strides`: in elements, None for
    C-contiguous."""

    role: str
    shape: tuple[int, ...]
    alignment: Alignment = Alignment.TEXTURE
    strides: tuple[int, ...] | None = None

    @property
    def extent(self) -> int:
        """Elements of memory from the first to the last one, both included."""
        if self.strides is None:
            return math.prod(self.shape)
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def channels_last(self) -> bool:
        """Whether it lies N,H,W,C without gaps (filters K,R,S,C), its axes being named N,C,H,W."""
        if len(self.shape) != 4 or self.strides is None:
            return False
        return all(size == 1 or stride == step
                   for size, stride, step in zip(self.shape, self.strides, channels_last(self.shape), strict=True))


def channels_last(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """The strides of such an array of a shape N,C,H,W."""
    _, c, h, w = shape
    return h * w * c, 1, w * c, c


@dataclass(frozen=True)
class Problem:
    """Work for which plans are made; equal problems get equal plans.

    `kind`: "forward", "data", "filters", "bias", "product", or what else a family serves. `shape`: the sizes, a
    ConvShape for convolutions. `operands`: all arrays, the result among them. `layout`: order of the operands' axes.
    `scalars`: names of the numbers that come with each call. `reads_out`: the result is added to what `out` holds,
    times the scalar "beta". `activation`: applied to each result, one of ACTIVATIONS. `most_workspace`: bytes that a
    plan which can be cut into runs stays within, None for any number."""

    kind: str
    shape: Any
    operands: tuple[Operand, ...]
    layout: str = ""
    scalars: tuple[str, ...] = ()
    reads_out: bool = False
    activation: str | None = None
    most_workspace: int | None = None

    def describe(self) -> str:
        """The problem in a line."""
        s = self.shape
        if isinstance(s, (ProductShape, SumShape)):
            return f"{s}, {s.flops / 1e9:.3f} GFLOP"
        if not isinstance(s, ConvShape):
            return f"{self.kind} of " + ", ".join(f"{o.role} {o.shape}" for o in self.operands)
        what = {"data": "gradient of the images", "filters": "gradient of the filters"}.get(self.kind)
        return f"{s}: {what or f'output {s.P} x {s.Q}'}, {s.flops / 1e9:.3f} GFLOP"

    def operand(self, role: str) -> Operand:
        return next(o for o in self.operands if o.role == role)

    def with_strides(self, role: str, strides: tuple[int, ...] | None) -> "Problem":
        """The same for an operand with strides."""
        if strides is None:
            return self
        return replace(self, operands=tuple(replace(o, strides=strides) if o.role == role else o
                                            for o in self.operands))

    def with_unaligned(self, roles: Iterable[str]) -> "Problem":
        """The same where some operands begin at any float. (A bias does wherever it lies.)"""
        odd = {role for role in roles if role != "bias"}
        if not odd:
            return self
        return replace(self, operands=tuple(replace(o, alignment=Alignment.FLOAT) if o.role in odd else o
                                            for o in self.operands))

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(o.role for o in self.operands)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What each operand must look like."""
        return {o.role: o.shape for o in self.operands}


def forward(shape: ConvShape, *, layout: str = "CHWN", unaligned: Iterable[str] = (), bias: bool = False,
            reads_out: bool = False, activation: str | None = None) -> Problem:
    """out = activation(alpha x images * filters + bias + beta x out). Layout "CHWN": images (C, H, W, N), filters
    (C/groups, R, S, K), out (K, P, Q, N); "NCHW": (N, C, H, W), (K, C/groups, R, S), (N, K, P, Q). bias: (K,).
    `unaligned`: the operands that may begin at any float. Raises ShapeError for what is no such problem."""
    if not isinstance(activation, (str, type(None))) or activation not in ACTIVATIONS:
        raise ShapeError(f"activation must be one of {', '.join(map(str, ACTIVATIONS))} (got {shown(activation)})")
    images, filters, out = _sizes(shape, layout)
    return _convolution("forward", shape, {"images": images, "filters": filters, "out": out}, layout, unaligned,
                        reads_out, bias, activation)


def data(shape: ConvShape, *, layout: str = "CHWN", unaligned: Iterable[str] = (), reads_out: bool = False) -> Problem:
    """The gradient with respect to the images of a layer: out, like its images, from `gradients`, like its output, and
    `filters`; times alpha, plus beta x out. Layouts and errors as for `forward`."""
    out, filters, gradients = _sizes(shape, layout)
    return _convolution("data", shape, {"gradients": gradients, "filters": filters, "out": out}, layout, unaligned,
                        reads_out)


def filters(shape: ConvShape, *, layout: str = "CHWN", unaligned: Iterable[str] = (),
            reads_out: bool = False) -> Problem:
    """The gradient with respect to the filters of a layer: out, like its filters, from `images` and from `gradients`,
    like its output; times alpha, plus beta x out. Layouts and errors as for `forward`."""
    images, out, gradients = _sizes(shape, layout)
    return _convolution("filters", shape, {"images": images, "gradients": gradients, "out": out}, layout, unaligned,
                        reads_out)


PASSES: dict[str, Callable[..., Problem]] = {"forward": forward, "data": data, "filters": filters}
"""The passes of a layer: fprop, dgrad, wgrad."""


def bias(shape: tuple[int, ...], *, layout: str = "CHWN", reads_out: bool = False) -> Problem:
    """The gradient with respect to the bias of a layer: out, (K,), the sum of `gradients` of the given shape,
    (K, P, Q, N) or (N, K, P, Q), over all but K; times alpha, plus beta x out. Errors as for `forward`."""
    check_layout(layout)
    if len(shape) != 4 or min(shape) < 1:
        raise ShapeError(f"gradients must have 4 axes of at least 1 (got {shape})")
    k = shape[1 if layout == "NCHW" else 0]
    operands = Operand("gradients", shape, Alignment.FLOAT), Operand("out", (k,), Alignment.FLOAT)
    return Problem("bias", SumShape(k, math.prod(shape) // k), operands, layout,
                   ("alpha", "beta") if reads_out else ("alpha",), reads_out)


def _sizes(shape: ConvShape, layout: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Of images, filters and output of a layer."""
    if not isinstance(shape, ConvShape):
        raise ShapeError(f"shape must be a ConvShape (got {type(shape).__name__})")
    check_layout(layout)
    s, c = shape, shape.C // shape.groups
    if layout == "NCHW":
        return (s.N, s.C, s.H, s.W), (s.K, c, s.R, s.S), (s.N, s.K, s.P, s.Q)
    return (s.C, s.H, s.W, s.N), (c, s.R, s.S, s.K), (s.K, s.P, s.Q, s.N)


def check_layout(layout: Any) -> None:
    """Raises ShapeError unless it names an order of axes."""
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ShapeError(f"layout must be one of {', '.join(LAYOUTS)} (got {shown(layout)})")


def _convolution(kind: str, shape: ConvShape, sizes: dict[str, tuple[int, ...]], layout: str, unaligned: Iterable[str],
                 reads_out: bool, bias: bool = False, activation: str | None = None) -> Problem:
    odd = frozenset(unaligned)
    operands = [Operand(role, size, Alignment.FLOAT if role in odd else Alignment.TEXTURE)
                for role, size in sizes.items()]
    if bias:
        operands.append(Operand("bias", (shape.K,)))
    _judge(operands)
    patch = max(shape.C, shape.K) // shape.groups * shape.R * shape.S
    for what, count, most in (("filter rows R", shape.R, MOST_TAPS), ("filter columns S", shape.S, MOST_TAPS),
                              ("elements of a filter, C/groups x R x S or K/groups x R x S,", patch, MOST_PATCH)):
        if count > most:
            raise ShapeError(f"{what} must be at most {most} (got {count} for {shape})")
    scalars = ("alpha", "beta") if reads_out else ("alpha",)
    return Problem(kind, shape, tuple(operands), layout, scalars, reads_out, activation)


def product(a: tuple[int, ...], b: tuple[int, ...], *, transpose_a: bool = False, transpose_b: bool = False,
            unaligned: Iterable[str] = (), reads_out: bool = False) -> Problem:
    """out = alpha x op(a) op(b) + beta x out for matrices of the shapes `a`, (.., M, K) or transposed (.., K, M), and
    `b`, (.., K, N) or transposed (.., N, K); op turns round what is transposed. Axes in front count matrices; both have
    the same, or one has none and serves every matrix of the other. `layout`: "n" or "t" for each. `unaligned`: the
    operands that may begin at any float. Raises ShapeError for what is no such problem."""
    for name, shape in (("a", a), ("b", b)):
        if len(shape) < 2:
            raise ShapeError(f"{name} must have at least 2 axes (got {len(shape)}: shape {shown(shape)})")
    (m, k), (k_b, n) = a[-2:][::-1 if transpose_a else 1], b[-2:][::-1 if transpose_b else 1]
    if k != k_b:
        flags = ", transpose_a=True" * bool(transpose_a) + ", transpose_b=True" * bool(transpose_b)
        raise ShapeError(f"axis {-2 if transpose_a else -1} of a and axis {-1 if transpose_b else -2} of b must be "
                         f"equal, the length of the sums (got a {shown(a)}, b {shown(b)}{flags})")
    stack = a[:-2] or b[:-2]
    if b[:-2] not in ((), stack):
        raise ShapeError("the axes of a and b in front of the last two must be equal, or one have none "
                         f"(got a {shown(a)}, b {shown(b)})")
    odd = frozenset(unaligned)
    operands = tuple(Operand(role, shape, Alignment.FLOAT if role in odd else Alignment.TEXTURE)
                     for role, shape in (("a", a), ("b", b), ("out", (*stack, m, n))))
    _judge(operands)
    scalars = ("alpha", "beta") if reads_out else ("alpha",)
    return Problem("product", ProductShape(m, n, k, math.prod(stack)), operands,
                   "".join("nt"[bool(turned)] for turned in (transpose_a, transpose_b)), scalars, reads_out)


def _judge(operands: Iterable[Operand]) -> None:
    """Raises ShapeError for an operand beyond every GPU, before anything is done whose work grows with its size."""
    for o in operands:
        if o.extent > MOST_ELEMENTS:
            raise ShapeError(f"{o.role} must have at most {MOST_ELEMENTS} elements (got shape {shown(o.shape)})")
