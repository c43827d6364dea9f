"""Convolutions on the tensor cores of sm_90: random problems of every kind that is served, data that a split of float32
finds hard within the documented error, not finite exactly where float32's are, the same bits every time."""

import random
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_fprop, prepare_filters
from maxdnn.algorithms import registry
from maxdnn.algorithms.gemm.tensor_cores import CHUNK
from maxdnn.algorithms.implicit_gemm import tensor_cores
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, data, forward
from tests.contract import run_plan
from tests.sass.native import H200

from .test_every_candidate import Operands, convolve, run, told
from .test_tensor_cores import DATA, FLOOR, against_float64

FAMILY, NAME = tensor_cores.FAMILY, "sm90_tensor_pixels_128x128"
LAYER = ConvShape(2, 100, 6, 5, 20, 3, 3, padding=1)


def convolved(images: np.ndarray, filters: np.ndarray, shape: ConvShape = LAYER) -> np.ndarray:
    """(N, K, P, Q) of (N, C, H, W) and (K, C, R, S), by the kernel."""
    problem = forward(shape, layout="NCHW")
    operands = Operands(problem, np.random.default_rng(0))
    operands.arrays["images"][...], operands.arrays["filters"][...] = images, filters
    return run(choose(problem, preset(), NAME), operands, {"alpha": np.float32(1)}).copy()


def exact(images: np.ndarray, filters: np.ndarray, shape: ConvShape = LAYER) -> np.ndarray:
    """Likewise, as sums of NumPy."""
    return convolve(shape, images.transpose(1, 2, 3, 0), filters.transpose(1, 2, 3, 0)).transpose(3, 0, 1, 2)


def hard(kind: str, rng: np.random.Generator, s: ConvShape = LAYER) -> tuple[np.ndarray, np.ndarray]:
    """Images whose pixels are what the columns of hard products are, filters what their rows are."""
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float32) for x in DATA[kind](rng, s.K, s.N * s.H * s.W, s.patch))
    images = b[:s.C].reshape(s.C, s.N, s.H, s.W).transpose(1, 0, 2, 3)
    return images, a.reshape(s.K, s.C, s.R, s.S)


def floors(images: np.ndarray, filters: np.ndarray, s: ConvShape = LAYER) -> np.ndarray:
    """What elements may lose of the largest of their pixel (or filter) and 64 channels of a tap, and two roundings of a
    subnormal number for each of these."""
    x, f = abs(images), abs(filters)
    found = np.full((s.N, s.K, s.P, s.Q), s.R * s.S * -(-s.C // CHUNK) * 2.0**-148)
    for first in range(0, s.C, CHUNK):
        some = slice(first, first + CHUNK)
        most, total = (reduced(axis=1, keepdims=True) for reduced in (x[:, some].max, x[:, some].sum))
        large, whole = (reduced(axis=1, keepdims=True) for reduced in (f[:, some].max, f[:, some].sum))
        one = ConvShape(s.N, 1, s.H, s.W, s.K, s.R, s.S, s.stride, s.padding)
        found += FLOOR * (exact(total, large, one) + exact(most, whole, one))
    return found


def test_the_estimate_takes_it_unless_other_arithmetic_is_asked_for() -> None:
    problem = forward(ConvShape(32, 512, 14, 14, 512, 1, 1), layout="NCHW")
    assert choose(problem, H200).name == NAME
    other = choose(problem, H200, arithmetic="ffma")
    assert other.arithmetic == "FFMA" and other.name != NAME


def test_what_no_card_has_run_is_taken_by_name() -> None:
    """Though it is estimated to be the fastest."""
    problem = data(ConvShape(32, 256, 28, 28, 256, 3, 3, 2, 1), layout="NCHW")
    own = choose(problem, H200)
    families = tuple(replace(family, timed=family.name != own.family) for family in registry.FAMILIES)
    taken = choose(problem, H200, families=families)
    assert own.clocks(H200) < taken.clocks(H200) and taken.family != own.family
    assert choose(problem, H200, own.name, families=families).family == own.family
    said = taken.explain(verbose=True)
    assert f"not taken: {own.name}: " in said and "which no card has confirmed" in said


@pytest.mark.parametrize("kind", DATA)
def test_hard_data_within_the_documented_error(kind: str) -> None:
    images, filters = hard(kind, np.random.default_rng(len(kind)))
    found, wide = convolved(images, filters), (images.astype(float), filters.astype(float))
    want, terms = exact(*wide), exact(*map(abs, wide))
    within = abs(want) + terms * 1e-6 < np.finfo(np.float32).max  # else infinity is right
    error = abs(found.astype(float) - want)
    assert within.any() and not np.isnan(found).any()
    assert (error <= 1e-6 * terms + floors(*wide))[within].all()
    assert np.isinf(found[~within & (abs(want) > 2**129)]).all()


@pytest.mark.parametrize("pixel", [10, 40, 70, 100])
def test_factors_of_a_few_pixels_are_extreme(pixel: int) -> None:
    """Those that each of the warps gathers: their products by filters' factors are below every float, not the sums."""
    shape = ConvShape(1, 64, 1, 128, 8, 1, 1)
    rng = np.random.default_rng(pixel)
    images, filters = (rng.standard_normal(x).astype(np.float32) for x in ((1, 64, 1, 128), (8, 64, 1, 1)))
    images[..., pixel] *= np.float32(2.0**-125)
    want, terms = (exact(f(images.astype(float)), f(filters.astype(float)), shape) for f in (np.array, abs))
    assert (abs(convolved(images, filters, shape) - want) <= 1e-6 * terms + 2.0**-148).all()


def test_what_is_not_finite_is_not_finite_in_float32_and_nothing_else() -> None:
    rng = np.random.default_rng(3)
    images, filters = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 100, 6, 5), (20, 100, 3, 3)))
    images[0, 70, 0, 0], images[1, 3, 5, 2], images[1, 99, 2, 4], filters[7, 64, 2, 2] = np.inf, np.nan, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        want = np.isfinite(exact(images, filters))
    found = np.isfinite(convolved(images, filters))
    assert (found == want).all() and not want.all() and want.any()


def test_many_runs_give_the_same_bits() -> None:
    images, filters = hard("rows apart", np.random.default_rng(4))
    first = convolved(images, filters)
    assert all(np.array_equal(convolved(images, filters), first) for _ in range(9))


@pytest.mark.parametrize(("filters", "ctas"), [(64, 4), (192, 3), (256, 4), (320, 4)])
def test_tiles_of_few_rows_are_spread_over_all_ctas(filters: int, ctas: int) -> None:
    """Those of 64 rows, of which one warpgroup has none. Each CTA has several tiles."""
    problem, chip = forward(ConvShape(8, 64, 10, 10, filters, 1, 1), layout="NCHW"), replace(preset(), sms=4)
    launch = choose(problem, chip, NAME).launches[-1]
    assert launch.grid == (ctas, 1, 1)
    against_float64(problem, [NAME], random.Random(1), filters, chip)


def some_problem(number: int) -> tuple[Problem, random.Random]:
    """Of any kind that is served: more often than not tiles, chunks and groups divide nothing."""
    rng = random.Random(20261100 + number)
    while True:
        groups = rng.choice([1, 1, 1, 2, 3])
        c, k = (groups * rng.choice([32, 33, 63, 64, 65, 100, 128, 130]) for _ in "CK")
        r, s = rng.choice([(1, 1), (3, 3), (3, 3), (1, 3), (5, 2)])
        usual = rng.random() < 0.5
        stride, dilation = ((1, 1), (1, 1)) if usual else (rng.choice([(2, 2), (1, 3), (50, 1)]),
                                                           rng.choice([(1, 1), (2, 1), (3, 2)]))
        padding = rng.choice([(0, 0), (r // 2, s // 2), (r, 0), (0, s + 1)])
        h, w = (rng.randint(max(1, (taps - 1) * apart + 1 - 2 * pad), 14)
                for taps, apart, pad in zip((r, s), dilation, padding, strict=True))
        n = rng.choice([1, 2, 3, 5, 9])
        shape = ConvShape(n, c, h, w, k, r, s, stride, padding, dilation, groups)
        if shape.flops < 6e7:
            break
    layout, reads = rng.choice(["CHWN", "NCHW"]), rng.random() < 0.3
    unaligned = rng.choice([(), ("filters",), ("out",), ("out", "filters")])
    if rng.random() < 0.3:
        return data(ConvShape(n, c, h, w, k, r, s, 1, padding, dilation, groups), layout=layout, unaligned=unaligned,
                    reads_out=reads), rng
    problem = forward(shape, layout=layout, unaligned=unaligned, bias=rng.random() < 0.5, reads_out=reads,
                      activation=rng.choice([None, "relu"]))
    if rng.random() < 0.3 and groups == 1:
        problem = problem.with_strides("images", views(problem, rng))
    return problem, rng


def views(problem: Problem, rng: random.Random) -> tuple[int, ...]:
    """Strides of images that are split as they lie: channels innermost, or pixels, with room between channels."""
    s, gap = problem.shape, rng.choice([0, 3])
    if problem.layout == "NCHW":
        if rng.random() < 0.5:
            return (s.H * s.W * (s.C + gap), 1, s.W * (s.C + gap), s.C + gap)
        return (s.C * (s.H * s.W + gap), s.H * s.W + gap, s.W, 1)
    if rng.random() < 0.5:
        return (1, s.W * s.N * (s.C + gap), s.N * (s.C + gap), s.C + gap)
    return (s.H * s.W * s.N + gap, s.W * s.N, s.N, 1)


@pytest.mark.sampled(6, 20)
@pytest.mark.parametrize("number", range(120))
def test_random_problems(number: int) -> None:
    """Both layouts, edges, strides, dilation, groups, split-K, views, into poison between guards, from a poisoned
    workspace; the kernels and what they promise."""
    problem, rng = some_problem(number)
    assert tensor_cores.unsupported_reason(problem) is None
    plan, operands, scalars, want, bound = against_float64(
        problem, tensor_cores.candidates(problem, preset()), rng, number)
    if problem.operand("images" if problem.kind == "forward" else "gradients").strides is None:
        given = {role: x for role, x in operands.before.items() if role != "out" or problem.reads_out}
        promised = run_plan(plan, given, **{name: float(x) for name, x in scalars.items()})["out"].reshape(want.shape)
        assert (abs(promised - want) <= bound).all()


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_prepared_filters_are_split_once(layout: str) -> None:
    problem = forward(ConvShape(2, 64, 7, 6, 40, 3, 3, padding=1), layout=layout)
    plan = choose(problem, preset(), NAME, prepared=True)
    once, each = plan.apart
    assert "filter_pieces" in {name for launch in once.launches for name in launch.writes}
    assert [launch.spec.name for launch in each.launches] == ["sm90_split_columns", NAME]
    operands = Operands(problem, np.random.default_rng(7))
    prepared = prepare_filters(operands.arrays["filters"], plan)
    want, size = told(problem, operands.before, 1, 0)
    operands.arrays["filters"][...] = np.nan
    found = conv_fprop(operands.arrays["images"], prepared)
    assert (abs(found - want) <= plan.error * size).all()


def test_many_tiles_of_a_cta() -> None:
    """CTAs are persistent: each computes several tiles, and its stages go on from one to the next."""
    shape = ConvShape(3, 64, 17, 17, 520, 2, 1)
    problem = forward(shape, layout="NCHW", bias=True)
    plan = choose(problem, preset(), NAME)
    assert plan.launches[-1].numbers["tiles"] > 2 * plan.launches[-1].numbers["ctas"]
    operands = Operands(problem, np.random.default_rng(6))
    want, size = told(problem, operands.before, 1, 0)
    assert (abs(run(plan, operands, {"alpha": np.float32(1)}) - want) <= plan.error * size).all()


@pytest.mark.parametrize(("problem", "reason"), [
    (forward(ConvShape(2, 62, 9, 9, 64, 3, 3, groups=2)), "31 channels of a group, fewer than 32"),
    (data(ConvShape(2, 64, 9, 9, 64, 3, 3, stride=2)), "strides of a gradient"),
    (forward(ConvShape(2, 64, 9, 9, 64, 3, 3), layout="NCHW").with_strides("images", (6400, 100, 10, 1)),
     "images whose pixels, or groups of images, do not lie in equal steps"),
    (forward(ConvShape(2, 64, 9, 9, 64, 3, 3), layout="NCHW").with_strides("images", (10368, 162, 18, 2)),
     "images whose pixels, or groups of images, do not lie in equal steps"),
    (forward(ConvShape(2, 64, 9, 9, 64, 3, 3, groups=2), layout="NCHW").with_strides("images", (5184, 1, 576, 64)),
     "images whose pixels, or groups of images, do not lie in equal steps"),
    (forward(ConvShape(2, 64, 9, 9, 64, 3, 3)).with_strides("filters", (1, 64, 192, 576)),
     "filters that are not C-contiguous"),
])
def test_what_is_not_served_is_said(problem: Problem, reason: str) -> None:
    assert reason in str(tensor_cores.unsupported_reason(problem))


@pytest.mark.parametrize(("shape", "what"), [
    (ConvShape(1 << 13, 64, 64, 64, 64, 1, 1), "tiles"),
    (ConvShape(1, 1 << 21, 8, 8, 64, 1, 2), "elements C x R x S / 64"),
    (ConvShape(1, 32, 1 << 10, 1 << 21, 64, 1, 1, stride=(1 << 9, 1 << 20)), "lines N x groups x H x W"),
])
def test_what_is_too_large_is_refused_by_number(shape: ConvShape, what: str) -> None:
    with pytest.raises(ShapeError, match=f"{what} must be at most"):
        choose(forward(shape, layout="NCHW"), preset(), NAME)
