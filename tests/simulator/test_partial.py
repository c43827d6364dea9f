"""Sectors of L2 that lack bytes, and how much of DRAM launches take by it."""

import json
from pathlib import Path

import numpy as np
import pytest
from launched import launched

from maxdnn.simulator import columns as c
from maxdnn.simulator.partial import lacking

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ANSWERS = json.loads((RESULTS / "probes.h100.json").read_text())["launches"]
OF_H200 = json.loads((RESULTS / "probes.h200.json").read_text())["launches"]


def mib(name: str, warm: bool) -> tuple[float, float]:
    """MiB of DRAM that a launch reads and writes in the model of an H100."""
    counters = launched(name, warm).counters
    return float(counters[c.C_DRAM_READ]) / (1 << 15), float(counters[c.C_DRAM_WRITE]) / (1 << 15)


# What a card read with empty caches. What its launches write soon behind that is not in the model.
READ = [
    "launch of 1 words of every 8 bytes, 16 MiB",
    "launch of 1 words of every 32 bytes, 24 MiB",
    "launch of 1 words of every 64 bytes, 16 MiB",
    "launch of 2 words of every 16 bytes, 24 MiB",
    "launch of 4 words of every 16 bytes, 16 MiB",
]


@pytest.mark.sampled(2, 5)
@pytest.mark.parametrize("name", READ)
def test_l2_reads_what_sectors_lack_as_on_an_h100(name: str) -> None:
    assert mib(name, False)[0] == pytest.approx(ANSWERS[name]["read"], rel=0.05, abs=0.1)


@pytest.mark.sampled(1, 2)
@pytest.mark.parametrize("name", READ[:2])
def test_sectors_that_l2_has_lack_nothing(name: str) -> None:
    assert mib(name, True)[0] < 0.002 * mib(name, False)[0]  # a few sets have more lines than they keep


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sectors", [2, 4])
def test_completing_what_several_stores_have_left_takes_as_long_as_on_an_h200(sectors: int) -> None:
    name = f"launch of a word of each of {sectors} sectors of every line, one behind the other, 16 MiB"
    result = launched(name, False, "h200")
    assert result.cycles == pytest.approx(np.mean(OF_H200[name]["cold"]), rel=0.06)
    assert result.counters[c.C_DRAM_WRITE] / (1 << 15) == pytest.approx(OF_H200[name]["written"], rel=0.15)


@pytest.mark.parametrize(("name", "apart"), [
    ("launch of 0 loads and 1 stores of 16 bytes, 24 MiB", 2.0),
    ("launch of 0 loads and 1 stores of 16 bytes, 40 MiB", 0.5),
    ("launch of 1 loads and 1 stores of 16 bytes, 40 MiB", 1.5),
    ("launch of 1 loads and 4 stores of 16 bytes, 36 MiB", 0.5),
])
def test_launches_behind_each_other_read_and_write_dram_as_on_an_h100(name: str, apart: float) -> None:
    seen = ANSWERS[name]["warm_read"], ANSWERS[name]["warm_written"]
    assert mib(name, True) == pytest.approx(seen, abs=apart)


def test_which_sectors_lack_words() -> None:
    assert lacking(np.int64(15)) == 0
    assert lacking(np.int64(3 << 4 | 8 << 12 | 5)) == 0b101
