"""Convolutions of few channels on the tensor cores of sm_90: pieces bit for bit as documented, random problems of all
that is served, data that a split of float32 finds hard within the documented error, the same bits every time."""

import random

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_fprop, prepare_filters
from maxdnn.algorithms.gemm import patches
from maxdnn.algorithms.implicit_gemm import tensor_windows
from maxdnn.planning.cost import preset
from maxdnn.planning.plan import FLOAT_BYTES
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, forward
from maxdnn.runtime.devices import find
from tests.contract import run_plan

from .test_every_candidate import Operands, run, told
from .test_tensor_convolutions import views
from .test_tensor_cores import DATA, against_float64, floors, same_pieces
from .test_tensor_filters import patches as windows

FAMILY, NAME = tensor_windows.FAMILY, tensor_windows.NAME
LAYER = ConvShape(2, 9, 7, 6, 24, 3, 3, padding=1)


def convolved(images: np.ndarray, bank: np.ndarray, s: ConvShape = LAYER) -> np.ndarray:
    """(K, N x P x Q) of (N, C, H, W) and (K, C, R, S), by the kernels."""
    problem = forward(s, layout="NCHW")
    operands = Operands(problem, np.random.default_rng(0))
    operands.arrays["images"][...], operands.arrays["filters"][...] = images, bank
    found = run(choose(problem, preset(), NAME), operands, {"alpha": np.float32(1)})
    return found.transpose(1, 0, 2, 3).reshape(s.K, -1).copy()


def hard(kind: str, rng: np.random.Generator, s: ConvShape = LAYER) -> tuple[np.ndarray, np.ndarray]:
    """Images whose pixels are what the columns of hard products are, filters what their rows are."""
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float32) for x in DATA[kind](rng, s.K, s.N * s.H * s.W, s.patch))
    return b[:s.C].reshape(s.C, s.N, s.H, s.W).transpose(1, 0, 2, 3), a.reshape(s.K, s.C, s.R, s.S)


@pytest.mark.parametrize("kind", DATA)
def test_hard_data_within_the_documented_error(kind: str) -> None:
    images, bank = hard(kind, np.random.default_rng(len(kind)))
    found = convolved(images, bank)
    wide = bank.reshape(LAYER.K, -1).astype(float), windows(images, LAYER).T.astype(float)
    want, terms = wide[0] @ wide[1], abs(wide[0]) @ abs(wide[1])
    within = abs(want) + terms * 1e-6 < np.finfo(np.float32).max  # else infinity is right
    assert within.any() and not np.isnan(found).any()
    assert (abs(found.astype(float) - want) <= 1e-6 * terms + floors(*wide))[within].all()
    assert np.isinf(found[~within & (abs(want) > 2**129)]).all()
    assert np.array_equal(convolved(images, bank), found)


def some_problem(number: int) -> tuple[Problem, random.Random]:
    """Of all that is served: more often than not tiles and chunks divide nothing."""
    rng = random.Random(20261300 + number)
    while True:
        c, k = rng.choice([1, 2, 3, 4, 7, 16, 31]), rng.choice([1, 8, 33, 64, 96, 128, 130])
        r, s = rng.choice([(3, 3), (3, 3), (5, 5), (7, 7), (11, 11), (1, 11), (5, 2), (1, 1)])
        usual = rng.random() < 0.4
        stride, dilation = ((1, 1), (1, 1)) if usual else (rng.choice([(2, 2), (4, 4), (1, 3), (50, 1)]),
                                                           rng.choice([(1, 1), (1, 1), (2, 1), (3, 2)]))
        padding = rng.choice([(0, 0), (r // 2, s // 2), (r, 0), (0, s + 1)])
        h, w = (max(1, (taps - 1) * apart + 1 - 2 * pad) + rng.choice([0, 1, 3, 6, 12, 25])
                for taps, apart, pad in zip((r, s), dilation, padding, strict=True))
        shape = ConvShape(rng.choice([1, 2, 3, 5, 33]), c, h, w, k, r, s, stride, padding, dilation)
        if shape.patch >= tensor_windows.FEWEST and shape.flops < 4e7:
            break
    problem = forward(shape, layout=rng.choice(["CHWN", "NCHW"]), bias=rng.random() < 0.5,
                      unaligned=rng.choice([(), ("images", "filters"), ("out",), ("out", "images")]),
                      reads_out=rng.random() < 0.3, activation=rng.choice([None, "relu"]))
    if rng.random() < 0.3:
        problem = problem.with_strides("images", views(problem, rng))
    return problem, rng


@pytest.mark.sampled(8, 12)
@pytest.mark.parametrize("number", range(96))
def test_random_problems(number: int) -> None:
    """Both layouts, edges, strides, dilation, split-K, bias, beta, views, operands that begin anywhere, into poison
    between guards, from a poisoned workspace; the kernels and what they promise."""
    problem, rng = some_problem(number)
    assert tensor_windows.unsupported_reason(problem) is None
    plan, operands, scalars, want, bound = against_float64(
        problem, tensor_windows.candidates(problem, preset()), rng, number)
    if problem.operand("images").strides is None:
        given = {role: x for role, x in operands.before.items() if role != "out" or problem.reads_out}
        promised = run_plan(plan, given, **{name: float(x) for name, x in scalars.items()})["out"].reshape(want.shape)
        assert (abs(promised - want) <= bound).all()


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_pieces_are_bit_for_bit_what_is_documented(layout: str) -> None:
    """On maps of all magnitudes, zeros, infinities and NaN; several tiles of pixels and chunks, the last of few."""
    problem = forward(ConvShape(2, 12, 23, 16, 32, 3, 3, (2, 1), (1, 2), (1, 2)), layout=layout)
    plan, rng = choose(problem, preset(), NAME), np.random.default_rng(5)
    launch = plan.launches[1]
    assert launch.spec is patches.WINDOWS and min(launch.grid[:2]) > 1
    size = problem.operand("images").shape
    maps = (rng.standard_normal(size) * 2.0**rng.integers(-140, 125, size)).astype(np.float32).reshape(-1)
    maps[rng.integers(0, maps.size, maps.size // 10)] = 0
    maps[:3] = np.inf, -np.inf, np.nan
    pieces = np.full(plan.workspace["images_pieces"].nbytes // FLOAT_BYTES, 7, np.float32)
    same_pieces(find.host(), launch, {"images": maps, "images_pieces": pieces}, patches.reference)


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_prepared_filters_are_split_once(layout: str) -> None:
    problem = forward(ConvShape(2, 3, 19, 18, 40, 5, 5, 2, padding=1), layout=layout)
    plan = choose(problem, preset(), NAME, prepared=True)
    once, each = plan.apart
    assert "filter_pieces" in {name for launch in once.launches for name in launch.writes}
    assert [launch.spec.name for launch in each.launches] == ["sm90_split_windows", "sm90_tensor_product_128x128"]
    operands = Operands(problem, np.random.default_rng(7))
    prepared = prepare_filters(operands.arrays["filters"], plan)
    want, size = told(problem, operands.before, 1, 0)
    operands.arrays["filters"][...] = np.nan
    assert (abs(conv_fprop(operands.arrays["images"], prepared) - want) <= plan.error * size).all()


@pytest.mark.parametrize(("shape", "reason"), [
    (ConvShape(2, 32, 9, 9, 64, 3, 3), "32 channels, 32 or more"), (ConvShape(2, 3, 9, 9, 64, 3, 3), "27 elements"),
    (ConvShape(2, 8, 9, 9, 64, 3, 3, groups=2), "2 groups")])
def test_what_is_not_served_is_said(shape: ConvShape, reason: str) -> None:
    assert reason in str(tensor_windows.unsupported_reason(forward(shape)))


def test_what_is_too_large_is_refused_by_number() -> None:
    with pytest.raises(ShapeError, match="groups, or images must be at most 65535"):
        choose(forward(ConvShape(1 << 16, 4, 3, 3, 8, 3, 3), layout="NCHW"), preset(), NAME)
