"""Gradients of images over classes of pixels: which pixels belong together, problems with all options by every kernel
into poisoned outputs between guard zones, and what is one launch. MAXDNN_PROBLEMS sets how many are drawn."""

import itertools
import os
import random
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, conv_bprop_data, plan
from maxdnn.algorithms.common import correlation
from maxdnn.algorithms.common.correlation import phases_of, phases_reason
from maxdnn.algorithms.dgrad_strided import few_channels
from maxdnn.algorithms.dgrad_strided import maxwell as dgrad_strided
from maxdnn.algorithms.implicit_gemm import maxwell as implicit_gemm
from maxdnn.planning import cost
from maxdnn.planning.cost import Chip, Cost, Work, preset
from maxdnn.problem.problem import data
from tests.algorithms.test_families import LAYOUTS, draw
from tests.contract import run_plan
from tests.test_backward import arrays_of, call, check, judge

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60")) // 4


def served(rng):
    """A random layer with filters by the eight, as `draw` makes them."""
    while True:
        s = draw(rng)
        shape = replace(s, K=8 * s.groups * rng.choice([1, 1, 2, 3, 5]))
        layout = rng.choice(LAYOUTS)
        if phases_reason(data(shape, layout=layout)) is None:
            return shape, layout


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spec", dgrad_strided.KERNELS, ids=lambda spec: spec.name)
def test_random_problems(spec):
    for number in range(PROBLEMS // len(dgrad_strided.KERNELS)):
        rng = random.Random(f"{spec.name} {number}")
        shape, layout = served(rng)
        found = dgrad_strided.candidates(data(shape, layout=layout), preset())
        names = [x for x in found if x.split("_split")[0] == spec.name]
        check(shape, layout, "data", rng, kernel=rng.choice(names), alpha=rng.choice([1.0, -0.75]),
              beta=rng.choice([0.0, 0.0, 1.5]))


CORNERS = {
    "padding of 4 of 5 taps": ConvShape(3, 12, 8, 7, 16, 5, 5),
    "every second pixel": ConvShape(3, 20, 7, 6, 16, 3, 3, 2, 1),
    "1x1 of every second pixel": ConvShape(3, 40, 5, 4, 24, 1, 1, 2),
    "pixels without taps": ConvShape(2, 9, 9, 8, 8, 2, 2, 3),
    "more padding than filter": ConvShape(2, 8, 4, 4, 8, 2, 2, padding=3),
    "dilation beside strides": ConvShape(2, 8, 11, 12, 8, 3, 3, stride=(2, 3), padding=2, dilation=(3, 2)),
    "groups": ConvShape(2, 12, 6, 6, 48, 3, 3, 1, 1, groups=3),
    "one pixel": ConvShape(70, 30, 1, 1, 64, 1, 1),
    "many tiles of channels": ConvShape(2, 140, 3, 3, 8, 3, 3, 1, 1),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name, layout):
    """By each kernel, whole and split, and by its words alone."""
    rng, shape = random.Random(name), CORNERS[name]
    for kernel in dgrad_strided.candidates(data(shape, layout=layout), preset()):
        if "split" not in kernel or kernel.endswith("split2"):
            made = check(shape, layout, "data", rng, kernel=kernel, beta=rng.choice([0.0, 0.5]))
            assert made.family == "classes"
            arrays = arrays_of(made, 7)
            judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0,
                  0.5 if made.problem.reads_out else 0.0)


@pytest.mark.parametrize("name", CORNERS)
def test_every_pixel_is_in_one_class_with_the_taps_that_reach_it(name):
    s = CORNERS[name]
    taps = np.zeros((s.H, s.W), int)
    for p, q, r, t in np.ndindex(s.P, s.Q, s.R, s.S):
        h, w = p * s.str_h - s.pad_h + r * s.dil_h, q * s.str_w - s.pad_w + t * s.dil_w
        if 0 <= h < s.H and 0 <= w < s.W:
            taps[h, w] += 1
    found = np.full((s.H, s.W), -1)
    every = phases_of(data(s))
    for x in every:
        rows, columns = (first + every_one * (span.first + np.arange(span.count)) for first, every_one, span in
                         zip(x.s.first, x.s.every, (x.rows, x.columns), strict=True))
        assert (found[np.ix_(rows, columns)] == -1).all()
        found[np.ix_(rows, columns)] = x.taps
    assert (found == taps).all()
    assert [x.taps for x in every] == sorted((x.taps for x in every), reverse=True)


def test_strides_are_one_launch():
    s = ConvShape(2, 16, 8, 8, 16, 3, 3, 2, 1)
    made = plan(s, layout="NCHW", kind="data", kernel="sconv_classes_K64_J64")
    assert [launch.spec.name for launch in made.launches] == ["sturn", "sconv_classes_K64_J64"]
    assert "over the taps of 9 phases of pixels" in made.explain() and "of the taps lie on gradients" in made.explain()
    assert plan(s, layout="NCHW", kind="data").family == "classes"
    others = (s, "strides of a gradient, which classes serves in one launch"), (replace(s, K=12), None)
    assert all(implicit_gemm.unsupported_reason(data(shape, layout="NCHW")) == what for shape, what in others)


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("kernel", ["sconv_classes_K64_J64", "sconv_classes_K128_J128_split2"])
def test_pixels_that_no_tap_reaches_are_zero(kernel, beta):
    s = ConvShape(2, 16, 8, 8, 16, 1, 1, 2)
    made = plan(s, layout="NCHW", kind="data", kernel=kernel, adds_out=beta != 0)
    assert ("sfill" in [launch.spec.name for launch in made.launches]) == (beta == 0 or "split" in kernel)
    arrays = arrays_of(made, 1)
    arrays["gradients"][...] = np.inf
    was = arrays["out"] if beta else np.full((2, 16, 8, 8), np.float32(np.nan))
    out = call(made, arrays, out=was.copy(), beta=beta)
    wanted = beta * was if beta else np.zeros_like(was)
    assert (out == wanted)[:, :, 1::2].all() and (out == wanted)[..., 1::2].all()
    assert not np.isfinite(out[:, :, ::2, ::2]).any()


def test_what_is_not_served_is_said():
    for shape, layout, what in (
            (ConvShape(2, 8, 6, 6, 12, 3, 3), "CHWN", "groups of 12 filters, no multiple of 8"),
            (ConvShape(2, 8, 40, 40, 8, 17, 17, padding=8), "NCHW", "pixels of more phases than fit 65536 bytes"),
            (ConvShape(2, 8, 1, 1, 8, 1, 1, stride=2, padding=1), "CHWN", "images that no tap reaches")):
        assert phases_reason(data(shape, layout=layout)) == what


def test_gradients_that_begin_at_any_float_are_read_where_they_lie():
    s = CORNERS["every second pixel"]
    made = plan(s, kind="data", copy_gradients=True, kernel="sconv_classes_K32_J64_split2")
    arrays = arrays_of(made, 3)
    odd = np.empty(arrays["gradients"].size + 1, np.float32)[1:].reshape(arrays["gradients"].shape)
    odd[...] = arrays["gradients"]
    judge(made, arrays, call(made, arrays | {"gradients": odd}))
    assert all("gradients" not in launch.doing for launch in made.launches[:-2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nan_and_infinity_reach_only_what_they_belong_to(layout):
    s = ConvShape(2, 9, 5, 5, 8, 3, 3, 1, 1)
    for kernel in dgrad_strided.candidates(data(s, layout=layout), preset()):
        made = plan(s, layout=layout, kernel=kernel, kind="data")
        arrays = {role: np.ones(size, np.float32) for role, size in made.array_shapes().items()}
        seen = arrays["gradients"] if layout == "CHWN" else arrays["gradients"].transpose(1, 2, 3, 0)
        seen[2, 0, 0, 0] = np.nan
        out = conv_bprop_data(arrays["gradients"], arrays["filters"], (5, 5), plan=made)
        out = out if layout == "CHWN" else out.transpose(1, 2, 3, 0)
        assert np.isnan(out[:, :2, :2, 0]).all() and np.isfinite(out[:, 2:]).all() and np.isfinite(out[..., 1]).all()


def test_runs_of_pixels_and_windows_are_those_that_looking_at_each_finds():
    """They are found by their ends, whatever the sizes are."""
    rng = random.Random(7)
    for _ in range(2000):
        count, stride, padding = rng.randint(1, 30), rng.randint(1, 5), rng.randint(-6, 25)
        dilation, taps, size = rng.randint(1, 4), rng.randint(0, 6), rng.randint(1, 12)
        reached = []
        for pixel in range(count):
            inside = [t for t in range(taps) if 0 <= pixel * stride - padding + t * dilation < size]
            reached.append((inside[0], len(inside)) if inside else (0, 0))
        spans = list(correlation._spans(count, stride, padding, dilation, taps, size))
        assert [(s.tap, s.taps) for s in spans for _ in range(s.count)] == reached
        assert [s.first for s in spans] == [0, *np.cumsum([s.count for s in spans])[:-1]]
        assert all((a.tap, a.taps) != (b.tap, b.taps) for a, b in itertools.pairwise(spans))
        taps, block = taps + 1, stride * rng.randint(1, 4)
        reach = [(pixel + padding - tap) // stride for pixel in range(block) for tap in range(taps)
                 if (pixel + padding - tap) % stride == 0]
        assert few_channels._window(taps, stride, padding, block) == (min(reach), max(reach) - min(reach) + 1)
        found = correlation._residues(size, taps, stride, padding, dilation)
        assert len(found) == min(stride, size)
        for row in found:
            own = [r for r in range(taps) if (row.first + padding - r * dilation) % stride == 0]
            assert row.taps == len(own) and (not own or (row.tap, row.step) == (
                own[-1], -(own[1] - own[0] if len(own) > 1 else 1)))


@pytest.mark.parametrize("path", [0.0, 3.0])
def test_an_estimate_of_more_ctas_than_are_looked_at_is_that_of_all(path):
    for runs in (((9.0, 1000), (4.0, 3000)), ((7.5, 5000),), ((20.0, 90), (1.0, 4099))):
        def estimate(runs=runs):
            lengths, each = cost.neighbours(runs)
            return Work(sum(n for _, n in runs), 0, Cost(1.0, path, 2, 5.0), lengths=tuple(lengths), each=each
                        ).clocks(Chip("some", 4, 1e9)), len(lengths)
        every, count = estimate()
        assert count == sum(n for _, n in runs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cost, "MANY", 500)
            few, count = estimate()
        assert count <= 500 + len(runs) and few == pytest.approx(every, rel=0.03)
