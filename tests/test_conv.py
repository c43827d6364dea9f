import gc
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

import maxdnn
from maxdnn import ConvShape, ShapeError, conv_fprop
from maxdnn.algorithms.paper import maxwell as paper
from maxdnn.emulator import VirtualGpu
from maxdnn.layers import LAYERS
from maxdnn.reference import conv_reference, relative_error

SEED = 20150125  # printed by pytest with a failing case's values
TOLERANCE = 2e-6  # of the sum of |terms|: the project's bar for float32 sums of any length used here
GUARD = np.float32(-7.25)
POISON = np.float32(np.nan)


def guarded(shape, before=4, after=5, value=POISON):
    """An array inside a larger one: (the array, a function that says whether what surrounds it is untouched)."""
    size = int(np.prod(shape))
    memory = np.full(before + size + after, GUARD)
    array = memory[before:before + size].reshape(shape)
    array[...] = value
    return array, lambda: bool((memory[:before] == GUARD).all() and (memory[before + size:] == GUARD).all())


def random_layer(shape, number=SEED):
    rng = np.random.default_rng(number)
    images = rng.uniform(-1, 1, (shape.C, shape.H, shape.W, shape.N)).astype(np.float32)
    return images, rng.uniform(-1, 1, (shape.C // shape.groups, shape.R, shape.S, shape.K)).astype(np.float32)


def check(shape, alpha=1.0, number=SEED, before=4):
    """Run a layer of random data into a poisoned, guarded output and compare every element."""
    images, filters = random_layer(shape, number)
    out, surroundings_intact = guarded((shape.K, shape.P, shape.Q, shape.N), before)
    kept = images.copy(), filters.copy()
    layer = dict(stride=shape.stride, padding=shape.padding, dilation=shape.dilation, groups=shape.groups)
    result = conv_fprop(images, filters, alpha=alpha, out=out, **layer)
    assert result is out
    assert surroundings_intact()
    assert np.array_equal(images, kept[0]) and np.array_equal(filters, kept[1])
    want, magnitude = conv_reference(images, filters, alpha=alpha, **layer)
    assert relative_error(out, want, magnitude) < TOLERANCE


def small_case():
    return random_layer(ConvShape(4, 3, 6, 5, 8, 3, 2))


@st.composite
def layers(draw):
    """Layers over the whole range of sizes with few output pixels: those are blocks of their own and all alike."""
    def axis():
        filt, stride, pad = draw(st.integers(1, 11)), draw(st.integers(1, 4)), draw(st.integers(0, 5))
        dilation = draw(st.integers(1, 3)) if filt < 5 else 1
        reach = (filt - 1) * dilation + 1
        size = (draw(st.integers(1, 3)) - 1) * stride + reach - 2 * pad + draw(st.integers(0, stride - 1))
        return max(size, 1, reach - 2 * pad), filt, stride, pad, dilation

    (h, r, *rows), (w, s, *columns) = axis(), axis()
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    channels, filters = groups * draw(st.integers(1, 70 // groups)), groups * draw(st.integers(1, 200 // groups))
    return ConvShape(draw(st.integers(1, 130)), channels, h, w, filters, r, s, *zip(rows, columns, strict=True), groups)


ALPHAS = st.one_of(st.sampled_from([0.0, 1.0, -1.0]),
                   st.floats(2**-10, 2**10, width=32), st.floats(-2**10, -2**-10, width=32))


@pytest.mark.sampled(1, 4)
@pytest.mark.parametrize("part", range(10))
def test_random_layers_match_the_reference_and_fill_exactly_the_output(part):
    @seed(SEED + part)
    @settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(shape=layers(), alpha=ALPHAS, number=st.integers(0, 2**31), before=st.integers(1, 8))
    def fifty_of_them(shape, alpha, number, before):
        check(shape, alpha, number, before)

    fifty_of_them()


@pytest.mark.parametrize("shape", [
    ConvShape(65, 3, 4, 4, 65, 3, 3, 1, 1),
    ConvShape(63, 5, 3, 5, 67, 3, 2, (2, 1), (0, 1)),
    ConvShape(1, 1, 1, 1, 1, 1, 1),
    ConvShape(129, 1, 2, 2, 193, 2, 2),
    ConvShape(5, 8, 3, 3, 7, 1, 1),  # patch elements a whole number of steps
    ConvShape(66, 7, 5, 5, 3, 3, 3, 3, 5),
], ids=str)
def test_ragged_tiles_on_every_axis(shape):
    check(shape)


@pytest.mark.parametrize("kernel", [spec.name for spec in paper.KERNELS])
@pytest.mark.parametrize("shape", [
    ConvShape(131, 5, 3, 5, 99, 3, 2, (2, 1), (0, 1)),
    ConvShape(1, 1, 1, 1, 1, 1, 1),
    ConvShape(129, 8, 3, 3, 33, 1, 1),
    ConvShape(3, 2100, 3, 3, 5, 3, 3, 1, 1),  # two passes
], ids=str)
def test_every_kernel_computes_every_layer(shape, kernel):
    images, filters = random_layer(shape)
    out, surroundings_intact = guarded((shape.K, shape.P, shape.Q, shape.N))
    conv_fprop(images, filters, out=out, alpha=3.0, plan=maxdnn.plan(shape, kernel=kernel))
    assert surroundings_intact()
    want, magnitude = conv_reference(images, filters, stride=shape.stride, padding=shape.padding, alpha=3.0)
    assert relative_error(out, want, magnitude) < TOLERANCE


@pytest.mark.parametrize("shape", [
    ConvShape(6, 4, 11, 9, 10, 3, 2, (2, 1), (1, 2), (3, 2)),
    ConvShape(5, 1, 9, 9, 3, 5, 5, 1, 8, 4),
    ConvShape(8, 16, 4, 4, 8, 3, 3, groups=2),  # groups whose maps lie where textures may begin
    ConvShape(6, 12, 5, 5, 21, 2, 2, 1, 1, groups=3),
    ConvShape(65, 6, 4, 4, 6, 3, 3, 2, 1, groups=6),  # depthwise
    ConvShape(4, 4096, 3, 3, 8, 3, 3, groups=2, padding=1, dilation=1),  # two launches a group
], ids=str)
def test_dilation_and_groups(shape):
    check(shape)


def test_a_stride_beyond_the_map_is_a_stride():
    check(ConvShape(4, 2, 5, 5, 4, 3, 3, 10**9))


def test_groups_of_nchw_arrays():
    shape = ConvShape(5, 6, 5, 4, 9, 3, 2, (1, 2), (1, 0), groups=3)
    images, filters = random_layer(shape)
    want = conv_fprop(images, filters, stride=(1, 2), padding=(1, 0), groups=3)
    out = conv_fprop(np.ascontiguousarray(images.transpose(3, 0, 1, 2)),
                     np.ascontiguousarray(filters.transpose(3, 0, 1, 2)), stride=(1, 2), padding=(1, 0), groups=3,
                     layout="NCHW")
    assert np.array_equal(out, want.transpose(3, 0, 1, 2))


def test_a_layer_whose_offsets_exceed_constant_memory():
    shape = ConvShape(6, 4096, 4, 4, 10, 3, 3, padding=1)
    assert len(maxdnn.plan(shape).passes) == 3
    check(shape, alpha=-0.5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: f"{x.network}-{x.name}")
def test_the_papers_layers_with_one_texel_of_images_and_filters(layer):
    s = layer.shape
    check(ConvShape(4, s.C, min(s.H, 40), min(s.W, 40), 4, s.R, s.S, s.stride, s.padding))


def test_nchw_arrays_give_the_same_numbers():
    shape = ConvShape(9, 5, 7, 6, 70, 3, 2, (1, 2), (1, 0))
    images, filters = random_layer(shape)
    want = conv_fprop(images, filters, stride=(1, 2), padding=(1, 0), alpha=2.0)
    out, surroundings_intact = guarded((shape.N, shape.K, shape.P, shape.Q))
    conv_fprop(np.ascontiguousarray(images.transpose(3, 0, 1, 2)), np.ascontiguousarray(filters.transpose(3, 0, 1, 2)),
               stride=(1, 2), padding=(1, 0), alpha=2.0, layout="NCHW", out=out)
    assert surroundings_intact()
    assert np.array_equal(out, want.transpose(3, 0, 1, 2))


def test_a_plan_serves_many_calls():
    shape = ConvShape(6, 3, 6, 5, 8, 3, 2, 2, 1)
    plan = maxdnn.plan(shape)
    for number in range(3):
        images, filters = random_layer(shape, number)
        want = conv_fprop(images, filters, stride=2, padding=1)
        assert np.array_equal(conv_fprop(images, filters, plan=plan), want)


def test_layers_of_changing_size_share_one_workspace():
    for size in (9, 4, 12, 5):
        check(ConvShape(5, 2, size, size, 6, 3, 3, 1, 1), number=size)


def test_arrays_at_odd_addresses_are_copied_for_the_texture():
    shape = ConvShape(4, 18, 6, 5, 32, 3, 2)  # few channels are read without a texture
    images, filters = random_layer(shape)
    want = conv_fprop(images, filters)
    odd_images, odd_filters = guarded(images.shape, before=1)[0], guarded(filters.shape, before=3)[0]
    odd_images[...], odd_filters[...] = images, filters
    assert np.array_equal(conv_fprop(odd_images, odd_filters), want)
    plan = maxdnn.plan(shape)
    with pytest.raises(ShapeError, match=r"filters must begin at a multiple of 16 bytes .*copy_filters=True"):
        conv_fprop(images, odd_filters, plan=plan)
    plan = maxdnn.plan(shape, copy_filters=True)
    assert "spad: 27 x 1 x 1 blocks" in plan.explain() and "where no texture may" in plan.explain()
    assert np.array_equal(conv_fprop(images, odd_filters, plan=plan), want)


def test_alpha_may_be_nan_or_infinite():
    images, filters = small_case()
    assert np.isnan(conv_fprop(images, filters, alpha=np.nan)).all()
    positive = conv_fprop(np.abs(images), np.abs(filters), alpha=np.inf)
    assert (positive == np.inf).all()
    assert (conv_fprop(np.abs(images), np.abs(filters), alpha=-1e300) == -np.inf).all()


def test_infinite_and_nan_images_touch_only_the_outputs_they_belong_to():
    shape = ConvShape(6, 3, 5, 5, 7, 3, 3)  # 27 patch elements: the last step is ragged; N and K are padded
    images, filters = random_layer(shape)
    images[0, 0, 0, 3], images[0, 4, 4, 5] = np.inf, np.nan
    out = conv_fprop(images, np.abs(filters))
    assert (out[:, 0, 0, 3] == np.inf).all()
    assert np.isnan(out[:, 2, 2, 5]).all()
    out[:, 0, 0, 3] = out[:, 2, 2, 5] = 0
    assert np.isfinite(out).all()


def test_two_threads_get_their_own_results():
    cases = [(ConvShape(5, 2, 6, 6, 6, 3, 3, 1, 1), 1), (ConvShape(70, 9, 4, 4, 65, 2, 2, 1, 2), 2)]
    failures = []

    def work(shape, number):
        try:
            for _ in range(5):
                check(shape, number=number)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_that_call_at_once_load_a_plan_once():
    class Counting(VirtualGpu):
        loads = 0

        def load(self, cubin):
            self.loads += 1
            return super().load(cubin)

    gpu, shape = Counting(workers=1), ConvShape(6, 3, 4, 4, 5, 3, 3, 1, 1)
    images, filters = random_layer(shape)
    want, outs, start = conv_fprop(images, filters, padding=1), [], threading.Barrier(4)

    def work():
        start.wait()
        outs.append(conv_fprop(images, filters, padding=1, device=gpu))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outs) == 4 and all(np.array_equal(out, want) for out in outs)
    assert gpu.loads == len({launch.spec.source for launch in maxdnn.plan(shape).launches})


FORK = """
import os, threading
import numpy as np
import maxdnn
from maxdnn.runtime.devices import find
ones = np.ones((2, 4, 4, 4), np.float32), np.ones((2, 3, 3, 4), np.float32)
maxdnn.conv_fprop(*ones, padding=1)
(lane,) = find.host().kept["engine"]._streams.values()
held = threading.Event()
def hold():
    with lane.lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    os._exit(int(maxdnn.conv_fprop(*ones, padding=1)[0, 1, 1, 0] != 18))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_during_a_call_of_another_thread_computes():
    assert subprocess.run([sys.executable, "-c", FORK], timeout=120).returncode == 0


def test_what_a_device_kept_dies_with_it():
    gpu = VirtualGpu(workers=1)
    images, filters = small_case()
    conv_fprop(images, filters, padding=1, device=gpu)
    memory = weakref.ref(gpu.memory)
    del gpu
    gc.collect()
    assert memory() is None


class Metered:
    """The virtual GPU with a meter on its memory."""

    def __init__(self):
        self._inner = VirtualGpu()
        self.allocated = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def alloc(self, nbytes):
        self.allocated += nbytes
        return self._inner.alloc(nbytes)


def test_peak_extra_memory_is_what_the_docstring_says():
    meter = Metered()
    shape = ConvShape(6, 18, 8, 8, 20, 3, 3, 1, 1)
    images, filters = random_layer(shape)
    plan = maxdnn.plan(shape)
    assert plan.workspace_bytes >= 4 * 9 * 18 * 32  # filters in rows of 32, and parts of sums
    for _ in range(3):
        conv_fprop(images, filters, padding=1, device=meter)
    assert meter.allocated == plan.workspace_bytes


@pytest.mark.long
def test_peak_host_memory_of_a_call_is_the_workspace_and_little_else():
    meter = Metered()
    shape = ConvShape(128, 16, 40, 40, 4, 3, 3, 1, 1)
    images, filters = random_layer(shape)
    out = np.empty((shape.K, shape.P, shape.Q, shape.N), np.float32)
    plan = maxdnn.plan(shape, kernel="sconv_fprop_K64_N64")  # which wants padded copies
    conv_fprop(images, filters, plan=plan)  # compiles the kernels
    tracemalloc.start()
    conv_fprop(images, filters, out=out, plan=plan, device=meter)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 13 * 2**20 < plan.workspace_bytes == meter.allocated  # in pages that tracemalloc does not see
    assert peak < 2 * 2**20


def test_a_layer_that_needs_no_copy_allocates_nothing():
    meter = Metered()
    images, filters = small_case()
    conv_fprop(images, filters, device=meter)
    assert meter.allocated == 0


def test_the_largest_map_is_reached_to_its_last_texel():
    images = np.zeros((1, 2**14, 2**14, 4), np.float32)  # 4 GiB, of which only the pages of four corners come to be
    corners = np.arange(16, dtype=np.float32).reshape(2, 2, 4)
    images[0, ::2**14 - 1, ::2**14 - 1] = corners
    filters = np.array([1, 2, 4, 8], np.float32)
    out = conv_fprop(images, filters.reshape(1, 1, 1, 4), stride=2**14 - 1)
    assert np.array_equal(out, filters[:, None, None, None] * corners)


@pytest.mark.long
@pytest.mark.parametrize("shape", [ConvShape(6, 5, 9, 11, 70, 3, 2, (2, 1), (1, 3)), ConvShape(68, 4, 3, 3, 4, 2, 2)],
                         ids=str)
@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_no_kernel_races_or_reads_a_register_it_never_wrote(shape, layout):
    careful = VirtualGpu(race=True, undefined=True)
    images, filters = random_layer(shape)
    if layout == "NCHW":
        images, filters = (np.ascontiguousarray(x.transpose(3, 0, 1, 2)) for x in (images, filters))
    conv_fprop(images, filters, stride=shape.stride, padding=shape.padding, layout=layout, device=careful)


def test_a_device_that_cannot_use_host_memory_in_place_gets_copies_and_gives_the_result_back():
    class Remote(Metered):
        adopt = None

    remote = Remote()
    shape = ConvShape(6, 3, 8, 8, 5, 3, 3, 1, 1)
    images, filters = random_layer(shape)
    out = conv_fprop(images, filters, padding=1, device=remote)
    assert np.array_equal(out, conv_fprop(images, filters, padding=1))
    assert remote.allocated == maxdnn.plan(shape).workspace_bytes + images.nbytes + filters.nbytes + out.nbytes
