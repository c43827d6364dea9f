import numpy as np
import pytest

from maxdnn.errors import ShapeError
from maxdnn.problem.operands import view


class OnGpu:
    """An array that says it lives on a GPU, as CuPy's and PyTorch's do."""

    def __init__(self, shape, strides=None, typestr="<f4", address=0x1000, read_only=False):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, read_only),
                                         "strides": strides, "version": 3}


def test_a_numpy_array_and_a_gpu_array_are_described_alike():
    host = view("images", np.zeros((2, 3, 4, 5), np.float32))
    gpu = view("images", OnGpu((2, 3, 4, 5), strides=(240, 80, 20, 4)))
    assert host.shape == gpu.shape == (2, 3, 4, 5)
    assert host.nbytes == gpu.nbytes == 480
    assert (host.on_host, gpu.on_host) == (True, False)
    assert (gpu.address, gpu.writable) == (0x1000, True)


def test_strides_of_axes_of_size_one_do_not_matter():
    assert view("x", OnGpu((1, 3, 1, 5), strides=(7, 20, 99, 4))).shape == (1, 3, 1, 5)


@pytest.mark.parametrize("array, words", [
    ([[1.0]], "x must be a NumPy array or have __cuda_array_interface__ (got list)"),
    (np.zeros((2, 2, 2), np.float32), "x must have 4 axes (got 3: shape (2, 2, 2))"),
    (np.zeros((2, 2, 2, 2)), "x must be float32 (got float64)"),
    (np.zeros((2, 2, 2, 2), ">f4"), "x must be float32 (got >f4)"),
    (np.zeros((2, 0, 2, 2), np.float32), "x must have no axis of size zero (got shape (2, 0, 2, 2))"),
    (np.zeros((2, 2, 2, 4), np.float32)[..., ::2], "x must be C-contiguous"),
    (np.zeros((2, 2, 3, 4), np.float32, order="F"), "x must be C-contiguous"),
    (OnGpu((2, 2, 2, 2), address=0x1002), "x must begin at a multiple of 4 bytes (got address 0x1002)"),
    (OnGpu((2, 2, 2, 2), typestr="<f2"), "x must be float32 (got float16)"),
    (OnGpu((2, 2, 2, 2), strides=(4, 8, 16, 32)), "x must be C-contiguous"),
])
def test_an_array_no_kernel_can_read_is_refused_by_name(array, words):
    with pytest.raises(ShapeError) as error:
        view("x", array)
    assert words in str(error.value)


def test_overlap_is_found_to_the_byte():
    memory = np.zeros(64, np.float32)
    first, second, third = (view("x", memory[i:i + 16].reshape(1, 1, 4, 4)) for i in (0, 15, 16))
    assert first.overlaps(second)
    assert not first.overlaps(third)
    assert not first.overlaps(view("y", OnGpu((1, 1, 4, 4), address=first.address)))
