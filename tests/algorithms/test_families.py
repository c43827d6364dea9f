"""Every way to compute a convolution against float64: random problems with all options, every candidate of every
family, into poisoned outputs between guard zones. MAXDNN_PROBLEMS sets how many are drawn (CI takes a sample)."""

import os
import random

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_fprop
from maxdnn.algorithms import registry
from maxdnn.algorithms.common.schedule import FINE_SPLITS, split_name
from maxdnn.algorithms.gemm import pointwise, tensor_cores
from maxdnn.algorithms.implicit_gemm import kernels as implicit_gemm_kernels
from maxdnn.algorithms.implicit_gemm import maxwell as implicit_gemm
from maxdnn.algorithms.implicit_gemm.kernels import PIXELS_64X64
from maxdnn.algorithms.interior import maxwell as interior
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plan
from maxdnn.problem.problem import forward
from maxdnn.reference import conv_reference
from tests.contract import run_plan
from tests.test_conv import TOLERANCE, guarded

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60"))
CHUNKS = 20
LAYOUTS = ("CHWN", "NCHW")


def draw(rng: random.Random) -> ConvShape:
    """A layer of at most some ten million products, so that the virtual GPU takes no time."""
    while True:
        groups = rng.choice([1, 1, 1, 1, 2, 3, 4])
        c, k = groups * -(-rng.randint(1, 70) // groups), groups * -(-rng.randint(1, 150) // groups)
        if rng.random() < 0.05:  # depthwise
            groups = c
            k = c * rng.choice([1, 1, 2])
        r, s = rng.randint(1, 7), rng.randint(1, 7)
        dilation = rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2, 3])
        padding = rng.randint(0, 3), rng.randint(0, 3)
        stride = rng.randint(1, 3), rng.randint(1, 3)
        n = rng.choice([1, 2, 3, rng.randint(1, 130), rng.choice([64, 128])])
        h, w = (max(1, d * (interior - 1) + 1 - 2 * pad + rng.randint(0, 6))
                for d, interior, pad in zip(dilation, (r, s), padding, strict=True))
        shape = ConvShape(n, c, h, w, k, r, s, stride, padding, dilation, groups)
        if shape.flops < 2e8 and groups <= 8:
            return shape


def check(shape, layout, rng, *, kernel=None, bias=False, activation=None, alpha=1.0, beta=0.0):
    """One problem by one candidate, against float64; returns the plan."""
    made = plan(shape, layout=layout, kernel=kernel, bias=bias, activation=activation, adds_out=beta != 0)
    data = np.random.default_rng(rng.randrange(2**32))
    arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
    out, intact = guarded(arrays["out"].shape)
    if beta:
        out[...] = arrays["out"]
    conv_fprop(arrays["images"], arrays["filters"], plan=made, alpha=alpha, beta=beta, bias=arrays.get("bias"), out=out)
    assert intact()
    judge(made, arrays, out, alpha, beta)
    return made


def judge(made, arrays, out, alpha=1.0, beta=0.0):
    """Every element within the tolerance of the sum of |terms|."""
    s, chwn = made.shape, made.layout == "CHWN"
    to_chwn = (0, 1, 2, 3) if chwn else (1, 2, 3, 0)
    found = conv_reference(arrays["images"].transpose(to_chwn), arrays["filters"].transpose(to_chwn), alpha=alpha,
                           stride=s.stride, padding=s.padding, dilation=s.dilation, groups=s.groups)
    want, size = (x if chwn else x.transpose(3, 0, 1, 2) for x in found)
    if "bias" in arrays:
        bias = arrays["bias"].astype(float).reshape((-1, 1, 1, 1) if chwn else (1, -1, 1, 1))
        want, size = want + bias, size + abs(bias)
    if beta:
        want, size = want + beta * arrays["out"], size + abs(beta * arrays["out"])
    if made.problem.activation:
        want = np.maximum(want, 0)
    error = abs(out - want) / np.maximum(size, 1e-30)
    assert error.max() < max(TOLERANCE, made.error), f"{made.problem.describe()} by {made.spec.name}: {error.max():.2e}"


def options(rng):
    return dict(bias=rng.random() < 0.3, activation=rng.choice([None, None, "relu"]),
                alpha=rng.choice([1.0, 1.0, -0.75]), beta=rng.choice([0.0, 0.0, 0.0, 1.0, -1.5]))


def served(shape, layout, **asked):
    """Names of all candidates."""
    problem = forward(shape, layout=layout, bias=asked["bias"], reads_out=asked["beta"] != 0,
                      activation=asked["activation"])
    return [name for family in registry.FAMILIES
            if "forward" in family.kinds and family.unsupported_reason(problem) is None
            for name in family.candidates(problem, preset())]


@pytest.mark.sampled(1, 6)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_by_a_random_candidate(chunk):
    for number in range(chunk, PROBLEMS, CHUNKS):
        rng = random.Random(20150000 + number)
        shape, layout, asked = draw(rng), rng.choice(LAYOUTS), options(rng)
        names = served(shape, layout, **asked)
        families = sorted({name.split("_split")[0] for name in names})
        family = rng.choice(families)  # a family first: pixels has many candidates
        kernel = rng.choice([name for name in names if name.split("_split")[0] == family])
        check(shape, layout, rng, kernel=kernel, **asked)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spec", implicit_gemm_kernels.KERNELS, ids=lambda spec: spec.name)
def test_random_problems_by_every_pixel_kernel(spec):
    """Each as often, and each as often with every number of splits: MAXDNN_PROBLEMS=1740 makes 5 of each."""
    count = max(2, PROBLEMS // len(implicit_gemm_kernels.KERNELS))
    # so that a few problems a kernel are not all of the same splits
    first = implicit_gemm_kernels.KERNELS.index(spec) * count
    for number in range(count):
        rng = random.Random(f"{spec.name} {number}")
        kernel = split_name(spec.name, FINE_SPLITS[(first + number) % len(FINE_SPLITS)])
        while True:
            shape, layout, asked = draw(rng), rng.choice(LAYOUTS), options(rng)
            if kernel in served(shape, layout, **asked):
                break
        check(shape, layout, rng, kernel=kernel, **asked)


CORNERS = {
    "one image": ConvShape(1, 12, 6, 5, 20, 3, 3, padding=1),
    "two images": ConvShape(2, 12, 6, 5, 20, 3, 3, padding=1),
    "three images": ConvShape(3, 12, 6, 5, 20, 3, 3, padding=1),
    "one filter": ConvShape(2, 9, 5, 5, 1, 3, 3, padding=1),
    "one channel": ConvShape(5, 1, 7, 6, 10, 3, 3, padding=1),
    "1x1": ConvShape(3, 40, 4, 4, 33, 1, 1),
    "1x1 with padding": ConvShape(3, 16, 4, 4, 33, 1, 1, padding=2),
    "1xS": ConvShape(2, 8, 5, 9, 12, 1, 7, padding=(0, 3)),
    "Rx1": ConvShape(2, 8, 9, 5, 12, 7, 1, padding=(3, 0)),
    "one pixel": ConvShape(70, 30, 1, 1, 65, 1, 1),
    "smaller than the filter but for padding": ConvShape(2, 8, 2, 2, 9, 5, 5, padding=2),
    "a filter of more taps than the test reaches": ConvShape(1, 8, 17, 18, 9, 17, 18, padding=1),
    "images for two tiles": ConvShape(128, 16, 4, 4, 72, 3, 3, padding=1),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name, layout):
    rng = random.Random(name)
    check(CORNERS[name], layout, rng, bias=True, activation="relu")
    for kernel in implicit_gemm.candidates(forward(CORNERS[name], layout=layout), preset()):
        if "_split" not in kernel or kernel.endswith("_split2"):
            check(CORNERS[name], layout, rng, kernel=kernel, bias=True, activation="relu")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_plans_do_what_their_kernels_promise(layout):
    """The launches by the text of the kernels alone, in NumPy: a plan is right whatever the kernels are."""
    rng = random.Random(7)
    shapes = [ConvShape(2, 20, 6, 5, 9, 3, 2, (2, 1), (1, 1), (1, 2)), ConvShape(3, 4, 5, 6, 8, 2, 3, groups=2),
              ConvShape(8, 16, 5, 4, 12, 3, 3, 1, 1), ConvShape(3, 3, 6, 5, 7, 3, 3, 1, 2)]
    for shape in shapes:
        asked = dict(bias=True, activation="relu", beta=0.5)
        for kernel in served(shape, layout, **asked):
            made = plan(shape, layout=layout, kernel=kernel, bias=True, activation="relu", adds_out=True)
            data = np.random.default_rng(rng.randrange(2**32))
            arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
            judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


def test_the_same_bits_in_every_run():
    rng = random.Random(3)
    made = plan(ConvShape(1, 64, 7, 7, 70, 3, 3, 1, 1), layout="NCHW", kernel=f"{PIXELS_64X64.name}_split6")
    arrays = {role: np.random.default_rng(rng.randrange(99)).uniform(-1, 1, size).astype(np.float32)
              for role, size in made.array_shapes().items()}
    first = conv_fprop(arrays["images"], arrays["filters"], plan=made)
    assert all(np.array_equal(first, conv_fprop(arrays["images"], arrays["filters"], plan=made)) for _ in range(5))


@pytest.mark.long
def test_nan_and_infinity_reach_only_the_outputs_they_belong_to():
    """Channels, taps and filters that do not exist must not be met as zero times something."""
    for shape in (ConvShape(2, 9, 5, 5, 5, 3, 3, 1, 1), ConvShape(64, 9, 5, 5, 5, 3, 3, 1, 1)):
        for kernel in served(shape, "CHWN", bias=False, activation=None, beta=0.0):
            if kernel.startswith("winograd"):
                continue  # promises less: tests/algorithms/test_winograd.py
            images = np.ones((9, 5, 5, shape.N), np.float32)
            images[:, :, :, 1] = np.inf
            images[:, 0, 0, 0] = np.nan
            made = plan(shape, kernel=kernel)
            out = conv_fprop(images, np.ones((9, 3, 3, 5), np.float32), plan=made)
            assert np.isnan(out[:, :2, :2, 0]).all() and np.isfinite(out[:, 2:, :, 0]).all()
            of_infinity = np.isnan if tensor_cores.NOTE in made.notes else np.isposinf
            assert np.isfinite(out[:, :, 2:, 0]).all() and of_infinity(out[..., 1]).all(), kernel


def test_relu_keeps_nan():
    out = conv_fprop(np.full((1, 2, 2, 1), np.nan, np.float32), np.ones((1, 1, 1, 3), np.float32), activation="relu")
    assert np.isnan(out).all()


def test_a_list_of_channels_beyond_constant_memory_is_cut_into_launches():
    shape = ConvShape(64, 4096, 3, 3, 4, 3, 3, padding=1)
    made = check(shape, "CHWN", random.Random(1), kernel=interior.TAPS_64X64.name, bias=True,
                 activation="relu", beta=0.5)
    assert len(made.passes) > 1


def test_many_images_with_padding_take_only_the_taps_inside():
    made = choose(forward(ConvShape(128, 64, 27, 27, 192, 5, 5, 1, 2)), preset(), algorithm="direct")
    assert made.spec is interior.TAPS_64X64 and made.workspace_bytes == 0
    assert "91.3% of the taps lie inside the map" in made.explain()


def test_an_image_is_split_over_the_chip_and_explain_says_why():
    text = plan(ConvShape(1, 192, 13, 13, 384, 3, 3, 1, 1), layout="NCHW", algorithm="direct").explain()
    assert "do not fill the chip" in text and "added in a fixed order" in text


def test_images_beyond_the_reach_of_a_texture_of_floats_come_in_runs():
    made = plan(ConvShape(128, 64, 224, 224, 64, 3, 3, 1, 1), layout="NCHW", kernel=PIXELS_64X64.name)
    assert len(made.passes) == 2 and sum(x.numbers["j"] for x in made.passes) == 128 * 224 * 224


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_filters_of_one_tap_are_matrix_products(layout):
    rng = random.Random(5)
    shape = ConvShape(4, 20, 6, 6, 72, 1, 1)
    for asked in (dict(bias=False, activation=None, beta=0.5), dict(bias=True, activation="relu", beta=0.0)):
        names = list(pointwise.candidates(forward(shape, layout=layout, bias=asked["bias"],
                                                  activation=asked["activation"]), preset()))
        assert all(asked["beta"] or "_split" in name or "sm90" in name for name in names)
        for name in names:
            assert check(shape, layout, rng, kernel=name, **asked).family == "pointwise"


VIEWS = {
    "some images": lambda x: x[1:3], "some channels": lambda x: x[:, 4:16], "every second row": lambda x: x[:, :, ::2],
    "every third column": lambda x: x[..., ::3], "rows and columns": lambda x: x[:, :, 1:-1, 1:-1],
    "axes in another order": lambda x: x.transpose(0, 2, 3, 1), "one channel": lambda x: x[:, 5:6],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_where_they_lie(name, layout):
    """By every kernel that serves them; with guards of NaN around what belongs to the view."""
    data = np.random.default_rng(3)
    # where a texture may begin, whatever the view leaves out in front
    memory = np.full(4 * 16 * 16 * 16 + 4096, np.nan, np.float32)
    whole = np.lib.stride_tricks.as_strided(memory, (4, 16, 16, 16), [4 * x for x in (4096, 256, 16, 1)])
    first = VIEWS[name](whole).ctypes.data
    memory = np.full(len(memory) + 128, np.nan, np.float32)
    skip = -(first - whole.ctypes.data + memory.ctypes.data) % 512 // 4
    whole = np.lib.stride_tricks.as_strided(memory[skip:], (4, 16, 16, 16), [4 * x for x in (4096, 256, 16, 1)])
    images = VIEWS[name](whole)
    images[...] = data.uniform(-1, 1, images.shape)
    axes = (0, 1, 2, 3) if layout == "CHWN" else (3, 0, 1, 2)
    c, h, w, n = np.transpose(images, axes).shape if layout == "CHWN" else [images.shape[i] for i in (1, 2, 3, 0)]
    shape = ConvShape(n, c, h, w, 40, 3, 2, padding=1)
    problem = forward(shape, layout=layout)
    filters = data.uniform(-1, 1, problem.operand("filters").shape).astype(np.float32)
    want = conv_fprop(np.ascontiguousarray(images), filters, padding=1, layout=layout)
    assert np.isfinite(want).all()
    found = conv_fprop(images, filters, padding=1, layout=layout)
    assert abs(found - want).max() < 1e-4
    walking = problem.with_strides("images", tuple(x // 4 for x in images.strides))
    assert implicit_gemm.FAMILY.unsupported_reason(walking) is None
    assert set(served_by(walking)) - {"pixels_sm90", "tensor windows"} == {"pixels"}


def served_by(problem):
    return [f.name for f in registry.FAMILIES if problem.kind in f.kinds and f.unsupported_reason(problem) is None]


def test_views_that_no_kernel_walks_over_are_refused_before_anything_runs():
    images, filters = np.ones((2, 16, 16, 16), np.float32), np.ones((4, 16, 3, 3), np.float32)
    for wrong, words in ((images[:, :, ::-1], "strides that are multiples of 4 and not negative"),
                         (images[..., 1:], "begin where no texture may by pixels")):
        with pytest.raises(ShapeError, match=words):
            conv_fprop(wrong, filters, layout="NCHW")
    made = plan(ConvShape(2, 16, 16, 8, 4, 3, 3), layout="NCHW")
    with pytest.raises(ShapeError, match="images must be C-contiguous"):
        conv_fprop(images[..., ::2], filters, plan=made)
