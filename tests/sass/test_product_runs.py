"""Sums of products in runs, of every product kernel: whatever edges, batch and length of runs are, the result is right,
nothing else is written, and errors shrink as is documented."""

import os
import re

import numpy as np
import pytest

from maxdnn.algorithms.gemm import plan as family
from maxdnn.algorithms.gemm.maxwell import LAYOUTS
from maxdnn.algorithms.winograd.toomcook import in_parts
from maxdnn.build.cubins import asset, cubin
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.plan import make
from maxdnn.problem.operands import view
from maxdnn.problem.problem import product
from maxdnn.problem.shape import ProductShape
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from maxdnn.runtime.devices.protocol import Texture
from tests.contract import run_plan

from .machine_code import built, issue_slots

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "28"))
SPECS = (*family.KERNELS, *family.NATIVE)
GUARD = np.float32(-7.25)


def planned(spec, m, n, k, batch, run):
    """The kernel's product of stacks of matrices, sums of `run` products at a time."""
    ta, tb = (x == "t" for x in spec.layout)
    problem = product((batch, *((k, m) if ta else (m, k))), (batch, *((n, k) if tb else (k, n))), transpose_a=ta,
                      transpose_b=tb)
    a, b = (family.Matrices(role, problem.shapes[role][2], int(np.prod(problem.shapes[role][1:]))) for role in "ab")
    launches = family.multiply(spec, ProductShape(m, n, k, batch), a, b, family.Matrices("out", n, m * n), vectors=True,
                               run=run)
    return make(problem, "product", spec, launches, {})


def multiplied(plan, a, b):
    """The result, written between guards, and the memory around it."""
    shape = plan.problem.shapes["out"]
    size = int(np.prod(shape))
    memory = np.full(size + 64, GUARD)
    out = memory[32:32 + size].reshape(shape)
    arrays = {"a": a, "b": b, "out": out}
    engine.run(plan, {role: view(role, x, rank=3) for role, x in arrays.items()}, {"alpha": np.float32(1)}, find.host())
    assert (memory[:32] == GUARD).all() and (memory[32 + size:] == GUARD).all()
    return out


def operands(plan, draw):
    return [draw(plan.problem.shapes[role]).astype(np.float32) for role in "ab"]


def exact(spec, a, b):
    ta, tb = (x == "t" for x in spec.layout)
    x, y = (np.swapaxes(v, -1, -2) if turned else v for v, turned in ((a.astype(float), ta), (b.astype(float), tb)))
    return x @ y


@pytest.mark.sampled(1, 8)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_runs_of_any_length_add_up(seed):
    """Of small integers, whose sums are exact."""
    rng = np.random.default_rng(seed)
    spec = SPECS[seed % len(SPECS)]
    m, n, k = 4 * int(rng.integers(1, 50)), 4 * int(rng.integers(1, 50)), 4 * int(rng.integers(2, 40))
    run = 8 * int(rng.integers(1, 6))
    plan = planned(spec, m, n, k, int(rng.integers(1, 4)), run)
    a, b = operands(plan, lambda shape: rng.integers(-9, 10, shape))
    assert np.array_equal(multiplied(plan, a, b), exact(spec, a, b))
    assert np.array_equal(run_plan(plan, {"a": a, "b": b}, alpha=1.0)["out"].reshape(plan.problem.shapes["out"]),
                          exact(spec, a, b))


def rms(spec, run):
    """Of the errors of sums of 512 products, so many at a time."""
    plan = planned(spec, 96, 64, 512, 1, run)
    rng = np.random.default_rng(1)
    a, b = operands(plan, lambda shape: rng.uniform(-1, 1, shape))
    return np.sqrt(((multiplied(plan, a, b) - exact(spec, a, b))**2).mean())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.slices == 1], ids=lambda spec: spec.name)
def test_errors_shrink_as_is_documented(spec):
    whole = rms(spec, 0)
    assert rms(spec, 256) < in_parts(512, 256) * whole and rms(spec, 64) < in_parts(512, 64) * whole


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_are_such_parts(layout):
    one, two, four = (next(x for x in family.NATIVE if (x.tile, x.slices, x.layout) == (64, slices, layout))
                      for slices in (1, 2, 4))
    whole = rms(one, 0)
    assert rms(two, 0) < in_parts(512, 256) * whole and rms(four, 0) < in_parts(512, 128) * whole


def slots_of(spec, run):
    """Issue slots of each warp of a full tile of 32 products each, so many at a time."""
    plan = planned(spec, spec.tile, spec.tile, 32, 1, run)
    (launch,) = plan.launches
    gpu = VirtualGpu()
    buffers = {role: gpu.alloc(4 * int(np.prod(shape))) for role, shape in plan.array_shapes().items()}
    places = {role: (b.address, b.nbytes) for role, b in buffers.items()}
    found = []
    gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52")).function(spec.name).trace(
        launch.grid, launch.block, launch.arguments(places, {"alpha": np.float32(1)}), blocks=[(0, 0, 0)],
        on_warp=found.append, textures={name: Texture(*place) for name, place in launch.bound(places).items()})
    code = built(spec).instructions
    (slots,) = {issue_slots([code[first + i] for first, count in trace.runs.tolist() for i in range(count)])
                for trace in found}
    return slots


@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("spec", family.KERNELS, ids=lambda spec: spec.name)
def test_a_warp_takes_the_issue_slots_between_runs_that_plans_are_ranked_by(spec):
    """As many as the comment budgets, too."""
    one, two, four = (slots_of(spec, run) for run in (0, 16, 8))
    assert (two - one, four - two) == (spec.between[0], 2 * spec.between[1])
    text = (asset("sass") / "maxwell/product_runs.inc").read_text()
    figures = re.search(r"second run (\d+) and (\d+), .*\n# included, for each one more (\d+) and (\d+), .* operand "
                        r"(\d+) and (\d+) more", text)
    second, more, turned = (int(x) for x in figures.groups()[spec.tile == 64::2])
    turned *= (spec.layout[0] == "n") + (spec.layout[1] == "t")
    assert spec.between == (second + turned, more + turned)


def test_what_has_an_ending_has_no_runs():
    with pytest.raises(AssertionError):
        family.multiply(SPECS[0], ProductShape(8, 8, 64, 1), family.Matrices("a", 64, 0), family.Matrices("b", 8, 0),
                        family.Matrices("out", 8, 0), vectors=False, run=32)
