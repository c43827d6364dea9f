"""Groups of few channels by kernels of their own, against float64: random problems with all options in both layouts,
into poisoned outputs between guard zones; when they are chosen. MAXDNN_PROBLEMS sets how many are drawn."""

import dataclasses
import os
import random

import numpy as np
import pytest

from maxdnn import ConvShape, conv_bprop_filters, conv_fprop
from maxdnn.algorithms.depthwise import plan as depthwise
from maxdnn.algorithms.depthwise import wgrad as depthwise_wgrad
from maxdnn.errors import ShapeError
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plan
from maxdnn.problem.problem import data, filters, forward
from tests import test_backward
from tests.algorithms.test_families import LAYOUTS, check, judge, options
from tests.algorithms.test_tensor_cores import against_float64
from tests.contract import run_plan

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60")) // len(depthwise.KERNELS)
KERNELS = pytest.mark.parametrize("spec", depthwise.KERNELS, ids=lambda spec: spec.name)


def draw(rng, spec):
    """A layer that a kernel serves, of any size but large."""
    c, m = rng.choice([1, 1, 1, 2, rng.randint(1, depthwise.MOST_CHANNELS)]), rng.choice([1, 1, 2, rng.randint(1, 5)])
    groups = rng.choice([2, 3, rng.randint(2, 40)])
    if rng.random() < 0.25:  # a single group, with few on either side
        groups, (c, m) = 1, rng.sample([rng.randint(1, depthwise.MOST_ON_A_SIDE), rng.randint(1, 40)], 2)
    r, s = spec.filter or (rng.randint(1, 7), rng.randint(1, 7))
    s += r == s and not spec.filter  # square ones have kernels of their own
    dilation = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3])
    stride = rng.randint(1, 3), rng.randint(1, 3)
    if spec.filter:
        dilation = dilation[0], 1 if spec.adjacent else dilation[1]
        stride = spec.stride * dilation[0], spec.stride * dilation[1]
    padding = rng.randint(0, 3), rng.randint(0, 3)
    h, w = (max(1, d * (taps - 1) + 1 - 2 * pad + rng.choice([0, 1, rng.randint(0, 20)]))
            for d, taps, pad in zip(dilation, (r, s), padding, strict=True))
    n = max(spec.tile[2], rng.choice([1, 2, 4, rng.randint(1, 40)]))
    return ConvShape(n, groups * c, h, w, groups * m, r, s, stride, padding, dilation, groups)


def layout_for(rng, spec):
    return "NCHW" if spec.adjacent else rng.choice(LAYOUTS)


@pytest.mark.sampled(2, 3)
@KERNELS
def test_random_problems(spec):
    for number in range(PROBLEMS):
        rng = random.Random(f"{spec.name} {number}")
        check(draw(rng, spec), layout_for(rng, spec), rng, kernel=spec.name, **options(rng))


@pytest.mark.sampled(4, 8)
@pytest.mark.parametrize("number", range(24))
def test_sums_over_channels_in_parts(number):
    """Of a single group, forward and gradients of images, to float64."""
    rng = random.Random(number)
    spec = rng.choice(depthwise.KERNELS)
    while True:
        drawn, layout = draw(rng, spec), layout_for(rng, spec)
        many, few = rng.choice([8, 16, 24, 32]), rng.randint(1, 16)
        kind = rng.choice([forward, data]) if drawn.stride == (1, 1) else forward
        c, k = (many, few) if kind is forward else (few, many)
        problem = kind(dataclasses.replace(drawn, C=c, K=k, groups=1), layout=layout, reads_out=rng.random() < 0.5)
        names = [name for name in depthwise.candidates(problem, preset()) if "split" in name]
        if names and not depthwise.unsupported_reason(problem):
            break
    made, *_ = against_float64(problem, names, rng, number)
    assert "the parts are added in a fixed order" in made.explain()


@KERNELS
def test_plans_do_what_their_kernels_promise(spec):
    for number in range(4):
        rng = random.Random(f"{spec.name} {number}")
        made = plan(draw(rng, spec), layout=layout_for(rng, spec), kernel=spec.name, bias=True, activation="relu",
                    adds_out=True)
        data = np.random.default_rng(number)
        arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
        judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


def draw_back(rng):
    """A layer whose gradient with respect to its images is served."""
    shape = draw(rng, depthwise.KERNELS[-1])
    return dataclasses.replace(shape, K=shape.groups * rng.choice([1, 1, 2, depthwise.MOST_CHANNELS]))


def test_random_gradients_of_images():
    for number in range(2 * PROBLEMS):
        rng = random.Random(f"data {number}")
        shape, layout = draw_back(rng), rng.choice(LAYOUTS)
        beta = rng.choice([0.0, 0.0, -1.5])
        kernel = rng.choice(list(depthwise.candidates(data(shape, layout=layout), preset())))
        test_backward.check(shape, layout, "data", rng, kernel=kernel, alpha=rng.choice([1.0, -0.75]), beta=beta)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_images_are_one_launch_for_all_groups_and_each_remainder_of_the_stride(layout):
    for r, stride in ((3, 1), (5, 1), (3, 2)):
        made = choose(data(ConvShape(4, 64, 28, 28, 64, r, r, stride, r // 2, groups=64), layout=layout), preset())
        assert made.family == "depthwise" and len(made.launches) == stride**2 and made.workspace_bytes == 0
        assert (made.spec.filter == (r, r)) is (stride == 1)
        arrays = test_backward.arrays_of(made, r)
        test_backward.judge(made, arrays, run_plan(made, arrays, alpha=1.0)["out"])


@pytest.mark.long
def test_random_gradients_of_filters():
    for number in range(3 * PROBLEMS):
        rng = random.Random(f"filters {number}")
        shape, layout = draw(rng, rng.choice(depthwise.KERNELS)), rng.choice(LAYOUTS)
        names = test_backward.families_of(depthwise_wgrad.candidates(filters(shape, layout=layout), preset()))
        kernel = rng.choice(names[rng.choice(list(names))])
        test_backward.check(shape, layout, "filters", rng, kernel=kernel, alpha=rng.choice([1.0, -0.75]),
                            beta=rng.choice([0.0, 0.0, -1.5]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spec", depthwise_wgrad.WGRAD_KERNELS, ids=lambda spec: spec.name)
def test_gradients_of_filters_of_every_kernel_and_as_they_promise(spec):
    for number, splits in enumerate((1, 2, 3)):
        rng = random.Random(f"{spec.name} {number}")
        r, s = spec.tile if spec.stride else (3, 6)
        shape = ConvShape(47, 6, 4 * spec.stride + 11, 15, 6, r, s, (max(spec.stride, 1), 1 + number), 1, groups=3)
        kernel, layout = spec.name + f"_split{splits}" * (splits > 1), "NCHW" if spec.adjacent else LAYOUTS[number % 2]
        made = test_backward.check(shape, layout, "filters", rng, kernel=kernel, alpha=-2.0, beta=0.5)
        arrays = test_backward.arrays_of(made, number)
        test_backward.judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


def test_infinity_reaches_only_the_gradients_of_filters_it_belongs_to():
    """Rows of the map that no output meets by a tap must not be met as zero times something."""
    shape = ConvShape(1, 2, 10, 4, 2, 3, 3, (2, 1), groups=2)  # row 9 of the map belongs to no output
    for kernel in depthwise_wgrad.candidates(filters(shape, layout="NCHW"), preset()):
        made = plan(shape, layout="NCHW", kind="filters", kernel=kernel)
        images, gradients = (np.ones(made.array_shapes()[role], np.float32) for role in ("images", "gradients"))
        images[0, 0, 9], images[0, 1, 8] = np.inf, np.inf
        out = conv_bprop_filters(images, gradients, (3, 3), plan=made)
        assert np.isfinite(out[0]).all() and np.isfinite(out[1, 0, :2]).all() and np.isinf(out[1, 0, 2]).all(), kernel


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_filters_are_split_where_blocks_are_few(layout):
    problem = filters(ConvShape(32, 32, 56, 56, 32, 3, 3, 1, 1, groups=32), layout=layout)
    made = choose(problem, preset())
    assert made.family == "depthwise_filters" and len(made.launches) == 2
    assert "added in a fixed order" in made.explain()
    few = choose(filters(ConvShape(1, 512, 7, 7, 512, 3, 3, 1, 1, groups=512), layout=layout), preset())
    assert few.family == "depthwise_filters" and len(few.launches) == 1 and few.workspace_bytes == 0


CORNERS = {
    "one group of pixels": ConvShape(1, 2, 1, 1, 2, 3, 3, padding=1, groups=2),
    "smaller than the filter but for padding": ConvShape(3, 4, 2, 2, 4, 5, 5, padding=2, groups=4),
    "more padding than the filter reaches": ConvShape(2, 3, 3, 4, 3, 3, 3, padding=5, groups=3),
    "1xS": ConvShape(2, 3, 4, 9, 6, 1, 7, padding=(0, 3), groups=3),
    "Rx1": ConvShape(2, 3, 9, 4, 6, 7, 1, padding=(3, 0), groups=3),
    "1x1": ConvShape(5, 6, 4, 4, 6, 1, 1, groups=6),
    "large filter": ConvShape(1, 2, 20, 19, 2, 17, 18, padding=1, groups=2),
    "stride beyond the filter": ConvShape(2, 4, 13, 12, 4, 3, 3, 5, 1, groups=4),
    "dilation": ConvShape(2, 4, 13, 12, 4, 3, 3, 1, 2, 2, groups=4),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name, layout):
    shape = CORNERS[name]
    for kernel in depthwise.candidates(forward(shape, layout=layout), preset()):
        check(shape, layout, random.Random(name), kernel=kernel, bias=True, activation="relu", beta=0.5)


@pytest.mark.sampled(3)
@KERNELS
def test_outputs_of_many_threads(spec):
    (r, s), stride = spec.filter or (4, 3), max(spec.stride, 1)
    for times in (2, 3):
        rows, columns, n = (times * size + times - 2 for size in spec.tile)
        h, w = stride * (rows - 1) + r - 2, stride * (columns - 1) + s - 2
        shape = ConvShape(n, 3, h, w, 6, r, s, stride, 1, groups=3)
        assert (rows, columns) == (shape.P, shape.Q)
        check(shape, "NCHW" if spec.adjacent else LAYOUTS[times % 2], random.Random(rows), kernel=spec.name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_may_begin_at_any_float(layout):
    made = plan(ConvShape(4, 6, 9, 8, 6, 3, 3, padding=1, groups=6), layout=layout)
    assert made.family == "depthwise"
    rng = np.random.default_rng(1)
    arrays = {}
    for role, size in made.array_shapes().items():
        flat = np.zeros(int(np.prod(size)) + 1, np.float32)
        arrays[role] = flat[1:].reshape(size)
        arrays[role][...] = rng.uniform(-1, 1, size)
    conv_fprop(arrays["images"], arrays["filters"], plan=made, out=arrays["out"])
    judge(made, arrays, arrays["out"])


def test_nan_and_infinity_reach_only_the_outputs_they_belong_to():
    for layout, axes in (("CHWN", (0, 1, 2, 3)), ("NCHW", (3, 0, 1, 2))):
        shape = ConvShape(2, 4, 6, 6, 4, 3, 3, 1, 1, groups=4)
        for kernel in depthwise.candidates(forward(shape, layout=layout), preset()):
            made = plan(shape, layout=layout, kernel=kernel)
            images = np.ones((4, 6, 6, 2), np.float32)
            images[1, 0, 0, 0], images[2, :, :, 1] = np.nan, np.inf
            filters = np.ones(made.array_shapes()["filters"], np.float32)
            out = conv_fprop(np.ascontiguousarray(images.transpose(axes)), filters, plan=made)
            out = out if layout == "CHWN" else out.transpose(1, 2, 3, 0)
            assert np.isnan(out[1, :2, :2, 0]).all() and np.isnan(out).sum() == 4
            assert np.isinf(out[2, :, :, 1]).all() and np.isinf(out).sum() == 36


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("c, k, groups, r, stride", [(32, 32, 32, 3, 1), (64, 64, 64, 3, 2), (96, 96, 96, 5, 1),
                                                     (72, 72, 72, 5, 2), (32, 64, 32, 3, 1), (64, 64, 64, 7, 1)])
def test_depthwise_layers_are_one_launch_without_workspace(layout, c, k, groups, r, stride):
    made = choose(forward(ConvShape(4, c, 28, 28, k, r, r, stride, r // 2, groups=groups), layout=layout), preset())
    assert made.family == "depthwise" and len(made.launches) == 1 and made.workspace_bytes == 0
    assert "all groups at once" in made.explain()


def test_what_other_families_are_better_at_is_refused():
    for groups, c, r, why in ((1, 17, 3, "more than 16 channels and filters"),
                              (2, 64, 3, "groups of more than 8 channels"),
                              (1, 1, 12, "sums of more than 8192 products")):
        problem = forward(ConvShape(1, c, 12, 12, 64, r, r, groups=groups))
        assert depthwise.unsupported_reason(problem) == why
        with pytest.raises(ShapeError, match="kernel must be one of"):
            choose(problem, preset(), "sdepthwise_any")


def test_arrays_beyond_the_counts_of_the_kernels_are_refused():
    shape = ConvShape(1, 2**15, 256, 256, 2**15, 3, 3, padding=1, groups=2**15)
    with pytest.raises(ShapeError, match="images C x H x W x N must be at most"):
        plan(shape, kernel="sdepthwise_3x3_s1")


def test_the_same_bits_in_every_run_and_in_both_layouts():
    rng = np.random.default_rng(3)
    images, filters = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((5, 9, 8, 3), (1, 3, 3, 5)))
    chwn = [conv_fprop(images, filters, padding=1, groups=5) for _ in range(3)]
    nchw = conv_fprop(np.ascontiguousarray(images.transpose(3, 0, 1, 2)),
                      np.ascontiguousarray(filters.transpose(3, 0, 1, 2)), padding=1, groups=5, layout="NCHW")
    assert all(np.array_equal(chwn[0], x) for x in (*chwn, nchw.transpose(1, 2, 3, 0)))
