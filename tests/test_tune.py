"""Measurements are remembered and followed, and nothing that lies on disk can make a result wrong."""

import json
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

import maxdnn
from maxdnn import ConvShape, tune
from maxdnn.build import cubins
from maxdnn.cli import main
from maxdnn.errors import DeviceError, MaxdnnError, ShapeError
from maxdnn.planning import records
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plans
from maxdnn.problem.problem import forward, product
from maxdnn.runtime import cache
from tests.card import Card

SHAPE = ConvShape(2, 8, 5, 5, 8, 3, 3, 1, 1)
TAKEN, DIRECT = "sdepthwise_3x3_s1", "sconv_fprop_K64_N64"  # the first by estimate


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache of the test's own; choices follow measurements."""
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MAXDNN_TUNED", "1")
    records._recalled.table.clear()
    yield tmp_path / "cache"
    records._recalled.table.clear()


def record(problem, results, chip=None, **more):
    return records.measured(chip or preset(), problem, results, **({"simulated": True, "left_out": 0} | more))


@pytest.fixture
def simulated(monkeypatch):
    """The timing model takes a while to compile for a fresh cache; tests/planning/test_estimate.py has the real one."""
    monkeypatch.setattr("maxdnn.simulator.timing.call",
                        lambda plan, machine: types.SimpleNamespace(seconds=len(plan.launches)))


def test_what_is_measured_belongs_to_the_sources_as_they_were(tmp_path, monkeypatch):
    """Not to what they became while it was measured."""
    sass, asset = tmp_path / "sass", cubins.asset
    shutil.copytree(asset("sass"), sass)
    monkeypatch.setattr(cubins, "asset", lambda name: sass if name == "sass" else asset(name))
    cubins.ingredients.cache_clear()
    records.library.cache_clear()

    def measured(candidates, *_):
        (sass / "another.sass").write_text("# another\n")
        return {name: 1.0 for name, _ in candidates}
    monkeypatch.setattr(sys.modules["maxdnn.planning.tuning"], "_simulated", measured)
    try:
        (found,) = tune(SHAPE, device=maxdnn.emulator.VirtualGpu(), again=True)
        cubins.ingredients.cache_clear()
        records.library.cache_clear()
        assert found.record.library != records.library()
    finally:
        cubins.ingredients.cache_clear()
        records.library.cache_clear()


# -- measuring --------------------------------------------------------------------------------------------------------


def slow_but(name):
    """Costs by which one kernel is the fastest."""
    return lambda kernel, grid: 1e-6 if kernel in (name, "spad", "stranspose") else 1e-3


def test_a_gpu_is_measured_and_what_it_takes_is_chosen_from_then_on():
    card = Card(slow_but(DIRECT))
    before = maxdnn.plan(SHAPE, device=card)
    assert before.spec.name == TAKEN and "chosen by estimate for stand-in" in before.explain()
    told = []
    (found,) = tune(SHAPE, device=card, seconds=600, progress=lambda done, of: told.append(done / of))
    assert found.new and found.remembered and not found.record.simulated and not found.record.left_out
    assert len(found.record.results) == len(plans(forward(SHAPE), card.chip)) and found.gain > 1
    assert told == sorted(told) and told[-1] == 1
    after = maxdnn.plan(SHAPE, device=card)
    assert after.spec.name == DIRECT == found.plan.spec.name
    assert "chosen by measurement on stand-in, 20" in after.explain() and "us, of" in after.explain()
    with_relu = maxdnn.plan(SHAPE, device=card, activation="relu")
    assert with_relu.chosen.startswith("by measurement")  # the last step costs all alike
    assert maxdnn.plan(SHAPE, device=card, layout="NCHW").chosen.startswith("by estimate")  # another problem
    assert not tune(SHAPE, device=card)[0].new and tune(SHAPE, device=card, again=True, seconds=600)[0].new


def test_other_drivers_and_simulated_chips_have_measurements_of_their_own():
    tune(SHAPE, device=Card(slow_but(DIRECT)), seconds=600)
    assert maxdnn.plan(SHAPE, device=Card(driver="sm_52, driver 2")).spec.name == TAKEN
    assert maxdnn.plan(SHAPE).spec.name == TAKEN


def test_names_the_environment_and_arguments_come_first(monkeypatch):
    card = Card()
    records.remember(record(forward(SHAPE), {DIRECT: 1e-6}, card.chip))
    assert maxdnn.plan(SHAPE, device=card).spec.name == DIRECT
    split = maxdnn.plan(SHAPE, device=card, kernel=f"{TAKEN}_split2")
    assert split.spec.name == TAKEN and split.chosen == "by its name"
    assert maxdnn.plan(SHAPE, device=card, tuned=False).spec.name == TAKEN
    monkeypatch.setenv("MAXDNN_TUNED", "0")
    assert maxdnn.plan(SHAPE, device=card).spec.name == TAKEN
    monkeypatch.setenv("MAXDNN_TUNED", "no")
    with pytest.raises(MaxdnnError, match=r"MAXDNN_TUNED must be 0 .* or 1 \(got 'no'\)"):
        maxdnn.plan(SHAPE)


def test_the_virtual_gpu_is_simulated_and_says_so(simulated):
    (found,) = tune([ConvShape(1, 8, 3, 3, 8, 1, 1)], device=maxdnn.emulator.VirtualGpu(), seconds=1e-9)
    assert found.record.simulated and found.record.left_out and len(found.record.results) == 1
    assert "(simulated)" in str(found) and "lack of time" in str(found)
    assert "chosen by simulation of gm204" in maxdnn.plan(ConvShape(1, 8, 3, 3, 8, 1, 1)).explain()


def test_gradients_are_problems_of_their_own():
    found = tune(SHAPE, device=Card(), kind=("data", "filters"), layout="NCHW", seconds=600)
    assert [t.problem.kind for t in found] == ["data", "filters"]
    assert maxdnn.plan(SHAPE, device=Card(), kind="data", layout="NCHW").chosen.startswith("by measurement")
    assert maxdnn.plan(SHAPE, device=Card(), layout="NCHW").chosen.startswith("by estimate")


def test_prepared_filters_are_measured_and_chosen_apart():
    """Without the launches that transform filters another candidate may be the fastest."""
    shape, costs = ConvShape(4, 16, 8, 8, 16, 3, 3, 1, 1), {"swinograd_filters_2x2_3x3": 1.0, "sproduct_64x64_tn": 1e-3}
    card = Card(lambda kernel, grid: costs.get(kernel, 1e-6 if "winograd" in kernel or "product" in kernel else 1e-2))
    (plain,), (ready,) = (tune(shape, device=card, seconds=600, prepared_filters=x) for x in (False, True))
    assert plain.plan.algorithm == "direct" or "2x2" not in plain.record.results[0][0]
    assert ready.plan.algorithm == "winograd" and "filters prepared" in ready.record.about
    assert maxdnn.plan(shape, device=card, prepared_filters=True).chosen == ready.plan.chosen
    assert maxdnn.plan(shape, device=card).chosen == plain.plan.chosen != ready.plan.chosen


def test_what_is_less_exact_than_asked_is_neither_measured_nor_chosen():
    shape, card = ConvShape(8, 16, 8, 8, 16, 3, 3, 1, 1), Card(lambda kernel, grid: 1e-6)
    (found,) = tune(shape, device=card, seconds=600, max_error=1e-2)
    errors = {name: p.error for name, p in plans(forward(shape), card.chip, max_error=1).items()}
    assert {name for name, _ in found.record.results} == set(errors)
    worst = max(errors, key=errors.__getitem__)
    records.remember(record(forward(shape), {worst: 1e-9, DIRECT: 1e-6}, card.chip))
    assert maxdnn.plan(shape, device=card).spec.name == DIRECT and errors[worst] > 2e-6
    assert maxdnn.plan(shape, device=card, max_error=1e-2).error == errors[worst]
    assert maxdnn.plan(shape, device=card, algorithm="winograd").chosen.startswith("by estimate")


def test_those_who_keep_choices_are_told_of_every_change():
    told = []
    records.changed.append(lambda: told.append(1))
    try:
        records.remember(record(forward(SHAPE), {DIRECT: 1e-6}))
        (one,) = records.records()
        records.forget(one)
    finally:
        records.changed.pop()
    assert len(told) == 2 and not list(records.records())


def test_products_and_calls_follow_what_was_measured():
    card = Card(lambda kernel, grid: 1e-6 if "128" in kernel else 1e-3)
    problem = product((40, 64), (64, 48))
    assert choose(problem, card.chip).spec.name == "sproduct_64x64_nn"
    tune(problem, device=card, seconds=600)
    assert choose(problem, card.chip).spec.name == "sproduct_128x128_nn"
    card.launched.clear()
    card.runs = True
    a, b = (np.ones(x, np.float32) for x in ((40, 64), (64, 48)))
    assert (maxdnn.matmul(a, b, device=card) == 64).all() and "sproduct_128x128_nn" in card.launched


def test_a_candidate_the_gpu_cannot_run_is_left_out():
    def broken(name):
        def cost(kernel, grid):
            if kernel.startswith(name):
                raise DeviceError("out of memory")
            return 1e-6
        return cost
    (found,) = tune(SHAPE, device=Card(broken("sconv_pixels")), seconds=600)
    assert found.record.left_out and all("pixels" not in name for name, _ in found.record.results)
    with pytest.raises(DeviceError, match="out of memory"):
        tune(SHAPE, device=Card(broken("")), seconds=600, again=True)


@pytest.mark.parametrize(("asked", "message"), [
    (dict(what=3), r"what must be a ConvShape, a Problem, an iterable of them or a PyTorch module \(got 3\)"),
    (dict(what=["alexnet-conv1"]), r"must hold ConvShapes or Problems alone \(got 'alexnet-conv1'\)"),
    (dict(what=SHAPE, example=1), r"example goes with a model"),
    (dict(what=SHAPE, kind=["forward", "backward"]), "kind must be one or several of forward, data, filters"),
    (dict(what=SHAPE, seconds=0), r"seconds must be a positive number \(got 0\)"),
    (dict(what=SHAPE, layout="HWCN"), "layout must be one of CHWN, NCHW"),
    (dict(what=ConvShape(1, 1, 1, 1, 2**40, 1, 1)), "must have at most"),
])
def test_wrong_arguments_are_named_before_any_work(asked, message):
    card = Card()
    with pytest.raises(ShapeError, match=message):
        tune(**asked, device=card)
    assert not card.launched
    with pytest.raises(DeviceError, match="device must be a device"):
        tune(SHAPE, device="cuda")


# -- what is remembered -----------------------------------------------------------------------------------------------


def test_candidates_that_are_gone_are_passed_over():
    problem = forward(SHAPE)
    records.remember(record(problem, {"sconv_of_last_year": 1e-6, "sproduct_64x64_nn": 2e-6, DIRECT: 3e-6}))
    assert choose(problem, preset()).spec.name == DIRECT
    records.remember(record(problem, {"sconv_of_last_year": 1e-6}))
    made = choose(problem, preset())
    assert made.spec.name == TAKEN and made.chosen.startswith("by estimate")


def test_every_damage_costs_a_measurement_and_never_a_result(place):
    problem = forward(SHAPE)
    records.remember(record(problem, {DIRECT: 1e-6}))
    (path,) = place.glob("*.tuned")
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        records._recalled.table.clear()
        assert choose(problem, preset()).spec.name == TAKEN, at
    for data in (b"", whole[:100], whole + b" "):
        path.write_bytes(data)
        records._recalled.table.clear()
        assert choose(problem, preset()).spec.name == TAKEN
        assert list(records.records()) == []


@pytest.mark.parametrize("content", [
    "[]", "{}", "3", '{"results": 3}', "[" * 10000, '{"chip": "gm204"}', "null",
    *(json.dumps(dict(chip="gm204", driver="", library="", problem="", about="", measured="", simulated=True,
                      left_out=0) | change)
      for change in ({"results": []}, {"results": [["a", float("nan")]]}, {"results": [["a", -1]]},
                     {"results": [["a"]]}, {"results": [["a", 1]], "left_out": "x"}, {"results": [["a", 1]], "more": 1},
                     {"results": [["a", 1]], "chip": 3}))])
def test_a_sound_entry_with_another_content_is_ignored(content):
    """As another version might write it under the same key."""
    problem = forward(SHAPE)
    one = record(problem, {DIRECT: 1e-6})
    cache.store(records._key_of(one), ".tuned", content.encode())
    assert choose(problem, preset()).spec.name == TAKEN
    assert list(records.records()) == []


def test_an_entry_of_another_problem_under_this_ones_name_is_ignored(place):
    one, other = forward(SHAPE), forward(SHAPE, layout="NCHW")
    records.remember(record(one, {DIRECT: 1e-6}))
    (path,) = place.glob("*.tuned")
    key = records._key_of(record(other, {DIRECT: 1e-6}))
    path.rename(place / cache._name(key, ".tuned"))
    assert choose(other, preset()).chosen.startswith("by estimate")


WRITER = """
import sys
from maxdnn import ConvShape
from maxdnn.planning import records
from maxdnn.planning.cost import preset
from maxdnn.problem.problem import forward
number = int(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for n in range(25):
    own, shared = forward(ConvShape(1 + n, 1 + number, 5, 5, 8, 3, 3)), forward(ConvShape(1 + n, 99, 5, 5, 8, 3, 3))
    for problem in (own, shared):
        assert records.remember(records.measured(preset(), problem, {f"k{number}": 1e-6, "k": 2e-6}, simulated=True,
                                                 left_out=0))
    assert all(r.results[1] == ("k", 2e-6) for r in records.records())
"""


def test_processes_that_tune_at_the_same_time_lose_nothing_and_read_nothing_torn():
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(n)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) for n in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    for n in range(25):
        for number in (0, 1, 2, 3, 98):
            found = records.recall(preset(), forward(ConvShape(1 + n, 1 + number, 5, 5, 8, 3, 3)))
            assert found is not None and found.results[1] == ("k", 2e-6)
            assert found.results[0][0] in ({f"k{number}"} if number < 98 else {"k0", "k1", "k2", "k3"})
    assert len(list(records.records())) == 125


def test_without_a_folder_measuring_works_and_says_that_it_is_not_remembered(monkeypatch):
    monkeypatch.setenv("MAXDNN_CACHE_BYTES", "0")
    card = Card(slow_but(DIRECT))
    (found,) = tune(SHAPE, device=card, seconds=600)
    assert not found.remembered and found.plan.spec.name == DIRECT and "not remembered" in str(found)
    assert maxdnn.plan(SHAPE, device=card).spec.name == TAKEN and list(records.records()) == []


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_tunes_lists_and_forgets(simulated, capsys):
    layers = ["2,8,5,5,8,3,3,1,1", "1,8,3,3,8,1,1"]
    assert main(["tune", *layers, "--device", "virtual", "--layout", "NCHW", "--seconds", "1e-9"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no GPU: simulating the gm204") and out.count("(simulated)") == 2
    assert main(["tune", layers[0], "--device", "virtual", "--layout", "NCHW"]) == 0
    assert "(remembered since 20" in capsys.readouterr().out
    assert main(["tune", "--list"]) == 0
    assert capsys.readouterr().out.endswith("2 layers remembered\n")
    assert main(["tune", "--forget", layers[0]]) == 0
    assert capsys.readouterr().out.endswith("1 layer forgotten\n")
    assert main(["tune", "--list", layers[1]]) == 0 and main(["tune", "--forget"]) == 0
    assert list(records.records()) == []


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "tune needs a LAYER"), (["alexnet-conv9"], "LAYER must be one of alexnet-conv1"),
    (["1,2"], "LAYER must be one of"), (["--list", "--forget"], "give one of them"),
    (["alexnet-conv1", "--device", "virtual", "--layout", "x"], "layout must be one of"),
    (["alexnet-conv1", "--device", "virtual", "--seconds", "-1"], "seconds must be a positive number"),
])
def test_the_command_says_in_a_line_what_would_be_right(arguments, message, capsys):
    assert main(["tune", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
