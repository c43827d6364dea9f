"""Clocks of the launches of maxdnn/simulator/probes/launches.py, as Nsight Compute reads them.

    python benchmarks/launch_probes.py measure --cubin FILE --json FILE      on the card, needs ncu
    python benchmarks/launch_probes.py predict --json FILE                   anywhere, prints the model's beside them
    python benchmarks/launch_probes.py answers --json FILE ... --into FILE   anywhere, into benchmarks/results/probes.*

Each launch is measured with empty caches, and as the second of two in a row."""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import judging

from maxdnn.simulator.probes import launches
from maxdnn.simulator.probes.launches import MIB


def run(file: Path, times: int) -> None:
    """Every launch, so many times in a row; what the profiler watches."""
    from maxdnn.runtime.devices import cuda

    device = cuda.device(0)
    module = device.load(file.read_bytes())
    data = device.alloc(max(launch.mib for launch in launches.every()) * MIB)
    for launch in launches.every():
        function = module.function(launch.kernel)
        for _ in range(times):
            function.launch((launch.blocks, 1, 1), (launch.threads, 1, 1), launch.arguments(data))
        device.synchronize()


def measure(file: Path, out: Path) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for state, times in (("measured", 1), ("warm", 2)):
        metrics = judging.chosen_metrics(times == 2, stalls=False)
        script = [__file__, "run", "--cubin", str(file), "--times", str(times)]
        kernels, log = "(launch|sparse|halves|anywhere|resting)_", out.with_suffix(".csv")
        _, table = judging.profiled(script, kernels, log, metrics, times == 2)
        for launch, row in zip(launches.every(), table[times - 1 :: times], strict=True):
            rows.setdefault(launch.name, {"probe": launch.name})[state] = judging.readings(row, metrics)
    out.write_text(json.dumps({"rows": list(rows.values())}, indent=0) + "\n")


def predict(rows: list[dict[str, Any]], machine: str) -> Iterator[tuple[str, Mapping[str, float]]]:
    """By launch how far the model's clocks are off, percent, of either state."""
    from maxdnn.emulator.gpu import VirtualGpu
    from maxdnn.simulator import timing

    code = launches.cubin()
    by_name = {launch.name: launch for launch in launches.every()}
    for row in rows:
        if "pieces" in row["probe"]:  # no two of its blocks are alike: tracing them takes hours
            continue
        launch, device = by_name[row["probe"]], VirtualGpu()
        function = device.load(code).function(launch.kernel)
        grid, block = (launch.blocks, 1, 1), (launch.threads, 1, 1)
        args = launch.arguments(device.alloc(launch.mib * MIB))
        work = timing.workload(function, grid, block, args, machine=judging.card(machine, row), keep=False)
        row |= judging.predicted(work, function, block, judging.card(machine, row))
        yield launch.name, {state: judging.errors([row], state, 0)[0] for state in judging.STATES}


def answers(measured: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """By launch the clocks of each time it was measured, and the median of the MiB of DRAM that were read and written,
    with empty caches and behind its like."""
    found: dict[str, dict[str, Any]] = {}
    amounts: dict[tuple[str, str], list[float]] = {}
    for file in measured:
        for row in json.loads(file.read_text())["rows"]:
            seen = found.setdefault(row["probe"], {"cold": [], "warm": []})
            for state, key, before in (("cold", "measured", ""), ("warm", "warm", "warm_")):
                seen[state].append(int(row[key]["clocks"]))
                for name, what in (("read", "read"), ("written", "write")):
                    amounts.setdefault((row["probe"], before + name), []).append(row[key][f"dram_{what}"] / MIB)
    for (probe, name), values in amounts.items():
        found[probe][name] = round(statistics.median(values), 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "measure", "predict", "answers"))
    parser.add_argument("--cubin", type=Path, metavar="FILE", help="the kernels: read if it is there, else written")
    parser.add_argument("--json", type=Path, nargs="+", metavar="FILE", help="several for answers alone")
    parser.add_argument("--into", type=Path, metavar="FILE", help="of answers: the answers of a card's probes")
    parser.add_argument("--machine", default="h100", help="of predict: the preset of the card that was measured")
    parser.add_argument("--times", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "run":
        run(args.cubin, args.times)
    elif args.what == "measure":
        if not args.cubin.exists():
            args.cubin.write_bytes(launches.cubin())
        measure(args.cubin, args.json[0])
    elif args.what == "answers":
        known = json.loads(args.into.read_text())
        args.into.write_text(json.dumps(known | {"launches": answers(args.json)}, indent=0) + "\n")
    else:
        for name, off in predict(json.loads(args.json[0].read_text())["rows"], args.machine):
            print(f"{name:70}", *(f"{state} {error:+.1f} %" for state, error in off.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
