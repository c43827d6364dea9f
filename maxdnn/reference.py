"""Convolution in float64 on the host: the truth the kernels are judged by. One output row at a time, so that a
full-size layer needs no more memory than its patches for that row."""

from collections.abc import Iterator

import numpy as np

from .shape import ConvShape


def reference_rows(images: np.ndarray, filters: np.ndarray, shape: ConvShape,
                   alpha: float = 1.0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each output row p: (outputs, magnitudes). images: (C, H, W, N), filters: (C, R, S, K), any real dtype.
    outputs: (K, Q, N) float64. magnitudes: same shape, float32, sum of |alpha x image x filter|: what a rounding error
    is measured against, so single precision is plenty."""
    C, R, S, K = filters.shape
    flat = np.ascontiguousarray(filters.reshape(C * R * S, K).T, dtype=np.float64)
    magnitude = np.abs(flat).astype(np.float32) * np.float32(abs(alpha))
    flat = flat * float(alpha)
    for p in range(shape.P):
        patches = _patches(images, shape, p)
        outputs = (flat @ patches).reshape(K, shape.Q, shape.N)
        yield outputs, (magnitude @ np.abs(patches).astype(np.float32)).reshape(K, shape.Q, shape.N)


def conv_reference(images: np.ndarray, filters: np.ndarray, *, stride: int | tuple[int, int] = 1,
                   padding: int | tuple[int, int] = 0, alpha: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """All rows of `reference_rows`: (outputs float64, magnitudes float32), both (K, P, Q, N). Raises ShapeError for
    sizes that make no layer."""
    C, H, W, N = images.shape
    _, R, S, K = filters.shape
    shape = ConvShape(N, C, H, W, K, R, S, stride, padding)
    rows = list(reference_rows(images, filters, shape, alpha))
    return np.stack([out for out, _ in rows], axis=1), np.stack([mag for _, mag in rows], axis=1)


def relative_error(out: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> float:
    """The largest |out - expected| / magnitude over all elements; an element without any non-zero term must be zero,
    else infinity. NaN, if any element of `out` is NaN."""
    error = np.abs(out - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((error == 0) & (magnitude == 0), 0.0, error / magnitude)
    return float(ratio.max())


def _patches(images: np.ndarray, shape: ConvShape, p: int) -> np.ndarray:
    """The patches of output row p as a (C R S, Q N) float64 matrix."""
    C, R, S, Q, N = shape.C, shape.R, shape.S, shape.Q, shape.N
    out = np.zeros((C, R, S, Q, N))
    for r in range(R):
        h = p * shape.str_h - shape.pad_h + r
        if not 0 <= h < shape.H:
            continue
        for s in range(S):
            first = s - shape.pad_w  # map column of output column 0
            q0 = max(0, -(first // shape.str_w))
            q1 = min(Q, (shape.W - 1 - first) // shape.str_w + 1)
            if q0 < q1:
                w = first + q0 * shape.str_w
                out[:, r, s, q0:q1] = images[:, h, w:w + (q1 - q0 - 1) * shape.str_w + 1:shape.str_w]
    return out.reshape(C * R * S, Q * N)
