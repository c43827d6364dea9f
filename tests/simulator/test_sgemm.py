"""SGEMM in the manner of the public 64 x 64 kernel: its product, and the figures that the ledger tells of it."""

import re
from pathlib import Path

import numpy as np
import pytest

from maxdnn.build.assemble import assemble
from maxdnn.checker import check_hazards
from maxdnn.cubin import read
from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.runtime.devices.protocol import Texture
from maxdnn.simulator import timing
from maxdnn.simulator.machine import preset

HERE = Path(__file__).parent
LEDGER = HERE.parents[1] / "docs" / "calibration.md"


@pytest.fixture(scope="module")
def sgemm(tmp_path_factory):
    path = tmp_path_factory.mktemp("sgemm") / "sgemm.cubin"
    assemble(HERE / "sgemm_64x64.sass", path, arch="sm_52", include=[HERE.parents[1] / "sass" / "maxwell"])
    return path.read_bytes()


def placed(cubin, m, n, k, alpha=1.0):
    """(gpu, function, buffer of A and B, C, grid, arguments, textures)."""
    gpu = VirtualGpu()
    ab, c = gpu.alloc(4 * k * (m + n)), gpu.alloc(4 * m * n)
    args = [c, k * m // 4, m // 4, n // 4, n, k, np.float32(alpha)]
    return (gpu, gpu.load(cubin).function("sgemm_64x64"), ab, c, (n // 64, m // 64, 1), args,
            {"ab": Texture(ab.address, ab.nbytes)})


def test_its_control_codes_are_safe_and_its_product_is_right(sgemm):
    report = check_hazards(read(sgemm).kernel("sgemm_64x64"))
    assert not (report.findings or report.warnings)
    m, n, k = 192, 128, 72
    gpu, function, ab, c, grid, args, textures = placed(sgemm, m, n, k, 0.5)
    rng = np.random.default_rng(64)
    a, b = rng.integers(-9, 10, (k, m)).astype(np.float32), rng.integers(-9, 10, (k, n)).astype(np.float32)
    gpu.upload(ab, np.concatenate([a.ravel(), b.ravel()]))
    function.launch(grid, (64, 1, 1), args, textures=textures)
    found = np.empty((m, n), np.float32)
    gpu.download(c, found)
    assert np.array_equal(found, 0.5 * (a.T @ b))


def test_the_ledger_tells_what_the_turn_costs_a_grid_of_two_waves(sgemm):
    text = LEDGER.read_text().split("## A short grid")[1].split("\n## ")[0]
    told = dict(re.findall(r"^\| (the next in turn|the oldest)[^|]*\| ([\d.]+) \|", text, re.M))
    gpu, function, *kept, grid, args, textures = placed(sgemm, 1024, 1024, 1024)
    gm204 = preset("gm204")
    work = timing.workload(function, grid, (64, 1, 1), args, machine=gm204, textures=textures, keep=False)
    for rule, stall in (("the next in turn", 3), ("the oldest", 16)):
        found = timing.simulated(work, function, (64, 1, 1), gm204.replace(turn_stall=stall))
        assert found.efficiency(2 * 1024 ** 3) == pytest.approx(float(told[rule]), abs=0.006), rule
    del kept, gpu  # till now
    assert gm204["turn_stall"] == 3
