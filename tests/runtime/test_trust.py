"""Trust on first use: who decides, what is remembered and for whom, what a trial in another process may end with."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from maxdnn import cli
from maxdnn.errors import DeviceError, MaxdnnError, ShapeError
from maxdnn.planning import select
from maxdnn.planning.cost import Chip
from maxdnn.problem.problem import product
from maxdnn.runtime import apart, engine, trust
from maxdnn.runtime.apart import FAILED, PASSED, UNDECIDED, Outcome
from maxdnn.selftest import trial
from tests import fake_cuda

AMPERE = Chip("a card", 68, 200.0, runs_maxwell=False, driver="sm_86, driver 1", arch="sm_86", trial="gpu 0")
MAXWELL = Chip("an old card", 16, 180.0, driver="sm_52, driver 1", arch="sm_52", trial="gpu 0")
SOURCE = "sm90/product_64x64"
PROBLEM = product((300, 300), (300, 300))


class Trials:
    """In the place of trials: what they end with, and which were made."""

    def __init__(self):
        self.made, self.outcome, self.meanwhile = [], Outcome(PASSED, "all of it"), lambda: None

    def __call__(self, chip, source, code, arch):
        self.made.append((source, code))
        self.meanwhile()
        return self.outcome(source) if callable(self.outcome) else self.outcome


@pytest.fixture
def trials(monkeypatch, tmp_path):
    """A cache of its own, and no cubin that would have to be assembled."""
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAXDNN_NATIVE", raising=False)
    found = Trials()
    monkeypatch.setattr(trust, "tried", found)
    monkeypatch.setattr(trust, "cubin", lambda source, arch: f"{source} {arch}".encode())
    monkeypatch.setattr(trust, "_known", {})
    return found


def forget(monkeypatch):
    """As a new process would find it."""
    monkeypatch.setattr(trust, "_known", {})


def by_ffma(chip):
    return select.choose(PROBLEM, chip, algorithm="direct", arithmetic="ffma")


def test_what_was_measured_and_what_is_only_described_is_tried_nowhere(trials):
    hopper = replace(AMPERE, arch="sm_90")
    assert trust.standing(hopper, SOURCE) == (True, "sm_90 was measured")
    assert trust.standing(replace(AMPERE, trial=""), SOURCE).on
    assert trust.standing(AMPERE, "maxwell/pad") == (True, "")  # a translation
    assert trust.standing(replace(AMPERE, arch="sm_52"), SOURCE) == (True, "")  # which runs none of it
    assert not trials.made


@pytest.mark.parametrize(("state", "on"), [(PASSED, True), (FAILED, False)])
def test_a_verdict_is_remembered_for_the_card_its_driver_and_the_very_code(trials, monkeypatch, state, on):
    trials.outcome = Outcome(state, "what was seen")
    assert trust.standing(AMPERE, SOURCE).on == on
    forget(monkeypatch)
    told = trust.standing(AMPERE, SOURCE)
    assert told.on == on and "what was seen" in told.why and len(trials.made) == 1
    for other in (replace(AMPERE, name="another"), replace(AMPERE, driver="sm_86, driver 2")):
        trust.standing(other, SOURCE)
    assert len(trials.made) == 3
    forget(monkeypatch)
    monkeypatch.setattr(trust, "cubin", lambda source, arch: b"assembled anew")
    trust.standing(AMPERE, SOURCE)
    monkeypatch.setattr(trust, "library", lambda: "another version")
    forget(monkeypatch)
    trust.standing(AMPERE, SOURCE)
    assert [code for _, code in trials.made[3:]] == [b"assembled anew"] * 2


def test_what_decides_nothing_is_not_remembered(trials, monkeypatch, capsys):
    trials.outcome = Outcome(UNDECIDED, "no memory")
    assert not trust.standing(AMPERE, SOURCE).on and not trust.standing(AMPERE, SOURCE).on
    assert len(trials.made) == 1 and "could not be tried (no memory)" in capsys.readouterr().err
    forget(monkeypatch)
    trials.outcome = Outcome(PASSED, "all of it")
    assert trust.standing(AMPERE, SOURCE).on


def test_a_failure_is_said_once_with_the_request_to_report_it(trials, capsys):
    trials.outcome = Outcome(FAILED, "a wrong result: 3 of 9")
    trust.standing(AMPERE, SOURCE)
    trust.standing(AMPERE, SOURCE)
    said = capsys.readouterr().err
    assert said.count("a wrong result: 3 of 9. Translations run instead. Please report this") == 1


@pytest.mark.parametrize("damage", ["cut", "bit", "forged", "other card", "state", "no JSON"])
def test_records_that_were_damaged_or_forged_count_for_nothing(trials, monkeypatch, damage):
    """Forged: a record that is well formed, of other code, stored under this one's name."""
    trust.standing(AMPERE, SOURCE)
    [path] = Path(os.environ["MAXDNN_CACHE"]).glob("*.trial")
    data = path.read_bytes()
    subject = trust._subject(AMPERE, SOURCE, "sm_86")
    record = json.loads(data[data.index(b"{"):])
    if damage in ("cut", "bit"):
        path.write_bytes(data[:-5] if damage == "cut" else data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    else:
        record |= {"forged": {"subject": record["subject"] | {"code": "0" * 64}},
                   "other card": {"subject": record["subject"] | {"gpu": "another"}},
                   "state": {"state": "trusted"}, "no JSON": {}}[damage]
        content = b"[" if damage == "no JSON" else json.dumps(record).encode()
        assert trust.cache.store(subject.key, ".trial", content)
    forget(monkeypatch)
    assert trust.standing(AMPERE, SOURCE).on and len(trials.made) == 2


def test_a_trial_that_never_ended_is_a_failure_and_one_that_has_just_begun_is_waited_for(trials, monkeypatch):
    subject = trust._subject(AMPERE, SOURCE, "sm_86")
    assert trust._remember(subject, "begun", "")
    monkeypatch.setattr(trust.time, "sleep", lambda seconds: trust._remember(subject, PASSED, "by another process"))
    assert trust.standing(AMPERE, SOURCE).on and not trials.made
    forget(monkeypatch)
    assert trust._remember(subject, "begun", "")
    monkeypatch.setattr(trust, "LONGEST", 0.0)
    told = trust.standing(AMPERE, SOURCE)
    assert not told.on and "never ended" in told.why and not trials.made
    assert trust.again(AMPERE, SOURCE).on and len(trials.made) == 1  # what `maxdnn selftest --native` does


def test_it_is_remembered_that_a_trial_begins_and_an_interrupt_takes_that_back(trials, monkeypatch):
    subject = trust._subject(AMPERE, SOURCE, "sm_86")
    states = []

    def interrupted():
        states.append(json.loads(trust.cache.load(subject.key, ".trial"))["state"])
        raise KeyboardInterrupt
    trials.meanwhile = interrupted
    with pytest.raises(KeyboardInterrupt):
        trust.standing(AMPERE, SOURCE)
    assert states == ["begun"] and trust.cache.load(subject.key, ".trial") is None
    trials.meanwhile = lambda: None
    assert trust.standing(AMPERE, SOURCE).on


def test_without_a_cache_that_can_be_written_every_process_tries_and_says_so(trials, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path / "file"))
    trials.outcome = Outcome(FAILED, "a fault")
    for _ in range(2):
        assert not trust.standing(AMPERE, SOURCE).on
    assert len(trials.made) == 1 and "this is not remembered" in capsys.readouterr().err
    forget(monkeypatch)
    assert not trust.standing(AMPERE, SOURCE).on and len(trials.made) == 2


# -- choices ----------------------------------------------------------------------------------------------------------


def test_a_plan_of_machine_code_is_chosen_once_the_card_has_passed(trials):
    plan = by_ffma(AMPERE)
    assert plan.archs and [source for source, _ in trials.made] == [s for s in plan.sources if s.startswith("sm90/")]
    assert "machine code of sm_86 runs (this card passed a trial on " in plan.explain()
    assert by_ffma(AMPERE) is plan and len(trials.made) == 1


def test_what_fails_is_left_out_and_the_next_best_is_tried_until_translations_are_left(trials, monkeypatch):
    trials.outcome = lambda source: Outcome(FAILED, f"{source} was wrong")
    plan = by_ffma(AMPERE)
    assert not plan.archs and {source for source, _ in trials.made} == {"sm90/product_32x64", SOURCE}
    said = plan.explain(verbose=True)
    for source, _ in trials.made:
        assert f"{source} was wrong): {source}" in said
    assert "machine code of sm_86, which is off: it failed a trial" in said
    with pytest.raises(ShapeError, match=r"kernel 'sm90_product_64x64_nn' is machine code of sm_86, which is off"):
        select.choose(PROBLEM, AMPERE, "sm90_product_64x64_nn")
    with pytest.raises(DeviceError, match="machine code of sm_86, which a card does not run: it failed"):
        engine.load_source(SimpleNamespace(name="a card", arch="sm_52", chip=AMPERE), SOURCE, "sm_90")
    made = len(trials.made)
    forget(monkeypatch)
    assert by_ffma(AMPERE) is plan and len(trials.made) == made  # all of it from records


@pytest.mark.parametrize("chip", [AMPERE, replace(AMPERE, arch="sm_90")], ids=["sm_86", "sm_90"])
def test_the_environment_decides_otherwise(trials, monkeypatch, chip):
    trials.outcome = Outcome(FAILED, "wrong")
    monkeypatch.setenv("MAXDNN_NATIVE", "1")
    plan = by_ffma(chip)
    assert plan.archs and "runs (MAXDNN_NATIVE=1)" in plan.explain()
    monkeypatch.setenv("MAXDNN_NATIVE", "0")
    plan = by_ffma(chip)
    assert not plan.archs and "is translated instead (MAXDNN_NATIVE=0)" in plan.explain()
    assert not trials.made
    monkeypatch.setenv("MAXDNN_NATIVE", "yes")
    with pytest.raises(MaxdnnError, match=r"MAXDNN_NATIVE must be 0 .* \(got 'yes'\)"):
        by_ffma(chip)


def test_code_of_maxwell_is_translated_where_it_fails_and_the_plan_stays(trials, monkeypatch):
    """On a fake driver: what is loaded is a cubin, or PTX."""
    driver = fake_cuda.Driver((5, 2))
    gpus, _ = fake_cuda.install(monkeypatch, driver)
    monkeypatch.delenv("MAXDNN_NATIVE")
    monkeypatch.setattr(trust, "cubin", engine.cubin)
    device = gpus.device(0)
    assert device.chip.trial == "gpu 0"
    trials.outcome = Outcome(PASSED, "all of it")
    assert engine.load_source(device, "maxwell/pad").native
    trials.outcome = Outcome(FAILED, "a wrong result")
    assert not engine.load_source(device, "maxwell/transpose").native
    assert [b".target sm_5" in image for action, image, *_ in driver.log if action == "load"] == [False, True]
    plan = select.choose(PROBLEM, device.chip)
    assert "machine code of sm_52 is translated instead (it failed a trial on this card" in plan.explain()


def test_a_candidate_is_measured_only_where_it_may_run(trials):
    """`maxdnn.tune` loads what it measures by the same way."""
    trials.outcome = Outcome(FAILED, "wrong")
    with pytest.raises(DeviceError):
        engine.load_source(SimpleNamespace(name="a card", arch="sm_52", chip=AMPERE), SOURCE, "sm_90")
    assert not any(plan.archs for plan in select.plans(PROBLEM, AMPERE).values() if SOURCE in plan.sources)


def test_the_command_tries_every_source_again(trials, monkeypatch, capsys):
    stand_in = SimpleNamespace(chip=AMPERE, name="a card", arch="sm_52")
    monkeypatch.setattr("maxdnn.cli.selftest.chosen", lambda device: stand_in)
    trials.outcome = lambda source: Outcome(FAILED, "wrong") if source == SOURCE else Outcome(PASSED, "all")
    for tries in (1, 2):
        assert cli.main(["selftest", "--native"]) == 1
        said = capsys.readouterr().out
        assert f"8 of 9 sources run as machine code, translations instead of {SOURCE}" in said
        assert len(trials.made) == 9 * tries
    stand_in.chip = replace(AMPERE, trial="")
    assert cli.main(["selftest", "--native"]) == 1 and "needs a GPU" in capsys.readouterr().err


# -- the other process ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behaviour", "state", "text"), [
    ("passes", PASSED, "8 bytes, "), ("wrong", FAILED, "a wrong result"), ("dies", FAILED, "ended with status -9"),
    ("hangs", FAILED, "it hangs: no answer within"), ("babbles", FAILED, "ended with status"),
    ("leaves", FAILED, "ended with status 0"), ("no device", UNDECIDED, "all devices are busy"),
    ("never ready", UNDECIDED, "not ready within"), ("goes on", UNDECIDED, "it takes longer than"),
    ("broken", UNDECIDED, "ended with status 3")])
def test_what_another_process_does_is_a_verdict_of_its_code_only_once_that_runs(
        behaviour, state, text, monkeypatch):
    monkeypatch.setattr(apart, "WORKER", "tests.runtime.trialworker")
    if behaviour in ("hangs", "never ready"):
        monkeypatch.setattr(apart, "STEP", 0.2)
        monkeypatch.setattr(apart, "START", 20.0 if behaviour == "hangs" else 0.5)
    monkeypatch.setattr(apart, "LONGEST", 0.5 if behaviour == "goes on" else 60.0)
    monkeypatch.setenv("TRIAL_WORKER", behaviour)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    made = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: made.append(real(*a, **k)) or made[-1])
    outcome = apart.tried(AMPERE, SOURCE, b"the code", "sm_86")
    assert outcome.state == state and text in outcome.text
    assert made[0].poll() is not None  # nothing is left behind


def test_where_no_process_can_be_started_nothing_is_decided(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    assert apart.tried(AMPERE, SOURCE, b"", "sm_86").state == UNDECIDED
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert apart.tried(AMPERE, SOURCE, b"", "sm_86").state == UNDECIDED


def test_the_real_worker_tells_when_the_gpu_is_not_the_one_that_is_meant(monkeypatch):
    """Or is none: here there is no driver."""
    outcome = apart.tried(replace(AMPERE, trial="virtual sm_86"), SOURCE, b"", "sm_86")
    assert outcome == (UNDECIDED, "virtual sm_86 is virtual sm_86 in another process")
    assert trial.found_by("virtual sm_86").chip.arch == "sm_86"
