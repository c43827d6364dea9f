import itertools

import numpy as np
import pytest

from maxdnn.reference import conv_reference, relative_error

SEED = 7


def by_definition(images, filters, stride, padding, alpha):
    """The convolution as the sum it is defined to be, one product at a time."""
    C, H, W, N = images.shape
    _, R, S, K = filters.shape
    P, Q = ((n + 2 * pad - f) // st + 1 for n, pad, f, st in zip((H, W), padding, (R, S), stride, strict=True))
    out, magnitude = np.zeros((K, P, Q, N)), np.zeros((K, P, Q, N))
    for k, p, q, c, r, s in itertools.product(range(K), range(P), range(Q), range(C), range(R), range(S)):
        h, w = p * stride[0] - padding[0] + r, q * stride[1] - padding[1] + s
        if 0 <= h < H and 0 <= w < W:
            term = alpha * images[c, h, w].astype(np.float64) * np.float64(filters[c, r, s, k])
            out[k, p, q] += term
            magnitude[k, p, q] += np.abs(term)
    return out, magnitude


@pytest.mark.parametrize("sizes, stride, padding", [
    ((3, 2, 6, 7, 4, 3, 2), (1, 1), (0, 0)),
    ((2, 3, 5, 9, 3, 2, 5), (2, 3), (1, 2)),
    ((1, 1, 3, 2, 1, 7, 6), (1, 2), (4, 5)),  # filters larger than the map itself
    ((2, 1, 4, 4, 2, 1, 1), (3, 1), (5, 5)),  # whole outputs of zeros
    ((5, 2, 8, 8, 2, 3, 3), (4, 4), (0, 3)),
])
def test_matches_the_definition(sizes, stride, padding):
    N, C, H, W, K, R, S = sizes
    rng = np.random.default_rng(SEED)
    images = rng.uniform(-1, 1, (C, H, W, N)).astype(np.float32)
    filters = rng.uniform(-1, 1, (C, R, S, K)).astype(np.float32)
    out, magnitude = conv_reference(images, filters, stride=stride, padding=padding, alpha=-1.5)
    want, want_magnitude = by_definition(images, filters, stride, padding, -1.5)
    np.testing.assert_allclose(out, want, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(magnitude, want_magnitude, rtol=1e-5)


def test_relative_error_is_measured_against_the_terms_and_not_the_sum():
    assert relative_error(np.array([1e-6, 0.0]), np.array([0.0, 0.0]), np.array([2.0, 0.0])) == 5e-7


def test_a_value_where_no_term_is_counts_as_infinitely_wrong():
    assert relative_error(np.array([1e-9]), np.array([0.0]), np.array([0.0])) == np.inf


def test_a_nan_is_never_a_small_error():
    assert np.isnan(relative_error(np.array([np.nan, 0.0]), np.zeros(2), np.ones(2)))
