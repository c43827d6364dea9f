"""What judges of the timing model of an H200 have in common: counters as Nsight Compute reads them, and what the model
says in their place."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import maxdnn

METRICS = {
    "clocks": "sm__cycles_active.max",
    "least": "sm__cycles_active.min",
    "active": "sm__cycles_active.avg",
    "elapsed": "sm__cycles_elapsed.max",
    "issued": "smsp__inst_issued.sum",
    "executed": "smsp__inst_executed.sum",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "ns": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
}
ONE_PASS = "clocks", "least", "active", "elapsed", "issued"
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


def modelled(result: Any) -> dict[str, Any]:
    """What a simulated launch has in place of the counters."""
    from maxdnn.simulator import columns, report

    return {
        "clocks": result.cycles,
        "issued": int(result.issued.sum()),
        "slots": report.slots(result),
        "l1_hit": result.ratio(columns.C_L1_HITS, columns.C_L1_SECTORS),
        "l2_hit": result.ratio(columns.C_L2_HITS, columns.C_L2_SECTORS),
    }
