"""Gradients of images with strides on the tensor cores of sm_90: random problems of all that is served, pixels that no
tap reaches, the same bits every time."""

import random

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.common.epilogue import VECTORS
from maxdnn.algorithms.dgrad_strided import tensor_cores
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, data
from tests.contract import run_plan

from .test_every_candidate import Operands, run
from .test_tensor_cores import against_float64

FAMILY, NAME = tensor_cores.FAMILY, tensor_cores.NAME


def gradient_of(shape: ConvShape, rng: random.Random) -> Problem:
    """That of its images, in either layout, with or without beta, some operands at any address."""
    return data(shape, layout=rng.choice(["CHWN", "NCHW"]), reads_out=rng.random() < 0.4,
                unaligned=rng.choice([(), ("filters", "gradients"), ("out",)]))


def some_problem(number: int) -> tuple[Problem, random.Random]:
    """Of all that is served: more often than not tiles, chunks, strides and groups divide nothing."""
    rng = random.Random(20261400 + number)
    while True:
        groups = rng.choice([1, 1, 1, 2])
        c, k = (groups * rng.choice(sizes) for sizes in ([1, 3, 33, 64, 100, 130], [32, 33, 64, 65, 100, 128]))
        r, s = rng.choice([(1, 1), (3, 3), (3, 3), (1, 3), (5, 2), (4, 4)])
        stride = rng.choice([(2, 2), (2, 2), (2, 2), (1, 2), (3, 1), (2, 3)])
        dilation = rng.choice([(1, 1), (1, 1), (2, 1), (3, 2)])
        padding = rng.choice([(0, 0), (r // 2, s // 2), (r, 0), (0, s + 1)])
        h, w = (max(2, (taps - 1) * apart + 1 - 2 * pad) + rng.choice([0, 1, 2, 3, 6, 11])
                for taps, apart, pad in zip((r, s), dilation, padding, strict=True))
        shape = ConvShape(rng.choice([1, 2, 3, 5, 9, 33]), c, h, w, k, r, s, stride, padding, dilation, groups)
        problem = gradient_of(shape, rng)
        if shape.flops < 4e7 and tensor_cores.unsupported_reason(problem) is None:
            return problem, rng


@pytest.mark.sampled(8, 12)
@pytest.mark.parametrize("number", range(96))
def test_random_problems(number: int) -> None:
    """Both layouts, edges, residues without taps, dilation, groups, beta, into poison between guards, from a poisoned
    workspace; the kernels and what they promise."""
    problem, rng = some_problem(number)
    plan, operands, scalars, want, bound = against_float64(
        problem, tensor_cores.candidates(problem, preset()), rng, number)
    given = {role: x for role, x in operands.before.items() if role != "out" or problem.reads_out}
    promised = run_plan(plan, given, **{name: float(x) for name, x in scalars.items()})["out"].reshape(want.shape)
    assert (abs(promised - want) <= bound).all()


@pytest.mark.parametrize("name", [NAME, f"{NAME}_split2"])
@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_pixels_that_no_tap_reaches_are_zero_and_all_bits_are_the_same_in_every_run(layout: str, name: str) -> None:
    problem = data(ConvShape(3, 40, 9, 8, 128, 1, 1, 2), layout=layout)
    plan, operands = choose(problem, preset(), name), Operands(problem, np.random.default_rng(1))
    assert [launch.spec.name for launch in plan.launches if launch.spec in FAMILY.kernels] == ["sm90_interleave"]
    first = run(plan, operands, {"alpha": np.float32(1)}).copy()
    maps = first if layout == "NCHW" else first.transpose(3, 0, 1, 2)
    assert not maps[:, :, 1::2].any() and not maps[..., 1::2].any() and maps[:, :, ::2, ::2].all()
    assert all(np.array_equal(run(plan, operands, {"alpha": np.float32(1)}), first) for _ in range(4))


def test_phases_have_pairs_of_pixels() -> None:
    """Of odd images and odd numbers of images, too: the kernel stores single pixels in three times the clocks."""
    for n, side, layout in ((3, 14, "NCHW"), (3, 14, "CHWN"), (2, 14, "CHWN"), (3, 13, "NCHW"), (3, 16, "NCHW")):
        plan = choose(data(ConvShape(n, 40, side, side, 64, 3, 3, 2, 1), layout=layout), preset(), NAME)
        assert [launch.numbers["flags"] for launch in plan.launches if launch.spec is plan.spec] == [VECTORS] * 4


def test_no_part_of_a_phase_s_sums_is_empty() -> None:
    """Three and two taps of two chunks each: in four parts, the six chunks would leave the last one without any."""
    every = tensor_cores.candidates(data(ConvShape(5, 100, 5, 2, 65, 5, 2, (2, 3), (0, 3))), preset())
    launches = [launch.numbers for make in every.values() for launch in make().launches if "chunks" in launch.numbers]
    assert list(every) == [NAME, f"{NAME}_split2"] and {numbers["chunks"] for numbers in launches} == {4, 6}
    assert all((numbers["splits"] - 1) * numbers["share"] < numbers["chunks"] for numbers in launches)


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_filters_of_all_phases_are_split_by_themselves(layout: str) -> None:
    plan = choose(data(ConvShape(3, 40, 9, 8, 64, 3, 3, 2, 1), layout=layout), preset(), NAME, prepared=True)
    once, each = plan.apart
    written = {name for launch in once.launches for name in launch.writes}
    assert {f"filter_pieces_{phase}" for phase in range(4)} <= written
    assert [launch.spec.name for launch in each.launches] == [
        "sm90_split_columns", *["sm90_tensor_pixels_128x128"] * 4, "sm90_interleave"]


@pytest.mark.parametrize(("shape", "reason"), [
    (ConvShape(2, 64, 9, 9, 64, 3, 3), "no strides"),
    (ConvShape(2, 64, 9, 9, 62, 3, 3, 2, groups=2), "31 filters of a group, fewer than 32"),
    (ConvShape(2, 64, 99, 99, 64, 3, 3, (33, 1)), "strides 33x1, more than 32")])
def test_what_is_not_served_is_said(shape: ConvShape, reason: str) -> None:
    assert reason in str(tensor_cores.unsupported_reason(data(shape)))
