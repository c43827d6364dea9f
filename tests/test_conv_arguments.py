"""What conv_fprop refuses, in which words, before any work."""

import numpy as np
import pytest

import maxdnn
from maxdnn import ConvShape, DeviceError, ShapeError, conv_fprop
from maxdnn.emulator import VirtualGpu
from maxdnn.runtime.devices import find
from tests.problem.test_operands import OnGpu
from tests.test_conv import small_case

OUT = np.zeros((8, 4, 4, 4), np.float32)
BUFFER = np.zeros(4096, np.float32)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("change, words", [
    (dict(images=np.zeros((3, 6, 5), np.float32)), "images must have 4 axes (got 3"),
    (dict(filters=np.zeros((3, 3, 2, 8, 1), np.float32)), "filters must have 4 axes (got 5"),
    (dict(images=np.zeros((3, 6, 5, 4))), "images must be float32 (got float64)"),
    (dict(filters=np.zeros((3, 3, 2, 8), np.int32)), "filters must be float32 (got int32)"),
    (dict(images=[1, 2]), "images must be a NumPy array or have __cuda_array_interface__ (got list)"),
    (dict(images=np.zeros((3, 6, 5, 4), np.float32)[:, ::-1]), "images must have strides that are"),
    (dict(filters=np.zeros((3, 3, 2, 8), np.float32, order="F")), "filters must be C-contiguous"),
    (dict(images=np.zeros((3, 6, 5, 0), np.float32)), "images must have no axis of size zero"),
    (dict(filters=np.zeros((3, 0, 2, 8), np.float32)), "filters must have no axis of size zero"),
    (dict(images=np.zeros((4, 6, 5, 4), np.float32)), "images and filters must have the same number of channels"),
    (dict(images=np.zeros((4, 3, 6, 5), np.float32), filters=np.zeros((8, 3, 3, 2), np.float32)),
     "the shapes would fit layout='NCHW'"),
    (dict(layout="NCHW", images=np.zeros((3, 9, 5, 4), np.float32)), "the shapes would fit layout='CHWN'"),
    (dict(layout="NHWC"), "layout must be one of CHWN, NCHW (got 'NHWC')"),
    (dict(filters=np.zeros((3, 7, 2, 8), np.float32)), "R must be at most H + 2 x padding = 6"),
    (dict(stride=0), "stride must be at least 1"),
    (dict(stride=-1), "stride must be at least 1"),
    (dict(padding=(-1, 0)), "padding must be at least 0"),
    (dict(stride=(1, 1, 1)), "stride must be one integer or a pair"),
    (dict(alpha="1"), "alpha must be a real number (got '1')"),
    (dict(alpha=1j), "alpha must be a real number"),
    (dict(alpha=10**400), "alpha must be a real number (got 1000"),
    (dict(alpha=10**5000), "alpha must be a real number (got an integer of 16610 bits)"),
    (dict(alpha=np.ones(2)), "alpha must be a real number"),
    (dict(images=np.ma.zeros((3, 6, 5, 4), np.float32)), "images must be a plain array (got a masked one"),
    (dict(dilation=0), "dilation must be at least 1"),
    (dict(dilation=3), "the filter is larger than the padded map (got R=3, which dilation 3 spreads over 7)"),
    (dict(groups=0), "groups must be at least 1 (got groups=0)"),
    (dict(groups=2), "images must have 2 (groups) times as many channels as filters"),
    (dict(groups="2"), "groups must be an integer"),
    (dict(groups=3, filters=np.zeros((1, 3, 2, 8), np.float32)), "groups must divide K (got groups=3, K=8)"),
    (dict(out=np.zeros((8, 4, 4, 5), np.float32)), "out must have shape (8, 4, 4, 4) (got (8, 4, 4, 5))"),
    (dict(out=OUT.astype(np.float64)), "out must be float32"),
    (dict(out=np.zeros((8, 4, 4, 8), np.float32)[..., ::2]), "out must be C-contiguous"),
    (dict(out=read_only(OUT)), "out must be writable"),
    (dict(images=BUFFER[:360].reshape(3, 6, 5, 4), out=BUFFER[359:359 + 512].reshape(8, 4, 4, 4)),
     "out must not overlap images"),
    (dict(filters=BUFFER[400:544].reshape(3, 3, 2, 8), out=BUFFER[:512].reshape(8, 4, 4, 4)),
     "out must not overlap filters"),
    (dict(filters=OnGpu((3, 3, 2, 8))),
     "all arrays must be on the same device (got images on the host, filters on a GPU)"),
    (dict(out=OnGpu((8, 4, 4, 4))), "all arrays must be on the same device"),
    (dict(plan=3), "plan must come from maxdnn.plan (got int)"),
    (dict(plan=maxdnn.plan(ConvShape(4, 3, 6, 6, 8, 3, 2))), "images must have the plan's shape (3, 6, 6, 4)"),
    (dict(plan=maxdnn.plan(ConvShape(4, 3, 6, 5, 8, 3, 2)), stride=2), "give either them or plan"),
])
def test_bad_input_is_refused_by_name_before_any_work(change, words):
    images, filters = small_case()
    arguments = {"images": images, "filters": filters, **change}
    out = arguments.get("out")
    before = out.copy() if isinstance(out, np.ndarray) else None
    with pytest.raises(ShapeError) as error:
        conv_fprop(**arguments)
    assert words in str(error.value)
    assert before is None or np.array_equal(out, before)


@pytest.mark.parametrize("device", ["cuda", 0, VirtualGpu])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(DeviceError, match="device must be a device of this library"):
        conv_fprop(*small_case(), device=device)


def test_a_map_beyond_the_reach_of_a_texture_is_refused(monkeypatch):
    monkeypatch.setattr(find, "of_address", lambda address: find.host())
    images = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1, 2**15, 2**15, 4), (0, 0, 0, 0))
    with pytest.raises(ShapeError, match="output K x P x Q x N must be at most 4294967295 elements"):
        conv_fprop(images, np.zeros((1, 1, 1, 4), np.float32))
    images = OnGpu((1, 2**15, 2**15, 4))  # 16 GiB that exist only by name
    with pytest.raises(ShapeError, match="4 GiB reach of a texture"):
        conv_fprop(images, OnGpu((1, 1, 1, 4)))


def test_arrays_on_two_gpus_are_refused(monkeypatch):
    class Gpu(VirtualGpu):
        def __init__(self, name):
            super().__init__()
            self.name = name

    gpus = {0x1000: Gpu("GPU 0"), 0x2000: Gpu("GPU 1")}
    monkeypatch.setattr(find, "of_address", gpus.__getitem__)
    with pytest.raises(ShapeError) as error:
        conv_fprop(OnGpu((3, 6, 5, 4), address=0x1000), OnGpu((3, 3, 2, 8), address=0x2000))
    assert str(error.value) == "filters must be on the same device as images (got GPU 1, images is GPU 0)"
    with pytest.raises(ShapeError, match="images must be on the same device as device"):
        conv_fprop(OnGpu((3, 6, 5, 4), address=0x1000), OnGpu((3, 3, 2, 8), address=0x1000), device=gpus[0x2000])
