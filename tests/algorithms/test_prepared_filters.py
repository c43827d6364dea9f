"""Filters prepared once: the bits of an ordinary call, the plan they belong to, and no cost of theirs in ranks."""

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_fprop, prepare_filters
from maxdnn.planning.cost import preset
from maxdnn.planning.select import plan
from tests.algorithms.test_families import LAYOUTS
from tests.algorithms.test_winograd import WIDE


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [None, "winograd_4x4_3x3_128", "sconv_pixels_K64_J64_taps", "sconv_fprop_K64_N64"])
def test_prepared_filters_give_the_same_bits(kernel, layout):
    shape = ConvShape(6, 33, 7, 8, 10, 3, 3, 1, 1)
    plain = kernel == "sconv_fprop_K64_N64"  # has no fused bias
    made = plan(shape, layout=layout, kernel=kernel, bias=not plain, adds_out=not plain)
    data = np.random.default_rng(8)
    arrays = {role: data.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
    asked = {} if plain else dict(bias=arrays["bias"], beta=0.5, alpha=2.0)
    want = conv_fprop(arrays["images"], arrays["filters"], plan=made, out=arrays["out"].copy(), **asked)
    prepared = prepare_filters(arrays["filters"], made)
    assert prepared.nbytes == 4 * sum(np.prod(made.apart[1].problem.operand(n).shape) for n in prepared.arrays)
    if kernel == "winograd_4x4_3x3_128":
        assert list(prepared.arrays) == ["filter_planes"]
        assert not any("filters" in x.spec.name for x in made.apart[1].launches)
        assert made.apart[1].workspace_bytes < made.workspace_bytes
    for chosen in (made, None):
        found = conv_fprop(arrays["images"], prepared, plan=chosen, out=arrays["out"].copy(), **asked)
        assert np.array_equal(found, want)


def test_filters_a_plan_reads_as_they_lie_are_kept_as_they_are():
    made = plan(WIDE, kernel="sconv_taps_K64_N64")
    filters = np.zeros(made.array_shapes()["filters"], np.float32)
    prepared = prepare_filters(filters, made)
    assert prepared.arrays == {"filters": filters} or prepared.arrays["filters"] is filters
    assert made.apart == (None, made)


def test_prepared_filters_belong_to_their_plan():
    shape = ConvShape(4, 32, 8, 8, 8, 3, 3, 1, 1)
    one, other = (plan(shape, algorithm=a) for a in ("winograd", "direct"))
    images, filters = (np.zeros(one.array_shapes()[role], np.float32) for role in ("images", "filters"))
    prepared = prepare_filters(filters, one)
    with pytest.raises(ShapeError, match="filters were prepared for another plan"):
        conv_fprop(images, prepared, plan=other)
    with pytest.raises(ShapeError, match=r"images must have the plan's shape \(32, 8, 8, 4\) \(got \(32, 8, 8, 5\)\)"):
        conv_fprop(np.zeros((32, 8, 8, 5), np.float32), prepared)
    with pytest.raises(ShapeError, match=r"padding, .* are the plan's own"):
        conv_fprop(images, prepared, padding=1)
    with pytest.raises(ShapeError, match=r"filters must have the plan's shape \(32, 3, 3, 8\) \(got \(32, 3, 3, 4\)\)"):
        prepare_filters(filters[..., :4].copy(), one)
    with pytest.raises(ShapeError, match=r"plan must be that of a convolution, from maxdnn.plan \(got ConvShape\)"):
        prepare_filters(filters, shape)
    with pytest.raises(ShapeError, match="out must not overlap filter_planes"):
        conv_fprop(images, prepared, out=prepared.arrays["filter_planes"][:32 * 8 * 8].reshape(8, 8, 8, 4))


def test_prepared_filters_count_nothing_when_plans_are_ranked():
    """Four images of a deep layer: the planes of the filters are most of the traffic."""
    shape = ConvShape(4, 1024, 7, 7, 1024, 3, 3, 1, 1)
    whole, rest = plan(shape, layout="NCHW"), plan(shape, layout="NCHW", prepared_filters=True)
    assert rest.algorithm == "winograd"
    assert rest.apart[1].clocks(preset()) < whole.apart[1].clocks(preset())
    assert whole.clocks(preset()) <= rest.clocks(preset())
