"""The self-test: what is planted is reported, what a report looks like, and that nothing stops it."""

import dataclasses
import getpass
import json
import re
import socket
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from maxdnn.algorithms.registry import kernels
from maxdnn.build.cubins import cubin
from maxdnn.cli import main
from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import DeviceError, MaxdnnError
from maxdnn.selftest import items, probes, report, run, times
from maxdnn.selftest.items import DIFFERENT, FAILED, NOTED, SAME, Result, Stand
from maxdnn.selftest.kernels import items as kernel_items
from tests.card import Card


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    """(exit status, output, report) of the command without a GPU."""
    path = tmp_path_factory.mktemp("report") / "report.md"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        import contextlib
        import io
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = main(["selftest", "--device", "virtual", "--quick", "--report", str(path)])
    return status, out.getvalue(), path


def item(words, quick=True):
    """The first kernel item whose name has these words."""
    return next(i for i in kernel_items(quick) if all(word in i.name for word in words.split()))


def card(spoil=None, cost=lambda name, grid: 0.0164 if name == "probe_delay" else 1e-5):
    return Card(cost, spoil, runs=True)


# -- without a GPU ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_without_a_gpu_the_virtual_one_is_held_to_the_contracts_and_the_heading_says_so(virtual):
    status, out, path = virtual
    assert status == 0 and "virtual GPU (virtual gm204, simulated: no GPU was tested)" in out.splitlines()[0]
    found = report.read(path)
    assert found["counts"][DIFFERENT] == found["counts"][FAILED] == 0 and report.passed(found)
    assert all(r["state"] == SAME for r in found["results"] if r["part"] == "kernels")


@pytest.mark.long
def test_every_kernel_there_is_runs_and_each_kind_in_the_quick_test_too(virtual):
    found = report.read(virtual[2])
    used = {name for r in found["results"] if r["part"] == "kernels" for name in r["data"]["kernels"]}
    assert used == {name for name, spec in kernels().items() if spec.arch is None}  # what the virtual GPU runs, too
    assert {i.name for i in kernel_items(True)} < {i.name for i in kernel_items()}
    assert {i.plan.problem.kind for i in kernel_items(True)} == {"forward", "data", "filters", "bias", "product"}


@pytest.mark.long
def test_the_report_has_its_schema(virtual):
    found = report.read(virtual[2])
    assert set(found) == {"format", "device", "how", "library", "python", "numpy", "system", "date", "complete",
                          "counts", "results"}
    assert found["format"] == report.FORMAT and found["how"] == "virtual"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["date"])
    assert found["counts"] == {s: sum(r["state"] == s for r in found["results"])
                               for s in (SAME, DIFFERENT, FAILED, NOTED)}
    for result in found["results"]:
        assert set(result) == {"part", "name", "state", "text", "data"} and result["part"] in report.TITLES
    content = virtual[2].read_text()
    assert content.startswith("# maxDNN self-test") and content.index("## Kernels") < content.index("```json")


@pytest.mark.long
def test_what_the_timing_model_says_of_a_chain_of_ffma_is_its_stalls(virtual):
    """32 FFMA 6 cycles apart, IADD 6, ISETP 13, BRA 5."""
    data = next(r["data"] for r in report.read(virtual[2])["results"] if r["name"].startswith("ffma_chain"))
    assert data["simulated"] == 32 * 6 + 6 + 13 + 5


# -- on a card --------------------------------------------------------------------------------------------------------


def flip(name, bit, at=0):
    """Spoils the last launch of a kernel: one bit of a word behind its first pointer."""
    def spoil(device, kernel, args):
        if kernel == name:
            address = int(getattr(args[0], "address", args[0])) + 4 * at
            device.memory.host(address, 4).view(np.uint32)[0] ^= np.uint32(1 << bit)
    return spoil


@pytest.mark.long
def test_a_card_that_computes_the_same_bits_passes():
    assert item("forward NCHW one image", quick=False).run(Stand(card())).state == SAME


@pytest.mark.long
def test_one_wrong_bit_of_a_kernel_is_reported_with_its_place():
    one = item("forward CHWN 64 images: sconv_fprop_K64_N64")
    found = one.run(Stand(card(flip("sconv_fprop_K64_N64", 0, 3))))
    assert found.state == DIFFERENT and found.data["different"] == 1
    (first,) = found.data["first"]
    assert first["index"] == [0, 0, 0, 3] and int(first["found"], 16) ^ int(first["wanted"], 16) == 1
    assert "1 of " in found.text and f"0x{first['found']} instead of 0x{first['wanted']}" in found.text


def test_a_wrong_value_of_the_virtual_gpu_is_reported_too():
    stand = Stand(card(flip("sconv_fprop_K64_N64", 22, 3)))
    stand.card = False
    found = item("forward CHWN 64 images: sconv_fprop_K64_N64").run(stand)
    assert found.state == DIFFERENT and found.data["first"][0]["index"] == [0, 0, 0, 3]


@pytest.mark.long
def test_memory_beside_an_operand_is_watched_and_operands_too():
    one = item("forward CHWN 64 images: sconv_fprop_K64_N64")
    found = run.attempt(one, Stand(card(flip("sconv_fprop_K64_N64", 5, -1))))
    assert found.state == FAILED and "memory beside out was written" in found.text

    def spoil(device, kernel, args):  # what is copied from
        if kernel == "spad":
            device.memory.host(int(args[1]), 4).view(np.uint32)[0] ^= np.uint32(1)
    found = one.run(Stand(card(spoil)))
    assert found.state == DIFFERENT and "operands were written: images" in found.text


def test_a_question_answered_otherwise_names_the_instruction_and_its_inputs():
    question = next(q for q in probes.questions() if q.source == "flags")
    stand = Stand(card(flip("probe_flags", 0, 5)))
    found = question.run(stand)
    asked = probes.answers("flags")
    assert found.state == DIFFERENT and f"1 of {len(asked)} answers differ" in found.text
    (difference,) = found.data["differences"]
    given = probes.inputs("flags")
    assert difference["first"][0]["inputs"] == [f"{x:08x}" for x in given[:, 5]] and difference["different"] == 1
    assert question.run(Stand(card())).state == SAME


def test_approximations_are_figures_not_faults():
    question = next(q for q in probes.questions() if not q.exact)
    found = question.run(Stand(card(flip("probe_mufu", 3, 1))))
    assert found.state == NOTED and "at most by 8" in found.text and "MUFU.RCP" in found.text


@pytest.mark.long
def test_clocks_and_seconds_are_measured_beside_the_model():
    def counted(device, kernel, args):  # the card's clock, twice the virtual one
        if kernel == "probe_ffma_chain":
            device.memory.host(int(args[0].address), 4).view(np.uint32)[0] = 100 + 250 * args[2]
    stand = Stand(card(counted))
    found = probes.Clock("ffma_chain").run(stand)
    assert found.data == {"simulated": 216.0, "measured": 250.0} and found.state == NOTED
    found = times.items(quick=True)[0].run(stand)
    assert found.data["sm_mhz"] == pytest.approx(1219.5, abs=1) and found.data["measured_us"] > 0
    assert found.data["simulated_us"] > 0 and "measured" in found.text and "simulated" in found.text
    assert times.machine_of(stand)["sms"] == 16 and times.machine_of(stand)["clock_mhz"] == 1220


@pytest.mark.long
def test_the_ledger_says_what_the_model_predicts_of_every_probe_of_reuse_and_conflicts():
    ledger = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
    told = {name: int(n) for name, n in re.findall(r"^\| `((?:reuse|conflict)_\w+)` \| (\d+) \|", ledger, re.M)}
    assert set(told) == {name for name in probes.CLOCKS if name.startswith(("reuse", "conflict"))}
    stand = Stand(VirtualGpu())
    found = {name: probes.Clock(name).run(stand).data["simulated"] for name in told}
    assert found == pytest.approx(told, abs=0.6)
    assert probes.Clock("bank_conflict").run(stand).data["simulated"] > 3 * 4 * 32, "no operand is served by the cache"


def test_the_ledger_says_what_the_probe_of_branches_would_show(monkeypatch):
    ledger = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
    (told,) = re.findall(r"^\| `branch_3_warps` \| (\d+) \| (\d+) \|", ledger, re.M)
    stand, probe = Stand(VirtualGpu()), probes.Clock("branch_3_warps")
    assert probe.run(stand).data["simulated"] == int(told[0])
    other = times.machine_of(stand).replace(turn_stall=16)
    monkeypatch.setattr(times, "machine_of", lambda _: other)
    assert probe.run(stand).data["simulated"] == int(told[1])


def test_a_translation_is_not_asked_for_clocks():
    device = card()
    device.chip = dataclasses.replace(device.chip, runs_maxwell=False)
    assert probes.Clock("ffma_chain").run(Stand(device)) == Result("clocks", probes.Clock("ffma_chain").name, NOTED, "")


def test_every_probe_is_asked_and_says_what_for():
    names = set(read(cubin("probes/clocks", "sm_52")).kernels)
    assert names == {f"probe_{name}" for name in probes.CLOCKS}
    for question in probes.questions():
        asked = probes.answers(question.source)
        assert len(asked) > 4 and all(asked), question.source
    names = [i.name for i in run.every()]
    assert len(names) == len(set(names))


# -- whatever happens -------------------------------------------------------------------------------------------------


class Broken(Card):
    def alloc(self, nbytes):
        raise DeviceError(f"out of memory at {Path.home()}/x of {getpass.getuser()} on {socket.gethostname()}")


def test_a_failure_is_a_result_without_anything_private():
    found = run.attempt(item("forward"), Stand(Broken()))
    assert found.state == FAILED and found.text.startswith("out of memory at ~/x of ")
    assert str(Path.home()) not in found.text and socket.gethostname() not in found.text


def test_an_error_nobody_thought_of_is_a_result_too():
    class Strange:
        part, name = "kernels", "strange"

        def run(self, stand):
            raise KeyError("x")
    assert run.attempt(Strange(), Stand(card())).text == "KeyError: 'x'"


WORKER = """
    import json, os, pathlib, sys, time
    folder = pathlib.Path(sys.argv[0]).parent
    folder.joinpath(f"began {os.getpid()}").touch()
    for line in sys.stdin:
        n = int(line)
        folder.joinpath(f"ran {n} {os.getpid()}").touch()
        if n == 1:
            sys.exit(139)        # dies
        if n == 3:
            time.sleep(60)       # hangs
        print("driver says something")
        state = "failed" if n == 4 else "same"
        print("maxdnn selftest: " + json.dumps(dict(part="kernels", name=f"item {n}", state=state, text="", data={})),
              flush=True)
        if state == "failed":
            sys.exit(1)
"""


class Named:
    def __init__(self, name, part="kernels"):
        self.name, self.part = name, part


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """The other process, as a script in a folder where it notes what it runs; of six items, each a group of its own,
    the last is to be measured alone."""
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    monkeypatch.setattr(run, "WORKER", (sys.executable, str(script)))
    monkeypatch.setattr(run, "PATIENCE", 2.0)
    monkeypatch.setattr(run, "every", lambda quick: [Named(f"item {n}", "times" if n == 5 else "kernels")
                                                     for n in range(6)])
    return script


@pytest.mark.sampled(1)
@pytest.mark.parametrize("most", [1, 3])
def test_an_item_that_kills_or_stops_its_process_costs_only_itself(most, worker, monkeypatch):
    found = dict(run.apart(0, most=most))
    assert sorted(found) == list(range(6)) and all(found[n].name == f"item {n}" for n in found)
    assert [found[n].state for n in range(6)] == [SAME, FAILED, SAME, FAILED, FAILED, SAME]
    assert "its process died" in found[1].text and "no answer within 2 s" in found[3].text and found[4].text == ""
    assert len(list(worker.parent.glob("ran 3 *"))) == (2 if most > 1 else 1), "blamed only where it runs alone"


@pytest.mark.parametrize("most", [1, 3])
def test_a_card_on_which_nothing_runs_is_given_up(most, worker, monkeypatch):
    worker.write_text("")
    monkeypatch.setattr(run, "_IN_A_ROW", 2)
    texts = [result.text[:12] for _, result in run.apart(0, most=most)]
    assert texts == ["no answer wi"] * 2 + ["not run: the"] * 4


def test_items_of_a_kernel_go_to_one_process_and_measurements_run_alone(worker, monkeypatch):
    monkeypatch.setattr(run, "_groups", lambda items: [[0, 2], [5]])
    found = [number for number, _ in run.apart(0, most=8)]
    assert sorted(found[:2]) == [0, 2] and found[2] == 5
    ran = {path.name.split()[1]: path.name.split()[2] for path in worker.parent.glob("ran *")}
    assert ran["0"] == ran["2"] != ran["5"]


@pytest.mark.long
def test_groups_hold_every_item_once():
    items = run.every(True)
    groups = run._groups(items)
    assert sorted(n for group in groups for n in group) == list(range(len(items)))
    kernels_of = [{items[n].plan.spec.name for n in group} for group in groups if items[group[0]].part == "kernels"]
    assert all(len(names) == 1 for names in kernels_of) and len(kernels_of) == len(set().union(*kernels_of))


@pytest.mark.parametrize(("memory", "cpus", "wanted"), [(500, 8, 1), (2048, 8, 2), (143771, 8, 8), (143771, 256, 12)])
def test_processes_fit_the_card_and_the_computer(memory, cpus, wanted, monkeypatch):
    monkeypatch.setattr(run.os, "sched_getaffinity", lambda pid: set(range(cpus)), raising=False)
    assert run.processes(memory) == wanted


@pytest.mark.long
def test_the_worker_ends_at_a_failure_on_a_card_and_its_lines_are_results(monkeypatch):
    lines = []
    some = [item("forward"), item("bias")]
    monkeypatch.setattr(run, "every", lambda quick: some)
    assert run.serve(Broken(), True, ["0\n", "1\n"], lines.append) == 1 and len(lines) == 1
    assert json.loads(lines[0].removeprefix(run.MARK))["state"] == FAILED
    lines.clear()
    assert run.serve(card(), True, ["1\n"], lines.append) == 0
    assert [json.loads(x.removeprefix(run.MARK))["name"] for x in lines] == [some[1].name]


def test_a_test_that_is_stopped_leaves_what_it_had(tmp_path, monkeypatch, capsys):
    from maxdnn.cli import selftest

    def stopped(stand, quick, tell):
        yield 1, Result("kernels", "two", SAME, "")
        yield 0, Result("kernels", "one", SAME, "")
        raise KeyboardInterrupt
    monkeypatch.setattr(run, "here", stopped)
    monkeypatch.setattr(selftest, "_EVERY", 0.0)
    path = tmp_path / "report.md"
    assert main(["selftest", "--device", "virtual", "--report", str(path)]) == 130
    found = report.read(path)
    assert [r["name"] for r in found["results"]] == ["one", "two"]
    assert found["counts"][SAME] == 2 and not found["complete"] and not report.passed(found)
    assert "stopped before its end" in path.read_text()


@pytest.mark.parametrize("content", ["", "# maxDNN", "```json\n{}\n```", "```json\n[1]\n```", "```json\n{\n```",
                                     '```json\n{"format": "other"}\n```'])
def test_a_file_that_is_no_report_is_named(content, tmp_path):
    path = tmp_path / "x.md"
    path.write_text(content)
    with pytest.raises(MaxdnnError, match=r"x\.md: no report of maxdnn selftest"):
        report.read(path)


def test_differences_of_floats_are_those_of_their_bits():
    a = np.array([0.0, np.nan, 1.0], np.float32)
    assert not items.differences(a, a.copy())
    found = items.differences(np.array([-0.0, np.nan, 1.0], np.float32), a)
    assert found["different"] == 1 and found["first"] == [{"index": [0], "found": "80000000", "wanted": "00000000"}]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--report", "/nowhere/at/all.md"], "--report: there is no folder"),
    (["--device", "77"], "maxdnn: "),
])
def test_the_command_says_in_a_line_what_is_wrong(arguments, message, capsys):
    assert main(["selftest", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
