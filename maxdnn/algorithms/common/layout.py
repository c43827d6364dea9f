"""Where the elements of an array lie, shape : stride."""

import math
from dataclasses import dataclass

from ...problem.problem import Problem
from ...problem.shape import ConvShape


@dataclass(frozen=True)
class Layout:
    """An array in memory. `axes`: a letter for each axis, the outermost first. `strides`: elements from one index of an
    axis to the next."""

    axes: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def compact(cls, axes: str, shape: tuple[int, ...]) -> "Layout":
        """Without gaps, the last axis innermost."""
        return cls(axes, shape, tuple(math.prod(shape[at + 1:]) for at in range(len(shape))))

    def __getitem__(self, axis: str) -> int:
        """Its stride."""
        return self.strides[self.axes.index(axis)]

    def steps(self, axes: str) -> tuple[int, ...]:
        """The strides of some axes, in that order."""
        return tuple(self[axis] for axis in axes)

    @property
    def extent(self) -> int:
        """Elements from the first to the last one, both included."""
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


def maps(layout: str, n: int, c: int, h: int, w: int) -> Layout:
    """Images, gradients or results without gaps: axes N, C (channels or filters), H and W."""
    return Layout.compact(layout, (n, c, h, w) if layout == "NCHW" else (c, h, w, n))


def operand(problem: Problem, role: str, n: int, c: int, h: int, w: int) -> Layout:
    """The maps of a problem, wherever their strides lead."""
    found, strides = maps(problem.layout, n, c, h, w), problem.operand(role).strides
    return found if strides is None else Layout(found.axes, found.shape, strides)


def filters(problem: Problem) -> Layout:
    """Filters of a layer (or their gradients): axes K, C (of a group), R and S."""
    s: ConvShape = problem.shape
    c = s.C // s.groups
    if problem.layout == "NCHW":
        return Layout.compact("KCRS", (s.K, c, s.R, s.S))
    return Layout.compact("CRSK", (c, s.R, s.S, s.K))
