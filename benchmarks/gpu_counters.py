"""What bounds each layer on a real GPU, from the profiler's counters: runs the ten layers once each under Nsight
Compute (`ncu`) and prints, for the convolution kernel, registers and spills as the driver's compiler left them, waves
of blocks, warps in flight, and how busy issue slots, FMA pipe and shared-memory pipe were. Measured, with the GPU's
name."""

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_baselines import gpu_device, layer_data

import maxdnn
from maxdnn.layers import LAYERS

METRICS = {
    "registers": "launch__registers_per_thread",
    "waves": "launch__waves_per_multiprocessor",
    "warps_active": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue_busy": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fma_busy": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "shared_busy": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "local_bytes": "launch__thread_local_memory_bytes_per_thread",
}


def run_layers() -> None:
    """Each layer once; what the profiler watches."""
    from pycuda import gpuarray

    device = gpu_device(0)
    for layer in LAYERS:
        maps, filters = layer_data(layer.shape)
        with device.active():
            x, f = gpuarray.to_gpu(maps), gpuarray.to_gpu(filters)
        maxdnn.conv_fprop(x, f, plan=maxdnn.plan(layer.shape, device=device, tuned=False, algorithm="direct"))
        device.synchronize()


def profile() -> list[dict[str, Any]]:
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--kernel-name", "regex:sconv_fprop",
               "--metrics", ",".join(METRICS.values()), sys.executable, __file__, "--layers-only"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    table = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"]]  # the first row holds units
    if len(table) != len(LAYERS):
        raise SystemExit(f"expected {len(LAYERS)} launches, the profiler saw {len(table)}")
    return [{"network": layer.network, "layer": layer.name, "kernel": row["Kernel Name"],
             **{name: _number(row.get(metric, "")) for name, metric in METRICS.items()}}
            for layer, row in zip(LAYERS, table, strict=True)]


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counters there")
    parser.add_argument("--layers-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.layers_only:
        run_layers()
        return 0
    device = gpu_device(0)  # says what is missing, if anything, before the profiler runs
    rows = profile()
    print(f"{device.name}; percent of peak while active")
    print(f"{'layer':16}{'kernel':24}" + "".join(f"{name:>13}" for name in METRICS))
    for row in rows:
        values = "".join(f"{row[name]:13.1f}" if row[name] is not None else f"{'-':>13}" for name in METRICS)
        print(f"{row['network'] + '-' + row['layer']:16}{row['kernel'].split('(')[0]:24}{values}")
    if args.json:
        args.json.write_text(json.dumps({"gpu": device.name, "layers": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
