"""The estimate that plans are ranked by, against simulations of whole plans on the simulated gm204.

tests/gpu/test_estimate.py does the same on a real GPU."""

import statistics

import pytest

from maxdnn import ConvShape
from maxdnn.planning.cost import preset
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import plans
from maxdnn.problem.problem import Problem, bias, data, filters, forward, product
from maxdnn.simulator import timing
from tests.ranking import tau

SMALL = [
    (ConvShape(1, 3, 12, 12, 64, 7, 7, 2, 3), "NCHW"), (ConvShape(1, 64, 5, 5, 64, 3, 3, 1, 1), "NCHW"),
    (ConvShape(1, 128, 5, 5, 64, 1, 1), "NCHW"), (ConvShape(2, 8, 8, 8, 32, 5, 5, 1, 2), "NCHW"),
    (ConvShape(4, 32, 14, 14, 64, 1, 1), "NCHW"), (ConvShape(4, 24, 9, 9, 40, 3, 3, 2, 1), "NCHW"),
    (ConvShape(8, 16, 5, 5, 64, 3, 3, 1, 1), "NCHW"), (ConvShape(16, 64, 5, 5, 64, 1, 1), "CHWN"),
    (ConvShape(32, 32, 4, 4, 96, 3, 3), "CHWN"), (ConvShape(64, 16, 5, 5, 64, 3, 3, 1, 1), "CHWN"),
    (ConvShape(128, 16, 4, 4, 32, 3, 3, 1, 1), "CHWN"), (ConvShape(128, 3, 9, 9, 64, 5, 5, 2), "CHWN"),
]
LIKELY = 4  # candidates of each layer that are simulated, by their estimates
DEPTHWISE = ConvShape(4, 32, 9, 9, 32, 3, 3, 1, 1, groups=32)
KINDS: dict[str, list[Problem]] = {
    "forward": [forward(shape, layout=layout) for shape, layout in (SMALL[0], SMALL[6], SMALL[9])],
    "data": [data(shape, layout=layout) for shape, layout in (SMALL[5], SMALL[6], SMALL[9])],
    "filters": [filters(shape, layout=layout) for shape, layout in (SMALL[0], SMALL[5], SMALL[6], SMALL[9])],
    "depthwise": [make(DEPTHWISE, layout=layout) for make in (forward, data, filters) for layout in ("NCHW", "CHWN")],
    "product": [product((128, 64), (64, 192)), product((96, 512), (512, 64)), product((3, 64, 256), (3, 256, 64))],
    "bias": [bias((8, 64, 14, 14), layout="NCHW"), bias((64, 14, 14, 32), layout="CHWN")],
}


def _pairs(every: list[Plan]) -> list[tuple[float, float]]:
    """(estimate, simulation) of each in clocks."""
    return [(plan.clocks(preset()), timing.call(plan).clocks) for plan in every]


@pytest.mark.long
def test_the_estimate_is_within_a_fifth_of_the_best_candidate_in_the_median() -> None:
    over = []
    for shape, layout in SMALL:
        likely = sorted(plans(forward(shape, layout=layout), preset()).values(), key=lambda p: p.clocks(preset()))
        clocks = [simulated for _, simulated in _pairs(likely[:LIKELY])]
        over.append(clocks[0] / min(clocks))
    print("chosen over best:", *(f"{x:.2f}" for x in sorted(over)))
    assert statistics.median(over) < 1.2


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_ranks_all_candidates_as_the_simulation_does(kind: str) -> None:
    found = []
    for problem in KINDS[kind]:
        pairs = _pairs(list(plans(problem, preset()).values()))
        found.append(tau(pairs))
        print(f"{problem.describe()}: {len(pairs)} candidates, tau {found[-1]:.2f}, chosen over best "
              f"{min(pairs)[1] / min(simulated for _, simulated in pairs):.2f}")
    assert statistics.mean(found) > 0.5
