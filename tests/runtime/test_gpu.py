"""What the GPU loader asks of the driver, seen through a stand-in; on real GPUs tests/gpu judges what comes out."""

import ctypes
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import maxdnn
from maxdnn.build.cubins import cubin
from maxdnn.errors import CubinError, DeviceError, LaunchError
from maxdnn.runtime.devices import driver as libcuda
from maxdnn.runtime.devices import find
from tests import fake_cuda

LAYER = maxdnn.ConvShape(64, 8, 5, 5, 64, 3, 3)
WITH_COPY = "sconv_fprop_K64_N64"  # needs a padded copy, a workspace


@pytest.fixture(params=[(9, 0), (5, 2)], ids=["translated", "native"])
def fake(request, monkeypatch):
    driver = fake_cuda.Driver(request.param)
    gpu, library = fake_cuda.install(monkeypatch, driver, pycuda=request.param == (5, 2))
    return driver, gpu, library


def run(fake, **options):
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    options.setdefault("plan", maxdnn.plan(LAYER, algorithm="direct"))
    assert maxdnn.conv_fprop(*arrays[:2], out=arrays[2], **options) is arrays[2]
    return arrays


def verbs(driver, *wanted):
    return [entry for entry in driver.log if entry[0] in wanted]


def test_cubins_run_as_they_are_on_maxwell_and_pascal_and_as_ptx_elsewhere(fake):
    driver, gpu, _ = fake
    run(fake)
    (image,) = [entry[1] for entry in verbs(driver, "load")]
    if gpu.device(0).native:
        assert image == cubin("maxwell/conv_fprop_64x64", "sm_52")
    else:
        assert b".target sm_90" in image and b".entry sconv_fprop_K64_N64" in image


def test_a_translation_is_made_of_the_kernels_that_are_asked_for(fake):
    driver, gpu, _ = fake
    image = cubin("maxwell/fft_taps", "sm_52")
    module = gpu.device(0).load(image)
    for name in ("sfft_taps_16x16", "sfft_taps_24x24", "sfft_taps_16x16"):
        assert module.function(name).kernel.name == name
    images = [entry[1] for entry in verbs(driver, "load")]
    if gpu.device(0).native:
        assert images == [image]
    else:
        assert [text.count(b".entry") for text in images] == [1, 1]
        assert b".entry sfft_taps_16x16(" in images[0] and b".entry sfft_taps_24x24(" in images[1]
        assert 0 < module.nbytes < 4 * len(image)
        with pytest.raises(DeviceError, match="no symbol 'tab' in this module; it has: none"):
            module.set_constant("tab", b"")
    with pytest.raises(CubinError, match=r"no kernel 'other' in this cubin; it has: sfft_taps"):
        module.function("other")


@pytest.mark.parametrize("capability, loads", [((7, 5), 1), ((5, 2), 4)], ids=["translated", "native"])
def test_plans_share_a_translation_where_textures_are_parameters(monkeypatch, capability, loads):
    driver = fake_cuda.Driver(capability)
    fake_cuda.install(monkeypatch, driver)
    for rows in (64, 128, 192):
        a, b = fake_cuda.Array((rows, 64)), fake_cuda.Array((64, 64))
        maxdnn.matmul(a, b, out=fake_cuda.Array((rows, 64)))
    assert len(verbs(driver, "launch")) == (3 if loads == 1 else 6), "products; natively in parts that are summed"
    assert len(verbs(driver, "load")) == loads


def test_the_estimate_takes_what_streams_reach_of_the_rate_of_dram(fake):
    """The nominal rate on the cards that the timing model stands for, whose streams reach it."""
    _, gpu, _ = fake
    device = gpu.device(0)
    nominal = 2 * 3500 * 256 / 8 / 39  # bytes a clock of fake_cuda's card
    assert device.chip.dram_bytes_per_clock == pytest.approx(nominal * (1 if device.native else 0.7))


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
    arrays = [fake_cuda.Array(s, alignment=16) for s in ((32, 5, 5, 64), (32, 3, 3, 64), (64, 3, 3, 64))]
    maxdnn.conv_fprop(*arrays[:2], out=arrays[2], algorithm="direct")
    *copies, convolution = [entry[1] for entry in verbs(driver, "launch") if entry[1] != "sreduce"]
    assert copies == (["spad", "spad"] if gpu.device(0).native else []) and "sconv" in convolution


def test_a_plan_that_has_run_uploads_loads_allocates_and_waits_for_nothing(fake):
    driver, _, _ = fake
    padded = maxdnn.plan(maxdnn.ConvShape(64, 8, 3, 3, 64, 3, 3, 1, 1), kernel=WITH_COPY)
    small = [fake_cuda.Array(s) for s in ((8, 3, 3, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    for _ in range(2):  # the second time each plan comes back after the other
        run(fake)
        maxdnn.conv_fprop(*small[:2], out=small[2], plan=padded)
        asked = {verb: len(verbs(driver, verb)) for verb in ("to device", "load", "alloc", "synchronize", "free")}
    assert asked == {"to device": 2, "load": 3, "alloc": 1, "synchronize": 0, "free": 0}
    run(fake)
    assert not verbs(driver, "synchronize", "wait")
    assert len(verbs(driver, "launch")) == 7


def test_streams_have_workspaces_of_their_own(fake):
    driver, _, _ = fake
    shape = maxdnn.ConvShape(64, 8, 3, 3, 64, 3, 3, 1, 1)
    arrays = [fake_cuda.Array(s) for s in ((8, 3, 3, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    for stream in (None, 4242, 1, 4242):  # 1 is another name of the default stream
        maxdnn.conv_fprop(*arrays[:2], out=arrays[2], plan=maxdnn.plan(shape, kernel=WITH_COPY), stream=stream)
    assert len(verbs(driver, "alloc")) == 2
    padded = {entry[4][:8] for entry in verbs(driver, "launch") if entry[1] == "spad"}
    assert len(padded) == 2, "the padded map lies in the stream's own workspace"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("said, then, ordered", [
    (None, 4242, None), (1, None, None), (1, 4242, (1, 4242)), (2, None, (2, 0)), (99, None, (99, 0)),
    (99, 99, None), (99, 4242, (99, 4242))])
def test_work_is_ordered_after_the_stream_an_array_names(fake, said, then, ordered):
    driver, _, _ = fake
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    arrays[1].__cuda_array_interface__["stream"] = said
    maxdnn.conv_fprop(*arrays[:2], out=arrays[2], stream=then)
    first = next(n for n, entry in enumerate(driver.log) if entry[0] == "launch")
    orders = [entry[1:] for entry in driver.log[:first] if entry[0] == "order"]
    assert orders == ([ordered] if ordered else [])


def test_a_stream_that_the_interface_rules_out_is_refused(fake):
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64))]
    arrays[0].__cuda_array_interface__["stream"] = 0
    with pytest.raises(maxdnn.ShapeError, match="stream of images's __cuda_array_interface__ must be None, 1, 2"):
        maxdnn.conv_fprop(*arrays)


def test_a_plan_for_aligned_arrays_refuses_others_and_says_which_plan_would_serve(fake):
    driver, gpu, _ = fake
    arrays = [fake_cuda.Array(s, alignment=16) for s in ((8, 5, 5, 64), (8, 3, 3, 64), (64, 3, 3, 64))]
    if not gpu.device(0).native:
        arrays[0].__cuda_array_interface__["data"] = (arrays[0].gpudata + 4, False)
    with pytest.raises(maxdnn.ShapeError, match=r"images must begin at a multiple of .*copy_images=True"):
        maxdnn.conv_fprop(*arrays[:2], out=arrays[2], plan=maxdnn.plan(LAYER, kernel=WITH_COPY))
    assert not verbs(driver, "launch")
    copying = maxdnn.plan(LAYER, kernel=WITH_COPY, copy_images=True, copy_filters=True)
    maxdnn.conv_fprop(*arrays[:2], out=arrays[2], plan=copying)
    assert [entry[1] for entry in verbs(driver, "launch")] == ["spad", "spad", "sconv_fprop_K64_N64"]


def test_nothing_is_copied_through_the_host(fake):
    driver, _, _ = fake
    run(fake)
    assert not verbs(driver, "to host")
    assert all(len(entry[2]) <= 65536 for entry in verbs(driver, "to device"))


def test_streams_of_other_libraries_get_the_launches_themselves(fake):
    driver, _, _ = fake

    class TorchLike:
        cuda_stream = 4242

    class CupyLike:
        ptr = 4343

    for stream in (TorchLike(), CupyLike(), 4444, 2, None):
        run(fake, stream=stream)
    assert [entry[6] for entry in verbs(driver, "launch")] == [4242, 4343, 4444, 2, 0]
    assert not verbs(driver, "order")


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


def test_threads_that_ask_at_once_get_one_device(fake, monkeypatch):
    _, gpu, library = fake
    library.owners = {0x5000: (5, 1)}
    real, found, start = gpu.GpuDevice.__init__, [], threading.Barrier(4)

    def slowly(self, *args, **options):
        time.sleep(0.05)
        real(self, *args, **options)

    def ask():
        start.wait()
        found.append((gpu.device(0), gpu.for_pointer(0x5000)))

    monkeypatch.setattr(gpu.GpuDevice, "__init__", slowly)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len({id(a) for a, _ in found}) == len({id(b) for _, b in found}) == 1


@pytest.mark.parametrize("installed", [True, False])
def test_pycuda_makes_its_context_current_where_it_is_installed_and_wanted(monkeypatch, installed):
    for wanted in ("1", "0"):
        driver = fake_cuda.Driver()
        gpu, _ = fake_cuda.install(monkeypatch, driver, pycuda=installed)
        monkeypatch.setenv("MAXDNN_PYCUDA", wanted)
        with gpu.device(1).active():
            assert driver.stack == [1001]
        assert not driver.stack and bool(verbs(driver, "pycuda")) is (installed and wanted == "1")
        buffer = gpu.device(1).alloc(64)
        buffer.free()
        assert verbs(driver, "alloc", "free") == [("alloc", 64), ("free", buffer.address)]


def test_a_wrong_word_about_pycuda_is_refused(monkeypatch):
    gpu, _ = fake_cuda.install(monkeypatch, fake_cuda.Driver())
    monkeypatch.setenv("MAXDNN_PYCUDA", "no")
    with pytest.raises(maxdnn.MaxdnnError, match=r"MAXDNN_PYCUDA must be 0 .* or 1 \(got 'no'\)"):
        gpu.device(0)


def test_a_context_that_pycuda_has_given_back_is_an_error_and_stops_no_clearing_up(monkeypatch):
    driver = fake_cuda.Driver()
    gpu, _ = fake_cuda.install(monkeypatch, driver, pycuda=True)
    buffer = gpu.device(0).alloc(64)
    driver.ended = True
    with pytest.raises(DeviceError, match="making the context of fake GPU current: invalid device context"):
        gpu.device(0).alloc(64)
    buffer.free()
    assert not verbs(driver, "free")


def test_results_like_arrays_that_nobody_can_make_must_be_given(monkeypatch):
    fake_cuda.install(monkeypatch, fake_cuda.Driver())
    arrays = [fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64))]
    with pytest.raises(DeviceError, match="out must be given for arrays of tests where pycuda is not in use"):
        maxdnn.conv_fprop(*arrays)


def test_without_a_driver_there_is_no_gpu_and_an_array_there_says_why(monkeypatch):
    gpu, _ = fake_cuda.install(monkeypatch, fake_cuda.Driver())
    monkeypatch.setattr(gpu.context, "_driver", None)

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")
    monkeypatch.setattr(libcuda, "ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": missing}))
    assert gpu.count() == 0 and find.first_gpu() is None
    with pytest.raises(DeviceError, match=r"GPU arrays need NVIDIA's driver, .*cuda.* cannot be loaded: .*cannot open"):
        maxdnn.conv_fprop(*[fake_cuda.Array(s) for s in ((8, 5, 5, 64), (8, 3, 3, 64))])


def test_runs_are_timed_by_events_around_them_and_not_around_what_comes_before(fake):
    driver, gpu, _ = fake
    found = gpu.device(0).elapsed_seconds(lambda: setattr(driver, "launches", driver.launches + 3), 2,
                                          before=lambda: setattr(driver, "launches", driver.launches + 7))
    assert found == [pytest.approx(3e-3)] * 2  # fake_cuda's events count launches as milliseconds


def test_a_gpu_says_its_facts(fake):
    _, gpu, _ = fake
    facts = gpu.device(0).facts()
    assert facts["driver"].endswith("CUDA 12.4") and facts["memory_mib"] == 1024 and facts["l2_kib"] == 4096


def test_a_gpu_that_is_not_there_is_named(fake):
    _, gpu, _ = fake
    with pytest.raises(DeviceError, match=r"ordinal must be 0 to 1 \(got 7\)"):
        gpu.GpuDevice(7)


def test_a_constant_must_be_known_and_fit(fake):
    _, gpu, _ = fake
    module = gpu.device(0).load(cubin("maxwell/conv_fprop_64x64", "sm_52"))
    with pytest.raises(DeviceError, match=r"no symbol 'offset'.*offsets"):
        module.set_constant("offset", b"1234")
    with pytest.raises(DeviceError, match="65536 bytes"):
        module.set_constant("offsets", bytes(65540))
