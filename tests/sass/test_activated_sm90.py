"""The FFMA kernels of sm_90 that apply activations in their epilogue, every one with each: right at odd sizes with bias
and beta, nothing written outside."""

from zlib import crc32

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.gemm.sm90 import NATIVE
from maxdnn.algorithms.implicit_gemm.sm90 import KERNELS as PIXELS
from maxdnn.algorithms.implicit_gemm.sm90 import OF_MATRICES
from maxdnn.algorithms.interior.sm90 import KERNELS as TAPS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.activations import ACTIVATIONS
from maxdnn.problem.problem import Problem, forward
from maxdnn.runtime.devices import find

from .native import run

KERNELS = (*PIXELS, *TAPS, *(spec for spec in NATIVE if spec.layout in ("nn", "tn")))


def problem(spec, odd: int, **epilogue) -> Problem:
    """More than a tile of a kernel along both axes, and no multiples of it; `odd`: also where vectors may not be
    stored."""
    filters = (spec.rows if spec in NATIVE else spec.tile[1]) + 5 + odd
    if spec in NATIVE:
        shape = ConvShape(3, 12, 4, 3 + 2 * spec.tile // 4, filters, 1, 1)
        layout = "NCHW" if spec.layout == "nn" else "CHWN"
        if layout == "CHWN":
            shape = ConvShape(4, 12, 5, 2 + spec.tile // 16, filters - filters % 4 + 4, 1, 1)
    elif spec in TAPS:
        shape, layout = ConvShape(132, 3 if spec.elements else 8, 3, 2, filters, 3, 3, 1, 1), "CHWN"
    elif spec in OF_MATRICES:
        shape, layout = ConvShape(3, 16, 7, 7, filters, 1, 1), "NCHW"
    else:
        shape, layout = ConvShape(3, 5 if spec.elements else 8, 7, 7, filters, 3, 3, 1, 1), "NCHW"
    return forward(shape, layout=layout, unaligned=("out",) * odd, **epilogue)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ACTIVATIONS[2:])
@pytest.mark.parametrize("spec", KERNELS, ids=lambda spec: spec.name)
def test_every_kernel_applies_each_activation_by_itself(spec, name: str) -> None:
    rng = np.random.default_rng(crc32(f"{spec.name} {name}".encode()))
    for odd, epilogue in ((0, {"reads_out": True}), (1, {"bias": True}), (1, {"bias": True, "reads_out": True})):
        one = problem(spec, odd, activation=name, **epilogue)
        plan = choose(one, preset(), spec.name)
        assert [launch.spec for launch in plan.launches if "out" in launch.writes] == [spec]
        out, told = run(plan, one, rng, find.host(), gap=32 - odd)
        assert np.allclose(out, told, rtol=2.0**-21, atol=3e-6 * (one.shape.C * one.shape.R * one.shape.S) ** 0.5)
