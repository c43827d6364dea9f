"""Maps and filters whose channels lie innermost, by what the families promise for their kernels: every candidate, on
Maxwell and on sm_90, against float64, written so, too; and what is read as it lies."""

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plans
from maxdnn.problem.operands import view
from maxdnn.problem.problem import PASSES, channels_last
from maxdnn.reference import conv_reference
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.contract import run_plan
from tests.gradients import gradient

H200 = preset("h200")
SHAPES = [ConvShape(2, 64, 3, 4, 36, 1, 1, 1, 0), ConvShape(2, 64, 5, 4, 32, 3, 3, 1, 1),
          ConvShape(1, 64, 6, 5, 32, 3, 3, 2, 1), ConvShape(2, 6, 5, 5, 6, 3, 3, 1, 1, 1, 6)]


def asked(kind, shape, roles=None, **how):
    """The problem with these operands (all if None) of such strides."""
    problem = PASSES[kind](shape, layout="NCHW", **how)
    for o in problem.operands:
        if (o.role != "bias" and roles is None) or o.role in (roles or ()):
            problem = problem.with_strides(o.role, channels_last(o.shape))
    return problem


def inside(x):
    """An array of N,C,H,W with memory as N,H,W,C has it."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)


def outside(x):
    n, c, h, w = x.shape
    return x.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def ours(x):
    """N,C,H,W as C,H,W,N; K,C,R,S as C,R,S,K."""
    return x.transpose(1, 2, 3, 0)


def truth(shape, kind, given):
    """(result, sums of |terms|)."""
    images, filters, gradients = (None if role not in given else ours(given[role]).astype(float)
                                  for role in ("images", "filters", "gradients"))
    if kind == "forward":
        found = conv_reference(images, filters, stride=shape.stride, padding=shape.padding, groups=shape.groups)
    else:
        found = gradient(shape, kind, images, filters, gradients)
    expected, magnitude = (x.transpose(3, 0, 1, 2) for x in found)
    if "bias" in given:
        expected, magnitude = (x + abs(given["bias"])[:, None, None] for x in (expected, magnitude))
    return expected, magnitude


@pytest.mark.parametrize("kind", PASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_candidate_is_right(shape, kind):
    rng = np.random.default_rng(0)
    more = {"bias": shape.stride == (1, 1) and shape.R == 3} if kind == "forward" else {}
    for adds in (False, True):
        problem = asked(kind, shape, reads_out=adds, **more)
        given = {o.role: rng.uniform(-1, 1, o.shape).astype(np.float32) for o in problem.operands
                 if o.role != "out" or adds}
        if "bias" in given:
            given["bias"] = abs(given["bias"])
        expected, magnitude = truth(shape, kind, given)
        if adds:
            expected, magnitude = expected + 0.5 * given["out"], magnitude + abs(0.5 * given["out"])
        lying = {role: x if role == "bias" else inside(x) for role, x in given.items()}
        for chip in (preset(), H200):
            for name, plan in plans(problem, chip).items():
                out = outside(run_plan(plan, lying, alpha=1.0, **({"beta": 0.5} if adds else {}))["out"])
                assert (abs(out - expected) <= plan.error * magnitude + 1e-30).all(), name


def kernels(problem):
    return [launch.spec.name for launch in choose(problem, H200).launches]


@pytest.mark.parametrize(("kind", "roles"), [("forward", ("images", "out")), ("data", ("gradients", "out"))])
def test_a_convolution_of_one_tap_is_one_product_of_what_lies_there(kind, roles):
    for channels in ((256, 64), (64, 256)):
        problem = asked(kind, ConvShape(32, channels[0], 56, 56, channels[1], 1, 1), roles)
        assert "channels_last" in choose(problem, H200).name
        assert "stranspose" not in kernels(problem)


def test_tensor_cores_read_maps_as_they_lie():
    """What is written is turned behind them; gradients of filters of one tap are written as they are to lie."""
    strided = ConvShape(32, 512, 28, 28, 1024, 1, 1, 2)
    for kind, roles, last in (("forward", ("images", "out"), ["stranspose"]),
                              ("data", ("gradients", "out"), ["stranspose"]), ("filters", ("images", "gradients"), [])):
        names = kernels(asked(kind, strided, roles))
        assert any("tensor" in name for name in names) and [n for n in names if n == "stranspose"] == last


def test_a_plan_says_what_is_turned_and_the_output_comes_last():
    plan = choose(asked("forward", ConvShape(32, 96, 28, 28, 96, 3, 3, 1, 1, 1, 96), ("images", "out")), H200)
    assert "channels lie innermost in images and out" in plan.explain()
    assert plan.launches[-1].writes == ("out",) and plan.launches[-1].spec.name == "stranspose"


def test_other_strides_of_results_stay_refused():
    problem = PASSES["forward"](SHAPES[0], layout="NCHW")
    with pytest.raises(ShapeError, match="C-contiguous"):
        choose(problem.with_strides("out", (1000, 20, 5, 1)), preset())


TAP, NINE = ConvShape(2, 64, 4, 5, 32, 1, 1), ConvShape(2, 64, 5, 4, 48, 3, 3, 1, 1)


@pytest.mark.parametrize(("kind", "shape", "family"), [
    ("forward", TAP, "product of channels"), ("data", TAP, "product of channels"), ("forward", NINE, "tensor pixels"),
    ("data", NINE, "tensor pixels"), ("filters", NINE, "tensor filters"), ("filters", TAP, "tensor filters"),
    ("data", ConvShape(2, 32, 5, 6, 64, 3, 3, 2, 1), "tensor phases"), ("forward", NINE, "pixels")], ids=str)
def test_kernels_run_on_arrays_where_they_lie(kind, shape, family):
    """On the virtual GPU, into a view whose channels lie innermost; maps are not turned."""
    rng = np.random.default_rng(0)
    problem = asked(kind, shape)
    arrays = {o.role: outside(inside(rng.uniform(-1, 1, o.shape).astype(np.float32))) for o in problem.operands}
    given = {role: view(role, x, strided=True) for role, x in arrays.items()}
    expected, magnitude = truth(shape, kind, {role: x for role, x in arrays.items() if role != "out"})
    found = {name: plan for chip in (preset(), H200) for name, plan in plans(problem, chip).items()
             if plan.family == family}
    assert found
    for name, plan in list(found.items())[:4]:
        arrays["out"][:] = np.nan
        engine.run(plan, given, {"alpha": np.float32(1)}, find.host(), None)
        assert (abs(arrays["out"] - expected) <= plan.error * magnitude).all(), name
        turned = {str(x.values["src"]) for x in plan.launches if x.spec.name == "stranspose"}
        assert not turned & {"images", "gradients"}, name
