"""Gradients on a real GPU: random problems of either kind by a random candidate, guard zones, the same bits."""

import random

import numpy as np
import pytest

from maxdnn import conv_bprop_bias, plan
from maxdnn.algorithms.dgrad_strided import maxwell as dgrad_strided
from maxdnn.planning.cost import preset
from maxdnn.problem.problem import data
from tests import test_backward as backward
from tests.algorithms.test_dgrad_strided import served
from tests.gpu.test_gpu import Guarded
from tests.sass import test_filters_sm90 as native

pytestmark = pytest.mark.gpu
CHUNKS = 20
EACH = 20  # problems of a chunk


def case(number):
    """A plan and what else a call is given."""
    rng = random.Random(31000 + number)
    shape, layout, kind = backward.draw(rng), rng.choice(backward.LAYOUTS), list(backward.KINDS)[number % 2]
    alpha, beta = rng.choice([1.0, -0.75]), rng.choice([0.0, 0.0, -1.5])
    names = backward.families_of(backward.served(shape, layout, kind, beta))
    kernel = rng.choice(names[rng.choice(list(names))])
    return plan(shape, layout=layout, kernel=kernel, kind=kind, adds_out=beta != 0), alpha, beta


def check(device, made, alpha, beta, seed):
    """One call: every element within its tolerance, nothing else touched."""
    arrays = backward.arrays_of(made, seed)
    placed = {role: Guarded(device, array) for role, array in arrays.items()}
    backward.call(made, {role: x.array for role, x in placed.items()}, alpha=alpha, beta=beta, out=placed["out"].array)
    backward.judge(made, arrays, placed["out"].get(), alpha, beta)
    assert all((placed[role].get() == arrays[role]).all() for role in placed if role != "out")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_match_float64_and_touch_nothing_else(device, chunk):
    for number in range(chunk * EACH, (chunk + 1) * EACH):
        check(device, *case(number), number)


@pytest.mark.parametrize("spec", dgrad_strided.KERNELS, ids=lambda spec: spec.name)
def test_random_problems_by_classes_of_pixels(device, spec):
    for number in range(EACH):
        rng = random.Random(f"{spec.name} {number}")
        shape, layout = served(rng)
        names = dgrad_strided.candidates(data(shape, layout=layout), preset())
        kernel = rng.choice([name for name in names if name.split("_split")[0] == spec.name])
        beta = rng.choice([0.0, 0.0, -1.5])
        check(device, plan(shape, layout=layout, kernel=kernel, kind="data", adds_out=beta != 0), 1.0, beta, number)


def native_case(number):
    """Likewise by machine code of sm_90 for gradients of filters."""
    shape, layout, beta, kernel, rng = native.random_problem(number)
    return plan(shape, layout=layout, kernel=kernel, kind="filters", adds_out=beta != 0), rng.choice([1.0, -0.75]), beta


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_gradients_of_filters_by_machine_code(hopper, chunk):
    for number in range(chunk * EACH, (chunk + 1) * EACH):
        check(hopper, *native_case(number), number)


def test_machine_code_gives_the_same_bits_in_twenty_runs_of_twenty_problems(hopper):
    same_bits(hopper, map(native_case, range(1000, 1020)))


def test_the_same_bits_in_twenty_runs_of_twenty_problems(device):
    same_bits(device, map(case, range(1000, 1020)))


def same_bits(device, cases):
    for number, (made, alpha, _) in enumerate(cases):
        arrays = backward.arrays_of(made, number)
        placed = {role: Guarded(device, array) for role, array in arrays.items()}
        given = {role: x.array for role, x in placed.items()}
        first = None
        for _ in range(20):
            backward.call(made, given, alpha=alpha, beta=float(made.problem.reads_out), out=placed["out"].array)
            found = placed["out"].get().copy()
            if made.problem.reads_out:
                placed["out"] = Guarded(device, arrays["out"])
                given["out"] = placed["out"].array
            first = found if first is None else first
            assert np.array_equal(found, first)


@pytest.mark.parametrize("layout", backward.LAYOUTS)
def test_gradients_of_a_bias(device, layout):
    gradients = np.random.default_rng(2).uniform(-1, 1, (37, 14, 13, 50)).astype(np.float32)
    axes = (1, 2, 3) if layout == "CHWN" else (0, 2, 3)
    placed, sums = Guarded(device, gradients), Guarded(device, np.full(gradients.sum(axes).shape, np.nan))
    conv_bprop_bias(placed.array, layout=layout, out=sums.array)
    out = sums.get()
    assert (abs(out - gradients.sum(axes, dtype=float)) < 2e-6 * abs(gradients).sum(axes)).all()
