"""The presets: complete, sourced, and the same as the ledger says."""

import json
from pathlib import Path

import pytest

from maxdnn.errors import SimulationError
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator import columns, timing
from maxdnn.simulator.figures import RULES, rules_of
from maxdnn.simulator.machine import PRESETS, Machine, names, preset

DOCS = Path(__file__).parents[2] / "docs"


MAXWELL = rules_of("sm_52")


def test_there_are_the_eight_machines():
    assert names() == ["gm107", "gm200", "gm204", "gm20b", "gp104", "h100", "h100-pcie", "h200"]


@pytest.mark.parametrize("name", names())
def test_every_figure_has_a_kind_and_a_source_and_stands_in_the_ledger(name):
    text = (DOCS / ("calibration-h200.md" if preset(name).sm90 else "calibration.md")).read_text()
    section = text[text.index(f"## {name}:"):].split("\n## ")[0]
    own = json.loads((PRESETS / f"{name}.json").read_text())["figures"]
    for key, figure in preset(name).figures.items():
        assert figure.kind in ("documented", "measured", "assumed", "fitted") and len(figure.source) > 10, key
    for key, (value, kind, source) in own.items():
        assert f"| `{key}` | {json.dumps(value)} | {kind} | {source} |" in section, key
    assert section.count("| `") == len(own)


def test_a_sibling_differs_only_where_it_says():
    ti, gtx980 = preset("gm107"), preset("gm204")
    assert (ti["sms"], gtx980["sms"]) == (5, 16)
    assert ti["l2_latency"] == gtx980["l2_latency"]


def test_every_figure_has_a_rule_that_the_presets_keep_and_the_docs_tell():
    text = (DOCS / "timing.md").read_text()
    rows = [line for line in text.split("## Figures")[1].split("\n## ")[0].splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {rule.unit} | {rule.range} | {rule.meaning} |" for name, rule in RULES.items()]
    for name in names():
        machine = preset(name)
        rules = rules_of(machine.arch)
        assert set(machine.figures) == set(rules)
        for figure, rule in rules.items():
            if rule.settable:
                machine.replace(**{figure: machine[figure]})  # in its range, and goes with the others
            elif not machine.sm90:
                assert machine[figure] == preset("gm204")[figure], (name, figure)


class Watched(dict):
    """Figures that note which of them are read."""

    def __init__(self, figures):
        super().__init__(figures)
        self.seen = set()

    def __getitem__(self, name):
        self.seen.add(name)
        return super().__getitem__(name)


def test_a_simulation_reads_every_figure_that_can_be_set():
    gm204 = preset("gm204")
    watched = Watched(gm204.figures)
    timed = timing.conv(ConvShape(4, 2, 3, 3, 4, 1, 1), machine=Machine("gm204", gm204.title, watched))
    assert timed.ce_from_time == timing.conv(ConvShape(4, 2, 3, 3, 4, 1, 1)).ce_from_time
    stalls = {"unyielded_stall"}  # the convolution yields at all its long stalls
    assert {name for name, rule in MAXWELL.items() if rule.settable} - stalls <= watched.seen


def test_l2_and_dram_keep_their_clocks_where_the_sms_have_another():
    fast = preset("h200")
    slow = fast.at_clock(990)
    assert (fast["clock_mhz"], slow["clock_mhz"]) == (1980, 990)
    assert slow.dram_bytes_per_cycle == 2 * fast.dram_bytes_per_cycle
    assert [slow[name] / fast[name] for name in ("l2_load_bytes", "l2_store_bytes")] == [2, 2]
    assert [slow[name] / fast[name] for name in ("atomic_cycles", "l2_store_least")] == [0.5, 0.5]
    assert slow["l2_latency"] == fast["l2_latency"]
    assert slow["dram_latency"] - slow["l2_latency"] == round((fast["dram_latency"] - fast["l2_latency"]) / 2)
    assert slow["l1_latency"] == fast["l1_latency"]


def test_the_engine_is_built_for_the_figures_that_cannot_be_set():
    gm204 = preset("gm204")
    assert gm204["operand_fetch_depth"] == columns.S_LEAVE2 - columns.S_LEAVE1 + 1
    assert gm204["register_banks"] == columns.S_REUSE - columns.S_BANK0
    assert gm204["line_bytes"] / gm204["sector_bytes"] == columns.SECTORED - columns.WHOLE  # an arrival time per sector
    assert gm204["texture_units"] == columns.M_TEX1 - columns.M_TEX0 + 1
    for name, rule in MAXWELL.items():
        if not rule.settable:
            with pytest.raises(SimulationError, match=f"built for the preset's value of '{name}'"):
                gm204.replace(**{name: gm204[name]})


@pytest.mark.parametrize(("figure", "value", "words"), [
    ("global_queue", 0, "global_queue must be a whole number from 1 to 16"), ("sms", 0, "sms must be"),
    ("shared_queue", 10**6, "shared_queue must be"), ("l1_ways", 0, "l1_ways must be"), ("clock_mhz", 0,
                                                                                         "clock_mhz must be a"),
    ("clock_mhz", float("nan"), "clock_mhz must be a number"), ("sms", True, "sms must be"), ("sms", 1.5,
                                                                                              "sms must be a whole"),
    ("l2_kib", 10**400, "l2_kib must be"), ("l1_ways", 5, "l1_kib x 1024 must be a multiple"),
    ("unyielded_stall", {"12": 3}, "unyielded_stall must give cycles"), ("unyielded_stall", 3,
                                                                         "unyielded_stall must give"),
])
def test_a_value_out_of_range_is_refused_with_the_range(figure, value, words):
    with pytest.raises(SimulationError, match=words):
        preset("gm204").replace(**{figure: value})


@pytest.mark.sampled(20)
@pytest.mark.parametrize("edge", ["least", "most"])
@pytest.mark.parametrize("figure", [name for name,
                                    rule in MAXWELL.items() if rule.settable and name != "unyielded_stall"])
def test_the_engine_runs_at_both_ends_of_every_range(figure, edge):
    """A figure at its end either gives a time or does not fit the block or its cache: it never crashes the engine."""
    try:
        machine = preset("gm204").replace(**{figure: getattr(MAXWELL[figure], edge)})
        assert timing.conv(ConvShape(4, 2, 3, 3, 4, 1, 1), machine=machine).clocks > 0
    except SimulationError as e:
        assert any(words in str(e) for words in ("whole number of sets", "must be 0..", "must be 1..", "not fit"))


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(SimulationError, match="no preset 'gm300'; there are: gm107"):
        preset("gm300")
    with pytest.raises(SimulationError, match="no figure 'colour'; these can be set: sms, clock_mhz"):
        preset("gm204").replace(colour=1)
