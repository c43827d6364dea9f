"""Gradients of filters on the tensor cores of sm_90: pieces bit for bit as documented, random problems of all that is
served, data that a split of float32 finds hard within the documented error, not finite exactly where float32's are, the
same bits every time."""

import random
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError
from maxdnn.algorithms.gemm.tensor_cores import TensorKernel
from maxdnn.algorithms.wgrad import tensor_cores
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from maxdnn.planning.cost import preset
from maxdnn.planning.plan import FLOAT_BYTES
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, filters
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.contract import run_plan
from tests.sass.native import H200

from .test_every_candidate import Operands, run
from .test_tensor_cores import DATA, against_float64, floors, same_pieces

NAME = tensor_cores.NAME
LAYER = ConvShape(2, 12, 7, 9, 40, 3, 3, padding=1)


def patches(images: np.ndarray, s: ConvShape = LAYER) -> np.ndarray:
    """(N x P x Q, C x R x S) of (N, C, H, W): what a layer's filters meet; one group."""
    padded = np.zeros((s.N, s.C, s.H + 2 * s.pad_h, s.W + 2 * s.pad_w), images.dtype)
    padded[:, :, s.pad_h:s.pad_h + s.H, s.pad_w:s.pad_w + s.W] = images
    found = np.empty((s.N, s.P, s.Q, s.C, s.R, s.S), images.dtype)
    for r, t in np.ndindex(s.R, s.S):
        h, w = r * s.dil_h, t * s.dil_w
        rows, columns = slice(h, h + (s.P - 1) * s.str_h + 1, s.str_h), slice(w, w + (s.Q - 1) * s.str_w + 1, s.str_w)
        found[..., r, t] = padded[:, :, rows, columns].transpose(0, 2, 3, 1)
    return found.reshape(s.N * s.P * s.Q, s.patch)


def gradient(images: np.ndarray, gradients: np.ndarray, layout: str = "NCHW", s: ConvShape = LAYER) -> np.ndarray:
    """(K, C x R x S) of (N, C, H, W) and (N, K, P, Q), by the kernels."""
    problem, turn = filters(s, layout=layout), (0, 1, 2, 3) if layout == "NCHW" else (1, 2, 3, 0)
    operands = Operands(problem, np.random.default_rng(0))
    operands.arrays["images"][...], operands.arrays["gradients"][...] = (x.transpose(turn) for x in (images, gradients))
    found = run(choose(problem, preset(), NAME), operands, {"alpha": np.float32(1)})
    return (found if layout == "NCHW" else found.transpose(3, 0, 1, 2)).reshape(s.K, s.patch).copy()


def hard(kind: str, rng: np.random.Generator, s: ConvShape = LAYER) -> tuple[np.ndarray, np.ndarray]:
    """Images whose channels are what the columns of hard products are, gradients whose filters are their rows."""
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float32) for x in DATA[kind](rng, s.K, s.C, s.N * s.H * s.W))
    return (b.reshape(s.N, s.H, s.W, s.C).transpose(0, 3, 1, 2),
            a.reshape(s.K, s.N, s.P, s.Q).transpose(1, 0, 2, 3))


def as_product(images: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Its factors in float64."""
    return gradients.transpose(1, 0, 2, 3).reshape(LAYER.K, -1).astype(float), patches(images).astype(float)


@pytest.mark.parametrize("kind", DATA)
def test_hard_data_within_the_documented_error(kind: str) -> None:
    images, gradients = hard(kind, np.random.default_rng(len(kind)))
    found, wide = gradient(images, gradients), as_product(images, gradients)
    want, terms = wide[0] @ wide[1], abs(wide[0]) @ abs(wide[1])
    within = abs(want) + terms * 1e-6 < np.finfo(np.float32).max  # else infinity is right
    error = abs(found.astype(float) - want)
    assert within.any() and not np.isnan(found).any()
    assert (error <= 1e-6 * terms + floors(*wide))[within].all()
    assert np.isinf(found[~within & (abs(want) > 2**129)]).all()


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_what_is_not_finite_is_not_finite_in_float32_and_nothing_else(layout: str) -> None:
    """An infinity in a corner meets one tap where nothing is beyond it."""
    images, gradients = hard("normal", np.random.default_rng(3))
    images, gradients = images.copy(), gradients.copy()
    images[0, 7, 0, 0], images[1, 3, 5, 2] = np.inf, np.nan
    gradients[1, 20, 6, 8], gradients[0, 33, 2, 4] = -np.inf, np.inf
    a, b = as_product(images, gradients)
    with np.errstate(invalid="ignore"):
        want = np.isfinite(a @ b)
    found = np.isfinite(gradient(images, gradients, layout))
    assert (found == want).all() and not want.all() and want.any()


def test_long_sums_of_positive_terms_are_within_the_error_and_longer_ones_split() -> None:
    shape, rng = ConvShape(2, 32, 64, 64, 32, 1, 1), np.random.default_rng(6)
    images, gradients = (rng.standard_normal((2, 32, 64, 64)).astype(np.float32).clip(0) for _ in "ig")
    a, b = (x.astype(float).transpose(1, 0, 2, 3).reshape(32, -1) for x in (gradients, images))
    assert a.shape[1] == tensor_cores.LONGEST
    assert (abs(gradient(images, gradients, "NCHW", shape) - a @ b.T) <= 1e-6 * (a @ b.T)).all()
    for n in (3, 64, 512):
        for make in tensor_cores.candidates(filters(replace(shape, N=n), layout="NCHW"), H200).values():
            assert tensor_cores.CHUNK * make().launches[2].numbers["share"] <= tensor_cores.LONGEST


def test_many_runs_give_the_same_bits() -> None:
    images, gradients = hard("rows apart", np.random.default_rng(4))
    first = gradient(images, gradients)
    assert all(np.array_equal(gradient(images, gradients), first) for _ in range(9))


def some_problem(number: int) -> tuple[Problem, random.Random]:
    """Of all that is served: more often than not tiles, chunks and groups divide nothing."""
    rng = random.Random(20261200 + number)
    while True:
        groups = rng.choice([1, 1, 1, 2, 3])
        c, k = (groups * rng.choice(sizes) for sizes in ([1, 3, 8, 13, 33, 64, 70], [32, 33, 64, 100, 128, 130, 200]))
        r, s = rng.choice([(1, 1), (3, 3), (3, 3), (1, 3), (5, 2), (7, 7), (1, 11)])
        usual = rng.random() < 0.5
        stride, dilation = ((1, 1), (1, 1)) if usual else (rng.choice([(2, 2), (1, 3), (50, 1), (3, 1)]),
                                                           rng.choice([(1, 1), (2, 1), (3, 2)]))
        padding = rng.choice([(0, 0), (r // 2, s // 2), (r, 0), (0, s + 1)])
        h, w = (max(1, (taps - 1) * apart + 1 - 2 * pad) + rng.choice([0, 1, 3, 6, 12])
                for taps, apart, pad in zip((r, s), dilation, padding, strict=True))
        shape = ConvShape(rng.choice([1, 2, 3, 5, 9, 33]), c, h, w, k, r, s, stride, padding, dilation, groups)
        if shape.patch >= tensor_cores.FEWEST and shape.flops < 4e7:
            break
    layout, reads = rng.choice(["CHWN", "NCHW"]), rng.random() < 0.3
    unaligned = rng.choice([(), ("images", "gradients"), ("out",), ("out", "images")])
    return filters(shape, layout=layout, unaligned=unaligned, reads_out=reads), rng


@pytest.mark.sampled(10, 16)
@pytest.mark.parametrize("number", range(120))
def test_random_problems(number: int) -> None:
    """Both layouts, edges, strides, dilation, groups, split-K, beta, operands that begin anywhere, into poison between
    guards, from a poisoned workspace; the kernels and what they promise."""
    problem, rng = some_problem(number)
    assert tensor_cores.unsupported_reason(problem) is None
    plan, operands, scalars, want, bound = against_float64(
        problem, tensor_cores.candidates(problem, preset()), rng, number)
    given = {role: x for role, x in operands.before.items() if role != "out" or problem.reads_out}
    promised = run_plan(plan, given, **{name: float(x) for name, x in scalars.items()})["out"].reshape(want.shape)
    assert (abs(promised - want) <= bound).all()


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_pieces_are_bit_for_bit_what_is_documented(layout: str) -> None:
    """On maps of all magnitudes, zeros, infinities and NaN; three tiles of rows, of two groups, the last of few."""
    shape = ConvShape(5, 2 * 30, 9, 8, 2 * 32, 3, 3, (2, 1), (1, 2), (1, 2), groups=2)
    plan, rng = choose(filters(shape, layout=layout), preset(), NAME), np.random.default_rng(5)
    for role, launch in ((launch.values["in"], launch) for launch in plan.launches[:2]):
        size = plan.problem.operand(role).shape
        maps = (rng.standard_normal(size) * 2.0**rng.integers(-140, 125, size)).astype(np.float32).reshape(-1)
        maps[rng.integers(0, maps.size, maps.size // 10)] = 0
        maps[:3] = np.inf, -np.inf, np.nan
        pieces = np.full(plan.workspace[f"{role}_pieces"].nbytes // FLOAT_BYTES, 7, np.float32)
        same_pieces(find.host(), launch, {role: maps, f"{role}_pieces": pieces}, tensor_cores.reference)


@pytest.mark.parametrize(("parameter", "value"), [("batch", 1 << 30), ("c_step", 1 << 30), ("i2_step", (1 << 32) - 1)])
def test_maps_of_4_gib_are_read_where_they_lie(parameter: str, value: int) -> None:
    """What is so far away is not there, and not the first element again."""
    plan = choose(filters(ConvShape(2, 128, 4, 4, 64, 1, 1, groups=2), layout="NCHW"), preset(), NAME)
    launch, gpu = plan.launches[1], VirtualGpu()
    sizes = {"images": FLOAT_BYTES * 2 * 128 * 16, "images_pieces": plan.workspace["images_pieces"].nbytes}
    places = {name: (gpu.alloc(nbytes).address, nbytes) for name, nbytes in sizes.items()}
    moved = replace(launch, values={**launch.values, parameter: value})
    with pytest.raises(EmulationFault, match="LDG"):
        engine.load(gpu, launch.spec).function(launch.spec.name).launch(
            launch.grid, launch.block, moved.arguments(places, {}))


def test_the_gradient_is_one_product_that_lies_as_the_filters_do() -> None:
    """Whole sums are three launches; split ones two more at most; nothing changes layout."""
    for layout in ("NCHW", "CHWN"):
        every = tensor_cores.candidates(filters(ConvShape(32, 64, 56, 56, 64, 3, 3, 1, 1), layout=layout), H200)
        for name, make in every.items():
            names = [launch.spec.name for launch in make().launches]
            assert names[:3] == ["sm90_split_patches", "sm90_split_patches", "sm90_tensor_product_128x128"]
            assert len(names) <= 5 and set(names[3:]) <= {"sreduce"}, name
            assert bool(names[3:]) == ("split" in name)


def test_the_estimate_takes_it_unless_other_arithmetic_is_asked_for() -> None:
    problem = filters(ConvShape(32, 256, 14, 14, 256, 3, 3, 1, 1), layout="NCHW")
    assert choose(problem, H200, algorithm="direct").family == tensor_cores.FAMILY.name
    launches = choose(problem, H200, arithmetic="ffma").launches
    assert not any(isinstance(launch.spec, TensorKernel) for launch in launches)


@pytest.mark.parametrize(("problem", "reason"), [
    (filters(ConvShape(2, 3, 9, 9, 64, 3, 3)), "27 elements C x R x S of a group, fewer than 32"),
    (filters(ConvShape(2, 64, 9, 9, 62, 3, 3, groups=2)), "31 filters of a group, fewer than 32"),
    (filters(ConvShape(2, 64, 9, 9, 64, 3, 3)).with_strides("out", (1, 64, 192, 576)), "not C-contiguous"),
])
def test_what_is_not_served_is_said(problem: Problem, reason: str) -> None:
    assert reason in str(tensor_cores.unsupported_reason(problem))


@pytest.mark.parametrize(("shape", "what"), [
    (ConvShape(1, 1 << 14, 16, 16, 1 << 14, 3, 3), "tiles"),
    (ConvShape(1 << 10, 32, 1 << 10, 1 << 11, 32, 1, 1), "pixels N x P x Q"),
    (ConvShape(1, 64, 4, 1 << 28, 64, 1, 1, stride=1 << 20, padding=(0, 1 << 28)), "columns of a padded map"),
    (ConvShape(1 << 10, 1 << 10, 1 << 6, 1 << 7, 64, 1, 1, stride=64), "maps with padding"),
    (ConvShape(1, 32 * (1 << 17), 1, 1, 32 * (1 << 17), 1, 1, groups=1 << 17), "groups, or images"),
])
def test_what_is_too_large_is_refused_by_number(shape: ConvShape, what: str) -> None:
    make, *_ = tensor_cores.candidates(filters(shape, layout="NCHW"), preset()).values()
    with pytest.raises(ShapeError, match=f"{what} must be at most"):
        make()
