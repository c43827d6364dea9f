"""The latency table: mined figures against the published rule, and what is done where evidence is thin."""

import json

import pytest

from maxdnn.checker.maxwell import LATENCIES_PATH, MIN_SAMPLES, dual_pair_known, published, required_cycles
from maxdnn.isa import TABLE, Control, decode

DATA = json.loads(LATENCIES_PATH.read_text())


def key(entry: dict[str, str]) -> tuple[str, str, str, str]:
    return entry["producer"], entry["kind"], entry["consumer"], entry["role"]


def test_no_well_seen_pair_is_closer_than_published() -> None:
    closer = [entry for entry in DATA["entries"]
              if entry["samples"] >= MIN_SAMPLES and entry["cycles"] < published(key(entry))]
    assert closer == []


def test_the_main_rules_rest_on_many_samples() -> None:
    seen = {key(entry): entry for entry in DATA["entries"]}
    for which, cycles in [(("x32", "register", "x32", "src"), 6), (("x32", "carry", "x32", "x"), 6),
                          (("cmp", "predicate", "flow", "guard"), 13), (("x32", "register", "mem", "addr"), 2),
                          (("x32", "register", "smem", "data"), 4), (("x32", "register", "qtr", "src"), 2)]:
        assert seen[which]["cycles"] == cycles == required_cycles(which)
        assert seen[which]["at_minimum"] >= MIN_SAMPLES


def test_a_pair_never_seen_takes_the_published_rule() -> None:
    assert required_cycles(("vote", "carry", "rro", "cc")) == 13
    assert required_cycles(("vote", "register", "imul", "src")) == 6


def test_no_reuse_flag_of_the_compiler_is_stale_or_idle() -> None:
    assert set(DATA["reuse"]) == {"read"}


def test_no_wait_comes_sooner_than_two_cycles_after_its_barrier_is_set() -> None:
    assert min(map(int, DATA["wait_after_set"])) == 2


def test_the_corpus_is_as_large_as_claimed() -> None:
    assert DATA["corpus"]["instructions"] >= 200_000


@pytest.mark.parametrize("second", ["LDC", "LDG", "LDS"])
def test_the_pairs_of_doubles_and_loads_that_the_compiler_issues_are_known(second: str) -> None:
    """Not by the published rule, as doubles are no ALU instructions: by evidence, under the table's present classes."""
    double, load = (decode(TABLE.named(name)[0].value, Control(), 8) for name in ("DFMA", second))
    assert dual_pair_known(double, load)
