"""The fused F(2x2, 3x3) against float64 with all options, forward and for images' gradients, in both layouts; what is
documented of its error and of values that are no numbers; where it is chosen. MAXDNN_PROBLEMS sets how many problems
are drawn (CI takes a sample)."""

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_bprop_data, conv_fprop, prepare_filters
from maxdnn.algorithms.winograd import fused as winograd_fused
from maxdnn.algorithms.winograd.toomcook import FEW_CHANNELS
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.select import choose, plan
from maxdnn.problem.problem import data, forward
from maxdnn.reference import conv_reference
from tests import test_backward
from tests.algorithms.test_families import LAYOUTS, check, judge, options
from tests.contract import run_plan

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60")) // 3
CHUNKS = 4
NAME = "winograd_2x2_3x3_fused"
EITHER = pytest.mark.parametrize("layout", LAYOUTS)


def draw(rng):
    while True:
        n = rng.choice([1, 2, 3, rng.randint(1, 40), rng.choice([32, 64, 128])])
        padding = rng.randint(0, 2), rng.randint(0, 2)
        h, w = (max(1, 3 - 2 * pad) + rng.randint(0, 14) for pad in padding)
        shape = ConvShape(n, rng.randint(1, 70), h, w, rng.randint(1, 100), 3, 3, 1, padding)
        if shape.flops < 2e8 and max(shape.C, shape.K) <= winograd_fused.POINTS.most:
            return shape


def arrays_of(made, seed=1):
    rng = np.random.default_rng(seed)
    return {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems(chunk):
    """Every third the gradient of the images."""
    for number in range(chunk, PROBLEMS, CHUNKS):
        rng = random.Random(20170000 + number)
        shape, layout, asked = draw(rng), rng.choice(LAYOUTS), options(rng)
        if number % 3:
            check(shape, layout, rng, kernel=NAME, **asked)
        else:
            test_backward.check(shape, layout, "data", rng, kernel=NAME, alpha=asked["alpha"], beta=asked["beta"])


@EITHER
@pytest.mark.parametrize("shape", [
    ConvShape(1, 1, 1, 1, 1, 3, 3, 1, 1), ConvShape(1, 4, 2, 2, 32, 3, 3, 1, 1), ConvShape(1, 5, 3, 3, 33, 3, 3),
    ConvShape(33, 8, 4, 3, 31, 3, 3, 1, (0, 2)), ConvShape(2, 3, 1, 70, 65, 3, 3, 1, 1)], ids=str)
def test_edges(shape, layout):
    check(shape, layout, random.Random(5), kernel=NAME, bias=True, activation="relu", alpha=0.5, beta=-1.0)


@EITHER
@pytest.mark.parametrize("shape", [ConvShape(2, 16, 7, 6, 5, 3, 3, 1, 1), ConvShape(4, 33, 9, 4, 40, 3, 3, 1, (0, 2))],
                         ids=str)
def test_plans_do_what_their_kernels_promise(shape, layout):
    made = plan(shape, layout=layout, kernel=NAME, bias=True, activation="relu", adds_out=True)
    arrays = arrays_of(made)
    judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)
    made = plan(shape, layout=layout, kernel=NAME, kind="data", adds_out=True)
    arrays = arrays_of(made)
    test_backward.judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


@EITHER
def test_images_and_gradients_that_begin_anywhere_are_copied(layout):
    shape = ConvShape(3, 6, 7, 5, 9, 3, 3, 1, 1)
    made = plan(shape, layout=layout, kernel=NAME, copy_images=True)
    assert made.launches[0].spec.name == "spad"
    arrays = arrays_of(made)
    judge(made, arrays, conv_fprop(arrays["images"], arrays["filters"], plan=made))
    made = plan(shape, layout=layout, kernel=NAME, kind="data", copy_gradients=True)
    arrays = arrays_of(made)
    found = conv_bprop_data(arrays["gradients"], arrays["filters"], (shape.H, shape.W), plan=made)
    test_backward.judge(made, arrays, found)


@EITHER
def test_images_beyond_the_reach_of_a_texture(layout, monkeypatch):
    """Runs of images, each with its part of a texture; all channels of C,H,W,N lie in one."""
    shape = ConvShape(7, 6, 9, 8, 9, 3, 3, 1, 1)
    monkeypatch.setattr(winograd_fused, "MAX_TEXELS", 3 * 6 * 9 * 8 + 512)
    problem = forward(shape, layout=layout)
    if layout == "CHWN":
        with pytest.raises(ShapeError, match="images must have at most 1808 elements, the reach of a texture"):
            choose(problem, preset(), NAME)
        return
    made = choose(problem, preset(), NAME)
    assert len(made.passes) == 3
    arrays = arrays_of(made)
    judge(made, arrays, conv_fprop(arrays["images"], arrays["filters"], plan=made))
    judge(made, arrays, run_plan(made, arrays, alpha=1.0)["out"])


@EITHER
def test_prepared_filters_give_the_same_bits(layout):
    made = plan(ConvShape(3, 9, 8, 7, 33, 3, 3, 1, 1), layout=layout, kernel=NAME)
    arrays = arrays_of(made)
    prepared = prepare_filters(arrays["filters"], made)
    assert list(prepared.arrays) == ["filter_planes"] and len(made.apart[1].launches) == 1
    assert np.array_equal(conv_fprop(arrays["images"], prepared),
                          conv_fprop(arrays["images"], arrays["filters"], plan=made))


@EITHER
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_what_is_no_number_stays_in_its_tiles(layout, bad):
    shape = ConvShape(2, 6, 7, 8, 6, 3, 3, 1, 1)
    image, channel, row, column = 1, 5, 4, 5
    made = plan(shape, layout=layout, kernel=NAME)
    arrays = arrays_of(made)
    clean = conv_fprop(arrays["images"], arrays["filters"], plan=made)
    images = arrays["images"] if layout == "NCHW" else arrays["images"].transpose(3, 0, 1, 2)
    images[image, channel, row, column] = bad
    same = conv_fprop(arrays["images"], arrays["filters"], plan=made) == clean
    same = same if layout == "NCHW" else same.transpose(3, 0, 1, 2)
    touched = np.zeros((shape.P, shape.Q), bool)
    touched[2:6, 4:8] = True  # tiles of rows 1 .. 4, 3 .. 6 and columns 3 .. 6, 5 .. 8
    assert same[0].all() and same[1][:, ~touched].all() and not same[1][:, touched].all()


@EITHER
def test_the_error_is_what_is_documented(layout):
    for padding, documented in ((0, 2e-7), (1, 3e-7)):
        shape = ConvShape(2, 64, 12, 13, 64, 3, 3, 1, padding)
        made = plan(shape, layout=layout, kernel=NAME, max_error=3e-7)
        assert made.error == documented and made.algorithm == "winograd" and shape.C >= FEW_CHANNELS
        arrays = arrays_of(made)
        out = conv_fprop(arrays["images"], arrays["filters"], plan=made)
        if layout == "NCHW":
            arrays, out = {role: a.transpose(1, 2, 3, 0) for role, a in arrays.items()}, out.transpose(1, 2, 3, 0)
        want, size = conv_reference(arrays["images"], arrays["filters"], padding=padding)
        assert (abs(out - want) / size).max() < documented


def whole(made):
    """The plan with all channels summed at once."""
    *others, last = made.launches
    assert last.numbers["ahead"]
    return replace(made, launches=(*others, replace(last, values={**last.values, "ahead": 0})))


@EITHER
def test_more_than_32_channels_are_summed_in_halves_which_makes_smaller_errors(layout):
    made = plan(ConvShape(2, 64, 20, 20, 32, 3, 3, 1, 1), layout=layout, kernel=NAME)
    assert not plan(ConvShape(2, 32, 20, 20, 32, 3, 3, 1, 1), layout=layout, kernel=NAME).launches[-1].numbers["ahead"]
    arrays = arrays_of(made)
    outs = [conv_fprop(arrays["images"], arrays["filters"], plan=one) for one in (made, whole(made))]
    if layout == "NCHW":
        arrays = {role: a.transpose(1, 2, 3, 0) for role, a in arrays.items()}
        outs = [a.transpose(1, 2, 3, 0) for a in outs]
    want, _ = conv_reference(arrays["images"], arrays["filters"], padding=1)
    halves, at_once = (np.sqrt(np.mean((out - want)**2)) for out in outs)
    assert halves < 0.85 * at_once


@EITHER
@pytest.mark.parametrize("scale", [1.0, 2.0**-140, 2.0**-126, 2.0**100, 2.0**116])
def test_halves_lose_nothing_of_sums_that_are_exact(layout, scale):
    """Of small integers times a power of two, through numbers that are not normal and up to the largest ones: the same
    bits, but that a sum of nothing may be -0."""
    made = plan(ConvShape(2, 37, 9, 8, 33, 3, 3, 1, 1), layout=layout, kernel=NAME)
    rng = np.random.default_rng(2)
    images, filters = (rng.integers(-4, 5, size) for size in map(made.array_shapes().get, ("images", "filters")))
    arrays = (images * np.float32(scale)).astype(np.float32), (4 * filters).astype(np.float32)
    found = [conv_fprop(*arrays, plan=one) for one in (made, whole(made))]
    assert np.isfinite(found[0]).all() and np.array_equal(*found) and np.count_nonzero(found[0]) > 1000


@pytest.mark.parametrize("kind", [forward, data])
def test_what_it_does_not_serve(kind):
    for shape, words in ((ConvShape(2, 4, 8, 8, 4, 5, 5), "filters of 5x5"),
                         (ConvShape(2, 4, 8, 8, 4, 3, 3, 2), "stride 2x2"),
                         (ConvShape(2, 4, 8, 8, 4, 3, 3, groups=2), "2 groups"),
                         (ConvShape(2, 81, 8, 8, 81, 3, 3), "81 channels, more than the 80 summed at once")):
        assert winograd_fused.FAMILY.unsupported_reason(kind(shape)) == words


H200 = Chip("an H200", 132, 2431.5, runs_maxwell=False, arch="sm_90")


@EITHER
@pytest.mark.parametrize("chip, sizes, fused", [
    (preset("gm204"), (32, 64, 56, 56, 64), True), (preset("gm204"), (32, 32, 56, 56, 32), True),
    (preset("gm204"), (32, 128, 28, 28, 128), False), (preset("gm200"), (4, 64, 224, 224, 64), True),
    (preset("gm200"), (4, 128, 56, 56, 256), False), (H200, (32, 16, 112, 112, 16), False),
    (H200, (32, 64, 56, 56, 64), False), (H200, (32, 32, 56, 56, 32), False)], ids=str)
def test_it_is_taken_where_simulation_and_measurement_say_that_it_is_faster(layout, chip, sizes, fused):
    """The last one takes an H200 81 microseconds fused, 61 by F(4x4, 3x3) in four launches."""
    made = choose(forward(ConvShape(*sizes, 3, 3, 1, 1), layout=layout), chip)
    assert (made.family == "winograd_fused") == fused


def test_sums_of_many_channels_are_left_to_what_adds_them_in_parts():
    deep = ConvShape(16, 256, 28, 28, 256, 3, 3, 1, 1)
    for most in (3e-7, 2e-6):
        made = choose(forward(deep, layout="NCHW"), preset(), max_error=most)
        assert made.family == "winograd" and "channels at a time are added" in made.explain()
