"""The test of the house: a family that is added with one module, one source and one line is planned, run on the virtual
GPU, timed and translated like any other, and its kernel is held to its contract."""

import numpy as np
import pytest

from maxdnn.algorithms import registry
from maxdnn.build.cubins import cubin
from maxdnn.checker import check_cubin
from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import ShapeError
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.operands import view
from maxdnn.ptx.translate import translate
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from maxdnn.runtime.devices.protocol import Texture
from tests.contract import run_plan
from tests.toy import scale

COUNT = 1000


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setattr(registry, "FAMILIES", (*registry.FAMILIES, scale.FAMILY))  # the one line
    return choose(scale.problem(COUNT), preset())


def binary(plan):
    return cubin(plan.spec.source.removesuffix(".sass"), "sm_52")


def test_it_is_planned_and_explained(plan):
    assert plan.explain() == ("scale of x (1000,), y (1000,)\n"
                              "sscale: 8 x 1 x 1 blocks of 128 threads, one element a thread\nworkspace 0.0 MiB\n"
                              "chosen by estimate for gm204")
    assert registry.kernels()["sscale"] is scale.SCALE
    assert plan.clocks(preset()) > 0


def test_it_runs_as_its_contract_says(plan):
    x = np.linspace(-3, 7, COUNT, dtype=np.float32)
    y = np.full(COUNT + 8, np.float32(-7.25))
    given = {"x": view("x", x, rank=1), "y": view("y", y[:COUNT], rank=1)}
    engine.run(plan, given, {"factor": np.float32(2.5)}, find.host())
    assert (y[COUNT:] == -7.25).all()
    assert np.array_equal(y[:COUNT], run_plan(plan, {"x": x}, factor=2.5)["y"])
    assert np.array_equal(y[:COUNT], np.float32(2.5) * x)


def test_it_is_timed(plan):
    from maxdnn.simulator import timing

    gpu = VirtualGpu()
    buffers = {role: gpu.alloc(4 * COUNT) for role in plan.problem.roles}
    places = {role: (b.address, b.nbytes) for role, b in buffers.items()}
    (launch,) = plan.launches
    textures = {name: Texture(*place) for name, place in launch.bound(places).items()}
    result = timing.launch(gpu.load(binary(plan)).function(launch.spec.name), launch.grid, launch.block,
                           launch.arguments(places, {"factor": np.float32(2)}), textures=textures)
    assert 100 < result.cycles < 100_000


def test_it_is_translated_and_safe(plan):
    assert ".entry sscale" in translate(read(binary(plan)), "sm_90")
    assert all(report.ok for report in check_cubin(binary(plan)))


def test_without_its_line_nobody_knows_it():
    with pytest.raises(ShapeError, match=r"must be one of bias, data, filters, forward, product \(got 'scale'\)"):
        choose(scale.problem(COUNT), preset())
