"""Chips that there are only documents of."""

import json
from pathlib import Path

import pytest

from maxdnn.planning import cost
from maxdnn.planning.cost import Cost, Work, described
from maxdnn.planning.select import choose
from maxdnn.problem.problem import product
from tools import described_chips

EVERY = json.loads(Path(cost.__file__).with_name("chips.json").read_bytes())


@pytest.mark.parametrize("name", described_chips.CHIPS)
def test_every_figure_has_a_source_and_none_was_measured(name):
    for figure, entry in EVERY[name].items():
        if figure not in ("name", "arch"):
            value, known, source = entry
            assert value > 0 and known in ("documented", "assumed") and source, figure
    chip = described(name)
    assert chip.arch in ("sm_80", "sm_86", "sm_89") and not chip.runs_maxwell and not chip.trial


def test_plans_for_them_say_that_nobody_tried():
    plan = choose(product((1024, 1024), (1024, 1024)), described("rtx3080"), tuned=False)
    assert plan.archs and "machine code of sm_86 runs (a chip described, not a card: never tried)" in plan.explain()


def test_an_ffma_takes_an_a100_two_cycles_and_bytes_as_long_as_before():
    busy = Work(8640, 1.0, Cost(4000.0, 1000.0, 2, overhead=7.0))
    copying = Work(8640, 1e9, Cost(1.0, 1.0, 2, overhead=7.0))
    half, whole = described("a100"), cost.replace(described("a100"), ffma_cycles=1)
    assert busy.clocks(half) - 7 == 2 * (busy.clocks(whole) - 7)
    assert copying.clocks(half) == copying.clocks(whole)
    lengths = Work(8640, 1.0, Cost(400.0, 0, 2), lengths=(400.0,) * 8640)
    assert lengths.clocks(half) == 2 * lengths.clocks(whole)


@pytest.mark.exhaustive
def test_the_document_says_what_plans_say():
    text = described_chips.DOCUMENT.read_text()
    assert described_chips.filled(text) == text
