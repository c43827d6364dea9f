"""The estimate against times of all candidates on a real GPU: machine code of its own and translations."""

import statistics

import pytest

from maxdnn import ConvShape
from maxdnn.planning.select import plans
from maxdnn.problem.problem import data, filters, forward, product
from maxdnn.runtime.measure import Runner, Stopwatch
from tests.ranking import tau

pytestmark = pytest.mark.gpu

LAYERS = [ConvShape(32, 64, 56, 56, 64, 3, 3, 1, 1), ConvShape(32, 256, 14, 14, 256, 3, 3, 1, 1),
          ConvShape(8, 128, 28, 28, 256, 3, 3, 2, 1), ConvShape(64, 3, 112, 112, 64, 7, 7, 2, 3)]
KINDS = {
    "forward": [forward(shape, layout=layout) for shape in LAYERS for layout in ("NCHW", "CHWN")],
    "data": [data(shape, layout="NCHW") for shape in LAYERS],
    "filters": [filters(shape, layout="NCHW") for shape in LAYERS],
    "product": [product((n, n), (n, n)) for n in (256, 1024, 2048)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_ranks_all_candidates_as_the_gpu_does(kind: str) -> None:
    from maxdnn.runtime.devices import cuda

    device = cuda.device(0)
    runner, watch, found = Runner(device), Stopwatch(device), []
    for problem in KINDS[kind]:
        pairs = []
        for plan in plans(problem, device.chip).values():
            call = runner.call(plan)
            call()
            pairs.append((plan.clocks(device.chip), statistics.median(watch.seconds(call, len(plan.launches), 5))))
        found.append(tau(pairs))
        print(f"{problem.describe()}: {len(pairs)} candidates, tau {found[-1]:.2f}")
    assert statistics.mean(found) > 0.5
