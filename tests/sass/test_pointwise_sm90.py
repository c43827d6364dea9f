"""Filters of one tap and their gradients as native products of sm_90 on the virtual GPU: bias, activation and beta in
the kernel's own last step, nothing written outside."""

import os

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.gemm import pointwise
from maxdnn.algorithms.gemm.sm90 import NATIVE
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.activations import ACTIVATIONS
from maxdnn.problem.problem import data, forward
from maxdnn.runtime.devices import find

from .native import H200, run

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "8"))
SPECS = [spec for spec in NATIVE if spec.layout in ("nn", "tn")]


def random_problem(rng: np.random.Generator, layout: str):
    """Rows of both matrices begin with texels, whichever way round."""
    while True:
        kind = data if rng.integers(0, 3) == 0 else forward
        epilogue = {} if kind is data else {"bias": bool(rng.integers(0, 4)), "activation": rng.choice(ACTIVATIONS)}
        n, h, w = (int(rng.integers(1, most)) for most in (4, 9, 13))
        c, k = (int(rng.integers(1, most)) for most in (70, 160))
        problem = kind(ConvShape(n, c, h, w, k, 1, 1), layout=str(rng.choice(["NCHW", "CHWN"])),
                       reads_out=bool(rng.integers(0, 3) == 0), **epilogue)
        if pointwise.unsupported_reason(problem) is None and pointwise._product(problem)[1] == layout:
            return problem


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_random_layers_and_gradients_are_right_and_write_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = SPECS[seed % len(SPECS)]
    problem = random_problem(rng, spec.layout)
    names = [name for name in pointwise.candidates(problem, preset()) if name.split("_split")[0] == spec.name]
    plan = choose(problem, preset(), names[0] if seed % 3 else str(rng.choice(names)))
    assert plan.archs == ("sm_90",) and spec.name in plan.explain()
    out, told = run(plan, problem, rng, find.host())
    assert np.allclose(out, told, rtol=0, atol=3e-6 * max(problem.shape.C, problem.shape.K) ** 0.5), problem
    assert problem.activation not in ("relu", "relu6") or (out >= 0).all()


@pytest.mark.parametrize("images", [1, 8])
def test_machine_code_is_taken_where_it_runs_with_any_last_step(images: int) -> None:
    for shape in (ConvShape(images, 64, 56, 56, 64, 1, 1), ConvShape(images, 128, 28, 28, 512, 1, 1)):
        for epilogue in ({}, {"bias": True, "activation": "relu"}, {"bias": True, "activation": "silu"}):
            plan = choose(forward(shape, layout="NCHW", **epilogue), H200, arithmetic="ffma")
            assert plan.family == "pointwise" and plan.spec in NATIVE and len(plan.launches) == 1
        assert choose(data(shape, layout="NCHW"), H200, arithmetic="ffma").spec in NATIVE
        assert not choose(forward(shape, layout="NCHW"), preset()).archs
