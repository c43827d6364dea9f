"""What problems are, in float64: the sums of convolutions, their gradients and products, by their definition."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..problem.activations import activated
from ..problem.problem import Problem
from ..problem.shape import ConvShape


def truth(problem: Problem, given: Mapping[str, np.ndarray], scalars: Mapping[str, float]) -> np.ndarray:
    """The result of a problem in float64: alpha times the sums, plus bias, plus beta times the "out" of `given`, then
    the activation."""
    exact = {role: array.astype(np.float64) for role, array in given.items()}
    out = float(scalars.get("alpha", 1)) * _SUMS[problem.kind](problem, exact)
    if "bias" in exact:
        out += exact["bias"].reshape((-1, 1, 1) if problem.layout == "NCHW" else (-1, 1, 1, 1))
    if problem.reads_out:
        out += float(scalars["beta"]) * exact["out"]
    return activated(problem.activation, out)


def _product(problem: Problem, given: Mapping[str, np.ndarray]) -> np.ndarray:
    a, b = (np.swapaxes(given[role], -1, -2) if letter == "t" else given[role]
            for role, letter in zip("ab", problem.layout, strict=True))
    return np.asarray(a @ b)


def _bias(problem: Problem, given: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(_inner(problem, given["gradients"]).sum(axis=(1, 2, 3)))


def _convolution(problem: Problem, given: Mapping[str, np.ndarray]) -> np.ndarray:
    """The output of a layer, or the gradient of its images or filters, whichever is not given."""
    s: ConvShape = problem.shape
    arrays = {role: _inner(problem, array) for role, array in given.items() if role in _OPERANDS}
    sizes = {"forward": (s.K, s.P, s.Q, s.N), "data": (s.C, s.H, s.W, s.N), "filters": (s.C // s.groups, s.R, s.S, s.K)}
    out = np.zeros(sizes[problem.kind])
    images, filters, outputs = (arrays.get(role, out) for role in _OPERANDS)
    for r, c, here, there, k, q in _taps(s):
        of_filter = filters[:, r, c, k]
        of_image, of_output = images[there][:, here[0], here[1]], outputs[k][:, q[0], q[1]]
        if problem.kind == "forward":
            of_output += np.tensordot(of_filter, of_image, (0, 0))
        elif problem.kind == "data":
            of_image += np.tensordot(of_filter, of_output, (1, 0))
        else:
            of_filter += np.tensordot(of_image, of_output, ((1, 2, 3), (1, 2, 3)))
    return np.ascontiguousarray(out.transpose(3, 0, 1, 2)) if problem.layout == "NCHW" else out


def _taps(s: ConvShape) -> Iterator[tuple[int, int, Any, slice, slice, Any]]:
    """Of each group and tap: its row and column, the pixels of the map that it meets, the group's channels and filters,
    and the pixels of the output that meet it."""
    channels, filters = s.C // s.groups, s.K // s.groups
    for group in range(s.groups):
        there, k = (slice(group * n, group * n + n) for n in (channels, filters))
        for r in range(s.R):
            for c in range(s.S):
                rows = _met(r * s.dil_h - s.pad_h, s.str_h, s.H, s.P)
                columns = _met(c * s.dil_w - s.pad_w, s.str_w, s.W, s.Q)
                if rows and columns:
                    yield r, c, (rows[0], columns[0]), there, k, (rows[1], columns[1])


def _met(first: int, step: int, size: int, outputs: int) -> tuple[slice, slice] | None:
    """Which places of an axis of `size` the outputs' places `first`, `first + step`, .. are, and of which outputs."""
    low = max(0, -(first // step))
    high = min(outputs, (size - 1 - first) // step + 1)
    if low >= high:
        return None
    start = first + low * step
    return slice(start, start + (high - low - 1) * step + 1, step), slice(low, high)


def _inner(problem: Problem, array: np.ndarray) -> np.ndarray:
    """Maps as C,H,W,N, filters as C,R,S,K."""
    return array.transpose(1, 2, 3, 0) if problem.layout == "NCHW" else array


_OPERANDS = "images", "filters", "gradients"
_SUMS = {"product": _product, "bias": _bias, "forward": _convolution, "data": _convolution, "filters": _convolution}
