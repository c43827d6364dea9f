"""The native gradients of images with strides of sm_90 on the virtual GPU: right for any layer they serve, nothing
written outside, and what the machine code promises."""

import os
import random

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.dgrad_strided import few_channels
from maxdnn.algorithms.dgrad_strided import sm90 as dgrad_strided_sm90
from maxdnn.algorithms.dgrad_strided.sm90 import KERNELS
from maxdnn.errors import ShapeError
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import data
from maxdnn.runtime.devices import find
from tests.test_backward import check as against_float64

from .native import H200, check_code, run

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "12"))


def random_problem(rng: np.random.Generator):
    """Strides of any two axes, pixels without taps, taps beyond every border, groups, dilation."""
    while True:
        group, (r, s) = int(rng.choice([1, 1, 2])), rng.integers(1, 6, 2).tolist()
        dilation = rng.integers(1, 4, 2).tolist()
        reach = [apart * (taps - 1) for apart, taps in zip(dilation, (r, s), strict=True)]
        pad = tuple(int(rng.integers(0, x + 2)) for x in reach)
        h, w = (int(rng.integers(max(1, x + 1 - 2 * p), x + 14)) for x, p in zip(reach, pad, strict=True))
        shape = ConvShape(int(rng.integers(1, 6)), int(rng.integers(1, 140)) * group, h, w,
                          8 * int(rng.integers(1, 5)) * group, r, s, tuple(rng.integers(1, 5, 2).tolist()), pad,
                          tuple(dilation), group)
        problem = data(shape, layout=str(rng.choice(["NCHW", "NCHW", "CHWN"])), reads_out=bool(rng.integers(0, 3) == 0),
                       unaligned=("out", "gradients")[:2 * int(rng.integers(0, 2))])
        if dgrad_strided_sm90.unsupported_reason(problem) is None:
            return problem


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_random_gradients_are_right_and_write_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, spec = random_problem(rng), KERNELS[seed % len(KERNELS)]
    names = [name for name in dgrad_strided_sm90.candidates(problem, preset()) if name.split("_split")[0] == spec.name]
    plan = choose(problem, preset(), str(rng.choice(names)))
    assert plan.archs == ("sm_90",) and spec.name in plan.explain()
    out, told = run(plan, problem, rng, find.host(), gap=32 - seed % 2)
    s = problem.shape
    assert np.allclose(out, told, rtol=0, atol=3e-6 * (s.K * s.R * s.S) ** 0.5), problem


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel", [f"{spec.name}{split}" for spec in KERNELS for split in ("", "_split2")])
def test_gradients_of_pixels_with_and_without_taps_against_float64(kernel: str) -> None:
    for shape in (ConvShape(3, 20, 7, 6, 16, 3, 3, 2, 1), ConvShape(2, 9, 9, 8, 16, 2, 2, 3)):
        made = against_float64(shape, "NCHW", "data", random.Random(kernel), kernel=kernel, beta=0.5)
        assert made.family == "classes_sm90"


def test_first_layers_compute_blocks_of_pixels_by_machine_code() -> None:
    for shape in (ConvShape(2, 3, 19, 21, 16, 5, 5, 2, 1), ConvShape(2, 3, 9, 9, 16, 3, 3, 1, 1)):
        problem = data(shape, layout="NCHW")
        names = [name for name in few_channels.candidates(problem, preset()) if "sm90_classes_K64" in name]
        assert names[-1] == f"{names[-2]}_split2"
        for name in names[-2:]:
            made = against_float64(shape, "NCHW", "data", random.Random(1), kernel=name)
            assert made.family == "blocks" and made.archs == ("sm_90",)


def test_strides_take_machine_code_where_it_runs_and_nowhere_else() -> None:
    problem = data(ConvShape(32, 256, 28, 28, 256, 3, 3, 2, 1), layout="NCHW")
    plan = choose(problem, H200, arithmetic="ffma")
    assert plan.spec in KERNELS and plan.spec.name in plan.explain() and len(plan.passes) == 1
    assert not choose(problem, preset()).archs
    with pytest.raises(ShapeError, match="machine code of sm_90, which another does not run"):
        choose(problem, Chip("another", 108, 1000.0, runs_maxwell=False, arch="sm_52"), plan.spec.name)


def test_what_is_not_served_is_said() -> None:
    for shape, layout, what in (
            (ConvShape(2, 8, 6, 6, 12, 3, 3, 2), "NCHW", "groups of 12 filters, no multiple of 8"),
            (ConvShape(2, 8, 6, 6, 8, 3, 3), "NCHW", "a gradient without strides, which pixels_sm90 serves"),
            (ConvShape(16, 8, 6, 6, 8, 3, 3, 2), "CHWN", "layout CHWN of more than 8 images"),
            (ConvShape(2, 8, 1, 2, 8, 1, 1, stride=2, padding=1), "NCHW", "images that no tap reaches")):
        assert dgrad_strided_sm90.unsupported_reason(data(shape, layout=layout)) == what


@pytest.mark.long
def test_the_machine_code_is_checked_and_its_loop_spends_its_slots_on_ffma() -> None:
    check_code("sm90/classes", KERNELS)
