"""SMs of a CPC and of a GPC share what they get of L2: all SMs simulated, beside what an H100 answered."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import timing
from maxdnn.simulator.machine import preset
from maxdnn.simulator.placement import gpcs_of
from maxdnn.simulator.probes import chosen
from maxdnn.simulator.probes.frame import REPEATS

ROOT = Path(__file__).parents[2]
SEEN = json.loads((ROOT / "benchmarks" / "results" / "probes.h100.json").read_text())["chosen"]
MACHINE = preset("h100")


@pytest.fixture(scope="module")
def code() -> bytes:
    return chosen.cubin()


# How far the slowest SM may be from the card's, in parts of it.
@pytest.mark.parametrize(("kind", "bound"), [
    ("stores", 0.03), ("stores of sectors", 0.03), ("loads", 0.05),
])
def test_the_sms_of_a_cpc_get_of_l2_together_what_they_do_on_the_card(
    code: bytes, kind: str, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six blocks, which are put on the SMs of one CPC; by the difference of two lengths."""
    card = next(row["most"] for row in SEEN["rows"]
                if (row["kind"], row["warps"], row["what"]) == (kind, 16, "6 SMs of a CPC of 3 TPCs"))
    gpcs = gpcs_of(MACHINE["sms"], MACHINE["blocks_ahead"], MACHINE["gpc_tpcs"])
    assert gpcs is not None
    mine = np.nonzero(gpcs.cpc == np.bincount(gpcs.cpc).argmax())[0]
    monkeypatch.setattr("maxdnn.simulator.placement.Gpcs.rounds", lambda self, blocks: mine[:blocks])
    device, clocks = VirtualGpu(), []
    function, data = device.load(code).function(chosen.named(kind)), device.alloc(chosen.FLAGS + 6 * chosen.REGION)
    device.upload(data, np.ones(chosen.FLAGS // 4, np.uint32))
    for rounds in (4, 12):
        words = device.alloc(16 * REPEATS * 32 * 16 * 6)
        clocks.append(timing.launch(function, (6, 1, 1), (32 * 16, 1, 1), [words, data, rounds, 0], machine="h100",
                                    options=timing.Options(warm=True, all_sms=True)).cycles)
    assert (clocks[1] - clocks[0]) / (8 * chosen.ACCESSES * REPEATS) == pytest.approx(card, rel=bound)


def test_groups_are_what_hangs_together() -> None:
    assert chosen.groups([(0, 2), (2, 5), (1, 3)], 6) == [[0, 2, 5], [1, 3], [4]]


def test_what_is_chosen_goes_by_the_sizes_of_the_cpcs_that_are_found() -> None:
    """On an H200 stores of few TPCs slow each other down."""
    every = dict(chosen.choices([[0, 64], *([tpc] for tpc in range(1, 64))]))
    assert every["2 SMs of a CPC of 1 TPCs"] == list(chosen.TPCS[1]) and len(every["4 SMs of a CPC of 2 TPCs"]) == 4
