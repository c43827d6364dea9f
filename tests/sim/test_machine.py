"""The presets: complete, sourced, and the same as the ledger says."""

import json
from pathlib import Path

import pytest

from maxdnn.errors import SimulationError
from maxdnn.sim.machine import KINDS, PRESETS, names, preset

LEDGER = Path(__file__).parents[2] / "docs" / "calibration.md"


def test_there_are_the_five_machines():
    assert names() == ["gm107", "gm200", "gm204", "gm20b", "gp104"]


@pytest.mark.parametrize("name", ["gm107", "gm200", "gm204", "gm20b", "gp104"])
def test_every_figure_has_a_kind_and_a_source_and_stands_in_the_ledger(name):
    text = LEDGER.read_text()
    section = text[text.index(f"## {name}:"):].split("\n## ")[0]
    own = json.loads((PRESETS / f"{name}.json").read_text())["figures"]
    for key, figure in preset(name).figures.items():
        assert figure.kind in KINDS and len(figure.source) > 10, key
    for key, (value, kind, source) in own.items():
        assert f"| `{key}` | {json.dumps(value)} | {kind} | {source} |" in section, key
    assert section.count("| `") == len(own)


def test_nothing_is_fitted():
    assert all(f.kind != "fitted" for name in names() for f in preset(name).figures.values())


def test_a_sibling_differs_only_where_it_says():
    ti, gtx980 = preset("gm107"), preset("gm204")
    assert (ti["sms"], gtx980["sms"]) == (5, 16)
    assert ti["l2_latency"] == gtx980["l2_latency"]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(SimulationError, match="no preset 'gm300'; there are: gm107"):
        preset("gm300")
    with pytest.raises(SimulationError, match="no figure 'colour'"):
        preset("gm204").replace(colour=1)
