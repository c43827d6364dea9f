"""Convolution by FFT: the order of slots, random problems by every candidate against float64, what is documented of its
error and of values that are no numbers, how it is chosen and cut into runs. MAXDNN_PROBLEMS sets how many problems are
drawn (CI takes a sample)."""

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_fprop
from maxdnn.algorithms.fft import plan as fft
from maxdnn.algorithms.fft import wgrad
from maxdnn.algorithms.fft.maxwell import SIDES
from maxdnn.algorithms.fft.reference import slots_of, tiles_of
from maxdnn.algorithms.fft.sm90 import SPLIT
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plan
from maxdnn.problem.problem import data, filters, forward
from maxdnn.reference import conv_reference
from tests.algorithms.test_every_candidate import Operands, run, told
from tests.algorithms.test_families import LAYOUTS, judge
from tests.contract import run_plan
from tests.sass.native import H200

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "16"))
CHUNKS = 8
CONV2 = ConvShape(128, 64, 27, 27, 192, 5, 5, 1, 2)
L2 = ConvShape(128, 96, 24, 24, 256, 5, 5)


@pytest.mark.parametrize("side", SIDES)
def test_slots_have_every_number_of_a_spectrum_once(side):
    """Slots back to tiles; and a product of slots, as the matrices of the filters have it, correlates."""
    rng = np.random.default_rng(side)
    x, taps = rng.uniform(-1, 1, (3, side, side)), np.zeros((side, side))
    taps[:4, :6] = rng.uniform(-1, 1, (4, 6))
    slots = slots_of(x)
    assert slots.shape == (3, side**2 // 2, 2)
    assert np.allclose(tiles_of(slots), x)
    (a, b), (c, d) = np.moveaxis(slots, -1, 0), np.moveaxis(slots_of(taps), -1, 0)
    made = np.stack([a * c + b * d, b * c - a * d], -1)
    for slot in (0, side // 2):
        made[:, slot] = np.stack([a[:, slot] * c[slot], b[:, slot] * d[slot]], -1)
    want = [[np.sum(one[p:p + 4, q:q + 6] * taps[:4, :6]) for q in range(side - 5)] for one in x[:1]
            for p in range(side - 3)]
    assert np.allclose(tiles_of(made)[0, :side - 3, :side - 5], want)


def draw(rng):
    """A problem of any kind, of a size that tiles and groups of eight do not divide, more often than not."""
    while True:
        r, s = rng.choice([(5, 5), (5, 5), (7, 7), (4, 3), (2, 5), (11, 11), (1, 11), (16, 16), (3, 9)])
        padding = rng.choice([0, r // 2, r - 1]), rng.choice([0, s // 2, s - 1])
        h, w = (max(1, taps - 2 * pad) + rng.choice([0, 1, 3, 8, 12, 25, 31])
                for taps, pad in zip((r, s), padding, strict=True))
        n, c, k = rng.choice([1, 2, 3, 7, 8, 9, 17, 33]), rng.choice([1, 2, 3, 7, 8, 24]), rng.choice([1, 3, 8, 13, 40])
        shape = ConvShape(n, c, h, w, k, r, s, 1, padding)
        if shape.flops < 2e7:
            break
    layout, reads = rng.choice(LAYOUTS), rng.random() < 0.3
    if rng.random() < 0.3 and shape.pad_h < shape.P and shape.pad_w < shape.Q:
        return filters(shape, layout=layout, reads_out=reads, unaligned=rng.choice([[], ["images", "gradients"]]))
    if rng.random() < 0.4:
        return data(shape, layout=layout, reads_out=reads, unaligned=rng.choice([[], ["gradients", "filters"]]))
    return forward(shape, layout=layout, bias=rng.random() < 0.4, reads_out=reads,
                   activation=rng.choice([None, "relu"]), unaligned=rng.choice([[], ["images"]]))


def names(problem):
    """Candidates, a product of each kind."""
    family = wgrad if problem.kind == "filters" else fft
    return [name for name in family.candidates(problem, preset()) if name.endswith(("_64", "_128_sm90", "tensor_sm90"))]


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_by_a_random_candidate(chunk):
    """Within what is documented, between guards, from a poisoned workspace."""
    for number in range(chunk, PROBLEMS, CHUNKS):
        rng = random.Random(20280000 + number)
        problem = draw(rng)
        made = choose(problem, preset(), rng.choice(names(problem)))
        scalars = {name: np.float32(rng.choice([1, -0.75])) for name in problem.scalars}
        operands = Operands(problem, np.random.default_rng(number))
        want, size = told(problem, operands.before, float(scalars["alpha"]), float(scalars.get("beta", 0)))
        error = abs(run(made, operands, scalars) - want)
        assert operands.intact(), number
        most = made.error * (size if made.error < 1e-5 else size.max())
        assert (error <= most).all(), f"{number}: {problem.describe()} by {made.name}: {(error / most).max():.2f}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", SIDES)
def test_plans_do_what_their_kernels_promise(side, layout):
    rng = np.random.default_rng(7)
    for c, kernel in ((5, f"fft_{side}x{side}_64"), (5, f"fft_{side}x{side}_tensor_sm90"),
                      (40, f"fft_{side}x{side}_tensor_sm90")):  # 8 divides the last
        shape = ConvShape(3, c, 2 * side - 7, side, 9, 4, 6, 1, (1, 2))
        made = plan(shape, layout=layout, kernel=kernel, bias=True, activation="relu", adds_out=True)
        arrays = {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
        judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)
        assert any(launch.spec is SPLIT for launch in made.launches) == (c == 40)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", SIDES)
def test_plans_with_maps_twice_do_what_their_kernels_promise(side, layout):
    """Of few tiles; forward and gradients, between guards from a poisoned workspace."""
    rng = np.random.default_rng(side)
    for c, products in ((5, "64"), (8, "64_sm90"), (5, "tensor_sm90"), (40, "tensor_sm90")):
        kernel = f"fft_{side}x{side}_maps_twice_{products}"
        shape = ConvShape(2, c, side + 3, side - 3, 19, 4, 6, 1, (1, 2))
        made = plan(shape, layout=layout, kernel=kernel, bias=True, activation="relu", adds_out=True)
        assert "planes have the numbers of maps twice" in made.explain()
        arrays = {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
        judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)
        problem = data(replace(shape, C=19, K=c), layout=layout, reads_out=True)
        operands = Operands(problem, np.random.default_rng(9))
        gradient = choose(problem, preset(), kernel)
        want, size = told(problem, operands.before, -2.0, 0.5)
        promised = run_plan(gradient, operands.before, alpha=-2.0, beta=0.5)["out"]
        found = run(gradient, operands, {"alpha": np.float32(-2), "beta": np.float32(0.5)})
        assert operands.intact()
        assert all((abs(one - want) <= gradient.error * size).all() for one in (promised, found)), gradient.name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", SIDES)
def test_plans_of_gradients_of_filters_do_what_their_kernels_promise(side, layout):
    problem = filters(ConvShape(21, 2, 2 * side - 7, side, 5, 4, 6, 1, (1, 2)), layout=layout, reads_out=True)
    operands = Operands(problem, np.random.default_rng(8))
    want, size = told(problem, operands.before, -2.0, 0.5)
    whole = choose(problem, preset(), f"fft_filters_{side}x{side}_64")
    cut = choose(replace(problem, most_workspace=4 * whole.workspace_bytes // 5), preset(), whole.name)
    assert len(whole.passes) == 1 < len(cut.passes) and "which are added in a fixed order" in cut.explain()
    for made in (whole, cut, choose(problem, preset(), f"fft_filters_{side}x{side}_tensor_sm90")):
        assert made.algorithm == "fft"
        found = run_plan(made, operands.before, alpha=-2.0, beta=0.5)["out"]
        assert (abs(found - want) <= made.error * size).all(), made.name
        found = run(made, operands, {"alpha": np.float32(-2), "beta": np.float32(0.5)})
        assert operands.intact() and (abs(found - want) <= made.error * size).all(), made.name


def convolved(images, taps, shape, kernel):
    out = conv_fprop(images.astype(np.float32), taps.astype(np.float32), plan=plan(shape, kernel=kernel))
    return out, *conv_reference(images.astype(np.float32), taps.astype(np.float32), padding=shape.padding)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("side, size", [*((side, 5) for side in SIDES), (32, 21)])
def test_hard_data_stays_within_the_floor(side, size):
    """A pixel of 10^6 among ones, filters of a single tap, magnitudes over 60 powers of two: the error is at most
    (24 log2(side^2) + 2 C + 4) 2^-24 times the sum of the products of norms of tiles and filters. Results beside the
    large pixel have more than 10^-6 of their own terms, which is why a plan's error is that of uniform data."""
    rng = np.random.default_rng(side)
    shape = ConvShape(4, 6, side, side, 8, size, size)
    bound = 2.0**-24 * (24 * np.log2(side**2) + 4 + 2 * shape.C)
    few = np.zeros((6, size, size, 8))
    few[:, 2, 3] = 1
    peak = rng.uniform(-1, 1, (6, side, side, 4))
    peak[:, 3, 3] = 1e6
    uniform = rng.uniform(-1, 1, (6, size, size, 8))
    for images, taps in ((peak, uniform), (peak, few),
                         (np.ldexp(peak, rng.integers(-30, 31, peak.shape)), uniform)):
        out, want, terms = convolved(images, taps, shape, f"fft_{side}x{side}_64")
        norms = np.einsum("cn,ck->kn", np.sqrt((images**2).sum((1, 2))), np.sqrt((taps**2).sum((1, 2))))
        assert (abs(out - want) <= bound * norms[:, None, None]).all()
        assert (abs(out - want) / terms).max() > 1e-6


@pytest.mark.sampled(1)
@pytest.mark.parametrize("c, padding", [(64, 2), (64, 0), (16, 2), (256, 4)])
def test_usual_layers_are_documented_and_computed_within_a_millionth(c, padding):
    """But for corners of one tap of 25, where it is less than what is accepted unasked."""
    shape = ConvShape(2, c, 20, 20, 8, 5, 5, 1, padding)
    rng = np.random.default_rng(c)
    images, taps = rng.uniform(-1, 1, (c, 20, 20, 2)), rng.uniform(-1, 1, (c, 5, 5, 8))
    for side in SIDES:
        made = plan(shape, kernel=f"fft_{side}x{side}_64")
        out, want, size = convolved(images, taps, shape, made.name)
        assert made.error <= (2e-6 if padding > 2 else 1e-6)
        assert (abs(out - want) / size).max() <= made.error


def test_an_infinity_or_nan_stays_in_its_tile():
    shape = ConvShape(3, 2, 40, 40, 8, 5, 5)
    rng = np.random.default_rng(3)
    images, taps = rng.uniform(-1, 1, (2, 40, 40, 3)), rng.uniform(-1, 1, (2, 5, 5, 8))
    spoiled = images.copy()
    spoiled[0, 3, 4, 1], spoiled[1, 35, 35, 2] = np.nan, np.inf
    made = plan(shape, kernel="fft_24x24_64")  # tiles of 20 x 20 results
    whole, found = (conv_fprop(x.astype(np.float32), taps.astype(np.float32), plan=made) for x in (images, spoiled))
    lost = np.zeros((36, 36, 3), bool)
    lost[:20, :20, 1] = lost[20:, 20:, 2] = True
    assert np.isnan(found[:, lost]).all() and np.array_equal(found[:, ~lost], whole[:, ~lost])


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", ["fft_16x16_64", "fft_32x32_maps_twice_64"])
def test_a_layer_beyond_the_workspace_is_cut_into_runs_of_images(kernel, layout):
    shape = ConvShape(10, 4, 20, 13, 40, 5, 5, 1, 2)
    whole = plan(shape, layout=layout, kernel=kernel)
    most = whole.workspace_bytes * 2 // 3
    cut = plan(shape, layout=layout, kernel=kernel, max_workspace_bytes=most)
    runs = len(cut.passes)
    assert len(whole.passes) == 1 < runs and cut.workspace_bytes <= most
    assert f"{runs} runs of at most" in cut.explain()
    rng = np.random.default_rng(5)
    arrays = {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in cut.array_shapes().items()}
    judge(cut, arrays, conv_fprop(arrays["images"], arrays["filters"], plan=cut))
    with pytest.raises(ShapeError, match=r"max_workspace_bytes must be at least \d+ .*\(got 1000"):
        plan(shape, layout=layout, algorithm="fft", max_workspace_bytes=1000)


def test_it_is_taken_where_simulation_and_measurement_say_that_it_is_faster():
    for chip, layout in ((preset(), "CHWN"), (H200, "NCHW")):
        for shape in (CONV2, L2):
            for problem in (forward(shape, layout=layout), data(shape, layout=layout)):
                made = choose(problem, chip)
                assert made.algorithm == "fft" and made.error <= 2e-6, problem.describe()
                direct = choose(problem, chip, algorithm="direct")
                assert direct.clocks(chip) > 1.5 * made.clocks(chip)
    assert choose(forward(replace(CONV2, N=1), layout="NCHW"), H200).algorithm != "fft"
    for channels in (48, 64):  # few tiles: a product of 64 columns is full where maps come twice
        made = choose(data(ConvShape(32, channels, 28, 28, channels, 5, 5, 1, 2), layout="NCHW"), H200)
        assert made.name.startswith("fft_32x32_maps_twice_")
    assert not any("maps_twice" in name for name in fft.candidates(forward(replace(CONV2, K=16), layout="NCHW"), H200))
    text = plan(CONV2).explain()
    assert "algorithm fft, error at most 2.4e-07 of the sum of |terms|" in text
    assert "FFT of 32 x 32 inputs for 784 results each: 8.90 times fewer multiplications" in text


@pytest.mark.parametrize("change, words", [
    (dict(stride=2), "stride 2x2"), (dict(dilation=(1, 2)), "dilation 1x2"), (dict(groups=2), "2 groups"),
    (dict(R=33, H=40), "filters of 33x5"), (dict(R=3, S=3), "filters of 3x3"),
    (dict(padding=(1, 5)), "padding 1x5 of filters 5x5")])
def test_what_it_does_not_serve_is_said(change, words):
    sizes = dict(N=4, C=32, H=20, W=20, K=32, R=5, S=5) | change
    with pytest.raises(ShapeError, match=f"not served: {words}.* by fft"):
        plan(ConvShape(**sizes), algorithm="fft")


def test_filters_are_prepared_once():
    first, rest = plan(CONV2, algorithm="fft").apart
    assert first is not None
    assert [launch.spec.name for launch in first.launches] == ["sfft_filters_32x32"]
    assert not any("filters" in launch.spec.name for launch in rest.launches)
