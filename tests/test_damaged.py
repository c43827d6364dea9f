"""Damaged cubins through every command that takes one: an error line or a result, never a signal or a traceback.

The files of tests/emulator/test_corruption.py. MAXDNN_DAMAGED sets how many are tried (2000 for the full length)."""

import json
import os
import signal
import sys

import pytest

from maxdnn.emulator import VirtualGpu
from tests import damaged, oracles
from tests.emulator.test_corruption import SOURCE
from tests.emulator.test_corruption import damaged as spoil

COUNT = int(os.environ.get("MAXDNN_DAMAGED", "12"))
EACH = 40  # files a worker
BUDGET = 20_000


def commands(file, launch, name):
    """Every command that reads a cubin."""
    yield "disasm", [file]
    yield "disasm", [file, "--json"]
    yield "check", [file]
    yield "check", [file, "--json"]
    yield "ptx", [file, "--target", "sm_90"]
    run = [file, "--kernel", name, "--grid", "2", "--block", "32", "--budget", str(BUDGET), "--arg", "30"]
    for checks in ([], ["--race", "--undefined"]):
        yield "run", [*run, *["--arg", "zeros:int32:32"] * 2, *checks]
    yield "simulate", [file, "--launch", launch]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Launch descriptions, and everything loaded and compiled once before workers are forked."""
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "original.cubin").write_bytes(oracles.compile_cuda(SOURCE))
    for name in ("box", "loop"):
        description = {"kernel": name, "grid": [2, 1, 1], "block": [32, 1, 1],
                       "args": [30, {"buffer": 128}, {"buffer": 128}]}
        (folder / f"{name}.json").write_text(json.dumps(description))
        for command, words in commands(str(folder / "original.cubin"), str(folder / f"{name}.json"), name):
            found = damaged.outcome([command, *words])
            assert found == "0", f"{command} on the undamaged file: {found}"
    return folder


@pytest.mark.parametrize("first", range(0, COUNT, EACH))
def test_every_command_survives_a_damaged_cubin(folder, monkeypatch, first):
    monkeypatch.setattr("maxdnn.runtime.cache.store", lambda key, suffix, data: False)  # not worth keeping
    monkeypatch.setitem(VirtualGpu.__init__.__kwdefaults__, "instruction_budget", BUDGET)
    original = (folder / "original.cubin").read_bytes()
    from maxdnn.cubin import read
    code = {name: kernel.code for name, kernel in read(original).kernels.items()}
    jobs = []
    for seed in range(first, min(first + EACH, COUNT)):
        data, name = spoil(original, code, seed)
        file = folder / f"{seed}.cubin"
        file.write_bytes(data)
        jobs += [(f"seed {seed}: maxdnn {command} {' '.join(words[1:])}", [command, *words])
                 for command, words in commands(str(file), str(folder / f"{name}.json"), name)]
    results = list(damaged.outcomes(jobs, lambda: None))
    assert len(results) == len(jobs)
    wrong = [f"{name}: {found}" for name, found in results if found not in damaged.RIGHT]
    assert not wrong, "\n".join(wrong)
    assert {"0", "1"} <= {found for _, found in results}


def test_the_harness_sees_what_a_command_does_to_its_process(monkeypatch):
    def command(argv):
        if argv == ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if argv == ["leave"]:
            os._exit(3)
        if argv == ["raise"]:
            raise KeyError("gone")
        print("maxdnn: no" if argv == ["refuse"] else "", file=sys.stderr)
        return 1

    monkeypatch.setattr("tests.damaged.main", command)
    names = ["die", "refuse", "leave", "raise", "silent", "refuse"]
    found = dict(enumerate(f for _, f in damaged.outcomes([(n, [n]) for n in names], lambda: None)))
    assert [found[0], found[1], found[2], found[5]] == ["SIGKILL", "1", "the process left with status 3", "1"]
    assert found[3].startswith("KeyError: 'gone'") and found[4] == "status 1 without a word"
