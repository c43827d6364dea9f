"""The transforms of convolution by FFT as built: their slots, their arithmetic, what they fetch and store."""

from collections import Counter

import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.fft.maxwell import KERNELS, UNITS
from maxdnn.planning.select import plan

from .machine_code import accesses, built, issue_slots, path, shared_passes, trace_block

TRANSFORM = {16: 4 * 32 + 2 * 10, 24: 12 * 8 + 4 * 36 + 2 * 26, 32: 4 * 80 + 2 * 34}
"""Instructions of a complex one: 4 of a butterfly, 2 more where its factor is not 1 or i; with 24, 12 of each three."""


@pytest.fixture(scope="module", params=KERNELS, ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def warps(spec):
    """The traces of one block in the middle of a layer, where every tile and filter lies inside; no two of its threads
    race for shared memory."""
    taps = 21 if spec.step == "large" else 5
    size = 4 * (spec.side + 1 - taps) + taps - 1
    kind, by = ("filters", "fft_filters") if spec.step == "taps" else ("forward", "fft")
    if spec.step == "twice":  # of few tiles
        by, size = f"{by}_{spec.side}x{spec.side}_maps_twice", spec.side
    else:
        by = f"{by}_{spec.side}x{spec.side}"
    made = plan(ConvShape(32, 8, size, size, 128, taps, taps), layout=spec.layout or "CHWN", kind=kind,
                kernel=f"{by}_64")
    return trace_block(made, spec, lambda launch: (launch.grid[0] // 2, 3, 0), race=True).warps


@pytest.mark.sampled(1, 5)
def test_a_block_takes_the_issue_slots_that_plans_are_ranked_by(spec, warps):
    assert sum(issue_slots(path(built(spec), one)) for one in warps) == spec.slots


@pytest.mark.sampled(3)
def test_the_arithmetic_is_that_of_two_transforms_of_complex_numbers(spec, warps):
    """And what takes the spectra of two real rows (or columns) apart, or joins them; then the epilogue."""
    kinds = Counter(inst.opcode for inst in path(built(spec), warps[0]))
    pairs = spec.side // 2 - 1
    joints = {"maps": 8 * pairs + 4, "twice": 8 * pairs + 4 + spec.side, "filters": 6 * pairs + 4 + spec.side,
              "large": 8 * pairs + 4 + spec.side, "out": 8 * pairs + 2 * spec.side,
              "taps": 8 * pairs + 4 * spec.side}[spec.step]
    assert kinds["FADD"] + kinds["FFMA"] == 2 * TRANSFORM[spec.side] + joints


@pytest.mark.sampled(3)
def test_shared_memory_has_few_conflicts_and_sectors_are_full(spec, warps):
    """Neighbours store neighbours: at least eight floats side by side, a sector of DRAM."""
    seen, stored = accesses(built(spec), warps[0]), spec.step in ("maps", "twice", "filters", "large")
    most = 1 if spec.side == 32 else 2
    assert all(shared_passes(lanes, 4) <= most for inst, lanes in seen if inst.opcode in ("LDS", "STS"))
    for inst, lanes in seen:
        if inst.opcode == "STG" and None not in lanes and (stored or spec.layout == "CHWN"):
            assert Counter(address // (4 * UNITS) for address in lanes).most_common() == [
                (sector, UNITS) for sector in dict.fromkeys(address // (4 * UNITS) for address in lanes)]
