"""The estimate that plans are ranked by: what its terms come to."""

from dataclasses import replace

import pytest

from maxdnn.planning.cost import BETWEEN, Chip, Cost, Work, preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import product

CHIP = Chip("ten SMs", 10, 1000.0, runs_maxwell=False)
IN_STEP = Cost(400.0, 90.0, 2, overhead=50, wave_ends=30)
STAGGERED = replace(IN_STEP, staggered=1.0)


@pytest.mark.parametrize(("ctas", "cost", "clocks"), [
    (40, IN_STEP, 50 + 2 * (200 + 30)), (45, IN_STEP, 50 + 3 * (200 + 30)), (5, IN_STEP, 50 + 100 + 30),
    (40, STAGGERED, 50 + 2 * (200 + 30)), (45, STAGGERED, 50 + 2 * (200 + 30) + 100 + 30),
    (45, replace(STAGGERED, critical_path=170.0), 50 + 2 * (200 + 30) + 170 + 30),
    (25, replace(STAGGERED, ctas_per_sm=4, staggered=0.8), 50 + 300 / 0.95 + 30)])
def test_a_tail_wave_of_staggered_ctas_takes_what_its_own_take(ctas: int, cost: Cost, clocks: float) -> None:
    assert Work(ctas, 1.0, cost).clocks(CHIP) == pytest.approx(clocks)


def test_launches_of_a_card_do_not_follow_each_other_at_once() -> None:
    problem = product((1024, 1024), (1024, 1024))
    on_card = choose(problem, preset("h200"), "sm90_tensor_product_128x128")
    assert len(on_card.launches) == 3
    assert on_card.clocks(preset("h200")) == 2 * BETWEEN + sum(x.work.clocks(preset("h200")) for x in on_card.launches)
    simulated = choose(product((64, 4096), (4096, 64)), preset(), "sproduct_64x64_nn_split4")
    assert len(simulated.launches) == 2
    assert simulated.clocks(preset()) == sum(x.work.clocks(preset()) for x in simulated.launches)


def test_tensor_cores_slow_sms_down_where_all_of_them_work() -> None:
    def of_a_tile(rows: int) -> float:
        plan = choose(product((rows, 512), (512, 2048)), preset("h200"), "sm90_tensor_product_128x128")
        return plan.launches[-1].work.code.slots

    assert of_a_tile(2048) > 1.15 * of_a_tile(128)
