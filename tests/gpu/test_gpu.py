"""The library on a real GPU: `make test-gpu`, or `pytest -m gpu tests/gpu` where one is. Where pycuda is installed,
MAXDNN_PYCUDA=0 runs them by the driver alone."""

import random

import numpy as np
import pytest

import maxdnn
from maxdnn.layers import LAYERS
from maxdnn.reference import conv_reference, reference_rows, relative_error
from maxdnn.runtime.devices.cuda import primary
from tests.algorithms import test_families as families
from tests.gpu.arrays import Array

pytestmark = pytest.mark.gpu

TOLERANCE = 2e-6
GUARD = 1024  # floats before and behind every buffer
POISON = np.float32(-7.25)


class Guarded:
    """A GPU array with known bytes on both sides."""

    def __init__(self, device, values):
        host = np.full(values.size + 2 * GUARD, POISON, np.float32)
        host[GUARD:GUARD + values.size] = values.ravel()
        self._all = Array(device, host)
        self.array = Array(device, of=self._all, first=GUARD, shape=values.shape)

    def get(self):
        host = self._all.get()
        assert (host[:GUARD] == POISON).all(), "written before the buffer"
        assert (host[-GUARD:] == POISON).all(), "written behind the buffer"
        return host[GUARD:-GUARD].reshape(self.array.shape)


def random_case(rng):
    """A ragged shape with few enough operations for the float64 reference."""
    while True:
        n, c, k = (int(rng.integers(1, limit)) for limit in (131, 71, 201))
        r, s = (int(rng.integers(1, 12)) for _ in range(2))
        stride = tuple(int(rng.integers(1, 5)) for _ in range(2))
        padding = tuple(int(rng.integers(0, 6)) for _ in range(2))
        h, w = (int(rng.integers(max(1, f - 2 * p), f + 8)) for f, p in ((r, padding[0]), (s, padding[1])))
        shape = maxdnn.ConvShape(n, c, h, w, k, r, s, stride, padding)
        if shape.flops < 4e8:
            return shape


@pytest.mark.parametrize("seed", range(200))
def test_ragged_shapes_match_float64_and_touch_nothing_else(device, seed):
    rng = np.random.default_rng(seed)
    s = random_case(rng)
    alpha = float(rng.uniform(-2, 2))
    maps = rng.uniform(-1, 1, (s.C, s.H, s.W, s.N)).astype(np.float32)
    filters = rng.uniform(-1, 1, (s.C, s.R, s.S, s.K)).astype(np.float32)
    x, f = Guarded(device, maps), Guarded(device, filters)
    out = Guarded(device, np.full((s.K, s.P, s.Q, s.N), np.nan, np.float32))
    maxdnn.conv_fprop(x.array, f.array, stride=s.stride, padding=s.padding, alpha=alpha, out=out.array)
    want, magnitude = conv_reference(maps, filters, stride=s.stride, padding=s.padding, alpha=alpha)
    assert relative_error(out.get(), want, magnitude) < TOLERANCE, f"shape {s}, seed {seed}"
    assert (x.get() == maps).all() and (f.get() == filters).all()


@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: f"{x.network}-{x.name}")
def test_full_size_layers_match_float64(device, layer):
    s = layer.shape
    rng = np.random.default_rng(1)
    maps = rng.uniform(-1, 1, (s.C, s.H, s.W, s.N)).astype(np.float32)
    filters = rng.uniform(-1, 1, (s.C, s.R, s.S, s.K)).astype(np.float32)
    x, f = Guarded(device, maps), Guarded(device, filters)
    out = Guarded(device, np.full((s.K, s.P, s.Q, s.N), np.nan, np.float32))
    maxdnn.conv_fprop(x.array, f.array, stride=s.stride, padding=s.padding, out=out.array)
    result = out.get()
    errors = [relative_error(result[:, p], *row) for p, row in enumerate(reference_rows(maps, filters, s))]
    assert np.max(errors) < TOLERANCE


def test_a_layer_split_over_channels_accumulates(device):
    rng = np.random.default_rng(3)
    maps = rng.uniform(-1, 1, (4096, 5, 5, 33)).astype(np.float32)
    filters = rng.uniform(-1, 1, (4096, 3, 3, 70)).astype(np.float32)
    out = Array(device, np.full((70, 5, 5, 33), np.nan))
    maxdnn.conv_fprop(Array(device, maps), Array(device, filters), padding=1, out=out)
    want, magnitude = conv_reference(maps, filters, padding=1)
    assert relative_error(out.get(), want, magnitude) < TOLERANCE


def test_arrays_of_pytorch_and_cupy_stay_on_their_gpu_in_the_order_of_their_stream(device):
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    rng = np.random.default_rng(4)
    maps = rng.uniform(-1, 1, (16, 9, 9, 32)).astype(np.float32)
    filters = rng.uniform(-1, 1, (16, 3, 3, 64)).astype(np.float32)
    want, magnitude = conv_reference(maps, filters)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(maps.shape, device="cuda")
        torch.cuda._sleep(50_000_000)  # the copies below are late: an unordered kernel would read zeros
        x.copy_(torch.from_numpy(maps), non_blocking=True)
        f = torch.from_numpy(filters).cuda()
        out = maxdnn.conv_fprop(x, f, stream=stream)
        doubled = out * 2
    stream.synchronize()
    assert isinstance(out, torch.Tensor) and out.is_cuda
    assert relative_error(doubled.cpu().numpy() / 2, want, magnitude) < TOLERANCE
    out = maxdnn.conv_fprop(cupy.asarray(maps), cupy.asarray(filters))
    assert isinstance(out, cupy.ndarray)
    assert relative_error(cupy.asnumpy(out), want, magnitude) < TOLERANCE


def test_nchw_layout_is_converted_on_the_device(device):
    rng = np.random.default_rng(5)
    maps = rng.uniform(-1, 1, (37, 11, 10, 9)).astype(np.float32)  # N C H W
    filters = rng.uniform(-1, 1, (70, 11, 3, 5)).astype(np.float32)  # K C R S
    placed = Array(device, np.full((37, 70, 10, 9), np.nan))
    maxdnn.conv_fprop(Array(device, maps), Array(device, filters), padding=(1, 2), layout="NCHW", out=placed)
    out = placed.get()
    want, magnitude = conv_reference(maps.transpose(1, 2, 3, 0), filters.transpose(1, 2, 3, 0), padding=(1, 2))
    assert relative_error(out.transpose(1, 2, 3, 0), want, magnitude) < TOLERANCE


@pytest.fixture
def gpuarray():
    """Of pycuda, where it is in use."""
    if primary.pycuda() is None:
        pytest.skip("pycuda is not in use")
    from pycuda import gpuarray
    return gpuarray


def test_arrays_of_pycuda_give_such_arrays(device, gpuarray):
    with device.active():
        x, f = (gpuarray.to_gpu(np.ones(size, np.float32)) for size in ((3, 4, 4, 8), (3, 2, 2, 5)))
    out = maxdnn.conv_fprop(x, f)
    assert isinstance(out, gpuarray.GPUArray)
    with device.active():
        assert (out.get() == 12).all()


def test_a_second_context_and_its_arrays_work(device, gpuarray):
    import pycuda.driver as cuda
    context = cuda.Device(0).make_context()
    try:
        x = gpuarray.to_gpu(np.ones((3, 4, 4, 8), np.float32))
        f = gpuarray.to_gpu(np.ones((3, 2, 2, 5), np.float32))
        out = maxdnn.conv_fprop(x, f)
        assert (out.get() == 12).all()
    finally:
        context.pop()
    with pytest.raises(maxdnn.DeviceError, match="not current"):
        maxdnn.conv_fprop(x, f)


def test_driver_errors_say_what_was_attempted(device):
    with pytest.raises(maxdnn.DeviceError, match=f"out of memory on .*{1 << 50} bytes wanted"):
        device.alloc(1 << 50)


def test_two_gpus_work_side_by_side_and_do_not_mix(device):
    from maxdnn.runtime.devices import cuda as gpu
    if gpu.count() < 2:
        pytest.skip("this machine has one GPU")
    rng = np.random.default_rng(6)
    maps = rng.uniform(-1, 1, (8, 7, 7, 36)).astype(np.float32)
    filters = rng.uniform(-1, 1, (8, 3, 3, 68)).astype(np.float32)
    want, magnitude = conv_reference(maps, filters, padding=1)
    placed = []
    for other in (device, gpu.device(1)):
        x, f, out = (Array(other, values) for values in (maps, filters, np.full(want.shape, np.nan)))
        maxdnn.conv_fprop(x, f, padding=1, out=out)
        assert relative_error(out.get(), want, magnitude) < TOLERANCE
        placed.append((x, f))
    with pytest.raises(maxdnn.ShapeError, match="same device"):
        maxdnn.conv_fprop(placed[0][0], placed[1][1])


@pytest.mark.parametrize("chunk", range(10))
def test_random_problems_by_a_random_candidate(device, chunk):
    """The problems of tests/algorithms/test_families.py, here in device memory between guard zones."""
    for number in range(chunk, families.PROBLEMS, 10):
        rng = random.Random(20160000 + number)
        shape, layout, asked = families.draw(rng), rng.choice(families.LAYOUTS), families.options(rng)
        names = families.served(shape, layout, **asked)
        plan = maxdnn.plan(shape, layout=layout, kernel=rng.choice(names), bias=asked["bias"],
                           activation=asked["activation"], adds_out=asked["beta"] != 0)
        data = np.random.default_rng(rng.randrange(2**32))
        arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in plan.array_shapes().items()}
        placed = {role: Guarded(device, values) for role, values in arrays.items()}
        given = {role: x.array for role, x in placed.items()}
        maxdnn.conv_fprop(given["images"], given["filters"], plan=plan, alpha=asked["alpha"], beta=asked["beta"],
                          bias=given.get("bias"), out=given["out"])
        families.judge(plan, arrays, placed["out"].get().reshape(arrays["out"].shape), asked["alpha"], asked["beta"])
