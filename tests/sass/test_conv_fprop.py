"""The convolution kernels on the virtual GPU against float64: ragged tiles on all axes, strides, runs, accumulation."""

import numpy as np
import pytest

from maxdnn.algorithms.paper.maxwell import CONV_64X64, CONV_128X32, CONV_PAPER

from .on_device import convolve

SEED = 20150115
# float32 FMA in sequence over E elements errs at most E * 2^-24 of the sum of |terms|; alpha and the addition to O add
# one rounding each. Random signs stay far below; 1e-6 holds for all sizes here (E <= 400) with room.
TOLERANCE = 1e-6


@pytest.fixture(params=[CONV_64X64, CONV_128X32, CONV_PAPER], ids=lambda spec: spec.name)
def spec(request):
    return request.param


def reference(maps, filters, stride):
    """Convolution in float64 and the sum of |terms|, both K,P,Q,N."""
    r, s = filters.shape[1:3]
    windows = np.lib.stride_tricks.sliding_window_view(maps.astype(float), (r, s), axis=(1, 2))
    windows = windows[:, ::stride[0], ::stride[1]]
    terms = "cpqnrs,crsk->kpqn"
    weights = filters.astype(float)
    return (np.einsum(terms, windows, weights, optimize=True),
            np.einsum(terms, abs(windows), abs(weights), optimize=True))


def check(spec, n, c, h, w, k, r, s, stride=(1, 1), alpha=1.0, add=False, **options):
    rng = np.random.default_rng(SEED)
    maps = rng.uniform(-1, 1, (c, h, w, n)).astype(np.float32)
    filters = rng.uniform(-1, 1, (c, r, s, k)).astype(np.float32)
    want, size = reference(maps, filters, stride)
    before = rng.uniform(-1, 1, want.shape).astype(np.float32) if add else None
    got = convolve(spec, maps, filters, stride=stride, alpha=alpha, out=before, **options)
    want, size = alpha * want, abs(alpha) * size
    if before is not None:
        want, size = want + before, size + abs(before)
    error = abs(got - want) / np.maximum(size, 1e-30)
    assert error.max() <= TOLERANCE, f"seed {SEED}: {np.argwhere(error > TOLERANCE)[:5]} of {error.shape} differ"


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("n", [1, 3, 4, 31, 33, 63, 64, 65, 96, 127, 128, 130])
def test_any_number_of_images(spec, n):
    check(spec, n, 2, 3, 3, 64, 2, 2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("k", [1, 3, 15, 16, 17, 32, 36, 49, 63, 64, 65, 100, 144])
def test_any_number_of_filters(spec, k):
    check(spec, 64, 2, 3, 3, k, 2, 2)


@pytest.mark.parametrize("elements", [1, 2, 7, 8, 9, 15, 16, 17, 24, 100])
def test_any_number_of_patch_elements(spec, elements):
    check(spec, 36, elements, 1, 2, 20, 1, 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("r", "s", "stride"), [(1, 1, (1, 1)), (3, 3, (1, 1)), (2, 5, (1, 2)), (5, 1, (3, 1)),
                                                (11, 11, (4, 4))])
def test_filter_sizes_and_strides(spec, r, s, stride):
    check(spec, 66, 3, 13, 14, 68, r, s, stride)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.37, 1e10])
def test_alpha_scales_the_sum(spec, alpha):
    check(spec, 5, 3, 4, 4, 5, 3, 3, alpha=alpha)


def test_nan_alpha_gives_nan_everywhere(spec):
    got = convolve(spec, np.ones((1, 2, 2, 5), np.float32), np.ones((1, 1, 1, 6), np.float32), alpha=np.nan)
    assert np.isnan(got).all()


@pytest.mark.parametrize(("n", "k"), [(64, 64), (128, 32), (70, 65), (1, 130), (64, 17)])
def test_accumulation_adds_to_what_is_there(spec, n, k):
    check(spec, n, 2, 3, 3, k, 2, 2, alpha=0.5, add=True)


@pytest.mark.parametrize("run", [8, 16, 40])
def test_elements_may_come_in_several_launches(spec, run):
    check(spec, 33, 5, 4, 4, 40, 3, 3, alpha=2.0, run_elements=run)


def test_a_full_table_of_16384_entries(spec):
    """The longest run one launch can take, with sums that float32 holds exactly."""
    maps, filters = np.ones((16384, 1, 1, 4), np.float32), np.ones((16384, 1, 1, 4), np.float32)
    filters[:] = np.arange(16384, dtype=np.float32).reshape(-1, 1, 1, 1) % 7
    assert (convolve(spec, maps, filters) == (np.arange(16384) % 7).sum()).all()


def test_tiles_of_images_and_filters_find_their_place(spec):
    """Several tiles both ways, exactly representable values: each output is its own number."""
    n, k = 200, 150
    maps = np.arange(n, dtype=np.float32).reshape(1, 1, 1, n)
    filters = np.arange(k, dtype=np.float32).reshape(1, 1, 1, k)
    got = convolve(spec, maps, filters)
    assert (got[:, 0, 0] == np.outer(np.arange(k), np.arange(n))).all()
