"""The time of Winograd's transforms in simulation, beside a copy of as many bytes; and the rows on file."""

import dataclasses
import functools
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.winograd.toomcook import TABLE
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.cost import preset
from maxdnn.planning.select import plan
from maxdnn.simulator import timing
from tests import oracles
from tests.algorithms.test_families import LAYOUTS

COPY = r"""
extern "C" __global__ void __launch_bounds__(256) copy(float4 *to, const float4 *from, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = from[i];
}
"""


@functools.cache
def clocks_of_a_copy(nbytes):
    """Simulated, of a copy that reads and writes so many bytes altogether, 16 at a time."""
    gpu, texels = VirtualGpu(), nbytes // 32
    copy = gpu.load(oracles.compile_cuda(COPY)).function("copy")
    to, source = gpu.alloc(16 * texels), gpu.alloc(16 * texels)
    return timing.launch(copy, (-(-texels // 256), 1, 1), (256, 1, 1), [to.address, source.address,
                                                                       np.int32(texels)]).cycles


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("points", TABLE, ids=lambda p: f"F({p.outputs},{p.taps})")
def test_transforms_run_at_three_quarters_of_the_rate_of_a_copy(points, layout):
    """In simulation, of one that moves as many bytes, by the same simulator; and at that of what memory can."""
    m, r = points.outputs, points.taps
    padding = min(len(points.errors) - 1, r // 2)
    shape = ConvShape(64, 32, 24, 24, 64, r, r, 1, padding)  # maps that the cache does not hold
    many = ConvShape(1, 192, 8, 8, 192, r, r)  # filters
    for s, steps in ((shape, ("maps", "out")), (many, ("filters",))):
        made = plan(s, layout=layout, kernel=f"winograd_{m}x{m}_{r}x{r}_64")
        for launch in made.launches:
            if getattr(launch.spec, "step", None) not in steps:
                continue
            (one,) = timing.call(dataclasses.replace(made, launches=(launch,))).launches
            copy = clocks_of_a_copy(int(launch.work.nbytes))
            rate = launch.work.nbytes / one.clocks
            print(f"{one.kernel} {launch.work.nbytes / 1e6:.1f} MB {one.clocks} clocks, of a copy {copy}")
            assert copy > 0.75 * one.clocks, one.kernel
            if s is shape:
                assert rate > 0.75 * preset().dram_bytes_per_clock, f"{one.kernel}: {rate:.1f} bytes a clock"
                assert launch.work.clocks(preset()) == pytest.approx(one.clocks, rel=0.25)


@pytest.mark.long
def test_the_simulated_layers_on_file_are_of_these_kernels():
    """One of each kind, within 2 %: a row of the ten layers takes too long."""
    folder = Path(__file__).parents[2] / "benchmarks"
    spec = importlib.util.spec_from_file_location("winograd_layers", folder / "winograd_layers.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    text = (folder / "results" / "winograd_layers.txt").read_text()
    ce, _ = bench.simulated_product(1024)
    assert float(re.search(r"^1024 +(\S+)", text, re.M)[1]) == pytest.approx(ce, rel=0.02)
    milliseconds, _ = bench.simulated_vgg_e(1, 8)  # four times in the network; N = 1 comes first
    found = re.search(r"^512 -> 512, 14 x 14.* (\S+) ms", text, re.M)[1]
    assert 4 * float(found) == pytest.approx(milliseconds, rel=0.02)
