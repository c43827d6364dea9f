"""What the GPU loader asks of the driver, seen through a stand-in; on real GPUs tests/gpu judges what comes out."""

import numpy as np
import pytest

import maxdnn
from maxdnn.cubins import cubin
from maxdnn.errors import DeviceError, LaunchError
from tests import fake_cuda

LAYER = maxdnn.ConvShape(64, 8, 5, 5, 64, 3, 3)


@pytest.fixture(params=[(9, 0), (5, 2)], ids=["translated", "native"])
def fake(request, monkeypatch):
    driver = fake_cuda.Driver(request.param)
    gpu, library = fake_cuda.install(monkeypatch, driver)
    return driver, gpu, library


def run(fake, **options):
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    options.setdefault("plan", maxdnn.plan(LAYER))
    assert maxdnn.conv_fprop(*arrays[:2], out=arrays[2], **options) is arrays[2]
    return arrays


def verbs(driver, *wanted):
    return [entry for entry in driver.log if entry[0] in wanted]


def test_cubins_run_as_they_are_on_maxwell_and_pascal_and_as_ptx_elsewhere(fake):
    driver, gpu, _ = fake
    run(fake)
    (image,) = [entry[1] for entry in verbs(driver, "load")]
    if gpu.device(0).native:
        assert image == cubin("conv_fprop_64x64", "sm_52")
    else:
        assert b".target sm_90" in image and b".entry sconv_fprop_K64_N64" in image


def test_textures_go_to_the_driver_natively_and_behind_the_parameters_in_ptx(fake):
    driver, gpu, _ = fake
    images, filters, _ = run(fake)
    (launch,) = verbs(driver, "launch")
    bound = {entry[1]: entry[2:] for entry in verbs(driver, "texture")}
    if gpu.device(0).native:
        assert bound == {"texI": (images.gpudata, images.host.nbytes), "texF": (filters.gpudata, filters.host.nbytes)}
        assert launch[5] == 0
    else:
        assert not bound
        tail = np.frombuffer(launch[4][-32:], np.uint64)
        assert tail.tolist() == [images.gpudata, images.host.nbytes // 16, filters.gpudata, filters.host.nbytes // 16]
        assert launch[5] == 8192, "static shared memory is dynamic in a translation"


def test_an_array_that_begins_where_a_texture_may_not_is_copied_first(fake):
    driver, gpu, _ = fake
    arrays = [fake_cuda.Array(s, alignment=16) for s in ((8, 5, 5, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    maxdnn.conv_fprop(*arrays[:2], out=arrays[2])
    launched = [entry[1] for entry in verbs(driver, "launch")]
    copies = ["spad", "spad"] if gpu.device(0).native else []
    assert launched == [*copies, "sconv_fprop_K64_N64"]


def test_an_offset_table_is_sent_once_and_again_only_when_it_changes(fake):
    driver, _, _ = fake
    plan = maxdnn.plan(LAYER)
    run(fake, plan=plan)
    run(fake, plan=plan)
    assert len(verbs(driver, "to device")) == 1
    arrays = [fake_cuda.Array(s) for s in ((8, 6, 6, 64), (8, 3, 3, 64))]
    maxdnn.conv_fprop(*arrays, out=fake_cuda.Array((64, 4, 4, 64)))
    assert len(verbs(driver, "to device")) == 2
    run(fake, plan=plan)
    assert len(verbs(driver, "to device")) == 3


def test_nothing_is_copied_through_the_host(fake):
    driver, _, _ = fake
    run(fake)
    assert not verbs(driver, "to host")
    assert all(len(entry[2]) <= 65536 for entry in verbs(driver, "to device"))


def test_a_foreign_stream_is_ordered_before_and_after(fake):
    driver, _, _ = fake

    class TorchLike:
        cuda_stream = 4242

    run(fake, stream=TorchLike())
    launch = next(n for n, entry in enumerate(driver.log) if entry[0] == "launch")
    before = [entry for entry in driver.log[:launch] if entry[0] == "order"]
    assert before[-1] == ("order", 4242, 77)
    assert ("order", 77, 4242) in driver.log[launch:]


def test_a_stream_that_is_none_is_refused(fake):
    with pytest.raises(LaunchError, match="stream must be"):
        run(fake, stream="fast")


def test_every_context_pushed_is_popped_even_after_a_failure(fake):
    driver, _, _ = fake
    driver.failing = "no kernel image is available for execution on the device"
    with pytest.raises(DeviceError, match=r"loading a sm_52 module on fake GPU.*another architecture"):
        run(fake)
    assert driver.stack == []


def test_memory_of_a_context_that_is_not_current_is_refused(fake):
    driver, _, library = fake
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    library.owners = {a.gpudata: (5, 0) for a in arrays}
    with pytest.raises(DeviceError, match="is not current"):
        maxdnn.conv_fprop(*arrays[:2], out=arrays[2])
    driver.stack.append(5)
    maxdnn.conv_fprop(*arrays[:2], out=arrays[2])
    assert driver.stack == [5]


def test_arrays_on_two_gpus_are_refused(fake):
    _, _, library = fake
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64))]
    library.owners[arrays[1].gpudata] = (1001, 1)
    with pytest.raises(maxdnn.ShapeError, match="same device"):
        maxdnn.conv_fprop(*arrays)


def test_a_gpu_that_is_not_there_is_named(fake):
    _, gpu, _ = fake
    with pytest.raises(DeviceError, match=r"ordinal must be 0 to 1 \(got 7\)"):
        gpu.GpuDevice(7)


def test_a_constant_must_be_known_and_fit(fake):
    _, gpu, _ = fake
    module = gpu.device(0).load(cubin("conv_fprop_64x64", "sm_52"))
    with pytest.raises(DeviceError, match=r"no symbol 'offset'.*offsets"):
        module.set_constant("offset", b"1234")
    with pytest.raises(DeviceError, match="65536 bytes"):
        module.set_constant("offsets", bytes(65540))
