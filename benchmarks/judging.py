"""What judges of the timing model of an H200 have in common: counters as Nsight Compute reads them, and what the model
says in their place."""

import csv
import io
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import maxdnn

SMS = 132
METRICS = {
    "clocks": "sm__cycles_active.max",
    "least": "sm__cycles_active.min",
    "active": "sm__cycles_active.avg",
    "elapsed": "sm__cycles_elapsed.max",
    "issued": "smsp__inst_issued.sum",
    "executed": "smsp__inst_executed.sum",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "l2_stored": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "ns": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
}
ONE_PASS = "clocks", "least", "active", "elapsed", "issued", "ns", "dram_read", "dram_write"
STALLS = (
    "long_scoreboard",
    "short_scoreboard",
    "wait",
    "barrier",
    "no_instruction",
    "mio_throttle",
    "lg_throttle",
    "math_pipe_throttle",
    "dispatch_stall",
    "not_selected",
    "selected",
    "branch_resolving",
    "imc_miss",
    "drain",
)
STALL_METRICS = {f"stall {name}": f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in STALLS}


def chosen_metrics(warm: bool, stalls: bool) -> dict[str, str]:
    """With `warm` those that one pass reads: between two, memory is restored through the caches."""
    return {name: METRICS[name] for name in ONE_PASS} if warm else METRICS | (STALL_METRICS if stalls else {})


def profiled(
    script: Sequence[str], kernels: str, log: Path, metrics: Mapping[str, str], warm: bool
) -> tuple[list[Any], list[dict[str, str]]]:
    """Run a Python script under Nsight Compute: the lines of JSON that it told, and a row for each launch of kernels
    whose names begin with an expression. With `warm` the caches are left alone, else they are empty when a launch
    begins."""
    command = [
        "ncu",
        "--clock-control",
        "none",
        "--cache-control",
        "none" if warm else "all",
        "--csv",
        "--page",
        "raw",
        "--kernel-name",
        f"regex:^{kernels}",
        "--log-file",
        str(log),
        "--metrics",
        ",".join(metrics.values()),
        sys.executable,
        *script,
    ]
    paths = os.pathsep.join([str(Path(maxdnn.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths})
    if done.stderr.strip():
        print(done.stderr[-3000:])
    told = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    lines = [text for text in log.read_text().splitlines() if text.startswith('"')] if log.exists() else []
    table = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"]]
    if done.returncode or not table:
        print(f"ncu's exit status {done.returncode}\n{done.stdout[-500:]}\n" + "\n".join(lines[-5:]))
    return told, table


def readings(row: Mapping[str, str], metrics: Mapping[str, str]) -> dict[str, float | None]:
    """The counters of a launch by our names."""
    return {name: _number(row.get(metric)) for name, metric in metrics.items()}


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def card(name: str, row: Mapping[str, Any]) -> Any:
    """A preset at the clock that the card's SMs had in a launch: a kernel on tensor cores draws so much power that they
    slow down."""
    from maxdnn.simulator.machine import preset

    machine, seen = preset(name), row.get("measured", {})
    if not seen.get("ns"):
        return machine
    return machine.at_clock(round(1000 * seen["elapsed"] / seen["ns"]))


def predicted(work: Any, function: Any, block: Any, machine: Any, contents: Any = None) -> dict[str, Any]:
    """What the model says of a launch behind others and of one behind itself; contents: of L2 before that."""
    from maxdnn.simulator import timing

    found = {}
    for name, warm in (("model", False), ("model_warm", True)):
        result = timing.simulated(work, function, block, machine, options=timing.Options(warm=warm),
                                  contents=contents if warm else None)
        found[name] = modelled(result)
    return found


def modelled(result: Any) -> dict[str, Any]:
    """What a simulated launch has in place of the counters."""
    from maxdnn.simulator import columns, report

    return {
        "clocks": result.cycles,
        "simulated_sms": result.simulated_sms,
        "issued": int(result.issued.sum()),
        "slots": round(report.slots(result)["issued"], 2),
        "l1_hit": _rounded(result.ratio(columns.C_L1_HITS, columns.C_L1_SECTORS)),
        "l2_hit": _rounded(result.l2_hits),
        "l2_stored": int(result.counters[columns.C_L2_STORED]),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# -- tables ------------------------------------------------------------------------------------------------------------

STATES = {"warm": ("warm", "model_warm"), "cold": ("measured", "model")}
"""Keys of a row: what was measured, what the model says."""


def errors(rows: Sequence[Mapping[str, Any]], state: str, least: float) -> list[float]:
    """Percent by which the model is off in clocks, of launches of more than so many."""
    measured, model = STATES[state]
    pairs = [(row[model]["clocks"], row[measured]["clocks"]) for row in rows if measured in row and model in row]
    return [100 * (said / seen - 1) for said, seen in pairs if seen > least]


def summary(name: str, found: Sequence[float]) -> str:
    """A row of a table: launches, mean and largest error, the error that nine of ten stay below, mean with sign."""
    sizes = sorted(abs(error) for error in found)
    return (f"| {name} | {len(sizes)} | {statistics.mean(sizes):.1f} % | {np.percentile(sizes, 90):.1f} % | "
            f"{sizes[-1]:.1f} % | {statistics.mean(found):+.1f} % |")


def by_group(rows: Sequence[Mapping[str, Any]], group: Callable[[Mapping[str, Any]], str], least: float) -> list[str]:
    """Tables of errors by group, of launches behind themselves and behind others."""
    lines = []
    for state in STATES:
        lines += [f"| {state} | launches | mean error | P90 | largest | mean with sign |", "|---|---|---|---|---|---|"]
        for name in [*dict.fromkeys(map(group, rows)), "all"]:
            found = errors([row for row in rows if name in ("all", group(row))], state, least)
            if found:
                lines.append(summary(name, found))
        lines.append("")
    return lines


def points(row: Mapping[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    """Percentages of a cold launch, measured and the model's."""
    seen, model = row["measured"], row["model"]
    active = seen["active" if model["simulated_sms"] == 1 else "clocks"]  # where all are simulated they may rest
    slots = 100 * seen["issued"] / (4 * SMS * active)
    return {
        "issued slots": (slots, model["slots"]),
        "L1 hits": (seen["l1_hit"], model["l1_hit"]),
        "L2 hits": (seen["l2_hit"], model["l2_hit"]),
    }


def apart(rows: Sequence[Mapping[str, Any]], least: float) -> list[str]:
    """How far slots, hit rates and what stores bring to L2 are from the counters."""
    kept = [row for row in rows if "model" in row and row["measured"]["clocks"] > least]
    lines = []
    for name, aim in (("issued slots", 3), ("L1 hits", 5), ("L2 hits", 5)):
        found = [abs(a - b) for a, b in (points(row)[name] for row in kept) if a is not None and b is not None]
        within = sum(x <= aim for x in found)
        lines.append(f"{name}: {statistics.mean(found):.1f} points apart in the mean, "
                     f"{np.percentile(found, 90):.1f} P90, {within} of {len(found)} within {aim}")
    pairs = [(row["model"].get("l2_stored"), row["measured"].get("l2_stored")) for row in kept]
    found = [100 * abs(model / seen - 1) for model, seen in pairs if model is not None and seen]
    if found:
        lines.append(f"sectors stored to L2: {statistics.mean(found):.1f} percent apart in the mean, "
                     f"{np.percentile(found, 90):.1f} P90, {sum(x <= 5 for x in found)} of {len(found)} within 5")
    return lines
