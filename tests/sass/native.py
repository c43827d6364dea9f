"""What the tests of direct convolutions in machine code of sm_90 share."""

import functools

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_cubin
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import ShapeError
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.select import choose
from maxdnn.problem.operands import view
from maxdnn.runtime import engine
from tests.contract import run_plan

from .machine_code import main_loop

H200 = Chip("NVIDIA H200", 132, 2400.0, runs_maxwell=False, arch="sm_90")
ANOTHER = Chip("another", 108, 1000.0, runs_maxwell=False, arch="sm_52")
GUARD = np.float32(-7.25)
BY_FFMA = {"algorithm": "direct", "arithmetic": "ffma"}
"""Terms of a choice among kernels that convolve without tensor cores."""


@functools.cache
def seen_as(arch):
    """The virtual GPU as a chip of an architecture, whose machine code it takes."""
    gpu = VirtualGpu()
    gpu.chip = Chip(f"virtual {arch}", 68, 200.0, runs_maxwell=False, arch=arch)
    return gpu


def run(plan, problem, rng, device, gap=32):
    """The result, between guards, and what it should be."""
    given = {role: rng.uniform(-1, 1, shape).astype(np.float32) for role, shape in plan.array_shapes().items()
             if role != "out"}
    shape = problem.shapes["out"]
    size = int(np.prod(shape))
    memory = np.full(size + 64, GUARD)
    out = memory[gap:gap + size].reshape(shape)
    out[...] = rng.uniform(-1, 1, shape) if problem.reads_out else np.nan
    before = out.copy()
    scalars = {"alpha": 1.5} | ({"beta": 0.5} if problem.reads_out else {})
    views = {role: view(role, array, rank=None) for role, array in (given | {"out": out}).items()}
    engine.run(plan, views, {name: np.float32(x) for name, x in scalars.items()}, device)
    assert (memory[:gap] == GUARD).all() and (memory[gap + size:] == GUARD).all()
    told = run_plan(plan, given | ({"out": before} if problem.reads_out else {}), **scalars)["out"].reshape(shape)
    return out, told


def check_taken_there_alone(problem, kernels) -> None:
    """Where machine code of sm_90 runs it is chosen for the problem of all that sums by FFMA, and nowhere else."""
    plan = choose(problem, H200, **BY_FFMA)
    assert plan.spec in kernels and plan.spec.name in plan.explain()
    assert not choose(problem, preset(), algorithm="direct").archs
    with pytest.raises(ShapeError, match="machine code of sm_90, which another does not run"):
        choose(problem, ANOTHER, plan.spec.name)


def check_code(source, kernels) -> None:
    """No finding of the checker, and loops as long as the estimate takes them for, all else but their FFMA counted."""
    image = built(source, "sm_90")
    assert all(report.clean for report in check_cubin(image))
    for kernel in cubin.read(image).kernels.values():
        spec = next(spec for spec in kernels if spec.name == kernel.name)
        loop = main_loop(kernel)
        assert len(loop) == spec.slots[0], spec.name
        assert sum(inst.opcode == "FFMA" for inst in loop) == (768 if spec.tile[1] == 96 else 1024)
