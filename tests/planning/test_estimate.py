"""The estimate that plans are ranked by, against simulations of whole plans."""

import os
import statistics

from maxdnn import ConvShape
from maxdnn.planning.cost import preset
from maxdnn.planning.select import plans
from maxdnn.problem.problem import forward
from maxdnn.simulator import timing

SMALL = [
    (ConvShape(1, 3, 12, 12, 64, 7, 7, 2, 3), "NCHW"), (ConvShape(1, 64, 5, 5, 64, 3, 3, 1, 1), "NCHW"),
    (ConvShape(1, 128, 5, 5, 64, 1, 1), "NCHW"), (ConvShape(2, 8, 8, 8, 32, 5, 5, 1, 2), "NCHW"),
    (ConvShape(4, 32, 14, 14, 64, 1, 1), "NCHW"), (ConvShape(4, 24, 9, 9, 40, 3, 3, 2, 1), "NCHW"),
    (ConvShape(8, 16, 5, 5, 64, 3, 3, 1, 1), "NCHW"), (ConvShape(16, 64, 5, 5, 64, 1, 1), "CHWN"),
    (ConvShape(32, 32, 4, 4, 96, 3, 3), "CHWN"), (ConvShape(64, 16, 5, 5, 64, 3, 3, 1, 1), "CHWN"),
    (ConvShape(128, 16, 4, 4, 32, 3, 3, 1, 1), "CHWN"), (ConvShape(128, 3, 9, 9, 64, 5, 5, 2), "CHWN"),
]
CANDIDATES = int(os.environ.get("MAXDNN_CANDIDATES", "4"))  # of each layer, by their estimates; 99: all


def test_the_estimate_is_within_a_fifth_of_the_best_candidate_in_the_median():
    """Whole plans on the simulated gm204; MAXDNN_CANDIDATES=99 simulates every candidate (two minutes)."""
    over = []
    for shape, layout in SMALL:
        likely = sorted(plans(forward(shape, layout=layout), preset()).values(), key=lambda p: p.clocks(preset()))
        clocks = [timing.call(plan).clocks for plan in likely[:CANDIDATES]]
        over.append(clocks[0] / min(clocks))
    print("chosen over best:", *(f"{x:.2f}" for x in sorted(over)))
    assert statistics.median(over) < 1.2
