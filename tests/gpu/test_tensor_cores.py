"""Products, convolutions and gradients of filters on the tensor cores of an H200: the very bits of the virtual GPU, on
random problems and on hard data."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.cost import preset
from maxdnn.planning.plan import FLOAT_BYTES, Plan
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, filters, forward, product
from maxdnn.runtime import engine
from tests.algorithms import test_tensor_convolutions as convolutions
from tests.algorithms import test_tensor_cores as products
from tests.algorithms import test_tensor_filters as gradients
from tests.algorithms import test_tensor_phases as phases
from tests.algorithms import test_tensor_windows as windows

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("hopper")]
GUARD = 64  # floats before and behind every array


def results(device: Any, plan: Plan, operands: dict[str, np.ndarray]) -> np.ndarray:
    """Launch by launch, each array in memory of its own, between guards, results and workspace poisoned."""
    sizes = {name: region.nbytes // FLOAT_BYTES for name, region in plan.workspace.items()}
    arrays = {name: np.full(size, np.nan, np.float32) for name, size in sizes.items()} | operands
    buffers = {}
    for name, array in arrays.items():
        guarded = np.full(array.size + 2 * GUARD, 3, np.float32)
        guarded[GUARD:-GUARD] = array.reshape(-1)
        buffers[name] = device.alloc(guarded.nbytes)
        device.upload(buffers[name], guarded)
    places = {name: (buffer.address + FLOAT_BYTES * GUARD, 0) for name, buffer in buffers.items()}
    for launch in plan.launches:
        function = engine.load(device, launch.spec).function(launch.spec.name)
        scalars = {"alpha": np.float32(-0.75), "beta": np.float32(1.5)}
        function.launch(launch.grid, launch.block, launch.arguments(places, scalars))
    for name, array in arrays.items():
        found = np.empty(array.size + 2 * GUARD, np.float32)
        device.download(buffers[name], found)
        assert (found[:GUARD] == 3).all() and (found[-GUARD:] == 3).all(), f"written beside {name}"
        if name == "out":
            out = found[GUARD:-GUARD]
    for buffer in buffers.values():
        buffer.free()
    return out.view(np.uint32)


def operands_of(problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {operand.role: rng.uniform(-1, 1, operand.shape).astype(np.float32) for operand in problem.operands}
    if not problem.reads_out:
        found["out"][:] = np.nan
    return found


@pytest.mark.parametrize("number", range(100, 160))
def test_random_problems_give_the_bits_of_the_virtual_gpu(device: Any, number: int) -> None:
    problem, rng = products.random_problem(number)
    plan = choose(problem, preset(), rng.choice(list(products.tensor_cores.candidates(problem, preset()))))
    given = operands_of(problem, np.random.default_rng(number))
    assert np.array_equal(results(device, plan, given), results(VirtualGpu(), plan, given))


@pytest.mark.parametrize("kind", products.DATA)
def test_hard_data_gives_the_bits_of_the_virtual_gpu(device: Any, kind: str) -> None:
    rng = np.random.default_rng(7)
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float32) for x in products.DATA[kind](rng, 150, 140, 300))
    plan = choose(product(a.shape, b.shape), preset(), products.NAME)
    given = {"a": a, "b": b, "out": np.full((150, 140), np.nan, np.float32)}
    assert np.array_equal(results(device, plan, given), results(VirtualGpu(), plan, given))


def test_twenty_runs_give_the_same_bits(device: Any) -> None:
    problem = product((1500, 1000), (1000, 1300))
    plan = choose(problem, preset(), products.NAME)
    given = operands_of(problem, np.random.default_rng(8))
    first = results(device, plan, given)
    assert all(np.array_equal(results(device, plan, given), first) for _ in range(19))


@pytest.mark.parametrize("number", range(200, 280))
@pytest.mark.parametrize("own", [convolutions, windows, phases], ids=["pixels", "windows", "phases"])
def test_random_convolutions_give_the_bits_of_the_virtual_gpu(device: Any, own: Any, number: int) -> None:
    problem, rng = own.some_problem(number)
    problem = replace(problem, operands=tuple(replace(o, strides=None) for o in problem.operands))
    plan = choose(problem, preset(), rng.choice(list(own.FAMILY.candidates(problem, preset()))))
    given = operands_of(problem, np.random.default_rng(number))
    assert np.array_equal(results(device, plan, given), results(VirtualGpu(), plan, given))


@pytest.mark.parametrize("kind", products.DATA)
@pytest.mark.parametrize("own", [convolutions, windows], ids=["pixels", "windows"])
def test_hard_convolutions_give_the_bits_of_the_virtual_gpu(device: Any, own: Any, kind: str) -> None:
    images, bank = own.hard(kind, np.random.default_rng(9))
    plan = choose(forward(own.LAYER, layout="NCHW"), preset(), own.NAME)
    given = {"images": images, "filters": bank, "out": np.full(plan.problem.shapes["out"], np.nan, np.float32)}
    assert np.array_equal(results(device, plan, given), results(VirtualGpu(), plan, given))


def test_twenty_runs_of_a_convolution_give_the_same_bits(device: Any) -> None:
    plan = choose(forward(ConvShape(32, 256, 14, 14, 384, 3, 3, padding=1), layout="NCHW"), preset(), convolutions.NAME)
    given = operands_of(plan.problem, np.random.default_rng(10))
    first = results(device, plan, given)
    assert all(np.array_equal(results(device, plan, given), first) for _ in range(19))


@pytest.mark.parametrize("number", range(300, 380))
def test_random_gradients_of_filters_give_the_bits_of_the_virtual_gpu(device: Any, number: int) -> None:
    problem, rng = gradients.some_problem(number)
    plan = choose(problem, preset(), rng.choice(list(gradients.tensor_cores.candidates(problem, preset()))))
    given = operands_of(problem, np.random.default_rng(number))
    assert np.array_equal(results(device, plan, given), results(VirtualGpu(), plan, given))


@pytest.mark.parametrize("kind", products.DATA)
def test_hard_gradients_of_filters_give_the_bits_of_the_virtual_gpu(device: Any, kind: str) -> None:
    images, of_out = gradients.hard(kind, np.random.default_rng(11))
    plan = choose(filters(gradients.LAYER, layout="NCHW"), preset(), gradients.NAME)
    given = {"images": images, "gradients": of_out, "out": np.full(plan.problem.shapes["out"], np.nan, np.float32)}
    assert np.array_equal(results(device, plan, given), results(VirtualGpu(), plan, given))


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_twenty_runs_of_a_gradient_of_filters_give_the_same_bits(device: Any, layout: str) -> None:
    problem = filters(ConvShape(32, 128, 28, 28, 256, 3, 3, padding=1), layout=layout)
    plan = choose(problem, preset(), f"{gradients.NAME}_split4")
    given = operands_of(problem, np.random.default_rng(12))
    first = results(device, plan, given)
    assert all(np.array_equal(results(device, plan, given), first) for _ in range(19))
