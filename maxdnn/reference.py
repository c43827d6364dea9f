"""Convolution in float64 on the host: the truth the kernels are judged by.

One output row at a time, so that a full-size layer needs no more memory than its patches for that row.
"""

from collections.abc import Iterator

import numpy as np

from .problem.shape import ConvShape


def reference_rows(images: np.ndarray, filters: np.ndarray, shape: ConvShape,
                   alpha: float = 1.0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of `conv_reference`, one at a time.

    Parameters
    ----------
    images : numpy.ndarray
        (C, H, W, N), any real dtype.
    filters : numpy.ndarray
        (C/groups, R, S, K), any real dtype.
    shape : ConvShape
        The layer.
    alpha : float
        Factor of the sums.

    Yields
    ------
    outputs : numpy.ndarray of float64
        (K, Q, N) of output row p.
    magnitudes : numpy.ndarray of float32
        (K, Q, N): the sum of |alpha * image * filter|, which a rounding error is measured against.
    """
    groups, C, K = shape.groups, shape.C // shape.groups, shape.K // shape.groups
    banks = []  # of each group K/groups x patch, and the factors of its magnitudes
    for group in range(groups):
        own = filters.reshape(shape.patch, shape.K)[:, group * K:][:, :K]
        flat = np.ascontiguousarray(own.T, dtype=np.float64)
        banks.append((flat * float(alpha), np.abs(flat).astype(np.float32) * np.float32(abs(alpha))))
    for p in range(shape.P):
        rows = []
        for group, (flat, magnitude) in enumerate(banks):
            patches = _patches(images[group * C:][:C], shape, p)
            rows.append((flat @ patches, magnitude @ np.abs(patches).astype(np.float32)))
        outputs, magnitudes = (np.concatenate(r) if groups > 1 else r[0] for r in zip(*rows, strict=True))
        yield outputs.reshape(-1, shape.Q, shape.N), magnitudes.reshape(-1, shape.Q, shape.N)


def conv_reference(images: np.ndarray, filters: np.ndarray, *, stride: int | tuple[int, int] = 1,
                   padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                   alpha: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Convolution in float64 on the host, with the sum of |terms| of each output.

    Parameters
    ----------
    images : numpy.ndarray
        (C, H, W, N), any real dtype.
    filters : numpy.ndarray
        (C/groups, R, S, K), any real dtype.
    stride, padding, dilation : int or (int, int)
        As for `conv_fprop`.
    groups : int
        As for `conv_fprop`.
    alpha : float
        Factor of the sums.

    Returns
    -------
    outputs : numpy.ndarray of float64
        (K, P, Q, N).
    magnitudes : numpy.ndarray of float32
        (K, P, Q, N): the sum of |alpha * image * filter|.

    Raises
    ------
    ShapeError
        The sizes make no layer.
    """
    C, H, W, N = images.shape
    _, R, S, K = filters.shape
    shape = ConvShape(N, C, H, W, K, R, S, stride, padding, dilation, groups)
    rows = list(reference_rows(images, filters, shape, alpha))
    return np.stack([out for out, _ in rows], axis=1), np.stack([mag for _, mag in rows], axis=1)


def relative_error(out: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> float:
    """The largest |out - expected| / magnitude over all elements.

    Parameters
    ----------
    out : numpy.ndarray
        What is judged.
    expected : numpy.ndarray
        What it should be, in the same shape.
    magnitude : numpy.ndarray
        Sums of |terms|, in the same shape.

    Returns
    -------
    float
        Infinity if an element without any term other than 0 is not 0; NaN if any element of `out` is NaN.
    """
    error = np.abs(out - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((error == 0) & (magnitude == 0), 0.0, error / magnitude)
    return float(ratio.max())


def _patches(images: np.ndarray, shape: ConvShape, p: int) -> np.ndarray:
    """The patches of output row p, of all channels of `images`, as a (C R S, Q N) float64 matrix."""
    C, R, S, Q, N = len(images), shape.R, shape.S, shape.Q, shape.N
    out = np.zeros((C, R, S, Q, N))
    for r in range(R):
        h = p * shape.str_h - shape.pad_h + r * shape.dil_h
        if not 0 <= h < shape.H:
            continue
        for s in range(S):
            first = s * shape.dil_w - shape.pad_w  # map column of output column 0
            q0 = max(0, -(first // shape.str_w))
            q1 = min(Q, (shape.W - 1 - first) // shape.str_w + 1)
            if q0 < q1:
                w = first + q0 * shape.str_w
                out[:, r, s, q0:q1] = images[:, h, w:w + (q1 - q0 - 1) * shape.str_w + 1:shape.str_w]
    return out.reshape(C * R * S, Q * N)
