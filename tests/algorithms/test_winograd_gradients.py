"""Winograd for gradients: matrices, every candidate against float64 and by the text of the kernels, runs of images,
what is refused. MAXDNN_PROBLEMS sets how many are drawn (CI takes a sample)."""

import os
import random
from fractions import Fraction

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, plan
from maxdnn.algorithms.winograd.toomcook import GRADIENTS, TABLE, matrices
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import data, filters
from tests.algorithms.test_families import LAYOUTS
from tests.algorithms.test_winograd import draw
from tests.contract import run_plan
from tests.gradients import gradient
from tests.test_backward import BOTH, arrays_of, call, check, families_of, judge, served

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60")) // 3


def winograd(shape, layout, kind):
    """Names of candidates by kernel."""
    return families_of([x for x in served(shape, layout, kind) if x.startswith("winograd")])


@pytest.mark.parametrize("points", GRADIENTS, ids=lambda p: f"F({p.outputs},{p.taps})")
def test_the_matrices_convolve_exactly_with_the_transform_of_the_layers_maps(points):
    """In fractions, for every pair of a unit input and a unit gradient."""
    a, g, b = matrices(points)
    (forward,) = [p for p in TABLE if (p.taps, p.outputs) == (points.outputs, points.taps)]
    assert b == matrices(forward).B
    for i in range(points.inputs):
        for k in range(points.taps):
            product = [u[k] * v[i] for u, v in zip(g, b, strict=True)]
            found = [sum(x * y for x, y in zip(row, product, strict=True)) for row in a]
            assert found == [Fraction(int(i == j + k)) for j in range(points.outputs)]


@pytest.mark.long
@BOTH
def test_random_problems_by_a_random_candidate(kind):
    for number in range(PROBLEMS // 2):
        rng = random.Random(20260100 + number)
        shape, layout, beta = draw(rng), rng.choice(LAYOUTS), rng.choice([0.0, -1.5])
        if min(shape.P - shape.pad_h, shape.Q - shape.pad_w) < 1:
            continue
        names = winograd(shape, layout, kind)
        check(shape, layout, kind, rng, kernel=rng.choice(names[rng.choice(list(names))]), alpha=-0.75, beta=beta)


@pytest.mark.sampled(4)
@BOTH
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [ConvShape(2, 16, 7, 6, 5, 3, 3, 1, 1), ConvShape(3, 9, 8, 8, 6, 5, 5, 1, (2, 0)),
                                   ConvShape(4, 33, 9, 4, 8, 3, 3, 1, (0, 2))], ids=str)
def test_plans_do_what_their_kernels_promise(shape, layout, kind):
    for names in winograd(shape, layout, kind).values():
        for name in (names[0], names[-1]):
            made = plan(shape, layout=layout, kernel=name, kind=kind, adds_out=True)
            arrays = arrays_of(made, 7)
            judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


@pytest.mark.parametrize(("kind", "layout", "kernel"), [
    *((kind, layout, kernel) for layout in LAYOUTS for kind, kernel in (
        ("data", "64"), ("data", "tensor_sm90"), ("filters", "64_split2"), ("filters", "tensor_sm90"))),
    ("filters", "NCHW", "tensor_pieces_sm90_split2")])
def test_a_small_workspace_cuts_a_layer_into_runs_of_images(layout, kind, kernel):
    shape = ConvShape(64 if kernel.startswith("tensor") else 20, 8, 9, 9, 12, 3, 3, 1, 1)
    name = f"winograd_{'4x4_3x3' if kind == 'data' else '3x3_4x4'}_{kernel}"
    whole = plan(shape, layout=layout, kind=kind, kernel=name)
    few = plan(shape, layout=layout, kind=kind, kernel=name, max_workspace_bytes=whole.workspace_bytes // 2)
    assert few.workspace_bytes <= whole.workspace_bytes // 2 and len(few.launches) > len(whole.launches)
    for made in (whole, few):
        arrays = arrays_of(made, 3)
        judge(made, arrays, call(made, arrays))
    with pytest.raises(ShapeError, match="max_workspace_bytes must be at least"):
        plan(shape, layout=layout, kind=kind, kernel=name, max_workspace_bytes=10_000)


@BOTH
def test_many_images_with_filters_of_three_rows_take_it(kind):
    make = data if kind == "data" else filters
    for layer in LAYERS:
        if layer.name in ("conv3", "conv4", "conv5", "L3", "L4", "L5"):
            made = choose(make(layer.shape, layout="NCHW"), preset())
            assert made.algorithm == "winograd" and made.error <= 2e-6
            assert choose(make(layer.shape), preset(), algorithm="direct").algorithm == "direct"


@pytest.mark.parametrize(("shape", "words"), [
    (ConvShape(4, 8, 9, 9, 8, 3, 3, 2, 1), "stride 2x2"), (ConvShape(4, 8, 9, 9, 8, 3, 3, 1, 2, 2), "dilation 2x2"),
    (ConvShape(4, 8, 9, 9, 8, 3, 3, 1, 1, 1, 2), "2 groups"), (ConvShape(4, 8, 9, 9, 8, 2, 2), "filters of 2x2"),
    (ConvShape(4, 8, 1, 9, 8, 3, 3, 1, 1), "padding 1x1 of maps of 1x9, which leaves taps without terms"),
    (ConvShape(4, 8, 5, 9, 8, 5, 5, 1, (0, 7)), "padding 0x7 of filters 5x5, which leaves tiles that few taps have")])
def test_what_it_does_not_serve_is_said(shape, words):
    with pytest.raises(ShapeError, match=words):
        plan(shape, kind="filters", algorithm="winograd")


def test_the_documented_error_holds_for_many_tiles_and_few():
    for shape in (ConvShape(8, 12, 16, 16, 12, 3, 3, 1, 1), ConvShape(8, 12, 14, 14, 12, 5, 5, 1, 2),
                  ConvShape(1, 2, 4, 4, 3, 3, 3)):
        for layout in LAYOUTS:
            for kernel in ("64", "tensor_sm90"):
                made = plan(shape, layout=layout, kind="filters", kernel=f"winograd_{shape.R}x{shape.R}_4x4_{kernel}")
                for least in (-1, 0):
                    arrays = {role: np.random.default_rng(5).uniform(least, 1, size).astype(np.float32)
                              for role, size in made.array_shapes().items()}
                    judge(made, arrays, call(made, arrays))


@pytest.mark.parametrize("shape", [ConvShape(32, 3, 13, 5, 33, 5, 5, 1, (4, 0)), ConvShape(128, 3, 3, 3, 8, 3, 3),
                                   ConvShape(64, 3, 4, 9, 9, 5, 5, 1, (1, 1))], ids=str)
def test_the_documented_error_holds_for_tiles_that_are_hardly_filled(shape):
    """And a sum of few tiles is not made exact by cutting it into parts."""
    name = f"winograd_{shape.R}x{shape.R}_4x4_64"
    whole = plan(shape, kind="filters", kernel=name)
    cut = plan(shape, kind="filters", kernel=name, max_workspace_bytes=3 * whole.workspace_bytes // 4)
    assert len(cut.launches) > len(whole.launches)
    tensor = plan(shape, kind="filters", kernel=name.replace("_64", "_tensor_sm90"))
    for made in (whole, cut, tensor):
        for seed in range(3):
            arrays = arrays_of(made, seed)
            want, size = gradient(shape, "filters", arrays["images"], None, arrays["gradients"])
            assert (abs(call(made, arrays) - want) <= made.error * size).all(), made.error
