"""The native convolutions of flattened pixels of sm_90 on the virtual GPU: right for any layer and gradient they serve,
nothing written outside, and what the machine code promises."""

import os
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.implicit_gemm import sm90 as implicit_gemm_sm90
from maxdnn.algorithms.implicit_gemm.sm90 import KERNELS, OF_MATRICES
from maxdnn.planning.cost import Chip, Cost, Work, preset
from maxdnn.planning.select import choose
from maxdnn.problem.activations import ACTIVATIONS
from maxdnn.problem.operands import view
from maxdnn.problem.problem import data, forward
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.contract import run_plan

from .native import H200, check_code, check_taken_there_alone, run

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "16"))


def random_layer(rng: np.random.Generator, elements: bool) -> ConvShape:
    """Small layers of all kinds: tiles of pixels over several images, taps beyond every border, groups, dilation."""
    group = int(rng.choice([1, 1, 1, 2, 3]))
    channels = int(rng.choice([1, 2, 3, 5, 9, 12])) if elements else 8 * int(rng.integers(1, 4))
    r, s, dilation = int(rng.integers(1, 5)), int(rng.integers(1, 5)), int(rng.choice([1, 1, 2, 3]))
    reach = (dilation * (r - 1), dilation * (s - 1))
    pad = tuple(int(rng.integers(0, x + 2)) for x in reach)
    h, w = (int(rng.integers(max(1, x + 1 - 2 * p), x + 12)) for x, p in zip(reach, pad, strict=True))
    return ConvShape(int(rng.integers(1, 6)), channels * group, h, w, int(rng.integers(1, 150)) * group, r, s,
                     int(rng.integers(1, 4)), pad, dilation, group)


def served(rng: np.random.Generator, elements: bool, unaligned: tuple[str, ...] = ()):
    """A problem that the family serves by channels or by elements, and how it ends."""
    while True:
        kind = data if rng.integers(0, 4) == 0 else forward
        epilogue = {} if kind is data else {"bias": bool(rng.integers(0, 2)), "activation": rng.choice(ACTIVATIONS)}
        problem = kind(random_layer(rng, elements), layout=str(rng.choice(["NCHW", "NCHW", "CHWN"])),
                       reads_out=bool(rng.integers(0, 3) == 0), unaligned=unaligned, **epilogue)
        s = problem.shape
        channels = (s.C if kind is forward else s.K) // s.groups
        if implicit_gemm_sm90.unsupported_reason(problem) is None and elements == bool(channels % 8):
            return problem


def served_of_one_tap(rng: np.random.Generator):
    """A problem whose filters are read as they lie."""
    while True:
        s = random_layer(rng, elements=False)
        shape = ConvShape(s.N, s.C, s.H, s.W, s.K, 1, 1, s.stride, int(rng.integers(0, 2)), 1, s.groups)
        problem = forward(shape, layout="NCHW", bias=bool(rng.integers(0, 2)), activation=rng.choice(ACTIVATIONS),
                          reads_out=bool(rng.integers(0, 3) == 0), unaligned=("out", "images"))
        if implicit_gemm_sm90.unsupported_reason(problem) is None:
            return problem


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_random_layers_are_right_and_write_nothing_else(seed: int) -> None:
    """Every other one as if for a chip with one SM, whose waves leave tails."""
    rng = np.random.default_rng(seed)
    spec = KERNELS[seed // 2 % len(KERNELS)]
    chip = replace(H200, sms=1 + 131 * (seed % 2))
    unaligned = ("out", "images", "gradients")[:3 * (seed % 2)]
    problem = served_of_one_tap(rng) if spec in OF_MATRICES else served(rng, spec.elements, unaligned)
    names = [name for name in implicit_gemm_sm90.candidates(problem, chip)
             if name.split("_tail")[0].split("_split")[0] == spec.name]
    plan = choose(problem, chip, names[-1] if names[-1].endswith("tail") else str(rng.choice(names)))
    assert plan.archs == ("sm_90",) and spec.name in plan.explain()
    out, told = run(plan, problem, rng, find.host(), gap=32 - seed % 2)
    terms = max(problem.shape.C, problem.shape.K) * problem.shape.R * problem.shape.S
    assert np.allclose(out, told, rtol=0, atol=3e-6 * terms ** 0.5), problem


@pytest.mark.long
def test_views_of_images_are_read_where_they_lie() -> None:
    """Channels innermost, as PyTorch's channels_last has them."""
    rng = np.random.default_rng(3)
    lies = rng.uniform(-1, 1, (2, 9, 10, 16)).astype(np.float32)
    images, filters = lies.transpose(0, 3, 1, 2), rng.uniform(-1, 1, (40, 16, 3, 3)).astype(np.float32)
    problem = forward(ConvShape(2, 16, 9, 10, 40, 3, 3, 1, 1), layout="NCHW")
    steps = tuple(step // 4 for step in images.strides)
    plan = choose(problem.with_strides("images", steps), preset(), "sm90_pixels_K64_J128")
    out = np.full(problem.shapes["out"], np.nan, np.float32)
    views = {"images": images, "filters": filters, "out": out}
    engine.run(plan, {role: view(role, array, rank=None, strided=True) for role, array in views.items()},
               {"alpha": np.float32(1)}, find.host())
    told = run_plan(plan, {"images": lies, "filters": filters}, alpha=1.0)["out"].reshape(out.shape)
    assert np.allclose(out, told, rtol=0, atol=2e-5)
    assert np.allclose(out, run_plan(choose(problem, preset(), "sm90_pixels_K64_J128"),
                                     {"images": images, "filters": filters}, alpha=1.0)["out"], rtol=0, atol=2e-5)


@pytest.mark.parametrize("images", [1, 8])
def test_layers_of_few_images_take_machine_code_where_it_runs_and_nowhere_else(images: int) -> None:
    check_taken_there_alone(forward(ConvShape(images, 256, 28, 28, 256, 3, 3, 1, 1), layout="NCHW"), KERNELS)


def test_small_grids_are_split_and_so_are_the_last_images_of_large_ones() -> None:
    small = choose(forward(ConvShape(1, 256, 14, 14, 256, 3, 3, 1, 1), layout="NCHW"), H200, algorithm="direct")
    assert "do not fill the chip" in small.explain()
    many = forward(ConvShape(32, 256, 28, 28, 256, 3, 3, 1, 1), layout="NCHW")
    large = choose(many, H200, "sm90_pixels_K128_J128_tail")
    assert "of the last" in large.explain() and len(large.passes) == 1


def test_a_begun_wave_takes_as_long_as_a_full_one() -> None:
    """392 blocks, of which two fit each of 132 SMs, took an H200 two waves, not one and a half."""
    chip = Chip("ten", 10, 1e9, runs_maxwell=False, arch="sm_90")

    def clocks(blocks: int) -> float:
        return Work(blocks, 1.0, Cost(400.0, 110.0, 2), lengths=(400.0,) * blocks).clocks(chip)
    assert [clocks(n) for n in (1, 10, 11, 20, 21, 30, 40, 41)] == [110, 110, 200, 200, 400, 400, 400, 600]


@pytest.mark.long
def test_the_machine_code_is_checked_and_its_loop_spends_its_slots_on_ffma() -> None:
    check_code("sm90/pixels", KERNELS)
