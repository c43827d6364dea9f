"""What is of sm_90 alone in the timing model: rules that probes of an H200 gave, one at a time."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxdnn import cli, cubin
from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.errors import SimulationError
from maxdnn.simulator import columns as c
from maxdnn.simulator import timing
from maxdnn.simulator.access import OF_SM90, PACKS
from maxdnn.simulator.lower import accesses, lower, merge_rules, of_sm90
from maxdnn.simulator.machine import preset
from maxdnn.simulator.occupancy import l1_kib, occupancy
from maxdnn.simulator.probes import first, run
from maxdnn.simulator.probes.frame import assembled
from maxdnn.simulator.workload import Reducer

ROOT = Path(__file__).parents[2]
LANE = np.arange(32)
NAMES = ("rate LDS", "rate LDS.64", "rate LDS.128", "rate STS.64", "rate STS.128", "rate LDG", "rate LDG.64",
         "rate LDG.128", "rate IMAD.WIDE", "rate FFMA", "rate MUFU", "rate LDC")


@pytest.fixture(scope="module")
def code():
    chosen = [probe for probe in run.probes() if probe.name in NAMES]
    return cubin.read(run.cubin(chosen))


def kernel(code, name):
    number = [probe.name for probe in run.probes()].index(name)
    return code.kernel(f"probe_{number}_48").instructions


def body(code, name):
    """The first instruction of a probe's body and its number in the kernel."""
    instructions = kernel(code, name)
    first = next(i for i, inst in enumerate(instructions) if inst.opcode == "CS2R" and "CLOCK" in inst.text()) + 1
    return first, instructions


# Lanes' addresses -> cycles in the SM's pipe, as the probes "shared ..." and "LDG ..." of four warps say.
PHASES = [
    ("LDS", LANE * 4, 1), ("LDS", LANE * 8, 2), ("LDS", LANE * 0, 1), ("LDS", LANE * 128, 32),
    ("LDS.64", LANE * 8, 2), ("LDS.64", LANE // 2 * 8, 1), ("LDS.64", LANE % 4 * 8, 2),
    ("LDS.128", LANE * 16, 4), ("LDS.128", LANE * 0, 2), ("LDS.128", LANE % 8 * 16, 4), ("LDS.128", LANE // 2 * 16, 2),
    ("STS.64", LANE * 0, 2), ("STS.128", LANE * 0, 4), ("STS.128", LANE * 16, 4),
    ("LDG", LANE * 4, 1), ("LDG", LANE * 32, 8), ("LDG", LANE * 128, 32), ("LDG.64", LANE * 0, 2),
    ("LDG.64", LANE % 4 * 128 + LANE // 4 * 8, 8), ("LDG.128", LANE * 0, 4), ("LDG.128", LANE * 16, 4),
    ("LDG.128", LANE % 4 * 128 + LANE // 4 * 16, 16),
]


@pytest.mark.parametrize(("name", "addresses", "cycles"), PHASES)
def test_an_access_keeps_the_pipe_as_long_as_it_did_on_the_card(code, name, addresses, cycles):
    at, instructions = body(code, f"rate {name}")
    reducer = Reducer(instructions, pair_merge=True)
    records = reducer.records(addresses[None].astype(np.int64) + 0x1000, np.array([at]))
    tags, banks = records[0, 0] & (1 << c.BANKS) - 1, records[0, 0] >> c.BANKS
    assert max(tags, banks) == cycles


def test_rows_say_what_the_preset_does(code):
    machine = preset("h200")
    expected = {"IMAD.WIDE": (c.K_ALU, c.U_HEAVY, 4), "FFMA": (c.K_ALU, c.U_NONE, 1), "MUFU": (c.K_UNIT, c.U_XU, 8),
                "LDS.128": (c.K_SHARED, c.U_NONE, 2), "STS.128": (c.K_SHARED, c.U_NONE, 10),
                "LDG.64": (c.K_GLOBAL, c.U_NONE, 4)}
    for name, values in expected.items():
        at, instructions = body(code, f"rate {name}")
        row = lower(instructions, machine)[at]
        assert (row[c.I_KIND], row[c.I_UNIT], row[c.I_INTERVAL]) == values, name
        assert row[c.I_DOUBLES] == 0 and of_sm90(instructions)


def test_stores_do_not_merge_and_constants_by_number_leave_no_addresses(code):
    at, instructions = body(code, "rate STS.128")
    assert merge_rules(instructions, True)[at] == OF_SM90 | PACKS  # and moves the bytes that it writes
    at, instructions = body(code, "rate LDC")
    assert accesses(instructions)[0][at] == -1


def test_shared_memory_is_taken_from_l1_and_a_kibibyte_of_each_block_is_the_systems():
    machine = preset("h200")
    fit = occupancy(machine, 128, 48 << 10, 128)
    assert (fit.blocks, fit.limiter) == (4, "registers")
    assert occupancy(machine, 32, 75 << 10, 128).blocks == 3  # 76 KiB each of 228
    assert l1_kib(machine, 4, 48 << 10) == 256 - 196
    assert l1_kib(machine, 2, 0) == 256 - 8
    with pytest.raises(SimulationError, match="shared memory must be 0"):
        occupancy(machine, 32, 228 << 10, 128)


def test_a_cubin_and_a_machine_that_do_not_go_together_are_refused(tmp_path, capsys, code):
    number = [probe.name for probe in run.probes()].index("rate FFMA")
    chosen = [probe for probe in run.probes() if probe.name == "rate FFMA"]
    (tmp_path / "probe.cubin").write_bytes(run.cubin(chosen))
    launch = {"buffers": {"out": "zeros:float32:65536", "data": "zeros:float32:65536"},
              "launches": [{"kernel": f"probe_{number}_48", "grid": [1], "block": [32], "args": ["out", "data", 1, 0]}]}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    arguments = ["simulate", str(tmp_path / "probe.cubin"), "--launch", str(tmp_path / "launch.json")]
    assert cli.main(arguments) == 1
    assert "machine code of sm_90, and --machine gm204 runs sm_50 to sm_62" in capsys.readouterr().err
    assert cli.main([*arguments, "--machine", "h200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["launches"][0]["machine"] == "h200"


def test_a_launch_that_follows_one_of_its_like_finds_its_lines_in_l2(tmp_path, capsys, code):
    number = [probe.name for probe in run.probes()].index("rate LDG")
    (tmp_path / "probe.cubin").write_bytes(run.cubin([probe for probe in run.probes() if probe.name == "rate LDG"]))
    launch = {"buffers": {"out": "zeros:float32:65536", "data": "zeros:float32:65536"},
              "launches": [{"kernel": f"probe_{number}_48", "grid": [1], "block": [32], "args": ["out", "data", 1, 0]}]}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    arguments = ["simulate", str(tmp_path / "probe.cubin"), "--launch", str(tmp_path / "launch.json"), "--machine",
                 "h100"]
    found = []
    for more in ([], ["--warm"]):
        assert cli.main([*arguments, *more, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["launches"][0])
    cold, warm = found
    assert (cold["warm"], warm["warm"]) == (False, True)
    assert warm["dram_read_bytes"] == 0 < cold["dram_read_bytes"] and warm["clocks"] < cold["clocks"]
    assert cli.main([*arguments, "--warm"]) == 0
    assert ", warm  " in capsys.readouterr().out


@pytest.mark.parametrize("kib", [0, 32, 48])
def test_code_comes_with_a_launch_one_line_behind_the_other(kib):
    """A kernel jumps so far as it begins: 128 instructions there have run as late as on an H100 with empty caches."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "probes.h100.json").read_text())["begins"]
    card = [sum(row["median"]) for row in rows if row["begin"] == kib and row["blocks"] == 132]
    device = VirtualGpu()
    function = device.load(assembled(first.beginning(kib))).function(f"begin_{kib}")
    result = timing.launch(function, (132, 1, 1), (32, 1, 1), [device.alloc(1 << 17)], machine="h100",
                           options=timing.Options(trace=(0, 10000)))
    stamps = [i for i, inst in enumerate(function.kernel.instructions) if inst.opcode == "CS2R"]
    times = np.sort(result.events[np.isin(result.events[:, 3], stamps), 0])
    assert times[-1] - times[0] == pytest.approx(np.mean(card), rel=0.15)
