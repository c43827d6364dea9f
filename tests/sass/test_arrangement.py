"""spad and stranspose on the virtual GPU: every element of the result, and nothing beside it."""

import numpy as np
import pytest

from maxdnn.algorithms.memory_ops.maxwell import PAD, TRANSPOSE

from .on_device import pad, transpose


def numbers(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(("shape", "padded", "offset"), [
    ((2, 3, 3, 5), (2, 5, 6, 8), (1, 2)),
    ((1, 1, 1, 1), (1, 1, 1, 4), (0, 0)),
    ((3, 2, 2, 128), (3, 6, 4, 128), (2, 1)),
    ((1, 2, 2, 130), (1, 4, 3, 132), (1, 0)),
    ((1, 1, 37, 300), (1, 1, 37, 300), (0, 0)),
    ((2, 4, 1, 3), (2, 9, 8, 4), (5, 5)),
])
def test_padding_surrounds_each_map_with_zeros(shape, padded, offset):
    src = numbers(*shape)
    want = np.zeros(padded, np.float32)
    want[:, offset[0]:offset[0] + shape[1], offset[1]:offset[1] + shape[2], :shape[3]] = src
    assert (pad(PAD, src, padded, offset) == want).all()


def test_padding_walks_over_channels_when_the_grid_is_smaller():
    src = numbers(7, 2, 2, 3)
    want = np.pad(src, [(0, 0), (1, 1), (1, 1), (0, 1)])
    assert (pad(PAD, src, want.shape, (1, 1), channel_blocks=3) == want).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (100, 1), (32, 32), (33, 70), (70, 33), (5, 257), (128, 64)])
def test_transpose_of_any_size(shape):
    src = numbers(*shape)
    assert (transpose(TRANSPOSE, src) == src.T).all()


def test_transpose_walks_over_column_tiles_when_the_grid_is_smaller():
    src = numbers(40, 200)
    assert (transpose(TRANSPOSE, src, column_blocks=2) == src.T).all()


@pytest.mark.parametrize("shape", [(3, 1, 1), (2, 33, 70), (5, 64, 40)])
def test_transpose_of_several_matrices(shape):
    src = numbers(*shape)
    assert (transpose(TRANSPOSE, src) == src.swapaxes(1, 2)).all()
