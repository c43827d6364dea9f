"""Winograd convolution: the matrices, every candidate against float64 with all options, what is documented of its error
and of values that are no numbers, how it is chosen and cut into runs. MAXDNN_PROBLEMS and MAXDNN_LAYERS set how much is
run (CI takes a sample)."""

import json
import os
import random
from fractions import Fraction

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_fprop
from maxdnn.algorithms.gemm import tensor_cores
from maxdnn.algorithms.winograd import fused as winograd_fused
from maxdnn.algorithms.winograd import plan as winograd
from maxdnn.algorithms.winograd import toomcook
from maxdnn.algorithms.winograd.toomcook import TABLE, generated, matrices
from maxdnn.build.cubins import asset
from maxdnn.cli import main
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plan
from maxdnn.problem.problem import data, forward
from maxdnn.reference import conv_reference
from tests import test_backward as gradients
from tests.algorithms.test_families import LAYOUTS, check, judge, options
from tests.contract import run_plan
from tests.sass.native import H200

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60")) // 3
CHUNKS = 8
FULL = bool(os.environ.get("MAXDNN_LAYERS"))  # layers as large as they are
POINTS = {r: [p for p in TABLE if p.taps == r] for r in (3, 5)}


def names(shape):
    """Candidates that sum all channels at once."""
    return [f"winograd_{p.outputs}x{p.outputs}_{p.taps}x{p.taps}_{tile}" for p in POINTS[shape.R]
            if p.serves(max(shape.padding)) for tile in (128, 64)]


def draw(rng):
    while True:
        r = rng.choice([3, 3, 5])
        n = rng.choice([1, 2, 3, rng.randint(1, 40), rng.choice([32, 64, 128])])
        padding = (0, 0) if rng.random() < 0.3 else (rng.randint(0, r - 1), rng.randint(0, r - 1))
        h, w = (max(1, r - 2 * pad) + rng.randint(0, 12) for pad in padding)
        shape = ConvShape(n, rng.randint(1, 70), h, w, rng.randint(1, 150), r, r, 1, padding)
        if shape.flops < 2e8:
            return shape


@pytest.mark.parametrize("points", TABLE, ids=lambda p: f"F({p.outputs},{p.taps})")
def test_the_matrices_convolve_exactly(points):
    """In fractions, for every pair of a unit input and a unit tap."""
    a, g, b = matrices(points)
    for i in range(points.inputs):
        for k in range(points.taps):
            product = [u[k] * v[i] for u, v in zip(g, b, strict=True)]
            found = [sum(x * y for x, y in zip(row, product, strict=True)) for row in a]
            assert found == [Fraction(int(i == j + k)) for j in range(points.outputs)]


def test_the_sources_have_the_matrices_of_the_table():
    assert (asset("sass") / "maxwell/winograd_matrices.inc").read_text() == generated() + "\n"


def test_no_coefficient_of_maps_and_results_is_rounded():
    for points in TABLE:
        for matrix in (matrices(points).A, matrices(points).B):
            assert all(Fraction(float(np.float32(float(x)))) == x for row in matrix for x in row)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_by_a_random_candidate(chunk):
    for number in range(chunk, PROBLEMS, CHUNKS):
        rng = random.Random(20160000 + number)
        shape, layout, asked = draw(rng), rng.choice(LAYOUTS), options(rng)
        check(shape, layout, rng, kernel=rng.choice(names(shape)), **asked)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [ConvShape(2, 16, 7, 6, 5, 3, 3, 1, 1), ConvShape(3, 9, 8, 8, 6, 5, 5, 1, (2, 0)),
                                   ConvShape(4, 33, 9, 4, 8, 3, 3, 1, (0, 2))], ids=str)
def test_plans_do_what_their_kernels_promise(shape, layout):
    data = np.random.default_rng(7)
    for name in names(shape):
        made = plan(shape, layout=layout, kernel=name, bias=True, activation="relu", adds_out=True)
        arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
        judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("r", POINTS)
def test_channels_are_summed_in_parts(r, layout):
    """Where smaller errors are asked for, in more of them than usual."""
    shape = ConvShape(3, 200, 7, 8, 12, r, r, 1, 0 if r == 5 else 1)
    data = np.random.default_rng(1)
    found = set()
    for name, make in winograd.candidates(forward(shape, layout=layout), preset()).items():
        made = make()
        if made.archs or "_64" not in name:
            continue
        (product,) = made.passes
        some = 8 * product.numbers["run"]
        found.add((name, some))
        assert ("_parts" in name) == (some < points_of(name).together(200))
        assert (f"sums of {some} channels at a time are added" in made.explain()) == (some < 200)
        arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
        judge(made, arrays, conv_fprop(arrays["images"], arrays["filters"], plan=made))
        judge(made, arrays, run_plan(made, arrays, alpha=1.0)["out"])
    if r == 3:
        assert found == {("winograd_2x2_3x3_64", 80), ("winograd_2x2_3x3_64_parts5", 40),
                         ("winograd_2x2_3x3_64_parts7", 32), ("winograd_4x4_3x3_64", 128),
                         ("winograd_4x4_3x3_64_parts4", 64), ("winograd_4x4_3x3_64_parts7", 32)}


def points_of(name):
    """Of a candidate."""
    m, r = (int(part[0]) for part in name.split("_")[1:3])
    return next(p for p in TABLE if (p.outputs, p.taps) == (m, r))


def test_what_is_documented_follows_from_the_points_and_what_is_summed_at_once():
    """In one place; and every usual plan of the ten layers and of VGG-E stays within the project's bars, whatever N."""
    bars = {(2, 3): 3e-7, (4, 3): 1e-6, (3, 5): 2e-6, (4, 5): 2e-6}
    layers = (*((x.shape.C, x.shape.R, max(x.shape.padding)) for x in LAYERS if x.shape.R in POINTS),
              *((c, 3, 1) for c in (64, 128, 256, 512)))
    for c, r, padding in layers:
        shape = ConvShape(128, c, 27, 27, 64, r, r, 1, padding)
        for name, make in winograd.candidates(forward(shape), preset()).items():
            points, made = points_of(name), make()
            assert made.error == points.errors[padding] * toomcook.in_parts(c, summed_at_once(made)), name
            assert points.measured <= bars[points.outputs, points.taps]
            assert made.archs or made.error <= bars[points.outputs, points.taps], name


def summed_at_once(made):
    """Channels, by what the launches are told: runs of a loop, or a slice's share of a launch."""
    product = made.passes[0]
    if isinstance(product.spec, tensor_cores.TensorKernel):
        return min(made.shape.C, tensor_cores.CHUNK)
    return 8 * product.numbers["share" if made.archs else "run"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_channels_are_never_summed_at_once(layout):
    """Not even where nobody asks for smaller errors."""
    for channels in (32, 33, 64, 512, 513, 1024, 5000):
        for name, make in winograd.candidates(forward(ConvShape(32, channels, 12, 12, 32, 3, 3, 1, 1),
                                                      layout=layout), preset()).items():
            made = make()
            run = summed_at_once(made)
            if "tensor" in name:  # always as many
                continue
            assert run <= (80 if "2x2" in name else 512 if made.archs else 320), name
            halved = "2x2" in name or not made.archs or channels <= 128  # there by slices
            assert run <= (max(32, 5 * channels / 8 + 8) if halved else channels + 8), name


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("r, padding", [(3, 1), (5, 2), (5, 0)])
def test_what_is_no_number_stays_in_its_tiles(r, padding, layout, bad):
    shape = ConvShape(4, 32, 13, 12, 6, r, r, 1, padding)
    image, channel, row, column = 1, 5, 6, 7
    data = np.random.default_rng(2)
    for name in names(shape):
        m = int(name.split("_")[1][0])
        made = plan(shape, layout=layout, kernel=name)
        arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
        images = arrays["images"] if layout == "NCHW" else arrays["images"].transpose(3, 0, 1, 2)
        clean = conv_fprop(arrays["images"], arrays["filters"], plan=made)
        images[image, channel, row, column] = bad
        found = conv_fprop(arrays["images"], arrays["filters"], plan=made)
        same = clean == found
        same = same if layout == "NCHW" else same.transpose(3, 0, 1, 2)
        pixel_p, pixel_q = np.arange(shape.P)[:, None] // m * m, np.arange(shape.Q) // m * m
        in_tile = [(first - shape.pad_h <= at) & (at < first - shape.pad_h + m + r - 1)
                   for first, at in ((pixel_p, row), (pixel_q, column))]
        touched = np.broadcast_to(in_tile[0] & in_tile[1], (shape.P, shape.Q))
        assert same[np.arange(4) != image].all() and same[image][:, ~touched].all()
        assert not same[image][:, touched].all()


def shrunk(layer):
    s = layer.shape
    return s if FULL else ConvShape(8, s.C, s.H, s.W, 32, s.R, s.S, s.stride, s.padding)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layer", [x for x in LAYERS if x.shape.R in POINTS and (FULL or x.name in ("conv2", "conv4"))],
                         ids=lambda x: x.name)
def test_the_errors_of_layers_are_what_is_documented(layer):
    """Uniform in [-1, 1], relative to the sum of |terms|, every output."""
    assert plan(shrunk(layer)).error <= 2e-6
    shape, data = shrunk(layer), np.random.default_rng(4)
    images = data.uniform(-1, 1, (shape.C, shape.H, shape.W, shape.N)).astype(np.float32)
    filters = data.uniform(-1, 1, (shape.C, shape.R, shape.S, shape.K)).astype(np.float32)
    want, size = conv_reference(images, filters, stride=shape.stride, padding=shape.padding)
    for name in names(shape):
        made = plan(shape, kernel=name)
        error = (abs(conv_fprop(images, filters, plan=made) - want) / size).max()
        print(f"{layer.name} {name} {error:.2e}")
        assert error < made.error


# C, H=W, K of VGG-E's 1.2, 3.2 and 5, the largest absolute errors that Lavin and Gray (2015, table 4) measured with
# F(2x2, 3x3) and F(4x4, 3x3).
PUBLISHED = [(64, 224, 64, 1.5e-5, 2.8e-4), (256, 56, 256, 5.3e-5, 9.1e-4), (512, 14, 512, 4.2e-5, 1.1e-3)]


@pytest.mark.parametrize("c, hw, k, two, four", PUBLISHED if FULL else PUBLISHED[2:])
def test_no_absolute_error_is_larger_than_the_published_one(c, hw, k, two, four):
    data = np.random.default_rng(1)
    images = data.uniform(-1, 1, (c, hw, hw, 1)).astype(np.float32)
    filters = data.uniform(-1, 1, (c, 3, 3, k)).astype(np.float32)
    want, _ = conv_reference(images, filters, padding=1)
    fused = (("winograd_2x2_3x3_fused", two),) if c <= winograd_fused.POINTS.most else ()
    for name, most in (("winograd_2x2_3x3_64", two), ("winograd_4x4_3x3_64", four), *fused):
        made = plan(ConvShape(1, c, hw, hw, k, 3, 3, 1, 1), kernel=name)
        assert abs(conv_fprop(images, filters, plan=made) - want).max() <= most


@pytest.mark.parametrize("padding, documented", [(0, 3.5e-6), (1, 1.6e-6)])
def test_gradients_of_layers_without_padding_have_errors_at_their_corners(padding, documented):
    """A corner has a single term of 25, or four, in a tile of more; sums in four parts stay below what is accepted."""
    shape = ConvShape(2, 24, 12, 12, 256, 5, 5, 1, padding)
    for kernel, error in (("winograd_3x3_5x5_64", documented),
                          ("winograd_3x3_5x5_64_parts4", documented * toomcook.in_parts(256, 64))):
        made = gradients.check(shape, "NCHW", "data", random.Random(padding), kernel=kernel)
        assert made.error == error
    assert made.error <= 2e-6
    many = choose(data(ConvShape(128, 96, 24, 24, 256, 5, 5, 1, padding), layout="NCHW"), H200, algorithm="winograd")
    assert many.archs == ("sm_90",)


WIDE = ConvShape(128, 192, 13, 13, 384, 3, 3, 1, 1)


def test_many_images_and_channels_take_winograd():
    made = choose(forward(WIDE), preset())
    assert made.algorithm == "winograd" and made.error == 1.13e-6 * toomcook.in_parts(192, 120)
    text = made.explain()
    assert "algorithm winograd, error at most 8.9e-07 of the sum of |terms|" in text
    assert "F(4x4, 3x3): 2.64 times fewer multiplications than a direct convolution" in text
    assert f"workspace {made.workspace_bytes / 2**20:.1f} MiB" in text


def test_the_error_that_is_accepted_decides():
    usual = plan(WIDE, max_error=1e-6).explain()
    assert "F(4x4, 3x3)" in usual and "sums of 120 channels at a time are added" in usual
    smaller = plan(WIDE, max_error=8e-7, algorithm="winograd", kernel="winograd_4x4_3x3_64_parts3")
    assert smaller.error < 8e-7 and "sums of 64 channels at a time" in smaller.explain()
    assert "F(2x2, 3x3)" in plan(WIDE, max_error=5e-7).explain()
    assert "F(4x4, 5x5)" in plan(ConvShape(128, 96, 24, 24, 256, 5, 5), algorithm="winograd").explain()
    at_border = ConvShape(128, 64, 27, 27, 192, 5, 5, 1, 2)  # where the errors of F(4x4, 5x5) would be too large
    assert "F(3x3, 5x5)" in plan(at_border, max_error=1.0, algorithm="winograd").explain()
    assert not any("_4x4_" in name for name in winograd.candidates(forward(at_border), preset()))
    assert plan(WIDE, algorithm="direct", max_error=1e-6).algorithm == "direct"
    for algorithm in ("auto", "direct", "winograd"):
        with pytest.raises(ShapeError, match=r"max_error must be at least .*\(got 1e-07\)"):
            plan(WIDE, algorithm=algorithm, max_error=1e-7)
    assert plan(ConvShape(128, 3, 24, 24, 64, 3, 3, 1, 1)).algorithm == "direct"  # few channels: larger errors


@pytest.mark.parametrize("change, words", [
    (dict(stride=2), "stride 2x2"), (dict(dilation=(1, 2)), "dilation 1x2"), (dict(groups=2), "2 groups"),
    (dict(R=7, S=7), "filters of 7x7"), (dict(R=3, S=5), "filters of 3x5"), (dict(R=1, S=1), "filters of 1x1"),
    (dict(padding=(1, 3)), "padding 1x3 of filters 3x3")])
def test_what_it_does_not_serve_is_said(change, words):
    sizes = dict(N=4, C=32, H=13, W=13, K=32, R=3, S=3) | change
    with pytest.raises(ShapeError, match=f"not served: {words}.* by winograd"):
        plan(ConvShape(**sizes), algorithm="winograd")
    assert plan(ConvShape(**sizes)).algorithm == "direct"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layer_beyond_the_workspace_is_cut_into_runs_of_images(layout):
    shape = ConvShape(10, 32, 9, 9, 40, 3, 3, 1, 1)
    whole = plan(shape, layout=layout, kernel="winograd_4x4_3x3_128")
    most = whole.workspace_bytes // 3
    cut = plan(shape, layout=layout, kernel="winograd_4x4_3x3_128", max_workspace_bytes=most)
    runs = len(cut.passes)
    assert len(whole.passes) == 1 < runs and cut.workspace_bytes <= most
    assert f"{runs} runs of at most" in cut.explain()
    data = np.random.default_rng(5)
    arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in cut.array_shapes().items()}
    judge(cut, arrays, conv_fprop(arrays["images"], arrays["filters"], plan=cut))
    judge(cut, arrays, run_plan(cut, arrays, alpha=1.0)["out"])
    with pytest.raises(ShapeError, match=r"max_workspace_bytes must be at least \d+ .*\(got 1000"):
        plan(shape, layout=layout, algorithm="winograd", max_workspace_bytes=1000)
    for free in (shape, WIDE):  # what needs none is taken
        assert plan(free, layout=layout, max_workspace_bytes=0).workspace_bytes == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_that_begin_anywhere_are_copied(layout):
    shape = ConvShape(3, 17, 6, 7, 8, 3, 3, 1, 1)
    made = plan(shape, layout=layout, algorithm="winograd", max_error=1, copy_images=True)
    data = np.random.default_rng(5)
    arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
    odd = np.empty(arrays["images"].size + 1, np.float32)[1:].reshape(arrays["images"].shape)
    odd[...] = arrays["images"]
    judge(made, arrays, conv_fprop(odd, arrays["filters"], plan=made))
    assert "images are copied: they begin where no texture may" in made.explain()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("limit", [2**13, 2**14])
def test_maps_beyond_the_reach_of_a_texture_come_in_pieces(monkeypatch, limit, layout):
    monkeypatch.setattr(winograd, "MAX_TEXELS", limit)
    shape = ConvShape(5, 40, 13, 11, 8, 3, 3, 1, 1)
    made = winograd.candidates(forward(shape, layout=layout), preset())["winograd_4x4_3x3_128"]()
    assert sum(getattr(x.spec, "step", "") == "maps" for x in made.launches) > 1
    data = np.random.default_rng(5)
    arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
    judge(made, arrays, conv_fprop(arrays["images"], arrays["filters"], plan=made))
    judge(made, arrays, run_plan(made, arrays, alpha=1.0)["out"])


@pytest.mark.parametrize("asked, words", [
    (dict(algorithm="fourier"), r"algorithm must be one of auto, direct, winograd, fft \(got 'fourier'\)"),
    (dict(algorithm=None), r"algorithm must be one of"),
    (dict(max_error=0), r"max_error must be a positive number \(got 0\)"),
    (dict(max_error=float("nan")), r"max_error must be a positive number \(got nan\)"),
    (dict(max_error="small"), r"max_error must be a positive number \(got 'small'\)"),
    (dict(max_workspace_bytes=-1), r"max_workspace_bytes must be an integer of at least 0, or None"),
    (dict(max_workspace_bytes=1e9), r"max_workspace_bytes must be an integer")])
def test_bad_arguments_are_named(asked, words):
    images, filters = np.zeros((3, 5, 5, 4), np.float32), np.zeros((3, 3, 3, 4), np.float32)
    with pytest.raises(ShapeError, match=words):
        conv_fprop(images, filters, **asked)
    with pytest.raises(ShapeError, match=words):
        plan(ConvShape(4, 3, 5, 5, 4, 3, 3), **asked)


def test_conv_fprop_takes_what_is_asked_for():
    data = np.random.default_rng(6)
    images = data.uniform(-1, 1, (32, 8, 8, 4)).astype(np.float32)
    filters = data.uniform(-1, 1, (32, 3, 3, 8)).astype(np.float32)
    want, size = conv_reference(images, filters, padding=1)
    found = {a: conv_fprop(images, filters, padding=1, algorithm=a) for a in ("direct", "winograd")}
    assert not np.array_equal(found["direct"], found["winograd"])
    for out in found.values():
        assert (abs(out - want) / size).max() < 2e-6
    with pytest.raises(ShapeError, match="max_error, max_workspace_bytes and arithmetic are the plan's own"):
        conv_fprop(images, filters, plan=plan(ConvShape(4, 32, 8, 8, 8, 3, 3, 1, 1)), algorithm="direct")


def test_simulate_shows_every_kernel_of_the_plan(capsys):
    assert main(["simulate", "8,32,8,8,32,3,3,1,1", "--algorithm", "winograd", "--kernel", "winograd_4x4_3x3_64",
                 "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [x["kernel"] for x in found["launches"]] == ["swinograd_filters_4x4_3x3", "swinograd_maps_4x4_3x3_CHWN",
                                                        "sproduct_64x64_tn", "swinograd_out_4x4_3x3_CHWN"]
    assert found["algorithm"] == "winograd" and found["clocks"] == sum(x["clocks"] for x in found["launches"])
    assert main(["simulate", "8,32,8,8,32,7,7", "--algorithm", "winograd"]) == 1
    assert "not served: filters of 7x7 by winograd" in capsys.readouterr().err
    assert main(["simulate", "8,32,8,8,32,3,3", "--algorithm", "winograd", "--kernel", "sconv_taps_K64_N64"]) == 1
    assert "--kernel must be one of winograd_2x2_3x3_128, " in capsys.readouterr().err
