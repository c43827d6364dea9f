"""Gradients of images, filters and bias against float64: random problems with all options, every candidate, poisoned
outputs between guard zones. MAXDNN_PROBLEMS sets how many are drawn, half of either kind (CI takes a sample)."""

import os
import random
import re

import numpy as np
import pytest

import maxdnn
from maxdnn import ConvShape, ShapeError, conv_bprop_bias, conv_bprop_data, conv_bprop_filters, conv_fprop, plan
from maxdnn.algorithms import registry
from maxdnn.emulator import VirtualGpu
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset
from maxdnn.problem.problem import data, filters
from tests.algorithms.test_families import LAYOUTS, draw
from tests.contract import run_plan
from tests.gradients import gradient
from tests.test_conv import TOLERANCE, guarded

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "60"))
CHUNKS = 20
KINDS = {"data": ("gradients", "filters"), "filters": ("images", "gradients")}
BOTH = pytest.mark.parametrize("kind", KINDS)


def arrays_of(made, seed):
    rng = np.random.default_rng(seed)
    return {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}


def call(made, arrays, **options):
    """The gradient by a plan."""
    kind, s = made.problem.kind, made.shape
    function, size = (conv_bprop_data, (s.H, s.W)) if kind == "data" else (conv_bprop_filters, (s.R, s.S))
    return function(*(arrays[role] for role in KINDS[kind]), size, plan=made, **options)


def judge(made, arrays, out, alpha=1.0, beta=0.0):
    """Every element within the tolerance of the sum of |terms|, or what the plan says."""
    chwn = made.layout == "CHWN"
    given = [arrays[role].transpose((0, 1, 2, 3) if chwn else (1, 2, 3, 0)) if role in arrays else None
             for role in ("images", "filters", "gradients")]
    want, size = (x if chwn else x.transpose(3, 0, 1, 2) for x in gradient(made.shape, made.problem.kind, *given))
    want, size = alpha * want, abs(alpha) * size
    if beta:
        want, size = want + beta * arrays["out"], size + abs(beta * arrays["out"])
    error = abs(out - want) / np.maximum(size, 1e-30)
    assert error.max() < max(TOLERANCE, made.error), f"{made.problem.describe()} by {made.spec.name}: {error.max():.2e}"


def check(shape, layout, kind, rng, *, kernel=None, alpha=1.0, beta=0.0):
    """One problem by one candidate; returns the plan."""
    made = plan(shape, layout=layout, kernel=kernel, kind=kind, adds_out=beta != 0)
    arrays = arrays_of(made, rng.randrange(2**32))
    out, intact = guarded(arrays["out"].shape)
    if beta:
        out[...] = arrays["out"]
    assert call(made, arrays, alpha=alpha, beta=beta, out=out) is out
    assert intact()
    judge(made, arrays, out, alpha, beta)
    return made


def served(shape, layout, kind, beta=0.0):
    """Names of all candidates."""
    problem = {"data": data, "filters": filters}[kind](shape, layout=layout, reads_out=beta != 0)
    return [name for family in registry.FAMILIES if kind in family.kinds and family.unsupported_reason(problem) is None
            for name in family.candidates(problem, preset())]


def families_of(names):
    """Names of candidates by the kernel they split."""
    found = {}
    for name in names:
        found.setdefault(name.split("_split")[0], []).append(name)
    return found


@pytest.mark.sampled(1, 6)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_by_a_random_candidate(chunk):
    for number in range(chunk, PROBLEMS, CHUNKS):
        rng = random.Random(20260000 + number)
        shape, layout, kind = draw(rng), rng.choice(LAYOUTS), list(KINDS)[number // CHUNKS % 2]
        alpha, beta = rng.choice([1.0, 1.0, -0.75]), rng.choice([0.0, 0.0, 1.0, -1.5])
        names = families_of(served(shape, layout, kind, beta))
        check(shape, layout, kind, rng, kernel=rng.choice(names[rng.choice(list(names))]), alpha=alpha, beta=beta)


CORNERS = {
    "one image": ConvShape(1, 12, 6, 5, 20, 3, 3, padding=1),
    "three images": ConvShape(3, 12, 6, 5, 20, 3, 3, padding=1),
    "one filter": ConvShape(2, 9, 5, 5, 1, 3, 3, padding=1),
    "one channel": ConvShape(5, 1, 7, 6, 10, 3, 3, padding=1),
    "1x1": ConvShape(3, 40, 4, 4, 33, 1, 1),
    "1x1 of every second pixel": ConvShape(3, 40, 5, 4, 36, 1, 1, stride=2),
    "1x1 with padding": ConvShape(3, 16, 4, 4, 33, 1, 1, padding=2),
    "no tap on the map": ConvShape(2, 8, 1, 1, 9, 1, 1, stride=2, padding=1),
    "rows that no tap reaches": ConvShape(2, 8, 8, 9, 9, 2, 2, stride=3),
    "pixels behind the last patch": ConvShape(2, 8, 9, 8, 9, 3, 3, stride=4, padding=1),
    "more padding than filter": ConvShape(2, 8, 4, 4, 9, 2, 2, padding=3),
    "first layer": ConvShape(8, 3, 27, 27, 16, 11, 11, stride=4),
    "first layer with padding": ConvShape(8, 3, 26, 27, 16, 11, 11, stride=4, padding=2),
    "dilation that strides divide": ConvShape(2, 8, 11, 12, 9, 3, 3, stride=2, padding=1, dilation=2),
    "dilation beside strides": ConvShape(2, 8, 11, 12, 9, 3, 3, stride=(2, 3), padding=2, dilation=(3, 2)),
    "one pixel": ConvShape(70, 30, 1, 1, 65, 1, 1),
    "a filter of more taps than the test reaches": ConvShape(1, 8, 17, 18, 9, 17, 18, padding=1),
    "images for two tiles": ConvShape(128, 16, 4, 4, 72, 3, 3, padding=1),
    "channels of a group that fill no texel": ConvShape(4, 6, 5, 5, 10, 3, 3, padding=1, groups=2),
    "depthwise": ConvShape(4, 10, 5, 5, 20, 3, 3, padding=1, groups=10),
    "many elements of channels that fill no eight": ConvShape(4, 6, 6, 9, 45, 4, 7),
}


@pytest.mark.sampled(2, 5)
@BOTH
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name, layout, kind):
    """By the plan that is chosen and by one candidate of each kernel."""
    rng = random.Random(name)
    every = families_of(served(CORNERS[name], layout, kind))
    elsewhere = "sm90_filters", "sm90_classes"  # have random problems of their own, see tests/sass
    some = [names for kernel, names in every.items() if not any(name in kernel for name in elsewhere)]
    for kernel in (None, *map(rng.choice, some)):
        check(CORNERS[name], layout, kind, rng, kernel=kernel)


@pytest.mark.sampled(1)
@BOTH
@pytest.mark.parametrize("layout", LAYOUTS)
def test_plans_do_what_their_kernels_promise(layout, kind):
    """The launches by the text of the kernels alone, in NumPy: a plan is right whatever the kernels are."""
    for shape in (ConvShape(2, 20, 6, 5, 9, 3, 2, (2, 1), (1, 1), (1, 2)), ConvShape(3, 4, 5, 6, 8, 2, 3, groups=2),
                  ConvShape(8, 16, 5, 4, 12, 3, 3, 1, 1), ConvShape(3, 3, 6, 5, 7, 3, 3, 1, 2)):
        for kernel in served(shape, layout, kind, beta=0.5):
            made = plan(shape, layout=layout, kernel=kernel, kind=kind, adds_out=True)
            arrays = arrays_of(made, 7)
            judge(made, arrays, run_plan(made, arrays, alpha=-2.0, beta=0.5)["out"], -2.0, 0.5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", range(PROBLEMS // 5))
def test_one_layer_forward_and_backward_are_adjoint(number):
    """<conv(x, f), g> = <x, data(g, f)> = <f, filters(x, g)>: no reference has to be right."""
    rng = random.Random(4711 + number)
    s, layout = draw(rng), rng.choice(LAYOUTS)
    options = dict(stride=s.stride, padding=s.padding, dilation=s.dilation, groups=s.groups, layout=layout)
    g, f, x = (arrays_of(plan(s, layout=layout, kind=kind), rng.randrange(2**32))[role]
               for kind, role in (("data", "gradients"), ("data", "filters"), ("filters", "images")))

    def dot(a, b):
        products = a.astype(float).ravel() * b.ravel()
        return products.sum(), abs(products).sum()

    (forward, size), (through_data, _), (through_filters, _) = (
        dot(conv_fprop(x, f, **options), g), dot(x, conv_bprop_data(g, f, (s.H, s.W), **options)),
        dot(f, conv_bprop_filters(x, g, (s.R, s.S), **options)))
    assert abs(through_data - forward) <= 1e-5 * size and abs(through_filters - forward) <= 1e-5 * size, s


@pytest.mark.sampled(1)
@BOTH
@pytest.mark.parametrize("number", range(max(2, PROBLEMS // 50)))
def test_the_same_bits_in_every_run(number, kind):
    rng = random.Random(number)
    made = plan(draw(rng), layout=rng.choice(LAYOUTS), kind=kind)
    arrays = arrays_of(made, 3)
    first = call(made, arrays)
    assert all(np.array_equal(first, call(made, arrays, deterministic=False)) for _ in range(2))
    assert np.array_equal(first, call(made, arrays, device=VirtualGpu()))


@BOTH
def test_a_call_without_a_plan_takes_the_layer_from_its_arguments(kind):
    s = ConvShape(3, 4, 9, 7, 6, 3, 2, (2, 1), (1, 2), (1, 2), 2)
    for layout in LAYOUTS:
        made = plan(s, layout=layout, kind=kind)
        arrays = arrays_of(made, 5)
        function, size = (conv_bprop_data, (s.H, s.W)) if kind == "data" else (conv_bprop_filters, (s.R, s.S))
        given = [arrays[role] for role in KINDS[kind]]
        out = function(*given, size, stride=s.stride, padding=s.padding, dilation=s.dilation, groups=s.groups,
                       layout=layout)
        assert np.array_equal(out, call(made, arrays))
        # and at an address where no texture may begin
        odd = [np.empty(a.size + 1, np.float32)[1:].reshape(a.shape) for a in given]
        for there, here in zip(odd, given, strict=True):
            there[...] = here
        again = function(*odd, size, stride=s.stride, padding=s.padding, dilation=s.dilation, groups=s.groups,
                         layout=layout)
        judge(made, arrays, again)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(5, 7, 9, 64), (3, 40, 40, 128), (70, 9, 16, 40), (1, 1, 1, 1), (2, 1, 1, 5000)])
def test_gradients_of_a_bias_are_sums(size, layout):
    gradients = np.random.default_rng(1).uniform(-1, 1, size).astype(np.float32)
    axes, k = ((1, 2, 3), size[0]) if layout == "CHWN" else ((0, 2, 3), size[1])
    want, terms = gradients.sum(axes, dtype=float), abs(gradients).sum(axes, dtype=float)
    out, intact = guarded((k,))
    assert conv_bprop_bias(gradients, layout=layout, out=out) is out and intact()
    assert (abs(out - want) < TOLERANCE * terms).all()
    added = conv_bprop_bias(gradients, layout=layout, alpha=-2.0, beta=0.5, out=out.copy())
    assert (abs(added - (0.5 * out - 2 * want)) < TOLERANCE * (2 * terms + abs(out))).all()
    assert np.array_equal(out, conv_bprop_bias(gradients, layout=layout))


@pytest.mark.sampled(1)
@BOTH
def test_nan_and_infinity_reach_only_what_they_belong_to(kind):
    """What does not exist must not be met as zero times something."""
    s = ConvShape(2, 9, 5, 5, 5, 3, 3, 1, 1)
    for kernel in served(s, "CHWN", kind):
        if kernel.startswith(("winograd", "blocks")):
            continue  # promise less: tests/algorithms/test_winograd.py and below
        made = plan(s, kernel=kernel, kind=kind)
        arrays = {role: np.ones(size, np.float32) for role, size in made.array_shapes().items()}
        arrays["gradients"][2, 0, 0, 0] = np.nan
        out = call(made, arrays)
        if kind == "data":
            assert np.isnan(out[:, :2, :2, 0]).all() and np.isfinite(out[:, 2:]).all()
            assert np.isfinite(out[..., 1]).all()
        else:
            assert np.isnan(out[:, 1:, 1:, 2]).all() and np.isfinite(out[..., [0, 1, 3, 4]]).all()


X, F, G = (np.ones(size, np.float32) for size in ((4, 6, 5, 8), (4, 3, 2, 6), (6, 4, 4, 8)))


@pytest.mark.parametrize(("what", "message"), [
    (lambda: conv_bprop_data(G, F, (7, 5)), "gradients must have for N8 C4 7x5 -> K6, filter 3x2 shape (6, 5, 4, 8)"),
    (lambda: conv_bprop_data(G[:5], F, (6, 5)), "gradients and filters must have the same number of filters K"),
    (lambda: conv_bprop_data(G, F, 6), "size must be a pair, rows and columns of the images (got 6)"),
    (lambda: conv_bprop_data(G, F, (6,)), "size must be one integer or a pair (rows, columns) (got size=(6,))"),
    (lambda: conv_bprop_data(G, F, (0, 5)), "size must be at least 1 (got size=0)"),
    (lambda: conv_bprop_data(G, F, (6, 5), groups=7), "groups must divide K (got groups=7, K=6)"),
    (lambda: conv_bprop_data(G, F, (6, 5), layout="NHWC"), "layout must be one of CHWN, NCHW (got 'NHWC')"),
    (lambda: conv_bprop_data(G, F, (6, 5), deterministic=1), "deterministic must be True or False (got 1)"),
    (lambda: conv_bprop_data(G, F, (6, 5), beta=1.0), "out must be given for a beta other than 0"),
    (lambda: conv_bprop_data(G, F, (6, 5), out=G), "out must have shape (4, 6, 5, 8) (got (6, 4, 4, 8))"),
    (lambda: conv_bprop_data(G, F, (6, 5), plan=plan(ConvShape(8, 4, 6, 5, 6, 3, 2))),
     """plan must come from maxdnn.plan(.., kind="data") (got one of kind 'forward')"""),
    (lambda: conv_bprop_data(G, F, (6, 6), plan=plan(ConvShape(8, 4, 6, 5, 6, 3, 2), kind="data")),
     "size must be the plan's (6, 5) (got (6, 6))"),
    (lambda: conv_bprop_data(G, F, (6, 5), padding=1, plan=plan(ConvShape(8, 4, 6, 5, 6, 3, 2), kind="data")),
     "layout, algorithm, max_error, max_workspace_bytes and arithmetic are the plan's own"),
    (lambda: conv_bprop_data(G, F, (6, 5), algorithm="fourier"),
     "algorithm must be one of auto, direct, winograd, fft (got"),
    (lambda: conv_bprop_filters(X, G, (3, 2), max_error=0), "max_error must be a positive number (got 0)"),
    (lambda: conv_bprop_filters(X, G[..., :7].copy(), (3, 2)), "images and gradients must have the same number of"),
    (lambda: conv_bprop_filters(X, G, (3, 3)), "must have for N8 C4 6x5 -> K6, filter 3x3 shape (6, 4, 3, 8)"),
    (lambda: conv_bprop_filters(X, G, (9, 2)), "R must be at most H + 2 x padding = 6"),
    (lambda: conv_bprop_filters(X, G, (3, 2), out=X), "out must have shape (4, 3, 2, 6) (got (4, 6, 5, 8))"),
    (lambda: conv_bprop_filters(X, G, (3, 2), groups=0), "groups must be at least 1"),
    (lambda: conv_bprop_filters(X.astype(float), G, (3, 2)), "images must be float32"),
    (lambda: conv_bprop_bias(G[0]), "gradients must have 4 axes (got 3: shape (4, 4, 8))"),
    (lambda: conv_bprop_bias(G, layout="x"), "layout must be one of CHWN, NCHW (got 'x')"),
    (lambda: conv_bprop_bias(G, out=np.ones(5, np.float32)), "out must have shape (6,) (got (5,))"),
    (lambda: plan(ConvShape(8, 4, 6, 5, 6, 3, 2), kind="both"), "kind must be one of forward, data, filters (got"),
    (lambda: plan(ConvShape(8, 4, 6, 5, 6, 3, 2), kind="data", bias=True), "bias and activation must be left out for"),
    (lambda: plan(ConvShape(8, 4, 6, 5, 6, 3, 2), kind="data", copy_images=True), "copy_images must be left out for"),
])
def test_what_does_not_fit_is_an_error_that_names_it(what, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        what()


def test_gradients_that_begin_anywhere_are_copied_if_a_plan_says_so():
    s = ConvShape(8, 4, 6, 5, 6, 3, 2)
    for kind in KINDS:
        made = plan(s, kind=kind, copy_gradients=True)
        memory = np.ones(G.size + 1, np.float32)
        arrays = {"gradients": memory[1:].reshape(G.shape), "images": X, "filters": F}
        judge(made, {role: arrays[role] for role in KINDS[kind]}, call(made, arrays))


def test_nan_stays_in_the_blocks_whose_windows_it_lies_in():
    s = ConvShape(2, 3, 40, 40, 5, 3, 3, 1, 1)
    name = next(x for x in served(s, "CHWN", "data") if x.startswith("blocks_4x4"))
    gradients = np.ones((5, 40, 40, 2), np.float32)
    gradients[2, 20, 20, 0] = np.nan
    made = plan(s, kernel=name, kind="data")
    out = conv_bprop_data(gradients, np.ones((3, 3, 3, 5), np.float32), (40, 40), plan=made)
    assert np.isnan(out[:, 19:22, 19:22, 0]).all() and np.isfinite(out[..., 1]).all()
    lost = np.argwhere(np.isnan(out[0, :, :, 0]))
    assert lost.min() >= 20 - 5 and lost.max() <= 20 + 5


def test_first_layers_are_computed_by_blocks_of_pixels():
    for layer in LAYERS:
        if layer.name in ("conv1", "L1"):
            for layout in LAYOUTS:
                made = plan(layer.shape, layout=layout, kind="data")
                assert made.family == "blocks" and "of their taps are the layer's" in made.explain()


def test_terms_of_long_sums_are_added_in_parts():
    made = plan(ConvShape(128, 3, 64, 64, 8, 3, 3, 1, 1), kind="filters")
    assert "added in a fixed order" in made.explain()
    assert 8 * made.passes[0].numbers["share"] <= 32768


def test_they_are_exported():
    assert {"conv_bprop_bias", "conv_bprop_data", "conv_bprop_filters"} <= set(maxdnn.__all__)
