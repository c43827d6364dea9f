"""Which SM of sm_90 gets which block, and what SMs share, as on the card."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.planning.select import plans
from maxdnn.problem.problem import data, product
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator import timing
from maxdnn.simulator.machine import preset
from maxdnn.simulator.placement import gpcs_of, shares
from maxdnn.simulator.probes import pairs
from maxdnn.simulator.probes.frame import REPEATS
from tests.sass.native import H200

H100 = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "probes.h100.json").read_text())
MACHINE = preset("h100")
GPCS = gpcs_of(MACHINE["sms"], MACHINE["blocks_ahead"], MACHINE["gpc_tpcs"])


def placed(blocks: int) -> list[int]:
    """The SM of each block on the card."""
    return list(next(grid for grid in H100["places"] if grid["blocks"] == blocks)["sm"])


@pytest.mark.parametrize(("blocks", "most"), [(400, 4), (256, 2)])
def test_blocks_go_to_sms_as_on_the_card(blocks: int, most: int) -> None:
    """Of so many blocks with room for four on an SM: which share one with those that come first, and how many they
    are."""
    card = placed(blocks)
    model = shares(np.ones(blocks, np.int64), 132, 4, MACHINE["blocks_ahead"], GPCS)
    for first in range(8):
        assert [b for b, sm in enumerate(card) if sm == card[first]][:3] == next(x for x in model if first in x)[:3]
    assert max(map(len, model)) == max(card.count(sm) for sm in set(card)) == most


def test_the_blocks_of_a_small_grid_go_as_on_the_card() -> None:
    """Which blocks share an SM. The card begins with another GPC from launch to launch, here with the first."""
    card = placed(224)
    model = shares(np.ones(224, np.int64), 132, 4, MACHINE["blocks_ahead"], GPCS)
    assert sorted(filter(None, model)) == sorted([b for b, sm in enumerate(card) if sm == own] for own in set(card))


@pytest.mark.parametrize("blocks", [160, 212, 224, 256])
def test_the_sms_with_a_second_block_are_those_of_the_card(blocks: int) -> None:
    """The card numbers the eight SMs that come first last."""
    assert GPCS is not None
    seen = np.bincount(placed(blocks), minlength=132)
    assert np.bincount(GPCS.rounds(blocks), minlength=132).tolist() == np.roll(seen, 8).tolist()


@pytest.fixture(scope="module")
def code() -> bytes:
    return pairs.cubin()


@pytest.mark.parametrize(("kind", "warps", "blocks", "bound"), [
    ("loads", 16, 8, 0.05), ("loads", 16, 40, 0.04), ("loads", 16, 84, 0.04), ("loads", 16, 132, 0.02),
    ("stores", 16, 40, 0.04), ("stores", 16, 96, 0.08),
    ("chain", 4, 40, 0.03), ("chain", 4, 132, 0.02),
])
def test_the_slowest_of_some_sms_gets_of_l2_what_it_gets_on_the_card(
    code: bytes, kind: str, warps: int, blocks: int, bound: float
) -> None:
    """Cycles of an access of the one SM that stands for the others, by the difference of two lengths."""
    card = next(row["most"] for row in H100["pairs"]
                if (row["kind"], row["warps"], row["blocks"]) == (kind, warps, blocks))
    device, clocks = VirtualGpu(), []
    function, big = device.load(code).function(pairs.named(kind)), device.alloc(pairs.REGION * 132)
    for rounds in (2, 6):
        words = device.alloc(16 * REPEATS * 32 * warps * blocks)
        clocks.append(timing.launch(function, (blocks, 1, 1), (32 * warps, 1, 1), [words, big, rounds, 0],
                                    machine="h100", options=timing.Options(warm=True, all_sms=False)).cycles)
    accesses = (6 - 2) * pairs.ACCESSES * REPEATS
    assert (clocks[1] - clocks[0]) / accesses == pytest.approx(card, rel=bound)


JUDGES = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "judges.h100.json").read_text())["rows"]


def test_every_sm_is_simulated_where_blocks_are_unlike_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strided data gradient of one image: blocks of one, two and four taps. With one SM it is nine percent too slow,
    since the others are in step with the longest blocks and store when they do."""
    row = next(row for row in JUDGES if row["kernel"] == "sm90_classes_K128_J128"
               and row["judge"] == "resnet-50-128-56-128-3x3-s2 N=1 NCHW data")
    plan = plans(data(ConvShape(1, 128, 56, 56, 128, 3, 3, stride=2, padding=1), layout="NCHW"), H200)[row["candidate"]]
    launch = plan.launches[row["launch"]]
    assert list(launch.grid) == row["grid"]
    ((work, function),) = timing.workloads(plan, [launch], MACHINE)
    seen = {}
    for name, options in {"": {}, "one": {"all_sms": False}, "trace": {"trace": (0, 100)}, "much": {}}.items():
        if name == "much":
            monkeypatch.setattr("maxdnn.simulator.simulate.MOST_OF_ALL_SMS", 5_000_000)
        result = timing.simulated(work, function, launch.block, MACHINE, options=timing.Options(warm=True, **options))
        seen[name] = result.simulated_sms, result.cycles / row["warm"]["clocks"] - 1
    assert seen["trace"] == seen["much"] == seen["one"] and seen["one"][0] == 1
    assert seen[""][0] == 132 and abs(seen[""][1]) < 0.03 < abs(seen["one"][1])


@pytest.mark.parametrize(("machine", "changes", "sms"), [
    ("h200", {}, 132), ("h200", {"l2_copies_kib": 0}, 1), ("h100", {}, 1),
])
def test_every_sm_is_simulated_of_little_more_than_a_wave_where_it_matters_which_one_has_a_line(
    machine: str, changes: dict[str, int], sms: int
) -> None:
    """Copies by 512 blocks, of which an SM has room for three."""
    plan = plans(product((2048, 2048), (2048, 2048)), H200)["sm90_tensor_product_128x128"]
    chip = preset(machine).replace(**changes)
    ((work, function),) = timing.workloads(plan, plan.launches[1:2], chip)
    assert work.outline.blocks == 512
    assert timing.simulated(work, function, plan.launches[1].block, chip).simulated_sms == sms


@pytest.mark.parametrize(("size", "candidate", "sms"), [
    (512, "sm90_product_32x64x4_nn", 132), (1024, "sm90_product_64x64x4_nn", 1),
])
def test_one_sm_stands_for_the_others_where_blocks_are_alike_and_all_have_one(
    size: int, candidate: str, sms: int
) -> None:
    """Of 128 blocks and of 256."""
    plan = plans(product((size, size), (size, size)), H200)[candidate]
    assert timing.call(plan, machine=MACHINE).results[-1].simulated_sms == sms
