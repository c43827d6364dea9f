"""Gradients of images of few channels by blocks of pixels on the tensor cores of sm_90: random problems of all that is
served, and that first layers take them."""

import random

import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.dgrad_strided import few_channels
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, data

from .test_tensor_cores import against_float64
from .test_tensor_phases import gradient_of

H200 = preset("h200")


def some_problem(number: int) -> tuple[Problem, random.Random]:
    rng = random.Random(20261123 + number)
    while True:
        r, s = rng.choice([(3, 3), (7, 7), (11, 11), (5, 2), (1, 4)])
        stride = rng.choice([(1, 1), (2, 2), (4, 4), (2, 1), (3, 2)])
        padding = rng.choice([(0, 0), (r // 2, s // 2), (r - 1, 0)])
        h, w = (max(2, taps - 2 * pad) + rng.choice([0, 1, 5, 14, 23])
                for taps, pad in zip((r, s), padding, strict=True))
        n, c, k = rng.choice([1, 2, 3, 17]), rng.randint(1, 5), rng.choice([32, 33, 64, 96])
        shape = ConvShape(n, c, h, w, k, r, s, stride, padding)
        problem = gradient_of(shape, rng)
        if shape.flops < 2e7 and few_channels.unsupported_reason(problem) is None:
            return problem, rng


@pytest.mark.sampled(4, 8)
@pytest.mark.parametrize("number", range(64))
def test_random_problems(number: int) -> None:
    """Both layouts, strides, padding, beta, operands at any address, into poison between guards."""
    problem, rng = some_problem(number)
    candidates = {name: make for name, make in few_channels.candidates(problem, H200).items() if "tensor" in name}
    against_float64(problem, candidates, rng, number)


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_first_layers_take_them(layout: str) -> None:
    for layer in LAYERS:
        if layer.name in ("conv1", "L1"):
            made = choose(data(layer.shape, layout=layout), H200)
            assert made.family == "blocks" and "sm90_tensor_pixels_128x128" in {x.spec.name for x in made.launches}
