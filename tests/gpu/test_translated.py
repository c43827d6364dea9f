"""Translated programs on a real GPU against the virtual one, which runs the cubin itself: what a translation must not
lose. `pytest -m gpu tests/gpu` where a GPU is."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.runtime.devices.protocol import Texture
from tests.corpus import net
from tests.gpu.programs import compiled, compiled_net

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("translating")]


def run(gpu, name, outputs, grid, block, args):
    """What a program leaves in `outputs`, arrays that are the first of its arguments; `args` are the others."""
    module, values, buffers = gpu.load(compiled(name)), [], []
    for value in [*outputs, *args]:
        if isinstance(value, np.ndarray):
            buffer = gpu.alloc(value.nbytes)
            gpu.upload(buffer, value)
            buffers.append(buffer)
            values.append(buffer)
        else:
            values.append(value)
    module.function(name).launch((grid, 1, 1), (block, 1, 1), values)
    gpu.synchronize()
    found = [np.empty_like(array) for array in outputs]
    for buffer, array in zip(buffers, found, strict=False):
        gpu.download(buffer, array)
    return found


@pytest.mark.parametrize("repeat", range(3))
def test_lanes_of_a_warp_stay_in_step_in_a_loop_with_a_barrier(device, repeat):
    rng = np.random.default_rng(repeat)
    numbers = rng.integers(0, 1 << 30, 256).astype(np.int32)
    empty = [np.zeros(64 * 256, np.int32), np.zeros(64 * 256, np.int32)]
    want, got = (run(gpu, "in_step", empty, 64, 256, [numbers, np.int32(40)])[0]
                 for gpu in (VirtualGpu(), device))
    assert (got == want).all(), f"{(got != want).sum()} of {got.size} differ"


def test_barriers_of_a_part_of_the_block_and_reductions(device):
    numbers = np.random.default_rng(5).integers(0, 50, 256).astype(np.int32)
    want, got = (run(gpu, "guarded", [np.zeros(256, np.int32)], 1, 256, [numbers, np.int32(1)])[0]
                 for gpu in (VirtualGpu(), device))
    assert (got == want).all()


def test_a_random_program_that_exchanges_behind_a_divergent_loop(device):
    """Before lanes met where they leave a loop, 128 words of it differed on an H200."""
    image = compiled_net(3074)
    want, got = (net.on_device(gpu, image, [3074])[3074] for gpu in (VirtualGpu(), device))
    assert not isinstance(got, str), got
    assert (got == want).all(), f"{(got != want).sum()} of {got.size} differ"


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_texels_of_few_channels_in_and_out_of_range(device, channels):
    texels = np.random.default_rng(channels).uniform(1, 2, (48, channels)).astype(np.float32)
    results = []
    for gpu in (VirtualGpu(), device):
        buffer, out = gpu.alloc(texels.nbytes), gpu.alloc(64 * 16)
        gpu.upload(buffer, texels)
        handle = gpu.texture_object(Texture(buffer.address, texels.nbytes, channels))
        args = [np.uint64(handle), out, np.int32(-8)]
        gpu.load(compiled("texels")).function("texels").launch((2, 1, 1), (32, 1, 1), args)
        gpu.synchronize()
        found = np.empty((64, 4), np.float32)
        gpu.download(out, found)
        results.append(found)
    want = np.zeros((64, 4), np.float32)
    want[8:56, :channels] = texels
    if channels < 4:
        want[8:56, 3] = 1
    assert (results[0] == want).all(), "the virtual GPU"
    assert (results[1] == want).all(), "the translation"
