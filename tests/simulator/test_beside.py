"""What works beside warps in the timing model of sm_90: tensor cores, mbarriers, bulk copies, copies of threads."""

import numpy as np
import pytest

from maxdnn.emulator.trace import ARRIVALS, MORE, MORE_BITS
from maxdnn.planning.cost import preset as chip
from maxdnn.planning.select import plans
from maxdnn.problem.problem import forward, product
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator import columns as c
from maxdnn.simulator import report, timing
from maxdnn.simulator.lower import lower, merge_rules
from maxdnn.simulator.machine import preset
from maxdnn.simulator.workload import Reducer

M, N, K = 256, 128, 320
STEPS = 12  # products of a warp for 64 values of k


@pytest.fixture(scope="module")
def timed():
    """The launch of a product of 2 x 1 tiles and 5 chunks, each block a tile, by one SM."""
    plan = plans(product((M, K), (K, N)), chip("h200"))["sm90_tensor_product_128x128"]
    return timing.call(plan, machine="h200", options=timing.Options(all_sms=False)).launches[-1].result


def opcodes(result):
    return np.array([inst.opcode for inst in result.workload.instructions])


def test_every_product_is_issued_and_keeps_a_tensor_core_as_long_as_it_has_columns_for(timed):
    chunks, warps = K // 64, 8
    assert timed.issued[opcodes(timed) == "HGMMA"].sum() == STEPS * chunks * warps
    assert timed.counters[c.C_TENSOR_BUSY] == STEPS * chunks * warps * 128 // preset("h200")["tensor_columns"]
    limits = report.as_dict(timed, lines=False)["limits_percent"]
    assert limits["tensor cores"] == pytest.approx(100 * STEPS * chunks * 2 * 64 / timed.cycles)


def test_waits_for_phases_and_products_have_reasons_of_their_own(timed):
    lost = dict(zip(c.REASONS, timed.stalls.sum(0).tolist(), strict=True))
    assert lost["mbarrier"] > 0 and lost["tensor cores"] > 0
    behind = np.array(["TRYWAIT" in inst.text() for inst in timed.workload.instructions])
    assert timed.stalls[1:-1, c.R_MBARRIER][behind[:-1]].sum() == lost["mbarrier"]


@pytest.mark.long
def test_slower_tensor_cores_fences_and_copies_take_longer():
    """Each figure takes part; what it does to a launch has the sign it must have."""
    shape = ConvShape(N=8, C=64, H=14, W=14, K=64, R=3, S=3, padding=1)
    plan = plans(forward(shape, layout="NCHW"), chip("h200"))["sm90_tensor_pixels_128x128"]
    machine = preset("h200")
    clocks = timing.conv(plan, machine=machine).clocks
    for figure, value in (("tensor_columns", 1), ("tensor_latency", 500), ("mbarrier_latency", 200),
                          ("bulk_latency", 2000), ("bulk_line_cycles", 40), ("fence_cycles", 1000)):
        assert timing.conv(plan, machine=machine.replace(**{figure: value})).clocks > clocks, figure


def test_rows_of_products_and_copies(timed):
    rows = lower(timed.workload.instructions, preset("h200"))
    first = rows[opcodes(timed) == "HGMMA"][0]
    assert (first[c.I_KIND], first[c.I_INTERVAL]) == (c.K_PRODUCT, 64)
    assert first[c.I_SERVICE] == (64 + 128) * 32 // 4  # a warp's quarter of the rows of A and B, 16 values each
    assert (rows[opcodes(timed) == "UBLKCP"][:, c.I_KIND] == c.K_BULK).all()


def test_lanes_words_of_mbarriers_add_up_by_barrier(timed):
    code = timed.workload.instructions
    at = {name: next(i for i, inst in enumerate(code) if inst.opcode == "SYNCS" and name in inst.text())
          for name in ("ARRIVE", "TRYWAIT")}
    assert merge_rules(code, True)[at["ARRIVE"]] & 4 and not merge_rules(code, True)[at["TRYWAIT"]] & 4
    word = np.where(np.arange(32) < 30, 0x33400, 0x33408) | 1 << ARRIVALS | 16 + (1 << MORE_BITS - 1) << MORE
    word[31] = -1
    reducer = Reducer(code, pair_merge=True)
    (_, first, count), (_, again, _) = reducer.records(np.stack([word, word]), np.array([at["ARRIVE"], at["TRYWAIT"]]))
    lines = reducer.lines()
    assert count == 2 and reducer.barriers == {0x33400 // 8: 0, 0x33408 // 8: 1}
    assert lines[first:first + 2].tolist() == [[0, 30 + c.ARRIVING * (480 + c.MOST_BYTES)],
                                               [1, 1 + c.ARRIVING * (16 + c.MOST_BYTES)]]
    assert lines[again, 1] == 1 + c.ARRIVING * (16 + c.MOST_BYTES)


def test_a_bulk_copy_is_its_barrier_its_bytes_and_where_it_begins(timed):
    code = timed.workload.instructions
    at = next(i for i, inst in enumerate(code) if inst.opcode == "UBLKCP")
    row = np.full((1, 32), -1, np.int64)
    row[0, :3] = 0x10040 + np.array([0, 34816, 0x33408])
    reducer = Reducer(code, pair_merge=True)
    (_, first, count), = reducer.records(row, np.array([at]))
    assert count == 2
    assert reducer.lines()[first:first + 2].tolist() == [[0, 34816], [0x10040 // 128, 0x40]]
